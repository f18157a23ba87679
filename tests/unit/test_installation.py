"""Nobody is told to install laconic from a package index: the name there is somebody else's, ours is not there yet."""

from __future__ import annotations

import itertools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from laconic.errors import how_to_install

ROOT = Path(__file__).parents[2]
INSTALLER = re.compile(
    r"\b(?:(?:pip3?|pipx|uv|poetry|pdm|conda|mamba) (?:pip |tool )?(?:install|add|run)|uvx) ([^`\n]*)", re.I
)
OURS = re.compile(r"laconic(?:[-_.]fl)?(?:\[.*\])?(?:[=<>~!]=?.*)?[,;.:)]?", re.I)
"""A requirement by name. A path has a slash or a suffix, and 'name @ file:…' is a path too."""
PROSE = {"in", "of", "or", "and", "from", "the", "a", "an", "for", "with"}
EXTRA = re.compile(r"(?<![\w./-])laconic\[\s*[a-z]", re.I)
"""`laconic[flower]`, wherever it stands."""
REQUIREMENT = re.compile(r"\s*['\"]?laconic\s*(?:[=<>~!]=?\s*\d|@\s*(?!file:)\S)", re.I)
"""A line of a requirements file, or of a list of dependencies over several lines."""
DEPENDENCIES = re.compile(r"(?:dependencies|requires|requirements)\s*=\s*\[[^\]]*['\"]laconic(?:-fl)?\b", re.I)


def offences(text: str) -> list[str]:
    """The lines of a text that would fetch `laconic` from an index."""
    found = [match.group() for match in DEPENDENCIES.finditer(text)]
    for line in text.replace("\\\n", " ").splitlines():
        if EXTRA.search(line) or REQUIREMENT.match(line) or any(map(_names_us, INSTALLER.findall(line))):
            found.append(line.strip())
    return found


def _names_us(arguments: str) -> bool:
    """Whether a requirement by our name is among an installer's arguments, up to where the sentence goes on."""
    words = re.sub(r"\s+@\s*file:", "@file:", arguments).split()
    arguments_only = itertools.takewhile(lambda word: word.lower() not in PROSE, words)
    return any(OURS.fullmatch(word.strip("'\"")) for word in arguments_only)


@pytest.mark.parametrize(
    "text",
    [
        "pip install laconic",
        "pip install 'laconic[flower]'",
        "python -m pip install --upgrade laconic==0.1.0",
        "pip3 install \\\n  laconic",
        "pip install flwr laconic",
        "uv add laconic",
        "uv pip install laconic",
        "uv tool install laconic",
        "pipx install laconic",
        "uvx laconic run",
        "pip install laconic-fl",
        "pip install 'laconic-fl[flower]'",
        'dependencies = ["laconic[flower]"]',
        'dependencies = [\n  "flwr",\n  "laconic",\n]',
        'dependencies = ["laconic-fl[flower]"]',
        "Python with `laconic[flower]` on all of them",
        "laconic>=0.1",
        "laconic @ https://example.org/laconic.whl",
    ],
)
def test_an_instruction_that_would_fetch_a_strangers_program_is_found(text: str) -> None:
    assert offences(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install '.[flower]'",
        "pip install 'dist/laconic_fl-0.1.0-py3-none-any.whl[flower]'",
        "pip install dist/laconic_fl-*.whl",
        "pip install 'laconic-fl[flower] @ file:///srv/wheels/laconic_fl-0.1.0-py3-none-any.whl'",
        "pip install --editable ./laconic",
        "pip install '.[flower]' in a checkout of laconic",
        how_to_install("flower"),
        '  "laconic-fl[tables,pictures,flower]",',
        'publisher = "laconic"',
        "laconic run fl-std",
    ],
)
def test_instructions_that_name_a_checkout_or_a_wheel_pass(text: str) -> None:
    assert not offences(text)


def tracked() -> list[Path]:
    """The files of the repository; in an unpacked archive, which has no history, those that come with it."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    places = [ROOT / name for name in ("src", "tests", "docs", "examples", "benchmarks")]
    return [path for place in places for path in place.rglob("*")] + list(ROOT.glob("*.*"))


def test_no_file_tells_anyone_to_install_laconic_from_an_index() -> None:
    wrong, read = {}, 0
    for path in tracked():
        if path == Path(__file__) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        read += 1
        if found := offences(text):
            wrong[str(path.relative_to(ROOT))] = found
    assert read > 100
    assert not wrong


def test_example_apps_use_the_laconic_that_is_installed() -> None:
    """Flower installs an app's dependencies at run time, unless that is switched off: so there must be none of ours."""
    apps = [tomllib.loads(path.read_text()) for path in (ROOT / "examples").glob("*/pyproject.toml")]
    assert len(apps) == 2
    assert not [name for app in apps for name in app["project"]["dependencies"] if name.lower().startswith("laconic")]


def test_the_app_of_a_trial_uses_the_laconic_that_is_installed() -> None:
    missing = "flwr is not installed: pip install '.[flower]'"
    trial = pytest.importorskip("laconic.federation.trial.trial", reason=missing)
    assert tomllib.loads(trial._APP)["project"]["dependencies"] == []


def test_the_distribution_has_the_free_name_and_its_extras_refer_to_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "laconic-fl"
    assert project["scripts"] == {"laconic": "laconic.cli.main:main"}
    own = [name for names in project["optional-dependencies"].values() for name in names if "laconic" in name]
    assert own == ["laconic-fl[tables,pictures,flower,plots,onnx,tensorboard,mlflow,wandb,docs,browser]"]
