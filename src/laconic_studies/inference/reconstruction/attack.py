"""The whole attack: victims, the search, and how like the records its results are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import Records
from laconic.errors import ConfigError, DataError, several, unknown
from laconic.experiment.experiment import Experiment
from laconic.parts import positive_int
from laconic_studies.inference.reconstruction.labels import inferred_labels
from laconic_studies.inference.reconstruction.likeness import assigned, correlation, psnr
from laconic_studies.inference.reconstruction.matching import Client, Search, check_matchable, matched
from laconic_studies.inference.reconstruction.priors import mean_picture, random_pictures
from laconic_studies.inference.reconstruction.victims import VIEWS, Victims
from laconic_studies.inference.standing import Standing

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
