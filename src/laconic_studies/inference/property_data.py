"""Who holds which records in property inference, and the batches that are drawn from them.

Nobody shares a record with anybody. Of the records with the property the attacker holds 30 % and the victim the rest.
Of those without it the attacker holds 30 %, the victim as many as it has with the property (but half of what is left at
most), and the other participants the rest. Records of which the property is not known go to the other participants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laconic.data.registry import Source
from laconic.errors import ConfigError, DataError, unknown

_AUXILIARY = 0.3
"""The attacker's share of all records with the property, and of those without."""
OWN_SHARE = 0.2
"""How much of the attacker's own batches has the property, as cited."""
_NOT = "not-"


def property_of(source: Source, name: str) -> np.ndarray:
    """Whether each training record has the property: 1, 0, or −1 where it is not known. 'not-NAME' is the opposite."""
    plain = name.removeprefix(_NOT)
    if not source.attributes:
        raise ConfigError(
            f"--dataset {source.name} says nothing of its records besides the task, so there is no property to infer:"
            " use lfw, faces or a data set of yours with attributes"
        )
    if plain not in source.attributes:
        raise ConfigError(unknown("property", plain, source.attributes) + f" (write {_NOT}NAME for the opposite)")
    values = np.asarray(source.attributes[plain]).astype(np.int64)
    known, task = values >= 0, source.train.targets.numpy()
    if not known.any() or len(np.unique(values[known])) < 2:
        raise DataError(
            f"--property {name}: all records whose '{plain}' is known are alike, so nothing can be inferred"
        )
    if source.num_classes == 2 and (values[known] == task[known]).all() | (values[known] == 1 - task[known]).all():
        raise ConfigError(f"--property {name} is the main task itself: choose a property other than what is trained")
    return np.where(known, 1 - values, -1) if name != plain else values


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """The numbers of the records that each participant holds; public records belong to nobody."""

    victim_with: np.ndarray
    victim_without: np.ndarray
    attacker_with: np.ndarray
    attacker_without: np.ndarray
    others: tuple[np.ndarray, ...]
    public: np.ndarray


def dealt(
    has: np.ndarray, *, participants: int, records: int, public_records: int, rng: np.random.Generator
) -> Holdings:
    """Deal out the records; everybody must have enough for a batch of so many `records`."""
    order = rng.permutation(len(has))
    public, order = order[:public_records], order[public_records:]
    having, lacking, open_ = (order[has[order] == value] for value in (1, 0, -1))
    mine, mine_not = round(_AUXILIARY * len(having)), round(_AUXILIARY * len(lacking))
    rest = lacking[mine_not:]
    taken = min(len(having) - mine, len(rest) // 2) if participants > 2 else min(len(having) - mine, len(rest))
    left = np.concatenate([rest[taken:], open_])
    found = Holdings(
        victim_with=having[mine:],
        victim_without=rest[:taken],
        attacker_with=having[:mine],
        attacker_without=lacking[:mine_not],
        others=tuple(np.array_split(left, participants - 2)) if participants > 2 else (),
        public=public,
    )
    held = {
        "the victim with the property": found.victim_with,
        "the victim without it": found.victim_without,
        "the attacker with the property": found.attacker_with,
        "the attacker without it": found.attacker_without,
        **{f"participant {number}": rows for number, rows in enumerate(found.others, start=2)},
    }
    who, fewest = min(held.items(), key=lambda entry: len(entry[1]))
    if len(fewest) < records:
        raise DataError(
            f"too few records: there are {len(fewest):,} for {who}, but a batch takes {records}:"
            " lower --records or --participants, or choose another --property"
        )
    return found


class Batches:
    """Batches of so many `records`, each drawn without repetition.

    With `match_labels` batches without the property have the labels of those with it: the numbers of each label are
    drawn as they are among the victim's (or the attacker's) records with the property. What is inferred is then the
    property, and not that one gender has it more often.
    """

    def __init__(self, holdings: Holdings, targets: np.ndarray, *, records: int, match_labels: bool) -> None:
        self.holdings, self.records = holdings, records
        self._targets, self._match = targets, match_labels
        if match_labels:
            self._check_labels()

    def victim(self, with_property: bool, rng: np.random.Generator) -> np.ndarray:
        held = self.holdings
        if with_property:
            return rng.choice(held.victim_with, self.records, replace=False)
        return self._without(held.victim_without, held.victim_with, self.records, rng)

    def attacker(self, rng: np.random.Generator) -> np.ndarray:
        """What the attacker itself trains on, as a participant."""
        return self.emulated(OWN_SHARE, rng)

    def other(self, number: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.holdings.others[number], self.records, replace=False)

    def emulated(self, share: float, rng: np.random.Generator) -> np.ndarray:
        """A batch of the attacker's auxiliary data of which this share has the property."""
        held, count = self.holdings, round(share * self.records)
        having = rng.choice(held.attacker_with, count, replace=False)
        lacking = self._without(held.attacker_without, held.attacker_with, self.records - count, rng)
        return np.concatenate([having, lacking])

    def _without(self, pool: np.ndarray, like: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        if not self._match:
            return rng.choice(pool, count, replace=False)
        labels = self._targets[rng.choice(like, count, replace=False)]
        rows = [
            rng.choice(pool[self._targets[pool] == label], number, replace=False)
            for label, number in zip(*np.unique(labels, return_counts=True), strict=True)
        ]
        return np.concatenate([*rows, np.zeros(0, dtype=np.int64)])

    def _check_labels(self) -> None:
        """Every label of records with the property must be there often enough without it."""
        held = self.holdings
        for pool, like in ((held.victim_without, held.victim_with), (held.attacker_without, held.attacker_with)):
            for label in np.unique(self._targets[like]):
                there = int((self._targets[pool] == label).sum())
                if there < min(self.records, int((self._targets[like] == label).sum())):
                    raise DataError(
                        f"--match-labels needs records of class {label} without the property, but only {there} are in"
                        " one hand: lower --records, or leave --match-labels out"
                    )
