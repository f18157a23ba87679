"""What is asked (`Question`: who is there, what is promised, what it may cost), and a `Setting` that answers it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from laconic.errors import ConfigError, several
from laconic.parts import one_of, positive, positive_int, probability
from laconic.privacy.statement import check_delta

CLIP_NORM, LOCAL_LR, LOCAL_STEPS = 0.05, 0.05, 10
"""Of a linear layer on normalised features: so small a threshold clips every update, so only the reach matters."""
RIDGE = 0.01
"""Of the projection of the front end."""
PRECONDITION, MOMENTUM, FARTHER, MOST_ROUNDS = 0.15, 0.4, 1.4, 13
"""Of few rounds with everyone in each: λ and momentum of `Preconditioned`, how much farther its reach is than that of
many plain steps, and the most rounds that count as few. From docs/results/preconditioner.md. With
more rounds plain steps are as good."""
PLAIN_CLIP_NORM = 0.5
"""Of any other model: a value to begin with."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to run, with its costs.

    Attributes:
        cohort: clients in a round, on average.
        sampling_rate: q, with which a client takes part.
        rounds: T.
        participations: rounds that one client takes part in at most; None if that is left to chance.
        features: K, where they are chosen.
        weights: d, the trained weights.
        noise_multiplier: σ.
        momentum: ρ of the server.
        precondition: λ of the server's preconditioner; None for plain steps.
        reach: how far the weights can go in all rounds together.
        server_lr: η, the server's step with which they do.
        clip_norm: S.
        noise: expected norm of the noise in the sum of all steps.
        noise_ratio: the same relative to the reach.
        epsilon_server: ε against the server, of the client that took part most often.
        epsilon_outsider: ε against an outsider.
        bits_up: bits of a value on the way up.
        bytes_up: bytes that a client sends in the whole run, on average.
        bytes_down: bytes that it receives.
        seconds: of the whole run, if the time of a round is known.
        expected_error: by which settings are ranked.
    """

    cohort: int
    sampling_rate: float
    rounds: int
    participations: int | None
    features: int | None
    weights: int
    noise_multiplier: float
    momentum: float
    precondition: float | None
    reach: float
    server_lr: float
    clip_norm: float
    noise: float
    noise_ratio: float
    epsilon_server: float
    epsilon_outsider: float
    bits_up: int
    bytes_up: float
    bytes_down: float
    seconds: float | None
    expected_error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an ε without bound is None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


SERVER, OUTSIDER = "server", "outsider"
ADVERSARIES = (SERVER, OUTSIDER)
FEATURES = 820
"""The most features that are looked at, unless said otherwise: as many as the fitted runs had."""
ROUNDS = 1000


@dataclass(frozen=True, kw_only=True)
class Question:
    """A federation, a promise, and limits. What is None is not limited.

    The model is given by `weights`, or by `classes`: then it is a linear layer behind a front end, and the number of
    features is part of the answer. Bytes are those of one client in the whole run, on average over the clients.
    """

    num_clients: int
    epsilon: float
    delta: float = 1e-5
    against: str = SERVER
    weights: int | None = None
    classes: int | None = None
    features: int | None = None
    records: int | None = None
    bytes_up: float | None = None
    bytes_down: float | None = None
    cohort: int | None = None
    max_participations: int | None = None
    max_rounds: int = ROUNDS
    round_seconds: float | None = None
    max_seconds: float | None = None
    num_units: int | None = None

    def __post_init__(self) -> None:
        problems = [text for text in self._problems() if text]
        if problems:
            raise ConfigError(several(problems))

    def _problems(self) -> list[str]:
        found = []
        counts = ("num_clients", "weights", "classes", "features", "records", "cohort", "num_units")
        for name in (*counts, "max_participations", "max_rounds"):
            value = getattr(self, name)
            found.append("" if value is None else _said(positive_int, **{name: value}))
        for name in ("epsilon", "bytes_up", "bytes_down", "round_seconds", "max_seconds"):
            value = getattr(self, name)
            found.append("" if value is None else _said(positive, **{name: value}))
        found.append(_said(one_of, ADVERSARIES, against=self.against))
        delta = _said(probability, delta=self.delta)
        if not delta and not found[0]:
            delta = _said(check_delta, self.delta, units=self.num_clients, one="client", allowed=False)
            if self.num_units is not None and not delta and isinstance(self.num_units, int) and self.num_units > 0:
                delta = _said(check_delta, self.delta, units=self.num_units, one="patient", allowed=False)
            delta = delta.partition(", or insist with ")[0]
        found.append(delta)
        if (self.weights is None) == (self.classes is None):
            found.append(
                "give either ⟨weights⟩ (of the model that is trained) or ⟨classes⟩ (of a linear layer behind a front"
                " end, whose features are then chosen)"
            )
        elif self.features is not None and self.classes is None:
            found.append("⟨features⟩ is the most features of a linear layer: give ⟨classes⟩, not ⟨weights⟩")
        if self.classes == 1:
            found.append("⟨classes⟩ must be 2 or more")
        if self.max_seconds is not None and self.round_seconds is None:
            found.append("⟨max-seconds⟩ needs ⟨round-seconds⟩: how long one round takes, as measured")
        return found

    @property
    def most_features(self) -> int:
        return FEATURES if self.features is None else self.features

    @property
    def largest_cohort(self) -> int:
        return self.num_clients if self.cohort is None else min(self.cohort, self.num_clients)

    @property
    def most_rounds(self) -> int:
        """The most rounds within the limits of rounds and of time; 0 if there is no time for one."""
        if self.max_seconds is None or self.round_seconds is None:
            return self.max_rounds
        return min(self.max_rounds, int(self.max_seconds / self.round_seconds))

    def weights_of(self, features: int | None) -> int:
        """d: the trained weights of a head with so many features, biases included, or of the model as given."""
        if self.weights is not None:
            return self.weights
        assert self.classes is not None and features is not None
        return self.classes * (features + 1)


def _said(check: object, *args: object, **value: object) -> str:
    """The message of a validator; empty if the value is valid."""
    try:
        check(*args, **value)  # type: ignore[operator]
    except ConfigError as error:
        return str(error)
    return ""
