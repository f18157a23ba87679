"""Gradient matching: search records whose code is that of the victim (Zhu et al. 2019; Geiping et al. 2020).

    min over x of 1 − cos(code(x), c) + λ·TV(x),    x in [0, 1]

code(x) is what a client with the records x would send: its local steps, by automatic differentiation, through the
scheme's own linear encoder. A cosine does not see the scale, so a clip does not matter. A sign has no derivative; in
its place is tanh(Δw/τ), with τ a part of the root mean square of Δw. Adam descends from several random starts at
once, and the one with the smallest distance counts.

Before any code is seen it is known that neighbouring pixels are alike; some guesses need no code at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.parts import non_negative, positive, positive_int
from laconic.plan import RoundPlan
from laconic.scheme import Scheme
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD


def total_variation(pictures: Tensor) -> Tensor:
    """Mean |difference| of neighbours, down and across, for each of (..., channels, height, width) (Rudin et al. 1992).

    Other inputs have no neighbours: 0.
    """
    if pictures.ndim < 4:
        return pictures.flatten(1).sum(1) * 0
    down = (pictures[..., 1:, :] - pictures[..., :-1, :]).abs().mean((-3, -2, -1))
    across = (pictures[..., 1:] - pictures[..., :-1]).abs().mean((-3, -2, -1))
    return down + across


def mean_picture(known: Records, count: int) -> Tensor:
    """The mean of pictures that are no client's, so many times: the best guess if nothing is known."""
    inputs = known.inputs
    assert isinstance(inputs, Tensor)
    return inputs.mean(0, keepdim=True).expand(count, *inputs.shape[1:])


def random_pictures(known: Records, labels: Tensor, rng: np.random.Generator) -> Tensor:
    """For each label a picture of that class that is no client's: what an adversary guesses who knows the labels."""
    inputs = known.inputs
    assert isinstance(inputs, Tensor)
    rows = []
    for label in labels.tolist():
        of_class = torch.nonzero(known.targets == label).flatten()
        of_class = of_class if len(of_class) else torch.arange(len(known.targets))
        rows.append(int(of_class[int(rng.integers(len(of_class)))]))
    return inputs[rows]


_SOFTNESS = 0.3
"""τ as a part of the root mean square of Δw."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """How it is searched."""

    iterations: int = 600
    step: float = 0.05
    restarts: int = 2
    total_variation: float = 0.01

    def __post_init__(self) -> None:
        positive_int(iterations=self.iterations, restarts=self.restarts)
        positive(step=self.step)
        non_negative(total_variation=self.total_variation)


@dataclass(frozen=True)
class Client:
    """What a client with given records would send, as a differentiable function of the records."""

    scheme: Scheme
    plan: RoundPlan
    model: FlatModel
    weights: Tensor

    def updates(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Δw (clients, n) of clients with the records (clients, batch, ...): so many steps on all of them."""
        train = self.scheme.train
        assert isinstance(train, LocalSGD)
        steps = int(train.steps_of(np.array([inputs.shape[1]]))[0])
        share = torch.full((inputs.shape[1],), 1 / inputs.shape[1], device=inputs.device)
        key = torch.zeros((), dtype=torch.int64, device=inputs.device)
        support = self.scheme.codec.support(len(self.weights), self.plan)
        moves = None
        if support is not None:
            moves = torch.zeros_like(self.weights)
            moves[support.to(moves.device)] = 1.0

        def one(x: Tensor, y: Tensor) -> Tensor:
            flat = self.weights
            for _ in range(steps):
                gradient = grad(lambda w: self._loss(w, x, y, share, key))(flat)
                flat = flat - train.local_lr * (gradient if moves is None else gradient * moves)
            return flat - self.weights

        result: Tensor = vmap(one)(inputs, targets)
        return result

    def _loss(self, flat: Tensor, x: Tensor, y: Tensor, share: Tensor, key: Tensor) -> Tensor:
        return self.model.mean_loss(dict(zip(self.model.names, self.model.split(flat), strict=True)), x, y, share, key)

    def codes(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Their codes, without clip and noise; of signs a smooth stand-in."""
        updates = self.updates(inputs, targets)
        if self.scheme.codec.linear:
            return self.scheme.codec.encode(updates, self.plan, [])
        size = updates.detach().square().mean(-1, keepdim=True).sqrt()
        return torch.tanh(updates / (_SOFTNESS * size).clamp(min=1e-20))


def check_matchable(scheme: Scheme, batch: int) -> None:
    """Refuse local training that the search cannot repeat without knowing the order of the batches."""
    train = scheme.train
    if not isinstance(train, LocalSGD) or train.optimizer != "sgd" or train.balance != "none":
        raise ConfigError(f"{scheme.name}: reconstruction repeats plain local SGD; use --optimizer sgd, no --balance")
    if train.batch_size is not None and train.batch_size < batch:
        raise ConfigError(
            f"--batch-size {train.batch_size} splits the {batch} records of a victim into batches in an unknown order:"
            " use --batch-size all"
        )


def matched(
    client: Client,
    seen: Tensor,
    targets: Tensor,
    shape: tuple[int, ...],
    search: Search,
    rng: np.random.Generator,
    progress: Callable[[int], None] = lambda iteration: None,
) -> tuple[Tensor, Tensor]:
    """Reconstructions (victims, batch, ...) from what is seen of each (victims, m), and how far their codes are.

    `targets` (victims, batch) are the labels.
    """
    count, batch = targets.shape
    starts = rng.random((search.restarts * count, batch, *shape), dtype=np.float32)
    guess = torch.from_numpy(starts).to(seen.device).requires_grad_(True)
    labels, wanted = targets.repeat(search.restarts, 1), seen.repeat(search.restarts, 1)
    optimizer = torch.optim.Adam([guess], lr=search.step)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, search.iterations)
    for iteration in range(search.iterations):
        optimizer.zero_grad()
        distance = 1 - torch.cosine_similarity(client.codes(guess, labels), wanted, dim=-1)
        prior = total_variation(guess.flatten(0, 1)).reshape(-1, batch).mean(1)
        (distance + search.total_variation * prior).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            guess.clamp_(0, 1)
        progress(iteration + 1)
    with torch.no_grad():
        distance = 1 - torch.cosine_similarity(client.codes(guess, labels), wanted, dim=-1)
        by_start = distance.reshape(search.restarts, count)
        best = by_start.argmin(0)
        chosen = guess.reshape(search.restarts, count, batch, *shape)[best, torch.arange(count)]
    return chosen.detach(), by_start.min(0).values
