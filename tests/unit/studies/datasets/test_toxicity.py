"""Who found which comment toxic, from made miniatures; and the real files where they are."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from laconic.data.inputs import dense
from laconic.data.sources import SOURCES, load_source
from laconic.data.sparse import SparseRows
from laconic.data.text.vocabulary import HashedWords
from laconic.errors import DataError

pytestmark = pytest.mark.filterwarnings("error")

COMMENTS = """rev_id\tcomment\tyear\tlogged_in\tns\tsample\tsplit
1.0\tYou are "kind`NEWLINE_TOKENthank you\t2002\tTrue\tarticle\trandom\ttrain
2.0\tyou fool\t2003\tTrue\tarticle\tblocked\tdev
3.0\tsecret fool\t2003\tTrue\tarticle\tblocked\ttest
"""
JUDGEMENTS = """rev_id\tworker_id\ttoxicity\ttoxicity_score
1.0\t70\t0\t2.0
2.0\t70\t1\t-2.0
2.0\t8\t0\t0.0
3.0\t8\t1\t-1.0
3.0\t5\t0\t1.0
1.0\t5\t0\t0.0
"""
PEOPLE = """worker_id\tgender\tenglish_first_language\tage_group\teducation
70\tfemale\t1\tOver 60\tdoctorate
8\tother\t0\t\ths
"""


@pytest.fixture
def toxicity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(SOURCES, "toxicity", dataclasses.replace(SOURCES["toxicity"], sums={}))
    for name, text in zip(SOURCES["toxicity"].files, (COMMENTS, JUDGEMENTS, PEOPLE), strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_judgement_is_a_record_of_who_judged(toxicity: Path) -> None:
    source = load_source("toxicity", toxicity)
    assert source.owners is not None and source.test_owners is not None
    assert source.owners.tolist() == [70, 70, 8, 5] and source.test_owners.tolist() == [8, 5]
    assert source.train.targets.tolist() == [0, 1, 0, 0] and source.test.targets.tolist() == [1, 0]
    assert isinstance(source.train.inputs, SparseRows) and source.input_shape == (5000,)
    kind = sorted(HashedWords(size=5000).numbers(["you", "are", "kind", "thank"]))
    rows = dense(source.train.inputs)
    assert rows[0].nonzero().squeeze(1).tolist() == kind
    assert torch.equal(rows[0], rows[3]) and torch.equal(rows[1], rows[2])  # the same comment, judged twice


def test_what_is_known_of_a_judge_is_known_of_each_record(toxicity: Path) -> None:
    facts = {name: values.tolist() for name, values in load_source("toxicity", toxicity).attributes.items()}
    assert facts == {
        "female": [1, 1, -1, -1],
        "over_30": [1, 1, -1, -1],
        "english_first_language": [1, 1, 0, -1],
        "degree": [1, 1, 0, -1],
    }


def test_words_in_order_and_a_vocabulary_fitted_on_training_comments_alone(toxicity: Path) -> None:
    source = load_source("toxicity", toxicity, vocabulary="fit:10", max_length=4)
    assert source.input_shape == (4,) and not dense(source.train.inputs).is_floating_point()
    assert source.test.inputs.tolist() == [[0, 1, 2, 5]] * 2  # you 3, are 4, fool 5; "secret" is in a test comment only
    assert len(source.notes) == 1 and "not charged" in source.notes[0]
    assert load_source("toxicity", toxicity, max_length=4).notes == ()


@pytest.mark.parametrize(
    ("place", "old", "new", "words"),
    [
        (0, "split", "part", "no column 'split'"),
        (0, "\tdev", "", "row 2 has 6 values, not 7"),
        (0, "\ttest", "\ttrain", "'split' must name some"),
        (1, "worker_id", "who", "no column 'worker_id'"),
        (1, "2.0\t8", "9.0\t8", "row 3: an unknown comment"),
        (1, "1.0\t70", "1.0\tann", "row 1: 'worker_id' is no number"),
        (1, "1.0\t70", "1.0\t" + "9" * 20, "row 1: 'worker_id' is no number"),
        (1, "1.0\t70", "1.0\t²", "row 1: 'worker_id' is no number"),
        (1, "1.0\t70", "1.0\t" + "9" * 5000, "row 1: 'worker_id' is no number"),
        (1, JUDGEMENTS.partition("\n")[2], "", "judges no train comment; fetch"),
        (1, JUDGEMENTS.partition("\n")[2], "3.0\t8\t1\t-1.0\n", "judges no train comment; fetch"),
        (1, JUDGEMENTS.partition("\n")[2], "1.0\t8\t1\t-1.0\n", "judges no test comment; fetch"),
        (0, "you fool", "fool" * (1 << 18), "line 3 is longer than 1 MiB; fetch"),
        (1, "-1.0", "bad", "row 4"),
        (2, "gender", "sex", "no column 'gender'"),
    ],
)
def test_damaged_judgements_are_refused_in_a_line(place: int, old: str, new: str, words: str, toxicity: Path) -> None:
    file = toxicity / SOURCES["toxicity"].files[place]
    file.write_text(file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_source("toxicity", toxicity)
    assert file.name in str(caught.value) and words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("worker", ["²", "9" * 20, "9" * 5000])
def test_a_person_without_a_number_is_nobody_who_judged(worker: str, toxicity: Path) -> None:
    file = toxicity / SOURCES["toxicity"].files[2]
    file.write_text(PEOPLE.replace("70", worker), encoding="utf-8")
    assert load_source("toxicity", toxicity).attributes["female"].tolist() == [-1] * 4


@pytest.mark.parametrize("name", SOURCES["toxicity"].files)
def test_an_altered_file_of_judgements_is_refused_by_its_name(
    name: str, toxicity: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row less, or another score, is no damage that anybody could see in the rows that are left."""
    info = SOURCES["toxicity"]
    sums = {file: f"sha256:{hashlib.sha256((toxicity / file).read_bytes()).hexdigest()}" for file in info.files}
    monkeypatch.setitem(SOURCES, "toxicity", dataclasses.replace(info, sums=sums))
    assert len(load_source("toxicity", toxicity).train.targets) == 4
    lines = (toxicity / name).read_text(encoding="utf-8").splitlines(keepends=True)
    (toxicity / name).write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(DataError, match=f"{name}: not the expected data: sha256 .*figshare"):
        load_source("toxicity", toxicity)


def test_judgements_that_are_not_utf_8_are_refused(toxicity: Path) -> None:
    (toxicity / SOURCES["toxicity"].files[0]).write_bytes(COMMENTS.encode("utf-16"))
    with pytest.raises(DataError, match="not UTF-8"):
        load_source("toxicity", toxicity)


@pytest.mark.realdata
def test_the_real_judgements() -> None:
    if SOURCES["toxicity"].locate() is None:
        pytest.skip("LACONIC_DATA has no toxicity")
    source, info = load_source("toxicity"), SOURCES["toxicity"]
    assert (len(source.train.targets), len(source.test.targets)) == (info.num_train, info.num_test)
    assert source.owners is not None and len(np.unique(source.owners)) == info.default_clients
    assert 0.14 < float(source.train.targets.float().mean()) < 0.15
    women = len(np.unique(source.owners[source.attributes["female"] == 1]))
    assert women == 1263
