"""Patients and records inside a node: who limits which unit, what its log counts, and where its coins come from."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e_tools import call
from hypothesis import given
from hypothesis import strategies as st
from node_tools import OFFER, SERVER, DirectCourier, Small, model, refusals, round_refusals

from laconic import schemes
from laconic.clients import work
from laconic.data.population import PooledPopulation
from laconic.federation.entropy import SystemStream
from laconic.federation.node.lifetime import Cost, accountant_of, charges, spent
from laconic.federation.node.node import Node
from laconic.federation.offer import Offer, sign_offer
from laconic.federation.populations import Held
from laconic.federation.requests import REFUSED
from laconic.figures import at_most
from laconic.guard.folder import NodeFolder
from laconic.guard.ledger import Price, composed
from laconic.guard.limits import charged, priced
from laconic.guard.policy import Policy
from laconic.guard.transcript import UPLOADED
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import CLIENT, PARTS_OF, PATIENT, RECORD, UNITS

GIVEN: dict[str, Any] = {"unit": "patient", "clip_norm": 0.5, "noise_multiplier": 4.0, "num_units": 50}


def inside(**changes: Any) -> Offer:
    """An offer that protects units inside five nodes, over four rounds."""
    return replace(OFFER, scheme=schemes.fl_std_dp(**GIVEN | changes))


def participant(offer: Offer, count: int, unit: str | None = None) -> float:
    accountant = offer.mechanism.accountant
    assert accountant is not None
    return accountant.participant_epsilon(count, unit=unit)


# Limits


@pytest.mark.parametrize(
    ("unit", "limit"),
    [
        ("patient", "max_epsilon"),
        ("patient", "max_participant_epsilon"),
        ("record", "max_epsilon"),
        ("record", "max_patient_epsilon"),
        ("record", "max_patient_participant_epsilon"),
    ],
)
def test_no_epsilon_of_a_part_satisfies_a_limit_on_the_whole(unit: str, limit: str) -> None:
    offer = inside(unit=unit, noise_multiplier=100.0)
    told = refusals(offer, **{limit: 100.0})
    assert re.search(f"protects single {unit}s, and has no ε for .* as a whole, which {limit} would limit", told)
    assert f"an owner who means {unit}s says max_{unit}_epsilon instead" in told
    assert refusals(offer, **{f"max_{unit}_epsilon": 100.0}) == ""


def test_a_policy_limits_patients_and_their_records_at_once() -> None:
    """Without a record the vector of its patient may point elsewhere: 2·S, and coins do not help."""
    offer = inside(unit_rate=0.3)
    patient, record = participant(offer, 4), participant(offer, 4, RECORD)
    assert record > 2 * patient
    assert refusals(offer, max_patient_epsilon=patient, max_record_epsilon=record) == ""
    assert "planned ε of a record " in refusals(offer, max_patient_epsilon=patient, max_record_epsilon=0.99 * record)
    assert "planned ε of a patient " in refusals(offer, max_patient_epsilon=0.99 * patient, max_record_epsilon=record)
    policy = Policy(max_delta=1e-5, max_patient_participant_epsilon=guarded(offer, 4), max_record_epsilon=0.9 * record)
    before = [(1, 0), (2, 0), (3, 0)]
    assert round_refusals(policy, offer, uploads=before, cohort=5) == []
    told = round_refusals(policy, offer, uploads=[*before, (4, 0)], cohort=5)
    assert len(told) == 1 and told[0].startswith("ε of a record would be")


def test_limits_on_patients_hold_for_schemes_that_protect_the_whole() -> None:
    of_patient = participant(OFFER, 4, PATIENT)
    assert of_patient == participant(OFFER, 4, RECORD) > 2 * participant(OFFER, 4)
    assert refusals(max_patient_epsilon=of_patient) == ""
    assert "planned ε of a patient" in refusals(max_patient_epsilon=0.99 * of_patient)


def test_rounds_are_counted_by_the_node_itself_and_so_are_repeats() -> None:
    offer = replace(inside(unit_rate=0.5), spare_rounds=2)
    policy = Policy(max_delta=1e-5, max_patient_participant_epsilon=guarded(offer, 2))
    twice = [(1, 0), (1, 1)]
    assert round_refusals(policy, offer, uploads=twice, cohort=5) == []
    told = round_refusals(policy, offer, uploads=[*twice, (2, 0)], cohort=5)
    assert "ε of a patient against the server would be" in told[0]
    told = round_refusals(Policy(), offer, uploads=[(1, n) for n in range(7)], cohort=5)
    assert "7 rounds would be charged, but 4 rounds and 2 spare ones were offered" in "; ".join(told)


def test_a_node_that_limits_an_honest_cohort_limits_it_for_shares_of_units_too() -> None:
    offer = replace(inside(), max_colluders=1, max_dropouts=1)
    assert refusals(offer, min_cohort=3, min_colluders=1) == ""
    assert "fewer than min_cohort 4" in refusals(offer, min_cohort=4)
    assert "below min_colluders 2" in refusals(offer, min_colluders=2)
    assert "not signed" in refusals(offer, secure_aggregation="signed", identities=("ab" * 32,))


def guarded(offer: Offer, count: int) -> float:
    """The guard's own figure of a patient, in closed form: never below the tight one."""
    return composed([Price.of(offer.contract, offer.contract.release(1))] * count, 1e-5, PATIENT)


