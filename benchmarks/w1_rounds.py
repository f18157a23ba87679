"""W1: seconds per round, evaluation excluded, of Laconic's engines and schemes, its peers and the plain loop."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import workload as w1
from benchmarks.contest import Process, Unavailable, contest, module
from benchmarks.machine import cores
from benchmarks.peers.environments import python_of
from benchmarks.settings import Settings

OURS = "laconic fl-std, auto"
_ON_GPU = {
    "fl-std": {"scheme": "fl-std"},
    "fl-std-dp": {"scheme": "fl-std-dp"},
    "fl-std-dp on integers": {"scheme": "fl-std-dp", "noise": "integer"},
    "fl-std-dp on integers, per client": {"scheme": "fl-std-dp", "noise": "integer", "noise_draws": "per-client"},
    "fl-top 0.5 %": {"scheme": "fl-top", "ratio": 0.005},
    "fl-top-dp 0.5 %": {"scheme": "fl-top-dp", "ratio": 0.005},
    "fl-cs 5 %, 50 iterations": {"scheme": "fl-cs", "ratio": 0.05},
    "fl-sign-dp": {"scheme": "fl-sign-dp"},
}


def run(settings: Settings) -> dict[str, Any]:
    peers, skipped = _peers(settings)
    contenders = [*_ours(settings), _plain(settings), *peers]
    if settings.quick:
        contenders, skipped = _ours(settings, cohort=2, num_clients=20, warmups=1)[:1], {}
    return {
        "title": "W1: rounds of the papers' CNN",
        "about": f"1,663,370 weights, {w1.COHORT} clients × {w1.STEPS} steps × batches of {w1.RECORDS}. Seconds a"
        " round, without evaluation. Laconic runs with run folder and ledger, the `-dp` schemes with accountant and"
        " budget. The noise of a sum is drawn at once, 1.7 million draws a round in `fl-std-dp`, of floats unless a"
        " name says otherwise; 8,317, of integers, in `fl-top-dp`. Where a name says per client, every client draws its"
        " share, as in a deployment. pfl draws its noise once, in the middle, in floats.",
        "ours": OURS,
        **contest(contenders, repeats=settings.repeats, count=10 if settings.on_gpu else 1, skipped=skipped),
    }


def _ours(settings: Settings, **less: int) -> list[Process]:
    if settings.on_gpu:
        chosen = {f"laconic {name}, auto": {**options, "engine": "auto"} for name, options in _ON_GPU.items()}
    else:
        chosen = {f"laconic fl-std-dp, {e}": {"scheme": "fl-std-dp", "engine": e} for e in settings.engines}
        chosen["laconic fl-std-dp on integers, auto"] = {"scheme": "fl-std-dp", "noise": "integer", "engine": "auto"}
        chosen["laconic fl-std-dp on integers, per client, auto"] = {
            "scheme": "fl-std-dp",
            "noise": "integer",
            "noise_draws": "per-client",
            "engine": "auto",
        }
        chosen["laconic fl-top 0.5 %, auto"] = {"scheme": "fl-top", "ratio": 0.005, "engine": "auto"}
        chosen["laconic fl-top-dp 0.5 %, auto"] = {"scheme": "fl-top-dp", "ratio": 0.005, "engine": "auto"}
        chosen["laconic fl-std, auto"] = {"scheme": "fl-std", "engine": "auto"}
    return [
        Process(name, "laconic", module("laconic_rounds", json.dumps({**options, **less, "device": settings.device})))
        for name, options in chosen.items()
    ]


def _plain(settings: Settings) -> Process:
    return Process("plain loop, torch.optim", "plain loop", module("plain_loop", settings.device))


def _peers(settings: Settings) -> tuple[list[Process], dict[str, str]]:
    """The peers that are there, and why others are not."""
    found: list[Process] = []
    skipped: dict[str, str] = {}
    offered = {"pfl": _pfl_on_gpu} if settings.on_gpu else {"pfl": _pfl, "flower": _flower}
    for peer, processes in offered.items():
        try:
            found += processes(python_of(peer, settings.peers), cores())
        except Unavailable as why:
            skipped[peer] = str(why)
    return found, skipped


def _pfl(python: str, every: int) -> list[Process]:
    alone = [python, "-m", "benchmarks.peers.pfl_rounds"]
    many = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(every), *alone[1:]]
    name = f"pfl, {every} processes × 1 thread"
    return [
        Process(f"pfl, 1 process × {every} threads", "pfl", alone, threads=every),
        Process(name, "pfl", many, threads=1),
        Process(f"{name}, channels_last", "pfl", [*many, "--channels-last"], threads=1),
        Process(f"{name}, channels_last, DP", "pfl", [*many, "--channels-last", "--dp"], threads=1),
    ]


def _pfl_on_gpu(python: str, every: int) -> list[Process]:
    alone = [python, "-m", "benchmarks.peers.pfl_rounds"]
    return [Process("pfl", "pfl", alone), Process("pfl, DP", "pfl", [*alone, "--dp"])]


def _flower(python: str, every: int) -> list[Process]:
    """With all the clients of the others, and with just as many as take part: Flower's time grows with its nodes."""
    silent = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    nodes = {w1.CLIENTS: "Flower", w1.COHORT: "Flower with few nodes"}
    return [
        Process(
            f"Flower, Ray, {every} actors, {number:,} nodes",
            group,
            module("peers.flower_rounds", str(every), str(number), python=python),
            env=silent,
        )
        for number, group in nodes.items()
    ]
