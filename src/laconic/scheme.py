"""A scheme: how clients train, what they send, how it is protected, and what the server makes of the sum."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from laconic.aggregate.base import Aggregator, WeightedMean
from laconic.aggregate.protocol import PlainSum, SumProtocol
from laconic.codecs.base import Codec, Identity
from laconic.codecs.queries import Answers, Evaluations, Query
from laconic.codecs.votes import VotedSubset
from laconic.errors import ConfigError
from laconic.parts import Part, one_of, positive_int
from laconic.privacy.accounting.releases import EVALUATIONS, TRAINING, VOTES, Release, Rounds, release_of
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.clip import Clip, L2Clip, Marks, NoClip
from laconic.privacy.mechanism.gaussian import Noise, NoNoise
from laconic.server.rules import Average, Scores, ServerRule, Tally
from laconic.train.local import LocalTraining, UnitGradients

WEIGHTINGS = ("data-size", "uniform")
DOWNLINKS = ("weights", "half", "signs")


@dataclass(frozen=True)
class Phase:
    """A part of a run whose rounds are alike: which rounds, and with which parts. `rounds` None: all the others."""

    name: str
    parts: Scheme
    rounds: Rounds | None = None

    def release(self, *, sampler: Sampler, num_clients: int, size: int, delta_slack: float = 0.0) -> Release:
        """What one of its rounds releases, for a model of so many weights; σ must be decided."""
        about: dict[str, Any] = {"phase": self.name, "rounds": self.rounds, "delta_slack": delta_slack}
        parts, about = self.parts, about | {"sampler": sampler, "num_clients": num_clients}
        if parts.record_level:
            return parts.train.release(**about)
        sensitivity = parts.clip.sensitivity(parts.codec.code_size(size))
        if isinstance(parts.train, UnitGradients):
            train = parts.train
            about |= {"unit": train.unit, "coins": train.rate, "max_owners": train.max_owners}
        return release_of(parts.noise, sensitivity=sensitivity, groups=parts.groups, **about)


@dataclass(frozen=True, kw_only=True)
class Scheme(Part):
    """One declaration of all the parts. Absent parts are identity objects, so an ablation is `replace(scheme, ...)`.

    `weighting` says whether a client counts by its number of records or as one. `downlink="half"` sends the weights as
    floats of 16 bits, and clients train from those; the server keeps all 32. `downlink="signs"` sends the signs of the
    last change instead of weights, which works only if every client takes part in every round. `pooled` is the
    centralised reference: all records in one place, nothing sent. With `groups` each cohort is split at random, every
    group has a secure sum with the whole noise, and the aggregator sees the groups' means in the place of codes. With
    `evaluations` some rounds measure the weights on the clients' own records instead of training, and with `queries`
    clients answer other questions in some rounds.

    Args:
        name: by which statements and folders call it.
        train: how clients train.
        codec: how an update becomes a code, and back.
        clip: the bound on a code.
        noise: what is added to it.
        secure_sum: what the server may see of the codes.
        aggregator: codes → one code.
        rule: what the server makes of that.
        weighting: 'uniform' or 'data-size'.
        downlink: 'weights', 'half' or 'signs'.
        pooled: all records in one place.
        groups: in how many groups a cohort is summed.
        evaluations: in which rounds clients measure the weights, and what.
        queries: what else clients are asked in some rounds.

    Examples:
        >>> from dataclasses import replace
        >>> scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=5)
        >>> without = replace(scheme, noise=laconic.NoNoise())
        >>> scheme.private, without.private
        (True, False)
    """

    name: str
    train: LocalTraining
    codec: Codec = Identity()
    clip: Clip = NoClip()
    noise: Noise = NoNoise()
    secure_sum: SumProtocol = PlainSum()
    aggregator: Aggregator = WeightedMean()
    rule: ServerRule = Average()
    weighting: str = "uniform"
    downlink: str = "weights"
    pooled: bool = False
    groups: int = 1
    evaluations: Evaluations = Evaluations()
    queries: tuple[Query, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", tuple(self.queries))
        one_of(WEIGHTINGS, weighting=self.weighting)
        one_of(DOWNLINKS, downlink=self.downlink)
        positive_int(groups=self.groups)
        problems = list(self._problems())
        if self.pooled and self.downlink != "weights":
            problems.append("the centralised reference sends nothing down: leave downlink='weights'")
        if self.downlink == "signs" and self.rule.same_step is None:
            problems.append("signs tell a change only if all weights move by the same step: use MajorityVote")
        problems += self._group_problems()
        if self.aggregator.remembers and self.codec.new_each_round:
            problems.append(
                f"{type(self.aggregator).__name__} starts from the last round's code, but {type(self.codec).__name__}"
                " gives codes another meaning in every round: use a rule that looks at one round"
            )
        if self.aggregator.remembers and self.codec.vote_rounds:
            problems.append(
                f"{type(self.aggregator).__name__} starts from the last round's code, but the first rounds are votes:"
                " use a rule that looks at one round"
            )
        problems += self._query_problems()
        if self.pooled and not self.aggregator.sums:
            problems.append("the centralised reference has one client, so there is nothing to combine")
        if problems:
            raise ConfigError(f"{self.name}: " + "; ".join(problems))

    def to_dict(self) -> dict[str, Any]:
        """Without the aggregator where it is the mean, one group, evaluations that never come and no queries:
        fingerprints stay what they were."""
        data = super().to_dict()
        if not self.evaluations.every:
            del data["evaluations"]
        if not self.queries:
            del data["queries"]
        if self.groups == 1:
            del data["groups"]
        if self.aggregator == WeightedMean():
            del data["aggregator"]
        return data

    def _group_problems(self) -> list[str]:
        rule, kind = self.aggregator, type(self.aggregator).__name__
        if self.groups == 1:
            if rule.sums or not self.secure_sum.hides_single_codes:
                return []
            return [
                f"{kind} looks at single codes, which a secure sum hides: use it without noise shares, or with ⟨groups⟩"
            ]
        if not self.noise.private:
            return ["groups have secure sums with noise: use ⟨groups⟩ with a scheme in -dp, or leave it out"]
        if self.groups < rule.least_codes:
            return [f"{kind} takes {rule.least_codes} sums or more, but there are {self.groups}: raise ⟨groups⟩"]
        return []

    @property
    def asked(self) -> tuple[Query, ...]:
        """What clients are asked in some rounds: evaluations first, where there are any."""
        return (self.evaluations, *self.queries) if self.evaluations.every else self.queries

    def _query_problems(self) -> list[str]:
        problems = []
        for query in self.asked:
            name, without = query.name, query.without
            if self.record_level:
                problems.append(
                    f"{name} are private for whole clients, not for single records: {without} with record-level schemes"
                )
            if self.downlink == "signs":
                problems.append(
                    f"signs tell the change of one round, and {name} change nothing: {without}, or use fl-sign"
                )
            if self.pooled:
                problems.append(f"the centralised reference has no clients that could evaluate: {without}")
            if self.aggregator.remembers:
                problems.append(
                    f"{type(self.aggregator).__name__} starts from the last round's code, and some rounds are {name}:"
                    " use a rule that looks at one round"
                )
            problems += query.misfits(self.codec)
            if query.noise_multiplier is not None and not self.noise.private:
                problems.append(query.idle_noise)
        asked = [(query.name, rounds) for query in self.asked if (rounds := query.rounds(self.codec.vote_rounds))]
        asked += [(VOTES, Rounds(last=self.codec.vote_rounds))] if self.codec.vote_rounds else []
        for (one, first), (other, second) in itertools.combinations(asked, 2):
            if first.meets(second):
                problems.append(f"{one} and {other} would be in the same round: change when they are asked")
        names = [query.name for query in self.asked]
        if len(set(names)) < len(names) or {TRAINING, VOTES} & set(names):
            problems.append(f"phases need names of their own, and the queries are named {', '.join(names)}")
        return problems

    def _problems(self) -> list[str]:
        """Everything that would make the printed ε untrue, all at once."""
        if self.record_level:
            return self._record_problems()
        if self.sums_units:
            return self._unit_problems()
        if not self.noise.private:
            return []
        problems = []
        if not self.clip.bounded:
            problems.append("noise without a bound on the code protects nothing: add a clip (clip_norm)")
        if not self.secure_sum.hides_single_codes:
            problems.append("noise shares protect only the sum: use a secure sum, not PlainSum")
        if self.weighting != "uniform":
            problems.append("weights by data size change the sensitivity: use weighting='uniform' with noise")
        if self.noise.for_signs and self.codec.linear:
            problems.append("the code is not one of signs: use DiscreteGaussian noise without signs=True")
        if self.pooled:
            problems.append("the centralised reference has no clients to protect: it takes no noise")
        return problems + (self._central_problems() if self.noise.central else [])

    def _central_problems(self) -> list[str]:
        """Why this scheme cannot have noise that is correlated over rounds: all its sums must be of one kind."""
        problems = []
        if not self.codec.linear:
            problems.append(
                "correlated noise cancels in sums of codes, and a vote on signs is none: leave out ⟨noise-bands⟩, or"
                " use another scheme such as fl-std-dp"
            )
        if self.codec.new_each_round:
            problems.append(
                f"{type(self.codec).__name__} gives codes another meaning in every round, so noise that is correlated"
                " over rounds would not cancel: leave out ⟨noise-bands⟩, or use a scheme that keeps the same weights"
                " (fl-bas-3-dp, fl-top-dp)"
            )
        if self.codec.vote_rounds:
            problems.append(
                "votes are sums of another kind than those that train: leave out ⟨noise-bands⟩ or ⟨top-selection⟩ votes"
            )
        problems += [
            f"{query.name} are sums of another kind than those that train: leave out ⟨noise-bands⟩, or {query.without}"
            for query in self.asked
        ]
        if self.groups > 1:
            problems.append("correlated noise is added to one sum of each round: leave out ⟨noise-bands⟩ or ⟨groups⟩")
        return problems

    def _unit_problems(self) -> list[str]:
        """Why this scheme cannot have clipped sums of units inside clients."""
        unit, problems = self.unit, []
        if not self.codec.linear:
            problems.append(
                f"a code of signs is not the sum of the codes of single {unit}s, so one {unit} may change all of it:"
                " use a scheme whose codec is linear (fl-std-dp, fl-top-dp, fl-cs-dp, fl-bas-3-dp), or ⟨unit⟩ client"
            )
        if self.codec.vote_rounds:
            problems.append(
                f"votes are those of whole clients, and this run protects a {unit}: choose the weights with public data"
                " (⟨top-selection⟩ public), or use ⟨unit⟩ client"
            )
        problems += [
            f"{query.name} are answered by whole clients, and this run protects a {unit}: {query.without}, and measure"
            " on records that are set aside (⟨holdout⟩)"
            for query in self.asked
            if not query.by_record
        ]
        if self.groups > 1:
            problems.append(
                f"groups have means of as many clients, and clients with many {unit}s would count most: leave out"
                " ⟨groups⟩, or use ⟨unit⟩ client"
            )
        if not isinstance(self.clip, L2Clip):
            problems.append(f"the vector of every {unit} is clipped to an L2 norm: use L2Clip (clip_norm)")
        if self.noise.central:
            problems.append(
                "correlated noise is the server's and counts on clients that take turns: leave out ⟨noise-bands⟩, or"
                " use ⟨unit⟩ client"
            )
        elif not (self.noise.private and self.noise.on_integers):
            problems.append(f"vectors of {unit}s are added up on the grid of integer noise: use ⟨noise⟩ integer")
        if not self.secure_sum.hides_single_codes:
            problems.append("noise shares protect only the sum: use a secure sum, not PlainSum")
        if self.weighting != "uniform":
            problems.append(f"a weight by data size tells how many {unit}s a client has: use weighting='uniform'")
        if self.downlink == "signs":
            problems.append("signs tell equal steps of a vote, and there is none: use downlink='weights'")
        if self.pooled:
            problems.append("the centralised reference has no clients that add noise together: it takes no noise")
        return problems

    def _record_problems(self) -> list[str]:
        problems = []
        if self.noise.private:
            problems.append("no accountant answers for records and clients at once: drop one of the two noises")
        if self.weighting != "uniform":
            problems.append("a weight by data size tells how many records a client has: use weighting='uniform'")
        if self.codec.chooses:
            problems.append("record-level training moves all weights: use a codec that does not choose some of them")
        if self.pooled:
            problems.append("the centralised reference adds no noise")
        return problems

    @functools.cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Which rounds have which parts: votes on the codec come first, in some clients are asked, all others train."""
        votes = self.codec.vote_rounds
        found = [Phase(VOTES, self._voting, Rounds(last=votes))] if votes else []
        asked = ((query, query.rounds(votes)) for query in self.asked)
        found += [Phase(query.name, self.asking(query), rounds) for query, rounds in asked if rounds is not None]
        return (*found, Phase(TRAINING, self))

    def phase(self, round: int) -> Phase:
        """The phase of a round."""
        return next(phase for phase in self.phases if phase.rounds is None or round in phase.rounds)

    def at(self, round: int) -> Scheme:
        """The scheme of a round: votes and evaluations have other parts than the rounds that train."""
        return self.phase(round).parts

    def evaluates(self, round: int) -> bool:
        """Whether a round is an evaluation."""
        return self.phase(round).name == EVALUATIONS

    def query(self, round: int) -> Query | None:
        """The query of a round; None where clients train or vote."""
        codec = self.at(round).codec
        return codec.query if isinstance(codec, Answers) else None

    def planned(self, rounds: int) -> dict[str, int]:
        """By phase, how many of the first so many rounds it has."""
        counts = {phase.name: phase.rounds.through(rounds) for phase in self.phases if phase.rounds is not None}
        return counts | {TRAINING: rounds - sum(counts.values())}

    def num_evaluations(self, rounds: int) -> int:
        """How many of the first so many rounds are evaluations."""
        return self.planned(rounds).get(EVALUATIONS, 0)

    def repeats(self, again: Mapping[int, int]) -> dict[str, int]:
        """How many rounds of each phase were charged again, from the counts by round; only phases with any."""
        found = Counter[str]()
        for round, count in again.items():
            found[self.phase(round).name] += count
        return {name: count for name, count in found.items() if count}

    @functools.cached_property
    def client_evaluation(self) -> Scheme:
        """The scheme of evaluations."""
        return self.asking(self.evaluations)

    def asking(self, query: Query) -> Scheme:
        """Answers as the code, of norm 1 at most; they are read, and the weights do not change."""
        noise: Any = self.noise.for_cells(query.noise_multiplier)
        if self.sums_units:  # single units are put on the grid
            noise = replace(noise, bits=getattr(self.noise, "bits", None))
        return replace(
            self,
            codec=Answers(query=query, trained=self.codec),
            clip=L2Clip(clip_norm=1.0),
            noise=noise,
            rule=Scores(),
            weighting="uniform",
            evaluations=Evaluations(),
            queries=(),
        )

    @functools.cached_property
    def _voting(self) -> Scheme:
        """A ballot as the code, bounded by the number of its marks; it is counted, and the weights do not change."""
        codec = self.codec
        assert isinstance(codec, VotedSubset)
        return replace(
            self,
            codec=codec.ballot,
            clip=Marks(ratio=codec.ballot.ratio),
            noise=self.noise.for_votes(codec.noise_multiplier),
            rule=Tally(),
            weighting="uniform",
            evaluations=Evaluations(),
            queries=(),
        )

    @property
    def private(self) -> bool:
        return self.noise.private or self.record_level

    @property
    def record_level(self) -> bool:
        """Whether clients protect their single records themselves, in local training."""
        return self.train.private

    @property
    def unit(self) -> str:
        """Whom the noise protects: 'client', 'record' or 'patient'."""
        return self.train.protects

    @property
    def sums_units(self) -> bool:
        """Whether clients send clipped sums of units inside them, with shares of the noise."""
        return self.train.sums_units

    @property
    def noise_multiplier(self) -> float | None:
        """σ of the part that adds the noise; None if none does."""
        return getattr(self._noisy, "noise_multiplier", None)

    @property
    def _noisy(self) -> LocalTraining | Noise:
        return self.train if self.record_level else self.noise

    @property
    def open(self) -> bool:
        """Whether σ is still to be calibrated: such a scheme says what it is, but cannot be run."""
        return self.private and hasattr(self._noisy, "noise_multiplier") and self.noise_multiplier is None

    def own_noise_multiplier(self, phase: str) -> float | None:
        """σ of votes or of a query; None where it is that of training."""
        for query in self.asked:
            if query.name == phase:
                return query.noise_multiplier
        return getattr(self.codec, "noise_multiplier", None) if phase == VOTES else None

    def with_noise_multiplier(self, sigma: float | None, phase: str = TRAINING) -> Scheme:
        """The same scheme with this σ: of training and all phases that have none of their own, or of another phase.

        None leaves it open.
        """
        if phase == EVALUATIONS:
            return replace(self, evaluations=replace(self.evaluations, noise_multiplier=sigma))
        if phase == VOTES:
            codec: Any = self.codec
            return replace(self, codec=replace(codec, noise_multiplier=sigma))
        if phase != TRAINING:
            own = (replace(one, noise_multiplier=sigma) if one.name == phase else one for one in self.queries)
            return replace(self, queries=tuple(own))
        noisy: Any = self._noisy
        part = replace(noisy, noise_multiplier=sigma)
        return replace(self, train=part) if self.record_level else replace(self, noise=part)

    @property
    def added_by(self) -> dict[str, str]:
        """Who adds the noise, and what a sum is divided by."""
        return self.noise.added_by | self.train.added_by

    @functools.cached_property
    def fingerprint(self) -> str:
        """Names the scheme in every message: 32 hex digits of the SHA-256 of its canonical JSON."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]
