"""Attention: masks by hand, and hand-written gradients against those of autodiff."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from confluence.model.attention import (
    LOGIT_LIMIT,
    attend,
    block_size,
    query_scale,
)


def plain(query: Array, key: Array, value: Array, mask: Array, tau: Array) -> Array:
    """The same attention as a softmax over [B,Q,S,H], left to autodiff."""
    heads = tau.shape[0]
    q, k, v = (x.reshape(*x.shape[:2], heads, -1) for x in (query, key, value))
    q, k = (x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-6) for x in (q, k))
    scale = jnp.log1p(mask.sum(-1))[..., None] * tau  # [B,Q,H]
    logits = jnp.einsum("bqhk,bshk->bqsh", q, k) * jnp.clip(scale, -40, 40)[:, :, None]
    shares = jax.nn.softmax(jnp.where(mask[..., None], logits, -1e9), axis=2)
    return jnp.einsum("bqsh,bshk->bqhk", shares, v).reshape(query.shape)


@pytest.mark.parametrize(("tau", "block"), [(1.0, 4), (3.0, 1), (100.0, 2)])
def test_forward_and_gradients_equal_a_plain_softmax(tau: float, block: int) -> None:
    B, Q, S, D, H = 4, 7, 12, 8, 2
    keys = jax.random.split(jax.random.key(0), 5)
    query, out = (jax.random.normal(k, (B, Q, D)) for k in keys[:2])
    key, value = (jax.random.normal(k, (B, S, D)) for k in keys[2:4])
    mask = jax.random.bernoulli(keys[4], 0.3, (B, Q, S)) | jnp.eye(Q, S, dtype=bool)
    temperature = jnp.full(H, tau)

    def dot(function, *args: Array) -> Array:  # type: ignore[no-untyped-def]
        return jnp.sum(function(*args) * out)

    ours = lambda q, k, v, t: attend(q, k, v, mask, t, block=block)  # noqa: E731
    theirs = lambda q, k, v, t: plain(q, k, v, mask, t)  # noqa: E731
    args = (query, key, value, temperature)
    np.testing.assert_allclose(ours(*args), theirs(*args), rtol=1e-4, atol=1e-5)
    found = jax.jit(jax.grad(lambda *a: dot(ours, *a), (0, 1, 2, 3)))(*args)
    expected = jax.jit(jax.grad(lambda *a: dot(theirs, *a), (0, 1, 2, 3)))(*args)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_a_query_of_zeros_has_finite_gradients() -> None:
    zeros, mask = jnp.zeros((1, 3, 4)), jnp.ones((1, 3, 3), bool)
    gradient = jax.grad(lambda x: jnp.sum(attend(x, x, x, mask, jnp.ones(2), block=1)))(zeros)
    assert np.isfinite(gradient).all()


def test_logits_are_bounded() -> None:
    scale = query_scale(jnp.ones((1, 2, 100), bool), jnp.asarray([1.0, 1e6, -1e6]))
    assert scale.shape == (1, 3, 2)
    np.testing.assert_allclose(scale[0, :, 0], [np.log(101), LOGIT_LIMIT, -LOGIT_LIMIT], rtol=1e-6)


def test_blocks_divide_the_batch() -> None:
    assert [block_size(b) for b in (1, 7, 8)] == [1, 1, 2]
