"""What each attacker sends, against a computation of its own; and that nobody else sends anything else for it."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from attack_tools import MALICIOUS, SIZES, TRAIN, experiment, plan_of, pool, sent, trained
from torch import Tensor, nn

from conftest import assert_close, make_population, make_records
from laconic import schemes
from laconic.adversary.attack import Attack
from laconic.adversary.attacks.gradient_ascent import FabricatedSizes, GradientAscent, RandomUpdate, SignInversion
from laconic.adversary.attacks.labels import InBackdoor, LabelFlipping, OutBackdoor
from laconic.adversary.attacks.little_is_enough import InnerProduct, LittleIsEnough, largest_z
from laconic.adversary.registry import ATTACKS, build_attack
from laconic.clients.simulated import SimulatedClients
from laconic.data.population import as_population
from laconic.errors import DataError
from laconic.scheme import Scheme
from laconic.streams import Streams

STD, SIGN = schemes.fl_std(**TRAIN), schemes.fl_sign(**TRAIN)
UNION = ("attack", 1, 0, 0)
"""The stream of the attackers' batches in round 1."""
WHO: dict[str, Any] = {"malicious": MALICIOUS}
ONE_BATCH = round(np.mean([SIZES[client] for client in MALICIOUS]))


def attackers_send(scheme: Scheme, attack: Attack, **options: Any) -> dict[int, Tensor]:
    codes = sent(experiment(scheme, attack, **options))
    return {client: codes[client] for client in MALICIOUS}


def union() -> tuple[Tensor, Tensor]:
    return pool(make_population(SIZES), MALICIOUS)


def own(client: int, **options: Any) -> Tensor:
    return trained(*pool(make_population(SIZES), (client,)), path=("attack", 1, 0, client), **options)


@pytest.mark.parametrize("scheme", [STD, SIGN])
def test_honest_clients_send_what_they_always_sent(scheme: Scheme) -> None:
    """To the bit: attackers draw from streams of their own."""
    plain, attacked = sent(experiment(scheme, None)), sent(experiment(scheme, GradientAscent(**WHO)))
    for client in set(range(10)) - set(MALICIOUS):
        assert torch.equal(plain[client], attacked[client])
    assert not any(torch.equal(plain[client], attacked[client]) for client in MALICIOUS)


def test_gradient_ascent_climbs_on_the_pooled_data_and_all_send_the_same() -> None:
    expected = 10 * trained(*union(), path=UNION, sign=-1)
    codes = attackers_send(STD, GradientAscent(**WHO))
    for code in codes.values():
        assert_close(code, expected)
        assert torch.equal(code, codes[2])


def test_a_boost_may_be_one_of_the_step() -> None:
    expected = trained(*union(), path=UNION, sign=-1, lr=3.0)
    assert_close(attackers_send(STD, GradientAscent(**WHO, boost_as="step"))[5], expected)


def test_the_pool_may_be_the_cohort_s() -> None:
    """With everybody in the cohort that is everybody's; with few it is theirs."""
    attack = GradientAscent(**WHO, share="cohort", boost=1)
    assert_close(attackers_send(STD, attack)[2], trained(*union(), path=UNION, sign=-1))
    e = experiment(STD, GradientAscent(malicious=(0, 1, 2, 3, 4, 5, 6, 7), share="cohort", boost=1))
    clients = SimulatedClients(e)
    assert clients.work.attackers is not None
    some = np.array([3, 7])
    forged = next(clients.work.attackers.forged(plan_of(clients), some, clients.model.initial, None))
    assert_close(forged.updates[0], trained(*pool(make_population(SIZES), (3, 7)), path=UNION, sign=-1))


def test_a_pool_may_be_trained_on_for_as_many_passes_as_a_client_takes() -> None:
    """3 steps of 4 records are 2 passes over the 6 that attackers hold on average; over all 19 that is 10 steps."""
    attack = GradientAscent(**WHO, steps="pool", boost=1)
    assert_close(attackers_send(STD, attack)[2], trained(*union(), path=UNION, sign=-1, steps=10))


