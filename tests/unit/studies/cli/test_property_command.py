"""`laconic infer property`: a whole attack on made faces, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from laconic.errors import LaconicError
from laconic_studies.cli.infer import infer


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "faces"
    folder.mkdir()
    rng = np.random.default_rng(0)
    labels = {name: rng.integers(0, 2, 160).astype(np.uint8) for name in ("male", "young", "beard", "wavy")}
    np.savez(folder / "faces.npz", images=rng.integers(0, 256, (160, 3, 64, 64)).astype(np.uint8), **labels)
    return folder


SMALL = "--dataset faces --property young --shrink 8 --records 4 --rounds 20 --warm-up 1 --share 0.5 --emulate-every 10"


def run(faces: Path, scheme: str, *arguments: str) -> list[str]:
    words = ["property", scheme, *SMALL.split(), "--data-dir", str(faces), "--model", "logistic", "--quiet", *arguments]
    return CliRunner().invoke(infer, words, catch_exceptions=False).stdout.splitlines()


def test_an_attack_leaves_a_table_and_says_that_it_is_a_stand_in(faces: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    lines = run(faces, "fl-sign", "--views", "single", "--classifiers", "logistic", "--out", str(out))
    assert lines[0].startswith("faces is a stand-in for lfw")
    assert lines[1].split()[:4] == ["scheme", "view", "features", "classifier"]
    assert lines[2].split()[:5] == ["fl-sign", "single", "absolute", "logistic", "0.500"]
    with (out / "property.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["features"] for row in rows] == ["absolute", "signed"]
    assert {row["stand_in_for"] for row in rows} == {"lfw"}


def test_json_has_settings_and_rows(faces: Path) -> None:
    found = json.loads(
        "".join(run(faces, "fl-std", "--views=model", "--features=signed", "--classifiers=logistic", "--json"))
    )
    assert found["settings"]["rounds"] == 20
    (row,) = found["rows"]
    assert (row["scheme"], row["view"], row["positives"]) == ("fl-std", "model", 10)
    assert 0 <= row["auc_low"] <= row["auc"] <= row["auc_high"] <= 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("fl-std", "--property", "old"), "unknown property 'old'"),
        (("fl-std", "--property", "male"), "unknown property 'male'"),
        (("fl-std", "--views", "singel"), "did you mean 'single'"),
        (("fl-std", "--views", ","), "at least one name"),
        (("fl-std", "--features", "abs"), "unknown feature map 'abs'"),
        (("fl-std", "--classifiers", "svm"), "unknown classifier 'svm'"),
        (("fl-std", "--records", "64"), "too few records"),
        (("fl-std", "--participants", "1"), "a victim and an attacker are two"),
        (("fl-std", "--dataset", "digits"), "says nothing of its records besides the task"),
        (("fl-std", "--dataset", "nowhere"), "unknown dataset 'nowhere'"),
        (("fl-std", "--shrink", "0"), "shrink must be a whole number"),
        (("fl-stdd",), "did you mean 'fl-std'"),
        (("fl-std", "--ratio", "0.1"), "--ratio means nothing to fl-std"),
        (("fl-top",), "fl-top needs --ratio"),
        (("fl-std-dp", "--clip-norm", "1"), "fl-std-dp needs --noise-multiplier"),
        (("fl-std-dp", "--clip-norm", "median", "--noise-multiplier", "1"), "here it must be a number"),
        (("centralized",), "sends nothing"),
        (("fl-std", "--model", "resnet"), "unknown model 'resnet'"),
    ],
)
def test_bad_input_is_refused_in_one_line(faces: Path, arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(LaconicError, match=problem) as refused:
        run(faces, *arguments)
    assert "\n" not in str(refused.value)


def test_an_unknown_kind_of_inference_is_refused() -> None:
    with pytest.raises(click.UsageError, match="unknown kind of inference 'proprety': did you mean 'property'"):
        infer.main(["proprety"], standalone_mode=False)
