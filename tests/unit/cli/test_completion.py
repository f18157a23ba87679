"""Shell completion: the scripts are valid, and what they call completes commands, options and values."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from laconic.cli.main import cli, main


def completed(*words: str) -> set[str]:
    *before, last = words
    found = BashComplete(cli, {}, "laconic", "_LACONIC_COMPLETE").get_completions(list(before), last)
    return {item.value for item in found}


def test_commands_options_and_values_are_completed() -> None:
    assert completed("co") == {"compare", "completion"}
    assert completed("run", "--data") == {"--dataset", "--data-dir"}
    assert completed("completion", "") == {"bash", "zsh", "fish"}
    assert "auroc" in completed("run", "--best-by", "a")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(shell: str) -> None:
    shown = CliRunner().invoke(cli, ["completion", shell])
    assert shown.exit_code == 0
    assert f"_LACONIC_COMPLETE={shell}_complete" in shown.output
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n"], input=shown.output, text=True, check=True)


def test_bash_completes_the_command() -> None:
    """The whole way: the script is read by bash, its function called as bash calls it on Tab."""
    script = CliRunner().invoke(cli, ["completion", "bash"]).output
    call = f'laconic() {{ "{sys.executable}" -c "import sys; sys.argv = [\'laconic\']; '
    call += 'from laconic.cli.main import main; main()"; }; export -f laconic\n'
    script = script.replace("_LACONIC_COMPLETE=bash_complete $1", "_LACONIC_COMPLETE=bash_complete bash -c laconic")
    asked = "COMP_WORDS=(laconic dat) COMP_CWORD=1; _laconic_completion laconic; echo ${COMPREPLY[*]}"
    ended = subprocess.run(["bash"], input=f"{call}{script}\n{asked}\n", capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["datasets"]


def test_another_shell_is_refused_in_one_line() -> None:
    shown = CliRunner().invoke(cli, ["completion", "tcsh"])
    assert shown.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in shown.output


def test_no_shell_is_asked_for_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["laconic", "completion"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "Choose from: bash, zsh, fish" in said
    assert len(said.splitlines()) == 1
