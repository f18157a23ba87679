"""The page about pictures at record level, and its picture, from the files of runs and nothing else.

python -m benchmarks.units_frontier.page
"""

from __future__ import annotations

import ast
import csv
import statistics
import textwrap
from collections.abc import Iterable
from pathlib import Path

from benchmarks.units_frontier.heads import DRAWN, EPSILONS, OUT, OWNERS, WORLDS

PAGE = OUT.with_suffix(".md")
NAMES = {"fashion-mnist": "Fashion-MNIST", "mnist": "MNIST", "cifar10": "CIFAR-10"}
_COLOURS = {"fashion-mnist": ("#0072B2", "o"), "mnist": ("#009E73", "s"), "cifar10": ("#D55E00", "^")}
Row = dict[str, str]


def read(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def page(runs: dict[str, list[Row]], clients: dict[str, list[Row]], networks: list[Row], speed: list[Row]) -> str:
    sections = [_head(), _heads(runs, clients), _owners(runs), _networks(networks), _speed(speed), _chosen(runs)]
    return "\n\n".join(section for section in [*sections, _careful(runs)] if section) + "\n"


def _head() -> str:
    return "\n\n".join(
        [
            "# Pictures at record level: one picture is protected, in the hands of ten owners",
            _filled(
                "Ten owners train one model on pictures. Nobody but the owner of a picture can tell well whether it was"
                " used: the noise that one picture needs is added once, in shares, to the masked sum of all owners"
                " (`--unit record`). Here is which accuracy comes with which ε. All owners take part in every round, so"
                " ε is the same against the server and an outsider. An owner as a whole has no protection."
            ),
            _filled(
                "What is trained is a linear layer behind a [public front end](../front-end.md), which is learnt from"
                " dead leaves alone: pictures made from a seed. No real public picture is used. δ = 10⁻⁵, noise on"
                " integers as for masked sums, ε by the tight accountant."
            ),
            "![Test accuracy against ε](patients-and-records/accuracy.png)",
        ]
    )


def _heads(runs: dict[str, list[Row]], clients: dict[str, list[Row]]) -> str:
    lines = [
        "## Test accuracy",
        "",
        "| data set | ε | one picture is protected | by seed | held-out pictures | a client with ten pictures is |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, rows in runs.items():
        for epsilon in _epsilons(rows):
            some = [row for row in _ours(rows) if float(row["epsilon"]) == epsilon]
            scores = [float(row["accuracy"]) for row in some]
            others = [float(row["accuracy"]) for row in clients.get(name, []) if float(row["asked"]) == epsilon]
            shown = f"{_most(clients[name], epsilon):.4f}" if others else "–"
            each = ", ".join(f"{score:.4f}" for score in scores)
            lines.append(
                f"| {NAMES[name]} | {epsilon:g} | **{_spread(scores)}** | {each} | {float(some[0]['held_out']):.4f} |"
                f" {shown} |"
            )
    return "\n".join(
        [
            *lines,
            "",
            _filled(
                "Means of seeds ± their standard deviation. The last column is [the frontier against the"
                " server](frontier-server.md) at the same ε: 5,000 or 6,000 clients with ten pictures each, of which a"
                " whole client is protected."
            ),
        ]
    )


def _owners(runs: dict[str, list[Row]]) -> str:
    """Whether the number of owners changes a run."""
    found = []
    for name, rows in runs.items():
        for row in rows:
            if row["owners"] == str(OWNERS):
                continue
            twin = [o for o in _ours(rows) if (o["epsilon"], o["seed"]) == (row["epsilon"], row["seed"])]
            if twin:
                same = "the same weights, bit for bit" if twin[0]["digest"] == row["digest"] else "other noise"
                found.append(
                    f"{NAMES[name]} at ε = {float(row['epsilon']):g}: {twin[0]['accuracy']} with {OWNERS} owners,"
                    f" {row['accuracy']} with {row['owners']} ({same})"
                )
    if not found:
        return ""
    return "## Ten or a hundred owners\n\n" + _filled(
        "The sum of all clipped gradients does not depend on who holds which picture; a test compares the bits. What"
        " differs is the noise that a seed draws. " + "; ".join(found) + "."
    )


def _networks(rows: list[Row]) -> str:
    tested = [row for row in rows if row["step"] == "tested"]
    if not tested:
        return ""
    lines = ["| data set | ε | test accuracy | by seed | batch, rounds |", "| --- | --- | --- | --- | --- |"]
    for dataset in sorted({row["dataset"] for row in tested}):
        for epsilon in sorted({float(row["epsilon"]) for row in tested}):
            some = [r for r in tested if r["dataset"] == dataset and float(r["epsilon"]) == epsilon]
            if some:
                scores = [float(row["accuracy"]) for row in some]
                each = ", ".join(f"{score:.4f}" for score in scores)
                lines.append(
                    f"| {NAMES[dataset]} | {epsilon:g} | **{_spread(scores)}** | {each} | {some[0]['batch']},"
                    f" {some[0]['rounds']} |"
                )
    return "\n".join(
        [
            "## A network from its random start",
            "",
            _filled(
                "Two convolutions and two dense layers with tanh (63,786 weights at 28 × 28 pixels), without any front"
                " end. Each owner draws its own batch by secret coins, so amplification by sampling counts against the"
                " server, too. Ten owners; settings are chosen on held-out pictures. Machine:"
                f" {_machine(tested[0]['machine'])}."
            ),
            "",
            *lines,
            "",
            "Every run is in [networks.csv](patients-and-records/networks.csv):"
            " `python -m benchmarks.units_frontier.networks`.",
        ]
    )


def _speed(rows: list[Row]) -> str:
    """A table for each machine."""
    if not rows:
        return ""
    lines = ["## What clipping single records costs in time", ""]
    lines.append(
        "Fastest of 60 rounds on the GPU, of 100 on the processor, which had other work to do at the same time."
    )
    for machine in dict.fromkeys(row["machine"] for row in rows):
        about = ast.literal_eval(machine)
        how = "cuda --repeats 60" if about.get("gpu") else f"cpu --threads {about['threads']} --repeats 100"
        lines += ["", f"{_machine(machine)}: `python -m benchmarks.units --device {how}`", ""]
        lines += ["| round | units | ms | without a clip, ms | ratio |", "| --- | --- | --- | --- | --- |"]
        for row in rows:
            if row["machine"] == machine:
                lines.append(
                    f"| {row['round']} | {int(row['units']):,} | {row['wall_ms']} | {row['without_clip_ms'] or '–'} |"
                    f" {row['ratio'] or '–'} |"
                )
    return "\n".join(lines)


def _chosen(runs: dict[str, list[Row]]) -> str:
    lines = [
        "## Settings",
        "",
        _filled(
            f"{DRAWN} settings for each ε (on MNIST 8) were drawn from a grid and judged on a tenth of the training"
            " pictures, which trained nothing; the three best were judged again with three seeds of the noise. Then"
            " each choice was run once for each of three other seeds with all training pictures."
        ),
        "",
        "| data set | ε | rounds | components | ridge | S | step size | momentum | `--precondition` | mean of | σ |",
        "| --- |" + " --- |" * 10,
    ]
    for name, rows in runs.items():
        for epsilon in _epsilons(rows):
            row = next(row for row in _ours(rows) if float(row["epsilon"]) == epsilon)
            step = float(row["reach"]) * (1 - float(row["momentum"])) / float(row["clip_norm"])
            lines.append(
                f"| {NAMES[name]} | {epsilon:g} | {row['rounds']} | {row['features']} | {row['ridge']} |"
                f" {float(row['clip_norm']):g} | {step:.4g} | {row['momentum']} | {row['precondition'] or '–'} |"
                f" {row['average_last']} | {float(row['sigma']):.2f} |"
            )
    lines += [
        "",
        "```",
        "python -m benchmarks.units_frontier.heads                             # goes on where it was stopped",
        "python -m benchmarks.units_frontier.heads --owners 100 --epsilon 1    # the same with 100 owners, one seed",
        "python -m benchmarks.units_frontier.page                              # this page",
        "```",
        "",
        "Every trial and run is in the folder `patients-and-records` beside this page.",
    ]
    return "\n".join(lines)


def _careful(runs: dict[str, list[Row]]) -> str:
    said = [
        "Choosing settings looks at training pictures, which is not counted in ε.",
        "The ranges of the grid come from about a hundred trials before, on held-out pictures of Fashion-MNIST. The"
        " front ends are those of [the frontier against the server](frontier-server.md), with more patterns on CIFAR-10"
        f" ({WORLDS['cifar10'].patterns}).",
        "On MNIST a first grid with S from 3 to 10 was given up after eight settings, since client level was better;"
        " its trials on held-out pictures are in mnist-first-trials.csv. The network's first grid had shorter steps,"
        " and the best was at its edge; its trials are in networks.csv.",
        "On CIFAR-10 the front end is made once, from the seed of the first test run, and the seeds differ in the noise"
        " and in who holds which picture. On the others every seed has a front end of its own.",
        "Test pictures of all three data sets had been looked at in earlier studies of this project.",
    ]
    missing = [f"{NAMES[n]} at ε = {e:g}" for n, rows in runs.items() for e in EPSILONS if e not in _epsilons(rows)]
    if missing:
        said.append(f"Not run: {', '.join(missing)}.")
    return "## What to be careful about\n\n" + "\n".join(
        textwrap.fill(f"- {one}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for one in said
    )


def draw(runs: dict[str, list[Row]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator

    figure, axis = pyplot.subplots(figsize=(6.4, 4.4))
    for name, rows in runs.items():
        epsilons = _epsilons(rows)
        scores = [[float(r["accuracy"]) for r in _ours(rows) if float(r["epsilon"]) == e] for e in epsilons]
        means = [statistics.fmean(some) for some in scores]
        bars = [
            [mean - min(some) for mean, some in zip(means, scores, strict=True)],
            [max(some) - mean for mean, some in zip(means, scores, strict=True)],
        ]
        colour, marker = _COLOURS[name]
        axis.errorbar(epsilons, means, bars, color=colour, marker=marker, capsize=3, label=NAMES[name])
    axis.set_xscale("log")
    axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("ε for one picture, server and outsider (smaller protects more)")
    axis.set_ylabel("test accuracy")
    axis.set_title("Ten owners, linear layer behind a public front end\n(bars: lowest to highest of three seeds)")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _ours(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["owners"] == str(OWNERS)]


def _epsilons(rows: list[Row]) -> list[float]:
    return sorted({float(row["epsilon"]) for row in _ours(rows)})


def _most(rows: list[Row], epsilon: float) -> float:
    """The mean accuracy at this ε within the larger limit of bytes that was run."""
    limit = max(int(row["limit"]) for row in rows if float(row["asked"]) == epsilon)
    return statistics.fmean(
        float(row["accuracy"]) for row in rows if float(row["asked"]) == epsilon and int(row["limit"]) == limit
    )


def _spread(scores: list[float]) -> str:
    deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
    fewer = "" if len(scores) == 3 else f" ({len(scores)} of 3 seeds)"
    return f"{statistics.fmean(scores):.4f} ± {deviation:.4f}{fewer}"


def _machine(said: str) -> str:
    """The device and torch's version, from what `benchmarks.machine` says."""
    about = ast.literal_eval(said)
    return f"{about.get('gpu') or about['cpu']}, torch {about['torch']}"


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    found = {name: read(OUT / f"{name}-runs.csv") for name in NAMES}
    runs = {name: rows for name, rows in found.items() if _ours(rows)}
    clients = {name: read(OUT.with_name("frontier-server") / f"{name}-runs.csv") for name in NAMES}
    text = page(runs, clients, read(OUT / "networks.csv"), read(OUT / "units.csv") + read(OUT / "units-cpu.csv"))
    PAGE.write_text(text, encoding="utf-8")
    draw(runs, OUT / "accuracy.png")


if __name__ == "__main__":
    main()
