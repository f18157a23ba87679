"""What is special about a federation's configuration: how long a server waits, and what separate machines cannot do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from laconic.data.federated import FederatedData
from laconic.errors import ConfigError
from laconic.experiment.experiment import check_maskable
from laconic.federation.offer import check_federated_records
from laconic.options.sections import FederationSection
from laconic.parts import non_negative_int, positive, positive_int
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig


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


def settle_federated(
    config: RunConfig, federation: FederatedData | None = None, *, stored: Path | None = None
) -> Settled:
    """The configuration settled as for a simulation, if separate machines can run it."""
    if config.scheme.options.get("clip_norm") == "median":
        raise ConfigError(
            "--clip-norm median is measured on the clients' own updates, which no server of a federation sees:"
            " give a number, or 'public'"
        )
    if config.aggregator.group_testing:
        raise ConfigError(
            "--group-testing is for simulations: a node is told who else is in its group, so an attacker could spoil"
            " just the groups of others that it wants excluded; use --groups with --aggregator median"
        )
    if config.attack.kind is not None:
        raise ConfigError(
            "--attack is for simulations: the nodes of a federation are real clients; use laconic run to try an attack"
        )
    if config.privacy.noise_bands > 1:
        raise ConfigError(
            "--noise-bands is for simulations: its noise is added by a trusted server, and the nodes of a federation"
            " add their own shares; leave it out"
        )
    if config.sampler.kind == "cyclic":
        raise ConfigError(
            "--sampler cyclic is for simulations: what nodes may spend is worked out for cohorts that are drawn by"
            " chance; use --sampler poisson or fixed-size"
        )
    if config.secagg.dropout_rate:
        raise ConfigError("--dropout-rate is for simulations: the nodes of a federation drop out by themselves")
    if config.secagg.noise_draws == "per-sum":
        raise ConfigError("--noise-draws per-sum is for simulations: every node draws its own share of the noise")
    if config.privacy.allow_large_delta:
        raise ConfigError("--allow-large-delta is for simulations: the nodes of a federation refuse such a δ")
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
