"""W1 with pfl-research: federated averaging on its simulated backend, as its documentation shows it.

    python -m benchmarks.peers.pfl_rounds [--channels-last] [--dp]
    torchrun --nproc-per-node 2 -m benchmarks.peers.pfl_rounds …

The users' tensors are in memory from the start. Five epochs over ten records in batches of ten are five local steps.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import get_default_device
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import workload as w1
from benchmarks.pacing import Pacer


class Network(nn.Module):
    """The CNN with the two methods that pfl asks for."""

    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self.layers = w1.cnn().to(memory_format=self._format)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(self.layers(inputs.to(memory_format=self._format)), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(inputs, targets)) * len(targets), len(targets))}


class Paced(TrainingProcessCallback):
    """Waits between central iterations; rank 0 talks to the harness and tells the others."""

    def __init__(self) -> None:
        cuda = get_default_device().type == "cuda"
        self._pacer = Pacer(synchronize=torch.cuda.synchronize if cuda else lambda: None)

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        rank = int(os.environ.get("RANK", 0))
        go_on = torch.tensor([float(self._pacer.round_done()) if rank == 0 else 0.0], device=get_default_device())
        if torch.distributed.is_initialized():
            torch.distributed.broadcast(go_on, 0)
        return not bool(go_on), Metrics()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--dp", action="store_true")
    options = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    network = Network(options.channels_last)
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    device = get_default_device()
    users = {i: [x.to(device), y.to(device)] for i, (x, y) in enumerate(w1.clients(w1.CLIENTS))}
    data = FederatedDataset(lambda user: Dataset(users[user], user_id=user), get_user_sampler("random", list(users)))
    gaussian = GaussianMechanism(clipping_bound=w1.CLIP_NORM, relative_noise_stddev=w1.NOISE_MULTIPLIER)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**6,
            train_cohort_size=w1.COHORT,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, postprocessors=[CentrallyAppliedPrivacyMechanism(gaussian)] if options.dp else []),
        model,
        NNTrainHyperParams(
            local_batch_size=w1.RECORDS, local_num_epochs=w1.STEPS, local_learning_rate=w1.LEARNING_RATE
        ),
        callbacks=[Paced()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
