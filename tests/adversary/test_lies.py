"""One lie after the other, each told by a server or a client that works: the refusal, and what it leaves behind.

Every test ends with nothing opened that should not be, the reason in the node's own log, and nodes that go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from adversary_knowledge import Knowledge, Watch
from adversary_promises import complaints
from adversary_world import SERVER, Entry, World, model, name_of
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from laconic import schemes
from laconic.data.population import Records
from laconic.errors import ConfigError, PrivacyError, RunFolderError
from laconic.federation.entropy import TEST_SEED, federation_streams
from laconic.federation.node.lifetime import Cost, charges, logged_costs, spent
from laconic.federation.node.node import Node
from laconic.federation.offer import Offer, sign_offer
from laconic.federation.requests import NONCE, bytes_in
from laconic.federation.requests import REFUSED as REFUSAL
from laconic.guard.contract import SignedOffer
from laconic.guard.transcript import REFUSED, UPLOADED
from laconic.guard.withheld import WITHHELD
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import epsilon
from laconic.privacy.accounting.sampling import AsPublished, FixedSize, Poisson
from laconic.secagg import messages
from laconic.secagg.crypto.keys import PublicKeys, RunKey
from laconic.secagg.crypto.masks import add_masks


@pytest.fixture
def watch() -> Iterator[Watch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield Watch(patch)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def logged(world: World, client: int, what: str = REFUSED) -> list[dict[str, Any]]:
    return [row for row in world.folder(client).log.rows() if row["what"] == what]


def goes_on(world: World, watch: Watch, round: int = 1) -> None:
    """With a server that behaves, the same nodes open an honest sum, and it is the sum of their vectors."""
    attempt = world.attempt(round=round)
    assert world.whole_round(attempt) == []
    opening = next(o for o in Knowledge(world, watch).openings() if o.terms[0][1].plan == attempt.plan)
    assert opening.nodes == set(world.honest)
    assert complaints(world, watch) == []


def test_an_opened_sum_is_the_sum_of_the_vectors(world: World, watch: Watch) -> None:
    """What the analysis says can be opened is what the masks really leave: here it is opened, with seeds and all."""
    world.invite_all()
    attempt = world.attempt()
    world.whole_round(attempt)
    knowledge = Knowledge(world, watch)
    (opening,) = knowledge.openings()
    known = knowledge.seeds()
    ring = attempt.plan.ring
    total = ring.zeros(attempt.plan.size)
    for _, upload in opening.terms:
        _, vector, _ = messages.read_upload(upload.data, attempt.plan)
        words = ring.unpack(vector, attempt.plan.size).copy()
        add_masks(
            words,
            plus=[seed for seed, sign in upload.masks.items() if sign < 0 and seed in known],
            minus=[seed for seed, sign in upload.masks.items() if sign > 0 and seed in known],
        )
        total += words
    assert ring.reduced(total).tolist() == opening.total().tolist()


# 1. A copied agreement key


def test_a_copied_key_is_refused_and_opens_nothing(world: World, watch: Watch) -> None:
    """A colluder announces the victim's key and is declared absent, so that members open the victim's pair seeds."""
    world.invite_all()
    victim = world.entry(world.offer, 2).keys.agreement
    told = world.told(None, world.copied(world.offer, world.colluders[0], victim))
    attempt = world.attempt(told)
    absent = tuple(client for client in attempt.plan.cohort if client != world.colluders[0])
    reasons = world.whole_round(attempt, absent)
    assert "client 5 announces the key of client 2 as its own" in reasons[0]
    assert logged(world, 0)[0]["reason"] == reasons[0]
    assert not watch.uploads
    goes_on(world, watch)


def test_a_key_that_its_announcer_does_not_have_is_refused(world: World, watch: Watch) -> None:
    world.invite_all()
    told = world.told(None, world.copied(world.offer, 5, RunKey.generate().public))
    assert "does not show that the key which it announces is its own" in world.whole_round(world.attempt(told))[0]
    goes_on(world, watch)


def test_a_key_of_low_order_is_refused_with_the_roster(world: World, watch: Watch) -> None:
    """Its proof can be forged: R is the neutral element and S is 0. It must not stand in a roster that is kept."""
    world.invite_all()
    order_two = (2**255 - 20).to_bytes(32, "little")
    keys = world.copied(world.offer, 5, order_two).keys
    forged = Entry(replace(keys, possession=(1).to_bytes(32, "little") + bytes(32)), owned=False)
    reasons = world.whole_round(world.attempt(world.told(None, forged)))
    assert "low order" in reasons[0] or "does not show" in reasons[0]
    goes_on(world, watch)


# 2. Different offers


def test_a_victim_that_is_told_of_fewer_clients_is_not_summed_with_the_others(world: World, watch: Watch) -> None:
    """The others are told of 20,000 clients, so that the grid of their noise would be far finer."""
    many = replace(world.offer, num_clients=20_000, sampler=Poisson(sampling_rate=5.9 / 20_000), max_dropouts=0)
    assert world.invite(2) == ""
    for client in (0, 1, 3, 4):
        assert world.invite(client, many) == ""
    told = world.told()
    for offer, client, reason in (
        (world.offer, 2, "the signature of the keys of client 0 is wrong"),
        (many, 0, "a roster of 6 nodes, but the offer is to nodes 0 to 19999"),
    ):
        attempt = world.attempt(replace(told, offer=offer), cohort=range(6))
        assert reason in world.ask_upload(attempt, client)
        assert reason in logged(world, client)[0]["reason"]
    assert not watch.uploads


def test_nodes_with_different_offers_never_finish_a_sum_together(world: World, watch: Watch) -> None:
    """Offers that no other check tells apart: one round more for the victim."""
    assert world.invite(2, replace(world.offer, rounds=21)) == ""
    for client in (0, 1, 3, 4):
        assert world.invite(client) == ""
    reasons = world.whole_round(world.attempt())
    assert any("signature of the keys of client 2 is wrong" in reason for reason in reasons)
    assert not watch.uploads


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 21},
        {"sampler": Poisson(sampling_rate=0.95)},
        {"budget": Budget(delta=1e-6)},
        {"public_seed": 5},
        {"num_clients": 7},
        {"max_colluders": 2, "max_dropouts": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_of_an_offer_is_bound(change: dict[str, Any], world: World) -> None:
    other = replace(world.offer, **change)
    assert other.digest != world.offer.digest
    assert other.context != world.offer.context
    assert other.terms(bytes(32)).digest != world.offer.terms(bytes(32)).digest


# 3. One identity in many places


def test_one_listed_identity_does_not_fill_a_roster(world: World, watch: Watch) -> None:
    world.invite_all()
    mine = [world.colluding(world.offer, client, identity=5, key=RunKey.generate()) for client in (1, 2, 3, 4, 5)]
    assert (
        "announces the identity of client 1 as its own" in world.whole_round(world.attempt(world.told(None, *mine)))[0]
    )
    assert not watch.uploads
    goes_on(world, watch)


def test_a_roster_has_as_many_nodes_as_the_offer(world: World, watch: Watch) -> None:
    world.invite_all()
    told = world.told()
    short = replace(told, entries=told.entries[:5])
    assert "a roster of 5 nodes, but the offer is to nodes 0 to 5" in world.ask_upload(world.attempt(), 0, short)
    goes_on(world, watch)


def test_a_cohort_has_no_clients_beyond_the_offer(world: World) -> None:
    world.invite_all()
    assert "lacks the keys of clients [17]" in world.ask_upload(world.attempt(cohort=(0, 1, 2, 3, 4, 17)), 0)


# 5. What is answered before the policy is asked


def careful(world: World, **options: Any) -> tuple[Node, list[str]]:
    """A node that notes when its model or its records are asked for."""
    touched: list[str] = []

    def noted(what: str, result: Any) -> Any:
        touched.append(what)
        return result

    node = Node(
        world.folder(0),
        world.policy,
        model=lambda offer: noted("model", options.get("model", model())),
        records=lambda offer: noted("records", options.get("records", world.population.records(0))),
        nonces=world.processes[0],
    )
    return node, touched


@pytest.mark.parametrize(
    ("change", "policy", "reason"),
    [
        ({}, {"servers": ("ab" * 32,)}, "is not among the servers"),
        ({"rounds": 10**9}, {}, "1,000,000,000 rounds, more than max_rounds"),
        ({"size": 10**12}, {}, "1,000,000,000,000 weights, more than max_model_size"),
        ({"num_clients": 200_000}, {}, "200,000 nodes, more than max_nodes"),
        ({"input_shape": (10**9, 10**9)}, {}, "values in a record, more than max_model_size"),
        ({"num_classes": 10**9}, {}, "classes, more than max_model_size"),
        ({}, {"max_epsilon": 0.01, "max_delta": 1e-5}, "planned ε"),
        ({"initial": "0" * 32}, {}, "initial weights"),
    ],
)
def test_no_record_is_touched_before_the_policy_is_asked(
    change: dict[str, Any], policy: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    world = World(tmp_path, **policy)
    node, touched = careful(world)
    answer = node.answer("keys", {"offer": sign_offer(replace(world.offer, **change), 0, SERVER)})
    assert reason in str(answer[REFUSAL])
    assert "records" not in touched
    assert "model" not in touched or "initial" in change


def test_an_offer_is_not_read_before_its_signature(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Offer, "from_bytes", lambda data: pytest.fail("read"))
    data = sign_offer(world.offer, 0, SERVER)
    for bent in (data[:-1] + b" ", data.replace(b'"rounds":20', b'"rounds":21'), b"x" * (1 << 21), data[:60]):
        assert REFUSAL in world.send(0, "keys", {"offer": bent})
    stranger = sign_offer(world.offer, 0, Ed25519PrivateKey.generate())
    assert "not signed by the server" in str(world.send(0, "keys", {"offer": stranger})[REFUSAL])


@pytest.mark.parametrize(
    "records",
    [
        Records(torch.zeros(3, 6), torch.tensor([0, 1, 7])),
        Records(torch.zeros(3, 6), torch.tensor([0, 1, 10**6])),
        Records(torch.zeros(3, 5), torch.tensor([0, 1, 1])),
        None,
    ],
    ids=["label 7", "label 10^6", "shape", "none"],
)
def test_what_records_decide_is_told_to_nobody_but_the_owner(
    records: Records | None, world: World, watch: Watch
) -> None:
    """A server that varies its offers learns nothing: noise alone is an answer as any other, and costs as much."""
    world.invite_all()
    node, touched = careful(world, records=records)
    for round in (1, 2):
        answer = node.answer("upload", world.request(world.attempt(round=round)))
        world.nonces[0, world.offer.run] = bytes(answer[NONCE])  # type: ignore[arg-type]
        assert REFUSAL not in answer and "upload" in answer
        assert "records" in touched
        assert world.folder(0).log.participations(world.offer.run) == round
    assert world.folder(0).bad_records and world.folder(0).attention is None
    assert "announcement" in node.answer("keys", {"offer": sign_offer(run_offer(world, 9), 0, SERVER)})
    (world.folder(0).path / "records.txt").unlink()
    goes_on(world, watch, round=3)
    assert world.folder(0).bad_records is None


def test_joining_looks_at_no_record(world: World) -> None:
    node, touched = careful(world)
    assert "announcement" in node.answer("keys", {"offer": sign_offer(world.offer, 0, SERVER)})
    assert "records" not in touched


@pytest.mark.parametrize("shape", [(9,) * 500_000, (0, 10**12), (), (2**40,), (int("9" * 4000),) * 8])
def test_shapes_that_cost_time_are_no_offers(shape: tuple[int, ...], world: World) -> None:
    with pytest.raises(ConfigError, match="one to eight dimensions"):
        replace(world.offer, input_shape=shape)


def test_a_refusal_is_short_in_the_log_whatever_was_sent(tmp_path: Path) -> None:
    world = World(tmp_path, max_message_bytes=10_000)
    world.send(0, "upload", {"run": bytes(3_000_000), "round": 1})
    world.send(0, "x" * 100_000, {"run": bytes(16)})
    body = world.offer.to_bytes().replace(b'"laconic":"', b'"laconic":"\\ud800')
    signed = SignedOffer(0, world.offer.server, body)
    assert REFUSAL in world.send(0, "keys", {"offer": signed.to_bytes(SERVER.sign(signed.statement))})
    assert len(logged(world, 0)) == 3
    assert (world.folder(0).path / "log.jsonl").stat().st_size < 20_000


def test_a_message_that_is_too_long_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, max_message_bytes=10_000)
    world.invite_all()
    fields = world.request(world.attempt()) | {"weights": bytes(20_000)}
    assert "more than max_message_bytes 10,000" in str(world.send(0, "upload", fields)[REFUSAL])


# 6. Limits over all runs


def participant(world: World, count: int) -> float:
    accountant = world.offer.mechanism.accountant
    assert accountant is not None
    return accountant.participant_epsilon(count)


def run_offer(world: World, number: int, **changes: Any) -> Offer:
    return replace(world.offer, run=bytes([number]) * 16, **changes)


def test_limits_over_a_lifetime_hold_over_runs_and_servers(tmp_path: Path, watch: Watch) -> None:
    """Run after run, each of them allowed by itself, until the node's data has given what its owner allows."""
    other = Ed25519PrivateKey.generate()
    limit = participant(World(tmp_path / "figures"), 4) + 1e-6
    world = World(
        tmp_path / "world",
        lifetime_participant_epsilon=limit,
        max_delta=1e-5,
        servers=(SERVER.public_key().public_bytes_raw().hex(), other.public_key().public_bytes_raw().hex()),
    )
    uploads = 0
    for number in range(4):
        signer = SERVER if number % 2 else other
        offer = run_offer(world, number, rounds=2, server=signer.public_key().public_bytes_raw())
        answers = [world.send(client, "keys", {"offer": sign_offer(offer, client, signer)}) for client in world.honest]
        if REFUSAL in answers[0]:
            assert answers[0] == {REFUSAL: WITHHELD}  # what other servers got is none of this one's business
            break
        for client, answer in enumerate(answers):
            keys = PublicKeys.from_announcement(bytes_in(answer, "announcement"), offer.run)
            world.announced[client, offer.to_bytes()] = keys
        told = world.told(offer)
        uploads += sum(world.ask_upload(world.attempt(told, round=round), 0) == "" for round in (1, 2))
    assert uploads == 4
    (refusal,) = logged(world, 0)
    assert "over the lifetime of this node's data ε against the servers would be" in refusal["detail"]
    figures = spent(logged_costs(world.folder(0).log.rows()).values(), 1e-5)
    assert figures.participations == 4
    assert figures.participant_epsilon <= limit


