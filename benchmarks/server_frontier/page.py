"""docs/results/frontier-server.md and its pictures, from the results. No figure is typed by hand."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.frontier.plots import PUBLISHED, published_epsilon
from benchmarks.server_frontier import runs
from benchmarks.server_frontier.worlds import LIMITS, WORLDS, Setting
from laconic.report.plots import bytes_axis, line_style, pyplot

NAMES = {"fashion-mnist": "Fashion-MNIST", "mnist": "MNIST", "cifar10": "CIFAR-10"}
FIRST_EDITION = Path("docs/results/frontier/runs.csv")


@dataclass(frozen=True)
class Cell:
    """The runs of one data set, limit of bytes and ε."""

    dataset: str
    limit: int
    epsilon: float
    rows: tuple[runs.Row, ...]

    @property
    def scores(self) -> list[float]:
        return [float(row["accuracy"]) for row in self.rows]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.scores) if len(self.rows) > 1 else 0.0

    @property
    def setting(self) -> Setting:
        row = self.rows[0]
        whole = {name: int(row[name]) for name in ("rounds", "features")}
        return Setting(**whole, **{name: float(row[name]) for name in ("step", "precondition", "momentum")})

    def most(self, name: str) -> float:
        return max(float(row[name]) for row in self.rows)


def cells(folder: Path) -> list[Cell]:
    found: dict[tuple[str, int, float], list[runs.Row]] = {}
    for dataset in WORLDS:
        for row in runs.read(folder / f"{dataset}-runs.csv"):
            found.setdefault((dataset, int(row["limit"]), float(row["asked"])), []).append(row)
    return sorted(
        (Cell(*key, tuple(sorted(rows, key=lambda row: row["seed"]))) for key, rows in found.items()),
        key=lambda cell: (list(WORLDS).index(cell.dataset), -cell.limit, cell.epsilon),
    )


def write_page(folder: Path) -> None:
    found, patients = cells(folder), _patients(folder)
    trials = sum(len(_lines(folder / f"{dataset}-trials.csv")) for dataset in WORLDS)
    draw_fashion(found, folder / "epsilon.png")
    draw_all(found, patients, folder / "datasets.png")
    draw_bytes(found, folder / "bytes.png")
    text = [_HEAD.format(trials=trials)]
    for dataset in WORLDS:
        text += _section(dataset, [cell for cell in found if cell.dataset == dataset])
    text += [*_patients_section(patients), _TAIL]
    text += ["## Commands\n", "The first seed of each; the others differ in `--seed`.\n", "```"]
    text += [cell.setting.command(WORLDS[cell.dataset], cell.epsilon, int(cell.rows[0]["seed"])) for cell in found]
    text += ["```", ""]
    folder.with_suffix(".md").write_text("\n".join(text), encoding="utf-8")


def _section(dataset: str, some: list[Cell]) -> list[str]:
    if not some:
        return [f"## {NAMES[dataset]}\n", "Not run yet.\n"]
    world = WORLDS[dataset]
    mirror = ", averaged over mirror images" if world.mirror else ""
    text = [
        f"## {NAMES[dataset]}\n",
        f"{world.clients:,} clients of ten pictures, front end `{world.front_end}` with {world.patterns}"
        f" patterns{mirror}.\n",
        "| ε, server and outsider | at most, each way | test accuracy | by seed | held-out | kB up | kB down |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in some:
        seeds = ", ".join(f"{score:.4f}" for score in cell.scores)
        said = f"{cell.mean:.4f} ± {cell.deviation:.4f}" if len(cell.rows) > 1 else f"{cell.mean:.4f}"
        sent = f"{cell.most('bytes_up') / 1000:.2f} | {cell.most('bytes_down') / 1000:.2f}"
        limit = f"{cell.limit / 1000:.2f} kB"
        shown = f"{cell.epsilon:g}"
        assert abs(cell.most("server_epsilon") - cell.most("outsider_epsilon")) < 1e-6
        assert cell.most("server_epsilon") <= cell.epsilon + 1e-9
        text.append(f"| {shown} | {limit} | **{said}** | {seeds} | {cell.rows[0]['held_out']} | {sent} |")
    text += [
        "",
        "| ε | at most | rounds | features | σ | λ | server_lr |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in some:
        s = cell.setting
        rest = f"{cell.rows[0]['sigma']} | {s.precondition:g} | {s.options['server_lr']:g}"
        text.append(f"| {cell.epsilon:g} | {cell.limit / 1000:.2f} kB | {s.rounds} | {s.features} | {rest} |")
    return [*text, ""]


def _patients(folder: Path) -> list[dict[str, Any]]:
    path = folder / "diabetes130.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [row for row in rows if row["step"] == "tested"]


def _patients_section(rows: list[dict[str, Any]]) -> list[str]:
    text = [
        "## diabetes130\n",
        "200 virtual hospitals, death in hospital, a logistic model on principal components of 750 public records"
        " (`--front-end pca`). The unit of ε is a whole hospital. Test patients are the same for all seeds.\n",
        "| ε, server and outsider | AUROC | by seed | components, rounds | kB up |",
        "| --- | --- | --- | --- | --- |",
    ]
    for epsilon in sorted({row["epsilon"] for row in rows}):
        some = [row for row in rows if row["epsilon"] == epsilon]
        scores = [row["auroc"] for row in some]
        chosen = some[0]["settings"]
        kilobytes = chosen["run.rounds"] * max(row["bytes_up"] for row in some) / 1000
        text.append(
            f"| {epsilon:g} | **{statistics.fmean(scores):.3f}** | {', '.join(f'{s:.3f}' for s in scores)} |"
            f" {chosen['front_end.features']}, {chosen['run.rounds']} | {kilobytes:.2f} |"
        )
    return [*text, "", "`python -m benchmarks.server_frontier.patients` makes these runs.", ""]


def draw_fashion(found: list[Cell], path: Path) -> None:
    """Fashion-MNIST: this edition, and the first one at the ε of both adversaries."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.2), layout="constrained")
    some = [cell for cell in found if cell.dataset == "fashion-mnist" and cell.limit == LIMITS[0]]
    label = "everyone in few rounds: ε of server and outsider"
    _line(axes, [c.epsilon for c in some], [c.mean for c in some], [c.deviation for c in some], label, 0)
    first = _first_edition()
    for place, (name, who) in enumerate((("server_epsilon", "the server"), ("released_epsilon", "an outsider")), 1):
        at = [statistics.fmean(float(row[name]) for row in rows) for rows in first]
        scores = [[float(row["accuracy"]) for row in rows] for rows in first]
        means, spread = [statistics.fmean(s) for s in scores], [statistics.stdev(s) for s in scores]
        _line(axes, at, means, spread, f"100 of 6,000 a round: ε of {who}", place)
    style = line_style(3) | {"linestyle": "none"}
    label = f"FL-TOP-DP as published (UAI'21), ε = {published_epsilon():.2f} of an outsider"
    axes.plot([published_epsilon()], [PUBLISHED], label=label, **style)
    axes.set(xscale="log", xlabel=_EPSILON, ylabel="accuracy on Fashion-MNIST's test pictures")
    axes.set_ylim(bottom=0.77)  # room for the legend
    ticks = (0.1, 0.25, 0.5, 1, 2, 4, 10, 40)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    _save(figure, axes, path)


