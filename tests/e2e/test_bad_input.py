"""What a tired user types: each ends with the right code and one line that names the culprit, and spoils no file."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from e2e_tools import Ended, call, files, process, strict_json

MODELS = """
from torch import nn
def batch_norm(): return nn.Sequential(nn.Linear(20, 5), nn.BatchNorm1d(5))
def misfit(): return nn.Linear(19, 5)
def nothing(): return None
def few(): return nn.Linear(20, 2)
def crash(): raise RuntimeError("two\\nlines")
class Pair(nn.Linear):
    def forward(self, x): return super().forward(x), 1
def pair(): return Pair(20, 5)
def good(): return nn.Linear(20, 5)
number = 3
"""
CONFIGS = {
    "broken.toml": "[run\nrounds = 3",
    "key.toml": "[run]\nruonds = 3",
    "type.toml": "[run]\nrounds = 'many'",
    "section.toml": "[rnu]\nrounds = 3",
    "scheme.toml": "[scheme]\nname = 'fl-stdp'",
    "nan.toml": "label = 'target'\npositive = 1\npatient = 'site'\n[[numeric]]\ncolumn = 'x'\nmin = nan",
}
TABLE = "x,z,site,target\n" + "".join(f"{i},{i % 3},{i % 4},{i % 2}\n" for i in range(20))


def client(path: Path, inputs: np.ndarray, targets: np.ndarray | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, inputs=inputs, targets=np.arange(len(inputs)) % 3 if targets is None else targets)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder: data, models and configurations, good and bad."""
    place = tmp_path_factory.mktemp("place")
    (place / "e2e_models.py").write_text(MODELS)
    (place / "e2e_broken_model.py").write_text("def x(:")
    for name, text in CONFIGS.items():
        (place / name).write_text(text)
    for folder in ("corrupt", "nan", "odd-test", "negative", "million", "member", "claim"):
        for number in range(3):
            client(place / folder / f"{number}.npz", np.ones((4, 3)))
    (place / "corrupt/1.npz").write_bytes((place / "corrupt/1.npz").read_bytes()[:100])
    client(place / "nan/1.npz", np.array([[1, 2, np.nan]] * 4))
    client(place / "odd-test/test.npz", np.ones((4, 3)), np.array([0, 1, 1, 7]))
    client(place / "negative/1.npz", np.ones((4, 3)), np.array([0, 1, -1, 1]))
    client(place / "million/1.npz", np.ones((4, 3)), np.array([0, 1, 10**6, 1]))
    client(place / "no-features/1.npz", np.ones((4, 0)))
    for name in ("1", "test"):
        client(place / f"whole/{name}.npz", np.ones((4, 3), dtype=np.uint8))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 603979776), }"
    claim = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(96)
    for folder, inputs in (("member", b"1,2,3"), ("claim", claim)):
        with zipfile.ZipFile(place / folder / "1.npz", "w") as archive:
            archive.writestr("inputs.npy", inputs)
            archive.writestr("targets.npy", b"0")
    (place / "twice").mkdir()
    (place / "twice/a.csv").write_text(TABLE.replace("site", "target"))
    (place / "empty").mkdir()
    (place / "csv").mkdir()
    (place / "csv/a.csv").write_text(TABLE)
    (place / "table.csv").write_text(TABLE)
    (place / "text.csv").write_text(TABLE.replace("\n5,", "\nfive,"))
    (place / "mnist").mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (place / f"mnist/{name}-ubyte.gz").write_bytes(gzip.compress(bytes(2000))[:20])
    (place / "full").mkdir()
    (place / "full/thesis.txt").write_text("years of work")
    (place / "file").write_text("")
    (place / "done").mkdir()
    (place / "done/config.toml").write_text("[run]\nrounds = 1\n")
    (place / "done/rounds.jsonl").write_text('{"round": 1, "bytes_up": 0, "bytes_down": 0, "accuracy": 0.5}\n')
    return place


EPSILON = "epsilon --sampling-rate 0.1 --noise-multiplier 1 --rounds 9"
CALIBRATE = "calibrate --sampling-rate 0.1 --rounds 9"
PLAIN = "run fl-std --dataset synthetic --num-clients 30 --rounds 2 --out OUT"
OWN = "run fl-std --rounds 2 --out OUT"
DP = PLAIN.replace("fl-std", "fl-std-dp")
NOISY = DP + " --noise-multiplier 1 --clip-norm 1"
FIXED = NOISY + " --sampler fixed-size --cohort-size 5"