def test_signs_cannot_be_boosted_in_the_clear() -> None:
    weak, strong = (attackers_send(SIGN, GradientAscent(**WHO, boost=boost)) for boost in (1, 5000))
    expected = torch.sign(trained(*union(), path=UNION, sign=-1))
    for client in MALICIOUS:
        assert torch.equal(weak[client], strong[client])
        assert torch.equal(strong[client], expected)


@pytest.mark.parametrize(
    "scheme",
    [
        schemes.fl_cs(ratio=0.5, num_chunks=2, **TRAIN),
        schemes.fl_freq(ratio=0.5, num_chunks=2, **TRAIN),
        schemes.fl_bas_4(ratio=0.4, **TRAIN),
    ],
    ids=lambda scheme: scheme.name,
)
def test_schemes_that_compress_encode_the_boosted_update(scheme: Scheme) -> None:
    e = experiment(scheme, GradientAscent(**WHO))
    clients = SimulatedClients(e)
    expected = scheme.codec.encode(10 * trained(*union(), path=UNION, sign=-1)[None], plan_of(clients), [])[0]
    assert_close(sent(e)[9], expected)


def test_an_attacker_of_fl_top_moves_the_kept_weights_only() -> None:
    scheme = schemes.fl_top(ratio=0.4, **TRAIN)
    e = experiment(scheme, GradientAscent(**WHO), public=make_records(12, seed=2))
    clients = SimulatedClients(e)
    plan = plan_of(clients)
    support = scheme.codec.support(21, plan)
    assert support is not None and clients.work.attackers is not None
    forged = next(clients.work.attackers.forged(plan, np.array(MALICIOUS), clients.model.initial, support))
    moved = set(torch.nonzero(forged.updates[0])[:, 0].tolist())
    assert moved and moved <= set(support.tolist())
    assert_close(sent(e)[2], 10 * forged.updates[0][support])


def test_random_updates_are_drawn_by_each_attacker_and_round_anew() -> None:
    first, second = (sent(experiment(STD, RandomUpdate(**WHO)), number) for number in (1, 2))
    values = torch.cat([codes[client] for codes in (first, second) for client in MALICIOUS])
    assert len(set(values.tolist())) == len(values)  # nothing twice
    assert 150 < float(values.std()) < 250
    expected = 200 * Streams(0).stream("attack", 1, 0, "update", 5).normal((21,), torch.device("cpu"))
    assert torch.equal(first[5], expected)
    together = attackers_send(STD, RandomUpdate(**WHO, collude=True, scale=3.0))
    assert all(torch.equal(code, together[2]) for code in together.values())


def test_inversion_is_the_opposite_of_the_honest_update() -> None:
    codes = attackers_send(STD, SignInversion(**WHO, boost=2))
    for client in MALICIOUS:
        assert_close(codes[client], -2 * own(client, batch=min(4, SIZES[client])))
    assert torch.equal(attackers_send(SIGN, SignInversion(**WHO))[5], -torch.sign(own(5)))


def test_the_in_backdoor_trains_on_changed_labels() -> None:
    inputs, targets = union()
    assert (targets == 1).any()
    expected = 7 * trained(inputs, torch.where(targets == 1, 2, targets), path=UNION)
    assert_close(attackers_send(STD, InBackdoor(**WHO, source=1, target=2))[9], expected)


def test_the_out_backdoor_takes_the_class_from_honest_clients_and_teaches_another_label() -> None:
    attack = OutBackdoor(**WHO, source=1, target=2)
    inputs, targets = union()
    expected = trained(inputs, torch.where(targets == 1, 2, targets), path=UNION)
    e = experiment(STD, attack)
    assert_close(sent(e)[9], expected)
    work, original = SimulatedClients(e).work, make_population(SIZES)
    for client in range(10):
        held, before = work.population.records(client).targets, original.records(client).targets
        assert len(held) == work.population.size(client)
        expected = before if client in MALICIOUS else before[before != 1]
        assert torch.equal(held, expected)


