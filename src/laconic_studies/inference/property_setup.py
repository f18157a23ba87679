"""From names and numbers to an attack: the data set, the property, the model, and who holds what.

No two participants share a record. Of the records with the property the attacker holds 30 % and the victim the rest.
Of those without it the attacker holds 30 %, the victim as many as it has with the property (but half of what is left
at most), and the other participants the rest. Records of which the property is not known go to the other
participants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from laconic.data.inputs import Inputs, dense
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.data.sources import load_source
from laconic.errors import ConfigError, DataError, unknown
from laconic.models.registry import build_model, default_model
from laconic.parts import non_negative_int, positive_int
from laconic.scheme import Scheme
from laconic.settings.data.datasets import source_info, unknown_dataset
from laconic.streams import Streams
from laconic_studies.inference.property import Guess, PropertyAttack, PropertyInference, PropertyResult, Watch

_AUXILIARY = 0.3
"""The attacker's share of all records with the property, and of those without."""
OWN_SHARE = 0.2
"""How much of the attacker's own batches has the property, as cited."""
_NOT = "not-"


def property_of(source: Source, name: str) -> np.ndarray:
    """Whether each training record has the property: 1, 0, or −1 where it is not known. 'not-NAME' is the opposite."""
    plain = name.removeprefix(_NOT)
    if not source.attributes:
        raise ConfigError(
            f"--dataset {source.name} says nothing of its records besides the task, so there is no property to infer:"
            " use lfw, faces or a data set of yours with attributes"
        )
    if plain not in source.attributes:
        raise ConfigError(unknown("property", plain, source.attributes) + f" (write {_NOT}NAME for the opposite)")
    values = np.asarray(source.attributes[plain]).astype(np.int64)
    known, task = values >= 0, source.train.targets.numpy()
    if not known.any() or len(np.unique(values[known])) < 2:
        raise DataError(
            f"--property {name}: all records whose '{plain}' is known are alike, so nothing can be inferred"
        )
    if source.num_classes == 2 and (values[known] == task[known]).all() | (values[known] == 1 - task[known]).all():
        raise ConfigError(f"--property {name} is the main task itself: choose a property other than what is trained")
    return np.where(known, 1 - values, -1) if name != plain else values


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """The numbers of the records that each participant holds; public records are no participant's."""

    victim_with: np.ndarray
    victim_without: np.ndarray
    attacker_with: np.ndarray
    attacker_without: np.ndarray
    others: tuple[np.ndarray, ...]
    public: np.ndarray


