"""Who finds which comment toxic: 1.6 million judgements of comments on Wikipedia, by 4,301 people.

A client is a person who judged; a record is a comment and this person's judgement of it. What is private is not the
comment, which is public, but who judged it and how, and what that tells about the person.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from laconic.data.datasets.checked import check_file
from laconic.data.files.user_file import lines_of, open_file, refused
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.data.text.encode import encoded, wording
from laconic.data.text.vocabulary import vocabulary_of

_COMMENTS, _JUDGEMENTS, _PEOPLE = (
    "toxicity_annotated_comments.tsv",
    "toxicity_annotations.tsv",
    "toxicity_worker_demographics.tsv",
)
_UNKNOWN = -1
_LONGEST_NUMBER = 18
"""Digits of a person's number: so many always fit 64 bits."""
_OLDER = {"Under 18": 0, "18-30": 0, "30-45": 1, "45-60": 1, "Over 60": 1}
_DEGREE = {"none": 0, "some": 0, "hs": 0, "bachelors": 1, "masters": 1, "professional": 1, "doctorate": 1}
_FACTS: dict[str, tuple[str, dict[str, int]]] = {
    "female": ("gender", {"male": 0, "female": 1}),
    "over_30": ("age_group", _OLDER),
    "english_first_language": ("english_first_language", {"0": 0, "1": 1}),
    "degree": ("education", _DEGREE),
}


def load_toxicity(
    info: SourceInfo,
    data_dir: str | Path | None = None,
    *,
    vocabulary: str | None = None,
    max_length: int | None = None,
) -> Source:
    """The judgements; comments of the official test split are the test set, so no test comment is ever trained on.

    Comments of the splits 'train' and 'dev' are training records. `vocabulary` and `max_length` say how a comment
    becomes numbers (`laconic.data.text`). A target is 1 where the person said toxic or very toxic (score below 0).
    """
    files = dict(zip(info.files, info.needed(data_dir), strict=True))
    for file in files.values():
        check_file(file, info)
    numbers, texts, is_test = _comments(files[_COMMENTS])
    comment, person, toxic = _judgements(files[_JUDGEMENTS], numbers)
    rows = {part: np.flatnonzero(is_test[comment] == (part == "test")) for part in ("train", "test")}
    if empty := [part for part in rows if len(rows[part]) == 0]:
        raise refused(files[_JUDGEMENTS], f"judges no {empty[0]} comment; fetch the three files anew")
    people = _people(files[_PEOPLE])
    words = vocabulary_of(vocabulary, (text for text, test in zip(texts, is_test, strict=True) if not test))
    inputs = encoded(texts, words, max_length)
    train, test = (
        Records(inputs[torch.from_numpy(comment[part])], torch.from_numpy(toxic[part].astype(np.int64)))
        for part in rows.values()
    )
    owners = person[rows["train"]]
    return Source(
        name=info.name,
        train=train,
        test=test,
        num_classes=2,
        input_shape=tuple(inputs.shape[1:]),
        description=info.description,
        owners=owners,
        test_owners=person[rows["test"]],
        attributes={fact: _of_each(owners, people.get(fact, {})) for fact in _FACTS},
        notes=words.revealed,
        wording=wording([texts[row] for row in comment[rows["train"]]], train.targets, words),
    )


def _comments(file: Path) -> tuple[dict[str, int], list[str], np.ndarray]:
    """(the place of each comment by its number, the texts, whether each is a test comment)."""
    numbers: dict[str, int] = {}
    texts: list[str] = []
    splits: list[str] = []
    for number, text, split in _columns(file, "rev_id", "comment", "split"):
        numbers[number] = len(texts)
        # Line ends and tabs, as the file writes them.
        texts.append(text.replace("NEWLINE_TOKEN", " ").replace("TAB_TOKEN", " "))
        splits.append(split)
    is_test = np.array([split == "test" for split in splits])
    if is_test.all() or not is_test.any():
        raise refused(file, "column 'split' must name some comments 'test' and others not; fetch the file anew")
    return numbers, texts, is_test


