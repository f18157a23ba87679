"""`laconic audit`: the table, the files, the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import audit_tools
import pytest
from e2e_tools import call, words

import laconic
from benchmarks.audit import no_clip, sabotaged
from laconic.data.population import Records

RUN = words(
    "fl-std-dp --clip-norm 0.4 --noise-multiplier 1 --delta 1e-3 --num-clients 60 --sampling-rate 1 --rounds 1"
    " --threads 1 --device cpu --quiet"
)


def test_an_audit_prints_claims_and_bounds_and_keeps_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("--canaries", "100", "--trials", "1000")
    ended = call(capsys, "audit", *RUN, *options, "--out", tmp_path / "audit")
    assert ended.code == 0, ended.err
    text = " ".join(ended.out.split())
    assert "claimed at least verdict" in text and "server 1 round short runs, GDP" in text
    assert "Verdict: consistent" in text and "VIOLATED with a probability of 0.01 at most" in text
    kept = json.loads((tmp_path / "audit/audit.json").read_text())
    assert kept["verdict"] == "consistent" and kept["violations"] == []
    assert {bound["adversary"] for bound in kept["bounds"]} == {"server", "outsider"}
    assert all(bound["lower"] <= bound["claimed"] for bound in kept["bounds"])
    again = call(
        capsys, "audit", tmp_path / "audit/audit.toml", *options, "--out", tmp_path / "again", "--json", "--quiet"
    )
    assert again.code == 0 and again.json["bounds"] == kept["bounds"]
    assert call(capsys, "audit", *RUN, "--out", tmp_path / "audit").code == 5


def test_a_violation_has_an_exit_code_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("--canaries", "0", "--trials", "1000", "--against", "server")
    with sabotaged(no_clip):
        ended = call(capsys, "audit", *RUN, *options, "--out", tmp_path / "audit")
    assert ended.code == 8
    assert "VIOLATED: clip: sums with and without a canary differ by" in " ".join(ended.out.split())
    kept = json.loads((tmp_path / "audit/audit.json").read_text())
    assert kept["verdict"] == "VIOLATED" and {bound["adversary"] for bound in kept["bounds"]} == {"server"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--canaries 0 --trials 0", "there is nothing to look at: give one of them"),
        ("--canaries 7", "--canaries 7 can show nothing: give 100 or more, or 0 to leave them out"),
        ("--confidence 1", "confidence must be at least 0 and below 1"),
        ("--against servant", "did you mean 'server'?"),
        ("--attack sign-inversion", "leave out --attack"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: str, message: str
) -> None:
    ended = call(capsys, "audit", *RUN, *words(options), "--out", tmp_path / "audit")
    assert ended.code == 2 and message in ended.err and len(ended.err.strip().splitlines()) == 1
    assert not (tmp_path / "audit").exists()


def test_votes_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = words("--ratio 0.2 --top-selection votes")
    ended = call(capsys, "audit", "fl-top-dp", *RUN[1:], *options, "--rounds", "6", "--out", tmp_path / "audit")
    assert ended.code == 2 and "leave out --top-selection votes" in ended.err


@pytest.mark.parametrize("scheme", ["fl-std", "fl-std-record-dp"])
def test_schemes_without_a_promise_per_client_are_refused(capsys: pytest.CaptureFixture[str], scheme: str) -> None:
    more = words("--clip-norm 1 --noise-multiplier 1 --record-rate 0.2 --batch-size 20 --balance none --delta 1e-5")
    ended = call(capsys, "audit", scheme, *(more if scheme.endswith("-dp") else ()))
    assert ended.code == 2 and "use a scheme in -dp" in ended.err


def test_an_audit_from_python() -> None:
    clients = audit_tools.make_population([6] * 40)
    result = laconic.audit_run(
        laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=1),
        model=audit_tools.scheme_tools.model(),
        clients=clients,
        test=Records(*clients.records(0)),
        sampling_rate=1.0,
        rounds=1,
        delta=1e-5,
        canaries=0,
        trials=1000,
    )
    assert isinstance(result, laconic.AuditResult) and not result.violated
