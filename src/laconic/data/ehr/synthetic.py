"""Admissions that never happened, with the marginals of the papers' private database (CHIL Tables 2 to 4).

Ages from 15 to 89, three genders, four admission types, a medication regimen complexity index (MRCI) from 2 to 60, and
24,419 drugs and ICD-9 codes with a long-tailed frequency: among 1,271,733 admissions about 7,270 codes are in at least
100. The 415 hospitals have the published spread of sizes, each its own case mix, formulary and mortality. The risk of
death is logistic in the features, plus what no feature shows; 3.16 % die.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laconic.data.ehr.schema import Categorical, Codes, Numeric, Schema
from laconic.data.ehr.table import CodeLists, EhrTable, Levels, distinct_per_row
from laconic.errors import ConfigError
from laconic.parts import non_negative_int, positive_int

NUM_CODES, NUM_HOSPITALS, DEATHS = 24_419, 415, 0.0316
GENDERS, ADMISSIONS = ("Female", "Male", "Unknown"), ("Emergency", "Trauma Center", "Urgent", "Unknown")

_LARGE = 314  # of the hospitals have 1,000 admissions or more, at the papers' size
_CODES_A_ROW, _SPREAD = 29.0, 4.0  # mean beyond the first, and shape, of the number of codes drawn for an admission
_FLATTENING, _DECAY = 60.0, 1.7775  # the frequency of the k-th code is (k + flattening)^−decay
_SLOTS = 1 << 22
_FORMULARY, _OWN = 200, 0.2  # codes in a hospital's own formulary, and the share of its codes drawn from there
_RETURNS = 0.12  # share of admissions that are the same patient's again


def synthetic_schema() -> Schema:
    """What the made table's columns are. Everything but the codes is fixed, as the description above is public."""
    return Schema(
        label="died",
        positive=("1",),
        patient="patient",
        client="hospital",
        numeric=(Numeric(column="age", min=15, max=89), Numeric(column="mrci", min=2, max=60)),
        categorical=(
            Categorical(column="gender", levels=GENDERS[:2]),
            Categorical(column="admission_type", levels=ADMISSIONS[:3]),
        ),
        codes=(Codes(name="code", columns=("codes",)),),
    )


def make_admissions(num_records: int, *, seed: int = 0) -> EhrTable:
    """So many admissions; the same ones for the same number and seed."""
    positive_int(num_records=num_records)
    non_negative_int(seed=seed)
    if num_records < 10 * NUM_HOSPITALS:
        raise ConfigError(f"⟨num-records⟩ {num_records}: {NUM_HOSPITALS} hospitals need {10 * NUM_HOSPITALS} or more")
    world = _World(seed)
    sizes = _hospital_sizes(num_records, _rng(seed, 1))
    parts = [_hospital(world, number, int(size), _rng(seed, 2, number)) for number, size in enumerate(sizes)]
    risk, returns = np.concatenate([p.risk for p in parts]), np.concatenate([p.returns for p in parts])
    patients = np.cumsum(~returns) - 1
    names = [f"P{number:07d}" for number in range(int(patients[-1]) + 1)]
    starts = np.concatenate([[0], np.cumsum(np.concatenate([p.counts for p in parts]))])
    return EhrTable(
        "ehr-synthetic",
        patients=Levels(patients, names),
        labels=_deaths(risk, patients, _rng(seed, 3)),
        clients=Levels(
            np.repeat(np.arange(NUM_HOSPITALS), sizes), [f"hospital {number}" for number in range(NUM_HOSPITALS)]
        ),
        numeric={"age": np.concatenate([p.age for p in parts]), "mrci": np.concatenate([p.mrci for p in parts])},
        categorical={
            "gender": Levels(np.concatenate([p.gender for p in parts]), list(GENDERS)),
            "admission_type": Levels(np.concatenate([p.admission for p in parts]), list(ADMISSIONS)),
        },
        codes={"code": CodeLists(starts, np.concatenate([p.codes for p in parts]), world.names)},
    )


