"""A run stopped at a chosen instant, inside this process: before and in the middle of every write, and by Ctrl-C in
every stage of a round. Gone on with, it must end as if nothing had happened, and no charge may be lost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from e2e_tools import Ended, call, charges, rounds, strict_json, words

from laconic.store.folder import RunFolder

RUN = words(
    "run fl-std-dp --clip-norm 0.4 --noise-multiplier 2 --dataset synthetic --num-clients 60 --sampling-rate 0.2"
    " --max-participations 2 --rounds 5 --eval-every 2 --threads 1 --engine one-by-one --quiet --json"
)
EVERY_ROUND, NEVER = ("--checkpoint-seconds", "0"), ("--checkpoint-seconds", "1000")
Run = Callable[..., Ended]


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the package catches it."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda out, *options: call(capsys, *RUN, *options, "--out", out)


class Writes:
    """Counts the writes to run folders by file name, and dies before or in the middle of one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.fatal, self.torn = -1, False
        write, append = RunFolder.write, RunFolder.append

        def watched_write(folder: RunFolder, name: str, content: str | bytes) -> None:
            if self._dies(name):
                half = content.encode() if isinstance(content, str) else content
                (folder.path / f"{name}.new").write_bytes(half[: len(half) // 2])
                raise Killed
            write(folder, name, content)

        def watched_append(folder: RunFolder, name: str, row: dict[str, Any]) -> None:
            if self._dies(name):
                with open(folder.path / name, "a") as stream:
                    stream.write('{"round": 3, "att')
                raise Killed
            append(folder, name, row)

        monkeypatch.setattr(RunFolder, "write", watched_write)
        monkeypatch.setattr(RunFolder, "append", watched_append)

    def die_at(self, number: int, *, torn: bool) -> None:
        self.names.clear()
        self.fatal, self.torn = number, torn

    def _dies(self, name: str) -> bool:
        self.names.append(name)
        if len(self.names) - 1 != self.fatal:
            return False
        if not self.torn:
            raise Killed
        return True


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


def assert_same_end(out: Path, reference: Path) -> None:
    assert (out / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    assert (out / "best.safetensors").read_bytes() == (reference / "best.safetensors").read_bytes()
    assert charges(out) == charges(reference)
    assert rounds(out) == rounds(reference)
    assert [len(cohort) for cohort in charges(out).values()] == [row["cohort"] for row in rounds(out)]
    assert (out / "privacy.json").read_text() == (reference / "privacy.json").read_text()


def killed_at(run: Run, writes: Writes, out: Path, number: int, *options: str, torn: bool = False) -> None:
    writes.die_at(number, torn=torn)
    with pytest.raises(Killed):
        run(out, *options)
    writes.die_at(-1, torn=False)


@pytest.mark.parametrize(
    ("checkpoints", "torn"),
    [
        pytest.param(EVERY_ROUND, False, id="checkpoints-before", marks=pytest.mark.slow),
        pytest.param(EVERY_ROUND, True, id="checkpoints-halfway"),
        pytest.param(NEVER, False, id="no checkpoint-before", marks=pytest.mark.slow),
        pytest.param(NEVER, True, id="no checkpoint-halfway", marks=pytest.mark.slow),
    ],
)
def test_killed_at_every_write(
    run: Run, writes: Writes, tmp_path: Path, checkpoints: tuple[str, ...], torn: bool
) -> None:
    reference, checkpoints = tmp_path / "reference", (*checkpoints, "--rounds", "3")
    assert run(reference, *checkpoints).code == 0
    names = list(writes.names)
    assert {"config.toml", "charges.jsonl", "rounds.jsonl", "checkpoint/state.safetensors"} <= set(names)
    for number, name in enumerate(names):
        if torn and name in ("config.toml", "charges.jsonl"):
            continue  # the two tests below
        out = tmp_path / f"{number}-{name.replace('/', '-')}"
        killed_at(run, writes, out, number, *checkpoints, torn=torn)
        before = charges(out)
        ended = run(out, *checkpoints, "--resume")
        assert ended.code == 0, f"killed at {out.name}: {ended.err}"
        assert before.items() <= charges(out).items()
        assert_same_end(out, reference)


def test_half_a_configuration_is_no_run_yet(run: Run, writes: Writes, tmp_path: Path) -> None:
    killed_at(run, writes, tmp_path / "run", 0, torn=True)
    assert run(tmp_path / "run", "--resume").code == 0


def test_half_a_charge_is_no_charge_yet(run: Run, writes: Writes, tmp_path: Path) -> None:
    reference, out = tmp_path / "reference", tmp_path / "run"
    run(reference, *EVERY_ROUND)
    third = [i for i, name in enumerate(writes.names) if name == "charges.jsonl"][2]
    killed_at(run, writes, out, third, *EVERY_ROUND, torn=True)
    assert run(out, *EVERY_ROUND, "--resume").code == 0
    ended = run(out, *EVERY_ROUND, "--resume")
    assert ended.code == 0, ended.err
    assert_same_end(out, reference)


def interrupted_at(
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    number: int,
    only: str = "",
    error: type[BaseException] = KeyboardInterrupt,
) -> None:
    """Ctrl-C at the start of the numbered call; with `only`, of those calls that have it as second argument."""
    real, count = resolve_name(target), 0

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += not only or args[1] == only
        if count == number:
            count += 1
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(target, watched)


STAGES = {
    "planning": ("laconic.runner.run.plan_round", 4, ""),
    "charging": ("laconic.store.journal.Journal.charge", 4, ""),
    "training": ("laconic.clients.work.summed_terms", 30, ""),
    "server step": ("laconic.report.ledger.Ledger.add", 3, ""),
    "evaluation": ("laconic.train.flat.FlatModel.evaluate", 2, ""),
    "recording": ("laconic.store.folder.RunFolder.append", 3, "rounds.jsonl"),
    "display": ("laconic.observers.progress.PlainProgress.row", 3, ""),
    "checkpoint": ("laconic.store.folder.RunFolder.write", 3, "checkpoint/state.safetensors"),
    "report": ("laconic.store.folder.RunFolder.write", 1, "report.html"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_interrupted_in_every_stage(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, stage: str
) -> None:
    reference, out = tmp_path / "reference", tmp_path / "run"
    assert run(reference, *EVERY_ROUND).code == 0
    target, number, only = STAGES[stage]
    with monkeypatch.context() as patch:
        interrupted_at(patch, target, number, only)
        stopped = run(out, *EVERY_ROUND)
    assert stopped.code == 130
    assert stopped.err.startswith("laconic: interrupted after round ")
    command = shlex.split(stopped.err.partition("go on with: ")[2])
    ended = call(capsys, *command[1:])
    assert ended.code == 0, ended.err
    assert_same_end(out, reference)


def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laconic.clients.simulated.environment_of", lambda *args: "another machine")


def killed_after_four_charges(run: Run, writes: Writes, monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    """Rounds 1 to 4 are charged and 1 to 3 recorded, but there is no checkpoint yet."""
    writes.die_at(-1, torn=False)
    with monkeypatch.context() as patch:
        patch.setattr("laconic.runner.run.save_state", lambda *args, **named: None)
        run(out.with_name("probe"), *EVERY_ROUND)
        fourth = [i for i, name in enumerate(writes.names) if name == "charges.jsonl"][3]
        killed_at(run, writes, out, fourth + 1, *EVERY_ROUND)
    assert set(charges(out)) == {(number, 0) for number in (1, 2, 3, 4)}


def most_participations(out: Path) -> int:
    """How often the busiest client was in a cohort that was charged."""
    return Counter(client for cohort in charges(out).values() for client in cohort).most_common(1)[0][1]


def test_a_replay_on_another_machine_is_charged_again(
    run: Run, writes: Writes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    killed_after_four_charges(run, writes, monkeypatch, out)
    before = charges(out)
    on_another_machine(monkeypatch)
    assert run(out, *EVERY_ROUND, "--resume").code == 0
    assert before.items() <= charges(out).items()
    added = set(charges(out)) - set(before)
    assert added == {(1, 1), (2, 1), (3, 1), (4, 1), (5, 0), (5, 1)}, "round 5 was announced: it may have been charged"
    statement = strict_json((out / "privacy.json").read_text())
    assert statement["released"]["rounds_charged"] == 10
    assert statement["participant"]["participations"] == most_participations(out)


def test_abandoned_attempts_are_counted_once(
    run: Run, writes: Writes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    killed_after_four_charges(run, writes, monkeypatch, out)
    on_another_machine(monkeypatch)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupted_at(patch, "laconic.runner.run.plan_round", 2, error=Killed)
        run(out, *EVERY_ROUND, "--resume")
    assert run(out, *EVERY_ROUND, "--resume").code == 0
    statement = strict_json((out / "privacy.json").read_text())
    assert statement["participant"]["participations"] == most_participations(out)


def test_no_row_forgets_an_abandoned_attempt(
    run: Run, writes: Writes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reference, out = tmp_path / "reference", tmp_path / "run"
    assert run(reference, *EVERY_ROUND).code == 0
    killed_after_four_charges(run, writes, monkeypatch, out)
    on_another_machine(monkeypatch)
    assert run(out, *EVERY_ROUND, "--resume").code == 0
    assert rounds(out)[1]["epsilon"] > rounds(reference)[3]["epsilon"], "seven charges by then, against four"
