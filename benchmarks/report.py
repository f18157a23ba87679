"""Write docs/results/performance.md from what `python -m benchmarks` measured. No figure is typed by hand.

    python -m benchmarks.report [docs/results/performance/*.json] [--out docs/results/performance.md]

The pictures go into the folder of the page's name.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.aims import check
from benchmarks.contest import ROOT

PAGE = ROOT / "docs" / "results" / "performance.md"

_HEAD = """# How fast

Made by `python -m benchmarks.report` from the files beside it, which `python -m benchmarks` wrote; do not edit.
Contenders take turns (A B C A B C …), each in a process of its own that has warmed up, while the others wait. Figures
are medians over the turns, with the fastest and the slowest; other load on a machine moves all of them, so compare
within a table. The page on engines says [where the time of a round goes](../engines.md), and why a figure misses its
aim.

```
python -m benchmarks.peers.setup    # environments of pfl, Flower, PyLBFGS, PyLops and OpenDP; each may be missing
python -m benchmarks --out docs/results/performance/cpu.json
python -m benchmarks --device cuda --out docs/results/performance/cuda.json
python -m benchmarks --only masks --out docs/results/performance/masks.json
LACONIC_BEFORE=../before python -m benchmarks --only w9 --repeats 3 --out docs/results/performance/everybody.json
python -m benchmarks.report
```
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, help="[docs/results/performance/*.json]")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    folder = options.out.with_suffix("")
    paths = options.results or sorted(folder.glob("*.json"))
    if not paths:
        parser.error(f"no results: run python -m benchmarks --out {folder}/cpu.json first")
    measured = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    options.out.write_text(page(measured, folder.name), encoding="utf-8")
    for name, results in measured.items():
        if growth := results["suites"].get("growth", {}).get("curves"):
            from benchmarks.growth_plot import draw

            folder.mkdir(exist_ok=True)
            draw(growth, folder / f"{name}-growth.png")
    print(f"wrote {options.out}")


def page(measured: dict[str, dict[str, Any]], folder: str) -> str:
    """The whole page; `measured` by name of the file."""
    sections = [_HEAD]
    for name, results in measured.items():
        where = "On a CPU" if results["device"] == "cpu" else "On a GPU"
        heading = where if name in ("cpu", "cuda") else f"{where}: {name}"
        sections += [f"## {heading}", about(results)]
        sections += aims(results)
        for suite in results["suites"].values():
            sections += section(suite, f"{folder}/{name}-growth.png")
    return "\n\n".join(part.strip() for part in sections) + "\n"


def about(results: dict[str, Any]) -> str:
    """The machine, the versions and the load, in words."""
    m = results["machine"]
    gpu = f"{m['gpu']} (CUDA {m['cuda']}) with " if "gpu" in m else ""
    loads = [s["load_after"] for s in results["suites"].values() if "load_after" in s]
    load = "Load was not recorded."
    if "load_before" in m and loads:
        load = f"Load average {m['load_before']:.1f} before, at most {max(loads):.1f} after a part, its own included."
    peers = ", ".join(f"{name} {version}" for name, version in results["peers"].items()) or "none"
    text = (
        f"{gpu}{m['cores']} cores, {m['cpu']}; torch's threads: {m['threads']}, unless a name says otherwise."
        f" Python {m['python']}, torch {m['torch']}, numpy {m['numpy']}; peers: {peers}. Turns: {results['repeats']}."
        f" {load}"
    )
    return text + (" **A smoke test: the figures mean nothing.**" if results["quick"] else "")


def aims(results: dict[str, Any]) -> list[str]:
    rows = [(a.what, a.measured, a.aim, "yes" if a.met else "**no**") for a in check(results)]
    return ["### Aims", table(("what", "measured", "aim", "met"), rows)] if rows else []


def section(suite: dict[str, Any], picture: str) -> list[str]:
    parts = [f"### {suite['title']}"]
    if "left_out" in suite:
        return [*parts, f"Left out: {suite['left_out']}."]
    parts.append(suite["about"])
    if "curves" in suite:
        return [*parts, f"![Seconds and memory]({picture})", *(growth_table(curve) for curve in suite["curves"])]
    if "tables" in suite:
        for part in suite["tables"]:
            parts += [part["caption"], table(part["headings"], part["rows"])]
        return parts
    if suite["contenders"]:
        parts.append(contest_table(suite))
    if commands := suite.get("commands"):
        parts.append("```\n" + "\n".join(commands.values()) + "\n```")
    if suite["skipped"]:
        parts.append("Left out: " + "; ".join(f"{name} ({why})" for name, why in suite["skipped"].items()) + ".")
    return parts


def contest_table(suite: dict[str, Any]) -> str:
    """Median, range, ratio to ours; and where they were measured, memory and objective."""
    rows = suite["contenders"]
    ours = next((row["median"] for row in rows if row["name"] == suite.get("ours")), None)
    unit, scale = ("ms", 1e3) if max(row["median"] for row in rows) < 1 else ("s", 1.0)
    reference = next((row["objective"] for row in rows if row["group"].startswith("PyLBFGS")), None)
    columns: list[tuple[str, list[str]]] = [
        ("", [row["name"] for row in rows]),
        (unit, [figure(row["median"] * scale) for row in rows]),
        ("fastest – slowest", [f"{figure(min(t) * scale)} – {figure(max(t) * scale)}" for t in _seconds(rows)]),
    ]
    if ours is not None and len(rows) > 1:
        columns.append((f"times *{suite['ours']}*", [figure(row["median"] / ours) for row in rows]))
    if reference is not None:
        columns.append(("objective, of OWL-QN's", [f"{row['objective'] / reference:.4f}" for row in rows]))
    for key, heading in (("peak_mb", "peak MB, all its processes"), ("gpu_mb", "peak MB on the GPU")):
        if any(key in row for row in rows):
            columns.append((heading, [f"{row[key]:,.0f}" if key in row else "" for row in rows]))
    return table([heading for heading, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)))


def growth_table(curve: dict[str, Any]) -> str:
    rows = [(f"{p['x']:,}", figure(p["seconds"]), f"{p['peak_mb']:,.0f}") for p in curve["points"]]
    return f"{curve['about'][0].upper()}{curve['about'][1:]}:\n\n" + table((curve["axis"], "s", "peak MB"), rows)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(value: float) -> str:
    """Three significant digits, and all of a larger number's before the point."""
    return f"{value:,.0f}" if value == 0 or abs(value) >= 100 else f"{value:#.3g}".rstrip(".")


def _seconds(rows: list[dict[str, Any]]) -> list[list[float]]:
    return [row["seconds"] for row in rows]


if __name__ == "__main__":
    main()
