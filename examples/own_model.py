"""Your own module and your own data: a private model in a few lines.

    python examples/own_model.py

Two hundred clients with 20 records each; replace `clients`, `test` and `Net` by yours. It reaches an accuracy of 0.97
at ε = 4.7. scikit-learn's logistic regression, on all records in one place and without privacy, reaches 0.98.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import laconic


class Net(nn.Module):
    """Any module of float32 weights; use GroupNorm where you would use BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.GroupNorm(4, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.body(inputs)
        return outputs


def records(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 3, (count,), generator=generator)
    means = torch.randn(3, 10, generator=torch.Generator().manual_seed(99)) * 0.7
    return means[targets] + torch.randn(count, 10, generator=generator), targets


def main() -> None:
    torch.manual_seed(0)
    clients = [records(20, seed) for seed in range(200)]
    scheme = laconic.schemes.fl_std_dp(
        clip_norm=0.5, noise_multiplier=1.5, local_lr=0.2, local_steps=5, batch_size=10, momentum=0.8, server_lr=0.4
    )
    result = laconic.run(
        scheme,
        model=Net(),
        clients=clients,
        test=records(1000, seed=10_000),
        sampling_rate=0.2,
        rounds=40,
        delta=1e-5,
        epsilon=6.0,  # the run stops before this would be exceeded
        observer=lambda row: print(f"round {row['round']:2d}  accuracy {row['accuracy']:.3f}  ε {row['epsilon']:.2f}"),
    )
    print(result.statement["summary"])
    print(f"{result.ledger['bytes_up'] / 1e6:.1f} MB up; stopped: {result.stop_reason}")


if __name__ == "__main__":
    main()
