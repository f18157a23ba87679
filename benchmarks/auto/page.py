"""`python -m benchmarks.auto.page`: docs/results/auto.md from docs/results/auto/runs.csv."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

from benchmarks.auto.__main__ import FOLDER
from benchmarks.auto.compare import FIRST, NAMED, SEEDS, SETTINGS

_HEAD = f"""# How good `laconic run auto` is

`laconic run auto` chooses the settings of a private run from public facts alone. Here is how far it stays behind the
best of {SETTINGS} settings with the same ε, and, without privacy, behind scikit-learn. The score is AUROC for two
classes, accuracy for more, and R² for quantities, on records never seen.

- *Tables*: {{tables}} tables made at random from seeds {FIRST} to {{last}}, with 1,000 to 100,000 rows, 5 to 1,000
  columns, gaps, heavy tails, levels, hospitals that differ, 1 to 50 % positives, 3 to 20 classes or a quantity; and the
  named data sets. The rule was chosen on other random tables (seeds below 100) and on the named ones.
- *auto*: the mean of {SEEDS} runs that differ in their noise, with δ as `auto` has it.
- *best of {SETTINGS}*: settings are drawn at random: scaling by ranges or by a noisy sum, S, rounds, step, momentum,
  averaging. All are tried once and the best five judged again with three other draws of the noise, **on the test
  records themselves**. So the best has looked at what it is judged by, which a user cannot.
- *regret*: the best minus `auto`. Below 0, `auto` is better than all of them.

"""


def main() -> None:
    with open(FOLDER / "runs.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    random = [row for row in rows if row["table"].startswith("random")]
    tables = sorted({row["table"] for row in random}, key=lambda name: int(name.split()[1]))
    text = _HEAD.format(tables=len(tables), last=FIRST + len(tables) - 1)
    text += _summary(random) + _plain(rows) + "\n## Named tables\n\n"
    text += "diabetes130 has the death in hospital as its label, and patients are protected with all their records.\n\n"
    text += _table([row for name in NAMED for row in _sorted(rows, name)])
    text += "\n## Random tables\n\n" + _table([row for name in tables for row in _sorted(rows, name)])
    text += (
        "\nRun again, with a GPU in minutes:\n\n```\npython -m benchmarks.auto --jobs 15 --data ../shared/data\n"
        "python -m benchmarks.auto.page\n```\n\nEvery run, with the best setting: [auto/runs.csv](auto/runs.csv).\n"
    )
    Path("docs/results/auto.md").write_text(text, encoding="utf-8")


def _sorted(rows: list[dict[str, str]], name: str) -> list[dict[str, str]]:
    return sorted((row for row in rows if row["table"] == name), key=lambda row: float(row["epsilon"]))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _summary(rows: list[dict[str, str]]) -> str:
    names = ("ε", "median regret", "nine of ten below", "worst", "better than the best")
    lines = [_row(*names), _row(*["---"] * len(names))]
    for epsilon in sorted({row["epsilon"] for row in rows}):
        found = sorted(float(row["regret"]) for row in rows if row["epsilon"] == epsilon)
        figures = (statistics.median(found), found[int(0.9 * len(found))], found[-1])
        wins = f"{sum(value < 0 for value in found)} of {len(found)}"
        lines.append(_row(f"{float(epsilon):g}", *(f"{value:.4f}" for value in figures), wins))
    return "\n".join(lines) + "\n"


def _plain(rows: list[dict[str, str]]) -> str:
    gaps = [float(row["scikit_learn"]) - float(row["plain_auto"]) for row in rows if row["plain_auto"]]
    within = sum(gap <= 0.005 for gap in gaps)
    return (
        "\nWithout privacy (`--epsilon inf`) it is at most 0.005 behind scikit-learn's defaults on the same columns, or"
        f" better, on {within} of {len(gaps)} tables; the largest gap is {max(gaps):.4f}, the median"
        f" {statistics.median(gaps):.4f}.\n"
    )


def _table(rows: list[dict[str, str]]) -> str:
    names = ("table", "rows × columns", "classes", "ε", "auto", "best of 200", "regret", "better than")
    names = (*names, "scikit-learn, no privacy", "light")
    lines = [_row(*names), _row(*["---"] * len(names))]
    for row in rows:
        lines.append(
            _row(
                row["table"],
                f"{int(row['rows']):,} × {int(row['columns']):,}",
                row["classes"],
                f"{float(row['epsilon']):g}",
                f"{float(row['auto']):.3f} ± {float(row['auto_std']):.3f}",
                *(f"{float(row[name]):.3f}" for name in ("best", "regret")),
                row["better_than"],
                f"{float(row['scikit_learn']):.3f}" if row["scikit_learn"] else "",
                row["light"],
            )
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
