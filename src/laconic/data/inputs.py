"""The inputs of records: a tensor, sparse rows or pictures, and what holds for all of them.

`SparseRows` store only their non-zeros. `Pictures` are kept as bytes, in any number of shifted and mirrored variants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError, DataError
from laconic.parts import positive_int

_ROWS_AT_ONCE = 1 << 16
"""Rows picked at a time: what is needed besides the result stays small."""


@dataclass(frozen=True)
class SparseRows:
    """Row i holds `values[indptr[i]:indptr[i + 1]]` in the columns `indices[indptr[i]:indptr[i + 1]]`, else zeros.

    Without `values` every entry is 1 (multi-hot codes). An entry that is there twice counts twice, as in scipy. It has
    what the rest of the library asks of a tensor of inputs: length, shape, picking rows, moving to a device.
    """

    indptr: Tensor
    indices: Tensor
    num_columns: int
    values: Tensor | None = None

    def __post_init__(self) -> None:
        if self.indptr.ndim != 1 or self.indices.ndim != 1 or len(self.indptr) == 0:
            raise DataError("sparse rows: indptr and indices must be one-dimensional, and indptr not empty")
        if self.values is not None and self.values.shape != self.indices.shape:
            raise DataError(
                f"sparse rows: {len(self.indices)} indices but {len(self.values)} values; they must pair up"
            )

    @classmethod
    def from_dense(cls, table: Tensor) -> SparseRows:
        """The non-zeros of a (count, columns) tensor."""
        rows, columns = table.nonzero(as_tuple=True)
        counts = torch.bincount(rows, minlength=len(table))
        return cls(running_sum(counts), columns.to(torch.int32), table.shape[1], table[rows, columns].float())

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseRows:
        """The rows of any scipy sparse matrix or array."""
        csr = matrix.tocsr()
        values = torch.from_numpy(np.asarray(csr.data, dtype=np.float32))
        indptr, indices = (np.asarray(a) for a in (csr.indptr, csr.indices))
        only_ones = bool((values == 1).all())
        return cls(
            torch.from_numpy(indptr.astype(np.int64)),
            torch.from_numpy(indices.astype(np.int32)),
            int(csr.shape[1]),
            None if only_ones else values,
        )

    def to_scipy(self) -> Any:
        """The same as a scipy CSR array."""
        import scipy.sparse

        indptr = self.indptr.cpu().numpy().astype(np.int32 if self.num_entries < 2**31 else np.int64)
        arrays = (self.entry_values().cpu().numpy(), self.indices.cpu().numpy(), indptr)
        return scipy.sparse.csr_array(arrays, shape=self.shape)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.num_columns

    @property
    def ndim(self) -> int:
        return 2

    @property
    def device(self) -> torch.device:
        return self.indices.device

    @property
    def tensors(self) -> list[Tensor]:
        """What it is made of: for digests and sizes."""
        return [self.indptr, self.indices, *([] if self.values is None else [self.values])]

    def to(self, device: torch.device | str) -> SparseRows:
        values = None if self.values is None else self.values.to(device)
        return SparseRows(self.indptr.to(device), self.indices.to(device), self.num_columns, values)

    def cpu(self) -> SparseRows:
        return self.to("cpu")

    def __getitem__(self, rows: slice | Tensor | np.ndarray | Sequence[int]) -> SparseRows:
        """Some rows, in the order asked for."""
        if isinstance(rows, slice):
            start, stop, stride = rows.indices(len(self))
            if stride == 1:
                return self._run(start, max(start, stop))
            rows = np.arange(start, stop, stride)
        index = torch.as_tensor(rows, device=self.device)
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        index = torch.where(index < 0, index + len(self), index)
        lengths = self.indptr[1:][index] - self.indptr[:-1][index]
        indptr = running_sum(lengths)
        if len(index) <= _ROWS_AT_ONCE:
            entries = self._entries(index, lengths, indptr)
            return self._with(indptr, self.indices[entries], None if self.values is None else self.values[entries])
        indices = torch.empty(int(indptr[-1]), dtype=self.indices.dtype, device=self.device)
        values = None if self.values is None else torch.empty_like(indices, dtype=self.values.dtype)
        for first in range(0, len(index), _ROWS_AT_ONCE):
            part = slice(first, min(first + _ROWS_AT_ONCE, len(index)))
            ends = indptr[part.start : part.stop + 1]
            entries = self._entries(index[part], lengths[part], ends - ends[0])
            indices[int(ends[0]) : int(ends[-1])] = self.indices[entries]
            if values is not None and self.values is not None:
                values[int(ends[0]) : int(ends[-1])] = self.values[entries]
        return self._with(indptr, indices, values)

    def only_columns(self, wanted: Tensor) -> SparseRows:
        """The entries in columns where `wanted` is true; the columns keep their numbers."""
        keep = wanted[self.indices]
        before = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
        values = None if self.values is None else self.values[keep]
        return self._with(before[self.indptr], self.indices[keep], values)

    def dense(self) -> Tensor:
        """All of it as a (count, columns) tensor: for a few rows only."""
        table = torch.zeros(self.shape, device=self.device)
        places = self.row_of_entry() * self.num_columns + self.indices
        table.view(-1).scatter_add_(0, places, self.entry_values())
        return table

    def row_of_entry(self) -> Tensor:
        """The row of every stored entry."""
        counts = self.indptr.diff()
        return torch.repeat_interleave(
            torch.arange(len(self), device=self.device), counts, output_size=self.num_entries
        )

    def entry_values(self) -> Tensor:
        return torch.ones(self.num_entries, device=self.device) if self.values is None else self.values

    @property
    def num_entries(self) -> int:
        return len(self.indices)

    def split(self, size: int) -> Iterator[SparseRows]:
        """Consecutive pieces of so many rows."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def times(self, transposed: Tensor) -> Tensor:
        """X·Wᵀ for Wᵀ (columns, units): the cost follows the non-zeros."""
        return torch.nn.functional.embedding_bag(
            self.indices,
            transposed,
            self.indptr.to(self.indices.dtype),
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )

    def problem(self) -> str | None:
        """What is wrong with the entries, if anything."""
        if len(self.indptr) and (int(self.indptr[0]) != 0 or int(self.indptr[-1]) != self.num_entries):
            return f"indptr must go from 0 to the number of entries, {self.num_entries}"
        if bool((self.indptr.diff() < 0).any()):
            return "indptr must not decrease"
        wrong = (self.indices < 0) | (self.indices >= self.num_columns)
        if bool(wrong.any()):
            entry = int(wrong.nonzero()[0])
            row = int(self.row_of_entry()[entry])
            return f"column {int(self.indices[entry])} in record {row}, but there are {self.num_columns} columns"
        if self.values is not None and not bool(torch.isfinite(self.values).all()):
            row = int(self.row_of_entry()[(~torch.isfinite(self.values)).nonzero()[0]])
            return f"NaN or infinity in the inputs of record {row}; clean or drop it"
        return None

    def _run(self, start: int, stop: int) -> SparseRows:
        """Rows start … stop − 1, as views of the same memory."""
        indptr = self.indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        return self._with(
            indptr - first, self.indices[first:last], None if self.values is None else self.values[first:last]
        )

    def _entries(self, rows: Tensor, lengths: Tensor, indptr: Tensor) -> Tensor:
        """The places of the rows' entries, one row after another."""
        shift = self.indptr[rows] - indptr[:-1]
        total = int(indptr[-1])
        return torch.arange(total, device=self.device) + torch.repeat_interleave(shift, lengths, output_size=total)

    def _with(self, indptr: Tensor, indices: Tensor, values: Tensor | None) -> SparseRows:
        return SparseRows(indptr, indices, self.num_columns, values)


