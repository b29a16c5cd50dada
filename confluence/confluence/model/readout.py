"""The readout: the target of each context looks at all of its context's cells.

Attention along foreign keys carries a cell over one of them, so that from a row that is three joins
away it needs three layers to come to the target. The readout is one step from anywhere.

All heads look at the same vectors, the normed cells, with queries as wide as these (one head of
keys and values, Shazeer 2019): no product of a matrix with all cells. Logits are
τ·log(1 + number of cells)·cos(q, x) within ±40, as along the patterns (attention.py).

Contexts stand side by side and have from one cell to thousands. They are laid out in tiles of a
few cells of one context each; a tile's scores are products, and sums over a context's tiles finish.

Cost: O(N·H·D), and O(n·T·H·D) on a GPU, which sums by products, in a fixed order.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from confluence.model.attention import NORM_FLOOR, scale_of, unit
from confluence.model.cells import Cells, owners_of
from confluence.model.gather import arrange, look_up, sum_by

TILE = 16  # cells


class Tiles(NamedTuple):
    """Where the cells of contexts are in T tiles; shared by all layers."""

    cells: Array  # [T·TILE] int32, cell at each place; -1 if there is none
    places: Array  # [N] int32, place of each cell; -1 behind the last context
    is_key: Array  # [T,TILE] bool, none in a context without a target
    owners: Array  # [T] int32, the context of each; n behind the last
    key_count: Array  # [n] float32, cells of each context


def make_tiles(cells: Cells) -> Tiles:
    """As many tiles for each context as it has cells, and room for whatever contexts may come."""
    c = cells.contexts
    n, N = c.targets.shape[0], c.of_cell.shape[0]
    T = N // TILE + n
    needed = -(-jnp.diff(c.cell_starts) // TILE)  # [n]
    starts = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(needed)])  # [n+1]
    owners = owners_of(starts, T)
    t, last = jnp.arange(T), jnp.append(c.cell_starts, N)  # the padding is of no context
    first = last[owners] + (t - starts[owners]) * TILE
    at = first[:, None] + jnp.arange(TILE)  # [T,TILE]
    is_cell = (owners < n)[:, None] & (at < last[owners + 1][:, None])
    at = jnp.where(is_cell, at, -1)
    within = jnp.arange(N) - last[c.of_cell]
    places = jnp.where(c.of_cell < n, starts[c.of_cell] * TILE + within, -1)
    is_asked = jnp.append(c.targets < N, False)[owners]
    is_key = is_cell & cells.is_cell[at] & is_asked[:, None]
    count = sum_by(jnp.sum(is_key, axis=1, dtype=jnp.float32), owners, n)
    return Tiles(at.reshape(-1).astype(jnp.int32), places.astype(jnp.int32), is_key, owners, count)


def read_out(query: Array, x: Array, tau: Array, tiles: Tiles) -> Array:
    """The readout of each context, 0 if it has no target.

    Args:
        query: [n,H,D]. x: [N,D], normed. tau: [H] float32, τ.

    Returns: [n,H,D] float32.
    """
    n, heads, width = query.shape
    scale = scale_of(tiles.key_count, tau)  # [n,H]
    wanted = (unit(query) * scale[..., None]).reshape(n, heads * width)
    q = look_up(wanted, tiles.owners).reshape(-1, heads, width)  # [T,H,D]
    k = arrange(x.astype(jnp.float32), tiles.cells, tiles.places).reshape(-1, TILE, width)
    size = jax.lax.rsqrt(jnp.maximum(jnp.sum(k * k, axis=2), NORM_FLOOR**2))  # [T,TILE]
    logits = jnp.einsum("thd,tsd->ths", q, k) * size[:, None]
    scores = jnp.where(tiles.is_key[:, None], jnp.exp(logits), 0.0)  # [T,H,TILE]
    total = sum_by(jnp.sum(scores, axis=2), tiles.owners, n)[..., None]  # [n,H,1]
    out = sum_by(jnp.einsum("ths,tsd->thd", scores, k), tiles.owners, n)
    return out / jnp.where(total > 0, total, 1.0)
