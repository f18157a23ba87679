"""Why a node refuses an offer or a round: its policy, applied to figures that it computes itself.

Nothing here looks at a record. A run is refused as a whole if its plan breaks a limit, and a single round if it would
break one now.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from laconic.federation.node.lifetime import Cost, Upload, accountant_of, charges, spent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laconic.experiment.mechanism import Mechanism
    from laconic.federation.node.policy import Policy
    from laconic.federation.offer import Offer


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
    released, participant = planned_epsilons(offer.mechanism, offer.spare_rounds)
    over = f" (over {offer.rounds} rounds and {offer.spare_rounds} spare ones)" if offer.spare_rounds else ""
    delta = math.inf if offer.budget is None else offer.budget.delta
    reasons = []
    if policy.max_epsilon is not None and offer.sampler.caveat:
        reasons.append(f"no proof covers the planned ε that max_epsilon would limit: {offer.sampler.caveat}")
    if policy.max_epsilon is not None and released > policy.max_epsilon:
        reasons.append(f"planned ε {_figure(released)} is above max_epsilon {policy.max_epsilon:g}{over}")
    if policy.max_participant_epsilon is not None and participant > policy.max_participant_epsilon:
        limit = f"max_participant_epsilon {policy.max_participant_epsilon:g}"
        reasons.append(f"planned ε against the server {_figure(participant)} is above {limit}{over}")
    if policy.max_delta is not None and delta > policy.max_delta:
        reasons.append(f"δ {delta:g} is above max_delta {policy.max_delta:g}")
    if offer.budget is not None and delta * offer.num_clients >= 1:
        reasons.append(f"δ {delta:g} is 1/{offer.num_clients} nodes or more: it allows one node's data to be published")
    most = most_participations(offer.mechanism, offer.spare_rounds)
    if policy.max_participations is not None and most > policy.max_participations:
        reasons.append(f"up to {most} participations, above max_participations {policy.max_participations}{over}")
    return reasons


def against_round(policy: Policy, offer: Offer, *, uploads: Sequence[Upload], cohort: int) -> list[str]:
    """Why this round is refused: the last of the node's uploads in the run. `cohort` are the announced nodes."""
    reasons = []
    round, participations = uploads[-1][0], len(uploads)
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
    limit = _least(policy.max_epsilon, budget.epsilon)
    if limit is not None:
        released = accountant.released_epsilon(charged, budget.accountant, participations)
        if released > limit:
            reasons.append(f"ε would be {_figure(released)}, above {limit:g}")
    limit = _least(policy.max_participant_epsilon, budget.participant_epsilon)
    if limit is not None:
        participant = accountant.participant_epsilon(participations)
        if participant > limit:
            reasons.append(f"ε against the server would be {_figure(participant)}, above {limit:g}")
    return reasons


def against_lifetime(policy: Policy, before: Mapping[str, Cost], run: str, cost: Cost) -> list[str]:
    """Why the node's data has given enough, if it gave this too. `cost` is all that the run would have cost by then."""
    if not policy.limits_lifetime:
        return []
    after = {**before, run: cost}.values()
    figures = spent(after, policy.max_delta or 1.0)
    return [
        f"over the lifetime of this node's data {what} would be {_figure(value)}, above {name} {limit:g}"
        for what, value, name, limit in (
            ("ε", figures.epsilon, "lifetime_epsilon", policy.lifetime_epsilon),
            (
                "ε against the servers",
                figures.participant_epsilon,
                "lifetime_participant_epsilon",
                policy.lifetime_participant_epsilon,
            ),
            ("participations", figures.participations, "lifetime_participations", policy.lifetime_participations),
        )
        if limit is not None and value > limit
    ]


def planned_epsilons(mechanism: Mechanism, spare_rounds: int = 0) -> tuple[float, float]:
    """ε against an outsider and against the server if all rounds are charged, spare ones too; infinite without noise.

    Spare rounds count: whoever agrees to a run agrees to what it may cost, and is not asked again after a crash.
    """
    accountant, budget = mechanism.accountant, mechanism.budget
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


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _figure(value: float) -> str:
    if math.isinf(value):
        return "∞ (no noise)"
    return f"{value}" if isinstance(value, int) else f"{value:.3f}"
