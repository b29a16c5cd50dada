"""The JAX twin of `headwater.expand`: a compact batch into the dense arrays, on the device.

A compact batch is a seventh of the bytes (docs/3-batch.md), so it is what goes over the bus; the
model still reads the dense arrays, made again inside the compiled step. Shapes are static, nothing
is wider than 32 bits, and what nobody reads (the permutations, say) costs nothing: XLA drops it.

Integers are those of the sampler; floats too, as they are moved or looked up, never computed. Rows
of cells come from a cumulative sum over where rows start, which takes 0.3 ms for 32 x 1024 cells
on a CPU core, where comparing every cell with every start takes 11.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from headwater import SemanticType, calendar_tables
from headwater.sampling.expand import (
    CELL_BITS,
    COMPACT_ONLY,
    DATE_SHIFT,
    SECOND_MASK,
    WEEKDAY_MASK,
    WEEKDAY_SHIFT,
)
from jax import Array

from confluence.model.transformer import Inputs

DROPPED = {*COMPACT_ONLY} - {"parents"}  # those that the model does not read


def as_dense(batch: Inputs) -> Inputs:
    """The dense arrays of a batch of either layout."""
    return expand(batch) if "cells" in batch else batch


@jax.jit
def expand(batch: Inputs) -> dict[str, Array]:
    """Dense arrays of a compact batch; the others stay, `parents` included.

    `row_order` may be missing: then so are `out_perm` and `in_perm`.
    """
    is_cell = batch["cells"] & CELL_BITS["is_padding"] == 0  # [B,S]
    row_ids = rows_of_cells(batch["row_starts"], is_cell)
    arrays = {name: value for name, value in batch.items() if name not in DROPPED}
    arrays |= _cell_arrays(batch, _hidden(batch))
    arrays["seq_row_ids"] = row_ids.astype(jnp.uint16)
    arrays["fk_adj"] = adjacency(batch["parents"])
    arrays["col_perm"] = _cells_by_column(batch, is_cell)
    if "row_order" in batch:
        by_row = _cells_by_row(batch["row_order"], batch["row_starts"], row_ids, is_cell)
        arrays["out_perm"] = arrays["in_perm"] = by_row
    return arrays


def rows_of_cells(row_starts: Array, is_cell: Array) -> Array:
    """How many rows after the first have begun by each cell; 0 at padding. → [B,S] int32"""
    starts = row_starts[:, 1:-1].astype(jnp.int32)  # [B,R-1]
    batch, cells = is_cell.shape
    begins = jnp.zeros((batch, cells + 1), jnp.int32)
    begins = begins.at[jnp.arange(batch)[:, None], starts].add(1)  # those past the end: at S
    return jnp.where(is_cell, jnp.cumsum(begins, axis=1)[:, :cells], 0)


def adjacency(parents: Array) -> Array:
    """fk_adj of parents. [B,R,P] uint16 → [B,R,R] uint8"""
    batch, rows, _ = parents.shape
    b = jnp.arange(batch)[:, None, None]
    i = jnp.arange(rows)[None, :, None]
    j = parents.astype(jnp.int32)  # NO_ROW is past the end and dropped
    return jnp.zeros((batch, rows, rows), jnp.uint8).at[b, i, j].set(1, mode="drop")


def _hidden(batch: Inputs) -> Array:
    """Cells to predict that are empty, as their truth stands beside. → [B,S] bool"""
    is_target: Array = batch["cells"] & CELL_BITS["is_target"] != 0
    if "target_values" in batch:
        return is_target
    if "masked_numerical_indices" not in batch:
        return jnp.zeros_like(is_target)
    if "target_indices" in batch:  # the one that is no masked cell
        is_target &= jnp.arange(is_target.shape[1]) != batch["target_indices"][:, None]
    return is_target


def _cell_arrays(batch: Inputs, hidden: Array) -> dict[str, Array]:
    """Everything that stands in one cell; `hidden` ones are empty. [B,S] bool"""
    cells, values = batch["cells"], batch["cell_values"]
    stypes = (cells & CELL_BITS["semantic_type"]).astype(jnp.int8)
    flags = {
        name: (cells & CELL_BITS[name] != 0).astype(jnp.uint8)
        for name in ("is_null", "is_target", "is_padding")
    }

    def values_of(stype: SemanticType) -> Array:
        return jnp.where(stypes == stype, values, jnp.uint32(0))

    def floats_of(stype: SemanticType) -> Array:
        return jax.lax.bitcast_convert_type(values_of(stype), jnp.float32)

    is_time = (stypes == SemanticType.TIMESTAMP) & (flags["is_null"] == 0) & ~hidden
    cyclic = _cyclic_parts(batch["cell_times"])  # [B,S,14]
    epoch = floats_of(SemanticType.TIMESTAMP)[..., None]
    times = jnp.concatenate([cyclic, epoch], axis=-1)  # [B,S,15]
    return {
        "semantic_types": stypes,
        "column_ids": batch["cell_columns"].astype(jnp.int32),
        "numeric_values": floats_of(SemanticType.NUMERICAL),
        "timestamp_values": jnp.where(is_time[..., None], times, 0.0),
        "bool_values": values_of(SemanticType.BOOLEAN).astype(jnp.uint8),
        "categorical_embed_ids": values_of(SemanticType.CATEGORICAL),
        "text_embed_ids": values_of(SemanticType.TEXT),
        **flags,
    }


def _cyclic_parts(times: Array) -> Array:
    """Sines and cosines of packed times, from headwater's tables. [B,S] uint32 → [B,S,14]"""
    tables = {name: jnp.asarray(table) for name, table in calendar_tables().items()}
    second = (times & SECOND_MASK).astype(jnp.int32)
    weekday = (times >> WEEKDAY_SHIFT & WEEKDAY_MASK).astype(jnp.int32)
    parts = (
        tables["sixtieths"][second % 60],
        tables["sixtieths"][second // 60 % 60],
        tables["hours"][second // 3600],
        tables["weekdays"][weekday],
        tables["dates"][(times >> DATE_SHIFT).astype(jnp.int32)],
    )
    return jnp.concatenate(parts, axis=-1)


def _cells_by_column(batch: Inputs, is_cell: Array) -> Array:
    """Positions in a stable order by segment, where there are any, then column. → [B,S] uint16"""
    keys = batch["cell_columns"].astype(jnp.uint32)
    if "segment_ids" in batch:
        keys |= batch["segment_ids"].astype(jnp.uint32) << 16
    keys = jnp.where(is_cell, keys, jnp.uint32(2**32 - 1))  # padding last
    return jnp.argsort(keys, axis=1, stable=True).astype(jnp.uint16)


def _cells_by_row(row_order: Array, row_starts: Array, row_ids: Array, is_cell: Array) -> Array:
    """Positions grouped by row in the order given, padding last. → [B,S] uint16"""
    batch, rows = row_order.shape
    b = jnp.arange(batch)[:, None]
    order = row_order.astype(jnp.int32)  # [B,R]; NO_ROW is past the end
    starts = row_starts.astype(jnp.int32)  # [B,R+1]
    counts = jnp.diff(starts, axis=1)  # [B,R] cells of each row
    ordered = jnp.where(order < rows, counts[b, jnp.minimum(order, rows - 1)], 0)
    places = jnp.cumsum(ordered, axis=1) - ordered  # first position of each row in the order
    moves = jnp.zeros_like(counts).at[b, order].set(places, mode="drop") - starts[:, :-1]  # by row
    positions = jnp.arange(is_cell.shape[1], dtype=jnp.int32)
    place = positions + jnp.where(is_cell, jnp.take_along_axis(moves, row_ids, axis=1), 0)
    by_row = jnp.zeros(is_cell.shape, jnp.int32).at[b, place].set(positions, unique_indices=True)
    return by_row.astype(jnp.uint16)
