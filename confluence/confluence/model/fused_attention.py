"""Attention along one pattern as kernels for a GPU (Pallas, by Triton): scores stay in registers.

A program has one head and a tile of cells, and goes through the stream of cells that see them or
that they see (sight.py), a block at a time. It makes logits in registers, with unit norms, the
scale τ·log(1 + n), what foreign keys add, and the mask. As logits are within ±40 (attention.py), no
maximum is taken and partial sums simply add. The backward pass makes scores again, once by query
(gradients of queries and of the vectors of foreign keys) and once by key. No sum is by several
programs, so its order, and its bits, are always the same.

A foreign key adds κ to a key and ν to a value. Several may join a pair of rows; then each has a
share. So an edge between rows has weights [T], T kinds of foreign keys, and what it adds is a
product with these.

Products are in the compute type, summed in float32. On a processor the kernels are interpreted,
which is slow, for tests.

Method: scores made again, as in FlashAttention (Dao and others, 2022), over lists of cells and
without a running maximum.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from confluence.model.attention import LOGIT_LIMIT, NORM_FLOOR, KeyVectors, unit
from confluence.model.sight import Children, Parents, Sight

LEAST_WIDTH = 16  # of a factor of a product on a GPU
KINDS_AT_ONCE = 64  # kinds of foreign keys whose sums a program holds
TILE = 16  # cells of a program, the least that a product takes
BLOCK = 32  # cells of a stream whose scores exist at once


class Plan(NamedTuple):
    """The constants of a kernel."""

    pattern: str  # "outbound", "inbound" or "column"
    slots: int  # P, most foreign keys of a row


class Vectors(NamedTuple):
    """The vectors of foreign keys, by head, and their weights."""

    shares: Array  # [edges,T] compute type
    key: Array  # [T,D] compute type, κ
    value: Array  # [T,D] compute type, ν


def kinds_padded(count: int) -> int:
    """T for so many kinds: a power of two, or a multiple of what a program holds."""
    if count > KINDS_AT_ONCE:
        return count + -count % KINDS_AT_ONCE
    return max(LEAST_WIDTH, 1 << (count - 1).bit_length())


def attend(
    query: Array, key: Array, value: Array, scale: Array, sight: Sight, plan: Plan,
    shares: Array | None = None, keys: KeyVectors | None = None,
) -> Array:  # fmt: skip
    """Softmax attention along one pattern. [N,D] each → [N,D] in the type of `value`.

    Args:
        scale: [N,H] float32, of each query, within ±40.
        shares: [edges,T] float32, T by `kinds_padded`; with keys.
        keys: of up to T kinds; none along columns.
    """
    heads, width = scale.shape[1], query.shape[1]
    given = width // heads
    wide = max(LEAST_WIDTH, 1 << (given - 1).bit_length())

    def widened(x: Array) -> Array:
        """Heads of a power of two, by zeros, which change no product and no norm."""
        if wide == given:
            return x
        x = jnp.pad(x.reshape(-1, heads, given), ((0, 0), (0, 0), (0, wide - given)))
        return x.reshape(-1, heads * wide)

    dtype, vectors = value.dtype, None
    if keys is not None and shares is not None:
        more = ((0, shares.shape[1] - keys.key.shape[0]), (0, 0))
        both = (widened(jnp.pad(x.astype(dtype), more)) for x in keys)
        vectors = Vectors(shares.astype(dtype), *both)
    q, k, v = (widened(x.astype(dtype)) for x in (query, key, value))
    out = _attend(plan, q, k, v, scale.T, vectors, sight)
    return out.reshape(-1, heads, wide)[:, :, :given].reshape(-1, width)


# -------------------------------------------------------------------------------------- streams


class _Tile(NamedTuple):
    """The cells of a program."""

    place: Array  # [] int32, of the first
    last: Array  # [] int32, place of the last
    cells: Array  # [t] int32, past the end the cell at place 0
    is_cell: Array  # [t] bool
    ids: Array  # [t] int32, of their runs


class _Block(NamedTuple):
    """A block of a stream."""

    cells: Array  # [b] int32, those past the end are some cell
    edges: Array  # [b] int32, between their row and that of a cell of the tile; along rows
    is_pair: Array  # [t,b] bool


def _read_tile(plan: Plan, sight: Any) -> _Tile:
    first, end = pl.program_id(0) * TILE, sight.order.shape[0]
    place = first + jnp.arange(TILE, dtype=jnp.int32)
    is_cell = place < end
    at = jnp.where(is_cell, place, 0)
    last = jnp.minimum(first + TILE, end) - 1
    return _Tile(first, last, sight.order[at], is_cell, sight.first[at])


class _Stream(NamedTuple):
    """The stream of a tile: runs, then the cells that are linked to them."""

    first: Array  # [] int32, first place of the runs
    run: Array  # [] int32, cells of the runs
    linked: Array  # [] int32, where the cells that are linked begin
    length: Array  # [] int32, all cells


def _read_stream(sight: Any, links: Any, tile: _Tile) -> _Stream:
    first = sight.first[tile.place]
    run = sight.last[tile.last] + 1 - first
    if links is None:
        return _Stream(first, run, run, run)
    begin, end = links.first[tile.place], links.end[tile.last]
    if isinstance(links, Parents):
        begin, end = links.starts[begin], links.starts[end]
    return _Stream(first, run, begin, run + end - begin)


def _read_block(
    plan: Plan, sight: Any, links: Any, tile: _Tile, stream: _Stream, x: Array
) -> _Block:
    """The part of a stream at x: [b] int32."""
    is_run = x < stream.run
    place = jnp.where(is_run, stream.first + x, 0)
    cells, ids = sight.order[place], sight.first[place]
    if links is None:
        is_pair = is_run[None, :] & (tile.ids[:, None] == ids[None, :])
        return _Block(cells, x, is_pair & tile.is_cell[:, None])
    is_linked = ~is_run & (x < stream.length)
    at = jnp.where(is_linked, stream.linked + x - stream.run, 0)
    linked = _linked(plan, sight, links, tile, at, is_linked)
    is_same = tile.ids[:, None] == jnp.where(is_run, ids, linked.ids)[None, :]
    cells = jnp.where(is_run, cells, linked.cells)
    is_pair = (is_run | is_linked)[None, :] & is_same & tile.is_cell[:, None]
    if plan.pattern == "inbound":
        sees = ~is_run | (sight.links.is_own_parent[place] > 0)
        is_pair &= sees[None, :] | (tile.cells[:, None] == cells[None, :])
    return _Block(cells, jnp.where(is_run, sight.links.edges[place], linked.edges), is_pair)


class _Linked(NamedTuple):
    """Cells of a block that are linked to the tile's rows, [b] int32 each."""

    cells: Array
    ids: Array  # of the rows of the tile
    edges: Array


