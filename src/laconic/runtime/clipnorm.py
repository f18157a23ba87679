"""The clipping threshold from data: the median norm of what clients would send in the first round."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from laconic.codecs.base import Codec
from laconic.data.population import PooledPopulation, Population
from laconic.data.sources import load_source
from laconic.errors import ConfigError, TrainingError
from laconic.plan import RoundPlan
from laconic.runtime.config import RunConfig
from laconic.runtime.datasets import Federation
from laconic.runtime.devices import choose_device
from laconic.streams import Streams
from laconic.train.engine import Task, choose_engine
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD

MOST_CLIENTS = 1000
"""The median over this many clients, drawn at random, stands for the median over all of them."""


def clip_norm_from(
    source: str, config: RunConfig, options: dict[str, Any], model: nn.Module, federation: Federation, streams: Streams
) -> float:
    """S measured on the clients themselves ('median') or on clients made of a public data set ('public')."""
    from laconic.catalogue import build_scheme

    scheme = build_scheme(config.scheme.name, **options, clip_norm=1.0)
    population = federation.population
    if source == "public":
        population = _public_clients(config, federation, streams)
    return median_norm(scheme.train, scheme.codec, model, population, config, streams)


def median_norm(
    train: LocalSGD, codec: Codec, model: nn.Module, population: Population, config: RunConfig, streams: Streams
) -> float:
    """The median over clients of ‖encode(Δw_k)‖₂ after one local round from the initial weights."""
    device = choose_device(config.run.device)
    first = population.records(0)
    example = (first.inputs[:2].cpu(), first.targets[:2].cpu())
    flat = FlatModel(model, example=example, loss=config.model.loss).to(device)
    engine = choose_engine(config.run.engine, flat, device, example, config.run.chunk)
    count = min(MOST_CLIENTS, population.num_clients)
    clients = np.sort(streams.numpy("clip").choice(population.num_clients, count, replace=False))
    task = Task(
        train=train,
        weights=flat.initial,
        population=population.to(device),
        clients=clients,
        streams=streams,
        path=("clip",),
    )
    plan = RoundPlan(
        round=0,
        attempt=0,
        cohort=clients,
        planned_cohort=float(count),
        noise_shares=count,
        run_seed=streams.key("public") & (2**63 - 1),
        round_seed=streams.key("public", 0, 0) & (2**63 - 1),
        fingerprint="",
    )
    norms = [torch.linalg.vector_norm(codec.encode(u.updates, plan), dim=-1).cpu() for u in engine.updates(task)]
    median = float(torch.cat(norms).median())
    if not np.isfinite(median) or median <= 0:
        raise TrainingError(f"the median update norm is {median}: training diverges or does nothing; check --local-lr")
    return float(f"{median:.4g}")


def _public_clients(config: RunConfig, federation: Federation, streams: Streams) -> Population:
    """Clients of the private ones' average size, made of the public data set's records."""
    name = config.data.public_dataset
    if name is None:
        raise ConfigError("--clip-norm public needs --public-dataset NAME, for example mnist for fashion-mnist")
    source = load_source(name, config.data.data_dir)
    if source.input_shape != federation.input_shape:
        raise ConfigError(
            f"--public-dataset {name} has inputs of {source.input_shape}, the clients' are {federation.input_shape}"
        )
    private = federation.population
    sample = [private.size(c) for c in range(min(100, private.num_clients))]
    each = max(1, round(sum(sample) / len(sample)))
    count = max(1, min(100, len(source.train.targets) // each))
    order = streams.numpy("public clients").permutation(len(source.train.targets))[: count * each]
    return PooledPopulation(source.train, order.reshape(count, each))
