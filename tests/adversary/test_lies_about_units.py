"""A server that lies about patients inside masked sums, and an owner that sends everything.

The nodes are unchanged, but for the training of the owner that attacks.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from adversary_knowledge import Watch
from adversary_promises import complaints
from adversary_world import SERVER, World

from laconic import schemes
from laconic.clients.work import ClientWork
from laconic.federation.entropy import TEST_SEED
from laconic.federation.node.lifetime import logged_costs, spent
from laconic.federation.node.training import NodeWork
from laconic.federation.offer import Offer
from laconic.federation.requests import REFUSED as REFUSAL
from laconic.guard.contract import SignedOffer
from laconic.guard.transcript import JOINED, REFUSED, UPLOADED
from laconic.privacy.accounting.releases import PATIENT

INSIDE = schemes.fl_std_dp(unit="patient", clip_norm=0.5, noise_multiplier=4.0, num_units=12, unit_rate=0.5)


@pytest.fixture
def watch() -> Iterator[Watch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield Watch(patch)


def world_of(path: Path, **policy: Any) -> World:
    """Six nodes with two patients each, one of them with the server; one may drop out."""
    world = World(path, **policy)
    world.offer = replace(world.offer, scheme=INSIDE)
    return world


def rows(world: World, client: int, what: str) -> list[dict[str, Any]]:
    return [row for row in world.folder(client).log.rows() if row["what"] == what]


def participant(offer: Offer, count: int) -> float:
    accountant = offer.mechanism.accountant
    assert accountant is not None
    return accountant.participant_epsilon(count)


# A server that lies


def test_an_honest_round_is_opened_and_charged(tmp_path: Path, watch: Watch) -> None:
    world = world_of(tmp_path, max_delta=1e-5, max_patient_epsilon=participant(world_of(tmp_path / "x").offer, 20))
    world.invite_all()
    assert world.whole_round(world.attempt()) == []
    assert complaints(world, watch) == []
    (row,) = rows(world, 0, UPLOADED)
    assert row["unit"] == PATIENT and row["participant_epsilon"] >= participant(world.offer, 1)


def test_a_replay_gets_the_same_bytes_or_a_refusal_and_is_charged_once(tmp_path: Path, watch: Watch) -> None:
    """New weights under the old attempt would draw the same patients again, or other ones, under the same noise."""
    world = world_of(tmp_path)
    world.invite_all()
    attempt = world.attempt()
    request = world.request(attempt)
    first = world.send(0, "upload", request)
    assert world.send(0, "upload", request) == first
    weights = bytearray(request["weights"])  # type: ignore[arg-type]
    weights[-1] ^= 1
    for fields in (request | {"weights": bytes(weights)}, request | {"round": 2}):
        assert REFUSAL in world.send(0, "upload", fields)
    world.restart(0)
    assert REFUSAL in world.send(0, "upload", request | {"weights": bytes(weights)})
    assert len(rows(world, 0, UPLOADED)) == 1
    assert len([one for one in watch.uploads if one.node == 0]) == 1
    (cost,) = logged_costs(world.folder(0).log.rows()).values()
    assert spent([cost], 1e-5, PATIENT).participant_epsilon == pytest.approx(participant(world.offer, 1), rel=1e-2)


def test_an_attempt_that_is_asked_for_again_is_charged_again(tmp_path: Path, watch: Watch) -> None:
    """With new coins and new noise, up to the limit that the owner has set for a patient."""
    offer = world_of(tmp_path / "figures").offer
    world = world_of(tmp_path / "world", max_delta=1e-5, max_patient_epsilon=participant(offer, 20))
    world.invite_all()
    told = world.told()
    world.policy = replace(
        world.policy, max_patient_epsilon=None, lifetime_patient_epsilon=participant(offer, 3) + 1e-4
    )
    answers = [world.ask_upload(world.attempt(told, round=1, attempt=number), 0) for number in range(5)]
    assert answers[:3] == [""] * 3 and all(answers[3:])
    assert "ε of a patient would be" in rows(world, 0, REFUSED)[0]["detail"]


@pytest.mark.parametrize(
    "change",
    [{"scheme": replace(INSIDE, train=replace(INSIDE.train, rate=0.6))}, {"max_dropouts": 0}, {"rounds": 21}],
    ids=["coins", "dropouts", "rounds"],
)
def test_nodes_that_were_told_different_things_do_not_finish_a_sum(
    change: dict[str, Any], tmp_path: Path, watch: Watch
) -> None:
    world = world_of(tmp_path)
    other = replace(world.offer, **change)
    assert world.invite(2, other) == ""
    for client in (0, 1, 3, 4):
        assert world.invite(client) == ""
    assert any("signature of the keys of client 2 is wrong" in text for text in world.whole_round(world.attempt()))
    assert not watch.uploads


def test_a_cohort_that_is_split_is_not_summed(tmp_path: Path, watch: Watch) -> None:
    """Three nodes, of whom two may be gone or lie: what is left hides nobody as the policy wants it."""
    world = world_of(tmp_path)
    world.invite_all()
    told = world.told()
    for number, cohort in enumerate(((0, 1, 2), (3, 4, 5))):
        reasons = world.whole_round(world.attempt(told, round=1 + number, cohort=cohort))
        assert any("fewer than min_cohort" in reason for reason in reasons)
    attempt = world.attempt(told, round=3)
    for client in world.honest:
        assert world.ask_upload(attempt, client) == ""
    for survivors in ((0, 1, 2, 3, 5), (0, 1, 2, 4, 5)):  # two sets of one attempt, each large enough
        for client in world.honest:
            world.ask_consent(attempt, client, survivors)
            world.ask_reveal(attempt, client, survivors)
    assert complaints(world, watch) == []


def bent(offer: Offer, change: Callable[[dict[str, Any]], None]) -> bytes:
    values = json.loads(offer.to_bytes())
    change(values)
    body = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    signed = SignedOffer(0, offer.server, body)
    return signed.to_bytes(SERVER.sign(signed.statement))


def scheme(field: str, value: Any, part: str = "train") -> Callable[[dict[str, Any]], None]:
    return lambda values: (values["scheme"][part] if part else values["scheme"]).update({field: value})


def contract(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values["contract"]["releases"][0].update({field: value})


LIES = {
    "coins that say more than yes": scheme("rate", 1.5),
    "coins that never say yes": scheme("rate", 0.0),
    "a negative rate": scheme("rate", -1),
    "no number of patients": scheme("num_units", None),
    "a divisor by true counts": scheme("weighting", "data-size", part=""),
    "no node for a patient": scheme("max_owners", 0),
    "a patient of drawn nodes": scheme("max_owners", 2),
    "another unit": scheme("unit", "hospital"),
    "a bound on nothing": scheme("clip_norm", math.inf, part="clip"),
    "no masks": lambda values: values["scheme"].update(secure_sum={"kind": "PlainSum"}),
    "noise on no grid": lambda values: values["scheme"].update(noise={"kind": "Gaussian", "noise_multiplier": 4.0}),
    "noise of the server": lambda values: values["scheme"].update(noise={"kind": "NoNoise"}),
    "a larger part": contract("bound", 0.6),
    "rarer coins in the contract": contract("coins", 0.1),
    "a higher multiplier": contract("multiplier", 9.0),
    "one more node in the contract": contract("owners", 2),
    "a whole node in the contract": lambda values: values["contract"].update(unit="client"),
    "records in the contract": lambda values: values["contract"].update(unit="record"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_does_not_agree_is_refused_alike_whatever_the_records_are(lie: str, tmp_path: Path) -> None:
    """Byte for byte, before a record is read, and with nothing joined or charged."""
    answers = []
    for number, patients in enumerate((np.arange(24) // 2, np.zeros(24, dtype=int), None)):
        world = world_of(tmp_path / str(number))
        told = world.population
        world.population = type(told)(told.pool, [told._rows[0][: 1 + number]] * 6, patients=patients)
        answer = world.send(0, "keys", {"offer": bent(world.offer, LIES[lie])})
        assert REFUSAL in answer
        answers.append(answer)
        assert not rows(world, 0, JOINED) and not rows(world, 0, UPLOADED)
        assert world.folder(0).attention is None
    assert answers[0] == answers[1] == answers[2]


def test_an_honest_offer_is_not_bent(tmp_path: Path) -> None:
    """Guards the test above: its text is refused for what was changed alone."""
    world = world_of(tmp_path)
    assert "announcement" in world.send(0, "keys", {"offer": bent(world.offer, lambda values: None)})


# An owner that sends everything

try:
    with warnings.catch_warnings():  # Flower's own, on import
        warnings.simplefilter("ignore")
        from flower_tools import LocalFederation, config_for, weights_of
except ImportError:
    LocalFederation = None  # type: ignore[assignment, misc]

ATTACKER = 3


@pytest.mark.skipif(LocalFederation is None, reason="flwr is not installed: pip install '.[flower]'")
def test_an_owner_that_sends_everything_spoils_the_model_and_nobodys_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others send, log and are charged is the same to the bit, and so is the statement."""
    monkeypatch.setenv(TEST_SEED, "3")
    sent: dict[str, dict[tuple[int, int], torch.Tensor]] = {}
    names = ("honest", "boosted")
    config = config_for(
        "fl-std-dp",
        **{"scheme.unit": "patient", "scheme.num_units": 27.0, "scheme.unit_rate": 0.5, "run.rounds": 1},
        **{"scheme.noise_multiplier": 1.5, "scheme.clip_norm": 0.5},
    )
    vector, results, federations = NodeWork.vector, {}, {}
    unit_terms = ClientWork.unit_terms
    for name in names:
        sent[name] = {}

        def noted(work: NodeWork, plan: Any, weights: Any, kept: dict[Any, Any] = sent[name]) -> torch.Tensor:
            kept[work.client, plan.round] = vector(work, plan, weights)
            return kept[work.client, plan.round]

        def everything(work: ClientWork, plan: Any, client: int, weights: Any) -> torch.Tensor:
            terms = unit_terms(work, plan, client, weights)
            return 1000 * terms + 10**9 if client == ATTACKER else terms

        monkeypatch.setattr(NodeWork, "vector", noted)
        monkeypatch.setattr(ClientWork, "unit_terms", everything if name == "boosted" else unit_terms)
        federations[name] = LocalFederation(tmp_path / name, config)
        results[name] = federations[name].run()
    honest, boosted = (sent[name] for name in names)
    others = [number for number in range(5) if number != ATTACKER]
    assert all(torch.equal(honest[number, 1], boosted[number, 1]) for number in others)
    assert not torch.equal(honest[ATTACKER, 1], boosted[ATTACKER, 1])
    weights = [weights_of(results[name]) for name in names]
    assert float((weights[0] - weights[1]).abs().max()) > 1
    for field in ("released", "participant", "unit", "adjacency"):
        assert results["honest"].statement[field] == results["boosted"].statement[field]
    for number in range(5):
        logs = [federations[name].node(number).log.rows() for name in names]
        honest_rows, boosted_rows = ([row for row in log if row["what"] == UPLOADED] for log in logs)
        assert len(honest_rows) == len(boosted_rows) == 1
        for field in ("noise", "cost", "participant_epsilon"):
            assert honest_rows[0][field] == boosted_rows[0][field]
