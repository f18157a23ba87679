"""A setting as a `laconic run` command that can be pasted."""

from __future__ import annotations

from typing import Any

from laconic.advice.question import SERVER, Question
from laconic.advice.setting import LOCAL_LR, LOCAL_STEPS, RIDGE, Setting

FRONT_END = "scattering+patches"


def run_command(question: Question, setting: Setting, dataset: str | None = None) -> str:
    """The run. Data and model that were not said are left to the reader, at their defaults."""
    flags: dict[str, Any] = {} if dataset is None else {"dataset": dataset}
    flags["num-clients"] = question.num_clients
    if setting.features is not None:
        flags |= {"front-end": FRONT_END, "front-end-projection": "public"}
        flags |= {"front-end-features": setting.features, "front-end-ridge": RIDGE, "public-dataset": "dead-leaves"}
    whole = setting.sampling_rate >= 1
    flags["sampling-rate"] = 1 if whole else f"{setting.cohort}/{question.num_clients}"
    flags["rounds"] = setting.rounds
    if question.against == SERVER and not whole:
        flags |= {"noise-multiplier": f"{setting.noise_multiplier:g}", "participant-epsilon": f"{question.epsilon:g}"}
    else:
        flags["epsilon"] = f"{question.epsilon:g}"
    flags["delta"] = f"{question.delta:g}"
    if setting.participations is not None and not whole:
        flags["max-participations"] = setting.participations
    flags |= {"clip-norm": f"{setting.clip_norm:g}", "server-lr": f"{setting.server_lr:.6g}"}
    if setting.momentum:
        flags["momentum"] = f"{setting.momentum:g}"
    if setting.precondition is not None:
        flags["precondition"] = f"{setting.precondition:g}"
    if setting.features is not None:
        flags |= {"local-lr": f"{LOCAL_LR:g}", "local-steps": LOCAL_STEPS}
        flags |= {} if question.records is None else {"batch-size": question.records}
    flags |= {"downlink": "half", "eval-every": setting.rounds}
    return "laconic run fl-std-dp " + " ".join(f"--{name} {value}" for name, value in flags.items())
