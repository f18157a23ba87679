"""The chunks of a cohort are trained by several ranks, and the run has the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_tools import together
from scheme_tools import SIZES, model, scheme

import laconic
from conftest import make_population, make_records
from laconic.adversary.attacks.gradient_ascent import SignInversion
from laconic.aggregate.medians import Median
from laconic.codecs.queries import Evaluations
from laconic.data.population import FunctionPopulation
from laconic.errors import PrivacyError, RankFailed, RankLost
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.privacy.accounting.budget import Budget
from laconic.ranks.group import Ranks, plan_from_json, plan_to_json, read, written
from laconic.ranks.start import RankedClients, about_idle
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run
from laconic.train.engines.engine import Task

CASES: dict[str, dict[str, Any]] = {
    "integers": {"scheme": scheme("fl-std-dp")},
    "drawn by clients": {"scheme": scheme("fl-std-dp"), "noise_draws": "per-client"},
    "floats by data size": {"scheme": scheme("fl-std", batch_size=None)},
    "one by one": {"scheme": scheme("fl-std"), "engine": "one-by-one"},
    "continuous noise": {"scheme": scheme("fl-std-dp", noise="continuous")},
    "signs": {"scheme": scheme("fl-sign-dp")},
    "what is shared": {"scheme": scheme("fl-top-dp")},
    "votes": {"scheme": scheme("fl-top-dp", top_selection="votes", vote_rounds=1)},
    "groups": {"scheme": replace(scheme("fl-std-dp"), groups=3, aggregator=Median())},
    "single codes": {"scheme": replace(scheme("fl-std"), aggregator=Median())},
    "masked": {"scheme": scheme("fl-std-dp"), "secagg": "masked"},
    "dropouts": {"scheme": scheme("fl-std-dp"), "dropout_rate": 0.2, "max_dropouts": 9},
    "evaluations": {"scheme": replace(scheme("fl-std-dp"), evaluations=Evaluations(every=2))},
    "records": {"scheme": scheme("fl-std-record-dp")},
    "attackers": {"scheme": scheme("fl-std"), "attack": SignInversion(malicious=(3, 4, 5))},
}


def experiment(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "model": model(),
        "population": make_population(SIZES),
        "sampler": laconic.Poisson(sampling_rate=0.7),
        "budget": Budget(delta=1e-5) if changes["scheme"].private else None,
        "test": make_records(50, seed=1),
        "public": make_records(12, seed=2),
        "rounds": 3,
        "eval_every": 3,
        "device": "cpu",
        "chunk": 5,
    }
    return Experiment(**(settings | changes))


def outcome(result: RunResult) -> tuple[bytes, list[dict[str, Any]], dict[str, Any]]:
    weights = torch.cat([p.detach().flatten() for p in result.model.parameters()])
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in result.history]
    return weights.numpy().tobytes(), rows, result.ledger


def with_ranks(meeting: Path, size: int, **changes: Any) -> RunResult:
    every = [experiment(**changes) for _ in range(size)]  # one after another: they draw from torch's generator

    def first(ranks: Ranks) -> RunResult:
        return Run(every[0], clients=RankedClients(every[0], ranks)).run()

    return together(meeting, size, first, lambda ranks: RankedClients(every[ranks.rank], ranks).serve())


QUICK = ("integers", "drawn by clients", "floats by data size", "votes", "groups", "single codes", "evaluations")
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in QUICK]


@pytest.mark.parametrize("case", [*QUICK, *OTHERS])
def test_several_ranks_give_the_bits_of_one_process(case: str, tmp_path: Path) -> None:
    """Weights, rows with both ε, and bytes."""
    alone = outcome(Run(experiment(**CASES[case])).run())
    for size in (2, 3) if case == "integers" else (3,):
        assert outcome(with_ranks(tmp_path / str(size), size, **CASES[case])) == alone, size


def test_chunks_that_follow_from_the_number_of_ranks_would_give_other_bits() -> None:
    """Guards the test above: a client's last bits do hang on who else is in its chunk."""
    settings = CASES["floats by data size"]
    assert (
        outcome(Run(experiment(**settings, chunk=5)).run())[0] != outcome(Run(experiment(**settings, chunk=2)).run())[0]
    )


def test_nothing_is_released_if_a_client_is_in_the_sum_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that does not know of ranks trains every chunk in each of them."""
    monkeypatch.setattr(Task, "own", lambda task, chunks: iter(chunks))
    with pytest.raises(PrivacyError, match="the ranks have trained other clients than they were asked to"):
        with_ranks(tmp_path / "meeting", 2, **CASES["integers"])


def test_more_ranks_than_chunks(tmp_path: Path) -> None:
    alone = outcome(Run(experiment(**CASES["integers"], chunk=40)).run())
    assert [_idle(experiment(**CASES["integers"], chunk=chunk)) for chunk in (5, 40)] == [False, True]
    assert not _idle(experiment(**CASES["floats by data size"], chunk=None, engine="one-by-one"))
    result = with_ranks(tmp_path / "meeting", 3, **CASES["integers"], chunk=40)
    assert outcome(result) == alone
    assert result.summary()["ranks"] == 3
    assert "ranks" not in Run(experiment(**CASES["integers"])).run().summary()


def _idle(e: Experiment) -> bool:
    """Whether one of three ranks would have nothing to do."""
    clients = RankedClients(e, _OneOfThree())  # type: ignore[arg-type]
    said = about_idle(clients)
    assert said is None or "smaller --chunk" in said
    return said is not None


class _OneOfThree:
    rank, size = 0, 3


def test_what_goes_wrong_in_another_rank_is_said_by_rank_0(tmp_path: Path) -> None:
    """Client 8 is in the second chunk, which is rank 1's. (A private run reads all records before it starts.)"""

    def make(client: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = np.full((4, 6), np.nan if client == 8 else 1.0)
        return inputs, np.zeros(4, dtype=np.int64)

    settings = {
        "scheme": scheme("fl-std"),
        "budget": None,
        "population": FunctionPopulation(40, make),
        "sampler": laconic.Poisson(sampling_rate=1.0),
        "test": None,
    }
    with pytest.raises(RankFailed, match="rank 1: client 8: NaN or infinity in the inputs") as failed:
        with_ranks(tmp_path / "meeting", 2, **settings)
    assert failed.value.exit_code == 4


def test_a_rank_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    lost: list[bool] = []
    e = experiment(**CASES["integers"])

    def first(ranks: Ranks) -> RunResult:
        ranks = replace(ranks, when_lost=lambda: lost.append(True))
        return Run(e, clients=RankedClients(e, ranks)).run()

    with pytest.raises(RankLost, match="the connection to (rank 1|another rank) is lost"):
        together(tmp_path / "meeting", 2, first, lambda ranks: ranks.hear(0))
    assert lost


def test_a_plan_is_the_same_after_it_was_told() -> None:
    group = RoundPlan(
        round=3,
        attempt=1,
        cohort=np.array([2, 5]),
        planned_cohort=1 / 3,
        run_seed=2**63 - 1,
        round_seed=7,
        fingerprint="a",
    )
    plan = replace(group, cohort=np.array([2, 5, 9]), excluded=np.array([4]), groups=(group,), max_dropouts=1)
    again = plan_from_json(read(bytes(written(plan_to_json(plan)))), {})
    assert (again.planned_cohort, again.run_seed, again.drawn.tolist()) == (1 / 3, 2**63 - 1, [2, 4, 5, 9])
    assert again.groups[0].cohort.tolist() == [2, 5] and again.groups[0].noise_shares == 2
    assert plan_to_json(again) == plan_to_json(plan)
