"""W3: seconds to decode a real FL-CS round, and how good the decoding is, against the papers' solver."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import laconic
from benchmarks import decoding as w3
from benchmarks import workload as w1
from benchmarks.contest import Process, Unavailable, contest, module
from benchmarks.peers.environments import python_of
from benchmarks.settings import Settings
from laconic.data.sources import SOURCES, load_source

OURS = "laconic, 50 iterations"
ITERATIONS = (20, 50, 80, 100, 300)


def run(settings: Settings) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, codes = real_code(2 if settings.quick else w1.COHORT)
        np.save(folder / "code.npy", codes)
        contenders = [
            _decoder(folder, f"laconic, {n} iterations", "laconic", "fista_decoding", str(n), settings.device)
            for n in ((2,) if settings.quick else ITERATIONS)
        ]
        peers, skipped = ([], {}) if settings.on_gpu or settings.quick else _peers(folder, settings)
        result = contest([*contenders, *peers], repeats=settings.repeats, skipped=skipped)
        for row in result["contenders"]:
            row["objective"] = w3.objective(codes, np.load(_solution(folder, row["name"])))
    return {
        "title": "W3: decoding an FL-CS round",
        "about": f"{w3.CHUNKS} chunks of {w3.LENGTH:,} weights from {w3.COUNT} coefficients each, λ = {w3.L1_WEIGHT:g};"
        f" the code of one W1 round on {data}. The objective is summed over the chunks.",
        "ours": OURS,
        **result,
    }


def real_code(cohort: int) -> tuple[str, np.ndarray]:
    """(on which data, the code): one FL-STD round of the CNN, its update shuffled, cut into chunks and transformed."""
    data, clients = _clients(cohort)
    torch.manual_seed(0)
    model = w1.cnn()
    scheme = laconic.schemes.fl_std(local_lr=0.2, local_steps=w1.STEPS, batch_size=w1.RECORDS)
    trained = laconic.run(scheme, model=model, clients=clients, sampling_rate=1.0, rounds=1).model
    changes = [(b - a).detach().flatten() for a, b in zip(model.parameters(), trained.parameters(), strict=True)]
    update = torch.cat(changes).double().numpy()
    shuffled = np.random.default_rng(0).permutation(update)
    padded = np.pad(shuffled, (0, w3.CHUNKS * w3.LENGTH - len(update)))
    return data, w3.forward(padded.reshape(w3.CHUNKS, w3.LENGTH)).astype(np.float32)


def _clients(cohort: int) -> tuple[str, list[tuple[Tensor, Tensor]]]:
    """Clients with ten pictures each, of Fashion-MNIST where its files are at hand."""
    if SOURCES["fashion-mnist"].locate() is None:
        return "synthetic pictures", w1.clients(cohort)
    pictures = load_source("fashion-mnist").train
    rows = np.random.default_rng(0).permutation(len(pictures.targets))[: cohort * w1.RECORDS]
    inputs, targets = pictures.inputs[rows], pictures.targets[rows]
    return "Fashion-MNIST", list(zip(inputs.split(w1.RECORDS), targets.split(w1.RECORDS), strict=True))


def _peers(folder: Path, settings: Settings) -> tuple[list[Process], dict[str, str]]:
    offered = {
        "PyLBFGS OWL-QN, default tolerance, matrix": ("pylbfgs", "owlqn_decoding", "matrix"),
        "PyLBFGS OWL-QN, default tolerance, DCT": ("pylbfgs", "owlqn_decoding", "transform"),
        "PyLops FISTA, 50 iterations": ("pylops", "pylops_decoding", "chunks"),
        "PyLops FISTA, 50 iterations, all chunks in one operator": ("pylops", "pylops_decoding", "together"),
    }
    found: list[Process] = []
    skipped: dict[str, str] = {}
    for name, (peer, script, way) in offered.items():
        try:
            python = python_of(peer, settings.peers)
            found.append(_decoder(folder, name, name.split(",")[0], f"peers.{script}", way, python=python))
        except Unavailable as why:
            skipped[name] = str(why)
    return found, skipped


def _decoder(folder: Path, name: str, group: str, script: str, *arguments: str, **options: str) -> Process:
    files = str(folder / "code.npy"), str(_solution(folder, name))
    return Process(name, group, module(script, *files, *arguments, **options))


def _solution(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"
