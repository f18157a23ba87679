"""LFW and its stand-in, from made miniatures; and the real files where they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laconic.data.federated import FederatedData
from laconic.data.inputs import dense
from laconic.data.registry import Source
from laconic.data.sources import SOURCES, load_source
from laconic.errors import DataError, LaconicError
from laconic.options.sections import DataSection
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams
from laconic_studies.datasets.lfw import halved, stratified

pytestmark = pytest.mark.filterwarnings("error")

COLUMNS = ("Male", "Asian", "White", "Black", "Youth", "No Beard")
PEOPLE = {  # person → the scores of each of the pictures
    "Ann B Cee": [(-1.0, -2.0, 1.0, -1.0, 0.5, 1.0), (-0.5, -2.0, -1.0, -0.05, -0.5, 1.0)],
    "Dan": [(2.0, 0.3, -1.0, -1.0, 1.0, -1.0)] * 8,
    "Eve": [(-2.0, -0.2, -0.3, -0.4, 1.0, 1.0)],  # no race is decided
    "Flo": [(-2.0, -1.0, 2.0, -0.4, 1.0, 1.0)] * 8,
}


def attributes(people: dict[str, list[tuple[float, ...]]] = PEOPLE) -> str:
    head = "# attributes of LFW\n#\t" + "\t".join(("person", "imagenum", *COLUMNS)) + "\n"
    rows = [
        "\t".join((person, str(number), *map(str, scores))) + "\t"
        for person, pictures in people.items()
        for number, scores in enumerate(pictures, 1)
    ]
    return head + "\n".join(rows) + "\n"


@pytest.fixture
def lfw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder lfw in miniature: all faces are grey, and around them everything is white."""
    few = dataclasses.replace(SOURCES["lfw"], num_train=14, num_test=5)
    monkeypatch.setitem(SOURCES, "lfw", few)
    for person, pictures in PEOPLE.items():
        name = person.replace(" ", "_")
        (tmp_path / "lfw" / "lfw_funneled" / name).mkdir(parents=True)
        for number in range(1, len(pictures) + 1):
            pixels = np.full((250, 250, 3), 255, dtype=np.uint8)
            pixels[70:195, 78:172] = 60 + number
            path = tmp_path / "lfw" / "lfw_funneled" / name / f"{name}_{number:04d}.jpg"
            Image.fromarray(pixels).save(path, "PNG" if number == 1 else "JPEG")  # a name is not believed
    (tmp_path / "lfw" / "lfw_attributes.txt").write_text(attributes(), encoding="utf-8")
    return tmp_path


def test_lfw_is_cropped_to_the_face_and_split_by_gender(lfw: Path) -> None:
    source = load_source("lfw", lfw)
    assert source.input_shape == (3, 62, 47) == source.train.inputs.shape[1:]
    assert len(source.train.targets) + len(source.test.targets) == 18  # without Eve
    assert np.bincount(source.train.targets).tolist() == [7, 6]
    assert np.bincount(source.test.targets).tolist() == [3, 2]
    values = dense(source.train.inputs)
    assert float(values.min()) > 55 / 255 and float(values.max()) < 75 / 255  # nothing of the white around it


def test_lfw_knows_properties_and_people(lfw: Path) -> None:
    source = load_source("lfw", lfw)
    assert source.owners is not None and source.test_owners is not None
    facts = source.attributes
    assert {"black", "white", "asian", "young", "beard", "no_beard", "male"} <= set(facts)
    assert all(len(values) == len(source.owners) and set(values.tolist()) <= {0, 1} for values in facts.values())
    np.testing.assert_array_equal(facts["male"], source.train.targets)
    np.testing.assert_array_equal(facts["beard"], facts["asian"])  # Dan has both
    np.testing.assert_array_equal(facts["black"] + facts["white"] + facts["asian"], 1)
    assert set(source.owners[facts["asian"] == 1].tolist()) == {1}
    assert len(set(source.owners.tolist()) | set(source.test_owners.tolist())) == 3


def test_a_picture_with_no_decided_race_is_left_out_and_one_near_it_is_not(lfw: Path) -> None:
    source = load_source("lfw", lfw)
    assert source.owners is not None and source.test_owners is not None
    counts = np.bincount(np.concatenate([source.owners, source.test_owners]))
    assert counts.tolist() == [2, 8, 8]  # Ann's second picture is black at −0.05, Eve's only one is asian at −0.2


