"""50,000 film reviews as text: what people wrote, made numbers here."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import torch

from laconic.data.files.user_file import LONGEST_TEXT, gunzipped, lines_of, open_file, refused
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.data.text.encode import encoded, wording
from laconic.data.text.vocabulary import vocabulary_of
from laconic.errors import LaconicError

_PARTS = ("train", "test")
_LABELS = {"neg": 0, "pos": 1}
_ORIGINAL = "imdb.vocab"
"""A file of the original distribution, beside its folders `train` and `test`."""


def load_imdb_text(
    info: SourceInfo,
    data_dir: str | Path | None = None,
    *,
    vocabulary: str | None = None,
    max_length: int | None = None,
) -> Source:
    """Both halves, from `train.jsonl.gz` and `test.jsonl.gz` or from the original folder with a file per review.

    `vocabulary` and `max_length` say how a review becomes numbers (`laconic.data.text`). A fitted vocabulary looks at
    the training reviews alone.
    """
    found = info.needed(data_dir)
    if found[0].name == _ORIGINAL:
        found = [found[0].parent / part for part in _PARTS]
        texts, labels = zip(*map(_read_folder, found), strict=True)
    else:
        texts, labels = zip(*map(_read_lines, found), strict=True)
    for file, some, expected in zip(found, texts, (info.num_train, info.num_test), strict=True):
        if len(some) != expected:
            raise refused(
                file,
                f"has {len(some):,} reviews, not {expected:,}; fetch it anew (texts of your own go into a table, with"
                " --text-column)",
            )
    words = vocabulary_of(vocabulary, texts[0])
    train, test = (
        Records(encoded(some, words, max_length), torch.tensor(targets, dtype=torch.int64))
        for some, targets in zip(texts, labels, strict=True)
    )
    return Source(
        name=info.name,
        train=train,
        test=test,
        num_classes=2,
        input_shape=tuple(train.inputs.shape[1:]),
        description=info.description,
        notes=words.revealed,
        wording=wording(texts[0], train.targets, words),
    )


def _read_lines(file: Path) -> tuple[list[str], list[int]]:
    """A review per line: {"text": …, "label": 0 or 1}."""
    texts, labels = [], []
    try:
        with open_file(file) as opened:
            stream = gunzipped(file, opened) if file.suffix == ".gz" else opened
            for row, line in enumerate(lines_of(file, stream, "fetch it anew"), 1):
                review = json.loads(line)
                if not isinstance(review, dict) or not isinstance(review.get("text"), str):
                    raise refused(file, f'line {row} is no review; expected {{"text": …, "label": 0 or 1}}')
                if review.get("label") not in (0, 1):
                    raise refused(file, f"line {row} has no label 0 or 1; write the file anew")
                texts.append(_without_breaks(review["text"]))
                labels.append(int(review["label"]))
    except LaconicError:
        raise
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
        raise refused(file, f"is damaged after line {len(texts)} ({type(error).__name__}); fetch it anew") from None
    if len(set(labels)) < 2:
        raise refused(file, "lacks reviews of one of the two labels; fetch it anew")
    return texts, labels


def _read_folder(folder: Path) -> tuple[list[str], list[int]]:
    """The original: `pos/*.txt` and `neg/*.txt`."""
    texts: list[str] = []
    labels: list[int] = []
    for name, label in _LABELS.items():
        files = sorted((folder / name).glob("*.txt"))
        if not files:
            raise refused(folder / name, "no reviews (*.txt) there; unpack aclImdb_v1.tar.gz anew")
        for file in files:
            texts.append(_without_breaks(_read_review(file)))
        labels += [label] * len(files)
    return texts, labels


def _read_review(file: Path) -> str:
    try:
        with open_file(file) as opened:
            content = opened.read(LONGEST_TEXT + 1)
        if len(content) > LONGEST_TEXT:
            raise refused(file, f"is longer than {LONGEST_TEXT >> 20} MiB, so no review; unpack aclImdb_v1.tar.gz anew")
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise refused(file, "cannot be read as UTF-8 text; unpack aclImdb_v1.tar.gz anew") from None


def _without_breaks(text: str) -> str:
    """Line ends are written as in web pages, and are no word."""
    return text.replace("<br />", " ")


IMDB_TEXT = SourceInfo(
    name="imdb-text",
    description="film reviews as text, made numbers here; 2 classes",
    licence="cite Maas et al. 2011",
    origin="Large Movie Review Dataset v1.0, Stanford",
    num_train=25_000,
    num_test=25_000,
    input_shape=(),
    classes=("negative", "positive"),
    client="a random shard of reviews",
    default_clients=1000,
    load=load_imdb_text,
    files=("train.jsonl.gz", "test.jsonl.gz"),
    or_files=((_ORIGINAL,),),
    folders=("aclImdb",),
    options=("vocabulary", "max_length"),
    citation="Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011",
    how_to_get=(
        "download aclImdb_v1.tar.gz from ai.stanford.edu/~amaas/data/sentiment and unpack it: its folder aclImdb is"
        " what is read"
    ),
)
