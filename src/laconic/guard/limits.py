"""Why a node refuses an offer or an upload: what its owner allows and declares, applied to the contract.

Nothing here looks at a record, or believes a figure of the offer's. A run is refused as a whole if its plan breaks a
limit, and a single upload if it would break one now. ε here are those against the server. Limits on what an outsider
learns rest on the sampling of nodes; the node checks them besides, outside the guard, and can only refuse more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from laconic.figures import at_most, rounded_up
from laconic.guard.contract import CLIENT, PATIENT, RECORD, UNITS, Contract
from laconic.guard.ledger import PARTS_OF, Price, composed
from laconic.guard.policy import Policy
from laconic.guard.transcript import JOINED, REFUSED, UPLOADED, Row

Upload = tuple[int, int]
"""Round and attempt."""
OF = {CLIENT: "", PATIENT: " of a patient", RECORD: " of a record"}
_WHOLE = {CLIENT: "this node's data as a whole", PATIENT: "a patient with all records as a whole"}
MOST_JOINS = 64
"""Runs of one server that a node joins in a day: every one of them takes room on its disk."""
_DAY = 86400.0


def against_server(policy: Policy, server: bytes) -> list[str]:
    """Why nothing that this server offers is even read."""
    if policy.servers and server.hex() not in policy.servers:
        return [f"server {server.hex()[:16]}… is not among the servers of the policy"]
    return []


def against_contract(policy: Policy, contract: Contract) -> list[str]:
    """Why the run as it is offered is refused: none if it is allowed."""
    return _against_sizes(policy, contract) or [  # what is too large is not computed with
        *_against_declared(policy, contract),
        *_against_sums(policy, contract),
        *_against_cost(policy, contract),
    ]


def _against_sizes(policy: Policy, contract: Contract) -> list[str]:
    """What the offer would make this node compute or keep, and may not."""
    return [
        f"{value:,} {what}, more than {name} {limit:,}"
        for value, what, name, limit in (
            (contract.attempts, "rounds", "max_rounds", policy.max_rounds),
            (contract.num_clients, "nodes", "max_nodes", policy.max_nodes),
            (contract.size, "weights", "max_model_size", policy.max_model_size),
            (math.prod(contract.input_shape), "values in a record", "max_model_size", policy.max_model_size),
            (contract.num_classes, "classes", "max_model_size", policy.max_model_size),
            (max(r.code_size for r in contract.releases), "values to send", "max_model_size", policy.max_model_size),
        )
        if value > limit
    ]


def _against_declared(policy: Policy, contract: Contract) -> list[str]:
    """What the owner has said of the records, so that no record has to be looked at."""
    reasons = []
    if policy.classes is not None and contract.num_classes != policy.classes:
        reasons.append(f"{contract.num_classes} classes, and the policy declares {policy.classes}")
    if policy.record_shape and contract.input_shape != policy.record_shape:
        told, own = ("×".join(map(str, shape)) for shape in (contract.input_shape, policy.record_shape))
        reasons.append(f"records of {told} values, and the policy declares {own}")
    most = policy.max_records
    if contract.unit != CLIENT and most is not None and contract.delta is not None and contract.delta * most >= 1:
        reasons.append(
            f"δ {rounded_up(contract.delta)} is one over the {most} records that the policy declares or more: it allows"
            " one of them to be published"
        )
    return reasons


def _against_sums(policy: Policy, contract: Contract) -> list[str]:
    reasons = []
    if policy.fingerprints and contract.fingerprint not in policy.fingerprints:
        reasons.append(f"scheme {contract.name} {contract.fingerprint} is not among the fingerprints of the policy")
    if policy.secure_aggregation != "optional" and not contract.masked:
        reasons.append(f"{contract.name} shows the server every node's code, but secure aggregation is required")
    if contract.masked and not all(release.units for release in contract.releases):
        reasons.append(f"{contract.name} has no noise on integers, so its codes cannot be masked")
    if policy.secure_aggregation == "signed" and contract.consistency != "signed":
        reasons.append("secure aggregation is not signed, as the policy requires")
    if contract.masked and contract.max_colluders < policy.min_colluders:
        reasons.append(f"max_colluders {contract.max_colluders} is below min_colluders {policy.min_colluders}")
    usual = contract.planned_cohort - contract.slack
    if usual < policy.min_cohort:
        reasons.append(f"sums of {usual:g} honest nodes may be opened, fewer than min_cohort {policy.min_cohort}")
    return reasons


def _against_cost(policy: Policy, contract: Contract) -> list[str]:
    delta = math.inf if contract.delta is None else contract.delta
    reasons = []
    if policy.max_delta is not None and delta > policy.max_delta:
        reasons.append(f"δ {rounded_up(delta)} is above max_delta {rounded_up(policy.max_delta)}")
    if contract.delta is not None and delta * contract.num_clients >= 1:
        reasons.append(
            f"δ {rounded_up(delta)} is 1/{contract.num_clients} nodes or more: it allows one node's data to be"
            " published"
        )
    most, over = contract.participations, _over(contract)
    if policy.max_participations is not None and most > policy.max_participations:
        reasons.append(f"up to {most} participations, above max_participations {policy.max_participations}{over}")
    own = contract.unit
    for unit in UNITS:
        name, limit = limit_of(policy, unit, "max", "participant_epsilon")
        if limit is None:
            continue
        figure = planned(contract, unit)
        if unit != own and unit not in PARTS_OF[own]:
            reasons.append(of_another(contract.name, own, unit, name))
        elif _above(figure, limit):
            reasons.append(
                f"planned ε{OF[unit]} against the server {_figure(figure)} is above {name} {rounded_up(limit)}{over}"
            )
    return reasons


def of_another(scheme: str, own: str, unit: str, name: str) -> str:
    """The refusal of a scheme that protects a smaller unit than a limit is about."""
    return (
        f"{scheme} protects single {own}s, and has no ε for {_WHOLE[unit]}, which {name} would limit (an owner who"
        f" means {own}s says max_{own}_epsilon instead)"
    )


def planned(contract: Contract, unit: str) -> float:
    """ε against the server if the node is asked as often as it may be; not above what the offer promises to keep."""
    if contract.delta is None:
        return math.inf
    figure, promised = composed(planned_prices(contract), contract.delta, unit), _promised(contract, unit)
    return figure if promised is None else min(figure, promised)


def _promised(contract: Contract, unit: str) -> float | None:
    """The ε that the offer promises to stay below, where the guard can hold it to that.

    It is calibrated with tight figures. Where units are drawn by coins the guard's own are larger, and would end a run
    too early: there the node checks it besides, with an accountant.
    """
    exact = all(release.price[1] == 1 for release in contract.releases)
    return contract.participant_epsilon if unit == contract.unit and exact else None


def planned_prices(contract: Contract) -> list[Price]:
    """The dearest uploads that the node can be asked for: rounds as they are planned, and any of them repeated."""
    every = {release: Price.of(contract, release) for release in contract.releases}
    prices = [every[contract.release(round)] for round in range(1, contract.rounds + 1)]
    prices += [max(prices, key=_weight)] * contract.spare_rounds
    shared = any(release.owners > 1 for release in contract.releases)  # a unit is in the rounds of other nodes, too
    return prices if shared else sorted(prices, key=_weight, reverse=True)[: contract.participations]


def _weight(price: Price) -> float:
    """How dear an upload is, for a comparison of uploads of one run."""
    return max((s.rate**2 * s.count / s.noise_multiplier**2 for s in price.seen.values()), default=math.inf)


def against_upload(policy: Policy, contract: Contract, rows: Sequence[Row], upload: Upload, cohort: int) -> list[str]:
    """Why this upload is refused. `rows` are those of the run, `cohort` the announced nodes."""
    reasons = []
    uploads = [*((row["round"], row["attempt"]) for row in rows if row["what"] == UPLOADED), upload]
    round, participations = upload[0], len(uploads)
    if not contract.masked and upload <= max(uploads[:-1], default=(0, 0)):
        # Of a masked sum, the mark says so itself. That rounds go forward, `charges` counts on.
        reasons.append(f"this node has uploaded to round {round}, attempt {upload[1]}, before, or to a later one")
    if not 1 <= round <= contract.rounds:
        return [*reasons, f"round {round} of a run that was offered with {contract.rounds}"]
    honest = cohort - contract.slack
    if contract.masked and honest < policy.min_cohort:
        reasons.append(f"a sum of {honest} honest nodes, fewer than min_cohort {policy.min_cohort}")
    if policy.max_participations is not None and participations > policy.max_participations:
        reasons.append(f"participation {participations}, above max_participations {policy.max_participations}")
    if contract.delta is None:
        return reasons
    if participations > contract.participations:
        reasons.append(f"participation {participations} of the offered {contract.participations}")
    released = max(charges(uploads), participations)
    if released > contract.attempts:
        agreed = f"{contract.rounds} rounds and {contract.spare_rounds} spare ones"
        reasons.append(f"{released} rounds would be charged, but {agreed} were offered")
    prices = [*charged(rows), priced(contract, rows, upload)]
    for unit in UNITS:
        _, limit = limit_of(policy, unit, "max", "participant_epsilon")
        limit = min((one for one in (limit, _promised(contract, unit)) if one is not None), default=None)
        if limit is not None and _above(figure := composed(prices, contract.delta, unit), limit):
            reasons.append(f"ε{OF[unit]} against the server would be {_figure(figure)}, above {rounded_up(limit)}")
    return reasons


def priced(contract: Contract, rows: Iterable[Row], upload: Upload) -> Price:
    """What this upload costs. `rows` are those of the run."""
    before = [(row["round"], row["attempt"]) for row in rows if row["what"] == UPLOADED]
    since = max(1, charges([*before, upload]) - max(charges(before), len(before)))
    return Price.of(contract, contract.release(upload[0]), since)


def against_lifetime(policy: Policy, rows: Iterable[Row], more: Sequence[Price]) -> list[str]:
    """Why the node's data has given enough, if these uploads came as well; `rows` are those of all runs."""
    prices = [*charged(rows), *more]
    reasons = []
    if policy.lifetime_participations is not None and len(prices) > policy.lifetime_participations:
        reasons.append(
            f"over the lifetime of this node's data participations would be {len(prices)}, above"
            f" lifetime_participations {policy.lifetime_participations}"
        )
    for unit in UNITS:
        name, limit = limit_of(policy, unit, "lifetime", "participant_epsilon")
        if limit is not None and _above(figure := composed(prices, policy.max_delta or 1.0, unit), limit):
            shown = "∞ (uploads without noise, or for less than that)" if figure == math.inf else _figure(figure)
            reasons.append(
                f"over the lifetime of this node's data ε{OF[unit]} against the servers would be {shown}, above {name}"
                f" {rounded_up(limit)}"
            )
    return reasons


