"""Robust rules in whole runs: every scheme without noise, small cohorts, codes that are not finite, resuming."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import scheme_tools
import torch
from torch import Tensor

import laconic
from conftest import make_records
from laconic.aggregate.base import Aggregator
from laconic.aggregate.clipping import CentredClipping
from laconic.aggregate.krum import Krum
from laconic.aggregate.medians import Median, TrimmedMean
from laconic.aggregate.mixing import NearestNeighbourMixing
from laconic.aggregate.names import AGGREGATORS, build_aggregator
from laconic.catalogue import SCHEMES
from laconic.clients.simulated import SimulatedClients
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.train.engines.engine import Updates

PLAIN = [name for name in SCHEMES if name != "centralized" and not SCHEMES[name].private]
OPTIONS: dict[str, dict[str, Any]] = {"centred-clipping": {"radius": 1.0}}


def rule(name: str, byzantine: int = 2) -> Aggregator:
    takes = name not in ("mean", "centred-clipping", "norm-bound")
    return build_aggregator(name, byzantine=byzantine if takes else None, **OPTIONS.get(name, {}))


def run(scheme: Scheme, *, tamper: Any = None, **options: Any) -> laconic.RunResult:
    experiment = Experiment(
        scheme=scheme,
        model=scheme_tools.model(),
        population=scheme_tools.make_population(scheme_tools.SIZES),
        sampler=options.pop("sampler", laconic.Poisson(sampling_rate=options.pop("rate", 0.6))),
        test=make_records(60, seed=1),
        public=make_records(20, seed=2),
        **({"rounds": 3, "workers": 1} | options),
    )
    return Run(experiment, clients=SimulatedClients(experiment, tamper=tamper)).run()


def weights(result: laconic.RunResult) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


@pytest.mark.parametrize("name", PLAIN)
def test_every_scheme_without_noise_takes_a_robust_rule(name: str) -> None:
    scheme = replace(scheme_tools.scheme(name), aggregator=NearestNeighbourMixing(rule=Median(), byzantine=2))
    result = run(scheme, rate=scheme_tools.sampling_rate(name))
    assert torch.isfinite(weights(result)).all() and not result.summary()["discarded"]
    assert (
        result.ledger["bytes_up"]
        == run(scheme_tools.scheme(name), rate=scheme_tools.sampling_rate(name)).ledger["bytes_up"]
    )


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "mean"])
def test_every_rule_stands_four_boosted_attackers(name: str) -> None:
    """Four of about twenty-four send a thousand times the opposite; of the mean nothing is left."""

    def boosted(plan: Any, trained: Any) -> Updates:
        factors = torch.tensor([-1000.0 if client % 10 == 0 else 1.0 for client in trained.clients])
        return Updates(trained.clients, factors[:, None] * trained.values, trained.num_records)

    plain = replace(scheme_tools.scheme("fl-std"), weighting="uniform")
    spoilt = run(plain, tamper=boosted, rounds=8).last["accuracy"]
    robust = run(replace(plain, aggregator=rule(name, 4)), tamper=boosted, rounds=8).last["accuracy"]
    assert spoilt < 0.6 < 0.8 < robust


def test_codes_that_are_not_finite_are_left_out() -> None:
    def poisoned(plan: Any, trained: Any) -> Updates:
        values = trained.values.clone()
        values[[client % 8 == 0 for client in trained.clients]] = float("nan")
        values[[client % 8 == 1 for client in trained.clients], 0] = float("inf")
        return Updates(trained.clients, values, trained.num_records)

    result = run(replace(scheme_tools.scheme("fl-std"), aggregator=TrimmedMean(byzantine=1)), tamper=poisoned, rate=1.0)
    assert [row["not_finite"] for row in result.history] == [10, 10, 10]
    assert torch.isfinite(weights(result)).all()


def test_a_round_with_too_few_codes_changes_nothing_and_says_so() -> None:
    scheme = replace(scheme_tools.scheme("fl-std"), aggregator=Krum(byzantine=10))
    history = run(scheme, rate=0.6, rounds=8).history
    lost = [row for row in history if "discarded" in row]
    assert 0 < len(lost) < len(history)
    assert all(row["cohort"] < 23 for row in lost)
    assert lost[0]["discarded"] == f"{lost[0]['cohort']} codes, but Krum takes 23 or more"
    for before, row in itertools.pairwise(history):
        assert "discarded" not in row or row["loss"] == before["loss"]


@pytest.mark.parametrize("sampler", [laconic.FixedSize(cohort_size=8), laconic.Poisson(sampling_rate=0.2)], ids=str)
def test_a_rule_that_takes_more_codes_than_a_cohort_has_is_refused(sampler: Any) -> None:
    scheme = replace(scheme_tools.scheme("fl-std"), aggregator=Krum(byzantine=3))
    with pytest.raises(ConfigError, match=r"^Krum takes 9 codes or more, but a cohort has 8: lower --byzantine, or"):
        run(scheme, sampler=sampler)


def test_a_rule_that_remembers_goes_on_where_it_stopped(tmp_path: Path) -> None:
    scheme = replace(scheme_tools.scheme("fl-std"), aggregator=CentredClipping(radius=0.05))

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    small: dict[str, Any] = {"rounds": 4, "workers": 1, "test": make_records(60, seed=1)}
    with pytest.raises(KeyboardInterrupt):
        scheme_tools.run(scheme, out=tmp_path / "run", observer=interrupt, **small)
    resumed = scheme_tools.run(scheme, out=tmp_path / "run", resume=True, **small)
    assert torch.equal(weights(resumed), weights(scheme_tools.run(scheme, **small)))
    one_round = run(scheme, rounds=1), run(replace(scheme, aggregator=CentredClipping(radius=1e9)), rounds=1)
    assert not torch.equal(*(weights(result) for result in one_round))


def test_a_rule_that_remembers_is_refused_where_codes_mean_something_else_in_every_round() -> None:
    with pytest.raises(ConfigError, match="starts from the last round's code, but NewRandomSubset gives codes another"):
        replace(scheme_tools.scheme("fl-rnd"), aggregator=CentredClipping(radius=1.0))
    mixed = NearestNeighbourMixing(rule=CentredClipping(radius=1.0), byzantine=1)
    with pytest.raises(ConfigError, match="NearestNeighbourMixing starts from the last round's code"):
        replace(scheme_tools.scheme("fl-basic"), aggregator=mixed)


def test_the_centralised_reference_has_nothing_to_combine() -> None:
    with pytest.raises(ConfigError, match="one client, so there is nothing to combine"):
        replace(scheme_tools.scheme("centralized"), aggregator=Median())


def test_rules_can_be_written_down_and_read_back() -> None:
    for name in AGGREGATORS:
        some = rule(name)
        assert Aggregator.from_dict(some.to_dict()) == some
    nested = NearestNeighbourMixing(rule=Krum(byzantine=1), byzantine=1)
    assert Aggregator.from_dict(nested.to_dict()) == nested


@dataclass(frozen=True, kw_only=True)
class FirstCode(Aggregator):
    """The first client's code."""

    scale: float = 1.0

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        return self.scale * codes[0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("medain", {}, "unknown aggregator 'medain': did you mean 'median'?"),
        ("krum", {}, "--aggregator krum needs --byzantine"),
        ("median", {"mixing": True}, "--aggregator median with --mixing needs --byzantine"),
        ("centred-clipping", {}, "--aggregator centred-clipping needs --radius"),
        ("norm-bound", {"byzantine": 3}, "--byzantine means nothing for --aggregator norm-bound"),
        ("median", {"radius": 2.0}, "unknown option of aggregator 'median' 'radius'"),
        ("mean", {"mixing": True, "byzantine": 1}, "--mixing goes in front of a rule that looks at single codes"),
        ("norm-bound", {"radius": -1.0}, "radius must be a positive number"),
        ("multi-krum", {"byzantine": 1, "selected": 0}, "selected must be a whole number that is 1 or more"),
        ("math:pi", {}, "--aggregator math:pi is no laconic.aggregate.base.Aggregator"),
        ("math:", {}, "write it as package.module:name"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_in_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_aggregator(name, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_rule_of_ones_own_is_named_by_its_class() -> None:
    assert build_aggregator(f"{__name__}:FirstCode", scale=2.0) == FirstCode(scale=2.0)
