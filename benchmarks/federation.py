"""What a federation of five nodes costs: seconds, bytes and memory, with Flower's own processes on this machine.

    python -m benchmarks.federation docs/results/flower

The nodes reach the SuperLink through a proxy that counts what passes: payload, masks, Flower's messages, HTTP, TLS and
polling. The page is written from the JSON file alone; with --page-only nothing is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import socket
import statistics
import tempfile
import threading
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.federation_page import page
from benchmarks.machine import machine
from laconic.federation.server.members import resolve_federated
from laconic.federation.trial.processes import Processes
from laconic.federation.trial.trial import Supervisor, Trial, trial_policy
from laconic.settings.config import RunConfig
from laconic.store.folder import RunFolder

NODES, ROUNDS = 5, 10
_BASE = {
    "run.rounds": ROUNDS,
    "run.device": "cpu",
    "data.dataset": "digits",
    "data.num_clients": NODES,
    "data.public_records": 50,
    "sampler.sampling_rate": 1.0,
    "federation.nodes": NODES,
    "federation.join_timeout": 300.0,
    "federation.round_timeout": 300.0,
}
_PRIVATE = {"scheme.clip_norm": 1.0, "scheme.noise_multiplier": 1.0}
_LARGE = {"model.name": "mlp", "model.hidden": 1240}
WORKLOADS: dict[str, dict[str, Any]] = {
    "FL-STD, 650 weights": {"scheme.name": "fl-std"},
    "FL-STD-DP, 650 weights": _PRIVATE | {"scheme.name": "fl-std-dp"},
    "FL-STD-DP, 650 weights, signed": _PRIVATE | {"scheme.name": "fl-std-dp", "secagg.consistency": "signed"},
    "FL-TOP-DP 0.5 %, 1.6 million weights": _PRIVATE | _LARGE | {"scheme.name": "fl-top-dp", "scheme.ratio": 0.005},
    "FL-STD-DP, 1.6 million weights": _PRIVATE | _LARGE | {"scheme.name": "fl-std-dp"},
}


class CountingProxy:
    """Passes TCP connections on to a port of this machine, and counts the bytes of both directions."""

    def __init__(self, target: int) -> None:
        self._target, self.up, self.down = target, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            threading.Thread(target=self._pass, args=(near,), daemon=True).start()

    def _pass(self, near: socket.socket) -> None:
        with (
            near,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._target)) as far,
            selectors.DefaultSelector() as both,
        ):
            both.register(near, selectors.EVENT_READ, far)
            both.register(far, selectors.EVENT_READ, near)
            while self._moved(both, near):
                pass

    def _moved(self, both: selectors.BaseSelector, near: socket.socket) -> bool:
        """Pass on what has come; False when one side has closed."""
        for key, _ in both.select():
            source: socket.socket = key.fileobj  # type: ignore[assignment]
            data = source.recv(1 << 16)
            if not data:
                return False
            key.data.sendall(data)
            if source is near:
                self.up += len(data)
            else:
                self.down += len(data)
        return True


class Memory:
    """The largest resident set of each kind of process of a trial, looked at twice a second."""

    def __init__(self, folder: Path) -> None:
        self._mark, self._on = str(folder).encode(), True
        self.peak: dict[str, int] = {}
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._on = False
        self._thread.join()

    def _watch(self) -> None:
        while self._on:
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if self._mark not in (process / "environ").read_bytes():
                        continue
                    program = _program((process / "cmdline").read_bytes().decode().split("\0"))
                    pages = int((process / "statm").read_text().split()[1])
                except (OSError, IndexError, ValueError):
                    continue
                if program is not None:
                    size = pages * os.sysconf("SC_PAGE_SIZE")
                    self.peak[program] = max(self.peak.get(program, 0), size)
            time.sleep(0.5)


def _program(command: list[str]) -> str | None:
    """What a process of a trial is called on the page."""
    if "laconic.federation.trial.node" in command:
        return "laconic node serve"
    if command[2:5] == ["laconic", "node", "courier"]:
        return "laconic node courier"
    name = Path(command[1]).name
    return name if name.startswith(("flower-", "flwr-")) else None


def measure(name: str, changes: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One federation from its start to its end."""
    config = RunConfig().with_values(_BASE | changes)
    experiment = resolve_federated(config).experiment
    run = RunFolder(folder)
    marks: list[tuple[int, int]] = []
    first: list[float] = []
    run.make()
    memory = Memory(folder)
    started = time.monotonic()
    try:
        with Processes() as processes:
            trial = Trial(folder / "federation", NODES, processes)
            proxy = CountingProxy(trial.port)
            trial.port_for_nodes = proxy.port
            trial.write_policies({}, trial_policy(experiment, trial.server_name(), spare_rounds=2))
            trial.start(config)
            up = time.monotonic() - started
            supervisor = Supervisor(
                trial,
                run,
                on_row=lambda row: (marks.append((proxy.up, proxy.down)), first.append(time.monotonic())),
                on_notice=lambda text: print(f"  {text}"),
            )
            summary = supervisor.run(config)
    finally:
        memory.stop()
    rows = run.rows("rounds.jsonl")
    return {
        "name": name,
        "seconds_to_start": up,
        "seconds_to_first_round": first[0] - rows[0]["seconds"] - started,
        "seconds_per_round": [row["seconds"] for row in rows],
        "stages": _stages(folder / "federation", rows),
        "wire_per_round": [sum(after) - sum(before) for before, after in pairwise(marks)],
        "rows": rows,
        "ledger": summary["ledger"],
        "memory": memory.peak,
        "load": os.getloadavg()[0],
    }


