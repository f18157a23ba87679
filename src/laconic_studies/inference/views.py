"""What an adversary sees of a round: one client's code, the sum of the others' codes, or only the new model.

| view     | what it is                     | who has it                                                         |
| -------- | ------------------------------ | ------------------------------------------------------------------ |
| `single` | the code of one client         | the server, without a secure sum                                   |
| `others` | the sum of all codes but one's | a client that knows the sum, or the server with one client's help  |
| `model`  | the change of the weights      | every client, and every holder of the models                       |

In FL-STD, FL-TOP and FL-FREQ the new model gives the sum away, so every client has `others`. In FL-SIGN it gives only
the vote, and in FL-CS what the solver found: there `others` takes the server. Under a secure sum `single` is hidden;
it is then what the secure sum hides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from laconic.codecs.dct import LowPassDCT
from laconic.codecs.solvers import Adjoint
from laconic.errors import ConfigError, unknown
from laconic.plan import RoundPlan
from laconic.round import client_weight, server_step
from laconic.scheme import Scheme
from laconic.server.rules import State
from laconic.streams import Stream

VIEWS = {
    "single": "the code of one client",
    "others": "the sum of the codes of all but the adversary",
    "model": "the change of the model",
}


def check_views(names: tuple[str, ...]) -> None:
    """Refuse a view that does not exist."""
    for name in names:
        if name not in VIEWS:
            raise ConfigError(unknown("view", name, VIEWS))


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A round that an adversary observes: what is public about it, and what the server remembers.

    Codes are as clients send them (`client_messages`): floats, or residues mod 2^b under integer noise. `sizes` are
    how many records each client holds.
    """

    scheme: Scheme
    plan: RoundPlan
    weights: Tensor
    state: State

    def single(self, messages: Tensor) -> Tensor:
        """The codes (clients, m) in units of the code, each with its own share of the noise."""
        sensitivity = self.scheme.clip.sensitivity(messages.shape[-1])
        return self.scheme.noise.read(messages, sensitivity=sensitivity, plan=self.plan)

    def others(self, messages: Tensor, sizes: Tensor) -> Tensor:
        """Σ_k c_k·code_k (m,) over these clients: what is left of the total less one's own code."""
        return self.single(self._total(messages, sizes)[None])[0]

    def model(self, messages: Tensor, sizes: Tensor, stream: Stream) -> Tensor:
        """w_t − w_(t−1) (n,) from the messages of the whole cohort; the server's own noise is drawn from `stream`."""
        # From 0, as a difference of large weights would have rounding errors, and those look like information.
        change, _ = replace(self, weights=torch.zeros_like(self.weights)).step(messages, sizes, stream)
        return change

    def step(self, messages: Tensor, sizes: Tensor, stream: Stream) -> tuple[Tensor, State]:
        """The server's step: new weights and state."""
        return server_step(
            self.scheme,
            self.plan,
            self._total(messages, sizes),
            survivors=len(messages),
            total_weight=float(self._counts(sizes).sum()),
            weights=self.weights,
            state=self.state,
            stream=stream,
        )

    def in_weights(self, code: Tensor) -> Tensor:
        """A code (m,) as a vector of the model's size (n,), without loss: unsent coordinates are 0, DCT coefficients
        go back by the adjoint."""
        codec = self.scheme.codec
        if isinstance(codec, LowPassDCT):
            codec = replace(codec, solver=Adjoint())
        return codec.decode(code, len(self.weights), self.plan)

    def _counts(self, sizes: Tensor) -> Tensor:
        counts = [client_weight(self.scheme, int(size)) for size in sizes]
        return torch.tensor(counts, device=self.weights.device)

    def _total(self, messages: Tensor, sizes: Tensor) -> Tensor:
        # Integers come from private schemes, in which clients count alike.
        return self._counts(sizes) @ messages if messages.is_floating_point() else messages.sum(0)
