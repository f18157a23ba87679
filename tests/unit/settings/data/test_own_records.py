"""The user's own pictures and texts, from the section to a federation, a statement and what is shown of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn

from laconic.cli.main import cli
from laconic.data.federated import FederatedData
from laconic.data.inputs import SparseRows, dense
from laconic.data.population import Records
from laconic.errors import ConfigError, DataError, LaconicError
from laconic.options.sections import DataSection
from laconic.settings.build import files_of, settle
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.settings.data.divide import divided
from laconic.streams import Streams

pytestmark = pytest.mark.filterwarnings("error")


def load(path: Path, holdout: float = 0.0, **options: object) -> FederatedData:
    section = DataSection(dataset=str(path), **options)  # type: ignore[arg-type]
    return load_federation(section, holdout=holdout, streams=Streams(0))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for client, word in enumerate(("apple", "pear", "plum", "fig")):
        (folder / f"c{client}.csv").write_text(f"text,target\ngood {word},1\nbad {word},0\ngood bad,1\n")
    (folder / "test.csv").write_text("text,target\ngood zebra,1\nbad,0\n")
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = "".join(f"c{i % 5},text number{i},{i % 2},7\n" for i in range(50))
    (tmp_path / "table.csv").write_text("who,words,label,age\n" + rows)
    return tmp_path / "table.csv"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    for client in ("a", "b", "c", "test"):
        for kind, value in (("cat", 50), ("dog", 200)):
            (folder / client / kind).mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (10, 8), (value + number, 0, 0)).save(folder / client / kind / f"{number}.png")
    return folder


def test_a_folder_of_pictures_is_a_federation(pictures: Path) -> None:
    found = load(pictures, holdout=0.3)
    assert found.population.num_clients == 2 and found.input_shape == (3, 8, 10)
    assert found.classes == ("cat", "dog") and found.num_classes == 2
    assert found.holdout is not None and len(found.holdout.targets) == 4
    assert found.test is not None and found.test.targets.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(dense(found.population.records(0).inputs)[:, 0, 0, 0] * 255, [50, 51, 200, 201])
    assert load(pictures, image_size="4x5").input_shape == (3, 4, 5)


def test_a_folder_of_texts_is_a_federation_with_bags_of_words(texts: Path) -> None:
    found = load(texts, text_column="text")
    assert found.population.num_clients == 4 and found.input_shape == (5000,) and found.num_classes == 2
    records = found.population.records(1)
    assert isinstance(records.inputs, SparseRows) and records.targets.tolist() == [1, 0, 1]
    assert found.test is not None and len(found.test.targets) == 2
    assert found.notes == ()  # a hash reveals nothing


def test_a_fitted_vocabulary_knows_no_test_text_and_is_declared(texts: Path) -> None:
    found = load(texts, text_column="text", vocabulary="fit:9", max_length=3)
    assert found.wording is not None and set(found.wording.listed) == {"bad", "good", "apple", "fig", "pear", "plum"}
    assert found.test is not None and found.test.inputs.tolist() == [[1, 4, 2], [0, 1, 3]]  # zebra is unknown
    assert len(found.notes) == 1 and "not charged" in found.notes[0]


def test_a_table_of_texts_is_divided_by_its_column_and_tested_on_a_fifth(table: Path) -> None:
    options = {"text_column": "words", "target": "label", "client_column": "who"}
    found = load(table, vocabulary="fit:1000", **options)
    assert found.population.num_clients == 5 and found.test is not None and len(found.test.targets) == 10
    assert found.wording is not None and len(found.wording.listed) == 41  # 'text', and what the 40 training rows have
    assert load(table, num_clients=10, partition="dirichlet", **options).population.num_clients == 10


@pytest.mark.parametrize("texts", [True, False])
def test_who_takes_part_has_no_rows_among_those_set_aside(texts: bool, tmp_path: Path) -> None:
    """Every row says whose it is: as a word, or as a number."""
    file = tmp_path / "rows.csv"
    file.write_text("who,is,label\n" + "".join(f"c{i % 10},{i % 10},{i // 10 % 2}\n" for i in range(200)))
    options = {"text_column": "is", "vocabulary": "fit:100"} if texts else {}
    found = load(file, holdout=0.2, target="label", client_column="who", public_records=7, **options)
    assert found.holdout is not None and found.public is not None and len(found.public.targets) == 7

    def people(records: Records) -> set[int]:
        rows = dense(records.inputs)
        return set((rows.argmax(1) if texts else rows[:, 0].long()).tolist())

    held, public = people(found.holdout), people(found.public)
    taking_part = set.union(*(people(found.population.records(c)) for c in range(found.population.num_clients)))
    assert (len(taking_part), len(held)) == (7, 2) and not taking_part & held and not taking_part & public
    assert "held-out and public records are those of clients who take no part" in found.notes


def test_a_column_of_clients_that_mixes_text_and_numbers_is_refused(tmp_path: Path) -> None:
    data = DataSection(client_column="who", partition="column")
    records = Records(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    column = np.array(["a", 1, "a", 1], dtype=object)
    with pytest.raises(DataError, match="column 'who' mixes text and numbers"):
        divided(data, records, None, column, 2, 0.0, Streams(0), whole_clients=True)


def private(dataset: Path, **values: object) -> RunConfig:
    given = {"data.dataset": str(dataset), "scheme.name": "fl-std-dp", "scheme.clip_norm": 1.0, "run.rounds": 2}
    given |= {
        "scheme.noise_multiplier": 1.0,
        "privacy.delta": 0.01,
        "privacy.allow_large_delta": True,
        "data.classes": "2",
    }
    return RunConfig().with_values(given | {key.replace("__", "."): value for key, value in values.items()})


def test_the_statement_says_where_a_vocabulary_is_from(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("good\nbad\n")
    expected = {"hash:50": None, "fit:50": "not charged to ε", str(tmp_path / "list.txt"): "list in list.txt"}
    for vocabulary, words in expected.items():
        settled = settle(private(texts, data__text_column="text", data__vocabulary=vocabulary))
        about = [note for note in settled.experiment.notes if "vocabulary" in note]
        assert (words is None and not about) or (words is not None and len(about) == 1 and words in about[0])


def test_a_run_keeps_the_words_of_a_fitted_vocabulary_and_they_make_the_same_run(texts: Path, tmp_path: Path) -> None:
    fitted = settle(private(texts, data__text_column="text", data__vocabulary="fit:7"))
    kept = files_of(fitted)["vocabulary.txt"]
    (tmp_path / "kept.txt").write_text(kept)
    listed = settle(private(texts, data__text_column="text", data__vocabulary=str(tmp_path / "kept.txt")))
    for ours, theirs in zip(*(settled.federation.population.records(2) for settled in (fitted, listed)), strict=True):
        assert dense(ours).tolist() == dense(theirs).tolist()
    hashed = settle(private(texts, data__text_column="text"))
    assert "vocabulary.txt" not in files_of(hashed)


def bag_of_vectors(*, num_classes: int, vocabulary: int = 4) -> nn.Module:
    """A model that looks words up."""
    return nn.Sequential(nn.EmbeddingBag(vocabulary, 3), nn.Linear(3, num_classes))


def test_a_model_that_looks_words_up_is_told_how_many_there_are(texts: Path) -> None:
    values = {"data__text_column": "text", "data__max_length": 4, "model__name": f"{__name__}:bag_of_vectors"}
    settled = settle(private(texts, data__vocabulary="hash:77", **values))
    assert settled.config.model.options["vocabulary"] == 77
    assert settle(private(texts, model__vocabulary=6000, **values)).config.model.options["vocabulary"] == 6000
    assert "vocabulary" not in settle(private(texts, data__text_column="text")).config.model.options


@pytest.mark.parametrize(("length", "name"), [(12, "text-cnn"), (100, "cnn-lstm"), (None, "logistic")])
def test_the_model_fits_how_texts_become_numbers(length: int | None, name: str, texts: Path) -> None:
    chosen = {} if length is None else {"data__max_length": length}
    settled = settle(private(texts, data__text_column="text", data__vocabulary="hash:60", **chosen))
    assert settled.config.model.name == name
    assert settled.config.model.options.get("vocabulary") == (None if length is None else 60)


def test_public_texts_get_the_numbers_of_the_clients(texts: Path, tmp_path: Path) -> None:
    public = tmp_path / "public.csv"
    public.write_text("text,target\n" + "good apple,1\n" * 12)
    found = load(texts, text_column="text", public_dataset=str(public), public_records=3)
    assert found.public is not None
    assert dense(found.public.inputs)[0].tolist() == dense(found.population.records(0).inputs)[0].tolist()
    with pytest.raises(ConfigError, match="--vocabulary fit:9 does not fit both"):
        load(texts, text_column="text", public_dataset=str(public), vocabulary="fit:9")


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        ("pictures", {"text_column": "text"}, "--text-column means nothing to pictures"),
        ("pictures", {"vocabulary": "hash:9"}, "--vocabulary means nothing to pictures"),
        ("pictures", {"num_clients": 3}, "leave out --num-clients"),
        ("pictures", {"image_size": "large"}, "--image-size large"),
        ("pictures", {"public_records": 3}, "--public-records without --public-dataset"),
        ("texts", {"text_column": "text", "image_size": "8"}, "--image-size means nothing"),
        ("texts", {"text_column": "words"}, "no column 'words'"),
        ("texts", {"text_column": "target"}, "cannot be both"),
        ("texts", {"text_column": "text", "max_length": 1}, "--max-length 1"),
        ("texts", {"text_column": "text", "vocabulary": "fit:x"}, "--vocabulary fit:x"),
        ("table", {"client_column": "who", "vocabulary": "hash:9"}, "means nothing to a table without --text-column"),
        ("table", {"partition": "column"}, "name the column with --client-column"),
        ("table", {"client_column": "age", "text_column": "words"}, "no column 'target'"),
        ("digits", {"text_column": "words"}, "--text-column means nothing to the data set 'digits'"),
        ("digits", {"image_size": "8"}, "--image-size means nothing to the data set 'digits'"),
        ("synthetic", {"vocabulary": "hash:9"}, "--vocabulary means nothing to this data set"),
        ("ehr-synthetic", {"max_length": 9}, "--max-length means nothing to this data set"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    what: str, options: dict[str, object], words: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(what) if what in ("pictures", "texts", "table") else Path(what)
    with pytest.raises(LaconicError) as caught:
        load(path, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_test_table_with_a_class_of_nobody_is_refused(texts: Path) -> None:
    (texts / "test.csv").write_text("text,target\ngood,5\n")
    with pytest.raises(DataError, match=r"test\.csv: has class 5, but the clients' are 0 to 1"):
        load(texts, text_column="text")


def test_the_commands_show_texts_and_train_on_them(texts: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["datasets", str(texts), "--text-column", "text"])
    assert shown.exit_code == 0, shown.output
    assert "0: bad apple" in shown.output and "4 clients hold 12 records" in shown.output
    out = tmp_path / "run"
    arguments = ["--dataset", str(texts), "--text-column", "text", "--rounds", "2", "--out", str(out)]
    ran = CliRunner().invoke(cli, ["run", "fl-std", *arguments])
    assert ran.exit_code == 0, ran.output
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 2


def test_the_commands_show_pictures_with_the_names_of_their_classes(pictures: Path) -> None:
    shown = CliRunner().invoke(cli, ["datasets", str(pictures)])
    assert shown.exit_code == 0, shown.output
    assert "cat" in shown.output and "dog" in shown.output and "3 clients hold 12 records" in shown.output
