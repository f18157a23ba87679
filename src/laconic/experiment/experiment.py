"""An experiment: the live objects of a run, whether they came from a file, the command line or Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn

from laconic.adversary.attack import Attack
from laconic.adversary.malicious import Infiltration, malicious_clients
from laconic.adversary.missing_noise import about_ring, attackers_show_cohort
from laconic.codecs.votes import VotedSubset
from laconic.data.federated import Subgroup
from laconic.data.population import Population, Records, most_owners, units_of
from laconic.errors import ConfigError, several
from laconic.experiment.mechanism import Mechanism, check_correlated, correlated_problems, count_units, loses_by_cohort
from laconic.options.declare import problems_of
from laconic.options.sections import (
    DeltaOptions,
    HeldOutOptions,
    RunOptions,
    SlackOptions,
    SumOptions,
    TestingOptions,
)
from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import CLIENT, METHODS, PATIENT, TRAINING
from laconic.privacy.accounting.sampling import FixedSize, Sampler
from laconic.privacy.mechanism.grid import Grid
from laconic.privacy.statement import check_delta
from laconic.scheme import Scheme
from laconic.streams import Streams
from laconic.train.flat import trainable_size
from laconic.train.local import UnitGradients
from laconic.train.losses import Loss

PATIENCE_NEEDS = (
    "patience needs a held-out set: give ⟨holdout⟩ (a fraction such as 0.1), or ⟨evaluate-every⟩ (clients measure)"
)


@dataclass(frozen=True, kw_only=True)
class Experiment(RunOptions, SlackOptions, SumOptions, DeltaOptions, TestingOptions, HeldOutOptions):
    """Everything a run needs. Its options (rounds, seed, device, …) are declared in `options/sections.py`.

    `test` is only looked at; `holdout` decides when to stop early (`patience` evaluations without a better metric);
    `public` records belong to no client, and some schemes choose with them what to train. All records are as they came;
    with a `front_end`, a fixed public module, the `model` is a head that sees only what it makes of them. `notes` are
    sentences for the privacy statement: what was chosen on private data without being charged. `best_by` is the metric
    by which the best round is chosen and progress on the held-out set is seen; 'auto' is accuracy, or the loss where
    there is none. `test_clients` says whose each test record is, for metrics by client (not in a private run).
    `class_names` are for the report. Of targets that are values an error of 1 is `target_unit` in the user's unit.
    `subgroups` of the test records are judged apart.

    `secagg` says how the sums of a private run come about: 'simulated' adds the clients' integers in the open, 'masked'
    sends them through the protocol, in this process; `consistency` is the protocol's. Of every cohort a fraction
    `dropout_rate` vanishes, at `dropout_stage`. `noise_draws` says whether every client draws its share of the noise,
    or a simulation the shares of a sum at once.

    With an `attack` some clients are malicious: see `adversary/`. Only simulations and tests have one. With
    `group_testing` those that spoil the sums of their groups are found and excluded: see `group_testing`.

    A δ of one over the number of clients (or records) or more is refused, unless `allow_large_delta` insists on it.

    Args:
        scheme: what clients send and what the server does.
        model: a module, or the head behind the front end.
        population: who holds which records.
        sampler: who takes part in a round.
        budget: δ and limits of ε; a private scheme needs one.
        test: records that are looked at.
        test_clients: whose each test record is.
        holdout: records that decide early stopping.
        public: records that belong to no client.
        front_end: a fixed public module.
        loss: 'auto', a name, or a function from (outputs, targets) to one loss per record.
        notes: sentences for the privacy statement. Others may read those that are marked (`Sentence.public`); a plain
            text is for the server's own statement alone.
        attack: what malicious clients do.

    Examples:
        >>> import torch
        >>> from laconic.data.population import as_population
        >>> clients = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(10)]
        >>> experiment = laconic.Experiment(
        ...     scheme=laconic.schemes.fl_std(local_lr=0.1, local_steps=1), model=torch.nn.Linear(8, 2),
        ...     population=as_population(clients), sampler=laconic.Poisson(sampling_rate=0.5), rounds=2,
        ... )
        >>> experiment.code_size
        18
    """

    scheme: Scheme
    model: nn.Module
    population: Population
    sampler: Sampler
    budget: Budget | None = None
    test: Records | None = None
    test_clients: np.ndarray | None = None
    class_names: tuple[str, ...] = ()
    target_unit: float = 1.0
    subgroups: Mapping[str, Subgroup] = field(default_factory=dict)
    holdout: Records | None = None
    public: Records | None = None
    front_end: nn.Module | None = None
    loss: str | Loss = "auto"
    notes: tuple[str, ...] = ()
    attack: Attack | None = None

    def __post_init__(self) -> None:
        if problems := problems_of(self):
            raise ConfigError(several(problems))
        if self.scheme.open:
            raise ConfigError(
                f"{self.scheme.name} has no noise multiplier: give it noise_multiplier, or calibrate it first"
                " (laconic.run does so with epsilon)"
            )
        if self.patience is not None and self.holdout is None and not self.scheme.evaluations.every:
            raise ConfigError(PATIENCE_NEEDS)
        check_evaluations(self.scheme, self.rounds, attacked=self.attack is not None)
        check_votes(self.scheme, self.rounds, trainable_size(self.model))
        if problems := list(correlated_problems(self)):
            raise ConfigError(several(problems))
        slack = self.max_dropouts + self.max_colluders
        check_rounds(self.scheme, self.sampler, self.population.num_clients, self.budget, slack)
        if self.group_testing:
            check_testable(self.scheme)
            if self.false_exclusions >= self.population.num_clients:
                raise ConfigError(
                    f"⟨false-exclusions⟩ {self.false_exclusions:g} of {self.population.num_clients} clients would"
                    " exclude all clients at once: use a small number such as 1"
                )
        if self.secagg == "masked":
            check_maskable(self.scheme)
        check_noise_draws(self, self.scheme)
        if self.dropout_rate and not self.scheme.noise.private:
            raise ConfigError(
                f"{self.scheme.name} has no secure sum to drop out of: use ⟨dropout-rate⟩ with -dp schemes"
            )
        if self.attack is not None:
            self._check_attack(self.attack)
        if self.scheme.private:
            assert self.budget is not None
            check_delta(self.budget.delta, units=self.protected, one=self.scheme.unit, allowed=self.allow_large_delta)
        if isinstance(self.scheme.train, UnitGradients):
            check_units(self.scheme.train, self.sampler, self.population.num_clients)
            check_held_units(self.scheme.train, self.population)

    def _check_attack(self, attack: Attack) -> None:
        """Refuse an attack that cannot be tried here."""
        problems = list(attack.problems(self.scheme))
        if attack.relabels and self.population.records(0).targets.is_floating_point():
            problems.append("the attack changes labels, but the targets of these records are no classes")
        if attack.fraction is not None and not self.sampler.amplifies:
            problems.append(
                "⟨attack-fraction⟩ puts malicious clients into every cohort, and with ⟨sampler⟩ cyclic clients take"
                " turns: name them with ⟨attack-malicious⟩, or use another sampler"
            )
        if problems:
            raise ConfigError(several(problems))
        _ = self.malicious  # which may be empty
        planned = self.sampler.planned_cohort(self.population.num_clients)
        if attack.fraction and round(attack.fraction * planned) == 0:
            raise ConfigError(
                f"a fraction {attack.fraction:g} of a cohort of {planned:g} is no client: raise ⟨attack-fraction⟩ or"
                " ⟨cohort-size⟩ (⟨sampling-rate⟩)"
            )

    @functools.cached_property
    def malicious(self) -> np.ndarray:
        """The clients that attack, sorted; none without an attack."""
        if self.attack is None:
            return np.zeros(0, dtype=np.int64)
        return malicious_clients(self.attack, self.population.num_clients, Streams(self.seed))

    def attackers(self, plan: RoundPlan) -> np.ndarray:
        """Who of a round's cohort attacks in it."""
        if self.attack is None or not self.attack.active(plan.round):
            return plan.cohort[:0]
        return plan.cohort[np.isin(plan.cohort, self.malicious)]

    def about_ring(self, attackers: int | None = None) -> str | None:
        """That the votes of so many attackers, or of those that are expected, do not fit into the ring."""
        if self.attack is None:
            return None
        if attackers is None:
            planned = self.sampler.planned_cohort(self.population.num_clients, self.scheme.groups)
            attackers = round(planned * len(self.malicious) / self.population.num_clients)
            attackers = max(attackers, 1) if self.scheme.groups > 1 else attackers  # in the group of any of them
        return about_ring(self.scheme, self.attack, self.typical_plan(), self.code_size, attackers)

    @property
    def arrange(self) -> Infiltration | None:
        """Puts the attackers into cohorts; None if those stay as they are drawn."""
        if self.attack is None or self.attack.fraction is None:
            return None
        fixed = isinstance(self.sampler, FixedSize)
        clients = self.population.num_clients
        planned = self.sampler.planned_cohort(clients)
        return Infiltration(self.malicious, self.attack.fraction, clients, fixed, planned)

    @functools.cached_property
    def protected(self) -> int:
        """How many there are of what is protected: clients, records, or units inside clients, as declared."""
        declared = getattr(self.scheme.train, "num_units", None)
        return count_units(self.population, record_level=self.scheme.record_level, declared=declared)

    @property
    def mechanism(self) -> Mechanism:
        """What the run does to one client's data, in public numbers."""
        return Mechanism(
            scheme=self.scheme,
            sampler=self.sampler,
            num_clients=self.population.num_clients,
            num_units=None if self.scheme.unit == CLIENT else self.protected,
            size=trainable_size(self.model),
            rounds=self.rounds,
            budget=self.budget,
            max_dropouts=self.max_dropouts,
            max_colluders=self.max_colluders,
            loses_by_cohort=loses_by_cohort(self),
            attackers_show_cohort=attackers_show_cohort(self.attack, self.sampler),
            group_testing=self.group_testing,
            draws_per_sum=self.draws_per_sum,
        )

    @property
    def draws_per_sum(self) -> bool:
        """Whether the clients' shares of the noise in a sum are drawn at once: only where no client sends a share."""
        simulated = self.scheme.noise.draws_at_once and self.secagg == "simulated"
        return simulated and self.noise_draws != "per-client"

    @property
    def accountant(self) -> RunAccountant | None:
        """The accountant of the run; None for a scheme that promises nothing."""
        return self.mechanism.accountant

    @property
    def promised(self) -> RunAccountant | None:
        """That of the same run if its attackers showed nothing: noise and budget are made before any attack."""
        return replace(self.mechanism, attackers_show_cohort=False).accountant

    @property
    def code_size(self) -> int:
        """m: how many values a client sends."""
        return self.mechanism.code_size

    @property
    def sensitivity(self) -> float:
        """S: the largest norm of a client's code."""
        return self.mechanism.sensitivity

    @property
    def bound(self) -> float:
        """S: what a client's code is clipped to, or, where records are protected, the gradient of one."""
        return self.scheme.train.record_bound or self.sensitivity

    def typical_plan(self) -> RoundPlan:
        """The plan of a round with the cohort that is expected: for bits, bytes and precision beforehand."""
        return self.mechanism.typical_plan()

    @property
    def grid(self) -> Grid | None:
        """The grid of integer noise; None for other noise."""
        return self.mechanism.grid

    def delta_slack(self) -> float:
        """What the noise sampler's finite precision may cost over the run; refused if it is not negligible."""
        return self.mechanism.delta_slack()


