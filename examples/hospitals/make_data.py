"""Make admissions that never happened: one table for each hospital, and one for the server to test on.

    python make_data.py FOLDER
    python make_data.py --hospitals 60 --admissions 150 --in-one FILE

The second form writes one table with a column that names the hospital, as a health authority would export it. The risk
of death is logistic in what the table shows. Hospitals differ in size, in the age of their patients and in mortality.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

COLUMNS = ("patient", "hospital", "age", "lactate", "pressure", "sex", "admission", "codes", "outcome")
SEXES, ADMISSIONS, ADMISSION_RISKS = ("Female", "Male"), ("Emergency", "Urgent", "Elective"), (0.6, 0.1, -1.1)
CODES = {  # how frequent each is, and how much it adds to the logit of the risk
    "sepsis": (0.08, 1.4),
    "shock": (0.05, 2.0),
    "ventilation": (0.10, 1.6),
    "heart-failure": (0.15, 0.6),
    "pneumonia": (0.14, 0.6),
    "stroke": (0.07, 1.0),
    "fracture": (0.12, -0.8),
    "hip-surgery": (0.08, -0.9),
    "asthma": (0.10, -0.6),
    "diabetes": (0.25, 0.1),
}

Row = tuple[str | int | float, ...]


def admissions(hospital: int, count: int, seed: int) -> list[Row]:
    """The admissions of one hospital."""
    rng = np.random.default_rng((seed, hospital))
    older, worse = rng.normal(0, 4), rng.normal(0, 0.3)
    age = np.clip(np.rint(rng.normal(64 + older, 16, count)), 18, 95)
    lactate = np.clip(np.round(np.exp(rng.normal(0.5, 0.55, count)), 1), 0.4, 15)
    pressure = np.clip(np.rint(rng.normal(122, 22, count)), 60, 220)
    sex, admission = rng.integers(0, 2, count), rng.choice(3, count, p=(0.55, 0.2, 0.25))
    frequencies, effects = np.array(list(CODES.values())).T
    has = rng.random((count, len(CODES))) < frequencies
    logit = -3.3 + worse + 0.06 * (age - 64) + 2.0 * np.log(lactate / 1.65) - 0.025 * (pressure - 122)
    logit += np.array(ADMISSION_RISKS)[admission] + has @ effects
    died = rng.random(count) < 1 / (1 + np.exp(-logit))
    names = np.array(list(CODES))
    return [
        (
            f"P{hospital:03d}-{row:05d}",
            f"hospital {hospital}",
            int(age[row]),
            float(lactate[row]),
            int(pressure[row]),
            SEXES[sex[row]],
            ADMISSIONS[admission[row]],
            ";".join(names[has[row]]),
            "died" if died[row] else "alive",
        )
        for row in range(count)
    ]


def write(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def make(hospitals: int, mean: int, seed: int) -> list[list[Row]]:
    """One table for each hospital; the largest has three times the admissions of the smallest."""
    sizes = np.random.default_rng(seed).uniform(0.5, 1.5, hospitals) * mean
    return [admissions(number, int(size), seed) for number, size in enumerate(sizes)]


def main(folder: Path, hospitals: int = 5, mean: int = 600, seed: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(make(hospitals, mean, seed)):
        write(folder / f"hospital-{number}.csv", rows)
    write(folder / "test.csv", [row for number in range(4) for row in admissions(900 + number, 1000, seed)])
    print(f"wrote hospital-0.csv … hospital-{hospitals - 1}.csv and test.csv to {folder}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make admissions that never happened.")
    parser.add_argument("folder", nargs="?", default="data", type=Path)
    parser.add_argument("--hospitals", default=5, type=int)
    parser.add_argument("--admissions", default=600, type=int, help="of a hospital, on average")
    parser.add_argument("--in-one", type=Path, metavar="FILE", help="all hospitals in one table")
    given = parser.parse_args()
    if given.in_one:
        tables = make(given.hospitals, given.admissions, seed=1)
        write(given.in_one, [row for rows in tables for row in rows])
        print(f"wrote {sum(map(len, tables))} admissions of {given.hospitals} hospitals to {given.in_one}")
    else:
        main(given.folder, given.hospitals, given.admissions)