# (command line, exit code, what the line must say; OUT is a new folder)
BAD: list[tuple[str, int, list[str]]] = [
    (EPSILON + " --noise-multiplier -1", 2, ["noise_multiplier must be a positive number"]),
    (EPSILON + " --noise-multiplier 0", 2, ["noise_multiplier must be a positive number"]),
    (EPSILON + " --delta 1", 2, ["delta must be strictly between 0 and 1"]),
    (EPSILON + " --delta 0", 2, ["delta must be strictly between 0 and 1"]),
    (EPSILON + " --rounds 0", 2, ["rounds must be a whole number"]),
    (EPSILON + " --sampling-rate 0", 2, ["sampling_rate must be above 0"]),
    (EPSILON + " --sampling-rate 1.5", 2, ["sampling_rate must be above 0 and at most 1"]),
    (EPSILON + " --sampling-rate 1/0", 2, ["--sampling-rate", "write 0.0167 or 1/60"]),
    (EPSILON + " --sampling-rate abc", 2, ["--sampling-rate", "write 0.0167 or 1/60"]),
    (EPSILON + " --cohort-size 5", 2, ["--sampling-rate", "--cohort-size"]),
    (CALIBRATE + " --epsilon 0", 2, ["epsilon must be a positive number"]),
    (CALIBRATE + " --epsilon -1", 2, ["epsilon must be a positive number"]),
    (CALIBRATE + " --epsilon 1e-9", 3, ["raise --epsilon"]),
    (NOISY + " --noise-multiplier -1", 2, ["noise_multiplier must be a positive number"]),
    (NOISY + " --noise-multiplier 0", 2, ["noise_multiplier must be a positive number"]),
    (NOISY + " --delta 1.5", 2, ["delta must be strictly between 0 and 1"]),
    (NOISY + " --delta 0", 2, ["delta must be strictly between 0 and 1"]),
    (NOISY + " --epsilon 0", 2, ["epsilon must be a positive number"]),
    (NOISY + " --epsilon -3", 2, ["epsilon must be a positive number"]),
    (NOISY + " --epsilon 0.001", 3, ["budget", "--epsilon", "--noise-multiplier"]),
    (NOISY + " --participant-epsilon 0.001", 3, ["budget", "--participant-epsilon"]),
    (DP + " --clip-norm 1 --epsilon 1e-9", 3, ["raise --epsilon"]),
    (DP + " --clip-norm 1", 2, ["--noise-multiplier", "--epsilon"]),
    (DP + " --noise-multiplier 1", 2, ["--clip-norm"]),
    (NOISY + " --clip-norm -1", 2, ["clip_norm must be a positive number"]),
    (NOISY + " --clip-norm foo", 2, ["--clip-norm", "'public' or 'median'"]),
    (NOISY + " --clip-norm public", 2, ["--public-dataset"]),
    (FIXED + " --max-participations 2", 2, ["drop --max-participations"]),
    (FIXED + " --accountant pld", 2, ["use --accountant rdp"]),
    (FIXED + " --max-dropouts 5", 2, ["max_dropouts", "cohort of 5"]),
    (FIXED + " --cohort-size 31", 2, ["lower --cohort-size or raise --num-clients"]),
    (NOISY + " --noise gaussian", 2, ["unknown noise 'gaussian'", "continuous, integer"]),
    (NOISY + " --noise continuous --bits 16", 2, ["--bits 16 means nothing with --noise continuous"]),
    (NOISY + " --noise continuous --secagg masked", 2, ["cannot be masked: use --noise integer"]),
    (NOISY + " --bits 40", 2, ["bits must be 8 to 32"]),
    (NOISY + " --bits 8", 3, ["8 bits cannot hold the sum", "use --bits"]),
    (NOISY + " --secagg maskd", 2, ["did you mean 'masked'"]),
    (NOISY + " --consistency none", 2, ["unknown consistency", "plain, signed"]),
    (NOISY + " --dropout-rate 1", 2, ["dropout_rate must be at least 0 and below 1"]),
    (NOISY + " --dropout-rate 0.1 --dropout-stage later", 2, ["unknown dropout_stage", "before-upload"]),
    (PLAIN + " --secagg masked", 2, ["--secagg masked means nothing", "a scheme in -dp"]),
    (PLAIN + " --dropout-rate 0.1", 2, ["--dropout-rate means nothing", "a scheme in -dp"]),
    (PLAIN + " --epsilon 4", 2, ["--epsilon means nothing", "a scheme in -dp"]),
    (PLAIN + " --max-participations 4", 2, ["--max-participations means nothing"]),
    (PLAIN + " --checkpoint-seconds nan", 2, ["checkpoint_seconds"]),
    (PLAIN + " --sampling-rate 0", 2, ["sampling_rate must be above 0"]),
    (PLAIN + " --ratio 0", 2, ["unknown option of fl-std 'ratio'"]),
    (PLAIN + " --dataset digits --num-clients 5000", 2, ["num_clients", "1438 records", "lower"]),
    (PLAIN + " --local-steps 3 --epochs 3", 2, ["--local-steps or --epochs"]),
    (PLAIN + " --batch-size 0", 2, ["batch_size must be a whole number"]),
    (PLAIN + " --rounds 0", 2, ["rounds must be a whole number"]),
    (PLAIN + " --patience 2", 2, ["give --holdout"]),
    (PLAIN + " --holdout 1.0", 2, ["holdout must be at least 0 and below 1"]),
    (PLAIN + " --device tpu", 2, ["use --device cpu"]),
    (PLAIN + " --dataset mnits", 2, ["did you mean 'mnist'?"]),
    (PLAIN + " --model logitsic", 2, ["did you mean 'logistic'?"]),
    (PLAIN + " --model nowhere:model", 2, ["--model nowhere:model", "cannot import"]),
    (PLAIN + " --model e2e_models:nothing", 2, ["e2e_models:nothing", "torch.nn.Module"]),
    (PLAIN + " --model e2e_models:batch_norm", 2, ["BatchNorm1d", "GroupNorm"]),
    (PLAIN + " --model e2e_models:misfit", 4, ["model does not take inputs of shape (20,)"]),
    (OWN + " --dataset corrupt", 4, ["corrupt/1.npz", "damaged"]),
    (OWN + " --dataset nan", 4, ["nan/1.npz", "NaN", "clean or drop"]),
    (OWN + " --dataset million", 4, ["million/1.npz", "1,000,001 classes", "renumber"]),
    (OWN + " --dataset no-features", 4, ["no-features/1.npz", "hold no values"]),
    (OWN + " --dataset whole", 4, ["whole numbers", "save them as float32"]),
    (OWN + " --dataset member", 4, ["member/1.npz: 'inputs' is no array", "np.savez"]),
    (OWN + " --dataset claim", 4, ["claim/1.npz: 'inputs' claims 19,327,352,832 bytes"]),
    (OWN + " --dataset twice", 4, ["twice/a.csv: has the column 'target' twice", "rename"]),
    (OWN + " --dataset table.csv --schema nan.toml", 2, ["nan.toml", "min must be a finite number"]),
    (OWN + " --dataset empty", 4, ["empty: no client files", ".npz"]),
    (OWN + " --dataset csv --target outcome", 4, ["csv/a.csv: no column 'outcome'", "target"]),
    (OWN + " --dataset csv --num-clients 7", 2, ["leave out --num-clients"]),
    (OWN + " --dataset text.csv --client-column site", 4, ["text.csv: row 6, column 'x': not a number"]),
    (OWN + " --dataset table.csv --partition column", 2, ["name the column with --client-column"]),
    (
        OWN + " --dataset table.csv --client-column site --target y",
        2,
        ["no column 'y'", "with --target"],
    ),
    (OWN + " --dataset mnist --data-dir .", 4, ["train-images-idx3-ubyte.gz: truncated", "--data-dir"]),
    (OWN + " --dataset mnist --data-dir empty", 4, ["--data-dir empty: no complete mnist there"]),
    (PLAIN + " --set rounds", 2, ["--set rounds: write it as key=value"]),
    (PLAIN + " --set ruonds=3", 2, ["did you mean 'rounds'?"]),
    (PLAIN + " --set run.ruonds=3", 2, ["did you mean 'rounds'?"]),
    (PLAIN + " --out file/x", 5, ["file/x", "choose another --out"]),
    (PLAIN + " --out done", 5, ["add --resume", "another --out"]),
    (PLAIN + " --out full", 5, ["full is not a run folder", "another --out"]),
    (PLAIN + " --model mlp --local-lr 1e30", 6, ["diverged", "lower --local-lr"]),
    ("run fl-std --resume", 2, ["--resume needs", "--out"]),
    ("run fl-stdp --out OUT", 2, ["did you mean 'fl-std'?"]),
    ("run fl-std --frobnicate 3 --out OUT", 2, ["'--frobnicate'", "laconic run --help"]),
    ("rnu fl-std --out OUT", 2, ["did you mean 'run'?"]),
    ("run missing.toml --out OUT", 2, ["missing.toml"]),
    ("run broken.toml --out OUT", 2, ["broken.toml is not valid TOML", "line 1"]),
    ("run key.toml --out OUT", 2, ["'ruonds'", "did you mean 'rounds'?"]),
    ("run type.toml --out OUT", 2, ["run.rounds must be a whole number"]),
    ("run section.toml --out OUT", 2, ["did you mean 'run'?"]),
    ("run scheme.toml --out OUT", 2, ["did you mean 'fl-std'?"]),
    ("compare nowhere", 5, ["nowhere is not a run folder"]),
    (PLAIN + " --num-clients 0", 2, ["num_clients"]),
    (PLAIN + " --threads 0", 2, ["threads"]),
    (PLAIN + " --partition dirichlet", 2, ["partition"]),
    (OWN + " --dataset odd-test", 4, ["test records have classes", "check the targets"]),
    (OWN + " --dataset negative", 4, ["negative/1", "numbered from 0"]),
    (PLAIN + " --loss mean-squared-error", 2, ["--loss"]),
    (PLAIN + " --model e2e_models:few", 2, ["outputs"]),
    (PLAIN + " --model e2e_models:crash", 2, ["e2e_models:crash"]),
    (PLAIN + " --model e2e_models:pair", 2, ["model"]),
    (PLAIN + " --model e2e_models:number", 2, ["e2e_models:number"]),
    (PLAIN + " --model e2e_broken_model:x", 2, ["e2e_broken_model"]),
    (PLAIN + " --model mlp --model-option hidden=-3", 2, ["hidden must be a whole number"]),
    ("compare done --plot nowhere/x.png", 2, ["--plot nowhere/x.png"]),
]
CASES = [
    *(pytest.param(*case, id=" ".join(case[0].split()[-2:])) for case in BAD),
]
FIRST = {code: (line, code, words) for line, code, words in reversed(BAD)}


