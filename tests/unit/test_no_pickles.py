"""Nothing is unpickled, ever: a pickle can run any code when it is opened."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
SAFE = {"np.load": "allow_pickle=False", "numpy.load": "allow_pickle=False", "torch.load": "weights_only=True"}


def openers(source: str) -> list[str]:
    """What in a module can open a pickle."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in PICKLERS]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PICKLERS:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            name, said = ast.unparse(node.func), {ast.unparse(keyword) for keyword in node.keywords}
            if name.endswith("read_pickle") or (name in SAFE and SAFE[name] not in said):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import pickle", 1),
        ("from joblib import load", 1),
        ("np.load(f)", 1),
        ("np.load(f, allow_pickle=True)", 1),
        ("np.load(f, allow_pickle=False)", 0),
        ("torch.load(f, weights_only=False)", 1),
        ("torch.load(f, mmap=True, weights_only=True)", 0),
        ("pd.read_pickle(f)", 1),
        ("import json; json.load(f)", 0),
    ],
)
def test_openers_of_pickles_are_seen(source: str, count: int) -> None:
    assert len(openers(source)) == count


def test_the_packages_have_none() -> None:
    modules = sorted(SOURCE.rglob("*.py"))
    assert len(modules) > 300
    found = [(path.name, what) for path in modules for what in openers(path.read_text(encoding="utf-8"))]
    assert not found
