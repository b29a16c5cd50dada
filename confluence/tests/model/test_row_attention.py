"""Attention by rows, in JAX and in C: equal to the dense path, whatever the contexts look like."""

from __future__ import annotations

import dataclasses
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
from test_model import LIMIT, STATIC, inputs, random_params

from confluence.config import Config, ConfigError
from confluence.data.tasks import device_tables, open_sampler, read_row_shape, to_device
from confluence.model import compiled_attention, row_attention
from confluence.model.cells import Cells, at_targets, read_cells
from confluence.model.expand import as_flat
from confluence.model.loss import TARGET_STYPES
from confluence.model.patterns import (
    attention_path,
    compiled_patterns,
    dense_patterns,
    row_patterns,
)
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Output, forward, init
from confluence.training import smoke

ROOT = Path(__file__).resolve().parents[3]
F1 = ROOT.parent / "shared" / "data" / "rel-f1"

IS_PROCESSOR = jax.default_backend() == "cpu"
PATHS = ("dense", "rows", "compiled") if IS_PROCESSOR else ("dense", "rows")
on_a_processor = pytest.mark.skipif(not IS_PROCESSOR, reason="tests what runs there only")
PATTERNS = ("outbound", "inbound", "column", "target_column")


WIDTH, PARENTS = 5, 4  # most cells and parents of a row


class Contexts:
    """Random contexts side by side: rows of 0 to 4 cells in random columns, any edges, cells that
    are hidden, padding inside contexts and behind the last, and one context without cells."""

    def __init__(self, seed: int, *, S: int = 45, R: int = 9, C: int = 6, n: int = 5) -> None:
        rng = np.random.default_rng(seed)
        self.S, self.R = S, R
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
            for row_id in range(count):  # each parent once, the row itself maybe among them
                chosen = rng.permutation(R)[:PARENTS]
                is_edge = (rng.random(PARENTS) < 0.5 * (t > 0)) & (chosen < count)
                chosen[0], is_edge[0] = (row_id, True) if row_id == 2 else (chosen[0], is_edge[0])
                is_edge[1:] &= chosen[1:] != chosen[0]
                rows.append(np.where(is_edge, chosen, 65535))
            starts.append((len(cells), len(rows)))
        cells += [(0, False)] * 11
        rows += [np.full(PARENTS, 65535)] * 2
        self.row_ids, self.is_cell = (np.array(x) for x in zip(*cells, strict=True))
        self.column_ids = rng.integers(0, C, len(cells)).astype(np.int32)
        self.parents = np.array(rows, np.int32)
        self.starts = np.array(starts, np.int32)
        self.targets = np.array(targets, np.int32)

    def cells(self) -> Cells:
        """As the model reads them."""
        N = len(self.row_ids)
        return read_cells(
            {
                "is_padding": jnp.asarray(~self.is_cell), "is_target": jnp.zeros(N, bool),
                "semantic_types": jnp.zeros(N, jnp.int32),
                "row_ids": jnp.asarray(self.row_ids), "column_ids": jnp.asarray(self.column_ids),
                "parents": jnp.asarray(self.parents), "context_targets": jnp.asarray(self.targets),
                "context_cells": jnp.asarray(self.starts[:, 0]),
                "context_rows": jnp.asarray(self.starts[:, 1]),
            }
        )  # fmt: skip

    def attention(self, path: str, pattern: str) -> Any:
        """One of the equal attentions: of q, k, v and τ; "target_column" takes q of all cells."""
        cells = self.cells()
        if path == "compiled":
            patterns = compiled_patterns(cells)
        elif path == "dense":
            patterns = dense_patterns(cells, Config(sequence_length=self.S, max_rows=self.R))
        else:
            patterns = row_patterns(cells, RowShape(width=WIDTH, parents=PARENTS))
        mix = getattr(patterns, pattern)
        if pattern != "target_column":
            return mix
        return lambda q, k, v, tau: mix(at_targets(q, cells.contexts), k, v, tau)


def draws(contexts: Contexts, D: int, H: int) -> tuple[tuple[Array, ...], Array]:
    shape = (len(contexts.row_ids), D)
    keys = jax.random.split(jax.random.key(1), 4)
    q, k, v, out = (jax.random.normal(key, shape) for key in keys)
    return (q, k, v, jnp.linspace(0.5, 20.0, H)), out


