"""The ledger: payload bytes up and down, as they were serialised, beside the papers' formula."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Ledger:
    """Totals over a run; one `add` per round."""

    rounds: int = 0
    messages_up: int = 0
    bytes_up: int = 0
    messages_down: int = 0
    bytes_down: int = 0
    bytes_once: int = 0
    overhead: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, int]] = field(default_factory=list)

    @staticmethod
    def row(
        *,
        round: int,
        up: list[int],
        down: list[int],
        once: list[int],
        secagg: dict[str, int] | None = None,
        transport: dict[str, int] | None = None,
    ) -> dict[str, int]:
        """The lengths of the messages that travelled in a round; `once` are those of a client's first round.

        `secagg` are the bytes of secure aggregation beside the masked vectors, which are in `up`; `transport` are those
        that a carrier added to all of it.
        """
        return {
            "round": round,
            "messages_up": len(up),
            "bytes_up": sum(up),
            "messages_down": len(down),
            "bytes_down": sum(down),
            "bytes_once": sum(once),
            **{f"secagg_{kind}": size for kind, size in (secagg or {}).items()},
            **{f"transport_{kind}": size for kind, size in (transport or {}).items()},
        }

    def add(self, row: dict[str, int]) -> None:
        """Count a round's row."""
        self.rounds += 1
        self.messages_up += row["messages_up"]
        self.bytes_up += row["bytes_up"]
        self.messages_down += row["messages_down"]
        self.bytes_down += row["bytes_down"]
        self.bytes_once += row["bytes_once"]
        overhead = {key: value for key, value in row.items() if key.startswith(("secagg_", "transport_"))}
        for key, value in overhead.items():
            self.overhead[key] = self.overhead.get(key, 0) + value
        self.rows.append({key: row[key] for key in _KEYS} | overhead)

    def summary(
        self, *, num_clients: int, formula_bits: tuple[float, float], sampling_rate: float, rounds: int
    ) -> dict[str, Any]:
        """Measured totals, the average per client over the run, and the papers' formula for the same."""
        return {
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "bytes_once": self.bytes_once,
            **self.overhead,
            "bytes_up_per_client_and_round": self.bytes_up / max(1, self.messages_up),
            "bytes_down_per_client_and_round": self.bytes_down / max(1, self.messages_down),
            "bytes_up_per_client_in_all": self.bytes_up / num_clients,
            "bytes_down_per_client_in_all": self.bytes_down / num_clients,
            "formula_bytes_up_per_client_in_all": formula_bytes(formula_bits[0], sampling_rate, rounds),
            "formula_bytes_down_per_client_in_all": formula_bytes(formula_bits[1], sampling_rate, rounds),
        }


_KEYS = ("round", "messages_up", "bytes_up", "messages_down", "bytes_down", "bytes_once")


def formula_bytes(bits_per_message: float, sampling_rate: float, rounds: int) -> float:
    """The papers' average cost per client, in bytes: r·n·32·Round·C bits, or n·Round·C for signs (EuroS&P 4.4)."""
    return bits_per_message * rounds * sampling_rate / 8


def human_bytes(count: float) -> str:
    """1234567 → '1.23 MB' (decimal units, as in the papers)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    raise AssertionError
