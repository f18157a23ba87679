"""Train the network: two views of a made scene are to be alike, and unlike all views of other scenes.

No picture is read. Scenes, initial weights and cameras follow from a seed, so on one machine the same seed gives the
same network. A GPU of another kind rounds otherwise, so the file is what is kept, and its digest says which it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from laconic.parts import non_negative_int, positive, positive_int
from laconic_studies.contrast.front_end import ContrastFrontEnd
from laconic_studies.contrast.network import Compared, ContrastNetwork, check_pictures, contrast
from laconic_studies.contrast.scenes import Scenes

REPORT_EVERY = 100
_WARM_UP = 0.05
"""Of all steps, in which the step size grows to its full value."""


def train_contrast(
    input_shape: Sequence[int],
    *,
    steps: int,
    width: int = 64,
    batch: int = 1024,
    seed: int = 0,
    learning_rate: float = 2e-3,
    temperature: float = 0.2,
    device: torch.device | str = "cpu",
    report: Callable[[int, float], None] | None = None,
) -> ContrastFrontEnd:
    """A front end for pictures of that shape; `report(step, loss)` is called every 100 steps and after the last."""
    check_pictures(input_shape)
    positive_int(steps=steps, width=width, batch=batch)
    non_negative_int(seed=seed)
    positive(learning_rate=learning_rate, temperature=temperature)
    channels, *size = input_shape
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, compared = ContrastNetwork(channels, width), Compared(4 * width)
    together = torch.nn.ModuleList([network, compared]).to(device).train()
    if on_gpu:
        together.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(
        together.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=1e-2, fused=on_gpu
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _pace(step, steps))
    rng = torch.Generator(device=device).manual_seed(seed)
    total = torch.zeros((), device=device)  # read by the host only when it is reported
    for step in range(1, steps + 1):
        with torch.no_grad():
            scenes = Scenes.draw(batch, channels, rng)
            views = torch.cat([scenes.view(size, rng), scenes.view(size, rng)])
            if on_gpu:
                views = views.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            vectors = compared(network(views))
        loss = contrast(vectors[:batch], vectors[batch:], temperature)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        total += loss.detach()
        if report is not None and (step % REPORT_EVERY == 0 or step == steps):
            since = step % REPORT_EVERY or REPORT_EVERY
            report(step, float(total) / min(since, step))
            total.zero_()
    sizes = {"width": width, "steps": steps, "batch": batch, "seed": seed}
    about = sizes | {"learning_rate": learning_rate, "temperature": temperature}
    return ContrastFrontEnd(input_shape, network.float().cpu().to(memory_format=torch.contiguous_format), about)  # type: ignore[call-overload]


def _pace(step: int, steps: int) -> float:
    """The step size, as a part of the full one: it grows, then falls like a cosine."""
    warm = max(1, round(_WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
