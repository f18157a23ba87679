"""What a red team did to the simulator, on the code as it is: none of it may work any more.

Tests of chance have fixed seeds and state their false-alarm rate. Every one has a twin with the old mistake.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scheme_tools
import torch
from scheme_tools import scheme
from scipy import stats
from torch import Tensor, nn

from conftest import make_population
from laconic.clients import simulated
from laconic.clients.simulated import SimulatedClients
from laconic.codecs.queries import Evaluations
from laconic.data.population import FunctionPopulation
from laconic.errors import ConfigError, LaconicError
from laconic.experiment.experiment import Experiment
from laconic.guard.noise import draw_around
from laconic.plan import RoundPlan
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Cyclic, Poisson
from laconic.privacy.mechanism.clip import Clip
from laconic.privacy.mechanism.correlated import SCALE, UNIT, CorrelatedGaussian
from laconic.privacy.mechanism.discrete_gaussian import StreamSource
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.streams import Stream, Streams
from laconic.train.engines.engine import Trained, Updates
from laconic.train.engines.per_record import WholeGradients
from laconic.train.flat import FlatModel
from laconic.train.local import LocalDPSGD
from laconic.train.memory import Forgetful

ALPHA = 1e-6

# One client's codes are not clipped, and the sum is at the edge of the ring (--noise-bands).

SIZE, SIGMA, CLIENTS = 4096, 1.5, 5
BANDS = {"noise_multiplier": SIGMA, "coefficients": (UNIT, 600, 411)}


class LiftsBeforeNoise(CorrelatedGaussian):
    """The old order: the residues become numbers around zero, and then noise is added."""

    def _released(self, mean: Tensor, bits: int, rng: Stream) -> Tensor:
        half = 2 ** (bits - 1)
        lifted = ((mean + half) & (2**bits - 1)) - half
        return draw_around(lifted, SCALE, StreamSource(rng, mean.device)).double().div_(UNIT)


def plan(number: int) -> RoundPlan:
    return RoundPlan(
        round=number,
        attempt=0,
        cohort=np.arange(CLIENTS),
        planned_cohort=float(CLIENTS),
        largest_cohort=CLIENTS,
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )


def signs_read(noise: CorrelatedGaussian, pushed: int, rounds: int = 2) -> int:
    """How many of one client's signs an outsider reads when another client adds `pushed` to each coordinate."""
    signs = torch.randint(0, 2, (SIZE,), generator=torch.Generator().manual_seed(5)) * 2 - 1
    code = (signs / math.sqrt(SIZE))[None]
    memory: dict[str, Tensor] = {}
    most = 0
    for number in range(1, rounds + 1):
        about: Any = {"sensitivity": 1.0, "plan": plan(number)}
        terms = noise.terms(code, code_size=SIZE, **about)[0] if number == 1 else torch.zeros(SIZE, dtype=torch.int64)
        total = noise.around(terms + (pushed if number == 1 else 0), shares=2, rng=Stream(0), **about)
        estimate, memory = noise.estimated(total, memory, rng=Stream(number), **about)
        agree = int((torch.sign(estimate - estimate.double().mean()) == signs).sum())
        most = max(most, agree, SIZE - agree)
    return most