def against_asking(policy: Policy, rows: Sequence[Row], server: str) -> list[str]:
    """Why a server may not offer more runs: it fills the disk, or tries out what other servers have left."""
    mine = _of_server(policy, rows, server)
    now = datetime.now(UTC).timestamp()
    recent = sum(row["what"] == JOINED and now - datetime.fromisoformat(row["time"]).timestamp() < _DAY for row in mine)
    if recent >= MOST_JOINS:
        return [f"{recent} runs were joined within a day: list the servers of the policy, or wait"]
    past = sum(row["what"] == REFUSED and "past" in row for row in mine)
    if past >= policy.max_past_refusals:
        return [f"{past} offers were refused for what was spent before, max_past_refusals {policy.max_past_refusals}"]
    return []


def against_trying(policy: Policy, rows: Sequence[Row], server: str) -> list[str]:
    """Why a server gets no more uploads, of any run: each refusal tells it a little about what others were given."""
    mine = _of_server(policy, rows, server)
    past = sum(row["what"] == REFUSED and "past" in row and row.get("message") == "upload" for row in mine)
    if past and past >= policy.max_past_refusals:
        return [f"{past} uploads were refused for what was spent before, max_past_refusals {policy.max_past_refusals}"]
    return []


def _of_server(policy: Policy, rows: Sequence[Row], server: str) -> list[Row]:
    """Where the policy lists no servers, a liar can have any number of names, so all of them count as one."""
    return [row for row in rows if not policy.servers or server in (row.get("server"), row.get("past"))]


