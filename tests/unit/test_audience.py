"""Who may see what is said where a field is declared, and what is handed over is built from that alone."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Annotated, Any, TypedDict

import pytest
import torch

import laconic
from laconic import schemes
from laconic.audience import EVERYONE, SERVER, Field, Sentence, check_declared, fields_of, for_outsiders
from laconic.metrics import METRICS, Metric
from laconic.privacy import released
from laconic.privacy.released import (
    Participant,
    Statement,
    Summary,
    check_row,
    released_row,
    released_statement,
    released_summary,
    row_field,
)


class Inner(TypedDict, total=False):
    said: Annotated[str, Field("what all may read", EVERYONE)]
    kept: Annotated[int, Field("what the server alone may", SERVER, "clients")]


class Outer(TypedDict, total=False):
    inner: Annotated[Inner | None, Field("a record", EVERYONE)]
    text: Annotated[Sentence, Field("a sentence", EVERYONE)]
    texts: Annotated[list[Sentence], Field("sentences", EVERYONE)]


class Forgotten(TypedDict, total=False):
    said: Annotated[str, Field("what all may read", EVERYONE)]
    records: int


def test_a_field_without_an_audience_cannot_be_declared() -> None:
    assert set(fields_of(Outer)) == {"inner", "text", "texts"}
    with pytest.raises(TypeError, match=r"Forgotten\.records does not say who may see it"):
        fields_of(Forgotten)


def test_a_field_that_is_not_declared_is_refused_at_any_depth_and_never_shown() -> None:
    check_declared(Outer, {"inner": {"said": "a", "kept": 3}})
    check_declared(Outer, {"inner": None})
    for value in ({"records": 1}, {"inner": {"records": 1}}):
        with pytest.raises(TypeError, match="does not declare records"):
            check_declared(Outer, value)
    assert for_outsiders(Outer, {"inner": {"said": "a", "kept": 3, "records": 1}, "records": 2}) == {
        "inner": {"said": "a"}
    }


def test_sentences_that_are_not_marked_stay() -> None:
    secret = Sentence("7 clients came", outsider=None)
    instead = Sentence("seed 5 is known", outsider="the seed is known")
    value = {"text": secret, "texts": [secret, instead, "9 clients left", Sentence.public("noise is drawn")]}
    assert for_outsiders(Outer, value) == {"texts": ["the seed is known", "noise is drawn"]}


def test_a_marked_sentence_is_text_and_stays_marked_on_its_way() -> None:
    one = Sentence("seed 5", outsider="the seed")
    assert one == "seed 5" and json.dumps([one]) == '["seed 5"]'
    for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one), Sentence.public(one)):
        assert other == "seed 5" and other.outsider == "the seed"


PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=2.0, local_lr=0.1, local_steps=1)


def finished(**more: Any) -> laconic.RunResult:
    torch.manual_seed(0)
    clients = [(torch.randn(3, 4), torch.arange(3) % 2) for _ in range(12)]
    about: dict[str, Any] = {"clients": clients, "rounds": 2, "sampling_rate": 0.5, "delta": 1e-4, "seed": 4711}
    return laconic.run(PRIVATE, model=torch.nn.Linear(4, 2), **(about | more))


def secrets_of(record: type) -> list[str]:
    return [name for name, (field, _) in fields_of(record).items() if field.audience is SERVER]


def test_every_value_of_a_run_is_declared_and_no_secret_one_is_handed_over() -> None:
    result = finished()
    summary = result.summary()
    check_declared(Statement, result.statement)
    assert all(row_field(name) is not None for row in result.history for name in row)
    shown = released_summary(summary)
    assert result.released_statement == shown["statement"] == released_statement(result.statement)
    assert not set(secrets_of(Summary)) & shown.keys()
    assert not (set(secrets_of(Statement)) - {"summary"}) & shown["statement"].keys()
    assert shown["statement"]["summary"] != result.statement["summary"]  # made anew, from what others may see
    assert not {name for name in shown["last"] if (field := row_field(name)) is None or field.audience is SERVER}
    text = json.dumps([shown, [released_row(row, private=True) for row in result.history]])
    assert "4711" not in text and '"participations"' not in text and "against the server" not in text
    assert "4711" in json.dumps(summary)  # the server's own
    assert shown["statement"]["released"] == result.statement["released"]


def test_a_secret_field_that_is_declared_for_everyone_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage: cohorts and the server's ε, for everyone."""
    monkeypatch.setitem(released._ROW, "cohort", Field("clients drawn", EVERYONE, "clients"))
    shown = Annotated[Participant, Field("the promise against the server", EVERYONE)]
    monkeypatch.setitem(Statement.__annotations__, "participant", shown)
    monkeypatch.setitem(
        Participant.__annotations__, "participations", Annotated[int, Field("how often", EVERYONE, "rounds")]
    )
    fields_of.cache_clear()
    result = finished()
    try:
        assert "cohort" in released_row(result.history[0], private=True)
        assert "participations" in released_statement(result.statement)["participant"]
    finally:
        fields_of.cache_clear()


def test_a_run_with_a_field_that_nothing_declares_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(released._ROW, "attempt")
    with pytest.raises(TypeError, match="who may see attempt"):
        finished()


def test_metrics_say_in_their_own_registry_who_may_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS._entries, "shame", Metric("shame", "shame", released=False))
    check_row({"round": 1, "holdout_shame": 0.5, "shame_by_client": [0.1], "secagg_keys_up": 7, "auroc": 0.7})
    row = {"round": 1, "shame": 0.5, "auroc": 0.7}
    assert released_row(row, private=True) == {"round": 1, "auroc": 0.7}
    assert released_row(row, private=False) == row


def test_a_statement_that_was_read_from_a_file_keeps_its_sentences_to_itself() -> None:
    """Folders of earlier versions do not say which sentences others may read."""
    result = finished()
    read = json.loads(json.dumps(result.statement))
    shown = released_statement(read)
    assert shown["assumptions"] == [] and len(shown["not_covered"]) == 1
    many = len(read["assumptions"]) + len(read["not_covered"]) + len(read["cautions"])
    assert shown["not_covered"][0].startswith(f"{many} sentences of the server's statement")
    assert released_summary(json.loads(json.dumps(result.summary())))["statement"] == result.released_statement
