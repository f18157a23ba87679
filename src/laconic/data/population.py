"""Who holds which records. A population is lazy: a client's records exist only while its round runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import Inputs, Pictures, SparseRows, concatenated, dense, tensors_of
from laconic.errors import ConfigError, DataError
from laconic.graphs import sent


class Records(NamedTuple):
    """Some records: inputs (count, ...), dense or sparse, and targets (count,) or (count, ...).

    Attributes:
        inputs: the records.
        targets: their labels, or values.

    Examples:
        >>> import torch
        >>> records = laconic.Records(torch.randn(10, 8), torch.randint(0, 2, (10,)))
        >>> len(records.some([0, 3]).targets)
        2
    """

    inputs: Inputs
    targets: Tensor

    def to(self, device: torch.device) -> Records:
        return Records(self.inputs.to(device), self.targets.to(device))

    def some(self, rows: Tensor | np.ndarray) -> Records:
        """The records of these numbers."""
        index = sent(torch.as_tensor(rows), self.targets.device)
        inputs = self.inputs
        if isinstance(inputs, Tensor) and index.ndim == 1 and index.dtype == torch.int64:
            # The same, several times as fast on a CPU.
            return Records(torch.index_select(inputs, 0, index), torch.index_select(self.targets, 0, index))
        return Records(inputs[index], self.targets[index])


class CohortRecords(NamedTuple):
    """The records of several clients, padded to the largest: (clients, most, ...), and how many are real."""

    inputs: Tensor
    targets: Tensor
    sizes: np.ndarray


@runtime_checkable
class Population(Protocol):
    """The clients of a federation, numbered from 0.

    Anything with these four members is one: `num_clients`, `size(client)`, `records(client)` and `to(device)`.

    Examples:
        >>> population = laconic.FunctionPopulation(3, lambda client: ([[0.0]], [client]))
        >>> isinstance(population, laconic.Population)
        True
    """

    @property
    def num_clients(self) -> int: ...

    def size(self, client: int) -> int:
        """How many records the client holds."""

    def records(self, client: int) -> Records:
        """The client's records."""

    def to(self, device: torch.device) -> Population:
        """The same population with pooled tensors, if it has any, on that device."""


def gather(population: Population, clients: Sequence[int], device: torch.device) -> CohortRecords:
    """The records of several clients as one padded block on the device; sparse inputs are made dense for it."""
    if isinstance(population, PooledPopulation) and not population.sparse:
        return population.gather(clients, device)
    records, sizes = gather_rows(population, clients, device)
    return CohortRecords(padded(dense(records.inputs), sizes), padded(records.targets, sizes), sizes)


def gather_rows(population: Population, clients: Sequence[int], device: torch.device) -> tuple[Records, np.ndarray]:
    """The records of several clients, one client after another on the device, and how many each has."""
    if isinstance(population, PooledPopulation):
        return population.gather_rows(clients, device)
    every = [population.records(int(client)) for client in clients]
    sizes = np.array([len(r.targets) for r in every], dtype=np.int64)
    inputs, targets = concatenated([r.inputs for r in every]), torch.cat([r.targets for r in every])
    return Records(inputs, targets).to(device), sizes


def whole_table(population: Population, clients: Sequence[int]) -> Tensor | None:
    """The rows of a table that the clients hold, one client after another, if these are all of it, each once."""
    if not isinstance(population, PooledPopulation):
        return None
    if sum(population.size(client) for client in clients) != len(population.pool.targets):
        return None
    rows = torch.from_numpy(np.concatenate([population.rows(client) for client in clients]))
    return rows if bool((torch.bincount(rows, minlength=len(rows)) == 1).all()) else None


def some_of(population: Population, client: int, rows: np.ndarray) -> Records:
    """Some of a client's records; where pictures are made when they are picked, no others are made for it."""
    if isinstance(population, PooledPopulation):
        return population.pool.some(population.rows(client)[rows])
    return population.records(client).some(rows)


def patients_of(population: Population, client: int) -> np.ndarray | None:
    """Whose each of a client's records is, as numbers; None if the population does not say."""
    said = getattr(population, "patients", None)
    return None if said is None else said(client)


