"""What of a run may leave the server: each field of statement, row and summary says what it is and who may see it.

The outsider's ε is about an adversary that does not know who took part, nor how many. So cohort sizes, bytes in all,
the number of participations and the server's ε, which follows from it, are the server's; and the seed, with which noise
can be subtracted. See docs/threat-model.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict, cast, is_typeddict

from laconic.audience import EVERYONE, NOT_PRIVATE, SERVER, Field, Sentence, fields_of, for_outsiders
from laconic.figures import at_most, rounded_up
from laconic.metrics import METRICS, columns

Row = dict[str, Any]
"""The row of a round, in `rounds.jsonl` and for observers. `row_field` knows each of its fields, metrics among them."""
Epsilons = dict[str, float | None]
"""ε by accountant; None where an accountant has none to give."""


class Adjacency(TypedDict, total=False):
    """Which two worlds the adversary may not tell apart."""

    relation: Annotated[str, Field("its name", EVERYONE)]
    meaning: Annotated[str, Field("the same in words", EVERYONE)]


class Released(TypedDict, total=False):
    """The promise against an outsider."""

    adversary: Annotated[str, Field("what the outsider sees", EVERYONE)]
    rounds_charged: Annotated[int, Field("rounds that released something", EVERYONE, "rounds")]
    rounds_planned: Annotated[int, Field("rounds that the ε covers, where data may end a run", EVERYONE, "rounds")]
    epsilon: Annotated[Epsilons, Field("ε by accountant", EVERYONE, "nats")]
    accountant: Annotated[str, Field("which of them to quote", EVERYONE)]
    amplified_by_sampling: Annotated[bool, Field("whether sampling lowers the ε", EVERYONE)]
    published: Annotated[float, Field("the papers' ε, which is not proven", EVERYONE, "nats")]


class Participant(TypedDict, total=False):
    """The promise against the server, which knows who took part."""

    adversary: Annotated[str, Field("what it sees", SERVER)]
    participations: Annotated[int, Field("rounds of the busiest client", SERVER, "rounds")]
    epsilon: Annotated[Epsilons, Field("ε by accountant", SERVER, "nats")]
    accountant: Annotated[str, Field("which of them to quote", SERVER)]
    covered: Annotated[bool, Field("false if there is no ε against the server", SERVER)]


class MissingNoise(TypedDict, total=False):
    """What noise that attackers left out does to the ε. How much of it is left tells how large a cohort was."""

    holds: Annotated[bool, Field("whether the ε hold in spite of it", EVERYONE)]
    noise_left: Annotated[float, Field("share of the noise's variance that is there", SERVER)]
    text: Annotated[Sentence, Field("the same in words", EVERYONE)]
    released: Annotated[Epsilons, Field("the ε against an outsider that holds", SERVER, "nats")]
    participant: Annotated[Epsilons, Field("the ε against the server that holds", SERVER, "nats")]


class GridFields(TypedDict, total=False):
    """The grid of integer noise."""

    bits: Annotated[int, Field("length of a value", EVERYONE, "bits")]
    step: Annotated[float, Field("distance of two points", EVERYONE, "units of the code")]
    steps_per_share: Annotated[float, Field("scale of a client's share of the noise", EVERYONE, "steps")]
    steps_per_sum: Annotated[float, Field("scale of the noise in a sum", EVERYONE, "steps")]
    log2_wrap_probability: Annotated[float, Field("log₂ of the chance that the sum of a round wraps", EVERYONE)]


class CorrelationFields(TypedDict, total=False):
    """How noise is correlated over rounds. Ratios are to independent noise of the same ε."""

    by: Annotated[str, Field("who adds it", EVERYONE)]
    bands: Annotated[int, Field("rounds that share noise", EVERYONE, "rounds")]
    separation: Annotated[int, Field("rounds between two participations of a client", EVERYONE, "rounds")]
    sensitivity: Annotated[float, Field("how far one client moves all releases", EVERYONE, "clip norms")]
    noise_ratio: Annotated[float, Field("noise of the iterates on average", EVERYONE)]
    last_noise_ratio: Annotated[float, Field("noise of the last iterate", EVERYONE)]


class VoteFields(TypedDict, total=False):
    """How clients vote on the kept weights. `alone` is in the ε of the run, not besides it."""

    by: Annotated[str, Field("how weights are chosen", EVERYONE)]
    rounds: Annotated[int, Field("rounds of votes", EVERYONE, "rounds")]
    blocks: Annotated[int, Field("blocks to choose from", EVERYONE, "blocks")]
    block: Annotated[int, Field("size of a block", EVERYONE, "weights")]
    marks: Annotated[int, Field("blocks that a client marks", EVERYONE, "blocks")]
    kept: Annotated[int, Field("weights that are chosen", EVERYONE, "weights")]
    sensitivity: Annotated[float, Field("L2 norm of a ballot", EVERYONE)]
    noise: Annotated[dict[str, Any], Field("the noise, as a part writes itself down", EVERYONE)]
    grid: Annotated[GridFields | None, Field("its grid", EVERYONE)]
    alone: Annotated[Epsilons, Field("ε of the votes by themselves, by accountant", EVERYONE, "nats")]


class GroupFields(TypedDict, total=False):
    """How cohorts are split into groups, and what that costs."""

    groups: Annotated[int, Field("groups of a cohort", EVERYONE, "groups")]
    planned_size: Annotated[float, Field("expected size of a group", EVERYONE, "clients")]
    dealt: Annotated[bool, Field("whether sizes differ by one at most", EVERYONE)]
    aggregator: Annotated[dict[str, Any], Field("the rule, as a part writes itself down", EVERYONE)]
    noise_factor_of_the_mean: Annotated[float, Field("noise of a step with the mean, against one sum", EVERYONE)]
    noise_factor: Annotated[float, Field("noise of a step with this rule, against one sum", EVERYONE)]
    spoilt_groups_tolerated: Annotated[int, Field("groups that may be spoilt", EVERYONE, "groups")]


class MechanismFields(TypedDict, total=False):
    """What bounds and noises a code, or a record's gradient: all of it follows from the plan."""

    scheme: Annotated[str, Field("name of the scheme", EVERYONE)]
    fingerprint: Annotated[str, Field("digest of all its parts", EVERYONE)]
    clip: Annotated[dict[str, Any], Field("the clip, as a part writes itself down", EVERYONE)]
    noise: Annotated[dict[str, Any], Field("the noise, as a part writes itself down", EVERYONE)]
    grid: Annotated[GridFields | None, Field("the grid of integer noise", EVERYONE)]
    train: Annotated[dict[str, Any], Field("local training that noises gradients", EVERYONE)]
    units: Annotated[dict[str, Any], Field("local training that sums clipped records or patients", EVERYONE)]
    noise_added_by: Annotated[str, Field("who adds the noise", EVERYONE)]
    denominator: Annotated[str, Field("what a sum is divided by", EVERYONE)]
    correlation: Annotated[CorrelationFields, Field("how noise is correlated over rounds", EVERYONE)]
    weighting: Annotated[str, Field("what a client counts in the mean", EVERYONE)]
    groups: Annotated[GroupFields, Field("how cohorts are split into groups", EVERYONE)]
    selection: Annotated[VoteFields, Field("how kept weights are chosen by votes", EVERYONE)]
    evaluations: Annotated[dict[str, Any], Field("what clients measure on their own records", EVERYONE)]
    queries: Annotated[dict[str, Any], Field("what else clients are asked, by name", EVERYONE)]
    front_end: Annotated[str, Field("the fixed public features", EVERYONE)]
    front_end_digest: Annotated[str, Field("digest of their constants", EVERYONE)]


