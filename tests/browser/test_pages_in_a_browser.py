"""The report, the page of several runs and the live page in a real browser."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tools import Opened, launched, open_page, printed
from page_tools import hostile, rows_of, small_run, two_classes, write_rows

from laconic.report.live import Runs, WatchServer
from laconic.report.page.document import run_page
from laconic.report.page.overlay import overlay_page
from laconic.report.page.reading import read_run

Open = Callable[..., Opened]
CHARTS = {
    *("attacker", "metric-rounds", "metric-epsilon", "metric-bytes", "loss-rounds", "epsilon-rounds"),
    *("roc", "calibration", "cohorts", "seconds"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as started:
        yield started


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    contexts = []

    def at(*address: Any, **options: Any) -> Opened:
        context, found = open_page(browser, *address, **options)
        contexts.append(context)
        return found

    yield at
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def folder(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished private run with two classes."""
    path = small_run(tmp_path_factory.mktemp("browser") / "hospitals")
    two_classes(path)
    return path


@pytest.fixture
def report(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(run_page(read_run(folder)), encoding="utf-8")
    return path


@pytest.fixture
def several(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "several.html"
    view = read_run(folder)
    path.write_text(overlay_page({"first": view, "second": view}, "auroc"), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1100, 360], ids=["desk", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_report_is_quiet_accessible_and_fits(opened: Open, report: Path, dark: bool, width: int) -> None:
    found = opened(report, dark=dark, width=width)
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:"))] == []
    assert found.violations() == []
    assert found.overflow() <= 0
    background = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_the_page_of_several_runs_is_quiet_accessible_and_fits(opened: Open, several: Path) -> None:
    found = opened(several, width=360)
    assert found.complaints == [] and found.violations() == [] and found.overflow() <= 0
    assert found.page.locator("[data-chart]").count() == 3


def test_a_page_that_is_wrong_would_be_noticed(opened: Open, tmp_path: Path) -> None:
    """Guards the tests above: a complaint, a request, a picture without words, a page too wide."""
    bad = f"<!doctype html><img src='http://127.0.0.1:9/x.png'><pre>{'x' * 400}</pre><script>throw 1</script>"
    (tmp_path / "bad.html").write_text(bad)
    found = opened(tmp_path / "bad.html", width=360)
    assert found.complaints and "http://127.0.0.1:9/x.png" in found.requests
    assert any("image-alt" in text for text in found.violations()) and found.overflow() > 0


def test_every_chart_has_its_points_axes_and_title(opened: Open, report: Path, folder: Path) -> None:
    page = opened(report).page
    shown = page.locator("[data-chart]").evaluate_all("all => all.map(figure => figure.dataset.chart)")
    assert set(shown) == CHARTS
    for key in shown:
        figure = page.locator(f"[data-chart={key}]")
        assert figure.locator("figcaption strong").inner_text().strip()
        assert figure.locator("svg > title").text_content()
        assert all(figure.locator(f".{axis}-label").text_content().strip() for axis in "xy")
        assert figure.locator(".axes .tick").count() >= 4
        box, inside = (
            figure.locator(".plot svg").bounding_box(),
            "all => all.map(p => p.getBoundingClientRect().toJSON())",
        )
        points = figure.locator(".point").evaluate_all(inside)
        assert points, key
        for point in [p for p in points if p["width"]]:
            assert box["x"] - 4 <= point["x"] and point["right"] <= box["x"] + box["width"] + 4, key
    rounds = len(rows_of(folder))
    assert page.locator("[data-chart=epsilon-rounds] .plot .point").count() == 2 * rounds
    assert page.locator("[data-chart=cohorts] .plot .point").count() == rounds
    assert page.locator("[data-bars] rect").count() >= 4


def test_points_can_be_read_with_the_keyboard(opened: Open, report: Path) -> None:
    page = opened(report).page
    figure = page.locator("[data-chart=metric-rounds]")
    figure.locator(".plot").focus()
    for key, said in (("Home", "round 1:"), ("ArrowRight", "round 2:"), ("End", "round 6:"), ("ArrowLeft", "round 5:")):
        page.keyboard.press(key)
        assert figure.locator(".readout").inner_text().startswith(said)
    assert "AUROC 0.75" in figure.locator(".readout").inner_text()


def test_points_can_be_read_with_the_mouse_and_series_hidden(opened: Open, report: Path) -> None:
    page = opened(report).page
    figure = page.locator("[data-chart=epsilon-rounds]")
    figure.locator(".plot svg").hover()
    assert "server's ε" in figure.locator(".readout").inner_text()
    figure.get_by_role("button", name="server's ε").first.click()
    figure.locator(".plot svg").hover(position={"x": 200, "y": 60})
    assert "server's ε" not in figure.locator(".readout").inner_text()
    assert figure.locator(".series.off").count() == 1


def test_the_numbers_are_there_without_scripts_and_pictures(opened: Open, report: Path) -> None:
    page = opened(report, scripts=False).page
    figure = page.locator("[data-chart=metric-rounds]")
    figure.locator("summary").click()
    assert figure.locator("tbody tr").count() == 6


def test_the_printed_page_leaves_out_what_paper_cannot_do(opened: Open, report: Path) -> None:
    page = opened(report, dark=True).page
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("nav").is_visible() and not page.locator(".readout").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf()) > 20_000


@pytest.mark.parametrize("page", ["report", "several"])
def test_nothing_is_over_something_else_on_paper(browser: Any, page: str, request: pytest.FixtureRequest) -> None:
    """With all settings unfolded, too: the page is longest then."""
    file: Path = request.getfixturevalue(page)
    unfolded = file.with_stem(f"{file.stem}-unfolded")
    unfolded.write_text(file.read_text(encoding="utf-8").replace("<details ", "<details open "), encoding="utf-8")
    lines, wrong = printed(browser, unfolded)
    assert wrong == []
    assert len(lines) > 50 and len({line.page for line in lines}) > 1
    assert len(lines) > len(printed(browser, file)[0])


def test_a_print_that_is_wrong_would_be_noticed(browser: Any, tmp_path: Path) -> None:
    """Guards the test above."""
    over = "<p style='position:absolute;top:20px'>these words</p><p style='position:absolute;top:24px'>other words</p>"
    wide = f"<p style='position:absolute;top:200px;left:600px;white-space:nowrap'>{'far ' * 60}</p>"
    (tmp_path / "bad.html").write_text(f"<!doctype html>{over}{wide}")
    _, wrong = printed(browser, tmp_path / "bad.html")
    assert any("over" in text for text in wrong) and any("cut off" in text for text in wrong)


def test_hostile_names_stay_names(opened: Open, folder: Path, tmp_path: Path) -> None:
    poisoned = Path(shutil.copytree(folder, tmp_path / "<img src=x onerror=alert(1)>"))
    hostile(poisoned)
    (tmp_path / "report.html").write_text(run_page(read_run(poisoned)), encoding="utf-8")
    found = opened(tmp_path / "report.html")
    assert found.page.evaluate("window.stolen") is None
    assert found.complaints == [] and found.page.locator("img").count() == 0 and found.overflow() <= 0


def test_the_policy_stops_a_script_even_if_one_got_in(opened: Open, report: Path, tmp_path: Path) -> None:
    page = report.read_text().replace("</main>", "<script>window.stolen = 1</script></main>")
    (tmp_path / "changed.html").write_text(page)
    found = opened(tmp_path / "changed.html")
    assert found.page.evaluate("window.stolen") is None and found.complaints


def serving(server: WatchServer) -> Iterator[WatchServer]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def watched(folder: Path, tmp_path: Path) -> Iterator[tuple[WatchServer, Path]]:
    """A server on a copy of the run that has only its first two rounds."""
    path = Path(shutil.copytree(folder, tmp_path / "live"))
    (path / "summary.json").unlink()
    write_rows(path, rows_of(folder)[:2])
    for server in serving(WatchServer(Runs([path]))):
        yield server, path


def test_a_watched_run_grows_without_a_reload(opened: Open, folder: Path, watched: tuple[WatchServer, Path]) -> None:
    server, path = watched
    found = opened(server.address)
    page, rounds = found.page, "[data-chart=cohorts] .plot .point"
    assert page.locator(rounds).count() == 2
    page.evaluate("window.marked = 1")
    page.locator("[data-chart=cohorts] summary").click()
    page.locator("[data-chart=cohorts] .plot").focus()
    write_rows(path, rows_of(folder)[:5])
    page.locator(rounds).nth(4).wait_for(state="attached", timeout=20_000)
    assert page.locator(".status").inner_text().startswith("Round 5 of 6 is done")
    assert "Live: round 5 of 6" in page.locator(".live").inner_text()
    assert page.evaluate("window.marked") == 1  # the page is the same one
    assert page.locator("[data-chart=cohorts] details").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.className") == "plot"
    shutil.copy(folder / "summary.json", path)
    write_rows(path, rows_of(folder))
    page.get_by_text("Finished after 6 rounds").wait_for(timeout=20_000)
    assert found.complaints == [] and found.violations() == []
    assert all(url.startswith((server.address, "data:")) for url in found.requests)


def test_a_second_run_turns_the_page_into_one_of_all_runs(opened: Open, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "sweep/first")
    for server in serving(WatchServer(Runs([tmp_path / "sweep"]))):
        found = opened(server.address)
        assert found.page.locator("h1").inner_text() == "first"
        shutil.copytree(folder, tmp_path / "sweep/second")
        found.page.get_by_text("2 runs side by side").wait_for(timeout=20_000)
        found.page.get_by_role("link", name="second").click()
        found.page.get_by_role("heading", name="What this run promises").wait_for(timeout=20_000)
        assert found.complaints == []


def test_a_watch_that_ends_says_so(opened: Open, watched: tuple[WatchServer, Path]) -> None:
    server, _ = watched
    page = opened(server.address).page
    page.get_by_text("Live: round 2").wait_for(timeout=20_000)
    page.route("**/news*", lambda route: route.abort())
    page.get_by_text("laconic watch has ended or cannot be reached").wait_for(timeout=20_000)


def test_statements_without_figures_are_shown(opened: Open, folder: Path, tmp_path: Path) -> None:
    """An old run: no figures.json, no profile, a statement that lacks what came later."""
    old = Path(shutil.copytree(folder, tmp_path / "old"))
    (old / "figures.json").unlink()
    statement = json.loads((old / "privacy.json").read_text())
    for key in ("cautions", "secure_aggregation", "adjacency"):
        statement.pop(key, None)
    (old / "privacy.json").write_text(json.dumps(statement))
    (tmp_path / "old.html").write_text(run_page(read_run(old)), encoding="utf-8")
    found = opened(tmp_path / "old.html")
    assert found.complaints == [] and found.page.locator("#verdict .card").count() == 2
    assert found.page.locator("[data-chart=roc]").count() == 0
