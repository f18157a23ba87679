"""All that is wrong with a configuration is said at once, before data are loaded and before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from laconic.cli.main import cli
from laconic.errors import ConfigError
from laconic.settings import build
from laconic.settings.config import RunConfig


def refusal(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the refusal; loading anything would be an error of another kind."""

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("data were loaded")

    monkeypatch.setattr(build, "load_federation", load)
    with pytest.raises(ConfigError) as caught:
        build.settle(RunConfig().with_values(changes))
    return str(caught.value).splitlines()


def test_a_tired_user_hears_of_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = refusal(
        {
            "scheme.name": "fl-top-dp",
            "run.rounds": 0,
            "run.engine": "fast",
            "run.patience": 3,
            "data.dataset": "nowhere",
            "data.partition": "fair",
            "model.name": "transformer",
            "scheme.local_lr": -1.0,
            "scheme.momentum": 2.0,
            "sampler.cohort_size": 10,
            "privacy.delta": 2.0,
        },
        monkeypatch,
    )
    assert lines[0] == "14 things to mend:" and len(lines) == 15
    for part in (
        "rounds must be a whole number",
        "unknown engine 'fast'",
        "patience needs a held-out set: give --holdout",
        "unknown dataset 'nowhere'",
        "unknown partition 'fair'",
        "unknown model 'transformer'",
        "local_lr must be a positive number",
        "momentum must be at least 0",
        "Poisson sampling takes --sampling-rate",
        "delta must be strictly between 0 and 1",
        "fl-top-dp needs --ratio",
        "fl-top-dp needs --clip-norm",
        "fl-top-dp needs --noise-multiplier, or --epsilon",
        "fl-top-dp chooses its weights with public data",
    ):
        assert sum(part in line for line in lines) == 1, part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme.name": "fl-top", "scheme.ratio": 0.1}, "fl-top chooses its weights with public data"),
        ({"scheme.name": "fl-stdd"}, "unknown scheme 'fl-stdd': did you mean 'fl-std"),
        ({"scheme.foo": 1}, "unknown option of fl-std 'foo'"),
        (
            {"scheme.name": "fl-std-dp", "scheme.clip_norm": "public", "scheme.noise_multiplier": 1.0},
            "--clip-norm public",
        ),
        ({"privacy.epsilon": 1.0}, "fl-std adds no noise, so --epsilon means nothing"),
        ({"data.public_dataset": "digits"}, "is what the clients hold"),
        ({"scheme.name": "no.such.module:scheme"}, "--scheme no.such.module:scheme: cannot import"),
        ({"model.loss": "hinge"}, "unknown loss 'hinge'"),
    ],
)
def test_one_problem_is_one_line(changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = refusal(changes, monkeypatch)
    assert len(lines) == 1 and message in lines[0]


def test_interactions_are_blamed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that is wrong only beside another is reported as that, and hides nothing else."""
    changes = {"scheme.name": "fl-std-dp", "scheme.noise": "continuous", "scheme.bits": 12, "scheme.clip_norm": 1.0}
    lines = refusal(changes | {"scheme.noise_multiplier": 1.0, "scheme.local_lr": 0.0}, monkeypatch)
    assert lines[0] == "2 things to mend:"
    assert any("--bits 12 means nothing" in line for line in lines)
    assert any("local_lr must be a positive number" in line for line in lines)


def test_a_file_with_several_errors_is_refused_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dict({"run": {"rounds": "ten", "seed": 1.5, "speed": 3}, "dta": {}, "data": 5})
    assert str(caught.value).splitlines()[0] == "5 things to mend:"


def test_nothing_is_written_for_a_run_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="public data"):
        cli(["run", "fl-top", "--ratio", "0.1"], standalone_mode=False)
    assert not list(tmp_path.iterdir())
