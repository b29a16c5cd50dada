"""Attention by rows on a processor: the library of confluence/src, as operations of JAX.

The same results as the dense path of attention.py, in forward and gradient, computed from the pairs
of cells that a pattern allows and from no other: a few percent of all. The contexts of a batch are
shared among XLA's threads, each computed by one, so the bits do not depend on their number.

Cost: O(pairs·D + N·D + n·T·D) for each pattern, T kinds of edges; no array is larger than a row's
or a column's pairs, or the vectors of the kinds.
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

from confluence.model.attention import KeyVectors, no_key_vectors

LIBRARY = Path(__file__).parent / "_attention.so"
PATTERNS = {"outbound": 0, "inbound": 1, "column": 2}  # enum attention_pattern


class Layout(NamedTuple):
    """Where the cells of a batch are, and which rows look at which; shared by all layers."""

    row_ids: Array  # [N] int32, within the context
    column_ids: Array  # [N] int32
    parents: Array  # [Rn,P] int32, within the context; none from its number of rows on
    kinds: Array  # [Rn,P] int32, of the vectors that the key in a slot adds
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
    query: Array, key: Array, value: Array, tau: Array, keys: KeyVectors | None = None, *,
    layout: Layout, pattern: str,
) -> Array:  # fmt: skip
    """Softmax attention along one pattern. [N,D] each, [H] → [N,D] in the type of `value`.

    Args:
        keys: what foreign keys add; None: nothing.
    """
    _register()
    q, k, v = (x.astype(jnp.float32) for x in (query, key, value))
    known = no_key_vectors(key.shape[1]) if keys is None else keys
    return _attend(PATTERNS[pattern], q, k, v, tau, known, layout).astype(value.dtype)


def _float32(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)  # type: ignore[no-untyped-call]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    pattern: int, q: Array, k: Array, v: Array, tau: Array, keys: KeyVectors, layout: Layout
) -> Array:
    call: Any = jax.ffi.ffi_call("confluence_attention_forward", _float32(v.shape))
    out: Array = call(q, k, v, tau, *layout, *keys, pattern=np.int32(pattern))
    return out


Residuals = tuple[Array, Array, Array, Array, KeyVectors, Layout]


def _forward(
    pattern: int, q: Array, k: Array, v: Array, tau: Array, keys: KeyVectors, layout: Layout
) -> tuple[Array, Residuals]:
    return _attend(pattern, q, k, v, tau, keys, layout), (q, k, v, tau, keys, layout)


def _backward(
    pattern: int, residuals: Residuals, d_out: Array
) -> tuple[Array, Array, Array, Array, KeyVectors, None]:
    q, k, v, tau, keys, layout = residuals
    contexts = layout.context_cells.shape[0] - 1
    cells, by_context = _float32(v.shape), _float32((contexts, *tau.shape))
    by_kind = _float32((contexts, *keys.key.shape))
    shapes = (cells, cells, cells, by_context, by_kind, by_kind)
    call: Any = jax.ffi.ffi_call("confluence_attention_backward", shapes)
    d_q, d_k, d_v, *parts = call(
        q, k, v, tau, *layout, *keys, d_out, pattern=np.int32(pattern)
    )  # fmt: skip
    d_tau, d_key, d_value = (jnp.sum(part, axis=0) for part in parts)
    return d_q, d_k, d_v, d_tau, KeyVectors(d_key, d_value), None


_attend.defvjp(_forward, _backward)
