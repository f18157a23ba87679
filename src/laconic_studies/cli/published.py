"""`laconic reproduce` for published figures of property inference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic_studies.cli.property import print_rounds

if TYPE_CHECKING:
    from laconic_studies.reproduce.property_inference import PublishedInference


def taken_out(names: tuple[str, ...]) -> tuple[tuple[str, ...], list[PublishedInference]]:
    """(names of tables, published inferences)."""
    from laconic_studies.reproduce.property_inference import published_inferences

    known = published_inferences()
    rest = tuple(name for name in names if name.lower() not in known)
    return rest, [known[name.lower()] for name in names if name.lower() in known]


def list_inferences(inferences: list[PublishedInference], as_json: bool) -> None:
    """The published figures and settings."""
    if as_json:
        from dataclasses import asdict

        from laconic.store.folder import json_text

        click.echo(json_text([asdict(one) for one in inferences]))
        return
    for one in inferences:
        click.secho(one.title, bold=True)
        click.echo(one.source)
        for scheme, accuracy in one.accuracy.items():
            click.echo(f"{scheme:<8}  accuracy {accuracy:.2f}  '{one.attribute}' in {one.dataset}")
        click.echo("settings: " + " ".join(f"{key}={value}" for key, value in one.settings.items()))
        for remark in one.remarks:
            click.echo(remark)


def reproduce_inferences(
    inferences: list[PublishedInference],
    *,
    seeds: int,
    sets: tuple[str, ...],
    device: str,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    data_dir: str | None,
    quick: bool,
    out: Path,
) -> None:
    """Attack every scheme with every seed, unless that is done already; then put paper and measurement side by side."""
    import torch

    from laconic.experiment.identity import choose_device
    from laconic_studies.reproduce.property_inference import InferenceReproduction

    where = choose_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    changes = dict(_setting(text) for text in sets)
    found = []
    for one in inferences:
        work = InferenceReproduction(published=one, out=out, quick=quick, data_dir=data_dir, changes=changes)
        todo = [(s, seed) for seed in range(seeds) for s in one.accuracy if not work.finished(s, seed)]
        prepared = work.prepared if todo else None
        for scheme, seed in todo:
            assert prepared is not None
            if not quiet:
                print(f"{one.name}: {scheme}, seed {seed}", file=sys.stderr, flush=True)
            work.run(prepared, scheme, seed, where, print_rounds(scheme, quiet))
            work.write()
        found.append(work)
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text([{"table": w.published.name, "notes": w.notes, "rows": w.compared()} for w in found]))
        return
    for work in found:
        click.echo(work.markdown())
        click.echo(f"Files: {work.folder}")


def _setting(text: str) -> tuple[str, Any]:
    from laconic.errors import ConfigError
    from laconic.settings.config import parse_value

    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: write it as key=value")
    return key.strip(), parse_value(value.strip())