class Statement(TypedDict, total=False):
    """The privacy statement of a run: `privacy.json`."""

    private: Annotated[bool, Field("whether the run promises anything", EVERYONE)]
    summary: Annotated[str, Field("the promises in one sentence, the server's ε among them", SERVER)]
    unit: Annotated[str, Field("whose data is protected", EVERYONE)]
    adjacency: Annotated[Adjacency, Field("which two worlds look alike", EVERYONE)]
    delta: Annotated[float, Field("δ of both ε", EVERYONE, "probability")]
    sampler: Annotated[dict[str, Any], Field("how cohorts are drawn, and of how many clients", EVERYONE)]
    mechanism: Annotated[MechanismFields, Field("what bounds and noises a code", EVERYONE)]
    released: Annotated[Released, Field("the promise against an outsider", EVERYONE)]
    participant: Annotated[Participant, Field("the promise against the server", SERVER)]
    budget: Annotated[dict[str, Any], Field("the limits of the run", EVERYONE)]
    cautions: Annotated[list[Sentence], Field("where the ε promises little", EVERYONE)]
    secure_aggregation: Annotated[str, Field("who saw what of the codes", EVERYONE)]
    assumptions: Annotated[list[Sentence], Field("what the ε rests on", EVERYONE)]
    not_covered: Annotated[list[Sentence], Field("what no ε covers", EVERYONE)]
    attack: Annotated[MissingNoise, Field("what attackers' missing noise does to the ε", EVERYONE)]
    result: Annotated[str, Field("how good the model is on test records, against chance; no ε covers it", EVERYONE)]


