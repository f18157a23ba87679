"""The offer: what a server proposes to a node before a run, in full and signed. A node believes none of it.

Neighbours, thresholds, noise and ε are not in it. A node computes them itself from the parts that are.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic import __version__
from laconic.data.meaning import Meaning
from laconic.errors import ConfigError, PrivacyError, WireError
from laconic.experiment.mechanism import Agreed, Mechanism
from laconic.federation.front_ends import OfferedFrontEnd
from laconic.figures import rounded_up
from laconic.guard.contract import LARGEST_SCALE, PARTS, PATIENT, Contract, SignedOffer, offer_digest, version_of
from laconic.guard.contract import Release as ContractRelease
from laconic.guard.contract import verify_offer as verify_offer
from laconic.parts import non_negative_int, one_of, positive_int
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import Rounds
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.discrete_gaussian import record_grid
from laconic.scheme import Phase, Scheme
from laconic.secagg.terms import RUN_BYTES, Terms
from laconic.train.local import LocalDPSGD, UnitGradients
from laconic.train.units.rounding import UnitGrid

if TYPE_CHECKING:
    from torch import nn

    from laconic.data.population import Population
    from laconic.experiment.experiment import Experiment


_DESCRIBED: dict[str, Callable[..., Any]] = {"front_end": OfferedFrontEnd, "meaning": Meaning}
MOST_OPTIONS, MOST_VALUES = 64, 256
"""Of a model: how many it may have, and how many values are in a list."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer(Agreed):
    """One run, as it is offered to all its nodes.

        `server` is the public Ed25519 key that signs the offer. `initial` is the digest of the initial weights, which
    follow from `public_seed` and the model that the node has; its factory is called with `model_options`. With a
    `front_end` the model sees what that makes of records of the `input_shape`. `meaning` is what the records mean;
    None for plain numbers. Cohorts are drawn from `num_clients`. After a crash a round is repeated, and charged again;
    the server may do that `spare_rounds` times.
    """

    run: bytes
    server: bytes
    consistency: str = "plain"
    spare_rounds: int = 0
    public_seed: int
    model: str
    input_shape: tuple[int, ...]
    num_classes: int
    initial: str
    loss: str = "auto"
    model_options: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    front_end: OfferedFrontEnd | None = None
    meaning: Meaning | None = None

    def __post_init__(self) -> None:
        from laconic.experiment.experiment import check_evaluations, check_rounds, check_units, check_votes
        from laconic.train.losses import LOSSES

        if len(self.run) != RUN_BYTES or len(self.server) != 32:
            raise ConfigError(f"an offer names its run by {RUN_BYTES} bytes and its server by a key of 32")
        positive_int(num_clients=self.num_clients, rounds=self.rounds, size=self.size, num_classes=self.num_classes)
        check_federated_records(self.scheme, self.size)
        if isinstance(self.scheme.train, UnitGradients):
            check_units(self.scheme.train, self.sampler, self.num_clients)
        check_noise_of_nodes(self.scheme, self.sampler)
        if not 1 <= len(self.input_shape) <= 8 or not all(
            isinstance(length, int) and 1 <= length < 2**31 for length in self.input_shape
        ):
            raise ConfigError("an offer's records have one to eight dimensions, each of 1 to 2^31 values")
        non_negative_int(max_dropouts=self.max_dropouts, max_colluders=self.max_colluders, public_seed=self.public_seed)
        non_negative_int(spare_rounds=self.spare_rounds)
        one_of(("plain", "signed"), consistency=self.consistency)
        _check_options("model", self.model_options)
        if self.front_end is not None:
            self.front_end.check(self.input_shape)
            _check_options("front end", self.front_end.options)
        # Else a node would find it out with its records loaded, and wait for its owner as if they had failed.
        check_votes(self.scheme, self.rounds, self.size)
        check_evaluations(self.scheme, self.rounds)
        for query in self.scheme.asked:
            query.check(self.num_classes)
        slack = self.max_dropouts + self.max_colluders
        check_rounds(self.scheme, self.sampler, self.num_clients, self.budget, slack)
        if self.scheme.sums_units:
            check_unit_grid(self.mechanism)
        one_of(("auto", *LOSSES), loss=self.loss)

    @property
    def head_shape(self) -> tuple[int, ...]:
        """The shape of what the model sees of a record."""
        return self.input_shape if self.front_end is None else self.front_end.output_shape(self.input_shape)

    @property
    def masked(self) -> bool:
        """Whether the server sees only sums."""
        return self.scheme.secure_sum.hides_single_codes

    @property
    def attempts(self) -> int:
        """How many rounds are charged at most, repeated ones included."""
        return self.rounds + self.spare_rounds

    @cached_property
    def digest(self) -> bytes:
        """The hash of the whole offer. It goes into the terms, and so into every key and signature of the run."""
        return offer_digest(self.to_bytes())

    @cached_property
    def contract(self) -> Contract:
        """What the offer makes a node keep, as the node reads it."""
        return Contract.of(self.to_bytes())

    @property
    def context(self) -> bytes:
        """What the keys of the run are bound to."""
        return self.contract.context

    @cached_property
    def mechanism(self) -> Mechanism:
        """What the offered run would do to one node's data: enough to know what it costs, without touching any."""
        return Mechanism(**self.agreed, spare_rounds=self.spare_rounds)

    def terms(self, beacon: bytes) -> Terms:
        """What secure aggregation is agreed on; the beacon is fixed when all keys are known."""
        return self.contract.terms(beacon)

    def experiment(self, model: nn.Module, population: Population, **options: Any) -> Experiment:
        """The same experiment on both sides: with its records on a node, without any on the server."""
        from laconic.experiment.experiment import Experiment

        known = {name: value for name, value in self.agreed.items() if name not in ("num_clients", "size")}
        return Experiment(
            **known,
            model=model,
            population=population,
            consistency=self.consistency,
            noise_draws="per-client",
            loss=self.loss,
            **options,
        )

    def to_bytes(self) -> bytes:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {"run": self.run.hex(), "server": self.server.hex()}
        values |= {"scheme": self.scheme.to_dict(), "sampler": self.sampler.to_dict()}
        values |= {"budget": self.budget and self.budget.to_dict()}
        values |= {name: values[name] and dataclasses.asdict(values[name]) for name in _DESCRIBED}
        values |= {"contract": self._contract}
        return json.dumps({"laconic": __version__} | values, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def _contract(self) -> dict[str, Any]:
        """The section that a node reads without the scheme: all of it follows from the rest of the offer."""
        plan, budget, kinds = self.mechanism.typical_plan(), self.budget, self.mechanism.alone
        return {
            "name": self.scheme.name,
            "fingerprint": self.scheme.fingerprint,
            "masked": self.masked,
            "least_cohort": plan.least_cohort,
            "largest_cohort": plan.largest_cohort,
            "planned_cohort": plan.planned_cohort,
            "unit": self.scheme.unit,
            "delta": budget and budget.delta,
            "participations": min(self.attempts, (budget and budget.max_participations) or self.attempts),
            "participant_epsilon": budget and budget.participant_epsilon,
            "releases": [_released(phase, kinds[phase.name]) for phase in self.scheme.phases if phase.name in kinds],
        }

    @classmethod
    def from_bytes(cls, data: bytes) -> Offer:
        import laconic.schemes  # noqa: F401 - a part is known once its module is imported

        try:
            values = json.loads(data)
            version_of(values)
            del values["laconic"], values["contract"]  # `open_offer` compares it with what follows from the rest
            values |= {"run": bytes.fromhex(values["run"]), "server": bytes.fromhex(values["server"])}
            values |= {"scheme": Scheme.from_dict(values["scheme"]), "sampler": Sampler.from_dict(values["sampler"])}
            values |= {"budget": values["budget"] and Budget.from_dict(values["budget"])}
            values |= {"input_shape": tuple(values["input_shape"])}
            values |= {name: values[name] and kind(**values[name]) for name, kind in _DESCRIBED.items()}
            if values["scheme"].open:
                raise ValueError("its scheme has no noise multiplier")
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WireError(f"the offer is damaged or not one of this version of laconic ({error})") from None


def open_offer(signed: SignedOffer) -> Offer:
    """The offer itself, if it is written as this version writes it, its contract too, and by who signed it."""
    offer = Offer.from_bytes(signed.body)
    if offer.server != signed.server:
        raise WireError("the offer names another server than the one that signed it")
    if offer.to_bytes() != signed.body:
        raise WireError("the offer is not written as this version of laconic writes it")
    if signed.client >= offer.num_clients:
        raise WireError(f"the offer is to client {signed.client} of {offer.num_clients}")
    return offer


def sign_offer(offer: Offer, client: int, key: Ed25519PrivateKey) -> bytes:
    """The offer to one node, with the number that it has in the run."""
    signed = SignedOffer(client, offer.server, offer.to_bytes())
    return signed.to_bytes(key.sign(signed.statement))


def read_offer(data: bytes) -> tuple[int, Offer]:
    """(the node's number, the offer), if it is signed by the server that it names."""
    signed = verify_offer(data)
    return signed.client, open_offer(signed)


def _released(phase: Phase, kind: Mechanism) -> dict[str, Any]:
    """What a node sends in a round of this phase, in the contract."""
    parts, rounds, grid = phase.parts, phase.rounds or Rounds(), kind.grid
    clip, bound = parts.clip.stated
    inside: dict[str, Any] = {}
    if isinstance(parts.train, UnitGradients):
        clip, bound = PARTS, parts.train.part_of(kind.sensitivity)
        inside = {"coins": parts.train.rate, "owners": parts.train.max_owners}
    steps = parts.train.steps_on_grid(kind.size)
    release = phase.release(sampler=kind.sampler, num_clients=kind.num_clients, size=kind.size)
    on_grid: dict[str, Any] = {} if grid is None else {"units": grid.units, "scale": grid.scale, "bits": grid.bits}
    return dataclasses.asdict(
        ContractRelease(
            phase=phase.name,
            after=rounds.after,
            last=rounds.last,
            every=rounds.every,
            code_size=kind.code_size,
            clip=clip,
            bound=bound,
            whole=parts.noise.for_signs,
            # Noise that is drawn on no grid is none that a node could mask, or answer for.
            multiplier=0.0 if grid is None and steps is None else release.multiplier,
            steps=steps,
            **on_grid,
            **inside,
        )
    )


def check_noise_of_nodes(scheme: Scheme, sampler: Sampler) -> None:
    """Refuse noise that a server would add, and turns that no node could check: a node trusts its own noise alone."""
    if scheme.noise.central:
        raise ConfigError(
            f"{scheme.name}: the server would add the noise, so nothing would protect a node from it: in a federation"
            " every node adds its own share"
        )
    if not sampler.amplifies:
        raise ConfigError(f"{type(sampler).__name__}: clients that take turns are for simulations, not for federations")


def check_federated_records(scheme: Scheme, size: int) -> None:
    """Refuse noise and batches for single records that separate machines cannot promise anything about."""
    train = scheme.train
    if not isinstance(train, LocalDPSGD):
        return
    if train.noise != "integer":
        raise ConfigError(
            f"{scheme.name}: the noise of a federation is drawn on integers, from the operating system's entropy: add"
            " ⟨noise⟩ integer"
        )
    if train.records.caveat:
        raise ConfigError(
            f"{scheme.name}: batches as published have a rate that depends on how many records a node has, and no proof"
            " covers them: use ⟨balance⟩ per-class or ⟨balance⟩ none"
        )
    # Else a node would find it out with its records loaded, and wait for its owner as if they had failed.
    grid = record_grid(size, train.clip_norm, train.sigma)
    if not (grid.scale < LARGEST_SCALE and 0 < grid.units < math.inf and train.records.batch_size < 2**31):
        raise ConfigError(f"{scheme.name}: its clip_norm, noise_multiplier or batch_size is beyond all reason")


def check_unit_grid(mechanism: Mechanism) -> None:
    """Refuse a grid on which single units are mostly rounding, and a δ of one over their declared number or more."""
    train, grid, budget = mechanism.scheme.train, mechanism.grid, mechanism.budget
    assert isinstance(train, UnitGradients) and grid is not None and budget is not None
    UnitGrid(train.part_of(mechanism.sensitivity), grid.units).check(mechanism.code_size)
    if train.num_units is not None and budget.delta * train.num_units >= 1:
        raise ConfigError(
            f"δ {rounded_up(budget.delta)} is 1/{train.num_units:g} {train.unit}s or more: it allows one's data to be"
            " published"
        )


def _check_options(what: str, options: Any) -> None:
    """Refuse options that are no numbers, texts or short lists of them, under short names."""
    if not isinstance(options, dict) or len(options) > MOST_OPTIONS:
        raise ConfigError(f"an offer has at most {MOST_OPTIONS} options for its {what}")
    for name, value in options.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"an offer's option of the {what} is named {name!r}, which is no name")
        parts = value if isinstance(value, list | tuple) else [value]
        if len(parts) > MOST_VALUES or not all(_is_plain(part) for part in parts):
            raise ConfigError(
                f"an offer's option {name} of the {what} is no number, text or list of at most {MOST_VALUES}"
            )


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | str) or (isinstance(value, int) and abs(value) < 2**63)


