"""Published tables, run again: row by row, each run in a folder of its own, and none of them twice.

A run's folder is named by a digest of its settings, so that a row which several tables share is run once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laconic.clients.simulated import SimulatedClients
from laconic.data.ehr.sources import EHR_SOURCES
from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, RunFolderError
from laconic.observers.observer import Observer
from laconic.report.ledger import formula_bytes
from laconic.runner.outcome import RunResult, formula_bits
from laconic.runner.run import Run, run_in
from laconic.settings.build import files_of, settle
from laconic.settings.config import RunConfig
from laconic.store.folder import RunFolder, json_text
from laconic.sweeps.jobs import Through, same
from laconic_studies.reproduce.comparison import Measured
from laconic_studies.reproduce.tables import Row, Table

Watch = Callable[[Run], AbstractContextManager[Any]]
"""Something that looks on while a simulation runs."""

_RESULT = "result.json"
# What may differ between two runs of the same row: where and how it is computed, not what.
_INCIDENTAL = {
    "run": ("seed", "device", "precision", "engine", "chunk", "workers", "threads", "profile", "checkpoint_seconds"),
    "data": ("data_dir",),
}
# What the papers do and the defaults do not: part of every private row, so it tells nothing.
_AS_PUBLISHED = {"noise": "continuous"}
_QUICK_ROUNDS, _QUICK_CLIENTS, _QUICK_COHORT, _QUICK_STEPS = 10, 120, 10, 30
_QUICK_RECORDS, _QUICK_HOSPITALS = 4200, 30


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """How a table is to be run, and where its files go. `changes` are settings other than the paper's."""

    table: Table
    out: Path
    quick: bool = False
    device: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    data_dir: str | None = None
    keep_weights: bool = False
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.table.needs and not self.table.stands_in:
            raise ConfigError(f"{self.table.name} needs {self.table.needs}: say on what to run it instead (--on)")

    @property
    def folder(self) -> Path:
        """Where the table goes: apart from others of the same table that were run with other settings."""
        parts = [self.table.name, *([self.table.stands_in] if self.table.stands_in else [])]
        parts += ["quick"] if self.quick else []
        parts += [f"{key}={value}".replace("/", "-") for key, value in sorted(self.changes.items())]
        return self.out / "+".join(parts)

    @property
    def notes(self) -> list[str]:
        """What a reader must know before comparing."""
        notes = []
        if self.table.stands_in:
            notes.append(
                f"Another data set: the paper's figures are of {self.table.needs}; here it is {self.table.stands_in}."
                " Orderings and costs can be compared, figures cannot."
            )
        if self.quick and self.table.stands_in:
            notes.append(
                "Quick version: few records, clients and rounds. It shows that everything runs, and nothing else."
            )
        elif self.quick:
            notes.append(
                f"Quick version: {_QUICK_CLIENTS} clients, {_QUICK_COHORT} a round (or all), {_QUICK_ROUNDS} rounds"
                " and, where the paper's data is not at hand, the embedded digits. It shows that everything runs;"
                " its figures are not comparable with the published ones."
            )
        if self.changes:
            changed = ", ".join(f"{key} = {value}" for key, value in self.changes.items())
            notes.append(f"Not the paper's settings: {changed}.")
        return notes

    def config(self, row: Row, seed: int) -> RunConfig:
        """The configuration of one run: what `laconic run` would be given."""
        config = RunConfig.from_dict(row.settings)
        if self.quick:
            config = quick_version(config, self.data_dir)
        incidental = {"run.seed": seed, "run.device": self.device, "run.threads": self.threads}
        incidental["run.precision"] = self.precision
        if config.data.dataset == row.dataset:
            incidental["data.data_dir"] = self.data_dir
        return config.with_values({k: v for k, v in incidental.items() if v is not None} | self.changes)

    def runs_of(self, row: Row) -> Path:
        """The folder with the runs of a row, one for each seed."""
        settings, usual = self.config(row, 0).to_dict(), RunConfig().to_dict()
        usual["scheme"] |= _AS_PUBLISHED
        # Defaults are left out, so that a key which a later version adds does not make known runs unknown.
        telling = {
            f"{section}.{key}": value
            for section, values in settings.items()
            for key, value in values.items()
            if key not in _INCIDENTAL.get(section, ()) and usual[section].get(key) != value
        }
        digest = hashlib.blake2b(json.dumps(telling, sort_keys=True).encode(), digest_size=4).hexdigest()
        ratio = f"-r{row.ratio:g}" if "ratio" in settings["scheme"] else ""
        weights = "-weights" if self._with_weights else ""
        return self.out / "runs" / f"{row.scheme}{ratio}-{settings['data']['dataset']}{weights}-{digest}"

    def run_folder(self, row: Row, seed: int) -> Path:
        return self.runs_of(row) / f"seed-{seed}"

    @property
    def _with_weights(self) -> bool:
        return self.keep_weights or self.table.figure == "kept-weights"

    def measured(self, row: Row) -> list[Measured]:
        """The finished runs of a row, by seed."""
        found = [_read_result(path) for path in self.runs_of(row).glob(f"seed-*/{_RESULT}")]
        return sorted(found, key=lambda run: run.seed)

    def results(self) -> dict[int, list[Measured]]:
        """All finished runs, by the number of their row."""
        return {row.number: self.measured(row) for row in self.table.rows}

    def finished(self, row: Row, seed: int) -> bool:
        return (self.run_folder(row, seed) / _RESULT).exists()

    def run(self, row: Row, seed: int, watch: Watch, through: Through = same) -> Measured:
        """Run one row with one seed, from wherever it stopped; `through` is that of `SimulatedClients`."""
        path = self.run_folder(row, seed)
        folder = RunFolder(path) if self._with_weights else WeightlessFolder(path)
        config = self.config(row, seed)
        settled = settle(config, stored=path)
        clients = SimulatedClients(settled.experiment, through=through)
        with run_in(folder, Run(settled.experiment, clients=clients), files_of(settled)) as simulation:
            with watch(simulation):
                result = simulation.run()
            measured = measured_in(simulation, result, config.data.dataset)
            folder.write(_RESULT, json_text(measured.to_dict(), indent=2) + "\n")
        if not self._with_weights:
            (path / "checkpoint" / "state.safetensors").unlink(missing_ok=True)
        return measured