class LedgerFields(TypedDict, total=False):
    """Traffic of a run. Bytes in all, and means over messages of several kinds, tell how many clients took part."""

    bytes_up: Annotated[int, Field("sent by clients in all", NOT_PRIVATE, "bytes")]
    bytes_down: Annotated[int, Field("sent to clients in all", NOT_PRIVATE, "bytes")]
    bytes_once: Annotated[int, Field("told to each client once, in all", NOT_PRIVATE, "bytes")]
    bytes_up_per_client_and_round: Annotated[float, Field("mean message up", NOT_PRIVATE, "bytes")]
    bytes_down_per_client_and_round: Annotated[float, Field("mean message down", NOT_PRIVATE, "bytes")]
    bytes_up_per_client_in_all: Annotated[float, Field("up, by client of the population", NOT_PRIVATE, "bytes")]
    bytes_down_per_client_in_all: Annotated[float, Field("down, by client of the population", NOT_PRIVATE, "bytes")]
    formula_bytes_up_per_client_in_all: Annotated[float, Field("up, by the papers' formula", EVERYONE, "bytes")]
    formula_bytes_down_per_client_in_all: Annotated[float, Field("down, by the papers' formula", EVERYONE, "bytes")]
    planned_messages: Annotated[dict[str, Any], Field("one client's messages, by kind of round", EVERYONE, "bytes")]


class Absence(TypedDict):
    """A node that did not do as asked."""

    node: Annotated[int, Field("its client number", SERVER)]
    rounds: Annotated[int, Field("in how many rounds", SERVER, "rounds")]
    last_round: Annotated[int, Field("the last of them", SERVER)]
    why: Annotated[str, Field("the reason, that time", SERVER)]


class FederationFields(TypedDict):
    """What was agreed in a federation, who was missing, and what is missing of the planned model."""

    nodes: Annotated[int, Field("members of the run", SERVER, "nodes")]
    rounds_planned: Annotated[int, Field("rounds that the nodes agreed to", SERVER, "rounds")]
    spare_rounds: Annotated[int, Field("repetitions that they agreed to", SERVER, "rounds")]
    repeated_rounds: Annotated[int, Field("rounds that were charged again", SERVER, "rounds")]
    absences: Annotated[list[Absence], Field("nodes that did not do as asked", SERVER)]
    incomplete: Annotated[str, Field("what is missing of the planned model; empty for nothing", SERVER)]


class Exclusion(TypedDict):
    """A client that group testing excluded."""

    client: Annotated[int, Field("its number", SERVER)]
    after_round: Annotated[int, Field("the last round in which it took part", SERVER)]


class TestingFields(TypedDict, total=False):
    """The clients that group testing excluded, and how many honest ones may be among them."""

    excluded: Annotated[list[Exclusion], Field("who, and since when", SERVER)]
    expected_false_exclusions: Annotated[float, Field("honest clients on average, at most", SERVER, "clients")]
    false_alarms_per_round: Annotated[float, Field("chance that an honest sum is taken for spoilt", SERVER)]
    spoilt_rounds: Annotated[int, Field("rounds with a spoilt sum", SERVER, "rounds")]
    rounds_of_one_sum: Annotated[int, Field("rounds without groups", SERVER, "rounds")]
    rounds_without_a_step: Annotated[int, Field("rounds in which too many sums were spoilt", SERVER, "rounds")]
    assumes: Annotated[str, Field("what the number of false exclusions rests on", SERVER)]
    attackers: Annotated[int, Field("clients that attack, in a simulation", SERVER, "clients")]
    attackers_excluded: Annotated[int, Field("those of them that were excluded", SERVER, "clients")]
    honest_excluded: Annotated[int, Field("honest clients that were excluded", SERVER, "clients")]


