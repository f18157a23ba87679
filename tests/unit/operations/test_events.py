"""Events as JSON lines: their fields are listed, and a full disk ends nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from laconic.errors import ConfigError
from laconic.operations.events import EventLog


def test_an_event_is_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog(tmp_path / "log")
    log.write("refused", level="warning", round=2, reason="two\nlines " + "x" * 400, seconds=math.inf, cohort=None)
    log.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    row = json.loads(line)
    assert (row["event"], row["level"], row["round"], row["seconds"]) == ("refused", "warning", 2, "inf")
    assert row["reason"].startswith("two lines")
    assert len(row["reason"]) == 300
    assert "cohort" not in row
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
    EventLog().write("note", text="to stderr")
    assert json.loads(capsys.readouterr().err)["text"] == "to stderr"


def test_no_other_field_can_be_written(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    with pytest.raises(ValueError, match="no fields of an event"):
        log.write("answered", label=3)
    log.close()


def test_a_full_disk_does_not_end_what_is_watched() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full on this system")
    log = EventLog(Path("/dev/full"))
    log.write("note", text="lost")
    log.close()


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the log"):
        EventLog(tmp_path / "none" / "log")