def draw_all(found: list[Cell], patients: list[dict[str, Any]], path: Path) -> None:
    figure, axes = pyplot().subplots(figsize=(6.4, 4.2), layout="constrained")
    for place, dataset in enumerate(WORLDS):
        some = [cell for cell in found if cell.dataset == dataset and cell.limit == LIMITS[0]]
        if some:
            x, means = [c.epsilon for c in some], [c.mean for c in some]
            _line(axes, x, means, [c.deviation for c in some], f"{NAMES[dataset]}: accuracy", place)
    at = sorted({row["epsilon"] for row in patients})
    scores = [[row["auroc"] for row in patients if row["epsilon"] == epsilon] for epsilon in at]
    if at:
        means, spread = [statistics.fmean(s) for s in scores], [statistics.stdev(s) for s in scores]
        _line(axes, at, means, spread, "diabetes130: AUROC", len(WORLDS))
    axes.set(xscale="log", xlabel=_EPSILON, ylabel="test accuracy, or AUROC")
    ticks = (0.1, 0.25, 0.5, 1, 2, 4)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    _save(figure, axes, path)


def draw_bytes(found: list[Cell], path: Path) -> None:
    """Accuracy against bytes, one line for each ε that was run for several limits."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.2), layout="constrained")
    ours = [cell for cell in found if cell.dataset == "fashion-mnist"]
    several = [e for e in sorted({c.epsilon for c in ours}) if len([c for c in ours if c.epsilon == e]) > 1]
    for place, epsilon in enumerate(several):
        some = sorted((c for c in ours if c.epsilon == epsilon), key=lambda c: c.limit)
        sent = [c.most("bytes_up") for c in some]
        _line(axes, sent, [c.mean for c in some], [c.deviation for c in some], f"ε = {epsilon:g}", place)
    axes.set(xlabel="bytes sent up by a client in the whole run", ylabel="accuracy on Fashion-MNIST's test pictures")
    bytes_axis(axes)
    _save(figure, axes, path)


def _line(axes: Any, x: Iterable[float], means: Iterable[float], spread: Iterable[float], label: str, at: int) -> None:
    axes.errorbar(list(x), list(means), list(spread), capsize=3, label=label, **line_style(at))


def _first_edition() -> list[list[runs.Row]]:
    """Its test runs of the whole head, one list for each ε."""
    rows = [row for row in _lines(FIRST_EDITION) if row["judged_on"] == "test" and row["scheme"] == "fl-std-dp"]
    found: dict[float, list[runs.Row]] = {}
    for row in rows:
        found.setdefault(float(row["epsilon"]), []).append(row)
    for epsilon, some in found.items():
        chosen = max({row["features"] for row in some}, key=int) if epsilon == 1.0 else some[0]["features"]
        found[epsilon] = [row for row in some if row["features"] == chosen and row["downlink"] == "half"]
    return [found[epsilon] for epsilon in sorted(found)]


def _lines(path: Path) -> list[runs.Row]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot().close(figure)


_EPSILON = "ε, δ = 1e-5 (smaller is more private)"
_HEAD = """# The frontier against the server

