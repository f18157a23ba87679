"""Audits of Laconic's own code on digits: as it is, and with one thing wrong in it at a time.

    python -m benchmarks.audit --out docs/results/audit

For every scheme the same federation is audited as it is and with each sabotage; `audits.csv` has a row for each bound
and check, and the table that is printed says what was found. `--trials`, `--rounds` and `--schemes` make it shorter.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor

from laconic.audit.audit import audit_experiment
from laconic.audit.result import VIOLATED, AuditResult
from laconic.clients import simulated, work
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism import discrete_gaussian
from laconic.privacy.mechanism.clip import L2Clip
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.streams import Streams

Patch = list[tuple[object, str, Any]]
"""Whose attributes are replaced by what."""

SCHEMES: dict[str, dict[str, Any]] = {
    "fl-std-dp": {"scheme.clip_norm": 0.5},
    "fl-sign-dp": {"scheme.sign_step": 0.01},
    "fl-cs-dp": {"scheme.clip_norm": 0.5, "scheme.ratio": 0.1},
    "fl-top-dp": {"scheme.clip_norm": 0.5, "scheme.ratio": 0.1, "data.public_records": 10},
}


def too_little_noise() -> Patch:
    """Every share of the noise is a tenth too small."""

    def smaller(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda mean, scale, *rest, **named: draw(mean, 0.9 * scale, *rest, **named)

    names = ("draw_discrete_gaussian", "noisy_residues")
    return [(discrete_gaussian, name, smaller(getattr(discrete_gaussian, name))) for name in names]


def no_clip() -> Patch:
    """Codes are sent as long as they are."""
    return [(L2Clip, "by_blocks", lambda self, code: lambda block: code[..., block])]


def everybody() -> Patch:
    """All clients take part in every round, whatever the rate."""
    return _drawn(lambda clients, rate, rng: np.arange(clients))


def always_the_same() -> Patch:
    """The same clients take part in every round."""
    return _drawn(lambda clients, rate, rng: np.flatnonzero(np.random.default_rng(1).random(clients) < rate))


def of_fixed_size() -> Patch:
    """Cohorts have the expected size in the place of a binomial one."""
    return _drawn(lambda clients, rate, rng: np.sort(rng.permutation(clients)[: round(rate * clients)]))


def in_turn() -> Patch:
    """Clients come in turn: everybody takes part equally often."""
    calls = iter(range(10**9))

    def next_part(clients: int, rate: float, rng: np.random.Generator) -> np.ndarray:
        size = round(rate * clients)
        return np.sort((np.arange(size) + size * next(calls)) % clients)

    return _drawn(next_part)


def same_noise() -> Patch:
    """A client, or a sum whose noise is drawn at once, has the same noise in every round."""
    stream = Streams(5).stream
    return [
        (work, "noise_stream", lambda streams, plan, client: stream("noise", client)),
        (simulated, "sum_noise_stream", lambda streams, plan, *group: stream("noise", *group)),
    ]


SABOTAGES: dict[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (too_little_noise, no_clip, everybody, always_the_same, of_fixed_size, in_turn, same_noise)
}


@contextlib.contextmanager
def sabotaged(made: Callable[[], Patch] | None) -> Iterator[None]:
    """The code with one thing wrong; as it is without a sabotage."""
    with contextlib.ExitStack() as stack:
        if made is not None:
            for patch in made():
                stack.enter_context(mock.patch.object(*patch))
        yield


Draw = Callable[[int, float, np.random.Generator], np.ndarray]


def _drawn(draw: Draw) -> Patch:
    return [(Poisson, "draw", lambda self, clients, rng: draw(clients, self.sampling_rate, rng))]


def found_in(result: AuditResult) -> list[str]:
    """What the verdict names: bounds above their claims, and checks that failed."""
    bounds = [
        f"{b.adversary}, {b.about}, {b.how}: {b.lower:.2f} > {b.claimed:.2f}"
        for b in result.bounds
        if b.verdict == VIOLATED
    ]
    return [*bounds, *(f"{c.name} (p = {c.p_value:.1g})" for c in result.checks if c.verdict == VIOLATED)]


def rows_of(scheme: str, sabotage: str, result: AuditResult) -> Iterator[dict[str, Any]]:
    for bound in result.bounds:
        yield {
            "scheme": scheme,
            "sabotage": sabotage,
            "kind": "bound",
            "name": f"{bound.adversary}, {bound.about}, {bound.how}",
            "delta": bound.delta,
            "claimed": round(bound.claimed, 4),
            "found": round(bound.lower, 4),
            "verdict": bound.verdict,
        }
    for check in result.checks:
        yield {
            "scheme": scheme,
            "sabotage": sabotage,
            "kind": "check",
            "name": check.name,
            "claimed": check.expected,
            "found": f"{check.found} (p = {check.p_value:.3g})",
            "verdict": check.verdict,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    columns = ["scheme", "sabotage", "kind", "name", "delta", "claimed", "found", "verdict"]
    with (arguments.out / "audits.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        for scheme in arguments.schemes.split(","):
            values = {
                "scheme.name": scheme,
                "data.num_clients": 400,
                "sampler.sampling_rate": 0.35,
                "run.rounds": arguments.rounds,
                "run.device": arguments.device,
                "privacy.epsilon": 4.0,
                **SCHEMES[scheme],
            }
            experiment = settle(RunConfig().with_values(values)).experiment
            for name, made in {"honest": None, **SABOTAGES}.items():
                with sabotaged(made):
                    result = audit_experiment(experiment, canaries=0, trials=arguments.trials)
                writer.writerows(rows_of(scheme, name, result))
                stream.flush()
                print(f"| {scheme} | {name} | {result.verdict} | {'; '.join(found_in(result))} |", flush=True)


if __name__ == "__main__":
    main()
