"""Attention by rows on a processor: the library of confluence/src, as operations of JAX.

The same results as the dense path of attention.py, in forward and gradient, computed from the pairs
of cells that a pattern allows and from no other: a few percent of all. The contexts of a batch are
shared among XLA's threads, each computed by one, so the bits do not depend on their number.

Cost: O(pairs·D + N·D) for each pattern, and no array is larger than a row's or a column's pairs.
"""

from __future__ import annotations

import ctypes
import functools
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LIBRARY = Path(__file__).parent / "_attention.so"
PATTERNS = {"outbound": 0, "inbound": 1, "column": 2}  # enum attention_pattern


class Layout(NamedTuple):
    """Where the cells of a batch are, and which rows look at which; shared by all layers."""

    row_ids: Array  # [N] int32, within the context
    column_ids: Array  # [N] int32
    parents: Array  # [Rn,P] int32, within the context; none from its number of rows on
    is_cell: Array  # [N] bool, False at padding
    context_cells: Array  # [n+1] int32, first cell of each context
    context_rows: Array  # [n+1] int32, first row


@functools.cache
def is_available() -> bool:
    """Is there a library beside this file? A wheel has one, a source tree has none."""
    return LIBRARY.exists()


@functools.cache
def _register() -> None:
    library = ctypes.CDLL(str(LIBRARY))
    for name in ("forward", "backward"):
        function = getattr(library, f"confluence_attention_{name}")
        target = jax.ffi.pycapsule(function)  # type: ignore[no-untyped-call]
        jax.ffi.register_ffi_target(f"confluence_attention_{name}", target, platform="cpu")


def attend(
    query: Array, key: Array, value: Array, tau: Array, *, layout: Layout, pattern: str
) -> Array:
    """Softmax attention along one pattern. [N,D] each, [H] → [N,D] in the type of `value`."""
    _register()
    q, k, v = (x.astype(jnp.float32) for x in (query, key, value))
    return _attend(PATTERNS[pattern], q, k, v, tau, layout).astype(value.dtype)


def _float32(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)  # type: ignore[no-untyped-call]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(pattern: int, q: Array, k: Array, v: Array, tau: Array, layout: Layout) -> Array:
    call: Any = jax.ffi.ffi_call("confluence_attention_forward", _float32(v.shape))
    out: Array = call(q, k, v, tau, *layout, pattern=np.int32(pattern))
    return out


Residuals = tuple[Array, Array, Array, Array, Layout]


def _forward(
    pattern: int, q: Array, k: Array, v: Array, tau: Array, layout: Layout
) -> tuple[Array, Residuals]:
    return _attend(pattern, q, k, v, tau, layout), (q, k, v, tau, layout)


def _backward(
    pattern: int, residuals: Residuals, d_out: Array
) -> tuple[Array, Array, Array, Array, None]:
    q, k, v, tau, layout = residuals
    contexts = layout.context_cells.shape[0] - 1
    cells, by_context = _float32(v.shape), _float32((contexts, *tau.shape))
    call: Any = jax.ffi.ffi_call("confluence_attention_backward", (cells, cells, cells, by_context))
    d_q, d_k, d_v, d_tau = call(q, k, v, tau, *layout, d_out, pattern=np.int32(pattern))
    return d_q, d_k, d_v, jnp.sum(d_tau, axis=0), None


_attend.defvjp(_forward, _backward)
