"""The two pictures of the frontier. A published point stands at the ε that our accountant gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent

from benchmarks.frontier.choose import BYTES_EPSILON
from benchmarks.frontier.report import Result
from benchmarks.frontier.settings import BUDGET, EPSILONS
from laconic.privacy.accounting.releases import epsilon
from laconic.report.plots import bytes_axis, line_style, pyplot

PUBLISHED = 0.81
"""The accuracy of FL-TOP-DP on Fashion-MNIST (UAI'21 Table 1), which states ε = 1 by the moments accountant."""
_RATE, _SIGMA, _ROUNDS, _DELTA = 1 / 60, 1.54, 200, 1e-5


def published_epsilon(method: str = "pld") -> float:
    """The ε of the published run by one of our accountants; by the tight one it is smaller than the stated 1."""
    return epsilon(PoissonSampledDpEvent(_RATE, GaussianDpEvent(_SIGMA)), _ROUNDS, _DELTA, method)


def draw_epsilon(results: list[Result], path: Path) -> None:
    """Accuracy against ε, for all results at the whole budget of bytes."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.2), layout="constrained")
    line = [r for e in EPSILONS for r in results if r.name == f"{e:g}"]
    x, at = [r.epsilon for r in line], published_epsilon()
    label = "Laconic: mean of three seeds ± standard deviation"
    axes.errorbar(x, [r.mean for r in line], [r.deviation for r in line], capsize=3, label=label, **line_style(0))
    axes.plot([at], [PUBLISHED], label="FL-TOP-DP as published (UAI'21)", **line_style(1) | {"linestyle": "none"})
    axes.annotate(f"ε = {at:.2f} by the\nsame accountant", (at, PUBLISHED), (10, -3), textcoords="offset points")
    axes.set(xscale="log", xlabel="ε against an outsider, δ = 1e-5 (smaller is more private)", ylabel=_ACCURACY)
    axes.set_xticks(x, [f"{e:g}" for e in x])
    axes.minorticks_off()
    _save(figure, axes, path)


def draw_bytes(results: list[Result], path: Path) -> None:
    """Accuracy against bytes, for all results at one ε, one line for each scheme."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.2), layout="constrained")
    at_one = [r for r in results if r.epsilon == BYTES_EPSILON and r.setting.downlink == "half"]
    schemes = list(dict.fromkeys(r.setting.scheme for r in at_one))
    for place, scheme in enumerate(schemes):
        some = sorted((r for r in at_one if r.setting.scheme == scheme), key=lambda r: r.most("bytes_up"))
        sent = [r.most("bytes_up") for r in some]
        label, style = f"{scheme.upper()} behind a front end", line_style(place)
        axes.errorbar(sent, [r.mean for r in some], [r.deviation for r in some], capsize=3, label=label, **style)
    label = f"FL-TOP-DP as published (UAI'21), ε = {published_epsilon():.2f}"
    axes.plot([BUDGET], [PUBLISHED], label=label, **line_style(len(schemes)) | {"linestyle": "none"})
    axes.set(xlabel="bytes sent up by a client in the whole run", ylabel=f"{_ACCURACY}, ε = 1")
    bytes_axis(axes)
    _save(figure, axes, path)


_ACCURACY = "accuracy on Fashion-MNIST's test pictures"


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot().close(figure)
