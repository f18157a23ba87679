"""The model of an offered run, built on the node: laconic's, or the owner's own. No server's name is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from laconic.errors import ConfigError, WireError, unknown

if TYPE_CHECKING:
    from torch import nn

    from laconic.federation.offer import Offer


def own_model(offer: Offer, own: str | Callable[..., nn.Module] | None = None) -> nn.Module:
    """The run's model with its initial weights, from the offer and the owner's `model` setting alone.

    Anyone who offers a run chooses its name and options, so a name from there is looked up among laconic's models, and
    never imported. A model of the owner's own is named where the node is started, as package.module:factory. The
    offer's options are passed to either; they are numbers, texts and lists of them.
    Laconic's models are first laid out without memory: an offer cannot make a node allocate more than it says.
    """
    import torch

    from laconic.models.registry import MODELS, build_model
    from laconic.streams import Streams
    from laconic.train.flat import trainable_size

    chosen = own or offer.model
    if not own and chosen not in MODELS:
        raise ConfigError(
            unknown("model", offer.model, MODELS) + "; a model of your own is named by each node's owner, where the"
            " node is started"
        )

    def build() -> nn.Module:
        return build_model(
            chosen,
            input_shape=offer.head_shape,
            num_classes=offer.num_classes,
            seed=Streams(offer.public_seed).public_seed("model"),
            options=offer.model_options,
        )

    if chosen in MODELS:
        with torch.device("meta"):
            size = trainable_size(build())
        if size != offer.size:
            raise WireError(f"this node's model has {size} weights, the server's {offer.size}")
    return build()
