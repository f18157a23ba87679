"""Tables and pictures of `docs/results/robust-groups.md`, from runs.csv and from simulated evidence.

    python -m benchmarks.robust_groups_page            # prints the tables, writes the pictures

The curve of clients that come back seldom needs no training: who is in which group, and which groups are spoilt, is
drawn, and the evidence is computed as in a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.report import table as markdown
from benchmarks.robust_groups import DEFENCES, FOLDER, read_rows
from laconic.group_testing import Verdict, chance_of_a_group, first_findings, update_findings
from laconic.plan import RoundPlan
from laconic.report.plots import line_style

CLIENTS, GROUPS, COHORT = 6000, 20, 100
SELDOM = {"6 attackers (0.1 %)": 6, "60 attackers (1 %)": 60, "600 attackers (10 %)": 600}
LONGEST = 1500


def excluded_by_round(attackers: int, *, rate: float, rounds: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """How many attackers, and how many honest clients, are excluded after each round, if every attack shows."""
    rng, findings = np.random.default_rng(seed), first_findings(CLIENTS, 10**9)
    found, honest = np.zeros(rounds), np.zeros(rounds)
    base = RoundPlan(
        round=1, attempt=0, cohort=np.arange(0), planned_cohort=1, run_seed=0, round_seed=0, fingerprint=""
    )
    for number in range(1, rounds + 1):
        cohort = np.flatnonzero(rng.random(CLIENTS) < rate)
        cohort = cohort[~np.isin(cohort, findings.excluded_before(number))]
        group = rng.integers(GROUPS, size=len(cohort))
        members = [cohort[group == g] for g in range(GROUPS)]
        plan = replace(base, round=number, cohort=cohort, groups=tuple(replace(base, cohort=some) for some in members))
        spoilt = np.array([(some < attackers).any() for some in members])
        findings = update_findings(
            findings,
            plan,
            Verdict(spoilt.astype(float), spoilt, spoilt),
            chance=chance_of_a_group(GROUPS, len(cohort), dealt=False),
            false_exclusions=1.0,
            false_alarms=0.001,
        )
        found[number - 1] = sum(client < attackers for client in findings.excluded)
        honest[number - 1] = len(findings.excluded) - found[number - 1]
    return found, honest


def seldom(path: Path) -> str:
    """The curve of a hundred of 6,000 clients a round, and its table."""
    from matplotlib import pyplot as plt

    rows, rounds = [], np.arange(1, LONGEST + 1)
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for name, attackers in SELDOM.items():
        found, honest = excluded_by_round(attackers, rate=COHORT / CLIENTS, rounds=LONGEST)
        axes.plot(rounds, found / attackers, label=name, **line_style(len(rows)) | {"markevery": LONGEST // 8})
        half, all_but = (np.flatnonzero(found >= share * attackers) for share in (0.5, 0.95))
        at = [f"{wanted[0] + 1}" if len(wanted) else f"more than {LONGEST}" for wanted in (half, all_but)]
        rows.append([name, *at, f"{found[199] / attackers:.0%}", f"{honest[-1]:.0f}"])
    axes.axvline(200, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("round")
    axes.set_ylabel("share of the attackers that is excluded")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    head = ["of 6,000 clients", "half excluded", "95 % excluded", "after 200 rounds", f"honest, after {LONGEST}"]
    return markdown(head, rows)


def the_map(rows: list[dict[str, str]], part: str) -> str:
    """One line for each attack, one column for each defence: accuracy, and who was excluded when."""
    of_part = [row for row in rows if row["part"] == part]
    clean = {(r["scheme"], r["epsilon"]): float(r["accuracy"]) for r in of_part if r["attackers"] == "0"}
    defences = sorted({(r["defence"], int(r["groups"])) for r in of_part if r["attackers"] != "0"})
    defences.sort(key=lambda one: (DEFENCES.index(one[0]), one[1]))
    keys = dict.fromkeys(
        (r["scheme"], r["epsilon"], r["attack"], r["attackers"], r["boost"]) for r in of_part if r["attackers"] != "0"
    )
    lines = []
    for key in keys:
        cells = {
            (r["defence"], int(r["groups"])): r
            for r in of_part
            if (r["scheme"], r["epsilon"], r["attack"], r["attackers"], r["boost"]) == key
        }
        scheme, epsilon, attack, attackers, boost = key
        start = [scheme, f"{float(epsilon):g}", attack, attackers, f"{float(boost):g}"]
        none = clean.get((scheme, epsilon))
        lines.append([*start, "" if none is None else f"{none:.4f}", *(_cell(cells.get(one)) for one in defences)])
    names = {"none": "mean", "median": "median", "krum": "Multi-Krum", "testing": "testing"}
    head = ["scheme", "ε", "attack", "attackers", "boost", "no attack"]
    return markdown([*head, *(f"{names[kind]}{'' if g == 1 else f', g = {g}'}" for kind, g in defences)], lines)


def _cell(row: dict[str, str] | None) -> str:
    if row is None:
        return ""
    text = "diverged" if row["diverged"] == "True" else f"{float(row['accuracy']):.4f}"
    if row["class_accuracy"]:
        text += f", class {float(row['class_accuracy']):.3f}"
    if row["defence"] == "testing":
        found, honest = row["attackers_excluded"], row["honest_excluded"]
        when = f" by round {row['found_by']}" if row["found_by"] else ""
        text += f" ({found}{when}, {honest} honest)"
    return text


def picture(rows: list[dict[str, str]], path: Path) -> None:
    """Accuracy against the boost, one panel for each scheme of the digits, one line for each defence."""
    from matplotlib import pyplot as plt

    some = [row for row in rows if row["part"] == "digits" and row["epsilon"] == "16.0"]
    schemes = list(dict.fromkeys(row["scheme"] for row in some))
    if not schemes:
        return
    figure, panels = plt.subplots(
        1, len(schemes), figsize=(3.6 * len(schemes), 4.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, scheme in zip(panels[0], schemes, strict=True):
        mine = [row for row in some if row["scheme"] == scheme]
        for place, (name, defence, groups) in enumerate(
            (
                ("mean", "none", 1),
                ("median of 20 groups", "median", 20),
                ("testing of 20 groups", "testing", 20),
            )
        ):
            for attackers, style in (("2", "-"), ("8", "--")):
                cells = [
                    r for r in mine if (r["defence"], r["groups"], r["attackers"]) == (defence, str(groups), attackers)
                ]
                cells.sort(key=lambda r: float(r["boost"]))
                label = f"{name}, {attackers} attackers"
                axes.plot(
                    [float(r["boost"]) for r in cells],
                    [float(r["accuracy"]) for r in cells],
                    label=label,
                    **line_style(place) | {"linestyle": style, "mfc": None if style == "-" else "none"},
                )
        for row in mine:
            if row["attackers"] == "0":
                axes.axhline(float(row["accuracy"]), color="grey", linewidth=0.8, linestyle=":")
        axes.set_xscale("log")
        axes.set_title(scheme)
        axes.set_xlabel("by how much attackers boost their update")
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("accuracy, test digits")
    named = panels[0][0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=3, fontsize=8, title="dotted: without attackers")
    figure.savefig(path, dpi=150, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=str(FOLDER / "runs.csv"))
    parser.add_argument("--pictures", default=str(FOLDER))
    options = parser.parse_args(arguments)
    rows, folder = read_rows(Path(options.runs)), Path(options.pictures)
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("head", "digits"):
        print(f"## {part}\n\n{the_map(rows, part)}\n")
    print(f"## seldom\n\n{seldom(folder / 'seldom.png')}\n")
    picture(rows, folder / "digits.png")


if __name__ == "__main__":
    main()