def test_a_run_in_progress_stops_at_the_limit(tmp_path: Path, watch: Watch) -> None:
    world = World(tmp_path, lifetime_participations=20)
    world.invite_all()
    told = world.told()
    world.policy = replace(world.policy, lifetime_participations=15)  # since other runs may take their part, too
    answers = [world.ask_upload(world.attempt(told, round=1 + n // 8, attempt=n % 8), 0) for n in range(17)]
    assert answers[:15] == [""] * 15
    assert answers[15:] == [WITHHELD] * 2
    assert "participations would be 16, above lifetime_participations 15" in logged(world, 0)[0]["detail"]


def test_runs_in_which_a_node_was_not_drawn_count_for_outsiders() -> None:
    """10,000 runs of one round at q = 0.01, in 100 of which the node was drawn: amplification needs all of them."""
    cost = Cost(1.0, Poisson(sampling_rate=0.01).to_dict(), 1000, True, 1, 0.0)
    drawn = [cost.after([(1, 0)])] * 100
    all_runs = spent([*drawn, *[cost] * 9900], 1e-5)
    alone = epsilon(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)), 10_000, 1e-5, "pld")
    assert all_runs.epsilon == pytest.approx(alone, rel=1e-3)
    assert all_runs.epsilon > 6 > spent(drawn, 1e-5).epsilon


def test_a_run_that_was_joined_is_in_the_log_with_its_cost(world: World, watch: Watch) -> None:
    world.invite_all()
    (cost,) = logged_costs(world.folder(0).log.rows()).values()
    assert (cost.participations, cost.rounds) == (0, 20)
    world.invite_all()  # again: nothing is counted twice
    assert len(logged_costs(world.folder(0).log.rows())) == 1


def test_repeated_attempts_come_on_top_of_the_planned_rounds(world: World) -> None:
    cost = Cost.planned(world.offer)
    assert charges([]) == 0
    assert charges([(1, 0), (2, 3), (2, 1), (4, 0)]) == 7
    assert cost.after([(1, 0), (2, 3), (4, 0)]).rounds == 23
    assert cost.after([(1, attempt) for attempt in range(160)]).rounds == 20 + 159
    assert cost.after([]).participations == 0


def test_cohorts_that_show_themselves_count_in_every_run(world: World) -> None:
    """Each run may spend a hundredth of its δ on them; over many runs that is more than one hundredth."""
    offer = replace(
        world.offer,
        num_clients=80,
        sampler=Poisson(sampling_rate=0.55),
        rounds=100,
        max_dropouts=6,
        max_colluders=5,
    )
    cost = Cost.planned(offer)
    assert cost.amplified
    assert cost.delta > 8e-8
    assert spent([cost.after([(1, 0)])] * 200, 1e-5).epsilon == float("inf")


def test_a_log_that_lost_rows_is_noticed(world: World, watch: Watch) -> None:
    world.invite_all()
    told = world.told()
    for round in (1, 2, 3):
        assert world.ask_upload(world.attempt(told, round=round), 0) == ""
    log = world.folder(0).path / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    with pytest.raises(RunFolderError, match="rows are missing"):
        world.ask_upload(world.attempt(told, round=4), 0)
    log.unlink()
    log.with_name("log.jsonl.length").unlink()
    assert world.ask_upload(world.attempt(told, round=4), 0) == WITHHELD
    assert "the log lacks this run" in logged(world, 0)[0]["detail"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"servers": ("ab" * 32,)}, "is not among the servers"),
        ({"identities": tuple(name_of(client) for client in (0, 1, 2, 3, 4, 7))}, "nodes [5] of the roster"),
        ({"min_colluders": 2}, "below min_colluders 2"),
        ({"max_rounds": 1}, "more than max_rounds 1"),
    ],
    ids=str,
)
def test_a_stricter_policy_holds_from_the_next_message_on(
    change: dict[str, Any], reason: str, world: World, watch: Watch
) -> None:
    world.invite_all()
    told = world.told()
    assert world.ask_upload(world.attempt(told), 0) == ""
    world.policy = replace(world.policy, **change)
    attempt = world.attempt(told, round=2)
    request = world.request(attempt)
    del request["roster"]
    assert reason in str(world.send(0, "upload", request)[REFUSAL])
    assert reason in world.ask_consent(world.attempts[0], 0, world.attempts[0].plan.cohort)


