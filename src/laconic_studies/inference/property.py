"""Property inference: does a participant's update tell a property of its records that the task does not ask for?

The passive attack of Melis et al. (Exploiting Unintended Feature Leakage in Collaborative Learning, S&P 2019), which
thesis section 5.2 tried on FL-STD and FL-SIGN, in code of our own. Participant 0 is the victim, participant 1 the
attacker. In a share of the rounds the victim's batch consists of records with the property alone, in the others of
records without it. In every round the attacker emulates the victim with its own records, from the same weights and
through the same scheme: 8 batches with the property (two each of 100, 80, 60 and 40 %), 8 without. A classifier learns
from these and guesses about the victim.

Two things differ from the cited code. All participants start a round from the same weights, as in federated averaging;
there they take turns. The rounds with the property are drawn at random; there it is every fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from laconic.aggregate.protocol import PlainSum
from laconic.data.inputs import dense
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError, unknown
from laconic.parts import non_negative_int, positive_int, probability
from laconic.plan import RoundPlan
from laconic.planning import plan_for
from laconic.privacy.accounting.sampling import FixedSize
from laconic.privacy.mechanism.gaussian import NoNoise
from laconic.round import bounded_codes, first_server_state, noise_stream, noisy_codes, received, release_stream
from laconic.scheme import Scheme
from laconic.streams import Stream, Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Task
from laconic.train.flat import FlatModel
from laconic.train.importance import accumulated_gradient
from laconic.train.local import LocalSGD
from laconic_studies.inference.property_classifiers import check_classifiers, guessed
from laconic_studies.inference.property_data import Batches
from laconic_studies.inference.property_features import FEATURES, check_features
from laconic_studies.inference.scores import Score
from laconic_studies.inference.views import Moment, check_views

VICTIM, ATTACKER = 0, 1
SHARES = (1.0, 1.0, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4) + (0.0,) * 8
"""How much of each emulated batch has the property."""
EMULATIONS = ("noisy", "clean")
_BACKGROUND = 4
"""At least so many batches are emulated in a round for the other participants, if there are any."""
Watch = Callable[[int, int], None]
"""Told after each round: its number, and of how many."""


@dataclass(frozen=True, kw_only=True)
class PropertyInference:
    """How the attack is run: `warm_up` rounds, then `rounds` that the attacker observes.

    `share` of the observed rounds have the property. The attacker emulates in every round, or in one of so many
    (`emulate_every`), as the weights change slowly. Under noise, an attacker that emulates 'noisy' learns from codes
    with noise of its own, and one that emulates 'clean' from codes without any. The attacker is a participant, so in
    private schemes the plan counts with one colluder: the noise of the others alone is worth σ.
    """

    participants: int = 2
    warm_up: int = 100
    rounds: int = 1000
    share: float = 0.2
    emulate_every: int = 1
    views: tuple[str, ...] = ("single", "others", "model")
    features: tuple[str, ...] = ("absolute", "signed")
    classifiers: tuple[str, ...] = ("forest",)
    emulation: str = "noisy"
    seed: int = 0

    def __post_init__(self) -> None:
        positive_int(rounds=self.rounds, emulate_every=self.emulate_every)
        non_negative_int(warm_up=self.warm_up)
        probability(share=self.share)
        if self.participants < 2:
            raise ConfigError(f"--participants {self.participants}: a victim and an attacker are two")
        check_views(self.views)
        check_features(self.features)
        check_classifiers(self.classifiers)
        if self.emulation not in EMULATIONS:
            raise ConfigError(unknown("emulation", self.emulation, EMULATIONS))
        if min(self.positives, self.rounds - self.positives) < 10:
            raise ConfigError(
                f"--rounds {self.rounds} with a share of {self.share:g} gives fewer than 10 observations of one kind:"
                " raise --rounds"
            )

    @property
    def positives(self) -> int:
        """In how many rounds the victim's batch has the property."""
        return round(self.share * self.rounds)


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What was inferred from one view with one feature map and one classifier."""

    view: str
    features: str
    classifier: str
    score: Score


@dataclass(frozen=True, kw_only=True)
class PropertyResult:
    guesses: tuple[Guess, ...]
    accuracy: float | None
    """Of the trained model on the main task, after the last round; None without test records."""


def check_scheme(scheme: Scheme) -> None:
    """Refuse schemes of which the attack cannot be tried."""
    problem = ""
    if scheme.pooled:
        problem = "sends nothing, so nothing can be inferred from it"
    elif scheme.record_level:
        problem = "protects single records, not what a client's records have in common"
    elif scheme.groups > 1 or not scheme.aggregator.sums:
        problem = "does not add up all codes; use a scheme with a plain or secure sum"
    if problem:
        raise ConfigError(f"{scheme.name} {problem}: choose another scheme, such as fl-std or fl-sign-dp")


class PropertyAttack:
    """One scheme, one model, one attack. `batches` deals out records of the pool by their numbers."""

    def __init__(
        self,
        scheme: Scheme,
        model: nn.Module,
        pool: Records,
        batches: Batches,
        settings: PropertyInference,
        *,
        device: torch.device | None = None,
    ) -> None:
        check_scheme(scheme)
        self.scheme, self.batches, self.settings = scheme, batches, settings
        self._device = device or torch.device("cpu")
        self._streams = Streams(settings.seed)
        self._pool = pool.to(self._device)
        some = self._pool.some(np.arange(2))
        example = (dense(some.inputs).cpu(), some.targets.cpu())
        self.model = FlatModel(model, example=example).to(self._device)
        self._engine = choose_engine("auto", self.model, self._device, example, workers=1)
        self._sampler = FixedSize(cohort_size=settings.participants)
        self._shared = scheme.codec.shared(self.model.size, self._streams.public_seed("public"), self._importance)
        self._clean = replace(scheme, noise=NoNoise(), secure_sum=PlainSum())

    def run(self, test: Records | None = None, watch: Watch = lambda done, of: None) -> PropertyResult:
        """Train, observe and emulate round by round; then learn and guess."""
        s, start = self.settings, self.moment(0)
        weights, state = start.weights, start.state
        truth = np.zeros(s.rounds, dtype=np.int64)
        truth[self._streams.numpy("property", "rounds").permutation(s.rounds)[: s.positives]] = 1
        observed, emulated = Notes(s, self.model), Notes(s, self.model)
        for number in range(1, s.warm_up + s.rounds + 1):
            place = number - s.warm_up - 1
            emulating = place >= 0 and place % s.emulate_every == 0
            here = replace(self.moment(number), weights=weights, state=state)
            codes = self.codes(here, self.rows(number, place >= 0 and bool(truth[place]), emulating=emulating))
            messages = self.sent(here, codes[: s.participants])
            release = release_stream(self._streams, here.plan)
            if place >= 0:
                observed.add([here], [messages], [release])
            if emulating:
                emulated.add(*self.emulated(here, codes, messages[ATTACKER]))
            weights, state = here.step(messages, _sizes(messages), release)
            watch(number, s.warm_up + s.rounds)
        learnt = np.tile((np.array(SHARES) > 0).astype(np.int64), -(-s.rounds // s.emulate_every))
        seen, guesses = observed.features(), []
        for (view, features), learn in emulated.features().items():
            for name in s.classifiers:
                score = guessed(name, (learn, learnt), (seen[view, features], truth), seed=s.seed)
                guesses.append(Guess(view=view, features=features, classifier=name, score=score))
        return PropertyResult(guesses=tuple(guesses), accuracy=self._accuracy(weights, test))

    def moment(self, number: int) -> Moment:
        """A round of this number from the first weights, before anything was learnt."""
        code_size = self.scheme.codec.code_size(self.model.size)
        state = first_server_state(self.scheme, self.model.size, code_size, self._device)
        return Moment(scheme=self.scheme, plan=self._plan(number), weights=self.model.initial.clone(), state=state)

    def _plan(self, number: int) -> RoundPlan:
        return plan_for(
            self.scheme,
            self._sampler,
            np.arange(self.settings.participants),
            streams=self._streams,
            round=number,
            attempt=0,
            num_clients=self.settings.participants,
            max_colluders=1 if self.scheme.noise.private else 0,
            shared=self._shared,
        )

    def rows(self, number: int, with_property: bool, *, emulating: bool) -> np.ndarray:
        """The records of every batch of a round: participants, emulated victims, emulated others."""
        rng, n = self._streams.numpy("property", "batches", number), self.settings.participants
        rows = [self.batches.victim(with_property, rng), self.batches.attacker(rng)]
        rows += [self.batches.other(other, rng) for other in range(n - 2)]
        if emulating:
            rows += [self.batches.emulated(share, rng) for share in SHARES]
            rows += [self.batches.emulated(0.0, rng) for _ in range(max(n - 2, _BACKGROUND) if n > 2 else 0)]
        return np.stack(rows)

    def codes(self, here: Moment, rows: np.ndarray) -> Tensor:
        """Train on each batch as a client would, encode and clip: (batches, m)."""
        support = self.scheme.codec.support(self.model.size, here.plan)
        batches = np.arange(len(rows))
        task = Task(
            train=self.scheme.train,
            weights=received(self.scheme, here.plan, here.weights),
            population=PooledPopulation(self._pool, rows),
            clients=batches,
            streams=self._streams,
            path=("batches", here.plan.round, here.plan.attempt),
            trained=None if support is None else support.to(self._device),
        )
        codes = []
        for chunk in self._engine.updates(task):
            streams = [self._noise(here, int(batch)) for batch in chunk.clients]
            # A copy, as an engine may use the memory again for the next clients.
            codes.append(bounded_codes(self.scheme, here.plan, chunk.values.clone(), streams=streams))
        return torch.cat(codes)

    def _noise(self, here: Moment, client: int, emulation: int | None = None) -> Stream:
        if emulation is None:
            return noise_stream(self._streams, here.plan, client)
        return self._streams.stream("property", "noise", here.plan.round, emulation, client)

    def sent(self, here: Moment, codes: Tensor) -> Tensor:
        """What the participants send: each adds its share of the noise."""
        streams = [self._noise(here, client) for client in range(len(codes))]
        return noisy_codes(self.scheme, here.plan, codes, streams=streams)

    def emulated(self, here: Moment, codes: Tensor, own: Tensor) -> tuple[list[Moment], list[Tensor], list[Stream]]:
        """The messages of a round with each emulated victim, the attacker's own among them.

        The other participants are some of the emulated ones, drawn anew for each victim.
        """
        n, rng = self.settings.participants, self._streams.numpy("property", "others", here.plan.round)
        others, numbers = np.arange(n + len(SHARES), len(codes)), range(len(SHARES))
        picked = [[n + number, *(rng.choice(others, n - 2, replace=False) if n > 2 else ())] for number in numbers]
        some = codes[torch.as_tensor(np.concatenate(picked), device=codes.device)]
        if self.settings.emulation == "clean":
            here, own = replace(here, scheme=self._clean), codes[ATTACKER]
        else:
            streams = [self._noise(here, client, number) for number in numbers for client in range(n - 1)]
            some = noisy_codes(self.scheme, here.plan, some, streams=streams)
        cohorts = [torch.cat([sent[:1], own[None], sent[1:]]) for sent in torch.split(some, n - 1)]
        releases = [self._streams.stream("property", "release", here.plan.round, number) for number in numbers]
        return [here] * len(SHARES), cohorts, releases

    def _importance(self, steps: int) -> Tensor:
        assert isinstance(self.scheme.train, LocalSGD)  # `check_scheme` refuses other training
        public = self._pool.some(self.batches.holdings.public)
        return accumulated_gradient(self.model, self.scheme.train, public, steps)

    def _accuracy(self, weights: Tensor, test: Records | None) -> float | None:
        if test is None:
            return None
        test = test.to(self._device)
        return self.model.evaluate(weights, test.inputs, test.targets).get("accuracy")


class Notes:
    """The features of what was seen, by view and feature map."""

    def __init__(self, settings: PropertyInference, model: FlatModel) -> None:
        self._views, self._shapes = settings.views, model.shapes
        self._found: dict[tuple[str, str], list[np.ndarray]] = {
            (view, name): [] for view in settings.views for name in settings.features
        }

    def add(self, moments: Sequence[Moment], cohorts: Sequence[Tensor], releases: Sequence[Stream]) -> None:
        """Look at rounds with these messages, of the victim, the attacker and the others in this order."""
        for view in self._views:
            looks = [_look(view, *round) for round in zip(moments, cohorts, releases, strict=True)]
            for (of, name), found in self._found.items():
                if of == view:
                    found.append(FEATURES[name](torch.stack(looks), self._shapes).cpu().numpy())

    def features(self) -> dict[tuple[str, str], np.ndarray]:
        return {key: np.concatenate(found) for key, found in self._found.items()}


def _look(view: str, here: Moment, messages: Tensor, release: Stream) -> Tensor:
    """What is seen of a round, in the coordinates of the weights (n,)."""
    if view == "single":
        return here.in_weights(here.single(messages[VICTIM, None])[0])
    if view == "others":
        left = torch.cat([messages[:ATTACKER], messages[ATTACKER + 1 :]])
        return here.in_weights(here.others(left, _sizes(left)))
    return here.model(messages, _sizes(messages), release)


def _sizes(messages: Tensor) -> Tensor:
    """All batches are of the same size, so clients count alike."""
    return torch.ones(len(messages))
