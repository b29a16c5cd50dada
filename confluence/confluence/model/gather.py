"""Rows by index, and sums by index, with gradients that are fast and in a fixed order.

If many indices are equal, a sum by index is over thousands of rows. On a processor they are added
one by one; a GPU would add all at once, which is slow if many meet and has no fixed order, so there
the sum is a product with a one-hot matrix, unless that is large; a NaN in one row is then in all
sums.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

ONE_HOT_LIMIT = 4096  # most sums that are a product on a GPU


def look_up(table: Array, ids: Array) -> Array:
    """Rows of a table, in float32. [m,...], [...] int32 → [...,...]

    A row's gradient is a sum over all that took it, maybe most of the batch: in bfloat16 such a sum
    loses up to a tenth.
    """
    rows = table.astype(jnp.float32)
    if _adds(table.shape[0]):
        return rows[ids]
    return look_up_by_product(rows, ids, table.dtype)


def sum_by(x: Array, ids: Array, count: int) -> Array:
    """Sums of rows that have one index; those from `count` on are left out. [N,...] float32, [N]
    int32 → [count,...]"""
    if _adds(count):
        return jnp.zeros((count, *x.shape[1:]), x.dtype).at[ids].add(x, mode="drop")
    return _sum_by_product(x, ids, count, x.dtype)


def _adds(count: int) -> bool:
    return jax.default_backend() == "cpu" or count > ONE_HOT_LIMIT


def _sum_by_product(x: Array, ids: Array, count: int, dtype: jnp.dtype) -> Array:
    one_hot = (ids[:, None] == jnp.arange(count)).astype(dtype)  # [N,m]
    flat = x.reshape(x.shape[0], -1).astype(dtype)
    total = jnp.einsum(
        "nm,nd->md", one_hot, flat, precision="highest", preferred_element_type=jnp.float32
    )
    return total.reshape(count, *x.shape[1:])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def look_up_by_product(rows: Array, ids: Array, dtype: jnp.dtype) -> Array:
    """Rows by index, whose gradient is a product with a one-hot matrix, in `dtype` summed in
    float32. [m,...] float32, [...] → [...,...]"""
    return rows[ids]


def _look_up_forward(
    rows: Array, ids: Array, dtype: jnp.dtype
) -> tuple[Array, tuple[Array, Array]]:
    return rows[ids], (rows, ids)


def _look_up_backward(
    dtype: jnp.dtype, residuals: tuple[Array, Array], d_out: Array
) -> tuple[Array, None]:
    rows, ids = residuals
    d_rows = d_out.reshape(-1, *rows.shape[1:])
    return _sum_by_product(d_rows, ids.reshape(-1), rows.shape[0], dtype), None


look_up_by_product.defvjp(_look_up_forward, _look_up_backward)


@jax.custom_vjp
def arrange(x: Array, there: Array, back: Array) -> Array:
    """Rows in another order, 0 where `there` is -1. [M,D], [L], [M] → [L,D].

    Each row goes to one place at most, `back`, so the gradient is a gather too, and no
    scatter, as autodiff would have it.
    """
    return _take(x, there)


def _take(x: Array, index: Array) -> Array:
    return jnp.where(index[:, None] >= 0, x[jnp.maximum(index, 0)], 0)


arrange.defvjp(
    lambda x, there, back: (_take(x, there), back),
    lambda back, d_out: (_take(d_out, back), None, None),
)
