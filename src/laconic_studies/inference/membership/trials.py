"""Many rounds with and without a target, and what is to be seen of each: the statistics of every view.

A trial is one round: the code of the victim, if there is one, and those of others drawn at random. Each code goes
through the scheme's own clip, noise share and sum; a masked sum has the same bits. One round of all clients is
trained for several draws of batches beforehand, and trials choose from it.

A statistic is a number that grows when the target was there: how well its records fit, or an inner product with its
expected code. In a sum of |K| codes that are independent draws with covariance Σ, plus noise of variance ν in each
coordinate, the likelihood ratio of "the target's code e is in it" grows with ⟨(|K|·Σ + ν·I)⁻¹·e, sum⟩: a matched
filter. Under much noise that is the inner product with e itself.

Was a client in the run? Then a trial is a whole short run, with the target in every round or in none. Every run is
trained anew, since the weights of each round follow from the rounds before. So it is played less often than a single
round. Statistics of the rounds are added up: their noise is independent. The loss is that of the last model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from laconic.codecs.dct import LowPassDCT
from laconic.data.inputs import dense
from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.round import client_weight
from laconic.streams import Stream
from laconic.train.flat import FlatModel
from laconic_studies.inference.standing import Standing
from laconic_studies.inference.views import Moment

_MOST_ROWS = 1000
_RIDGE = 1e-3
"""Without noise, directions in which clients hardly differ are trusted up to this share of the mean variance."""


def matched_filter(expected: Tensor, others: Tensor, count: int, noise_variance: float) -> Tensor:
    """(count·Σ + ν·I)⁻¹·e of length 1, with Σ from some others' codes (rows, m).

    By Woodbury's identity the system has the size of the rows, not of the code.
    """
    rows = (others[:: max(1, len(others) // _MOST_ROWS)] - others.mean(0)).double()
    scaled = rows * (count / max(1, len(rows) - 1)) ** 0.5
    spread = float(scaled.square().sum()) / scaled.shape[1]
    nu = max(noise_variance, _RIDGE * spread, 1e-30)
    system = scaled @ scaled.T + nu * torch.eye(len(rows), dtype=torch.float64, device=rows.device)
    e = expected.double()
    whitened = e - scaled.T @ torch.linalg.solve(system, scaled @ e)
    return unit(whitened).to(expected.dtype)


def unit(vector: Tensor) -> Tensor:
    """The vector of length 1 in the same direction; zeros stay zeros."""
    scaled: Tensor = vector / torch.linalg.vector_norm(vector, dim=-1, keepdim=True).clamp(min=1e-30)
    return scaled


def largest_cosine(codes: Tensor, expected: Tensor) -> Tensor:
    """max_k cos(code_k, e) of codes (trials, clients, m), all less what they have in common.

    An adversary who gets codes without names looks for the target's.
    """
    return (unit(codes) @ unit(expected)).max(dim=-1).values


@torch.no_grad()
def fit_of(model: FlatModel, weights: Tensor, records: Records) -> Tensor:
    """Mean over the records of −ln(e^loss − 1) for each of some weights (trials, n).

    For a cross-entropy that is the mean logit of the right class' probability, ln p/(1 − p), which is closer to a
    Gaussian than the loss (Carlini et al. 2022).
    """
    inputs, targets = dense(records.inputs), records.targets
    model.module.eval()

    def fit(flat: Tensor) -> Tensor:
        params = dict(zip(model.names, model.split(flat), strict=True))
        losses = model.loss(functional_call(model.module, params, (inputs,)), targets)
        return -torch.log(torch.expm1(losses.double().clamp(1e-9, 500))).mean()

    return torch.stack([fit(flat) for flat in weights])


VIEWS = {
    "single": "every code by itself, without a name (of a record's client: with its name)",
    "others": "the sum of the codes",
    "model": "the change of the weights",
    "loss": "the new model: how well it fits the target",
}
"""What is looked at. The first three are inner products with the target's expected code."""
_AT_ONCE = 1 << 23
"""Values of all codes of the trials that are looked at together."""
_LARGEST = 1 << 29


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What some clients send from one standing, for several draws of their batches: (draws, clients, m)."""

    standing: Standing
    codes: Tensor
    sizes: Tensor
    """How many records each client has."""

    @classmethod
    def of(cls, standing: Standing, draws: int, most: int) -> Pool:
        """At most so many of the clients."""
        e = standing.experiment
        clients = np.arange(min(most, e.population.num_clients))
        values = draws * len(clients) * standing.clients.code_size
        if values > _LARGEST:
            raise ConfigError(
                f"{len(clients)} clients' codes of {standing.clients.code_size:,} values, {draws} times, do not fit in"
                " memory: choose a smaller --model, or lower --pool"
            )
        codes = torch.stack([standing.bounded(None, clients, draw) for draw in range(draws)])
        sizes = torch.tensor([e.population.size(int(c)) for c in clients], device=codes.device)
        return cls(standing=standing, codes=codes, sizes=sizes)

    @property
    def num_clients(self) -> int:
        return len(self.sizes)

    def all_but(self, client: int | None) -> np.ndarray:
        every = np.arange(self.num_clients)
        return every if client is None else every[every != client]


@dataclass(frozen=True, kw_only=True)
class Victim:
    """Whom a trial is about: what it is expected to send, what its records are, and what it sends in a trial."""

    expected: Tensor
    """By how much the sum differs if it is there."""
    own: Tensor | None
    """Its code, to look for among codes without names; None if the server knows which one is the victim's."""
    records: Records
    client: int | None = None
    """Its place in the pool; others are never drawn from there."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Some rounds. `codes` (trials, m) are what the victim sends; None if it is not there.

    `draws` are the draws of batches of the others; `name` names the randomness.
    """

    victim: Victim
    codes: Tensor | None
    others: int
    draws: np.ndarray
    size: int
    """How many records the victim has."""
    name: tuple[str | int, ...]

    def __len__(self) -> int:
        return len(self.draws)


