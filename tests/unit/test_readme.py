"""The first glance: what the README shows runs, is explained where it first occurs, and is readable in the dark."""

from __future__ import annotations

import re
import runpy
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from laconic.catalogue import SCHEMES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The rows of the first table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_ten_lines_train_a_private_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
    assert len([line for line in code.splitlines() if line]) <= 10
    script = tmp_path / "ten_lines.py"
    script.write_text(code, encoding="utf-8")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is tiny
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            result = runpy.run_path(str(script))["result"]
    finally:
        torch.set_num_threads(threads)
    assert result.last["accuracy"] == pytest.approx(0.9, abs=0.03)  # as the text says
    assert "-DP per client against an outsider" in capsys.readouterr().out


def test_what_it_is_and_for_whom_is_said_in_two_sentences() -> None:
    first = README.split("\n\n")[1]
    assert len(re.findall(r"\.(?:\s|$)", first)) == 2
    assert "for people who" in first


def test_the_page_goes_from_the_picture_to_the_links() -> None:
    order = ["round.svg", "epsilon.png", "## Install", "## Ten lines", "## Which scheme", "## Compared", "## How to"]
    places = [README.index(what) for what in order]
    assert places == sorted(places)
    assert "make demo" in section("Install")
    assert "make test" in section("Install")


def test_five_rows_say_which_scheme_to_use_and_each_exists() -> None:
    found = rows(section("Which scheme should I use?"))
    assert len(found) == 5
    assert all(re.findall(r"`([\w-]+)`", row[1])[0] in SCHEMES for row in found)


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("FL-STD", "federated averaging"),
        ("FL-TOP", "only few weights"),
        ("FL-CS", "compressed sensing"),
        ("the papers", "four works"),
    ],
)
def test_a_name_is_explained_where_it_first_occurs(name: str, means: str) -> None:
    text = " ".join(README.split())
    at = text.index(name)
    assert means in text[at - 20 : at + 200]


def test_one_epsilon_per_adversary_and_the_other_accountants_in_a_details_block() -> None:
    hidden = re.findall(r"<details>(.*?)</details>", README, re.S)
    shown = re.sub(r"<details>.*?</details>", "", README, flags=re.S)
    assert any("moments" in text for text in hidden)
    assert not re.search(r"moments \d|rdp \d|papers' formula", shown)


def test_the_picture_of_a_round_is_readable_in_dark_and_light_and_loads_nothing() -> None:
    path = ROOT / "docs/pictures/round.svg"
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title") is not None
    assert "server" in (root.findtext(f"{space}desc") or "")
    assert "prefers-color-scheme: dark" in text
    assert not re.findall(r"(?:href|src)=|url\((?!#)|@import", text)
    assert root.find(f"{space}rect").get("class") == "card"  # its own ground, whatever the page's is
    light, dark = text.split("@media", 1)
    for style in (light, dark):
        words = dict(re.findall(r"(text|\.quiet|\.card|\.own|\.sum|\.all) \{[^}]*?fill: #(\w{6})", style))
        ground = ("card", "own", "sum", "all")
        assert min(contrast(words["text"], words[f".{name}"]) for name in ground) > 7
        assert contrast(words[".quiet"], words[".card"]) > 4.5


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, as WCAG 2 defines it."""

    def light(colour: str) -> float:
        values = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(first), light(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_what_the_comparison_cites_of_flower_and_of_laconic_is_there() -> None:
    """Of the other packages nothing is installed here; the page says how to unpack them."""
    flwr = pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")
    text = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    cited = re.findall(r"`((?:flwr|laconic)/[\w/.]+)`", text)
    assert len([path for path in cited if path.startswith("flwr")]) >= 10
    places = {"flwr": Path(flwr.__file__).parents[1], "laconic": ROOT / "src"}
    missing = [path for path in cited if not (places[path.partition("/")[0]] / path).exists()]
    assert not missing, f"not in flwr {version('flwr')}"


def test_the_versions_of_the_comparison_are_the_same_in_both_places() -> None:
    head = next(line for line in section("Compared with others").splitlines() if line.startswith("| |"))
    page = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    for name, wheel in (("Flower", "flwr"), ("pfl-research", "pfl"), ("NVFlare", "nvflare"), ("Opacus", "opacus")):
        (shown,) = re.findall(rf"{name} ([\d.]+)", head)
        assert f"`{wheel}` {shown}.0" in page
