"""The whole attack: victims, the search, and how like the records its results are.

A victim is a client with few records. The label of a single record follows from its update (Zhao et al. 2020, iDLG).
For a cross-entropy of a softmax the gradient of the last bias is p − onehot(y): negative at the label alone. One step
of descent turns signs around, so the bias of the label is the only one that grows. A vector of signs tells as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import PooledPopulation, Records, pooled_records
from laconic.errors import ConfigError, DataError, several, unknown
from laconic.experiment.experiment import Experiment
from laconic.parts import positive_int
from laconic.train.flat import FlatModel
from laconic_studies.inference.reconstruction.matching import (
    Client,
    Search,
    check_matchable,
    matched,
    mean_picture,
    random_pictures,
)
from laconic_studies.inference.standing import Standing
from laconic_studies.inference.views import Moment

BEST = 60.0
"""dB at which two pictures count as the same: all above is rounding."""


def psnr(guess: Tensor, truth: Tensor) -> Tensor:
    """10·log₁₀(1/MSE) in dB for pictures with values from 0 to 1, over all but the first axis; 60 at most."""
    error = (guess - truth).flatten(1).double().square().mean(1)
    return (-10 * torch.log10(error.clamp(min=10 ** (-BEST / 10)))).to(torch.float64)


def correlation(guess: Tensor, truth: Tensor) -> Tensor:
    """Pearson's, over all but the first axis: signs tell shapes, but not how bright they are; 0 for a constant."""
    a, b = ((x.flatten(1).double() - x.flatten(1).double().mean(1, keepdim=True)) for x in (guess, truth))
    lengths: Tensor = torch.linalg.vector_norm(a, dim=1) * torch.linalg.vector_norm(b, dim=1)
    return (a * b).sum(1) / lengths.clamp(min=1e-12)


def assigned(guesses: Tensor, truth: Tensor) -> Tensor:
    """The guesses (batch, ...) in the order of the records they fit best: a sum of gradients has no order.

    The assignment has the smallest squared error in all.
    """
    from scipy.optimize import linear_sum_assignment

    costs = torch.cdist(truth.flatten(1).double(), guesses.flatten(1).double()).square()
    _, columns = linear_sum_assignment(costs.cpu().numpy())
    return guesses[torch.from_numpy(np.asarray(columns)).to(guesses.device)]


def inferred_labels(model: FlatModel, moment: Moment, codes: Tensor) -> Tensor:
    """For each of the codes (victims, m) the class whose output bias grows most, (victims,)."""
    name = model.names[-1]
    if model.shapes[-1] != (model.num_classes,) or model.num_classes < 3:
        raise ConfigError(
            "labels are inferred from the last layer's bias for each class, which this model lacks: --labels known"
        )
    return torch.stack([moment.in_weights(code)[model.places[name]] for code in codes]).argmax(1)


VIEWS = {
    "single": "the code of the victim; under noise with its own share of it",
    "others": "the sum of the cohort's codes, with the whole noise",
}


