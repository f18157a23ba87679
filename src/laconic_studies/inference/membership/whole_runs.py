"""Was a client in the run? Whole short runs, with the target in every round or in none, and what is to be seen of all.

Every run is trained anew, since the weights of each round follow from the rounds before. So it is played less often
than a single round. Statistics of the rounds are added up: their noise is independent. The loss is that of the last
model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from laconic_studies.inference.membership.statistics import fit_of, largest_cosine, unit
from laconic_studies.inference.standing import Standing

_REFERENCES = 16
"""Other clients that the adversary trains in each round, to know what is common to all."""


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """One run from a standing: whose membership is asked, and whether somebody else is there if it is not."""

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
