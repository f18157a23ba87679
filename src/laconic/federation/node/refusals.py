"""Why a node refuses an offer or a round: its policy, applied to figures that it computes itself.

Nothing here looks at a record. A run is refused as a whole if its plan breaks a limit, and a single round if it would
break one now.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from laconic.federation.node.lifetime import (
    CLIENT,
    RECORD,
    UNITS,
    Cost,
    Upload,
    accountant_of,
    charges,
    spent,
)
from laconic.figures import at_most, rounded_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laconic.experiment.mechanism import Mechanism
    from laconic.federation.offer import Offer
    from laconic.guard.policy import Policy
    from laconic.privacy.accounting.accountant import RunAccountant

_OF = {CLIENT: "", RECORD: " of a record"}


def against_server(policy: Policy, server: bytes) -> list[str]:
    """Why nothing that this server offers is even read."""
    if policy.servers and server.hex() not in policy.servers:
        return [f"server {server.hex()[:16]}… is not among the servers of the policy"]
    return []


def against_sizes(policy: Policy, offer: Offer) -> list[str]:
    """What the offer would make this node compute or keep, and may not."""
    shape, train = math.prod(offer.input_shape), offer.scheme.train
    steps = max(getattr(train, name, None) or 0 for name in ("local_steps", "epochs"))
    return [
        f"{value:,} {what}, more than {name} {limit:,}"
        for value, what, name, limit in (
            (offer.attempts, "rounds", "max_rounds", policy.max_rounds),
            (offer.num_clients, "nodes", "max_nodes", policy.max_nodes),
            (steps, "local steps or epochs", "max_local_steps", policy.max_local_steps),
            (offer.size, "weights", "max_model_size", policy.max_model_size),
            (shape, "values in a record", "max_model_size", policy.max_model_size),
            (offer.num_classes, "classes", "max_model_size", policy.max_model_size),
        )
        if value > limit
    ]


def against_offer(policy: Policy, offer: Offer) -> list[str]:
    """Why the run as it is offered is refused: every reason, none if it is allowed."""
    return [*_against_who_and_what(policy, offer), *_against_cost(policy, offer)]


def _against_who_and_what(policy: Policy, offer: Offer) -> list[str]:
    scheme = offer.scheme
    reasons = []
    if policy.fingerprints and scheme.fingerprint not in policy.fingerprints:
        reasons.append(f"scheme {scheme.name} {scheme.fingerprint} is not among the fingerprints of the policy")
    if policy.secure_aggregation != "optional" and not offer.masked:
        reasons.append(f"{scheme.name} shows the server every node's code, but secure aggregation is required")
    if offer.masked and not scheme.noise.on_integers:
        reasons.append(f"{scheme.name} has no noise on integers, so its codes cannot be masked")
    if policy.secure_aggregation == "signed" and offer.consistency != "signed":
        reasons.append("secure aggregation is not signed, as the policy requires")
    if offer.masked and offer.max_colluders < policy.min_colluders:
        reasons.append(f"max_colluders {offer.max_colluders} is below min_colluders {policy.min_colluders}")
    usual = offer.sampler.planned_cohort(offer.num_clients, offer.scheme.groups) - offer.mechanism.slack
    if usual < policy.min_cohort:
        reasons.append(f"sums of {usual:g} honest nodes may be opened, fewer than min_cohort {policy.min_cohort}")
    return reasons


def _against_cost(policy: Policy, offer: Offer) -> list[str]:
    over = _over(offer)
    delta = math.inf if offer.budget is None else offer.budget.delta
    reasons = [reason for unit in UNITS for reason in _against_planned(policy, offer, unit)]
    if policy.max_delta is not None and delta > policy.max_delta:
        reasons.append(f"δ {rounded_up(delta)} is above max_delta {rounded_up(policy.max_delta)}")
    if offer.budget is not None and delta * offer.num_clients >= 1:
        reasons.append(
            f"δ {rounded_up(delta)} is 1/{offer.num_clients} nodes or more: it allows one node's data to be published"
        )
    most = most_participations(offer.mechanism, offer.spare_rounds)
    if policy.max_participations is not None and most > policy.max_participations:
        reasons.append(f"up to {most} participations, above max_participations {policy.max_participations}{over}")
    return reasons


def _against_planned(policy: Policy, offer: Offer, unit: str) -> list[str]:
    """What the plan would cost in one unit of privacy, and may not."""
    limits = {name: limit for name in _limits(unit) if (limit := getattr(policy, name)) is not None}
    if not limits:
        return []
    if offer.scheme.record_level and unit == CLIENT:
        return [
            f"{offer.scheme.name} protects single records, and has no ε for this node's data as a whole, which"
            f" {' and '.join(limits)} would limit (an owner who means records says max_record_epsilon instead)"
        ]
    reasons = []
    if unit == CLIENT or offer.scheme.record_level:
        released, participant = planned_epsilons(offer.mechanism, offer.spare_rounds)
    else:
        most = most_participations(offer.mechanism, offer.spare_rounds)
        released = participant = _record_epsilon(offer.mechanism.accountant, most)
    outside, server = _limits(unit)
    if outside in limits and offer.sampler.caveat:
        reasons.append(f"no proof covers the planned ε that {outside} would limit: {offer.sampler.caveat}")
    for name, against, figure in ((outside, "", released), (server, " against the server", participant)):
        if name in limits and _above(figure, limits[name]):
            what = f"planned ε{_OF[unit]}{against}"
            reasons.append(f"{what} {_figure(figure)} is above {name} {rounded_up(limits[name])}{_over(offer)}")
    return reasons


def _over(offer: Offer) -> str:
    """Over how many rounds, if some of them are spare."""
    return f" (over {offer.rounds} rounds and {offer.spare_rounds} spare ones)" if offer.spare_rounds else ""


def _limits(unit: str) -> tuple[str, str]:
    """The names of the limits on one run in this unit: against an outsider, against the server."""
    of = "record_" if unit == RECORD else ""
    return f"max_{of}epsilon", f"max_{of}participant_epsilon"


def _record_epsilon(accountant: RunAccountant | None, participations: int) -> float:
    """ε of one record of a node, against anybody, where the scheme protects all its data at once; infinite without
    noise."""
    return math.inf if accountant is None else accountant.participant_epsilon(participations, unit=RECORD)


def against_round(policy: Policy, offer: Offer, *, uploads: Sequence[Upload], cohort: int) -> list[str]:
    """Why this round is refused: the last of the node's uploads in the run. `cohort` are the announced nodes."""
    reasons = []
    round, participations = uploads[-1][0], len(uploads)
    if not offer.masked and uploads[-1] in uploads[:-1]:
        # Of a masked sum, the client says so itself. Here the same records would be drawn under other noise.
        reasons.append(f"this node has uploaded to round {round}, attempt {uploads[-1][1]}, before")
    if not 1 <= round <= offer.rounds:
        reasons.append(f"round {round} of a run that was offered with {offer.rounds}")
    honest = cohort - offer.mechanism.slack
    if offer.masked and honest < policy.min_cohort:
        reasons.append(f"a sum of {honest} honest nodes, fewer than min_cohort {policy.min_cohort}")
    if policy.max_participations is not None and participations > policy.max_participations:
        reasons.append(f"participation {participations}, above max_participations {policy.max_participations}")
    accountant, budget = accountant_of(offer, uploads), offer.budget
    if accountant is None or budget is None:
        return reasons
    if budget.max_participations is not None and participations > budget.max_participations:
        reasons.append(f"participation {participations} of the offered {budget.max_participations}")
    charged = max(charges(uploads), participations)
    if charged > offer.attempts:
        agreed = f"{offer.rounds} rounds and {offer.spare_rounds} spare ones"
        reasons.append(f"{charged} rounds would be charged, but {agreed} were offered")
    record_level = offer.scheme.record_level
    outside, server = _limits(RECORD if record_level else CLIENT)
    limit = _least(getattr(policy, outside), budget.epsilon)
    if limit is not None:
        released = accountant.released_epsilon(charged, budget.accountant, participations)
        if _above(released, limit):
            reasons.append(f"ε would be {_figure(released)}, above {rounded_up(limit)}")
    limit = _least(getattr(policy, server), budget.participant_epsilon)
    if limit is not None:
        participant = accountant.participant_epsilon(participations)
        if _above(participant, limit):
            reasons.append(f"ε against the server would be {_figure(participant)}, above {rounded_up(limit)}")
    limit = None if record_level else _least(policy.max_record_epsilon, policy.max_record_participant_epsilon)
    if limit is not None and _above(of_record := _record_epsilon(accountant, participations), limit):
        reasons.append(f"ε of a record would be {_figure(of_record)}, above {rounded_up(limit)}")
    return reasons


