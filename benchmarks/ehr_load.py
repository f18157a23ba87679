"""Seconds and memory of loading one million patients with 24,428 features: from a table, and made on demand.

    python benchmarks/ehr_load.py [--records 1000000] [--format csv|csv.gz|parquet] [--json]

The table is made first, by a process of its own, and written to a temporary folder. Then it is read, prepared
(min_count 1, so that every code is a feature) and divided among virtual hospitals, and the largest resident set of that
process is what is reported.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from laconic.data.ehr.synthetic import make_admissions, synthetic_schema
from laconic.options.sections import DataSection
from laconic.settings.data.clinical import load_clinical
from laconic.streams import Streams


def write_table(folder: Path, records: int, kind: str) -> Path:
    """The made admissions as a hospital would export them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    made = make_admissions(records)
    codes = made.codes["code"]
    texts = pa.array(codes.texts).take(pa.array(codes.numbers))
    lists = pa.ListArray.from_arrays(pa.array(codes.starts.astype(np.int32)), texts)
    assert made.labels is not None and made.clients is not None
    columns = {
        "died": made.labels.astype(np.int8),
        "patient": pa.array(made.patients.texts).take(pa.array(made.patients.numbers)),
        "hospital": pa.array(made.clients.texts).take(pa.array(made.clients.numbers)),
        **made.numeric,
        **{k: pa.array(v.texts).take(pa.array(v.numbers)) for k, v in made.categorical.items()},
        "codes": pc.binary_join(lists, ";"),
    }
    table, path = pa.table(columns), folder / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        csv.write_csv(table, path)
    else:
        with pa.CompressedOutputStream(str(path), "gzip") as stream:
            csv.write_csv(table, stream)
    text = synthetic_schema().to_toml().replace("[[codes]]", '[[codes]]\ndelimiter = ";"\nmin_count = 1')
    (folder / "schema.toml").write_text(text)
    return path


def measured(data: DataSection) -> dict[str, Any]:
    """Load it in this process."""
    started = time.perf_counter()
    found = load_clinical(data, holdout=0.0, streams=Streams(0))
    seconds = time.perf_counter() - started
    return {
        "seconds": round(seconds, 1),
        "largest_resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "features": found.preprocessing.num_features,
        "clients": found.population.num_clients,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=5000)
    parser.add_argument("--format", choices=("csv", "csv.gz", "parquet"), default="csv")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
    ):
        folder = Path(name)
        path = pool.apply(write_table, (folder, options.records, options.format))
        table = DataSection(dataset=str(path), schema=str(folder / "schema.toml"), num_clients=options.clients)
        made = DataSection(
            dataset="ehr-synthetic", num_records=options.records, num_clients=options.clients, min_count=1
        )
        report: dict[str, Any] = {
            "records": options.records,
            "machine": platform.processor() or platform.machine(),
            "table_mb": round(path.stat().st_size / 2**20),
            options.format: pool.apply(measured, (table,)),
            "made on demand": pool.apply(measured, (made,)),
        }
    if options.json:
        print(json.dumps(report))
        return
    for key, value in report.items():
        print(f"{key:<16} {value}")


if __name__ == "__main__":
    main()
