"""A contract says what a client of the simulator really does, and a server that states anything else is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from node_tools import OFFER, SERVER, make_offer
from offer_tools import CASES, ROUNDS, inside, offered

from laconic.errors import ConfigError, LaconicError, PrivacyError, WireError
from laconic.federation.offer import Offer, open_offer, sign_offer, verify_offer
from laconic.guard.contract import ENTRIES, L2, MARKS, NO_CLIP, Contract, Release, SignedOffer, offer_digest
from laconic.planning import plan_of_sum
from laconic.privacy.accounting.releases import SERVER as THE_SERVER
from laconic.privacy.accounting.releases import Shown, compose, composed
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.privacy.mechanism.clip import L2Clip, Marks, NoClip, UnitEntries
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.round import noisy_codes, uplink_encoding
from laconic.streams import Streams


@pytest.mark.parametrize("name", CASES)
def test_a_contract_says_what_a_client_of_the_simulator_does(name: str) -> None:
    offer = CASES[name]()
    contract = offer.contract
    for round in range(1, ROUNDS + 1):
        parts, release = offer.scheme.at(round), contract.release(round)
        assert release.phase == offer.scheme.phase(round).name
        assert release.code_size == parts.codec.code_size(offer.size)
        for cohort in {contract.least_cohort, contract.slack + 1, 7, contract.largest_cohort}:
            plan = plan_of_sum(
                offer.scheme,
                offer.sampler,
                np.arange(cohort),
                streams=Streams(offer.public_seed),
                round=round,
                attempt=0,
                num_clients=offer.num_clients,
                max_dropouts=offer.max_dropouts,
                max_colluders=offer.max_colluders,
            )
            if not parts.noise.private:
                assert (release.units, release.scale, release.bits) == (0, 0, 0)
                continue
            sensitivity = parts.clip.sensitivity(release.code_size)
            grid = parts.noise.grid(code_size=release.code_size, sensitivity=sensitivity, plan=plan)
            assert grid is not None
            assert release.sensitivity == sensitivity
            assert (release.units, release.scale, release.bits) == (grid.units, grid.scale, grid.bits)
            assert release.bits == uplink_encoding(parts, release.code_size, plan).bits
            assert release.whole == parts.noise.for_signs
            if plan.viable:
                assert contract.share_scale(release, cohort) == grid.share_scale(plan.noise_shares)
            else:
                with pytest.raises(PrivacyError, match="cannot carry the noise"):
                    contract.share_scale(release, cohort)


@pytest.mark.parametrize("name", CASES)
def test_uploads_that_are_priced_by_the_contract_cost_what_the_accountant_says(name: str) -> None:
    """Gaussians compose exactly: uploads with z_1, z_2, … are one with 1/z² = Σ 1/z_i² (μ² adds up)."""
    offer = CASES[name]()
    contract, accountant, budget = offer.contract, offer.mechanism.accountant, offer.budget
    assert contract.digest == offer.digest and contract.terms(bytes(32)) == offer.terms(bytes(32))
    assert budget is not None
    if accountant is None:
        assert all(release.multiplier == 0 for release in contract.releases)
        return
    rounds = range(1, ROUNDS + 1)
    left = budget.delta - offer.mechanism.delta_slack()
    multiplier, rate, count = contract.releases[-1].price
    if rate == 1:
        price = gaussian_epsilon(1 / math.sqrt(sum(contract.release(r).price[0] ** -2 for r in rounds)), left)
    else:
        step = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
        price = composed([Shown(step, ROUNDS * count)], left, "pld")
    counts = zip(accountant.releases, accountant.planned, strict=True)
    told = compose([replace(one, taken=n) for one, n in counts], budget.delta, against=THE_SERVER, unit=contract.unit)
    assert price == pytest.approx(told, rel=1e-9)
    assert contract.unit == accountant.unit
    # Of a vote the accountant takes for granted only that it is no dearer than training.
    assert price <= accountant.participant_epsilon(ROUNDS) * (1 + 1e-9)
    assert len(contract.releases) > 1 or price == pytest.approx(accountant.participant_epsilon(ROUNDS), rel=1e-2)


@pytest.mark.parametrize("name", ["fl-std-dp", "fl-sign-dp", "votes", "evaluations", "dropouts", "given bits of signs"])
def test_the_noise_of_a_share_is_what_the_contract_says(name: str) -> None:
    """Of 200,000 draws the standard deviation is within 1 % but for a chance of 10^-9."""
    offer = CASES[name]()
    contract, parts = offer.contract, offer.scheme.at(1)
    release = contract.release(1)
    plan = replace(
        offer.mechanism.typical_plan(), cohort=np.arange(contract.largest_cohort), round=1, fingerprint="0" * 32
    )
    codes = torch.zeros(-(-200_000 // release.code_size), release.code_size)
    streams = [Streams(1).stream("noise", number) for number in range(len(codes))]
    drawn = noisy_codes(parts, plan, codes, streams=streams).double()
    centred = (drawn + 2 ** (release.bits - 1)) % 2**release.bits - 2 ** (release.bits - 1)
    share = contract.share_scale(release, len(plan.cohort))
    assert float(centred.std()) == pytest.approx(share, rel=0.01)


def test_every_bound_is_stated_as_it_is_kept() -> None:
    code = torch.randn(3, 50) * 9
    for clip in (L2Clip(clip_norm=0.3), UnitEntries(), Marks(ratio=0.13), NoClip()):
        kind, bound = clip.stated
        release = replace(release_of(OFFER), code_size=50, clip=kind, bound=bound)
        assert release.sensitivity == clip.sensitivity(50)
        assert bool((torch.linalg.vector_norm(clip(code), dim=1) <= release.sensitivity).all())
    assert {clip.stated[0] for clip in (L2Clip(clip_norm=1.0), UnitEntries(), Marks(ratio=0.1), NoClip())} == {
        *(L2, ENTRIES, MARKS, NO_CLIP)
    }


def release_of(offer: Offer) -> Release:
    return offer.contract.releases[-1]


def test_noise_on_no_grid_counts_as_none() -> None:
    """No node could draw it from its operating system's entropy, nor mask it."""
    offer = replace(OFFER, scheme=replace(OFFER.scheme, noise=Gaussian(noise_multiplier=4.0)))
    assert release_of(offer).multiplier == 0


