"""Row-structured attention: the same results as the dense path, from the pairs that can matter.

Of all pairs of cells in a context a few percent are allowed. Two arrangements of the cells bring
those together, and each attention works on one of them:

    slots     [B,R,A]: the cells of each row side by side, A = most cells of a row. Outbound takes
              the keys of a row's parents to the row; inbound takes the queries of the parents to
              the row and adds what comes out, numerators and denominators, per parent.
    columns   [B,S]: cells sorted by column and cut into blocks. As a column is a run, a block meets
              blocks up to `band` away, and a loop over that distance is all there is.

Logits are within ±40 (attention.py), so no maximum is taken and partial sums simply add. Cells that
are hidden or padding have no slot, stand alone in their column and see themselves only. Everything
has a static shape; only the number of turns of the loop depends on the data.

Cost per sequence: O(R·A²·(1+P)·D) outbound and inbound, P = most foreign keys of a row, and
O(S·block·(2·band+1)·D) for columns, where dense attention takes O(S²·D) each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from confluence.model.attention import LOGIT_LIMIT, by_block, unit

COLUMN_BLOCK = 32  # cells of a block of the column attention


class RowShape(NamedTuple):
    """Bounds that hold for every batch of a run; the slots are cut to them."""

    width: int  # A, most cells of a row
    parents: int  # P, most parents of a row


class Slots(NamedTuple):
    """Where the cells of rows are, and which rows look at which; shared by all layers."""

    cells: Array  # [B,R·A] int32, cell of each slot; -1 where empty
    places: Array  # [B,S] int32, slot of each cell; -1 where the cell is not visible
    is_filled: Array  # [B,R,A] bool
    parents: Array  # [B,R,P] int32, R where there is none
    others: Array  # [B,R,P] int32, the parents that are not the row itself
    is_own_parent: Array  # [B,R] bool, a row that points at itself
    outbound_count: Array  # [B,S] float32, keys of each cell
    inbound_count: Array  # [B,S] float32


class Columns(NamedTuple):
    """Cells sorted by column, padded to whole blocks; shared by all layers."""

    cells: Array  # [B,S'] int32, cell at each place; -1 in the padding of blocks
    places: Array  # [B,S] int32, place of each cell
    ids: Array  # [B,S'] int32, column at each place; unlike any other where not visible
    key_count: Array  # [B,S] float32, keys of each cell
    band: Array  # [B] int32, blocks between the two ends of what a block may look at


class Structure(NamedTuple):
    """What the row path knows of a batch."""

    slots: Slots
    columns: Columns


# ----------------------------------------------------------------------------------- arrangements


def make_structure(
    row_ids: Array, column_ids: Array, parents: Array, is_cell: Array, width: int,
    fits: Array | bool = True,
) -> Structure:  # fmt: skip
    """Both arrangements of a batch.

    Args:
        row_ids, column_ids: [B,S] int32.
        parents: [B,R,P] int, a parent's row or anything from R on; each parent once.
        is_cell: [B,S] bool, False at padding and hidden cells.
        width: A; no row has more visible cells, or its whole context becomes NaN.
        fits: [B] bool, False where `parents` lacks some, with the same consequence.
    """
    slots = _make_slots(row_ids, parents, is_cell, width, fits)
    return Structure(slots, _make_columns(column_ids, is_cell))


def parents_of(adjacency: Array, limit: int) -> tuple[Array, Array]:
    """Parents listed from an adjacency, R where there is none; and whether all were listed.

    [B,R,R] → [B,R,limit] int32, [B] bool
    """
    rows = adjacency.shape[-1]
    is_parent = (adjacency > 0).astype(jnp.int32)
    points, parents = jax.lax.top_k(is_parent, min(limit, rows))
    fits = jnp.max(jnp.sum(is_parent, axis=2), axis=1) <= limit
    return jnp.where(points > 0, parents, rows), fits


def _make_slots(
    row_ids: Array, parents: Array, is_cell: Array, width: int, all_parents: Array | bool
) -> Slots:
    batch, cells = row_ids.shape
    rows = parents.shape[1]
    b = jnp.arange(batch)[:, None]
    keys = jnp.where(is_cell, row_ids, rows)
    order = jnp.argsort(keys, axis=1, stable=True).astype(jnp.int32)  # [B,S] cells by row
    counts = jnp.zeros((batch, rows), jnp.int32).at[b, keys].add(1, mode="drop")  # [B,R]
    starts = jnp.cumsum(counts, axis=1) - counts  # [B,R] first place in `order`
    place = jnp.zeros_like(order).at[b, order].set(jnp.arange(cells, dtype=jnp.int32))
    slot = place - starts[b, row_ids] + row_ids * width
    a = jnp.arange(width)
    is_filled = a < counts[:, :, None]  # [B,R,A]
    at = jnp.minimum(starts[:, :, None] + a, cells - 1).reshape(batch, rows * width)
    parents = jnp.minimum(parents.astype(jnp.int32), rows)
    is_self = parents == jnp.arange(rows)[None, :, None]  # [B,R,P]
    others = jnp.where(is_self, rows, parents)
    is_own_parent = jnp.any(is_self, axis=2)
    counts_or_none = jnp.pad(counts, ((0, 0), (0, 1)))  # row R has no cells
    of_parents = jnp.sum(counts_or_none[b[..., None], others], axis=2)  # [B,R]
    of_children = (
        jnp.zeros_like(counts).at[b[..., None], parents].add(counts[:, :, None], mode="drop")
    )
    # A row that does not fit would lose cells: its context is made NaN, which no run survives.
    is_whole = jnp.all(counts <= width, axis=1) & all_parents
    fits = jnp.where(is_whole, 0.0, jnp.nan)[:, None]  # [B,1]
    outbound = counts + of_parents + fits
    inbound = of_children + jnp.where(is_own_parent, 0, 1) + fits
    return Slots(
        cells=jnp.where(is_filled.reshape(at.shape), order[b, at], -1),
        places=jnp.where(is_cell, slot, -1),
        is_filled=is_filled,
        parents=parents,
        others=others,
        is_own_parent=is_own_parent,
        outbound_count=outbound[b, row_ids],
        inbound_count=inbound[b, row_ids],
    )


def _make_columns(column_ids: Array, is_cell: Array) -> Columns:
    batch, cells = column_ids.shape
    block = min(COLUMN_BLOCK, cells)
    padding = -cells % block
    b = jnp.arange(batch)[:, None]
    at = jnp.arange(cells + padding, dtype=jnp.int32)
    keys = jnp.where(is_cell, column_ids, jnp.int32(2**31 - 1))
    order = jnp.argsort(keys, axis=1, stable=True).astype(jnp.int32)
    place = jnp.zeros_like(order).at[b, order].set(at[:cells])
    ids = jnp.where(is_cell[b, order], column_ids[b, order], -1 - at[:cells])
    ids = jnp.pad(ids, ((0, 0), (0, padding)))
    ids = jnp.where(at < cells, ids, -1 - at)  # [B,S']
    is_first = jnp.pad(ids[:, 1:] != ids[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    is_last = jnp.pad(ids[:, 1:] != ids[:, :-1], ((0, 0), (0, 1)), constant_values=True)
    first = jax.lax.cummax(jnp.where(is_first, at, 0), axis=1)  # [B,S'] of the column
    last = jax.lax.cummin(jnp.where(is_last, at, cells + padding), axis=1, reverse=True)
    reach = jnp.maximum(at // block - first // block, last // block - at // block)
    return Columns(
        cells=jnp.pad(order, ((0, 0), (0, padding)), constant_values=-1),
        places=place,
        ids=ids,
        key_count=(last - first + 1)[b, place].astype(jnp.float32),
        band=jnp.max(reach, axis=1),
    )


@jax.custom_vjp
def arrange(x: Array, there: Array, back: Array) -> Array:
    """Cells in another order, 0 where `there` is -1. [B,M,D], [B,L], [B,M] → [B,L,D].

    Each element goes to one place at most, `back`, so the gradient is a gather too, where autodiff
    would scatter.
    """
    return _take(x, there)


def _take(x: Array, index: Array) -> Array:
    taken = jnp.take_along_axis(x, jnp.maximum(index, 0)[..., None], axis=1)
    return jnp.where(index[..., None] >= 0, taken, 0)


arrange.defvjp(
    lambda x, there, back: (_take(x, there), back),
    lambda back, d_out: (_take(d_out, back), None, None),
)


# --------------------------------------------------------------------------------- the attentions


def outbound(
    query: Array, key: Array, value: Array, tau: Array, *, slots: Slots, block: int
) -> Array:
    """Own row and parents. [B,S,D] each, [H] → [B,S,D] in the type of `value`."""
    return _attend_in_slots(
        _outbound_block, query, key, value, tau, slots, slots.outbound_count, block
    )


def inbound(
    query: Array, key: Array, value: Array, tau: Array, *, slots: Slots, block: int
) -> Array:
    """The rows that point at the cell's row, and the cell. [B,S,D] each, [H] → [B,S,D]"""
    return _attend_in_slots(
        _inbound_block, query, key, value, tau, slots, slots.inbound_count, block
    )


