"""`laconic export`: files that take raw records and answer as the run's own model does, and the model card."""

from __future__ import annotations

import copy
import html
import io
import json
import re
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import laconic
from laconic.audience import Sentence
from laconic.cli.main import cli
from laconic.errors import ConfigError, RunFolderError
from laconic.export import raw
from laconic.export.export import compare, export_run
from laconic.export.formats import FORMATS
from laconic.export.raw import raw_model, with_plain_loops, without_complex_numbers
from laconic.export.trained import Trained
from laconic.features.kinds import public_front_end
from laconic.features.scattering import ScatteringFrontEnd
from laconic.figures import at_most
from laconic.models.registry import build_model
from laconic.report.model_card import model_card
from laconic.runner.run import Run, run_in
from laconic.schemes import fl_std, fl_std_dp
from laconic.settings.build import files_of, settle
from laconic.settings.config import RunConfig
from laconic.settings.data.record_kind import RecordKind
from laconic.store.finished import finished_run
from laconic.store.folder import RunFolder

TRAIN: dict[str, Any] = {"local_lr": 0.5, "local_steps": 2}


def run_of(values: dict[str, Any], folder: Path) -> laconic.RunResult:
    """A run as the command line makes it."""
    settled = settle(
        RunConfig().with_values({"run.rounds": 1, "run.device": "cpu", "run.engine": "one-by-one"} | values)
    )
    with run_in(RunFolder(folder), Run(settled.experiment), files_of(settled)) as simulation:
        return simulation.run()


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private run with a front end."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    values = {"scheme.name": "fl-std-dp", "scheme.clip_norm": 0.5, "scheme.noise_multiplier": 3.0}
    values |= {"sampler.kind": "fixed-size", "sampler.cohort_size": 40, "run.rounds": 2}  # whose ε is quick
    values |= {"front_end.name": "scattering", "front_end.features": 10, "front_end.projection": "random"}
    run_of(values | {"data.num_clients": 50}, folder)
    return folder


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on health records: numbers, levels and codes."""
    folder = tmp_path_factory.mktemp("runs") / "patients"
    values = {"data.dataset": "ehr-synthetic", "data.num_records": 4150, "data.min_count": 100, "model.hidden": 8}
    run_of(values | {"data.min_client_records": 1, "sampler.sampling_rate": 0.1}, folder)
    return folder


def loaded_script(path: Path) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(io.BytesIO(path.read_bytes()))


def test_an_exported_file_takes_raw_pictures_and_answers_as_the_run_does(digits: Path, tmp_path: Path) -> None:
    done = export_run(digits, "torchscript", out=tmp_path / "digits.pt")
    assert done.difference is not None and done.difference < 1e-5
    pictures = torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        expected = laconic.load(digits).model.eval()(pictures)
        assert torch.allclose(loaded_script(tmp_path / "digits.pt")(pictures), expected, atol=1e-5)
    assert (tmp_path / "digits.md").read_text(encoding="utf-8").startswith("# Model card: fl-std-dp")


def test_the_best_round_is_exported_on_request(digits: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    done = export_run(digits, "safetensors", out=tmp_path / "best.bin", best=True)
    assert done.file is not None
    kept, stored = load_file(done.file), load_file(digits / "best.safetensors")
    for name, value in stored.items():
        assert torch.equal(kept[f"head.{name}"], value)


@pytest.mark.parametrize("to", ["torchscript", "safetensors"])
def test_the_preprocessing_of_health_records_is_inside(patients: Path, tmp_path: Path, to: str) -> None:
    done = export_run(patients, to, out=tmp_path / "model.file")
    assert done.difference is not None and done.difference < 1e-5
    assert list(done.inputs) == ["numbers", "levels", "codes"]
    assert done.inputs["numbers"]["columns"] and done.inputs["levels"]["levels"]


def test_every_scaling_of_a_column_is_exported(tmp_path: Path) -> None:
    from laconic.data.ehr.features import Preprocessing
    from laconic.data.ehr.schema import Numeric, Schema

    (tmp_path / "schema.toml").write_text(
        Schema(
            label="died",
            positive=("1",),
            numeric=(
                Numeric(column="age", min=0.0, max=90.0, fill=40.0),
                Numeric(column="lab", scale="clipped", min=-1.0, max=3.0),
                Numeric(column="weight", scale="standard", mean=70.0, std=12.0),
                Numeric(column="bp", scale="clipped", min=80.0, max=160.0, gaps=True),
                Numeric(column="bmi", scale="standard", mean=25.0, std=5.0, gaps=True),
                Numeric(column="pulse", min=40.0, max=140.0, fill=50.0, gaps=True),
            ),
        ).to_toml(),
        encoding="utf-8",
    )
    preprocessing = Preprocessing(Schema.from_toml(tmp_path / "schema.toml"))
    (tmp_path / "preprocessing.toml").write_text(preprocessing.schema.to_toml(), encoding="utf-8")
    run: Any = types.SimpleNamespace(path=tmp_path)
    raw = raw_model(Trained(run, nn.Linear(9, 1).eval(), None, RecordKind(shape=(9,)), None))
    _, ask = FORMATS["torchscript"][1](raw, {})
    assert compare(raw, ask, "torchscript") < 1e-5
    others = torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1, 0)
    missing = torch.tensor([[torch.nan, 1.0, 80.0, 120.0, 25.0, 50.0]])
    filled, marked = missing.clone(), missing.clone()
    filled[0, 0], marked[0, 3] = 40.0, torch.nan
    assert torch.equal(ask((missing, *others)), ask((filled, *others)))
    assert not torch.equal(ask((missing, *others)), ask((marked, *others)))


def test_a_wrong_preprocessing_would_be_noticed_and_nothing_left(
    patients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = raw.PreparedRecords.forward

    def wrong(self: Any, numbers: Tensor, levels: Tensor, codes: Tensor) -> Tensor:
        return right(self, numbers, levels + 1, codes)

    monkeypatch.setattr(raw.PreparedRecords, "forward", wrong)
    with pytest.raises(ConfigError, match="its outputs would differ by"):
        export_run(patients, "torchscript", out=tmp_path / "model.pt")
    assert list(tmp_path.iterdir()) == []


def trained(head: nn.Module, *shape: int, front_end: nn.Module | None = None, **kind: bool) -> Trained:
    run: Any = types.SimpleNamespace(path=Path("/nonexistent"))
    return Trained(run, head.eval(), front_end and front_end.eval(), RecordKind(shape=shape, **kind), None)


class FixedBatch(nn.Module):
    """A trace of it knows one size of batch only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.layer(x[row : row + 1]) for row in range(len(x))]
        return torch.cat(parts)


