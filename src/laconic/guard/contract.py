"""What a signed offer makes a node keep, in plain numbers: who offers, how often, which bound, which noise, which ring.

An offer is long, and to understand its scheme takes the whole library. Its section `contract` says what follows from it
for one node. `Contract` reads that section and a few plain fields beside it, with no scheme and no model. It believes
none of the numbers that decide what an upload costs: they have to agree with each other. Of a kind of round with the
sum's noise of scale ξ on a grid of u units, and codes of norm S at most, the noise multiplier that is stated may be

    z ≤ √(ξ² − 2²)/(u·S)                                                                 (maths.md, noise on integers)

and of private steps with the noise multiplier σ on n coordinates, which are cut to 256ths of a grid unit,

    σ ≤ √(ξ² − 2²)/(u·S + √n/256).                                          (maths.md, private steps on integers)

Where units inside a node are protected, records or patients, a node sends the sum of one vector for each unit that its
coins draw, with probability q. Each is of norm B at most, and a unit is at h nodes or fewer. Then the first bound holds
with S = h·B, and an upload is a Gaussian of this z that a unit is in with the probability 1 − (1 − q)^h.
                                                                                    (maths.md, units inside clients)
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, Self

from laconic import __version__
from laconic.errors import PrivacyError, WireError
from laconic.guard.noise import LARGEST_NORM, MEAN_BITS, SMALLEST_NORM, marks_of
from laconic.parts import any_coin
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.keys import SIGNATURE_BYTES, is_signed
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.terms import RUN_BYTES, Terms, context_of

MOST_BYTES = 1 << 17
"""No honest offer is longer; a longer one is not even looked at."""
CLIENT, PATIENT, RECORD = UNITS = ("client", "patient", "record")
"""What an ε of a node is about: all its data, all records of one patient, or one record."""
NO_CLIP, L2, ENTRIES, MARKS, PARTS = CLIPS = ("none", "l2", "entries", "marks", "parts")
"""Bounds on a code: none, its norm, entries within ±1, 0 and 1 with so large a share of ones; or the norm of every
unit's part in it, which only the code that adds the parts up can keep."""
SMALLEST_SHARE, SMALLEST_SUM, SMOOTHING = 4.0, 32.0, 2.0
"""Scales in grid units: of one share of the noise, of the noise in a sum, and what smoothing takes from that."""
LARGEST_SCALE = 2.0**45
"""Of noise on a grid: integers of 64 bits hold it, and sums with it."""
FEWEST_BITS, MOST_BITS = 8, 32
_ROUNDING = 1e-9
"""By how much a computed float may be off."""
_MOST_KINDS, _MOST_DIMENSIONS, _LONGEST_NAME = 8, 8, 100
_HEAD = struct.Struct(f"<4sBI32s{SIGNATURE_BYTES}s")
_MAGIC = b"LOFR"


@dataclass(frozen=True)
class SignedOffer:
    """An offer to one node whose signature is right. What it says has not been read yet."""

    client: int
    server: bytes
    body: bytes

    def to_bytes(self, signature: bytes) -> bytes:
        """4 magic · 1 version · 4 client · 32 server · 64 signature · JSON"""
        return _HEAD.pack(_MAGIC, labels.PROTOCOL, self.client, self.server, signature) + self.body

    @property
    def statement(self) -> bytes:
        """What the server signs."""
        return labelled(labels.OFFERED, self.client, self.server, self.body)


def verify_offer(data: bytes) -> SignedOffer:
    """Who offers something to whom; refused, before any of it is read, unless the server's signature is right."""
    if data[:4] != _MAGIC or len(data) < 5:
        raise WireError("not an offer of this version of laconic: install the same on all machines")
    if data[4] != labels.PROTOCOL:
        raise WireError(
            f"an offer of protocol version {data[4]}, but this is version {labels.PROTOCOL}: install the same laconic"
        )
    if not _HEAD.size <= len(data) <= MOST_BYTES:
        raise WireError(f"an offer of {len(data)} bytes is cut short or too long")
    _, _, client, server, signature = _HEAD.unpack_from(data)
    signed = SignedOffer(client, server, data[_HEAD.size :])
    if not is_signed(server, signature, signed.statement):
        raise WireError("the offer is not signed by the server that it names")
    return signed


def offer_digest(body: bytes) -> bytes:
    """The hash of the whole offer. It goes into the terms, and so into every key and signature of the run."""
    return hashlib.sha256(labelled(labels.OFFER, body)).digest()


