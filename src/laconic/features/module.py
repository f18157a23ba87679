"""A frozen torch module of the user's own as a front end, named as `package.module:factory`.

ε counts what one client's records change. That is only true if a record's features depend on this record alone. A
module whose output depends on the rest of a batch (batch normalisation without fixed statistics), on chance or on
earlier calls is refused, after a trial on made records, not on those of clients.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError, unknown
from laconic.features.base import FrontEnd, size_text, tensor_bytes
from laconic.models.registry import accepted_options
from laconic.own_code import imported, reason_of

_TRIED = 8
_CLOSE = 1e-3
"""Relative to the largest feature: what rounding may change when a batch has another size."""


class ModuleFrontEnd(FrontEnd):
    """What a factory's module makes of a record. The module's weights are fixed: they are not in the file, and are
    compared by their digest when the factory has made them again."""

    def __init__(
        self,
        input_shape: Sequence[int],
        module: nn.Module,
        about: dict[str, Any],
        projection: nn.Module | None = None,
    ) -> None:
        super().__init__(input_shape, projection, about)
        self.module = module

    def raw(self, inputs: Tensor) -> Tensor:
        if len(self.input_shape) == 3 and not inputs.is_floating_point():
            inputs = inputs / 255  # pixels; other whole numbers are words
        features: Tensor = self.module(inputs)
        return features.float()

    @property
    def for_threads(self) -> bool:
        return False

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return tuple(self.about["shape"])

    @property
    def what(self) -> str:
        about = self.about
        return (
            f"frozen module {about['factory']} of {size_text(self.input_shape)} records, weights {about['weights']},"
            f" source {about['code']}"
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.state_dict().items() if not name.startswith("module.")}


def module_front_end(
    name: str,
    input_shape: Sequence[int],
    *,
    options: dict[str, Any] | None = None,
    seed: int = 0,
    words: bool = False,
    mirror: bool = False,
) -> ModuleFrontEnd:
    """The module that `name` (package.module:factory) makes, frozen, tried and identified.

    The factory is called with the options and, if it takes it, `input_shape`. What it draws follows from the `seed`.
    `words` says that records are whole numbers, such as words.
    """
    factory = find_factory(name)
    module = _made(name, factory, tuple(input_shape), dict(options or {}), seed)
    shape = _tried(name, module, tuple(input_shape), words)
    about = {
        "kind": "module",
        "factory": name,
        "options": dict(options or {}),
        "seed": seed,
        "words": words,
        "shape": list(shape),
        "weights": _weights_digest(module),
        "code": _code_digest(factory, module),
        "mirror": mirror,
    }
    return ModuleFrontEnd(input_shape, module, about)


def find_factory(name: str) -> Callable[..., Any]:
    factory: Any = imported("front-end", name)
    if not callable(factory) or isinstance(factory, nn.Module):
        raise ConfigError(f"⟨front-end⟩ {name} is a {type(factory).__name__}, not a function that makes a module")
    return factory  # type: ignore[no-any-return]


def made_again(about: dict[str, Any]) -> ModuleFrontEnd:
    """The front end that was described, from the factory as it is now; an error if it makes something else."""
    found = module_front_end(
        str(about["factory"]),
        about["input_shape"],
        options=about["options"],
        seed=int(about["seed"]),
        words=bool(about["words"]),
    )
    for key, what in (("weights", "weights"), ("code", "source code"), ("shape", "shape of the features")):
        if found.about[key] != about[key]:
            raise ConfigError(
                f"⟨front-end⟩ {about['factory']}: its {what} changed ({found.about[key]}, was {about[key]}): restore"
                " what it was, or start a new run"
            )
    found.about = dict(about)
    return found


def _made(
    name: str, factory: Callable[..., Any], input_shape: tuple[int, ...], options: dict[str, Any], seed: int
) -> nn.Module:
    accepted = accepted_options(factory)
    arguments = ({"input_shape": input_shape} if accepted is None or "input_shape" in accepted else {}) | options
    for key in arguments:
        if accepted is not None and key not in accepted:
            raise ConfigError(unknown(f"option of front end '{name}' (key in [front_end])", key, accepted))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = factory(**arguments)
        except Exception as error:  # a user's factory may raise anything
            raise ConfigError(f"⟨front-end⟩ {name} cannot be built: {reason_of(error)}") from None
    if not isinstance(module, nn.Module):
        raise ConfigError(f"⟨front-end⟩ {name} gave a {type(module).__name__}, not a torch.nn.Module")
    try:
        return copy.deepcopy(module).cpu().eval().requires_grad_(False)  # runs copy it, too
    except Exception as error:
        raise ConfigError(f"⟨front-end⟩ {name} cannot be frozen: {reason_of(error)}") from None


def _tried(name: str, module: nn.Module, input_shape: tuple[int, ...], words: bool) -> tuple[int, ...]:
    """The shape of a record's features; an error for a module whose features of a record are not a fixed map of it."""
    rng = torch.Generator().manual_seed(0)

    def made() -> Tensor:
        if words:
            return torch.randint(0, 2, (_TRIED, *input_shape), generator=rng)
        draw = torch.rand if len(input_shape) == 3 else torch.randn
        return draw(_TRIED, *input_shape, generator=rng)

    @torch.no_grad()
    def asked(inputs: Tensor) -> Tensor:
        try:
            found = module(inputs)
        except Exception as error:  # a user's module may raise anything
            shape = tuple(inputs.shape[1:])
            raise ConfigError(f"⟨front-end⟩ {name} cannot take records of shape {shape}: {reason_of(error)}") from None
        if not isinstance(found, Tensor) or found.ndim < 2 or len(found) != len(inputs) or found.is_complex():
            got = f"a tensor of {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise ConfigError(
                f"⟨front-end⟩ {name} gave {got} for {len(inputs)} records: it must give a tensor of real numbers"
                f" ({len(inputs)}, features)"
            )
        if not bool(torch.isfinite(found).all()):
            raise ConfigError(f"⟨front-end⟩ {name} gave features that are not finite")
        return found.float()

    records, others = made(), made()
    before = _weights_digest(module)
    whole, again = asked(records), asked(records)
    if not torch.equal(whole, again):
        raise ConfigError(f"⟨front-end⟩ {name} gave other features the second time: it draws random numbers, or learns")
    others[0] = records[0]
    slack = _CLOSE * float(whole.abs().max()) + 1e-6
    for batch in (others, records[:1]):
        if float((asked(batch)[0] - whole[0]).abs().max()) > slack:
            raise ConfigError(
                f"⟨front-end⟩ {name} gave a record other features in another batch (batch normalisation without fixed"
                " statistics?): features may depend on one record only, or no ε holds"
            )
    if not torch.equal(asked(records), whole) or _weights_digest(module) != before:
        raise ConfigError(f"⟨front-end⟩ {name} changes when it is used: features must be a fixed map of a record")
    return tuple(whole.shape[1:])


def _weights_digest(module: nn.Module) -> str:
    """A digest of every parameter and buffer, kept in files or not."""
    found = hashlib.sha256()
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        found.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(tensor_bytes(value))
    return found.hexdigest()


def _code_digest(factory: Callable[..., Any], module: nn.Module) -> str:
    """A digest of the layers, and of the sources of the factory and of layers that are not torch's or Laconic's."""
    owners = {getattr(factory, "__module__", "")} | {type(layer).__module__ for layer in module.modules()}
    found = hashlib.sha256(str(module).encode())
    for owner in sorted(name for name in owners if name and name.split(".")[0] not in ("torch", "laconic")):
        found.update(f"\n{owner}\n".encode() + _source(owner))
    return found.hexdigest()


def _source(module_name: str) -> bytes:
    try:
        file = inspect.getsourcefile(sys.modules[module_name])
        return b"" if file is None else Path(file).read_bytes()
    except (OSError, TypeError, KeyError):  # typed into an interpreter, or not written in Python
        return b""
