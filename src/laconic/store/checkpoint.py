"""The state between two rounds in one safetensors file: weights, rule state, participations. The front end."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.errors import RunFolderError
from laconic.features.base import FrontEnd
from laconic.group_testing import Findings
from laconic.server.rules import State
from laconic.store.folder import BEST, FRONT_END, STATE, STATEMENT, RunFolder
from laconic.store.journal import Journal, Participations
from laconic.store.saves import WAY_OUT, RoundRows, Save, digest_of


@dataclass
class RunState:
    """The state that crosses rounds. `rounds` is the last finished one."""

    weights: Tensor
    rule: State
    shared: dict[str, Tensor] = field(default_factory=dict)
    rounds: int = 0
    participations: Participations = field(default_factory=Participations)
    best: dict[str, Any] | None = None
    best_file: str | None = None
    """The digest of the best round's model as it was saved last."""
    stale: int = 0
    """Evaluations since the held-out metric last improved."""
    best_holdout: float | None = None
    findings: Findings | None = None
    """What group testing has found."""
    voted: bool = False
    """Whether `shared` was voted on: then those who know it are the `told`, else all who ever took part."""
    told: set[int] = field(default_factory=set)

    def knows(self, client: int) -> bool:
        """Whether the client was told what is `shared`."""
        return client in (self.told if self.voted else self.participations)

    def tell(self, clients: list[int], elected: dict[str, Tensor] | None) -> None:
        """These clients know what is shared; after a vote, no client does."""
        if self.voted:
            self.told.update(clients)
        if elected is not None:
            self.shared, self.voted, self.told = elected, True, set()

    @property
    def most_participations(self) -> int:
        return self.participations.most

    def take_part(self, clients: np.ndarray) -> None:
        self.participations.add(clients)


def state_bytes(state: RunState, head: str) -> bytes:
    """The state as a file. `head` is the last digest of the journal: the two belong together."""
    from safetensors.torch import save

    tensors = {
        "weights": state.weights,
        "participants": torch.from_numpy(state.participations.clients),
        "participations": torch.from_numpy(state.participations.counts),
        **{f"rule.{name}": value for name, value in state.rule.items()},
        **{f"shared.{name}": value for name, value in state.shared.items()},
        **({} if state.findings is None else {"findings.running": torch.from_numpy(state.findings.running)}),
        **({"told": torch.tensor(sorted(state.told), dtype=torch.int64)} if state.voted else {}),
    }
    progress = {
        "rounds": state.rounds,
        "best": state.best,
        "best_file": state.best_file,
        "stale": state.stale,
        "best_holdout": state.best_holdout,
        "journal": head,
        **({} if state.findings is None else {"findings": _progress_of(state.findings)}),
    }
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    data: bytes = save(contiguous, metadata={"progress": json.dumps(progress)})
    return data


def _progress_of(findings: Findings) -> dict[str, Any]:
    """The findings of group testing without the ratios, for JSON."""
    found = {f.name: getattr(findings, f.name) for f in fields(findings) if f.name != "running"}
    return found | {"excluded": list(findings.excluded.items())}


def _findings(progress: dict[str, Any], tensors: dict[str, Tensor]) -> Findings | None:
    """The findings read back; None if nothing was tested."""
    if "findings" not in progress:
        return None
    found = progress["findings"] | {"excluded": {int(c): int(last) for c, last in progress["findings"]["excluded"]}}
    return Findings(running=tensors["findings.running"].numpy(), **found)


def save_state(
    folder: RunFolder,
    state: RunState,
    journal: Journal,
    rows: RoundRows,
    *,
    best: bytes | None,
    statement: bytes,
    through: int,
) -> None:
    """Replace checkpoint and statement, and the best model if there is a new one.

    It is announced before and confirmed afterwards.

    Args:
        folder: of the run.
        state: what crosses rounds.
        journal: charges and saves.
        rows: of the rounds so far.
        best: the file of the best model, if it is new.
        statement: `privacy.json`.
        through: the last round that may be charged until the next save.
    """
    assert journal.chain is not None
    if best is not None:
        state.best_file = digest_of(best)
    data = state_bytes(state, journal.chain.head)
    journal.saves.announce(
        Save(
            state.rounds,
            digest_of(data),
            rows.digest,
            state.best_file,
            statement=digest_of(statement),
            through=through,
            environment=journal.environment,
        )
    )
    folder.sync()
    rows.flush()
    if best is not None:
        folder.write(BEST, best)
    folder.write(STATEMENT, statement)
    folder.write(STATE, data)
    folder.sync_names(".")
    folder.sync_names("checkpoint")
    journal.saves.confirm()


def load_state(folder: RunFolder, size: int, device: torch.device) -> RunState | None:
    """The checkpointed state of a model of so many weights; None before the first checkpoint."""
    data = folder.read(STATE)
    return None if data is None else parsed_state(data, folder.path / STATE, size, device)[0]


def weights_check(weights: Tensor) -> str:
    """16 hex digits that other weights hardly have: Σ_i (2i + 1)·c·bits(w_i) mod 2^64, the same on every device.

    It tells whether a repeated round came out as before. It is no signature.
    """
    bits = weights.detach().contiguous().view(torch.int32).to(torch.int64)
    odd = torch.arange(1, 2 * len(bits), 2, device=bits.device).mul_(0x1E3779B97F4A7C15)
    return f"{int((odd * bits).sum()) & (2**64 - 1):016x}"


def parsed_state(data: bytes, path: Path, size: int, device: torch.device) -> tuple[RunState, str]:
    """(state, the journal's last digest when it was saved)."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        (length,) = struct.unpack("<Q", data[:8])
        progress = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["progress"])
        tensors = load(data)
        counts = Participations(tensors["participants"].numpy(), tensors["participations"].numpy())
        state = RunState(
            weights=tensors["weights"].to(device),
            rule={name.removeprefix("rule."): t.to(device) for name, t in tensors.items() if name.startswith("rule.")},
            shared={name.removeprefix("shared."): t for name, t in tensors.items() if name.startswith("shared.")},
            rounds=int(progress["rounds"]),
            participations=counts,
            best=progress["best"],
            best_file=progress["best_file"],
            stale=progress["stale"],
            best_holdout=progress["best_holdout"],
            findings=_findings(progress, tensors),
            voted="told" in tensors,
            told=set(tensors["told"].tolist()) if "told" in tensors else set(),
        )
        head = str(progress["journal"])
    except (SafetensorError, struct.error, RecursionError, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunFolderError(f"{path} is damaged ({reason}); {WAY_OUT}") from None
    if state.weights.shape != (size,):
        raise RunFolderError(f"{path} is not a checkpoint of this model: start a new run")
    return state, head


def weights_bytes(parameters: dict[str, Tensor], about: dict[str, str]) -> bytes:
    """The model's parameters by name, for any reader of safetensors."""
    from safetensors.torch import save

    data: bytes = save({k: v.detach().cpu().contiguous() for k, v in parameters.items()}, metadata=about)
    return data


def keep_front_end(folder: RunFolder, front_end: nn.Module | None) -> None:
    """Write the front end into the folder of a run that starts: computed again elsewhere, its numbers could differ."""
    if isinstance(front_end, FrontEnd) and not (folder.path / FRONT_END).exists():
        folder.write(FRONT_END, front_end.to_bytes())
