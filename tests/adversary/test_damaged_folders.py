"""Run folders that were damaged, edited or set back: refused in one line, or gone on with to the same end.

Never a traceback, never a smaller ε, never another model. The folders are those of tiny runs, killed or finished."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.errors import LaconicError, RunFolderError
from laconic.store.folder import json_text
from laconic.store.saves import _digest_of_row

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.2, local_steps=1, batch_size=4)
PLAIN = schemes.fl_std(local_lr=0.2, local_steps=1, batch_size=4)
CHARGES, SAVES, ROUNDS, IDENTITY = "charges.jsonl", "checkpoint/saves.jsonl", "rounds.jsonl", "identity.json"
STATE, BEST = "checkpoint/state.safetensors", "best.safetensors"
ROWS = (CHARGES, SAVES, ROUNDS)
FILES = (*ROWS, IDENTITY, STATE, BEST)
PER_BATCH, BATCHES = 100, 10


class Killed(Exception):
    pass


def run(out: Path, scheme: Any, *, kill: int = 0, keep: int = 0, **options: Any) -> laconic.RunResult:
    """A tiny run, killed after a round; what its folder was after round `keep` is kept beside it."""

    def watch(row: dict[str, Any]) -> None:
        if row["round"] == keep:
            shutil.copytree(out, out.with_name("earlier"))
        if row["round"] == kill:
            raise Killed

    torch.manual_seed(0)
    defaults: dict[str, Any] = {
        "model": nn.Linear(6, 3),
        "clients": make_population([4, 9, 1, 12, 7] * 5),
        "test": make_records(40, seed=1),
        "rounds": 6,
        "sampling_rate": 0.3,
        "engine": "one-by-one",
        "workers": 1,
    }
    if scheme.private:
        defaults |= {"delta": 1e-5, "max_participations": 4}
    return laconic.run(scheme, out=out, observer=watch, **(defaults | options))


@dataclass(frozen=True)
class Case:
    """A folder to be damaged, what it was some rounds earlier, and how the undamaged run ends."""

    scheme: Any
    options: dict[str, Any]
    folder: Path
    earlier: Path
    model: bytes
    best: bytes
    statement: dict[str, Any]


def make_case(where: Path, scheme: Any, *, kill: int, checkpoints: float) -> Case:
    options = {"checkpoint_seconds": checkpoints}
    whole = run(where / "whole/run", scheme, **options)
    folder = where / "cut/run"
    if kill:
        with pytest.raises(Killed):
            run(folder, scheme, kill=kill, keep=3, **options)
    else:
        run(folder, scheme, keep=3, **options)
    model, best = ((where / "whole/run" / name).read_bytes() for name in ("model.safetensors", BEST))
    return Case(scheme, options, folder, folder.with_name("earlier"), model, best, whole.statement)


CASES = {
    "killed after a checkpoint": (PRIVATE, 5, 0.0),
    "killed before a checkpoint": (PRIVATE, 4, 1e9),
    "finished": (PRIVATE, 0, 0.0),
    "not private": (PLAIN, 5, 0.0),
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    torch.set_num_threads(1)
    where = tmp_path_factory.mktemp("cases")
    return [
        make_case(where / name, scheme, kill=kill, checkpoints=checkpoints)
        for name, (scheme, kill, checkpoints) in CASES.items()
    ]


Damage = Callable[[Path, Case, random.Random], None]


def cut_short(path: Path, case: Case, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def flip_a_byte(path: Path, case: Case, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 5))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def zero_some_bytes(path: Path, case: Case, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    size = min(rng.choice((1, 16, 512)), len(content) - start)
    content[start : start + size] = bytes(size)
    path.write_bytes(content)


def add_something(path: Path, case: Case, rng: random.Random) -> None:
    more = rng.choice((b"\n", b"{}\n", b'{"round": 7}\n', b"\xff\xfe\n", b"[[[", b"0" * 100 + b"\n"))
    path.write_bytes(path.read_bytes() + more)


def delete(path: Path, case: Case, rng: random.Random) -> None:
    path.unlink()


def empty(path: Path, case: Case, rng: random.Random) -> None:
    path.write_bytes(b"")


def put_a_folder_there(path: Path, case: Case, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def set_back(path: Path, case: Case, rng: random.Random) -> None:
    """What the file was some rounds ago."""
    earlier = case.earlier / path.relative_to(path.parents[1] if path.parent.name == "checkpoint" else path.parent)
    if earlier.exists():
        shutil.copy(earlier, path)
    else:
        path.unlink()


def other_json(path: Path, case: Case, rng: random.Random) -> None:
    """Something that is no table of what is expected."""
    path.write_text(rng.choice(("[]\n", "{}\n", "null\n", "17\n", '"text"\n', "[" * 100_000 + "\n", '{"a": 1e999}\n')))


ANY_FILE: tuple[Damage, ...] = (
    cut_short,
    flip_a_byte,
    zero_some_bytes,
    add_something,
    delete,
    empty,
    put_a_folder_there,
    set_back,
    other_json,
)


def drop_a_line(path: Path, case: Case, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def repeat_a_line(path: Path, case: Case, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    path.write_bytes(b"".join(lines))


def swap_lines(path: Path, case: Case, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    rng.shuffle(lines)
    path.write_bytes(b"".join(lines))


def drop_the_last_lines(path: Path, case: Case, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: rng.randrange(len(lines))]))


def edited(row: dict[str, Any], rng: random.Random) -> Any:
    """A row with a renamed key, a key less, another value or another type."""
    if not row or rng.random() < 0.1:
        return rng.choice(([], [row], 17, None, "row"))
    key = rng.choice(sorted(row))
    kind = rng.randrange(5)
    if kind == 0:
        return {(f"{k}s" if k == key else k): v for k, v in row.items()}
    if kind == 1:
        return {k: v for k, v in row.items() if k != key}
    value = row[key]
    if kind == 2 and isinstance(value, int):
        return row | {key: value + rng.choice((-1, 1, -100, 10**30))}
    if kind == 3 and isinstance(value, list):
        return row | {key: rng.choice(([], value[1:], [*value, 3], value[:-1], [str(v) for v in value]))}
    return row | {key: rng.choice((None, [], {}, "", "text", -1, 0, 1.5, True, [value]))}


def edit_a_row(path: Path, case: Case, rng: random.Random) -> None:
    lines = path.read_text().splitlines()
    number = rng.randrange(len(lines))
    lines[number] = json.dumps(edited(json.loads(lines[number]), rng))
    path.write_text("".join(line + "\n" for line in lines))


def edit_a_row_and_its_digest(path: Path, case: Case, rng: random.Random) -> None:
    """As whoever knows how digests are made would."""
    lines = path.read_text().splitlines()
    number = rng.randrange(len(lines))
    row = edited(json.loads(lines[number]), rng)
    if isinstance(row, dict):
        row.pop("digest", None)
        row["digest"] = _digest_of_row(row)
    lines[number] = json_text(row)
    path.write_text("".join(line + "\n" for line in lines))


ANY_ROWS: tuple[Damage, ...] = (
    drop_a_line,
    repeat_a_line,
    swap_lines,
    drop_the_last_lines,
    edit_a_row,
    edit_a_row,
    edit_a_row_and_its_digest,
)


def edit_the_identity(path: Path, case: Case, rng: random.Random) -> None:
    path.write_text(json.dumps(edited(json.loads(path.read_text()), rng), indent=2) + "\n")


def damaged(case: Case, out: Path, rng: random.Random) -> str:
    """A copy of the folder with one thing wrong, or two; what it is."""
    shutil.copytree(case.folder, out)
    told = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        present = [name for name in FILES if (out / name).is_file() and (out / name).stat().st_size]
        name = rng.choice(present)
        kinds = ANY_FILE + (ANY_ROWS if name in ROWS else ()) + ((edit_the_identity,) * 4 if name == IDENTITY else ())
        damage = rng.choice(kinds)
        try:
            damage(out / name, case, rng)
        except (ValueError, AttributeError):  # the second damage finds a row that the first left unreadable
            flip_a_byte(out / name, case, rng)
        told.append(f"{damage.__name__} {name}")
    return ", ".join(told)


def epsilons(statement: dict[str, Any]) -> tuple[float, float]:
    if not statement["private"]:
        return 0.0, 0.0
    return statement["released"]["epsilon"]["pld"], statement["participant"]["epsilon"]["pld"]


def refused_or_the_same(case: Case, out: Path, told: str) -> bool:
    """Whether the folder was refused. Anything but a plain refusal or the same end is an error."""
    try:
        result = run(out, case.scheme, resume=True, **case.options)
    except LaconicError as error:
        text = str(error)
        assert "\n" not in text, told
        assert str(out) in text, f"{told}: {text}"
        return True
    assert (out / "model.safetensors").read_bytes() == case.model, f"{told}: another model"
    assert (out / BEST).read_bytes() == case.best, f"{told}: another best model"
    assert epsilons(result.statement) >= epsilons(case.statement), f"{told}: a smaller ε"
    assert min(a - b for a, b in zip(epsilons(result.statement), epsilons(case.statement), strict=True)) >= 0, told
    return False


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_damage_leads_to_a_traceback_a_smaller_epsilon_or_another_model(
    cases: list[Case], tmp_path: Path, batch: int
) -> None:
    refused = 0
    for number in range(PER_BATCH):
        rng = random.Random(f"{batch}/{number}")
        case, out = cases[number % len(cases)], tmp_path / str(number)
        told = damaged(case, out, rng)
        refused += refused_or_the_same(case, out, told)
        shutil.rmtree(out)
    assert PER_BATCH // 2 < refused < PER_BATCH  # what a kill could have left, too, is gone on with


@pytest.fixture
def killed(cases: list[Case], tmp_path: Path) -> tuple[Case, Path]:
    """A copy of a private run's folder, killed after a checkpoint."""
    shutil.copytree(cases[0].folder, tmp_path / "run")
    return cases[0], tmp_path / "run"


