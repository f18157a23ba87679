"""What of a run may leave the server: the models, what is measured on them, and the `released` part of the statement.

The outsider's ε holds for whoever does not know who took part, nor how many. So cohort sizes, bytes in all, the number
of participations and the server's ε, which follows from it, stay; and the seed, with which noise can be subtracted.
See docs/threat-model.md.
"""

from __future__ import annotations

import re
from typing import Any

from laconic.figures import at_most, rounded_up
from laconic.metrics import columns

_ROW = ("round", "clients_noise", "epsilon")
"""What may leave besides released metrics: also how much noise is in what clients measured, a public number."""
_OPEN = ("cohort", "bytes_up", "bytes_down", "bytes_once", "seconds", "class_accuracy", "attack_accuracy", "groups")
_PARTS = ("private", "unit", "adjacency", "delta", "sampler", "mechanism", "released", "budget", "secure_aggregation")
_SEED = re.compile(r"seed \d+")
_LEFT_OUT = re.compile(r"^\d+ (?=training records are left out)")
"""How many: it follows from how many records clients have."""


def released_row(row: dict[str, Any], *, private: bool) -> dict[str, float]:
    """The numbers of a round's row that may leave. Without privacy, traffic and time may, too."""
    names = (*_ROW, *columns(released=True), *(() if private else _OPEN))
    found = {name: row[name] for name in names if isinstance(row.get(name), int | float)}
    lists = {name: row[name] for name in names if isinstance(row.get(name), list)}
    return found | {f"{name}_{place}": value for name, values in lists.items() for place, value in enumerate(values)}


def released_statement(statement: dict[str, Any]) -> dict[str, Any]:
    """The statement without what only the server may know."""
    if not statement["private"]:
        return statement
    released, delta = statement["released"], statement["delta"]
    figure = released["epsilon"][released["accountant"]]
    return {
        **{name: statement[name] for name in _PARTS if name in statement},
        "summary": (
            f"({at_most(figure)}, {rounded_up(delta)})-DP for {statement['unit']} against an outsider"
            f"{broken(statement)}"
        ),
        "cautions": [text for text in statement.get("cautions", ()) if "the server" not in text],
        "assumptions": [_SEED.sub("the seed", text) for text in statement["assumptions"]],
        "not_covered": [_LEFT_OUT.sub("", text) for text in statement["not_covered"]],
        **({"attack": _released_attack(statement["attack"]["holds"])} if "attack" in statement else {}),
    }


def broken(statement: dict[str, Any]) -> str:
    """What must follow the ε where attackers left out noise and it does not hold; nothing otherwise."""
    return "; NOT in this run: attackers left out noise" if not statement.get("attack", {}).get("holds", True) else ""


def _released_attack(holds: bool) -> dict[str, Any]:
    """Whether the ε hold in spite of it. How much noise is left tells how large a cohort was, and so does the rest."""
    what = "the ε hold" if holds else "the ε do not hold, and the server's own statement says which do"
    return {"holds": holds, "text": f"attackers added no noise: {what}"}
