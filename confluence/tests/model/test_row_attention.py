"""Attention by rows, in JAX and in C: equal to the dense path, whatever the contexts look like."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import headwater
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from small import SMALL
from test_model import LIMIT, STATIC, inputs, random_params, run

from confluence.config import Config, ConfigError
from confluence.data.tasks import device_tables, open_sampler, read_row_shape, to_device
from confluence.data.verification import open_store
from confluence.model import compiled_attention, row_attention
from confluence.model.attention import KeyVectors
from confluence.model.cells import at_targets, read_cells
from confluence.model.loss import TARGET_STYPES
from confluence.model.patterns import (
    Patterns,
    attention_path,
    compiled_patterns,
    dense_patterns,
    fused_patterns,
    row_patterns,
)
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Output, forward, init
from confluence.training import smoke

ROOT = Path(__file__).resolve().parents[3]
F1 = ROOT.parent / "shared" / "data" / "rel-f1"

IS_PROCESSOR = jax.default_backend() == "cpu"
PATHS = ("dense", "rows", "fused", *(["compiled"] if IS_PROCESSOR else []))
on_a_processor = pytest.mark.skipif(not IS_PROCESSOR, reason="tests what runs there only")
PATTERNS = ("outbound", "inbound", "column", "target_column")


WIDTH, PARENTS = 5, 4  # most cells and parents of a row
KEY_STARTS = jnp.array([0, 1, 5, 5, 7], jnp.int32)  # of four tables


class Contexts:
    """Random contexts side by side: rows of 0 to 4 cells in random columns, any edges, cells that
    are hidden, padding inside contexts and behind the last, and one context without cells."""

    def __init__(
        self, seed: int, *, S: int = 45, R: int = 9, C: int = 6, n: int = 5, P: int = PARENTS,
        key_starts: Any = KEY_STARTS,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(seed)
        self.S, self.R = S, R
        self.key_starts, self.kinds = key_starts, 1 + int(key_starts[-1])
        cells, rows, targets, starts = [], [], [], [(0, 0)]
        for t in range(n):
            count = 0 if t == 2 else int(rng.integers(1, R + 1))
            widths = rng.integers(0, 5, count)
            widths[:1] = 3
            ids = np.repeat(np.arange(count), widths)[:S]
            first, row = starts[-1]
            is_cell = rng.random(len(ids)) > 0.2  # dropout makes holes
            is_cell[:1] = True
            targets.append(first if count else -1)
            padding = int(rng.integers(0, 4))
            cells += [(row + r, c) for r, c in zip(ids, is_cell, strict=True)]
            cells += [(0, False)] * min(padding, S - len(ids))
            for row_id in range(count):  # some parents twice, the row itself maybe among them
                distinct = row_id % 3 == 0 and P <= R
                chosen = rng.permutation(R)[:P] if distinct else rng.integers(0, R, P)
                is_edge = (rng.random(P) < 0.5 * (t > 0)) & (chosen < count)
                chosen[0], is_edge[0] = (row_id, True) if row_id == 2 else (chosen[0], is_edge[0])
                if row_id == 5:
                    chosen[1:3], is_edge[1:3] = row_id, True
                rows.append(np.where(is_edge, chosen, 65535))
            starts.append((len(cells), len(rows)))
        cells += [(0, False)] * 11
        rows += [np.full(P, 65535)] * 2
        self.row_ids, self.is_cell = (np.array(x) for x in zip(*cells, strict=True))
        self.column_ids = rng.integers(0, C, len(cells)).astype(np.int32)
        self.parents = np.array(rows, np.int32)
        self.tables = rng.choice([0, 1, 2, 3, 65535], len(rows)).astype(np.uint16)
        self.starts = np.array(starts, np.int32)
        self.targets = np.array(targets, np.int32)

    def arrays(self) -> dict[str, Any]:
        """A batch of `as_flat`."""
        N = len(self.row_ids)
        return {
            "is_padding": ~self.is_cell, "is_target": np.zeros(N, bool),
            "semantic_types": np.zeros(N, np.int32),
            "row_ids": self.row_ids, "column_ids": self.column_ids,
            "parents": self.parents, "context_targets": self.targets, "row_tables": self.tables,
            "context_cells": self.starts[:, 0], "context_rows": self.starts[:, 1],
        }  # fmt: skip

    def patterns(self, arrays: Any, path: str) -> Patterns:
        """Of the arrays of such a batch, as the model makes them."""
        cells = read_cells(arrays, self.key_starts)
        if path == "compiled":
            return compiled_patterns(cells)
        if path == "dense":
            return dense_patterns(cells, Config(sequence_length=self.S, max_rows=self.R))
        if path == "fused":
            return fused_patterns(cells, self.kinds)
        return row_patterns(cells, RowShape(width=WIDTH))

    def attentions(self, path: str, names: tuple[str, ...] = PATTERNS) -> Any:
        """The equal attentions, of q, k, v, τ and the vectors of foreign keys; all but
        "target_column" by one function."""

        def mix(
            arrays: Any, q: Array, k: Array, v: Array, tau: Array, keys: KeyVectors
        ) -> dict[str, Array]:
            patterns = self.patterns(arrays, path)
            contexts = read_cells(arrays, self.key_starts).contexts
            return {
                name: getattr(patterns, name)(
                    at_targets(q, contexts) if name == "target_column" else q, k, v, tau,
                    *([keys] if name in ("outbound", "inbound") else []),
                )
                for name in names
            }  # fmt: skip

        return functools.partial(jax.jit(mix), self.arrays())


def draws(contexts: Contexts, D: int, H: int) -> tuple[tuple[Array, ...], Array]:
    shape = (len(contexts.row_ids), D)
    *keys, of_names = jax.random.split(jax.random.key(1), 5)
    q, k, v, out = (jax.random.normal(key, shape) for key in keys)
    kappa, nu = jax.random.normal(of_names, (2, contexts.kinds - 1, D))
    kappa = row_attention.unit_heads(kappa, H).reshape(kappa.shape)
    vectors = KeyVectors(*(jnp.pad(x, ((1, 0), (0, 0))) for x in (kappa, nu)))
    return (q, k, v, jnp.linspace(0.5, 20.0, H), vectors), out


def assert_close(found: Any, expected: Any, relative: float, name: str) -> None:
    """Within a share of the largest element, or of 0.1: where one key is all there is, the gradient
    of a query is 0 and what is found is rounding."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert np.isfinite(found).all(), name
    assert np.abs(found - expected).max() <= relative * max(np.abs(expected).max(), 0.1), name


