"""The report: what must be on it, for whatever a folder holds, and that nothing in a folder becomes HTML."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_tools import HOSTILE, Elements, hostile, rows_of, small_run, two_classes, write_rows

from laconic.report.page import reading
from laconic.report.page.curves import by_class
from laconic.report.page.document import PARTS, run_page
from laconic.report.page.reading import read_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("pages") / "private run")


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def page_text(folder: Path) -> str:
    return run_page(read_run(folder))


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
    assert "What it does not promise" in text and "no ε covers them" in text


def test_whose_the_test_records_may_be_is_said_where_their_counts_are(folder: Path) -> None:
    two_classes(folder)
    text = " ".join(Elements(str(by_class(read_run(folder)))).text)
    assert "if they are the clients' own" in text and "public" not in text


def test_a_simulation_says_that_its_seed_is_on_the_page(folder: Path) -> None:
    assert "can be subtracted" in " ".join(page_of(folder).text)
    with open(folder / "config.toml", "a") as stream:
        stream.write("[federation]\nnodes = 40\n")
    assert "can be subtracted" not in " ".join(page_of(folder).text)


def test_that_clients_are_named_is_said(folder: Path) -> None:
    assert "clients that this page names" not in " ".join(page_of(folder).text)
    (folder / "notices.jsonl").write_text(json.dumps({"round": 2, "client": 3, "reason": "late"}) + "\n")
    assert "clients that this page names" in " ".join(page_of(folder).text)


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


@pytest.mark.parametrize("name", ["-x", "a b", "it's", "$(id)", "`id`", "a;b", "a\nb", "--help"])
def test_the_command_means_the_folder_whatever_its_name(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Read by a shell, its words are the folder's names and nothing else; none is taken for an option."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, name)
    (line,) = re.findall(
        r'aria-label="The command that repeats the run"><code>(.*?)</code>', page_text(Path(name)), re.S
    )
    shown = subprocess.run(["sh", "-c", f"printf '%s\\0' {html.unescape(line)}"], capture_output=True, check=True)
    _, _, config, flag, out = shown.stdout.decode().split("\0")[:-1]
    assert not config.startswith("-") and Path(config).resolve() == (tmp_path / name / "config.toml")
    assert flag == "--out" and Path(out).resolve() == tmp_path / f"{name}-again"


def test_the_command_of_the_folder_one_is_in_names_it(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    assert shlex.join(["--out", f"{finished}-again"]) in html.unescape(page_text(Path()))


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


ODD: tuple[object, ...] = (
    *(None, True, -1, 1e308, -1e308, 5e-324, 10**400, 10**18, float("nan"), float("inf")),
    *("\ud800", "", [], [[]], [1, "a"], {}, {"pld": "x"}),
)


@pytest.mark.parametrize("odd", ODD, ids=lambda value: repr(value)[:12])
def test_any_value_of_any_kind_in_any_place_still_gives_a_page(folder: Path, odd: object) -> None:
    """One place at a time would take minutes: every third place of a file, from each of three beginnings."""
    for start in range(3):
        for name in ("privacy.json", "summary.json", "figures.json"):
            text = (folder / name).read_text()
            (folder / name).write_text(json.dumps(_sown(json.loads(text), odd, itertools.count(start))))
            assert run_page(read_run(folder)).encode()
            (folder / name).write_text(text)
        rows = rows_of(folder)
        write_rows(folder, [_sown(row, odd, itertools.count(start)) for row in rows])
        assert run_page(read_run(folder)).encode()
        write_rows(folder, rows)


def _sown(value: Any, odd: object, count: Iterator[int]) -> Any:
    if isinstance(value, dict):
        return {key: _sown(item, odd, count) for key, item in value.items()}
    if isinstance(value, list):
        return [_sown(item, odd, count) for item in value]
    return odd if next(count) % 3 == 0 else value


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_a_name_that_is_not_utf_8_can_be_shown(finished: Path, tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff")
    shutil.copytree(finished, name)
    assert "run-?" in run_page(read_run(Path(name))).encode().decode()


def test_a_file_without_end_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LARGEST", 1 << 20)
    with open(folder / "rounds.jsonl", "ab") as stream:
        stream.truncate(1 << 21)
    assert read_run(folder).rows == []
