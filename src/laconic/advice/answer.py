"""The answer: the best settings, which limits bind, and a command that can be pasted.

An advised setting is accounted for as the run itself would be: σ calibrated, both ε, bits and bytes of its messages.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from laconic import schemes
from laconic.advice.inside import Inside, inside, whom_to_protect
from laconic.advice.question import (
    CLIP_NORM,
    FARTHER,
    FEATURES,
    LOCAL_LR,
    LOCAL_STEPS,
    MOMENTUM,
    MOST_ROUNDS,
    OUTSIDER,
    PLAIN_CLIP_NORM,
    PRECONDITION,
    RIDGE,
    ROUNDS,
    SERVER,
    Question,
    Setting,
)
from laconic.advice.ranking import Step, best_step, farthest, noise_ratio, of_features, server_lr_of
from laconic.advice.search import Candidate, candidates, messages
from laconic.errors import ConfigError
from laconic.experiment.mechanism import Mechanism
from laconic.figures import as_flag, rounded_up
from laconic.privacy.accounting.budget import Budget, calibrate_noise
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian


def exact(question: Question, candidate: Candidate) -> Setting:
    """The setting, with the smallest σ that keeps the promise."""
    alone = question.against == SERVER and candidate.rate < 1
    sigma = calibrate_noise(
        epsilon=question.epsilon,
        delta=question.delta,
        rounds=candidate.rounds,
        sampler=Poisson(sampling_rate=candidate.rate),
        num_clients=question.num_clients,
        participations=candidate.cap if alone else None,
        noise=lambda s: DiscreteGaussian(noise_multiplier=s),
        max_participations=candidate.cap,
    )
    return with_noise(question, candidate, sigma)


def with_noise(question: Question, candidate: Candidate, sigma: float, method: str | None = None) -> Setting:
    """The setting with this σ. `method` is the accountant of the outsider's ε; the tight one, unless given."""
    c, sampler = candidate, Poisson(sampling_rate=candidate.rate)
    mechanism = Mechanism(
        scheme=schemes.fl_std_dp(
            clip_norm=_clip_norm(question), noise_multiplier=sigma, local_lr=LOCAL_LR, local_steps=LOCAL_STEPS
        ),
        sampler=sampler,
        num_clients=question.num_clients,
        size=c.weights,
        rounds=c.rounds,
        budget=Budget(delta=question.delta, max_participations=c.cap),
    )
    accountant, grid = mechanism.accountant, mechanism.grid
    assert accountant is not None and grid is not None
    step = best_step(weights=c.weights, noise_multiplier=sigma, cohort=c.cohort * c.kept, rounds=c.rounds)
    few = question.classes is not None and c.rate >= 1 and c.rounds <= MOST_ROUNDS
    if few:
        step = _preconditioned(step, weights=c.weights, sigma=sigma, cohort=c.cohort * c.kept, rounds=c.rounds)
    up, down = messages(question.num_clients, c.cohort, c.weights, sigma)
    taken = c.rounds * c.rate * c.kept
    return Setting(
        cohort=c.cohort,
        sampling_rate=c.rate,
        rounds=c.rounds,
        participations=c.cap if c.cap is not None else (c.rounds if c.rate >= 1 else None),
        features=c.features,
        weights=c.weights,
        noise_multiplier=sigma,
        momentum=step.momentum,
        precondition=PRECONDITION if few else None,
        reach=step.reach,
        server_lr=_server_lr(question, c.rounds, step),
        clip_norm=_clip_norm(question),
        noise=step.noise_ratio * step.reach,
        noise_ratio=step.noise_ratio,
        epsilon_server=accountant.participant_epsilon(busiest(question, c)),
        epsilon_outsider=accountant.released_epsilon(c.rounds, None if c.rate >= 1 else method),
        bits_up=grid.bits,
        bytes_up=taken * up,
        bytes_down=taken * down,
        seconds=None if question.round_seconds is None else question.round_seconds * c.rounds,
        expected_error=of_features(c.features) + step.error,
    )


