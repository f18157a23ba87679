"""`ContrastFrontEnd`: the trained network, fixed, in front of a head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn
from torch.nn import functional

from laconic.errors import ConfigError, LaconicError
from laconic.features.base import FileFrontEnd, as_pixels, size_text
from laconic_studies.contrast.network import PLACES, ContrastNetwork, check_pictures, pooled


class ContrastFrontEnd(FileFrontEnd):
    """Means over 3 × 3 parts of the network's maps, every record's scaled to mean 0 and variance 1.

    `about` holds how the network was trained; the network is in the file.
    """

    weights_needed = (
        "--front-end contrast needs --front-end-weights FILE: the network, made with laconic features train FILE"
    )
    found_on = "made images, by training a network"

    def __init__(
        self,
        input_shape: Sequence[int],
        network: ContrastNetwork,
        about: dict[str, Any],
        projection: nn.Module | None = None,
    ) -> None:
        check_pictures(input_shape)
        super().__init__(input_shape, projection, {"kind": "contrast"} | about)
        self.network = network.eval().requires_grad_(False)

    @classmethod
    def read(cls, file: str | Path, input_shape: Sequence[int]) -> Self:
        """The network in a file that `laconic features train` wrote, for pictures of that shape."""
        check_pictures(input_shape)
        if not Path(file).is_file():
            raise ConfigError(
                f"--front-end-weights {file}: there is no such file; make one with laconic features train"
            )
        try:
            found = cls.load(file)
        except LaconicError:
            raise ConfigError(
                f"--front-end-weights {file} is no network that laconic features train wrote, or it is damaged"
            ) from None
        if found.input_shape != tuple(input_shape):
            raise ConfigError(
                f"--front-end-weights {file} is for images of {size_text(found.input_shape)}, and the records are of"
                f" {size_text(input_shape)}: train one with laconic features train --shape"
                f" {'x'.join(map(str, input_shape))}"
            )
        if found.about["projection"] != "none":
            raise ConfigError(f"--front-end-weights {file} is a whole front end of a run, not a network by itself")
        return found

    @classmethod
    def described(cls, about: dict[str, Any]) -> Self:
        """One with other weights, to be filled."""
        shape = about["input_shape"]
        return cls(shape, ContrastNetwork(int(shape[0]), int(about["width"])), about)

    def raw(self, inputs: Tensor) -> Tensor:
        features = pooled(self.network(as_pixels(inputs)))
        return functional.layer_norm(features, features.shape[1:])

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return 4 * int(self.about["width"]), PLACES, PLACES

    @property
    def what(self) -> str:
        about = self.about
        return (
            f"network of width {about['width']} for {size_text(self.input_shape)} images, trained by contrast on"
            f" made images of dead leaves alone ({about['steps']:,} steps of {about['batch']:,} scenes,"
            f" seed {about['seed']})"
        )
