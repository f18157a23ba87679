"""`laconic export`: a finished run as a file for other programs, compared with the run's own model, and its card."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from laconic import __version__
from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, RunFolderError, unknown
from laconic.export.formats import FORMATS, Ask
from laconic.export.raw import Raw, raw_model
from laconic.export.trained import Trained, trained_model
from laconic.features.base import describe
from laconic.figures import rounded_up
from laconic.files import replace_file
from laconic.own_code import only
from laconic.privacy.released import Summary, broken
from laconic.report.model_card import model_card
from laconic.settings.predict import prior_of
from laconic.store.finished import finished_run
from laconic.store.folder import IDENTITY

CARD = "card"
_BATCHES = (1, 2, 7)
_TOLERANCE = 1e-4
"""Of outputs, relative to the largest one and to 1: floats are added up in another order elsewhere."""


@dataclass(frozen=True)
class Exported:
    """What was written, and by how much its outputs differ from the run's at most; None for a card alone."""

    file: Path | None
    card: Path
    inputs: dict[str, dict[str, Any]]
    difference: float | None


def export_run(
    folder: str | Path,
    to: str,
    *,
    out: str | Path | None = None,
    best: bool = False,
    released_only: bool = False,
    model: nn.Module | None = None,
    front_end: nn.Module | None = None,
    allow_code: bool = False,
) -> Exported:
    """Write the model of a finished run as 'onnx', 'torchscript' or 'safetensors', and its card; or only the 'card'.

    The file takes raw records: front end and preprocessing are inside, as far as they are numbers. `out` is the file,
    by default in the run folder; the card is beside it. The folder is checked as `laconic.load` checks it. Nothing is
    left if the outputs of the file are not those of the run's model.

    Args:
        folder: the folder of a finished run.
        to: 'onnx', 'torchscript', 'safetensors' or 'card'.
        out: the file to write.
        best: take the weights of the best round, not of the last one.
        released_only: leave out of the card what only the server may know.
        model: the module of a run from Python; its folder does not say how to build it.
        front_end: a front end of your own.
        allow_code: import a model of the user's own that the folder names. Trust whoever wrote the folder.

    Returns:
        The files, what the model takes, and by how much its outputs differ from the run's at most.

    Raises:
        LaconicError: for a run that is not finished or was changed, and a model that cannot be exported.

    Examples:
        >>> import torch
        >>> clients = [(torch.randn(10, 4), torch.randint(0, 2, (10,))) for _ in range(10)]
        >>> scheme = laconic.schemes.fl_std(local_lr=0.1, local_steps=1)
        >>> result = laconic.run(scheme, model=torch.nn.Linear(4, 2), clients=clients, sampling_rate=1.0, rounds=1,
        ...                      out="runs/mine")
        >>> done = laconic.export_run("runs/mine", "torchscript", model=torch.nn.Linear(4, 2))
        >>> done.file.name, done.card.name, done.difference < 1e-5
        ('model.pt', 'model.md', True)
    """
    if to not in FORMATS and to != CARD:
        raise ConfigError(unknown("format", to, [*FORMATS, CARD]))
    run = finished_run(folder)
    with nullcontext() if allow_code else only(()):
        if to == CARD and model is None:
            trained = _perhaps(run, best)
        else:
            trained = trained_model(run, model=model, front_end=front_end, best=best)
    raw = None if trained is None else raw_model(trained)
    facts = _facts(run.summary, trained, raw, json.loads(run.folder.read(IDENTITY) or b"{}"))
    card = model_card(run.summary, facts, released_only=released_only, cite=_cited(trained))
    stem = "best" if best else "model"
    if to == CARD:
        path = Path(out) if out else run.path / f"{stem}.md"
        _write(path, card.encode())
        return Exported(None, path, {}, None)
    assert raw is not None
    ending, make = FORMATS[to]
    path = Path(out) if out else run.path / f"{stem}{'.raw' if to == 'safetensors' else ''}{ending}"
    if path.resolve() in (run.path.resolve() / name for name in ("model.safetensors", "best.safetensors")):
        raise ConfigError(f"⟨out⟩ {path} is the run's own file: choose another")
    content, ask = _made(make, raw, _metadata(run.summary, raw, trained), to)
    difference = compare(raw, ask, to)
    _write(path, content)
    beside = path.with_suffix(".md")
    _write(beside, card.encode())
    return Exported(path, beside, raw.inputs, difference)


def compare(raw: Raw, ask: Ask, to: str) -> float:
    """The largest difference between the outputs of the file and the run's; refused if it is more than rounding."""
    worst = 0.0
    for count in _BATCHES:
        batch = raw.draw(count)
        with torch.no_grad():
            wanted = raw.expected(batch)
            try:
                found = ask(batch)
            except Exception as error:  # whatever another program says
                raise ConfigError(f"this model cannot be exported to {to}: {_reason(error)}") from None
        if found.shape != wanted.shape:
            raise ConfigError(
                f"this model cannot be exported to {to}: for {count} records it gives outputs of {tuple(found.shape)},"
                f" not {tuple(wanted.shape)}"
            )
        worst = max(worst, float((found - wanted).abs().max() / max(1.0, float(wanted.abs().max()))))
        if not worst <= _TOLERANCE:
            raise ConfigError(
                f"this model cannot be exported to {to}: its outputs would differ by {worst:.2g} from the run's own"
                " model; try another format"
            )
    return worst


