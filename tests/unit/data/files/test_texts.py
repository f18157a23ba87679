"""The user's own texts: tables with a column of text, read right or refused in a line."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from laconic.data.files.texts import read_text_folder, read_text_table
from laconic.errors import LaconicError

pytestmark = pytest.mark.filterwarnings("error")

TABLE = 'who,text,target,age\nann,"Good, very good",1,40\nbob,NA,0,50\nann,42,0,60\n'


def table(path: Path, content: str | bytes = TABLE) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, text: str = "text", target: str = "target", client: str = "who") -> object:
    return read_text_table(path, text_column=text, target=target, client_column=client)


def test_texts_are_read_as_they_are_written(tmp_path: Path) -> None:
    found, owners = read_text_table(table(tmp_path / "a.csv"), text_column="text", target="target", client_column="who")
    assert found.texts == ["Good, very good", "NA", "42"]
    assert found.targets.tolist() == [1, 0, 0] and owners.tolist() == ["ann", "bob", "ann"]


def test_a_parquet_table_is_read_alike(tmp_path: Path) -> None:
    pd.DataFrame({"who": ["a", "b"], "text": ["x", "y"], "target": [0.5, 1.5]}).to_parquet(tmp_path / "a.parquet")
    found, _ = read_text_table(tmp_path / "a.parquet", text_column="text", target="target", client_column="who")
    assert found.texts == ["x", "y"] and found.targets.dtype == torch.float32


def test_a_folder_has_a_table_per_client_and_a_test_table(tmp_path: Path) -> None:
    for name in ("bob", "ann", "test"):
        table(tmp_path / f"{name}.csv", f"text,target\nby {name},0\nmore,1\n")
    folder = read_text_folder(tmp_path, text_column="text", target="target")
    assert folder.names == ("ann", "bob") and folder.clients[1].texts == ["by bob", "more"]
    assert folder.test is not None and folder.test.texts[0] == "by test"


GAP = pd.DataFrame({"who": ["a", "b"], "text": ["x", None], "target": [0, 1]})
BAD: dict[str, tuple[str | bytes, str]] = {
    "without the text column": ("who,words,target\na,b,0\n", "; its columns: who, words, target"),
    "without the target": ("who,text\na,b\n", "no column 'target'"),
    "without the client column": ("text,target\na,0\n", "no column 'who'"),
    "with an empty text": (TABLE.replace("NA", ""), "row 2, column 'text': the text is empty"),
    "with a blank text": (TABLE.replace("NA", "   "), "row 2, column 'text': the text is empty"),
    "with a gap for a label": (TABLE.replace("NA,0", "NA,"), "row 2, column 'target': missing"),
    "with words for labels": (TABLE.replace("NA,0", "NA,bad"), "column 'target': not a number"),
    "with a gap for a client": (TABLE.replace("bob", ""), "row 2, column 'who': no value"),
    "in Latin-1": (TABLE.replace("Good", "Müde").encode("latin1"), "UTF-8"),
    "in UTF-16": (TABLE.encode("utf-16"), "UTF-8"),
    "of a header alone": ("who,text,target\n", "no rows"),
    "that is empty": ("", "damaged, empty"),
    "with two text columns": (TABLE.replace("age", "text"), "column 'text' twice"),
    "with an open quote": (TABLE.replace('good"', "good"), "damaged"),
    "with a surplus value": (TABLE.replace("60", "60,70"), "line 4"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    content, words = BAD[name]
    with pytest.raises(LaconicError) as caught:
        read(table(tmp_path / "a.csv", content))
    message = str(caught.value)
    assert "a.csv" in message and words in message and "\n" not in message
    assert "Good" not in message and "very" not in message  # what people wrote is never shown


@pytest.mark.parametrize(
    ("values", "words"), [(["x", None], "no text"), ([1.5, 2.5], "not a text; check --text-column")]
)
def test_a_parquet_column_that_is_no_text_is_refused(values: list[object], words: str, tmp_path: Path) -> None:
    GAP.assign(text=values).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(LaconicError, match=words):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("columns", [("who", "target", "who"), ("text", "who", "who"), ("text", "text", "who")])
def test_a_column_has_one_part_to_play(columns: tuple[str, str, str], tmp_path: Path) -> None:
    with pytest.raises(LaconicError, match="cannot be"):
        read(table(tmp_path / "a.csv"), *columns)


def test_an_npz_holds_no_texts(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"x")
    with pytest.raises(LaconicError, match=r"a\.npz: texts come in tables"):
        read_text_folder(tmp_path, text_column="text", target="target")


def test_fractions_where_others_have_classes_are_refused(tmp_path: Path) -> None:
    table(tmp_path / "a.csv", "text,target\nx,0\n")
    table(tmp_path / "b.csv", "text,target\nx,0.5\n")
    with pytest.raises(LaconicError, match=r"b\.csv: column 'target' has fractions"):
        read_text_folder(tmp_path, text_column="text", target="target")
    table(tmp_path / "a.csv", "text,target\nx,0.5\n")
    table(tmp_path / "b.csv", "text,target\nx,1\n")
    assert read_text_folder(tmp_path, text_column="text", target="target").clients[1].targets.dtype == torch.float32
