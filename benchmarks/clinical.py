"""Mortality on open data and on made admissions: what must be true, run and written down.

    python -m benchmarks.clinical [--out clinical] [--seeds 5] [--only NAME;NAME]     runs what is not finished yet
    python -m benchmarks.clinical --write                                             and writes the page

Every experiment is a `laconic run`, in a process of its own whose time and largest memory are kept. The figures go to
docs/results/clinical/results.json, and the page docs/results/clinical.md is made of that file alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

_HEADINGS = (
    "run",
    "seeds",
    "AUROC: mean (worst to best)",
    "balanced accuracy",
    "up per message",
    "down per message",
    "ε",
    "CPU minutes",
    "peak memory",
)
RESULTS, PAGE = Path("docs/results/clinical/results.json"), Path("docs/results/clinical.md")


@dataclass(frozen=True)
class Experiment:
    """A command without seed and folder, and how many seeds it is worth."""

    name: str
    command: str
    seeds: int


_OPEN = "--dataset diabetes130 --eval-every 10"
_MANY = "--num-clients 1000 --sampling-rate 0.1 --rounds 100 --balance downsample --batch-size all --local-steps 40"
_PRIVATE = "--epsilon 1 --accountant moments --clip-norm public"
_PREMIER = "--dataset ehr-synthetic --num-records 1271733 --eval-every 10"
EXPERIMENTS = (
    Experiment(
        "centralised, logistic",
        f"centralized {_OPEN} --model logistic --balance weights --epochs 1 --batch-size 100 --local-lr 0.2"
        " --rounds 30",
        5,
    ),
    Experiment(
        "centralised, MLP",
        f"centralized {_OPEN} --model mlp --model-option dropout=0.5 --balance weights --epochs 1 --batch-size 100"
        " --local-lr 0.03 --rounds 20",
        2,
    ),
    Experiment(
        "FL-STD, logistic",
        f"fl-std {_OPEN} --model logistic --balance weights --epochs 2 --batch-size 50 --local-lr 0.2 --rounds 100"
        " --sampling-rate 0.2",
        3,
    ),
    Experiment(
        "FL-STD, MLP",
        f"fl-std {_OPEN} --model mlp --balance weights --epochs 1 --batch-size 50 --local-lr 0.05 --rounds 100"
        " --sampling-rate 0.2",
        2,
    ),
    Experiment(
        "FL-SIGN, MLP",
        f"fl-sign {_OPEN} --model mlp --balance weights --local-steps 5 --batch-size all --local-lr 0.05"
        " --sign-step 0.001 --rounds 100 --sampling-rate 0.2",
        2,
    ),
    Experiment(
        "FL-STD-DP",
        f"fl-std-dp {_OPEN} {_MANY} {_PRIVATE} --public-records 750",
        2,
    ),
    Experiment(
        "FL-TOP-DP 0.5 %",
        f"fl-top-dp {_OPEN} {_MANY} {_PRIVATE} --public-records 750 --init-steps 40 --ratio 0.005",
        2,
    ),
    Experiment(
        "FL-STD-RECORD-DP",
        f"fl-std-record-dp {_OPEN} --model logistic --sampling-rate 0.2 --rounds 100 --record-rate 0.4 --batch-size 10"
        " --prevalence 0.016 --clip-norm 1 --local-lr 0.5 --epsilon 4 --accountant rdp",
        3,
    ),
    Experiment(
        "FL-SIGN-RECORD-DP",
        f"fl-sign-record-dp {_OPEN} --model logistic --sampling-rate 0.2 --rounds 100 --record-rate 0.4 --batch-size 10"
        " --prevalence 0.016 --clip-norm 1 --local-lr 0.5 --sign-step 0.01 --epsilon 4 --accountant rdp",
        3,
    ),
    Experiment(
        "FL-TOP-DP at the papers' scale",
        f"fl-top-dp {_PREMIER} --num-clients 5011 --rounds 100 --sampler as-published --cohort-size 100"
        " --balance downsample --batch-size all --local-steps 40 --public-records 356 --init-steps 40 --ratio 0.001"
        " --noise-multiplier 1.49 --accountant moments --clip-norm public",
        1,
    ),
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("clinical"), help="folder of the runs  [clinical]")
    parser.add_argument("--seeds", type=int, default=5, help="at most so many  [5]")
    parser.add_argument("--only", help="some experiments, separated by semicolons")
    parser.add_argument("--write", action="store_true", help="run nothing, write the page")
    options = parser.parse_args(arguments)
    if options.write:
        PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    chosen = options.only.split(";") if options.only else [e.name for e in EXPERIMENTS]
    for name in set(chosen) - {e.name for e in EXPERIMENTS}:
        parser.error(f"--only {name}: choose from {', '.join(e.name for e in EXPERIMENTS)}")
    for seed in range(options.seeds):
        for experiment in EXPERIMENTS:
            if experiment.name in chosen and seed < experiment.seeds:
                measure(experiment, seed, options.out)


def measure(experiment: Experiment, seed: int, out: Path) -> None:
    """Run it, unless the same command is among the results, and write its figures down."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"runs": []}
    known = [r for r in results["runs"] if (r["name"], r["seed"], r["command"]) == _key(experiment, seed)]
    if known:
        return
    folder = out / experiment.name.replace(" ", "-").replace(",", "") / f"seed-{seed}"
    words = shlex.split(f"{experiment.command} --seed {seed} --quiet --resume --out {shlex.quote(str(folder))}")
    print(f"{experiment.name}, seed {seed}", file=sys.stderr, flush=True)
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "laconic", "run", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{experiment.name}, seed {seed}: laconic run ended with {process.returncode}")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    results["machine"] = machine("cpu")
    results["runs"] = [r for r in results["runs"] if (r["name"], r["seed"]) != (experiment.name, seed)]
    results["runs"].append(
        dict(zip(("name", "seed", "command"), _key(experiment, seed), strict=True))
        | _figures(summary)
        | {
            "minutes": (time.monotonic() - started) / 60,
            "cpu_minutes": (usage.ru_utime + usage.ru_stime) / 60,
            "peak_bytes": usage.ru_maxrss * 1024,
        }
    )
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _key(experiment: Experiment, seed: int) -> tuple[str, int, str]:
    return experiment.name, seed, experiment.command


