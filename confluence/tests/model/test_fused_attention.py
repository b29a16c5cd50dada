"""The kernels of the fused attention, interpreted: what test_row_attention.py does not test."""

from __future__ import annotations

import contextlib
import re
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_row_attention import Contexts, assert_close, draws, values_and_gradients

from confluence.model import fused_attention
from confluence.model.cells import read_cells
from confluence.model.patterns import fused_patterns
from confluence.model.sight import edge_shares, read_rows

ALONG = ("outbound", "inbound", "column")


def assert_equal_to_dense(contexts: Contexts, D: int, H: int, relative: float = 1e-4) -> None:
    arguments, out = draws(contexts, D, H)
    is_cell = np.arange(len(out)) < contexts.starts[-1, 0]
    weights = dict.fromkeys(ALONG, out * is_cell[:, None])
    weights["target_column"] = jnp.zeros((len(contexts.targets), D))
    expected, fused = (
        values_and_gradients(contexts, path, arguments, weights) for path in ("dense", "fused")
    )
    for pattern in ALONG:
        found, other = (np.asarray(x[0][pattern])[is_cell] for x in (fused, expected))
        np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-5, err_msg=pattern)
        pairs = zip(*(jax.tree.leaves(x[1][pattern]) for x in (fused, expected)), strict=True)
        for one, other in pairs:
            assert_close(one, other, relative, pattern)


@pytest.mark.release
def test_rows_of_31_parents_by_more_kinds_of_keys_than_a_program_holds() -> None:
    """Several keys to one parent, and sums by kind in two parts. Gradients of κ are sums of many
    terms that cancel: attention by rows is off as far.
    """
    assert fused_attention.KINDS_AT_ONCE < 100
    starts = jnp.array([0, 31, 62, 70, 100], jnp.int32)
    assert_equal_to_dense(Contexts(2, R=12, S=50, n=3, P=31, key_starts=starts), 32, 2, 5e-4)


def test_a_row_that_everything_points_at_and_columns_longer_than_a_block() -> None:
    contexts = Contexts(5, S=150, R=60, C=2, n=5)
    rows = np.arange(len(contexts.parents))
    contexts.parents[:, 0] = np.where(rows < contexts.starts[-1, 1], 0, 65535)
    assert (np.diff(contexts.starts[:, 0]) > 2 * fused_attention.BLOCK).sum() >= 1
    assert_equal_to_dense(contexts, 32, 2)


@pytest.mark.release
def test_a_batch_of_one_cell_and_rows_without_foreign_keys() -> None:
    contexts = Contexts(0, n=1)
    contexts.row_ids, contexts.is_cell = np.zeros(1, np.int64), np.ones(1, bool)
    contexts.column_ids, contexts.parents = np.zeros(1, np.int32), np.full((1, 4), 65535)
    contexts.tables, contexts.targets = np.zeros(1, np.uint16), np.zeros(1, np.int32)
    contexts.starts = np.array([[0, 0], [1, 1]], np.int32)
    (q, k, v, *others), _ = draws(contexts, 16, 2)
    for name, found in contexts.attentions("fused")(q, k, v, *others).items():
        np.testing.assert_allclose(found, v, rtol=1e-6, err_msg=name)
    none = Contexts(3)
    none.parents = np.zeros((len(none.parents), 0), np.int32)
    assert_equal_to_dense(none, 16, 2)


