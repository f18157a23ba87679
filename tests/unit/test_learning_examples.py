"""Every example reaches a result that convinces, beside what scikit-learn reaches without privacy."""

from __future__ import annotations

import importlib.util
import re
import runpy
import tomllib
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.sources import load_table
from laconic.data.inputs import dense
from laconic.data.sources import load_source
from laconic.runner.run import Run
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

EXAMPLES = Path(__file__).parents[2] / "examples"


def reached(name: str, metric: str, **changes: object) -> float:
    config = RunConfig.from_dict(tomllib.loads((EXAMPLES / name).read_text())).with_values(dict(changes))
    return float(Run(settle(config).experiment).run().last[metric])


def scikit_learn(name: str) -> LogisticRegression:
    source = load_source(name)
    return LogisticRegression(max_iter=5000).fit(source.train.inputs.flatten(1), source.train.targets)


def test_the_demo_learns_the_digits() -> None:
    """0.89 at ε = 4; scikit-learn, without privacy, 0.96."""
    source = load_source("digits")
    best = scikit_learn("digits").score(source.test.inputs.flatten(1), source.test.targets)
    assert best == pytest.approx(0.964, abs=0.01)
    assert reached("digits.toml", "accuracy", **{"run.eval_every": 60}) > 0.87


def test_the_first_federation_learns_to_tell_tumours_apart() -> None:
    source = load_source("breast-cancer")
    model = scikit_learn("breast-cancer")
    assert model.score(source.test.inputs, source.test.targets) == pytest.approx(0.956, abs=0.01)
    found = roc_auc_score(source.test.targets, model.predict_proba(source.test.inputs)[:, 1])
    assert found == pytest.approx(0.993, abs=0.005)
    for seed in (0, 1):
        assert reached("federation.toml", "auroc", **{"run.seed": seed, "run.eval_every": 5}) > 0.96


def test_breast_cancer_is_the_table_of_scikit_learn() -> None:
    source = load_source("breast-cancer")
    assert (len(source.train.targets), len(source.test.targets)) == (456, 113)
    assert int(source.train.targets.sum() + source.test.targets.sum()) == 212  # malignant, by its description
    assert source.train.inputs.shape[1] == 30
    assert float(source.train.inputs.min()) >= -0.25
    assert float(source.train.inputs.max()) <= 0.75


def test_what_scikit_learn_reaches_on_the_hospitals_is_what_they_say(tmp_path: Path) -> None:
    specification = importlib.util.spec_from_file_location("hospital_data", EXAMPLES / "hospitals/make_data.py")
    assert specification is not None
    assert specification.loader is not None
    maker = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(maker)
    maker.main(tmp_path)
    preparing = Preprocessing(Schema.from_toml(EXAMPLES / "hospitals/schema.toml"))

    def records(name: str) -> tuple[np.ndarray, np.ndarray]:
        table = load_table(preparing.schema, str(tmp_path / name))
        assert table.labels is not None
        return dense(preparing.transform(table)).numpy(), table.labels

    parts = [records(f"hospital-{number}.csv") for number in range(5)]
    inputs, targets = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    test = records("test.csv")
    model = LogisticRegression(max_iter=1000).fit(inputs, targets)
    assert roc_auc_score(test[1], model.predict_proba(test[0])[:, 1]) == pytest.approx(0.85, abs=0.005)


@pytest.mark.parametrize(
    ("name", "least"),
    [("own_model.py", 0.95), ("front_end.py", 0.88), pytest.param("fine_tune.py", 0.86, marks=pytest.mark.slow)],
)
def test_an_example_in_python_learns(name: str, least: float, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    shown = capsys.readouterr().out
    assert "-DP per client against an outsider" in shown
    assert float(re.findall(r"accuracy (0\.\d+)", shown)[-1]) > least
