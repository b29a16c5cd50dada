"""A compact batch into the arrays of the dense layout, bit for bit.

The compact layout (docs/reference/batch.md) has everything once: flags and type in a byte, one
value lane for all types, times as numbers of the calendar, rows by where they start, edges as
parents. This file restores the arrays that the sampler leaves out: O(B·S) and a stable sort by
column, no loop over cells. A model that trains on compact batches does the same on its device.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.sampling.batch import BATCH_FIELDS, Batch
from headwater.store.store import SemanticType

NO_ROW = 65_535  # in `parents` and `row_order`
CELL_BITS = binding.CELL_BITS  # of `cells`, by name of the array they make
WEEKDAY_SHIFT, DATE_SHIFT = binding.TIME_SHIFTS["weekday"], binding.TIME_SHIFTS["year_day"]
SECOND_MASK = 2**WEEKDAY_SHIFT - 1
WEEKDAY_MASK = 2 ** (DATE_SHIFT - WEEKDAY_SHIFT) - 1

FIELDS = {field.name: field for field in BATCH_FIELDS}
COMPACT_ONLY = tuple(
    name for name, field in FIELDS.items() if (field.when or "").startswith("layout=compact")
)
"""Arrays that a dense batch does not have."""

Arrays = dict[str, NDArray[Any]]


@cache
def calendar_tables() -> dict[str, NDArray[np.float32]]:
    """(sin, cos) pairs of the cyclic parts of `timestamp_values`, as the sampler writes them.

    sixtieths [60, 2] of second and minute, hours [24, 2], weekdays [7, 2], and dates [732, 6] with
    the pairs of day, month and day of year, by day of year from 0, + 366 in a leap year.
    """
    return binding.calendar_tables()


def expand(batch: Mapping[str, Any]) -> Batch:
    """The dense arrays of a compact batch, with their names, dtypes and shapes; `info` is kept.

    batch: a batch of `Sampler(layout="compact")`, or its arrays after they were moved or copied.
    ValueError where it is dense, lacks an array or has one of a wrong shape.
    """
    given = _check(batch)
    is_cell = given["cells"] & CELL_BITS["is_padding"] == 0  # [B, S]
    arrays = _cells(given, hidden=_hidden(batch, given))
    segments = np.asarray(batch["segment_ids"], np.uint32) if "segment_ids" in batch else None
    arrays |= _orders(given, is_cell, segments)
    arrays["fk_adj"] = _adjacency(given["parents"])
    for name, array in batch.items():
        if name not in COMPACT_ONLY:
            arrays[name] = np.asarray(array)
    arrays["parents"] = given["parents"]
    places = {name: place for place, name in enumerate(FIELDS)}
    names = sorted(arrays, key=lambda name: places.get(name, len(places)))
    return Batch.of({name: arrays[name] for name in names}, getattr(batch, "info", {}))


def _check(batch: Mapping[str, Any]) -> Arrays:
    """What `expand` reads, in the dtypes of the layout, once names and shapes fit together."""
    for name, layout in (("semantic_types", "dense"), ("context_cells", "flat")):
        if name in batch:
            raise ValueError(f"the batch has '{name}': it is {layout}, expected a compact batch")
    read = (*COMPACT_ONLY, "parents", "row_starts")
    missing = [name for name in read if name not in batch]
    if missing:
        raise ValueError(f"the batch lacks {', '.join(missing)}, which compact batches have")
    arrays: Arrays = {}
    sizes: dict[str, int] = {}
    for name in read:
        array, dtype, dims = np.asarray(batch[name]), FIELDS[name].dtype, FIELDS[name].dims
        if array.dtype.kind not in "iu" or array.ndim != len(dims):
            raise ValueError(
                f"array '{name}' is {array.dtype}{list(array.shape)}, expected"
                f" {dtype}[{', '.join(dims)}]"
            )
        for dim, size in zip(dims, array.shape, strict=True):
            letter, size = ("R", size - 1) if dim == "R+1" else (dim, size)
            if sizes.setdefault(letter, size) != size:
                raise ValueError(
                    f"array '{name}' has shape {list(array.shape)}, expected {letter} ="
                    f" {sizes[letter]} as in the arrays before it"
                )
        arrays[name] = array.astype(dtype, copy=False)
    return arrays


def _hidden(batch: Mapping[str, Any], given: Arrays) -> NDArray[np.bool_]:
    """Cells to predict that are empty, as their truth stands beside. [B, S]"""
    hidden: NDArray[np.bool_] = given["cells"] & CELL_BITS["is_target"] != 0
    if "target_values" not in batch and "masked_numerical_indices" not in batch:
        hidden[:] = False
    elif "target_values" not in batch and "target_indices" in batch:
        at = np.asarray(batch["target_indices"])[:, None]  # the one that is no masked cell
        hidden &= np.arange(hidden.shape[1]) != at
    return hidden


def _cells(given: Arrays, *, hidden: NDArray[np.bool_]) -> Arrays:
    """Everything that stands in one cell; `hidden` ones are empty."""
    cells, values = given["cells"], given["cell_values"]
    stypes = (cells & CELL_BITS["semantic_type"]).astype(np.int8)
    flags = {
        name: (cells & CELL_BITS[name] != 0).astype(np.uint8)
        for name in ("is_null", "is_target", "is_padding")
    }

    def values_of(stype: SemanticType) -> NDArray[np.uint32]:
        return np.where(stypes == stype, values, np.uint32(0))

    is_time = (stypes == SemanticType.TIMESTAMP) & (flags["is_null"] == 0) & ~hidden
    times = np.zeros((*cells.shape, 15), np.float32)
    times[is_time] = _encode_times(given["cell_times"][is_time], values[is_time])
    return {
        "semantic_types": stypes,
        "column_ids": given["cell_columns"].astype(np.int32),
        "numeric_values": values_of(SemanticType.NUMERICAL).view(np.float32),
        "timestamp_values": times,
        "bool_values": values_of(SemanticType.BOOLEAN).astype(np.uint8),
        "categorical_embed_ids": values_of(SemanticType.CATEGORICAL),
        "text_embed_ids": values_of(SemanticType.TEXT),
        **flags,
    }


def _encode_times(times: NDArray[np.uint32], epochs: NDArray[np.uint32]) -> NDArray[np.float32]:
    """[n] numbers of the calendar and [n] bits of the z-scored epoch → [n, 15]."""
    tables = calendar_tables()
    second = times & SECOND_MASK
    parts = (
        tables["sixtieths"][second % 60],
        tables["sixtieths"][second // 60 % 60],
        tables["hours"][second // 3600],
        tables["weekdays"][times >> WEEKDAY_SHIFT & WEEKDAY_MASK],
        tables["dates"][times >> DATE_SHIFT],
        epochs.view(np.float32)[:, None],
    )
    return np.concatenate(parts, axis=1)


def _orders(
    given: Arrays, is_cell: NDArray[np.bool_], segments: NDArray[np.uint32] | None
) -> Arrays:
    """The row of every cell, and the permutations by column, after segment, and by row."""
    starts = given["row_starts"].astype(np.int64)  # [B, R+1]
    if not np.array_equal(is_cell.sum(axis=1), starts[:, -1]):
        raise ValueError("arrays 'cells' and 'row_starts' differ in the number of cells")
    batch_size, length = is_cell.shape
    row_count = starts.shape[1] - 1
    positions = np.broadcast_to(np.arange(length), is_cell.shape)
    counts = np.diff(starts, axis=1)  # [B, R] cells of each row
    row_ids = np.zeros(is_cell.shape, np.uint16)
    row_ids[is_cell] = np.repeat(np.tile(np.arange(row_count), batch_size), counts.ravel())

    # A row's cells stay together: from their first position to the next row's in the order.
    order = given["row_order"].astype(np.int64)
    is_row = order != NO_ROW
    order = np.where(is_row, order, 0)
    ordered_counts = np.where(is_row, np.take_along_axis(counts, order, axis=1), 0)
    places = np.cumsum(ordered_counts, axis=1) - ordered_counts
    moves = np.take_along_axis(starts, order, axis=1) - places
    by_row = positions.astype(np.uint16)
    by_row[is_cell] = positions[is_cell] + np.repeat(moves.ravel(), ordered_counts.ravel())

    # Padding is behind all cells already, so a stable sort leaves it there.
    columns = np.where(is_cell, given["cell_columns"], np.uint16(65_535))
    if segments is not None:
        columns = np.where(is_cell, segments, np.uint32(65_535)) << 16 | columns
    by_column = np.argsort(columns, axis=1, kind="stable").astype(np.uint16)
    return {"seq_row_ids": row_ids, "col_perm": by_column, "out_perm": by_row, "in_perm": by_row}


def _adjacency(parents: NDArray[np.uint16]) -> NDArray[np.uint8]:
    batch_size, row_count, _ = parents.shape
    adjacency = np.zeros((batch_size, row_count, row_count), np.uint8)
    sequence, row, slot = np.nonzero(parents != NO_ROW)
    adjacency[sequence, row, parents[sequence, row, slot]] = 1
    return adjacency