def _linked(
    plan: Plan, sight: Any, links: Any, tile: _Tile, at: Array, is_linked: Array
) -> _Linked:
    """The cells at [b] int32 of the stream of all parents, or of all children."""
    if isinstance(links, Children):
        return _Linked(links.cells[at], links.ids[at], links.edges[at])
    low = jnp.zeros_like(at) + links.first[tile.place]
    high = jnp.zeros_like(at) + links.end[tile.last] - 1
    for _ in range((TILE * plan.slots).bit_length()):  # the last edge that begins by then
        middle = (low + high + 1) // 2
        is_begun = links.starts[middle] <= at
        low, high = jnp.where(is_begun, middle, low), jnp.where(is_begun, high, middle - 1)
    edge = jnp.where(is_linked, low, 0)
    cells = sight.order[jnp.where(is_linked, links.places[edge] + at - links.starts[edge], 0)]
    return _Linked(cells, links.ids[edge], links.edges[edge])


def _over(plan: Plan, stream: str, sight: Any, tile: _Tile, turn: Any, first: Any) -> Any:
    """A loop over a stream: turn(block, sums) → sums."""
    links = None if sight.links is None else getattr(sight.links, stream)
    found = _read_stream(sight, links, tile)
    offset = jnp.arange(BLOCK, dtype=jnp.int32)

    def one(i: Array, sums: Any) -> Any:
        x = i * BLOCK + offset
        return turn(_read_block(plan, sight, links, tile, found, x), sums)

    turns = (found.length + BLOCK - 1) // BLOCK
    return jax.lax.fori_loop(0, turns, one, first)


