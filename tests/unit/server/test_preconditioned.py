"""`Preconditioned`: what it computes, that it ends nearer to the optimum in few rounds, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import laconic
from conftest import make_population
from laconic.catalogue import build_scheme, scheme_entry
from laconic.codecs.base import Identity
from laconic.errors import ConfigError
from laconic.parts import Part
from laconic.server.rules import Average, ServerRule
from laconic.server.steps import Preconditioned
from laconic.settings.resolve import Draft, with_outputs

CPU = torch.device("cpu")


def steps(rule: ServerRule, means: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the rule makes of these means, one after the other."""
    size, found = len(means[0]), []
    state = rule.init(size, size, CPU)
    for mean in means:
        change, state = rule.step(mean, state, Identity(), size, None)  # type: ignore[arg-type]
        found.append(change)
    return found


def as_layer(flat: torch.Tensor, outputs: int) -> torch.Tensor:
    """(outputs, inputs + 1): as `torch.nn.Linear` has its weights, and then its bias."""
    return torch.cat([flat[:-outputs].view(outputs, -1), flat[-outputs:, None]], 1)


def test_the_step_is_the_equation_of_its_docstring() -> None:
    torch.manual_seed(0)
    rule = Preconditioned(outputs=3, damping=0.2, server_lr=2.0, momentum=0.5)
    means = [torch.randn(3 * 4 + 3) for _ in range(3)]
    found = steps(rule, means)
    velocity, moments = torch.zeros(3, 5, dtype=torch.float64), torch.zeros(5, 5, dtype=torch.float64)
    for mean, change in zip(means, found, strict=True):
        layer = as_layer(mean, 3).double()
        moments += layer.T @ layer
        velocity = 0.5 * velocity + layer
        curved = torch.eye(5) + moments / (0.2 * torch.linalg.eigvalsh(moments)[-1])
        expected = 2.0 * velocity @ torch.linalg.inv(curved)
        torch.testing.assert_close(as_layer(change, 3).double(), expected, rtol=1e-5, atol=1e-6)


def test_the_strongest_direction_has_a_short_step_and_a_new_one_the_whole() -> None:
    strong, new = torch.zeros(2 * 3 + 2), torch.zeros(2 * 3 + 2)
    strong[0], new[4] = 5.0, 1e-4  # input 0 of output 0, then input 1 of output 1
    first, second = steps(Preconditioned(outputs=2, damping=0.25), [strong, new])
    assert float(first[0]) == pytest.approx(5.0 * 0.25 / 1.25)
    assert float(second[4]) == pytest.approx(1e-4, rel=1e-6)


def test_a_large_damping_is_the_average_and_zeros_stay_zeros() -> None:
    torch.manual_seed(1)
    means = [torch.randn(24) for _ in range(4)]
    plain = steps(Average(server_lr=0.7, momentum=0.6), means)
    damped = steps(Preconditioned(outputs=4, damping=1e9, server_lr=0.7, momentum=0.6), means)
    for one, other in zip(plain, damped, strict=True):
        torch.testing.assert_close(one, other)
    assert not steps(Preconditioned(outputs=4, damping=0.1), [torch.zeros(24)])[0].any()


