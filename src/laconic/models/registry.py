"""Models by name, the one that fits a data set, or the user's own as `package.module:factory`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from laconic.errors import ConfigError, unknown
from laconic.models.networks import all_cnn_c, cnn, cnn_lstm, lfw_cnn, logistic, mlp, sensor_cnn, text_cnn
from laconic.own_code import imported, reason_of
from laconic.registry import Registry

MODELS = Registry[Callable[..., nn.Module]](
    "model",
    {
        "cnn": cnn,
        "all-cnn-c": all_cnn_c,
        "lfw-cnn": lfw_cnn,
        "cnn-lstm": cnn_lstm,
        "text-cnn": text_cnn,
        "sensor-cnn": sensor_cnn,
        "mlp": mlp,
        "logistic": logistic,
    },
    own="package.module:factory",
)


def default_model(input_shape: Sequence[int], *, integer_inputs: bool = False) -> str:
    """What `--model auto` is for records of this shape, where nothing else is known of the data.

    The papers' networks for the shapes of CIFAR-10 and LFW; their CNN for other images of 16 × 16 or more; their
    CNN-LSTM for rows of 100 or more whole numbers, which are words; a small CNN for windows of 16 or more moments; a
    logistic regression for everything else.
    """
    shape = tuple(input_shape)
    if len(shape) == 3 and min(shape[1:]) >= 16:
        return {(3, 32, 32): "all-cnn-c", (3, 62, 47): "lfw-cnn"}.get(shape, "cnn")
    if integer_inputs:
        return "cnn-lstm" if len(shape) == 1 and shape[0] >= 100 else "logistic"
    return "sensor-cnn" if len(shape) == 2 and shape[0] >= 16 else "logistic"


def build_model(
    name: str | Callable[..., nn.Module],
    *,
    input_shape: Sequence[int],
    num_classes: int,
    seed: int,
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """The model that is named, or that a function makes, with weights drawn from the seed.

    A factory is called with the options and with whichever of `input_shape` and `num_classes` it takes.
    """
    factory = name if callable(name) else find_model(name)
    assert factory is not None, "'auto' is settled by then"
    name = name if isinstance(name, str) else getattr(name, "__name__", "of your own")
    offered = {"input_shape": tuple(input_shape), "num_classes": num_classes}
    accepted = accepted_options(factory)
    arguments = {k: v for k, v in offered.items() if accepted is None or k in accepted} | dict(options or {})
    for key in arguments:
        if accepted is not None and key not in accepted:
            raise ConfigError(unknown(f"option of model '{name}'", key, accepted))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = factory(**arguments)
        except ConfigError:
            raise
        except Exception as error:  # a user's factory may raise anything
            raise ConfigError(f"model '{name}' cannot be built: {reason_of(error)}; check ⟨model-option⟩") from None
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model '{name}' gave a {type(model).__name__}, not a torch.nn.Module")
    return model


def find_model(name: str) -> Callable[..., nn.Module] | None:
    """The factory of that name; None for 'auto', which depends on the data."""
    if name == "auto":
        return None
    factory: Any = imported("model", name) if ":" in name else MODELS.find(name)
    if not callable(factory):
        raise ConfigError(f"⟨model⟩ {name} is a {type(factory).__name__}, not a function that makes a model")
    return factory  # type: ignore[no-any-return]


def takes_option(name: str, option: str) -> bool:
    """Whether the named model says that it has such an option."""
    factory = find_model(name)
    return factory is not None and option in (accepted_options(factory) or ())


def accepted_options(factory: Callable[..., Any]) -> set[str] | None:
    """The keyword names that the factory takes; None if it takes any."""
    parameters = inspect.signature(factory).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL}
