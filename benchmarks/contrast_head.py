"""What a network trained by contrast on made pictures is worth: a linear head on its features, beside others.

    python -m benchmarks.contrast_head contrast.safetensors [--dataset fashion-mnist] [--features 543] [--device cuda]

Judged on training pictures that are set aside; test pictures are not read. Every front end is whitened by the same
dead leaves. Prints one line for each: the trained network, the same network with random weights, scattering, and both
side by side. The head is a logistic regression without privacy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laconic.data.dead_leaves import dead_leaves
from laconic.data.inputs import dense
from laconic.data.sources import load_source
from laconic.features.base import FrontEnd
from laconic.features.blocks import in_blocks
from laconic.features.front_end import ScatteringFrontEnd, project
from laconic.features.joined import JoinedFrontEnd
from laconic_studies.contrast.front_end import ContrastFrontEnd
from laconic_studies.contrast.network import ContrastNetwork

_DECAY = 5e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path, help="a file of laconic features train")
    parser.add_argument("--dataset", default="fashion-mnist", help="a named data set of pictures  [fashion-mnist]")
    parser.add_argument("--pictures", type=int, default=10_000, help="to fit the head to  [10000]")
    parser.add_argument("--held-out", type=int, default=5_000, help="to judge it on  [5000]")
    parser.add_argument("--leaves", type=int, default=3_000, help="made pictures to whiten by  [3000]")
    parser.add_argument("--features", type=int, default=300, help="components  [300]")
    parser.add_argument("--ridge", type=float, default=0.01, help="of the whitening  [0.01]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda  [cpu]")
    options = parser.parse_args()
    train = load_source(options.dataset, None).train
    order = np.random.default_rng(0).permutation(len(train.targets))
    fitted, judged = (train.some(rows) for rows in (order[: options.pictures], order[-options.held_out :]))
    shape = tuple(train.inputs.shape[1:])
    leaves, device = dead_leaves(options.leaves, shape, np.random.default_rng(1)), torch.device(options.device)

    def judge(name: str, front_end: FrontEnd) -> None:
        if isinstance(front_end, JoinedFrontEnd):
            front_end.balance(leaves, device)
        project(front_end, options.features, "public", images=leaves, ridge=options.ridge, device=device)
        features = [in_blocks(front_end, dense(some.inputs), device) for some in (fitted, judged)]
        accuracy = _accuracy(features[0], fitted.targets.to(device), features[1], judged.targets.to(device))
        print(f"{name:24s} {accuracy:.4f}", flush=True)

    def network() -> ContrastFrontEnd:
        return ContrastFrontEnd.read(options.network, shape)

    def scattering() -> ScatteringFrontEnd:
        return ScatteringFrontEnd(shape)

    judge("trained by contrast", network())
    judge("random weights", _random(network(), leaves))
    judge("scattering", scattering())
    judge("scattering and trained", JoinedFrontEnd([scattering(), network()]))
    judge("scattering and random", JoinedFrontEnd([scattering(), _random(network(), leaves)]))


def _random(like: ContrastFrontEnd, leaves: Tensor) -> ContrastFrontEnd:
    """The same layers with other weights, normalised by the means and variances of made pictures."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = ContrastNetwork(like.input_shape[0], like.about["width"]).train()
    for norm in network.norms:
        norm.momentum = None  # the mean over all blocks
    with torch.no_grad():
        for block in leaves.split(300):
            network(block)
    return ContrastFrontEnd(like.input_shape, network, like.about)


def _accuracy(features: Tensor, targets: Tensor, judged: Tensor, truth: Tensor) -> float:
    weights = torch.zeros(features.shape[1], int(targets.max()) + 1, device=features.device, requires_grad=True)
    offsets = torch.zeros(weights.shape[1], device=features.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, offsets], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = functional.cross_entropy(features @ weights + offsets, targets) + _DECAY / 2 * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        return float(((judged @ weights + offsets).argmax(1) == truth).float().mean())


if __name__ == "__main__":
    main()
