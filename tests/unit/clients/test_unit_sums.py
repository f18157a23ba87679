"""Units inside clients: sums that do not depend on who holds what, own coins, and the same bits in every runtime."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_tools
import torch
from torch import Tensor, nn

import laconic
import laconic.round as rounds
from conftest import make_records
from laconic.catalogue import build_scheme
from laconic.clients import simulated, work
from laconic.clients.simulated import SimulatedClients
from laconic.clients.work import coins_stream, drawn_units
from laconic.codecs.base import Identity
from laconic.data.population import FunctionPopulation, PooledPopulation, Records, as_population
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.ranks.start import RankedClients
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.server.steps import Scheduled
from laconic.streams import Stream, Streams
from laconic.train.units import UnitSums

RECORDS = make_records(120)
PATIENTS = np.repeat(np.arange(40), 3)
RATIOS = {"fl_bas_3_dp": 0.5, "fl_rnd_dp": 0.5, "fl_top_dp": 0.5, "fl_freq_dp": 0.7, "fl_cs_dp": 0.7}
SCHEMES = ["fl_std_dp", *RATIOS]


def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(6, 3)


def scheme(name: str = "fl_std_dp", **options: Any) -> Scheme:
    if name in RATIOS:
        options = {"ratio": RATIOS[name]} | options
    given = {"unit": "patient", "clip_norm": 0.5, "noise_multiplier": 2.0, "num_units": 40} | options
    return getattr(laconic.schemes, name)(**given)


def split(owners: int) -> PooledPopulation:
    """The same patients, with all their records, among so many clients."""
    return PooledPopulation(RECORDS, np.split(np.arange(120), owners), patients=PATIENTS)


def experiment(chosen: Scheme, owners: int = 4, **options: Any) -> Experiment:
    given: dict[str, Any] = {
        "model": model(),
        "population": split(owners),
        "sampler": laconic.Poisson(sampling_rate=1.0),
        "budget": laconic.Budget(delta=1e-4),
        "rounds": 3,
        "public": make_records(30, seed=5),
        "test": make_records(50, seed=1),
    }
    return Experiment(scheme=chosen, **(given | options))


def planned(e: Experiment, number: int = 1) -> tuple[SimulatedClients, RoundPlan, Tensor]:
    clients = SimulatedClients(e)
    run = Run(e, clients=clients)
    run.begin()
    return clients, run.plan(number), run.state.weights


def summed(e: Experiment) -> Tensor:
    """Σ_k C_k of the first round, without noise."""
    clients, plan, weights = planned(e)
    return torch.stack([clients.work.unit_terms(plan, int(client), weights) for client in plan.cohort]).sum(0)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("unit", ["patient", "record"])
def test_the_sum_of_all_owners_is_the_same_for_every_split(name: str, unit: str) -> None:
    chosen = scheme(name, unit=unit, num_units=40.0)
    first, second, third = (summed(experiment(chosen, owners)) for owners in (2, 4, 20))
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    assert bool(first.any())


@pytest.mark.parametrize("name", ["fl_std_dp", "fl_top_dp", "fl_cs_dp"])
@pytest.mark.parametrize("unit", ["patient", "record"])
@pytest.mark.parametrize("held", ["shuffled", "half of the table", "on demand"])
def test_many_small_clients_are_one_sum_with_the_bits_of_single_ones(
    name: str, unit: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With coins of each client, for rows in any order; and in several sums, where one would not be exact."""
    rows = np.random.default_rng(0).permutation(120)[: 60 if held == "half of the table" else 120]
    rows = np.split(rows, np.cumsum([1, 9, 4, 20]))
    population: Any = PooledPopulation(RECORDS, rows, patients=PATIENTS)
    if held == "on demand":
        population = as_population([(*RECORDS.some(own), PATIENTS[own]) for own in rows])
    e = experiment(
        scheme(name, unit=unit, unit_rate=0.7, max_owners_per_patient=5 if unit == "patient" else 1),
        population=population,
    )
    clients, plan, weights = planned(e)
    each = torch.stack([clients.work.unit_terms(plan, client, weights) for client in range(5)])
    chunks = list(clients.work.each(plan, plan.cohort, weights, clients.answer(plan)))
    assert [len(chunk.clients) for chunk in chunks] == [5] and torch.equal(chunks[0].values[0], each.sum(0))
    assert chunks[0].num_records.tolist() == [len(own) for own in rows] and int(each.any(1).sum()) > 3
    monkeypatch.setattr(work, "most_records", lambda *_, single: 2 * max(map(len, rows)))
    chunks = list(clients.work.each(plan, plan.cohort, weights, clients.answer(plan)))
    assert [len(chunk.clients) for chunk in chunks] == [2, 2, 1]
    assert torch.equal(sum(chunk.values[0] for chunk in chunks), each.sum(0))
    looked_at = [
        chunk.values for chunk in clients.work.each(plan, plan.cohort, weights, functools.partial(clients._terms, plan))
    ]
    assert torch.equal(torch.cat(looked_at), each)


