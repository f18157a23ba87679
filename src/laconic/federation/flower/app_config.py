"""The run configuration of a Flower app as a laconic configuration: the same sections, under `[tool.flwr.app.config]`.

Instead of the sections there may be one text, `config`, with all of them as TOML. Beside either, an app may set `out`
(the run folder, on the server), `resume`, `server-key` (a file), and `key-file` or `passphrase-file`, which opens that
file if it is encrypted. Keys under `app` are the app's own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from laconic.settings.config import RunConfig

OWN_KEYS = ("out", "resume", "server-key", "key-file", "passphrase-file")


def config_of(run_config: Mapping[str, Any]) -> RunConfig:
    """The sections of a run configuration, which Flower writes as `section.key`."""
    if "config" in run_config:
        return RunConfig.from_dict(tomllib.loads(str(run_config["config"])))
    sections: dict[str, Any] = {}
    for path, value in run_config.items():
        section, dot, key = path.partition(".")
        if path in OWN_KEYS or section == "app":
            continue
        if dot:
            sections.setdefault(section, {})[key] = value
        else:
            sections[section] = value
    return RunConfig.from_dict(sections)