def test_the_clients_of_lfw_are_shards_or_people(lfw: Path) -> None:
    def federation(**options: object) -> FederatedData:
        section = DataSection(dataset="lfw", data_dir=str(lfw), **options)  # type: ignore[arg-type]
        return load_federation(section, holdout=0.0, streams=Streams(0))

    shards, people = federation(num_clients=4), federation(partition="column")
    assert shards.population.num_clients == 4 and shards.client == "a random shard of pictures" and shards.dealt
    assert people.population.num_clients == 3 and people.client == "a person in the pictures" and not people.dealt
    assert people.test_clients is not None and shards.test_clients is None


def bad_lfw(lfw: Path, what: str) -> None:
    file, pictures = lfw / "lfw" / "lfw_attributes.txt", lfw / "lfw" / "lfw_funneled"
    text = file.read_text()
    if what == "no folder":
        pictures.rename(lfw / "lfw" / "elsewhere")
    elif what == "a picture missing":
        (pictures / "Dan" / "Dan_0003.jpg").unlink()
    elif what == "another size":
        Image.new("RGB", (100, 100)).save(pictures / "Dan" / "Dan_0003.jpg")
    elif what == "a damaged picture":
        (pictures / "Dan" / "Dan_0003.jpg").write_bytes((pictures / "Dan" / "Dan_0003.jpg").read_bytes()[:-900])
    else:
        file.write_text(
            {
                "no scores": "# nothing\n",
                "half of it": text[: text.index("Flo\t3")],
                "a word": text.replace("0.3", "yes"),
                "a long name": text.replace("Dan", "Dan" * 1700),
                "a short line": text.replace("\t0.3", ""),
                "no Male": text.replace("Male", "Man"),
                "no header": text.replace("#\tperson", "#\tname"),
                "nobody decided": text.replace("\t2.0\t", "\t-2.0\t").replace("\t0.3", "\t-3").replace("\t1.0", "\t-1")
                .replace("-0.05", "-0.5"),
            }[what]
        )  # fmt: skip


@pytest.mark.parametrize(
    ("what", "culprit", "words"),
    [
        ("no folder", "lfw", "unpack lfw-funneled.tgz"),
        ("a picture missing", "lfw_funneled", "lacks 'Dan/Dan_0003.jpg'"),
        ("a long name", "lfw_funneled", "DanDan"),
        ("another size", "Dan_0003.jpg", "not 250 × 250"),
        ("a damaged picture", "Dan_0003.jpg", "picture anew"),
        ("no scores", "lfw_attributes.txt", "holds no scores"),
        ("half of it", "lfw_attributes.txt", "has 13 pictures, not 19; fetch the file anew"),
        ("a word", "lfw_attributes.txt", "line 5 has a score that is no number"),
        ("a short line", "lfw_attributes.txt", "line 5 does not fit"),
        ("no Male", "lfw_attributes.txt", "no column 'Male'"),
        ("no header", "lfw_attributes.txt", "line 3 does not fit"),
        ("nobody decided", "lfw_attributes.txt", "no picture whose race is decided"),
    ],
)
def test_bad_files_of_lfw_are_refused_in_a_line(what: str, culprit: str, words: str, lfw: Path) -> None:
    bad_lfw(lfw, what)
    with pytest.raises(DataError) as caught:
        load_source("lfw", lfw)
    message = str(caught.value)
    assert culprit in message and words in message and "\n" not in message and len(message) < 500


@pytest.mark.parametrize("name", ["lfw", "faces", "toxicity", "imdb-text"])
def test_without_files_the_way_to_get_them_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LACONIC_DATA", raising=False)
    monkeypatch.setenv("LACONIC_CACHE", str(tmp_path))
    with pytest.raises(DataError) as caught:
        load_source(name)
    message = str(caught.value)
    assert SOURCES[name].how_to_get in message and "--data-dir" in message and "\n" not in message
    with pytest.raises(DataError) as caught:
        load_source(name, tmp_path)
    assert SOURCES[name].how_to_get in str(caught.value) and f"--data-dir {tmp_path}" in str(caught.value)


def test_halving_takes_means_and_leaves_out_what_is_odd() -> None:
    picture = np.arange(15, dtype=np.uint8).reshape(1, 3, 5) * 10
    assert halved(picture).tolist() == [[[30, 50]]]  # means of 0, 10, 50, 60 and of 20, 30, 70, 80