def _streams(plan: Plan) -> tuple[str, str]:
    """What queries go through, and what keys go through."""
    return ("children", "parents") if plan.pattern == "inbound" else ("parents", "children")


# ---------------------------------------------------------------------------------- in a program


def _product(a: Array, b: Array, *, turn_b: bool = False) -> Array:
    """a·b, or with b transposed, in float32."""
    exact = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    contract = ((1,), (1 if turn_b else 0,))
    return jax.lax.dot_general(
        a, b, (contract, ((), ())), precision=exact, preferred_element_type=jnp.float32
    )


class _Unit(NamedTuple):
    """Vectors of length 1, and what their gradient needs."""

    unit: Array  # [t,K] float32
    inverse: Array  # [t,1] 1 / max(‖x‖, 1e-6)
    is_long: Array  # [t,1] bool, not below the floor

    def gradient(self, d_unit: Array) -> Array:
        """The gradient of the vectors, from that of the units."""
        along = jnp.sum(self.unit * d_unit, axis=1, keepdims=True)
        return self.inverse * (d_unit - jnp.where(self.is_long, along, 0.0) * self.unit)


def _unit(x: Array) -> _Unit:
    x = x.astype(jnp.float32)
    square = jnp.sum(x * x, axis=1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.maximum(square, NORM_FLOOR**2))
    return _Unit(x * inverse, inverse, square > NORM_FLOOR**2)


def _chunks(kinds: int) -> list[Any]:
    step = min(kinds, KINDS_AT_ONCE)
    return [pl.ds(first, step) for first in range(0, kinds, step)]


def _added(vectors: Any, edges: Array) -> tuple[Array, Array]:
    """The vectors that foreign keys add to keys and values. [b] → [b,K] float32 each"""
    key, value = 0.0, 0.0
    for kinds in _chunks(vectors.key.shape[0]):
        weights = vectors.shares[edges, kinds]
        key += _product(weights, vectors.key[kinds, :])  # type: ignore[assignment]
        value += _product(weights, vectors.value[kinds, :])  # type: ignore[assignment]
    return key, value  # type: ignore[return-value]


def _sums_by_kind(x: Array, weights: Array) -> Array:
    """Sums over a block, in two parts if one would be rounded: gradients of logits cancel."""
    high = x.astype(weights.dtype)
    total = _product(high, weights)
    if weights.dtype != jnp.float32:
        total += _product((x - high.astype(jnp.float32)).astype(weights.dtype), weights)
    return total


class _Scores(NamedTuple):
    """The scores of a tile and a block."""

    scores: Array  # [t,b] float32, exp of the logits, as the compute type has it
    passes: Array  # [t,b] bool, the gradient of a logit: none beyond its limit


def _scores(logits: Array, is_pair: Array, dtype: Any) -> _Scores:
    cut = jnp.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT)
    scores = jnp.where(is_pair, jnp.exp(cut), 0.0).astype(dtype)  # their sum has the same rounding
    return _Scores(scores.astype(jnp.float32), cut == logits)


def _keys_of_block(given: Any, block: _Block) -> tuple[Array, Array]:
    """Keys and values of a block, with what foreign keys add. → [b,K] each"""
    key, value = _unit(given.key[block.cells, :]).unit, given.value[block.cells, :]
    dtype = value.dtype
    if given.vectors is not None:
        more_key, more_value = _added(given.vectors, block.edges)
        key, value = key + more_key, (value.astype(jnp.float32) + more_value).astype(dtype)
    return key.astype(dtype), value


