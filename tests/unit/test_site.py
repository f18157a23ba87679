"""The documentation site: it is built strictly, every link leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.site import problems

ROOT = Path(__file__).parents[2]
BUILDERS = {"mkdocs": ["build", "--strict"], "zensical": ["build", "--strict"]}
NEEDED = "the extra docs is not installed: pip install '.[docs]'"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build reads, in a place of its own, so that builds do not meet."""
    place = tmp_path_factory.mktemp("site")
    for name in ("docs", "tools"):
        shutil.copytree(ROOT / name, place / name)
    shutil.copy(ROOT / "mkdocs.yml", place)
    (place / "src").symlink_to(ROOT / "src")
    return place


@pytest.mark.parametrize("builder", BUILDERS)
def test_the_site_is_built_strictly_and_is_complete_in_itself(builder: str, checkout: Path) -> None:
    program = Path(sys.executable).with_name(builder)
    if not program.exists():
        pytest.skip(NEEDED)
    pytest.importorskip("mkdocstrings", reason=NEEDED)
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT / 'src'}"}
    site = checkout / "build/site"
    shutil.rmtree(site, ignore_errors=True)
    ended = subprocess.run(
        [program, *BUILDERS[builder]], cwd=checkout, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert problems(site) == []
    schemes = (site / "reference/schemes.html").read_text(encoding="utf-8")
    assert "vote_noise_multiplier" in schemes and "module-attribute" not in schemes
    assert (site / "tutorials/digits.html").is_file()
    index = next(path for path in (site / "search.js", site / "search/search_index.js") if path.is_file())
    assert "noise share" in index.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<script src="https://example.org/a.js"></script>', "index.html loads https://example.org/a.js"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "index.html loads //example.org/a.css"),
        ('<img src="a.png" srcset="https://example.org/b.png 2x">', "index.html loads https://example.org/b.png"),
        ("<style>p {background: url('https://example.org/c.png')}</style>", "index.html loads https://example.org/c"),
        ('<pre class="mermaid">graph</pre>', "index.html has a mermaid, for which a library is fetched"),
        ('<a href="nowhere.html">x</a>', "index.html links to nowhere.html: no such file"),
        ('<a href="other.html#x">x</a>', "index.html links to other.html#x: no such anchor"),
        ('<a href="#y">x</a>', "index.html links to #y: no such anchor"),
        ('<a href="..">x</a>', "index.html links to ..: outside the site"),
        ('<a href="a">x</a>', "index.html links to a: no such file"),
    ],
)
def test_what_is_wrong_with_a_site_is_found(page: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "other.html").write_text("<p>no anchor</p>")
    (tmp_path / "index.html").write_text(page)
    found = problems(tmp_path)
    assert any(line.startswith(problem) for line in found), found


def test_links_that_lead_somewhere_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="at-ε">x</h1>')
    (tmp_path / "index.html").write_text(
        '<a href="other.html#at-%CE%B5">x</a> <a href="https://example.org">y</a> <a href="mailto:a@b">z</a><a href="">'
    )
    assert problems(tmp_path) == []
    assert problems(tmp_path / "empty") == [f"{tmp_path / 'empty'} has no pages"]


def test_pages_link_to_nothing_outside_the_documents() -> None:
    """Such a link would work on the repository's host and not in the site."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                linked = (path.parent / target).resolve()
                assert linked.is_relative_to(ROOT / "docs"), f"{path.name}: {target}"


def test_every_page_is_in_the_navigation_or_named_as_left_out() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    entries = re.findall(r"[\w/.-]+\.md", text.partition("\nnav:")[2])
    listed = set(entries)
    assert len(listed) == len(entries)  # each page once
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert listed <= pages
    tables = re.compile(r"results/(tables/[^/]+|clinical/tables|clinical/tables/[^/]+|integer-accuracy)/\w+\.md")
    assert not [name for name in pages - listed if not tables.fullmatch(name)]