def charged(rows: Iterable[Row]) -> list[Price]:
    """What was paid, upload by upload: each by the price in its own row."""
    return [Price.from_row(row) for row in rows if row["what"] == UPLOADED]


def charges(uploads: Sequence[Upload]) -> int:
    """How many releases a server must have charged, as far as a node with these uploads can know.

    One for each round up to the last, and one for each attempt before the one that the node took part in.
    """
    attempts: dict[int, int] = {}
    for round, attempt in uploads:
        attempts[round] = max(attempt, attempts.get(round, 0))
    return max(attempts, default=0) + sum(attempts.values())


def unlimited(policy: Policy) -> list[str]:
    """What no limit of the policy holds over all runs, in words for the owner."""
    names = [limit_of(policy, unit, "lifetime", "participant_epsilon") for unit in UNITS]
    if any(limit is not None for _, limit in names):
        return []
    if policy.lifetime_participations is not None:
        return ["ε over all runs has no limit, only the number of participations: set lifetime_participant_epsilon"]
    outsider = any(limit_of(policy, unit, "lifetime", "epsilon")[1] is not None for unit in UNITS)
    told = "ε against the servers" if outsider else "ε"
    return [f"{told} over all runs has no limit: set one of {', '.join(name for name, _ in names)}"]


def limit_of(policy: Policy, unit: str, over: str, against: str) -> tuple[str, float | None]:
    """A limit of the policy, and its name: over one run (`max`) or all (`lifetime`), by unit and adversary."""
    name = f"{over}_{'' if unit == CLIENT else f'{unit}_'}{against}"
    return name, getattr(policy, name)


def _over(contract: Contract) -> str:
    """Over how many rounds, if some of them are spare."""
    spare = contract.spare_rounds
    return f" (over {contract.rounds} rounds and {spare} spare ones)" if spare else ""


def _above(figure: float, limit: float) -> bool:
    """Whether a limit is broken. A figure that is not a number keeps none; the last digits of a float break none."""
    return not figure <= limit * (1 + 1e-9)


def _figure(value: float) -> str:
    return "∞ (no noise)" if math.isinf(value) else at_most(value)