def against_lifetime(policy: Policy, before: Mapping[str, Cost], run: str, cost: Cost) -> list[str]:
    """Why the node's data has given enough, if it gave this too. `cost` is all that the run would have cost by then."""
    if not policy.limits_lifetime:
        return []
    after = {**before, run: cost}.values()
    reasons = []
    for what, unit, figure, name in (
        ("ε", CLIENT, "epsilon", "lifetime_epsilon"),
        ("ε against the servers", CLIENT, "participant_epsilon", "lifetime_participant_epsilon"),
        ("participations", CLIENT, "participations", "lifetime_participations"),
        ("ε of a record", RECORD, "epsilon", "lifetime_record_epsilon"),
        ("ε of a record against the servers", RECORD, "participant_epsilon", "lifetime_record_participant_epsilon"),
    ):
        limit = getattr(policy, name)
        if limit is None:
            continue
        value = getattr(spent(after, policy.max_delta or 1.0, unit), figure)
        if _above(value, limit):
            shown = "∞ (uploads without noise, or for single records)" if value == math.inf else _figure(value)
            reasons.append(
                f"over the lifetime of this node's data {what} would be {shown}, above {name} {rounded_up(limit)}"
            )
    return reasons


def planned_epsilons(mechanism: Mechanism, spare_rounds: int = 0) -> tuple[float, float]:
    """ε against an outsider and against the server if all rounds are charged, spare ones too; infinite without noise.

    Spare rounds count: whoever agrees to a run agrees to what it may cost, and is not asked again after a crash.
    """
    accountant, budget = replace(mechanism, spare_rounds=spare_rounds).accountant, mechanism.budget
    if accountant is None or budget is None:
        return math.inf, math.inf
    most = most_participations(mechanism, spare_rounds)
    released = accountant.released_epsilon(mechanism.rounds + spare_rounds, budget.accountant, most)
    participant = accountant.participant_epsilon(most)
    promised = (budget.epsilon, budget.participant_epsilon)
    return tuple(
        figure if limit is None else min(figure, limit)
        for figure, limit in zip((released, participant), promised, strict=True)
    )  # type: ignore[return-value]


def most_participations(mechanism: Mechanism, spare_rounds: int = 0) -> int:
    """How often one node may be asked."""
    cap, rounds = mechanism.budget.max_participations if mechanism.budget else None, mechanism.rounds + spare_rounds
    return rounds if cap is None else min(cap, rounds)


def _above(figure: float, limit: float) -> bool:
    """Whether a limit is broken. A figure that is not a number keeps none."""
    return not figure <= limit


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _figure(value: float) -> str:
    if math.isinf(value):
        return "∞ (no noise)"
    return f"{value}" if isinstance(value, int) else at_most(value)
