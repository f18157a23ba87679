"""Group testing in a run: which sums go into the step, which clients are excluded, and what its records say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from laconic.experiment.about import testing_assumes
from laconic.experiment.experiment import Experiment
from laconic.group_testing import Findings, chance_of_a_group, detector_of, update_findings
from laconic.plan import RoundPlan
from laconic.privacy.released import Row, TestingFields
from laconic.round import sums_step
from laconic.runner.progress import Progress
from laconic.server.rules import State
from laconic.store.checkpoint import RunState


@dataclass(frozen=True)
class Tested:
    """What became of a round: the new weights, the server's new state, what is known now, and what the row says."""

    weights: Tensor
    rule: State
    findings: Findings
    row: Row


def sums_in_round(e: Experiment, findings: Findings) -> int:
    """In how many groups the next round is summed: the scheme's, fewer if too few clients are left, or one.

    A group of one client hides nothing. One with no more clients than may drop out or collude is never opened; and
    fewer groups have more of these each, as `plan_for` merges them.
    """
    if findings.one_sum:
        return 1
    if not e.sampler.dealt(e.population.num_clients):
        return e.scheme.groups
    left = e.sampler.planned_cohort(e.population.num_clients) - len(findings.excluded)
    slack, most = e.max_dropouts + e.max_colluders, e.scheme.groups
    fitting = (groups for groups in range(most, 1, -1) if left // groups >= max(2, -(-most // groups) * slack + 1))
    return next(fitting, 1)


def tested_step(e: Experiment, state: RunState, plan: RoundPlan, sums: Tensor) -> Tested:
    """The step from those of the released sums (sums, m) that are not spoilt. All of it is post-processing.

    Where the aggregator takes more than are left, there is no step.
    """
    assert state.findings is not None
    clients, groups = e.population.num_clients, len(plan.sums)
    test = detector_of(
        e.scheme,
        e.sampler,
        plan.sums[0],
        sums=groups,
        num_clients=clients,
        code_size=sums.shape[1],
        false_alarms=e.false_alarms,
    )
    verdict = test(sums)
    findings = update_findings(
        state.findings,
        plan,
        verdict,
        chance=chance_of_a_group(groups, len(plan.cohort), dealt=e.sampler.dealt(clients)),
        false_exclusions=e.false_exclusions,
        false_alarms=e.false_alarms,
    )
    row: Row = {
        "groups": groups,
        "spoilt_sums": int(verdict.spoilt.sum()),
        "clearly_spoilt_sums": int(verdict.clear.sum()),
        "largest_sum": float(verdict.norms.max() / test.threshold),
        "suspects": findings.num_suspects,
        "excluded": len(findings.excluded),
    }
    new = [client for client in findings.excluded if client not in state.findings.excluded]
    if new:
        row["newly_excluded"] = new
    kept = sums[np.flatnonzero(~verdict.spoilt).tolist()]
    if len(kept) < (e.scheme.aggregator.least_codes if plan.groups else 1):
        row["no_step"] = f"{row['spoilt_sums']} of {len(sums)} sums are spoilt"
        return Tested(state.weights, state.rule, findings, row)
    if plan.groups and e.scheme.aggregator.sums:
        row["shrunk_to"] = shrinkage(kept, test.noise)
        kept = kept * row["shrunk_to"]
    weights, rule = sums_step(e.scheme, plan, kept, weights=state.weights, state=state.rule)
    return Tested(weights, rule, findings, row)


def shrinkage(sums: Tensor, noise: float) -> float:
    """By which factor the mean of k noisy sums is nearest to that of the codes (James and Stein 1961, positive part):

        max(0, 1 − (m − 2)·v²/(k·‖mean‖²)).

    The mean of groups has √g times the noise of one sum. It would stay in the weights when there is one sum again, so
    where noise is most of the mean, a smaller step is better. It needs nothing but the released sums.
    """
    mean = sums.double().mean(0)
    squared = float(mean @ mean)
    expected = max(0, len(mean) - 2) * noise**2 / len(sums)
    return max(0.0, 1 - expected / squared) if squared > 0 else 0.0


def about_testing(run: Progress) -> TestingFields | None:
    """Who was excluded, when, and how many honest clients that may have hit; None without group testing."""
    e, findings = run.experiment, run.state.findings
    if findings is None:
        return None
    found: TestingFields = {
        "excluded": [{"client": client, "after_round": last} for client, last in findings.excluded.items()],
        "expected_false_exclusions": e.false_exclusions,
        "false_alarms_per_round": e.false_alarms,
        "spoilt_rounds": sum(row["spoilt_sums"] > 0 for row in run.history),
        "rounds_of_one_sum": sum(row["groups"] == 1 for row in run.history),
        "rounds_without_a_step": sum("no_step" in row for row in run.history),
        "assumes": testing_assumes(e),
    }
    if e.attack is None:
        return found
    attackers = set(e.malicious.tolist())
    caught = sum(client in attackers for client in findings.excluded)
    more: TestingFields = {
        "attackers": len(attackers),
        "attackers_excluded": caught,
        "honest_excluded": len(findings.excluded) - caught,
    }
    return {**found, **more}
