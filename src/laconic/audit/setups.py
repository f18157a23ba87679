"""The two federations of an audit: the run itself with canaries among its clients, and short runs of a tiny model.

In both the scheme, σ, S, the rate of the sampler, the slack and the number of rounds are those of the run, and the
claim is what the accountant says of the federation that is audited. That differs from the run's claim in the grid of
the integer noise alone (by less than a five-hundredth of σ), or where a cohort's size is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from laconic.audit.planted import Still, WithCanaries, watched
from laconic.codecs.base import Codec
from laconic.codecs.dct import LowPassDCT
from laconic.data.population import FunctionPopulation, Records
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.sampling import FixedSize, Sampler

LANES = 128
"""Canaries of one short run, each with a direction of its own; as many directions are free."""
_LARGEST_MODEL = 1 << 14


def check_auditable(experiment: Experiment) -> None:
    """Refuse what this audit cannot judge."""
    scheme = experiment.scheme
    if not scheme.private:
        raise ConfigError(f"{scheme.name} promises no ε, so there is nothing to audit: use a scheme in -dp")
    if scheme.record_level:
        raise ConfigError(f"{scheme.name} protects single records, and canaries are clients: use a scheme in -dp")
    if scheme.noise.central or not experiment.sampler.amplifies:
        raise ConfigError(
            f"{scheme.name}: the audit plants canaries into rounds that are drawn by chance and have their own noise:"
            " leave out --noise-bands and --sampler cyclic"
        )
    if scheme.codec.vote_rounds:
        raise ConfigError(
            f"{scheme.name} begins with votes, which have another S and another noise than the rest, and an audit takes"
            " rounds that are all alike: leave out --top-selection votes, and choose with public records"
        )
    if scheme.evaluations.every:
        raise ConfigError(
            "an audit takes rounds that are all alike, and evaluations have another S and another noise: leave out"
            " --evaluate-every"
        )
    if experiment.group_testing:
        raise ConfigError(
            "an audit takes rounds that are all alike, and with --group-testing they change with what was found: audit"
            " the run without it, whose sums have the same noise"
        )
    if experiment.attack is not None:
        raise ConfigError(
            "an audit asks whether the promise holds where clients keep to the protocol: leave out --attack"
        )


def with_canaries(experiment: Experiment, canaries: int) -> Experiment:
    """The run with canaries besides its clients, sampled at the same rate."""
    clients = experiment.population.num_clients
    return replace(
        _plain(experiment),
        scheme=watched(experiment.scheme),
        population=WithCanaries(experiment.population, canaries),
        sampler=at_same_rate(experiment.sampler, clients, clients + canaries),
    )


@dataclass(frozen=True)
class ShortRuns:
    """How the short runs are laid out: so many canaries, the first clients of so many."""

    experiment: Experiment
    lanes: int


def short_runs(experiment: Experiment) -> ShortRuns:
    """Short runs in which nobody trains: canaries have codes of their own directions, all others the code 0.

    An adversary that knows all other clients can do no better than where they are 0. The model is so small that a round
    takes milliseconds, and its code has a direction for every canary, orthogonal to the others.
    """
    codec = watched(experiment.scheme).codec
    size = tiny_size(codec)
    order = 1 << (codec.code_size(size).bit_length() - 1)
    lanes = min(LANES, order // 2)
    clients, sampler = _few_clients(experiment, lanes)
    lanes = min(lanes, clients)
    record = Records(torch.zeros(1, size), torch.zeros(1, 1))
    generator = torch.Generator().manual_seed(0)
    public = Records(torch.randn(4, size, generator=generator), torch.ones(4, 1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(size, 1, bias=False)
    return ShortRuns(
        replace(
            _plain(experiment),
            scheme=watched(replace(experiment.scheme, rule=Still(), downlink="weights")),
            model=model,
            front_end=None,
            loss="mean-squared-error",
            population=FunctionPopulation(clients, lambda client: record, size=lambda client: 1),
            sampler=sampler,
            public=public,
            secagg="simulated",
            noise_draws="per-sum" if experiment.draws_per_sum else "per-client",
            engine="one-by-one",
            workers=1,
        ),
        lanes,
    )


def tiny_size(codec: Codec) -> int:
    """The number of weights of the tiny model: so many that the code has 2·LANES values, but never too many."""
    wanted = 2 * LANES
    while (size := _smallest(codec, wanted)) > _LARGEST_MODEL and wanted > 32:
        wanted //= 2
    # A DCT pads the last chunk: sizes that fill all of them come first.
    if isinstance(codec, LowPassDCT):
        for some in range(size, 2 * size):
            chunks, length, _ = codec.chunk_sizes(some)
            if chunks * length == some:
                return some
    return size


def _smallest(codec: Codec, wanted: int) -> int:
    size = wanted
    while codec.code_size(size) < wanted:
        size = max(size + 1, int(size * wanted / codec.code_size(size)))
    return size


def claim_of(experiment: Experiment) -> RunAccountant:
    """What answers for the ε of an audited federation."""
    accountant = experiment.accountant
    assert accountant is not None
    return accountant


def at_same_rate(sampler: Sampler, before: int, now: int) -> Sampler:
    """The sampler for another number of clients."""
    if not isinstance(sampler, FixedSize):
        return sampler
    return replace(sampler, cohort_size=max(1, round(sampler.cohort_size * now / before)))


def _few_clients(experiment: Experiment, lanes: int) -> tuple[int, Sampler]:
    """How many clients the short runs have: no more than the canaries where that changes nothing."""
    sampler, clients = experiment.sampler, experiment.population.num_clients
    if experiment.max_dropouts + experiment.max_colluders or experiment.dropout_rate or experiment.scheme.groups > 1:
        few = max(clients, lanes)
        return few, at_same_rate(sampler, clients, few)
    if not isinstance(sampler, FixedSize):
        return lanes, sampler
    rate = sampler.rate_in(clients)
    cohort = max(1, round(rate * lanes))
    return max(cohort, round(cohort / rate)), replace(sampler, cohort_size=cohort)


def _plain(experiment: Experiment) -> Experiment:
    """Without looking at anything but the sums; the number of rounds is that of the run, not one that a budget ends.

    The run was refused if its δ is too large. With more clients beside it, it may be larger than one over their number.
    """
    budget = experiment.budget
    assert budget is not None
    return replace(
        experiment,
        test=None,
        test_clients=None,
        holdout=None,
        patience=None,
        budget=replace(budget, epsilon=None),
        allow_large_delta=True,
        eval_every=experiment.rounds + 1,
        best_by="auto",
        profile=False,
    )
