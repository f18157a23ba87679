"""A run folder as a page needs it: finished, running, half written, or not there yet; and its metrics by name."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, unknown
from laconic.metrics import MAIN, columns, titles
from laconic.privacy.released import Row

FILES = (
    "config.toml",
    "rounds.jsonl",
    "privacy.json",
    "summary.json",
    "figures.json",
    "failure.json",
    "notices.jsonl",
)
"""All that is ever read of a run folder."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    """What the files of a run say. Nothing in it is trusted to be of the right kind: `number` and `section` look."""

    name: str
    path: str
    config: Mapping[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    statement: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    failure: Mapping[str, Any] = field(default_factory=dict)
    notices: list[dict[str, Any]] = field(default_factory=list)
    doubt: str = ""
    """What of it could not be checked against digests."""
    refused: str = ""
    """Why nothing of it is shown."""
    written: float | None = None
    """When the last row came, in seconds since 1970."""

    @property
    def private(self) -> bool:
        return self.statement.get("private") is True

    @property
    def planned(self) -> int | None:
        """How many rounds were asked for."""
        asked = number(section(self.config, "run"), "rounds")
        return None if asked is None else int(asked)

    @property
    def finished(self) -> bool:
        """Whether the run ended by itself, and was not gone on with since."""
        done = number(self.summary, "rounds")
        return done is not None and (not self.rows or done >= self.rows[-1]["round"])

    @property
    def federated(self) -> bool:
        return "federation" in self.config

    @property
    def broken(self) -> bool:
        """Whether attackers left out noise that the ε of the statement count on."""
        attack = section(self.statement, "attack")
        return bool(attack) and attack.get("holds") is not True

    def stated(self, name: str) -> float | None:
        """The ε of the statement against 'released' (an outsider) or 'participant' (the server); None without one.

        Where attackers left out noise, that of the noise that was left.
        """
        part = section(self.statement, name)
        figures = section(section(self.statement, "attack"), name) if self.broken else section(part, "epsilon")
        return number(figures, str(part.get("accountant")))

    def epsilon(self, name: str) -> float | None:
        """The ε of all that is known to be spent; None where none is known to hold.

        A statement is written with every checkpoint, a row after every round. So of a run that goes on or was killed
        the last rows may say more than the statement: the larger figure counts.
        """
        stated = self.stated(name)
        if self.broken and stated is None:
            return None
        rows = [value for row in self.rows if (value := number(row, _ROWS_CALL_IT[name])) is not None]
        return max((value for value in (stated, *rows) if value is not None), default=None)

    def epsilons(self) -> tuple[float | None, float | None]:
        """The outsider's and the server's."""
        return self.epsilon("released"), self.epsilon("participant")

    def pairs(self, name: str) -> list[tuple[float, float]]:
        """(ε, δ) pairs against an adversary: that of all that is spent, and the others of the same run if known.

        Figures of a run that was gone on with since are of fewer rounds, so they do not count: the first pair is not
        among them.
        """
        epsilon, delta = self.epsilon(name), number(self.statement, "delta")
        if epsilon is None or delta is None or not _is_pair(epsilon, delta):
            return []
        found = section(self.figures, "trade_off").get(name)
        rows = [row for row in found if isinstance(row, list) and len(row) == 2] if isinstance(found, list) else []
        known = [(_finite(row[0]), _finite(row[1])) for row in rows]
        others = [(e, d) for e, d in known if e is not None and d is not None and _is_pair(e, d)]
        same = any(d == delta and math.isclose(e, epsilon, rel_tol=1e-9) for e, d in others)
        return [(epsilon, delta), *(others if same else [])]


_ROWS_CALL_IT = {"released": "epsilon", "participant": "participant_epsilon"}


def _is_pair(epsilon: float, delta: float) -> bool:
    return epsilon >= 0 and 0 <= delta <= 1


def number(row: Mapping[str, Any], key: str) -> float | None:
    """A finite number; None where there is none."""
    return _finite(row.get(key))


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    whole = isinstance(value, int)
    return value if (abs(value) < 10**_DIGITS if whole else math.isfinite(value)) else None


def section(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A table of values; an empty one where there is none."""
    found = values.get(key)
    return found if isinstance(found, Mapping) else {}


def texts(values: Mapping[str, Any], key: str) -> list[str]:
    """A list of sentences."""
    found = values.get(key)
    return [str(text) for text in found] if isinstance(found, list | tuple) else []


