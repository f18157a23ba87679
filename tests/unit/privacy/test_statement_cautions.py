"""Limits that an empty figure could meet: a large δ is refused, and what promises little says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

import laconic
from laconic import schemes
from laconic.catalogue import scheme_entry
from laconic.errors import ConfigError
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.privacy.statement import cautions, check_delta
from laconic_studies.reproduce.tables import all_tables

SCHEME = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=2.0, local_lr=0.1, local_steps=1)
RECORDS = schemes.fl_std_record_dp(
    clip_norm=1.0, noise_multiplier=2.0, local_lr=0.1, record_rate=0.5, batch_size=2, balance="none"
)


def run(scheme: Any = SCHEME, *, clients: int = 20, noise: float | None = None, **options: Any) -> laconic.RunResult:
    if noise is not None:
        scheme = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=noise, local_lr=0.1, local_steps=1)
    data = [(torch.randn(3, 4), torch.arange(3) % 2) for _ in range(clients)]
    defaults: dict[str, Any] = {"sampling_rate": 0.5, "rounds": 2, "delta": 1e-5}
    return laconic.run(scheme, model=torch.nn.Linear(4, 2), clients=data, **(defaults | options))


def accountant(sampler: Sampler, num_clients: int, slack: int = 0) -> laconic.Accountant:
    noise = Gaussian(noise_multiplier=2.0)
    return laconic.Accountant(sampler=sampler, noise=noise, num_clients=num_clients, delta=1e-5, slack=slack)


@pytest.mark.parametrize("delta", [1 / 20, 0.06, 0.5, 0.99])
def test_a_delta_of_one_over_the_clients_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match="not below 1/20, and there are 20 clients.*--allow-large-delta"):
        run(delta=delta)


def test_a_delta_below_one_over_the_clients_is_not() -> None:
    assert run(delta=0.049).statement["cautions"] == []


def test_whoever_insists_is_told_what_it_means(caplog: pytest.LogCaptureFixture) -> None:
    """The two sides of the same words: a line before the first round, and one in the statement."""
    with caplog.at_level(logging.WARNING, logger="laconic"):
        (text,) = run(delta=0.5, allow_large_delta=True).statement["cautions"]
    assert "may publish one client's data in full and still meet the definition" in text
    assert [record.getMessage() for record in caplog.records] == [f"laconic: warning: {text}"]


def test_records_are_counted_where_records_are_protected() -> None:
    """Twenty clients with three records each: 1/60 is the limit, not 1/20."""
    assert run(RECORDS, delta=1 / 61).statement["cautions"] == []
    with pytest.raises(ConfigError, match="not below 1/60, and there are 60 records"):
        run(RECORDS, delta=1 / 60)
    (text,) = run(RECORDS, delta=1 / 60, allow_large_delta=True).statement["cautions"]
    assert "may publish one record's data in full" in text


def test_half_a_chance_is_too_much_even_for_one() -> None:
    with pytest.raises(ConfigError, match="delta 0.5 is a half or more"):
        check_delta(0.5, units=1, one="client", allowed=False)
    check_delta(0.49, units=1, one="client", allowed=False)


def test_a_very_large_epsilon_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="laconic"):
        result = run(noise=0.05, clients=40)
    said = result.statement["cautions"]
    assert [text.partition(" promises")[0].partition("against ")[2] for text in said] == ["an outsider", "the server"]
    assert all("promises next to nothing" in text for text in said)
    assert "against an outsider promises next to nothing" in caplog.text


def test_a_budget_within_reason_gets_none_beforehand(caplog: pytest.LogCaptureFixture) -> None:
    """All rounds would cost more than 20, but the run stops long before."""
    with caplog.at_level(logging.WARNING, logger="laconic"):
        run(noise=1.0, clients=40, rounds=200, epsilon=8.0)
    assert "outsider" not in caplog.text


@pytest.mark.parametrize(
    ("sampler", "clients", "slack", "said"),
    [
        (FixedSize(cohort_size=1), 20, 0, "codes of 1 clients"),
        (FixedSize(cohort_size=2), 20, 0, "codes of 2 clients"),
        (FixedSize(cohort_size=3), 20, 0, None),
        (FixedSize(cohort_size=4), 20, 2, "codes of 2 clients"),
        (Poisson(sampling_rate=0.1), 20, 0, "codes of 2 clients"),
        (Poisson(sampling_rate=0.2), 20, 0, None),
        (Poisson(sampling_rate=1.0), 1, 0, "there is only one client"),
    ],
)
def test_sums_of_one_or_two_clients_get_a_warning(sampler: Sampler, clients: int, slack: int, said: str | None) -> None:
    found = cautions(accountant(sampler, clients, slack), delta=1e-5, released=1.0, participant=1.0)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_the_statement_of_a_small_cohort_says_so() -> None:
    (text,) = run(sampling_rate=None, sampler=FixedSize(cohort_size=4), max_dropouts=1, max_colluders=1).statement[
        "cautions"
    ]
    assert "dropouts and colluders left out" in text


def test_a_sensible_run_has_nothing_to_be_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="laconic"):
        assert run().statement["cautions"] == []
    assert not caplog.records


def test_a_scheme_without_noise_has_no_cautions() -> None:
    assert "cautions" not in run(schemes.fl_std(local_lr=0.1, local_steps=1), delta=None).statement


def test_the_published_settings_still_run() -> None:
    """δ = 1e-5 with thousands of clients is fine. CHIL'21's is 1/max|D_k|, above one over all records: it insists."""
    seen = 0
    for table in all_tables():
        for row in table.rows:
            privacy, clients = row.settings.get("privacy", {}), row.settings["data"].get("num_clients")
            if not scheme_entry(row.scheme).private:
                assert "allow_large_delta" not in privacy
            elif scheme_entry(row.scheme).record_level:
                assert privacy["allow_large_delta"] is True
            else:
                assert clients is None or privacy["delta"] < 1 / clients
                seen += clients is not None
    assert seen