def few_enough(noise: CorrelatedGaussian) -> tuple[int, int]:
    """(the most signs read in any attack, the most that the noise allows but for a chance of ALPHA)."""
    bits = noise.code_bits(code_size=SIZE, sensitivity=1.0, plan=plan(1))
    assert bits is not None
    attacks = [1 << power for power in range(bits + 1)]
    attacks += [(1 << power) // factor for power in (bits - 1, bits) for factor in noise.coefficients]
    # Of a coordinate ±1/√m under noise of scale σ, no test reads the sign more often than Φ(1/(σ·√m)).
    chance = float(stats.norm.cdf(1 / (SIGMA * math.sqrt(SIZE))))
    allowed = int(stats.binom.isf(ALPHA / (4 * len(attacks)), SIZE, chance))
    return max(signs_read(noise, pushed) for pushed in attacks), allowed


def test_a_client_that_does_not_clip_reads_no_signs_of_another_one_off_the_edge_of_the_ring() -> None:
    """False-alarm rate 1e-6."""
    found, allowed = few_enough(CorrelatedGaussian(**BANDS))
    assert found <= allowed < 0.6 * SIZE


def test_noise_that_is_added_after_lifting_is_caught() -> None:
    found, _ = few_enough(LiftsBeforeNoise(**BANDS))
    assert found > 0.99 * SIZE


# Two runs of one seed: whatever they draw, they share none of it.


class Named(NamedTuple):
    """A small private run, and what it draws beside the noise of its sums."""

    scheme: Scheme
    options: dict[str, Any]


def small(name: str, *, sampling_rate: float = 0.5, about: dict[str, Any] | None = None, **options: Any) -> Named:
    return Named(scheme(name, **(about or {})), {"sampling_rate": sampling_rate, **options})


def integer_steps(chosen: Scheme) -> Scheme:
    assert isinstance(chosen.train, LocalDPSGD)
    return replace(chosen, train=replace(chosen.train, noise="integer"))


KINDS = {
    "sums": small("fl-std-dp"),
    "shares": small("fl-std-dp", noise_draws="per-client"),
    "masked shares": small("fl-sign-dp", secagg="masked", max_dropouts=3, dropout_rate=0.1, sampling_rate=0.8),
    "top-ups": small("fl-cs-dp", max_dropouts=3, dropout_rate=0.1, sampling_rate=0.8),
    "continuous noise": Named(
        replace(scheme("fl-std-dp"), noise=Gaussian(noise_multiplier=0.5)), {"sampling_rate": 0.5}
    ),
    "groups": Named(replace(scheme("fl-std-dp"), groups=2), {"sampling_rate": 0.8}),
    "correlated noise": Named(
        replace(scheme("fl-std-dp"), noise=CorrelatedGaussian(**BANDS)),
        {"sampler": Cyclic(separation=4), "sampling_rate": None},
    ),
    "votes": small("fl-top-dp", about={"top_selection": "votes", "vote_rounds": 1, "vote_block": 3}, public=None),
    "evaluations": Named(
        replace(scheme("fl-std-dp"), evaluations=Evaluations(every=2, noise_multiplier=0.5)), {"sampling_rate": 0.5}
    ),
    "steps on records": Named(integer_steps(scheme("fl-std-record-dp")), {"sampling_rate": 0.5}),
    "float steps on records": small("fl-sign-record-dp"),
}


def names_drawn(kind: Named, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> set[int]:
    """The names of all streams that a run draws noise from, and of those that choose records of private steps."""
    found = set[int]()
    words, normal, numpy = Stream.words, Stream.normal, Streams.numpy

    def noted(draw: Any) -> Any:
        def draws(self: Stream, *args: Any) -> Any:
            found.add(self.key)
            return draw(self, *args)

        return draws

    def chosen(self: Streams, *path: str | int) -> Any:
        if "records" in path:
            found.add(self.key(*path))
        return numpy(self, *path)

    with monkeypatch.context() as watched:
        watched.setattr(Stream, "words", noted(words))
        watched.setattr(Stream, "normal", noted(normal))
        watched.setattr(Streams, "numpy", chosen)
        options = {"rounds": 2, "eval_every": 2, "model": scheme_tools.model(), "workers": 1} | kind.options | changes
        scheme_tools.run(options.pop("scheme", kind.scheme), **options)
    ties = {Stream(Streams(0).public_seed("public", number, 0)).fork("tie").key for number in (1, 2)}
    return found - ties  # coins for votes that are even, which are public


def other_record() -> Any:
    population = make_population(scheme_tools.SIZES)
    population.pool.inputs[3] += 0.5
    return population


def other_weights() -> nn.Module:
    module = scheme_tools.model()
    with torch.no_grad():
        next(module.parameters())[0, 0] += 0.5
    return module


OTHERS: dict[str, dict[str, Any]] = {
    "weights": {"model": other_weights()},
    "structure": {"model": nn.Sequential(*scheme_tools.model(), nn.Identity())},
    "scheme": {"scheme": scheme("fl-std-dp", local_lr=0.31)},
    "loss": {"loss": lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")},
}


@pytest.mark.parametrize("kind", KINDS)
def test_runs_of_one_seed_on_other_data_share_no_noise(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = names_drawn(KINDS[kind], monkeypatch)
    assert len(first) >= 2 and first.isdisjoint(names_drawn(KINDS[kind], monkeypatch, clients=other_record()))


@pytest.mark.parametrize("kind", ["sums", "shares"])
def test_nor_do_runs_that_differ_in_anything_else(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = names_drawn(KINDS[kind], monkeypatch)
    assert first == names_drawn(KINDS[kind], monkeypatch)  # so the run can be repeated
    for what, change in OTHERS.items():
        assert first.isdisjoint(names_drawn(KINDS[kind], monkeypatch, **change)), what


def test_every_record_counts_however_many_clients_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's identity looks at some clients; the names of noise look at all of them."""

    def clients(changed: int | None) -> FunctionPopulation:
        return FunctionPopulation(
            2500, lambda client: (torch.full((1, 6), float(client == changed)), torch.tensor([client % 3]))
        )

    options: dict[str, Any] = {"sampling_rate": 0.01, "rounds": 1}
    names = [names_drawn(KINDS["sums"], monkeypatch, clients=clients(one), **options) for one in (None, 1234, 1235)]
    assert names[0].isdisjoint(names[1]) and names[1].isdisjoint(names[2])


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_seed_and_round_alone_are_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "noise_name", lambda experiment: "")
    first = names_drawn(KINDS[kind], monkeypatch)
    assert not first.isdisjoint(names_drawn(KINDS[kind], monkeypatch, clients=other_record()))


# A module that remembers: one client's records change what others send.


class Remembers(nn.Module):
    """Adds to its outputs a mean of all inputs that it has seen."""

    def __init__(self, where: str, features: int = 6) -> None:
        super().__init__()
        self.inner = nn.Linear(features, 3)
        self.where, self.seen, self.parts, self.kept = where, torch.zeros(()), {"seen": torch.zeros(())}, None
        self.frozen = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.register_buffer("counted", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        latest = x.detach().mean()
        if self.where == "attribute":
            self.seen = self.seen + latest
            found = found * (1 + self.seen)
        elif self.where == "attribute in place":
            self.seen += latest
            found = found * (1 + self.seen)
        elif self.where == "dictionary":
            self.parts["seen"] = self.parts["seen"] + latest
            found = found * (1 + self.parts["seen"])
        elif self.where == "first batch":
            self.kept = latest if self.kept is None else self.kept
            found = found * (1 + self.kept)
        elif self.where == "new attribute":
            self.later = getattr(self, "later", 0.0) + latest
            found = found * (1 + self.later)
        elif self.where == "frozen parameter":
            self.frozen.data += latest
            found = found * (1 + self.frozen)
        elif self.where == "buffer":
            self.counted += latest
            found = found * (1 + self.counted)
        elif self.where == "global":
            OUTSIDE["seen"] = OUTSIDE["seen"] + latest
            found = found * (1 + OUTSIDE["seen"])
        return found


OUTSIDE = {"seen": torch.zeros(())}
PUT_BACK = ("attribute", "attribute in place", "dictionary", "first batch", "new attribute")
REFUSED = ("frozen parameter", "buffer", "global")


def moved(module: nn.Module, *, engine: str = "one-by-one", **options: Any) -> float:
    """How far other records of one client move the sum of all other clients' clipped codes, in units of S."""
    sums = []
    for factor in (0.0, 3.0):
        population = make_population([4] * 12)
        population.pool.inputs[:4] *= factor
        e = Experiment(
            scheme=scheme("fl-std-dp", local_steps=2, clip_norm=0.5),
            model=module,
            population=population,
            sampler=Poisson(sampling_rate=1.0),
            budget=Budget(delta=1e-5),
            engine=engine,
            workers=1,
            device="cpu",
            **options,
        )
        clients = SimulatedClients(e)
        run = Run(e, clients=clients)
        run.begin()
        plan, clip = run.plan(1), e.scheme.clip
        work = clients.work.honest(plan, plan.cohort, run.state.weights, partial(clipped, clip=clip))
        sums.append(torch.cat([chunk.values for chunk in work])[1:].sum(0))
    return float((sums[0] - sums[1]).norm()) / 0.5


def clipped(trained: Trained, clip: Clip) -> Updates:
    return Updates(trained.clients, clip(trained.values), trained.num_records)


@pytest.mark.parametrize(
    ("where", "engine"),
    [(where, "one-by-one") for where in PUT_BACK] + [("attribute", "cohort"), ("dictionary", "cohort")],
)
def test_what_a_module_remembers_stays_with_one_step_of_one_client(where: str, engine: str) -> None:
    assert moved(Remembers(where), engine=engine) == 0.0


@pytest.mark.parametrize("where", REFUSED)
def test_what_cannot_be_put_back_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="changes its buffer|remembers"):
        moved(Remembers(where))


def test_a_loss_that_remembers_is_refused() -> None:
    seen: list[Tensor] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(outputs.detach().mean())
        return nn.functional.cross_entropy(outputs, targets, reduction="none") * (1 + torch.stack(seen).mean())

    with pytest.raises(ConfigError, match="remembers"):
        moved(nn.Linear(6, 3), loss=loss)


def test_records_do_not_reach_the_gradients_of_others_in_private_steps() -> None:
    """Nor the cells of an evaluation: a module's first call is like any other."""
    module = Remembers("first batch")
    flat = FlatModel(module, example=(torch.ones(2, 6), torch.tensor([0, 1])))
    inputs, labels = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0])
    about: Any = {"targets": labels[:1], "keys": torch.zeros(1, dtype=torch.int64), "clip_norm": 1.0}
    gradients = WholeGradients(flat)
    first, _, again = (gradients.total(flat.initial, inputs=x, **about) for x in (inputs[:1], inputs[1:2], inputs[:1]))
    assert torch.equal(first, again)
    outputs = [torch.cat(list(flat.outputs(flat.initial, x))) for x in (inputs, 5 * inputs, inputs)]
    assert torch.equal(outputs[0], outputs[2])


def test_modules_that_keep_their_memory_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forgetful, "__call__", lambda self, module, arguments: None)
    with pytest.raises(ConfigError, match="remembers"):
        moved(Remembers("attribute"))
    monkeypatch.setattr(FlatModel, "check_memory", lambda self: None)
    assert moved(Remembers("attribute")) > 0.5


def test_parts_that_a_module_holds_twice_stay_the_same_parts() -> None:
    """A module that lists its layers in an attribute of its own trains as one that does not."""

    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)
            self.order = [self.first, self.second]
            self.act = self.squashed

        def squashed(self, x: Tensor) -> Tensor:
            return torch.tanh(x)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.order[1](self.act(self.order[0](x)))
            return found

    torch.manual_seed(3)
    plain = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    options: dict[str, Any] = {"engine": "one-by-one", "rounds": 2}
    ours, theirs = (scheme_tools.run(scheme("fl-std"), model=one, **options).model for one in (Listed(), plain))
    assert all(torch.equal(one, other) for one, other in zip(ours.parameters(), theirs.parameters(), strict=True))


