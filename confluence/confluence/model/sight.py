"""Which cells see which, as short lists for the fused attention: no array of pairs of cells.

The cells of a batch stand in an order in which those of a row, or of a column, are a run, and a
program of the fused attention takes a tile of them. Its cells are queries that go through the keys
that they see, or keys that go through the queries that see them. What they go through is a stream:

    runs        the cells of the tile's runs; those of one run see each other
    parents     behind them, for each row of the tile, the cells of the rows that its foreign keys
                name
    children    behind them the cells of the rows that name a row of the tile

Outbound goes through parents by query and through children by key, inbound the other way, column
through runs only. A row sees all of itself outbound, and inbound if it points at itself; else there
each cell sees itself. The id of a run is its first place; a cell that nobody sees is a run of its
own.

Edges are sorted once per batch, by the row that has them and by the row that they name. Cost: sorts
of N cells and of Rn·P edges, and O(N·P) numbers, P the most foreign keys of a row.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from confluence.model.cells import owners_of, shares_of_slots


class Parents(NamedTuple):
    """The edges of rows, those to other rows with cells; in the order of the rows."""

    first: Array  # [N] int32, first edge of each place's row, or of a later row if it has none
    end: Array  # [N] int32, the edge behind its last
    starts: Array  # [R·P+1] int32, where the cells of each edge begin in the stream of all
    places: Array  # [R·P] int32, first place of the row that an edge names
    ids: Array  # [R·P] int32, id of the row that has the edge
    edges: Array  # [R·P] int32, its number: row·(1+P) + slot; behind the last, that of none


class Children(NamedTuple):
    """The cells of the rows that name a row, in the order of the rows that are named."""

    first: Array  # [N] int32, first cell for each place's row, or for a later row if it has none
    end: Array  # [N] int32
    cells: Array  # [N·P] int32
    ids: Array  # [N·P] int32, id of the row that is named
    edges: Array  # [N·P] int32, as of `Parents`


class Links(NamedTuple):
    """What rows see besides themselves."""

    parents: Parents
    children: Children
    is_own_parent: Array  # [N] int32 by place, 1 if its row points at itself
    edges: Array  # [N] int32 by place, the edge of its row to itself, or the edge of none


class Sight(NamedTuple):
    """Who sees whom, shared by all layers."""

    order: Array  # [N] int32, cell at each place
    first: Array  # [N] int32, first place of the run of each place
    last: Array  # [N] int32
    links: Links | None  # None: along columns


class Counts(NamedTuple):
    """Keys of each cell, [N] float32; 1 of one that nobody sees."""

    outbound: Array
    inbound: Array


def read_rows(row_ids: Array, parents: Array, is_cell: Array) -> tuple[Sight, Counts]:
    """The streams of the rows of a batch.

    Args:
        row_ids: [N] int32, over the batch.
        parents: [R,P] int32, a parent's row over the batch, or R; P at least 1.
        is_cell: [N] bool, False at padding.
    """
    count, N = parents.shape[0], row_ids.shape[0]
    is_first, _ = shares_of_slots(parents, parents < count)
    named = jnp.where(is_first, parents, count)  # each once
    is_self = named == jnp.arange(count)[:, None]
    others = jnp.where(is_self, count, named)
    is_own_parent = jnp.pad(jnp.any(is_self, axis=1), (0, 1))
    row_of = jnp.where(is_cell, row_ids, count)  # [N]
    order = jnp.argsort(row_of, stable=True).astype(jnp.int32)
    cells = jnp.zeros((count + 1,), jnp.int32).at[row_of].add(1).at[count].set(0)  # of each row
    firsts = jnp.cumsum(cells) - cells  # [R+1] first place
    at, row = jnp.arange(N, dtype=jnp.int32), row_of[order]
    links = Links(
        _parents(others, firsts, cells, row),
        _children(others, order, firsts, cells, row),
        is_own_parent[row].astype(jnp.int32),
        row * (1 + parents.shape[1]),
    )
    is_seen = row < count
    first = jnp.where(is_seen, firsts[row], at)
    last = jnp.where(is_seen, firsts[row] + cells[row] - 1, at)
    of_parents = jnp.sum(cells[others], axis=1)
    of_children = jnp.zeros((count + 1,), jnp.int32).at[others].add(cells[:-1, None])[:-1]
    itself = jnp.where(is_own_parent[:-1], cells[:-1], 1)
    totals = (cells[:-1] + of_parents, itself + of_children)
    counts = (jnp.where(is_cell, x[row_ids], 1).astype(jnp.float32) for x in totals)
    return Sight(order, first, last, links), Counts(*counts)


def _before(counts: Array) -> Array:
    """Sums of those before each, and of all. [n] → [n+1] int32"""
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(counts, dtype=jnp.int32)])


def _parents(others: Array, firsts: Array, cells: Array, row: Array) -> Parents:
    """Args:
    others: [R,P], R for none. firsts, cells: [R+1], of rows. row: [N], of places.
    """
    count, slots = others.shape
    size = jnp.where(cells[:-1, None] > 0, cells[others], 0)  # [R,P] cells of each edge's parent
    is_kept = (size > 0).reshape(-1)
    place = jnp.where(is_kept, jnp.cumsum(is_kept) - 1, count * slots)
    kept = jnp.full((count * slots,), count * slots, jnp.int32)
    kept = kept.at[place].set(jnp.arange(count * slots, dtype=jnp.int32), mode="drop")
    sizes = jnp.append(size.reshape(-1), 0)[kept]
    of_row = jnp.append(_before(jnp.sum(size > 0, axis=1)), jnp.sum(is_kept)).astype(jnp.int32)
    owner, slot = jnp.divmod(kept, slots)
    return Parents(
        first=of_row[row],
        end=of_row[row + 1],
        starts=_before(sizes),
        places=firsts[jnp.append(others.reshape(-1), count)[kept]],
        ids=firsts[owner],
        edges=jnp.minimum(owner * (1 + slots) + 1 + slot, count * (1 + slots)),
    )


def _children(others: Array, order: Array, firsts: Array, cells: Array, row: Array) -> Children:
    """Args as of `_parents`. order: [N]."""
    (count, slots), N = others.shape, order.shape[0]
    named = others.reshape(-1)  # [R·P]
    by_named = jnp.argsort(named, stable=True).astype(jnp.int32)
    named = named[by_named]
    owner, slot = jnp.divmod(by_named, slots)
    size = jnp.where(cells[named] > 0, cells[owner], 0)  # an empty row has the id of another
    starts = _before(size)
    at = jnp.arange(N * slots, dtype=jnp.int32)
    edge = jnp.minimum(owners_of(starts, N * slots), count * slots - 1)  # of each cell
    cell = order[jnp.minimum(firsts[owner[edge]] + at - starts[edge], N - 1)]
    of_row = jnp.zeros((count + 1,), jnp.int32).at[named].add(size)
    of_row = jnp.append(_before(of_row[:-1]), starts[-1])  # [R+2]
    return Children(
        first=of_row[row],
        end=of_row[row + 1],
        cells=cell,
        ids=firsts[named[edge]],
        edges=owner[edge] * (1 + slots) + 1 + slot[edge],
    )


def edge_shares(parents: Array, kinds: Array, count: int) -> Array:
    """The share of each kind of foreign key in each edge; several to one parent have equal shares.

    Args:
        parents, kinds: [R,P] int32, over the batch.

    Returns: [R·(1+P)+1,count] float32, slot 0 of a row is the edge to itself; the last is of none.
    """
    rows, slots = parents.shape
    is_first, shares = shares_of_slots(parents, parents < rows)
    is_kind = (kinds[..., None] == jnp.arange(count)).astype(jnp.float32)  # [R,P,T]
    of_edges = jnp.einsum("rep,rpt->ret", shares, is_kind, precision="highest")
    is_self = is_first & (parents == jnp.arange(rows)[:, None])
    itself = jnp.sum(jnp.where(is_self[..., None], of_edges, 0.0), axis=1, keepdims=True)
    shares = jnp.concatenate([itself, of_edges], axis=1).reshape(rows * (1 + slots), count)
    return jnp.pad(shares, ((0, 1), (0, 0)))


class ColumnOrder(NamedTuple):
    """Cells sorted by context and column, N' places of them and of padding."""

    cells: Array  # [N'] int32, cell at each place; -1 in the padding behind
    places: Array  # [N] int32, place of each cell
    first: Array  # [N'] int32, first place of the column; its own of what nobody sees
    last: Array  # [N'] int32