def statistics(pool: Pool, trials: Trials, views: tuple[str, ...], filters: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """One number a trial for every view."""
    found: dict[str, list[Tensor]] = {view: [] for view in views}
    for messages, sizes, number in _played(pool, trials):
        _look(pool.standing, trials, messages, sizes, number, filters, found)
    return {view: torch.cat(values).double().cpu().numpy() for view, values in found.items()}


def filters_for(pool: Pool, victim: Victim, others: int, training: slice) -> dict[str, Tensor]:
    """The directions in which the victim shows, of a single code and of the sum with so many others; the mean code.

    They are found from the draws that the adversary trained with.
    """
    standing = pool.standing
    scheme, size = standing.experiment.scheme, pool.codes.shape[-1]
    shares = pool.codes[training][:, pool.all_but(victim.client)].flatten(0, 1)
    noise = 0.0
    if scheme.noise.private:
        noise = (scheme.clip.sensitivity(size) * float(scheme.noise_multiplier or 0.0)) ** 2
    counts = counted(standing, pool.sizes[pool.all_but(victim.client)])
    each = matched_filter(victim.expected, shares, 1, noise / max(1, others))
    both = matched_filter(victim.expected, shares * float(counts.mean()), max(1, others), noise)
    return {"single": each, "others": both, "common": shares.mean(0)}


def counted(standing: Standing, sizes: Tensor) -> Tensor:
    """What clients with so many records count in a sum."""
    weights = [client_weight(standing.experiment.scheme, size) for size in sizes.flatten().tolist()]
    return torch.tensor(weights, device=sizes.device).reshape(sizes.shape)


def _played(pool: Pool, trials: Trials) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Messages (trials, clients, m) of some trials, how many records each client has, and the first one's number."""
    streams = pool.standing.clients.streams
    rng = streams.numpy(*trials.name, "others")
    eligible, size = pool.all_but(trials.victim.client), pool.codes.shape[-1]
    members = trials.others + (trials.codes is not None)
    at_once = max(1, _AT_ONCE // max(1, members * size))
    for start in range(0, len(trials), at_once):
        draws = trials.draws[start : start + at_once]
        drawn = np.argsort(rng.random((len(draws), len(eligible))), axis=1)[:, : trials.others]
        chosen = torch.from_numpy(eligible[drawn])
        codes = pool.codes[torch.from_numpy(draws)[:, None], chosen]
        sizes = pool.sizes[chosen]
        if trials.codes is not None:
            codes = torch.cat([trials.codes[start : start + len(draws), None], codes], dim=1)
            sizes = torch.cat([torch.full_like(sizes[:, :1], trials.size), sizes], dim=1)
        stream = streams.stream(*trials.name, "noise", start)
        flat = pool.standing.messages(codes.flatten(0, 1), stream, members)
        yield flat.reshape(len(draws), members, size), sizes, start


def _look(
    standing: Standing,
    trials: Trials,
    messages: Tensor,
    sizes: Tensor,
    first: int,
    filters: dict[str, Tensor],
    found: dict[str, list[Tensor]],
) -> None:
    moment = standing.moment(messages.shape[1])
    if "single" in found:
        read = moment.single(messages.flatten(0, 1)).reshape(messages.shape)
        own, common = trials.victim.own, filters["common"]
        if own is None:
            found["single"].append(read[:, 0] @ filters["single"])
        else:
            found["single"].append(largest_cosine(read - common, own - common))
    if "others" in found:
        if messages.is_floating_point():
            totals = (counted(standing, sizes)[..., None] * messages).sum(1)
        else:  # integers come from private schemes, in which clients count alike
            totals = moment.single(messages.sum(1))
        found["others"].append(totals @ filters["others"])
    if "model" in found or "loss" in found:
        stream = standing.clients.streams.stream(*trials.name, "release", first)
        stacked = _changes(standing, moment, messages, sizes, stream)
        if "model" in found:
            found["model"].append(stacked @ moment.in_weights(filters["others"]))
        if "loss" in found:
            found["loss"].append(fit_of(standing.clients.model, standing.weights + stacked, trials.victim.records))


def _changes(standing: Standing, moment: Moment, messages: Tensor, sizes: Tensor, stream: Stream) -> Tensor:
    """The change of the weights in each trial, (trials, n).

    A solver takes as long for a thousand codes as for ten. So DCT codes are decoded together, by the same rule.
    """
    scheme, plan = moment.scheme, moment.plan
    if not isinstance(scheme.codec, LowPassDCT):
        each = zip(messages, sizes, strict=True)
        return torch.stack([moment.model(*one, stream.fork(f"trial {number}")) for number, one in enumerate(each)])
    if scheme.noise.private:
        sensitivity, came = scheme.clip.sensitivity(messages.shape[-1]), messages.shape[1]
        total = scheme.noise.released(messages.sum(1), sensitivity=sensitivity, plan=plan, survivors=came, rng=stream)
        means = total / plan.planned_cohort
    else:
        counts = counted(standing, sizes)
        means = (counts[..., None] * messages).sum(1) / counts.sum(1, keepdim=True)
    change, _ = scheme.rule.step(means, moment.state, scheme.codec, len(moment.weights), plan)
    return change


_REFERENCES = 16
"""Other clients that the adversary trains in each round, to know what is common to all."""


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """One run from a standing: whose membership is asked, and whether another one is there if it is not."""

    start: Standing
    target: int
    rounds: int
    replaced: bool
    pool: int

    def statistics(self, views: tuple[str, ...], member: bool, name: tuple[str | int, ...]) -> dict[str, float]:
        """One number for each view, over all rounds."""
        standing, found = self.start, dict.fromkeys(views, 0.0)
        rng = standing.clients.streams.numpy(*name, "cohorts")
        for _ in range(self.rounds):
            standing = self._round(standing, member, rng, name, found)
        if "loss" in found:
            records = standing.records(self.target)
            found["loss"] = float(fit_of(standing.clients.model, standing.weights[None], records))
        return found

    def _round(
        self,
        standing: Standing,
        member: bool,
        rng: np.random.Generator,
        name: tuple[str | int, ...],
        found: dict[str, float],
    ) -> Standing:
        """Play a round and look at it; where the federation stands after it."""
        streams = standing.clients.streams
        eligible = np.delete(np.arange(self.pool), self.target)
        draw = int(rng.integers(1 << 40))
        others = standing.size - (0 if self.replaced and not member else 1)
        cohort = np.sort(rng.choice(eligible, size=others, replace=False))
        if member:
            cohort = np.sort(np.append(cohort, self.target))
        codes = standing.bounded(None, cohort, draw)
        messages = standing.messages(codes, streams.stream(*name, standing.round, "noise"), len(cohort))
        sizes = torch.tensor([standing.experiment.population.size(int(client)) for client in cohort])
        moment = standing.moment(len(cohort))
        stream = streams.stream(*name, standing.round, "release")
        updated, state = moment.step(messages, sizes, stream)
        if set(found) - {"loss"}:
            own, common = self._expected(standing, rng, eligible)
            direction = unit(own - common if self.replaced else own)
            if "single" in found:
                found["single"] += float(largest_cosine((moment.single(messages) - common)[None], own - common))
            if "others" in found:
                found["others"] += float(moment.others(messages, sizes) @ direction)
            if "model" in found:
                found["model"] += float((updated - standing.weights) @ moment.in_weights(direction))
        return replace(standing, weights=updated, state=state, round=standing.round + 1)

    def _expected(self, standing: Standing, rng: np.random.Generator, eligible: np.ndarray) -> tuple[Tensor, Tensor]:
        """What the target would send from these weights, with other batches; and what others send on average."""
        draw = int(rng.integers(1 << 40))
        others = rng.choice(eligible, size=min(_REFERENCES, len(eligible)), replace=False)
        codes = standing.bounded(None, np.append(others, self.target), draw)
        return codes[-1], codes[:-1].mean(0)
