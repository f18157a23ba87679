"""A table as people have them: text, gaps, an identifier, a date, a leak, no client column."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

COLUMNS = ["id", "age", "sex", "income", "smoker", "visit", "ward_note", "icd", "discharge", "died"]


def write_messy_table(path: Path, rows: int = 600, seed: int = 0, columns: list[str] | None = None) -> Path:
    """`died` depends on age, sex and smoker; `discharge` says it outright."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, columns or COLUMNS, extrasaction="ignore")
        out.writeheader()
        for number in range(rows):
            age, male, smokes = int(rng.integers(18, 95)), rng.random() < 0.5, rng.random() < 0.3
            risk = 1 / (1 + np.exp(-(0.09 * (age - 60) + 1.2 * male + 1.5 * smokes - 1.0)))
            died = rng.random() < risk
            out.writerow(
                {
                    "id": 1000 + number,
                    "age": "" if rng.random() < 0.1 else "> 89" if age > 89 else age,
                    "sex": "M" if male else "F",
                    "income": 10**9 if number % 200 == 7 else int(rng.normal(30_000, 5_000)),
                    "smoker": "NA" if rng.random() < 0.1 else "yes" if smokes else "no",
                    "visit": f"2024-01-{1 + number % 28:02d}",
                    "ward_note": f"the patient number {number} was seen twice today",
                    "icd": f"I{int(rng.integers(0, 90)) ** 2 // 60}",
                    "discharge": "to the cemetery" if died else "home",
                    "died": "yes" if died else "no",
                }
            )
    return path
