"""Devices by name, and what makes two runs of the same seed bit-identical."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import torch

from laconic import __version__
from laconic.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """'cpu', 'cuda', 'cuda:1' or 'auto'."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"unknown device '{name}': use ⟨device⟩ cpu, cuda, cuda:0 … or auto") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device '{name}' is not supported: use ⟨device⟩ cpu, cuda, cuda:0 … or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"⟨device⟩ {name}: this machine has no usable CUDA device; use ⟨device⟩ cpu or auto")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigError(f"⟨device⟩ {name}: there are only {torch.cuda.device_count()} CUDA devices")
    return device


def wait_for(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def environment_of(device: torch.device, way: str) -> str:
    """A name for everything that float results depend on besides the seed: software, hardware, way of computing."""
    where = (
        f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}" if device.type == "cuda" else _processor()
    )
    versions = f"laconic {__version__}, torch {torch.__version__}, numpy {np.__version__}"
    return f"{versions}; {where}; {torch.get_num_threads()} threads; {way}"


def _processor() -> str:
    """The model of the CPU, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
