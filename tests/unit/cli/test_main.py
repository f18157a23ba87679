"""The command by itself."""

from __future__ import annotations

import sys

import pytest

from laconic.cli.main import main


@pytest.mark.parametrize("words", [[], ["infer"]], ids=["laconic", "a group"])
def test_a_command_by_itself_says_what_there_is(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["laconic", *words])
    main()
    out, err = capsys.readouterr()
    assert out.startswith("Usage:") and "Commands:" in out and not err
