"""The screenshots of the documents: the report, several runs, and a phone at night, in docs/pictures.

    python -m benchmarks.screenshots                # needs chromium and pip install '.[browser,pictures]'

Trains on the embedded digits for a minute, always with the same seeds; the report is that of `make demo`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUNS = {
    "fl-std": "fl-std --num-clients 479 --sampling-rate 0.2 --rounds 60 --local-lr 0.3",
    "digits, ε = 4": "examples/digits.toml",
    "digits, ε = 1": "examples/digits.toml --epsilon 1",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in RUNS}
        for name, folder in folders.items():
            laconic("run", *RUNS[name].split(), "--quiet", "--out", str(folder))
        page = Path(place) / "several.html"
        laconic("compare", *map(str, folders.values()), "--html", str(page))
        pictures(folders["digits, ε = 4"] / "report.html", page, out)


def laconic(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "laconic", *words], check=True, stdout=subprocess.DEVNULL)


def pictures(report: Path, several: Path, out: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1330})
        page.goto(report.as_uri())
        save(page.screenshot(), out / "report.png")
        page.locator("#quality").scroll_into_view_if_needed()
        save(page.locator("#quality").screenshot(), out / "report-curves.png")
        page.goto(several.as_uri())
        save(page.screenshot(full_page=True), out / "compare.png")
        phone: Any = browser.new_page(viewport={"width": 390, "height": 780}, color_scheme="dark")
        phone.goto(report.as_uri())
        phone.locator("[data-chart=attacker]").scroll_into_view_if_needed()
        save(phone.screenshot(), out / "report-phone.png")
        browser.close()


def save(content: bytes, path: Path) -> None:
    """With few colours: a quarter of the bytes."""
    from PIL import Image

    Image.open(io.BytesIO(content)).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main()