def test_a_contract_is_kept_as_a_row_and_read_back() -> None:
    for name in ("votes and evaluations", "steps by class", "fl-std"):
        contract = CASES[name]().contract
        row = json.loads(json.dumps(contract.row()))
        assert Contract.from_row(row) == contract


# What a server may state, and may not


def bent(offer: Offer, change: Callable[[dict[str, Any]], None]) -> SignedOffer:
    """What a server signs that changes the text of an offer."""
    values = json.loads(offer.to_bytes())
    change(values)
    body = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    signed = SignedOffer(0, offer.server, body)
    return verify_offer(signed.to_bytes(SERVER.sign(signed.statement)))


def told(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        holder = values["contract"]
        *path, last = field.split(".")
        for name in path:
            holder = holder[int(name) if name.isdecimal() else name]
        assert last in holder
        holder[last] = value

    return change


def multiplied(field: str, factor: float) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        *path, last = field.split(".")
        holder = values["contract"]
        for name in path:
            holder = holder[int(name) if name.isdecimal() else name]
        holder[last] *= factor

    return change


def many(*changes: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        for one in changes:
            one(values)

    return change


LIES = {
    "less noise than the price says": multiplied("releases.0.multiplier", 1.01),
    "a finer grid under the same noise": multiplied("releases.0.units", 1.01),
    "a smaller scale": multiplied("releases.0.scale", 0.99),
    "a larger bound": multiplied("releases.0.bound", 1.01),
    "a bound among numbers that round to twice as much": many(
        multiplied("releases.0.bound", 1e-43), multiplied("releases.0.units", 1e43)
    ),
    "a grid that no integer holds": many(multiplied("releases.0.units", 1e18), told("releases.0.multiplier", 1e-18)),
    "no bound": told("releases.0.clip", "none"),
    "another bound": told("releases.0.clip", "entries"),
    "an unknown bound": told("releases.0.clip", "l1"),
    "a tiny scale": told("releases.0.scale", 1.0),
    "noise on no grid": told("releases.0.units", 0.0),
    "no masks": told("masked", False),
    "records instead of clients": told("unit", "record"),
    "patients instead of clients": told("unit", "patient"),
    "no unit": told("unit", "hospital"),
    "coins for clients": told("releases.0.coins", 0.5),
    "clients of several nodes": told("releases.0.owners", 2),
    "parts of clients": told("releases.0.clip", "parts"),
    "half a kind": told("releases.0.every", 2),
    "no kinds": told("releases", []),
    "many kinds": lambda values: values["contract"].update(releases=9 * values["contract"]["releases"]),
    "an infinite scale": told("releases.0.scale", math.inf),
    "a scale that is no number": told("releases.0.scale", math.nan),
    "a scale as text": told("releases.0.scale", "64"),
    "bits beyond 32": told("releases.0.bits", 33),
    "too few bits": told("releases.0.bits", 7),
    "a code of no values": told("releases.0.code_size", 0),
    "a code that is endless": told("releases.0.code_size", 2**60),
    "a truth as a number": told("masked", 1),
    "a number as a truth": told("participations", True),
    "no participations": told("participations", 0),
    "a negative delta": told("delta", -1e-5),
    "a delta of one": told("delta", 1.0),
    "a promise of nothing": told("participant_epsilon", 0),
    "an endless name": told("name", "x" * 101),
    "a name with a line break": told("name", "fl\nstd"),
    "a fingerprint that is none": told("fingerprint", "xyz"),
    "an unknown field": lambda values: values["contract"].update(more=1),
    "a field that is missing": lambda values: values["contract"].pop("delta"),
    "no contract": lambda values: values.pop("contract"),
    "a contract that is a list": lambda values: values.update(contract=[1]),
    "another version": lambda values: values.update(laconic="9" * 50),
    "another server": lambda values: values.update(server="00" * 32),
    "too few nodes": lambda values: values.update(num_clients=0),
    "a run that is none": lambda values: values.update(run="00"),
    "many dimensions": lambda values: values.update(input_shape=[1] * 9),
    "a consistency that is none": lambda values: values.update(consistency="loose"),
    "endless slack": lambda values: values.update(max_dropouts=2**40),
    "a digest of its own": lambda values: values["contract"].update(digest="00" * 32),
    "a server of its own": lambda values: values["contract"].update(server=values["server"]),
    "a run of its own": lambda values: values["contract"].update(run="11" * 16),
}


@pytest.mark.parametrize("lie", LIES)
def test_no_lie_in_a_contract_is_believed(lie: str) -> None:
    """Each is refused where the contract is read, by few lines that know no scheme."""
    with pytest.raises(LaconicError):
        Contract.read(bent(make_offer(), LIES[lie]))


STEPS = {
    "less noise": multiplied("releases.0.steps.noise_multiplier", 1.01),
    "a larger gradient": multiplied("releases.0.steps.clip_norm", 1.01),
    "a gradient among numbers that round to twice as much": many(
        multiplied("releases.0.steps.clip_norm", 1e-43), multiplied("releases.0.steps.units", 1e43)
    ),
    "a smaller scale": multiplied("releases.0.steps.scale", 0.99),
    "a higher price": multiplied("releases.0.multiplier", 1.01),
    "many more weights": told("releases.0.steps.size", 10**9),
    "a rate above one": told("releases.0.steps.rate", 1.5),
    "no steps": told("releases.0.steps.count", 0),
    "not private": told("releases.0.steps", None),
    "clients instead of records": told("unit", "client"),
}


@pytest.mark.parametrize("lie", STEPS)
def test_no_lie_about_private_steps_is_believed(lie: str) -> None:
    with pytest.raises(WireError):
        Contract.read(bent(CASES["steps by class"](), STEPS[lie]))


INSIDE = {
    "less noise than the price says": multiplied("releases.0.multiplier", 1.01),
    "more of one unit": multiplied("releases.0.bound", 1.01),
    "a finer grid under the same noise": multiplied("releases.0.units", 1.01),
    "a smaller scale": multiplied("releases.0.scale", 0.99),
    "one node more for each patient": told("releases.0.owners", 3),
    "more nodes than there are": many(told("releases.0.owners", 41), multiplied("releases.0.bound", 1e-6)),
    "patients of no node": told("releases.0.owners", 0),
    "half a node": told("releases.0.owners", 1.5),
    "coins that always say more than yes": told("releases.0.coins", 1.5),
    "coins that never say yes": told("releases.0.coins", 0.0),
    "negative coins": told("releases.0.coins", -0.4),
    "coins that are no number": told("releases.0.coins", math.nan),
    "coins as text": told("releases.0.coins", "0.4"),
    "a code that is bounded as a whole": told("releases.0.clip", "l2"),
    "no bound": told("releases.0.clip", "none"),
    "whole parts": many(told("releases.0.whole", True), told("releases.0.units", 100.0)),
    "no noise": many(*(told(f"releases.0.{name}", 0) for name in ("units", "scale", "bits", "multiplier"))),
    "no masks": told("masked", False),
    "a whole node": told("unit", "client"),
    "records of two nodes": told("unit", "record"),
    "fewer nodes in some rounds": lambda values: values["contract"]["releases"].insert(
        0, values["contract"]["releases"][0] | {"owners": 1, "bound": 0.7, "every": 2}
    ),
    "another unit": told("unit", "person"),
    "nodes that are drawn": told("planned_cohort", 20.0),
    "private steps": told(
        "releases.0.steps",
        {"size": 211, "rate": 0.1, "count": 1, "clip_norm": 1.0, "noise_multiplier": 1.0, "units": 40.0, "scale": 50.0},
    ),
}


@pytest.mark.parametrize("lie", INSIDE)
def test_no_lie_about_units_inside_a_node_is_believed(lie: str) -> None:
    with pytest.raises(WireError):
        Contract.read(bent(CASES["patients of two nodes"](), INSIDE[lie]))


def test_coins_and_owners_that_a_node_can_keep_have_their_price() -> None:
    """A smaller part than S/h, or rarer coins, cost less; the rest of the node compares them with the scheme."""
    offer = CASES["patients of two nodes"]()
    release = release_of(offer)
    assert (release.bound, release.owners, release.sensitivity) == (0.35, 2, 0.7)
    assert release.price == (release.multiplier, pytest.approx(1 - 0.6**2), 1)
    for change in (multiplied("releases.0.bound", 0.5), told("releases.0.coins", 0.2), told("unit", "patient")):
        Contract.read(bent(offer, change))
    assert release_of(CASES["records inside"]()).price[1:] == (0.3, 1)
    assert release_of(CASES["patients in a subset"]()).code_size == 64


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_units": None}, "--num-units"),
        ({"rate": 1.5}, "at most 1"),
        ({"rate": 0}, "above 0"),
        ({"max_owners": 0}, "1 or more"),
        ({"max_owners": 41}, "more than the 40 clients"),
        ({"num_units": 10**6}, "δ 1e-05 is 1/1e\\+06 patients or more"),
    ],
)
def test_units_that_no_accountant_answers_for_are_no_offer(change: dict[str, Any], reason: str) -> None:
    """Also not as text: a node that reads it refuses it for the same reason."""
    offer = CASES["patients of two nodes"]()

    def bend(values: dict[str, Any]) -> None:
        values["scheme"]["train"].update(change)

    with pytest.raises(LaconicError, match=reason):
        open_offer(bent(offer, bend))


