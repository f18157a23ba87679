"""Why a node refuses an offer or a round for what an outsider would learn, by figures that it computes itself.

The guard's `limits` come first: what they say needs no accountant. What an outsider learns is less than what the server
does, by the sampling of nodes, and takes one. Nothing here looks at a record.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from laconic.federation.node.lifetime import Cost, Group, accountant_of, spent, taken_of
from laconic.figures import at_most, rounded_up
from laconic.guard.contract import UNITS
from laconic.guard.ledger import PARTS_OF
from laconic.guard.limits import OF, Upload, charges, limit_of, of_another

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laconic.experiment.mechanism import Mechanism
    from laconic.federation.offer import Offer
    from laconic.guard.policy import Policy
    from laconic.privacy.accounting.accountant import RunAccountant


def against_offer(policy: Policy, offer: Offer) -> list[str]:
    """Why the run as it is offered is refused, beyond what the guard refuses: every reason, none if it is allowed."""
    train = offer.scheme.train
    steps = max(getattr(train, name, None) or 0 for name in ("local_steps", "epochs"))
    limit = policy.max_local_steps
    reasons = [f"{steps:,} local steps or epochs, more than max_local_steps {limit:,}"] if steps > limit else []
    return [*reasons, *(reason for unit in UNITS for reason in _against_planned(policy, offer, unit))]


def _against_planned(policy: Policy, offer: Offer, unit: str) -> list[str]:
    """What an outsider would learn by the plan of one unit of privacy, and may not."""
    name, limit = limit_of(policy, unit, "max", "epsilon")
    if limit is None:
        return []
    own = offer.scheme.unit
    if unit != own and unit not in PARTS_OF[own]:
        return [
            of_another(offer.scheme.name, own, unit, name),
        ]
    if unit == own:
        released, _ = planned_epsilons(offer.mechanism, offer.spare_rounds)
    else:
        most = most_participations(offer.mechanism, offer.spare_rounds)
        released = _part_epsilon(offer.mechanism.accountant, most, unit)
    reasons = []
    if offer.sampler.caveat:
        reasons.append(f"no proof covers the planned ε that {name} would limit: {offer.sampler.caveat}")
    if _above(released, limit):
        spare = f" (over {offer.rounds} rounds and {offer.spare_rounds} spare ones)" if offer.spare_rounds else ""
        reasons.append(f"planned ε{OF[unit]} {_figure(released)} is above {name} {rounded_up(limit)}{spare}")
    return reasons


def _part_epsilon(accountant: RunAccountant | None, participations: int, unit: str) -> float:
    """ε of a part of what the scheme protects at once, against any adversary; infinite without noise."""
    return math.inf if accountant is None else accountant.participant_epsilon(participations, unit=unit)


def against_round(policy: Policy, offer: Offer, *, uploads: Sequence[Upload]) -> list[str]:
    """Why an outsider would learn too much from this round: the last of the node's uploads in the run."""
    accountant, budget = accountant_of(offer, uploads), offer.budget
    if accountant is None or budget is None:
        return []
    reasons, participations = [], len(uploads)
    charged = max(charges(uploads), participations)
    own = offer.scheme.unit
    _, limit = limit_of(policy, own, "max", "epsilon")
    limit = min((one for one in (limit, budget.epsilon) if one is not None), default=None)
    if limit is not None:
        released = accountant.released_epsilon(charged, budget.accountant, taken_of(accountant, uploads))
        if _above(released, limit):
            reasons.append(f"ε would be {_figure(released)}, above {rounded_up(limit)}")
    promised = budget.participant_epsilon
    if promised is not None:
        participant = accountant.participant_epsilon(taken_of(accountant, uploads))
        if _above(participant, promised):
            reasons.append(f"ε against the server would be {_figure(participant)}, above {rounded_up(promised)}")
    for part in PARTS_OF[own]:
        _, limit = limit_of(policy, part, "max", "epsilon")
        if limit is not None and _above(figure := _part_epsilon(accountant, participations, part), limit):
            reasons.append(f"ε{OF[part]} would be {_figure(figure)}, above {rounded_up(limit)}")
    return reasons


def against_lifetime(policy: Policy, before: Mapping[Group, Cost], group: Group, cost: Cost) -> list[str]:
    """Why the node's data has given outsiders enough, if it gave this too. `cost` is all that the run would have cost
    by then, under the plan that `group` names."""
    after = {**before, group: cost}.values()
    reasons = []
    for unit in UNITS:
        name, limit = limit_of(policy, unit, "lifetime", "epsilon")
        if limit is not None and _above(value := spent(after, policy.max_delta or 1.0, unit).epsilon, limit):
            shown = "∞ (uploads without noise, or for less than that)" if value == math.inf else _figure(value)
            reasons.append(
                f"over the lifetime of this node's data ε{OF[unit]} would be {shown}, above {name} {rounded_up(limit)}"
            )
    return reasons


def planned_epsilons(mechanism: Mechanism, spare_rounds: int = 0) -> tuple[float, float]:
    """ε against an outsider and against the server if all rounds are charged, spare ones too; infinite without noise.

    Spare rounds count: a node that agrees to a run agrees to what it may cost, and is not asked again after a crash.
    """
    accountant, budget = replace(mechanism, spare_rounds=spare_rounds).accountant, mechanism.budget
    if accountant is None or budget is None:
        return math.inf, math.inf
    most = most_participations(mechanism, spare_rounds)
    if accountant.main.max_owners > 1:  # a patient is in the rounds of all of them
        most = mechanism.rounds + spare_rounds
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


def _figure(value: float) -> str:
    if math.isinf(value):
        return "∞ (no noise)"
    return f"{value}" if isinstance(value, int) else at_most(value)
