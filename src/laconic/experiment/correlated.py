"""What noise that is correlated over rounds does not go with, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from laconic.experiment.mechanism import taking_turns
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.bands import sensitivity_squared
from laconic.privacy.mechanism.correlated import CorrelatedGaussian
from laconic.scheme import Scheme

if TYPE_CHECKING:
    from laconic.experiment.experiment import Experiment


def check_correlated(scheme: Scheme, sampler: Sampler) -> None:
    """Refuse a sampler under which the sensitivity would not be bounded as it is accounted for."""
    if isinstance(scheme.noise, CorrelatedGaussian):
        sensitivity_squared(scheme.noise.factors, 1, taking_turns(sampler).separation)


def momentum_of(scheme: Scheme) -> float:
    """ρ of the server's rule, for which the bands are made; 0 where it has none."""
    return float(getattr(scheme.rule, "momentum", 0.0))


def correlated_problems(e: Experiment) -> Iterator[str]:
    """All that is in the way of central noise in an experiment."""
    if not e.scheme.noise.central:
        return
    if e.secagg == "masked":
        yield (
            "--secagg masked hides noise that clients add, and correlated noise is added by the server: leave out"
            " --noise-bands or --secagg masked"
        )
    if e.noise_draws == "per-client":
        yield "--noise-draws per-client: the server adds correlated noise, no client does; leave one of them out"
    if e.max_dropouts or e.max_colluders:
        yield (
            "--max-dropouts and --max-colluders are about clients' shares of the noise, and correlated noise has none:"
            " leave them out, or leave out --noise-bands"
        )
    if e.dropout_rate:
        yield "--dropout-rate tries the clients' shares of the noise, and correlated noise has none: leave one out"
    if e.group_testing:
        yield "--group-testing tests sums of groups, and correlated noise is added to one sum: leave one of them out"
    if e.attack is not None:
        yield (
            "an attack sends codes that are not clipped, and these would stay in the server's sums for --noise-bands"
            " rounds: what becomes of the ε is not worked out; leave out --attack or --noise-bands"
        )
    if e.budget is not None and e.budget.participant_epsilon is not None:
        yield (
            "--participant-epsilon: with correlated noise no ε holds against the server, which adds the noise itself:"
            " leave out --participant-epsilon or --noise-bands"
        )