def _figures(summary: dict[str, Any]) -> dict[str, Any]:
    last, ledger, statement = summary["last"], summary["ledger"], summary["statement"]
    found = {
        "rounds": summary["rounds"],
        "auroc": last["auroc"],
        "balanced_accuracy": last["balanced_accuracy"],
        "bytes_up": ledger["bytes_up_per_client_and_round"],
        "bytes_down": ledger["bytes_down_per_client_and_round"],
    }
    if statement["private"]:
        released, server = statement["released"], statement["participant"]
        found |= {
            "unit": "record" if statement["unit"].startswith("one record") else "client",
            "accountant": released["accountant"],
            "epsilon": released["epsilon"][released["accountant"]],
            "participant_epsilon": server["epsilon"]["pld"],
            "delta": statement["delta"],
        }
    return found


def page(results: dict[str, Any]) -> str:
    """The page, made of the measured figures alone."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for experiment in EXPERIMENTS:
        found = [r for r in results["runs"] if r["name"] == experiment.name]
        if found:
            runs[experiment.name] = sorted(found, key=lambda r: r["seed"])
    lines = [
        "# Mortality on open data, measured",
        "",
        "Made by `python -m benchmarks.clinical` and `python -m benchmarks.clinical --write`; do not edit. AUROC and"
        " balanced accuracy are of the *last* round, on a fifth of the patients that no client has, so nothing was"
        " chosen on the test records; settings were tried out on the split of seed 1. A seed is another split into"
        " training and test patients. diabetes130 has about 330 deaths among the test records, so the AUROC of one"
        " split is uncertain by about ±0.02 (two standard errors).",
        "",
        "| " + " | ".join(_HEADINGS) + " |",
        "| " + " | ".join("---" for _ in _HEADINGS) + " |",
        *(_row(name, found) for name, found in runs.items()),
        "",
        "ε: the outsider's by the named accountant / the server's (pld), for the unit named. CPU minutes are those of"
        " the whole command; the machine did other work at the same time.",
        "",
        "## What must be true",
        "",
        *_claims(runs),
        "",
        "The papers' own tables, run on the same data: [tables](clinical/tables/README.md).",
        "",
        "## Commands",
        "",
        "```",
        *(f"laconic run {found[0]['command']} --seed 0" for found in runs.values()),
        "```",
        "",
        f"Machine: {json.dumps(results.get('machine', {}), ensure_ascii=False)}",
        "",
    ]
    return "\n".join(lines)


def _row(name: str, runs: list[dict[str, Any]]) -> str:
    auroc, balanced = _spread(runs, "auroc"), _spread(runs, "balanced_accuracy")
    epsilon = "–"
    if "epsilon" in runs[0]:
        first, server = _mean(runs, "epsilon"), _mean(runs, "participant_epsilon")
        epsilon = f"{first:.2f} ({runs[0]['accountant']}) / {server:.2f} per {runs[0]['unit']}"
    cells = [name, str(len(runs)), auroc, balanced, _bytes(_mean(runs, "bytes_up")), _bytes(_mean(runs, "bytes_down"))]
    cells += [epsilon, f"{_mean(runs, 'cpu_minutes'):.1f}", _bytes(max(r["peak_bytes"] for r in runs))]
    return "| " + " | ".join(cells) + " |"


def _claims(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Each with its verdict, from the figures above."""

    def mean(name: str, key: str = "auroc") -> float | None:
        return _mean(runs[name], key) if name in runs else None

    centralised = max((m for m in (mean("centralised, logistic"), mean("centralised, MLP")) if m), default=None)
    private, top = mean("FL-STD-DP"), mean("FL-TOP-DP 0.5 %")
    bytes_std, bytes_top = mean("FL-STD-DP", "bytes_up"), mean("FL-TOP-DP 0.5 %", "bytes_up")
    std, sign = mean("FL-STD, MLP"), mean("FL-SIGN, MLP")
    up_std, up_sign = mean("FL-STD, MLP", "bytes_up"), mean("FL-SIGN, MLP", "bytes_up")
    large = runs.get("FL-TOP-DP at the papers' scale", [])
    claims = [
        ("centralised AUROC at least 0.88, mean over splits", [centralised], lambda a: a >= 0.88),
        (
            "FL-STD within 0.02 of centralised",
            _of_the_same_splits(runs, "centralised, logistic", "FL-STD, logistic"),
            lambda a, b: a - b <= 0.02,
        ),
        ("FL-TOP-DP at 0.5 % no worse than FL-STD-DP at ε = 1", [private, top], lambda a, b: b >= a),
        ("… with over 100 times fewer bytes up", [bytes_std, bytes_top], lambda a, b: a / b > 100),
        ("FL-SIGN within 0.05 of FL-STD", [std, sign], lambda a, b: a - b <= 0.05),
        ("… at 1/32 of the upload", [up_std, up_sign], lambda a, b: abs(a / b / 32 - 1) < 0.02),
    ]
    lines = []
    for text, figures, holds in claims:
        if all(f is not None for f in figures):
            shown = ", ".join(f"{f:,.0f}" if f > 10 else f"{f:.4f}" for f in figures)
            lines.append(f"- {text}: **{'holds' if holds(*figures) else 'does not hold'}** ({shown}).")
    if "centralised, logistic" in runs:
        each = [max(r["auroc"] for r in pair) for pair in _by_seed(runs)]
        above = sum(a >= 0.88 for a in each)
        lines.append(
            f"- The better of the two centralised models reaches 0.88 in {above} of {len(each)} splits"
            f" ({', '.join(f'{a:.4f}' for a in each)})."
        )
    if large:
        run = large[0]
        lines.append(
            f"- Made admissions at the papers' scale (1,271,733 of them, 5,011 hospitals, 100 rounds): FL-TOP-DP took"
            f" {run['cpu_minutes']:.0f} minutes of processor time ({run['minutes']:.0f} by the clock, beside other"
            f" work), making the admissions and testing included, and {_bytes(run['peak_bytes'])} of memory at most"
            f" (**{'below' if run['peak_bytes'] < 6e9 else 'above'}** 6 GB)."
        )
    return lines


def _by_seed(runs: dict[str, list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    pairs: dict[int, list[dict[str, Any]]] = {}
    for name in ("centralised, logistic", "centralised, MLP"):
        for run in runs.get(name, []):
            pairs.setdefault(run["seed"], []).append(run)
    return list(pairs.values())


def _of_the_same_splits(runs: dict[str, list[dict[str, Any]]], *names: str) -> list[float | None]:
    """Mean AUROCs over the splits that all of them were run on."""
    seeds = set.intersection(*({r["seed"] for r in runs.get(name, [])} for name in names))
    chosen = [[r for r in runs.get(name, []) if r["seed"] in seeds] for name in names]
    return [_mean(some, "auroc") if some else None for some in chosen]


def _mean(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.fmean(r[key] for r in runs)


def _spread(runs: list[dict[str, Any]], key: str) -> str:
    values = [r[key] for r in runs]
    mean = f"{statistics.fmean(values):.4f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.4f} to {max(values):.4f})"


def _bytes(count: float) -> str:
    from laconic.report.ledger import human_bytes

    return human_bytes(count)


if __name__ == "__main__":
    main()
