"""Patients in the place of whole clients: what a promise for each of them costs, and when to ask for it.

The noise in the sum of a round is σ·S, whomever it protects; the signal is the sum over all that are protected, each up
to S. So the noise ratio of n clients is ν = √d·σ/(n·√T') (`ranking`), and that of U patients is the same with U in the
place of n. A few clients can hide only in much noise, and their many patients in little.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from laconic import schemes
from laconic.advice.question import Question
from laconic.advice.ranking import noise_ratio
from laconic.experiment.mechanism import Mechanism
from laconic.figures import as_flag, rounded_up
from laconic.privacy.accounting.budget import Budget, calibrate_noise
from laconic.privacy.accounting.releases import PATIENT
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian

FEW_CLIENTS = 300
"""With fewer, patients are proposed. At ε = 1 hiding whole hospitals costs 100 of them most of what sharing gives, and
20 do better alone (docs/results/small-federations.md)."""
ROUNDS, AVERAGED, MOMENTUM, CLIP_NORM, SERVER_LR = 80, 0.4, 0.9, 1.0, 5.0
"""To begin with: tried on held-out patients of diabetes130, with 597 columns and without public records."""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """The same promise for every patient.

    Attributes:
        num_units: how many patients there are, as declared.
        rounds: T, with everybody in each.
        noise_multiplier: σ.
        epsilon: ε, one for server and outsider.
        noise_ratio: of the noise to the reach; comparable with that of a `Setting`.
        command: the run.
    """

    num_units: int
    rounds: int
    noise_multiplier: float
    epsilon: float
    noise_ratio: float
    command: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def inside(question: Question, flags: dict[str, Any], features: int | None) -> Inside | None:
    """Patients protected by the clients together; None where it is not known how many there are."""
    if question.num_units is None:
        return None
    rounds, weights = min(ROUNDS, question.most_rounds), question.weights_of(features)
    everybody = Poisson(sampling_rate=1.0)
    sigma = calibrate_noise(
        epsilon=question.epsilon,
        delta=question.delta,
        rounds=rounds,
        sampler=everybody,
        num_clients=question.num_clients,
        noise=lambda s: DiscreteGaussian(noise_multiplier=s),
    )
    scheme = schemes.fl_std_dp(
        unit=PATIENT, num_units=question.num_units, clip_norm=CLIP_NORM, noise_multiplier=sigma, momentum=MOMENTUM
    )
    accountant = Mechanism(
        scheme=scheme,
        sampler=everybody,
        num_clients=question.num_clients,
        num_units=question.num_units,
        size=weights,
        rounds=rounds,
        budget=Budget(delta=question.delta),
    ).accountant
    assert accountant is not None
    flags = flags | {"unit": PATIENT, "num-units": question.num_units, "sampling-rate": 1, "rounds": rounds}
    flags |= {"epsilon": as_flag(question.epsilon), "delta": as_flag(question.delta), "clip-norm": f"{CLIP_NORM:g}"}
    flags |= {"server-lr": f"{SERVER_LR:g}", "momentum": f"{MOMENTUM:g}", "eval-every": rounds}
    flags |= {"average-last": max(1, round(AVERAGED * rounds))}
    return Inside(
        num_units=question.num_units,
        rounds=rounds,
        noise_multiplier=sigma,
        epsilon=accountant.participant_epsilon(rounds),
        noise_ratio=noise_ratio(weights, sigma, cohort=question.num_units, rounds=rounds, momentum=MOMENTUM),
        command="laconic run fl-std-dp " + " ".join(f"--{name} {value}" for name, value in flags.items()),
    )


def whom_to_protect(question: Question, ratio: float, found: Inside | None) -> str:
    """A proposal and its reason; empty where clients are many and nobody asked."""
    count, promise = question.num_clients, f"ε = {rounded_up(question.epsilon)}"
    if found is not None:
        times = ratio / found.noise_ratio
        return (
            f"Whom do you protect? One patient with all records at one client has {promise} with {times:,.3g} times"
            f" less noise than a whole client: {found.num_units:,} patients share the noise that {count:,} clients"
            " share above. A whole client then has no ε, also not against the server"
        )
    if count >= FEW_CLIENTS:
        return ""
    return (
        f"Whom do you protect? {count:,} clients are few, and hiding a whole one of them takes much noise. If it is"
        " their patients that you protect, add --num-units: about how many there are in all, as publicly known"
    )
