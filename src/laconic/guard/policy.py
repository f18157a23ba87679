"""A node's policy: what its owner allows and declares, in a file of its own. What is not allowed is refused.

`limits` applies it. Limits that nothing would enforce are errors here: an ε without a δ, signed sums without a list
of identities.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, unknown
from laconic.parts import non_negative_int, one_of, positive, positive_int, probability

SECURE_AGGREGATION = ("required", "signed", "optional")
_EPSILONS = (
    *("max_epsilon", "max_participant_epsilon", "lifetime_epsilon", "lifetime_participant_epsilon"),
    *("max_record_epsilon", "max_record_participant_epsilon"),
    *("lifetime_record_epsilon", "lifetime_record_participant_epsilon"),
    *("max_patient_epsilon", "max_patient_participant_epsilon"),
    *("lifetime_patient_epsilon", "lifetime_patient_participant_epsilon"),
)
_COUNTS = ("max_participations", "lifetime_participations", "classes", "max_records")
_SIZES = ("max_rounds", "max_local_steps", "max_model_size", "max_nodes", "max_message_bytes")
_LISTS = ("fingerprints", "servers", "identities")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits on a run and over all runs. None, and an empty list, mean no limit.

    `max_epsilon` is against an outsider, `max_participant_epsilon` against the server, both for one run, and
    `max_participations` too. Those with `lifetime` count all runs that this node ever took part in, of any server and
    scheme. Every ε is at `max_delta` or less. These ε are of the node's data as a whole, so a scheme that protects
    single records or patients breaks them. Those with `patient` are of one patient with all records here, which a
    scheme for single records breaks; those with `record` are of one record, and every scheme with noise can keep them.
    A policy may have limits of each. `min_cohort` is the least number of honest nodes in a sum that is opened:
    the cohort less `max_dropouts` and `max_colluders` of the offer. `min_colluders` is how many nodes at least may side
    with the server without harm. `fingerprints` are the schemes that may be run. `servers` and `identities` are public
    keys: of those who may offer runs, and of the nodes that this one shares sums with. `secure_aggregation` is "signed"
    if a server that lies is to be covered, "optional" if single codes may be sent in the clear.

    Five bound what an offer can make this node compute and keep: rounds, local steps in each, weights of the model,
    nodes of the run, bytes of a message.

    Three declare the records, so that offers are judged without a look at them: how many `classes` their labels have
    (1: they are quantities), the shape of one record, and the most records that this node may have, by which the δ of
    runs is judged that protect single records. Records that turn out otherwise are not sent: noise alone is, and the
    owner is told. After `max_past_refusals` refusals of a server for what was spent before, it is refused everything
    new, and after as many of uploads all uploads: each of them tells it a little about what others were given.
    """

    max_epsilon: float | None = None
    max_participant_epsilon: float | None = None
    max_delta: float | None = None
    max_participations: int | None = None
    lifetime_epsilon: float | None = None
    lifetime_participant_epsilon: float | None = None
    lifetime_participations: int | None = None
    max_record_epsilon: float | None = None
    max_record_participant_epsilon: float | None = None
    lifetime_record_epsilon: float | None = None
    lifetime_record_participant_epsilon: float | None = None
    max_patient_epsilon: float | None = None
    max_patient_participant_epsilon: float | None = None
    lifetime_patient_epsilon: float | None = None
    lifetime_patient_participant_epsilon: float | None = None
    min_cohort: int = 2
    min_colluders: int = 0
    secure_aggregation: str = "required"
    fingerprints: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    max_rounds: int = 10_000
    max_local_steps: int = 100_000
    max_model_size: int = 100_000_000
    max_nodes: int = 100_000
    max_message_bytes: int = 1 << 30
    classes: int | None = None
    record_shape: tuple[int, ...] = ()
    max_records: int | None = None
    max_past_refusals: int = 3
    allow_test_seed: bool = False

    def __post_init__(self) -> None:
        for name in _EPSILONS:
            if getattr(self, name) is not None:
                positive(**{name: getattr(self, name)})
                if self.max_delta is None:
                    raise ConfigError(f"{name} needs max_delta: with a large δ any ε can be met; say max_delta = 1e-5")
        if self.max_delta is not None:
            probability(max_delta=self.max_delta)
        for name in (*_COUNTS, "min_cohort", *_SIZES):
            if getattr(self, name) is not None:
                positive_int(**{name: getattr(self, name)})
        non_negative_int(min_colluders=self.min_colluders)
        non_negative_int(max_past_refusals=self.max_past_refusals)
        for length in self.record_shape:
            positive_int(record_shape=length)
        one_of(SECURE_AGGREGATION, secure_aggregation=self.secure_aggregation)
        if self.secure_aggregation == "signed" and not self.identities:
            raise ConfigError(
                'secure_aggregation = "signed" needs identities: without a list of the nodes, a server that lies can'
                " give out keys of its own"
            )
        if len(set(self.identities)) < len(self.identities):
            raise ConfigError("identities names a node twice")

    @property
    def digest(self) -> bytes:
        """A digest, which tells whether it is the policy under which a run was joined."""
        return hashlib.sha256(repr(self).encode()).digest()

    @property
    def limits_lifetime(self) -> bool:
        """Whether anything is limited over all runs."""
        return any(getattr(self, field.name) is not None for field in fields(self) if field.name.startswith("lifetime"))


def read_policy(path: str | Path) -> Policy:
    """The policy in a TOML file; an unknown key is an error, since a misspelt limit would limit nothing."""
    try:
        with open(Path(path).expanduser(), "rb") as stream:
            values: dict[str, Any] = tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot read the policy {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the policy {path} is not valid TOML: {error}") from None
    if not values:  # a full disk, or an editor that is just writing, leaves such a file
        raise ConfigError(f"the policy {path} is empty, which would allow everything: say at least min_cohort = 2")
    known = {field.name: field for field in fields(Policy)}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"the policy {path}: " + unknown("key", key, known))
        if key in _LISTS:
            values[key] = _texts(path, key, value)
        elif key == "record_shape":
            if not isinstance(value, list):
                raise ConfigError(f"the policy {path}: record_shape must be a list of lengths, not {value!r}")
            values[key] = tuple(value)
        elif key == "allow_test_seed" and not isinstance(value, bool):
            raise ConfigError(f"the policy {path}: {key} must be true or false, not {value!r}")
    try:
        return Policy(**values)
    except ConfigError as error:
        raise ConfigError(f"the policy {path}: {error}") from None


def _texts(path: str | Path, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ConfigError(f"the policy {path}: {key} must be a list of texts, not {value!r}")
    return tuple(text.lower() for text in value)