def test_a_stratified_split_never_changes() -> None:
    train, test = stratified(np.array([0] * 10 + [1] * 20), 0.3)
    assert len(test) == 9 and sorted([*train, *test]) == list(range(30))
    assert [(row < 10) for row in test].count(True) == 3
    assert test.tolist() == [1, 7, 8, 11, 13, 14, 18, 21, 25]


def faces_file(folder: Path, **changed: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8),
        "male": np.array([0, 1] * 10, dtype=np.uint8),
        "young": np.array([1] * 20, dtype=np.uint8),
        "beard": np.array([255, 1] * 10, dtype=np.uint8),
        "wavy": np.array([0, 255] * 10, dtype=np.uint8),
    }
    np.savez_compressed(folder / "faces.npz", **arrays | changed)
    return folder


def test_the_stand_in_says_that_it_is_one(tmp_path: Path) -> None:
    source, info = load_source("faces", faces_file(tmp_path)), SOURCES["faces"]
    assert info.stand_in_for == "lfw" and "stand-in" in info.description and "stand-in" in source.notes[0]
    assert (len(source.train.targets), len(source.test.targets)) == (14, 6)
    assert dense(source.train.inputs).dtype.is_floating_point and float(dense(source.train.inputs).max()) <= 1
    male = source.train.targets.numpy()
    np.testing.assert_array_equal(source.attributes["beard"], np.where(male == 1, 1, -1))
    np.testing.assert_array_equal(source.attributes["wavy"], np.where(male == 1, -1, 0))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"images": np.zeros((20, 3, 8, 8), dtype=np.float32)}, "'images' is float32"),
        ({"images": np.zeros((20, 8, 8), dtype=np.uint8)}, "expected uint8"),
        ({"male": np.array([2] * 20, dtype=np.uint8)}, "'male' must be 0, 1 or 255"),
        ({"male": np.array([1] * 20, dtype=np.uint8)}, "only one gender"),
        ({"beard": np.zeros(3, dtype=np.uint8)}, "'beard' must be"),
        ({"young": np.array(["a"] * 20, dtype=object)}, "pickle"),
    ],
)
def test_a_bad_file_of_faces_is_refused_in_a_line(changed: dict[str, np.ndarray], words: str, tmp_path: Path) -> None:
    with pytest.raises(LaconicError) as caught:
        load_source("faces", faces_file(tmp_path, **changed))
    assert "faces.npz" in str(caught.value) and words in str(caught.value)


@pytest.mark.parametrize(("side", "model"), [(64, "lfw-cnn"), (32, "all-cnn-c"), (8, "logistic")])
def test_a_stand_in_is_trained_with_the_network_of_what_it_stands_for(side: int, model: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 3, side, side), dtype=np.uint8)
    folder = faces_file(tmp_path, images=images)
    values = {"scheme.name": "fl-std", "data.dataset": "faces", "data.data_dir": str(folder), "data.num_clients": 2}
    assert settle(RunConfig().with_values(values)).config.model.name == model


def test_half_a_file_of_faces_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = faces_file(tmp_path) / "faces.npz"
    file.write_bytes(file.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"faces\.npz: damaged.*; write CelebA's pictures"):
        load_source("faces", tmp_path)


def test_faces_without_an_array_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "faces.npz", images=np.zeros((2, 3, 4, 4), dtype=np.uint8))
    with pytest.raises(DataError, match="expected arrays 'images', 'male', 'young', 'beard', 'wavy'"):
        load_source("faces", tmp_path)


@pytest.mark.realdata
def test_the_real_faces() -> None:
    source, info = _real("faces"), SOURCES["faces"]
    assert (len(source.train.targets), len(source.test.targets)) == (info.num_train, info.num_test)
    assert source.input_shape == info.input_shape
    assert np.bincount(source.train.targets).tolist() == [2100, 2800]
    assert int((source.attributes["young"] == 1).sum()) == 2802


@pytest.mark.realdata
def test_the_real_lfw() -> None:
    source = _real("lfw")
    assert 9_000 < len(source.train.targets) <= SOURCES["lfw"].num_train
    assert 0.02 < source.attributes["black"].mean() < 0.1 < 0.7 < source.attributes["male"].mean()


def _real(name: str) -> Source:
    if SOURCES[name].locate() is None:
        pytest.skip(f"LACONIC_DATA has no {name}")
    return load_source(name)
