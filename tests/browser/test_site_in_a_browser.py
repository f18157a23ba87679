"""The documentation site in a real browser, opened as a file: search answers, and no request leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tools import launched, open_page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[browser]'")

ROOT = Path(__file__).parents[2]
INPUT = {"mkdocs": "input[name=query]", "zensical": "input[role=combobox], [class*=search] input, input[type=text]"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as started:
        yield started


def small_site(builder: str, place: Path) -> Path:
    """Two pages with the site's own settings."""
    program = Path(sys.executable).with_name(builder)
    if not program.exists():
        pytest.skip("the extra docs is not installed: pip install '.[docs]'")
    (place / "docs").mkdir()
    shutil.copytree(ROOT / "docs/assets", place / "docs/assets")
    (place / "docs/index.md").write_text("# Start\n\nNothing here.\n")
    (place / "docs/glossary.md").write_text("# Glossary\n\n## Aardvark\n\nAn animal.\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnot_in_nav:")[0]
    (place / "mkdocs.yml").write_text(settings + "\nnav: [index.md, glossary.md]\n", encoding="utf-8")
    shutil.copytree(ROOT / "tools", place / "tools")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [program, "build", "--strict"], cwd=place, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "build/site/index.html"


@pytest.mark.parametrize("builder", ["mkdocs", "zensical"])
def test_search_answers_from_a_file_and_nothing_is_fetched(builder: str, browser: Any, tmp_path: Path) -> None:
    context, found = open_page(browser, small_site(builder, tmp_path))
    page = found.page
    page.keyboard.press("/" if builder == "mkdocs" else "Control+k")
    asked = page.locator(INPUT[builder]).first
    asked.wait_for(state="visible")
    answer = page.locator("a[href*='glossary.html']:visible", has_text="ardvark").first
    for _ in range(10):  # what is asked before the index is there may be forgotten
        asked.fill("")
        asked.press_sequentially("aardvark")
        with contextlib.suppress(playwright.TimeoutError):
            answer.wait_for(timeout=5_000)
            break
    assert answer.is_visible()
    assert [request for request in found.requests if not request.startswith(("file:", "data:", "blob:"))] == []
    assert found.complaints == []
    context.close()
