"""`laconic features`: train a front end on made pictures, and say what a front end's file is."""

from __future__ import annotations

import time
from pathlib import Path

import click


@click.group()
def features() -> None:
    """Public front ends that are files: train one, or look at one."""


@features.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--shape", required=True, metavar="CxHxW", help="Of the pictures: 1x28x28, say, or 3x32x32.")
@click.option("--steps", type=click.IntRange(min=1), default=8000, show_default=True, help="Training steps.")
@click.option("--width", type=click.IntRange(min=1), default=64, show_default=True, help="Channels of the first stage.")
@click.option("--batch", type=click.IntRange(min=2), default=1024, show_default=True, help="Scenes in a step.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of scenes and weights.")
@click.option("--learning-rate", type=float, default=2e-3, show_default=True, help="The largest step size.")
@click.option("--temperature", type=float, default=0.2, show_default=True, help="Of the contrast.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1 or auto.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the processor.  [all cores]")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; progress goes to stderr.")
def train(
    out: Path,
    shape: str,
    steps: int,
    width: int,
    batch: int,
    seed: int,
    learning_rate: float,
    temperature: float,
    device: str,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train a network by contrast on made pictures of dead leaves, and write it to OUT. No real picture is read.

    \b
    laconic features train contrast.safetensors --shape 1x28x28 --device cuda
    laconic run fl-std-dp --dataset fashion-mnist --front-end scattering+contrast \\
      --front-end-weights contrast.safetensors --front-end-projection public --front-end-features 543 \\
      --public-dataset dead-leaves …
    """
    import torch

    from laconic.errors import ConfigError
    from laconic.experiment.identity import choose_device
    from laconic_studies.contrast.training import train_contrast

    sizes = shape.lower().split("x")
    if len(sizes) != 3 or not all(size.isdigit() and int(size) > 0 for size in sizes):
        raise ConfigError(f"--shape {shape}: write it as CHANNELSxHEIGHTxWIDTH, such as 1x28x28 or 3x32x32")
    out = out.expanduser()
    if out.exists():
        raise ConfigError(f"{out} is there already: choose another file, or delete it")
    if not out.parent.is_dir():
        raise ConfigError(f"{out.parent} is no folder: make it first")
    if threads is not None:
        torch.set_num_threads(threads)
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        left = (time.monotonic() - started) / step * (steps - step)
        click.echo(f"step {step:,} of {steps:,}: loss {loss:.3f}, {left:.0f} s left", err=True)

    front_end = train_contrast(
        tuple(map(int, sizes)),
        steps=steps,
        width=width,
        batch=batch,
        seed=seed,
        learning_rate=learning_rate,
        temperature=temperature,
        device=choose_device(device),
        report=None if quiet else report,
    )
    part = out.with_name(out.name + ".part")
    part.write_bytes(front_end.to_bytes())
    part.replace(out)
    _show(out, as_json)


@features.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: Path, as_json: bool) -> None:
    """What the front end in FILE is, its features, and its digest.

    \b
    laconic features show contrast.safetensors
    """
    _show(file.expanduser(), as_json)


def _show(file: Path, as_json: bool) -> None:
    from laconic.errors import ConfigError, RunFolderError
    from laconic.features.base import FrontEnd, size_text
    from laconic.store.folder import json_text

    if not file.is_file():
        raise ConfigError(f"{file}: there is no such file")
    try:
        found = FrontEnd.load(file)
    except RunFolderError:
        raise ConfigError(f"{file} is no front end, or it is damaged") from None
    if as_json:
        said = {"front_end": found.sentence, "features": list(found.output_shape), "digest": found.digest}
        click.echo(json_text(said | {"about": found.about}))
        return
    click.echo(f"{file}: {found.sentence}")
    click.echo(f"features {size_text(found.output_shape)}, digest {found.digest}")