def models() -> dict[str, Trained]:
    words = build_model("cnn-lstm", input_shape=(30,), num_classes=2, seed=0, options={"vocabulary": 50})
    pictures = build_model("cnn", input_shape=(1, 8, 8), num_classes=3, seed=0)
    front_end = public_front_end("scattering", (1, 12, 12), features=20, projection="random", mirror=True)
    return {
        "words": trained(words, 30, whole=True),
        "bytes": trained(pictures, 1, 8, 8, pixels=True),
        "front end": trained(nn.Linear(20, 3), 1, 12, 12, front_end=front_end, pixels=True),
        "numbers": trained(nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.Linear(8, 2)), 4),
    }


@pytest.mark.parametrize("name", list(models()))
@pytest.mark.parametrize("to", list(FORMATS))
def test_every_kind_of_record_can_be_exported(name: str, to: str) -> None:
    if to == "onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
    raw = raw_model(models()[name])
    content, ask = FORMATS[to][1](raw, {"scheme": "fl-std"})
    assert len(content) > 100
    assert compare(raw, ask, to) < 1e-5
    if name in ("bytes", "front end"):
        assert raw.inputs["inputs"]["type"] == "uint8"


def test_onnx_is_checked_without_onnxruntime_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    raw = raw_model(models()["numbers"])
    content, ask = FORMATS["onnx"][1](raw, {"scheme": "fl-std"})
    assert compare(raw, ask, "onnx") < 1e-5
    import onnx

    about = {one.key: one.value for one in onnx.load_from_string(content).metadata_props}
    assert about == {"laconic.scheme": "fl-std"}