def check_rounds(scheme: Scheme, sampler: Sampler, num_clients: int, budget: Budget | None, slack: int) -> None:
    """Refuse what no round can be, or no accountant answers for. No record has to be read to know it."""
    sampler.check(num_clients)
    if scheme.downlink == "signs" and sampler.rate_in(num_clients) < 1:
        raise ConfigError(
            f"{scheme.name} sends only signs down, so every client must take part in every round: use ⟨sampling-rate⟩ 1"
        )
    check_cohort(scheme, sampler, num_clients)
    if not scheme.private:
        return
    check_correlated(scheme, sampler)
    if scheme.record_level and not sampler.amplifies:
        raise ConfigError(
            f"{scheme.name}: for single records no accountant answers where clients take turns: use ⟨sampling-rate⟩ or"
            " ⟨cohort-size⟩"
        )
    if budget is None:
        raise ConfigError(f"{scheme.name} is private and needs a delta (⟨delta⟩)")
    budget.check(sampler, None if scheme.unit == CLIENT else METHODS)
    sampler.check_slack(num_clients, slack, scheme.groups)


def check_units(train: UnitGradients, sampler: Sampler, num_clients: int) -> None:
    """Refuse units inside clients where the ε would not be theirs."""
    train.planned_units(1.0)  # refused if it is open
    if train.max_owners > num_clients:
        raise ConfigError(
            f"⟨max-owners-per-patient⟩ {train.max_owners} is more than the {num_clients} clients: lower it"
        )
    if train.max_owners > 1 and sampler.rate_in(num_clients) < 1:
        raise ConfigError(
            f"⟨max-owners-per-patient⟩ {train.max_owners}: a patient of several clients is in more rounds than any of"
            " them, and that is accounted for only if all clients take part in every round: use ⟨sampling-rate⟩ 1"
        )


