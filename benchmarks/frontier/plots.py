"""The two pictures of the frontier."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.frontier.choose import BYTES_EPSILON
from benchmarks.frontier.report import AIMS, Result
from benchmarks.frontier.settings import BUDGET, EPSILONS

_PUBLISHED = 0.81
_NOTE = "FL-TOP-DP at ε = 1 (UAI'21)"


def draw_epsilon(results: list[Result], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(5.6, 4))
    line = [r for e in EPSILONS for r in results if r.name == f"{e:g}"]
    x = [r.epsilon for r in line]
    axes.errorbar(x, [r.mean for r in line], [r.deviation for r in line], marker="o", capsize=3, label="three seeds")
    axes.plot(list(AIMS), list(AIMS.values()), "_", color="grey", markersize=14, label="aim")
    axes.plot([1.0], [_PUBLISHED], "x", color="black", label=_NOTE)
    axes.set(xscale="log", xlabel="ε against outsiders, δ = 1e-5", ylabel="test accuracy")
    axes.set_xticks(x, [f"{e:g}" for e in x])
    axes.minorticks_off()
    _save(figure, axes, path)


def draw_bytes(results: list[Result], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(5.6, 4))
    at_one = [r for r in results if r.epsilon == BYTES_EPSILON and r.setting.downlink == "half"]
    for scheme in dict.fromkeys(r.setting.scheme for r in at_one):
        some = sorted((r for r in at_one if r.setting.scheme == scheme), key=lambda r: r.most("bytes_up"))
        sent = [r.most("bytes_up") / 1000 for r in some]
        axes.errorbar(sent, [r.mean for r in some], [r.deviation for r in some], marker="o", capsize=3, label=scheme)
    axes.plot([BUDGET / 1000], [_PUBLISHED], "x", color="black", label=_NOTE)
    axes.set(
        xscale="log", xlabel="kB up per client over the whole run", ylabel=f"test accuracy at ε = {BYTES_EPSILON:g}"
    )
    _save(figure, axes, path)


def _save(figure: plt.Figure, axes: plt.Axes, path: Path) -> None:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)
