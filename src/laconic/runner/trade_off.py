"""ε of a finished run at several δ, for the report: together they bound what an attacker can do far better than one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from laconic.runner.attacked import missing_noise
from laconic.runner.planned import answered_for
from laconic.runner.progress import Progress

_DELTAS = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.6)


def privacy_profile(run: Progress) -> dict[str, Any] | None:
    """(ε, δ) pairs of the run, each proven as that of the statement is; None for a scheme that promises nothing.

    A mechanism is (ε, δ)-private for a whole curve of pairs. The statement names one of them; it alone would allow an
    attacker nearly everything from ε = 6 or so on, although noise that has this pair allows far less. What the finite
    precision of a sampler costs is taken out of every δ, as it is out of the statement's. Where attackers left out
    noise, the pairs are those of the noise that was left; there are none if none was.
    """
    accountant, budget = run.accountant, run.experiment.budget
    if budget is None or accountant is None:
        return None
    spent = answered_for(run)
    found: dict[str, Any] = {"released": [], "participant": []}
    attack = missing_noise(run, spent)
    if attack is not None and not attack["holds"]:
        if attack["noise_left"] == 0:
            return found
        accountant = accountant.weakened(attack["noise_left"])
    for delta in sorted({*_DELTAS, budget.delta}):
        at = replace(accountant, delta=delta)
        outsider = at.released_epsilon(spent.rounds, budget.accountant, spent.participations)
        server = at.participant_epsilon(spent.participations)
        for name, epsilon in (("released", outsider), ("participant", server)):
            if math.isfinite(epsilon):
                found[name].append([max(0.0, epsilon), delta])
    return found