@dataclass(frozen=True)
class RowJob:
    """One row with one seed, as `laconic.sweeps` takes runs."""

    reproduction: Reproduction
    row: Row
    seed: int

    @property
    def name(self) -> str:
        return f"{self.reproduction.table.name}, row {self.row.number}: {self.row.label}, seed {self.seed}"

    @property
    def config(self) -> RunConfig:
        return self.reproduction.config(self.row, self.seed)

    def go(self, watch: Observer, through: Through) -> None:
        def watched(simulation: Run) -> AbstractContextManager[None]:
            simulation.observer = watch
            return nullcontext()

        self.reproduction.run(self.row, self.seed, watched, through)


class WeightlessFolder(RunFolder):
    """A run folder without models; there is a checkpoint while the run goes on."""

    keeps_models = False

    def write(self, name: str, content: str | bytes) -> None:
        if name != "model.safetensors":
            super().write(name, content)


def measured_in(simulation: Run, result: RunResult, dataset: str) -> Measured:
    """The figures of a finished run that stand in a table."""
    e = simulation.experiment
    # Every named data set has test records; but an attacked run may diverge in its first round.
    best = result.best or {"round": 0, "bytes_up": 0, "bytes_down": 0}
    clients, size = e.population.num_clients, simulation.model.size
    rate = e.sampler.rate_in(clients)
    bits_up, bits_down = formula_bits(e.scheme, size, e.sampler.planned_cohort(clients))
    done = [row for row in result.history if row["round"] <= best["round"]]
    return Measured(
        seed=e.seed,
        trained_on=dataset,
        rounds=result.last["round"],
        accuracy=best.get(result.metric),
        round=best["round"],
        last_accuracy=result.last.get(result.metric),
        bytes_up=best["bytes_up"] / clients,
        bytes_down=best["bytes_down"] / clients,
        bytes_once=sum(row["bytes_once"] for row in done) / clients,
        formula_bytes_up=formula_bytes(bits_up, rate, best["round"]),
        formula_bytes_down=formula_bytes(bits_down, rate, best["round"]),
        bits_up=8 * result.ledger["bytes_up_per_client_and_round"] / size,
        bits_down=8 * result.ledger["bytes_down_per_client_and_round"] / size,
        formula_bits_up=bits_up / size,
        formula_bits_down=bits_down / size,
        seconds=round(result.seconds, 2),
        environment=simulation.clients.environment,
        auroc=best.get("auroc"),
        last_auroc=result.last.get("auroc"),
        total_bytes_up=result.ledger["bytes_up"] / clients,
        total_bytes_down=result.ledger["bytes_down"] / clients,
        **_under_attack(result, best),
        **_epsilons(simulation, result, best["round"]),
    )