class Summary(TypedDict, total=False):
    """What is left of a run: `summary.json`."""

    scheme: Annotated[str, Field("name of the scheme", EVERYONE)]
    stop_reason: Annotated[str, Field("what ended the run", NOT_PRIVATE)]
    rounds: Annotated[int, Field("finished rounds", EVERYONE, "rounds")]
    discarded: Annotated[list[dict[str, Any]], Field("rounds that were lost, and why", SERVER)]
    best: Annotated[dict[str, Any] | None, Field("row of the best round", SERVER)]
    best_is_chosen_by: Annotated[str, Field("metric that chooses it", EVERYONE)]
    best_is_chosen_on: Annotated[str, Field("records that choose it", EVERYONE)]
    epsilon_is_of: Annotated[str, Field("what the ε of `best` and `last` covers", EVERYONE)]
    last: Annotated[dict[str, Any], Field("row of the last round", EVERYONE)]
    answers: Annotated[dict[str, dict[str, Any]], Field("by query, the last answer", SERVER)]
    judged: Annotated[dict[str, Any], Field("figures on test records with intervals, against chance", EVERYONE)]
    warnings: Annotated[list[str], Field("what makes the model worth little, on test records", EVERYONE)]
    attack: Annotated[dict[str, Any], Field("the attack and its effect", SERVER)]
    group_testing: Annotated[TestingFields, Field("who was excluded", SERVER)]
    federation: Annotated[FederationFields, Field("what was agreed, who was missing", SERVER)]
    ledger: Annotated[LedgerFields, Field("traffic", EVERYONE)]
    statement: Annotated[Statement, Field("the privacy statement", EVERYONE)]
    released_statement: Annotated[Statement, Field("the statement as outsiders may read it", EVERYONE)]
    seconds: Annotated[float, Field("time of all rounds", NOT_PRIVATE, "seconds")]
    ranks: Annotated[int, Field("processes that trained", SERVER)]
    profile: Annotated[dict[str, float] | None, Field("where the time went", SERVER, "seconds")]
    folder: Annotated[str | None, Field("path of the run folder", SERVER)]


for _record in list(vars().values()):
    if is_typeddict(_record):
        fields_of(_record)  # a field without an audience ends here

_ROW = {
    "round": Field("its number", EVERYONE),
    "attempt": Field("how often it was tried before", SERVER),
    "cohort": Field("clients drawn", NOT_PRIVATE, "clients"),
    "malicious": Field("attackers among them", SERVER, "clients"),
    "spoilt_groups": Field("groups with attackers", SERVER, "groups"),
    "most_malicious_in_a_group": Field("attackers in one group at most", SERVER, "clients"),
    "worst_group": Field("size of the group that lacks most noise", SERVER, "clients"),
    "worst_group_malicious": Field("attackers in it", SERVER, "clients"),
    "groups": Field("sums of the round", NOT_PRIVATE, "groups"),
    "lost_groups": Field("groups whose sum was not opened", SERVER, "groups"),
    "spoilt_sums": Field("sums that group testing left out", SERVER, "sums"),
    "clearly_spoilt_sums": Field("sums that are spoilt beyond doubt", SERVER, "sums"),
    "largest_sum": Field("largest norm of a sum, in units of the test's threshold", SERVER),
    "suspects": Field("clients under suspicion", SERVER, "clients"),
    "excluded": Field("clients that group testing excludes", SERVER, "clients"),
    "newly_excluded": Field("which it excludes from now on", SERVER),
    "no_step": Field("why the weights stayed as they were", SERVER),
    "shrunk_to": Field("factor on the mean of noisy sums", SERVER),
    "not_finite": Field("codes left out because they were not finite", SERVER, "codes"),
    "diverged": Field("that weights are not finite", SERVER),
    "discarded": Field("why the round was lost", SERVER),
    "weights": Field("check of what was released", SERVER),
    "vote": Field("which of the votes", SERVER),
    "messages_up": Field("messages of clients", SERVER, "messages"),
    "messages_down": Field("messages to clients", SERVER, "messages"),
    "bytes_up": Field("sent by clients", NOT_PRIVATE, "bytes"),
    "bytes_down": Field("sent to clients", NOT_PRIVATE, "bytes"),
    "bytes_once": Field("told to clients that are new", NOT_PRIVATE, "bytes"),
    "seconds": Field("time of the round", NOT_PRIVATE, "seconds"),
    "one_class": Field("the class for which all test records are taken", SERVER),
    "class_accuracies": Field("accuracy of each class", SERVER),
    "evaluation": Field("what clients were asked to measure", SERVER),
    "clients_noise": Field("standard deviation of the noise in what clients measured", EVERYONE),
    "epsilon": Field("ε against an outsider so far", EVERYONE, "nats"),
    "participant_epsilon": Field("ε against the server so far", SERVER, "nats"),
}
"""The fields of a row besides metrics."""
_TRAFFIC = Field("bytes beside the payload", SERVER, "bytes")


