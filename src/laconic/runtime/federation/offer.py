"""The offer: what a server proposes to a node before a run, in full, signed, and with nothing left to believe.

Neighbours, thresholds, noise and ε are not in it. A node computes them itself from the parts that are.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic import __version__
from laconic.errors import ConfigError, WireError
from laconic.parts import non_negative_int, one_of, positive_int
from laconic.privacy.budget import Budget
from laconic.privacy.sampling import Sampler
from laconic.scheme import Scheme
from laconic.secagg.keys import SIGNATURE_BYTES, is_signed
from laconic.secagg.plan import RUN_BYTES, Terms

if TYPE_CHECKING:
    from torch import nn

    from laconic.data.population import Population
    from laconic.runtime.experiment import Experiment

_HEAD = struct.Struct(f"<I{SIGNATURE_BYTES}s")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """One run, as it is offered to all its nodes.

    `server` is the public Ed25519 key that signs the offer. `initial` is the digest of the initial weights, which
    follow from `public_seed` and the model that the node has. Cohorts are drawn from `num_clients`.
    """

    run: bytes
    server: bytes
    scheme: Scheme
    sampler: Sampler
    num_clients: int
    rounds: int
    budget: Budget | None
    max_dropouts: int = 0
    max_colluders: int = 0
    consistency: str = "plain"
    public_seed: int
    model: str
    input_shape: tuple[int, ...]
    num_classes: int
    size: int
    initial: str
    loss: str = "auto"

    def __post_init__(self) -> None:
        if len(self.run) != RUN_BYTES or len(self.server) != 32:
            raise ConfigError(f"an offer names its run by {RUN_BYTES} bytes and its server by a key of 32")
        if self.scheme.record_level:
            raise ConfigError(f"{self.scheme.name}: single records are protected in simulations only so far")
        positive_int(num_clients=self.num_clients, rounds=self.rounds, size=self.size)
        non_negative_int(max_dropouts=self.max_dropouts, max_colluders=self.max_colluders, public_seed=self.public_seed)
        one_of(("plain", "signed"), consistency=self.consistency)

    @property
    def masked(self) -> bool:
        """Whether the server sees only sums."""
        return self.scheme.secure_sum.hides_single_codes

    def terms(self, beacon: bytes) -> Terms:
        """What secure aggregation is agreed on; the beacon is fixed when all keys are known."""
        return Terms(
            run=self.run,
            fingerprint=self.scheme.fingerprint,
            beacon=beacon,
            consistency=self.consistency,
            max_dropouts=self.max_dropouts,
            max_colluders=self.max_colluders,
            least_cohort=self.sampler.least_cohort(self.num_clients, self.max_dropouts + self.max_colluders),
        )

    def experiment(self, model: nn.Module, population: Population, **options: Any) -> Experiment:
        """The same experiment on both sides: with its records on a node, without any on the server."""
        from laconic.runtime.experiment import Experiment

        return Experiment(
            scheme=self.scheme,
            model=model,
            population=population,
            sampler=self.sampler,
            rounds=self.rounds,
            budget=self.budget,
            max_dropouts=self.max_dropouts,
            max_colluders=self.max_colluders,
            consistency=self.consistency,
            loss=self.loss,
            **options,
        )

    def to_bytes(self) -> bytes:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {"run": self.run.hex(), "server": self.server.hex()}
        values |= {"scheme": self.scheme.to_dict(), "sampler": self.sampler.to_dict()}
        values |= {"budget": self.budget and self.budget.to_dict()}
        return json.dumps({"laconic": __version__} | values, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Offer:
        import laconic.schemes  # noqa: F401 - a part is known once its module is imported

        try:
            values = json.loads(data)
            version = values.pop("laconic")
            if version != __version__:
                raise WireError(f"the server runs laconic {version}, this node {__version__}: install the same")
            values |= {"run": bytes.fromhex(values["run"]), "server": bytes.fromhex(values["server"])}
            values |= {"scheme": Scheme.from_dict(values["scheme"]), "sampler": Sampler.from_dict(values["sampler"])}
            values |= {"budget": values["budget"] and Budget.from_dict(values["budget"])}
            values |= {"input_shape": tuple(values["input_shape"])}
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WireError(f"the offer is damaged or not one of this version of laconic ({error})") from None


def sign_offer(offer: Offer, client: int, key: Ed25519PrivateKey) -> bytes:
    """The offer to one node, with the number that it has in the run: 4 client · 64 signature · JSON."""
    body = offer.to_bytes()
    return _HEAD.pack(client, key.sign(_statement(client, body))) + body


def read_offer(data: bytes) -> tuple[int, Offer]:
    """(the node's number, the offer), if it is signed by the server that it names."""
    if len(data) < _HEAD.size:
        raise WireError(f"an offer of {len(data)} bytes is cut short")
    client, signature = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    offer = Offer.from_bytes(body)
    if not is_signed(offer.server, signature, _statement(client, body)):
        raise WireError("the offer is not signed by the server that it names")
    if client >= offer.num_clients:
        raise WireError(f"the offer is to client {client} of {offer.num_clients}")
    return client, offer


def _statement(client: int, body: bytes) -> bytes:
    return b"laconic offer" + client.to_bytes(4, "little") + body