def read_run(folder: Path) -> RunView:
    """What is there now. A file that is missing, damaged or not yet whole counts as not there."""
    rows_file = folder / "rounds.jsonl"
    try:
        written = rows_file.stat().st_mtime
    except OSError:
        written = None
    rows = [row for row in _rows(rows_file) if isinstance(row.get("round"), int)]
    return RunView(
        name=folder.resolve().name or str(folder),
        path=str(folder),
        config=_toml(folder / "config.toml"),
        rows=sorted(rows, key=lambda row: row["round"]),
        statement=_json(folder / "privacy.json"),
        summary=_json(folder / "summary.json"),
        figures=_json(folder / "figures.json"),
        failure=_json(folder / "failure.json"),
        notices=_rows(folder / "notices.jsonl"),
        written=written,
    )


_LARGEST = 1 << 30
"""Bytes of a file that are read; a larger one is none of a run."""
_DIGITS = 18


def _text(path: Path) -> str:
    try:  # a pipe or a device would never end
        there = path.is_file() and path.stat().st_size <= _LARGEST
        return path.read_text(encoding="utf-8", errors="replace") if there else ""
    except (OSError, ValueError):
        return ""


def _parsed(text: str) -> Any:
    """JSON; a whole number of more digits than anything counts up to is not a number. ValueError if it is not JSON."""
    try:
        return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= _DIGITS else math.nan)
    except RecursionError:
        raise ValueError("nested without end") from None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = _parsed(_text(path) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _rows(path: Path) -> list[Row]:
    """All whole rows; the last one may still be in writing."""
    found = []
    for line in _text(path).split("\n"):
        try:
            row = _parsed(line) if line else None
        except ValueError:
            continue
        if isinstance(row, dict):
            found.append(row)
    return found


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except (ValueError, RecursionError):
        return {}


def spelt(name: str) -> str:
    """A metric's name as rows call it: 'Balanced-Accuracy' → 'balanced_accuracy'."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def present(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics that some row has."""
    known = titles()
    found = {key for row in rows for key in known if number(row, key) is not None}
    return [key for key in known if key in found]


def smaller_is_better(metric: str) -> bool:
    found = columns().get(metric)
    return found is not None and found.smaller_is_better


def curve(rows: Iterable[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """(round, value) of every evaluated round."""
    return [(row["round"], value) for row in rows if (value := number(row, metric)) is not None]


def best(rows: Iterable[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    """(round, value) of the best evaluated round; the first of several."""
    sign = 1 if smaller_is_better(metric) else -1
    return min(curve(rows, metric), key=lambda point: sign * point[1], default=None)


def main_metric(view: RunView) -> str | None:
    """AUROC where there is one, else accuracy, else the loss."""
    return next((key for key in (*MAIN, *titles()) if key in present(view.rows)), None)


def common_metric(histories: Sequence[Sequence[Mapping[str, Any]]]) -> str | None:
    """One for all runs: the first of AUROC, accuracy and loss that every evaluated run has, else what most have."""
    found = [present(rows) for rows in histories]
    known = [names for names in found if names]
    choices = [*MAIN, *titles()]
    for metric in choices:
        if known and all(metric in names for names in known):
            return metric
    return max(choices, key=lambda metric: sum(metric in names for names in known)) if known else None


def asked_metric(histories: Sequence[Sequence[Mapping[str, Any]]], asked: str | None) -> str | None:
    """What `--metric` asks for, spelt as in the rows, if some run has it; else one for all runs."""
    if asked is None:
        return common_metric(histories)
    metric = spelt(asked)
    there = [name for name in titles() if any(name in present(rows) for rows in histories)]
    if metric not in titles():
        raise ConfigError(f"⟨metric⟩: {unknown('metric', asked, there or titles())}")
    if metric not in there:
        raise ConfigError(f"⟨metric⟩ {asked}: none of these runs has it; they have {', '.join(there) or 'none'}")
    return metric


def sent_up(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Bytes of all clients, up to and with each round."""
    total, found = 0.0, {}
    for row in rows:
        total += number(row, "bytes_up") or 0.0
        found[row["round"]] = total
    return found


def budget_of(view: RunView) -> tuple[float | None, float | None]:
    """The limits on the outsider's and the server's ε."""
    limits = section(view.statement, "budget") or section(view.config, "privacy")
    return number(limits, "epsilon"), number(limits, "participant_epsilon")


def short(value: float) -> str:
    """A figure with three digits that mean something."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.3f}" if 0.001 <= abs(value) < 10 else f"{value:.3g}"
