"""Weights on the way down as floats of 16 bits: half the bytes, and clients train from what they were sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scheme_tools
import torch

import laconic
from conftest import make_population
from laconic.catalogue import SCHEMES, build_scheme
from laconic.clients import work
from laconic.errors import ConfigError, RunFolderError
from laconic.round import in_half
from laconic.runner.outcome import formula_bits
from laconic.train.engines.engine import Task

HALVABLE = [name for name, entry in SCHEMES.items() if "downlink" in entry.options]


def scheme(name: str, **changes: Any) -> laconic.Scheme:
    return scheme_tools.scheme(name, **({"ratio": 0.5, "local_steps": 1} | changes))


def run(chosen: laconic.Scheme, **options: Any) -> laconic.RunResult:
    few = {"clients": make_population(scheme_tools.SIZES[:8]), "rounds": 3, "sampling_rate": 0.6, "eval_every": 1}
    return scheme_tools.run(chosen, **(few | options))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The weights that clients trained from, round by round."""
    seen: list[torch.Tensor] = []

    def noted(**fields: Any) -> Task:
        seen.append(fields["weights"].clone())
        return Task(**fields)

    monkeypatch.setattr(work, "Task", noted)
    return seen


@pytest.mark.parametrize("name", HALVABLE)
def test_every_scheme_sends_half_the_bytes_down_and_as_many_up(name: str) -> None:
    whole, half = run(scheme(name)), run(scheme(name, downlink="half"))
    message = "bytes_down_per_client_and_round"
    assert half.ledger[message] - 60 == (whole.ledger[message] - 60) / 2
    assert half.ledger["bytes_down"] / half.ledger[message] == whole.ledger["bytes_down"] / whole.ledger[message]
    assert half.ledger["bytes_up"] == whole.ledger["bytes_up"]
    assert half.ledger["bytes_once"] == whole.ledger["bytes_once"]
    if half.statement["private"]:
        assert half.statement["released"] == whole.statement["released"]
        assert half.statement["participant"] == whole.statement["participant"]
    bits = [formula_bits(scheme(name, downlink=way), 83, 5)[1] for way in ("weights", "half")]
    assert bits[0] == 2 * bits[1]


def test_clients_train_from_what_they_were_sent_and_the_server_keeps_all_bits(starts: list[torch.Tensor]) -> None:
    result = run(scheme("fl-std", downlink="half"), rounds=4)
    assert len(starts) == 4
    assert all(torch.equal(start, in_half(start)) for start in starts)
    weights = torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])
    assert not torch.equal(weights, in_half(weights))
    starts.clear()
    run(scheme("fl-std"), rounds=4)  # and otherwise from all bits
    assert not any(torch.equal(start, in_half(start)) for start in starts)


def test_weights_that_never_travel_are_not_rounded(starts: list[torch.Tensor]) -> None:
    """FL-TOP's other weights stay where they began, which every client knows to the last bit."""
    run(scheme("fl-top", downlink="half", ratio=0.25))
    exact = torch.stack([start != in_half(start) for start in starts])
    assert exact.any(0).sum() > 83 // 2
    assert (starts[0] == starts[2])[exact.any(0)].all()
    assert (starts[0] != starts[2]).sum() <= 21


def test_half_learns_as_well() -> None:
    """Three decimal digits are enough to train from: nearly the same model, not the same."""
    whole, half = run(scheme("fl-std"), rounds=10), run(scheme("fl-std", downlink="half"), rounds=10)
    near, far = (torch.cat([p.detach().reshape(-1) for p in r.model.parameters()]) for r in (whole, half))
    assert 0 < (near - far).abs().max() < 5e-3


def test_a_run_goes_on_as_it_began(tmp_path: Path) -> None:
    chosen = scheme("fl-top-dp", downlink="half")
    run(chosen, rounds=2, out=tmp_path / "a", epsilon=None)
    with pytest.raises(RunFolderError, match="started with another scheme"):
        run(replace(chosen, downlink="weights"), rounds=3, out=tmp_path / "a", resume=True)


@pytest.mark.parametrize("name", ["sign-sgd", "centralized"])
def test_schemes_that_send_no_weights_take_no_such_option(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option of {name} 'downlink'"):
        build_scheme(name, downlink="half")


def test_the_centralised_reference_sends_nothing_down() -> None:
    with pytest.raises(ConfigError, match="sends nothing down"):
        replace(build_scheme("centralized", local_lr=0.1, local_steps=1), downlink="half")


def test_signs_alone_do_not_tell_an_average() -> None:
    """Otherwise one bit a weight would be counted for a message that cannot be sent."""
    with pytest.raises(ConfigError, match="use MajorityVote"):
        replace(scheme("fl-std"), downlink="signs")


@pytest.mark.parametrize("word", ["signs", "16"])
def test_a_wrong_word_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown downlink '{word}'"):
        scheme("fl-std", downlink=word)
