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
from offer_tools import CASES, ROUNDS

from laconic.errors import LaconicError, PrivacyError, WireError
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
    steps = contract.releases[-1].steps
    if steps is None:
        price = gaussian_epsilon(1 / math.sqrt(sum(contract.release(r).multiplier ** -2 for r in rounds)), left)
    else:
        step = PoissonSampledDpEvent(steps.rate, GaussianDpEvent(contract.releases[-1].multiplier))
        price = composed([Shown(step, ROUNDS * steps.count)], left, "pld")
    counts = zip(accountant.releases, accountant.planned, strict=True)
    told = compose([replace(one, taken=n) for one, n in counts], budget.delta, against=THE_SERVER, unit=contract.unit)
    assert price == pytest.approx(told, rel=1e-9)
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
    "no unit": told("unit", "patient"),
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