def _judgements(file: Path, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(which comment, by whom, whether toxic), an entry for each judgement."""
    comments, people, toxic = [], [], []
    for row, (number, worker, score) in enumerate(_columns(file, "rev_id", "worker_id", "toxicity_score"), 1):
        if not _is_number(worker):
            raise refused(file, f"row {row}: 'worker_id' is no number of a person; fetch the three files anew")
        try:
            comments.append(numbers[number])
            people.append(int(worker))
            toxic.append(float(score) < 0)
        except (KeyError, ValueError):
            raise refused(file, f"row {row}: an unknown comment, or no number; fetch the three files anew") from None
    return np.array(comments, dtype=np.int64), np.array(people, dtype=np.int64), np.array(toxic, dtype=bool)


def _people(file: Path) -> dict[str, dict[int, int]]:
    """For each fact, what is known of whom."""
    known: dict[str, dict[int, int]] = {fact: {} for fact in _FACTS}
    for worker, *values in _columns(file, "worker_id", *(column for column, _ in _FACTS.values())):
        for (fact, (_, meaning)), value in zip(_FACTS.items(), values, strict=True):
            if _is_number(worker) and value in meaning:
                known[fact][int(worker)] = meaning[value]
    return known


def _is_number(worker: str) -> bool:
    """Whether it numbers a person. `isdigit` alone is true of ² as well, which `int` does not take."""
    return worker.isascii() and worker.isdigit() and len(worker) <= _LONGEST_NUMBER


def _of_each(owners: np.ndarray, known: dict[int, int]) -> np.ndarray:
    """The fact about the owner of every record: 0, 1, or −1 where it is not known."""
    people, place = np.unique(owners, return_inverse=True)
    facts: np.ndarray = np.array([known.get(int(person), _UNKNOWN) for person in people], dtype=np.int8)[place]
    return facts


def _columns(file: Path, *names: str) -> Iterator[list[str]]:
    """The values of some columns, row by row. Quotes mean nothing in these files, so it is no CSV."""
    try:
        with open_file(file) as opened:
            lines = (line.decode("utf-8").rstrip("\r\n") for line in lines_of(file, opened, "fetch the file anew"))
            header = next(lines, "").split("\t")
            if missing := [name for name in names if name not in header]:
                raise refused(file, f"no column '{missing[0]}' in its first line; fetch the file anew")
            places = [header.index(name) for name in names]
            for row, line in enumerate(lines, 1):
                values = line.split("\t")
                if len(values) != len(header):
                    raise refused(file, f"row {row} has {len(values)} values, not {len(header)}; fetch the file anew")
                yield [values[place] for place in places]
    except UnicodeDecodeError:
        raise refused(file, "is damaged: not UTF-8 text; fetch the file anew") from None
    except OSError as error:
        raise refused(file, f"cannot be read ({error.strerror or error}); fetch the file anew") from None


TOXICITY = SourceInfo(
    name="toxicity",
    description="comments on Wikipedia and who found them toxic, as words; 2 classes",
    licence="CC0; the comments CC BY-SA 3.0",
    origin="Wikipedia Talk Labels: Toxicity, E. Wulczyn, N. Thain and L. Dixon",
    num_train=1_279_485,
    num_test=318_804,
    input_shape=(),
    classes=("not toxic", "toxic"),
    client="a person who judged comments",
    default_clients=4_301,
    natural=True,
    load=load_toxicity,
    files=(_COMMENTS, _JUDGEMENTS, _PEOPLE),
    sums={
        _COMMENTS: "sha256:a4327cef5932459852599f281a4f3908f50d98117608f0c1473aa989e2bcf362",
        _JUDGEMENTS: "sha256:ebef1ada7564f465cdb53bfbbe4789c2c185a662404860972ba3a9db097e3397",
        _PEOPLE: "sha256:7b39a2b03338f81b0d6c52364726dd4d80daf3b4b8f8e92ab26a1beff0719620",
    },
    options=("vocabulary", "max_length"),
    citation="Wulczyn, Thain and Dixon, Ex Machina: Personal Attacks Seen at Scale, WWW 2017",
    how_to_get=(
        "download the three .tsv files of 'Wikipedia Talk Labels: Toxicity' from figshare (article 4563973) into a"
        " folder called toxicity"
    ),
)