def check_held_units(train: UnitGradients, population: Population) -> None:
    """Refuse records that do not say whose they are, and patients of more clients than declared."""
    units_of(population, 0, train.unit)
    found = most_owners(population) if train.unit == PATIENT else None
    if found is not None and found > train.max_owners:
        raise ConfigError(
            f"a patient has records at {found} clients, but ⟨max-owners-per-patient⟩ is {train.max_owners}, so the"
            f" patient could add {found} times what the noise is for: use ⟨max-owners-per-patient⟩ {found}, or leave"
            " such records at one client"
        )


def check_cohort(scheme: Scheme, sampler: Sampler, num_clients: int) -> None:
    """Refuse an aggregator that takes more codes than a round is expected to have, and groups of fewer than two."""
    least, planned = scheme.aggregator.least_codes, sampler.planned_cohort(num_clients)
    if scheme.groups > 1:
        if planned < 2 * scheme.groups:
            raise ConfigError(
                f"⟨groups⟩ {scheme.groups} of a cohort of {planned:g} leaves fewer than two clients in a group, where a"
                f" sum hides no client: use ⟨groups⟩ {max(1, int(planned // 2))} or fewer, or more clients in a round"
            )
        return
    if not scheme.aggregator.sums and planned < least:
        raise ConfigError(
            f"{type(scheme.aggregator).__name__} takes {least} codes or more, but a cohort has {planned:g}: lower"
            " ⟨byzantine⟩, or have more clients in a round (⟨sampling-rate⟩, ⟨cohort-size⟩)"
        )


