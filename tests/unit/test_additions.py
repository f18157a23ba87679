"""What docs/extending.md says of adding a part is true: each is one file outside the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from laconic.catalogue import scheme_entry
from laconic.cli.main import cli
from laconic.errors import ConfigError
from laconic.parts import Part

CODEC = '''
from dataclasses import dataclass

import torch

from laconic.codecs.base import Codec
from laconic.packing import integers
from laconic.scheme import Scheme
from laconic.private import PrivateScheme
from laconic.train.local import LocalSGD


@dataclass(frozen=True, kw_only=True)
class Rounded(Codec):
    """Whole multiples of a step, from -127 to 127: eight bits a weight."""

    step: float

    linear = False

    def code_size(self, size):
        return size

    @property
    def packing(self):
        return integers(8)

    def encode(self, update, plan, streams):
        return (update / self.step).round().clamp(-127, 127)

    def decode(self, code, size, plan):
        return code * self.step


def fl_rounded(*, step=1e-4, **train):
    """FL-ROUNDED: eight bits a weight."""
    return Scheme(name="fl-rounded", train=LocalSGD(**train), codec=Rounded(step=step), weighting="data-size")


fl_rounded_dp = PrivateScheme(fl_rounded)
not_a_scheme = 5


def gives_none(**train):
    return None
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's own, from which commands are called. What it defines is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    kinds = set(Part._kinds)
    yield tmp_path
    for kind in set(Part._kinds) - kinds:
        del Part._kinds[kind]
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def laconic(*words: str) -> None:
    cli(list(words), standalone_mode=False)


def test_a_codec_is_one_file_and_runs_on_the_command_line(outside: Path) -> None:
    (outside / "own_codec.py").write_text(CODEC)
    options = ("--num-clients", "20", "--sampling-rate", "0.5", "--checkpoint-seconds", "0")
    laconic("run", "own_codec:fl_rounded", *options, "--rounds", "2", "--set", "scheme.step=0.001", "--quiet")
    folder = outside / "runs/fl-rounded-digits"
    row = json.loads((folder / "rounds.jsonl").read_text().splitlines()[0])
    assert row["bytes_up"] and row["bytes_up"] % (60 + 650) == 0  # a header, and eight bits for each of 650 weights
    laconic("run", "--out", str(folder), "--resume", "--rounds", "3", "--quiet", "--allow-code")
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 3


def test_the_private_version_of_an_own_scheme_has_an_epsilon(outside: Path) -> None:
    (outside / "own_codec.py").write_text(CODEC)
    assert scheme_entry("own_codec:fl_rounded_dp").private
    words = (
        "--num-clients",
        "50",
        "--sampling-rate",
        "0.5",
        "--rounds",
        "2",
        "--clip-norm",
        "1",
        "--set",
        "noise_multiplier=2",
    )
    laconic("run", "own_codec:fl_rounded_dp", *words, "--noise-multiplier", "2", "--out", "private", "--quiet")
    statement = json.loads((outside / "private/privacy.json").read_text())
    assert statement["private"] and 0 < statement["released"]["epsilon"]["pld"] < 10


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_codec:fl_round", "unknown name in own_codec 'fl_round': did you mean 'fl_rounded"),
        ("own_codec:not_a_scheme", "own_codec:not_a_scheme is a int, not a function that makes a scheme"),
        ("own_codec:gives_none", "own_codec:gives_none gave a NoneType, not a laconic.Scheme"),
        ("own_codec:", "write it as package.module:name"),
    ],
)
def test_what_is_no_scheme_is_refused(outside: Path, name: str, message: str) -> None:
    (outside / "own_codec.py").write_text(CODEC)
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        laconic("run", name, "--rounds", "1")
    assert not (outside / "runs").exists()


def test_a_packing_that_loses_something_is_refused(outside: Path) -> None:
    """Codes that do not fit in their bits would be other codes in a federation than in the simulator."""
    (outside / "own_codec.py").write_text(CODEC.replace(".clamp(-127, 127)", ""))
    with pytest.raises(ConfigError, match="Rounded packs its code as integer of 8 bits, which changes it"):
        laconic("run", "own_codec:fl_rounded", "--set", "scheme.step=1e-6", "--rounds", "1", "--quiet")


def test_a_model_is_one_function(outside: Path) -> None:
    (outside / "own_model.py").write_text(
        "from torch import nn\n\ndef net(*, input_shape, num_classes, hidden=8):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))\n"
    )
    words = ("--model", "own_model:net", "--model-option", "hidden=4", "--rounds", "1", "--out", "run", "--quiet")
    laconic("run", "fl-std", *words)
    from safetensors.torch import load_file

    weights = load_file(outside / "run/model.safetensors")
    assert sum(tensor.numel() for tensor in weights.values()) == 64 * 4 + 4 + 4 * 10 + 10


ATTACK = '''
from dataclasses import dataclass

from laconic.adversary.attack import Attack
from laconic.parts import positive


@dataclass(frozen=True, kw_only=True)
class Lazy(Attack):
    """Free riders: what they send is a small part of what they trained."""

    share_of_work: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        positive(share_of_work=self.share_of_work)

    def forged(self, trained, scene):
        return self.share_of_work * trained


def lazy(**options):
    return Lazy(share_of_work=0.5, **options)


def no_attack(**options):
    return 5


nothing = None
'''


def test_an_attack_is_one_file_and_runs_on_the_command_line(outside: Path) -> None:
    (outside / "own_attack.py").write_text(ATTACK)
    words = ("--num-clients", "20", "--sampling-rate", "0.5", "--rounds", "2", "--checkpoint-seconds", "0", "--quiet")
    own = ("--attack", "own_attack:Lazy", "--attack-fraction", "0.25", "--set", "attack.share_of_work=0.2")
    laconic("run", "fl-std", *words, *own, "--out", "run")
    attack = json.loads((outside / "run/summary.json").read_text())["attack"]
    assert (attack["kind"], attack["share_of_work"], attack["num_malicious"]) == ("Lazy", 0.2, 5)
    laconic("run", "--out", "run", "--resume", "--rounds", "3", "--quiet", "--allow-code")
    assert len((outside / "run/rounds.jsonl").read_text().splitlines()) == 3
    laconic("run", "fl-sign-dp", *words, "--noise-multiplier", "1", "--attack", "own_attack:lazy", "--out", "function",
            "--delta", "1e-3")  # fmt: skip
    assert json.loads((outside / "function/summary.json").read_text())["attack"]["share_of_work"] == 0.5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_attack:Lasy", "unknown name in own_attack 'Lasy': did you mean 'lazy'"),
        ("own_attack:nothing", "--attack own_attack:nothing is a NoneType, not an attack"),
        ("own_attack:no_attack", "--attack own_attack:no_attack gave a int, not a laconic.adversary Attack"),
    ],
)
def test_what_is_no_attack_is_refused(outside: Path, name: str, message: str) -> None:
    (outside / "own_attack.py").write_text(ATTACK)
    with pytest.raises(ConfigError, match=message):
        laconic("run", "fl-std", "--rounds", "1", "--attack", name)
    with pytest.raises(ConfigError, match="share_of_work must be a positive number, not 0"):
        laconic("run", "fl-std", "--rounds", "1", "--attack", "own_attack:Lazy", "--set", "attack.share_of_work=0")
    with pytest.raises(ConfigError, match="takes no speed"):
        laconic("run", "fl-std", "--rounds", "1", "--attack", "own_attack:Lazy", "--set", "attack.speed=0")
    assert not (outside / "runs").exists()


def installed(folder: Path, entry_points: str) -> None:
    """A package with these entry points."""
    info = folder / "own_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_a_command_is_an_entry_point(outside: Path) -> None:
    (outside / "own_command.py").write_text(
        'import click\n\n@click.command()\ndef hello():\n    """Say hello."""\n    click.echo("hello from outside")\n'
    )
    installed(outside, "[laconic.commands]\nhello = own_command:hello\nrun = own_command:hello\n")
    context = click.Context(cli)
    assert "hello" in cli.list_commands(context) and cli.list_commands(context).count("run") == 1
    run = cli.get_command(context, "run")
    assert run is not None and run.name == "run" and run.help and run.help.startswith("Train")  # ours stays ours
    from click.testing import CliRunner

    assert CliRunner().invoke(cli, ["hello"]).output == "hello from outside\n"


def test_a_data_set_of_another_package_is_an_entry_point(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outside / "own_data.py").write_text(
        "from dataclasses import replace\n\nfrom laconic.data.datasets.embedded import DIGITS\n\n"
        "MINE = replace(DIGITS, name='my-digits', description='digits of my own')\n"
    )
    installed(
        outside, "[laconic.datasets]\nmy-digits = own_data:MINE\ndigits = own_data:MINE\nbroken = own_gone:MINE\n"
    )
    from laconic.data import registry, sources

    monkeypatch.setattr(registry, "SOURCES", dict(sources.SOURCES))
    monkeypatch.setattr(sources, "SOURCES", registry.SOURCES)
    with pytest.warns(UserWarning, match=r"the data set broken \(own_gone:MINE\) cannot be loaded: No module named"):
        sources.register_added()
    assert sources.SOURCES["my-digits"].description == "digits of my own"
    assert sources.SOURCES["digits"].description != "digits of my own"  # ours stays ours
    assert len(sources.load_source("my-digits").train.targets) == sources.SOURCES["digits"].num_train


FRONT_END = """
from pathlib import Path

