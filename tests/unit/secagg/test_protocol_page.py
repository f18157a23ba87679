"""The page of the protocol, and whatever else says against whom it holds, is what the code does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from laconic.guard.contract import _HEAD
from laconic.secagg import terms
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.keys import ANNOUNCEMENT_BYTES, ENTRY_BYTES
from laconic.secagg.crypto.labels import labelled

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
NAMED = {value.decode() for name, value in vars(labels).items() if name.isupper() and isinstance(value, bytes)}


def folded(path: str) -> str:
    return " ".join((ROOT / path).read_text(encoding="utf-8").replace("`", "").split())


def test_the_page_has_all_labels_of_the_code_and_no_others() -> None:
    assert set(re.findall(r"\| `(laconic/\d [^`]+)`", PAGE)) == NAMED
    files = {labels.AT_REST.decode()}  # what files are bound to outlives a version of the messages
    assert all(label.startswith(f"laconic/{labels.PROTOCOL} ") for label in NAMED - files)


def test_no_label_is_made_up_elsewhere() -> None:
    found = [
        f"{path.name}: {match}"
        for path in (ROOT / "src").rglob("*.py")
        if path.name != "labels.py"
        for match in re.findall(r'b"laconic[^"]*"', path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_every_label_is_used_for_one_thing() -> None:
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py") if p.name != "labels.py")
    names = [name for name, value in vars(labels).items() if name.isupper() and isinstance(value, bytes)]
    uses = {name: len(re.findall(rf"labels\.{name}\b", code)) for name in names}
    assert set(uses.values()) == {1}, uses


def test_labelled_texts_can_be_told_apart() -> None:
    texts = {
        labelled(b"ab", b"c", b"d"),
        labelled(b"a", b"bc", b"d"),
        labelled(b"ab", b"cd"),
        labelled(b"ab", b"", b"cd"),
        labelled(b"ab", b"cd", b""),
        labelled(b"ab", 1, 2),
        labelled(b"ab", 1, 3),
    }
    assert len(texts) == 7


def test_the_lengths_on_the_page_are_right() -> None:
    assert "196 bytes for each node" in PAGE
    assert ENTRY_BYTES == 4 + 32 + 32 + 64 + 64 == 196
    assert ANNOUNCEMENT_BYTES == 4 + 1 + 1 + 16 + ENTRY_BYTES
    assert _HEAD.size == 4 + 1 + 4 + 32 + 64
    assert f"version {labels.PROTOCOL}" in PAGE


def test_every_page_makes_the_same_claim() -> None:
    for page in ("docs/protocol.md", "docs/threat-model.md"):
        text = folded(page)
        assert f"{terms.LYING}, {terms.LYING_NEEDS}" in text, page
        assert terms.CURIOUS in text, page
    for page in ("docs/threat-model.md", "docs/federation.md"):
        assert "protocol.md" in folded(page), page
    assert terms.CURIOUS in terms.claim(signed=False)
    assert terms.LYING not in terms.claim(signed=False)


def test_the_tests_that_the_theorem_names_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    listed = subprocess.run(
        ["grep", "-rhoE", r"def test_\w+", str(ROOT / "tests")], capture_output=True, text=True, check=True
    ).stdout
    assert len(named) >= 10
    assert named <= {line.removeprefix("def ") for line in listed.split("\n")}
