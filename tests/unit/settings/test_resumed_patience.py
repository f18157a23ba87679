"""On resume a server may be more patient than before; what the run promises stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from laconic.errors import RunFolderError
from laconic.settings.build import resumed_config
from laconic.settings.config import RunConfig, write_toml
from laconic.store.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    config = RunConfig().with_values({"scheme.name": "fl-std-dp", "federation.round_timeout": 1.0})
    (tmp_path / "config.toml").write_text(write_toml(config.to_dict()))
    return RunFolder(tmp_path)


def test_timeouts_may_change_as_the_error_of_a_discarded_round_advises(folder: RunFolder) -> None:
    asked = {"federation.round_timeout": 60.0, "federation.join_timeout": 30.0, "federation.max_discarded": 5}
    resumed = resumed_config(folder, asked).federation
    assert (resumed.round_timeout, resumed.join_timeout, resumed.max_discarded) == (60.0, 30.0, 5)


@pytest.mark.parametrize("changed", [{"federation.nodes": 9}, {"sampler.max_dropouts": 2}, {"privacy.delta": 0.1}])
def test_what_nodes_agreed_to_may_not(folder: RunFolder, changed: dict[str, object]) -> None:
    with pytest.raises(RunFolderError, match="was started with"):
        resumed_config(folder, changed)
