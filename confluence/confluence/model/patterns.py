"""The attentions of a batch, by the path that computes them; the numbers are the same.

    compiled   the C library, context by context; on a processor
    rows       row_attention.py, over all contexts at once; anywhere
    fused      fused_attention.py, kernels that skip pairs that cannot meet; on a GPU
    dense      attention.py under masks, each context in a window of its own; the definition, for
               tests and small batches

No cell looks at one of another context, and a target always sees itself. A context without cells
has no NaN in its outputs and gradients. A NaN in the values of one context may come to others, by
rows and fused, whose products take masked scores of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from confluence.config import Config, ConfigError
from confluence.model import (
    attention,
    compiled_attention,
    fused_attention,
    row_attention,
    sight,
)
from confluence.model.attention import EdgeVectors, KeyVectors
from confluence.model.cells import Cells, Contexts, at_targets, shares_of_slots
from confluence.model.gather import arrange
from confluence.model.row_attention import RowShape

Mix = Callable[..., Array]
"""An attention under one pattern: query [Q,D], key and value [N,D], τ [H], and along foreign keys
their `KeyVectors` → [Q,D]."""


class Patterns(NamedTuple):
    """The attentions of a batch."""

    outbound: Mix  # Q = N
    inbound: Mix
    column: Mix
    target_column: Mix  # Q = n, the targets
    is_whole: Array | None  # [n] bool, False where a context is cut; None: none can be


def attention_path(cfg: Config) -> str:
    """Which attention runs: as told, else "compiled" on a processor, and "rows" where that cannot
    run."""
    can_compile = jax.default_backend() == "cpu" and compiled_attention.is_available()
    if cfg.attention == "compiled" and not can_compile:
        raise ConfigError("attention 'compiled' needs a CPU and an installed package; try 'auto'")
    if cfg.attention != "auto":
        return cfg.attention
    return "compiled" if can_compile else "rows"


def make_patterns(cells: Cells, cfg: Config, row_shape: RowShape | None, kinds: int) -> Patterns:
    """The attentions of a batch, by the path of these settings.

    Args:
        kinds: of foreign keys, those of `KeyVectors`.
    """
    path = attention_path(cfg)
    if path == "compiled":
        return compiled_patterns(cells)
    if path == "dense":
        return dense_patterns(cells, cfg)
    if path == "fused":
        return fused_patterns(cells, kinds)
    if row_shape is None:
        raise ValueError("attention by rows needs row_shape, see data.read_row_shape")
    return row_patterns(cells, row_shape)


def compiled_patterns(cells: Cells) -> Patterns:
    """In C, context by context."""
    c = cells.contexts
    layout = compiled_attention.Layout(
        cells.rows_in_context(), cells.column_ids, cells.parents, cells.kinds, cells.is_cell,
        c.cell_starts, c.row_starts,
    )  # fmt: skip
    asked = layout._replace(is_cell=_askers(cells) < c.targets.shape[0])

    def target_column(query: Array, key: Array, value: Array, tau: Array) -> Array:
        """Of all columns only those of the targets: the library leaves the other cells alone."""
        q = jnp.zeros_like(key).at[c.targets].set(query, mode="drop", unique_indices=True)
        out = compiled_attention.attend(q, key, value, tau, layout=asked, pattern="column")
        return at_targets(out, c)

    return Patterns(
        outbound=partial(compiled_attention.attend, layout=layout, pattern="outbound"),
        inbound=partial(compiled_attention.attend, layout=layout, pattern="inbound"),
        column=partial(compiled_attention.attend, layout=layout, pattern="column"),
        target_column=target_column,
        is_whole=None,
    )


def row_patterns(cells: Cells, shape: RowShape) -> Patterns:
    """Between the rows and along the columns that can see each other."""
    c = cells.contexts
    slots, fits = row_attention.make_slots(
        cells.row_ids, cells.parents_in_batch(), cells.kinds, cells.is_cell, shape.width
    )
    columns = row_attention.make_columns(c.of_cell, cells.column_ids, cells.is_cell)
    is_whole = jnp.ones(c.targets.shape, bool).at[c.of_row].min(fits, mode="drop")
    asked = row_attention.make_target_columns(_askers(cells), c.targets.shape[0])
    return Patterns(
        outbound=partial(row_attention.outbound, slots=slots),
        inbound=partial(row_attention.inbound, slots=slots),
        column=partial(row_attention.column, columns=columns),
        target_column=partial(row_attention.target_column, columns=asked),
        is_whole=is_whole,
    )


def fused_patterns(cells: Cells, kinds: int) -> Patterns:
    """As kernels for a GPU."""
    if cells.parents.shape[1] == 0:  # a kernel reads no empty array
        empty = jnp.pad(cells.parents, ((0, 0), (0, 1)), constant_values=-1)
        cells = cells._replace(parents=empty, kinds=jnp.zeros_like(empty))
    c, parents = cells.contexts, cells.parents_in_batch()
    rows, counts = sight.read_rows(cells.row_ids, parents, cells.is_cell)
    columns, count = sight.read_columns(c.of_cell, cells.column_ids, cells.is_cell)
    shares = sight.edge_shares(parents, cells.kinds, fused_attention.kinds_padded(kinds))
    asked = row_attention.make_target_columns(_askers(cells), c.targets.shape[0])

    def along(pattern: str, seen: sight.Sight, key_count: Array) -> Mix:
        plan = fused_attention.Plan(pattern, parents.shape[1])

        def mix(
            query: Array, key: Array, value: Array, tau: Array, keys: KeyVectors | None = None
        ) -> Array:
            scale = attention.scale_of(key_count, tau)
            return fused_attention.attend(query, key, value, scale, seen, plan, shares, keys)

        return mix

    return Patterns(
        outbound=along("outbound", rows, counts.outbound),
        inbound=along("inbound", rows, counts.inbound),
        column=along("column", columns, count),
        target_column=partial(row_attention.target_column, columns=asked),
        is_whole=None,
    )


def _askers(cells: Cells) -> Array:
    """The context whose target looks at each cell along its column, n where none does. → [N] int32

    It looks at no cell of another context, so each cell has one asker at most; a target has its
    own.
    """
    c = cells.contexts
    columns = at_targets(cells.column_ids + 1, c) - 1  # [n], -1 where there is no target
    wanted = jnp.append(columns, -1)[c.of_cell]
    return jnp.where(cells.is_cell & (cells.column_ids == wanted), c.of_cell, c.targets.shape[0])


# ------------------------------------------------------------------------------------- in windows


class Windows(NamedTuple):
    """A window of S cells for each context, from its first on."""

    cells: Array  # [n·S] int32, cell at each place; -1 behind the context
    places: Array  # [N] int32, place of each cell; -1 where it is of no context, or past a window
    contexts: int  # n

    def spread(self, x: Array) -> Array:
        """What cells have, 0 where there is none. [N,D] → [n,S,D]"""
        out = arrange(x, self.cells, self.places)
        return out.reshape(self.contexts, -1, x.shape[1])

    def gather(self, x: Array) -> Array:
        """The inverse: [n,S,D] → [N,D], 0 where a cell is in no window."""
        return arrange(x.reshape(-1, x.shape[2]), self.places, self.cells)

    def spread_ids(self, ids: Array) -> Array:
        """[N] int or bool → [n,S]"""
        taken = jnp.where(self.cells >= 0, ids[jnp.maximum(self.cells, 0)], 0)
        return taken.astype(ids.dtype).reshape(self.contexts, -1)


def make_windows(c: Contexts, width: int) -> Windows:
    """Windows of `width` cells."""
    n = c.targets.shape[0]
    offset = jnp.arange(width)
    cells = jnp.where(
        offset < jnp.diff(c.cell_starts)[:, None], c.cell_starts[:-1, None] + offset, -1
    )
    within = jnp.arange(c.of_cell.shape[0]) - c.cell_starts[c.of_cell]
    is_within = (c.of_cell < n) & (within < width)
    places = jnp.where(is_within, c.of_cell * width + within, -1)
    return Windows(cells.reshape(-1).astype(jnp.int32), places.astype(jnp.int32), n)


def dense_patterns(cells: Cells, cfg: Config) -> Patterns:
    """Under masks over all pairs of cells of a context: the definition."""
    c, S, R = cells.contexts, cfg.sequence_length, cfg.max_rows
    n = c.targets.shape[0]
    windows = make_windows(c, S)
    rows = jnp.arange(R)
    is_row = rows < jnp.diff(c.row_starts)[:, None]  # [n,R]
    row_at = jnp.minimum(c.row_starts[:-1, None] + rows, cells.parents.shape[0] - 1)
    parents = jnp.where(is_row[..., None], cells.parents[row_at], R)  # [n,R,P]
    row_ids = windows.spread_ids(cells.rows_in_context())
    masks = attention.make_masks(
        row_ids,
        windows.spread_ids(cells.column_ids),
        attention.adjacency_of(parents),
        windows.spread_ids(cells.is_cell),
    )
    has_target = c.targets < cells.is_cell.shape[0]
    target = jnp.where(has_target, at_targets(windows.places, c) - S * jnp.arange(n), 0)
    block = attention.block_size(n)

    edge_vectors = _edges_of(parents, cells.kinds[row_at], row_ids, windows, cells)

    def under(mask: Array, *, is_inbound: bool = False) -> Mix:
        def mix(
            query: Array, key: Array, value: Array, tau: Array, keys: KeyVectors | None = None
        ) -> Array:
            q, k, v = (windows.spread(x) for x in (query, key, value))
            edges = None
            if keys is not None:
                edges = attention.Edges(row_ids, edge_vectors(keys), is_inbound)
            out = attention.attend(q, k, v, mask, tau, block=block, edges=edges)
            return windows.gather(out)

        return mix

    def target_column(query: Array, key: Array, value: Array, tau: Array) -> Array:
        mask = masks.column[jnp.arange(n), target][:, None]  # [n,1,S], itself at least
        k, v = windows.spread(key), windows.spread(value)
        out = attention.attend(query[:, None], k, v, mask, tau, block=n)[:, 0]
        return jnp.where(has_target[:, None], out, 0)

    return Patterns(
        outbound=under(masks.outbound),
        inbound=under(masks.inbound, is_inbound=True),
        column=under(masks.column),
        target_column=target_column,
        is_whole=(jnp.diff(c.cell_starts) <= S) & (jnp.diff(c.row_starts) <= R),
    )


def _edges_of(
    parents: Array, kinds: Array, row_ids: Array, windows: Windows, cells: Cells
) -> Callable[[KeyVectors], EdgeVectors]:
    """The vectors that the foreign keys of the row of each cell in a window add.

    Args:
        parents, kinds: [n,R,P]. row_ids: [n,S].
    """
    n, rows, slots = parents.shape
    flat = parents.reshape(n * rows, slots)
    is_first, shares = shares_of_slots(flat, (flat >= 0) & (flat < rows))
    named = jnp.where(is_first, flat, rows).reshape(n, rows, slots)
    shares, at = shares.reshape(n, rows, slots, slots), jnp.arange(n)[:, None]
    is_cell = windows.spread_ids(cells.is_cell)

    def vectors(keys: KeyVectors) -> EdgeVectors:
        key, value = (jnp.einsum("nrep,nrpd->nred", shares, x[kinds])[at, row_ids] for x in keys)
        return EdgeVectors(jnp.where(is_cell[..., None], named[at, row_ids], rows), key, value)

    return vectors
