"""Weights and kept coordinates as both sides of a federation name and send them."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from laconic.clients import wire
from laconic.errors import WireError
from laconic.federation.offer import Offer
from laconic.packing import FLOAT32, integers


def check_model(model: nn.Module, offer: Offer) -> None:
    """Refuse a model that is not the server's. No record is looked at."""
    offer.scheme.codec.check_shapes([one.shape for one in model.parameters() if one.requires_grad])
    weights = initial_weights(model)
    if len(weights) != offer.size:
        raise WireError(f"this node's model has {len(weights)} weights, the server's {offer.size}")
    mine = weights_digest(weights)
    if mine != offer.initial:
        raise WireError(
            f"this node's initial weights ({mine[:8]}…) are not the server's ({offer.initial[:8]}…):"
            " use the same model and version of torch on all machines"
        )


def weights_digest(weights: Tensor) -> str:
    """32 hex digits that name a weight vector."""
    return hashlib.sha256(weights.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:32]


def write_shared(shared: dict[str, Tensor], fingerprint: str) -> bytes:
    """What a node is sent once (the kept coordinates of FL-TOP), as one message; empty without any."""
    if not shared:
        return b""
    (values,) = shared.values()
    packing = FLOAT32 if values.is_floating_point() else integers(32)
    return wire.encode(wire.Message("shared", 0, 0, 0, 0.0, fingerprint, values), packing)


def read_shared(data: bytes, offer: Offer) -> dict[str, Tensor]:
    if not data:
        return {}
    codec = offer.scheme.codec
    message = wire.decode(
        data,
        fingerprint=offer.scheme.fingerprint,
        round=0,
        attempt=0,
        size=codec.shared_size(offer.size),
        encoding=codec.shared_packing,
    )
    values = message.values if codec.shared_packing == FLOAT32 else message.values.to(torch.int64)
    codec.check_shared(values, offer.size)
    return {codec.shared_name: values}


def initial_weights(model: nn.Module) -> Tensor:
    """The weights that are trained, as one vector."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad]).to(torch.float32)
