"""Row-structured attention: the same results as the dense path, from the pairs that can matter.

Of all pairs of cells in a context a few percent are allowed. Two arrangements of the cells bring
those together, and each attention works on one of them:

    slots     [R,A]: the cells of each row side by side, A = most cells of a row. Outbound takes
              the keys of a row's parents to the row; inbound takes the queries of the parents to
              the row and adds what comes out, numerators and denominators, per parent. The vectors
              of foreign keys are added there, where a pair of rows meets.
    columns   [N]: cells sorted by context and column, and cut into blocks. As the cells of a column
              are a run, a block meets blocks up to `band` away, and a loop over that distance is
              all there is.

The target of a context asks for one column of its context only. So a cell is a key of one such
query at most, and the attention of all targets is sums over contexts of what cells give.

All contexts of a batch stand on one axis. No parent and no column crosses from one to another. On a
processor a loop goes over runs of rows, and of blocks, so that their scores stay in its cache; on a
GPU there is one run.

Logits are within ±40 (attention.py), so no maximum is taken and partial sums simply add. Padding
has no slot, stands alone in its column and sees itself only. Everything has a static shape; only
the number of turns of the loop over columns depends on the data.

Cost: O(R·A²·(1+P)·D) outbound and inbound, P = most foreign keys of a row, R = rows of the batch,
and O(N·block·(2·band+1)·D) for columns, where dense attention takes O(n·S²·D) each. The sums over
contexts of the targets are products on a GPU, O(n·N·D).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from confluence.model.attention import LOGIT_LIMIT, KeyVectors, scale_of, unit
from confluence.model.cells import shares_of_slots
from confluence.model.gather import arrange, look_up, sum_by
from confluence.model.sight import sort_by_column

COLUMN_BLOCK = 32  # cells of a block of the column attention
ROWS_AT_ONCE = 64  # on a processor: rows whose scores exist at once
BLOCKS_AT_ONCE = 16  # on a processor: blocks of columns


class RowShape(NamedTuple):
    """A bound that holds for every batch of a run; the slots are cut to it."""

    width: int  # A, most cells of a row


class Slots(NamedTuple):
    """Where the cells of rows are, and which rows look at which; shared by all layers.

    R is a multiple of the rows that are attended at once; R itself stands for no row.
    """

    cells: Array  # [R·A] int32, cell of each slot; -1 where empty
    places: Array  # [N] int32, slot of each cell; -1 where the cell is not visible
    is_filled: Array  # [R,A] bool
    parents: Array  # [R,P] int32, each once
    others: Array  # [R,P] int32, the parents that are not the row itself
    is_own_parent: Array  # [R] bool, a row that points at itself
    kinds: Array  # [R,P] int32, of the foreign keys
    shares: Array  # [R,1+P,P] float32, what each has of the edges to the row itself and to parents
    outbound_count: Array  # [N] float32, keys of each cell
    inbound_count: Array  # [N] float32


class Columns(NamedTuple):
    """Cells sorted by context and column, padded to whole runs of blocks; shared by all layers."""

    cells: Array  # [N'] int32, cell at each place; -1 in the padding of blocks
    places: Array  # [N] int32, place of each cell
    ids: Array  # [N'] int32, equal where cells are of one column of one context, and visible
    key_count: Array  # [N] float32, keys of each cell
    band: Array  # [runs] int32, blocks between the two ends of what a block of a run may look at


# ----------------------------------------------------------------------------------- arrangements


def at_once(count: int, on_a_processor: int) -> int:
    """How many of `count` rows or blocks are attended at once: all, unless on a processor."""
    return min(count, on_a_processor) if jax.default_backend() == "cpu" else count


def make_slots(
    row_ids: Array, parents: Array, kinds: Array, is_cell: Array, width: int
) -> tuple[Slots, Array]:
    """The arrangement by rows, and which rows it has as a whole: no slot is lost in silence.

    Args:
        row_ids: [N] int32, over the batch.
        parents: [Rn,P] int32, a parent's row over the batch, or Rn.
        kinds: [Rn,P] int32, of the foreign keys.
        is_cell: [N] bool, False at padding.
        width: A.

    Returns: the slots, and [Rn] bool, False where a row has more than `width` visible cells.
    """
    cells, given = row_ids.shape[0], parents.shape[0]
    step = at_once(given, ROWS_AT_ONCE)
    rows = given + -given % step
    parents = jnp.where(parents < given, parents, rows)
    parents = jnp.pad(parents, ((0, rows - given), (0, 0)), constant_values=rows)
    kinds = jnp.pad(kinds, ((0, rows - given), (0, 0)))
    is_first, shares = shares_of_slots(parents, parents < rows)
    parents = jnp.where(is_first, parents, rows)
    keys = jnp.where(is_cell, row_ids, rows)
    order = jnp.argsort(keys, stable=True).astype(jnp.int32)  # [N] cells by row
    counts = jnp.zeros((rows,), jnp.int32).at[keys].add(1, mode="drop")  # [R]
    starts = jnp.cumsum(counts) - counts  # [R] first place in `order`
    place = jnp.zeros_like(order).at[order].set(jnp.arange(cells, dtype=jnp.int32))
    a = jnp.arange(width)
    is_filled = a < counts[:, None]  # [R,A]
    at = jnp.minimum(starts[:, None] + a, cells - 1)
    is_self = parents == jnp.arange(rows)[:, None]  # [R,P]
    to_itself = jnp.sum(jnp.where(is_self[..., None], shares, 0.0), axis=1, keepdims=True)
    others = jnp.where(is_self, rows, parents)
    is_own_parent = jnp.any(is_self, axis=1)
    of_parents = jnp.sum(jnp.pad(counts, (0, 1))[others], axis=1)  # [R]; row R has no cells
    of_children = jnp.zeros_like(counts).at[parents].add(counts[:, None], mode="drop")
    slots = Slots(
        cells=jnp.where(is_filled, order[at], -1).reshape(rows * width),
        places=jnp.where(is_cell, place - starts[row_ids] + row_ids * width, -1),
        is_filled=is_filled,
        parents=parents,
        others=others,
        is_own_parent=is_own_parent,
        kinds=kinds,
        shares=jnp.concatenate([to_itself, shares], axis=1),
        outbound_count=(counts + of_parents)[row_ids].astype(jnp.float32),
        inbound_count=(of_children + jnp.where(is_own_parent, 0, 1))[row_ids].astype(jnp.float32),
    )
    return slots, (counts <= width)[:given]


def make_columns(contexts: Array, column_ids: Array, is_cell: Array) -> Columns:
    """The arrangement by columns, of arguments of `sort_by_column`."""
    cells = column_ids.shape[0]
    block = min(COLUMN_BLOCK, cells)
    run = block * at_once(-(-cells // block), BLOCKS_AT_ONCE)  # cells of a run of blocks
    order = sort_by_column(contexts, column_ids, is_cell, cells + -cells % run)
    at, first, last = jnp.arange(order.cells.shape[0]) // block, order.first, order.last
    reach = jnp.maximum(at - first // block, last // block - at)
    return Columns(
        cells=order.cells,
        places=order.places,
        ids=first,
        key_count=(last - first + 1)[order.places].astype(jnp.float32),
        band=jnp.max(reach.reshape(-1, run), axis=1),
    )


# ------------------------------------------------------------------------------- rows, and parents


def outbound(
    query: Array, key: Array, value: Array, tau: Array, keys: KeyVectors, *, slots: Slots
) -> Array:
    """Own row and parents. [N,D] each, [H] → [N,D] in the type of `value`."""
    return _attend_in_slots(_outbound, (query, key, value, tau), keys, slots, slots.outbound_count)


def inbound(
    query: Array, key: Array, value: Array, tau: Array, keys: KeyVectors, *, slots: Slots
) -> Array:
    """The rows that point at the cell's row, and the cell. [N,D] each, [H] → [N,D]"""
    return _attend_in_slots(_inbound, (query, key, value, tau), keys, slots, slots.inbound_count)