def assert_close(found: Any, expected: Any, relative: float, name: str) -> None:
    """Within a share of the largest element, or of 0.1: where one key is all there is, the gradient
    of a query is 0 and what is found is rounding."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert np.isfinite(found).all(), name
    assert np.abs(found - expected).max() <= relative * max(np.abs(expected).max(), 0.1), name


def value_and_gradients(attention: Any, arguments: Any, weights: Array) -> tuple[Any, Any]:
    def weighted(*arguments: Array) -> tuple[Array, Array]:
        out = attention(*arguments)
        return jnp.sum(out * weights), out

    gradients, out = jax.jit(jax.grad(weighted, (0, 1, 2, 3), has_aux=True))(*arguments)
    return out, gradients


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_cell_gets_what_dense_attention_gives_it(
    seed: int, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = Contexts(seed, C=(2, 6, 30)[seed % 3])
    monkeypatch.setattr(row_attention, "ROWS_AT_ONCE", (64, 4, 1)[seed])
    monkeypatch.setattr(row_attention, "COLUMN_BLOCK", (32, 8, 4)[seed])
    monkeypatch.setattr(row_attention, "BLOCKS_AT_ONCE", (16, 1, 3)[seed])
    arguments, weights = draws(contexts, (8, 24, 40)[seed % 3], 2)
    if pattern == "target_column":
        weights = weights[: len(contexts.targets)] * (contexts.targets >= 0)[:, None]
    expected, expected_gradients = value_and_gradients(
        contexts.attention("dense", pattern), arguments, weights
    )
    counts = slice(None) if pattern != "target_column" else contexts.targets >= 0
    for path in PATHS[1:]:
        attention = contexts.attention(path, pattern)
        found, gradients = value_and_gradients(attention, arguments, weights)
        if pattern != "target_column":  # padding behind all contexts hands its values on
            is_behind = np.arange(len(weights)) >= contexts.starts[-1, 0]
            np.testing.assert_allclose(found[is_behind], arguments[2][is_behind], rtol=1e-6)
            counts = ~is_behind
        np.testing.assert_allclose(
            found[counts], expected[counts], rtol=1e-5, atol=1e-5, err_msg=path
        )
        names = ("query", "key", "value", "tau")
        for name, one, other in zip(names, gradients, expected_gradients, strict=True):
            part = counts if pattern != "target_column" and name != "tau" else slice(None)
            assert_close(one[part], other[part], 1e-4, f"{path} {name}")


def test_no_cell_looks_at_another_context() -> None:
    """Whatever stands in a context, the others get the same bits."""
    contexts = Contexts(4)
    arguments, _ = draws(contexts, 8, 2)
    first, end = contexts.starts[1, 0], contexts.starts[2, 0]
    inside = (np.arange(len(contexts.row_ids)) >= first) & (np.arange(len(contexts.row_ids)) < end)
    spoiled = [jnp.where(inside[:, None], 1e3 * x + 7, x) for x in arguments[:3]]
    for path in PATHS:
        for pattern in PATTERNS:
            attention = contexts.attention(path, pattern)
            before = np.asarray(attention(*arguments))
            after = np.asarray(attention(*spoiled, arguments[3]))
            kept = ~inside if pattern != "target_column" else np.arange(5) != 1
            np.testing.assert_array_equal(before[kept], after[kept], err_msg=f"{path} {pattern}")
            assert (before != after).any()


@on_a_processor
def test_compiled_attention_is_the_same_bits_on_any_number_of_threads() -> None:
    program = (
        "import hashlib; from test_row_attention import *\n"
        "contexts = Contexts(0, S=150, R=40, C=9, n=16); found = hashlib.sha256()\n"
        "for pattern in PATTERNS[:3]:\n"
        "    arguments, weights = draws(contexts, 32, 4)\n"
        "    attention = contexts.attention('compiled', pattern)\n"
        "    for x in jax.tree.leaves(value_and_gradients(attention, arguments, weights)):\n"
        "        found.update(np.asarray(x).tobytes())\n"
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
    attention = contexts.attention("compiled", "outbound")
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(attention(*draws(contexts, 8, 2)[0]))


@on_a_processor
@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("cells", 0, 1), ("cells", 2, -1), ("cells", -1, 10_000), ("rows", 3, 0), ("rows", -1, 9_999)],
)
def test_contexts_that_the_batch_does_not_have_are_an_error(name: str, at: int, value: int) -> None:
    contexts = Contexts(0)
    contexts.starts[at, ("cells", "rows").index(name)] = value
    attention = contexts.attention("compiled", "outbound")
    with pytest.raises(Exception, match=f"context_{name} do not begin with 0, fall, or pass"):
        jax.block_until_ready(attention(*draws(contexts, 8, 2)[0]))


def test_columns_that_span_many_blocks_meet_around_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns of 140 cells in blocks of 32: a block must meet all of its context's, once."""
    monkeypatch.setattr(row_attention, "BLOCKS_AT_ONCE", 3)
    contexts = Contexts(0, S=150, R=80, C=1)
    contexts.row_ids = np.minimum(np.arange(300) // 2, 139)
    contexts.column_ids = np.zeros(300, np.int32)
    contexts.is_cell = np.arange(300) % 150 < 140
    contexts.starts = np.array([[0, 0], [150, 75], [300, 150]], np.int32)
    contexts.parents = np.full((150, PARENTS), 65535, np.int32)
    contexts.targets = np.array([0, 150], np.int32)
    c = contexts.cells()
    columns = row_attention.make_columns(c.contexts.of_cell, c.column_ids, c.is_cell)
    assert columns.band.tolist() == [4, 4, 4, 0]
    arguments, _ = draws(contexts, 8, 2)
    found, expected = (contexts.attention(p, "column")(*arguments) for p in ("rows", "dense"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_wider_than_declared_and_contexts_that_no_window_holds_are_told() -> None:
    contexts = Contexts(1)
    is_whole = row_patterns(contexts.cells(), RowShape(width=2, parents=PARENTS)).is_whole
    counts = [
        np.unique(contexts.row_ids[a:b][contexts.is_cell[a:b]], return_counts=True)[1]
        for a, b in zip(contexts.starts[:, 0], contexts.starts[1:, 0], strict=False)
    ]
    assert is_whole is not None
    expected = [bool((count <= 2).all()) for count in counts]
    assert is_whole.tolist() == expected and {*expected} == {True, False}
    lengths = np.diff(contexts.starts, axis=0)
    narrow = Config(sequence_length=int(lengths[0, 0]), max_rows=int(lengths[0, 1]))
    is_whole = dense_patterns(contexts.cells(), narrow).is_whole
    assert is_whole is not None
    assert is_whole.tolist() == (lengths <= lengths[0]).all(axis=1).tolist()


def test_a_context_that_is_cut_is_nan_and_no_other(cfg: Config) -> None:
    batch = smoke.synthetic_batch(cfg, TARGET_STYPES[0])
    batch["fk_adj"][1, 0, :3] = 1
    shape = RowShape(width=4, parents=1)
    for path in PATHS:
        output = forward(
            random_params(cfg), inputs(batch), smoke.synthetic_tables(),
            cfg.replace(attention=path), category_limit=LIMIT, row_shape=shape,
        )  # fmt: skip
        assert np.isnan(output.numerical).tolist() == [False, True, False, False], path


def outputs_and_gradient(
    params: Any, arrays: Any, tables: Any, cfg: Config, limit: int, shape: RowShape
) -> tuple[Any, Output]:
    """Gradient of a sum over every head, and the outputs."""

    def total(params: Any) -> tuple[Array, Output]:
        output = forward(
            params, arrays, tables, cfg,
            category_limit=limit, row_shape=shape,
        )  # fmt: skip
        parts = [jnp.sum(jnp.sin(jnp.where(part > -1e8, part, 0.0))) for part in output]
        return sum(parts, jnp.float32(0)), output

    gradient, output = jax.jit(jax.grad(total, has_aux=True))(params)
    return gradient, output


def assert_paths_agree(
    *arguments: Any, cfg: Config, paths: tuple[str, ...] = PATHS, **more: Any
) -> None:
    results = {
        path: outputs_and_gradient(*arguments, cfg.replace(attention=path), **more)
        for path in paths
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
    edges = np.array(arrays["fk_adj"])
    edges[:, 2, 2] = edges[:, 3, 0] = edges[:, 0, 3] = edges[:, 3, 2] = 1  # itself, and a circle
    arrays["fk_adj"] = jnp.asarray(edges)
    if has_gaps:
        is_out = jax.random.bernoulli(jax.random.key(3), 0.4, arrays["is_padding"].shape)
        is_out &= arrays["is_target"] == 0
        arrays["is_padding"] = jnp.where(is_out, jnp.uint8(1), arrays["is_padding"])
    assert_paths_agree(
        random_params(cfg), arrays, smoke.synthetic_tables(), cfg=cfg, limit=LIMIT,
        shape=RowShape(width=4, parents=3),
    )  # fmt: skip


def assert_store_agrees(store: Path, task: str, cfg: Config) -> None:
    """Both layouts; and that the declared row shape bounds what the sampler gives."""
    for layout, paths in (("compact", PATHS), ("dense", PATHS[::2])):
        with open_sampler(str(store), cfg, task, layout=layout, num_prefetch=0) as sampler:
            metadata = sampler.database_metadata()
            shape = read_row_shape(metadata, cfg)
            batch = sampler.next_train_batch()
            assert np.diff(batch["row_starts"].astype(int), axis=1).max() <= shape.width
            arrays = to_device(batch)
            flat = as_flat(arrays)
            assert (np.asarray(flat["parents"]) < cfg.max_rows).sum(axis=1).max() <= shape.parents
            limit = max(1, int(batch["cat_emb_count"][0]))
            tables = device_tables(sampler, limit)
            params = init(jax.random.key(0), cfg, int(metadata["text"]["dim"]))
            key = jax.random.key(5)
            params = {n: v + 0.1 * jax.random.normal(key, v.shape) for n, v in params.items()}
            assert_paths_agree(
                params, arrays, tables, cfg=cfg, limit=limit, shape=shape, paths=paths
            )


@pytest.mark.parametrize(
    ("task", "identifiers"),
    [("churn", "none"), pytest.param("device", "all", marks=pytest.mark.release)],
)
def test_the_model_is_the_same_on_the_shop(
    cfg: Config, shop_store: Path, task: str, identifiers: str
) -> None:
    cfg = cfg.replace(sequence_length=80, max_rows=24, max_hops=4, identifier_cells=identifiers)
    assert_store_agrees(shop_store, task, cfg)


@pytest.mark.release
@pytest.mark.skipif(not F1.is_dir(), reason="the rel-f1 data is not here")
def test_the_model_is_the_same_on_rel_f1(cfg: Config, tmp_path: Path) -> None:
    headwater.build(
        f"sqlite:///{F1 / 'rel-f1.sqlite'}", tmp_path / "f1",
        metadata=str(ROOT / "examples" / "rel-f1.json"), seeds_dir=F1 / "tasks",
    )  # fmt: skip
    cfg = cfg.replace(sequence_length=200, max_rows=48)
    assert_store_agrees(tmp_path / "f1", "results-position", cfg)


def test_the_last_layer_at_the_target_only_changes_no_prediction(
    cfg: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluence.model import transformer as model

    transform = model.transform

    def all_cells(
        params: Any, x: Array, cells: Any, patterns: Any, cfg: Config, *, everywhere: bool
    ) -> Array:
        assert not everywhere
        return at_targets(
            transform(params, x, cells, patterns, cfg, everywhere=True), cells.contexts
        )

    params, tables = random_params(cfg), smoke.synthetic_tables()
    arrays = inputs(smoke.synthetic_batch(cfg, TARGET_STYPES[0]))
    for path in PATHS:
        one = cfg.replace(attention=path)
        found = forward(params, arrays, tables, one, **STATIC)
        with monkeypatch.context() as patch:
            patch.setattr(model, "transform", all_cells)
            expected = forward(params, arrays, tables, one, **STATIC)
        for name, *pair in zip(Output._fields, found, expected, strict=True):
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
        shop_store, task="churn", out=tmp_path / "run", preset="tiny", width=16, layers=1,
        sequence_length=32, max_rows=10, steps=4, attention="dense",
    )  # fmt: skip
    record = json.loads(json.dumps(run.config.to_dict()))
    del record["attention"]  # as settings were before there were two paths
    assert Config.from_dict(record).attention == "auto"
    expected = run.predict(split="test")
    loaded = confluence.load(tmp_path / "run")
    loaded = dataclasses.replace(loaded, config=loaded.config.replace(attention="compiled"))
    found = loaded.predict(split="test")
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one["probability"] == pytest.approx(other["probability"], rel=1e-4)
