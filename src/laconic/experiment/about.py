"""What the privacy statement says about the mechanism of a run: its noise, its grid, its sums."""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import torch

from laconic.aggregate.base import Aggregator
from laconic.audience import Sentence
from laconic.codecs.queries import Query
from laconic.codecs.votes import VotedSubset
from laconic.experiment.experiment import Experiment
from laconic.experiment.mechanism import Mechanism, momentum_of
from laconic.features.base import FrontEnd, describe
from laconic.figures import rounded_up
from laconic.group_testing import Detector, Prospects, chance_of_a_group, detector_of
from laconic.guard.noise import marks_of
from laconic.privacy.accounting.releases import EVALUATIONS, TRAINING
from laconic.privacy.accounting.sampling import Cyclic
from laconic.privacy.mechanism.correlated import CorrelatedGaussian, last_error, mean_error, sensitivity_squared
from laconic.privacy.released import CorrelationFields, GridFields, GroupFields, MechanismFields, VoteFields
from laconic.secagg.terms import CURIOUS

_MEASURED = 1 << 22
"""Values on which the noise that a rule leaves is measured: all coordinates of the groups' codes, or some."""
_DEPLOYED = "the ε holds for a deployment in which secure aggregation shows the server nothing but the sum"
_ADDED_AT_ONCE = (
    "this process, to each sum at once, as much as the clients' shares would be together; it tops up what an outsider"
    " sees, as the server would"
)


def about_mechanism(e: Experiment) -> MechanismFields:
    """What bounds and noises a code, or a record's gradient, as data."""
    scheme = e.scheme
    parts: dict[str, Any] = {"clip": scheme.clip.to_dict(), "noise": scheme.noise.to_dict(), "grid": about_grid(e)}
    found: dict[str, Any] = {
        "scheme": scheme.name,
        "fingerprint": scheme.fingerprint,
        **({"train": scheme.train.to_dict()} if scheme.record_level else parts),
        **({"units": scheme.train.to_dict()} if scheme.sums_units else {}),
        **scheme.added_by,
        **({"noise_added_by": _ADDED_AT_ONCE} if e.draws_per_sum and not scheme.noise.central else {}),
        **about_correlation(e),
        "weighting": scheme.weighting,
        **({} if scheme.groups == 1 else {"groups": about_groups(e), "denominator": "the planned size of a group"}),
        **_selection(e),
        **_queries(e),
        **_front_end(e),
    }
    return cast(MechanismFields, found)  # the statement refuses a name that is not declared there


def about_correlation(e: Experiment) -> dict[str, CorrelationFields]:
    """How the noise is correlated over rounds, and how much less of it is left in the iterates; nothing if it is not.

    Ratios are to independent noise under the same sampler at the same ε. They are those of the workload for which the
    bands are made: sums of all rounds, with the server's momentum.
    """
    noise, sampler = e.scheme.noise, e.sampler
    if not isinstance(noise, CorrelatedGaussian) or not isinstance(sampler, Cyclic):
        return {}
    about: dict[str, Any] = {
        "rounds": e.rounds,
        "separation": sampler.separation,
        "momentum": momentum_of(e.scheme),
    }
    return {
        "correlation": {
            "by": "central",
            "bands": noise.bands,
            "separation": sampler.separation,
            "sensitivity": math.sqrt(sensitivity_squared(noise.factors, e.rounds, sampler.separation)),
            "noise_ratio": mean_error(noise.factors, **about) / mean_error([1.0], **about),
            "last_noise_ratio": last_error(noise.factors, **about) / last_error([1.0], **about),
        }
    }


def _selection(e: Experiment) -> dict[str, VoteFields]:
    votes = about_votes(e)
    return {} if votes is None else {"selection": votes}


def about_votes(e: Experiment) -> VoteFields | None:
    """How clients vote on the weights that are kept, and with which noise; None where they do not.

    `alone` is the ε of the votes by themselves, against an outsider: it is in the ε of the run, not besides it.
    """
    codec, voting = e.scheme.codec, e.mechanism.voting
    if voting is None or not isinstance(codec, VotedSubset):
        return None
    blocks = voting.code_size
    found: VoteFields = {
        "by": "votes",
        "rounds": codec.vote_rounds,
        "blocks": blocks,
        "block": codec.ballot.block,
        "marks": marks_of(codec.ballot.ratio, blocks),
        "kept": codec.code_size(voting.size),
    }
    accountant = voting.accountant
    if accountant is None:
        return found
    return found | {
        "sensitivity": voting.sensitivity,
        "noise": voting.scheme.noise.to_dict(),
        "grid": _grid(voting),
        "alone": accountant.released(codec.vote_rounds).to_dict(),
    }


def _queries(e: Experiment) -> dict[str, Any]:
    """Evaluations under their own name, where they always were, and all other queries together."""
    found = about_queries(e)
    evaluations = {name: about for name, about in found.items() if name == EVALUATIONS}
    others = {name: about for name, about in found.items() if name != EVALUATIONS}
    return evaluations | ({"queries": others} if others else {})


