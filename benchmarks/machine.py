"""On what the figures were measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine(device: str) -> dict[str, Any]:
    import numpy
    import torch

    about: dict[str, Any] = {
        "cpu": _processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
    if device.startswith("cuda"):
        about |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return about


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
