"""The page about federations says what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.federation_page import page

RESULTS = Path(__file__).parents[2] / "docs/results"


def test_the_page_is_what_the_measurements_make_it() -> None:
    measured = json.loads((RESULTS / "flower.json").read_text())
    assert (RESULTS / "flower.md").read_text() == page(measured)


def test_figures_of_a_run() -> None:
    row = {"bytes_up": 100, "bytes_down": 300, "bytes_once": 0, "secagg_keys_up": 7, "transport_upload_up": 50}
    run = {
        "name": "some scheme",
        "seconds_to_start": 9.0,
        "seconds_to_first_round": 12.0,
        "stages": {"work": 0.25, "polling": 2.5, "rest": 1.25},
        "seconds_per_round": [5.0, 3.0, 4.0],
        "wire_per_round": [1000, 1400],
        "rows": [row, row | {"secagg_keys_up": 0}, row | {"secagg_keys_up": 0}],
        "memory": {"flower-superlink": 150_000_000},
        "load": 1.25,
    }
    about = {"nodes": 5, "rounds": 3, "cpu": "a CPU", "cores": 2, "flwr": "1.41.0", "torch": "2.13.0"}
    text = page({"machine": about, "runs": [run]})
    assert "| some scheme | 9.0 | 12.0 | 4.0 | 3.0 | 5.0 | 1.2 |" in text
    assert "| some scheme | 0.2 | 2.5 | 1.2 |" in text
    assert "| some scheme | 400 | 0 | 50 | 1,200 | 3.00 |" in text
    assert "| some scheme | 7 | 0 |" in text
    assert "| some scheme | 150 |" in text
