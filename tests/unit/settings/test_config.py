"""The configuration: TOML in and out, --set, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from laconic.errors import ConfigError
from laconic.settings.config import RunConfig, parse_set, parse_value, read_toml, write_toml

ALL = RunConfig().with_values(
    {"scheme.name": "fl-std-dp", "scheme.clip_norm": 0.5, "data.dataset": 'a "b" \\ c', "sampler.sampling_rate": 1 / 60}
)


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(write_toml(ALL.to_dict()))
    assert RunConfig.from_dict(read_toml(path)) == ALL


def test_values() -> None:
    assert parse_value("1/60") == 1 / 60
    assert parse_value("3") == 3
    assert parse_value("1e-5") == 1e-5
    assert parse_value("true") is True
    assert parse_value("adam") == "adam"
    assert parse_set("rounds=7") == ("run.rounds", 7)
    assert parse_set("clip_norm=0.5") == ("scheme.clip_norm", 0.5)
    assert parse_set("sampler.kind=fixed-size") == ("sampler.kind", "fixed-size")
    assert RunConfig().with_values({"sampler.sampling_rate": "1/60"}).sampler.sampling_rate == 1 / 60


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rn": {}}, "did you mean 'run'"),
        ({"run": {"round": 3}}, "did you mean 'rounds'"),
        ({"run": {"rounds": "many"}}, "run.rounds must be a whole number"),
        ({"run": {"rounds": True}}, "run.rounds must be a whole number"),
        ({"run": {"rounds": 2.5}}, "run.rounds must be a whole number"),
        ({"data": {"dataset": 3}}, "data.dataset must be text"),
        ({"run": 3}, "must be a table"),
    ],
)
def test_mistakes_are_named(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig.from_dict(data)


def test_mistakes_on_the_command_line() -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_set("rounds")
    with pytest.raises(ConfigError, match="did you mean 'rounds'"):
        parse_set("round=3")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("run = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(tmp_path / "bad.toml")