# One record decides the shape of the released model.


def write_folder(path: Path, labels: list[list[int]], kind: str) -> Path:
    """Three clients' arrays, tables or texts; the last label of the last client may be one that no other has."""
    path.mkdir()
    for client, some in enumerate(labels):
        rows = np.arange(3.0 * len(some), dtype=np.float32).reshape(-1, 3) % 7
        if kind == "arrays":
            np.savez(path / f"{client}.npz", inputs=rows, targets=np.array(some))
        else:
            words = [" ".join(map(str, row)) for row in rows.tolist()]
            head = "text,target" if kind == "texts" else "a,b,c,target"
            cells = words if kind == "texts" else [",".join(map(str, row)) for row in rows.tolist()]
            lines = [f"{cell},{label}" for cell, label in zip(cells, some, strict=True)]
            (path / f"{client}.csv").write_text("\n".join([head, *lines]) + "\n")
    return path


def write_table(path: Path, labels: list[list[int]]) -> Path:
    every = [label for some in labels for label in some]
    lines = [f"{number % 5},{number % 3},{label}" for number, label in enumerate(every)]
    path.write_text("\n".join(["a,b,target", *lines]) + "\n")
    return path


def write_pictures(path: Path, labels: list[list[int]], *, colours: bool = False) -> Path:
    from PIL import Image

    for client, some in enumerate(labels):
        for number, label in enumerate(some):
            (path / f"{client}" / f"class{label}").mkdir(parents=True, exist_ok=True)
            last = client == len(labels) - 1 and number == 0
            picture = Image.new("RGB" if colours and last else "L", (4, 4))
            picture.save(path / f"{client}" / f"class{label}" / f"{number}.png")
    return path


