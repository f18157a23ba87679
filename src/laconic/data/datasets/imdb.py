"""IMDB: 50,000 film reviews, as numbers of words in Keras' numbering, and as text; is the review positive?

In Keras' numbering 0 pads, 1 is the start mark, 2 an unknown word, and w + 3 the w-th most frequent word. As in
Keras, a review is the start mark and its words, of which the last 400 are kept, padded in front.
"""

from __future__ import annotations

import io
import json
import lzma
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from laconic.data.download import read_checked
from laconic.data.files.npz import read_arrays
from laconic.data.files.user_file import LONGEST_TEXT, MOST_UNPACKED, gunzipped, lines_of, open_file, refused
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo, search_dirs
from laconic.data.text import encoded, vocabulary_of, wording
from laconic.errors import DataError, LaconicError

VOCABULARY, LENGTH = 5000, 400
PACKED, OWN = "imdb_top5000.npz.xz", "imdb_tokens.npz"
_KERAS = "imdb.npz"
_START, _UNKNOWN = 1, 2
_NAMES = tuple(name for part in ("train", "test") for name in (f"{part}_tokens", f"{part}_offsets", f"y_{part}"))
_MOST_BYTES = 1 << 28
_MOST_REVIEWS = MOST_UNPACKED // (8 * LENGTH)
"""A review without words takes two bytes of the file, and padded 8 × 400 of memory."""
CONVERSION = (
    "import keras, numpy as np; parts = zip(('train', 'test'), keras.datasets.imdb.load_data(num_words=5000,"
    " start_char=None)); arrays = [{n + '_tokens': np.concatenate(x).astype('uint16'), n + '_offsets': np.cumsum([0,"
    f" *map(len, x)]), 'y_' + n: y}} for n, (x, y) in parts]; np.savez_compressed('{OWN}', **arrays[0], **arrays[1])"
)
"""Keras opens its pickles itself, and writes the file that is read here."""
_WAY = f'write {OWN} with Keras itself, python -c "{CONVERSION}", and name its folder with ⟨data-dir⟩'
_SHUFFLE = 5000
"""A fixed public seed: in the file all positive reviews come first."""


def load_imdb(info: SourceInfo, data_dir: str | Path | None = None) -> Source:
    """From the packed file, whose sum is known, or from one that the user has written from Keras' data."""
    try:
        paths = info.locate(data_dir)
    except DataError as error:
        _refuse_keras(info, data_dir)
        raise DataError(f"{error}; to get it, {_WAY}") from None
    if paths is None:
        _refuse_keras(info, data_dir)
        raise DataError(f"{info.name} is not on this machine, and not for download in this form: {_WAY}")
    path = paths[0]
    arrays = _unpacked(path, info) if path.name == PACKED else read_arrays(path, _NAMES)
    train, test = (_records(path, part, arrays) for part in ("train", "test"))
    return Source(
        name=info.name,
        train=train,
        test=test,
        num_classes=2,
        input_shape=(LENGTH,),
        description=info.description,
    )


def _unpacked(path: Path, info: SourceInfo) -> dict[str, np.ndarray]:
    content = read_checked(path, info, _WAY)
    try:
        with lzma.open(io.BytesIO(content)) as packed:
            plain = packed.read(_MOST_BYTES)
        with np.load(io.BytesIO(plain), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in _NAMES}
    except (lzma.LZMAError, EOFError, zipfile.BadZipFile, ValueError, KeyError) as error:
        raise DataError(f"{path}: damaged, or not the file that was expected ({type(error).__name__})") from None


def _records(path: Path, part: str, arrays: dict[str, np.ndarray]) -> Records:
    tokens, offsets, labels = (np.asarray(arrays[name]) for name in _NAMES if part in name)
    problem = _problem(tokens, offsets, labels)
    if problem:
        raise DataError(f"{path}: {part}: {problem}; {_WAY}")
    order = np.random.RandomState(_SHUFFLE).permutation(len(labels))
    padded = pad(tokens, offsets.astype(np.int64))[order]
    return Records(torch.from_numpy(padded), torch.from_numpy(labels[order].astype(np.int64)))


def _problem(tokens: np.ndarray, offsets: np.ndarray, labels: np.ndarray) -> str:
    """What is wrong with the arrays, if anything."""
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (tokens, offsets, labels)):
        return "tokens, offsets and labels must be lists of whole numbers"
    if len(offsets) != len(labels) + 1 or len(labels) == 0:
        return f"{len(labels)} labels need {len(labels) + 1} offsets, not {len(offsets)}"
    if len(labels) > _MOST_REVIEWS:
        return f"{len(labels):,} reviews, more than the {_MOST_REVIEWS:,} that are read"
    if offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets.astype(np.int64)) < 0).any():
        return f"offsets must rise from 0 to the number of tokens, {len(tokens)}"
    if labels.min() < 0 or labels.max() > 1:
        return "labels must be 0 (negative) or 1 (positive)"
    if len(tokens) and (tokens.min() < _UNKNOWN or tokens.max() >= VOCABULARY):
        return (
            f"tokens from {tokens.min()} to {tokens.max()}, but words are {_UNKNOWN} to {VOCABULARY - 1}:"
            " leave out padding and start marks (start_char=None, num_words=5000)"
        )
    return ""


def pad(tokens: np.ndarray, offsets: np.ndarray, length: int = LENGTH) -> np.ndarray:
    """(reviews, length): the start mark and the words, the last `length` of them, zeros in front."""
    back = np.arange(length - 1, -1, -1)  # how far each place is from the end
    sizes = np.diff(offsets)[:, None]
    places = np.clip(offsets[1:, None] - 1 - back, 0, max(0, len(tokens) - 1))
    words = tokens[places].astype(np.int64) if len(tokens) else np.zeros_like(places)
    return np.where(back < sizes, words, np.where(back == sizes, _START, 0))


def _refuse_keras(info: SourceInfo, data_dir: str | Path | None) -> None:
    given = None if data_dir is None else Path(data_dir).expanduser()
    for folder in search_dirs(info.name) if given is None else (given / info.name, given):
        if (folder / _KERAS).is_file():
            raise DataError(
                f"{folder / _KERAS} is Keras' file, which holds pickles, and a pickle is never opened: {_WAY}"
            )


IMDB = SourceInfo(
    name="imdb",
    description="film reviews as numbers of words: the 5,000 most frequent, 400 a review, negative or positive",
    licence="none stated; cite Maas et al. 2011",
    origin="A. Maas et al., Large Movie Review Dataset, in Keras' numbering",
    num_train=25_000,
    num_test=25_000,
    input_shape=(LENGTH,),
    classes=("negative", "positive"),
    client="a random shard of reviews",
    default_clients=1000,
    files=(PACKED,),
    or_files=((OWN,),),
    sums={PACKED: "sha256:4491a3e423cbd6346bbcb3f3d614f0dcc70f8dafb9cb4f499cda9456811dc1fa"},
    load=load_imdb,
    citation="Maas et al., Learning word vectors for sentiment analysis, ACL 2011",
    how_to_get=f"write {OWN} with Keras: `laconic datasets imdb` says how, in a line",
)


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
                " ⟨text-column⟩)",
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