def values_and_gradients(contexts: Contexts, path: str, *given: Any) -> tuple[Any, Any]:
    """Of every pattern: what the cells get, and what q, k, v, τ and the vectors of foreign keys do
    of its weighted sum."""
    attentions = {name: contexts.attentions(path, (name,)) for name in PATTERNS}

    @jax.jit
    def all_of(arguments: Any, weights: Any) -> Any:
        def weighted(name: str, *arguments: Array) -> tuple[Array, Array]:
            out = attentions[name](*arguments)[name]
            return jnp.sum(out * weights[name]), out

        return {
            name: jax.grad(functools.partial(weighted, name), (0, 1, 2, 3, 4), has_aux=True)(
                *arguments
            )
            for name in PATTERNS
        }

    found = all_of(*given)
    return {n: out for n, (_, out) in found.items()}, {n: g for n, (g, _) in found.items()}


@pytest.mark.parametrize("seed", range(3))
def test_every_cell_gets_what_dense_attention_gives_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = Contexts(seed, C=(2, 6, 30)[seed])
    monkeypatch.setattr(row_attention, "ROWS_AT_ONCE", (64, 4, 1)[seed])
    monkeypatch.setattr(row_attention, "COLUMN_BLOCK", (32, 8, 4)[seed])
    monkeypatch.setattr(row_attention, "BLOCKS_AT_ONCE", (16, 1, 3)[seed])
    arguments, out = draws(contexts, (8, 24, 40)[seed], 2)
    weights = dict.fromkeys(PATTERNS, out)
    has_target = contexts.targets >= 0
    weights["target_column"] = out[: len(contexts.targets)] * has_target[:, None]
    expected, expected_gradients = values_and_gradients(contexts, "dense", arguments, weights)
    is_behind = np.arange(len(out)) >= contexts.starts[-1, 0]
    for path in PATHS[1:]:
        found, gradients = values_and_gradients(contexts, path, arguments, weights)
        for pattern in PATTERNS:
            counts = has_target if pattern == "target_column" else ~is_behind
            if pattern != "target_column":  # padding behind all contexts hands its values on
                np.testing.assert_allclose(
                    found[pattern][is_behind], arguments[2][is_behind], rtol=1e-6
                )
            np.testing.assert_allclose(
                found[pattern][counts], expected[pattern][counts], rtol=1e-5, atol=1e-5,
                err_msg=f"{path} {pattern}",
            )  # fmt: skip
            names = ("query", "key", "value", "tau", "kappa", "nu")
            pairs = zip(
                *(_of_names(g[pattern]) for g in (gradients, expected_gradients)), strict=True
            )
            for name, (one, other) in zip(names, pairs, strict=True):
                is_by_cell = pattern != "target_column" and name in names[:3]
                part = counts if is_by_cell else slice(None)
                assert_close(one[part], other[part], 1e-4, f"{path} {pattern} {name}")