def sort_by_column(contexts: Array, column_ids: Array, is_cell: Array, places: int) -> ColumnOrder:
    """Sort cells.

    Args:
        contexts: [N] int32, of each cell; column_ids: [N] int32.
        is_cell: [N] bool, False at padding.
        places: N', at least N.
    """
    cells = column_ids.shape[0]
    padding = places - cells
    at = jnp.arange(places, dtype=jnp.int32)
    is_padding = (~is_cell).astype(jnp.int32)
    *sorted_keys, order = jax.lax.sort(
        (is_padding, contexts, column_ids, at[:cells]), num_keys=3, is_stable=True
    )
    is_new = sum(jnp.diff(key) != 0 for key in sorted_keys) > 0  # [N-1]
    is_new = jnp.pad(is_new, (1, padding), constant_values=True)
    is_first = is_new | jnp.pad(sorted_keys[0] > 0, (0, padding), constant_values=True)
    is_last = jnp.pad(is_first[1:], (0, 1), constant_values=True)
    return ColumnOrder(
        cells=jnp.pad(order, (0, padding), constant_values=-1),
        places=jnp.zeros_like(order).at[order].set(at[:cells]),
        first=jax.lax.cummax(jnp.where(is_first, at, 0)),
        last=jax.lax.cummin(jnp.where(is_last, at, places), reverse=True),
    )


def read_columns(contexts: Array, column_ids: Array, is_cell: Array) -> tuple[Sight, Array]:
    """The streams of the columns of a batch, of arguments of `sort_by_column`, and [N] float32, the
    keys of each cell."""
    order = sort_by_column(contexts, column_ids, is_cell, column_ids.shape[0])
    count = (order.last - order.first + 1)[order.places]
    return Sight(order.cells, order.first, order.last, None), count.astype(jnp.float32)