def _store(out: Any, tile: _Tile, x: Array, first: Any = 0) -> None:
    """Write what the cells of a tile get: [t], or [t,w] from a column on."""
    # Interpreted, a masked place is read and written back: it must not belong to another cell.
    place, mask = jnp.where(tile.is_cell, tile.cells, out.shape[0]), tile.is_cell
    at: tuple[Array, ...] = (place,)
    if x.ndim == 2:
        columns = first + jnp.arange(x.shape[1], dtype=jnp.int32)
        at = tuple(jnp.broadcast_to(i, x.shape) for i in (place[:, None], columns[None, :]))
        mask = jnp.broadcast_to(mask[:, None], x.shape)
    triton.store(out.at[at], x.astype(out.dtype), mask=mask)


def _forward_kernel(plan: Plan, sight: Any, given: Any, _: None, *results: Any) -> None:
    out, inverse, *rest = results
    tile = _read_tile(plan, sight)
    q = _unit(given.query[tile.cells, :]).unit * given.scale[tile.cells][:, None]
    q = q.astype(given.value.dtype)

    def turn(block: _Block, sums: Any) -> Any:
        key, value = _keys_of_block(given, block)
        found = _scores(_product(q, key, turn_b=True), block.is_pair, value.dtype).scores
        more = _product(found.astype(value.dtype), value)
        return sums[0] + more, sums[1] + jnp.sum(found, axis=1)

    first = jnp.zeros(q.shape, jnp.float32), jnp.zeros(q.shape[:1], jnp.float32)
    total, mass = _over(plan, _streams(plan)[0], sight, tile, turn, first)
    one_over = 1.0 / jnp.maximum(mass, 1e-30)
    mean = total * one_over[:, None]
    _store(out, tile, mean)
    _store(inverse, tile, one_over)
    for more in rest:
        _store(more, tile, mean - mean.astype(out.dtype).astype(jnp.float32))


def _by_query_kernel(plan: Plan, sight: Any, given: Any, gradient: Any, *results: Any) -> None:
    """Gradients of queries and scales, and by kind of foreign key the sums of shares and of
    gradients of logits of each query."""
    tile, part = _read_tile(plan, sight), pl.program_id(2)
    unit, scale = _unit(given.query[tile.cells, :]), given.scale[tile.cells][:, None]
    dtype = given.value.dtype
    q = (unit.unit * scale).astype(dtype)
    d_out = gradient.d_out[tile.cells, :]
    inverse, mean = (x[tile.cells][:, None] for x in (gradient.inverse, gradient.mean))
    kinds = 0 if given.vectors is None else min(given.vectors.key.shape[0], KINDS_AT_ONCE)

    def turn(block: _Block, sums: Any) -> Any:
        key, value = _keys_of_block(given, block)
        found = _scores(_product(q, key, turn_b=True), block.is_pair, dtype)
        shares = found.scores * inverse
        d_logits = shares * (_product(d_out, value, turn_b=True) - mean)
        d_logits = jnp.where(found.passes, d_logits, 0.0)
        d_q = sums[0] + _product(d_logits.astype(dtype), key)
        if not kinds:
            return (d_q,)
        weights = given.vectors.shares[block.edges, pl.ds(part * kinds, kinds)]
        more = (_sums_by_kind(x, weights) for x in (shares, d_logits))
        return d_q, *(total + x for total, x in zip(sums[1:], more, strict=True))

    first = [jnp.zeros(q.shape, jnp.float32)]
    first += [jnp.zeros((TILE, kinds), jnp.float32)] * (2 if kinds else 0)
    d_q, *by_kind = _over(plan, _streams(plan)[0], sight, tile, turn, tuple(first))

    @pl.when(part == 0)
    def _() -> None:
        _store(results[0], tile, unit.gradient(d_q * scale))
        _store(results[1], tile, jnp.sum(unit.unit * d_q, axis=1))

    for out, x in zip(results[2:], by_kind, strict=True):
        _store(out, tile, x, part * kinds)


