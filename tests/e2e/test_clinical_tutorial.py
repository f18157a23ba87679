"""The commands of docs/clinical.md, pasted into a shell one after the other."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from laconic.data.inputs import dense
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

ROOT = Path(__file__).parents[2]


def auroc(run: Path) -> float:
    return float(json.loads((run / "summary.json").read_text())["last"]["auroc"])


def scikit_learn(path: Path) -> float:
    """The AUROC of a logistic regression on all records in one place, on the tutorial's own split."""
    config = RunConfig().with_values(
        {"data.dataset": str(path / "admissions.csv"), "data.schema": str(path / "hospital.toml")}
    )
    data = load_federation(config.data, holdout=0.0, streams=Streams(config.run.seed))
    assert data.test is not None
    records = [data.population.records(number) for number in range(data.population.num_clients)]
    inputs = np.concatenate([dense(one.inputs).numpy() for one in records])
    model = LogisticRegression(max_iter=1000).fit(inputs, np.concatenate([one.targets for one in records]))
    return float(roc_auc_score(data.test.targets, model.predict_proba(dense(data.test.inputs).numpy())[:, 1]))


@pytest.mark.e2e
def test_the_tutorial_can_be_pasted(tmp_path: Path) -> None:
    text = (ROOT / "docs/clinical.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, command in (("laconic", "-m laconic"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (tools / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = tmp_path / "paste.sh"
    script.write_text("set -eu\n" + "\n".join(blocks), encoding="utf-8")
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(["bash", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "-DP per patient against an outsider (pld)" in ended.stdout
    assert "Protected: one patient with all records at one client" in ended.stdout
    statement = json.loads((tmp_path / "runs/private/privacy.json").read_text())
    assert statement["released"]["epsilon"]["pld"] <= 1
    best = scikit_learn(tmp_path)
    assert best == pytest.approx(0.869, abs=0.002)  # what the page says of it
    reached = {name: auroc(tmp_path / "runs" / name) for name in ("centralized", "fl-std", "private")}
    stated = {"centralized": 0.867, "fl-std": 0.859, "private": 0.866}
    assert reached == pytest.approx(stated, abs=0.01)
    assert all(f"{value:.3f}" in text for value in (*stated.values(), 0.869))
    with (tmp_path / "predictions.csv").open(newline="") as stream:
        assert [0 < float(row["probability"]) < 1 for row in csv.DictReader(stream)] == [True] * 5