def paid(offer: Offer, uploads: list[tuple[int, int]], unit: str = PATIENT) -> float:
    """The same of these uploads, in this order: each pays by the price in its own row."""
    rows: list[dict[str, Any]] = []
    for round, attempt in uploads:
        price = priced(offer.contract, rows, (round, attempt))
        rows.append({"what": UPLOADED, "round": round, "attempt": attempt, "price": price.row()})
    return composed(charged(rows), 1e-5, unit)


# The log


def cost(offer: Offer, uploads: list[tuple[int, int]]) -> Cost:
    return Cost(**Cost.planned(offer).row()).after(uploads)


def test_over_a_lifetime_each_unit_is_composed_by_itself() -> None:
    offer = inside(unit_rate=0.4)
    three = cost(offer, [(1, 0), (2, 0), (3, 0)])
    left = 1e-5
    alone = spent([three], left, PATIENT)
    assert alone.participant_epsilon == pytest.approx(participant(offer, 3), rel=1e-6)
    assert alone.epsilon == alone.participant_epsilon  # one ε against everybody
    assert spent([three], left, RECORD).participant_epsilon == pytest.approx(participant(offer, 3, RECORD), rel=1e-6)
    assert spent([three], left, CLIENT).epsilon == math.inf
    records = cost(inside(unit="record"), [(1, 0)])
    assert spent([records], left, PATIENT).epsilon == math.inf
    assert spent([records], left, RECORD).participant_epsilon == pytest.approx(
        participant(inside(unit="record"), 1), rel=1e-6
    )
    whole = cost(OFFER, [(1, 0)])
    both = spent([three, whole], left, PATIENT).participant_epsilon
    parts = [spent([one], left, PATIENT).participant_epsilon for one in (three, whole)]
    assert max(parts) < both < sum(parts) * 1.1


def test_a_patient_of_several_nodes_is_in_the_rounds_of_all_of_them() -> None:
    """This node was away for 37 rounds, as far as it knows; the other node of the patient was not."""
    offer = replace(inside(max_owners_per_patient=2, unit_rate=0.3), rounds=40)
    single = replace(inside(unit_rate=0.3), rounds=40)
    uploads = [(1, 0), (2, 0), (40, 0)]
    accountant = accountant_of(offer, uploads)
    assert accountant is not None and accountant.main.rate == pytest.approx(1 - 0.7**2)
    logged = spent([cost(offer, uploads)], 1e-5, PATIENT)
    assert logged.participations == 3
    assert logged.participant_epsilon == pytest.approx(participant(offer, 40), rel=1e-6)
    assert spent([cost(single, uploads)], 1e-5, PATIENT).participant_epsilon == pytest.approx(
        participant(single, 3), rel=1e-6
    )
    assert paid(offer, uploads) == pytest.approx(guarded(offer, 40), rel=1e-9)
    assert paid(single, uploads) == pytest.approx(guarded(single, 3), rel=1e-9)
    policy = Policy(max_delta=1e-5, max_patient_participant_epsilon=guarded(offer, 39))
    assert "ε of a patient against the server would be" in round_refusals(policy, offer, uploads=uploads, cohort=5)[0]
    assert refusals(offer, max_patient_epsilon=participant(offer, 40)) == ""
    assert "planned ε of a patient" in refusals(offer, max_patient_epsilon=participant(offer, 39))


@given(
    uploads=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2)), min_size=1, max_size=12, unique=True),
    rate=st.sampled_from([0.2, 0.7, 1.0]),
    owners=st.sampled_from([1, 2, 5]),
    unit=st.sampled_from([PATIENT, RECORD]),
)
def test_whatever_was_uploaded_neither_log_is_cheaper_than_its_uploads(
    uploads: list[tuple[int, int]], rate: float, owners: int, unit: str
) -> None:
    """Nor for more uploads, and for no unit that has no bound: as the node counts, and as its guard does."""
    options = {"unit": unit, "unit_rate": rate, "max_owners_per_patient": owners if unit == PATIENT else 1}
    offer = replace(inside(**options, noise_multiplier=6.0), rounds=30, spare_rounds=60)
    logged = cost(offer, uploads)
    figure = spent([logged], 1e-5, unit).participant_epsilon
    assert paid(offer, sorted(uploads), unit) >= figure * (1 - 1e-6)
    assert figure >= participant(offer, len(uploads)) * (1 - 1e-6)
    assert charges(uploads) >= len(uploads)
    assert spent([logged], 1e-5, unit).participant_epsilon <= participant(offer, charges(uploads)) * (1 + 1e-6)
    more = cost(offer, [*uploads, (30, 3)])
    assert spent([more], 1e-5, unit).participant_epsilon >= figure
    for larger in (one for one in UNITS if unit in PARTS_OF[one]):
        assert spent([logged], 1e-5, larger).epsilon == paid(offer, uploads, larger) == math.inf