def test_a_divisor_by_true_counts_is_no_offer() -> None:
    """How many records a node has would be a weight in its message."""
    with pytest.raises(LaconicError, match="a weight by data size"):
        open_offer(bent(CASES["patients inside"](), lambda values: values["scheme"].update(weighting="data-size")))


def test_a_grid_on_which_units_are_mostly_rounding_is_no_offer() -> None:
    with pytest.raises(ConfigError, match="the grid is too coarse"):
        offered(inside(bits=10, num_units=100.0, noise_multiplier=300.0))


@pytest.mark.parametrize(
    "change",
    [
        multiplied("releases.0.multiplier", 0.5),
        multiplied("participations", 2),
        told("releases.0.bits", 30),
        told("releases.0.phase", "votes"),
        told("name", "fl-sign-dp"),
        told("delta", 1e-6),
    ],
)
def test_a_contract_that_does_not_follow_from_the_offer_is_refused_with_it(
    change: Callable[[dict[str, Any]], None],
) -> None:
    """The guard can keep such a contract. The rest of the node knows the scheme, and compares."""
    signed = bent(make_offer(), change)
    Contract.read(signed)
    with pytest.raises(WireError, match="not written as this version"):
        open_offer(signed)


def test_a_contract_names_the_whole_offer() -> None:
    offer = make_offer()
    signed = verify_offer(sign_offer(offer, 2, SERVER))
    contract = Contract.read(signed)
    assert contract == offer.contract
    assert contract.digest == offer_digest(signed.body) == offer.digest
    assert contract.context == offer.context
    assert replace(offer, spare_rounds=1).contract.digest != contract.digest
    with pytest.raises(WireError, match="to client 3 of 3"):
        Contract.read(verify_offer(sign_offer(offer, 3, SERVER)))