Made by `python -m benchmarks.server_frontier --write` from the runs beside it; do not edit.

The server knows who took part in a round, so sampling does not protect clients against it. [The first
edition](frontier.md) has 100 of 6,000 clients a round: an ε of 1 against an outsider is one of 15 against the server.
Here every client takes part in each of few rounds. Both ε are then the same, and a client sends no more bytes.

What is trained is a linear layer behind a [public front end](../front-end.md) that is learnt from dead leaves alone,
images made from a seed. The server's rule is [`--precondition`](preconditioner.md). δ = 1e-5, noise on integers, ε by
the tight accountant. The unit is a client with all its records.

**How settings were chosen.** Without test pictures, but for [one change](#what-to-be-careful-about). A tenth of the
training pictures belonged to no client and judged {trials} settings, mean of two or four seeds. The other clients
trained with the noise that the whole federation would have. These runs are by Gram matrices with continuous noise
(`benchmarks/advise/heads.py`). The front end `patches` and its constants came from about sixty trials before, on
held-out pictures of Fashion-MNIST and CIFAR-10; these are not in the repository. All this looks at training data and
is not in the ε. Then all clients were run by `laconic.run` with three other seeds, and test pictures were looked at
once, after the last round. Accuracies are means of three seeds ± their standard deviation.

![Accuracy on Fashion-MNIST against the ε of both adversaries](frontier-server/epsilon.png)

![Accuracy or AUROC against ε for four data sets](frontier-server/datasets.png)

![Accuracy on Fashion-MNIST against bytes](frontier-server/bytes.png)
"""
_TAIL = """## Beside published figures

Published figures for CIFAR-10 without real public pictures are for one *record* and an outsider, with all pictures in
one place: 0.723 at ε = 1 with a network whose first layers are learnt from images of random processes (Tang et al.,
NeurIPS 2023; the best before was 0.606, by their abstract), and 0.814 at ε = 8 with a wide residual network (De et al.
2022). Ours protect a *client* with ten pictures, also against the server, and train a linear layer.

## What to be careful about

- Every test set here is public, and Fashion-MNIST's was looked at in the first edition. Settings were chosen without
  it, as said above.
- **The search was changed while results came in.** ε = 1 of Fashion-MNIST and CIFAR-10 within 110.88 kB was searched
  over about 24 settings. The search was then shortened to save time, and shortened again later, so `choose.py` as it is
  would not choose every setting above. All trials are in files beside this page.
- **One change followed test figures.** At ε = 0.1 within 110.88 kB the seeds of Fashion-MNIST differ by 0.017. After
  that was seen, settings for ε below 0.5 were judged by four seeds instead of two. So the choices for ε = 0.1 and 0.25
  within 222 kB, and for CIFAR-10 at these ε, were made by a rule that had seen test figures of another cell. No cell
  was run a second time.
- Which front end to use was decided on Fashion-MNIST and CIFAR-10. On MNIST nothing was decided but steps and rounds.
- Clients are random shards of pictures, so they are alike. Clients that differ have not been measured here.
"""
