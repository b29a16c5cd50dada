"""Attention among cells: the three masks, and the dense path that applies them.

A cell looks along the database's structure, one pattern after the other:

    outbound   own row, and the rows that its row's foreign keys point at
    inbound    the rows whose foreign keys point at its row
    column     the cells of its column, in any row

Every mask leaves padding out and includes the diagonal, so no softmax runs over nothing. Masks are
made once per batch from row ids, columns and the adjacency, and all layers share them.

Along a foreign key, outbound and inbound, a cell has the key k + κ and the value v + ν. κ, a unit
vector within each head, and ν are of the foreign key (`KeyVectors`); if several join a
pair of rows, they are means; a row that points at itself is joined to itself.

Logits are τ·log(1 + number of keys)·(cos(q, k) + q·κ/‖q‖). τ·log(1 + n) is cut to ±40 and so is the
logit: exp cannot overflow and no pass over the scores for their maximum is needed. A masked score
would be exp(-1e9) = 0 and is set to that 0. Scores are never kept for the backward pass; they are
made again from q and k, a few sequences at a time, so that they stay in a processor's cache; on GPU
the block is the batch.

The contexts of a batch come as B sequences of S cells, `Windows` of the one axis on which they
stand side by side: masks over all pairs of a batch would be n times as large.

Cost: O(B·H·S²·K) for each pattern, whatever the masks allow. row_attention.py does less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

LOGIT_LIMIT = 40.0  # bound of τ·log(1 + number of keys), and of every logit
NORM_FLOOR = 1e-6  # smallest norm that a vector is divided by


class KeyVectors(NamedTuple):
    """The vectors that each foreign key adds, by kind; kind 0 has no key, and zeros."""

    key: Array  # [T,D] float32, κ: unit vectors within heads
    value: Array  # [T,D] float32, ν


def no_key_vectors(width: int) -> KeyVectors:
    """Of a pattern that follows no foreign key."""
    return KeyVectors(*jnp.zeros((2, 1, width), jnp.float32))


class EdgeVectors(NamedTuple):
    """The vectors that foreign keys of each cell's row add to cells of the rows that they name."""

    rows: Array  # [B,S,P] int32, row that is named in each slot, once; R where none is
    key: Array  # [B,S,P,D] float32
    value: Array  # [B,S,P,D] float32


class Masks(NamedTuple):
    """What each cell may look at. True where cell i (axis 1) attends to cell j (axis 2)."""

    outbound: Array  # [B,S,S] bool
    inbound: Array  # [B,S,S] bool
    column: Array  # [B,S,S] bool


def make_masks(row_ids: Array, column_ids: Array, adjacency: Array, is_cell: Array) -> Masks:
    """The three masks of a batch.

    Args:
        row_ids: [B,S] int32, sequence-local row of each cell.
        column_ids: [B,S] int32, global column of each cell.
        adjacency: [B,R,R] uint8, [b,i,j] = 1 iff row i has a foreign key to row j.
        is_cell: [B,S] bool, False at padding.
    """
    sequence_length = row_ids.shape[1]
    is_pair = is_cell[:, :, None] & is_cell[:, None, :]  # [B,S,S]
    diagonal = jnp.eye(sequence_length, dtype=bool)  # [S,S]
    to_rows = jnp.take_along_axis(adjacency, row_ids[:, :, None], axis=1)  # [B,S,R]
    points_at = jnp.take_along_axis(to_rows, row_ids[:, None, :], axis=2) > 0  # [B,S,S]
    same_row = row_ids[:, :, None] == row_ids[:, None, :]
    same_column = column_ids[:, :, None] == column_ids[:, None, :]
    return Masks(
        outbound=(is_pair & (points_at | same_row)) | diagonal,
        inbound=(is_pair & points_at.swapaxes(1, 2)) | diagonal,
        column=(is_pair & same_column) | diagonal,
    )


def adjacency_of(parents: Array) -> Array:
    """[b,i,j] = 1 where row i has the parent j. [B,R,P] int32, none from R on → [B,R,R] uint8"""
    batch, rows, _ = parents.shape
    b = jnp.arange(batch)[:, None, None]
    i = jnp.arange(rows)[None, :, None]
    return jnp.zeros((batch, rows, rows), jnp.uint8).at[b, i, parents].set(1, mode="drop")


def scale_of(key_count: Array, temperature: Array) -> Array:
    """τ·log(1 + number of keys) of queries, cut to ±40. [Q], [H] → [Q,H] float32"""
    return jnp.clip(temperature * jnp.log1p(key_count)[:, None], -LOGIT_LIMIT, LOGIT_LIMIT)


def query_scale(mask: Array, temperature: Array) -> Array:
    """τ_h·log(1 + number of keys) of each query, cut to ±40. [B,Q,S], [H] → [B,H,Q] float32."""
    key_count = jnp.sum(mask, axis=-1, dtype=jnp.float32)  # [B,Q]
    scale = temperature[None, :, None] * jnp.log1p(key_count)[:, None, :]
    return jnp.clip(scale, -LOGIT_LIMIT, LOGIT_LIMIT)


