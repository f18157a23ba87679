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


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["predict"], "missing: FOLDER, DATA"),
        (["predict", "run"], "missing: DATA"),
        (["epsilon", "--delta", "1e-5"], "missing: --rounds, --noise-multiplier, --sampling-rate (or --cohort-size"),
        (["calibrate", "--sampling-rate", "0.1"], "missing: --rounds, --epsilon (see"),
    ],
)
def test_everything_that_is_missing_is_named_at_once(
    words: list[str], missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["laconic", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2 and missing in capsys.readouterr().err