USUAL = [[0, 1, 2, 0, 1, 2] for _ in range(3)]
ODD = [*USUAL[:2], [0, 1, 2, 0, 1, 9]]
OWN_DATA = {
    "arrays": {"data.classes": "10"},
    "tables": {"data.classes": "10"},
    "texts": {"data.classes": "10", "data.text_column": "text"},
    "table": {"data.classes": "10", "data.num_clients": 3},
    "pictures": {"data.classes": ",".join(f"class{label}" for label in range(10)), "data.channels": 1},
}


def written(path: Path, kind: str, labels: list[list[int]], **about: bool) -> Path:
    if kind == "pictures":
        return write_pictures(path, labels, **about)
    return write_table(path.with_suffix(".csv"), labels) if kind == "table" else write_folder(path, labels, kind)


def shapes_of(dataset: Path, scheme_name: str, **values: Any) -> list[tuple[int, ...]]:
    """Of the model that a run would release."""
    given: dict[str, Any] = {"scheme.name": scheme_name, "scheme.local_lr": 0.1, "run.rounds": 1} | values
    if scheme_name.endswith("-dp"):
        given |= {"scheme.clip_norm": 1.0, "scheme.noise_multiplier": 1.0, "privacy.delta": 0.1}
        given |= {"privacy.allow_large_delta": True}
    settled = settle(RunConfig().with_values(given | {"data.dataset": str(dataset), "model.name": "logistic"}))
    return [tuple(weight.shape) for weight in settled.experiment.model.parameters()]