def version_of(values: Mapping[str, Any]) -> None:
    """Refuse an offer of another version of laconic."""
    version = values["laconic"]
    if version != __version__:
        raise WireError(f"the server runs laconic {str(version)[:20]}, this node {__version__}: install the same")


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The private steps of a round in which every record is protected by itself.

    A step draws each record with probability `rate`, clips the gradient of each, of `size` weights, to `clip_norm` and
    adds noise of `noise_multiplier` times that. On a grid of `units` the noise has the scale `scale`. There are `count`
    of them in a round.
    """

    size: int
    rate: float
    count: int
    clip_norm: float
    noise_multiplier: float
    units: float
    scale: float

    def check(self) -> None:
        _within(1, 2**48, size=self.size)
        _within(1, 2**31, count=self.count)
        _number(rate=self.rate, most=1.0)
        for name in ("noise_multiplier", "units", "scale"):
            _number(**{name: getattr(self, name)})
        _number(clip_norm=self.clip_norm, least=SMALLEST_NORM, most=LARGEST_NORM)
        if not SMALLEST_SUM * (1 - _ROUNDING) <= self.scale < LARGEST_SCALE:
            _bad(f"a step's noise has a scale of {self.scale:g} grid units")
        moved = self.units * self.clip_norm + math.sqrt(self.size) / 2**MEAN_BITS
        if self.noise_multiplier * moved > math.sqrt(self.scale**2 - SMOOTHING**2) * (1 + _ROUNDING):
            _bad("the noise of a step is less than its noise multiplier says")


@dataclass(frozen=True, kw_only=True)
class Release:
    """One kind of round: which rounds, and what a node sends in them.

    It is for the rounds after `after`, up to `last`, whose number is divisible by `every`. A node sends `code_size`
    values. `clip` and `bound` say what bounds them. On a grid of `units` the noise of a sum has the scale `scale`, and
    is sent in `bits` bits; `whole` codes are whole numbers. These are 0 where no noise is added to a sum. Where the
    bound is on PARTS, a node draws each of its units with probability `coins`, and a unit has parts at `owners` nodes.
    `multiplier` is z, the standard deviation of the noise in units of what neighbouring sums differ by: it prices an
    upload, or one of its `steps`; 0 where nothing protects the node from the server.
    """

    phase: str
    after: int = 0
    last: int | None = None
    every: int = 1
    code_size: int
    clip: str = NO_CLIP
    bound: float = 0.0
    units: float = 0.0
    scale: float = 0.0
    bits: int = 0
    whole: bool = False
    multiplier: float = 0.0
    coins: float = 1.0
    owners: int = 1
    steps: Steps | None = None

    def __contains__(self, round: int) -> bool:
        within = self.after < round and (self.last is None or round <= self.last)
        return within and round % self.every == 0

    @property
    def sensitivity(self) -> float:
        """S: the largest norm of a code that keeps the bound, or of the parts that one unit has at its nodes."""
        if self.clip == PARTS:
            return self.owners * self.bound
        if self.clip == L2:
            return self.bound
        if self.clip == MARKS:
            return math.sqrt(marks_of(self.bound, self.code_size))
        return math.sqrt(self.code_size) if self.clip == ENTRIES else math.inf

    @property
    def price(self) -> tuple[float, float, int]:
        """(z, q, count): what one upload costs a unit that is in it: so many Gaussians, each sampled with rate q."""
        if self.steps is not None:
            return self.multiplier, self.steps.rate, self.steps.count
        return self.multiplier, any_coin(self.coins, self.owners), 1

    def share_scale(self, shares: int) -> float:
        """The scale of one node's share of the noise, in grid units, where so many of them make up the noise."""
        if shares < 1:
            raise PrivacyError(f"noise cannot be shared among {shares} nodes")
        share = self.scale / math.sqrt(shares)
        if share < SMALLEST_SHARE * (1 - _ROUNDING):
            raise PrivacyError(
                f"a share of the noise would have a scale of {share:.3g} grid units, and it takes {SMALLEST_SHARE:g}:"
                " the cohort is larger than the largest that was planned for"
            )
        return share

    def check(self, *, masked: bool, unit: str) -> None:
        """Refuse numbers that no honest server states, or that do not agree."""
        _text(phase=self.phase)
        _within(0, 2**31, after=self.after)
        _within(0, 2**31, last=0 if self.last is None else self.last)
        _within(1, 2**31, every=self.every)
        _within(1, 2**48, code_size=self.code_size)
        if self.clip not in CLIPS or not isinstance(self.whole, bool):
            _bad("it states a bound of a kind that this version does not know")
        for name in ("bound", "units", "scale", "multiplier"):
            _number(**{name: getattr(self, name)}, least=0.0)
        if self.clip in (L2, PARTS):
            _number(bound=self.bound, least=SMALLEST_NORM, most=LARGEST_NORM)
        self._check_unit(unit)
        if not self.units:
            _within(0, 0, bits=self.bits)
            if self.clip == PARTS:
                _bad("without noise nothing protects a unit inside a node")
            if self.scale or (self.multiplier and self.steps is None):
                _bad("it states noise without a grid")
            if self.steps is not None and self.multiplier > self.steps.noise_multiplier * (1 + _ROUNDING):
                _bad("a step's noise multiplier is stated larger than it is")
            return
        self._check_noise(masked)

    def _check_unit(self, unit: str) -> None:
        """Refuse another way to protect the unit than that a node's whole code is bounded, that every private step
        clips single records, or that a sum has a bounded part of every unit."""
        if self.steps is not None:
            self.steps.check()
            if unit != RECORD or self.clip == PARTS:
                _bad("private steps protect single records, and their sums have no parts")
        elif (unit == CLIENT) != (self.clip != PARTS):
            _bad("a node adds up bounded parts exactly where units inside it are protected")
        _number(coins=self.coins, most=1.0)
        _within(1, 2**31, owners=self.owners)
        if (self.clip != PARTS and self.coins < 1) or (unit != PATIENT and self.owners > 1):
            _bad("coins are for units inside a node, and only a patient is at several nodes")

    def _check_noise(self, masked: bool) -> None:
        _within(FEWEST_BITS, MOST_BITS, bits=self.bits)
        if not masked or self.steps is not None or self.clip == NO_CLIP:
            _bad("shares of noise are for bounded codes in masked sums")
        if self.whole and self.clip == PARTS:
            _bad("sums of parts are not whole")
        if self.whole and self.units != int(self.units):
            _bad("whole codes are on a grid of whole units")
        if not SMALLEST_SUM * (1 - _ROUNDING) <= self.scale < LARGEST_SCALE:
            _bad(f"the noise of a sum has a scale of {self.scale:g} grid units")
        if not self.units * self.sensitivity < LARGEST_SCALE:
            _bad(f"a code has a norm of up to {self.units * self.sensitivity:g} grid units")
        smoothed = math.sqrt(self.scale**2 - SMOOTHING**2)
        if self.bound <= 0 or self.multiplier * self.units * self.sensitivity > smoothed * (1 + _ROUNDING):
            _bad("the noise of a sum is less than its noise multiplier says")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What one run makes a node keep.

    `digest` names the whole offer. With `masked` sums the server sees nothing else; then each cohort, or each group of
    it, has `least_cohort` to `largest_cohort` nodes and about `planned_cohort`, of which `max_dropouts` may vanish and
    `max_colluders` side with the server. `unit` is what is protected, and `delta` its δ, None where nothing is. A node
    takes part `participations` times at most; `participant_epsilon` is the ε that the server promises to stay below.
    After a crash a round is repeated, and charged again, `spare_rounds` times at most. Records have the `input_shape`
    and one of `num_classes`. The model has `size` weights.
    """

    run: bytes
    server: bytes
    digest: bytes
    name: str
    fingerprint: str
    num_clients: int
    rounds: int
    spare_rounds: int
    consistency: str
    masked: bool
    max_dropouts: int
    max_colluders: int
    least_cohort: int
    largest_cohort: int
    planned_cohort: float
    unit: str
    delta: float | None
    participations: int
    participant_epsilon: float | None
    size: int
    input_shape: tuple[int, ...]
    num_classes: int
    releases: tuple[Release, ...]

    @classmethod
    def read(cls, signed: SignedOffer) -> Self:
        """The contract of an offer whose signature is right, or a `WireError` that says why it is refused."""
        contract = cls.of(signed.body)
        if contract.server != signed.server:
            raise WireError("the offer names another server than the one that signed it")
        if signed.client >= contract.num_clients:
            raise WireError(f"the offer is to client {signed.client} of {contract.num_clients}")
        return contract

    @classmethod
    def of(cls, body: bytes) -> Self:
        """The contract in an offer's text."""
        try:
            values = json.loads(body, parse_constant=_bad)
            version_of(values)
            section = dict(values["contract"])
            plain = {name: values[name] for name in _BESIDE}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WireError(f"the offer is damaged or not one of this version of laconic ({error})") from None
        beside = {"digest": offer_digest(body).hex(), **plain}
        if not beside.keys().isdisjoint(section):
            _bad("it states again what the offer itself says")
        return cls.from_row(beside | section)

    def row(self) -> dict[str, Any]:
        """The contract as values of JSON, for the node's own log."""
        return asdict(self) | {name: getattr(self, name).hex() for name in _BYTES}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """What `row` wrote; every number is checked again."""
        try:
            values = dict(row) | {name: bytes.fromhex(row[name]) for name in _BYTES}
            values["input_shape"] = tuple(row["input_shape"])
            values["releases"] = tuple(_release(one) for one in row["releases"])
            contract = cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WireError(
                f"the offer's contract is damaged or not one of this version of laconic ({error})"
            ) from None
        contract._check()
        return contract

    def _check(self) -> None:
        for name, length in (("run", RUN_BYTES), ("server", 32), ("digest", 32)):
            if len(getattr(self, name)) != length:
                _bad(f"{name} has {len(getattr(self, name))} bytes, not {length}")
        _text(name=self.name)
        _text(fingerprint=self.fingerprint)
        for name in ("num_clients", "rounds", "num_classes", "participations", "least_cohort", "largest_cohort"):
            _within(1, 2**32 - 2, **{name: getattr(self, name)})
        for name in ("spare_rounds", "max_dropouts", "max_colluders"):
            _within(0, 2**31, **{name: getattr(self, name)})
        _within(1, 2**48, size=self.size)
        _within(1, _MOST_DIMENSIONS, dimensions=len(self.input_shape))
        for length in self.input_shape:
            _within(1, 2**31 - 1, input_shape=length)
        _number(planned_cohort=self.planned_cohort)
        if self.unit not in UNITS or not isinstance(self.masked, bool):
            _bad("it protects neither clients nor records nor patients")
        if self.delta is not None and not self.delta < 1:
            _bad(f"delta is {self.delta}")
        for promise in (self.delta, self.participant_epsilon):
            _number(promise=1.0 if promise is None else promise)
        _within(1, _MOST_KINDS, kinds=len(self.releases))
        for release in self.releases:
            release.check(masked=self.masked, unit=self.unit)
            if release.owners > 1 and not release.owners <= self.num_clients <= self.planned_cohort:
                _bad("several nodes of one patient are accounted for where all nodes take part in every round")
        if len({release.owners for release in self.releases}) > 1:
            _bad("a patient has as many nodes in every round")
        main = self.releases[-1]
        if (main.after, main.last, main.every) != (0, None, 1):
            _bad("some rounds are of no kind")
        self.terms(bytes(32))

    @property
    def context(self) -> bytes:
        """What the keys of the run are bound to."""
        return context_of(self.run, self.digest)

    @property
    def slack(self) -> int:
        """How many of a cohort the noise does not count on."""
        return self.max_dropouts + self.max_colluders

    @property
    def attempts(self) -> int:
        """How many rounds are charged at most, repeated ones included."""
        return self.rounds + self.spare_rounds

    def release(self, round: int) -> Release:
        """What a node sends in a round."""
        return next(release for release in self.releases if round in release)

    def share_scale(self, release: Release, cohort: int) -> float:
        """The scale of one node's share of the noise in a sum of so many nodes; refused if it cannot carry the noise.

        Dropouts bring no share, and colluders can subtract theirs.
        """
        if not self.least_cohort <= cohort <= self.largest_cohort or cohort <= self.slack:
            raise PrivacyError(f"a cohort of {cohort} nodes cannot carry the noise")
        return release.share_scale(cohort - self.slack)

    def terms(self, beacon: bytes) -> Terms:
        """What secure aggregation is agreed on; the beacon is fixed when all keys are known."""
        return Terms(
            run=self.run,
            offer=self.digest,
            fingerprint=self.fingerprint,
            beacon=beacon,
            consistency=self.consistency,
            max_dropouts=self.max_dropouts,
            max_colluders=self.max_colluders,
            least_cohort=self.least_cohort,
        )


_BYTES = ("run", "server", "digest")
_BESIDE = (
    *("run", "server", "num_clients", "rounds", "spare_rounds", "consistency", "max_dropouts", "max_colluders"),
    *("size", "input_shape", "num_classes"),
)
"""The fields of the offer itself that are read beside its section."""


def _release(values: Mapping[str, Any]) -> Release:
    steps = values.get("steps")
    return Release(**{**values, "steps": None if steps is None else Steps(**steps)})


def _bad(what: str) -> NoReturn:
    raise WireError(f"the offer's contract is not one that a node can keep: {what}")


def _within(least: int, most: int, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            _bad(f"{name} is {str(value)[:30]}, not a whole number from {least} to {most}")


def _number(*, least: float = math.ulp(0.0), most: float = 1e300, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            _bad(f"{name} is {str(value)[:30]}, not a number from {least:g} to {most:g}")


def _text(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, str) or not (value.isprintable() and 1 <= len(value) <= _LONGEST_NAME):
            _bad(f"{name} is not a text of up to {_LONGEST_NAME} characters")