@pytest.mark.parametrize("name", ["fl_std_dp", "fl_top_dp", "fl_cs_dp"])
def test_5_20_and_100_owners_release_the_same_model_under_the_same_noise(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of a sum is named after records and cohort, so that other sums get other noise; here it must not be."""
    monkeypatch.setattr(simulated, "noise_name", lambda experiment: "the same")
    monkeypatch.setattr(rounds, "_who", lambda plan: "the same")
    patients = np.repeat(np.arange(100), 2)
    records = make_records(200)
    found = [
        weights_of(
            scheme(name, num_units=100),
            population=PooledPopulation(records, np.split(np.arange(200), owners), patients=patients),
        )
        for owners in (5, 20, 100)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def norm_of_one_patient() -> float:
    """What a patient with three records adds to a sum of a subset of the weights, in units of S."""
    chosen = scheme("fl_bas_3_dp", clip_norm=1e-3)
    alone = PooledPopulation(RECORDS, [np.arange(3), np.arange(3, 3)], patients=PATIENTS)
    clients, plan, weights = planned(experiment(chosen, population=alone))
    terms = clients.work.unit_terms(plan, 0, weights)
    grid = chosen.noise.grid(code_size=len(terms), sensitivity=1e-3, plan=plan)
    assert grid is not None
    return float(terms.double().norm()) / (256 * grid.units * 1e-3)


def test_a_unit_is_clipped_after_encoding_and_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The norm of one patient's part is S, not of each record's, and not of what is not sent."""
    assert 0.999 < norm_of_one_patient() <= 1
    whole = UnitSums.terms

    def clipped_before_encoding(self: UnitSums, weights: Tensor, *, codec: Any, plan: RoundPlan, **rest: Any) -> Tensor:
        return codec.encode(whole(self, weights, codec=Identity(), plan=plan, **rest)[None].double(), plan, [])[0]

    monkeypatch.setattr(UnitSums, "terms", clipped_before_encoding)
    assert norm_of_one_patient() < 0.9


def test_records_of_single_clients_give_the_update_of_client_level() -> None:
    """One record each, one whole step of rate 1: both clip the same gradient. Only the rounding differs."""
    rows = np.arange(120)[:, None]
    inside = scheme(unit="record", num_units=120)
    outside = laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=2.0, local_lr=1.0, local_steps=1, bits=32)
    ours = experiment(inside, population=PooledPopulation(RECORDS, rows))
    found = summed(ours)
    e = experiment(outside, population=PooledPopulation(RECORDS, rows), noise_draws="per-sum")
    clients, plan, weights = planned(e)
    total = torch.zeros_like(found)
    for chunk in clients.work.each(plan, plan.cohort, weights, clients.answer(plan)):
        total += chunk.values[0]
    assert ours.grid is not None
    assert e.grid is not None
    assert ours.typical_plan().divisor == plan.divisor == 120
    scaled, expected = found.double() / ours.grid.units, total.double() / e.grid.units
    assert float((scaled - expected).abs().max()) < 1e-4 * float(expected.abs().max())


def weights_of(chosen: Scheme, **options: Any) -> Tensor:
    run = Run(experiment(chosen, **options))
    run.run()
    return run.state.weights


