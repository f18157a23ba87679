"""Files that are replaced in one step."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from laconic.files import replace_file


def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "state"
    replace_file(target, b"old")
    for call in ("open", "fsync", "replace"):

        def fails(*arguments: object, **options: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            with pytest.raises(OSError, match="No space left"):
                replace_file(target, b"new")
        assert target.read_bytes() == b"old"
    replace_file(target, b"new")
    assert target.read_bytes() == b"new" and [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.skipif(sys.platform == "win32", reason="no permissions as on Unix")
def test_a_link_that_lies_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """In a folder that others may write to, it would lead a secret to a file of theirs."""
    others, target = tmp_path / "others", tmp_path / "key"
    others.write_bytes(b"")
    (tmp_path / "key.new").symlink_to(others)
    replace_file(target, b"secret", mode=0o600)
    assert others.read_bytes() == b"" and target.read_bytes() == b"secret" and not target.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
