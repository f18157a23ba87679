"""Make five hospitals' tables of admissions that never happened, and one for the server to test on.

python make_data.py FOLDER
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from laconic.data.ehr.synthetic import make_admissions
from laconic.data.ehr.table import EhrTable

COLUMNS = ("patient", "died", "age", "mrci", "gender", "admission_type", "codes")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = make_admissions(60_000, seed=1)
    assert table.clients is not None
    largest = np.argsort(-np.bincount(table.clients.numbers), kind="stable")
    for number, hospital in enumerate(largest[:5]):
        write(folder / f"hospital-{number}.csv", table, np.flatnonzero(table.clients.numbers == hospital))
    write(folder / "test.csv", table, np.flatnonzero(np.isin(table.clients.numbers, largest[5:9])))
    print(f"wrote hospital-0.csv … hospital-4.csv and test.csv to {folder}")


def write(path: Path, table: EhrTable, rows: np.ndarray) -> None:
    """The rows as a hospital would export them."""
    assert table.labels is not None
    codes, texts = table.codes["code"], table.codes["code"].texts
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for row in rows:
            found = [texts[number] for number in codes.numbers[codes.starts[row] : codes.starts[row + 1]]]
            writer.writerow(
                [
                    table.patients.texts[table.patients.numbers[row]],
                    int(table.labels[row]),
                    int(table.numeric["age"][row]),
                    int(table.numeric["mrci"][row]),
                    *(table.categorical[c].texts[table.categorical[c].numbers[row]] for c in COLUMNS[4:6]),
                    ";".join(found),
                ]
            )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