def unit_heads(x: Array, heads: int) -> Array:
    """x / max(‖x‖, 1e-6) within each head, in float32. [B,S,D] → [B,S,H,K]"""
    batch, cells, width = x.shape
    return unit(x.reshape(batch, cells, heads, width // heads))


def scaled_query(query: Array, count: Array, tau: Array) -> Array:
    """Queries such that their product with a unit key is the logit. [B,S,D] → [B,S,D] float32"""
    scale = jnp.clip(tau * jnp.log1p(count)[..., None], -LOGIT_LIMIT, LOGIT_LIMIT)  # [B,S,H]
    return (unit_heads(query, tau.shape[0]) * scale[..., None]).reshape(query.shape)


def _attend_in_slots(
    function: Callable[[tuple[Array, ...]], Array], query: Array, key: Array, value: Array,
    tau: Array, s: Slots, count: Array, block: int,
) -> Array:  # fmt: skip
    """Cells to slots, an attention there, `block` sequences at a time, and back."""
    batch, _, width = query.shape
    rows, slots = s.is_filled.shape[1:]
    heads = tau.shape[0]

    def to_slots(x: Array) -> Array:
        x = arrange(x, s.cells, s.places).reshape(batch, rows, slots, heads, width // heads)
        return x.transpose(0, 1, 3, 2, 4)  # [B,R,H,A,K]

    q = to_slots(scaled_query(query, count, tau))
    k = to_slots(unit_heads(key, heads).reshape(key.shape))
    v = to_slots(value.astype(jnp.float32))
    structure = (s.is_filled, s.parents, s.others, s.is_own_parent)
    out: Array = by_block(jax.checkpoint(function), block, (q, k, v, *structure))  # [B,R,H,A,K]
    out = out.transpose(0, 1, 3, 2, 4).reshape(batch, rows * slots, width)
    out = arrange(out, s.places, s.cells).astype(value.dtype)
    return jnp.where(s.places[..., None] >= 0, out, value)  # a cell without a slot sees itself


def _exp_scores(logits: Array, is_key: Array) -> Array:
    return jnp.where(is_key, jnp.exp(logits), 0.0)


def _rows_at(x: Array, rows: Array) -> Array:
    """Rows of x by index; those past the end are never used. [b,R,...], [b,R,P] → [b,R,P,...]"""
    at = jnp.minimum(rows, x.shape[1] - 1)
    return x[jnp.arange(x.shape[0])[:, None, None], at]


def _outbound_block(args: tuple[Array, ...]) -> Array:
    """Keys of the parents come to the row. [b,R,H,A,K] each → [b,R,H,A,K]"""
    q, k, v, is_filled, _, others, _ = args
    own = _exp_scores(jnp.einsum("brhak,brhck->brhac", q, k), is_filled[:, :, None, None])
    total = jnp.sum(own, axis=-1)  # [b,R,H,A]
    out = jnp.einsum("brhac,brhck->brhak", own, v)
    for p in range(others.shape[2]):  # P is small, and a product for each parent needs no transpose
        parent = others[:, :, p : p + 1]
        k_p, v_p, filled = (_rows_at(x, parent)[:, :, 0] for x in (k, v, is_filled))
        is_key = (filled & (parent < k.shape[1]))[:, :, None, None]  # [b,R,1,1,A]
        scores = _exp_scores(jnp.einsum("brhak,brhck->brhac", q, k_p), is_key)
        total += jnp.sum(scores, axis=-1)
        out += jnp.einsum("brhac,brhck->brhak", scores, v_p)
    return out / jnp.maximum(total, 1e-30)[..., None]


def _inbound_block(args: tuple[Array, ...]) -> Array:
    """Queries of the parents come to the row, sums go back. [b,R,H,A,K] each → [b,R,H,A,K]"""
    q, k, v, is_filled, parents, _, is_own_parent = args
    b = jnp.arange(q.shape[0])[:, None]
    is_key = is_filled[:, :, None, None]  # [b,R,1,1,A]
    itself = jnp.where(
        is_own_parent[:, :, None, None], 0.0, jnp.exp(jnp.sum(q * k, axis=-1))
    )  # [b,R,H,A]
    sums = jnp.concatenate([itself[..., None] * v, itself[..., None]], axis=-1)  # [b,R,H,A,K+1]
    for p in range(parents.shape[2]):
        q_p = _rows_at(q, parents[:, :, p : p + 1])[:, :, 0]
        scores = _exp_scores(jnp.einsum("brhak,brhck->brhac", q_p, k), is_key)
        out = jnp.einsum("brhac,brhck->brhak", scores, v)
        parts = jnp.concatenate([out, jnp.sum(scores, axis=-1, keepdims=True)], axis=-1)
        sums = sums.at[b, parents[:, :, p]].add(parts, mode="drop")
    return sums[..., :-1] / jnp.maximum(sums[..., -1:], 1e-30)


def column(
    query: Array, key: Array, value: Array, tau: Array, *, columns: Columns, block: int
) -> Array:
    """The cells of the cell's column. [B,S,D] each, [H] → [B,S,D] in the type of `value`."""
    c = columns
    batch, cells, width = query.shape
    heads = tau.shape[0]
    size = min(COLUMN_BLOCK, cells)

    def by_column(x: Array) -> Array:
        x = arrange(x, c.cells, c.places)  # [B,S',D]
        x = x.reshape(batch, -1, size, heads, width // heads)
        return x.transpose(0, 1, 3, 4, 2)  # [B,n,H,K,size]

    q = by_column(scaled_query(query, c.key_count, tau))
    k = by_column(unit_heads(key, heads).reshape(key.shape))
    v = by_column(value.astype(jnp.float32))
    ids = c.ids.reshape(batch, -1, size)
    out = by_block(lambda args: banded_softmax(*args), block, (q, k, v, ids, c.band))
    out = out.transpose(0, 1, 4, 2, 3).reshape(batch, -1, width)  # [B,S',D]
    return arrange(out, c.places, c.cells).astype(value.dtype)


def target_column_mask(column_ids: Array, is_cell: Array, target: Array) -> Array:
    """Which cells each sequence's target may look at along its column. [B] → [B,1,S] bool"""
    at = target[:, None]
    same = column_ids == jnp.take_along_axis(column_ids, at, axis=1)
    is_target = jnp.arange(is_cell.shape[1]) == at
    both = is_cell & jnp.take_along_axis(is_cell, at, axis=1)
    return ((same & both) | is_target)[:, None]


@jax.custom_vjp
def banded_softmax(q: Array, k: Array, v: Array, ids: Array, band: Array) -> Array:
    """softmax(q·k within equal ids)·v, where equal ids are at most `band` blocks apart.

    [b,n,H,K,t] float32 each, [b,n,t] int32, [b] int32 → [b,n,H,K,t]
    """
    return _banded_forward(q, k, v, ids, band)[0]


Residuals = tuple[Array, Array, Array, Array, Array, Array, Array]


def _turns(blocks: int, band: Array) -> tuple[Array, Array]:
    """Shift of the first turn, and how many: from -band to band, around the end, each once."""
    widest = jnp.max(band)
    return -widest, jnp.minimum(2 * widest + 1, blocks)


def _twice(x: Array) -> Array:
    return jnp.concatenate([x, x], axis=1)


def _banded_scores(q: Array, k: Array, ids: Array, key_ids: Array) -> Array:
    is_key = ids[:, :, None, :, None] == key_ids[:, :, None, None, :]  # [b,n,1,t,t]
    return _exp_scores(jnp.einsum("bnhkq,bnhks->bnhqs", q, k), is_key)


def _banded_forward(
    q: Array, k: Array, v: Array, ids: Array, band: Array
) -> tuple[Array, Residuals]:
    blocks = q.shape[1]
    first, turns = _turns(blocks, band)
    k2, v2, ids2 = _twice(k), _twice(v), _twice(ids)

    def turn(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        shift = (first + i) % blocks
        k_i, v_i, ids_i = (
            jax.lax.dynamic_slice_in_dim(x, shift, blocks, axis=1) for x in (k2, v2, ids2)
        )
        scores = _banded_scores(q, k_i, ids, ids_i)  # [b,n,H,t,t]
        out = sums[0] + jnp.einsum("bnhqs,bnhks->bnhkq", scores, v_i)
        return out, sums[1] + jnp.sum(scores, axis=-1)[:, :, :, None]

    zeros = jnp.zeros_like(q)
    out, total = jax.lax.fori_loop(0, turns, turn, (zeros, zeros[:, :, :, :1]))
    return out / total, (q, k, v, ids, band, out / total, total)


def _banded_backward(residuals: Residuals, d_out: Array) -> tuple[Array, Array, Array, None, None]:
    q, k, v, ids, band, out, total = residuals
    blocks = q.shape[1]
    first, turns = _turns(blocks, band)
    k2, v2, ids2 = _twice(k), _twice(v), _twice(ids)
    d_sum = d_out / total
    d_total = jnp.sum(d_sum * out, axis=3)[..., None]  # [b,n,H,t,1]

    def turn(i: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        d_q, d_k2, d_v2 = sums
        shift = (first + i) % blocks
        k_i, v_i, ids_i = (
            jax.lax.dynamic_slice_in_dim(x, shift, blocks, axis=1) for x in (k2, v2, ids2)
        )
        scores = _banded_scores(q, k_i, ids, ids_i)
        d_v = jnp.einsum("bnhkq,bnhqs->bnhks", d_sum, scores)
        d_logits = scores * (jnp.einsum("bnhkq,bnhks->bnhqs", d_sum, v_i) - d_total)
        d_q = d_q + jnp.einsum("bnhks,bnhqs->bnhkq", k_i, d_logits)
        d_k = jnp.einsum("bnhkq,bnhqs->bnhks", q, d_logits)
        return d_q, _add_at(d_k2, d_k, shift), _add_at(d_v2, d_v, shift)

    zeros = jnp.zeros_like(_twice(q))
    d_q, d_k2, d_v2 = jax.lax.fori_loop(0, turns, turn, (zeros[:, :blocks], zeros, zeros))
    d_k, d_v = (x[:, :blocks] + x[:, blocks:] for x in (d_k2, d_v2))
    return d_q, d_k, d_v, None, None


def _add_at(total: Array, part: Array, start: Array) -> Array:
    """Add to a run of blocks. [b,2n,...], [b,n,...] → [b,2n,...]"""
    before = jax.lax.dynamic_slice_in_dim(total, start, part.shape[1], axis=1)
    return jax.lax.dynamic_update_slice_in_dim(total, before + part, start, axis=1)


banded_softmax.defvjp(_banded_forward, _banded_backward)
