"""A settled configuration and a folder: what is written there, and which options may differ when a run goes on."""

from __future__ import annotations

import math
from typing import Any

from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, RunFolderError
from laconic.models.registry import MODELS
from laconic.observers.observer import Observer
from laconic.observers.tracker import tracker
from laconic.settings.build import Settled
from laconic.settings.config import AUTO, RunConfig, read_toml, write_toml
from laconic.settings.data.record_kind import FILE, record_kind
from laconic.store.folder import RunFolder


def files_of(settled: Settled) -> dict[str, str]:
    """What a run folder says of the run: its configuration, what a record is or how it was prepared, words of texts."""
    files = {"config.toml": write_toml(settled.config.to_dict())}
    if settled.preprocessing is not None:
        files["preprocessing.toml"] = settled.preprocessing.schema.to_toml()
    else:
        files[FILE] = record_kind(settled.config.data, settled.federation).to_toml()
    wording = settled.federation.wording
    if wording is not None and wording.listed:
        files["vocabulary.txt"] = "".join(f"{word}\n" for word in wording.listed)
    return files


def tracked(config: RunConfig) -> Observer:
    """The tool that follows the run, if one is asked for. It learns the names of data and model, if they have any."""
    if config.run.track is None:
        return Observer()
    data = config.data.dataset if config.data.dataset in SOURCES else "own data"
    model = config.model.name if config.model.name in MODELS else "own model"
    return tracker(config.run.track, {"data.dataset": data, "model.name": model})


_CAME_TO = (("model", "name", "auto"), ("run", "best_by", "auto"), ("secagg", "noise_draws", "auto"))
"""What a run was asked for and settled itself: to ask for it again is no change."""
_MAY_CHANGE = ("join_timeout", "round_timeout", "max_discarded", "metrics_port", "log_file")


def resumed_config(folder: RunFolder, asked: dict[str, Any]) -> RunConfig:
    """The folder's configuration. Only the number of rounds may be raised, and a server's patience and who watches may
    be others, which are no part of the mechanism; any other difference is refused."""
    try:
        stored = RunConfig.from_dict(read_toml(folder.path / "config.toml"))
    except ConfigError as error:
        raise RunFolderError(f"{folder.path}/config.toml is damaged ({error}): restore it or start a new run") from None
    if asked.get("scheme.name") == AUTO:  # it has chosen: what is asked besides must be what it was asked for
        columns = ("data.target", "data.patient_column", "data.client_column")  # they are in the schema now
        asked = {path: value for path, value in asked.items() if path != "scheme.name" and path not in columns}
        asked = {path: value for path, value in asked.items() if not path.startswith("auto.") and value != math.inf}
    # Through RunConfig, so that 1 and 1.0, defaults and spellings compare alike.
    wanted = stored.with_values(asked).to_dict()
    have = stored.to_dict()
    changes: list[str] = []
    for section, values in wanted.items():
        for key, value in values.items():
            if have[section].get(key) == value:
                continue
            if (section, key, value) in _CAME_TO:
                continue
            if (section, key) == ("scheme", "clip_norm") and have["privacy"].get("clip_norm_from") == value:
                continue
            if (section, key) == ("run", "rounds") and value > have["run"]["rounds"]:
                stored = stored.with_values({"run.rounds": value})
                continue
            if (section, key) == ("run", "track"):  # who watches makes no other run
                stored = stored.with_values({"run.track": value})
                continue
            if section == "federation" and key in _MAY_CHANGE:
                stored = stored.with_values({f"federation.{key}": value})
                continue
            changes.append(f"{section}.{key} = {have[section].get(key)!r}, not {value!r}")
    if changes:
        raise RunFolderError(
            f"{folder.path} was started with {'; '.join(changes)}: resume with the same options (only ⟨rounds⟩ may"
            " grow), or choose another ⟨out⟩"
        )
    return stored
