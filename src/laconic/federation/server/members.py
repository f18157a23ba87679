"""Who takes part in a run, and how long the server waits for them: asked once, and the same until the run ends."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.data.federated import FederatedData
from laconic.data.meaning import Meaning
from laconic.errors import ConfigError, LaconicError, PrivacyError, RunFolderError
from laconic.experiment.experiment import check_maskable
from laconic.features.base import FrontEnd
from laconic.features.scattering import ScatteringFrontEnd
from laconic.federation.front_ends import OfferedFrontEnd
from laconic.federation.offer import Offer, check_federated_records, sign_offer
from laconic.federation.requests import Answers, Courier, Fields, bytes_in, fields_bytes
from laconic.federation.weights import initial_weights, weights_digest
from laconic.guard.roster import beacon_of, read_roster, write_roster
from laconic.options.sections import FederationSection
from laconic.parts import non_negative_int, positive, positive_int
from laconic.secagg.crypto.keys import KeyBook, PublicKeys
from laconic.secagg.server import SecAggServer
from laconic.secagg.terms import RUN_BYTES, Terms
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig
from laconic.settings.data.divide import DEAD_LEAVES
from laconic.store.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`nodes` are waited for, of which `min_nodes` must accept the offer: all of them, unless it is set.

    Who does not answer within `join_timeout` seconds is left out of the run, and within `round_timeout` of the round.
    `spare_rounds` may be repeated after a crash. After `max_discarded` discarded rounds in a row the run ends.
    """

    nodes: int
    min_nodes: int
    join_timeout: float
    round_timeout: float
    spare_rounds: int
    max_discarded: int

    @classmethod
    def of(cls, section: FederationSection) -> Settings:
        nodes = 5 if section.nodes is None else section.nodes
        settings = cls(
            nodes=nodes,
            min_nodes=nodes if section.min_nodes is None else section.min_nodes,
            join_timeout=120.0 if section.join_timeout is None else section.join_timeout,
            round_timeout=600.0 if section.round_timeout is None else section.round_timeout,
            spare_rounds=2 if section.spare_rounds is None else section.spare_rounds,
            max_discarded=2 if section.max_discarded is None else section.max_discarded,
        )
        positive_int(nodes=settings.nodes, min_nodes=settings.min_nodes, max_discarded=settings.max_discarded)
        non_negative_int(spare_rounds=settings.spare_rounds)
        positive(join_timeout=settings.join_timeout, round_timeout=settings.round_timeout)
        if settings.min_nodes > settings.nodes:
            raise ConfigError(f"federation.min_nodes = {settings.min_nodes} is more than nodes = {settings.nodes}")
        return settings


def resolve_federated(
    config: RunConfig, federation: FederatedData | None = None, *, stored: Path | None = None
) -> Settled:
    """The configuration settled as for a simulation, if separate machines can run it."""
    if config.scheme.options.get("clip_norm") == "median":
        raise ConfigError(
            "⟨clip-norm⟩ median is measured on the clients' own updates, which no server of a federation sees:"
            " give a number, or 'public'"
        )
    if config.aggregator.group_testing:
        raise ConfigError(
            "⟨group-testing⟩ is for simulations: a node is told who else is in its group, so an attacker could spoil"
            " just the groups of others that it wants excluded; use ⟨groups⟩ with ⟨aggregator⟩ median"
        )
    if config.attack.kind is not None:
        raise ConfigError(
            "⟨attack⟩ is for simulations: the nodes of a federation are real clients; use laconic run to try an attack"
        )
    if config.privacy.noise_bands > 1:
        raise ConfigError(
            "⟨noise-bands⟩ is for simulations: its noise is added by a trusted server, and the nodes of a federation"
            " add their own shares; leave it out"
        )
    if config.sampler.kind == "cyclic":
        raise ConfigError(
            "⟨sampler⟩ cyclic is for simulations: what nodes may spend is worked out for cohorts that are drawn by"
            " chance; use ⟨sampler⟩ poisson or fixed-size"
        )
    if config.secagg.dropout_rate:
        raise ConfigError("⟨dropout-rate⟩ is for simulations: the nodes of a federation drop out by themselves")
    if config.secagg.noise_draws == "per-sum":
        raise ConfigError("⟨noise-draws⟩ per-sum is for simulations: every node draws its own share of the noise")
    if config.privacy.allow_large_delta:
        raise ConfigError("⟨allow-large-delta⟩ is for simulations: the nodes of a federation refuse such a δ")
    if config.scheme.name.lower() == "centralized":
        raise ConfigError("centralized has no clients, so it is no federation: use laconic run")
    # Written into the configuration: noise that is calibrated to an ε allows for the spare rounds.
    config = config.with_values({"federation.spare_rounds": Settings.of(config.federation).spare_rounds})
    settled = settle(config, federation, stored=stored)
    settled = replace(settled, experiment=replace(settled.experiment, noise_draws="per-client"))
    check_federated_records(settled.experiment.scheme, settled.experiment.mechanism.size)
    if settled.experiment.scheme.noise.private:
        check_maskable(settled.experiment.scheme)
    return settled


_FILE = "federation.json"


