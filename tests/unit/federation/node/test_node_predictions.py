"""Predictions at a node: the newest weights that it has got, on new records of its owner."""

from __future__ import annotations

import csv
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from PIL import Image

from conftest import make_records
from laconic import schemes
from laconic.cli.main import cli
from laconic.clients import wire
from laconic.data.inputs import dense
from laconic.errors import LaconicError
from laconic.federation.node import predictions
from laconic.federation.node.node import Node
from laconic.federation.node.own_model import own_model
from laconic.federation.node.own_records import own_records
from laconic.federation.offer import Offer, sign_offer
from laconic.federation.requests import UploadRequest
from laconic.federation.weights import initial_weights, weights_digest
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.models.registry import build_model
from laconic.packing import FLOAT32
from laconic.privacy.accounting.sampling import Poisson
from laconic.streams import Streams

SERVER = Ed25519PrivateKey.generate()


def make_offer() -> Offer:
    seed = Streams(4).public_seed("model")
    weights = initial_weights(build_model("logistic", input_shape=(6,), num_classes=3, seed=seed, options={}))
    return Offer(
        run=secrets.token_bytes(16),
        server=SERVER.public_key().public_bytes_raw(),
        scheme=schemes.fl_std(local_lr=0.1, local_steps=1),
        sampler=Poisson(sampling_rate=1.0),
        num_clients=1,
        rounds=3,
        budget=None,
        public_seed=4,
        model="logistic",
        input_shape=(6,),
        num_classes=3,
        size=len(weights),
        initial=weights_digest(weights),
    )


def taken_part(path: Path, *, keep: bool = True) -> torch.Tensor:
    """A node that took part in two rounds; the weights of the second."""
    offer, weights = make_offer(), torch.zeros(21)
    node = Node(
        NodeFolder(path),
        Policy(secure_aggregation="optional", min_cohort=1),
        model=own_model,
        records=lambda offer: make_records(20),
        keep_weights=keep,
    )
    assert "announcement" in node.answer("keys", {"offer": sign_offer(offer, 0, SERVER)})
    for round in (1, 2):
        weights = torch.randn(21, generator=torch.Generator().manual_seed(round))
        message = wire.Message("weights", round, 0, 0, 0.0, offer.scheme.fingerprint, weights)
        request = UploadRequest(run=offer.run, round=round, attempt=0, weights=wire.encode(message, FLOAT32))
        assert "upload" in node.answer("upload", request.to_fields())
    return weights


def tables(path: Path) -> tuple[Path, Path, torch.Tensor]:
    """The node's own table, and a new one with its columns in another order and no target."""
    own, new, records = path / "own.csv", path / "new.csv", make_records(4, seed=8)
    names = [f"x{number}" for number in range(6)]
    with own.open("w", newline="") as stream:
        csv.writer(stream).writerows([[*names, "target"], [*range(6), 1]])
    with new.open("w", newline="") as stream:
        csv.writer(stream).writerows([names[::-1], *(row[::-1] for row in records.inputs.tolist())])
    return own, new, records.inputs


def asked(*arguments: Any) -> Any:
    return CliRunner().invoke(cli, ["node", "predict", *map(str, arguments)])


def test_the_newest_weights_predict_for_a_table_whatever_the_order_of_its_columns(tmp_path: Path) -> None:
    weights = taken_part(tmp_path / "node")
    own, new, inputs = tables(tmp_path)
    out = tmp_path / "predictions.csv"
    result = asked(tmp_path / "node", new, "--like", own, "--classes", "a,b,c", "--out", out)
    assert result.exit_code == 0, result.output
    assert "at the beginning of round 2" in result.output
    rows = list(csv.DictReader(out.read_text().splitlines()))
    expected = torch.softmax(inputs @ weights[:18].reshape(3, 6).T + weights[18:], 1)
    assert [row["class"] for row in rows] == ["abc"[number] for number in expected.argmax(1).tolist()]
    for row, shares in zip(rows, expected, strict=True):
        assert [float(row[f"p({name})"]) for name in "abc"] == pytest.approx(shares.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["{new}"], "name the node's table with --like"),
        (["{missing}", "--like", "{own}"], "no such file or folder"),
        (["{new}", "--like", "{own}", "--run", "zz"], "has joined no run zz"),
        (["{new}", "--like", "{own}", "--target", "x0"], "missing column 'target'"),
        (["{new}", "--like", "{own}", "--classes", "a,b"], "--classes names 2 classes, and the run has 3"),
    ],
)
def test_what_cannot_be_predicted_is_one_line_with_a_way_out(more: list[str], text: str, tmp_path: Path) -> None:
    taken_part(tmp_path / "node")
    own, new, _ = tables(tmp_path)
    named = {"own": own, "new": new, "missing": tmp_path / "nowhere.csv"}
    result = asked(tmp_path / "node", *(part.format(**named) for part in more))
    assert isinstance(result.exception, LaconicError) and text in str(result.exception)
    assert "\n" not in str(result.exception)