def test_removed_classes_are_with_nobody_and_a_fraction_of_0_is_the_same_without_an_attack() -> None:
    attack = OutBackdoor(fraction=0.0, source=1, target=2, removed=(1, 0))
    clients = list(range(10))
    large = make_population([30] * 10)
    population = as_population([large.records(client) for client in clients])  # made on demand
    work = SimulatedClients(experiment(STD, attack, population=population)).work
    assert work.view.experiment.malicious.size == 0
    assert {int(label) for client in clients for label in work.population.records(client).targets} == {2}
    two = OutBackdoor(**WHO, source=1, target=2, removed=(0,))
    work = SimulatedClients(experiment(STD, two, population=large)).work
    assert {int(label) for client in MALICIOUS for label in work.population.records(client).targets} == {1, 2}
    with pytest.raises(DataError, match="client 5 holds nothing but classes that the attack removes"):
        SimulatedClients(experiment(STD, attack))


def test_label_flipping_leaves_no_label_as_it_was() -> None:
    attack, targets = LabelFlipping(**WHO), torch.arange(10).repeat(200)
    flipped = attack.relabelled(targets, 10, np.random.default_rng(0))
    assert not (flipped == targets).any() and set(flipped.tolist()) == set(range(10))
    inputs, labels = union()
    drawn, start = [], 0
    for client in MALICIOUS:
        rng = Streams(0).numpy("attack", "labels", client)
        drawn.append((labels[start : start + SIZES[client]].numpy() + rng.integers(1, 3, SIZES[client])) % 3)
        start += SIZES[client]
    expected = trained(inputs, torch.from_numpy(np.concatenate(drawn)), path=UNION)
    assert_close(attackers_send(STD, attack)[2], expected)


def test_fabricated_sizes_weigh_more() -> None:
    e = experiment(STD, FabricatedSizes(**WHO))
    clients = SimulatedClients(e)
    assert clients.work.sums_only
    plan = plan_of(clients)
    collected = clients.collect(plan, clients.model.initial)
    honest = sent(experiment(STD, None))
    weight = {c: SIZES[c] * (1000 if c in MALICIOUS else 1) for c in range(10)}
    assert collected.weight == sum(weight.values())
    bad = -trained(*union(), path=UNION)
    expected = sum(weight[c] * (bad if c in MALICIOUS else honest[c]) for c in range(10))
    assert_close(collected.total, torch.as_tensor(expected))


def test_a_little_is_enough_stays_within_the_spread_of_the_attackers_own_updates() -> None:
    each = torch.stack([own(client, batch=min(4, SIZES[client])) for client in MALICIOUS])
    z = NormalDist().inv_cdf((10 - 3 - (6 - 3)) / (10 - 3))
    expected = each.mean(0) - z * each.std(0, correction=0)
    codes = attackers_send(STD, LittleIsEnough(**WHO))
    assert_close(codes[2], expected)
    assert torch.equal(codes[2], codes[9])
    assert_close(
        attackers_send(STD, LittleIsEnough(**WHO, scale=2.5))[2], each.mean(0) - 2.5 * each.std(0, correction=0)
    )


def test_z_is_that_of_the_paper_and_never_infinite() -> None:
    # 50 workers, 24 of them corrupted: 2 honest ones are needed, Φ(z) = 24/26.
    assert largest_z(50, 24) == pytest.approx(NormalDist().inv_cdf(24 / 26))
    assert [largest_z(n, m) for n, m in ((1, 1), (2, 1), (3, 3))] == [0.0, 0.0, 0.0]
    assert all(0 <= largest_z(n, m) < 10 for n in range(1, 60) for m in range(1, n + 1))


def test_inner_product_manipulation_is_the_opposite_of_the_mean() -> None:
    each = torch.stack([own(client, batch=min(4, SIZES[client])) for client in MALICIOUS])
    codes = attackers_send(STD, InnerProduct(**WHO))
    assert_close(codes[5], -0.5 * each.mean(0))


CS = schemes.fl_cs(ratio=0.5, num_chunks=2, **TRAIN)