def units_of(population: Population, client: int, unit: str) -> np.ndarray | None:
    """Of which unit each of a client's records is, numbered from 0; None where every record is a unit."""
    if unit != "patient":
        return None
    patients = patients_of(population, client)
    if patients is None:
        raise ConfigError(
            "⟨unit⟩ patient: the records do not say whose they are; name the column (⟨patient-column⟩), or patient in"
            " the schema; in Python give (inputs, targets, patients) for every client; or use ⟨unit⟩ record if every"
            " record is another person's"
        )
    patients = np.asarray(patients)
    if patients.shape != (population.size(client),):
        raise DataError(
            f"client {client} has {population.size(client)} records, but {patients.shape} numbers of patients: one"
            " each is needed"
        )
    missing = np.flatnonzero([whose is None or whose == "" or whose != whose for whose in patients.tolist()])
    if len(missing):
        raise DataError(
            f"client {client}: record {missing[0]} does not say whose it is, so its patient could count several times:"
            " name a patient for every record, or leave such records out"
        )
    numbered: np.ndarray = np.unique(patients, return_inverse=True)[1]
    return numbered


def most_owners(population: Population) -> int | None:
    """At how many clients one patient has records at most; None if the clients' numbers of patients are their own."""
    if not getattr(population, "patients_shared", False):
        return None
    whose = [patients_of(population, client) for client in range(population.num_clients)]
    each = [np.unique(some) for some in whose if some is not None and len(some)]
    return int(np.unique(np.concatenate(each), return_counts=True)[1].max()) if each else None


def first_of(population: Population, count: int = 1) -> Records:
    """The first records of the first client: what a record looks like."""
    return first_look(population, count)[0]


def first_look(population: Population, count: int) -> tuple[Records, Tensor]:
    """The first records of the first client, and the targets of all that it holds."""
    if isinstance(population, PooledPopulation):
        return population.pool.some(population.rows(0)[:count]), population.targets(0)
    records = population.records(0)
    return records.some(np.arange(min(count, len(records.targets)))), records.targets


def targets_of(population: Population, client: int) -> Tensor:
    """A client's targets, without making its inputs if that can be."""
    return (
        population.targets(client) if isinstance(population, PooledPopulation) else population.records(client).targets
    )


def padded(values: Tensor, sizes: np.ndarray) -> Tensor:
    """(clients, most, ...) from one client's values after another's, zeros behind them."""
    real = torch.from_numpy(np.arange(int(sizes.max(initial=1))) < sizes[:, None]).to(values.device)
    block = torch.zeros((*real.shape, *values.shape[1:]), dtype=values.dtype, device=values.device)
    block[real] = values
    return block


class PooledPopulation:
    """One pooled table of records and, for every client, the rows it holds.

    `rows` is a list of index arrays (clients of any size), or a 2-D array (equal shards). `patients` has a number for
    every row of the table: whose it is.
    """

    patients_shared = True
    """Equal numbers of patients are one person, whichever clients have the records."""

    def __init__(
        self, records: Records, rows: Sequence[np.ndarray] | np.ndarray, *, patients: np.ndarray | None = None
    ) -> None:
        self._records = records
        self._rows = rows
        self._patients = patients

    @property
    def num_clients(self) -> int:
        return len(self._rows)

    def size(self, client: int) -> int:
        return len(self._rows[client])

    def records(self, client: int) -> Records:
        return self._records.some(self._rows[client])

    @property
    def made_when_picked(self) -> bool:
        """Whether every record that is picked takes more memory than it does in the table."""
        return isinstance(self._records.inputs, Pictures)

    @property
    def pool(self) -> Records:
        """The table."""
        return self._records

    def rows(self, client: int) -> np.ndarray:
        """The rows of the table that the client holds."""
        return self._rows[client]

    def with_rows(self, rows: Sequence[np.ndarray]) -> PooledPopulation:
        """The same table, held otherwise."""
        return PooledPopulation(self._records, rows, patients=self._patients)

    def patients(self, client: int) -> np.ndarray | None:
        """Whose each of the client's records is, as a number; None if the table does not say."""
        return None if self._patients is None else self._patients[self._rows[client]]

    def targets(self, client: int) -> Tensor:
        """The client's targets alone."""
        return self._records.targets[torch.as_tensor(self._rows[client], device=self._records.targets.device)]

    def together(self) -> PooledPopulation:
        """All these records in the hands of one client, in the order of the clients; the pool is not copied."""
        return PooledPopulation(self._records, np.concatenate(list(self._rows))[None], patients=self._patients)

    def to(self, device: torch.device) -> PooledPopulation:
        return PooledPopulation(self._records.to(device), self._rows, patients=self._patients)

    @property
    def tensors(self) -> list[Tensor]:
        """All that it holds, and who holds which rows: for digests."""
        rows = self._rows if isinstance(self._rows, np.ndarray) else np.concatenate([*self._rows, [0]])
        sizes = torch.tensor([len(held) for held in self._rows])
        whose = [] if self._patients is None else [torch.from_numpy(self._patients.astype(np.int64))]
        return [*tensors_of(self._records.inputs), self._records.targets, torch.from_numpy(rows.copy()), sizes, *whose]

    @property
    def sparse(self) -> bool:
        return isinstance(self._records.inputs, SparseRows)

    def gather_rows(self, clients: Sequence[int], device: torch.device) -> tuple[Records, np.ndarray]:
        chosen = [self._rows[int(client)] for client in clients]
        sizes = np.array([len(rows) for rows in chosen], dtype=np.int64)
        return self._records.some(np.concatenate(chosen)).to(device), sizes

    def gather(self, clients: Sequence[int], device: torch.device) -> CohortRecords:
        if isinstance(self._rows, np.ndarray):
            block = self._rows[np.asarray(clients, dtype=np.int64)]
            sizes = np.full(len(block), block.shape[1], dtype=np.int64)
        else:
            chosen = [self._rows[int(client)] for client in clients]
            sizes = np.array([len(r) for r in chosen], dtype=np.int64)
            block = np.zeros((len(chosen), int(sizes.max(initial=1))), dtype=np.int64)
            for row, held in enumerate(chosen):
                block[row, : len(held)] = held
        inputs, targets = self._records.some(block.reshape(-1))
        inputs = dense(inputs)
        return CohortRecords(
            inputs.reshape(*block.shape, *inputs.shape[1:]).to(device),
            targets.reshape(*block.shape, *targets.shape[1:]).to(device),
            sizes,
        )