# A node with patients


class Hospitals(Small):
    """Three nodes whose records have patients: two records each."""

    def __init__(self, path: Path, policy: Policy = Policy(), **changes: Any) -> None:  # noqa: B008 - it is frozen
        given = {"unit_rate": 0.5, "num_units": 10, **changes.pop("scheme", {})}
        super().__init__(path, policy, scheme=schemes.fl_std_dp(**GIVEN | given), **changes)
        told = self.population
        self.population = PooledPopulation(told.pool, told._rows, patients=np.arange(21) // 2)
        self.courier = DirectCourier([self.node(number) for number in range(3)])

    def node(self, number: int, of_patients: bool | None = None) -> Node:
        return Node(
            NodeFolder(self.path / f"node-{number}"),
            self.policy,
            nonces=self.processes[number],
            model=lambda offer: model(),
            records=lambda offer: Held.at(self.population, number),
            of_patients=of_patients,
        )


def test_a_node_draws_its_patients_and_its_share_from_its_operating_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, type, np.ndarray]] = []
    draw = work.drawn_units

    def noted(count: int, rate: float, stream: Any) -> Any:
        found = draw(count, rate, stream)
        drawn.append((count, type(stream), found.numpy()))
        return found

    monkeypatch.setattr(work, "drawn_units", noted)
    policy = Policy(max_delta=1e-5, max_patient_epsilon=10.0, lifetime_patient_epsilon=10.0)
    hospitals = Hospitals(tmp_path, policy)
    clients = hospitals.join()
    for round in (1, 2):
        sent = clients.collect(hospitals.plan(clients, round), clients.model.initial)
        assert sent.messages == 3
    assert {kind for _, kind, _ in drawn} == {SystemStream}
    assert [count for count, _, _ in drawn] == [4, 4, 4] * 2  # patients at each node, not records
    rows = NodeFolder(tmp_path / "node-0").log.rows()
    uploads = [row for row in rows if row["what"] == UPLOADED]
    assert [row["unit"] for row in uploads] == [PATIENT] * 2
    told = uploads[-1]["participant_epsilon"]
    assert participant(hospitals.offer, 2) <= told == guarded(hospitals.offer, 2)
    assert uploads[0]["cost"]["record_rate"] == 0.5


def test_the_owner_sees_what_one_patient_has_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hospitals = Hospitals(tmp_path)
    clients = hospitals.join()
    clients.collect(hospitals.plan(clients), clients.model.initial)
    (tmp_path / "policy.toml").write_text("max_delta = 1e-5\nlifetime_patient_epsilon = 3.0\n")
    place = (str(tmp_path / "node-0"), "--policy", str(tmp_path / "policy.toml"))
    figure = at_most(participant(hospitals.offer, 1))
    told = call(capsys, "node", "status", *place).out
    assert f"a patient ε against the servers {figure}, against an outsider {figure} of 3" in told
    assert f"1 participations, ε of a patient against the server {at_most(guarded(hospitals.offer, 1))}" in told
    assert "all runs  1 participations, ε against the servers ∞" in told
    found = call(capsys, "node", "status", *place, "--json").json
    assert found["lifetime"]["patient"]["epsilon"] == pytest.approx(participant(hospitals.offer, 1))
    assert found["lifetime"]["epsilon"] is None and found["lifetime"]["record"]["epsilon"] > 0


def test_a_node_that_was_not_told_of_patients_says_so_before_it_joins(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    answer = hospitals.node(0, of_patients=False).answer("keys", {"offer": sign_offer(hospitals.offer, 0, SERVER)})
    assert "this node was not told which column says whose each record is" in str(answer[REFUSED])
    other = replace(hospitals.offer, scheme=schemes.fl_std_dp(**GIVEN | {"unit": "record"}))
    assert "announcement" in hospitals.node(0, of_patients=False).answer(
        "keys", {"offer": sign_offer(other, 0, SERVER)}
    )


def test_records_that_do_not_say_whose_they_are_are_a_matter_for_the_owner(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    clients = hospitals.join()
    told = hospitals.population
    hospitals.population = PooledPopulation(told.pool, told._rows)
    assert clients.collect(hospitals.plan(clients), clients.model.initial).messages == 3, "noise alone"
    assert "--patient-column" in (NodeFolder(tmp_path / "node-0").bad_records or "")


def test_a_delta_of_one_over_the_patients_is_refused_by_the_offer_or_withheld(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, scheme={"num_units": 2}, budget=Budget(delta=0.15))
    clients = hospitals.join()
    assert clients.collect(hospitals.plan(clients), clients.model.initial).messages == 3, "noise alone"
    assert "δ 0.15 is one over this node's 8 records or more" in (NodeFolder(tmp_path / "node-0").bad_records or "")