def _preconditioned(step: Step, *, weights: int, sigma: float, cohort: float, rounds: int) -> Step:
    """The step with the server's preconditioner. Settings are ranked by their plain steps all the same."""
    ratio = noise_ratio(weights, sigma, cohort=cohort, rounds=rounds, momentum=MOMENTUM)
    return replace(step, momentum=MOMENTUM, reach=FARTHER * farthest(ratio), noise_ratio=ratio)


def busiest(question: Question, candidate: Candidate) -> int:
    """How often the client that comes most often takes part: the cap, or what chance exceeds in 1 % of all runs."""
    if candidate.cap is not None or candidate.rate >= 1:
        return candidate.cap or candidate.rounds
    from scipy.stats import binom

    return max(1, int(binom.isf(0.01 / question.num_clients, candidate.rounds, candidate.rate)))


def _clip_norm(question: Question) -> float:
    return PLAIN_CLIP_NORM if question.classes is None else CLIP_NORM


def _server_lr(question: Question, rounds: int, step: Step) -> float:
    """The server's step: a linear layer reaches as far as the noise allows; otherwise a mean update counts once."""
    if question.classes is None:
        return 1 - step.momentum
    return server_lr_of(step.reach, rounds=rounds, momentum=step.momentum, clip_norm=CLIP_NORM)


FRONT_END = "scattering+patches"


def run_command(question: Question, setting: Setting, dataset: str | None = None) -> str:
    """The run. Data and model that were not said are left to the reader, at their defaults."""
    flags = _data_flags(question, setting, dataset)
    whole = setting.sampling_rate >= 1
    flags["sampling-rate"] = 1 if whole else f"{setting.cohort}/{question.num_clients}"
    flags["rounds"] = setting.rounds
    if question.against == SERVER and not whole:
        flags["noise-multiplier"] = as_flag(setting.noise_multiplier)
        flags["participant-epsilon"] = as_flag(question.epsilon)
    else:
        flags["epsilon"] = as_flag(question.epsilon)
    flags["delta"] = as_flag(question.delta)
    if setting.participations is not None and not whole:
        flags["max-participations"] = setting.participations
    flags |= {"clip-norm": f"{setting.clip_norm:g}", "server-lr": f"{setting.server_lr:.6g}"}
    if setting.momentum:
        flags["momentum"] = f"{setting.momentum:g}"
    if setting.precondition is not None:
        flags["precondition"] = f"{setting.precondition:g}"
    if setting.features is not None:
        flags |= {"local-lr": f"{LOCAL_LR:g}", "local-steps": LOCAL_STEPS}
        flags |= {} if question.records is None else {"batch-size": question.records}
    flags |= {"downlink": "half", "eval-every": setting.rounds}
    return "laconic run fl-std-dp " + " ".join(f"--{name} {value}" for name, value in flags.items())


def _data_flags(question: Question, setting: Setting, dataset: str | None) -> dict[str, Any]:
    """What is trained on, by how many clients, behind which front end."""
    flags: dict[str, Any] = {} if dataset is None else {"dataset": dataset}
    flags["num-clients"] = question.num_clients
    if setting.features is not None:
        flags |= {"front-end": FRONT_END, "front-end-projection": "public"}
        flags |= {"front-end-features": setting.features, "front-end-ridge": RIDGE, "public-dataset": "dead-leaves"}
    return flags


SHOWN = 5
_GAIN = 5e-4
"""A limit whose relaxing lowers the expected error by less does not bind."""


