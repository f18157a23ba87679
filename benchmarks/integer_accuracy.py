"""Does the grid cost accuracy? Private schemes at their published settings, with integer and with continuous noise.

    python -m benchmarks.integer_accuracy --device cuda --out results/integer-accuracy

Rows of the papers' tables on Fashion-MNIST (LACONIC_DATA says where it is), each run with both noises and the same
seeds: cohorts, batches and initial weights are the same, the noise is not. Every finished run is appended to runs.csv,
and table.md is written anew; a run that is in runs.csv already is not repeated.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from benchmarks.contest import note
from benchmarks.machine import machine
from benchmarks.report import table as markdown
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import choose_device
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.runner.run import Run as Simulation
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic_studies.reproduce.reproduction import quick_version
from laconic_studies.reproduce.tables import Row, find_table

PUBLISHED = {  # scheme: (table, compression ratio)
    "fl-top-dp": ("uai-table1", 0.005),
    "fl-cs-dp": ("eurosp-table3", 0.05),
    "fl-sign-dp": ("thesis-table5.5", 1.0),
    "fl-std-dp": ("eurosp-table3", 1.0),
}
NOISES = ("continuous", "integer")


@dataclass(frozen=True)
class Run:
    """One line of runs.csv. `best` is the best of the evaluated rounds: every fifth, and the last one."""

    scheme: str
    ratio: float
    noise: str
    seed: int
    rounds: int
    last: float
    best: float
    loss: float
    epsilon: float
    bits: int
    steps: float
    upload_bytes: float
    seconds_a_round: float

    @property
    def key(self) -> tuple[str, str, int]:
        return self.scheme, self.noise, self.seed


def published_row(scheme: str) -> Row:
    table, ratio = PUBLISHED[scheme]
    return next(row for row in find_table(table).rows if (row.scheme, row.ratio) == (scheme, ratio))


def experiment(scheme: str, noise: str, seed: int, options: argparse.Namespace) -> Experiment:
    """The published row with the noise asked for; sign schemes, which have no such option, get theirs by hand."""
    config = RunConfig.from_dict(published_row(scheme).settings)
    if options.quick:
        config = quick_version(config, None)
    changes = {"run.seed": seed, "run.device": options.device, "run.eval_every": 5}
    if options.rounds:
        changes["run.rounds"] = options.rounds
    if "noise" in config.scheme.options:
        changes["scheme.noise"] = noise
    settled = settle(config.with_values(changes)).experiment
    sigma = settled.scheme.noise.to_dict()["noise_multiplier"]
    if noise == "continuous":
        return replace(settled, scheme=replace(settled.scheme, noise=Gaussian(noise_multiplier=sigma)))
    assert isinstance(settled.scheme.noise, DiscreteGaussian)
    return settled


def measure(scheme: str, noise: str, seed: int, options: argparse.Namespace) -> Run:
    chosen = experiment(scheme, noise, seed, options)
    simulation = Simulation(chosen)
    result = simulation.run()
    grid = chosen.grid
    # The first rounds build tables and record graphs.
    laps = [row["seconds"] for row in result.history]
    return Run(
        scheme=scheme,
        ratio=PUBLISHED[scheme][1],
        noise=noise,
        seed=seed,
        rounds=len(result.history),
        last=result.last["accuracy"],
        best=max(row["accuracy"] for row in result.history if "accuracy" in row),
        loss=result.last["loss"],
        epsilon=result.last["epsilon"],
        bits=32 if grid is None else grid.bits,
        steps=0.0 if grid is None else grid.scale,
        upload_bytes=result.ledger["bytes_up_per_client_and_round"],
        seconds_a_round=statistics.median(laps[len(laps) // 2 :]),
    )


def read(path: Path) -> list[Run]:
    if not path.exists():
        return []
    kinds = {"int": int, "float": float, "str": str}
    with path.open(newline="") as stream:
        return [Run(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(Run)}) for row in csv.DictReader(stream)]


def append(path: Path, run: Run) -> None:
    fresh = not path.exists()
    with path.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, [f.name for f in fields(Run)])
        if fresh:
            writer.writeheader()
        writer.writerow(asdict(run))


_HEAD = """# Accuracy on the grid