@dataclass(frozen=True, kw_only=True)
class Victims:
    """Some clients with `batch` records each, drawn at random from all records; and others like them for their cohorts.

    `seen` has what is to be seen of each of them, (victims, m) by view.
    """

    inputs: Tensor
    targets: Tensor
    seen: dict[str, Tensor]

    @classmethod
    def of(cls, standing: Standing, count: int, batch: int, views: tuple[str, ...]) -> Victims:
        """So many of them. All others in a cohort hold as many records."""
        streams, size = standing.clients.streams, standing.size
        every = pictures_of(standing)
        rng = streams.numpy("reconstruction", "victims", batch)
        cohorts = 1 if "others" not in views else size
        wanted = count * cohorts * batch
        if count * batch > len(every.targets):
            raise ConfigError(f"{count} victims of {batch} records are more than all: lower --victims or --batches")
        order = np.concatenate([rng.permutation(len(every.targets)) for _ in range(-(-wanted // len(every.targets)))])
        rows = order[:wanted].reshape(cohorts * count, batch)  # the victims are first, and have no record in common
        codes = standing.bounded(PooledPopulation(every, rows), np.arange(len(rows)))
        messages = standing.messages(codes, streams.stream("reconstruction", "noise", batch), size)
        moment, held = standing.moment(size), torch.full((size,), batch)
        seen = {}
        if "single" in views:
            seen["single"] = moment.single(messages[:count])
        if "others" in views:
            by_cohort = messages.reshape(cohorts, count, -1).transpose(0, 1)
            seen["others"] = torch.stack([moment.others(cohort, held) for cohort in by_cohort])
        chosen = every.some(rows[:count].reshape(-1))
        assert isinstance(chosen.inputs, Tensor)
        device = codes.device
        inputs = chosen.inputs.reshape(count, batch, *chosen.inputs.shape[1:]).to(device)
        return cls(inputs=inputs, targets=chosen.targets.reshape(count, batch).to(device), seen=seen)


def pictures_of(standing: Standing) -> Records:
    """All clients' records, refused if they are not classified inputs with values from 0 to 1."""
    if standing.experiment.front_end is not None:
        raise ConfigError("reconstruction searches inputs of the model, not of a front end: leave --front-end out")
    every = pooled_records(standing.experiment.population)
    if not isinstance(every.inputs, Tensor) or not every.inputs.is_floating_point():
        raise DataError("reconstruction needs dense real inputs, such as pictures: choose another --dataset")
    if every.targets.is_floating_point() or every.targets.ndim != 1:
        raise DataError("reconstruction needs one class for each record: choose another --dataset")
    if float(every.inputs.min()) < 0 or float(every.inputs.max()) > 1:
        raise DataError("reconstruction searches inputs from 0 to 1, and these are not: scale the --dataset")
    return every


LABELS = ("known", "inferred")


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """What is attacked: batches of which sizes, and how many of each."""

    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    victims: int = 8
    views: tuple[str, ...] = ("single",)
    labels: str = "known"
    """Whether the attacker is told the labels, or infers them from the code (batches of one record only)."""
    after: int = 0
    search: Search = field(default_factory=Search)

    def __post_init__(self) -> None:
        positive_int(victims=self.victims, **{f"batches ({size})": size for size in self.batches})
        problems = [unknown("view", view, VIEWS) for view in self.views if view not in VIEWS]
        if self.labels not in LABELS:
            problems.append(unknown("kind of --labels", self.labels, LABELS))
        if self.labels == "inferred" and set(self.batches) != {1}:
            problems.append("labels can be inferred for one record: use --batches 1, or --labels known")
        if self.after < 0:
            problems.append(f"--after {self.after}: give a number of rounds, 0 or more")
        if problems:
            raise ConfigError(several(problems))


@dataclass(frozen=True, kw_only=True)
class Reconstructed:
    """What was found for the victims of one batch size; pictures are (victims, batch, ...)."""

    scheme: str
    view: str
    inputs: Tensor
    guesses: Tensor
    mean: Tensor
    random: Tensor
    distance: Tensor
    right_labels: float | None

    @property
    def psnr(self) -> Tensor:
        """Of every record."""
        return psnr(self.guesses.flatten(0, 1), self.inputs.flatten(0, 1))

    def row(self) -> dict[str, Any]:
        """Plain numbers, for a table."""
        truth, batch = self.inputs.flatten(0, 1), self.inputs.shape[1]
        by_mean, by_random = (psnr(other.flatten(0, 1), truth) for other in (self.mean, self.random))
        by_victim = self.psnr.reshape(-1, batch).mean(1)
        spread = float(by_victim.std()) if len(by_victim) > 1 else 0.0
        return {
            "scheme": self.scheme,
            "view": self.view,
            "batch": batch,
            "victims": len(self.inputs),
            "psnr": float(by_victim.mean()),
            "psnr_error": spread / math.sqrt(len(by_victim)),
            "psnr_mean": float(by_mean.mean()),
            "psnr_random": float(by_random.mean()),
            "correlation": float(correlation(self.guesses.flatten(0, 1), truth).mean()),
            "correlation_mean": float(correlation(self.mean.flatten(0, 1), truth).mean()),
            "correlation_random": float(correlation(self.random.flatten(0, 1), truth).mean()),
            "better_than_mean": float((self.psnr > by_mean + 1).double().mean()),
            "distance": float(self.distance.mean()),
            "right_labels": self.right_labels,
        }


def reconstruct(
    experiment: Experiment,
    *,
    attack: Reconstruction | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Reconstructed]:
    """Attack one scheme; one result for each batch size and view."""
    attack = attack or Reconstruction()
    check_matchable(experiment.scheme, max(attack.batches))
    if experiment.test is None:
        raise DataError("reconstruction compares with pictures that are no client's: it needs test records")
    standing = Standing.after(experiment, attack.after)
    known = experiment.test.to(standing.clients.device)
    results = []
    for batch in attack.batches:
        victims = Victims.of(standing, attack.victims, batch, attack.views)
        for view, seen in victims.seen.items():
            title = f"{experiment.scheme.name}, {view}, batches of {batch}"
            results.append(_searched(standing, attack, victims, view, seen, known, title, progress))
    return results


def _searched(
    standing: Standing,
    attack: Reconstruction,
    victims: Victims,
    view: str,
    seen: Tensor,
    known: Records,
    title: str,
    progress: Callable[[str], None],
) -> Reconstructed:
    e, streams = standing.experiment, standing.clients.streams
    count, batch = victims.targets.shape
    moment = standing.moment(standing.size)
    targets, right = victims.targets, None
    if attack.labels == "inferred":
        targets = inferred_labels(standing.clients.model, moment, seen)[:, None]
        right = float((targets == victims.targets).double().mean())
    iterations = attack.search.iterations
    found, distance = matched(
        Client(e.scheme, moment.plan, standing.clients.model, standing.weights),
        seen,
        targets,
        tuple(victims.inputs.shape[2:]),
        attack.search,
        streams.numpy("reconstruction", "starts", batch, view),
        lambda iteration: progress(f"{title}: {iteration}/{iterations}"),
    )
    rng = streams.numpy("reconstruction", "random pictures", batch)
    random = random_pictures(known, victims.targets.flatten(), rng).reshape(victims.inputs.shape)
    mean = mean_picture(known, count * batch).reshape(victims.inputs.shape)
    return Reconstructed(
        scheme=e.scheme.name,
        view=view,
        inputs=victims.inputs,
        guesses=_in_order(found, victims.inputs),
        mean=mean,
        random=_in_order(random, victims.inputs),
        distance=distance,
        right_labels=right,
    )


def _in_order(guesses: Tensor, truth: Tensor) -> Tensor:
    """Within each batch, what fits best to what."""
    return torch.stack([assigned(g, t) for g, t in zip(guesses, truth, strict=True)])


def as_pictures(inputs: Tensor) -> np.ndarray:
    """(count, channels, height, width) for display."""
    pictures = inputs.detach().cpu().numpy()
    return pictures[:, 0] if pictures.shape[1] == 1 else np.moveaxis(pictures, 1, -1)
