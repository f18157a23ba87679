"""What the newest model that a node has got says about new records of its owner. Nothing leaves the node.

A node gets the weights at the beginning of a round, and keeps them if its owner wants (`laconic node serve
--keep-weights`). Where the last round of a run is an evaluation, they are the finished model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.files.frames import read_frame
from laconic.data.files.user_file import suffix
from laconic.data.inputs import dense
from laconic.errors import ConfigError, RunFolderError
from laconic.experiment.prior import Prior
from laconic.features.population import in_blocks
from laconic.federation.front_ends import kept_front_end
from laconic.federation.node.own_model import own_model
from laconic.federation.node.own_records import own_meaning
from laconic.federation.offer import Offer, check_meaning, read_offer
from laconic.federation.weights import check_model
from laconic.guard.folder import NodeFolder
from laconic.guard.transcript import JOINED
from laconic.options.sections import DataSection
from laconic.private import class_shares
from laconic.settings.data.new_records import NewRecords, read_new_records, read_patients
from laconic.settings.data.record_kind import RecordKind, schema_kind
from laconic.settings.predict import Predictions, said_of
from laconic.train.flat import FlatModel

WEIGHTS = "weights"
"""The name of the file in the folder of a run: the round in 4 bytes, then floats of 32 bits."""


@dataclass(frozen=True)
class KeptModel:
    """The weights of one run, as they were at the beginning of a round."""

    run: str
    round: int
    offer: Offer
    weights: Tensor
    front_end: Path
    """Where the node has it, if the run has one."""


def kept_model(folder: NodeFolder, run: str | None = None) -> KeptModel:
    """The model of the named run (the first digits of its name are enough), or of the last run that has one."""
    joined = [str(row["run"]) for row in folder.log.rows() if row["what"] == JOINED]
    named = [name for name in joined if run is None or name.startswith(run.lower())]
    if not named:
        known = ", ".join(name[:8] for name in joined) or "none"
        what = "has joined no run" if run is None else f"has joined no run {run}"
        raise RunFolderError(f"the node in {folder.path} {what}; its runs: {known}")
    if run is not None and len(set(named)) > 1:
        raise ConfigError(f"⟨run⟩ {run} is several runs: {', '.join(name[:16] for name in named)}")
    for name in reversed(named):
        data, offered = folder.kept(bytes.fromhex(name), WEIGHTS), folder.kept(bytes.fromhex(name), "offer")
        if data is None or offered is None:
            continue
        offer = read_offer(offered)[1]
        weights = torch.from_numpy(np.frombuffer(data[4:], dtype=np.float32).copy()) if len(data) % 4 == 0 else None
        if weights is None or len(weights) != offer.size or not bool(torch.isfinite(weights).all()):
            file = folder.path / name / WEIGHTS
            raise RunFolderError(f"{file} is damaged, or training diverged: it cannot predict; choose another ⟨run⟩")
        front_end = folder.file(bytes.fromhex(name), "front_end")
        return KeptModel(name, int.from_bytes(data[:4], "little"), offer, weights, front_end)
    raise RunFolderError(
        f"the node in {folder.path} has kept no weights of its runs: serve it with ⟨keep-weights⟩, and take part in a"
        " round"
    )


def predict_at_node(
    kept: KeptModel,
    data: Path,
    settings: Mapping[str, object],
    *,
    like: Path | None = None,
    model: str | None = None,
    front_end_module: str | None = None,
    prevalence: str | float | Sequence[float] = (),
) -> Predictions:
    """The predictions for every record in a file or folder of the owner's.

    Args:
        kept: the model.
        data: the new records.
        settings: those of `laconic node serve`, which say how records are read.
        like: a table that the node was served with: it says which columns a record has, and in which order.
        model: a factory of the owner's own, as `package.module:name`.
        front_end_module: the same for a front end.
        prevalence: shares of the classes to which a probability refers, if not those of training.
    """
    # Where records are plain numbers, the names of classes say nothing of them.
    said = {key: value for key, value in settings.items() if key != "classes" or kept.offer.meaning is not None}
    check_meaning(kept.offer, own_meaning({"data": str(data)} | said))
    kind, new = _read(kept.offer, data, settings, like)
    found = tuple(new.inputs.shape[1:])
    if kept.offer.input_shape != found:
        raise ConfigError(
            f"{data}: records of shape {found}, but those of the run have {kept.offer.input_shape}: give the settings"
            " with which the node is served"
        )
    module = own_model(kept.offer, model)
    if model is not None:  # another one with as many weights would take them without a word
        check_model(module, kept.offer)
    inputs = new.inputs
    if kept.offer.front_end is not None:
        inputs = in_blocks(kept_front_end(kept.offer, kept.front_end, front_end_module), inputs, torch.device("cpu"))
    example = dense(inputs[:1]), torch.zeros(1, dtype=torch.float32 if kind.num_classes == 1 else torch.int64)
    flat = FlatModel(module, example=example, loss=kept.offer.loss)
    outputs = torch.cat(list(flat.outputs(kept.weights, inputs)))
    schema = Schema.from_toml(str(settings["schema"])) if settings.get("schema") else None
    prior = Prior.of(kept.offer.scheme).declared(None if schema is None else schema.prevalence)
    return said_of(new, kind, outputs, prior, class_shares(prevalence))


def _read(offer: Offer, data: Path, settings: Mapping[str, object], like: Path | None) -> tuple[RecordKind, NewRecords]:
    """The records as the node's own were read, and what their classes are called."""
    if settings.get("schema"):
        schema = Schema.from_toml(str(settings["schema"]))
        preprocessing = Preprocessing(schema)
        return schema_kind(schema, preprocessing.num_features), read_patients(preprocessing, data)
    classes = tuple(name.strip() for name in str(settings.get("classes") or "").split(",") if name.strip())
    if classes and len(classes) != offer.num_classes:
        raise ConfigError(f"⟨classes⟩ names {len(classes)} classes, and the run has {offer.num_classes}: name them all")
    kind = RecordKind(shape=offer.input_shape, num_classes=offer.num_classes, classes=classes)
    section = DataSection()
    if settings.get("text-column"):
        length, words = settings.get("max-length"), settings.get("vocabulary")
        kind = replace(kind, text_column=str(settings["text-column"]), whole=True)
        section = DataSection(
            vocabulary=None if words is None else str(words), max_length=length if isinstance(length, int) else None
        )
    elif settings.get("image-size"):
        section = DataSection(image_size=str(settings["image-size"]))
    elif suffix(data) not in (None, ".npz"):
        apart = {str(settings.get("target") or "target"), settings.get("patient-column")}
        kind = replace(kind, features=_columns(like, apart))
    return kind, read_new_records(kind, section, None, data)


def _columns(like: Path | None, apart: Collection[object]) -> tuple[str, ...]:
    """The columns of the table that the node trains on, without those that it does not learn from."""
    if like is None:
        raise ConfigError(
            "a table may have its columns in another order than the node's own: name the node's table with ⟨like⟩, or"
            " its schema with ⟨schema⟩"
        )
    return tuple(str(name) for name in read_frame(like.expanduser()).columns if name not in apart)