def assert_refused(case: Case, out: Path, match: str) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(RunFolderError, match=match):
        run(out, case.scheme, resume=True, **case.options)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def rows_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: [json.loads(line) for line in (out / name).read_text().splitlines()] for name in (CHARGES, SAVES)}


def rechained(out: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Write the rows with new digests, in their old order, as a careful forger would."""
    order, heads = [], {"": ""}
    by_head = {row["after"]: row for name in rows for row in rows[name]}
    head = ""
    while head in by_head:
        order.append(by_head[head])
        head = by_head[head]["digest"]
    for row in order:
        old = row.pop("digest")
        row["after"] = heads[row["after"]]
        row["digest"] = heads[old] = _digest_of_row(row)
    for name, some in rows.items():
        (out / name).write_text("".join(json_text(row) + "\n" for row in some))


def test_emptied_cohorts_are_refused(killed: tuple[Case, Path]) -> None:
    case, out = killed
    rows = rows_of(out)
    lines = [json_text(row | {"cohort": []}) + "\n" for row in rows[CHARGES]]
    (out / CHARGES).write_text("".join(lines))
    assert_refused(case, out, "charges.jsonl, line 1, was altered")


@pytest.mark.parametrize("number", [0, 2, -1])
def test_cohorts_that_the_seed_does_not_draw_are_refused_whatever_the_digests_say(
    killed: tuple[Case, Path], number: int
) -> None:
    case, out = killed
    rows = rows_of(out)
    rows[CHARGES][number]["cohort"] = rows[CHARGES][number]["cohort"][1:]
    rechained(out, rows)
    assert_refused(case, out, "the seed draws another cohort")


def test_a_checkpoint_set_back_some_rounds_is_refused(killed: tuple[Case, Path]) -> None:
    case, out = killed
    shutil.copy(case.earlier / STATE, out / STATE)
    assert_refused(case, out, "state.safetensors is not the state that was saved last")
    shutil.copy(case.earlier / SAVES, out / SAVES)
    assert_refused(case, out, "charges.jsonl, line ., does not follow")


def test_a_counter_set_back_in_the_checkpoint_is_refused(killed: tuple[Case, Path]) -> None:
    """It would draw the noise of a released round again, on other weights."""
    case, out = killed
    content = (out / STATE).read_bytes()
    assert content.count(b'\\"rounds\\": 4') == 1
    (out / STATE).write_bytes(content.replace(b'\\"rounds\\": 4', b'\\"rounds\\": 3'))
    assert_refused(case, out, "state.safetensors is not the state that was saved last")


def test_a_deleted_identity_is_not_made_anew(killed: tuple[Case, Path]) -> None:
    case, out = killed
    (out / IDENTITY).unlink()
    assert_refused(case, out, "identity.json is missing")


def test_a_folder_without_digests_is_refused_with_the_way_out(killed: tuple[Case, Path]) -> None:
    case, out = killed
    rows = rows_of(out)[CHARGES]
    for row in rows:
        del row["after"], row["digest"]
    (out / CHARGES).write_text("".join(json_text(row) + "\n" for row in rows))
    (out / SAVES).unlink()
    assert_refused(case, out, "earlier version of Laconic.*start a new run")


def test_charges_without_their_rows_of_saves_are_refused(killed: tuple[Case, Path]) -> None:
    case, out = killed
    for name in (CHARGES, SAVES, STATE, ROUNDS):
        (out / name).unlink()
    assert_refused(case, out, "saves.jsonl is missing, but there is identity.json")


@pytest.mark.parametrize("later", [0, 1])
def test_a_kill_inside_the_save_after_a_kill_inside_a_save(
    cases: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """The second save is announced while files may still be those of the first, which was never confirmed."""
    from laconic.store.folder import RunFolder

    case, out = cases[0], tmp_path / "run"
    write = RunFolder.write
    for which in (2, 1 + later):
        count = 0

        def watched(folder: RunFolder, name: str, content: str | bytes, which: int = which) -> None:
            nonlocal count
            count += name == STATE
            if name == STATE and count == which:
                if which == 2:  # the first time right after the file was replaced, then right before
                    write(folder, name, content)
                raise Killed
            write(folder, name, content)

        monkeypatch.setattr(RunFolder, "write", watched)
        with pytest.raises(Killed):
            run(out, case.scheme, resume=True, **case.options)
    monkeypatch.setattr(RunFolder, "write", write)
    assert not refused_or_the_same(case, out, "killed twice")
