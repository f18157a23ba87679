"""What a run will promise and cost, from its configuration alone: ε, bytes, memory, and the time of its noise here."""

from __future__ import annotations

import math
import time
from typing import Any, TypedDict, cast

import numpy as np
import torch

from laconic.catalogue import scheme_entry
from laconic.clients import wire
from laconic.clients.simulated import SimulatedClients
from laconic.data.inputs import tensors_of
from laconic.data.population import PooledPopulation, Records, first_of
from laconic.experiment.about import (
    about_correlation,
    about_grid,
    about_groups,
    about_queries,
    about_testing,
    about_votes,
)
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import wait_for
from laconic.experiment.mechanism import planned_cautions
from laconic.experiment.outlook import outlook_of
from laconic.features.base import FrontEnd, num_values
from laconic.packing import integers
from laconic.privacy.accounting.releases import EVALUATIONS, TRAINING, VOTES
from laconic.privacy.released import CorrelationFields, Epsilons, GridFields, GroupFields, VoteFields
from laconic.report.ledger import formula_bytes
from laconic.round import downlink_encoding, empty_sum, noise_around, noisy_codes, rows_at_once, uplink_encoding
from laconic.runner.outcome import formula_bits
from laconic.runner.run import Run
from laconic.settings.build import decided, settle
from laconic.settings.config import AUTO, RunConfig
from laconic.train.engines.engine import Crew
from laconic.train.local import LocalSGD


class PlannedPrivacy(TypedDict, total=False):
    """What a run will promise. `released` is by number of rounds, `participant` by number of participations."""

    unit: str
    protects: str
    noise_multiplier: float | None
    clip_norm: float | None
    grid: GridFields | None
    correlation: CorrelationFields
    server_covered: bool
    bits_by_the_papers: float
    delta: float
    adjacency: str
    released: dict[str, Epsilons]
    participant: dict[str, Epsilons]
    accountant: str
    published: float | None
    cautions: list[str]
    caveat: str | None


class PlannedVotes(VoteFields, total=False):
    """What the votes are, and what their messages cost."""

    bits_up_per_value: int
    bytes_up_per_client_and_round: int
    bytes_down_per_client_and_round: int
    bytes_once_per_client: int


class PlannedFrontEnd(TypedDict):
    """How many features the model sees, of how many, and how large the public projection is."""

    name: str | None
    features: int
    available: int
    projection: str
    projection_bytes: int


class OutlookFields(TypedDict):
    """Whether there is anything to learn: signal over noise, a traffic light, and words."""

    ratio: float
    light: str
    text: str


class Forecast(TypedDict, total=False):
    """What `laconic plan` prints. Bytes and bits are of a client's message, or of the run (`in_all`)."""

    scheme: str
    chosen: list[str]
    outlook: OutlookFields | None
    fingerprint: str
    size: int
    code_size: int
    front_end: PlannedFrontEnd | None
    num_clients: int
    planned_cohort: float
    rounds: int
    engine: str
    memory_bytes: int
    noise_seconds_per_round: float | None
    privacy: PlannedPrivacy | None
    groups: GroupFields | None
    group_testing: dict[str, Any] | None
    votes: PlannedVotes | None
    evaluations: dict[str, Any] | None
    queries: dict[str, dict[str, Any]]
    bits_up_per_value: int
    bits_down_per_value: int
    bytes_up_per_client_and_round: int
    bytes_down_per_client_and_round: int
    bytes_up_in_all: int
    bytes_down_in_all: int
    formula_bytes_up_per_client_in_all: float
    formula_bytes_down_per_client_in_all: float


_SAMPLE = 1 << 22
"""Values drawn to see how long it takes: enough that they do not stay in the processor's caches."""

_ENOUGH = 0.5
"""Seconds after which a sample is not drawn again."""


