"""What is said of a finished model: against chance in words, with intervals, at thresholds, by subgroup."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from e2e_tools import call

from laconic.confidence import wilson
from laconic.data.federated import Subgroup
from laconic.runner.judged import Answers, against_chance, figures, in_detail, judged, thresholds

NAMES = ("not died = 1", "died = 1")


def two_classes(logits: np.ndarray, targets: np.ndarray, **more: object) -> Answers:
    options: dict[str, object] = {"names": NAMES, "shifts": (0.0, 0.0)} | more
    return Answers(outputs=logits, targets=targets, **options)  # type: ignore[arg-type]


def drawn(count: int, signal: float, offset: float, seed: int = 0) -> Answers:
    """Log odds that are right if `signal` is 1; 0: they say nothing of the outcome."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(offset, 1.5, count)
    chances = 1 / (1 + np.exp(-(signal * (logits - offset) + offset)))
    return two_classes(logits, (rng.random(count) < chances).astype(int))


def test_noise_is_not_better_than_chance_and_the_words_say_so() -> None:
    better, words = against_chance(drawn(400, 0.0, -1.0))
    assert better is False
    assert words.startswith("not better than always saying no, and not better than chance: accuracy 0.")
    assert "AUROC 0." in words and "on 400 test records" in words


def test_a_good_model_is_better_than_both() -> None:
    better, words = against_chance(drawn(400, 1.0, 0.0))
    assert better is True and words.startswith("better than chance and than always saying")


def test_a_model_may_rank_well_and_decide_badly() -> None:
    """A rare outcome: nobody's probability is above a half."""
    better, words = against_chance(drawn(1500, 1.0, -4.0))
    assert better is True
    assert (
        "its yes or no is not right more often than always saying no" in words and "choose another threshold" in words
    )


def test_the_other_answer_and_the_other_direction() -> None:
    answers = drawn(400, 1.0, 1.0)
    upside_down = two_classes(-answers.outputs, answers.targets)
    better, words = against_chance(upside_down)
    assert better is False and "always saying yes, and worse than chance" in words
    named = two_classes(np.zeros(30), np.arange(30) % 3 // 2, names=("cat", "dog"))
    assert "always saying 'cat'" in against_chance(named)[1]


def test_several_classes_are_compared_with_the_most_frequent_one() -> None:
    rng = np.random.default_rng(0)
    targets = rng.choice(3, 300, p=[0.5, 0.3, 0.2])
    guess = Answers(outputs=rng.normal(size=(300, 3)), targets=targets, names=("a", "b", "c"), shifts=(0.0,) * 3)
    better, words = against_chance(guess)
    assert better is False and words.startswith("not better than always saying 'a': accuracy")
    known = Answers(outputs=np.eye(3)[targets] * 2 + rng.normal(size=(300, 3)), targets=targets, names=("a", "b", "c"))
    assert against_chance(known)[0] is True


def test_a_quantity_is_compared_with_the_mean_in_its_own_unit() -> None:
    rng = np.random.default_rng(0)
    targets = rng.normal(0, 0.3, 200).astype(np.float32)
    good = Answers(outputs=targets + rng.normal(0, 0.1, 200), targets=targets, unit=20.0)
    better, words = against_chance(good)
    assert better is True and words.startswith("better than always saying the mean: R² 0.")
    assert figures(good)["rmse"].value == pytest.approx(20 * 0.1, rel=0.2)
    better, words = against_chance(Answers(outputs=rng.normal(0, 0.3, 200), targets=targets, unit=20.0))
    assert better is False and "not better than always saying the mean" in words and "where the mean has 0" in words


def test_where_nothing_can_be_told_it_is_said() -> None:
    assert against_chance(two_classes(np.ones(9), np.ones(9, dtype=int)))[0] is None
    assert against_chance(Answers(outputs=np.ones(9), targets=np.ones(9)))[0] is None
    for outputs in (np.array([np.nan, 1.0]), np.zeros((2, 3, 4))):
        assert judged(two_classes(outputs, np.array([0, 1]))) is None
    assert judged(two_classes(np.ones((2, 2)), np.array([0, 5]))) is None


def test_thresholds_count_right() -> None:
    """Ten records by falling score; of the first five, four are positive, of the others one."""
    scores = np.arange(10, 0, -1) - 5.5
    targets = np.array([1, 1, 0, 1, 1, 0, 0, 1, 0, 0])
    rows = thresholds(two_classes(scores, targets))
    (half,) = [row for row in rows if row["probability"] == 0.5]
    assert half["flagged"] == 0.5
    for name, hits, of in (("sensitivity", 4, 5), ("specificity", 4, 5), ("ppv", 4, 5), ("npv", 4, 5)):
        assert half[name] == pytest.approx([hits / of, *wilson(hits / of, of)]), name
    least = rows[-1]
    assert least["flagged"] == 0.1 and least["sensitivity"][0] == 0.2 and least["ppv"][0] == 1.0
    assert least["probability"] == pytest.approx(1 / (1 + np.exp(-4.5)))
    # Where training counted positives forty times, the same outputs stand for smaller probabilities.
    weighted = two_classes(scores, targets, shifts=(0.0, -float(np.log(40))))
    (half,) = [row for row in thresholds(weighted) if row["probability"] == 0.5]
    assert half["flagged"] == 0.1


def test_subgroups_are_judged_apart_and_small_ones_together() -> None:
    answers = drawn(300, 1.0, 0.0)
    group = Subgroup(("F", "M", "X"), np.array([0] * 180 + [1] * 100 + [2] * 15 + [-1] * 5))
    answers = two_classes(answers.outputs, answers.targets, subgroups={"sex": group})
    rows = in_detail(answers)["subgroups"]["sex"]
    assert [(row["group"], row["records"]) for row in rows] == [
        ("F", 180),
        ("M", 100),
        ("all others, and no value", 20),
    ]
    alone = two_classes(answers.outputs[:180], answers.targets[:180])
    assert rows[0]["figures"] == {name: list(figure) for name, figure in figures(alone).items()}
    assert rows[0]["true"] == pytest.approx(answers.targets[:180].mean())


def write_table(path: Path, noise: float) -> None:
    rng = np.random.default_rng(2)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["x", "z", "sex", "died"])
        for _ in range(600):
            x, z = rng.random(2)
            died = x + z + rng.normal(0, noise) > 1
            writer.writerow([f"{x:.3f}", f"{z:.3f}", rng.choice(["F", "M"]), int(died)])