@pytest.mark.parametrize("name", ["fl_std_dp", "fl_top_dp", "fl_cs_dp"])
def test_masked_sums_have_the_bits_of_simulated_ones(name: str) -> None:
    chosen = scheme(name, unit_rate=0.6)
    slack: dict[str, Any] = {"max_dropouts": 1, "max_colluders": 1, "dropout_rate": 0.1}
    masked = weights_of(chosen, secagg="masked", **slack)
    assert torch.equal(masked, weights_of(chosen, noise_draws="per-client", **slack))
    assert not torch.equal(masked, weights_of(chosen, noise_draws="per-client", seed=1, **slack))


def test_a_killed_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    chosen = scheme(unit_rate=0.6, momentum=0.5)
    asked: dict[str, Any] = {
        "model": model(),
        "clients": split(4),
        "sampling_rate": 1.0,
        "delta": 1e-4,
        "checkpoint_seconds": 0,
    }

    class Killed(Exception):
        pass

    def kill(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise Killed

    whole = laconic.run(chosen, rounds=5, **asked)
    with pytest.raises(Killed):
        laconic.run(chosen, rounds=5, out=tmp_path / "run", observer=kill, **asked)
    resumed = laconic.run(chosen, rounds=5, out=tmp_path / "run", resume=True, **asked)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert resumed.statement["participant"] == whole.statement["participant"]


@pytest.mark.parametrize("draws", ["per-sum", "per-client"])
def test_ranks_have_the_same_bits(tmp_path: Path, draws: str) -> None:
    e = experiment(scheme(unit_rate=0.6), noise_draws=draws)

    def first(ranks: Any) -> Tensor:
        run = Run(e, clients=RankedClients(e, ranks))
        run.run()
        return run.state.weights

    found = rank_tools.together(tmp_path / "meet", 3, first, lambda ranks: RankedClients(e, ranks).serve())
    assert torch.equal(found, weights_of(e.scheme, noise_draws=draws))


def test_coins_are_new_for_every_client_round_and_attempt() -> None:
    streams, count = Streams(0), 4000
    plans = {
        (number, attempt): RoundPlan(
            round=number,
            attempt=attempt,
            cohort=np.arange(3),
            planned_cohort=3,
            run_seed=0,
            round_seed=0,
            fingerprint="",
        )
        for number in (1, 2)
        for attempt in (0, 1)
    }
    drawn = [
        drawn_units(count, 0.3, coins_stream(streams, plan, client)) for plan in plans.values() for client in (0, 1)
    ]
    values = np.stack([one.numpy() for one in drawn if one is not None]).astype(float)
    # 8 sets of 4,000 coins: six standard deviations are exceeded in one of 10^7 tests or so.
    assert np.abs(values.mean(1) - 0.3).max() < 6 * np.sqrt(0.21 / count)
    correlations = np.corrcoef(values) - np.eye(len(values))
    assert np.abs(correlations).max() < 6 / np.sqrt(count)
    assert drawn_units(5, 1.0, Stream(0)) is None


def test_another_run_of_the_same_seed_has_coins_of_its_own() -> None:
    """With the coins of the first run nothing would amplify the second: who was drawn shows in the first."""
    drawn = []
    for options in ({}, {"clip_norm": 0.6}, {}):
        clients, plan, _ = planned(experiment(scheme(unit_rate=0.5, **options)))
        drawn.append(drawn_units(4000, 0.5, coins_stream(clients.streams, plan, 0)))
    first, second, again = (one.numpy() for one in drawn if one is not None)
    assert np.array_equal(first, again)
    # Of 4,000 pairs of fair coins about half are alike; seven standard deviations are exceeded in one of 10^11 tests.
    assert abs((first == second).mean() - 0.5) < 7 * 0.5 / np.sqrt(4000)


def test_one_coin_is_for_all_records_of_a_patient() -> None:
    """The sum over drawn patients is that of whole patients: no record of theirs is left out."""
    chosen = scheme(unit_rate=0.5, clip_norm=1e-6)  # so small a bound makes every drawn patient count alike
    clients, plan, weights = planned(experiment(chosen, owners=1))
    drawn = drawn_units(40, 0.5, coins_stream(clients.streams, plan, 0))
    assert drawn is not None
    kept = np.flatnonzero(np.isin(PATIENTS, np.flatnonzero(drawn.numpy())))
    some = PooledPopulation(RECORDS, [kept], patients=PATIENTS)
    expected = summed(experiment(scheme(clip_norm=1e-6, unit_rate=1.0, num_units=20), population=some))
    found = clients.work.unit_terms(plan, 0, weights)
    # Both declare 20 patients for a round, so their grids are the same.
    assert torch.equal(found, expected)


def test_an_owner_whose_coins_draw_no_unit_sends_noise_alone() -> None:
    e = experiment(scheme(unit_rate=1e-9))
    clients, plan, weights = planned(e)
    assert not bool(clients.work.unit_terms(plan, 0, weights).any())
    codes = torch.cat([chunk.values for chunk in clients.work.codes(plan, weights)])
    assert codes.shape == (4, 21)
    assert bool((codes != 0).any(1).all())


def test_weights_of_classes_are_in_the_gradients() -> None:
    rare = PooledPopulation(RECORDS, [np.flatnonzero(RECORDS.targets.numpy() == 2)])
    plain, double, none = (
        summed(experiment(scheme(unit="record", clip_norm=50.0, num_units=40, class_weights=given), population=rare))
        for given in ((), (1, 1, 2), "1,1,0")
    )
    assert float((double - 2 * plain).abs().max()) <= 1e-5 * float(double.abs().max())
    assert not bool(none.any())
    with pytest.raises(ConfigError, match="a number for each class"):
        SimulatedClients(experiment(scheme(class_weights=(1, 2))))


def test_the_first_bias_is_the_log_odds_of_the_public_shares() -> None:
    """At the weighted shares the loss is at its best for a model that knows nothing else."""
    shares, weights = (0.5, 0.3, 0.2), (1.0, 2.0, 4.0)
    view = SimulatedClients(experiment(scheme(prevalence=shares, class_weights=weights)))
    start, plain = view.model.initial, SimulatedClients(experiment(scheme())).model.initial
    assert torch.equal(start[:-3], plain[:-3])
    weighted = torch.tensor(shares) * torch.tensor(weights)
    assert torch.allclose(start[-3:].softmax(0), weighted / weighted.sum(), atol=1e-6)
    assert scheme(prevalence="0.5,0.3,0.2").fingerprint == scheme(prevalence=shares).fingerprint
    assert scheme(prevalence=shares).fingerprint != scheme().fingerprint


def test_one_number_is_the_share_of_class_1_of_two() -> None:
    two = PooledPopulation(Records(RECORDS.inputs, (RECORDS.targets == 2).long()), np.split(np.arange(120), 4))
    single = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    e = experiment(scheme(unit="record", prevalence=0.02), population=two, model=single, public=None, test=None)
    assert float(SimulatedClients(e).model.initial[-1].sigmoid()) == pytest.approx(0.02)
    declared = [text for text in Run(e).run().statement["assumptions"] if text.startswith("taken as publicly known")]
    assert declared == ["taken as publicly known: about 40 records in all; the shares 0.98, 0.02 of the classes"]


def test_the_shares_of_the_classes_are_refused_where_they_mean_nothing() -> None:
    for options, more, match in (
        ({"prevalence": (0.5, 0.1)}, {}, "sum to 0.6"),
        ({"prevalence": 0.02}, {}, "--prevalence is for 2 classes, but the model has 3 classes"),
        ({"prevalence": "much"}, {}, "such as 0.02"),
        ({"prevalence": 1.5}, {}, "strictly between 0 and 1"),
        ({"prevalence": (0.5, 0.3, 0.2)}, {"model": nn.Linear(6, 3, bias=False)}, "leave it out"),
        ({"prevalence": (0.5, 0.3, 0.2), "class_weights": (1, 0, 1)}, {}, "no class the weight 0"),
    ):
        with pytest.raises(ConfigError, match=match):
            SimulatedClients(experiment(scheme(**options), **more))
    with pytest.raises(ConfigError, match="--prevalence means nothing with --unit client"):
        scheme(unit="client", prevalence=0.02, local_lr=0.1, local_steps=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"precondition": 0.15, "outputs": 3},
        {"precondition": 0.15, "outputs": 3, "momentum": 0.9},
    ],
)
def test_momentum_preconditioner_and_the_mean_of_iterates_are_post_processing(options: dict[str, Any]) -> None:
    """They change the model, and no ε; and every one of them changes it."""
    plain = Run(experiment(scheme())).run()
    chosen = scheme(**options)
    averaged = replace(chosen, rule=Scheduled(rule=chosen.rule, rounds=3, step_decay=0.5, average_last=2))
    run = Run(experiment(averaged))
    result = run.run()
    assert result.statement["participant"]["epsilon"] == plain.statement["participant"]["epsilon"]
    assert not torch.equal(run.state.weights, weights_of(chosen))