def _by_key_kernel(plan: Plan, sight: Any, given: Any, gradient: Any, *results: Any) -> None:
    """Gradients of keys and values."""
    tile = _read_tile(plan, sight)
    unit, value = _unit(given.key[tile.cells, :]), given.value[tile.cells, :]
    dtype = value.dtype
    key = unit.unit.astype(dtype)

    def turn(block: _Block, sums: Any) -> Any:
        at = block.cells
        q = _unit(given.query[at, :]).unit * given.scale[at][:, None]
        d_out = gradient.d_out[at, :]
        logits = _product(key, q.astype(dtype), turn_b=True)  # [t,b]
        d_shares = _product(value, d_out, turn_b=True)
        if given.vectors is not None:
            more_key, more_value = _added(given.vectors, block.edges)
            logits += jnp.sum(q * more_key, axis=1)[None, :]
            d_shares += jnp.sum(d_out.astype(jnp.float32) * more_value, axis=1)[None, :]
        found = _scores(logits, block.is_pair, dtype)
        shares = found.scores * gradient.inverse[at][None, :]
        d_logits = shares * (d_shares - gradient.mean[at][None, :])
        d_logits = jnp.where(found.passes, d_logits, 0.0)
        d_key = sums[0] + _product(d_logits.astype(dtype), q.astype(dtype))
        return d_key, sums[1] + _product(shares.astype(dtype), d_out)

    first = (jnp.zeros(value.shape, jnp.float32),) * 2
    d_key, d_value = _over(plan, _streams(plan)[1], sight, tile, turn, first)
    _store(results[0], tile, unit.gradient(d_key))
    _store(results[1], tile, d_value)


# -------------------------------------------------------------------------------------- the calls


class _Given(NamedTuple):
    """What all kernels read."""

    query: Array  # [N,D] compute type
    key: Array  # [N,D]
    value: Array  # [N,D]
    scale: Array  # [H,N] float32
    vectors: Vectors | None


class _Gradient(NamedTuple):
    """Further inputs of the backward kernels."""

    d_out: Array  # [N,D] compute type
    inverse: Array  # [H,N] float32, 1 / sum of a query's scores
    mean: Array  # [H,N] float32, d_out · out


def _whole(x: Array) -> Any:
    return pl.BlockSpec(x.shape, lambda tile, head, part: (0,) * x.ndim)