UNCHECKED = "unchecked"
"""The meaning of records that a function of the owner's own reads: only the owner knows it."""


class OtherRecords(PrivacyError):
    """The offer is about other records. What differs is for the node's own log: its schema is its owner's business."""

    def __init__(self, told: str, detail: str | None = None) -> None:
        super().__init__(told)
        self.detail = detail


def check_meaning(offer: Offer, own: Meaning | str | None) -> None:
    """Refuse an offer about records that mean something else than this node's. None: plain numbers."""
    wanted = offer.meaning
    if isinstance(own, str) or wanted == own:
        return
    if wanted is None:
        assert own is not None
        raise OtherRecords(
            f"the offer does not say what its records mean, and this node's are fixed ({_named(own)}): the server must"
            " declare the same"
        )
    if own is None:
        raise OtherRecords(
            f"the offer is about records whose meaning is agreed on ({_named(wanted)}), and this node was started"
            " without any: its owner names the same schema, vocabulary, or classes and image size"
        )
    if (own.kind, own.digest) != (wanted.kind, wanted.digest):
        raise OtherRecords(
            f"this node's records do not mean what the offer's do: {_named(own)} here, {_named(wanted)} there",
            f"what differs: {own.differences(wanted)}",
        )


def check_patients(offer: Offer, told: bool | None) -> None:
    """Refuse to protect patients where the node's settings do not name what says whose each record is."""
    if offer.scheme.unit == PATIENT and told is False:
        raise PrivacyError(
            "the offer protects patients, and this node was not told which column says whose each record is: its owner"
            " names it (⟨patient-column⟩, or patient in the schema)"
        )


def _named(meaning: Meaning) -> str:
    return f"{meaning.kind} {meaning.digest[:8]}…"
