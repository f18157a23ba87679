"""A real browser: Debian's chromium, driven by playwright. Where one is missing, tests say so and are skipped."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from axe_playwright_python.sync_playwright import Axe
        from pdfminer.high_level import extract_pages
        from pdfminer.layout import LAParams, LTTextContainer, LTTextLine
        from playwright.sync_api import Browser, BrowserContext, sync_playwright
except ImportError:
    sync_playwright = None  # type: ignore[assignment]


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser, for a few tests: while playwright runs, nothing else in the process can use asyncio."""
    if sync_playwright is None:
        pytest.skip("playwright is not installed: pip install '.[browser]'")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


@dataclass(frozen=True)
class Line:
    """A line of text on a printed page, in points from its lower left corner."""

    page: int
    text: str
    left: float
    bottom: float
    right: float
    top: float

    def covers(self, other: Line) -> bool:
        """Whether the two lie over each other by more than descenders do."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return (
            self.page == other.page
            and width > 1
            and height > 0.4 * min(self.top - self.bottom, other.top - other.bottom)
        )


def printed(browser: Browser, address: str | Path) -> tuple[list[Line], list[str]]:
    """The lines of a page printed on A4, and what is wrong with them: over each other, or beyond the margin."""
    context, opened = open_page(browser, address)
    data = opened.page.pdf(format="A4", print_background=True)
    context.close()
    lines, wrong = [], []
    for number, page in enumerate(extract_pages(io.BytesIO(data), laparams=LAParams(boxes_flow=None)), 1):
        own = [
            Line(number, found.get_text().strip(), *found.bbox)
            for box in page
            if isinstance(box, LTTextContainer)
            for found in box
            if isinstance(found, LTTextLine) and found.get_text().strip()
        ]
        wrong += [
            f"page {number}: {line.text!r} is cut off" for line in own if line.right > page.width + 1 or line.left < -1
        ]
        wrong += [
            f"page {number}: {a.text!r} over {b.text!r}" for a, b in itertools.combinations(own, 2) if a.covers(b)
        ]
        lines += own
    return lines, wrong


@dataclass
class Opened:
    """A page, and all that it said and asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def violations(self) -> list[str]:
        """What axe finds wrong for people who do not see or point: WCAG 2 A and AA, and good practice."""
        found = Axe().run(self.page).response["violations"]
        return [f"{v['id']}: {node['html'][:200]}" for v in found for node in v["nodes"]]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def open_page(
    browser: Browser, address: str | Path, *, dark: bool = False, width: int = 1100, scripts: bool = True
) -> tuple[BrowserContext, Opened]:
    """An address or a file in a window of its own."""
    context = browser.new_context(
        color_scheme="dark" if dark else "light", viewport={"width": width, "height": 800}, java_script_enabled=scripts
    )
    found = Opened(page=context.new_page())
    found.page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.goto(address.as_uri() if isinstance(address, Path) else address)
    return context, found