def test_a_patient_of_two_owners_adds_no_more_than_one_bound() -> None:
    both = PooledPopulation(RECORDS, [np.arange(3), np.arange(3, 6)], patients=np.zeros(120, dtype=np.int64))
    chosen = scheme(clip_norm=1e-3, max_owners_per_patient=2)
    clients, plan, weights = planned(experiment(chosen, population=both))
    grid = chosen.noise.grid(code_size=21, sensitivity=1e-3, plan=plan)
    assert grid is not None
    norms = [float(clients.work.unit_terms(plan, one, weights).double().norm()) / (256 * grid.units) for one in (0, 1)]
    assert norms == pytest.approx([0.5e-3, 0.5e-3], rel=1e-3)
    assert sum(norms) <= 1e-3


def test_the_divisor_is_declared_and_does_not_depend_on_the_records() -> None:
    many, few = (
        planned(experiment(scheme(num_units=500, unit_rate=0.5), population=p))[1] for p in (split(4), split(2))
    )
    assert many.divisor == few.divisor == 250


def test_both_epsilons_are_one_if_all_owners_take_part() -> None:
    result = laconic.run(scheme(), model=model(), clients=split(4), sampling_rate=1.0, rounds=3, delta=1e-4)
    released, participant = result.statement["released"], result.statement["participant"]
    assert released["epsilon"] == participant["epsilon"]
    assert result.statement["unit"] == "one patient with all records at one client"
    assert "a whole client has nothing: no ε holds for all its data together" in result.statement["not_covered"]
    assert (
        "no patient is at more than one client: this is assumed and cannot be checked"
        in result.statement["assumptions"]
    )
    assert result.statement["adjacency"]["relation"] == "zero-out"