SCHEMA = """label = "died"
positive = 1
subgroups = ["sex", "x"]
[[numeric]]
column = "x"
min = 0
max = 1
fill = 0.5
[[numeric]]
column = "z"
min = 0
max = 1
fill = 0.5
"""


@pytest.mark.parametrize("good", [True, False])
def test_a_run_says_in_its_first_and_last_line_whether_it_was_worth_it(
    good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    write_table(Path("t.csv"), noise=0.1 if good else 50.0)
    Path("s.toml").write_text(SCHEMA)
    options = ["--dataset", "t.csv", "--schema", "s.toml", "--model", "logistic", "--rounds", "40", "--local-lr", "1"]
    ended = call(capsys, "run", "centralized", *options, "--threads", "1", "--quiet", "--out", "run")
    assert ended.code == 0, ended.err
    summary = json.loads(Path("run/summary.json").read_text())
    words = summary["judged"]["words"]
    assert summary["judged"]["better"] is good and summary["judged"]["records"] == 120
    low, high = summary["judged"]["figures"]["auroc"][1:]
    assert low <= summary["last"]["auroc"] <= high
    lines = [line for line in io.StringIO(ended.out).read().splitlines() if line.strip()]
    assert lines[0].startswith("Result") and words in lines[0]
    assert (f"Attention: the model is {words}" == lines[-1].strip()) is not good
    assert json.loads(Path("run/privacy.json").read_text())["result"] == words == summary["statement"]["result"]
    report = Path("run/report.html").read_text()
    assert "How sure" in report and "What a threshold would do" in report and "By sex" in report and "By x" in report
    assert ("The model is not better than" in report) is not good
    quarters = json.loads(Path("run/figures.json").read_text())["subgroups"]["x"]
    assert [row["records"] for row in quarters] == [30] * 4
    assert {row["group"].split()[0] for row in quarters} >= {"up", "above"}
    card = call(capsys, "export", "run", "--to", "card", "--out", "card.md")
    assert card.code == 0 and "95% interval" in Path("card.md").read_text()