Made by `python -m benchmarks.integer_accuracy`; do not edit. Published settings on Fashion-MNIST; the same seeds with
float32 noise and with integer noise of as few bits as the sum of a round allows. Accuracy in per cent, mean over the
seeds and each of them: after the last round, and in the best evaluated one. *Spread* is the largest difference between
two seeds with the same noise. ε is by the papers' accountant.
"""


def table(runs: Sequence[Run], about: str) -> str:
    """Accuracies of both noises, their difference, how much seeds differ among themselves, and what integers cost."""
    headings = ["scheme", "rounds", "", "continuous", "integer", "difference", "spread"]
    costs = ["scheme", "bits", "steps of the grid in S·σ", "ε", "bytes up", "ms a round"]
    accuracies, prices = [], []
    for scheme in PUBLISHED:
        both = [[run for run in runs if (run.scheme, run.noise) == (scheme, noise)] for noise in NOISES]
        if not all(both):
            continue
        row, one = published_row(scheme), both[1][0]
        for which in ("last", "best"):
            values = [[100 * getattr(run, which) for run in some] for some in both]
            cells = [f"{statistics.mean(v):.2f} ({', '.join(f'{x:.2f}' for x in v)})" for v in values]
            difference = statistics.mean(values[1]) - statistics.mean(values[0])
            spread = max(max(v) - min(v) for v in values)
            accuracies.append([row.label, str(one.rounds), which, *cells, f"{difference:+.2f}", f"{spread:.2f}"])
        prices.append(
            [
                row.label,
                _each(both, lambda run: str(run.bits)),
                f"{one.steps:.1f}",
                _each(both, lambda run: f"{run.epsilon:.4f}"),
                _each(both, lambda run: f"{run.upload_bytes:,.0f}"),
                " → ".join(f"{1e3 * statistics.median(run.seconds_a_round for run in some):.1f}" for some in both),
            ]
        )
    tables = [markdown(headings, accuracies), "From continuous to integer:", markdown(costs, prices)]
    return "\n\n".join([_HEAD.strip(), about, *tables]) + "\n"


def _each(both: list[list[Run]], text: Callable[[Run], str]) -> str:
    return " → ".join(text(some[0]) for some in both)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.integer_accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--schemes", default=",".join(PUBLISHED), help=f"some of {','.join(PUBLISHED)}  [all]")
    parser.add_argument("--seeds", type=int, default=2, help="how many  [2]")
    parser.add_argument("--rounds", type=int, help="[the paper's 200]")
    parser.add_argument("--device", default="auto", help="cpu or cuda  [auto]")
    parser.add_argument("--quick", action="store_true", help="a smoke test: few clients and rounds, digits if need be")
    parser.add_argument("--out", type=Path, required=True, help="folder for runs.csv and table.md")
    options = parser.parse_args(arguments)
    chosen = options.schemes.split(",")
    for scheme in set(chosen) - set(PUBLISHED):
        parser.error(f"--schemes {scheme}: choose from {', '.join(PUBLISHED)}")
    options.out.mkdir(parents=True, exist_ok=True)
    runs = read(options.out / "runs.csv")
    done = {run.key for run in runs}
    m = machine(str(choose_device(options.device)))
    about = f"On {m.get('gpu', m['cpu'])}, torch {m['torch']}."
    # All schemes with the first seed, then the next: what is there after a kill can be compared.
    for seed in range(options.seeds):
        for scheme in chosen:
            for noise in NOISES:
                if (scheme, noise, seed) in done:
                    continue
                started = time.monotonic()
                runs.append(measure(scheme, noise, seed, options))
                append(options.out / "runs.csv", runs[-1])
                (options.out / "table.md").write_text(table(runs, about), encoding="utf-8")
                last, took = 100 * runs[-1].last, time.monotonic() - started
                note(f"{scheme} {noise}, seed {seed}: {last:.2f} % after {runs[-1].rounds} rounds, {took:.1f} s")
    note(f"wrote {options.out}/table.md")


if __name__ == "__main__":
    main()