def test_runs_without_noise_cost_everything() -> None:
    plain = Cost(None, Poisson(sampling_rate=1.0).to_dict(), 5, False, 3, 0.0, 1)
    assert spent([plain], 1e-5).participant_epsilon == float("inf")
    assert spent([], 1e-5).epsilon == 0


def test_costs_of_equal_runs_compose_as_one_long_run(world: World) -> None:
    cost = Cost.planned(world.offer)
    assert (cost.rounds, cost.participations) == (20, 20)
    twice = spent([cost, replace(cost, noise_multiplier=cost.noise_multiplier)], 1e-5)
    assert twice.participant_epsilon == pytest.approx(participant(world, 40), rel=1e-2)
    assert twice.epsilon <= twice.participant_epsilon
    different = spent([cost, replace(cost, noise_multiplier=2 * (cost.noise_multiplier or 0))], 1e-5)
    assert twice.epsilon > different.epsilon > spent([cost], 1e-5).epsilon


def test_a_published_sampler_amplifies_nothing_over_a_lifetime(world: World) -> None:
    offer = replace(world.offer, sampler=AsPublished(cohort_size=3), max_dropouts=0, max_colluders=0)
    cost = Cost.planned(offer)
    assert not cost.amplified
    figures = spent([cost], 1e-5)
    assert figures.epsilon == pytest.approx(figures.participant_epsilon, rel=1e-2)
    fixed = Cost.planned(replace(offer, sampler=FixedSize(cohort_size=3)))
    assert fixed.amplified
    assert spent([fixed], 1e-5).epsilon <= spent([fixed], 1e-5).participant_epsilon