def _of_head(x: Any, heads: int) -> Any:
    """The columns of a head of [n,H·K]."""
    return pl.BlockSpec((x.shape[0], x.shape[1] // heads), lambda tile, head, part: (0, head))


def _row_of_head(x: Any) -> Any:
    """The row of a head of [H,N]."""
    return pl.BlockSpec((None, x.shape[1]), lambda tile, head, part: (head, 0))


def _run(
    kernel: Any, plan: Plan, sight: Sight, given: _Given, gradient: _Gradient | None,
    by_cell: list[tuple[int, Any]], scale: bool, parts: int = 1,
) -> Any:  # fmt: skip
    """A program for each tile, head and part of the kinds.

    Args:
        by_cell: width of all heads and type of results [N,width].
        scale: whether the second result is of the kind of `_Given.scale`.
    """
    cells, heads = given.value.shape[0], given.scale.shape[0]
    columns, row = _of_head(given.value, heads), _row_of_head(given.scale)
    vectors = None
    if given.vectors is not None:
        of_kinds = _of_head(given.vectors.key, heads)
        vectors = Vectors(_whole(given.vectors.shares), of_kinds, of_kinds)
    shapes: list[Any] = [jax.ShapeDtypeStruct((cells, w), dtype) for w, dtype in by_cell]  # type: ignore[no-untyped-call]
    specs = [_of_head(shape, heads) for shape in shapes]
    if scale:
        shapes.insert(1, jax.ShapeDtypeStruct(given.scale.shape, jnp.float32))  # type: ignore[no-untyped-call]
        specs.insert(1, row)
    is_gpu = jax.default_backend() != "cpu"

    def named(*refs: Any) -> None:
        kernel(plan, *refs)

    named.__name__ = f"{plan.pattern}{kernel.__name__}"  # by which a profile lists it
    call = pl.pallas_call(
        named,
        grid=(-(-cells // TILE), heads, parts),
        in_specs=(
            jax.tree.map(_whole, sight),
            _Given(columns, columns, columns, row, vectors),
            None if gradient is None else _Gradient(columns, row, row),
        ),
        out_specs=specs,
        out_shape=shapes,
        interpret=not is_gpu,
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1) if is_gpu else None,
        name=named.__name__,
    )
    return call(sight, given, gradient)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    plan: Plan, q: Array, k: Array, v: Array, scale: Array, vectors: Vectors | None,
    sight: Sight,
) -> Array:  # fmt: skip
    return _forward(plan, q, k, v, scale, vectors, sight)[0]


Residuals = tuple[_Given, Sight, tuple[Array, ...], Array]


def _forward(
    plan: Plan, q: Array, k: Array, v: Array, scale: Array, vectors: Vectors | None,
    sight: Sight,
) -> tuple[Array, Residuals]:  # fmt: skip
    given = _Given(q, k, v, scale, vectors)
    parts = 1 if v.dtype == jnp.float32 else 2  # of the output, so that d_out · out is exact
    results = [(v.shape[1], v.dtype)] * parts
    out, inverse, *rest = _run(_forward_kernel, plan, sight, given, None, results, True)
    return out, (given, sight, (out, *rest), inverse)


def _backward(plan: Plan, residuals: Residuals, d_out: Array) -> tuple[Any, ...]:
    given, sight, out, inverse = residuals
    vectors, heads, cells = given.vectors, *given.scale.shape
    products = sum(part.astype(jnp.float32) for part in out) * d_out.astype(jnp.float32)
    mean = jnp.sum(products.reshape(cells, heads, -1), axis=2)
    gradient = _Gradient(d_out, inverse, mean.T)
    like = [(x.shape[1], x.dtype) for x in (given.query, given.key, given.value)]
    kinds = 0 if vectors is None else vectors.key.shape[0]
    of_kinds = [(heads * kinds, jnp.float32)] * (2 if kinds else 0)
    d_q, d_scale, *sums = _run(
        _by_query_kernel, plan, sight, given, gradient, [like[0], *of_kinds], True,
        max(1, kinds // KINDS_AT_ONCE),
    )  # fmt: skip
    d_k, d_v = _run(_by_key_kernel, plan, sight, given, gradient, like[1:], False)
    d_vectors = None
    if vectors is not None:
        shares, logits = sums
        both = (_by_kind(logits, _scaled_units(given), heads), _by_kind(shares, d_out, heads))
        d_key, d_value = (x.astype(vectors.key.dtype) for x in both)
        d_vectors = Vectors(jnp.zeros_like(vectors.shares), d_key, d_value)
    return d_q, d_k, d_v, d_scale, d_vectors, None


def _scaled_units(given: _Given) -> Array:
    """The factors of keys. → [N,D] compute type"""
    heads, cells = given.scale.shape
    units = unit(given.query.reshape(cells, heads, -1)) * given.scale.T[..., None]
    return units.reshape(given.query.shape).astype(given.query.dtype)


def _by_kind(sums: Array, x: Array, heads: int) -> Array:
    """Sums over cells, by kind and head. [N,H·T] float32, [N,D] → [T,D] float32

    Products of all heads with all heads: a GPU makes them faster than it pads what a product for
    each head would need.
    """
    high = sums.astype(x.dtype)
    parts = [high] if x.dtype == jnp.float32 else [high, (sums - high).astype(x.dtype)]
    total = sum(
        jnp.einsum("nt,nd->td", p, x, precision="highest", preferred_element_type=jnp.float32)
        for p in parts
    )
    by_head = jnp.reshape(total, (heads, sums.shape[1] // heads, heads, -1))
    return jnp.einsum("hthk->thk", by_head).reshape(-1, x.shape[1])


_attend.defvjp(_forward, _backward)
