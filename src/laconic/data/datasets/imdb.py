"""IMDB: film reviews as numbers of words, in Keras' numbering; is the review positive?

0 pads, 1 is the start mark, 2 an unknown word, and w + 3 the w-th most frequent word. As in Keras, a review is the
start mark and its words, of which the last 400 are kept, padded in front.
"""

from __future__ import annotations

import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import torch

from laconic.data.datasets.checked import read_checked
from laconic.data.files.npz import read_arrays
from laconic.data.files.user_file import MOST_UNPACKED
from laconic.data.locate import search_dirs
from laconic.data.population import Records
from laconic.data.registry import Source, SourceInfo
from laconic.errors import DataError

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
_WAY = f'write {OWN} with Keras itself, python -c "{CONVERSION}", and name its folder with --data-dir'
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
