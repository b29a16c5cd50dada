"""Attention among cells: the three masks, and the dense path that applies them.

A cell looks along the database's structure, one pattern after the other:

    outbound   own row, and the rows that its row's foreign keys point at
    inbound    the rows whose foreign keys point at its row
    column     the cells of its column, in any row

Every mask leaves padding out and includes the diagonal, so no softmax runs over nothing. Masks are
made once per batch from row ids, columns and the adjacency, and all layers share them.

Logits are τ·log(1 + number of keys)·cos(q, k), and τ·log(1 + n) is cut to ±40, so |logit| ≤ 40:
exp cannot overflow and no pass over the scores for their maximum is needed. A masked score would
be exp(-1e9) = 0 and is set to that 0. Scores are never kept for the backward pass; they are made
again from q and k, a few sequences at a time, so that they stay in a processor's cache. On two CPU
cores this is 3 times faster than autodiff of the plain softmax; on GPU the block is the batch.

The contexts of a batch come as B sequences of S cells, `Windows` of the one axis on which they
stand side by side: masks over all pairs of a batch would be n times as large.

Cost: O(B·H·S²·K) for each pattern, whatever the masks allow. row_attention.py does less.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

LOGIT_LIMIT = 40.0  # bound of τ·log(1 + number of keys), and so of every logit
NORM_FLOOR = 1e-6  # smallest norm that a vector is divided by


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


def attend(
    query: Array, key: Array, value: Array, mask: Array, temperature: Array, *, block: int
) -> Array:
    """Softmax attention under a mask.

    Args:
        query: [B,Q,D]. key, value: [B,S,D], before their norms.
        mask: [B,Q,S] bool, at least one True per query.
        temperature: [H] float32, τ.
        block: sequences whose scores exist at once; a divisor of B.

    Returns: [B,Q,D] in the type of `value`.
    """
    heads = temperature.shape[0]
    scale = query_scale(mask, temperature)  # [B,H,Q]
    q = unit(split_heads(query, heads), axis=2) * scale[:, :, None, :]  # [B,H,K,Q]
    k = unit(split_heads(key, heads), axis=2)  # [B,H,K,S]
    v = split_heads(value, heads).astype(jnp.float32)  # [B,H,K,S]
    return join_heads(masked_softmax(block, q, k, v, mask)).astype(value.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def masked_softmax(block: int, q: Array, k: Array, v: Array, mask: Array) -> Array:
    """softmax(q·k under the mask)·v with logits within ±40. [B,H,K,*] float32 → [B,H,K,Q]."""
    return _softmax_forward(block, q, k, v, mask)[0]


Residuals = tuple[Array, Array, Array, Array, Array, Array]


def _scores(q: Array, k: Array, mask: Array) -> Array:
    """exp of the logits, 0 where masked. [b,H,K,Q], [b,H,K,S], [b,Q,S] → [b,H,Q,S]."""
    return jnp.where(mask[:, None], jnp.exp(jnp.einsum("bhkq,bhks->bhqs", q, k)), 0.0)


def _softmax_forward(
    block: int, q: Array, k: Array, v: Array, mask: Array
) -> tuple[Array, Residuals]:
    def one_block(args: tuple[Array, ...]) -> tuple[Array, Array]:
        q, k, v, mask = args
        scores = _scores(q, k, mask)  # [b,H,Q,S]
        total = jnp.sum(scores, axis=-1)[:, :, None]  # [b,H,1,Q]
        return jnp.einsum("bhqs,bhks->bhkq", scores, v) / total, total

    out, total = by_block(one_block, block, (q, k, v, mask))
    return out, (q, k, v, mask, out, total)


def _softmax_backward(
    block: int, residuals: Residuals, d_out: Array
) -> tuple[Array, Array, Array, None]:
    def one_block(args: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        q, k, v, mask, out, total, d_out = args
        d_sum = d_out / total  # [b,H,K,Q]
        d_total = jnp.sum(d_sum * out, axis=2)[:, :, :, None]  # [b,H,Q,1]
        scores = _scores(q, k, mask)  # [b,H,Q,S]
        d_v = jnp.einsum("bhkq,bhqs->bhks", d_sum, scores)
        d_logits = scores * (jnp.einsum("bhkq,bhks->bhqs", d_sum, v) - d_total)
        d_q = jnp.einsum("bhks,bhqs->bhkq", k, d_logits)
        d_k = jnp.einsum("bhkq,bhqs->bhks", q, d_logits)
        return d_q, d_k, d_v

    d_q, d_k, d_v = by_block(one_block, block, (*residuals, d_out))
    return d_q, d_k, d_v, None


masked_softmax.defvjp(_softmax_forward, _softmax_backward)


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