def assert_refused(ended: Ended, code: int, words: list[str]) -> None:
    assert ended.code == code, ended
    lines = ended.err.splitlines()
    assert lines[0].startswith("laconic: error: ")
    # Only the list of bad files of a data folder may take more than one line.
    assert len(lines) == 1 or ("bad file" in lines[0] and all(line.startswith("  ") for line in lines[1:]))
    for word in words:
        assert word in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(("line", "code", "words"), CASES)
def test_refused(
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    code: int,
    words: list[str],
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    before, out = files(place), tmp_path / "out"
    ended = call(capsys, *line.replace("OUT", str(out)).split())
    assert_refused(ended, code, words)
    assert files(place) == before
    assert not (out / "model.safetensors").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, *PLAIN.replace("OUT", str(tmp_path / "out")).split(), "--device", "cuda")
    assert_refused(ended, 2, ["--device cuda", "use --device cpu or auto"])


@pytest.mark.e2e
@pytest.mark.parametrize(("line", "code", "words"), FIRST.values(), ids=[f"exit {code}" for code in FIRST])
def test_refused_in_a_process(place: Path, tmp_path: Path, line: str, code: int, words: list[str]) -> None:
    assert sorted(FIRST) == [2, 3, 4, 5, 6]
    before = files(place)
    assert_refused(process(*line.replace("OUT", str(tmp_path / "out")).split(), cwd=place), code, words)
    assert files(place) == before


def test_errors_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, *NOISY.replace("OUT", str(tmp_path / "out")).split(), "--epsilon", "0.001", "--json")
    assert_refused(ended, 3, ["budget"])
    assert ended.json == {"error": ended.err.removeprefix("laconic: error: ").strip(), "exit_code": 3}


def test_what_was_saved_before_a_divergence_survives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    line = "run fl-std --dataset synthetic --model mlp --local-lr 5 --rounds 9 --checkpoint-seconds 0 --quiet --out"
    ended = call(capsys, *line.split(), out)
    assert_refused(ended, 6, ["after round 2", "lower --local-lr"])
    assert strict_json((out / "rounds.jsonl").read_text())["round"] == 1
    again = call(capsys, "run", "--out", out, "--resume", "--quiet")
    assert_refused(again, 6, ["after round 2"])
    assert (out / "checkpoint/state.safetensors").exists()