def about_queries(e: Experiment) -> dict[str, dict[str, Any]]:
    """By name, what clients are asked, and with which noise they answer.

    `alone` is the ε of the query by itself, against an outsider: it is in the ε of the run, not besides it.
    """
    alone = e.mechanism.alone
    return {query.name: _about_query(e, query, alone[query.name]) for query in e.scheme.asked if query.name in alone}


def _about_query(e: Experiment, query: Query, asking: Mechanism) -> dict[str, Any]:
    found: dict[str, Any] = query.about() | {"rounds": asking.rounds, "cells": query.cells}
    found |= {"held_out": e.held_out} if query.held_out else {}
    accountant = asking.accountant
    if accountant is None:
        return found
    return found | {
        "sensitivity": asking.sensitivity,
        "noise": asking.scheme.noise.to_dict(),
        "grid": _grid(asking),
        "alone": accountant.released(asking.rounds).to_dict(),
    }


def about_other_noise(e: Experiment) -> list[Sentence]:
    """What was drawn in rounds that do not train, and what that costs; nothing without them, or without noise."""
    kinds = e.mechanism.alone.items() if e.scheme.private else ()
    return [Sentence.public(f"of the {name}: " + _about_noise(kind)) for name, kind in kinds if name != TRAINING]


def _about_noise(kind: Mechanism) -> str:
    return kind.scheme.noise.about(
        code_size=kind.code_size,
        sensitivity=kind.sensitivity,
        plan=kind.typical_plan(),
        rounds=kind.rounds,
        delta_slack=kind.delta_slack(),
    ) + _at_once(kind)


def _at_once(kind: Mechanism) -> str:
    """Which draws these were, where a client did not draw a share of its own."""
    if not kind.draws_per_sum or kind.scheme.noise.central:
        return ""
    far = kind.shares_distance()
    counted = f" up to {rounded_up(far, 1)} in total variation over the run (counted)" if far else ""
    return f"; the shares of each sum are drawn at once, from the distribution of their sum{counted}"


