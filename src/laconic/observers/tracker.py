"""`--track`: a run in a tool for experiments. Only what is released leaves. Where a tool fails, the run goes on.

An adapter is a few lines: `open`, `log`, `keep`, `close`. It is imported when it is asked for.
"""

from __future__ import annotations

import html
import importlib
import json
import logging
import re
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, how_to_install
from laconic.observers.observer import Ended, Observer, Row, Started
from laconic.privacy.released import Summary, released_row, released_summary
from laconic.registry import Registry
from laconic.report.model_card import model_card

TRACKERS = Registry("tracker", {name: f"laconic.observers.to_{name}" for name in ("tensorboard", "mlflow", "wandb")})
"""The modules of the adapters: each is imported when it is asked for, as it needs a library of its own."""
MEMORY = "tracking.json"
"""In a run folder: what a tool calls the run, so that a resumed one goes on under the same name."""
_HARMLESS = re.compile(r"[\w .,:+=()-]{0,80}")
"""Words for parameters: names and numbers, but no paths and no addresses."""
_PATH = re.compile(r"[/\\]|.[.:].{2}")
"""What may be a path, a file or an address."""


class Tracker(Observer):
    """Hands released values to a tool. `about` are parameters that only the caller knows, such as the data set."""

    name = ""
    shows_arrival = False
    """Whether others see when a row arrives. The rows of a private run are then handed over at its end."""

    def __init__(self, about: Mapping[str, str]) -> None:
        self._about, self._private, self._broken = dict(about), True, False
        self._began, self._last = time.time(), 0
        self._later: list[tuple[int, dict[str, float]]] = []

    # What an adapter says.

    def open(self, run: Started, parameters: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        """Begin, or go on with the run that is `known` by what this returned the last time."""
        raise NotImplementedError

    def log(self, step: int, values: dict[str, float]) -> None:
        raise NotImplementedError

    def keep(self, file: Path) -> None:
        """Store a file with the run."""
        raise NotImplementedError

    def close(self, status: str) -> None:
        raise NotImplementedError

    def clock(self, step: int) -> float:
        """When a round ended. In a private run rounds are a second apart: times would show the sizes of cohorts."""
        return self._began + step if self._private else time.time()

    @property
    def _stops_early(self) -> bool:
        """Whether held-out records may end the run. Its ε is that of all planned rounds; no row has a smaller one."""
        return self._started.settings.get("run.patience") is not None

    @property
    def closed_at(self) -> float:
        """When the run ended, by the same clock."""
        return self.clock(self._last)

    # What a run tells.

    def start(self, run: Started) -> None:
        self._private, self._started = run.private, run
        parameters = released_settings(run.settings | self._about, private=run.private)
        memory = None if run.folder is None else run.folder / MEMORY
        known = _remembered(memory, self.name)
        found = self._tried(lambda: self.open(run, parameters, known.get(self.name, {})))
        if memory is not None and found:
            memory.write_text(json.dumps(known | {self.name: found}) + "\n", encoding="utf-8")

    def row(self, row: Row) -> None:
        values = released_row(row, private=self._private)
        self._last = step = int(values.pop("round"))
        if self._stops_early:
            values.pop("epsilon", None)
        if self._private and self.shows_arrival:
            self._later.append((step, values))
        else:
            self._tried(lambda: self.log(step, values))

    def end(self, run: Ended) -> None:
        if run.summary is not None and self._private and self._stops_early:
            self._later.append((self._last, {"epsilon": run.summary["last"]["epsilon"]}))
        for step, values in self._later:
            self._tried(partial(self.log, step, values))
        if run.summary is not None:
            with tempfile.TemporaryDirectory() as folder:
                for file in self._tried(partial(self._files, run.summary, Path(folder))) or ():
                    self._tried(partial(self.keep, file))
        self._tried(lambda: self.close(run.status))

    def _files(self, summary: Summary, folder: Path) -> list[Path]:
        """Statement and report. For a private run the report is its card, without what only the server may know."""
        statement, card = folder / "statement.json", folder / "report.md"
        shared = released_summary(summary)["statement"]
        statement.write_text(json.dumps(shared, indent=2), encoding="utf-8")
        run = self._started
        facts = {"scheme": summary["scheme"], "fingerprint": run.fingerprint, "rounds": str(summary["rounds"])}
        card.write_text(model_card(summary, facts, released_only=self._private), encoding="utf-8")
        page = None if run.folder is None or self._private else run.folder / "report.html"
        if page is None or not page.exists():
            return [statement, card]
        copy = folder / page.name
        copy.write_text(_without_paths(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")
        return [statement, card, copy]

    def _tried(self, call: Callable[[], Any]) -> Any:
        """Call the tool. One that fails must not end a run whose privacy is spent."""
        if self._broken:
            return None
        try:
            return call()
        except Exception as error:
            self._broken = True
            logging.getLogger("laconic").warning(
                "%s fails, and the run goes on without it: %s: %s", self.name, type(error).__name__, error
            )
            return None


def released_settings(settings: Mapping[str, Any], *, private: bool) -> dict[str, Any]:
    """Parameters that may leave: no seed of a private run, and no text that could be a path or an address."""
    return {
        name: value
        for name, value in settings.items()
        if not (private and name.rpartition(".")[2] == "seed")
        and (not isinstance(value, str) or _HARMLESS.fullmatch(value))
    }


def _without_paths(page: str, folder: Path) -> str:
    """The report without the files and folders that its configuration names."""
    config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    texts = [v for section in config.values() if isinstance(section, dict) for v in section.values()]
    texts += [str(folder), str(folder.resolve())]
    paths = {text for text in texts if isinstance(text, str) and _PATH.search(text)}
    for path in sorted(paths, key=len, reverse=True):
        for written in (path, json.dumps(path, ensure_ascii=False)[1:-1]):
            page = page.replace(html.escape(written), "…").replace(written, "…")
    return page


def tracker(name: str, about: Mapping[str, str] | None = None) -> Tracker:
    """The adapter of that name; an error that says what to install where its library is missing."""
    place = TRACKERS.find(name)
    try:
        module = importlib.import_module(place)
    except ImportError:
        raise ConfigError(f"⟨track⟩ {name} needs {name}: {how_to_install(name)}") from None
    found: Tracker = module.TRACKER(about or {})
    return found


def _remembered(file: Path | None, name: str) -> dict[str, Any]:
    try:
        found = {} if file is None else json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get(name, {}), dict) else {}
