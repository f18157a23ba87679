"""The user's own texts: tables with a column of text, one for all clients or one for each.

Messages name files, rows and columns but never texts: these are what is to be kept private.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from laconic.data.files.folder import client_files, stem
from laconic.data.files.frames import first_bad, need_column, read_frame, targets_of
from laconic.data.files.user_file import named, refused, suffix
from laconic.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Texts:
    """Some texts, and what is to be predicted from each."""

    texts: list[str]
    targets: Tensor


@dataclass(frozen=True)
class TextFolder:
    """A table per client, by the sorted names of the files, and the test table if there is one."""

    names: tuple[str, ...]
    files: tuple[Path, ...]
    clients: tuple[Texts, ...]
    test_file: Path | None
    test: Texts | None

    def pool(self) -> Texts:
        """All clients' texts, one client after another."""
        return Texts(
            [text for client in self.clients for text in client.texts],
            torch.cat([client.targets for client in self.clients]),
        )


def read_text_table(
    path: str | Path, *, text_column: str, target: str, client_column: str | None = None
) -> tuple[Texts, np.ndarray | None]:
    """One table for all clients: its texts, and the column that says whose each is. Other columns are not used."""
    file = Path(path).expanduser()
    if client_column in (text_column, target):
        raise ConfigError(f"'{client_column}' cannot be the client column and be learnt from; name another column")
    frame = _frame(file, text_column)
    if client_column is None:
        return _texts_of(file, frame, text_column, target), None
    need_column(file, frame, client_column, "⟨client-column⟩")
    owner = frame[client_column]
    if owner.isna().any():
        raise refused(file, f"row {first_bad(owner.isna())}, column {named(client_column)}: no value, so no client")
    return _texts_of(file, frame, text_column, target), np.asarray(owner.to_numpy())


def read_texts(path: str | Path, *, text_column: str, target: str) -> Texts:
    """The texts of one table."""
    file = Path(path).expanduser()
    return _texts_of(file, _frame(file, text_column), text_column, target)


def read_plain_texts(path: str | Path, *, text_column: str) -> list[str]:
    """The texts of a table without targets."""
    file = Path(path).expanduser()
    frame = _frame(file, text_column)
    need_column(file, frame, text_column)
    if len(frame) == 0:
        raise refused(file, "no rows below the header")
    return _plain(file, frame[text_column])


def read_text_folder(path: str | Path, *, text_column: str, target: str) -> TextFolder:
    """A folder with a table per client; a table called `test` is the test set."""
    files, test = client_files(Path(path).expanduser())
    read: list[Texts] = []
    for file in (*files, *([test] if test else [])):
        found = read_texts(file, text_column=text_column, target=target)
        like = (read[0] if read else found).targets.dtype
        if found.targets.is_floating_point() and not like.is_floating_point:
            raise refused(
                file,
                f"column {named(target)} has fractions, but whole numbers in {files[0].name}; if rightly so, write 1.0"
                " for 1 there",
            )
        read.append(Texts(found.texts, found.targets.to(like)))
    clients = tuple(read[: len(files)])
    return TextFolder(tuple(map(stem, files)), tuple(files), clients, test, read[-1] if test else None)


def _frame(file: Path, text_column: str) -> pd.DataFrame:
    if suffix(file) in (None, ".npz"):
        raise refused(file, "texts come in tables: a file that ends in .csv, .csv.gz or .parquet is expected")
    return read_frame(file, text=text_column)


def _texts_of(file: Path, frame: pd.DataFrame, text_column: str, target: str) -> Texts:
    if text_column == target:
        raise ConfigError(f"'{target}' cannot be both the text and what is predicted; name them apart with ⟨target⟩")
    need_column(file, frame, text_column, "⟨text-column⟩")
    need_column(file, frame, target, "⟨target⟩")
    if len(frame) == 0:
        raise refused(file, "no rows below the header")
    targets = torch.from_numpy(targets_of(file, frame[target]))
    return Texts(_plain(file, frame[text_column]), targets.float() if targets.is_floating_point() else targets)


def _plain(file: Path, column: pd.Series[Any]) -> list[str]:
    texts: list[Any] = column.tolist()
    for row, text in enumerate(texts, 1):
        if not isinstance(text, str):
            missing = text is None or text != text
            why = "no text; fill in or drop the row" if missing else "not a text; check ⟨text-column⟩"
            raise refused(file, f"row {row}, column {named(column.name)}: {why}")
        if not text.strip():
            raise refused(file, f"row {row}, column {named(column.name)}: the text is empty; fill in or drop the row")
    return texts
