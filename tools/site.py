"""Check a built site: every link leads somewhere, and no page asks another host for anything.

    python -m tools.site [FOLDER]        # build/site unless given

Links to other hosts may stand in the text: they are followed only if the reader clicks. What a page loads by itself
(scripts, styles, fonts, pictures, frames) must come from the site.
"""

from __future__ import annotations

import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "input": ("src",),
    "use": ("href", "xlink:href"),
}
"""What a browser fetches when it shows a page."""
FETCHED_BY_SCRIPT = {"mermaid", "glightbox"}
"""Elements of these classes make the theme's script fetch a library."""
ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.I)
IN_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)", re.I)


class Page(HTMLParser):
    """What a page loads, links to and can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fetchers: set[str] = set()
        self.text = text
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.fetchers |= FETCHED_BY_SCRIPT & set(given.get("class", "").split())
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev"):
            return
        for name in LOADED.get(tag, ()):
            if name in given:
                parts = given[name].split(",") if name == "srcset" else [given[name]]
                self.loaded += [part.split()[0] for part in parts if part.strip()]


def problems(site: Path) -> list[str]:
    """All that is wrong with the site, a line each."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"{site} has no pages"]
    found = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # a server shows it under any address, so its links are absolute
        name = path.relative_to(site)
        found += [f"{name} loads {target}" for target in page.loaded if ELSEWHERE.match(target)]
        found += [f"{name} loads {target}" for target in IN_STYLE.findall(page.text)]
        found += [f"{name} has a {kind}, for which a library is fetched" for kind in sorted(page.fetchers)]
        for target in page.links + page.loaded:
            if reason := _dead(path, target, pages, site):
                found.append(f"{name} links to {target}: {reason}")
    for path in site.rglob("*.css"):
        loaded = IN_STYLE.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {target}" for target in loaded]
    return found


def _dead(path: Path, target: str, pages: dict[Path, Page], site: Path) -> str | None:
    """Why a link within the site leads nowhere; None if it leads somewhere."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    linked = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
    if linked not in pages:
        if not linked.is_relative_to(site):
            return "outside the site"
        if not linked.is_file():
            return "no such file"
    elif parts.fragment and unquote(parts.fragment) not in pages[linked].anchors:
        return "no such anchor"
    return None


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1] if sys.argv[1:] else "build/site"))
    print("\n".join(wrong) or "every link leads somewhere, and nothing is loaded from elsewhere")
    sys.exit(bool(wrong))
