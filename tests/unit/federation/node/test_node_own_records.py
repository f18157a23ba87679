"""A node reads tables, arrays, pictures and texts by its own settings, as the simulator would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from laconic.data.inputs import dense
from laconic.errors import LaconicError
from laconic.federation.node.own_records import own_records, tells_patients
from laconic.federation.populations import Held
from laconic.options.sections import DataSection
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams


def simulated(path: Path, client: int = 0, **options: object):  # type: ignore[no-untyped-def]
    section = DataSection(dataset=str(path), **options)  # type: ignore[arg-type]
    return load_federation(section, holdout=0, streams=Streams(0)).population.records(client)


def test_tables_and_arrays(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,died\n1,0\n2,1\n")
    np.savez(tmp_path / "b.npz", inputs=np.ones((2, 1), dtype=np.float32), targets=np.array([0, 1]))
    found = own_records({"data": str(tmp_path / "a.csv"), "target": "died"}).records
    assert found.inputs.tolist() == [[1.0], [2.0]] and found.targets.tolist() == [0, 1]  # type: ignore[union-attr]
    assert own_records({"data": str(tmp_path / "b.npz")}).records.inputs.shape == (2, 1)


def test_texts_are_numbered_as_in_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("words,target\ngood day,1\nbad day,0\n")
    settings = {"data": str(tmp_path / "a.csv"), "text-column": "words", "vocabulary": "hash:50", "max-length": 5}
    other = simulated(tmp_path, text_column="words", vocabulary="hash:50", max_length=5)
    assert torch.equal(own_records(settings).records.inputs, other.inputs)  # type: ignore[arg-type]
    del settings["max-length"]
    assert own_records(settings).records.inputs.shape == (2, 50)


def test_pictures_are_those_of_a_simulation(tmp_path: Path) -> None:
    for client in ("a", "b"):
        for name, value in (("cat", 50), ("dog", 200)):
            (tmp_path / client / name).mkdir(parents=True)
            Image.new("RGB", (10, 8), (value, 9, 0)).save(tmp_path / client / name / "1.png")
    found = own_records({"data": str(tmp_path / "a"), "classes": "cat, dog", "image-size": "4x4"}).records
    other = simulated(tmp_path, image_size="4x4")
    assert torch.equal(dense(found.inputs), dense(other.inputs)) and torch.equal(found.targets, other.targets)
    turned = own_records(
        {"data": str(tmp_path / "a"), "classes": "dog,cat", "image-size": "4x4", "channels": 1}
    ).records
    assert turned.targets.tolist() == [1, 0] and turned.inputs.shape == (2, 1, 4, 4)


def test_health_records_need_a_schema_that_fixes_everything(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,died\n50,1\n20,0\n")
    text = 'label = "died"\npositive = 1\n[[numeric]]\ncolumn = "age"\n'
    (tmp_path / "open.toml").write_text(text)
    (tmp_path / "fixed.toml").write_text(text + "min = 0\nmax = 100\n")
    found = own_records({"data": str(tmp_path / "a.csv"), "schema": str(tmp_path / "fixed.toml")}).records
    assert dense(found.inputs).tolist() == [[0.5], [pytest.approx(0.2)]]
    with pytest.raises(LaconicError, match="fitted by each node they would differ"):
        own_records({"data": str(tmp_path / "a.csv"), "schema": str(tmp_path / "open.toml")})


def test_a_column_says_whose_each_record_is_and_is_not_learnt_from(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("person,age,died\nb,50,1\na,20,0\nb,30,0\n")
    np.savez(tmp_path / "b.npz", inputs=np.ones((3, 1)), targets=np.array([0, 1, 1]), whose=np.array([9, 4, 9]))
    table = {"data": str(tmp_path / "a.csv"), "target": "died", "patient-column": "person"}
    arrays = {"data": str(tmp_path / "b.npz"), "patient-column": "whose"}
    for settings in (table, arrays):
        found = own_records(settings)
        assert tells_patients(settings)
        assert found.patients is not None and found.patients.tolist() == [1, 0, 1]
        assert found.records.inputs.shape == (3, 1)
    for settings in ({"data": str(tmp_path / "b.npz")}, {"data": "x.csv", "target": "died"}):
        assert not tells_patients(settings)
    assert own_records({"data": str(tmp_path / "b.npz")}).patients is None
    text = 'label = "died"\npositive = 1\n[[numeric]]\ncolumn = "age"\nmin = 0\nmax = 100\n'
    (tmp_path / "without.toml").write_text(text)
    (tmp_path / "with.toml").write_text('patient = "person"\n' + text)
    health = {"data": str(tmp_path / "a.csv"), "schema": str(tmp_path / "with.toml")}
    found = own_records(health)
    assert tells_patients(health) and found.patients is not None
    assert found.patients[0] == found.patients[2] != found.patients[1]
    health["schema"] = str(tmp_path / "without.toml")
    assert not tells_patients(health) and own_records(health).patients is None


def test_a_function_of_the_owners_may_say_whose_each_record_is() -> None:
    pair = np.ones((3, 1)), np.array([0, 1, 1])
    assert Held.given(pair, "x").patients is None
    told = Held.given((*pair, ["b", "a", "b"]), "x").patients
    assert told is not None and told.tolist() == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "this node has no data"),
        ({"data": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"data": "a.csv", "taget": "x"}, "unknown setting 'taget': did you mean 'target'"),
        ({"data": "a.csv", "classes": "a,b"}, "classes means nothing here: the node has a table"),
        ({"data": "a.csv", "text-column": "x", "vocabulary": "fit:9"}, "use hash:N"),
        ({"data": "a.csv", "patient-column": "who"}, "no column 'who'"),
        ({"data": "a.csv", "text-column": "x", "patient-column": "y"}, "patient-column means nothing here"),
        ({"data": "."}, "this node has no classes"),
        ({"data": ".", "classes": "cat,dog"}, "this node has no image-size"),
        ({"data": ".", "classes": "cat,dog", "image-size": "4", "channels": 2}, "channels must be 1"),
    ],
)
def test_what_a_node_cannot_read_is_said_in_a_line(
    settings: dict[str, object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,target\n1,0\n")
    with pytest.raises(LaconicError) as caught:
        own_records(settings)
    assert words in str(caught.value) and "\n" not in str(caught.value)
