"""From a batch of headwater, of any layout, to what the model reads: all contexts on one axis.

The model knows cells, rows and contexts, and no axis of sequences: the cells of all n contexts of
a batch stand side by side on one axis of N cells, their rows on one of Rn rows. `context_cells` and
`context_rows` say where each context begins. Three layouts become that inside the compiled step:

    flat      is that already; the values are read from the compact cells
    compact   [B,S]: context b begins at cell b·S and row b·R, padding stands inside it
    dense     [B,S] too

Integers are those of the sampler; floats too, as they are moved or looked up, never computed.
Shapes are static and nothing is wider than 32 bits. What nobody reads costs nothing: XLA drops it.
Rows of cells come from a cumulative sum over where rows start, which takes 0.3 ms for 32 x 1024
cells on a CPU core, where comparing every cell with every start takes 11.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from headwater import SemanticType, calendar_tables
from headwater.shared import CELL_BITS, DATE_SHIFT, SECOND_MASK, WEEKDAY_MASK, WEEKDAY_SHIFT
from jax import Array

Inputs = Mapping[str, Array]

VALUE_FIELDS = (
    "semantic_types", "column_ids", "numeric_values", "timestamp_values", "bool_values",
    "categorical_embed_ids", "text_embed_ids", "is_null", "is_target", "is_padding",
)  # fmt: skip
"""What stands in one cell, by the names of the dense layout; [N] here, timestamps [N,15]."""
COMPACT_FIELDS = ("cells", "cell_columns", "cell_values", "cell_times")
"""What they come from in a compact or flat batch."""
FLAT_FIELDS = (
    "row_ages", "row_tables", "parents", "context_cells", "context_rows", "context_targets",
)  # fmt: skip
"""Arrays of a flat batch with an axis of length 1 in front, which is for ranks."""


def as_flat(batch: Inputs) -> Inputs:
    """The inputs of the model from a batch of any layout; what is that already stays as it is.

    Returns: the arrays of VALUE_FIELDS [N], `row_ids` [N] int32 over the batch, `row_ages` and
        `row_tables` [Rn], `parents` [Rn,P] within the context, `context_cells`, `context_rows`
        [n+1], `context_targets` [n], -1 where there is none. Arrays by context or by batch stay,
        positions of masked cells are over the batch.

    Raises:
        ValueError: the batch is packed.
    """
    if "context_cells" in batch and "semantic_types" in batch:
        return batch
    if "context_cells" in batch and batch["context_cells"].shape[0] != 1:
        raise ValueError(
            f"the batch is of {batch['context_cells'].shape[0]} ranks: each lays out its own part"
        )
    if "segment_ids" in batch:
        raise ValueError(
            "a batch with several contexts in a sequence (packing=True) is not read by the model;"
            ' open the sampler with layout="flat", which has no padding between contexts'
        )
    return _of_flat(batch) if "context_cells" in batch else _of_sequences(batch)


def _of_flat(batch: Inputs) -> dict[str, Array]:
    values = _values(batch)
    flat = {name: array for name, array in batch.items() if name not in COMPACT_FIELDS}
    flat |= {name: array[0] for name, array in values.items()}
    flat |= {name: batch[name][0] for name in FLAT_FIELDS}
    flat["row_ids"] = rows_of_cells(batch["row_starts"], values["is_padding"] == 0)[0]
    return flat


def _of_sequences(batch: Inputs) -> dict[str, Array]:
    """Sequences [B,S] with rows [B,R] as contexts at strides of S and R."""
    flat = {name: array for name, array in batch.items() if name not in COMPACT_FIELDS}
    if "cells" in batch:
        values = _values(batch)
        row_ids = rows_of_cells(batch["row_starts"], values["is_padding"] == 0)
    else:
        values, row_ids = {name: batch[name] for name in VALUE_FIELDS}, batch["seq_row_ids"]
    parents = batch["parents"]
    (B, S), R = row_ids.shape, parents.shape[1]
    sequences = jnp.arange(B, dtype=jnp.int32)
    flat |= {name: jnp.reshape(x, (B * S, *x.shape[2:])) for name, x in values.items()}
    flat["row_ids"] = (row_ids.astype(jnp.int32) + R * sequences[:, None]).reshape(B * S)
    flat |= {name: jnp.reshape(batch[name], B * R) for name in ("row_ages", "row_tables")}
    flat["parents"] = parents.reshape(B * R, parents.shape[2])
    flat["context_cells"] = S * jnp.arange(B + 1, dtype=jnp.int32)
    flat["context_rows"] = R * jnp.arange(B + 1, dtype=jnp.int32)
    is_counted = sequences < batch["num_sequences"][0].astype(jnp.int32)
    target = jnp.where(is_counted, _targets(batch, values), -1)
    flat["context_targets"] = jnp.where(target >= 0, target + S * sequences, -1)
    for name in [name for name in batch if name.startswith("masked_") and name.endswith("indices")]:
        index = batch[name].astype(jnp.int32)
        flat[name] = jnp.where(index >= 0, index + S * sequences[:, None], -1)
    return flat


def _targets(batch: Inputs, values: Inputs) -> Array:
    """Where the target of each sequence stands in it; -1 where there is none. → [B] int32"""
    if "target_indices" in batch:  # beside masked cells, which look like targets
        return batch["target_indices"].astype(jnp.int32)
    is_target = (values["is_target"] > 0) & (values["is_padding"] == 0)  # [B,S]
    position = jnp.argmax(is_target, axis=1).astype(jnp.int32)
    return jnp.where(jnp.any(is_target, axis=1), position, -1)


def rows_of_cells(row_starts: Array, is_cell: Array) -> Array:
    """How many rows after the first have begun by each cell; 0 at padding. → [B,S] int32"""
    starts = row_starts[:, 1:-1].astype(jnp.int32)  # [B,R-1]
    batch, cells = is_cell.shape
    begins = jnp.zeros((batch, cells + 1), jnp.int32)
    begins = begins.at[jnp.arange(batch)[:, None], starts].add(1)  # those past the end: at S
    return jnp.where(is_cell, jnp.cumsum(begins, axis=1)[:, :cells], 0)


def _values(batch: Inputs) -> dict[str, Array]:
    """The arrays of VALUE_FIELDS from compact cells. [B,S] → [B,S]"""
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

    is_time = (stypes == SemanticType.TIMESTAMP) & (flags["is_null"] == 0)
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
