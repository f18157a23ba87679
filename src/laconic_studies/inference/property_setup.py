"""From names and numbers to an attack: the data set, the property, the model, and who holds what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from laconic.data.inputs import Inputs, dense
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.data.sources import load_source
from laconic.errors import ConfigError
from laconic.models.registry import build_model, default_model
from laconic.parts import non_negative_int, positive_int
from laconic.scheme import Scheme
from laconic.settings.data.datasets import source_info, unknown_dataset
from laconic.streams import Streams
from laconic_studies.inference.property import Guess, PropertyAttack, PropertyInference, PropertyResult, Watch
from laconic_studies.inference.property_data import Batches, dealt, property_of

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
