"""The scattering transform against Kymatio's."""

from __future__ import annotations

import pytest
import torch

from laconic.features.scattering import Scattering


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 30, 17)], ids=str)
def test_same_coefficients_as_kymatio(shape: tuple[int, int, int]) -> None:
    # Kymatio's front door, kymatio.torch, also loads its 3-D part, which needs a scipy below 1.17.
    peer = pytest.importorskip(
        "kymatio.scattering2d.frontend.torch_frontend", reason="Kymatio is not installed (pip install kymatio)"
    )
    images = torch.rand((4, *shape), generator=torch.Generator().manual_seed(0))
    channels, height, width = shape
    theirs = peer.ScatteringTorch2D(2, (height, width), L=8)(images).reshape(4, 81 * channels, height // 4, width // 4)
    ours = Scattering(height, width)(images)
    # They divide by 2·3.1415·s² where we divide by 2·π·s²: a difference of 3e-5, once in each order.
    assert torch.allclose(ours, theirs, rtol=2e-4, atol=1e-6)