def test_several_owners_have_the_rate_of_one_coin_or_more() -> None:
    e = experiment(scheme(unit_rate=0.2, max_owners_per_patient=2, num_units=200))
    assert e.accountant is not None
    assert e.accountant.main.rate == pytest.approx(1 - 0.8**2)
    single = experiment(scheme(unit_rate=0.2, num_units=200)).accountant
    assert single is not None
    assert e.accountant.released_epsilon(3) > single.released_epsilon(3)


def test_clients_from_python_say_whose_their_records_are() -> None:
    inputs, targets = RECORDS
    triples = [(inputs[a : a + 30], targets[a : a + 30], PATIENTS[a : a + 30]) for a in range(0, 120, 30)]
    assert torch.equal(summed(experiment(scheme(), population=as_population(triples))), summed(experiment(scheme())))
    result = laconic.run(scheme(), model=model(), clients=triples, sampling_rate=1.0, rounds=2, delta=1e-4)
    assert result.statement["unit"] == "one patient with all records at one client"


@pytest.mark.parametrize("missing", [np.nan, None, ""])
def test_a_record_without_a_patient_is_refused(missing: Any) -> None:
    """Else one person would be two units: one with a name and one without."""
    patients = np.array(["ann", "bob", missing] if missing == "" else [1, 2, missing], dtype=None)
    records = [(RECORDS.inputs[:3], RECORDS.targets[:3], patients)] * 4
    with pytest.raises(laconic.LaconicError, match="record 2 does not say whose it is"):
        laconic.run(scheme(), model=model(), clients=records, sampling_rate=1.0, rounds=2, delta=1e-4)


