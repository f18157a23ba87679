"""What the privacy statement says about the mechanism of a run: its noise, its grid, its sums."""

from __future__ import annotations

from typing import Any

from laconic.experiment.experiment import Experiment
from laconic.features.front_end import describe
from laconic.secagg.claims import CURIOUS

_DEPLOYED = "the ε holds for a deployment in which secure aggregation shows the server nothing but the sum"


def about_mechanism(e: Experiment) -> dict[str, Any]:
    """What bounds and noises a code, or a record's gradient, as data."""
    scheme = e.scheme
    parts: dict[str, Any] = {"clip": scheme.clip.to_dict(), "noise": scheme.noise.to_dict(), "grid": about_grid(e)}
    return {
        "scheme": scheme.name,
        "fingerprint": scheme.fingerprint,
        **({"train": scheme.train.to_dict()} if scheme.record_level else parts),
        **scheme.added_by,
        "weighting": scheme.weighting,
        **_front_end(e),
    }


def _front_end(e: Experiment) -> dict[str, Any]:
    return {} if e.front_end is None else {"front_end": describe(e.front_end)}


def about_grid(e: Experiment) -> dict[str, Any] | None:
    """The grid of integer noise; None where the noise is continuous. A step is in units of the code."""
    grid = e.grid
    if grid is None:
        return None
    return {
        "bits": grid.bits,
        "step": 1 / grid.units,
        "steps_per_share": grid.share_scale(e.typical_plan().noise_shares),
        "steps_per_sum": grid.scale,
        "log2_wrap_probability": grid.log2_wrap,
    }


def about_noise(e: Experiment) -> str:
    """What was drawn, and what that costs."""
    if e.scheme.record_level:
        return e.scheme.train.about_noise
    return e.scheme.noise.about(
        code_size=e.code_size,
        sensitivity=e.sensitivity,
        plan=e.typical_plan(),
        rounds=e.rounds,
        delta_slack=e.delta_slack() if e.scheme.private else 0.0,
    )


def about_sum(e: Experiment) -> str:
    """Who saw what of the codes."""
    if not e.scheme.secure_sum.hides_single_codes:
        return "none: the server sees every client's code"
    if not e.scheme.noise.on_integers:
        return f"simulated, in floats: this process summed the codes itself; {_DEPLOYED}, but floats cannot be masked"
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


def about_dropouts(e: Experiment) -> list[str]:
    """What is assumed of clients that vanish, and what was made to vanish."""
    if e.scheme.record_level:
        return ["whoever drops out or colludes: every client adds the whole noise of its records itself"]
    texts = [f"of a cohort, at most {e.max_dropouts} drop out and at most {e.max_colluders} collude with the adversary"]
    if e.dropout_rate:
        texts.append(
            f"a fraction {e.dropout_rate:g} of each cohort was made to vanish ({e.dropout_stage}), whatever its data:"
            " rounds with too few survivors are discarded and charged, and release noise alone"
        )
    return texts