import torch

from laconic.features.base import FileFrontEnd


class Scaled(FileFrontEnd):
    weights_needed = "--front-end scaled needs --front-end-weights FILE"
    found_on = "public figures"

    def __init__(self, input_shape, about=None):
        super().__init__(input_shape, None, {"kind": "scaled"} | (about or {}))
        self.register_buffer("factor", torch.ones(()))

    @classmethod
    def read(cls, file, input_shape):
        found = cls(input_shape)
        found.factor.fill_(float(Path(file).read_text()))
        return found

    @classmethod
    def described(cls, about):
        return cls(about["input_shape"], about)

    def raw(self, inputs):
        return self.factor * inputs.flatten(1)

    @property
    def raw_shape(self):
        return (64,)

    @property
    def what(self):
        return "pixels, scaled"
"""


def test_a_front_end_with_a_file_is_an_entry_point(outside: Path) -> None:
    (outside / "own_scaled.py").write_text(FRONT_END)
    (outside / "factor.txt").write_text("0.5")
    installed(outside, "[laconic.front_ends]\nscaled = own_scaled:Scaled\n")
    words = ("run", "fl-std", "--front-end", "scaled", "--out", "run", "--quiet", "--checkpoint-seconds", "0")
    with pytest.raises(ConfigError, match="--front-end scaled needs --front-end-weights FILE"):
        laconic(*words, "--rounds", "1")
    laconic(*words, "--front-end-weights", "factor.txt", "--rounds", "1")
    from laconic.features.base import FrontEnd

    kept = FrontEnd.load(outside / "run/front_end.safetensors")
    assert kept.about["kind"] == "scaled" and float(kept.tensors["factor"]) == 0.5
    laconic("run", "--out", "run", "--resume", "--rounds", "2", "--quiet")  # from its folder
    assert len((outside / "run/rounds.jsonl").read_text().splitlines()) == 2