def unit_heads(x: Array, heads: int) -> Array:
    """x / max(‖x‖, 1e-6) within each head, in float32. [N,D] → [N,H,K]"""
    return unit(x.reshape(x.shape[0], heads, x.shape[1] // heads))


def scaled_query(query: Array, count: Array, tau: Array) -> Array:
    """Queries such that their product with a unit key is the logit. [N,D] → [N,D] float32"""
    scale = scale_of(count, tau)  # [N,H]
    return (unit_heads(query, tau.shape[0]) * scale[..., None]).reshape(query.shape)


def _attend_in_slots(
    function: Callable[[Array, Array, Array, Vectors, Slots], Array],
    operands: tuple[Array, Array, Array, Array], keys: KeyVectors, s: Slots, count: Array,
) -> Array:  # fmt: skip
    """Cells to slots, an attention there, and back.

    Args:
        operands: query, key, value and τ.
    """
    query, key, value, tau = operands
    width, heads = query.shape[1], tau.shape[0]
    rows, slots = s.is_filled.shape
    vectors = tuple(x.reshape(-1, heads, width // heads) for x in keys)

    def to_slots(x: Array) -> Array:
        x = arrange(x, s.cells, s.places).reshape(rows, slots, heads, width // heads)
        return x.transpose(0, 2, 1, 3)  # [R,H,A,K]

    q = to_slots(scaled_query(query, count, tau))
    k = to_slots(unit_heads(key, heads).reshape(key.shape))
    v = to_slots(value.astype(jnp.float32))
    out = function(q, k, v, vectors, s).transpose(0, 2, 1, 3).reshape(rows * slots, width)
    out = arrange(out, s.places, s.cells).astype(value.dtype)
    return jnp.where(s.places[:, None] >= 0, out, value)  # a cell without a slot sees itself


Vectors = tuple[Array, ...]
"""κ and ν of the foreign keys, [T,H,K] each."""


def _exp_scores(logits: Array, is_key: Array) -> Array:
    return jnp.where(is_key, jnp.exp(jnp.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT)), 0.0)


def _of_edges(vectors: Vectors, kinds: Array, shares: Array) -> Vectors:
    """κ and ν of edges, the means of their keys'. [T,H,K], [r,P], [r,E,P] → [r,E,H,K] each"""
    return tuple(jnp.einsum("rep,rphk->rehk", shares, look_up(x, kinds)) for x in vectors)


def _outbound(q: Array, k: Array, v: Array, vectors: Vectors, s: Slots) -> Array:
    """Keys of the parents come to the row. [R,H,A,K] each → [R,H,A,K]"""
    rows = s.is_filled.shape[0]
    key_rows = jnp.concatenate([jnp.arange(rows)[:, None], s.others], axis=1)  # [R,1+P]
    is_key = jnp.pad(s.is_filled, ((0, 1), (0, 0)))[key_rows]  # [R,1+P,A]; row R has no cells
    given = (is_key, s.kinds, s.shares)
    return over_rows(_outbound_of_rows, q, (k, v), vectors, key_rows, given)


def _outbound_of_rows(
    q: Array, keys: tuple[Array, Array], vectors: Vectors, given: tuple[Array, Array, Array]
) -> Array:
    """q: [r,H,A,K]; keys and values of 1+P rows for each: [r,1+P,H,A,K]; given: which are keys
    [r,1+P,A], kinds [r,P], shares [r,1+P,P]."""
    is_key, kinds, shares = given
    key, value = _of_edges(vectors, kinds, shares)  # [r,1+P,H,K]
    total, out = jnp.zeros(q.shape[:-1]), jnp.zeros_like(q)
    for p in range(is_key.shape[1]):  # P is small, and a product for each needs no transpose
        k, v = (x[:, p] for x in keys)
        logits = jnp.einsum("rhak,rhck->rhac", q, k)
        logits += jnp.einsum("rhak,rhk->rha", q, key[:, p])[..., None]
        scores = _exp_scores(logits, is_key[:, None, None, p])
        mass = jnp.sum(scores, axis=-1)  # [r,H,A]
        total += mass
        out += jnp.einsum("rhac,rhck->rhak", scores, v) + mass[..., None] * value[:, p, :, None]
    return out / jnp.maximum(total, 1e-30)[..., None]


def _inbound(q: Array, k: Array, v: Array, vectors: Vectors, s: Slots) -> Array:
    """Queries of the parents come to the row, sums go back. [R,H,A,K] each → [R,H,A,K]"""
    itself = jnp.where(
        s.is_own_parent[:, None, None], 0.0, jnp.exp(jnp.sum(q * k, axis=-1))
    )  # [R,H,A]
    sums = jnp.concatenate([itself[..., None] * v, itself[..., None]], axis=-1)  # [R,H,A,K+1]
    given = (s.is_filled, s.kinds, s.shares[:, 1:])
    parts = over_rows(_inbound_of_rows, (k, v), q, vectors, s.parents, given)  # [R,P,H,A,K+1]
    sums = sums.at[s.parents].add(parts, mode="drop")
    return sums[..., :-1] / jnp.maximum(sums[..., -1:], 1e-30)


def _inbound_of_rows(
    keys: tuple[Array, Array], q: Array, vectors: Vectors, given: tuple[Array, Array, Array]
) -> Array:
    """keys and values: [r,H,A,K]; queries of P rows for each: [r,P,H,A,K]; given: which are keys
    [r,A], kinds [r,P], shares [r,P,P] → [r,P,H,A,K+1]"""
    k, v = keys
    is_key, kinds, shares = given
    key, value = _of_edges(vectors, kinds, shares)  # [r,P,H,K]
    parts = []
    for p in range(q.shape[1]):
        logits = jnp.einsum("rhak,rhck->rhac", q[:, p], k)
        logits += jnp.einsum("rhak,rhk->rha", q[:, p], key[:, p])[..., None]
        scores = _exp_scores(logits, is_key[:, None, None])
        mass = jnp.sum(scores, axis=-1, keepdims=True)
        out = jnp.einsum("rhac,rhck->rhak", scores, v) + mass * value[:, p, :, None]
        parts.append(jnp.concatenate([out, mass], axis=-1))
    return jnp.stack(parts, axis=1)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def over_rows(function: Any, own: Any, others: Any, shared: Any, index: Array, given: Any) -> Array:
    """A function of rows and of other rows that each names, for a run of rows at a time.

    Nothing is kept for the backward pass; it makes a run's results again. What it adds to the rows
    that are named is added in place, run by run: autodiff would add all rows for each run.

    Args:
        function: ([r,...] of own, [r,P,...] of others, shared, [r,...] of given) → [r,...].
        own, others: trees of arrays [R,...].
        shared: a tree of arrays that all rows read.
        index: [R,P] int32, the others that each row names, R for none.
        given: a tree of arrays [R,...] without gradients, such as which keys are there: none where
            `index` has none or takes what does not count.
    """
    return _over_rows_forward(function, own, others, shared, index, given)[0]


def _in_runs(tree: Any) -> Any:
    step = at_once(jax.tree.leaves(tree)[0].shape[0], ROWS_AT_ONCE)
    return jax.tree.map(lambda a: a.reshape(-1, step, *a.shape[1:]), tree)


def _joined(tree: Any) -> Any:
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)


def _named(others: Any, index: Array) -> Any:
    """Rows by index; those past the end are never used. [R,...], [r,P] → [r,P,...]"""
    return jax.tree.map(lambda x: x[jnp.minimum(index, x.shape[0] - 1)], others)


def _over_rows_forward(
    function: Any, own: Any, others: Any, shared: Any, index: Array, given: Any
) -> tuple[Array, Any]:
    def one_run(args: Any) -> Any:
        own, index, given = args
        return function(own, _named(others, index), shared, given)

    out: Array = _joined(jax.lax.map(one_run, _in_runs((own, index, given))))
    return out, (own, others, shared, index, given)


def _over_rows_backward(function: Any, residuals: Any, d_out: Array) -> Any:
    own, others, shared, index, given = residuals

    def one_run(sums: Any, args: Any) -> tuple[Any, Any]:
        own, index, given, d_out = args
        _, pull = jax.vjp(
            lambda own, named, shared: function(own, named, shared, given),
            own, _named(others, index), shared,
        )  # fmt: skip
        d_own, d_named, d_shared = pull(d_out)
        d_others = jax.tree.map(
            lambda total, part: total.at[index].add(part, mode="drop"), sums[0], d_named
        )
        return (d_others, jax.tree.map(jnp.add, sums[1], d_shared)), d_own

    zeros = jax.tree.map(jnp.zeros_like, (others, shared))
    (d_others, d_shared), d_own = jax.lax.scan(
        one_run, zeros, _in_runs((own, index, given, d_out))
    )  # fmt: skip
    return _joined(d_own), d_others, d_shared, None, None


over_rows.defvjp(_over_rows_forward, _over_rows_backward)


# ---------------------------------------------------------------------------------------- columns


def column(query: Array, key: Array, value: Array, tau: Array, *, columns: Columns) -> Array:
    """The cells of the cell's column. [N,D] each, [H] → [N,D] in the type of `value`."""
    c = columns
    cells, width = query.shape
    heads, size = tau.shape[0], min(COLUMN_BLOCK, cells)

    def by_column(x: Array) -> Array:
        x = arrange(x, c.cells, c.places).reshape(-1, size, heads, width // heads)
        return x.transpose(0, 2, 3, 1)  # [m,H,K,size]

    q = by_column(scaled_query(query, c.key_count, tau))
    k = by_column(unit_heads(key, heads).reshape(key.shape))
    v = by_column(value.astype(jnp.float32))
    out = banded_softmax(q, k, v, c.ids.reshape(-1, size), c.band)
    out = out.transpose(0, 3, 1, 2).reshape(-1, width)  # [N',D]
    return arrange(out, c.places, c.cells).astype(value.dtype)


@jax.custom_vjp
def banded_softmax(q: Array, k: Array, v: Array, ids: Array, band: Array) -> Array:
    """softmax(q·k within equal ids)·v, for a run of blocks at a time, where equal ids are at most
    the run's `band` blocks apart.

    [m,H,K,t] float32 each, [m,t] int32, [runs] int32 → [m,H,K,t]
    """
    return _banded_forward(q, k, v, ids, band)[0]


Residuals = tuple[Array, Array, Array, Array, Array, Array, Array]


def _turns(blocks: int, band: Array) -> tuple[Array, Array]:
    """Shift of the first turn, and how many: from -band to band, around the end, each once."""
    return -band, jnp.minimum(2 * band + 1, blocks)


def _around(x: Array, run: int) -> Array:
    """Blocks, and the first of them once more behind the last. [m,...] → [m+run,...]"""
    return jnp.concatenate([x, x[:run]])


def _in_band(runs: int, *arrays: Array) -> tuple[Array, ...]:
    """Blocks by run, behind the number of the first block of each."""
    step = arrays[0].shape[0] // runs
    firsts = step * jnp.arange(runs, dtype=jnp.int32)
    return (firsts, *(a.reshape(runs, step, *a.shape[1:]) for a in arrays))


def _slices(start: Array, run: int, *arrays: Array) -> tuple[Array, ...]:
    return tuple(jax.lax.dynamic_slice_in_dim(x, start, run) for x in arrays)


def _banded_scores(q: Array, k: Array, ids: Array, key_ids: Array) -> Array:
    is_key = ids[:, None, :, None] == key_ids[:, None, None, :]  # [m,1,t,t]
    return _exp_scores(jnp.einsum("mhkq,mhks->mhqs", q, k), is_key)


def _banded_forward(
    q: Array, k: Array, v: Array, ids: Array, band: Array
) -> tuple[Array, Residuals]:
    blocks, runs = q.shape[0], band.shape[0]
    around = tuple(_around(x, blocks // runs) for x in (k, v, ids))

    def one_run(args: tuple[Array, ...]) -> tuple[Array, Array]:
        band, start, q, ids = args
        first, turns = _turns(blocks, band)

        def turn(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            k_i, v_i, ids_i = _slices((start + first + i) % blocks, q.shape[0], *around)
            scores = _banded_scores(q, k_i, ids, ids_i)  # [m,H,t,t]
            out = sums[0] + jnp.einsum("mhqs,mhks->mhkq", scores, v_i)
            return out, sums[1] + jnp.sum(scores, axis=-1)[:, :, None]

        zeros = jnp.zeros_like(q)
        out, total = jax.lax.fori_loop(0, turns, turn, (zeros, zeros[:, :, :1]))
        return out / total, total

    out, total = _joined(jax.lax.map(one_run, (band, *_in_band(runs, q, ids))))
    return out, (q, k, v, ids, band, out, total)


def _banded_backward(residuals: Residuals, d_out: Array) -> tuple[Array, Array, Array, None, None]:
    q, k, v, ids, band, out, total = residuals
    blocks, runs = q.shape[0], band.shape[0]
    run = blocks // runs
    around = tuple(_around(x, run) for x in (k, v, ids))
    d_sum = d_out / total
    d_total = jnp.sum(d_sum * out, axis=2)[..., None]  # [m,H,t,1]

    def one_run(sums: tuple[Array, Array], args: tuple[Array, ...]) -> tuple[Any, Array]:
        band, start, q, ids, d_sum, d_total = args
        first, turns = _turns(blocks, band)

        def turn(i: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            d_q, d_keys, d_values = sums
            at = (start + first + i) % blocks
            k_i, v_i, ids_i = _slices(at, run, *around)
            scores = _banded_scores(q, k_i, ids, ids_i)
            d_v = jnp.einsum("mhkq,mhqs->mhks", d_sum, scores)
            d_logits = scores * (jnp.einsum("mhkq,mhks->mhqs", d_sum, v_i) - d_total)
            d_q = d_q + jnp.einsum("mhks,mhqs->mhkq", k_i, d_logits)
            d_k = jnp.einsum("mhkq,mhqs->mhks", q, d_logits)
            return d_q, _add_at(d_keys, d_k, at), _add_at(d_values, d_v, at)

        d_q, *sums_after = jax.lax.fori_loop(0, turns, turn, (jnp.zeros_like(q), *sums))
        return tuple(sums_after), d_q

    zeros = jnp.zeros_like(around[0])
    parts = (band, *_in_band(runs, q, ids, d_sum, d_total))
    d_around, d_q = jax.lax.scan(one_run, (zeros, zeros), parts)
    d_k, d_v = (x[:blocks].at[:run].add(x[blocks:]) for x in d_around)
    return _joined(d_q), d_k, d_v, None, None


def _add_at(total: Array, part: Array, start: Array) -> Array:
    """Add to a run of blocks. [m+run,...], [run,...] → [m+run,...]"""
    before = jax.lax.dynamic_slice_in_dim(total, start, part.shape[0])
    return jax.lax.dynamic_update_slice_in_dim(total, before + part, start, axis=0)


banded_softmax.defvjp(_banded_forward, _banded_backward)


# ------------------------------------------------------------------------------------ the targets


class TargetColumns(NamedTuple):
    """Which target looks at each cell along its column."""

    askers: Array  # [N] int32, the context of the target, n where none looks
    key_count: Array  # [n] float32, keys of each target


def make_target_columns(askers: Array, contexts: int) -> TargetColumns:
    """What the column attention of n = `contexts` targets reads. askers: [N] int32."""
    return TargetColumns(askers, sum_by(jnp.ones(askers.shape), askers, contexts))


def target_column(
    query: Array, key: Array, value: Array, tau: Array, *, columns: TargetColumns
) -> Array:
    """What targets get along their columns; 0 where there is none. query [n,D], [N,D] → [n,D]"""
    n, heads = query.shape[0], tau.shape[0]
    c = columns.askers
    q = scaled_query(query, columns.key_count, tau)[jnp.minimum(c, n - 1)]  # [N,D], of the asker
    k = unit_heads(key, heads)  # [N,H,K]
    v = value.astype(jnp.float32).reshape(k.shape)
    scores = _exp_scores(jnp.sum(q.reshape(k.shape) * k, axis=-1), (c < n)[:, None])  # [N,H]
    total = sum_by(scores, c, n)[..., None]  # [n,H,1]
    out = sum_by(scores[..., None] * v, c, n) / jnp.where(total > 0, total, 1.0)
    return out.reshape(query.shape).astype(value.dtype)