def _of_names(gradients: Any) -> list[Array]:
    """Without those of kind 0, which is always zero."""
    *by_cell, keys = gradients
    return [*by_cell, *(x[1:] for x in keys)]


def test_no_cell_looks_at_another_context() -> None:
    """Whatever stands in a context, the others get the same bits."""
    contexts = Contexts(4)
    arguments, _ = draws(contexts, 8, 2)
    first, end = contexts.starts[1, 0], contexts.starts[2, 0]
    inside = (np.arange(len(contexts.row_ids)) >= first) & (np.arange(len(contexts.row_ids)) < end)
    spoiled = [np.where(inside[:, None], 1e3 * x + 7, x) for x in map(np.asarray, arguments[:3])]
    for path in PATHS:
        attentions = contexts.attentions(path)
        before, after = attentions(*arguments), attentions(*spoiled, *arguments[3:])
        for pattern in PATTERNS:
            kept = ~inside if pattern != "target_column" else np.arange(5) != 1
            one, other = np.asarray(before[pattern]), np.asarray(after[pattern])
            np.testing.assert_array_equal(one[kept], other[kept], err_msg=f"{path} {pattern}")
            assert (one != other).any()


@on_a_processor
def test_compiled_attention_is_the_same_bits_on_any_number_of_threads() -> None:
    program = (
        "import hashlib; from test_row_attention import *\n"
        "contexts = Contexts(0, S=150, R=40, C=9, n=16); found = hashlib.sha256()\n"
        "arguments, out = draws(contexts, 32, 4); weights = dict.fromkeys(PATTERNS, out)\n"
        "weights['target_column'] = out[:16]\n"
        "given = contexts, 'compiled', arguments, weights\n"
        "for x in jax.tree.leaves(values_and_gradients(*given)):\n"
        "    found.update(np.asarray(x).tobytes())\n"
        "print(found.hexdigest())"
    )
    found = set()
    for threads in (1, 8):
        environment = {
            **os.environ,
            "NPROC": str(threads),
            "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2])),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        found.add(done.stdout)
    assert len(found) == 1 and len(found.pop()) == 65


@on_a_processor
def test_a_row_that_a_context_does_not_have_is_an_error() -> None:
    contexts = Contexts(0)
    at, rows = contexts.starts[1]
    contexts.row_ids[at], contexts.is_cell[at] = contexts.starts[2, 1], True  # of the next but one
    message = f"context 1 has a cell of row {contexts.starts[2, 1] - rows} or later"
    attentions = contexts.attentions("compiled", ("outbound",))
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(attentions(*draws(contexts, 8, 2)[0]))


@on_a_processor
@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("cells", 0, 1), ("cells", 2, -1), ("cells", -1, 10_000), ("rows", 3, 0), ("rows", -1, 9_999)],
)
def test_contexts_that_the_batch_does_not_have_are_an_error(name: str, at: int, value: int) -> None:
    contexts = Contexts(0)
    contexts.starts[at, ("cells", "rows").index(name)] = value
    attentions = contexts.attentions("compiled", ("outbound",))
    with pytest.raises(Exception, match=f"context_{name} do not begin with 0, fall, or pass"):
        jax.block_until_ready(attentions(*draws(contexts, 8, 2)[0]))


