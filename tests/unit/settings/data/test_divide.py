"""Who gets which records: pictures in variants, people with all of theirs, and what is set aside of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from laconic.data.federated import FederatedData
from laconic.data.inputs import dense
from laconic.data.population import pooled_records
from laconic.errors import ConfigError
from laconic.options.sections import DataSection
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

FLAT, OWNED, TOKENS = "own_datasets:flat_pictures", "own_datasets:OWNED", "own_datasets:tokens"


def load(dataset: str, holdout: float = 0.0, seed: int = 0, **options: Any) -> FederatedData:
    return load_federation(DataSection(dataset=dataset, **options), holdout=holdout, streams=Streams(seed))


def greys(inputs: Any) -> np.ndarray:
    """The pictures that records were made from."""
    values = dense(inputs).mean((1, 2, 3)) * 255
    assert torch.allclose(values, values.round(), atol=1e-3)
    return values.round().long().numpy()


def test_every_picture_is_there_in_so_many_variants() -> None:
    data = load(FLAT, num_clients=6, augment=10)
    everything = pooled_records(data.population)
    assert np.bincount(greys(everything.inputs)).tolist() == [10] * 120
    assert (greys(everything.inputs) % 3 == everything.targets.numpy()).all()
    assert [data.population.size(client) for client in range(6)] == [200] * 6


def test_no_variant_of_a_picture_that_is_set_aside_is_trained_on() -> None:
    data = load(FLAT, holdout=0.25, num_clients=6, augment=10, public_records=20)
    assert data.holdout is not None and data.public is not None
    sets = [set(greys(records.inputs)) for records in (pooled_records(data.population), data.holdout, data.public)]
    assert [len(s) for s in sets] == [70, 30, 20]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    assert len(data.holdout.targets) == 30 and len(data.public.targets) == 20  # as they are, once each


def test_real_pictures_are_moved_but_those_set_aside_and_tested_are_not() -> None:
    plain, data = load("digits", holdout=0.1), load("digits", holdout=0.1, augment=3)
    assert plain.holdout is not None and data.holdout is not None and plain.test is not None and data.test is not None
    assert torch.equal(dense(plain.holdout.inputs), dense(data.holdout.inputs))
    assert torch.equal(dense(plain.test.inputs), dense(data.test.inputs))
    originals = {image.numpy().tobytes() for image in dense(pooled_records(plain.population).inputs)}
    made = dense(pooled_records(data.population).inputs)
    assert len(made) == 3 * len(originals)
    assert sum(image.numpy().tobytes() in originals for image in made) < 0.01 * len(made)


def test_variants_follow_from_the_seed_alone() -> None:
    first, again, other = (load("digits", augment=2, seed=seed).population.records(3) for seed in (0, 0, 1))
    assert torch.equal(dense(first.inputs), dense(again.inputs))
    assert not torch.equal(dense(first.inputs)[:14], dense(other.inputs)[:14])
    one = load("digits", augment=1).population.records(3)
    assert torch.equal(dense(one.inputs), dense(load("digits").population.records(3).inputs))


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        ("synthetic", "--augment is for the named data sets of pictures, not for --dataset synthetic"),
        ("ehr-synthetic", "not for --dataset ehr-synthetic"),
        (OWNED, "--augment 2 is for pictures, not for records of \\(2,\\)"),
    ],
)
def test_what_is_no_picture_is_not_augmented(dataset: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(dataset, augment=2)


def owners(inputs: Any) -> list[int]:
    return sorted({int(value) for value in dense(inputs)[:, 0]})


def test_data_with_owners_are_divided_by_them() -> None:
    data = load(OWNED)
    assert data.population.num_clients == 12 and not data.dealt and data.client == "an owner"
    assert [owners(data.population.records(client).inputs) for client in range(12)] == [[o] for o in range(100, 112)]
    assert data.test_clients is not None and data.test_clients.tolist() == [100] * 3 + [101] * 3
    assert not data.notes
    assert load(OWNED, partition="column").population.num_clients == 12


@pytest.mark.parametrize("options", [{"num_clients": 5}, {"partition": "dirichlet", "num_clients": 5}])
def test_they_are_dealt_anew_when_somebody_asks_for_it(options: dict[str, Any]) -> None:
    data = load(OWNED, **options)
    assert data.population.num_clients == 5 and data.dealt and data.test_clients is None
    assert data.client == "a random shard of records"
    assert len(owners(data.population.records(0).inputs)) > 1


def test_of_data_with_owners_whole_clients_are_set_aside() -> None:
    data = load(OWNED, holdout=0.25, public_records=12)
    assert data.holdout is not None and data.public is not None
    held, public = owners(data.holdout.inputs), owners(data.public.inputs)
    assert len(held) == 3 and len(data.holdout.targets) == 30
    assert len(public) == 2 and len(data.public.targets) == 12
    trained = owners(pooled_records(data.population).inputs)
    assert data.population.num_clients == len(trained) == 7
    assert data.notes == ("held-out and public records are those of clients who take no part",)
    assert not {*held} & {*public} and not {*trained} & {*held, *public}


def test_public_records_must_leave_a_client() -> None:
    with pytest.raises(ConfigError, match="--public-records 115 must leave some of the 120 records"):
        load(OWNED, public_records=115)


def test_public_data_of_another_kind_are_refused() -> None:
    with pytest.raises(ConfigError, match="has inputs of \\(1, 8, 8\\), the clients' are \\(6,\\)"):
        load(TOKENS, num_clients=5, public_dataset="digits")


def test_a_file_of_real_numbers_is_not_public_data_for_tokens(tmp_path: Any) -> None:
    np.savez(tmp_path / "real.npz", inputs=np.random.default_rng(0).random((20, 6)), targets=np.zeros(20, int))
    np.savez(tmp_path / "whole.npz", inputs=np.ones((20, 6), int), targets=np.zeros(20, int))
    with pytest.raises(ConfigError, match="has inputs of real numbers, the clients' are whole numbers"):
        load(TOKENS, num_clients=5, public_dataset=str(tmp_path / "real.npz"))
    data = load(TOKENS, num_clients=5, public_dataset=str(tmp_path / "whole.npz"))
    assert data.public is not None and dense(data.public.inputs).dtype == torch.int64


@pytest.mark.parametrize(
    ("dataset", "options", "said"),
    [
        (OWNED, {}, "a client is an owner, and the promise is for one of them"),
        (OWNED, {}, "test and held-out records were taken from the clients' own records"),
        (OWNED, {"num_clients": 6}, "people: a client is a random shard of records"),
        ("digits", {}, "people: a client is a random shard of pictures"),
        ("digits", {"augment": 2}, "each is there in 2 shifted and mirrored variants, which may lie with several"),
        ("synthetic", {"num_clients": 20}, "a client is a made client with 10 records"),
    ],
)
def test_the_statement_says_what_a_client_is(dataset: str, options: dict[str, Any], said: str) -> None:
    values = {
        "data.dataset": dataset,
        "scheme.name": "fl-std-dp",
        "scheme.clip_norm": 1.0,
        "scheme.noise_multiplier": 2.0,
    }
    values |= {"run.rounds": 2, "privacy.delta": 1e-3} | {f"data.{key}": value for key, value in options.items()}
    settled = settle(RunConfig().with_values(values))
    assert [note for note in settled.experiment.notes if said in note]
    again = settle(settled.config)  # a written configuration repeats the run
    assert again.experiment.population.num_clients == settled.experiment.population.num_clients
