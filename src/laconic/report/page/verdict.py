"""What a run promises, to whom, and what it does not, in plain words; and what ε and δ mean to an attacker.

The latter is the best that any test for one client's (or record's) data can do. A test has false positives α (it says
"in" though the data was not used) and true positives β. If the models are (ε, δ)-differentially private, every test
has

    β ≤ min(e^ε·α + δ,  1 − e^(−ε)·(1 − δ − α)),

for any computation and knowledge (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015). A run has a pair for every
δ. Each bounds every test, so the smallest bound holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from laconic.figures import at_most, rounded_up
from laconic.report.drawing import Axis, Markup, Series, chart, joined, tag
from laconic.report.page.reading import RunView, number, section, texts

Pairs = Sequence[tuple[float, float]]
"""(ε, δ), all of the same run; one or more."""


def most_true_positives(false_positives: float, pairs: Pairs) -> float:
    """The largest share of true positives at this share of false ones."""
    bounds = [1.0]
    for epsilon, delta in pairs:
        bounds.append(math.exp(min(epsilon, 700.0)) * false_positives + delta)
        bounds.append(1.0 - math.exp(-epsilon) * (1.0 - delta - false_positives))
    return max(0.0, min(bounds))


def most_certain(pairs: Pairs) -> float:
    """How often a guess can be right at most if both cases are as likely: (1 + the largest β − α) / 2.

    For one pair that difference is largest where both bounds meet: (e^ε − 1 + 2δ)/(e^ε + 1) = 1 − 2·(1 − δ)/(e^ε + 1).
    """
    gaps = [1.0 - 2.0 * (1.0 - delta) / (math.exp(min(epsilon, 700.0)) + 1.0) for epsilon, delta in pairs]
    return (1.0 + min(1.0, *gaps)) / 2.0


def trade_off(pairs: Pairs, least: float) -> list[tuple[float, float]]:
    """(false positives, true positives) of the best test, from `least` false positives on, for a logarithmic axis.

    Where both bounds of a pair meet there is a corner: those are among the points.
    """
    corners = {(1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0))) for epsilon, delta in pairs}
    places = {least ** (n / _POINTS) for n in range(_POINTS + 1)} | corners
    return [(at, most_true_positives(at, pairs)) for at in sorted(places) if at >= least]


_POINTS = 32


_ALARMS = 0.01
_ALL = 0.999
_WHO = {"outsider": "released", "server": "participant"}
_LEAST = 1e-4
"""Where the picture begins, in false positives."""


def verdict(view: RunView) -> Markup:
    """The section; of a run whose statement is not there yet, a sentence."""
    if not view.statement:
        words: list[object] = [tag("p", "The privacy statement comes with the first checkpoint of the run.")]
    elif not view.private:
        words = _nothing_promised(view)
    else:
        words = _promised(view)
    return tag("section", tag("h2", "What this run promises"), words, id="verdict", data_part="verdict")


def _nothing_promised(view: RunView) -> list[object]:
    text = (
        "Nothing. This scheme adds no noise. An adversary with the model, or with a round's messages, may learn"
        " about single clients and their records."
    )
    sums = view.statement.get("secure_aggregation")
    return [
        tag("p", text, class_="box warn"),
        tag("p", f"Secure aggregation: {sums}.") if sums else None,
        _points("Also to know", texts(view.statement, "not_covered")),
    ]


def _promised(view: RunView) -> list[object]:
    delta = number(view.statement, "delta") or 0.0
    unit = str(view.statement.get("unit", "one client"))
    one = unit.split()[1] if unit.startswith("one ") and unit[4:].strip() else "client"
    attack = section(view.statement, "attack")
    parts: list[object] = [
        tag("p", f"It does not hold in this run. {attack.get('text', '')}", class_="box bad") if view.broken else None,
        tag(
            "p",
            f"It protects {unit}. An attacker may know everything else, and tries to find out whether the data of one"
            f" {one} was used. ε and δ bound how well that can work:",
        ),
        tag(
            "div",
            _adversary("Against an outsider", view, "released", delta),
            _adversary("Against the server", view, "participant", delta),
            class_="cards",
        ),
        _later(view),
        _unproven(view),
        [tag("p", tag("strong", "Caution: "), text, class_="box warn") for text in texts(view.statement, "cautions")],
        _picture(view, one),
        _points("It holds if", [*texts(view.statement, "assumptions"), *_sums(view)]),
        _points("What it does not promise", [*_never(view, one), *texts(view.statement, "not_covered")]),
    ]
    return parts


def _adversary(title: str, view: RunView, name: str, delta: float) -> Markup:
    pairs, who = view.pairs(name), section(view.statement, name).get("adversary")
    if not pairs and view.broken:
        figure, words = "no ε", tag("p", "There was no noise, so nothing bounds what an attacker learns.")
    elif section(view.statement, name).get("covered") is False:
        figure, words = "no ε", tag("p", "Nothing bounds what this adversary learns.")
    elif not pairs:
        figure, words = "ε unknown", tag("p", "No finite ε is known.")
    else:
        figure = f"ε = {at_most(pairs[0][0])}"
        found, right = most_true_positives(_ALARMS, pairs), most_certain(pairs)
        words = tag(
            "p",
            f"A test with 1 % false positives finds {_percent(found)} of those whose data was used. A guess between two"
            f" equally likely cases is right in {_percent(right)} of all cases.",
            tag("span", " This excludes next to nothing.", class_="weak") if found > _ALL and len(pairs) > 1 else None,
        )
    return tag(
        "div",
        tag("h3", title),
        tag("p", tag("strong", figure), f", δ = {rounded_up(delta)}", class_="figure"),
        words,
        _left_over(view, name),
        tag("p", f"This adversary {who}.", class_="note") if who else None,
        class_="card",
    )


def _left_over(view: RunView, name: str) -> Markup | None:
    """Which ε does not hold, where attackers left out noise."""
    part = section(view.statement, name)
    stated = number(section(part, "epsilon"), str(part.get("accountant")))
    if not view.broken or stated is None:
        return None
    return tag("p", f"This is with the noise that was left. ε = {at_most(stated)} was planned and does not hold.")


def _later(view: RunView) -> Markup | None:
    """A note that the figures are newer than the statement."""
    known = [(view.epsilon(name), view.stated(name)) for name in _WHO.values()]
    if not any(now is not None and stated is not None and now > stated for now, stated in known):
        return None
    text = "These figures are of the last round. The statement at the end of the page is of an earlier checkpoint."
    return tag("p", text, class_="note")


def _unproven(view: RunView) -> Markup | None:
    """A warning where the outsider's ε is a published figure without a proof."""
    if section(view.statement, "sampler").get("kind") != "AsPublished":
        return None
    text = (
        "The outsider's ε is the published figure, accounted as in the papers. It is not proven for how these cohorts"
        " were drawn, so what is said of an outsider is not a bound."
    )
    return tag("p", tag("strong", "Caution: "), text, class_="box warn")