def test_a_log_that_does_not_say_what_was_spent_stops_lifetime_limits(tmp_path: Path, watch: Watch) -> None:
    world = World(tmp_path, lifetime_participations=5)
    world.folder(0).log.add(UPLOADED, bytes(16), round=1, attempt=0)
    assert world.invite(0) == WITHHELD
    assert "does not say what the upload costs" in logged(world, 0)[0]["detail"]
    with pytest.raises(RunFolderError, match="begin a new one, or drop the lifetime limits"):
        logged_costs(world.folder(0).log.rows())


# 7. Figures that prove nothing


@pytest.mark.parametrize(
    ("change", "policy", "reason"),
    [
        ({"sampler": AsPublished(cohort_size=6)}, {"max_epsilon": 50.0, "max_delta": 1e-5}, "no proof covers"),
        ({"budget": Budget(delta=0.3)}, {}, "1/6 nodes or more"),
        ({"budget": Budget(delta=1e-3)}, {"max_delta": 1e-5}, "δ 0.001 is above max_delta"),
        ({"max_colluders": 0}, {"min_colluders": 1}, "max_colluders 0 is below min_colluders 1"),
        ({"consistency": "plain"}, {}, "not signed"),
        ({"max_dropouts": 4}, {}, "sums of 0.4 honest nodes may be opened"),
        (
            {
                "scheme": schemes.fl_std_dp(
                    clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=1, noise="continuous"
                )
            },
            {},
            "cannot be masked",
        ),
    ],
    ids=str,
)
def test_offers_that_only_look_private_are_refused(
    change: dict[str, Any], policy: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    world = World(tmp_path, **policy)
    answer = world.invite(0, replace(world.offer, **change))
    assert reason in answer


# 9. The seed of a test


@pytest.mark.parametrize("kind", ["keys", "upload", "consent", "unmask"])
def test_a_test_seed_is_refused_at_every_step(
    kind: str, world: World, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.invite_all()
    attempt = world.attempt()
    monkeypatch.setenv(TEST_SEED, "7")
    ask = {
        "keys": lambda: world.invite(0),
        "upload": lambda: world.ask_upload(attempt, 0),
        "consent": lambda: world.ask_consent(attempt, 0, attempt.plan.cohort),
        "unmask": lambda: world.ask_reveal(attempt, 0, attempt.plan.cohort),
    }[kind]
    assert f"{TEST_SEED} is set on this node" in ask()
    assert not watch.uploads
    monkeypatch.delenv(TEST_SEED)
    goes_on(world, watch)


def test_a_test_seed_is_refused_where_noise_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_SEED, "7")
    with pytest.raises(PrivacyError, match="its noise could be repeated"):
        federation_streams(0, test_seed_allowed=False)
