"""`laconic doctor`: is everything there that a run needs?"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
from typing import Any

import click

_REQUIRED = ("torch", "numpy", "scipy", "dp-accounting", "safetensors", "click", "rich", "scikit-learn")
_OPTIONAL = {
    "pandas": "CSV and Parquet data",
    "pyarrow": "Parquet data, health records",
    "flwr": "federations on Flower",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Versions, devices, data and disk: what works on this machine. Exits with 2 if something required is missing."""
    import torch

    from laconic import __version__
    from laconic.data.sources import SOURCES

    packages = {name: _version(name) for name in (*_REQUIRED, *_OPTIONAL)}
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    missing = [name for name in _REQUIRED if packages[name] is None]
    report: dict[str, Any] = {
        "laconic": __version__,
        "python": platform.python_version(),
        "packages": packages,
        "cpu_threads": torch.get_num_threads(),
        "cuda": cuda,
        "free_disk_gb": round(shutil.disk_usage(os.getcwd()).free / 1e9, 1),
        "writable": os.access(os.getcwd(), os.W_OK),
        "datasets": {name: info.where() for name, info in SOURCES.items()},
        "missing": missing,
    }
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        click.echo(f"laconic {__version__} on Python {report['python']}")
        for name, version in packages.items():
            absent = "MISSING: pip install " + name if name in missing else f"not installed ({_OPTIONAL.get(name)})"
            click.echo(f"  {name:<14} {version or absent}")
        click.echo(f"  {'CPU threads':<14} {report['cpu_threads']}")
        click.echo(f"  {'CUDA':<14} {', '.join(cuda) or 'none (use --device cpu)'}")
        click.echo(f"  {'disk':<14} {report['free_disk_gb']} GB free{'' if report['writable'] else ', NOT writable'}")
        for name, where in report["datasets"].items():
            click.echo(f"  {name:<14} {where}")
    if missing:
        raise click.exceptions.Exit(2)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
