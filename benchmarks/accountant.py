"""What the tight ε of every round of a run costs, beside dp-accounting's own composition.

    python -m benchmarks.accountant [--noise-multiplier 1.54] [--rate 1/60] [--delta 1e-5] [--rounds 200,1000] [--json]

The library is asked for some rounds only, and its time for all of them is estimated from these. Times are of the
processor, so that other load on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from laconic.privacy.accounting import tight
from laconic.privacy.accounting.releases import epsilon

ASKED = 8


def path(event: DpEvent, delta: float, rounds: int) -> dict[str, Any]:
    """Seconds until the first ε is there, seconds for all of them, and the library's for some."""
    for cached in (tight.tight_epsilon, tight._composed, tight._losses, tight._distribution):
        cached.cache_clear()
    begun = time.process_time()
    epsilon(event, 1, delta, "pld")
    ready = time.process_time()
    ours = [epsilon(event, count, delta, "pld") for count in range(1, rounds + 1)]
    done = time.process_time()

    one_round = tight._distribution(event)
    asked = sorted({round(1 + (rounds - 1) * part / (ASKED - 1)) for part in range(ASKED)})
    theirs = [one_round.self_compose(count).get_epsilon_for_delta(delta) for count in asked]
    figure = (time.process_time() - done) / len(asked)
    differences = [ours[count - 1] - value for count, value in zip(asked, theirs, strict=True)]
    return {
        "rounds": rounds,
        "epsilon": ours[-1],
        "start_seconds": ready - begun,
        "path_seconds": done - ready,
        "milliseconds_a_round": 1e3 * (done - ready) / rounds,
        "library_milliseconds_a_round": 1e3 * figure,
        "library_path_seconds": figure * rounds,
        "least_difference": min(differences),
        "largest_difference": max(differences),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise-multiplier", type=float, default=1.54, help="[1.54]")
    parser.add_argument("--rate", type=Fraction, default=Fraction(1, 60), help="[1/60]")
    parser.add_argument("--delta", type=float, default=1e-5, help="[1e-5]")
    parser.add_argument("--rounds", default="200,1000", help="[200,1000]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    event = PoissonSampledDpEvent(float(options.rate), GaussianDpEvent(options.noise_multiplier))
    epsilon(event, 1, options.delta, "pld")  # imports are not to be measured
    paths = [path(event, options.delta, int(rounds)) for rounds in options.rounds.split(",")]
    if options.json:
        about = {"noise_multiplier": options.noise_multiplier, "rate": float(options.rate), "delta": options.delta}
        print(json.dumps({**about, "numpy": np.__version__, "machine": platform.machine(), "paths": paths}, indent=1))
        return
    print(f"noise multiplier {options.noise_multiplier:g}, rate {options.rate}, delta {options.delta:g}")
    print("rounds   epsilon     start  all rounds     a round     library a round   (all)  difference in epsilon")
    for row in paths:
        print(
            f"{row['rounds']:6d}  {row['epsilon']:8.5f}  {row['start_seconds']:6.2f} s  {row['path_seconds']:8.3f} s"
            f"  {row['milliseconds_a_round']:7.3f} ms        {row['library_milliseconds_a_round']:7.1f} ms"
            f" {row['library_path_seconds']:7.1f} s  {row['least_difference']:.0e} to {row['largest_difference']:.0e}"
        )


if __name__ == "__main__":
    main()