def test_a_patient_at_more_clients_than_declared_is_refused() -> None:
    """Where numbers of patients mean the same everywhere; those of files of single clients are their own."""
    inputs, targets = RECORDS
    both = [(inputs[a : a + 30], targets[a : a + 30], np.arange(30) + a % 60) for a in range(0, 120, 30)]
    asked: dict[str, Any] = {"model": model(), "clients": both, "sampling_rate": 1.0, "rounds": 1, "delta": 1e-4}
    with pytest.raises(ConfigError, match=r"at 2 clients, .* use --max-owners-per-patient 2"):
        laconic.run(scheme(), **asked)
    laconic.run(scheme(max_owners_per_patient=2), **asked)
    laconic.run(scheme(unit="record"), **asked)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_class_that_the_model_does_not_have_is_an_error_and_no_crash(wrong: int) -> None:
    targets = RECORDS.targets.clone()
    targets[100] = wrong
    population = PooledPopulation(Records(RECORDS.inputs, targets), np.split(np.arange(120), 4), patients=PATIENTS)
    with pytest.raises(ConfigError, match=f"3 outputs, but there is a class {wrong}"):
        Run(experiment(scheme(), population=population)).run()


def test_all_clients_say_whose_their_records_are_or_none() -> None:
    inputs, targets = RECORDS
    with pytest.raises(laconic.LaconicError, match=r"client 1: expected \(inputs, targets, patients\)"):
        as_population([(inputs, targets, PATIENTS), (inputs, targets)])


def nobodys() -> FunctionPopulation:
    return FunctionPopulation(4, lambda client: (RECORDS.inputs[:5], RECORDS.targets[:5]))


@pytest.mark.parametrize(
    ("options", "run", "match"),
    [
        ({"num_units": None}, {}, "--num-units"),
        ({"num_units": 0.5}, {}, "less than one patient"),
        ({"local_lr": 0.1}, {}, "--server-lr"),
        ({"local_steps": 5}, {}, "no bound holds"),
        ({"noise": "continuous"}, {}, "--noise integer"),
        ({"unit": "hospital"}, {}, "patient"),
        ({"unit": "record", "max_owners_per_patient": 2}, {}, "a record is at one client"),
        ({"unit_rate": 1.5}, {}, "unit_rate must be above 0 and at most 1"),
        ({"max_owners_per_patient": 9}, {}, "more than the 4 clients"),
        ({"max_owners_per_patient": 2}, {"sampling_rate": 0.5}, "--sampling-rate 1"),
        ({}, {"clients": nobodys()}, "--patient-column"),
        (
            {"unit": "client", "num_units": 40, "local_lr": 0.1, "local_steps": 1},
            {},
            "means nothing with --unit client",
        ),
        ({"num_units": 9000, "bits": 8}, {}, "8 bits cannot hold"),
        ({"class_weights": "1,x"}, {}, "such as 1,5"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(options: dict[str, Any], run: dict[str, Any], match: str) -> None:
    asked = {"clients": split(4), "sampling_rate": 1.0} | run
    with pytest.raises(laconic.LaconicError, match=match):
        laconic.run(scheme(**options), model=model(), rounds=2, delta=1e-4, **asked)


@pytest.mark.parametrize("name", ["fl-sign-dp", "sign-sgd-dp", "fl-std", "fl-std-record-dp", "fl-sign-record-dp"])
def test_schemes_without_clipped_sums_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--unit patient: .* use fl-std-dp"):
        build_scheme(name, unit="patient")
    if "record" not in name:  # those take no other options than their own
        with pytest.raises(ConfigError, match=r"--unit patient: .* use fl-std-dp"):
            getattr(laconic.schemes, name.replace("-", "_"))(unit="patient")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"groups": 2}, "--groups"),
        ({"codec": laconic.schemes.fl_sign(local_lr=1.0, local_steps=1).codec}, "signs"),
    ],
)
def test_parts_that_do_not_go_with_units_are_refused(change: dict[str, Any], match: str) -> None:
    from dataclasses import replace

    with pytest.raises(ConfigError, match=match):
        replace(scheme(), **change)


def test_votes_do_not_go_with_units() -> None:
    with pytest.raises(ConfigError, match="--top-selection public"):
        scheme("fl_top_dp", top_selection="votes")
