"""How a client trains: which optimiser, how many steps, on which batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import Part, decided, non_negative, one_of, positive, positive_int, probability, rate
from laconic.privacy.accounting.record_sampling import RecordSampler
from laconic.privacy.accounting.releases import CLIENT, EACH, PATIENT, RECORD, UNITS, Release
from laconic.privacy.mechanism.clip import check_norm
from laconic.privacy.mechanism.discrete_gaussian import NOISES, record_delta_slack, record_grid

if TYPE_CHECKING:
    from laconic.guard.contract import Steps

OPTIMIZERS = ("sgd", "adam")
NUM_UNITS_NEEDED = (
    "⟨unit⟩ {unit} divides sums by a public number, and none is given: add ⟨num-units⟩, about how many {unit}s all"
    " clients hold together (publicly known; a count would depend on every {unit})"
)
BALANCES = ("none", "downsample", "oversample", "weights")


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Part):
    """Base: an optimiser, from fresh state in every round, and its step size."""

    local_lr: float
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        positive(local_lr=self.local_lr)
        one_of(OPTIMIZERS, optimizer=self.optimizer)

    @property
    def private(self) -> bool:
        """Whether what comes out protects every record of the client."""
        return False

    @property
    def protects(self) -> str:
        """Whom the noise of a scheme protects whose clients train so: a client, a record or a patient."""
        return CLIENT

    @property
    def sums_units(self) -> bool:
        """Whether a client sends a sum of vectors that it clips one by one, each of one unit inside the client."""
        return False

    def planned_units(self, share: float) -> float | None:
        """How many such vectors a round is expected to have, with this share of the clients; None without any."""
        return None

    @property
    def plain(self) -> LocalTraining:
        """What trains in its place on records that are not protected: public ones, and those of attackers."""
        return self

    @property
    def record_bound(self) -> float | None:
        """What the gradient of a record is clipped to; None if it is not."""
        return None

    @property
    def about_noise(self) -> str:
        """What private training draws: for the privacy statement."""
        return ""

    @property
    def added_by(self) -> dict[str, str]:
        """Who adds the noise of private training, and what a sum is divided by: for the privacy statement."""
        return {}

    @property
    def declared(self) -> list[str]:
        """Numbers that are assumed to be publicly known, not counted on records: for the privacy statement."""
        return []

    def release(self, **about: Any) -> Release:
        """What a round releases of a record of a client that trains so; `about` is what else a `Release` says."""
        raise NotImplementedError

    def steps_on_grid(self, size: int) -> Steps | None:
        """The private steps of a round as a contract states them, for a model of so many weights; None without any."""
        return None

    def delta_slack(self, size: int, rounds: int) -> float:
        """What the noise sampler's finite precision adds to δ over so many rounds, for a model of so many weights."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class LocalSGD(LocalTraining):
    """T_gd steps on batches of |B| records (thesis Alg. 2).

    Give `local_steps`, or `epochs` for T_gd = epochs · ⌈|D_k| / |B|⌉ per client. Without `batch_size` a batch is
    the client's whole data set. `balance` says what is done about a rare class (see `train/batches.py`): 'none',
    'downsample', 'oversample' or 'weights'.

    Args:
        local_lr: η, the step size.
        optimizer: 'sgd' or 'adam', from fresh state in every round.
        local_steps: steps of a client in a round.
        epochs: passes over the client's records, instead of steps.
        batch_size: records of a step.
        balance: what is done about a rare class.

    Examples:
        >>> from laconic.train.local import LocalSGD
        >>> import numpy as np
        >>> LocalSGD(local_lr=0.1, epochs=2, batch_size=10).steps_of(np.array([5, 25])).tolist()
        [2, 6]
    """

    local_steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    balance: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(BALANCES, balance=self.balance)
        if (self.local_steps is None) == (self.epochs is None):
            raise ConfigError("give either local_steps or epochs (⟨local-steps⟩ or ⟨epochs⟩), not both and not neither")
        for name in ("local_steps", "epochs", "batch_size"):
            if getattr(self, name) is not None:
                positive_int(**{name: getattr(self, name)})

    def to_dict(self) -> dict[str, Any]:
        """Without the key 'balance' where nothing is balanced: such schemes keep the fingerprints they always had."""
        data = super().to_dict()
        if self.balance == "none":
            del data["balance"]
        return data

    def batch_of(self, sizes: np.ndarray) -> np.ndarray:
        """The batch size of clients that hold so many records: |B|, but never more than there are."""
        return sizes if self.batch_size is None else np.minimum(sizes, self.batch_size)

    def steps_of(self, sizes: np.ndarray) -> np.ndarray:
        """T_gd of clients that hold so many records."""
        if self.local_steps is not None:
            return np.full(len(sizes), self.local_steps, dtype=np.int64)
        assert self.epochs is not None
        steps: np.ndarray = self.epochs * -(-sizes // self.batch_of(sizes))
        return steps


@dataclass(frozen=True, kw_only=True)
class LocalDPSGD(LocalTraining):
    """T_gd private steps (CHIL'21 Alg. 6): every record's gradient is clipped, and their sum noised.

    w ← w − η/d · (Σ_r ∇f(r; w) / max(1, ‖∇f(r; w)‖₂/S) + G(0, (σ·S)²·I)) over the records r that `records` draws; the
    divisor d is theirs, too. With another optimiser the same noisy gradient goes into that. A σ of None is open. With
    `noise="integer"` the noise is drawn on a grid (`privacy/mechanism/record_noise`), as federations need it.

    Args:
        local_lr: η, the step size.
        optimizer: 'sgd' or 'adam'.
        local_steps: steps of a client in a round.
        clip_norm: S, the bound on one record's gradient.
        noise_multiplier: σ of a step.
        records: which records a step draws, and what it divides by.
        noise: 'continuous' (float32, as in the papers) or 'integer'.

    Examples:
        >>> from laconic.privacy.accounting.record_sampling import PoissonRecords
        >>> from laconic.train.local import LocalDPSGD
        >>> records = PoissonRecords(record_rate=0.1, batch_size=10)
        >>> LocalDPSGD(local_lr=0.1, clip_norm=1.0, noise_multiplier=1.0, records=records).private
        True

    References:
        CHIL'21 Alg. 6; Abadi et al. (CCS 2016).
    """

    local_steps: int = 1
    clip_norm: float
    noise_multiplier: float | None
    records: RecordSampler
    noise: str = "continuous"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(NOISES, noise=self.noise)
        positive_int(local_steps=self.local_steps)
        check_norm(self.clip_norm)
        if self.noise_multiplier is not None:
            positive(noise_multiplier=self.noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """Without the key 'noise' where it is continuous: such schemes keep the fingerprints they always had."""
        data = super().to_dict()
        if self.noise == "continuous":
            del data["noise"]
        return data

    @property
    def sigma(self) -> float:
        return decided(self.noise_multiplier)

    @property
    def private(self) -> bool:
        return True

    @property
    def protects(self) -> str:
        return RECORD

    @property
    def record_bound(self) -> float | None:
        return self.clip_norm

    @property
    def about_noise(self) -> str:
        if self.noise == "integer":
            return (
                "the noise of every local step is drawn on integers; what rounding does to the gradients, computed in"
                " float32 and added up in float64, is not accounted for"
            )
        return "the noise is float32, not drawn on integers: its low-order bits are not accounted for"

    @property
    def added_by(self) -> dict[str, str]:
        return {
            "noise_added_by": "every client, in full, in every local step",
            "denominator": "of a step a public constant (as published: the batch's size), of a round the clients in it",
        }

    def release(self, **about: Any) -> Release:
        return Release(
            unit=RECORD,
            added_by=EACH,
            noise_multiplier=self.sigma,
            coins=self.records.record_rate,
            steps=self.local_steps,
            caveat=self.records.caveat,
            **about,
        )

    def steps_on_grid(self, size: int) -> Steps | None:
        from laconic.guard.contract import Steps

        if self.noise != "integer":
            return None
        grid = record_grid(size, self.clip_norm, self.sigma)
        return Steps(
            size=size,
            rate=self.records.record_rate,
            count=self.local_steps,
            clip_norm=self.clip_norm,
            noise_multiplier=self.sigma,
            units=grid.units,
            scale=grid.scale,
        )

    def delta_slack(self, size: int, rounds: int) -> float:
        if self.noise == "continuous":
            return 0.0
        return record_delta_slack(size, rounds * self.local_steps, self.sigma)


@dataclass(frozen=True, kw_only=True)
class UnitGradients(LocalTraining):
    """One step a round, of which every unit's part is clipped by itself: a record, or a patient with all its records.

    C_k = Σ_u min(1, (S/h)/‖P·g_u‖)·P·g_u,  g_u = −Σ_{r∈u} a_{y(r)}·∇f(r; w)

    over the units u of client k that it draws, each with probability `rate` by coins that only the client knows. P is
    the scheme's codec, which must be linear, S its clip, h = `max_owners`. The client sends C_k with its noise share.
    So there is no step size here: the server's is the only one. Sums are divided by `num_units` times `rate`: a public
    number, since a count of units would depend on every one of them.

    Args:
        unit: 'record' or 'patient'.
        rate: q, the probability with which a client draws a unit in a round.
        max_owners: h, at how many clients a unit is at most.
        num_units: about how many units all clients hold together, as publicly known; open if None.
        class_weights: a, public weights of the classes; none count all records alike.

    Examples:
        >>> from laconic.train.local import UnitGradients
        >>> UnitGradients(unit="patient", num_units=10_000, rate=0.5).planned_units(1.0)
        5000.0

    References:
        docs/maths.md#units-inside-clients; Abadi et al. (CCS 2016) for clipped sums of gradients.
    """

    local_lr: float = 1.0
    unit: str
    rate: float = 1.0
    max_owners: int = 1
    num_units: float | None
    class_weights: tuple[float, ...] = ()
    prevalence: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_lr != 1.0 or self.optimizer != "sgd":
            raise ConfigError("units send clipped gradients, without a local step: set the server's step (⟨server-lr⟩)")
        one_of((RECORD, PATIENT), unit=self.unit)
        rate(unit_rate=self.rate)
        positive_int(max_owners_per_patient=self.max_owners)
        if self.unit == RECORD and self.max_owners > 1:
            raise ConfigError(
                f"⟨max-owners-per-patient⟩ {self.max_owners} is for ⟨unit⟩ patient: a record is at one client"
            )
        if self.num_units is not None:
            positive(num_units=self.num_units)
            if self.num_units < 1:
                raise ConfigError(
                    f"⟨num-units⟩ {self.num_units:g} is less than one {self.unit}: give about how many all clients hold"
                )
            object.__setattr__(self, "num_units", float(self.num_units))  # 40 and 40.0 are one scheme
        object.__setattr__(self, "class_weights", tuple(self.class_weights))
        for weight in self.class_weights:
            non_negative(class_weights=weight)
        object.__setattr__(self, "prevalence", tuple(self.prevalence))
        check_shares(self.prevalence)

    def to_dict(self) -> dict[str, Any]:
        """Without step size and optimiser, which it has not, and without a prevalence where none is given."""
        data = super().to_dict() | {"class_weights": list(self.class_weights), "prevalence": list(self.prevalence)}
        left_out = ("local_lr", "optimizer") if self.prevalence else ("local_lr", "optimizer", "prevalence")
        return {name: value for name, value in data.items() if name not in left_out}

    @property
    def protects(self) -> str:
        return self.unit

    @property
    def sums_units(self) -> bool:
        return True

    @property
    def plain(self) -> LocalSGD:
        """One step on all records, whose length is the mean gradient's."""
        return LocalSGD(local_lr=1.0, local_steps=1)

    def check_classes(self, num_classes: int) -> None:
        """Refuse weights for another number of classes than the model has: 0 where targets are values."""
        for flag, count in (("⟨class-weights⟩", len(self.class_weights)), ("⟨prevalence⟩", len(self.prevalence))):
            if count and count != num_classes:
                has = f"the model has {num_classes} classes" if num_classes else "the targets are values, not classes"
                given = "1 class" if count == 1 else f"{count} classes"
                raise ConfigError(f"{flag} is for {given}, but {has}: give a number for each class, or none")

    def first_bias(self, outputs: int) -> list[float]:
        """The bias of a last layer that answers as often as the classes are weighted: log a(y)·p(y) for each class y.

        Of a single output it is the difference of the two. Public numbers alone decide it, so it costs no privacy.
        """
        weights = self.class_weights or (1.0,) * len(self.prevalence)
        if 0 in weights:
            raise ConfigError("⟨prevalence⟩ starts the bias at the weighted shares: give no class the weight 0")
        logs = [math.log(weight * share) for weight, share in zip(weights, self.prevalence, strict=True)]
        return logs if outputs > 1 else [logs[1] - logs[0]]

    def part_of(self, sensitivity: float) -> float:
        """S/h: what a unit's part at one client is clipped to."""
        return sensitivity / self.max_owners

    def planned_units(self, share: float) -> float:
        if self.num_units is None:
            raise ConfigError(NUM_UNITS_NEEDED.format(unit=self.unit))
        return self.num_units * self.rate * share

    @property
    def added_by(self) -> dict[str, str]:
        return {
            "denominator": f"the declared number of {self.unit}s that a round is expected to have, a public constant",
        }

    @property
    def declared(self) -> list[str]:
        named = [] if self.num_units is None else [f"about {self.num_units:,g} {self.unit}s in all"]
        named += [f"the weights {_listed(self.class_weights)} of the classes"] if self.class_weights else []
        named += [f"the shares {_listed(self.prevalence)} of the classes"] if self.prevalence else []
        return [f"taken as publicly known: {'; '.join(named)}"] if named else []


def check_shares(prevalence: tuple[float, ...]) -> None:
    """Refuse shares of classes that are not all of them."""
    for share in prevalence:
        probability(prevalence=share)
    if prevalence and abs(sum(prevalence) - 1) > 0.01:
        raise ConfigError(
            f"⟨prevalence⟩ has shares that sum to {sum(prevalence):g}, not 1: give the share of class 1 of two"
            " classes, or the shares of all classes"
        )


def check_unit(name: str, unit: str) -> None:
    """Refuse units inside clients for a scheme that does not know them, with the reason."""
    one_of(UNITS, unit=unit)
    if unit == CLIENT:
        return
    if "record" in name:
        reason = "protects single records already, as published: every client adds the whole noise of its own"
    elif "sign" in name:
        reason = f"sends signs, which are not the sum of the signs of single {unit}s: one {unit} may change all of them"
    else:
        reason = "adds no noise"
    raise ConfigError(
        f"⟨unit⟩ {unit}: {name} {reason}; use fl-std-dp or another private scheme whose codec is linear (fl-top-dp,"
        " fl-cs-dp, fl-bas-3-dp), or leave ⟨unit⟩ out"
    )


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