@dataclass(frozen=True)
class Members:
    """The nodes of a run by the carrier's names for them, in the order of their client numbers, and their keys."""

    offer: Offer
    nodes: tuple[int, ...]
    roster: bytes

    @property
    def terms(self) -> Terms:
        return self.offer.terms(beacon_of(self.offer.run, self.roster))

    def secagg(self) -> SecAggServer:
        """The server of the masked sums, with all keys."""
        server = SecAggServer(self.terms)
        entries = read_roster(self.roster)
        for entry in entries:
            server.register(entry.announcement(self.offer.run))
        for entry in entries:  # everyone is told the roster, so no plan has to bring keys
            server.delivered[entry.client] = {other.client for other in entries}
        return server

    def save(self, folder: RunFolder) -> None:
        content = {
            "offer": self.offer.to_bytes().decode(),
            "nodes": [str(node) for node in self.nodes],  # 64 bits: too many for some readers of JSON
            "roster": self.roster.hex(),
        }
        folder.write(_FILE, json.dumps(content, indent=2) + "\n")

    @classmethod
    def load(cls, folder: RunFolder) -> Members | None:
        """The members of the run in this folder; None if no node has joined yet."""
        path = folder.path / _FILE
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text())
            nodes = tuple(int(node) for node in content["nodes"])
            return cls(Offer.from_bytes(content["offer"].encode()), nodes, bytes.fromhex(content["roster"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{path} is damaged ({error}): the run cannot be resumed; start a new one") from None


def make_offer(settled: Settled, server: Ed25519PrivateKey) -> Offer:
    """A new run of the settled experiment, offered by this server."""
    experiment, data = settled.experiment, settled.federation
    if not isinstance(experiment.loss, str):
        raise ConfigError("a federation names its loss: give it as text, not as a function")
    weights = initial_weights(experiment.model)
    return Offer(
        run=secrets.token_bytes(RUN_BYTES),
        server=server.public_key().public_bytes_raw(),
        **experiment.mechanism.agreed,
        consistency=experiment.consistency,
        spare_rounds=Settings.of(settled.config.federation).spare_rounds,
        public_seed=experiment.seed,
        model=settled.config.model.name,
        model_options=settled.config.model.options,
        input_shape=data.input_shape,
        num_classes=data.num_classes,
        initial=weights_digest(weights),
        loss=experiment.loss,
        front_end=_front_end(settled),
        meaning=_meaning(settled),
    )


def _front_end(settled: Settled) -> OfferedFrontEnd | None:
    """The front end as nodes are told of it."""
    front_end, config = settled.experiment.front_end, settled.config
    if front_end is None:
        return None
    assert isinstance(front_end, FrontEnd) and config.front_end.name, "configurations name no other"
    about, section = front_end.about, config.front_end
    fitted = about["projection"] == "public" or bool(section.patterns)
    plain = isinstance(front_end, ScatteringFrontEnd)
    return OfferedFrontEnd(
        name=config.front_end.name,
        shape=() if plain else front_end.output_shape,
        options={} if plain else section.options,
        words=_takes_words(about),
        bandwidth=float(about.get("bandwidth", 0.0)),
        patterns=section.patterns or 0,
        projection=about["projection"],
        mirror=about["mirror"],
        features=about.get("features"),
        ridge=float(about.get("ridge", 0.0)),
        leaves=(section.images or 0) if fitted and config.data.public_dataset == DEAD_LEAVES else 0,
        source=about.get("source") or _learnt_from(about),
        digest=front_end.digest,
    )


def _learnt_from(about: dict[str, Any]) -> str:
    """What patterns were learnt from: without a projection, it is all that public images were for."""
    parts = about.get("parts", [about])
    return next((part["learnt_from"] for part in parts if part.get("learnt_from")), "")


def _takes_words(about: dict[str, Any]) -> bool:
    return any(part.get("words", False) for part in about.get("parts", [about]))


def _meaning(settled: Settled) -> Meaning | None:
    """What the records mean: as it was declared, or as the server's own records show it."""
    data = settled.federation
    if data.meaning is not None:
        return data.meaning
    if data.preprocessing is not None:
        return Meaning.of_schema(data.preprocessing.schema)
    if data.wording is not None:
        return Meaning.of_texts(data.wording.num_words, data.wording.listed, settled.config.data.max_length)
    if data.classes and len(data.input_shape) == 3:
        return Meaning.of_pictures(data.classes, data.input_shape)
    return None


def invite(
    offer: Offer, nodes: Sequence[int], server: Ed25519PrivateKey, courier: Courier, timeout: float
) -> tuple[Members | None, Answers]:
    """Offer the run to all nodes: its members, or None if not all have joined; and what the nodes answered."""
    requests: dict[int, Fields] = {client: {"offer": sign_offer(offer, client, server)} for client in range(len(nodes))}
    answers = courier.ask("keys", requests, timeout=timeout)
    answers.overhead_down += fields_bytes(requests.values())  # an offer is no payload
    book = KeyBook(offer.context)
    for client, fields in answers.given.items():
        try:
            keys = PublicKeys.from_announcement(bytes_in(fields, "announcement"), offer.run)
            if keys.client != client:
                raise PrivacyError(f"announced the keys of client {keys.client}")
            book.learn(keys)
        except LaconicError as error:
            answers.missing[client] = str(error)
    if answers.missing:
        return None, answers
    roster = write_roster(book[client] for client in range(len(nodes)))
    return Members(offer, tuple(nodes), roster), answers
