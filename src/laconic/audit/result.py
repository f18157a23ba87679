"""What an audit found: lower bounds on ε beside the claims, and checks that name what is off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from laconic.figures import at_least, at_most, rounded_up

CONSISTENT, VIOLATED, WEAK = "consistent", "VIOLATED", "weak"

TESTS = 16
"""The most bounds and checks of one audit. Each gets this part of the error, so that all are right together."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A lower bound on an ε that was claimed. `how` is the method, `about` whose ε it is."""

    adversary: str
    about: str
    how: str
    delta: float
    claimed: float
    lower: float
    trials: int
    holds_for: str = "any mechanism"
    """For which mechanisms the bound on ε is one; refuting the claim is valid for all."""
    estimate: float | None = None
    """Of ε, from fitted scores: without a proof."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """From which the bound was computed."""

    @property
    def verdict(self) -> str:
        return VIOLATED if self.lower > self.claimed else CONSISTENT


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether a part of the mechanism does what the accountant assumes. `level` is the false-alarm rate."""

    name: str
    found: str
    expected: str
    p_value: float
    level: float
    weak: bool = False
    """Nothing is violated, but the audit shows little."""

    @property
    def verdict(self) -> str:
        if self.p_value < self.level:
            return VIOLATED
        return WEAK if self.weak else CONSISTENT


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """All that an audit found. All bounds are right together with the stated confidence.

    Attributes:
        scheme: the name of the scheme.
        delta: δ of the claims.
        confidence: with which all bounds are right together.
        settings: how the audit was done.
        bounds: lower bounds on ε, each with the claim beside it.
        checks: of noise, clip and sampler.
        seconds: how long it took.

    Examples:
        >>> from laconic.audit.result import Bound
        >>> bound = Bound(adversary="server", about="1 round", how="short runs", delta=1e-5, claimed=3.1, lower=2.9,
        ...               trials=1000)
        >>> found = laconic.AuditResult(scheme="fl-std-dp", delta=1e-5, confidence=0.99, settings={}, bounds=[bound],
        ...                             checks=[], seconds=1.0)
        >>> found.verdict
        'consistent'
    """

    scheme: str
    delta: float
    confidence: float
    settings: dict[str, Any]
    bounds: list[Bound]
    checks: list[Check]
    seconds: float

    @property
    def violations(self) -> list[str]:
        """What is off, a line each."""
        found = [
            f"{b.adversary}, {b.about}: ε ≥ {at_least(b.lower)} ({b.how}, δ = {rounded_up(b.delta)}), but"
            f" {at_most(b.claimed)} is claimed"
            for b in self.bounds
            if b.verdict == VIOLATED
        ]
        found += [f"{c.name}: {c.found}; expected {c.expected}" for c in self.checks if c.verdict == VIOLATED]
        return found

    @property
    def violated(self) -> bool:
        return bool(self.violations)

    @property
    def verdict(self) -> str:
        if self.violated:
            return VIOLATED
        return WEAK if any(c.verdict == WEAK for c in self.checks) else CONSISTENT

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verdict": self.verdict,
            "violations": self.violations,
            "scheme": self.scheme,
            "delta": self.delta,
            "confidence": self.confidence,
            "false_alarm_rate": f"at most {1 - self.confidence:.3g} for the whole audit, if all is as claimed",
            "settings": self.settings,
            "bounds": [asdict(b) | {"verdict": b.verdict} for b in self.bounds],
            "checks": [asdict(c) | {"verdict": c.verdict} for c in self.checks],
            "not_audited": NOT_AUDITED,
            "seconds": round(self.seconds, 2),
        }


NOT_AUDITED = [
    "federations of real nodes, and whether what they run is this code",
    "the randomness of a deployment: a simulation draws from a seed",
    "what is released beside the sums: test results, timing, sizes of messages",
    "secure aggregation: the audit takes for granted that a server sees the sum and nothing else",
]


def rounds_of(count: int) -> str:
    """How often a client took part, in words."""
    return "1 round" if count == 1 else f"{count} rounds"