class MappedPool(PooledPopulation):
    """The same clients with another table, which `make` computes from the old one when it is first needed."""

    def __init__(self, population: PooledPopulation, make: Callable[[Records], Records]) -> None:
        self._old, self._make = population._records, make
        self._rows, self._patients = population._rows, population._patients

    @functools.cached_property
    def _records(self) -> Records:  # type: ignore[override]
        return self._make(self._old)


class FunctionPopulation:
    """Clients made on demand: `make(client)` returns that client's records. A million take no memory.

    Args:
        num_clients: how many.
        make: returns a client's records; always the same ones for the same client.
        size: how many records a client has, where that is known without making them.
        patients: whose each of a client's records is, as numbers, where patients are protected.

    Examples:
        >>> import torch
        >>> def make(client):
        ...     generator = torch.Generator().manual_seed(client)
        ...     return torch.randn(10, 4, generator=generator), torch.full((10,), client % 2)
        >>> million = laconic.FunctionPopulation(1_000_000, make, size=lambda client: 10)
        >>> million.num_clients, million.size(7), million.records(7).inputs.shape
        (1000000, 10, torch.Size([10, 4]))
    """

    def __init__(
        self,
        num_clients: int,
        make: Callable[[int], Records | tuple[Any, Any]],
        *,
        size: Callable[[int], int] | None = None,
        patients: Callable[[int], Any] | None = None,
    ) -> None:
        self._num_clients = num_clients
        self._make = make
        self._size = size
        self._patients = patients
        self.patients_shared = False

    @property
    def num_clients(self) -> int:
        return self._num_clients

    def size(self, client: int) -> int:
        return self._size(client) if self._size else len(self.records(client).targets)

    def records(self, client: int) -> Records:
        return as_records(self._make(client), f"client {client}")

    def patients(self, client: int) -> np.ndarray | None:
        return None if self._patients is None else np.asarray(self._patients(client))

    def to(self, device: torch.device) -> FunctionPopulation:
        return self


def as_population(clients: Any) -> Population:
    """A population from what a user has: a Population, or a sequence of (inputs, targets) pairs or Datasets.

    With whose the records are: (inputs, targets, patients), where equal numbers are one patient, also at other clients.
    """
    if isinstance(clients, Population):
        return clients
    if not isinstance(clients, Sequence) or isinstance(clients, str) or len(clients) == 0:
        raise DataError("clients must be a Population or a non-empty sequence of (inputs, targets) pairs or Datasets")
    if isinstance(clients[0], tuple | list) and len(clients[0]) == 3:
        for number, data in enumerate(clients):
            if not isinstance(data, tuple | list) or len(data) != 3:
                raise DataError(f"client {number}: expected (inputs, targets, patients), as client 0 gives")
        triples = FunctionPopulation(
            len(clients), lambda client: clients[client][:2], patients=lambda client: clients[client][2]
        )
        triples.patients_shared = True
        return triples
    return FunctionPopulation(len(clients), lambda client: as_records(clients[client], f"client {client}"))


