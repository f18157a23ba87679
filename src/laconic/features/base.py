"""A front end: a fixed public map from records to features, in front of a head that is trained.

It is computed once per record, nothing of it is trained or sent, and it knows nothing about the clients' data.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError, RunFolderError, unknown
from laconic.features.projection import Selection, Whitening
from laconic.parts import positive_int

PROJECTIONS = ("none", "public", "random")
_MODULES: dict[str, Any] = {"public": Whitening, "random": Selection}


class FrontEnd(nn.Module):
    """The features `raw` of a record, perhaps averaged over mirror images, then perhaps projected.

    `about` says in plain values what it is and where its projection came from. It is enough to build the front end
    again, apart from the numbers in `tensors`.
    """

    def __init__(
        self, input_shape: Sequence[int], projection: nn.Module | None = None, about: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.input_shape = tuple(input_shape)
        self.about = {"input_shape": list(input_shape), "projection": "none", "mirror": False, **(about or {})}
        self.projection = projection or nn.Identity()

    @property
    def for_threads(self) -> bool:
        """Whether several threads may call it at once. Code of the user's own need not be made for that."""
        return True

    def raw(self, inputs: Tensor) -> Tensor:
        """The features before mirror images and projection."""
        raise NotImplementedError

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of a record's features before the projection."""
        raise NotImplementedError

    @property
    def what(self) -> str:
        """What `raw` is, for people."""
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.raw(inputs)
        if self.about["mirror"]:
            features = (features + self.raw(inputs.flip(-1))) / 2
        projected: Tensor = self.projection(features)
        return projected

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of a record's features."""
        return self.raw_shape if self.about["projection"] == "none" else (int(self.about["features"]),)

    @property
    def sentence(self) -> str:
        """What it is and what it was made from, for people."""
        text, about = self.what, self.about
        if about["mirror"]:
            text += ", averaged over each image and its mirror image"
        if about["projection"] == "public":
            text += f", projected on the {about['features']} leading principal components of {about['source']}"
        if about["projection"] == "random":
            text += f", {about['features']} of its features drawn from a public seed"
        return text

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All numbers that are kept in its file."""
        return self.state_dict()

    @property
    def digest(self) -> str:
        """64 hex digits of all that is not a formula: the description, and the numbers."""
        found = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode())
        for name, value in sorted(self.tensors.items()):
            found.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
            found.update(value.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def to_bytes(self) -> bytes:
        """As a safetensors file; what follows from formulas, and code, is not in it."""
        from safetensors.torch import save

        tensors = {name: value.cpu().contiguous() for name, value in self.tensors.items()}
        return save(tensors, metadata={"front_end": json.dumps(self.about)})

    @classmethod
    def load(cls, path: str | Path, *, factory: str | None = None) -> Self:
        """The front end that `to_bytes` wrote down.

        One with a module of the user's own needs its `factory`: a name in a file is never imported.
        """
        from safetensors import SafetensorError

        from laconic.features.kinds import built_from

        try:
            about, tensors = read_file(path)
            found = built_from(about, factory)
            found.fill(tensors)
        except (OSError, SafetensorError, ValueError, LookupError, TypeError, RuntimeError, ArithmeticError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RunFolderError(f"{path} is damaged ({reason}): restore it or start a new run") from None
        if not isinstance(found, cls):
            raise RunFolderError(f"{path} is another front end: {found.sentence}")
        return found

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Take the numbers from a file."""
        prefix, kind = "projection.", self.about["projection"]
        if kind != "none":
            self.projection = _MODULES[kind](
                **{name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            )
        expected = self.tensors
        if {name: value.shape for name, value in tensors.items()} != {n: value.shape for n, value in expected.items()}:
            raise ValueError("its numbers are not those of such a front end")
        if not all(bool(value.isfinite().all()) for value in tensors.values()):
            raise ValueError("some of its numbers are not finite")
        self.load_state_dict(self.state_dict() | tensors)


class FileFrontEnd(FrontEnd):
    """A front end whose numbers are in a file of its own, which `--front-end-weights` names.

    Another package adds one with an entry point in the group `laconic.front_ends`. Its name is the front end's, and the
    "kind" in `about`.
    """

    weights_needed: ClassVar[str]
    """What is missing where no file is named, for people."""
    found_on: ClassVar[str]
    """What the numbers were found on, for people."""

    @classmethod
    def read(cls, file: str | Path, input_shape: Sequence[int]) -> Self:
        """The one in this file, for records of that shape."""
        raise NotImplementedError

    @classmethod
    def described(cls, about: dict[str, Any]) -> Self:
        """One with blanks for its numbers, to be filled."""
        raise NotImplementedError


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(description, numbers) of a file that `FrontEnd.to_bytes` wrote."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        about = json.loads((file.metadata() or {})["front_end"])
        if not isinstance(about, dict):
            raise ValueError("it does not say what it is")
        return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def as_pixels(images: Tensor) -> Tensor:
    """Whole numbers are pixels from 0 to 255."""
    return images if images.is_floating_point() else images / 255


def size_text(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def num_values(shape: Sequence[int]) -> int:
    return math.prod(shape)


def check_projection(features: int | None, projection: str) -> None:
    """A number of features and a way to get them belong together."""
    if projection not in PROJECTIONS:
        raise ConfigError(unknown("front-end projection", projection, PROJECTIONS))
    if features is not None:
        positive_int(features=features)
    if features is None and projection != "none":
        raise ConfigError(f"⟨front-end-projection⟩ {projection} needs ⟨front-end-features⟩ K: how many are kept")
    if features is not None and projection == "none":
        raise ConfigError("⟨front-end-features⟩ needs ⟨front-end-projection⟩ public or random: how they are chosen")


def with_head(front_end: nn.Module, head: nn.Module) -> nn.Module:
    """Both together: from raw records to the head's outputs."""
    return nn.Sequential(OrderedDict(front_end=copy.deepcopy(front_end), head=head))


def describe(front_end: nn.Module) -> str:
    """One line about any front end."""
    return front_end.sentence if isinstance(front_end, FrontEnd) else type(front_end).__name__


def tensor_bytes(tensor: Tensor) -> bytes:
    """The bits of a tensor of any type."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