@pytest.mark.parametrize("kind", OWN_DATA)
def test_no_record_decides_the_shape_of_a_private_model(kind: str, tmp_path: Path) -> None:
    usual, odd = (written(tmp_path / name, kind, some) for name, some in (("usual", USUAL), ("odd", ODD)))
    said = OWN_DATA[kind]
    rest = {key: value for key, value in said.items() if key not in ("data.classes", "data.channels")}
    for dataset in (usual, odd):
        with pytest.raises(ConfigError, match="no record may decide the shape.*--classes"):
            shapes_of(dataset, "fl-std-dp", **rest)
    assert shapes_of(usual, "fl-std-dp", **said) == shapes_of(odd, "fl-std-dp", **said)
    # Without privacy it may follow from the records: that is the mistake, and it shows.
    assert shapes_of(usual, "fl-std", **rest) != shapes_of(odd, "fl-std", **rest)


def test_classes_that_are_read_from_private_records_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laconic.settings.build.check_declared", lambda federation: None)
    usual, odd = (written(tmp_path / name, "arrays", some) for name, some in (("usual", USUAL), ("odd", ODD)))
    assert shapes_of(usual, "fl-std-dp") != shapes_of(odd, "fl-std-dp")


def test_one_coloured_picture_decides_no_shape_either(tmp_path: Path) -> None:
    grey = written(tmp_path / "grey", "pictures", USUAL)
    coloured = written(tmp_path / "coloured", "pictures", USUAL, colours=True)
    said: dict[str, Any] = {"data.classes": "class0,class1,class2"}
    with pytest.raises(ConfigError, match="--channels 1"):
        shapes_of(grey, "fl-std-dp", **said)
    for channels in (1, 3):
        both = [shapes_of(one, "fl-std-dp", **said, **{"data.channels": channels}) for one in (grey, coloured)]
        assert both[0] == both[1]
    assert shapes_of(grey, "fl-std", **said) != shapes_of(coloured, "fl-std", **said)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("arrays", {"data.classes": "9"}, "class target 9, but --classes declares 0 to 8"),
        ("arrays", {"data.classes": "1"}, "targets are whole numbers"),
        ("arrays", {"data.classes": "0"}, "two classes or more"),
        ("arrays", {"data.classes": "a,a"}, "each once"),
        ("arrays", {"data.classes": "10", "data.channels": 1}, "--channels means nothing"),
        ("pictures", {"data.classes": "10", "data.channels": 1}, "names are needed"),
        ("pictures", {"data.classes": "class0,class1", "data.channels": 1}, "class9.* is not declared|class2.* is not"),
        ("digits", {"data.classes": "10"}, "means nothing to this data set"),
    ],
)
def test_what_is_declared_must_fit(kind: str, values: dict[str, Any], message: str, tmp_path: Path) -> None:
    dataset = Path(kind) if kind == "digits" else written(tmp_path / "odd", kind, ODD)
    with pytest.raises(LaconicError, match=message):
        shapes_of(dataset, "fl-std-dp", **values)
