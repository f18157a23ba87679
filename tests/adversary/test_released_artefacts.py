"""Everything that is handed to others, compared between two worlds in which one client's records differ.

The client has records of zeros, and the model has no bias, so its code is zero in both worlds, and with the same noise
the released models are equal. How many records it has, and with which labels, differs. Whatever else is handed over
must then be equal byte for byte: model cards, exported files, what a tracker is told, rows and statements.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from safetensors import safe_open
from torch import nn

import laconic
from conftest import make_records
from laconic import schemes
from laconic.audience import EVERYONE, Field, fields_of
from laconic.data.population import Records
from laconic.observers.tracker import Tracker
from laconic.privacy.released import Statement, released_row, released_statement
from laconic.report.model_card import model_card

CLIENTS, ODD = 24, 5
NAMES = ("fl_std_dp", "fl_top_dp", "fl_top_dp with votes", "fl_cs_dp", "fl_sign_dp", "records")


class Told(Tracker):
    """Keeps all that a tool is told."""

    name = "told"

    def __init__(self) -> None:
        super().__init__({})
        self.heard: list[Any] = []

    def open(self, run: Any, parameters: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        self.heard.append(parameters)
        return {}

    def log(self, step: int, values: dict[str, float]) -> None:
        self.heard.append((step, self.clock(step) - self._began, values))

    def keep(self, file: Path) -> None:
        self.heard.append((file.name, file.read_bytes()))

    def close(self, status: str) -> None:
        self.heard.append((status, self.closed_at - self._began))


def scheme(name: str) -> laconic.Scheme:
    common: dict[str, Any] = {"clip_norm": 0.5, "noise_multiplier": 1.5}
    local = common | {"local_lr": 0.2, "local_steps": 1, "batch_size": 4}
    if name == "records":
        return schemes.fl_std_dp(unit="record", num_units=120, server_lr=0.2, **common)
    if name == "fl_top_dp with votes":
        votes = {"top_selection": "votes", "vote_rounds": 2, "vote_block": 3, "vote_noise_multiplier": 2.0}
        return schemes.fl_top_dp(ratio=0.3, **votes, **local)
    if name == "fl_sign_dp":
        return schemes.fl_sign_dp(noise_multiplier=1.5, local_lr=0.2, local_steps=1, batch_size=4)
    return {
        "fl_std_dp": lambda: schemes.fl_std_dp(**local),
        "fl_top_dp": lambda: schemes.fl_top_dp(ratio=0.3, **local),
        "fl_cs_dp": lambda: schemes.fl_cs_dp(ratio=0.5, **local),
    }[name]()


def odd(count: int, label: int) -> Records:
    return Records(torch.zeros(count, 6), torch.full((count,), label))


def world(name: str, client: Records, out: Path, *, seed: int = 0) -> tuple[laconic.RunResult, Told]:
    torch.manual_seed(0)
    clients = [make_records(5, seed=number) for number in range(CLIENTS)]
    clients[ODD] = client
    told = Told()
    result = laconic.run(
        scheme(name),
        model=nn.Linear(6, 3, bias=False),
        clients=clients,
        test=make_records(40, seed=99),
        public=make_records(20, seed=98) if name == "fl_top_dp" else None,
        rounds=4,
        sampling_rate=1.0 if name == "records" else 0.4,
        delta=1e-4,
        seed=seed,
        out=out,
        observer=told,
        workers=1,
        device="cpu",
    )
    return result, told


def handed_over(result: laconic.RunResult, told: Told, folder: Path) -> dict[str, Any]:
    """All of it, by what it is."""
    files = {}
    for to in ("safetensors", "torchscript"):
        done = laconic.export_run(
            folder, to, out=folder.parent / f"{folder.name}.{to}", model=nn.Linear(6, 3, bias=False), released_only=True
        )
        assert done.file is not None
        files[to] = parsed(done.file)
        files[f"card of {to}"] = done.card.read_bytes()
    return files | {
        "card": model_card(result.summary(), {}, released_only=True),
        "statement": json.dumps(released_statement(result.statement)),
        "rows": [released_row(row, private=True) for row in result.history],
        "shapes": [(key, tuple(value.shape)) for key, value in result.model.state_dict().items()],
        "weights": [value.numpy().tobytes() for value in result.model.state_dict().values()],
        "told to a tracker": told.heard,
    }


def parsed(file: Path) -> Any:
    """What stands in a file, without what changes from one export to the next of the same model.

    In safetensors metadata have no fixed order. TorchScript numbers the modules that a process has traced.
    """
    if file.suffix == ".torchscript":
        mangled = re.compile(rb"[./]?___torch_mangle_\d+")
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if not name.endswith((".debug_pkl", "serialization_id"))]
            return {mangled.sub(b"", name.encode()): mangled.sub(b"", archive.read(name)) for name in names}
    with safe_open(file, "pt") as stream:
        return stream.metadata(), {name: stream.get_tensor(name).tolist() for name in stream.keys()}  # noqa: SIM118


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("noise_by_seed")
def test_what_is_handed_over_is_equal_whatever_one_client_has(name: str, tmp_path: Path) -> None:
    one = handed_over(*world(name, odd(2, 0), tmp_path / "one"), tmp_path / "one")
    other = handed_over(*world(name, odd(9, 2), tmp_path / "other"), tmp_path / "other")
    assert one.keys() == other.keys()
    for what in one:
        assert one[what] == other[what], what


@pytest.mark.usefixtures("noise_by_seed")
def test_a_field_that_counts_records_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage: the statement that is handed over says how many records there are."""
    shown = Annotated[int, Field("how many records there are", EVERYONE)]
    monkeypatch.setitem(Statement.__annotations__, "records", shown)
    fields_of.cache_clear()
    found = []
    for number, client in enumerate((odd(2, 0), odd(9, 2))):
        result, told = world("fl_std_dp", client, tmp_path / str(number))
        result.statement["records"] = 5 * (CLIENTS - 1) + len(client.targets)
        found.append(handed_over(result, told, tmp_path / str(number)))
    fields_of.cache_clear()
    assert found[0]["statement"] != found[1]["statement"]
    assert found[0]["weights"] == found[1]["weights"]


def sent(result: laconic.RunResult) -> str:
    card = model_card(result.summary(), {}, released_only=True)
    return card.partition("## What was sent")[2].partition("## ")[0]


@pytest.mark.parametrize("name", ["fl_top_dp with votes", "fl_std_dp"])
def test_the_bytes_on_a_card_for_others_do_not_depend_on_who_took_part(name: str, tmp_path: Path) -> None:
    """A mean over votes and training was a known function of the sizes of cohorts."""
    runs = []
    for seed in (0, 1, 2):
        runs.append(world(name, odd(2, 0), tmp_path / str(seed), seed=seed)[0])
    assert len({tuple(row["cohort"] for row in result.history) for result in runs}) == 3
    assert len({sent(result) for result in runs}) == 1
    assert "| training |" in sent(runs[0])
    if "votes" in name:  # the sabotage: a mean over messages of both kinds
        assert len({result.ledger["bytes_down_per_client_and_round"] for result in runs}) == 3


def test_planned_sizes_are_those_that_are_sent(tmp_path: Path) -> None:
    result, _ = world("fl_top_dp with votes", odd(2, 0), tmp_path / "run")
    planned = result.ledger["planned_messages"]
    assert set(planned) == {"votes", "training"}
    for row in result.history:
        kind = planned["votes" if "vote" in row else "training"]
        assert row["bytes_up"] == row["messages_up"] * kind["up"]
        assert row["bytes_down"] == row["messages_down"] * kind["down"]