def check_noise_draws(sums: SumOptions, scheme: Scheme) -> None:
    """Refuse noise that is drawn for whole sums where clients send shares of it, or where there is none."""
    if sums.noise_draws != "per-sum":
        return
    if sums.secagg == "masked":
        raise ConfigError(
            "⟨noise-draws⟩ per-sum draws the noise of a sum at once, but with ⟨secagg⟩ masked every client masks a"
            " share of its own: leave one of them out"
        )
    if not scheme.noise.draws_at_once:
        raise ConfigError(
            f"⟨noise-draws⟩ per-sum is for noise that clients add in shares, and {scheme.name} has none: leave it out"
        )


def check_testable(scheme: Scheme) -> None:
    """Refuse group testing where there are no groups with noise, or where every round must move the weights."""
    if not scheme.noise.private:
        raise ConfigError(
            f"⟨group-testing⟩ tests noisy sums, and {scheme.name} adds no noise: its server sees single codes, so use a"
            " rule that looks at them (⟨aggregator⟩ median, multi-krum, …), or a scheme in -dp with ⟨groups⟩"
        )
    if scheme.groups == 1:
        raise ConfigError("⟨group-testing⟩ needs groups to test: add ⟨groups⟩ (20, say)")
    if scheme.codec.vote_rounds:
        raise ConfigError(
            f"⟨group-testing⟩ tests codes of one kind, and {scheme.name} begins with votes: leave out"
            " ⟨top-selection⟩ votes, and choose the weights with public data, or leave out ⟨group-testing⟩"
        )
    for query in scheme.asked:
        raise ConfigError(f"⟨group-testing⟩ tests codes of one kind, and {query.name} are of another: leave one out")
    if scheme.downlink == "signs":
        raise ConfigError(
            f"⟨group-testing⟩ leaves out the step of a spoilt round, but {scheme.name} sends signs down, which say that"
            " every weight moves: use fl-sign-dp"
        )


def check_evaluations(scheme: Scheme, rounds: int, *, attacked: bool = False) -> None:
    """Refuse evaluations and other queries that never come, and those that attackers would answer."""
    planned, every = scheme.planned(rounds), scheme.evaluations.every
    for query in scheme.asked:
        if planned.get(query.name, 0) == 0:
            what = f"⟨evaluate-every⟩ {every}" if query is scheme.evaluations else f"the query {type(query).__name__}"
            raise ConfigError(f"{what} of ⟨rounds⟩ {rounds} is never: evaluate more often")
        if attacked:
            raise ConfigError(f"what attackers would send in {query.name} is not defined: {query.without}")
    if scheme.asked and planned[TRAINING] == 0:
        raise ConfigError(f"the queries of ⟨rounds⟩ {rounds} leave no round to train in: ask less often")


def check_votes(scheme: Scheme, rounds: int, size: int | None = None) -> None:
    """Refuse a run that only votes, a noise of votes where there is none, and blocks for a larger model than this."""
    if not isinstance(scheme.codec, VotedSubset):
        return
    kept = None if size is None else scheme.codec.code_size(size)
    if kept is not None and scheme.codec.ballot.block > kept:
        raise ConfigError(
            f"blocks of {scheme.codec.ballot.block} weights are larger than the {kept} weights that are kept: lower"
            " ⟨vote-block⟩, or raise ⟨ratio⟩"
        )
    if scheme.codec.vote_rounds >= rounds:
        raise ConfigError(
            f"⟨vote-rounds⟩ {scheme.codec.vote_rounds} of ⟨rounds⟩ {rounds} leaves none to train in: vote less often"
        )
    if scheme.codec.noise_multiplier is not None and not scheme.noise.private:
        raise ConfigError(f"{scheme.name} adds no noise, so ⟨vote-noise-multiplier⟩ means nothing: use a scheme in -dp")


def check_maskable(scheme: Scheme) -> None:
    """Only integers can be masked."""
    if not scheme.noise.private:
        raise ConfigError(f"{scheme.name} sends plain codes, which are not masked: use a scheme in -dp")
    if not scheme.noise.on_integers:
        raise ConfigError(f"{scheme.name} has continuous noise, which cannot be masked: use ⟨noise⟩ integer")
