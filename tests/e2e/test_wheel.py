"""Wheel and sdist work by themselves: in a fresh environment, with nothing of the dev extra or of any other."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is not installed: make install")

ROOT = Path(__file__).parents[2]
IMPORTED_AS = {
    "pillow": "PIL",
    "mlflow-skinny": "mlflow",
    "mkdocs-material": "material",
    "axe-playwright-python": "axe_playwright_python",
    "pytest-xdist": "xdist",
    "import-linter": "importlinter",
    "pylbfgs": "lbfgs",
}
"""What is imported, where a distribution has another name."""


def optional() -> tuple[str, ...]:
    """The packages that only extras bring, as they are imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: Iterable[str]) -> set[str]:
        found = {re.split(r"[><=\[; ]", one)[0].lower() for one in requirements}
        return {IMPORTED_AS.get(name, name) for name in found} - {"laconic-fl"}

    extras = names(one for some in project["optional-dependencies"].values() for one in some)
    return tuple(sorted(extras - names(project["dependencies"])))


BLOCKER = f"""\
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {optional()!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""
PROGRAM = """\
import sys
import laconic
from laconic.cli.main import main
print(laconic.__file__)
sys.argv = "laconic run fl-std --num-clients 20 --sampling-rate 0.5 --rounds 1 --out run --quiet".split()
main()
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def wheel_names(folder: Path) -> set[str]:
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        return set(archive.namelist())


@pytest.mark.e2e
def test_the_wheel_trains_a_model_in_a_fresh_environment(dist: Path, tmp_path: Path) -> None:
    """What it depends on is borrowed from here; what is optional is hidden, and laconic is the wheel's."""
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False)
    python, packages = fresh / "bin/python", next(fresh.glob("lib/python3*/site-packages"))
    (packages / "borrowed.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    (packages / "sitecustomize.py").write_text(BLOCKER)
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        archive.extractall(packages)  # a pure wheel is installed by unpacking it
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}

    def call(program: str) -> subprocess.CompletedProcess[str]:
        words = [python, "-c", program]
        return subprocess.run(words, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)

    assert "No module named 'pandas'" in call("import pandas").stderr  # else the rest would show nothing
    ended = call(PROGRAM)
    assert ended.returncode == 0, ended.stderr
    assert str(packages) in ended.stdout.splitlines()[0]
    assert (tmp_path / "run/report.html").exists()


@pytest.mark.e2e
def test_the_wheel_holds_both_packages_and_what_it_reads(dist: Path) -> None:
    names = wheel_names(dist)
    assert {"laconic/__init__.py", "laconic/py.typed", "laconic/cli/main.py"} <= names
    assert {"laconic_studies/__init__.py", "laconic_studies/py.typed", "laconic_studies/cli/infer.py"} <= names
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in source if "__pycache__" not in name} == {n for n in names if ".dist-info/" not in n}


@pytest.mark.e2e
def test_the_sdist_has_all_that_the_repository_has_and_makes_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    root = next(tmp_path.glob("laconic_fl-*"))
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False)
    tracked = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    assert [name for name in tracked if not (root / name).exists()] == []
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again"]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    assert wheel_names(tmp_path / "again") == wheel_names(dist)


def test_what_only_extras_bring_is_hidden() -> None:
    assert {"pandas", "PIL", "flwr", "matplotlib", "pytest", "hypothesis", "wandb", "mlflow"} <= set(optional())
    assert not {"torch", "numpy", "click"} & set(optional())


def test_the_container_file_copies_what_exists_and_calls_what_is_there() -> None:
    """It cannot be built where there is no container engine; its paths, extras and command can be checked."""
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M) for word in line.split()[:-1]]
    assert {"constraints.txt", "pyproject.toml", "src"} <= set(copied)
    assert not [name for name in copied if not (ROOT / name).exists()]
    kept = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) <= kept
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"'\.\[(.*?)\]'", text)[0].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert re.findall(r'ENTRYPOINT \["(.*?)"\]', text) == list(project["scripts"])
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(), re.M)  # the version that sed looks for
    low, high = re.findall(r"3\.(\d+)", project["requires-python"])
    assert int(low) <= int(re.findall(r"ARG PYTHON=3\.(\d+)", text)[0]) < int(high)


def test_hooks_and_workflow_call_what_the_makefile_calls() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    makefile = (ROOT / "Makefile").read_text()
    tools = re.findall(r"entry: \.venv/bin/([\w-]+)", hooks)
    assert {"ruff", "mypy", "lint-imports"} <= set(tools)
    assert all(f"$(BIN)/{tool}" in makefile for tool in tools)
    assert "repo: http" not in hooks  # local ones only: the versions are those of constraints.txt
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    if importlib.util.find_spec("yaml") is not None:
        import yaml

        assert {"test", "demo", "package"} == set(yaml.safe_load(workflow)["jobs"])
        assert [repo["repo"] for repo in yaml.safe_load(hooks)["repos"]] == ["local"]
    targets = re.findall(r"run: make (\w+)", workflow)
    assert set(targets) == {"test", "demo"}
    assert all(f"\n{target}:" in makefile for target in targets)
