"""A server that lies in evaluations gets no more than the node's own ε: each attempt at it is refused or charged."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import node_tools
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from node_tools import SERVER, SIZES, model, round_refusals

from conftest import make_population
from laconic import schemes
from laconic.cli.main import cli
from laconic.clients import wire
from laconic.clients.secure_sums import sum_plan
from laconic.codecs.queries import Evaluations
from laconic.errors import LaconicError
from laconic.federation.node import refusals
from laconic.federation.node.lifetime import Cost, accountant_of, logged_costs, spent
from laconic.federation.node.node import Node
from laconic.federation.offer import Offer
from laconic.federation.populations import FarRecords
from laconic.federation.requests import REFUSED, Answers, Fields
from laconic.federation.server.members import invite
from laconic.federation.server.remote_clients import RemoteClients
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.packing import FLOAT32
from laconic.plan import RoundPlan
from laconic.planning import plan_round
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.secagg import messages
from laconic.secagg.attempts import Nonces

SIGMA, OTHER, EVERY = 4.0, 2.0, 2


def make_offer(**changes: Any) -> Offer:
    """The offer of the other tests of nodes, with evaluations."""
    scheme = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=SIGMA, local_lr=0.1, local_steps=2)
    evaluating = replace(scheme, evaluations=Evaluations(every=EVERY, noise_multiplier=OTHER))
    return node_tools.make_offer(**{"scheme": evaluating} | changes)


class Federation:
    """Three nodes, asked directly by a server that may lie."""

    def __init__(self, path: Path, policy: Policy = Policy(), **changes: Any) -> None:  # noqa: B008 - it is frozen
        self.path, self.policy, self.population = path, policy, make_population(SIZES)
        self.offer = make_offer(**changes)
        self.processes = [Nonces() for _ in SIZES]
        members, answers = invite(self.offer, [0, 1, 2], SERVER, self, 1.0)
        assert members is not None, answers.missing
        far = FarRecords(len(SIZES), self.population.records(0))
        self.server = RemoteClients(self.offer.experiment(model(), far, seed=4), members, self, timeout=1.0)

    def ask(self, kind: str, requests: Any, *, timeout: float, enough: int | None = None) -> Answers:
        answers = Answers()
        for client, fields in requests.items():
            answers.add(client, self.node(client).answer(kind, fields))
        return answers

    def node(self, number: int, **options: Any) -> Node:
        """The node, as its process makes it for each message."""
        return Node(
            NodeFolder(self.path / f"node-{number}"),
            self.policy,
            nonces=self.processes[number],
            model=lambda offer: model(),
            records=lambda offer: self.population.records(number),
            **options,
        )

    def plan(self, round: int, attempt: int = 0) -> RoundPlan:
        return plan_round(
            self.offer.scheme,
            self.offer.sampler,
            streams=self.server.streams,
            round=round,
            attempt=attempt,
            num_clients=len(SIZES),
        )

    def requests(self, round: int, attempt: int = 0) -> dict[int, Fields]:
        return self.server.requests(self.plan(round, attempt), self.server.model.initial)

    def uploads(self, number: int = 0) -> list[dict[str, Any]]:
        rows = NodeFolder(self.path / f"node-{number}").log.rows()
        return [row for row in rows if row["what"] == "uploaded"]

    def measured(self, number: int = 0) -> list[dict[str, Any]]:
        rows = NodeFolder(self.path / f"node-{number}").log.rows()
        return [row["own_metrics"] for row in rows if row["what"] == "measured"]


def epsilon(trained: int, measured: int) -> float:
    return gaussian_epsilon((trained / SIGMA**2 + measured / OTHER**2) ** -0.5, 1e-5)


def test_a_node_sees_its_own_metric_and_the_server_only_the_sum(tmp_path: Path) -> None:
    some = Federation(tmp_path)
    sent = some.server.collect(some.plan(EVERY), some.server.model.initial)
    assert (sent.messages, sent.lost, sent.total.shape) == (3, "", (2,))
    own = [some.measured(number)[0] for number in range(3)]
    assert [metrics["records"] for metrics in own] == [2, 1, 1]  # a fifth of 8, 7 and 6
    assert all(0 <= metrics["accuracy"] <= 1 for metrics in own)
    assert some.uploads()[0]["noise"]["share"] == pytest.approx(OTHER / math.sqrt(3), rel=0.01)


def test_what_answers_hold_does_not_depend_on_the_own_metric_in_length(tmp_path: Path) -> None:
    some = Federation(tmp_path)
    answers = some.ask("upload", some.requests(EVERY), timeout=1.0).given
    assert {name for answer in answers.values() for name in answer} == {"upload", "nonce"}
    assert len({len(answer["upload"]) for answer in answers.values()}) == 1  # type: ignore[arg-type]


def test_an_evaluation_asked_twice_is_refused_or_charged_as_an_evaluation(tmp_path: Path) -> None:
    some = Federation(tmp_path)
    first = some.requests(EVERY)[0]
    answer = some.node(0).answer("upload", first)
    assert "upload" in answer and some.node(0).answer("upload", first) == answer and len(some.uploads()) == 1
    message = wire.Message("weights", EVERY, 0, 0, 0.0, some.offer.scheme.fingerprint, torch.ones(some.offer.size))
    others = first | {"weights": wire.encode(message, FLOAT32)}
    assert "this client is past it" in str(some.node(0).answer("upload", others)[REFUSED])
    for attempt in range(1, 4):
        assert "upload" in some.node(0).answer("upload", some.requests(EVERY, attempt)[0])
    figures = [row["participant_epsilon"] for row in some.uploads()]
    # What was planned: two evaluations of five rounds. All that come on top are evaluations, too.
    assert figures == pytest.approx([epsilon(0, count) for count in range(1, 5)], rel=0.01)
    uploads = [(row["round"], row["attempt"]) for row in some.uploads()]
    accountant = accountant_of(some.offer, uploads)
    assert accountant is not None
    # Rounds 1 and 2, and three more attempts at round 2.
    assert accountant.released_epsilon(5) == pytest.approx(epsilon(1, 4), rel=0.01)


def test_repeated_evaluations_end_at_the_nodes_limit(tmp_path: Path) -> None:
    some = Federation(tmp_path, Policy(max_participant_epsilon=1.01 * epsilon(3, 2), max_delta=1e-5))
    answers = [some.node(0).answer("upload", some.requests(EVERY, attempt)[0]) for attempt in range(6)]
    given = sum("upload" in answer for answer in answers)
    assert epsilon(0, given) <= epsilon(3, 2) * 1.01 < epsilon(0, given + 1)
    assert "ε against the server would be" in str(answers[given][REFUSED])


def test_other_weights_for_each_node_and_weights_that_single_out_a_record_change_no_bound(tmp_path: Path) -> None:
    """Whatever weights come, a code is cells of norm 1 at most, with the noise of the offer."""
    some = Federation(tmp_path)
    size, plan = some.offer.size, some.plan(EVERY)
    hostile = [torch.full((size,), value) for value in (math.nan, math.inf, 1e38)]
    hostile.append(torch.linspace(-1e6, 1e6, size))
    for attempt, weights in enumerate(hostile):
        request = some.requests(EVERY, attempt)[0]
        message = wire.Message("weights", EVERY, attempt, 0, 0.0, plan.fingerprint, weights)
        answer = some.node(0).answer("upload", request | {"weights": wire.encode(message, FLOAT32)})
        assert "upload" in answer, answer
        own = some.measured()[-1]
        assert own["records"] == 2 and 0 <= own.get("accuracy", 0) <= 1
        assert some.uploads()[-1]["noise"] == some.uploads()[0]["noise"]
    assert NodeFolder(tmp_path / "node-0").attention is None


def test_a_cohort_of_one_is_refused(tmp_path: Path) -> None:
    some = Federation(tmp_path, sampler=Poisson(sampling_rate=0.9))
    alone = replace(some.plan(EVERY), cohort=np.array([0]))
    request = some.server.requests(alone, some.server.model.initial)[0]
    assert "a sum of 1 honest nodes, fewer than min_cohort 2" in str(some.node(0).answer("upload", request)[REFUSED])


@pytest.mark.parametrize(("round", "as_if"), [(EVERY, 1), (1, EVERY)])
def test_a_round_is_never_taken_for_one_of_the_other_kind(round: int, as_if: int, tmp_path: Path) -> None:
    """Which kind it is follows from its number. So no mask of an evaluation is ever a mask of training."""
    some = Federation(tmp_path)
    request = some.requests(round, 1)[0]
    other = sum_plan(some.server._terms, some.offer.scheme, some.plan(as_if), some.offer.size)
    nonces = {number: process.current(some.offer.run) for number, process in enumerate(some.processes)}
    bent = messages.write_plan(replace(other, round=round, attempt=1).with_nonces(nonces), ())
    answer = some.node(0).answer("upload", request | {"plan": bent})
    assert f"a sum of {other.size} values of {other.bits} bits; the scheme has" in str(answer[REFUSED])
    assert not some.uploads()


def test_evaluations_without_enough_noise_are_in_the_planned_figure_and_refused() -> None:
    bare = replace(make_offer().scheme, evaluations=Evaluations(every=EVERY, noise_multiplier=0.1))
    policy = Policy(max_epsilon=10.0, max_delta=1e-5)
    assert refusals.against_offer(policy, make_offer()) == []
    reasons = refusals.against_offer(policy, make_offer(scheme=bare))
    assert len(reasons) == 1 and "is above max_epsilon 10" in reasons[0]
    # The sabotaged twin: a node that does not count evaluations would accept.
    blind = replace(bare, evaluations=Evaluations())
    assert refusals.against_offer(policy, make_offer(scheme=blind)) == []


def test_bare_evaluations_are_in_the_figure_of_a_record_too() -> None:
    bare = make_offer(scheme=replace(make_offer().scheme, evaluations=Evaluations(every=EVERY, noise_multiplier=0.1)))
    policy = Policy(max_record_epsilon=10.0, max_delta=1e-5)
    assert refusals.against_offer(policy, make_offer()) == []
    reasons = refusals.against_offer(policy, bare)
    assert len(reasons) == 1
    assert "planned ε of a record" in reasons[0] and "is above max_record_epsilon 10" in reasons[0]
    reasons = round_refusals(policy, bare, uploads=[(EVERY, 0)], cohort=3)
    assert len(reasons) == 1 and "ε of a record would be" in reasons[0]


def test_the_figure_of_a_record_has_each_kind_with_its_own_noise() -> None:
    """Half the noise multipliers: one record more or less can turn a code around. Three rounds train, two measure."""
    figure = gaussian_epsilon((3 / (SIGMA / 2) ** 2 + 2 / (OTHER / 2) ** 2) ** -0.5, 1e-5)
    for limit, refused in ((1.01 * figure, False), (0.99 * figure, True)):
        policy = Policy(max_record_epsilon=limit, max_delta=1e-5)
        assert bool(refusals.against_offer(policy, make_offer())) is refused


def test_a_lifetime_counts_training_and_evaluations_each_with_its_noise(tmp_path: Path) -> None:
    some = Federation(tmp_path)
    for round in (1, 2):
        assert "upload" in some.node(0).answer("upload", some.requests(round)[0])
    costs = logged_costs(NodeFolder(tmp_path / "node-0").log.rows())
    found = spent(costs.values(), 1e-5)
    assert found.participations == 2
    assert found.participant_epsilon == pytest.approx(epsilon(1, 1), rel=0.01)
    planned = spent([Cost.planned(some.offer)], 1e-5)
    assert planned.participant_epsilon == pytest.approx(epsilon(3, 2), rel=0.01)


def test_spare_rounds_are_planned_as_the_dearer_kind() -> None:
    for spare, figure in ((0, epsilon(3, 2)), (2, epsilon(3, 4))):
        offer = make_offer(spare_rounds=spare)
        planned = refusals.planned_epsilons(offer.mechanism, spare)
        assert planned == pytest.approx((figure, figure), rel=0.01)
        assert spent([Cost.planned(offer, spare)], 1e-5).participant_epsilon == pytest.approx(figure, rel=0.01)


def test_a_node_holds_out_what_it_wants_and_keeps_to_it_in_a_run(tmp_path: Path) -> None:
    some = Federation(tmp_path, spare_rounds=2)
    assert "upload" in some.node(0, held_out=0.5).answer("upload", some.requests(EVERY)[0])
    assert "upload" in some.node(0, held_out=0.1).answer("upload", some.requests(2 * EVERY)[0])
    assert "upload" in some.node(0).answer("upload", some.requests(2 * EVERY, 1)[0])
    assert [own["records"] for own in some.measured()] == [4, 4, 4]
    assert "upload" in some.node(1, held_out=0.0).answer("upload", some.requests(2 * EVERY, 2)[1])
    assert some.measured(1)[0] == {"records": 0}


def test_the_owner_sees_the_nodes_own_figure_in_its_status(tmp_path: Path) -> None:
    some = Federation(tmp_path)
    assert "upload" in some.node(0).answer("upload", some.requests(EVERY)[0])
    shown = CliRunner().invoke(cli, ["node", "status", str(tmp_path / "node-0")], catch_exceptions=False).output
    assert (tmp_path / "node-0" / "log.jsonl").stat().st_mode & 0o077 == 0
    own = some.measured()[0]
    assert f"here    accuracy {own['accuracy']:.4f} on 2 records of this node" in shown


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [(b'"every":2', b'"every":6', "is never"), (b'"num_classes":3', b'"num_classes":1', "use loss")],
)
def test_an_offer_whose_evaluations_cannot_be_is_refused_before_records_are_read(
    was: bytes, now: bytes, why: str
) -> None:
    """Else the node would wait for its owner, as if its records had failed: any server could silence it."""
    with pytest.raises(LaconicError, match=why):
        Offer.from_bytes(make_offer().to_bytes().replace(was, now))


def test_an_offer_with_a_metric_that_its_classes_do_not_have_is_refused() -> None:
    auroc = replace(make_offer().scheme, evaluations=Evaluations(every=EVERY, metric="auroc"))
    offer = make_offer()
    data = offer.to_bytes().replace(b'"accuracy"', b'"auroc"')
    with pytest.raises(Exception, match="two classes, and there are 3"):
        Offer.from_bytes(data)
    with pytest.raises(Exception, match="two classes"):
        make_offer(scheme=auroc)
