"""What a fraction of attackers does to each scheme: the picture in docs/attacks.md.

    python -m benchmarks.attack_fractions --out results/attacks [--seeds 3] [--dataset digits] [--device cuda]

A hundred clients, half of them in every round, none to two fifths of a cohort malicious. Figures are means over the
last ten rounds, so that nothing is picked. Finished runs are appended to runs.csv; a run that is there is not repeated.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.contest import note
from laconic.runner.run import Run as Simulation
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

FRACTIONS = (0.0, 0.02, 0.04, 0.1, 0.2, 0.4)
ATTACKS: dict[str, dict[str, Any]] = {
    "gradient-ascent": {},
    "in-backdoor": {"source": "5", "target": "7"},
}
SCHEMES: dict[str, dict[str, Any]] = {
    "fl-std": {},
    "fl-cs": {"ratio": 0.3},
    "fl-top": {"ratio": 0.3},
    "fl-sign": {"sign_step": 0.02},
    "fl-sign-dp": {"sign_step": 0.02, "ring_bits": 24},
    "fl-std-dp": {"clip_norm": 0.4, "ring_bits": 24},
}
_PRIVATE = {"epsilon": 16.0, "delta": 1e-3}
_PANELS = (
    ("gradient-ascent", "accuracy", "accuracy under gradient ascent"),
    ("in-backdoor", "accuracy", "accuracy under an in-backdoor"),
    ("in-backdoor", "success", "attacked class taken for the target"),
)


@dataclass(frozen=True)
class Run:
    """One line of runs.csv. A run that diverged has the accuracy of a guess and no success."""

    scheme: str
    attack: str
    fraction: float
    seed: int
    accuracy: float
    success: float
    converged: bool

    @property
    def key(self) -> tuple[str, str, float, int]:
        return self.scheme, self.attack, self.fraction, self.seed


def config(scheme: str, attack: str, fraction: float, seed: int, options: argparse.Namespace) -> RunConfig:
    train = {"local_lr": 0.1, "local_steps": 5, "batch_size": 10}
    data: dict[str, Any] = {"dataset": options.dataset, "num_clients": 100}
    if scheme == "fl-top":
        data["public_records"] = 50
    sections: dict[str, Any] = {
        "scheme": {"name": scheme, **train, **SCHEMES[scheme]},
        "data": data,
        "sampler": {"kind": "fixed-size", "cohort_size": 50, **_slack(scheme)},
        "attack": {"kind": attack, "fraction": fraction, "steps": "pool", "share": "cohort", **ATTACKS[attack]},
        "run": {"rounds": options.rounds, "seed": seed, "device": options.device},
    }
    if scheme.endswith("-dp"):
        sections["privacy"] = _PRIVATE
    return RunConfig.from_dict(sections)


def _slack(scheme: str) -> dict[str, int]:
    """Noise for as many attackers as there are at most, so that every ε holds."""
    return {"max_colluders": round(max(FRACTIONS) * 50)} if scheme.endswith("-dp") else {}


def measured(scheme: str, attack: str, fraction: float, seed: int, options: argparse.Namespace) -> Run:
    settled = settle(config(scheme, attack, fraction, seed, options))
    result = Simulation(settled.experiment).run()
    assert result.attack is not None
    last, converged = result.attack["last_ten"], bool(result.attack["converged"])
    guess = 1 / settled.federation.num_classes
    mean = {name: float(last.get(name, {}).get("mean", 0.0)) for name in ("accuracy", "attack_accuracy")}
    return Run(
        scheme, attack, fraction, seed,
        accuracy=mean["accuracy"] if converged else guess,
        success=mean["attack_accuracy"] if converged else 0.0,
        converged=converged,
    )  # fmt: skip


def read(path: Path) -> list[Run]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_run(line) for line in csv.DictReader(file)]


def _run(line: dict[str, str]) -> Run:
    who = line["scheme"], line["attack"], float(line["fraction"]), int(line["seed"])
    return Run(*who, float(line["accuracy"]), float(line["success"]), line["converged"] == "True")


def append(path: Path, run: Run) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Run)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(run))


def plot(runs: list[Run], path: Path) -> None:
    """One panel a question, one line a scheme; lines differ in marks as well as in colour."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    colours = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#000000", "#d55e00")  # Okabe and Ito
    figure, axes = plt.subplots(1, len(_PANELS), figsize=(13, 4), sharey=True)
    for axis, (attack, what, title) in zip(axes, _PANELS, strict=True):
        for scheme, colour, mark in zip(SCHEMES, colours, "os^Dv*", strict=True):
            points = {f: [getattr(r, what) for r in runs if r.key[:3] == (scheme, attack, f)] for f in FRACTIONS}
            there = [f for f in FRACTIONS if points[f]]
            heights = [statistics.mean(points[f]) for f in there]
            axis.plot([100 * f for f in there], heights, color=colour, marker=mark, label=scheme.upper())
        axis.set_title(title)
        axis.set_xlabel("malicious clients in a cohort, %")
        axis.set_ylim(-0.02, 1.02)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of the test records")
    axes[-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.csv"
    known = {run.key for run in read(path)}
    for seed in range(options.seeds):
        for attack in ATTACKS:
            for scheme in SCHEMES:
                for fraction in FRACTIONS:
                    if (scheme, attack, fraction, seed) in known:
                        continue
                    run = measured(scheme, attack, fraction, seed, options)
                    append(path, run)
                    note(
                        f"{scheme}, {attack} {fraction:.0%}, seed {seed}: {run.accuracy:.3f}, success {run.success:.3f}"
                    )
    plot(read(path), options.out / "fractions.png")


if __name__ == "__main__":
    main()
