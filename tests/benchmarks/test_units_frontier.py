"""Pictures at record level: the short training loop is that of the library, and the page says what was measured."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from benchmarks.units_frontier.heads import CLASSES, EPSILONS, WORLDS, Setting, digest, drawn, trained
from benchmarks.units_frontier.networks import SmallNetwork
from benchmarks.units_frontier.page import page
from laconic import run, schemes
from laconic.data.population import PooledPopulation, Records
from laconic.models.registry import build_model
from laconic.server.steps import Scheduled


def setting(**changes: object) -> Setting:
    values: dict[str, object] = {"rounds": 4, "features": 5, "ridge": 0.01, "clip_norm": 1.0, "reach": 2.0}
    values |= {"momentum": 0.5, "precondition": 0.15, "average_last": 2}
    return Setting(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{}, {"precondition": None, "average_last": 1}])
def test_trials_train_as_the_library_does(changes: dict[str, object]) -> None:
    from dataclasses import replace

    chosen, rng = setting(**changes), torch.Generator().manual_seed(0)
    inputs = torch.randn(300, chosen.features, generator=rng)
    inputs *= chosen.features**0.5 / torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
    targets = torch.cat([inputs[:, :3].argmax(1)[:290], torch.arange(CLASSES)])
    options = {} if chosen.precondition is None else {"precondition": chosen.precondition, "outputs": CLASSES}
    scheme = schemes.fl_std_dp(
        unit="record",
        num_units=300,
        clip_norm=chosen.clip_norm,
        momentum=chosen.momentum,
        server_lr=chosen.server_lr,
        noise_multiplier=1e-4,
        **options,
    )
    scheme = replace(scheme, rule=Scheduled(rule=scheme.rule, rounds=4, average_last=chosen.average_last))
    model = build_model("logistic", input_shape=(chosen.features,), num_classes=CLASSES, seed=0, options={"zero": True})
    owners = PooledPopulation(Records(inputs, targets), [torch.arange(0, 200).numpy(), torch.arange(200, 300).numpy()])
    result = run(scheme, model=model, clients=owners, sampling_rate=1.0, rounds=4, delta=1e-5, progress=False)
    found = trained(torch.cat([inputs, torch.ones(300, 1)], 1), targets, chosen, 0.0, 0)
    weight, bias = result.model.state_dict().values()
    assert torch.allclose(torch.cat([weight.T, bias[None]]), found, atol=2e-4)
    assert len(digest(result.model)) == 16


def test_settings_of_an_epsilon_are_the_same_every_time_and_a_longer_list_goes_on() -> None:
    world = WORLDS["mnist"]
    first, more = list(drawn(world, 1.0, 5)), list(drawn(world, 1.0, 9))
    assert more[:5] == first and max(one.features for one in more) <= world.most_features


def test_the_page_has_the_runs_and_names_what_is_missing() -> None:
    row = {"dataset": "mnist", "epsilon": "1.0", "owners": "10", "held_out": "0.98", "sigma": "16.7", "digest": "a"}
    row |= {name: str("" if value is None else value) for name, value in asdict(setting()).items()}
    runs = [row | {"seed": str(seed), "accuracy": f"0.97{seed}"} for seed in (1, 2, 3)]
    other = row | {"owners": "100", "seed": "1", "accuracy": "0.9999"}
    text = page({"mnist": [*runs, other]}, {}, [], [])
    assert "| MNIST | 1 | **0.9720 ± 0.0010** | 0.9710, 0.9720, 0.9730 | 0.9800 | – |" in text
    assert "0.9999 with 100 owners" not in text and "0.9999 with 100" in text
    assert all(f"MNIST at ε = {epsilon:g}" in text for epsilon in EPSILONS if epsilon != 1.0)


def test_the_network_has_the_weights_that_the_page_names() -> None:
    assert sum(weight.numel() for weight in SmallNetwork(1, 28, 10).parameters()) == 63_786