class _World:
    """What all hospitals share: how frequent a code is, and what it says about the risk."""

    def __init__(self, seed: int) -> None:
        rng = _rng(seed, 0)
        frequency = (np.arange(1, NUM_CODES + 1) + _FLATTENING) ** -_DECAY
        ends = np.rint(np.cumsum(frequency) / frequency.sum() * _SLOTS).astype(np.int64)
        # Picking a slot at random picks a code by its frequency, faster than any search.
        self.slots = np.repeat(np.arange(NUM_CODES, dtype=np.int32), np.diff(ends, prepend=0))
        telling = rng.random(NUM_CODES) < 0.35
        self.effect = (telling * rng.normal(0.0, 0.49, NUM_CODES)).astype(np.float32)
        kinds = np.where(rng.random(NUM_CODES) < 0.7, "drug", "icd9")
        self.names = [f"{kind}-{number:05d}" for number, kind in enumerate(kinds)]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return self.slots[rng.integers(0, _SLOTS, count, dtype=np.int32)]


@dataclass(frozen=True)
class _Hospital:
    age: np.ndarray
    mrci: np.ndarray
    gender: np.ndarray
    admission: np.ndarray
    counts: np.ndarray
    codes: np.ndarray
    returns: np.ndarray
    risk: np.ndarray


def _hospital(world: _World, number: int, size: int, rng: np.random.Generator) -> _Hospital:
    returns = rng.random(size) < _RETURNS
    returns[0] = False
    patient = np.cumsum(~returns) - 1
    per_patient = int(patient[-1]) + 1
    ages = rng.normal(62 + rng.normal(0, 4), 18, per_patient)
    age = np.clip(np.rint(ages), 15, 89).astype(np.float32)[patient]
    gender = rng.choice(3, per_patient, p=(0.53, 0.46, 0.01)).astype(np.int32)[patient]
    frailty = rng.normal(0, 0.5, per_patient)[patient]
    mix = rng.dirichlet((18, 1, 7, 3))
    admission = rng.choice(4, size, p=mix).astype(np.int32)
    drawn = 1 + rng.poisson(rng.gamma(_SPREAD, _CODES_A_ROW / _SPREAD, size))
    counts, codes = _codes(world, drawn, rng)
    burden = np.bincount(np.repeat(np.arange(size), counts), weights=world.effect[codes], minlength=size)
    mrci = np.clip(np.rint(2 + 0.6 * counts + rng.normal(0, 5, size)), 2, 60).astype(np.float32)
    risk = (
        burden
        + 0.035 * (age - 62)
        + 0.02 * (mrci - 20)
        + np.array([0.2, 0.6, 0.0, -0.1])[admission]
        + 0.1 * (gender == 1)
        + frailty
        + rng.normal(0, 0.3)
    )
    return _Hospital(age, mrci, gender, admission, counts, codes, returns, risk)


def _codes(world: _World, drawn: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(how many distinct codes each admission has, the codes one admission after another)."""
    found = world.draw(int(drawn.sum()), rng)
    formulary = world.draw(_FORMULARY, rng)
    own = rng.random(len(found), dtype=np.float32) < _OWN
    found[own] = formulary[rng.integers(0, _FORMULARY, int(own.sum()))]
    return distinct_per_row(np.repeat(np.arange(len(drawn)), drawn), found, len(drawn), NUM_CODES)


def _deaths(risk: np.ndarray, patients: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Who dies: the last admission of a patient only, and the published share of all admissions."""
    last = np.concatenate([np.diff(patients) > 0, [True]])
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        share = (last / (1 + np.exp(-(risk + middle)))).mean()
        low, high = (middle, high) if share < DEATHS else (low, middle)
    died: np.ndarray = (rng.random(len(risk)) < 1 / (1 + np.exp(-(risk + low)))) & last
    return died


def _hospital_sizes(num_records: int, rng: np.random.Generator) -> np.ndarray:
    """Admissions per hospital: of the large ones mean 3,893 and deviation 2,392 at the papers' size (CHIL Table 4)."""
    large = 1005 + rng.gamma(1.457, 1981.0, _LARGE)
    small = rng.uniform(40, 934, NUM_HOSPITALS - _LARGE)
    share = np.concatenate([large, small])[rng.permutation(NUM_HOSPITALS)]
    exact = share / share.sum() * (num_records - NUM_HOSPITALS) + 1
    sizes: np.ndarray = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact)[: num_records - sizes.sum()]] += 1  # the largest remainders
    return sizes


def _rng(*path: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(path)))