def running_sum(counts: Tensor) -> Tensor:
    """(0, c₀, c₀ + c₁, …): where each row starts, and where the last ends."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


_STEPS = 256
"""Shifts are whole numbers of 1/256 pixel."""

_PICTURES_AT_ONCE = 1 << 12
"""Pictures made at a time: what is needed besides the result stays small."""


@dataclass(frozen=True)
class Pictures:
    """Picture i is `pixels[i]` (channels, height, width): bytes stand for 0 … 1, floats for themselves.

    With `moves` (pictures, variants, 3) record r is variant r mod V of picture ⌊r/V⌋: the picture shifted down and to
    the right by so many 1/256 pixels, and mirrored if the third number is 1. Between pixels it is interpolated
    bilinearly; beyond the border the nearest pixel goes on. All this is exact in float32 for bytes, up to the last
    division, so a record has the same bits on every device.

    It has what the rest of the library asks of a tensor of inputs. What is picked is a tensor.
    """

    pixels: Tensor
    moves: Tensor | None = None

    @property
    def variants(self) -> int:
        return 1 if self.moves is None else self.moves.shape[1]

    def __len__(self) -> int:
        return len(self.pixels) * self.variants

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.pixels.shape[1:]

    @property
    def ndim(self) -> int:
        return self.pixels.ndim

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    @property
    def tensors(self) -> list[Tensor]:
        """What it is made of: for digests and sizes."""
        return [self.pixels] if self.moves is None else [self.pixels, self.moves]

    def to(self, device: torch.device | str) -> Pictures:
        return Pictures(self.pixels.to(device), None if self.moves is None else self.moves.to(device))

    def cpu(self) -> Pictures:
        return self.to("cpu")

    def originals(self, pictures: Tensor | np.ndarray) -> Pictures:
        """Some of the pictures as they are, still as bytes."""
        return Pictures(self.pixels[torch.as_tensor(pictures, device=self.device)])

    def augmented(self, variants: int, rng: np.random.Generator) -> Pictures:
        """Each picture in so many random variants, instead of itself.

        Shifts are uniform in ±10 % of height and width, mirroring has probability ½ (Keras' `width_shift_range=0.1`,
        `height_shift_range=0.1`, `horizontal_flip`, and its filling with the nearest pixel).
        """
        positive_int(augment=variants)
        if self.ndim != 4:
            raise ConfigError(f"⟨augment⟩ {variants} is for pictures, not for records of {tuple(self.shape[1:])}")
        size = (variants, len(self.pixels))
        reach = [_STEPS * side // 10 for side in self.pixels.shape[2:]]
        down, right = (rng.integers(-most, most + 1, size, dtype=np.int32) for most in reach)
        mirrored = rng.integers(0, 2, size, dtype=np.int32)
        return replace(self, moves=torch.from_numpy(np.stack([down, right, mirrored], axis=-1).swapaxes(0, 1).copy()))

    def __getitem__(self, rows: slice | Tensor | np.ndarray | Sequence[int] | int) -> Tensor:
        """Some records, in the order and shape asked for."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)), device=self.device)
        index = torch.as_tensor(rows, device=self.device)
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        flat = torch.where(index < 0, index + len(self), index).reshape(-1)
        if self.moves is None:
            return self._plain(flat).reshape(*index.shape, *self.pixels.shape[1:])
        made = torch.empty(len(flat), *self.pixels.shape[1:], device=self.device)
        for start in range(0, len(flat), _PICTURES_AT_ONCE):
            part = slice(start, start + _PICTURES_AT_ONCE)
            some = flat[part]
            made[part] = self._moved(some // self.variants, self.moves.flatten(0, 1)[some].long())
        return made.reshape(*index.shape, *self.pixels.shape[1:])

    def split(self, size: int) -> Iterator[Tensor]:
        """Consecutive pieces of so many records."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def dense(self) -> Tensor:
        """All of it as a tensor: for a few records only."""
        return self[:]

    @property
    def _one(self) -> int:
        """The pixel value that stands for 1."""
        return 255 if self.pixels.dtype == torch.uint8 else 1

    def _plain(self, pictures: Tensor) -> Tensor:
        return self._divided(self.pixels[pictures].to(torch.float32), self._one)

    def _moved(self, pictures: Tensor, moves: Tensor) -> Tensor:
        """Output pixel (y, x) is the picture at (y − down, x − right), or at its mirror image.

        Of every picture a window with one more row and column is taken, at the whole part of the shift; the rest of
        the shift weighs neighbours.
        """
        height, width = self.pixels.shape[2:]
        back = -moves[:, :2]
        down, right = (back >> 8).unbind(1)  # rounds down, for negative shifts too
        low, left = (back & (_STEPS - 1)).unbind(1)
        mirrored = moves[:, 2]
        rows = torch.arange(height + 1, device=self.device) + down[:, None]
        places = torch.arange(width + 1, device=self.device)
        columns = torch.where(mirrored[:, None] == 1, width - places, places) + right[:, None]
        window = self.pixels[
            pictures[:, None, None, None],
            torch.arange(self.pixels.shape[1], device=self.device)[:, None, None],
            rows.clamp_(0, height - 1)[:, None, :, None],
            columns.clamp_(0, width - 1)[:, None, None, :],
        ].to(torch.float32)
        second = torch.where(mirrored == 1, _STEPS - left, left)
        across = _between(window[..., :-1], window[..., 1:], second)
        return self._divided(_between(across[..., :-1, :], across[..., 1:, :], low), _STEPS * _STEPS * self._one)

    def _divided(self, values: Tensor, by: int) -> Tensor:
        # Not by a number: CUDA would multiply by its reciprocal, and the last bit would differ.
        return values / torch.full((), by, dtype=torch.float32, device=self.device)


def _between(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """(256 − w)·first + w·second, a weight for each picture."""
    share = weight.to(torch.float32)[:, None, None, None]
    return (_STEPS - share) * first + share * second


Inputs = Tensor | SparseRows | Pictures
"""A tensor (count, ...), sparse rows, or pictures of which tensors are made when they are picked."""


def concatenated(every: Sequence[Inputs]) -> Tensor | SparseRows:
    """One after another; all dense, or all sparse with the same columns."""
    sparse = [rows for rows in every if isinstance(rows, SparseRows)]
    if not sparse:
        return torch.cat([dense(rows) for rows in every])
    if len(sparse) < len(every):
        raise DataError("some clients' inputs are sparse and some are dense; make them all one or the other")
    widths = {rows.num_columns for rows in sparse}
    if len(widths) > 1:
        raise DataError(f"sparse inputs with {min(widths)} and with {max(widths)} columns; all need the same columns")
    lengths = torch.cat([rows.indptr.diff() for rows in sparse])
    plain = all(rows.values is None for rows in sparse)
    values = None if plain else torch.cat([rows.entry_values() for rows in sparse])
    return SparseRows(running_sum(lengths), torch.cat([rows.indices for rows in sparse]), widths.pop(), values)


def dense(inputs: Inputs) -> Tensor:
    """The inputs as a tensor: for few records only."""
    return inputs if isinstance(inputs, Tensor) else inputs.dense()


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """The tensors that hold the inputs: for digests and sizes."""
    return [inputs] if isinstance(inputs, Tensor) else inputs.tensors