@dataclass(frozen=True, kw_only=True)
class Relaxed:
    """What twice as much of something would buy.

    Attributes:
        what: the limit that is relaxed.
        to: its new value.
        expected_error: of the best setting then.
        gain: by how much that is less.
        cohort: of that setting.
        rounds: of that setting.
        features: of that setting.
    """

    what: str
    to: str
    expected_error: float
    gain: float
    cohort: int
    rounds: int
    features: int | None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The answer to a `Question`.

    Attributes:
        question: what was asked.
        best: the setting to run.
        others: the next best ones, each with another cohort or another number of rounds.
        relaxed: what twice as much of each would buy, the most useful first.
        command: the run.
        inside: the same promise for every patient inside the clients, if it was said how many there are.
        whom: which of both to take, and why; empty where clients are many.
    """

    question: Question
    best: Setting
    others: tuple[Setting, ...]
    relaxed: tuple[Relaxed, ...]
    command: str
    inside: Inside | None = None
    whom: str = ""

    @property
    def binding(self) -> tuple[str, ...]:
        """The limits that stand in the way of a better setting, the most important first."""
        return tuple(r.what for r in self.relaxed if r.gain >= _GAIN)

    def to_dict(self) -> dict[str, Any]:
        return {
            "question": asdict(self.question),
            "best": self.best.to_dict(),
            "others": [setting.to_dict() for setting in self.others],
            "binding": list(self.binding),
            "relaxed": [asdict(r) for r in self.relaxed],
            "command": self.command,
            "inside": None if self.inside is None else self.inside.to_dict(),
            "whom": self.whom,
        }


def advise(
    *,
    num_clients: int,
    epsilon: float,
    delta: float = 1e-5,
    against: str = SERVER,
    weights: int | None = None,
    classes: int | None = None,
    features: int | None = None,
    records: int | None = None,
    bytes_up: float | None = None,
    bytes_down: float | None = None,
    cohort: int | None = None,
    max_participations: int | None = None,
    max_rounds: int = ROUNDS,
    round_seconds: float | None = None,
    max_seconds: float | None = None,
    num_units: int | None = None,
    dataset: str | None = None,
) -> Advice:
    """Which settings of `fl-std-dp` to run within these limits; nothing is trained.

    Give `weights` of the model that is trained, or `classes` of a linear layer behind the front end: then
    the number of features is part of the answer. What is None is not limited. Settings are ranked by a model of the
    error that was fitted to runs (docs/advise.md); both ε, bits and bytes are those of the run itself.

    Args:
        num_clients: N, the size of the population.
        epsilon: the ε that is promised.
        delta: δ of the promise; below one over the number of clients.
        against: 'server', which knows who took part, or 'outsider', who does not.
        weights: how many weights are trained.
        classes: how many classes a linear layer has.
        features: the most features of that layer.
        records: records of a client; they are one batch.
        bytes_up: bytes that one client may send in the whole run, on average over the clients.
        bytes_down: bytes that it may receive.
        cohort: how many clients can be had at a time.
        max_participations: in how many rounds one client can take part.
        max_rounds: the most rounds.
        round_seconds: how long a round takes, as measured.
        max_seconds: how long the run may take.
        num_units: about how many patients all clients hold together: then protecting these is looked at, too.
        dataset: is put into the command.

    Returns:
        The best setting and the next best ones, what binds, what relaxing buys, and the command.

    Raises:
        LaconicError: where the limits leave nothing, or are no limits.

    Examples:
        >>> advice = laconic.advise(num_clients=6000, classes=10, epsilon=1, bytes_up=110_880, max_rounds=20)
        >>> advice.best.sampling_rate, round(advice.best.epsilon_server, 2), advice.best.bytes_up <= 110_880
        (1.0, 1.0, True)
        >>> advice.command.startswith("laconic run fl-std-dp")
        True

    References:
        docs/advise.md
    """
    given = locals()
    question = Question(**{name: value for name, value in given.items() if name != "dataset"})
    found = candidates(question)
    if not found:
        raise ConfigError(_nothing(question))
    chosen = _different(found)
    best = exact(question, chosen[0])
    found_inside = inside(question, _data_flags(question, best, dataset), best.features)
    return Advice(
        question=question,
        best=best,
        others=tuple(with_noise(question, c, _rounded_up(c.sigma), "rdp") for c in chosen[1:]),
        relaxed=_relaxed(question, found[0]),
        command=run_command(question, best, dataset),
        inside=found_inside,
        whom=whom_to_protect(question, best.noise_ratio, found_inside),
    )


def _rounded_up(sigma: float) -> float:
    """σ rounded up to three digits, after adding a thousandth for the integers and for the interpolation."""
    digits = 2 - math.floor(math.log10(sigma))
    return math.ceil(sigma * 1.001 * 10.0**digits) / 10.0**digits


def _different(found: list[Candidate]) -> list[Candidate]:
    """The best one, and the best ones of other cohorts and of clearly other numbers of rounds."""
    chosen: list[Candidate] = []
    for candidate in found:
        if all(c.cohort != candidate.cohort or not 0.7 < c.rounds / candidate.rounds < 1.4 for c in chosen):
            chosen.append(candidate)
        if len(chosen) == SHOWN:
            break
    return chosen


def _relaxed(question: Question, best: Candidate) -> tuple[Relaxed, ...]:
    """What doubling each limit would buy, one at a time; and both kinds of bytes together."""
    doubled: list[tuple[str, str, Question]] = []

    def add(what: str, to: str, **changes: Any) -> None:
        doubled.append((what, to, replace(question, **changes)))

    add("ε", rounded_up(2 * question.epsilon), epsilon=2 * question.epsilon)
    add("clients in all", f"{2 * question.num_clients:,}", num_clients=2 * question.num_clients)
    up, down = question.bytes_up, question.bytes_down
    if up is not None:
        add("bytes up", f"{2 * up:,.0f}", bytes_up=2 * up)
    if down is not None:
        add("bytes down", f"{2 * down:,.0f}", bytes_down=2 * down)
    if up is not None and down is not None:
        add("bytes up and down", f"{2 * up:,.0f}, {2 * down:,.0f}", bytes_up=2 * up, bytes_down=2 * down)
    if question.cohort is not None and question.cohort < question.num_clients:
        add("clients at a time", f"{2 * question.cohort:,}", cohort=2 * question.cohort)
    if question.max_participations is not None:
        times = 2 * question.max_participations
        add("participations", f"{times:,}", max_participations=times)
    if question.max_seconds is not None:
        add("seconds", f"{2 * question.max_seconds:g}", max_seconds=2 * question.max_seconds)
    if question.max_rounds != ROUNDS:
        add("rounds", f"{2 * question.max_rounds:,}", max_rounds=2 * question.max_rounds)
    if question.features is not None and question.features < FEATURES:
        add("features", f"{2 * question.features:,}", features=2 * question.features)
    found = []
    for what, to, easier in doubled:
        first = candidates(easier)[0]
        found.append(
            Relaxed(
                what=what,
                to=to,
                expected_error=first.error,
                gain=max(0.0, best.error - first.error),
                cohort=first.cohort,
                rounds=first.rounds,
                features=first.features,
            )
        )
    return tuple(sorted(found, key=lambda r: -r.gain))


def _nothing(question: Question) -> str:
    """Why no setting is within the limits, and which one to raise."""
    if question.most_rounds < 1:
        return "there is no time for one round: raise ⟨max-seconds⟩"
    bare = replace(question, bytes_up=None, bytes_down=None)
    if candidates(bare):
        return "not even one round fits within the bytes: raise ⟨bytes-up⟩ and ⟨bytes-down⟩, or lower ⟨weights⟩"
    who = "an outsider" if question.against == OUTSIDER else "the server"
    return (
        f"no noise keeps ε = {rounded_up(question.epsilon)} against {who} at δ = {rounded_up(question.delta)}: raise"
        " ⟨epsilon⟩ or ⟨delta⟩"
    )