def test_columns_that_span_many_blocks_meet_around_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns of 140 cells in blocks of 32: a block must meet all of its context's, once."""
    monkeypatch.setattr(row_attention, "BLOCKS_AT_ONCE", 3)
    contexts = Contexts(0, S=150, R=80, C=1)
    contexts.row_ids = np.minimum(np.arange(300) // 2, 139)
    contexts.column_ids = np.zeros(300, np.int32)
    contexts.is_cell = np.arange(300) % 150 < 140
    contexts.starts = np.array([[0, 0], [150, 75], [300, 150]], np.int32)
    contexts.parents = np.full((150, PARENTS), 65535, np.int32)
    contexts.tables = np.zeros(150, np.uint16)
    contexts.targets = np.array([0, 150], np.int32)

    @jax.jit
    def band(arrays: Any) -> Array:
        c = read_cells(arrays, KEY_STARTS)
        return row_attention.make_columns(c.contexts.of_cell, c.column_ids, c.is_cell).band

    assert band(contexts.arrays()).tolist() == [4, 4, 4, 0]
    arguments, _ = draws(contexts, 8, 2)
    found, expected = (
        contexts.attentions(path, ("column",))(*arguments)["column"] for path in ("rows", "dense")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_wider_than_declared_and_contexts_that_no_window_holds_are_told() -> None:
    contexts = Contexts(1)
    by_rows, dense = (
        jax.jit(lambda arrays, make=make: make(read_cells(arrays, KEY_STARTS)).is_whole)
        for make in (
            lambda cells: row_patterns(cells, RowShape(width=2)),
            lambda cells: dense_patterns(cells, narrow),
        )
    )
    counts = [
        np.unique(contexts.row_ids[a:b][contexts.is_cell[a:b]], return_counts=True)[1]
        for a, b in zip(contexts.starts[:, 0], contexts.starts[1:, 0], strict=False)
    ]
    expected = [bool((count <= 2).all()) for count in counts]
    assert by_rows(contexts.arrays()).tolist() == expected and {*expected} == {True, False}
    lengths = np.diff(contexts.starts, axis=0)
    narrow = Config(sequence_length=int(lengths[0, 0]), max_rows=int(lengths[0, 1]))
    assert dense(contexts.arrays()).tolist() == (lengths <= lengths[0]).all(axis=1).tolist()


def test_a_context_that_is_cut_is_nan_and_no_other(cfg: Config) -> None:
    batch = smoke.synthetic_batch(cfg, TARGET_STYPES[0])
    batch["seq_row_ids"][1, 2:12] = 1  # more cells than any row has
    output = run(random_params(cfg), batch, cfg.replace(attention="rows"))
    assert np.isnan(output.numerical).tolist() == [False, True, False, False]


@functools.cache
def _outputs_and_gradient(cfg: Config, limit: int, shape: RowShape) -> Any:
    def total(params: Any, arrays: Any, tables: Any) -> tuple[Array, Output]:
        output = forward(
            params, arrays, tables, cfg,
            category_limit=limit, row_shape=shape,
        )  # fmt: skip
        parts = [jnp.sum(jnp.sin(jnp.where(part > -1e8, part, 0.0))) for part in output]
        return sum(parts, jnp.float32(0)), output

    return jax.jit(jax.grad(total, has_aux=True))


def outputs_and_gradient(
    params: Any, arrays: Any, tables: Any, cfg: Config, limit: int, shape: RowShape
) -> tuple[Any, Output]:
    """Gradient of a sum over every head, and the outputs."""
    gradient, output = _outputs_and_gradient(cfg, limit, shape)(params, arrays, tables)
    return gradient, output


def assert_paths_agree(*arguments: Any, cfg: Config, **more: Any) -> None:
    results = {
        path: outputs_and_gradient(*arguments, cfg.replace(attention=path), **more)
        for path in PATHS
    }
    dense_gradient, dense = results.pop("dense")
    for path, (gradient, output) in results.items():
        for name, found, expected in zip(Output._fields, output, dense, strict=True):
            np.testing.assert_allclose(
                found, expected, rtol=1e-5, atol=1e-5, err_msg=f"{path} {name}"
            )
        for name, expected in dense_gradient.items():
            assert_close(gradient[name], expected, 1e-4, f"{path} {name}")


@pytest.mark.parametrize(
    ("stype", "has_gaps"), [(TARGET_STYPES[0], False), (TARGET_STYPES[3], True)]
)
def test_the_model_is_the_same_on_synthetic_batches(
    cfg: Config, stype: Any, has_gaps: bool
) -> None:
    arrays = inputs(smoke.synthetic_batch(cfg, stype, sequences=3))
    parents = np.pad(np.array(arrays["parents"]), ((0, 0), (0, 0), (0, 2)), constant_values=65535)
    parents[:, 2, 1:] = parents[:, 3, 1] = 2  # itself, by two keys; and a circle
    parents[:, 3, 2], parents[:, 0, 1] = 0, 3
    arrays["parents"] = jnp.asarray(parents)
    if has_gaps:
        is_out = jax.random.bernoulli(jax.random.key(3), 0.4, arrays["is_padding"].shape)
        is_out &= arrays["is_target"] == 0
        arrays["is_padding"] = jnp.where(is_out, jnp.uint8(1), arrays["is_padding"])
    tables = smoke.synthetic_tables()
    starts = jnp.arange(len(tables.key_starts)) * 3  # each table has three keys
    tables = tables._replace(keys=jnp.repeat(tables.columns[:4], 3, axis=0), key_starts=starts)
    assert_paths_agree(
        random_params(cfg), arrays, tables, cfg=cfg, limit=LIMIT, shape=RowShape(width=4)
    )


def assert_store_agrees(store: Path, task: str, cfg: Config, layout: str) -> None:
    """And the declared row shape bounds what the sampler gives."""
    with open_sampler(open_store(store), cfg, task, layout=layout, num_prefetch=0) as sampler:
        metadata = sampler.database_metadata()
        shape = read_row_shape(metadata, cfg)
        batch = sampler.next_train_batch()
        assert np.diff(batch["row_starts"].astype(int), axis=1).max() <= shape.width
        arrays = to_device(batch)
        limit = max(1, int(batch["cat_emb_count"][0]))
        tables = device_tables(sampler, limit)
        params = init(jax.random.key(0), cfg, int(metadata["text"]["dim"]))
        draws = np.random.default_rng(5)
        params = {n: np.asarray(v) + 0.1 * draws.normal(size=v.shape) for n, v in params.items()}
        params = {n: v.astype(np.float32) for n, v in params.items()}
        assert_paths_agree(params, arrays, tables, cfg=cfg, limit=limit, shape=shape)


@pytest.mark.parametrize(
    ("task", "identifiers", "layers", "layout"),
    [
        ("churn", "none", 1, "compact"),
        pytest.param("churn", "none", 2, "dense", marks=pytest.mark.release),
        pytest.param("device", "all", 2, "compact", marks=pytest.mark.release),
        pytest.param("device", "all", 2, "dense", marks=pytest.mark.release),
    ],
)
def test_the_model_is_the_same_on_the_shop(
    cfg: Config, shop_store: Path, task: str, identifiers: str, layers: int, layout: str
) -> None:
    cfg = cfg.replace(sequence_length=80, max_rows=24, max_hops=4, identifier_cells=identifiers)
    assert_store_agrees(shop_store, task, cfg.replace(layers=layers), layout)


@pytest.mark.release
@pytest.mark.skipif(not F1.is_dir(), reason="the rel-f1 data is not here")
def test_the_model_is_the_same_on_rel_f1(cfg: Config, tmp_path: Path) -> None:
    headwater.build(
        f"sqlite:///{F1 / 'rel-f1.sqlite'}", tmp_path / "f1",
        metadata=str(ROOT / "examples" / "rel-f1.json"), seeds_dir=F1 / "tasks",
    )  # fmt: skip
    cfg = cfg.replace(sequence_length=200, max_rows=48)
    for layout in ("compact", "dense"):
        assert_store_agrees(tmp_path / "f1", "results-position", cfg, layout)


def test_the_last_layer_at_the_target_only_changes_no_prediction(
    cfg: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluence.model import transformer as model

    transform = model.transform

    def all_cells(
        params: Any, x: Array, cells: Any, patterns: Any, cfg: Config, keys: Any, *,
        everywhere: bool,
    ) -> Array:  # fmt: skip
        assert not everywhere
        return at_targets(
            transform(params, x, cells, patterns, cfg, keys, everywhere=True), cells.contexts
        )

    params, batch = random_params(cfg), smoke.synthetic_batch(cfg, TARGET_STYPES[0])
    paths = [path for path in PATHS if path != "fused"]  # whose targets ask as by rows
    found = {path: run(params, batch, cfg.replace(attention=path)) for path in paths}
    monkeypatch.setattr(model, "transform", all_cells)
    for path in paths:
        one = cfg.replace(attention=path)
        entirely = jax.jit(functools.partial(forward, cfg=one, **STATIC))
        expected = entirely(params, inputs(batch), smoke.synthetic_tables())
        for name, *pair in zip(Output._fields, found[path], expected, strict=True):
            np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5, err_msg=name)


@on_a_processor
def test_auto_takes_what_is_fastest(cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attention_path(cfg.replace(attention="auto")) == "compiled"
    monkeypatch.setattr(compiled_attention, "is_available", lambda: False)
    for path in ("dense", "rows"):
        assert attention_path(cfg.replace(attention=path)) == path
    assert attention_path(cfg.replace(attention="auto")) == "rows"
    with pytest.raises(ConfigError, match="needs a CPU and an installed package"):
        attention_path(cfg.replace(attention="compiled"))


@on_a_processor
def test_a_run_trained_by_one_path_predicts_by_the_other_and_old_runs_load(
    shop_store: Path, tmp_path: Path
) -> None:
    import confluence

    run = confluence.train(
        shop_store,
        task="churn",
        trees=False,
        out=tmp_path / "run",
        **SMALL,
        steps=4,
        attention="compiled",
    )
    record = json.loads(json.dumps(run.config.to_dict()))
    del record["attention"]  # as settings were before there were two paths
    assert Config.from_dict(record).attention == "auto"
    expected = run.predict(split="test")
    loaded = confluence.load(tmp_path / "run")
    loaded = dataclasses.replace(loaded, config=loaded.config.replace(attention="dense"))
    found = loaded.predict(split="test")
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one["probability"] == pytest.approx(other["probability"], rel=1e-4)
