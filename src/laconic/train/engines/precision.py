"""How exact the products of a GPU are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def products_in(precision: str, device: torch.device) -> Iterator[None]:
    """For the time being, products and convolutions of TF32 (10 bits of mantissa, the default) or of float32.

    Only training and evaluation are done so: codes, sums and decoding are float32 always. A CPU has float32 only.
    """
    if device.type != "cuda":
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision != "float32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