def row_field(name: str) -> Field | None:
    """What a row's field is and who may see it; None for one that nothing declares.

    Metrics are in their own registry. What they are by client, and the bytes of masks and carriers, are the server's.
    """
    if name in _ROW:
        return _ROW[name]
    metric = columns().get(name)
    if metric is not None:
        return Field(metric.title, EVERYONE if metric.released else NOT_PRIVATE)
    if name.removesuffix("_by_client") in METRICS:
        return Field("quantiles of a metric over clients", SERVER)
    return _TRAFFIC if name.startswith(("secagg_", "transport_")) else None


def check_row(row: Mapping[str, Any]) -> None:
    """Refuse a row with a field of which nothing says who may see it."""
    unknown = [name for name in row if row_field(name) is None]
    if unknown:
        raise TypeError(f"no field of a row says who may see {', '.join(unknown)}: declare it beside the others")


def released_row(row: Mapping[str, Any], *, private: bool) -> dict[str, float]:
    """The numbers of a round's row that may leave; of a list, each under its place."""
    shown = {}
    for name, value in row.items():
        field = row_field(name)
        if field is not None and field.shown(private=private):
            shown[name] = value
    found = {name: value for name, value in shown.items() if isinstance(value, int | float)}
    lists = {name: value for name, value in shown.items() if isinstance(value, list)}
    return found | {f"{name}_{place}": value for name, values in lists.items() for place, value in enumerate(values)}


def released_statement(statement: Statement) -> Statement:
    """The statement without what only the server may know.

    One that was read from a file has lost what its sentences say to outsiders: they are left out, and it says so.
    """
    if not statement["private"]:
        return statement
    found = cast(Statement, for_outsiders(Statement, statement))
    found["summary"] = _in_one_sentence(found)
    lists = (statement["assumptions"], statement["not_covered"], statement.get("cautions", ()))
    unmarked = sum(not isinstance(text, Sentence) for texts in lists for text in texts)
    if unmarked:
        which = "1 sentence" if unmarked == 1 else f"{unmarked} sentences"
        found["not_covered"].append(
            Sentence.public(f"{which} of the server's statement: nothing says that others may read them")
        )
    return found


def released_summary(summary: Summary) -> Summary:
    """The summary without what only the server may know."""
    statement = summary["statement"]
    found = cast(Summary, for_outsiders(Summary, summary, private=statement["private"]))
    found["last"] = released_row(summary["last"], private=statement["private"])
    found["statement"] = summary.get("released_statement") or released_statement(statement)
    return found


def _in_one_sentence(shown: Statement) -> str:
    """The promise against an outsider, from what outsiders may see."""
    figure = shown["released"]["epsilon"][shown["released"]["accountant"]]
    return (
        f"({at_most(figure)}, {rounded_up(shown['delta'])})-DP for {shown['unit']} against an outsider{broken(shown)}"
    )


def broken(statement: Mapping[str, Any]) -> str:
    """What must follow the ε where attackers left out noise and it does not hold; nothing otherwise."""
    return "; NOT in this run: attackers left out noise" if not statement.get("attack", {}).get("holds", True) else ""