def test_half_precision_differs_from_dense_by_its_rounding() -> None:
    """Gradients too, also of τ and κ, most of whose terms cancel."""
    contexts = Contexts(1, S=60, R=20, n=3)
    (q, k, v, tau, keys), out = draws(contexts, 32, 2)
    others = (tau / 4, keys)  # a logit of 40 has an error of a tenth by itself
    halves = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    same = [x.astype(jnp.float32) for x in halves]
    is_cell = (np.arange(len(q)) < contexts.starts[-1, 0])[:, None]
    weights = {**dict.fromkeys(ALONG, out * is_cell), "target_column": out[:3] * 0}
    exact, exact_gradients = values_and_gradients(contexts, "dense", (*same, *others), weights)
    found, gradients = values_and_gradients(contexts, "fused", (*halves, *others), weights)
    for name in ALONG:
        assert found[name].dtype == jnp.bfloat16
        one, other = (np.where(is_cell, x[name], 0).astype(np.float32) for x in (found, exact))
        assert_close(one, other, 0.01, name)
        *one, keys = gradients[name]
        *other, exact_keys = exact_gradients[name]
        parts = ("query", "key", "value", "tau", "kappa", "nu")
        for part, x, y in zip(parts, (*one, *keys), (*other, *exact_keys), strict=True):
            assert_close(x.astype(jnp.float32), y, 0.02, f"{name} {part}")


def test_the_same_bits_twice() -> None:
    contexts = Contexts(3, S=20, R=6, n=3)
    arguments, _ = draws(contexts, 16, 2)
    gradient = gradient_of(contexts)
    one, other = (gradient(contexts.arrays(), *arguments) for _ in range(2))
    for first, second in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_array_equal(first, second)


def gradient_of(contexts: Contexts) -> Any:
    """Of the three patterns one after the other, as a function of arrays and operands."""

    def total(arrays: Any, q: Any, k: Any, v: Any, tau: Any, keys: Any) -> Any:
        p = fused_patterns(read_cells(arrays, contexts.key_starts), contexts.kinds)
        out = p.column(p.inbound(p.outbound(q, k, v, tau, keys), k, v, tau, keys), k, v, tau)
        return jnp.sum(out.astype(jnp.float32) ** 2)

    return jax.jit(jax.grad(total, argnums=(1, 2, 3, 4, 5)))


def test_no_array_has_a_number_for_each_pair_of_cells() -> None:
    """Neither N x N nor S x S, whatever stands around the kernels."""
    contexts = Contexts(0, S=199, R=60, n=4, C=3)
    arguments, _ = draws(contexts, 32, 2)
    text = str(jax.make_jaxpr(gradient_of(contexts))(contexts.arrays(), *arguments))
    N = len(contexts.row_ids)
    shapes = [tuple(map(int, s.split(","))) for s in re.findall(r"\[(\d+(?:,\d+)+)\]", text)]
    assert (N, 32) in shapes
    assert not [s for s in shapes if s.count(N) > 1 or s.count(contexts.S) > 1]
    dense = str(jax.make_jaxpr(contexts.attentions("dense"))(*arguments))
    assert f"[4,{contexts.S},{contexts.S}]" in dense  # so would be found


def test_the_lists_of_rows_are_those_of_a_slow_reading() -> None:
    """By Python sets: what each cell sees outbound and inbound."""
    contexts = Contexts(7)
    arrays = {name: jnp.asarray(x) for name, x in contexts.arrays().items()}
    cells = read_cells(arrays, contexts.key_starts)
    parents = np.asarray(cells.parents_in_batch())
    seen, counts = read_rows(cells.row_ids, cells.parents_in_batch(), cells.is_cell)
    ids, is_cell = np.asarray(cells.row_ids), np.asarray(cells.is_cell)
    of_row = {r: np.flatnonzero(is_cell & (ids == r)).tolist() for r in range(len(parents))}
    place = np.argsort(np.asarray(seen.order))
    for cell in np.flatnonzero(is_cell):
        named = {p for p in parents[ids[cell]] if p < len(parents)}
        outbound = [*chain(*(of_row[r] for r in named | {ids[cell]}))]
        children = {r for r in of_row if ids[cell] in parents[r]}
        inbound = {*chain(*(of_row[r] for r in children)), cell}
        assert counts.outbound[cell] == len(outbound) and counts.inbound[cell] == len(inbound)
        links, at = seen.links, place[cell]
        listed = slice(int(links.children.first[at]), int(links.children.end[at]))
        found = {*np.asarray(links.children.cells)[listed].tolist()}
        assert found | {cell} == inbound - ({*of_row[ids[cell]]} - {cell})
        edges = range(int(links.parents.first[at]), int(links.parents.end[at]))
        first = {int(np.asarray(seen.order)[links.parents.places[e]]) for e in edges}
        assert first == {of_row[r][0] for r in named - {ids[cell]} if of_row[r]}