def loss_after(rule: ServerRule, *, rounds: int) -> float:
    """Cross-entropy of a layer that follows its noisy gradient, on records with a large common part."""
    rng = torch.Generator().manual_seed(0)
    centres = torch.randn(5, 20, generator=rng)
    targets = torch.randint(0, 5, (600,), generator=rng)
    inputs = centres[targets] + torch.randn(600, 20, generator=rng)
    inputs = inputs + 3 * torch.randn(20, generator=rng)  # the strongest direction of all
    layer = torch.cat([inputs, torch.ones(600, 1)], 1)
    labels = torch.nn.functional.one_hot(targets, 5).float() * 0.9 + 0.02
    weights, state = torch.zeros(5 * 20 + 5), rule.init(105, 105, CPU)
    for _ in range(rounds):
        wrong = labels - torch.softmax(layer @ as_layer(weights, 5).T, 1)
        gradient = wrong.T @ layer / 600
        mean = torch.cat([gradient[:, :-1].reshape(-1), gradient[:, -1]])
        mean += 1e-4 * torch.randn(105, generator=rng)
        change, state = rule.step(mean, state, Identity(), 105, None)  # type: ignore[arg-type]
        weights = weights + change
    return float(-(labels * torch.log_softmax(layer @ as_layer(weights, 5).T, 1)).sum(1).mean())


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_few_rounds_end_nearer_to_the_optimum_than_with_any_plain_step(momentum: float) -> None:
    lengths = [2.0**power for power in range(-6, 4)]
    plain = [Average(server_lr=h, momentum=momentum) for h in lengths]
    conditioned = [Preconditioned(outputs=5, damping=0.05, server_lr=h, momentum=momentum) for h in lengths]
    best, least = (min(loss_after(rule, rounds=5) for rule in rules) for rules in (conditioned, plain))
    assert best < 0.9 * least


def test_it_is_written_down_and_read_back() -> None:
    scheme = build_scheme(
        "fl-std-dp", clip_norm=1.0, noise_multiplier=1.0, local_lr=0.1, local_steps=1, precondition=0.1, outputs=3
    )
    assert scheme.rule == Preconditioned(outputs=3, damping=0.1)
    assert Part.from_dict(scheme.to_dict()) == scheme
    plain = build_scheme("fl-std-dp", clip_norm=1.0, noise_multiplier=1.0, local_lr=0.1, local_steps=1)
    assert plain.rule == Average()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"precondition": 0.1}, "needs outputs"),
        ({"outputs": 3}, "means nothing without --precondition"),
        ({"precondition": 0.0, "outputs": 3}, "precondition must be a positive number"),
        ({"precondition": float("nan"), "outputs": 3}, "precondition must be a positive number"),
        ({"precondition": 0.1, "outputs": 0}, "outputs must be"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        laconic.schemes.fl_std(local_lr=0.1, local_steps=1, **values)
    with pytest.raises(ConfigError, match="does not have 4 outputs"):
        Preconditioned(outputs=4, damping=0.1).init(15, 15, CPU)


def test_the_outputs_are_found_in_the_model() -> None:
    layer, options = nn.Linear(6, 3), {"precondition": 0.1}
    scheme = laconic.schemes.fl_std(local_lr=0.1, local_steps=1, precondition=0.1, outputs=1)
    draft = Draft(scheme_entry("fl-std"), options, scheme)
    found = with_outputs(draft, nn.Sequential(nn.Flatten(), layer))
    assert found.options == {"precondition": 0.1, "outputs": 3}
    assert found.scheme == laconic.schemes.fl_std(local_lr=0.1, local_steps=1, **found.options)
    plain = replace(draft, options={"momentum": 0.5})
    assert with_outputs(plain, nn.Conv2d(1, 1, 3)) == plain
    for other in (nn.Linear(6, 3, bias=False), nn.Sequential(layer, nn.Linear(3, 3)), nn.Conv1d(1, 1, 1)):
        with pytest.raises(ConfigError, match="one linear layer with a bias"):
            with_outputs(draft, other)
    with pytest.raises(ConfigError, match="the layer has 3"):
        with_outputs(replace(draft, options=options | {"outputs": 4}), layer)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    scheme = laconic.schemes.fl_std_dp(
        clip_norm=0.1, noise_multiplier=2.0, local_lr=0.2, local_steps=2, momentum=0.4, precondition=0.1, outputs=3
    )
    options: dict[str, Any] = {"clients": make_population([4, 9, 2, 7]), "sampling_rate": 1.0, "delta": 1e-2}
    options |= {"model": nn.Linear(6, 3), "rounds": 4, "checkpoint_seconds": 0.0}
    laconic.run(scheme, out=tmp_path / "whole", **options)

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyError

    with pytest.raises(KeyError):
        laconic.run(scheme, out=tmp_path / "cut", observer=stop, **options)
    laconic.run(scheme, out=tmp_path / "cut", resume=True, **options)
    assert (tmp_path / "cut/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
