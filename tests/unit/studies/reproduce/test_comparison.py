"""Published beside measured: means, deviations, units, what counts as reproduced."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laconic.errors import ConfigError, RunFolderError
from laconic_studies.reproduce.comparison import Measured, compared, markdown, reproduced_text, table_csv
from laconic_studies.reproduce.kept_weights import KeptByLayer, Layer
from laconic_studies.reproduce.reproduction import Reproduction
from laconic_studies.reproduce.table_plots import plot_table
from laconic_studies.reproduce.tables import Table, load_table

RUN = Measured(
    seed=0,
    trained_on="fashion-mnist",
    rounds=200,
    accuracy=0.80,
    round=190,
    last_accuracy=0.79,
    bytes_up=1_000_000,
    bytes_down=2_000_000,
    bytes_once=0.0,
    formula_bytes_up=990_000,
    formula_bytes_down=1_990_000,
    bits_up=16.0,
    bits_down=32.0,
    formula_bits_up=22.0,
    formula_bits_down=32.0,
)
EUROSP, UAI, THESIS = (load_table(name) for name in ("eurosp-table3", "uai-table8", "thesis-table5.2"))


def reproduction(table: Table = UAI, **options: Any) -> Reproduction:
    return Reproduction(table=table, out=Path("out"), **options)


def test_mean_and_deviation_over_seeds() -> None:
    runs = [replace(RUN, seed=s, accuracy=a) for s, a in enumerate((0.80, 0.82, 0.84))]
    entry = compared(EUROSP, {3: runs})[2]
    assert entry["accuracy"] == pytest.approx(0.82)
    assert entry["deviation"] == pytest.approx(0.02)
    assert entry["difference"] == pytest.approx(0.0)
    assert entry["seeds"] == [0, 1, 2]
    assert "0.8200 ± 0.0200 (3)" in markdown(EUROSP, {3: runs})


def test_one_seed_has_no_deviation_and_no_run_no_figures() -> None:
    entries = compared(EUROSP, {3: [RUN]})
    assert entries[2]["deviation"] is None
    assert (entries[0]["accuracy"], entries[0]["up"], entries[0]["difference"]) == (None, None, None)


@pytest.mark.parametrize(
    ("table", "row", "up", "formula", "down"),
    [(EUROSP, 3, 8.0, 7.92, 16.0), (UAI, 5, 1000.0, 990.0, 2000.0), (THESIS, 2, 16.0, 22.0, 32.0)],
)
def test_costs_are_in_the_unit_of_the_table(table: Table, row: int, up: float, formula: float, down: float) -> None:
    entry = compared(table, {row: [RUN]})[row - 1]
    assert (entry["up"], entry["formula_up"], entry["down"]) == pytest.approx((up, formula, down))


def test_better_counts_as_reproduced_and_a_row_without_figure_does_not_count() -> None:
    results = {1: [replace(RUN, accuracy=0.99)], 5: [replace(RUN, accuracy=0.36)], 7: [RUN], 10: [RUN], 14: [RUN]}
    results[14] = [replace(RUN, accuracy=0.735)]  # published: 0.14, 0.37, 0.78, none, 0.76
    assert reproduced_text(compared(UAI, results)).startswith("3 of 4 rows")


def test_what_is_not_comparable_is_marked_and_not_counted() -> None:
    quick = reproduction(EUROSP, quick=True, changes={"scheme.local_lr": 0.1})
    text = markdown(EUROSP, {3: [replace(RUN, trained_on="digits")]}, quick.notes)
    assert "**Quick version" in text
    assert "**Not the paper's settings: scheme.local_lr = 0.1." in text
    assert "fashion-mnist (here: digits)" in text
    assert "rows are within" not in text


def test_csv_has_a_line_for_every_run_and_for_every_row() -> None:
    lines = list(csv.DictReader(io.StringIO(table_csv(UAI, {7: [RUN, replace(RUN, seed=1)]}))))
    assert [line["row"] for line in lines].count("7") == 2
    assert {line["row"] for line in lines} == {str(n) for n in range(1, 73)}
    seventh = [line for line in lines if line["row"] == "7"]
    assert [line["seed"] for line in seventh] == ["0", "1"]
    assert (seventh[0]["published_accuracy"], seventh[0]["cost_unit"]) == ("0.78", "kB")
    assert lines[0]["accuracy"] == ""


def test_results_survive_json() -> None:
    assert Measured.from_dict(RUN.to_dict()) == RUN


@pytest.mark.parametrize("table", [EUROSP, UAI, THESIS, load_table("thesis-table4.1")])
def test_pictures_of_some_rows(table: Table, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = {1: [RUN, replace(RUN, seed=1, accuracy=0.7)], 2: [RUN], len(table.rows): [RUN]}
    plot_table(table, results, tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 5000


def test_a_run_is_known_by_its_settings_alone() -> None:
    row = UAI.rows[27]
    folder = reproduction().runs_of(row)
    assert reproduction(device="cuda", threads=3, data_dir="elsewhere").runs_of(row) == folder
    assert reproduction(load_table("uai-table1")).runs_of(load_table("uai-table1").rows[5]) == folder
    assert reproduction(changes={"run.engine": "one-by-one", "run.holdout": 0.0}).runs_of(row) == folder
    assert folder == Path("out/runs/fl-top-dp-r0.005-fashion-mnist-f425333e"), "known runs would be run again"
    assert reproduction(changes={"scheme.momentum": 0.9}).runs_of(row) != folder
    assert reproduction(quick=True).runs_of(row) != folder
    assert reproduction(keep_weights=True).runs_of(row) != folder


def test_configuration_of_a_row() -> None:
    config = reproduction(data_dir="d", threads=2, changes={"scheme.momentum": 0.9}).config(UAI.rows[27], seed=3)
    assert (config.run.seed, config.run.threads, config.run.rounds, config.run.eval_every) == (3, 2, 200, 1)
    assert (config.data.data_dir, config.data.public_dataset) == ("d", "mnist")
    assert config.scheme.options["momentum"] == 0.9
    assert (config.sampler.kind, config.privacy.accountant) == ("as-published", "moments")


def test_tables_of_private_data_cannot_be_run() -> None:
    with pytest.raises(ConfigError, match="Premier"):
        reproduction(load_table("uai-table2"))


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    here = replace(reproduction(), out=tmp_path)
    folder = here.run_folder(UAI.rows[0], 0)
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    with pytest.raises(RunFolderError, match="result.json is damaged"):
        here.results()


def test_kept_weights_layer_by_layer() -> None:
    layers = [
        Layer(name="0.weight", shape=(2, 3), values={"a": np.array([3.0, -3.0]), "b": np.array([1.0, 1.0])}),
        Layer(name="0.bias", shape=(2,), values={"a": np.array([]), "b": np.array([])}),
    ]
    weights = KeptByLayer(layers)
    assert weights.values()["a"].tolist() == [3.0, -3.0]
    text = weights.markdown()
    assert "| 0.weight | 2×3 | 6 | 2 | 3.0000 | 1.0000 |" in text
    assert "| 0.bias | 2 | 2 | 0 | – | – |" in text
    assert "| all |  | 8 | 2 | 3.0000 | 1.0000 |" in text
