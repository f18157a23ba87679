"""The runs against which `laconic advise` is checked are runs, and its ranking agrees with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import laconic
from benchmarks.advise.__main__ import agreement, measured
from benchmarks.advise.fit import runs
from benchmarks.advise.heads import Heads, Rule
from laconic.data.population import Records


def test_a_head_trained_by_gram_matrices_is_the_one_of_a_run() -> None:
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 6, generator=rng)
    records = Records(inputs, (inputs @ torch.randn(6, 3, generator=rng)).argmax(1))
    heads = Heads(records, records, records=4, classes=3)
    rule = Rule(rounds=3, sampling_rate=1.0, cap=None, clip_norm=0.05, server_lr=4.0, momentum=0.5, mean_noise=0.0)
    model = torch.nn.Linear(6, 3)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    scheme = laconic.schemes.fl_std_dp(
        clip_norm=0.05,
        noise_multiplier=1e-6,
        noise="continuous",
        local_lr=0.05,
        local_steps=10,
        batch_size=4,
        server_lr=4.0,
        momentum=0.5,
    )
    clients = list(zip(records.inputs.split(4), records.targets.split(4), strict=True))
    result = laconic.run(scheme, model=model, clients=clients, sampling_rate=1.0, rounds=3, delta=1e-3, progress=False)
    found = heads.train(rule, 0)
    trained = torch.cat([result.model.weight, result.model.bias[:, None]], 1).T
    assert trained.norm() > 0.1
    torch.testing.assert_close(found, trained.detach(), atol=2e-3, rtol=0)  # weights go down in 16 bits there


def test_a_wrong_ranking_is_noticed() -> None:
    """Guards the test below against an agreement that is always there."""
    rows = [
        {"cohort": k, "rounds": 1, "features": 1, "expected_error": 0.1 * k, "accuracy": accuracy}
        for k, accuracy in enumerate((0.9, 0.8, 0.7, 0.6))
    ]
    assert agreement(rows) == pytest.approx(1.0)
    for row in rows:
        row["expected_error"] = -float(str(row["expected_error"]))
    assert agreement(rows) == pytest.approx(-1.0)


def test_the_fit_reads_runs_of_both_kinds() -> None:
    found = runs()
    assert len(found) > 350 and {1.0, 2.0} == set(found[:, -1])


@pytest.mark.slow
def test_the_ranking_of_ten_settings_agrees_with_runs_on_the_digits(tmp_path: Path) -> None:
    rows = measured("digits", tmp_path, seeds=[3, 4, 5], data_dir=None, device="cpu", judge="test")
    assert len(rows) == 30
    assert agreement(rows) >= 0.8