def _percent(share: float) -> str:
    """Rounded up: it is a bound."""
    return "up to practically 100 %" if share > _ALL else f"at most {math.ceil(share * 1000) / 10:.1f} %"


def _picture(view: RunView, one: str) -> Markup | None:
    """The trade-off of the best test against each adversary's pairs of ε and δ."""
    known = [(who, found) for who, name in _WHO.items() if (found := view.pairs(name))]
    if not known:
        return None
    series = [Series(name=f"{who}, ε = {at_most(p[0][0])}", points=trade_off(p, _LEAST)) for who, p in known]
    series.append(Series(name="guessing", points=trade_off([(0.0, 0.0)], _LEAST), kind="limit", number=6))
    several = max(len(found) for _, found in known)
    by = f"from ε at {several - 1} values of δ" if several > 1 else "from this ε and δ alone, so it is rather large"
    about = (
        f"The best that any test for the data of one {one} can do, with any computation ({by}). It is a bound for the"
        " worst case, not the success of a known attack."
    )
    return chart(
        "attacker",
        "The best attacker: true against false positives",
        series,
        Axis(label="false positives", low=_LEAST, high=1.0, log=True, written=_share, marked=_share),
        Axis(label="true positives, at most", low=0.0, high=1.0, written=_share, marked=_share),
        about=about,
    )


def _share(value: float) -> str:
    return f"{value * 100:.3g} %"


def _sums(view: RunView) -> list[str]:
    text = view.statement.get("secure_aggregation")
    return [f"secure aggregation: {text}"] if text else []


def _never(view: RunView, one: str) -> list[str]:
    found = [
        "what the model learns about people in general: that is what it is trained for",
        f"a group that acts or is looked at together: for k {one}s ε grows about k times",
        "the test and held-out records: they are looked at in the open, and no ε covers them. They may be the clients'"
        " own, set aside from training; then so are the figures that this page computes from them",
        "this page itself: it shows cohort sizes, dropouts and bytes, which the outsider's ε assumes to be secret."
        " Give it to people whom the server may tell them; publish the models and the outsider's ε",
    ]
    if view.notices or section(view.summary, "group_testing"):
        found.append("clients that this page names, for what they did in a round: it says that they took part in it")
    if not view.federated:
        found.append(
            "the models of a simulation against a reader of this page: its noise comes from the seed, which is among"
            " the settings, so it can be subtracted. The ε is what a federation would have"
        )
    return found


def _points(title: str, sentences: list[str]) -> Markup | None:
    if not sentences:
        return None
    return joined(tag("h3", title), tag("ul", [tag("li", text) for text in sentences]))
