"""The readout, and rows and sums by index: equal to plain loops, in values and gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from test_row_attention import KEY_STARTS, Contexts

from confluence.model import gather
from confluence.model.cells import read_cells
from confluence.model.gather import look_up, look_up_by_product, sum_by
from confluence.model.readout import make_tiles, read_out

D, H = 8, 2


def in_plain_loops(contexts: Contexts, query: Array, x: Array, tau: Array) -> Array:
    """Of each context with a target, by softmax; 0 of others."""
    found = []
    for t, (first, last) in enumerate(zip(contexts.starts, contexts.starts[1:], strict=False)):
        at = np.flatnonzero(contexts.is_cell[first[0] : last[0]]) + first[0]
        if contexts.targets[t] < 0:
            found.append(jnp.zeros((H, D)))
            continue
        scale = jnp.clip(tau * np.log1p(len(at)), -40, 40)
        unit = x[at] / jnp.linalg.norm(x[at], axis=1, keepdims=True)
        wanted = query[t] / jnp.linalg.norm(query[t], axis=1, keepdims=True)
        share = jax.nn.softmax(scale[:, None] * (wanted @ unit.T), axis=1)
        found.append(share @ x[at])
    return jnp.stack(found)


def is_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum as on a GPU."""
    monkeypatch.setattr(gather, "_adds", lambda count: False)


@pytest.mark.parametrize("cells", [10, 45, 200])
@pytest.mark.parametrize("by_product", [False, True])
def test_each_target_looks_at_all_cells_of_its_context(
    cells: int, by_product: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_product:
        is_product(monkeypatch)
    contexts = Contexts(cells, S=cells, R=1 + cells // 3)
    contexts.targets[4] = -1  # cells without a target
    of_query, of_x, of_out = jax.random.split(jax.random.key(cells), 3)
    n = len(contexts.targets)
    query = jax.random.normal(of_query, (n, H, D))
    x = jax.random.normal(of_x, (len(contexts.row_ids), D))
    tau, out = jnp.array([0.7, 30.0]), jax.random.normal(of_out, (n, H, D))

    arrays = {name: jnp.asarray(array) for name, array in contexts.arrays().items()}

    def tiled(query: Array, x: Array, tau: Array) -> Array:
        return read_out(query, x, tau, make_tiles(read_cells(arrays, KEY_STARTS)))

    def total(function: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda *a: jnp.sum(function(*a) * out), (0, 1, 2)))

    expected, found = in_plain_loops(contexts, query, x, tau), jax.jit(tiled)(query, x, tau)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.all(np.asarray(found)[[2, 4]] == 0)
    _, expected = total(lambda *a: in_plain_loops(contexts, *a))(query, x, tau)
    _, found = total(tiled)(query, x, tau)
    for name, one, other in zip(("query", "x", "tau"), found, expected, strict=True):
        np.testing.assert_allclose(
            one, other, atol=1e-4 * float(jnp.abs(other).max()), err_msg=name
        )


def test_sums_by_index_are_equal_by_products(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    x = jnp.asarray(draw.normal(size=(40, 3, 2)), jnp.float32)
    ids = jnp.asarray(draw.integers(0, 7, 40), jnp.int32)  # 5 and 6 are left out
    expected = np.zeros((5, 3, 2), np.float32)
    for row, at in zip(np.asarray(x), np.asarray(ids), strict=True):
        if at < 5:
            expected[at] += row
    np.testing.assert_allclose(sum_by(x, ids, 5), expected, rtol=1e-5, atol=1e-6)
    is_product(monkeypatch)
    np.testing.assert_allclose(sum_by(x, ids, 5), expected, rtol=1e-5, atol=1e-6)


def test_rows_looked_up_by_a_product_are_the_same_with_the_same_gradient() -> None:
    draw = np.random.default_rng(0)
    table = jnp.asarray(draw.normal(size=(7, 5)), jnp.float32)
    ids = jnp.asarray(draw.integers(0, 7, (3, 11)), jnp.int32)
    weights = jnp.asarray(draw.normal(size=(3, 11, 5)), jnp.float32)

    def gradient(take: Any) -> Any:
        total = jax.value_and_grad(lambda rows: jnp.sum(jnp.sin(take(rows)) * weights))
        return jax.jit(total)(table)

    plain, plain_gradient = gradient(lambda rows: look_up(rows, ids))
    product, product_gradient = gradient(lambda rows: look_up_by_product(rows, ids, table.dtype))
    assert float(product) == float(plain)
    np.testing.assert_allclose(product_gradient, plain_gradient, rtol=1e-5, atol=1e-6)
