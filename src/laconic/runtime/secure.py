"""From a round's plan to the plan of its secure sum: what every runtime that masks has in common."""

from __future__ import annotations

from laconic.errors import ConfigError, PrivacyError
from laconic.plan import RoundPlan
from laconic.round import uplink_encoding
from laconic.scheme import Scheme
from laconic.secagg import SumPlan, Terms


def sum_terms(scheme: Scheme, plan: RoundPlan, *, run: bytes, beacon: bytes, consistency: str = "plain") -> Terms:
    """The terms of a run's secure sums; any of its rounds' plans will do, they agree in what matters here."""
    check_maskable(scheme)
    return Terms(
        run=run,
        fingerprint=scheme.fingerprint,
        beacon=beacon,
        consistency=consistency,
        max_dropouts=plan.max_dropouts,
        max_colluders=plan.max_colluders,
        least_cohort=plan.least_cohort,
    )


def sum_plan(terms: Terms, scheme: Scheme, plan: RoundPlan, code_size: int) -> SumPlan:
    """One attempt at the sum of a round that may be opened (`RoundPlan.viable`)."""
    if not plan.viable:
        raise PrivacyError(f"round {plan.round}: a cohort of {len(plan.cohort)} clients cannot carry the noise")
    return SumPlan(
        terms=terms,
        round=plan.round,
        attempt=plan.attempt,
        bits=uplink_encoding(scheme, code_size, plan).bits,
        size=code_size,
        cohort=tuple(int(client) for client in plan.cohort),
    )


def check_maskable(scheme: Scheme) -> None:
    """Only integers can be masked."""
    if scheme.private and not scheme.noise.on_integers:
        raise ConfigError(f"{scheme.name} has continuous noise, which cannot be masked: use --noise integer")
    if not scheme.private:
        raise ConfigError(f"{scheme.name} sends plain codes, which are not masked: use a scheme in -dp")


def about_sum(scheme: Scheme) -> str:
    """What the privacy statement says about the sums of a run."""
    if not scheme.secure_sum.hides_single_codes:
        return "none: the server sees every client's code"
    return (
        "simulated: this process summed the codes itself; the ε holds for a deployment in which secure aggregation"
        " shows the server nothing but the sum"
    )