def _stages(trial: Path, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Where the seconds of a round go, by the nodes' own logs; medians over the rounds.

    `work` is the longest answer of each exchange. `polling` is the time between the first and the last node that began
    to answer: Flower's SuperNodes look for messages every three seconds.
    """
    exchanges: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for log in trial.glob("node-*/node.txt"):
        upload_of = 0
        for event in map(json.loads, filter(lambda line: line.startswith("{"), log.read_text().splitlines())):
            if event.get("event") != "answered" or event["message"] == "keys":
                continue
            upload_of = event.get("round") or upload_of  # only an upload says its round
            end = datetime.fromisoformat(event["time"]).timestamp()
            exchanges.setdefault((upload_of, event["message"]), []).append((end - event["seconds"], event["seconds"]))
    found: dict[str, list[float]] = {"work": [], "polling": [], "rest": []}
    for row in rows:
        mine = [answers for (round, _), answers in exchanges.items() if round == row["round"]]
        work = sum(max(seconds for _, seconds in answers) for answers in mine)
        polling = sum(max(began for began, _ in answers) - min(began for began, _ in answers) for answers in mine)
        for name, value in (("work", work), ("polling", polling), ("rest", row["seconds"] - work - polling)):
            found[name].append(value)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="OUT.json and OUT.md are written")
    parser.add_argument("--only", help="workloads whose names contain this; the others stay as they were measured")
    parser.add_argument("--page-only", action="store_true")
    options = parser.parse_args()
    target = options.out.with_suffix(".json")
    measured = json.loads(target.read_text()) if target.exists() else {"runs": []}
    known = {run["name"]: run for run in measured["runs"]}
    if not options.page_only:
        from importlib.metadata import version

        measured["machine"] = machine("cpu") | {"flwr": version("flwr"), "nodes": NODES, "rounds": ROUNDS}
        for name, changes in WORKLOADS.items():
            if options.only and options.only not in name:
                continue
            print(name)
            with tempfile.TemporaryDirectory() as folder:
                known[name] = measure(name, changes, Path(folder) / "run")
            measured["runs"] = [known[name] for name in WORKLOADS if name in known]
            target.write_text(json.dumps(measured, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(page(measured))


if __name__ == "__main__":
    main()