def about_groups(e: Experiment) -> GroupFields | None:
    """How cohorts are split, and what that costs; None where they are not.

    `noise_factor` is how much larger the noise in a step is than that of one sum of the whole cohort. Of the mean of g
    groups it is √g: each has the whole noise and a g-th of the clients. Of another rule it is measured, on noise alone.
    """
    groups = e.scheme.groups
    if groups == 1:
        return None
    rule, planned = e.scheme.aggregator, e.sampler.planned_cohort(e.population.num_clients, groups)
    size = min(e.code_size, max(1, _MEASURED // groups))
    scale = e.sensitivity * (e.scheme.noise_multiplier or 0.0) / planned
    return {
        "groups": groups,
        "planned_size": planned,
        "dealt": e.sampler.dealt(e.population.num_clients),
        "aggregator": rule.to_dict(),
        "noise_factor_of_the_mean": math.sqrt(groups),
        "noise_factor": groups * _left_of_noise(rule, groups, size, scale),
        "spoilt_groups_tolerated": rule.tolerates(groups),
    }


_EXAMPLES = (10, 30, 100, 300, 1000)
"""Norms of what an attacker sends, in units of S, for which the rounds are foretold."""


def about_testing(e: Experiment) -> dict[str, Any] | None:
    """What group testing will notice, and how soon; None without it. Norms are in units of S."""
    if not e.group_testing:
        return None
    prospects = prospects_of(e)
    count = min(e.scheme.groups, max(1, len(e.malicious) or e.scheme.groups // 5))
    rounds = {norm: prospects.rounds_to_exclude(count, norm) for norm in _EXAMPLES}
    return {
        "false_alarms_per_round": e.false_alarms,
        "false_exclusions": e.false_exclusions,
        "noticed_from": prospects.noticed,
        "noticed_in_one_sum_from": prospects.noticed_in_one_sum,
        "hidden_bias": prospects.hidden_bias,
        "hidden_bias_at_most": prospects.hidden_bias_at_most,
        "hidden_bias_in_one_sum": prospects.hidden_bias_in_one_sum,
        "hidden_bias_to_noise": prospects.hidden_bias_to_noise,
        "attackers": count,
        "rounds_to_exclude": {str(norm): None if math.isinf(found) else found for norm, found in rounds.items()},
    }


def testing_assumes(e: Experiment) -> str:
    """What the number of honest clients that are excluded rests on."""
    return (
        f"no more than {e.scheme.groups} clients attack in a round, and what they send does not depend on who is in"
        " their group"
    )


def prospects_of(e: Experiment) -> Prospects:
    """The federation as group testing sees it beforehand."""
    clients, groups = e.population.num_clients, e.scheme.groups
    planned = e.sampler.planned_cohort(clients)

    def test(sums: int) -> Detector:
        return detector_of(
            e.scheme,
            e.sampler,
            e.mechanism.typical_plan(sums),
            sums=sums,
            num_clients=clients,
            code_size=e.code_size,
            false_alarms=e.false_alarms,
        )

    return Prospects(
        test=test(groups),
        one_sum=test(1),
        chance=chance_of_a_group(groups, round(planned), dealt=e.sampler.dealt(clients)),
        rate=e.sampler.rate_in(clients),
        num_clients=clients,
        planned_cohort=planned,
        false_exclusions=e.false_exclusions,
    )


@functools.lru_cache(maxsize=8)
def _left_of_noise(rule: Aggregator, groups: int, size: int, scale: float) -> float:
    """The noise that a rule leaves of so many codes that are noise of this scale alone, in units of the scale."""
    noise = torch.randn(groups, size, generator=torch.Generator().manual_seed(0)).mul_(scale)
    return float(rule.combine(noise, torch.ones(groups)).square().mean().sqrt()) / scale


def _front_end(e: Experiment) -> dict[str, Any]:
    if e.front_end is None:
        return {}
    named = {"front_end_digest": e.front_end.digest} if isinstance(e.front_end, FrontEnd) else {}
    return {"front_end": describe(e.front_end)} | named


def about_grid(e: Experiment) -> GridFields | None:
    """The grid of integer noise; None where the noise is continuous. A step is in units of the code."""
    return _grid(e.mechanism)


def _grid(mechanism: Mechanism) -> GridFields | None:
    grid = mechanism.grid
    if grid is None:
        return None
    if mechanism.scheme.noise.central:
        return {"bits": grid.bits, "step": 1 / grid.units, "steps_per_sum": grid.scale}
    return {
        "bits": grid.bits,
        "step": 1 / grid.units,
        "steps_per_share": grid.share_scale(mechanism.typical_plan().noise_shares),
        "steps_per_sum": grid.scale,
        "log2_wrap_probability": grid.log2_wrap,
    }


def about_noise(e: Experiment) -> Sentence:
    """What was drawn, and what that costs."""
    if e.scheme.record_level:
        return Sentence.public(e.scheme.train.about_noise)
    drawn = e.scheme.noise.about(
        code_size=e.code_size,
        sensitivity=e.sensitivity,
        plan=e.mechanism.largest_plan,
        rounds=e.rounds,
        delta_slack=e.delta_slack() if e.scheme.private else 0.0,
    )
    return Sentence.public(drawn + _at_once(e.mechanism))


def about_sum(e: Experiment) -> str:
    """Who saw what of the codes."""
    if not e.scheme.secure_sum.hides_single_codes:
        return "none: the server sees every client's code"
    if e.scheme.noise.central:
        return (
            "simulated: this process summed the clients' codes itself, without masks, and then added the noise, as a"
            " trusted server would; secure aggregation would keep single codes from that server, but not their sums"
        )
    if not e.scheme.noise.on_integers:
        drew = " and drew the noise of each sum at once" if e.draws_per_sum else ""
        summed = f"this process summed the codes itself{drew}"
        return f"simulated, in floats: {summed}; {_DEPLOYED}, but floats cannot be masked"
    if e.draws_per_sum:
        return (
            "simulated: this process summed the clients' codes itself, without masks, and drew the noise of each sum at"
            " once; --secagg masked sums shares that clients draw, which have the same distribution up to a distance"
            f" that is counted in δ; {_DEPLOYED}"
        )
    if e.secagg == "simulated":
        return (
            "simulated: this process summed the clients' integers itself, without masks, as --secagg masked would have"
            f" summed them, bit for bit; {_DEPLOYED}"
        )
    signed = ", and members signed one set of survivors for each attempt" if e.consistency == "signed" else ""
    return (
        "masked, in one process: every client's integers went through the protocol as bytes, and what played the server"
        f" saw masked residues and the sum{signed}; the sums are secure against {CURIOUS}; {_DEPLOYED}"
    )


def about_dropouts(e: Experiment) -> list[Sentence]:
    """What is assumed of clients that vanish, and what was made to vanish."""
    if e.scheme.record_level:
        text = "whoever drops out or colludes: every client adds the whole noise of its records itself"
        return [Sentence.public(text)]
    if e.scheme.noise.central:
        return [Sentence.public("whoever drops out or colludes: the server adds the whole noise")]
    what = "cohort" if e.scheme.groups == 1 else "group"
    texts = [f"of a {what}, at most {e.max_dropouts} drop out and at most {e.max_colluders} collude with the adversary"]
    if e.scheme.groups > 1:
        texts.append(
            f"each cohort is split at random into {e.scheme.groups} groups, whatever the clients' data, and the server"
            " sees one noisy sum of each; a client is in one of them"
        )
    if e.group_testing:
        texts.append(
            "clients are excluded, and groups left out, by what the noisy sums show: that costs no privacy. Where there"
            f" is one sum, {e.scheme.groups} times as many clients may drop out or collude. Who is excluded shows"
            " who took part: for the outsider's ε the server keeps that, and how many they are, to itself"
        )
        texts.append(
            f"group testing excludes {e.false_exclusions:g} honest clients or fewer on average if {testing_assumes(e)}"
        )
    if e.dropout_rate:
        texts.append(
            f"a fraction {e.dropout_rate:g} of each cohort was made to vanish ({e.dropout_stage}), whatever its data:"
            " rounds with too few survivors are discarded and charged, and release noise alone"
        )
    return [Sentence.public(text) for text in texts]
