"""What `laconic datasets NAME` shows of records and of their division."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from e2e_tools import call
from own_datasets import COUNT, OWNED

from laconic.data.federated import FederatedData
from laconic.data.population import PooledPopulation, Records
from laconic.report.dataset_view import division, division_lines, example_lines, number_line, picture_row, series_lines

Capture = pytest.CaptureFixture[str]


def data_of(inputs: torch.Tensor, targets: list[int], rows: list[list[int]]) -> FederatedData:
    records = Records(inputs, torch.tensor(targets))
    population = PooledPopulation(records, [np.array(r) for r in rows])
    return FederatedData(population, records, None, None, 3, tuple(inputs.shape[1:]), client="a shard")


def test_a_picture_without_colour_is_characters() -> None:
    image = np.zeros((1, 4, 3), dtype=np.float32)
    image[0, 2:, 1] = 1
    lines = [line.plain for line in picture_row([image, 1 - image], colour=False)]
    assert lines == ["     @@@  ", " @   @ @  "]


def test_a_picture_in_colour_has_two_pixels_in_a_character() -> None:
    red_over_blue = np.zeros((3, 2, 1), dtype=np.float32)
    red_over_blue[0, 0], red_over_blue[2, 1] = 1, 0.5
    (line,) = picture_row([red_over_blue], colour=True)
    assert line.plain == "▀  " and str(line.spans[0].style) == "rgb(255,0,0) on rgb(0,0,128)"
    (grey,) = picture_row([np.full((1, 1, 1), 0.2)], colour=True)
    assert str(grey.spans[0].style) == "rgb(51,51,51) on rgb(51,51,51)"


def test_series_and_numbers() -> None:
    window = np.stack([np.linspace(0, 1, 8), np.full(8, 2.0)], axis=1)
    assert series_lines(window, fancy=True) == ["▁▂▃▄▅▆▇█  0.00 to 1.00", "▁▁▁▁▁▁▁▁  2.00 to 2.00"]
    assert series_lines(window, fancy=False)[0].startswith(" ")
    assert number_line(np.array([0, 0, 1, 14])) == "1 14"
    assert number_line(np.zeros(3)) == "0 0 0"
    assert number_line(np.arange(1, 31)).endswith("16 … (30 numbers)")


def test_the_division_is_counted() -> None:
    data = data_of(torch.zeros(7, 2), [0, 0, 1, 2, 2, 2, 2], [[0, 1], [2, 3, 4, 5], [6]])
    found = division(data)
    assert (found["clients"], found["records"], found["test_records"], found["client"]) == (3, 7, 7, "a shard")
    assert found["records_per_client"] == {
        "least": 1,
        "lower quarter": 1.5,
        "median": 2,
        "upper quarter": 3,
        "most": 4,
    }
    assert found["classes_per_client"]["least"] == 1 and found["classes_per_client"]["most"] == 2


def test_examples_are_of_different_classes_first() -> None:
    data = data_of(torch.arange(12).float().reshape(6, 2), [1, 1, 1, 0, 1, 2], [list(range(6))])
    lines = example_lines(data, ("none", "one"), width=80, colour=False, fancy=False)
    assert lines == ["one:", "  0 1", "none:", "  6 7", "2:", "  10 11"]


def test_the_command_divides_as_a_run_does(capsys: Capture) -> None:
    shown = call(capsys, "datasets", "digits", "--partition", "labels", "--num-clients", "20", "--json")
    assert shown.code == 0, shown.err
    found = shown.json["division"]
    assert (found["clients"], found["records"]) == (20, 1438)
    assert found["classes_per_client"]["least"] == found["classes_per_client"]["most"] == 2
    assert shown.json["shape"] == [1, 8, 8] and shown.json["found"] == "embedded"
    more = call(capsys, "datasets", "digits", "--augment", "3", "--public-records", "8", "--json").json["division"]
    assert (more["records"], more["public_records"]) == (3 * 1430, 8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("digits",), "100 clients hold 1,438 records; a client is a random shard of pictures"),
        (("synthetic", "--num-clients", "7"), "7 clients hold 70 records"),
        (("own_datasets:tokens", "--num-clients", "4"), f"4 clients hold {COUNT} records"),
        (("ehr-synthetic", "--num-records", "4200"), "a client is a hospital"),
    ],
)
def test_the_command_for_people(capsys: Capture, arguments: tuple[str, ...], said: str) -> None:
    ended = call(capsys, "datasets", *arguments)
    assert (ended.code, ended.err) == (0, "")
    assert said in ended.out and "records a client: least" in ended.out
    assert "\x1b[3" not in ended.out  # nobody looks, so no colours


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("digit",), "did you mean 'digits'"),
        (("--seed", "3"), "--seed needs the NAME of a data set"),
        (("digits", "--partition", "fair"), "fair"),
        (("digits", "--num-clients", "0"), "num_clients"),
    ],
)
def test_the_command_refuses_in_one_line(capsys: Capture, arguments: tuple[str, ...], why: str) -> None:
    ended = call(capsys, "datasets", *arguments)
    assert ended.code == 2 and why in ended.err and ended.err.count("\n") == 1


def test_the_registry_is_shown_with_classes_sources_and_sums(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = call(capsys, "datasets").out
    assert "shape: 3 x 32 x 32; classes: airplane, automobile, bird" in listed
    assert "source: Zalando Research" in listed and "a stand-in for lfw" in listed
    info = dataclasses.replace(OWNED, files=("a.npz", "b.npz"), sums={"a.npz": "sha256:00"}, citation="Somebody 2020")
    monkeypatch.setattr("own_datasets.OWNED", info)
    one = call(capsys, "datasets", "own_datasets:OWNED").out
    assert "shape: 2; classes: even, odd" in one and "cite Somebody 2020" in one
    assert "  a.npz  sha256:00\n  b.npz  is not compared with a sum\n" in one
    assert "6 test records, on which no client trains; they are the clients' own" in one


def test_test_records_of_clients_are_not_said_to_be_nobodys() -> None:
    data = data_of(torch.zeros(4, 2), [0, 1, 0, 1], [[0, 1], [2, 3]])
    assert list(division_lines(division(data)))[-1] == "4 test records, on which no client trains"
    own = dataclasses.replace(data, test_clients=np.array([0, 1, 1, 0]))
    assert list(division_lines(division(own)))[-1].endswith("no client trains; they are the clients' own")
