"""A node's policy: what its owner allows, in a file of its own. What is not allowed is refused, with the reason.

The node computes every figure itself, from the offer and its own log. A run is refused as a whole if its plan breaks a
limit, and a single round if it would break one now.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laconic.errors import ConfigError, unknown
from laconic.parts import one_of, positive, positive_int, probability

if TYPE_CHECKING:
    from laconic.runtime.experiment import Experiment
    from laconic.runtime.federation.offer import Offer

SECURE_AGGREGATION = ("required", "signed", "optional")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits on a run. None, and an empty list, mean no limit.

    `max_epsilon` is against an outsider, `max_participant_epsilon` against the server, `min_cohort` the least number of
    nodes in a sum that is opened. `fingerprints` are the schemes that may be run. `servers` and `identities` are public
    keys: of those who may offer runs, and of the nodes that this one shares sums with. `secure_aggregation` is "signed"
    if a lying server is to be kept from opening small sums, "optional" if single codes may be sent in the clear.
    """

    max_epsilon: float | None = None
    max_participant_epsilon: float | None = None
    max_delta: float | None = None
    max_participations: int | None = None
    min_cohort: int = 2
    secure_aggregation: str = "required"
    fingerprints: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    allow_test_seed: bool = False

    def __post_init__(self) -> None:
        for name in ("max_epsilon", "max_participant_epsilon"):
            if getattr(self, name) is not None:
                positive(**{name: getattr(self, name)})
        if self.max_delta is not None:
            probability(max_delta=self.max_delta)
        if self.max_participations is not None:
            positive_int(max_participations=self.max_participations)
        positive_int(min_cohort=self.min_cohort)
        one_of(SECURE_AGGREGATION, secure_aggregation=self.secure_aggregation)

    def against(self, offer: Offer, experiment: Experiment) -> list[str]:
        """Why the run as it is offered is refused: every reason, none if it is allowed."""
        return [*self._against_who_and_what(offer), *self._against_cost(offer, experiment)]

    def _against_who_and_what(self, offer: Offer) -> list[str]:
        scheme, server = offer.scheme, offer.server.hex()
        reasons = []
        if self.servers and server not in self.servers:
            reasons.append(f"server {server[:16]}… is not among the servers of the policy")
        if self.fingerprints and scheme.fingerprint not in self.fingerprints:
            reasons.append(f"scheme {scheme.name} {scheme.fingerprint} is not among the fingerprints of the policy")
        if self.secure_aggregation != "optional" and not offer.masked:
            reasons.append(f"{scheme.name} shows the server every node's code, but secure aggregation is required")
        if self.secure_aggregation == "signed" and offer.consistency != "signed":
            reasons.append("secure aggregation is not signed, as the policy requires")
        usual = offer.sampler.planned_cohort(offer.num_clients) - offer.max_dropouts
        if usual < self.min_cohort:
            reasons.append(f"sums of {usual:g} nodes may be opened, fewer than min_cohort {self.min_cohort}")
        return reasons

    def _against_cost(self, offer: Offer, experiment: Experiment) -> list[str]:
        released, participant = planned_epsilons(experiment)
        delta = math.inf if offer.budget is None else offer.budget.delta
        reasons = []
        if self.max_epsilon is not None and released > self.max_epsilon:
            reasons.append(f"planned ε {_figure(released)} is above max_epsilon {self.max_epsilon:g}")
        if self.max_participant_epsilon is not None and participant > self.max_participant_epsilon:
            limit = f"max_participant_epsilon {self.max_participant_epsilon:g}"
            reasons.append(f"planned ε against the server {_figure(participant)} is above {limit}")
        if self.max_delta is not None and delta > self.max_delta:
            reasons.append(f"δ {delta:g} is above max_delta {self.max_delta:g}")
        most = most_participations(experiment)
        if self.max_participations is not None and most > self.max_participations:
            reasons.append(f"up to {most} participations, above max_participations {self.max_participations}")
        return reasons

    def against_round(
        self, offer: Offer, experiment: Experiment, *, round: int, attempt: int, cohort: int, participations: int
    ) -> list[str]:
        """Why this round is refused; `participations` counts it in, `cohort` are the announced nodes."""
        reasons = []
        if not 1 <= round <= offer.rounds:
            reasons.append(f"round {round} of a run that was offered with {offer.rounds}")
        if offer.masked and cohort - offer.max_dropouts < self.min_cohort:
            reasons.append(f"a sum of {cohort - offer.max_dropouts} nodes, fewer than min_cohort {self.min_cohort}")
        if self.max_participations is not None and participations > self.max_participations:
            reasons.append(f"participation {participations}, above max_participations {self.max_participations}")
        accountant, budget = experiment.accountant, offer.budget
        if accountant is None or budget is None:
            return reasons
        if budget.max_participations is not None and participations > budget.max_participations:
            reasons.append(f"participation {participations} of the offered {budget.max_participations}")
        # What the server must have charged by now, repeated attempts at this round counted in.
        released = accountant.released_epsilon(round + attempt, budget.accountant, participations)
        participant = accountant.participant_epsilon(participations)
        for what, value, limits in (
            ("ε", released, (self.max_epsilon, budget.epsilon)),
            ("ε against the server", participant, (self.max_participant_epsilon, budget.participant_epsilon)),
        ):
            limit = min((x for x in limits if x is not None), default=math.inf)
            if value > limit:
                reasons.append(f"{what} would be {_figure(value)}, above {limit:g}")
        return reasons


def planned_epsilons(experiment: Experiment) -> tuple[float, float]:
    """ε against an outsider and against the server if the run goes as planned; infinite without noise."""
    accountant, budget = experiment.accountant, experiment.budget
    if accountant is None or budget is None:
        return math.inf, math.inf
    most = most_participations(experiment)
    released = accountant.released_epsilon(experiment.rounds, budget.accountant, most)
    participant = accountant.participant_epsilon(most)
    promised = (budget.epsilon, budget.participant_epsilon)
    return tuple(
        figure if limit is None else min(figure, limit)
        for figure, limit in zip((released, participant), promised, strict=True)
    )  # type: ignore[return-value]


def most_participations(experiment: Experiment) -> int:
    """How often one node may be asked."""
    cap = experiment.budget.max_participations if experiment.budget else None
    return experiment.rounds if cap is None else min(cap, experiment.rounds)


def read_policy(path: str | Path) -> Policy:
    """The policy in a TOML file; an unknown key is an error, since a misspelt limit would limit nothing."""
    try:
        with open(Path(path).expanduser(), "rb") as stream:
            values: dict[str, Any] = tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot read the policy {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the policy {path} is not valid TOML: {error}") from None
    known = {field.name: field for field in fields(Policy)}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"the policy {path}: " + unknown("key", key, known))
        if key in ("fingerprints", "servers", "identities"):
            values[key] = _texts(path, key, value)
        elif key == "allow_test_seed" and not isinstance(value, bool):
            raise ConfigError(f"the policy {path}: {key} must be true or false, not {value!r}")
    try:
        return Policy(**values)
    except ConfigError as error:
        raise ConfigError(f"the policy {path}: {error}") from None


def _texts(path: str | Path, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ConfigError(f"the policy {path}: {key} must be a list of texts, not {value!r}")
    return tuple(text.lower() for text in value)


def _figure(epsilon: float) -> str:
    return "∞ (no noise)" if math.isinf(epsilon) else f"{epsilon:.3f}"
