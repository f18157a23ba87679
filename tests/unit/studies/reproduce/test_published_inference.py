"""The published figures of property inference, and how they are run again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from laconic.data import locate
from laconic.errors import ConfigError
from laconic_studies.cli.reproduce import reproduce
from laconic_studies.reproduce.property_inference import InferenceReproduction, published_inferences

NAME = "thesis-section5.2"


@pytest.fixture
def faces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with made faces, and no other data anywhere."""
    monkeypatch.delenv("LACONIC_DATA", raising=False)
    monkeypatch.setenv("LACONIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locate, "SYSTEM_DATASETS", tmp_path / "none")
    rng = np.random.default_rng(0)
    labels = {name: rng.integers(0, 2, 160).astype(np.uint8) for name in ("male", "young", "beard", "wavy")}
    images = rng.integers(0, 256, (160, 3, 64, 64)).astype(np.uint8)
    (tmp_path / "faces").mkdir()
    np.savez(tmp_path / "faces" / "faces.npz", images=images, **labels)
    return tmp_path


def test_the_figures_are_those_of_the_text() -> None:
    published = published_inferences()[NAME]
    assert published.accuracy == {"fl-std": 0.92, "fl-sign": 0.50}
    assert (published.dataset, published.attribute) == ("lfw", "black")
    assert published_inferences()["chil-section3.2"] is published


def test_every_setting_is_one_that_the_attack_takes(tmp_path: Path) -> None:
    attack = InferenceReproduction(published=published_inferences()[NAME], out=tmp_path).attack(3)
    assert (attack.warm_up, attack.rounds, attack.share, attack.seed) == (100, 2900, 0.2, 3)
    with pytest.raises(ConfigError, match="did you mean 'rounds'"):
        InferenceReproduction(published=published_inferences()[NAME], out=tmp_path, changes={"round": 3})


def test_without_lfw_it_runs_on_the_stand_in_and_says_so(faces: Path) -> None:
    sets = [
        f"--set={text}"
        for text in ("rounds=20", "emulate_every=10", "records=4", "warm_up=1", "shrink=8", "model=logistic")
    ]
    arguments = [NAME, "--quick", "--data-dir", str(faces), "--out", str(faces / "out"), "--device", "cpu", *sets]
    ended = CliRunner().invoke(reproduce, [*arguments, "--json"], catch_exceptions=False)
    (found,) = json.loads(ended.stdout)
    assert "a stand-in" in found["notes"][0]
    assert [(row["scheme"], row["features"], row["published"], row["seeds"]) for row in found["rows"]] == [
        ("fl-std", "absolute", 0.92, 1),
        ("fl-std", "signed", 0.92, 1),
        ("fl-sign", "absolute", 0.5, 1),
        ("fl-sign", "signed", 0.5, 1),
    ]
    assert found["rows"][2]["accuracy"] == found["rows"][2]["auc"] == 0.5  # constant features
    (folder,) = (faces / "out").iterdir()
    assert "a stand-in" in (folder / "table.md").read_text(encoding="utf-8")
    assert len((folder / "table.csv").read_text(encoding="utf-8").splitlines()) == 1 + 2 * 2
    again = CliRunner().invoke(reproduce, arguments, catch_exceptions=False)
    assert "| fl-std | absolute | 0.92 |" in again.stdout and "round" not in again.stderr


def test_options_of_tables_of_runs_are_refused(tmp_path: Path) -> None:
    for option in (["--rows", "1"], ["--on", "faces"], ["--keep-weights"], ["thesis-table4.1"]):
        with pytest.raises(ConfigError, match="not a table of runs: leave out"):
            CliRunner().invoke(reproduce, [NAME, *option], catch_exceptions=False)


def test_it_is_listed_with_the_tables() -> None:
    assert f"{NAME}, chil-section3.2  2 rows" in CliRunner().invoke(reproduce, ["--list"]).stdout
    assert "fl-sign   accuracy 0.50  'black' in lfw" in CliRunner().invoke(reproduce, [NAME, "--list"]).stdout