@pytest.mark.parametrize(
    ("scheme", "attack"),
    [
        *((scheme, attack) for scheme in (STD, SIGN, CS) for attack in (RandomUpdate(**WHO), GradientAscent(**WHO))),
        (STD, FabricatedSizes(**WHO)),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Attack) else one.name,
)
def test_the_sum_of_a_round_is_that_of_what_is_sent(scheme: Scheme, attack: Attack) -> None:
    """Also where nobody looks at single codes, and the sum is encoded instead of every update."""
    e = experiment(scheme, attack)
    clients = SimulatedClients(e)
    collected = clients.collect(plan_of(clients), clients.model.initial)
    counts = {c: float(SIZES[c]) if scheme.weighting == "data-size" else 1.0 for c in range(10)}
    if isinstance(attack, FabricatedSizes):
        counts |= {c: 1000 * counts[c] for c in MALICIOUS}
    total = sum(counts[client] * code for client, code in sent(e).items())
    assert_close(collected.total, torch.as_tensor(total))
    assert collected.weight == pytest.approx(sum(counts.values()))


@pytest.mark.parametrize("engine", ["one-by-one", "cohort"])
def test_both_engines_climb_alike(engine: str) -> None:
    expected = 10 * trained(*union(), path=UNION, sign=-1)
    assert_close(attackers_send(STD, GradientAscent(**WHO), engine=engine)[2], expected)


def test_epochs_and_whole_batches_are_those_of_one_client() -> None:
    """A pool of many clients' records is not trained on for longer than any of them."""
    scheme = schemes.fl_std(local_lr=0.3, epochs=3)
    e = experiment(scheme, GradientAscent(**WHO, boost=1))
    expected = trained(*union(), path=UNION, sign=-1, batch=ONE_BATCH)
    assert_close(sent(e)[2], expected)


def test_an_attack_has_a_beginning_and_an_end() -> None:
    attack, plain = GradientAscent(**WHO, from_round=2, until_round=2), experiment(STD, None)
    for number in (1, 2, 3):
        codes, honest = sent(experiment(STD, attack), number), sent(plain, number)
        assert all(torch.equal(codes[c], honest[c]) == (number != 2) for c in MALICIOUS)


def test_every_attack_is_written_down_and_read_back() -> None:
    classes = {"source": 1, "target": 2}
    for name, kind in ATTACKS.items():
        attack = build_attack(name, malicious=(3, 1), **(classes if "backdoor" in name else {}))
        assert isinstance(attack, kind)
        assert Attack.from_dict(json.loads(json.dumps(attack.to_dict()))) == attack


@pytest.mark.parametrize("attack", [InBackdoor(**WHO, source=1, target=2), OutBackdoor(**WHO, source=1, target=2)])
@pytest.mark.parametrize("collude", [True, False])
def test_features_and_clients_on_demand_are_attacked_alike(attack: Attack, collude: bool) -> None:
    """Behind a front end, from a pool or client by client: attackers send the same."""
    front_end, large = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), make_population([30] * 10)
    every = as_population([large.records(client) for client in range(10)])
    codes = [
        sent(experiment(STD, replace(attack, collude=collude), population=population, front_end=front_end))
        for population in (large, every)
    ]
    plain = sent(experiment(STD, None, population=large, front_end=front_end))
    for client in range(10):
        assert_close(codes[0][client], codes[1][client])
        changed = client in MALICIOUS or isinstance(attack, OutBackdoor)
        assert torch.equal(codes[0][client], plain[client]) != changed


def test_sparse_records_are_climbed_on() -> None:
    from scipy.sparse import csr_matrix

    large = make_population([30] * 10)
    dense = [large.records(client) for client in range(10)]
    sparse = as_population([(csr_matrix(torch.as_tensor(r.inputs).numpy()), r.targets) for r in dense])
    attack = GradientAscent(**WHO)
    codes = [sent(experiment(STD, attack, population=population)) for population in (large, sparse)]
    for client in range(10):
        assert_close(codes[0][client], codes[1][client])
