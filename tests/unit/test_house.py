"""The house of the tests: each is found by the path of what it tests, and none leans on another."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"
MODULES = sorted(TESTS.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The last words of all names that a file imports: modules, and what is taken from them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").rpartition(".")[2]
            yield from (alias.name for alias in node.names)


def test_no_test_module_imports_another() -> None:
    """What two of them share is a helper: in tests/helpers, in conftest, or beside them under a name of its own."""
    tests = {path.stem for path in MODULES if path.stem.startswith("test_")}
    assert len(tests) > 90
    assert not [(path.name, name) for path in MODULES for name in imported(path) if name in tests]


def test_imports_are_seen_in_all_their_forms(tmp_path: Path) -> None:
    """Guards the test above against seeing nothing."""
    script = tmp_path / "script.py"
    script.write_text("import test_a, x.test_b as b\nfrom test_c import d\ndef f():\n    from x import test_e\n")
    assert {"test_a", "test_b", "test_c", "test_e"} <= set(imported(script))


def package_of(folder: Path) -> Path:
    """What the tests in a folder of `tests/unit` are about: `studies` is `laconic_studies`, others are in `laconic`."""
    if folder.parts[:1] == ("studies",):
        return SOURCE / "laconic_studies" / Path(*folder.parts[1:])
    return SOURCE / "laconic" / folder


def test_every_folder_of_unit_tests_is_named_as_a_package() -> None:
    root = TESTS / "unit"
    folders = {path.parent.relative_to(root) for path in root.rglob("*.py")}
    assert len(folders) > 15
    assert not [folder for folder in folders if not (package_of(folder) / "__init__.py").is_file()]


def test_names_of_test_modules_are_unique() -> None:
    """pytest imports them by name alone; where two would meet, one has its package's name in front."""
    assert not [name for name, count in Counter(path.name for path in MODULES).items() if count > 1]
