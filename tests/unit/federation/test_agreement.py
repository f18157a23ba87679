"""Records mean the same on all machines, or a run does not begin: schemas, vocabularies, classes, picture sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from node_tools import SERVER, SIZES, Small, make_offer, model

from laconic.data.ehr.schema import Schema
from laconic.data.meaning import LONGEST, Meaning
from laconic.errors import ConfigError, WireError
from laconic.federation.node.node import Node
from laconic.federation.node.own_records import own_meaning
from laconic.federation.offer import Offer, OtherRecords, check_meaning, read_offer, sign_offer
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.guard.transcript import REFUSED

AGE: dict[str, Any] = {"column": "age", "min": 0.0, "max": 100.0}
SCHEMA: dict[str, Any] = {
    "label": "died",
    "positive": ["1"],
    "numeric": [AGE],
    "categorical": [{"column": "unit", "levels": ["icu", "ward"]}],
}


def schema(**changes: Any) -> Meaning:
    return Meaning.of_schema(Schema.from_dict(SCHEMA | changes))


def test_what_each_hospital_decides_for_itself_changes_no_meaning() -> None:
    assert schema() == schema(patient="id", client="hospital", test_fraction=0.3, separator=";")


@pytest.mark.parametrize(
    "change",
    [
        {"label": "outcome"},
        {"positive": ["0"]},
        {"numeric": [AGE | {"max": 90.0}]},
        {"numeric": [AGE | {"fill": 50.0}]},
        {"categorical": [{"column": "unit", "levels": ["ward", "icu"]}]},
        {"missing": ["", "NA"]},
    ],
)
def test_what_changes_a_feature_or_a_label_changes_the_meaning(change: dict[str, Any]) -> None:
    assert schema(**change).digest != schema().digest


def test_words_and_pictures_have_a_meaning_too() -> None:
    texts = {Meaning.of_texts(*values).digest for values in ((9, (), 5), (9, (), 6), (9, (), None), (8, (), 5))}
    lists = {Meaning.of_texts(9, words, 5).digest for words in (("a", "b"), ("b", "a"))}
    sizes = ((("a", "b"), (1, 8, 8)), (("b", "a"), (1, 8, 8)), (("a", "b"), (3, 8, 8)), (("a", "b"), (1, 8, 9)))
    pictures = {Meaning.of_pictures(classes, shape).digest for classes, shape in sizes}
    assert (len(texts), len(lists), len(pictures)) == (4, 2, 4)


def test_a_node_knows_what_its_records_mean_without_reading_any(tmp_path: Path) -> None:
    text = 'label = "died"\npositive = 1\n[[numeric]]\ncolumn = "age"\nmin = 0\nmax = 100\n'
    (tmp_path / "schema.toml").write_text(text)
    (tmp_path / "words.txt").write_text("a\nb\n")
    gone = {"data": str(tmp_path / "not there")}
    found = own_meaning(gone | {"schema": str(tmp_path / "schema.toml")})
    assert found == Meaning.of_schema(Schema.from_toml(tmp_path / "schema.toml"))
    texts = own_meaning(gone | {"text-column": "x", "vocabulary": str(tmp_path / "words.txt"), "max-length": 7})
    assert texts == Meaning.of_texts(5, ("a", "b"), 7)
    pictures = own_meaning(gone | {"classes": "cat, dog", "image-size": "4x6", "channels": 1})
    assert pictures == Meaning.of_pictures(("cat", "dog"), (1, 4, 6))
    assert own_meaning(gone) is None


def unread(offer: Offer) -> Any:
    raise AssertionError("a record was read")


def test_another_schema_is_refused_before_any_record_is_read(tmp_path: Path) -> None:
    """The server is told that they differ; how, only the node's owner is."""
    here, folder = schema(numeric=[AGE | {"max": 89.0}]), NodeFolder(tmp_path)
    node = Node(folder, Policy(), model=lambda offer: model(), records=unread, meaning=here)
    answer = node.answer("keys", {"offer": sign_offer(make_offer(meaning=schema()), 0, SERVER)})
    told = str(answer[REFUSED])
    assert told.startswith("this node's records do not mean what the offer's do: health ")
    assert here.digest[:8] in told and schema().digest[:8] in told and "89" not in told
    row = folder.log.rows()[-1]
    assert row["reason"] == told and '"max": 89.0' in row["detail"] and '"max": 100.0' in row["detail"]


def test_a_node_that_changes_its_schema_during_a_run_stops_before_its_records_are_read(tmp_path: Path) -> None:
    small = Small(tmp_path, meaning=schema())
    clients = small.join()
    small.courier.nodes = [
        Node(NodeFolder(tmp_path / f"node-{n}"), Policy(), model=lambda offer: model(), records=unread, meaning=None)
        for n in range(len(SIZES))
    ]
    assert clients.collect(small.plan(clients), clients.model.initial).messages == 0
    assert "was started without any" in NodeFolder(tmp_path / "node-0").log.rows()[-1]["reason"]


def test_silence_is_no_agreement() -> None:
    offer = make_offer()
    check_meaning(offer, None)
    with pytest.raises(OtherRecords, match="the offer does not say what its records mean"):
        check_meaning(offer, schema())
    with pytest.raises(OtherRecords, match="was started without any"):
        check_meaning(replace(offer, meaning=schema()), None)
    check_meaning(replace(offer, meaning=schema()), schema())


def test_a_text_of_another_digest_is_no_offer() -> None:
    honest = make_offer(meaning=schema())
    assert read_offer(sign_offer(honest, 0, SERVER))[1] == honest
    lying = honest.to_bytes().replace(b"icu", b"ICU")
    with pytest.raises((WireError, ConfigError), match="digest of another one"):
        Offer.from_bytes(lying)
    long = Meaning.of_schema(
        Schema.from_dict(
            SCHEMA
            | {"codes": [{"name": "c", "columns": ["c"], "vocabulary": [f"code {n}" for n in range(LONGEST // 9)]}]}
        )
    )
    assert long.text == "" and len(make_offer(meaning=long).to_bytes()) < 10_000
    check_meaning(make_offer(meaning=long), long)
