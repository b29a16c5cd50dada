"""The integers of a batch: what each cell is, and where the contexts and their rows are.

All contexts of a batch stand side by side, in N cells and Rn rows. Between two contexts, or inside
one, there may be padding: `is_cell` alone says which positions are cells.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from confluence.model.expand import Inputs


class Contexts(NamedTuple):
    """Where the n contexts of a batch are, and what is theirs."""

    cell_starts: Array  # [n+1] int32, first cell of each; the last ends there
    row_starts: Array  # [n+1] int32
    of_cell: Array  # [N] int32, n behind the last context
    of_row: Array  # [Rn] int32, n behind the last context
    targets: Array  # [n] int32, cell of the target; N where there is none


class Cells(NamedTuple):
    """What each cell is; padding looks like row 0, column 0, type 0 of its context."""

    row_ids: Array  # [N] int32, over the batch
    column_ids: Array  # [N] int32
    stypes: Array  # [N] int32
    is_cell: Array  # [N] bool, False at padding
    is_target: Array  # [N] bool, masked cells too
    parents: Array  # [Rn,P] int32, rows within their context; none from its number of rows on
    kinds: Array  # [Rn,P] int32, 1 + the number of the foreign key; 0 of a task's row
    contexts: Contexts

    def rows_in_context(self) -> Array:
        """The row of each cell, counted from its context's first; 0 at padding. → [N] int32"""
        c = self.contexts
        return jnp.where(self.is_cell, self.row_ids - c.row_starts[c.of_cell], 0)

    def parents_in_batch(self) -> Array:
        """The parents of each row, counted over the batch, Rn where there is none. → [Rn,P]"""
        c, count = self.contexts, self.parents.shape[0]
        first, end = (starts[c.of_row][:, None] for starts in (c.row_starts, c.row_starts[1:]))
        rows = self.parents + first
        return jnp.where((self.parents >= 0) & (rows < end), rows, count)


def read_cells(flat: Inputs, key_starts: Array) -> Cells:
    """Cast the integers of a batch of `as_flat` to int32 and blank its padding.

    Args:
        key_starts: [tables+1] int32, number of the first foreign key of each table of the store.
    """
    is_cell = flat["is_padding"] == 0
    is_target = is_cell & (flat["is_target"] > 0)

    def ids(name: str) -> Array:
        return jnp.where(is_cell, flat[name].astype(jnp.int32), 0)

    return Cells(
        row_ids=ids("row_ids"),
        column_ids=ids("column_ids"),
        stypes=ids("semantic_types"),
        is_cell=is_cell,
        is_target=is_target,
        parents=flat["parents"].astype(jnp.int32),
        kinds=_kinds(flat, key_starts),
        contexts=read_contexts(flat),
    )


def _kinds(flat: Inputs, key_starts: Array) -> Array:
    """The foreign key in each slot of each row. → [Rn,P] int32"""
    tables = flat["row_tables"].astype(jnp.int32)  # [Rn]
    is_table = tables < key_starts.shape[0] - 1
    at = jnp.where(is_table, tables, 0)
    keys = key_starts[at][:, None] + jnp.arange(flat["parents"].shape[1], dtype=jnp.int32)
    is_key = is_table[:, None] & (keys < key_starts[at + 1][:, None])
    return jnp.where(is_key, 1 + keys, 0)


def shares_of_slots(parents: Array, is_parent: Array) -> tuple[Array, Array]:
    """Which slots of rows are the first that have their parent, and for these what each slot's key
    has of the edge: several keys to one parent have equal shares.

    Args:
        parents, is_parent: [R,P] int32 and bool.

    Returns: [R,P] bool, [R,P,P] float32: of the edge of a first slot, by slot; else 0.
    """
    is_same = (parents[:, :, None] == parents[:, None, :]) & is_parent[:, :, None]
    slots = parents.shape[1]
    is_again = jnp.any(is_same & jnp.tri(slots, k=-1, dtype=bool), axis=2)
    is_first = is_parent & ~is_again
    count = jnp.maximum(jnp.sum(is_same, axis=2, keepdims=True), 1)
    return is_first, jnp.where(is_first[:, :, None] & is_same, 1.0 / count, 0.0)


def read_contexts(flat: Inputs) -> Contexts:
    """Where the contexts of a batch of `as_flat` are."""
    cells, rows = flat["is_padding"].shape[0], flat["parents"].shape[0]
    cell_starts = flat["context_cells"].astype(jnp.int32)
    row_starts = flat["context_rows"].astype(jnp.int32)
    targets = flat["context_targets"].astype(jnp.int32)
    return Contexts(
        cell_starts=cell_starts,
        row_starts=row_starts,
        of_cell=owners_of(cell_starts, cells),
        of_row=owners_of(row_starts, rows),
        targets=jnp.where(targets >= 0, targets, cells),
    )


def owners_of(starts: Array, count: int) -> Array:
    """The context that each of `count` cells or rows is in, n behind the last. [n+1] → [count]"""
    ends = jnp.zeros((count + 1,), jnp.int32).at[starts[1:]].add(1)
    return jnp.cumsum(ends)[:count]


def at_targets(x: Array, contexts: Contexts) -> Array:
    """What x has at the target of each context, 0 where there is none. [N,...] → [n,...]"""
    return jnp.take(x, contexts.targets, axis=0, mode="fill", fill_value=0)
