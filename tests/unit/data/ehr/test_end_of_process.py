"""A table that is refused ends the process as an error should: no thread of Arrow's holds Python's memory then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laconic.data.ehr import blocks

SCRIPT = """
import os, sys
from pathlib import Path
import pyarrow.csv
from laconic.data.ehr.blocks import read_table
from laconic.errors import DataError

before = len(os.listdir("/proc/self/task"))
try:
    next(read_table(Path(sys.argv[1]), ["agee"]))
except DataError as error:
    print(error)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_misspelt_column_is_refused_without_starting_a_thread(tmp_path: Path) -> None:
    # A thread that frees the bytes of the header while the interpreter ends makes it abort (exit code 134).
    table = tmp_path / "t.csv"
    table.write_text("age,sex\n50,M\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(table)], capture_output=True, text=True, check=True, env=os.environ
    )
    message, started = done.stdout.splitlines()
    assert "did you mean 'age'" in message
    assert started == "0"


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_arrow_reads_a_file_of_its_own_and_none_of_pythons(tmp_path: Path, name: str, monkeypatch) -> None:
    pa = pytest.importorskip("pyarrow")
    table = tmp_path / name
    if name.endswith(".csv"):
        table.write_text("age,sex\n50,M\n")
    else:
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"age": [50], "sex": ["M"]}), table)
    opened = []
    monkeypatch.setattr(blocks, "arrow_file", lambda path: opened.append(pa.OSFile(str(path))) or opened[-1])
    (block,) = blocks.read_table(table, ["age"])
    assert len(block.numbers) == 1 and len(opened) == 1


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b"a,b\n", ["a", "b"]),
        (b'"a,1",b\r\n', ["a,1", "b"]),
        (b"\xef\xbb\xbfa,b\n", ["a", "b"]),
        (b'"say ""x""",b\n', ['say "x"', "b"]),
    ],
)
def test_the_header_is_read_as_arrow_reads_it(tmp_path: Path, line: bytes, names: list[str]) -> None:
    import pyarrow.csv as csv

    file = tmp_path / "t.csv"
    file.write_bytes(line)
    with file.open("rb") as stream:
        assert blocks.header(stream, "t.csv") == names == csv.read_csv(file).column_names