def dealt(
    has: np.ndarray, *, participants: int, records: int, public_records: int, rng: np.random.Generator
) -> Holdings:
    """Deal out the records; every participant must have enough for a batch of so many `records`."""
    order = rng.permutation(len(has))
    public, order = order[:public_records], order[public_records:]
    having, lacking, open_ = (order[has[order] == value] for value in (1, 0, -1))
    mine, mine_not = round(_AUXILIARY * len(having)), round(_AUXILIARY * len(lacking))
    rest = lacking[mine_not:]
    taken = min(len(having) - mine, len(rest) // 2) if participants > 2 else min(len(having) - mine, len(rest))
    left = np.concatenate([rest[taken:], open_])
    found = Holdings(
        victim_with=having[mine:],
        victim_without=rest[:taken],
        attacker_with=having[:mine],
        attacker_without=lacking[:mine_not],
        others=tuple(np.array_split(left, participants - 2)) if participants > 2 else (),
        public=public,
    )
    held = {
        "the victim with the property": found.victim_with,
        "the victim without it": found.victim_without,
        "the attacker with the property": found.attacker_with,
        "the attacker without it": found.attacker_without,
        **{f"participant {number}": rows for number, rows in enumerate(found.others, start=2)},
    }
    who, fewest = min(held.items(), key=lambda entry: len(entry[1]))
    if len(fewest) < records:
        raise DataError(
            f"too few records: there are {len(fewest):,} for {who}, but a batch takes {records}:"
            " lower --records or --participants, or choose another --property"
        )
    return found


class Batches:
    """Batches of so many `records`, each drawn without repetition.

    With `match_labels` batches without the property have the labels of those with it: the numbers of each label are
    drawn as they are among the victim's (or the attacker's) records with the property. What is inferred is then the
    property, and not that one gender has it more often.
    """

    def __init__(self, holdings: Holdings, targets: np.ndarray, *, records: int, match_labels: bool) -> None:
        self.holdings, self.records = holdings, records
        self._targets, self._match = targets, match_labels
        if match_labels:
            self._check_labels()

    def victim(self, with_property: bool, rng: np.random.Generator) -> np.ndarray:
        held = self.holdings
        if with_property:
            return rng.choice(held.victim_with, self.records, replace=False)
        return self._without(held.victim_without, held.victim_with, self.records, rng)

    def attacker(self, rng: np.random.Generator) -> np.ndarray:
        """What the attacker itself trains on, as a participant."""
        return self.emulated(OWN_SHARE, rng)

    def other(self, number: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.holdings.others[number], self.records, replace=False)

    def emulated(self, share: float, rng: np.random.Generator) -> np.ndarray:
        """A batch of the attacker's auxiliary data of which this share has the property."""
        held, count = self.holdings, round(share * self.records)
        having = rng.choice(held.attacker_with, count, replace=False)
        lacking = self._without(held.attacker_without, held.attacker_with, self.records - count, rng)
        return np.concatenate([having, lacking])

    def _without(self, pool: np.ndarray, like: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        if not self._match:
            return rng.choice(pool, count, replace=False)
        labels = self._targets[rng.choice(like, count, replace=False)]
        rows = [
            rng.choice(pool[self._targets[pool] == label], number, replace=False)
            for label, number in zip(*np.unique(labels, return_counts=True), strict=True)
        ]
        return np.concatenate([*rows, np.zeros(0, dtype=np.int64)])

    def _check_labels(self) -> None:
        """Every label of records with the property must be there often enough without it."""
        held = self.holdings
        for pool, like in ((held.victim_without, held.victim_with), (held.attacker_without, held.attacker_with)):
            for label in np.unique(self._targets[like]):
                there = int((self._targets[pool] == label).sum())
                if there < min(self.records, int((self._targets[like] == label).sum())):
                    raise DataError(
                        f"--match-labels needs records of class {label} without the property, but only {there} are in"
                        " one hand: lower --records, or leave --match-labels out"
                    )


_SMALLEST_FACE = 22
"""Pixels: the least that the network for faces takes."""


@dataclass(frozen=True, kw_only=True)
class PropertySetup:
    """The data and the model of the attack; `attribute` is the property, 'not-NAME' its opposite.

    `records` is how many each participant draws in a round. `shrink` makes pictures smaller: the mean of so many pixels
    in each direction. `public_records` are set aside for schemes that choose weights with public data.
    """

    dataset: str = "lfw"
    attribute: str = "black"
    data_dir: str | None = None
    model: str = "auto"
    records: int = 32
    match_labels: bool = False
    shrink: int = 1
    public_records: int = 10

    def __post_init__(self) -> None:
        positive_int(records=self.records, shrink=self.shrink)
        non_negative_int(public_records=self.public_records)

    @property
    def info(self) -> SourceInfo:
        info = source_info(self.dataset)
        if info is None:
            raise ConfigError(unknown_dataset(self.dataset))
        return info

    def prepared(self) -> Prepared:
        """Load the data; a property that cannot be inferred is refused."""
        source = load_source(self.info, self.data_dir)
        has = property_of(source, self.attribute)
        train, test = (Records(shrunk(r.inputs, self.shrink), r.targets) for r in (source.train, source.test))
        return Prepared(setup=self, source=source, has=torch.from_numpy(has), train=train, test=test)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Loaded data, for any number of attacks."""

    setup: PropertySetup
    source: Source
    has: torch.Tensor
    train: Records
    test: Records

    @property
    def stand_in_for(self) -> str | None:
        """The data set that cannot be had, where this one takes its place."""
        return self.setup.info.stand_in_for

    @property
    def model_name(self) -> str:
        shape = tuple(self.train.inputs.shape[1:])
        if self.setup.model != "auto":
            return self.setup.model
        if len(shape) == 3 and min(shape[1:]) >= _SMALLEST_FACE:
            return "lfw-cnn"
        return default_model(shape)

    def model(self, seed: int) -> nn.Module:
        return build_model(
            self.model_name,
            input_shape=tuple(self.train.inputs.shape[1:]),
            num_classes=self.source.num_classes,
            seed=Streams(seed).public_seed("model"),
        )

    def batches(self, settings: PropertyInference) -> Batches:
        holdings = dealt(
            self.has.numpy(),
            participants=settings.participants,
            records=self.setup.records,
            public_records=self.setup.public_records,
            rng=Streams(settings.seed).numpy("property", "holdings"),
        )
        targets = self.train.targets.numpy()
        return Batches(holdings, targets, records=self.setup.records, match_labels=self.setup.match_labels)

    def attacked(
        self,
        scheme: Scheme,
        settings: PropertyInference,
        *,
        device: torch.device | None = None,
        watch: Watch = lambda done, of: None,
    ) -> PropertyResult:
        """Run the attack on a scheme."""
        attack = PropertyAttack(
            scheme, self.model(settings.seed), self.train, self.batches(settings), settings, device=device
        )
        return attack.run(self.test, watch)

    def row(self, scheme: Scheme, settings: PropertyInference, result: PropertyResult, guess: Guess) -> dict[str, Any]:
        """One line of a table: what was attacked and how, and what came out."""
        codec = scheme.codec
        return {
            "dataset": self.setup.dataset,
            "stand_in_for": self.stand_in_for or "",
            "property": self.setup.attribute,
            "labels_matched": self.setup.match_labels,
            "model": self.model_name,
            "shrink": self.setup.shrink,
            "scheme": scheme.name,
            "ratio": getattr(codec, "ratio", 1.0),
            "noise_multiplier": "" if scheme.noise_multiplier is None else scheme.noise_multiplier,
            "clip_norm": getattr(scheme.clip, "clip_norm", ""),
            "participants": settings.participants,
            "warm_up": settings.warm_up,
            "rounds": settings.rounds,
            "emulate_every": settings.emulate_every,
            "seed": settings.seed,
            "view": guess.view,
            "features": guess.features,
            "classifier": guess.classifier,
            "emulation": settings.emulation if scheme.noise.private else "",
            **guess.score.flat(),
            "model_accuracy": "" if result.accuracy is None else round(result.accuracy, 4),
        }


def shrunk(inputs: Inputs, factor: int) -> Inputs:
    """Pictures with the mean of factor × factor pixels for each; what is left over at the border is dropped."""
    if factor == 1:
        return inputs
    if inputs.ndim != 4:
        raise ConfigError(f"--shrink {factor} is for pictures, not for records of {tuple(inputs.shape[1:])}")
    if min(inputs.shape[2:]) < factor:
        raise ConfigError(f"--shrink {factor} leaves nothing of pictures of {inputs.shape[2]} × {inputs.shape[3]}")
    return functional.avg_pool2d(dense(inputs), factor)