def _made(make: Any, raw: Raw, about: dict[str, str], to: str) -> tuple[bytes, Ask]:
    try:
        found: tuple[bytes, Ask] = make(raw, about)
    except ConfigError:
        raise
    except Exception as error:  # a module that cannot be traced, or an operator that a format does not have
        raise ConfigError(f"this model cannot be exported to {to}: {_reason(error)}; try another format") from None
    return found


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"[:300]


def _perhaps(run: Any, best: bool) -> Trained | None:
    """The module, for what a card says of it; a run from Python has none in its folder."""
    try:
        return trained_model(run, best=best)
    except ConfigError:
        return None


def _metadata(summary: Summary, raw: Raw, trained: Trained | None) -> dict[str, str]:
    """What the file says of itself. Nothing that only the server may know."""
    statement = summary["statement"]
    about = {"laconic": __version__, "scheme": summary["scheme"], "inputs": json.dumps(raw.inputs, ensure_ascii=False)}
    if statement["private"] and not broken(statement):
        released = statement["released"]
        about["epsilon"] = rounded_up(cast(float, released["epsilon"][released["accountant"]]))
        about["delta"] = rounded_up(statement["delta"])
    classes = () if trained is None else _classes(trained)
    if shifts := _shifts(trained, raw):
        about["add_to_logits"] = json.dumps(shifts)
    return about | ({"classes": json.dumps(classes, ensure_ascii=False)} if classes else {})


def _shifts(trained: Trained | None, raw: Raw | None) -> list[float]:
    """What takes the weights that classes had in training out of the outputs; nothing where all counted alike.

    One number for each class; of a single output one.
    """
    if trained is None or raw is None or trained.config is None or trained.record.num_classes < 2:
        return []
    shifts = prior_of(trained.config).shifts(trained.record.num_classes)
    with torch.no_grad():
        single = raw.expected(raw.draw(2)).ndim == 1
    found = [shifts[1] - shifts[0]] if single else shifts
    return found if any(found) else []


def _classes(trained: Trained) -> list[str]:
    return list(trained.record.classes)


def _facts(summary: Summary, trained: Trained | None, raw: Raw | None, identity: dict[str, Any]) -> dict[str, str]:
    """Lines on data, clients and model."""
    facts: dict[str, str] = {}
    config = None if trained is None else trained.config
    if config is not None:
        source = SOURCES.get(config.data.dataset)
        facts["data"] = (
            f"{source.name}: {source.description}" if source else f"the user's own ({Path(config.data.dataset).name})"
        )
        facts["client"] = source.client if source and source.client else "as the data say"
    facts["clients"] = identity.get("population", "unknown").partition(",")[0].removesuffix(" clients")
    sampler = summary["statement"].get("sampler")
    if sampler is not None:
        facts["cohorts"] = ", ".join(f"{k} {v}" for k, v in sampler.items() if k != "num_clients")
    facts["model"] = identity.get("model", "unknown").partition(",")[0]
    if config is not None:
        facts["model"] = f"{config.model.name}, {facts['model']}"
    if trained is not None and trained.front_end is not None:
        facts["front end"] = f"{describe(trained.front_end)}; inside the file"
    for name, about in (raw.inputs if raw is not None else {}).items():
        shape = " × ".join(map(str, about["shape"]))
        facts[f"input '{name}'"] = f"{about['type']}, batch × {shape}: {about['meaning']}"
    if trained is not None and (classes := _classes(trained)):
        facts["outputs"] = f"one for each class: {', '.join(classes)}"
    if shifts := _shifts(trained, raw):
        shown = ", ".join(f"{shift:.6g}" for shift in shifts)
        facts["probabilities"] = f"add {shown} to the outputs first: classes had weights in training"
    if trained is not None and (quantity := trained.record.quantity) is not None:
        facts["outputs"] = f"a quantity in the unit of the table, learnt between {quantity.low:g} and {quantity.high:g}"
    facts["scheme"] = f"{summary['scheme']}, fingerprint {identity.get('scheme', 'unknown')}"
    facts["rounds"] = str(summary["rounds"])
    return facts


def _cited(trained: Trained | None) -> list[str]:
    source = None if trained is None or trained.config is None else SOURCES.get(trained.config.data.dataset)
    if source is None:
        return ["The papers whose scheme was used: `laconic schemes` names them."]
    data = source.citation or source.origin
    return ["The papers whose scheme was used: `laconic schemes` names them.", f"The data: {data} ({source.licence})."]


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}; choose another ⟨out⟩") from None
