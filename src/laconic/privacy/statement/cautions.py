"""When an ε promises little or nothing, in plain words; and the one case that is refused.

With N clients and δ ≥ 1/N, a mechanism that picks one client at random and publishes all its data is (0, δ)-private:
what it says differs between two worlds that differ in one client with probability 1/N only. So such a δ lets ε be as
small as one likes, and is refused unless the user insists by name. A large ε is no mistake, but e^ε, the factor by
which odds about a client may change, soon means nothing. And a sum of one or two codes is hardly a sum: noise hides a
code in it as ε says, but secure aggregation hides nothing from the other one of the two.
"""

from __future__ import annotations

from laconic.errors import ConfigError
from laconic.figures import rounded_up
from laconic.privacy.accounting.accountant import RunAccountant

LARGE_EPSILON = 20.0
SMALL_SUM = 2
LARGE_UNCHECKED = 1e-3
"""A δ that deserves a word even where the number of clients is not known."""


def delta_is_large(delta: float, units: int) -> bool:
    """Whether δ ≥ 1/N; half a chance is too much for anyone, even if there is but one."""
    return delta >= 1 / max(units, 2)


def check_delta(delta: float, *, units: int, one: str, allowed: bool) -> None:
    """Refuse a δ that a mechanism could meet by publishing one of so many `one`s, unless that is `allowed` by name."""
    if delta_is_large(delta, units) and not allowed:
        raise ConfigError(
            f"delta {rounded_up(delta)} {_too_large(units, one)}: publishing one {one}'s data in full could meet it, so"
            " its ε means nothing; lower ⟨delta⟩, or insist with ⟨allow-large-delta⟩"
        )


def cautions(
    accountant: RunAccountant, *, delta: float, released: float, participant: float, known: bool = True
) -> list[str]:
    """What must be said about these figures: ε against an outsider and against the server, at this δ.

    `known` is false where nobody said how many clients there are.
    """
    one, units, honest = accountant.promise.one, accountant.units, accountant.honest_cohort
    found = []
    if delta_is_large(delta, units):
        found.append(
            f"δ = {rounded_up(delta)} {_too_large(units, one)}: a mechanism may publish one {one}'s data in full and"
            " still meet the definition, whatever ε is; the figures promise nothing"
        )
    if not accountant.promise.covers_server:
        found.append(
            "there is NO ε against the server: it adds the noise itself and sees the sums without it; quote this ε only"
            " where the server is trusted"
        )
        participant = 0.0  # said already
    for who, figure in (("an outsider", released), ("the server", participant)):
        if figure > LARGE_EPSILON:
            found.append(
                f"ε = {rounded_up(figure, 4)} against {who} promises next to nothing: above {LARGE_EPSILON:g} or so,"
                f" what is released may give one {one}'s data away almost surely"
            )
    if honest is None or not known:
        return found
    if accountant.num_clients == 1:
        found.append(
            "there is only one client: all noise is its own, no sum hides its code, and whoever knows that it is there"
            " knows whose data the model is made of"
        )
    elif honest < SMALL_SUM + 1:
        found.append(
            f"a usual sum holds the codes of {max(honest, 1):.3g} clients, dropouts and colluders left out: secure"
            " aggregation hides little or nothing in it, and only the noise protects a code"
        )
    return found


def _too_large(units: int, one: str) -> str:
    return "is a half or more" if units < 2 else f"is not below 1/{units}, and there are {units:,} {one}s"