def _under_attack(result: RunResult, best: dict[str, Any]) -> dict[str, Any]:
    """The figures of an attacked run: of its best round, and over its last ones."""
    if result.attack is None:
        return {}
    found: dict[str, Any] = {"converged": result.attack["converged"]}
    left = result.statement.get("attack", {}).get("released")
    if left is not None:
        found["epsilon_attacked"] = left["rdp"] if left["pld"] is None else left["pld"]
    for name in ("class_accuracy", "attack_accuracy"):
        last = result.attack["last_ten"].get(name, {})
        found |= {name: best.get(name), f"{name}_last_min": last.get("min"), f"{name}_last_mean": last.get("mean")}
    return found


def _epsilons(simulation: Run, result: RunResult, best_round: int) -> dict[str, Any]:
    e, accountant = simulation.experiment, simulation.accountant
    if accountant is None:
        return {}
    sigma = e.scheme.noise_multiplier
    released, participant = result.statement["released"]["epsilon"], result.statement["participant"]["epsilon"]
    charged = simulation.journal.num_released(best_round)
    of_paper = accountant.published(charged)
    if of_paper is None and released["moments"]:
        of_paper = accountant.released_epsilon(charged, "moments")
    return {
        "noise_multiplier": sigma,
        "epsilon_best_moments": of_paper,
        "epsilon_moments": released["moments"],
        "epsilon_released": released[accountant.method],
        "epsilon_participant": participant["pld"],
    }


def quick_version(config: RunConfig, data_dir: str | None) -> RunConfig:
    """The same row for a laptop: fewer clients and rounds, and the embedded digits if the data is not at hand."""
    if config.data.dataset in EHR_SOURCES:
        return _quick_clinical(config, data_dir)
    everyone = config.sampler.cohort_size == config.data.num_clients
    clients = min(config.data.num_clients or _QUICK_CLIENTS, _QUICK_CLIENTS)
    changes: dict[str, Any] = {
        "run.rounds": min(config.run.rounds, _QUICK_ROUNDS),
        "data.num_clients": clients,
        "sampler.cohort_size": clients if everyone else _QUICK_COHORT,
    }
    if config.attack.kind is not None:
        changes |= {"scheme.local_steps": min(config.scheme.options["local_steps"], _QUICK_STEPS)}
        if config.attack.fraction:  # of a small cohort, a small fraction is less than one client
            changes["attack.fraction"] = max(config.attack.fraction, 1 / _QUICK_COHORT)
    if config.scheme.name.startswith("fl-cs"):
        changes["scheme.max_iterations"] = 30
    names = [name for name in (config.data.dataset, config.data.public_dataset) if name]
    if all(SOURCES[name].locate(data_dir) for name in names):
        return config.with_values(changes | {"run.eval_every": 5})
    sections = config.with_values(changes | {"data.dataset": "digits"}).to_dict()
    sections["data"].pop("public_dataset", None)  # the public records are then set aside from the digits
    sections["data"].pop("augment", None)
    sections["model"] = {"name": "cnn"}
    return RunConfig.from_dict(sections)


def _quick_clinical(config: RunConfig, data_dir: str | None) -> RunConfig:
    """The same for health records: few of them, made ones if the data is not at hand."""
    sections = config.to_dict()
    data, scheme, sampler = sections["data"], sections["scheme"], sections["sampler"]
    everyone = sampler.get("cohort_size") == data.get("num_clients") or sampler.get("sampling_rate") == 1.0
    here = bool(SOURCES[data["dataset"]].locate(data_dir))
    data |= {"min_count": 30, "num_clients": _QUICK_HOSPITALS}
    if not here or data["dataset"] == "ehr-synthetic":
        data |= {"dataset": "ehr-synthetic", "num_records": _QUICK_RECORDS}
    data.pop("min_client_records", None)
    if "public_records" in data:
        data["public_records"] = min(data["public_records"], 200)
    sampler["cohort_size"] = _QUICK_HOSPITALS if everyone else min(sampler.get("cohort_size", 8), 8)
    sampler |= {"kind": sampler["kind"] if sampler["kind"] != "poisson" else "fixed-size"}
    sampler.pop("sampling_rate", None)
    sections["run"] |= {"rounds": min(config.run.rounds, 4), "eval_every": 2}
    scheme |= {"local_steps": min(scheme["local_steps"], 3)} if "local_steps" in scheme else {}
    scheme |= {"epochs": 1} if "epochs" in scheme else {}
    if "record_rate" in scheme:
        scheme |= {"batch_size": 30, "record_rate": 0.5}
    if config.scheme.name.startswith("fl-cs"):
        scheme["max_iterations"] = 30
    return RunConfig.from_dict(sections)


def _read_result(path: Path) -> Measured:
    try:
        return Measured.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        raise RunFolderError(f"{path} is damaged: delete the folder {path.parent}, and the row is run again") from None