def unit(x: Array, axis: int = -1) -> Array:
    """x / max(‖x‖, 1e-6) over an axis, in float32, of the same shape."""
    x = x.astype(jnp.float32)
    square = jnp.sum(x * x, axis=axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(square, NORM_FLOOR**2))


def split_heads(x: Array, heads: int) -> Array:
    """[B,S,D] → [B,H,K,S]: cells innermost, the layout in which every product below is fast."""
    batch, cells, width = x.shape
    return x.reshape(batch, cells, heads, width // heads).transpose(0, 2, 3, 1)


def join_heads(x: Array) -> Array:
    """[B,H,K,S] → [B,S,D]."""
    batch, heads, head_width, cells = x.shape
    return x.transpose(0, 3, 1, 2).reshape(batch, cells, heads * head_width)


class Edges(NamedTuple):
    """The foreign keys that a pattern follows."""

    row_ids: Array  # [B,S] int32, of the cells
    vectors: EdgeVectors
    is_inbound: bool  # the keys' rows name the query's, and not the other way


def attend(
    query: Array, key: Array, value: Array, mask: Array, temperature: Array, *, block: int,
    edges: Edges | None = None,
) -> Array:  # fmt: skip
    """Softmax attention under a mask.

    Args:
        query: [B,Q,D]. key, value: [B,S,D], before their norms.
        mask: [B,Q,S] bool, at least one True per query.
        temperature: [H] float32, τ.
        block: sequences whose scores exist at once; a divisor of B.
        edges: of a pattern along foreign keys.

    Returns: [B,Q,D] in the type of `value`.
    """
    heads = temperature.shape[0]
    scale = query_scale(mask, temperature)  # [B,H,Q]
    q = unit(split_heads(query, heads), axis=2) * scale[:, :, None, :]  # [B,H,K,Q]
    k = unit(split_heads(key, heads), axis=2)  # [B,H,K,S]
    v = split_heads(value, heads).astype(jnp.float32)  # [B,H,K,S]
    is_inbound = edges is not None and edges.is_inbound
    along = None if edges is None else (edges.row_ids, edges.vectors)

    @jax.checkpoint
    def one_block(args: tuple[Array, Array, Array, Array, Along]) -> Array:
        return masked_softmax(*args, is_inbound=is_inbound)

    out: Array = by_block(one_block, block, (q, k, v, mask, along))
    return join_heads(out).astype(value.dtype)


Along = tuple[Array, EdgeVectors] | None
"""The rows of cells, and what foreign keys add along them."""


def masked_softmax(
    q: Array, k: Array, v: Array, mask: Array, along: Along, *, is_inbound: bool
) -> Array:
    """softmax(q·k under the mask)·v with logits within ±40. [b,H,K,*] float32 → [b,H,K,Q]."""
    logits = jnp.einsum("bhkq,bhks->bhqs", q, k)
    slots = [] if along is None else [*_slots(*along, is_inbound, q.shape[1])]
    for is_edge, key, _ in slots:
        form = "bhkq,bhks->bhqs" if is_inbound else "bhkq,bhkq->bhq"
        more = jnp.einsum(form, q, key)
        more = more if is_inbound else more[..., None]
        logits += jnp.where(is_edge[:, None], more, 0.0)
    logits = jnp.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT)
    scores = jnp.where(mask[:, None], jnp.exp(logits), 0.0)  # [b,H,Q,S]
    out = jnp.einsum("bhqs,bhks->bhkq", scores, v)
    for is_edge, _, value in slots:
        own = jnp.where(is_edge[:, None], scores, 0.0)
        if is_inbound:
            out += jnp.einsum("bhqs,bhks->bhkq", own, value)
        else:
            out += value * jnp.sum(own, axis=-1)[:, :, None]
    return out / jnp.sum(scores, axis=-1)[:, :, None]


def _slots(
    row_ids: Array, vectors: EdgeVectors, is_inbound: bool, heads: int
) -> Iterator[tuple[Array, Array, Array]]:
    """By slot: the pairs [b,Q,S] whose child has its edge there, κ and ν of the child [b,H,K,S]."""
    for p in range(vectors.rows.shape[2]):
        is_edge = vectors.rows[:, :, None, p] == row_ids[:, None, :]  # [b,child,parent]
        key, value = (split_heads(x[:, :, p], heads) for x in (vectors.key, vectors.value))
        yield is_edge.swapaxes(1, 2) if is_inbound else is_edge, key, value


def by_block(function, block: int, args):  # type: ignore[no-untyped-def]
    """Apply a function to `block` sequences at a time, one after the other."""
    batch = args[0].shape[0]
    if block >= batch:
        return function(args)
    blocks = jax.tree.map(lambda a: a.reshape(batch // block, block, *a.shape[1:]), args)
    out = jax.lax.map(function, blocks)
    return jax.tree.map(lambda a: a.reshape(batch, *a.shape[2:]), out)


def block_size(batch: int) -> int:
    """Sequences whose scores exist at once: 1 or 2 on CPU, else the batch. It divides `batch`."""
    block = 2 if jax.default_backend() == "cpu" else batch
    return max(b for b in range(1, min(block, batch) + 1) if batch % b == 0)