@pytest.mark.parametrize("to", ["torchscript", "onnx"])
def test_a_model_that_a_trace_gets_wrong_is_refused(to: str) -> None:
    if to == "onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
    raw = raw_model(trained(FixedBatch(), 4))
    _, ask = FORMATS[to][1](raw, {})
    with pytest.raises(ConfigError, match=f"cannot be exported to {to}"):
        compare(raw, ask, to)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 13, 18)])
def test_scattering_in_real_numbers_is_scattering(shape: tuple[int, ...]) -> None:
    front_end = ScatteringFrontEnd(shape)
    pictures = torch.rand(3, *shape)
    again = without_complex_numbers(copy.deepcopy(front_end))
    assert type(again.transform) is not type(front_end.transform)
    assert torch.allclose(front_end(pictures), again(pictures), atol=1e-5)


@pytest.mark.parametrize("activation", ["hard-sigmoid", "sigmoid"])
def test_the_plain_loop_is_the_lstm(activation: str) -> None:
    from laconic.models.lstm import LSTM

    lstm = nn.Sequential(LSTM(5, 4, recurrent_activation=activation))
    inputs = torch.randn(3, 7, 5)
    assert torch.allclose(lstm(inputs), with_plain_loops(copy.deepcopy(lstm))(inputs), atol=1e-6)


