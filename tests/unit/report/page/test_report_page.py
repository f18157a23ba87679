"""The report: what must be on it, for whatever a folder holds, and that nothing in a folder becomes HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from page_tools import HOSTILE, Elements, hostile, rows_of, small_run, two_classes, write_rows

from laconic.report.page.document import PARTS, run_page
from laconic.report.page.reading import read_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("pages") / "private run")


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def page_of(folder: Path) -> Elements:
    return Elements(run_page(read_run(folder)))


def test_a_private_run_has_every_section_and_chart(folder: Path) -> None:
    two_classes(folder)
    found = page_of(folder)
    shown = [a["data-part"] for a in found.named("section") + found.named("header") if "hidden" not in a]
    assert set(shown) == {key for key, _, _ in PARTS}
    assert found.charts() == {
        *("attacker", "metric-rounds", "metric-epsilon", "metric-bytes", "loss-rounds", "epsilon-rounds"),
        *("roc", "calibration", "cohorts", "bytes", "seconds", "stages"),
    }


def test_the_report_that_a_run_writes_is_this_page(finished: Path) -> None:
    assert (finished / "report.html").read_text().startswith("<!doctype html>")
    found = Elements((finished / "report.html").read_text())
    assert {"attacker", "epsilon-rounds", "metric-rounds", "calibration"} <= found.charts()


def test_the_verdict_says_both_figures_and_what_they_mean(folder: Path) -> None:
    text = " ".join(page_of(folder).text)
    outsider, server = read_run(folder).epsilons()
    assert outsider is not None and server is not None
    assert "Against an outsider" in text and "Against the server" in text
    assert text.count("A test with 1 % false positives finds") == 2
    assert "What it does not promise" in text and "treat them as public" in text


def test_a_finished_run_is_judged_by_several_pairs_of_epsilon_and_delta(folder: Path) -> None:
    """Each is proven as that of the statement is, which is among them; a larger δ has a smaller ε."""
    view = read_run(folder)
    for name, epsilon in zip(("released", "participant"), view.epsilons(), strict=True):
        stated, *others = view.pairs(name)
        assert stated == (epsilon, 1e-5) and stated in [pytest.approx(pair) for pair in others]
        by_delta = [found for found, _ in sorted(others, key=lambda pair: pair[1])]
        assert len(others) == 9 and by_delta == sorted(by_delta, reverse=True)
    assert "from ε at 9 values of δ" in "".join(page_of(folder).text)


def test_pairs_of_a_run_that_was_gone_on_with_do_not_count(folder: Path) -> None:
    """They are of fewer rounds, so an attacker would seem weaker than it is."""
    statement = json.loads((folder / "privacy.json").read_text())
    for name in ("released", "participant"):
        statement[name]["epsilon"][statement[name]["accountant"]] += 0.5
    (folder / "privacy.json").write_text(json.dumps(statement))
    view = read_run(folder)
    assert [len(view.pairs(name)) for name in ("released", "participant")] == [1, 1]
    assert "from this ε and δ alone" in "".join(page_of(folder).text)


def test_the_statement_is_there_in_full(folder: Path) -> None:
    text = "".join(page_of(folder).text)
    statement = json.loads((folder / "privacy.json").read_text())
    for sentence in [statement["summary"], *statement["assumptions"], *statement["not_covered"]]:
        assert sentence in text
    assert json.dumps(statement, indent=2, ensure_ascii=False) in text


def test_a_run_without_privacy_promises_nothing(tmp_path: Path) -> None:
    found = page_of(small_run(tmp_path / "plain", "fl-std", rounds=2))
    assert "Nothing. This scheme adds no noise." in " ".join(found.text)
    assert not {"attacker", "epsilon-rounds", "metric-epsilon"} & found.charts()


def test_the_command_repeats_the_run(folder: Path) -> None:
    assert f"laconic run {folder}/config.toml --out {folder}-again" in "".join(page_of(folder).text)


def test_a_run_from_python_has_no_command(folder: Path) -> None:
    (folder / "config.toml").write_text('[run]\nmodel = "Sequential"\n[scheme]\nname = "fl-std-dp"\n')
    text = "".join(page_of(folder).text)
    assert "The run was started from Python" in text and "laconic run " not in text and "Sequential" in text


def test_a_budget_is_drawn_beside_the_figures(folder: Path) -> None:
    names = [a.get("data-name") for a in page_of(folder).named("g")]
    assert not [name for name in names if name and name.startswith("budget")]
    statement = json.loads((folder / "privacy.json").read_text())
    statement["budget"]["epsilon"] = 30.0
    (folder / "privacy.json").write_text(json.dumps(statement))
    assert "budget of the outsider's ε: 30" in [a.get("data-name") for a in page_of(folder).named("g")]


def test_dropouts_and_discarded_rounds_are_shown(folder: Path) -> None:
    rows = rows_of(folder)
    rows[1]["messages_up"] -= 2
    rows[3]["discarded"] = "too few came"
    write_rows(folder, rows)
    found = page_of(folder)
    text = " ".join(found.text)
    assert "2 in 1 round" in text and "1 round, charged all the same" in text and "too few came" in text
    assert {"dropouts", "discarded rounds"} <= {a.get("data-name") for a in found.named("g")}


def test_a_federation_shows_its_nodes_and_why_it_gave_up(folder: Path) -> None:
    with open(folder / "config.toml", "a") as stream:
        stream.write("[federation]\nnodes = 40\n")
    notice = {"round": 2, "client": 3, "node": "n3", "reason": "no answer in time"}
    (folder / "notices.jsonl").write_text(json.dumps(notice) + "\n")
    (folder / "failure.json").write_text(json.dumps({"error": "two rounds in a row were discarded"}))
    (folder / "summary.json").unlink()
    text = " ".join(page_of(folder).text)
    assert "a federation of separate nodes" in text and "no answer in time" in text
    assert "It gave up: two rounds in a row were discarded" in text and "laconic federate " in text


def test_a_model_that_always_says_the_same_is_named(folder: Path) -> None:
    two_classes(folder)
    found = json.loads((folder / "figures.json").read_text()) | {"confusion": [[150, 0], [50, 0]]}
    (folder / "figures.json").write_text(json.dumps(found))
    assert "says “alive” for every test record" in " ".join(page_of(folder).text)


@pytest.mark.parametrize("missing", ["figures.json", "summary.json", "privacy.json", "config.toml", "rounds.jsonl"])
def test_a_folder_without_one_of_its_files_still_has_a_page(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    assert page_of(folder).named("h1")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"round": "x"}', '{"private": true}', "\x00\xff", "[" * 9999]
)
def test_a_damaged_file_counts_as_missing(folder: Path, content: str) -> None:
    for name in ("figures.json", "summary.json", "privacy.json", "config.toml", "rounds.jsonl", "failure.json"):
        (folder / name).write_text(content, encoding="utf-8")
        assert page_of(folder).named("h1")


def test_a_row_in_the_middle_of_being_written_is_left_out(folder: Path) -> None:
    with open(folder / "rounds.jsonl", "a") as stream:
        stream.write('{"round": 7, "accu')
    assert [row["round"] for row in read_run(folder).rows] == [1, 2, 3, 4, 5, 6]


def test_a_folder_that_is_not_there_waits(tmp_path: Path) -> None:
    assert "Waiting for the run to begin." in " ".join(page_of(tmp_path / "later").text)


def test_a_run_that_was_gone_on_with_is_not_finished(folder: Path) -> None:
    assert read_run(folder).finished
    write_rows(folder, [*rows_of(folder), rows_of(folder)[-1] | {"round": 7}])
    assert not read_run(folder).finished


def test_nothing_in_a_folder_becomes_html(folder: Path) -> None:
    two_classes(folder)
    hostile(folder)
    harmless, found = Elements(run_page(read_run(folder))), page_of(folder)
    assert len(found.named("script")) == 1 and not found.named("img") and not found.named("iframe")
    assert not [(tag, a) for tag, a in found.found if any(name.startswith("on") for name in a)]
    assert "".join(found.text).count(HOSTILE) > 20
    assert harmless.charts() == found.charts()


def test_the_page_loads_nothing_and_allows_only_its_own_script(folder: Path) -> None:
    page = run_page(read_run(folder))
    found = Elements(page)
    addresses = [value for _, a in found.found for name, value in a.items() if name in ("src", "href") and value]
    assert addresses and all(value.startswith("#") or value == "data:," for value in addresses)
    assert "url(" not in page and "@import" not in page
    (policy,) = [a["content"] for a in found.named("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none'") and "connect-src 'none'" in policy
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy


def test_who_took_part_is_never_on_the_page(folder: Path) -> None:
    """Sizes of cohorts are; names of their clients, which the journal of charges has, are not read."""
    (folder / "charges.jsonl").write_text('{"round": 1, "cohort": [123456789]}\n')
    assert "123456789" not in run_page(read_run(folder))