def memory_bytes(experiment: Experiment, clients: SimulatedClients) -> int:
    """Pooled records and their features, test records, what training holds, and what noise holds.

    Training holds about six vectors of n floats per client trained at once, and four for the server. Numbers of noise
    have 8 bytes: seven of them per value that is drawn at once, two per value of a client that waits, and four for the
    sum. That is several times what training takes, and as much whether sums are masked or not: a client's noise is
    drawn before its vector is masked, and masks are made in small pieces. Pictures that are kept as bytes are made
    float32 for the batches of the clients trained at once. An aggregator that looks at single codes holds those of the
    whole cohort.
    """
    population, cohort = experiment.population, _cohort(experiment)
    at_once = min(clients.work.engine.at_once, cohort)
    if isinstance(population, PooledPopulation) and population.made_when_picked:
        made = at_once * _visited(experiment, population.size(0)) * _bytes(first_of(population))
        record = _bytes(population.pool) / len(population.pool.targets)
    else:
        first, made = population.records(0), 0
        record = _bytes(first) / len(first.targets)
    if isinstance(experiment.front_end, FrontEnd):
        record += 4 * math.prod(experiment.front_end.output_shape)
    data = record * sum(population.size(c) for c in range(min(100, population.num_clients)))
    data = data * max(1, population.num_clients // 100)
    test = _bytes(experiment.test) if experiment.test else 0
    training = clients.model.size * 4 * (6 * at_once + 4)
    looks = not experiment.scheme.aggregator.sums and experiment.scheme.groups == 1
    single = 4 * cohort * clients.code_size if looks else 0
    return int(data + made + test + training + single + _noise_bytes(experiment, clients, at_once))


def _visited(experiment: Experiment, size: int) -> int:
    """How many records a client that holds so many has in its batches, at most."""
    train, sizes = experiment.scheme.train, np.array([size])
    if not isinstance(train, LocalSGD):
        return size
    return min(size, int(train.steps_of(sizes)[0]) * int(train.batch_of(sizes)[0]))


def _noise_bytes(experiment: Experiment, clients: SimulatedClients, at_once: int) -> int:
    noise = experiment.scheme.noise
    if not noise.private:
        return 0
    workers, code_size = min(_workers(clients), at_once), max(clients.sizes(number)[0] for number in (1, None))
    drawn = workers * min(-(-at_once // workers), rows_at_once(code_size, clients.device))
    numbers = 7 * drawn + 2 * (at_once - drawn) + 3 + experiment.scheme.groups
    return code_size * numbers * (8 if noise.on_integers else 4)


def noise_seconds(experiment: Experiment, clients: SimulatedClients) -> float | None:
    """How long the noise of one round takes here, by drawing some; None where none is added to codes."""
    scheme, cohort = experiment.scheme, _cohort(experiment)
    if not scheme.noise.private:
        return None
    threads, workers = torch.get_num_threads(), min(_workers(clients), cohort)
    each = math.ceil(cohort / workers)
    size, plan = min(clients.code_size, _SAMPLE), experiment.typical_plan()
    rows = min(each, clients.work.engine.at_once // workers, rows_at_once(size, clients.device))
    codes = torch.zeros(rows, size, device=clients.device)
    streams = [clients.streams.stream("forecast", row) for row in range(rows)]
    total = empty_sum(scheme, plan, size, clients.device)

    def drawn() -> None:
        if experiment.draws_per_sum:
            noise_around(scheme, plan, total, shares=len(plan.cohort), stream=streams[0])
        else:
            noisy_codes(scheme, plan, codes, streams=streams)

    drawn()  # the tables are made once in a run
    try:
        if workers > 1 and not experiment.draws_per_sum:
            torch.set_num_threads(1)  # as each of them has
        seconds: list[float] = []
        while sum(seconds) < _ENOUGH and len(seconds) < 5:
            wait_for(clients.device)
            started = time.perf_counter()
            drawn()
            wait_for(clients.device)
            seconds.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)
    times = scheme.groups if experiment.draws_per_sum else each / rows
    return min(seconds) * clients.code_size / size * times


def _workers(clients: SimulatedClients) -> int:
    return clients.work.engine.num_workers if isinstance(clients.work.engine, Crew) else 1


def _cohort(experiment: Experiment) -> int:
    return max(1, round(experiment.sampler.planned_cohort(experiment.population.num_clients)))


def _bytes(records: Records) -> int:
    return sum(t.numel() * t.element_size() for t in (*tensors_of(records.inputs), records.targets))


def forecast(config: RunConfig, *, brief: bool = False) -> Forecast:
    """The plan as data. A `brief` one measures no time, and has ε of all rounds only."""
    federation, why = None, tuple[str, ...]()
    if config.scheme.name == AUTO:
        config, federation, why = decided(config)
    entry = scheme_entry(config.scheme.name)
    measured = isinstance(config.scheme.options.get("clip_norm"), str) and not entry.record_level
    takes_clip = "clip_norm" in entry.options and not entry.record_level
    if measured or (takes_clip and "clip_norm" not in config.scheme.options):
        config = config.with_values({"scheme.clip_norm": 1.0})  # bytes and ε do not depend on it
        measured = True
    experiment = settle(config, federation, fit=False).experiment
    simulated = SimulatedClients(experiment)
    simulation = Run(experiment, clients=simulated)
    sampler, clients = experiment.sampler, experiment.population.num_clients
    cohort, rate = sampler.planned_cohort(clients), sampler.rate_in(clients)
    plan = experiment.typical_plan()
    up = uplink_encoding(experiment.scheme, simulation.clients.code_size, plan)
    down = downlink_encoding(experiment.scheme)
    code_size, weights_down = simulation.clients.sizes()
    messages = {"up": (code_size, up), "down": (weights_down, down)}
    formulas = formula_bits(experiment.scheme, simulation.model.size, cohort, experiment.rounds)
    formula, votes = dict(zip(("up", "down"), formulas, strict=True)), _votes(experiment, simulated)
    queries = _queries(experiment, simulated)
    besides: dict[str, Any] = {**queries, **({} if votes is None else {VOTES: votes})}
    result: dict[str, Any] = {
        "scheme": experiment.scheme.name,
        **({"chosen": list(why)} if why else {}),
        "outlook": _outlook(experiment),
        "fingerprint": experiment.scheme.fingerprint,
        "size": simulation.model.size,
        "code_size": simulation.clients.code_size,
        "front_end": _front_end(config, experiment),
        "num_clients": clients,
        "planned_cohort": cohort,
        "rounds": experiment.rounds,
        "engine": simulated.work.engine.name,
        "memory_bytes": memory_bytes(experiment, simulated),
        "noise_seconds_per_round": None if brief else noise_seconds(experiment, simulated),
        "privacy": _privacy(experiment, simulation, measured, brief),
        "groups": about_groups(experiment),
        "group_testing": about_testing(experiment),
        "votes": votes,
        "evaluations": queries.pop(EVALUATIONS, None),
        **({"queries": queries} if queries else {}),
    }
    planned = experiment.scheme.planned(experiment.rounds)
    for direction, (count, encoding) in messages.items():
        each = 0 if experiment.scheme.pooled else wire.message_size(count, encoding)
        result[f"bits_{direction}_per_value"] = encoding.bits
        result[f"bytes_{direction}_per_client_and_round"] = each
        others = sum(planned[name] * kind[f"bytes_{direction}_per_client_and_round"] for name, kind in besides.items())
        result[f"bytes_{direction}_in_all"] = round(cohort * (each * planned[TRAINING] + others))
        cost = formula_bytes(formula[direction], rate, experiment.rounds)
        result[f"formula_bytes_{direction}_per_client_in_all"] = cost
    return cast(Forecast, result)


def _outlook(experiment: Experiment) -> OutlookFields | None:
    found = outlook_of(experiment)
    return None if found is None else {"ratio": found.ratio, "light": found.light, "text": found.text}


def _votes(experiment: Experiment, clients: SimulatedClients) -> PlannedVotes | None:
    """What the votes are and cost, and what telling a client the result does; None without votes."""
    voting, about = experiment.mechanism.voting, about_votes(experiment)
    if voting is None or about is None:
        return None
    code_size, weights_down = clients.sizes(1)
    up = uplink_encoding(voting.scheme, code_size, voting.typical_plan())
    return {
        **about,
        "bits_up_per_value": up.bits,
        "bytes_up_per_client_and_round": wire.message_size(code_size, up),
        "bytes_down_per_client_and_round": wire.message_size(weights_down, downlink_encoding(voting.scheme)),
        "bytes_once_per_client": wire.message_size(about["kept"], integers(32)),
    }


def _queries(experiment: Experiment, clients: SimulatedClients) -> dict[str, dict[str, Any]]:
    """By name, what clients are asked and what that costs."""
    found = about_queries(experiment)
    return {name: about | _costs(experiment, name, clients) for name, about in found.items()}


def _costs(experiment: Experiment, name: str, clients: SimulatedClients) -> dict[str, Any]:
    """Bits of a value and bytes of the messages in the rounds of a query."""
    asking, numbers = experiment.mechanism.alone[name], range(1, experiment.rounds + 1)
    first = next(number for number in numbers if experiment.scheme.phase(number).name == name)
    code_size, weights_down = clients.sizes(first)
    up = uplink_encoding(asking.scheme, code_size, asking.typical_plan())
    return {
        "bits_up_per_value": up.bits,
        "bytes_up_per_client_and_round": wire.message_size(code_size, up),
        "bytes_down_per_client_and_round": wire.message_size(weights_down, downlink_encoding(asking.scheme)),
    }


def _front_end(config: RunConfig, experiment: Experiment) -> PlannedFrontEnd | None:
    """How many features the model sees, of how many, and how large the public projection is that clients must have."""
    front_end = experiment.front_end
    if not isinstance(front_end, FrontEnd):
        return None
    kept, available = num_values(front_end.output_shape), num_values(front_end.raw_shape)
    projection = config.front_end.projection or "none"
    size = 4 * available * (kept + 1) if projection == "public" else 0
    return {
        "name": config.front_end.name,
        "features": kept,
        "available": available,
        "projection": projection,
        "projection_bytes": size,
    }


def _privacy(experiment: Experiment, simulation: Run, measured: bool, brief: bool) -> PlannedPrivacy | None:
    accountant, budget = experiment.accountant, experiment.budget
    if accountant is None or budget is None:
        return None
    cohort = experiment.sampler.planned_cohort(experiment.population.num_clients)
    decades = [] if brief else [10**k for k in range(9) if 10**k < experiment.rounds]
    decades.append(experiment.rounds)
    usual = experiment.sampler.usual_participations(experiment.rounds, experiment.population.num_clients)
    most = budget.max_participations
    counts = sorted({usual} if brief else {1, usual, *([most] if most else [])})
    return {
        "unit": accountant.promise.one,
        "protects": accountant.promise.unit,
        "noise_multiplier": experiment.scheme.noise_multiplier,
        "clip_norm": None if measured else experiment.bound,
        "grid": about_grid(experiment),
        **cast(PlannedPrivacy, about_correlation(experiment)),
        **({} if accountant.promise.covers_server else {"server_covered": False}),
        "bits_by_the_papers": formula_bits(experiment.scheme, simulation.model.size, cohort)[0]
        / simulation.clients.code_size,
        "delta": budget.delta,
        "adjacency": accountant.promise.relation,
        "released": {str(rounds): accountant.released(rounds).to_dict() for rounds in decades},
        "participant": {str(count): accountant.participant(count).to_dict() for count in counts},
        "accountant": budget.accountant or accountant.method,
        "published": accountant.published(experiment.rounds),
        "cautions": planned_cautions(experiment),
        "caveat": "; ".join(accountant.promise.caveats) or None,
    }