def some_records(count: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return inputs, (inputs.sum(1) > 0).long()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from Python, whose folder does not say how to build the model."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    scheme = fl_std_dp(clip_norm=0.5, noise_multiplier=3.0, **TRAIN)
    laconic.run(
        scheme,
        model=nn.Linear(4, 2),
        clients=[some_records(10 + n) for n in range(20)],
        test=some_records(50),
        sampling_rate=1.0,
        rounds=2,
        delta=1e-5,
        out=folder,
    )
    return folder


def test_a_run_from_python_is_exported_with_its_module(python: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pass the module as model"):
        export_run(python, "torchscript", out=tmp_path / "x.pt")
    with pytest.raises(ConfigError, match="is not the model of"):
        export_run(python, "torchscript", out=tmp_path / "x.pt", model=nn.Linear(4, 3))
    done = export_run(python, "torchscript", out=tmp_path / "x.pt", model=nn.Linear(4, 2))
    assert done.file == tmp_path / "x.pt"


@pytest.mark.parametrize("to", ["onnx", "torchscript", "safetensors"])
def test_no_file_for_others_holds_a_path_of_this_machine(python: Path, to: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
    done = export_run(python, to, out=tmp_path / "x", model=nn.Linear(4, 2))
    assert done.file is not None
    parts = [done.file.read_bytes()]
    if to == "torchscript":
        with zipfile.ZipFile(done.file) as archive:
            parts += [archive.read(name) for name in archive.namelist()]
    for path in (Path(torch.__file__).parent, Path(laconic.__file__).parent, python.parent):
        assert not any(str(path).encode() in part for part in parts)


def test_a_changed_run_is_not_exported(python: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(python, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    summary["statement"]["released"]["epsilon"]["pld"] = 0.1
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"summary\.json was altered"):
        export_run(tmp_path / "run", "card")


def unmarked(card: str) -> str:
    """As it reads: without what keeps Markdown from taking a text for its own."""
    return html.unescape(re.sub(r"\\(.)", r"\1", card))


def test_the_card_has_data_promise_limits_and_how_to_cite(digits: Path, tmp_path: Path) -> None:
    card = export_run(digits, "card", out=tmp_path / "card.md").card.read_text(encoding="utf-8")
    summary = finished_run(digits).summary
    released, server = summary["last"]["epsilon"], summary["last"]["participant_epsilon"]
    for heading in (
        "Data, clients and model",
        "The promise",
        "How good it is",
        "What was sent",
        "Limits",
        "How to cite",
    ):
        assert f"## {heading}\n" in card
    assert f"| outsider | {at_most(released)} |" in card and f"| server | {at_most(server)} |" in card
    for text in (*summary["statement"]["assumptions"], *summary["statement"]["not_covered"]):
        assert text in unmarked(card)
    assert "digits: handwritten digits" in card and "| clients | 50 |" in card and "CC BY 4.0" in card
    assert f"{summary['last']['accuracy']:.4f}" in card


def test_a_card_for_others_has_nothing_that_only_the_server_may_know(digits: Path, tmp_path: Path) -> None:
    card = export_run(digits, "card", out=tmp_path / "card.md", released_only=True).card.read_text(encoding="utf-8")
    summary = finished_run(digits).summary
    assert at_most(summary["last"]["participant_epsilon"]) not in card
    assert "| server |" not in card and " in all" not in card and "seed 0" not in card
    assert f"| outsider | {at_most(summary['last']['epsilon'])} |" in card


def test_a_card_of_a_run_without_privacy_says_so(patients: Path, tmp_path: Path) -> None:
    card = export_run(patients, "card", out=tmp_path / "card.md").card.read_text(encoding="utf-8")
    assert "**no differential privacy**" in card and "this scheme adds no noise" in card


def test_names_of_a_users_files_cannot_break_the_card(python: Path) -> None:
    summary = finished_run(python).summary
    card = model_card(summary | {"scheme": "<script>"}, {"data": "a|b\n# c <img src=x> `d`"})
    assert "<script>" not in card and "<img" not in card and "\n# c" not in card and "a\\|b" in card


@pytest.mark.parametrize("part", ["assumptions", "not_covered", "cautions"])
def test_columns_that_a_statement_names_cannot_break_the_card(part: str, python: Path) -> None:
    """A column of the user's table, as the sentence on fitted preprocessing names it."""
    summary = finished_run(python).summary
    column = "the levels of 'a\n\n# ε is 0.1\n<img src=x onerror=y>[here](http://x)'"
    statement = summary["statement"] | {part: [Sentence.public(column)]}
    del summary["released_statement"]
    for released_only in (False, True):
        card = model_card(summary | {"statement": statement}, {}, released_only=released_only)
        assert "\n# ε" not in card and "<img" not in card and "[here]" not in card
        assert "# ε is 0.1 <img src=x onerror=y>[here](http://x)" in unmarked(card)
    card = model_card(summary | {"warnings": [column]}, {})
    assert "\n# ε" not in card and "<img" not in card


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "onxn"), "did you mean 'onnx'"),
        (("--to", "torchscript", "--out", "/nonexistent/x.pt"), "cannot write /nonexistent/x.pt"),
        (("--to", "safetensors", "--out", "OWN"), "is the run's own file"),
    ],
)
def test_bad_options_are_said_in_one_line(words: tuple[str, ...], message: str, digits: Path) -> None:
    words = tuple(str(digits / "model.safetensors") if word == "OWN" else word for word in words)
    ended = CliRunner().invoke(cli, ["export", str(digits), *words])
    assert isinstance(ended.exception, laconic.LaconicError) and message in str(ended.exception)


def test_the_command_says_what_it_wrote(digits: Path, tmp_path: Path) -> None:
    words = ["export", str(digits), "--to", "torchscript", "--out", str(tmp_path / "m.pt")]
    text = CliRunner().invoke(cli, words, catch_exceptions=False).output
    assert f"Model   {tmp_path / 'm.pt'}" in text and "float32, batch × 1 × 8 × 8" in text and "Card" in text
    found = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).output)
    assert found["file"] == str(tmp_path / "m.pt") and found["difference"] < 1e-5


def test_what_is_missing_for_onnx_is_said(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"--to onnx needs onnx: pip install '\.\[onnx\]'"):
        export_run(digits, "onnx", out=tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_test_records_has_no_best_round(tmp_path: Path) -> None:
    laconic.run(
        fl_std(**TRAIN),
        model=nn.Linear(4, 2),
        clients=[some_records(10)],
        sampling_rate=1.0,
        rounds=1,
        out=tmp_path / "run",
    )
    with pytest.raises(RunFolderError, match="no best round"):
        export_run(tmp_path / "run", "torchscript", best=True, model=nn.Linear(4, 2))
    card = export_run(tmp_path / "run", "card").card.read_text(encoding="utf-8")
    assert "Not measured" in card
