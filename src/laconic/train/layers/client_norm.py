"""Group normalisation with weights per client, as one call: the clients' channels are more channels (Wu and He 2018).

C channels in G groups of each of K clients are K·C channels in K·G groups. `vmap` would normalise without weights and
then multiply and add in passes of their own, there and back.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.train.layers.chains import watched
from laconic.train.layers.kept import clients_first


class ClientGroupNorm(nn.GroupNorm):
    """In place of a `nn.GroupNorm`, for use inside `vmap` only."""

    def __init__(self, layer: nn.GroupNorm) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)

    def forward(self, x: Tensor) -> Tensor:
        found = _InVmap.apply(x, self.weight, self.bias, self.num_groups, self.eps)  # type: ignore[no-untyped-call]
        return cast(Tensor, found)


def use_client_norms(module: nn.Module) -> None:
    """Let the module's group normalisations run for all clients at once inside `vmap`, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.GroupNorm and not watched(child):
                setattr(parent, name, ClientGroupNorm(child))


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to the normalisation of all clients."""

    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
    ) -> tuple[Tensor, int]:
        count = info.batch_size
        every = clients_first(x, in_dims[0], count).transpose(0, 1)  # (batch, clients, channels, …)
        scale, shift = (
            None if t is None else clients_first(t, dim, count).reshape(-1)
            for t, dim in ((weight, in_dims[1]), (bias, in_dims[2]))
        )
        y = functional.group_norm(every.flatten(1, 2), count * groups, scale, shift, eps)
        return y.view(every.shape), 1