def as_records(data: Any, what: str) -> Records:
    """Records from (inputs, targets) arrays or tensors, or from a map-style torch Dataset; checked."""
    if isinstance(data, torch.utils.data.Dataset):
        items = [data[i] for i in range(len(data))]  # type: ignore[arg-type]
        data = (
            torch.stack([torch.as_tensor(x) for x, _ in items]),
            torch.stack([torch.as_tensor(y) for _, y in items]),
        )
    try:
        inputs, targets = data
    except (TypeError, ValueError):
        raise DataError(f"{what}: expected a pair (inputs, targets) or a Dataset, got {type(data).__name__}") from None
    return check_records(Records(_inputs(inputs, f"{what}: inputs"), _tensor(targets, f"{what}: targets")), what)


def check_records(records: Records, what: str) -> Records:
    """The records, or a `DataError` that says what is wrong with them."""
    inputs, targets = records
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        raise DataError(f"{what}: {_count(inputs)} inputs but {_count(targets)} targets; they must pair up")
    if len(inputs) == 0:
        raise DataError(f"{what}: has no records; leave such clients out")
    for name, values in (("inputs", inputs), ("targets", targets)):
        if 0 in values.shape:
            raise DataError(f"{what}: {name} of shape {tuple(values.shape[1:])} per record hold no values; add some")
    if isinstance(inputs, SparseRows) and (problem := inputs.problem()):
        raise DataError(f"{what}: {problem}")
    for name, tensor in (("inputs", inputs), ("targets", targets)):
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            row = int((~torch.isfinite(tensor.reshape(len(tensor), -1)).all(1)).nonzero()[0])
            raise DataError(f"{what}: NaN or infinity in the {name} of record {row}; clean or drop it")
    return records


def _count(values: Inputs) -> int | str:
    return len(values) if values.ndim else "scalar"


def _inputs(values: Any, what: str) -> Inputs:
    """Sparse rows and scipy's sparse matrices stay sparse."""
    if isinstance(values, SparseRows):
        return values
    return SparseRows.from_scipy(values) if hasattr(values, "tocsr") else _tensor(values, what)


def _tensor(values: Any, what: str) -> Tensor:
    """Floats as float32, integers as int64: what models and losses take."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(_array(values, what))
    if tensor.is_complex():
        raise DataError(f"{what} are complex numbers; give real ones")
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor.to(torch.int64)


def _array(values: Any, what: str) -> np.ndarray:
    """A copy, as torch warns of read-only arrays, of a type that torch has: in this machine's byte order."""
    try:
        array = np.array(values)
    except ValueError:
        raise DataError(f"{what} are of different shapes; make them one array") from None
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "biuf":
        raise DataError(f"{what} hold {array.dtype}, not numbers; encode them as numbers")
    if kind == "u" and size == 8 and array.size and array.max() > np.iinfo(np.int64).max:
        raise DataError(f"{what} are whole numbers beyond 64 bits with a sign; give them as float64")
    if kind == "f" and size > 8:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
            return array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


class SelectedPopulation:
    """Some clients of another population, renumbered from 0."""

    def __init__(self, population: Population, clients: np.ndarray) -> None:
        self._population, self._clients = population, clients

    @property
    def num_clients(self) -> int:
        return len(self._clients)

    def size(self, client: int) -> int:
        return self._population.size(int(self._clients[client]))

    def records(self, client: int) -> Records:
        return self._population.records(int(self._clients[client]))

    def patients(self, client: int) -> np.ndarray | None:
        return patients_of(self._population, int(self._clients[client]))

    def to(self, device: torch.device) -> SelectedPopulation:
        return SelectedPopulation(self._population.to(device), self._clients)


def pooled_records(population: Population) -> Records:
    """All clients' records in one place: what a federation avoids, for reference and evaluation."""
    every = [population.records(client) for client in range(population.num_clients)]
    return Records(concatenated([r.inputs for r in every]), torch.cat([r.targets for r in every]))