def test_weights_are_kept_only_where_the_owner_wants_them(tmp_path: Path) -> None:
    taken_part(tmp_path / "node", keep=False)
    own, new, _ = tables(tmp_path)
    result = asked(tmp_path / "node", new, "--like", own)
    assert "--keep-weights" in str(result.exception) + result.output
    assert not list((tmp_path / "node").glob("*/weights"))


def test_weights_that_are_damaged_predict_nothing(tmp_path: Path) -> None:
    taken_part(tmp_path / "node")
    own, new, _ = tables(tmp_path)
    (file,) = (tmp_path / "node").glob("*/weights")
    for damage in (b"", b"123", file.read_bytes()[:-4], file.read_bytes()[:-4] + b"\x00\x00\xc0\x7f"):
        file.write_bytes(damage)
        result = asked(tmp_path / "node", new, "--like", own)
        assert result.exit_code != 0 and "damaged" in str(result.exception) + result.output


def _health(path: Path) -> dict[str, object]:
    (path / "a.csv").write_text("age,died\n50,1\n20,0\n")
    text = 'label = "died"\npositive = 1\n[[numeric]]\ncolumn = "age"\nmin = 0\nmax = 100\n'
    (path / "schema.toml").write_text(text)
    return {"data": str(path / "a.csv"), "schema": str(path / "schema.toml")}


def _texts(path: Path) -> dict[str, object]:
    (path / "a.csv").write_text("words,target\ngood day,1\nbad day,0\n")
    return {"data": str(path / "a.csv"), "text-column": "words", "vocabulary": "hash:50", "max-length": 5}


def _pictures(path: Path) -> dict[str, object]:
    for name, value in (("cat", 50), ("dog", 200)):
        (path / "scans" / name).mkdir(parents=True)
        Image.new("RGB", (10, 8), (value, 9, 0)).save(path / "scans" / name / "1.png")
    return {"data": str(path / "scans"), "classes": "cat,dog", "image-size": "4x4"}


def _table(path: Path) -> dict[str, object]:
    (path / "a.csv").write_text("b,died,a\n1,0,3\n2,1,4\n")
    return {"data": str(path / "a.csv"), "target": "died"}


@pytest.mark.parametrize("made", [_health, _texts, _pictures, _table])
def test_new_records_are_read_as_the_nodes_own_are(made: Callable[[Path], dict[str, object]], tmp_path: Path) -> None:
    settings = made(tmp_path)
    own = dense(own_records(settings).records.inputs)
    offer: Any = SimpleNamespace(input_shape=tuple(own.shape[1:]), num_classes=2)
    data = Path(str(settings["data"]))
    _, new = predictions._read(offer, data, settings, data if made is _table else None)
    assert torch.equal(dense(new.inputs), own)


def test_a_list_of_words_beside_the_data_does_not_number_them(tmp_path: Path) -> None:
    """The vocabulary is the one that was agreed on, whatever other files are there."""
    settings = _texts(tmp_path)
    own = dense(own_records(settings).records.inputs)
    (tmp_path / "vocabulary.txt").write_text("day\nbad\ngood\n")
    offer: Any = SimpleNamespace(input_shape=tuple(own.shape[1:]), num_classes=2)
    _, new = predictions._read(offer, Path(str(settings["data"])), settings, None)
    assert torch.equal(dense(new.inputs), own)


@pytest.mark.parametrize(
    ("hidden", "why"), [("", "are not the server's"), ("nn.Linear(6, 6), ", "weights, the server's 21")]
)
def test_another_model_than_the_runs_predicts_nothing(
    hidden: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_part(tmp_path / "node")
    own, new, _ = tables(tmp_path)
    (tmp_path / "their_model.py").write_text(
        f"from torch import nn\n\ndef make():\n    return nn.Sequential({hidden}nn.Tanh(), nn.Linear(6, 3))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_model", raising=False)
    result = asked(tmp_path / "node", new, "--like", own, "--model", "their_model:make")
    assert isinstance(result.exception, LaconicError) and why in str(result.exception), result.output


def test_a_schema_is_refused_where_the_run_has_plain_numbers(tmp_path: Path) -> None:
    """Features of a schema, as many as the table's, would give numbers that mean nothing."""
    taken_part(tmp_path / "node")
    names = [f"x{number}" for number in range(6)]
    columns = "".join(f'[[numeric]]\ncolumn = "{name}"\nmin = 0\nmax = 100\n' for name in names)
    (tmp_path / "schema.toml").write_text('label = "died"\npositive = 1\n' + columns)
    _, new, _ = tables(tmp_path)
    result = asked(tmp_path / "node", new, "--schema", tmp_path / "schema.toml")
    assert isinstance(result.exception, LaconicError)
    assert "does not say what its records mean" in str(result.exception)