@pytest.mark.parametrize("has_keys", [True, False])
def test_no_list_points_past_the_end_of_an_array(has_keys: bool) -> None:
    """A processor clamps such an index, a GPU reads memory of another array. In a batch without
    foreign keys, `parents.edges` was one past the last row of shares."""
    contexts = Contexts(7)
    if not has_keys:
        contexts.parents[:] = 65535
    arrays = {name: jnp.asarray(x) for name, x in contexts.arrays().items()}
    cells = read_cells(arrays, contexts.key_starts)
    parents, N = cells.parents_in_batch(), len(contexts.row_ids)
    edge_count = len(edge_shares(parents, cells.kinds, 16))
    seen, _ = read_rows(cells.row_ids, parents, cells.is_cell)
    links = seen.links
    assert links is not None
    up, down = links.parents, links.children
    for name, found, end in (
        ("order", seen.order, N), ("first", seen.first, N), ("last", seen.last, N),
        ("edges", links.edges, edge_count),
        ("parents.end", up.end, len(up.starts)), ("parents.edges", up.edges, edge_count),
        ("children.end", down.end, 1 + len(down.cells)), ("children.cells", down.cells, N),
        ("children.edges", down.edges, edge_count),
    ):  # fmt: skip
        assert int(found.min()) >= 0 and int(found.max()) < end, name


def loops_of(jaxpr: Any) -> int:
    """The loops whose turns the data decides, without those in kernels."""
    found = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        found += name == "while"
        inner = [] if name == "pallas_call" else jax.tree.leaves(list(equation.params.values()))
        found += sum(loops_of(getattr(x, "jaxpr", x)) for x in inner if hasattr(x, "eqns"))
    return found


def test_no_loop_asks_the_data_how_often_it_turns() -> None:
    """Such a loop makes the host wait, as the columns of attention by rows do."""
    contexts = Contexts(3)
    arguments, _ = draws(contexts, 16, 2)
    fused = jax.make_jaxpr(gradient_of(contexts))(contexts.arrays(), *arguments)
    by_rows = jax.make_jaxpr(contexts.attentions("rows"))(*arguments)
    assert loops_of(fused.jaxpr) == 0 < loops_of(by_rows.jaxpr)


def a_gpu_that_is_not_there() -> Any:
    """JAX 0.11 asks which GPU it lowers for, 0.10 assumes one."""
    if jax.__version_info__ <= (0, 10, 2):
        return contextlib.nullcontext()
    sharding: Any = jax.sharding
    device = sharding.AbstractDevice(
        device_kind="NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu"
    )
    return sharding.use_abstract_mesh(sharding.AbstractMesh((1,), ("one",), abstract_device=device))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_every_kernel_can_be_lowered_for_a_gpu(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To what Triton compiles; that it is right there, only a GPU can say."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    contexts = Contexts(0, S=90, R=30)
    (q, k, v, *others), _ = draws(contexts, 64, 2)
    operands = [x.astype(dtype) for x in (q, k, v)]
    with a_gpu_that_is_not_there():
        traced = gradient_of(contexts).trace(contexts.arrays(), *operands, *others)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    names = {*re.findall(r'name = "(\w+_kernel)"', text)}
    kernels = ("forward", "by_query", "by_key")
    assert names == {f"{pattern}_{kernel}_kernel" for pattern in ALONG for kernel in kernels}
