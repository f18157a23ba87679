"""One local step of All-CNN-C for many clients at once, with each way to compute convolutions with weights per client.

    python -m benchmarks.all_cnn_step --device cuda [--clients 100] [--pictures 50] [--only PART] [--json FILE]
    python -m benchmarks.all_cnn_step --clients 2 --pictures 2 --side 8        # a smoke test on a CPU

A step is forward, backward and Adam. On a GPU it is recorded as a graph, as the engine does. The error is that of the
gradients of the first clients, ‖g − g₃₂‖ / ‖g₃₂‖, where g₃₂ is computed in float32 client by client.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.contest import note
from benchmarks.conv_products import products
from benchmarks.machine import machine
from laconic.graphs import Replayed
from laconic.models.registry import build_model
from laconic.train.engines.cohort import gradients
from laconic.train.engines.engine import Adam, products_in
from laconic.train.flat import FlatModel
from laconic.train.layers.conv import use_client_convolutions

_CHECKED = 2  # clients whose gradients are compared


@dataclass(frozen=True)
class Way:
    """What to give `use_client_convolutions`; None leaves the convolutions to torch's own `vmap`, which groups them."""

    how: Any
    half: bool = False


def ways(device: torch.device) -> dict[str, Way]:
    found = {
        "client by client": Way("loop"),
        "products, float32 or TF32": Way(products()),
        "products, bfloat16": Way(products(), half=True),
        "grouped convolutions": Way(None),
    }
    return found if device.type == "cpu" else {**_kernels(), **found}


def _kernels() -> dict[str, Way]:
    from laconic.train.layers.kernels import CONVOLUTION, HALF, HALF_WEIGHTS, WEIGHTS, WIDE, kernels

    found = {"kernel as it is": Way(kernels()), "kernel as it is, bfloat16": Way(kernels(), half=True)}
    for name, tiles in (("narrow", CONVOLUTION), ("wide", WIDE)):
        found[f"kernel, {name} tiles"] = Way(kernels(tiles, WEIGHTS))
    found["kernel, tiles of bfloat16 for TF32"] = Way(kernels(replace(HALF, by_output=True), HALF_WEIGHTS))
    return found


class Step:
    """All clients' weights, pictures and Adam; one call is one step."""

    def __init__(self, way: Way, device: torch.device, clients: int, pictures: int, side: int) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (clients, pictures, 3, side, side)
        self._inputs = torch.rand(shape, generator=generator).to(device)
        self._targets = torch.randint(0, 10, shape[:2], generator=generator).to(device)
        module = build_model("all-cnn-c", input_shape=shape[2:], num_classes=10, seed=0)
        model = FlatModel(module, example=(torch.zeros(2, *shape[2:]), torch.zeros(2, dtype=torch.int64))).to(device)
        if way.how is not None:
            use_client_convolutions(model.module, device, way.how, half=way.half)
        self._model = model
        self._start = {
            n: v.expand(clients, *v.shape) for n, v in zip(model.names, model.split(model.initial), strict=True)
        }
        self._params = {name: value.clone() for name, value in self._start.items()}
        self._weight = torch.full((clients, pictures), 1 / pictures, device=device)
        self._keys = torch.arange(clients, device=device)
        self.run = Replayed(self._run, device, "a step of All-CNN-C")

    def _run(self) -> None:
        for name, value in self._params.items():
            value.copy_(self._start[name])
        self._model.module.train()
        values = list(self._params.values())
        Adam(values, 0.001).step(values, self.gradients())

    def gradients(self, some: slice = slice(None)) -> list[Tensor]:
        params = {name: value[some] for name, value in self._params.items()}
        what = (self._inputs[some], self._targets[some], self._weight[some], self._keys[some])
        return gradients(self._model, params, params, *what)


def flops(clients: int, pictures: int, side: int) -> float:
    """2 × multiply-adds, forward and twice that backward; the first layer's inputs need no gradient."""
    half, quarter = -(-side // 2), -(-side // 4)
    layers = [(3, 96, 9, side), (96, 96, 9, side), (96, 96, 9, half), (96, 192, 9, half), (192, 192, 9, half)]
    layers += [(192, 192, 9, quarter), (192, 192, 9, quarter), (192, 192, 1, quarter), (192, 10, 1, quarter)]
    each = [i * o * taps * size * size for i, o, taps, size in layers]
    return 2.0 * clients * pictures * (3 * sum(each) - each[0])


def measured(way: Way, device: torch.device, sizes: tuple[int, int, int], repeats: int) -> dict[str, float]:
    synchronize: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with products_in("tf32", device):
        step = Step(way, device, *sizes)
        for _ in range(3):  # as it is, recorded, replayed
            step.run()
        seconds = []
        for _ in range(repeats):
            synchronize()
            started = time.perf_counter()
            step.run()
            synchronize()
            seconds.append(time.perf_counter() - started)
    found = {"milliseconds": 1e3 * statistics.median(seconds), "error": _error(step, device, sizes)}
    if device.type == "cuda":
        found["gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
    return found | {"teraflops": flops(*sizes) / found["milliseconds"] / 1e9}


def _error(step: Step, device: torch.device, sizes: tuple[int, int, int]) -> float:
    """Against float32, client by client, from the start weights."""
    few = slice(0, _CHECKED)
    exact = Step(Way("loop"), device, min(_CHECKED, sizes[0]), *sizes[1:])
    with products_in("float32", device):
        # The pictures of `exact` are drawn anew: they must be the same.
        exact._inputs.copy_(step._inputs[few])
        exact._targets.copy_(step._targets[few])
        truth = exact.gradients()
    for name, value in step._params.items():
        value.copy_(step._start[name])
    with products_in("tf32", device):
        found = step.gradients(few)
    difference = sum(float((a - b).double().square().sum()) for a, b in zip(found, truth, strict=True))
    return (difference / sum(float(b.double().square().sum()) for b in truth)) ** 0.5


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.all_cnn_step", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda  [cpu]")
    parser.add_argument("--clients", type=int, default=100, help="[100]")
    parser.add_argument("--pictures", type=int, default=50, help="of every client, in one step  [50]")
    parser.add_argument("--side", type=int, default=32, help="of a picture, in pixels  [32]")
    parser.add_argument("--repeats", type=int, default=10, help="[10]")
    parser.add_argument("--only", default="", help="ways whose name has this part")
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    options = parser.parse_args(arguments)
    device, sizes = torch.device(options.device), (options.clients, options.pictures, options.side)
    rows: dict[str, Any] = {}
    print(f"{'way':<40} {'ms':>9} {'TFLOP/s':>8} {'error':>8} {'GB':>6}")
    for name, way in ways(device).items():
        if options.only not in name:
            continue
        try:
            rows[name] = row = measured(way, device, sizes, options.repeats)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            note(f"{name}: {(str(error).splitlines() or [type(error).__name__])[0]}")
            rows[name] = {"failed": str(error)[:200]}
        else:
            memory = f"{row['gigabytes']:6.1f}" if "gigabytes" in row else ""
            print(
                f"{name:<40} {row['milliseconds']:9.2f} {row['teraflops']:8.2f} {row['error']:8.1e} {memory}",
                flush=True,
            )
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if options.json:
            about = {"machine": machine(options.device), "clients": sizes[0], "pictures": sizes[1], "side": sizes[2]}
            options.json.write_text(json.dumps(about | {"ways": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
