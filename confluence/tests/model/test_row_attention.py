"""Attention by rows, in JAX and in C: equal to the dense path, whatever the contexts look like."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from functools import partial
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
from confluence.model.attention import attend, make_masks
from confluence.model.expand import as_dense
from confluence.model.loss import TARGET_STYPES
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Output, attention_path, forward, init
from confluence.training import smoke

ROOT = Path(__file__).resolve().parents[3]
F1 = ROOT.parent / "shared" / "data" / "rel-f1"

IS_PROCESSOR = jax.default_backend() == "cpu"
PATHS = ("dense", "rows", "compiled") if IS_PROCESSOR else ("dense", "rows")
on_a_processor = pytest.mark.skipif(not IS_PROCESSOR, reason="tests what runs there only")
PATTERNS = ("outbound", "inbound", "column")


class Context:
    """Random contexts: rows of 0 to 4 cells in random columns, any edges, padding, hidden cells."""

    def __init__(self, seed: int, *, S: int = 45, R: int = 9, C: int = 6, B: int = 3) -> None:
        rng = np.random.default_rng(seed)
        self.row_ids = np.zeros((B, S), np.int32)
        self.is_cell = np.zeros((B, S), bool)
        self.column_ids = rng.integers(0, C, (B, S)).astype(np.int32)
        for b in range(B):
            widths = rng.integers(0, 5, rng.integers(1, R + 1))
            cells = np.repeat(np.arange(len(widths)), widths)[:S]
            self.row_ids[b, : len(cells)] = cells
            self.is_cell[b, : len(cells)] = rng.random(len(cells)) > 0.2  # dropout makes holes
        self.adjacency = (rng.random((B, R, R)) < 0.2).astype(np.uint8)
        self.adjacency[:, :, 4:] = 0  # at most 4 parents
        self.adjacency[:, 2, 2] = 1  # a row that points at itself
        self.adjacency[0] = 0  # and a sequence without any edge

    def layout(self) -> compiled_attention.Layout:
        parents, _ = row_attention.parents_of(jnp.asarray(self.adjacency), 4)
        return compiled_attention.Layout(
            jnp.asarray(self.row_ids), jnp.asarray(self.column_ids), parents,
            jnp.asarray(self.is_cell),
        )  # fmt: skip

    def attention(self, path: str, pattern: str, block: int = 3) -> Any:
        """One of the equal attentions: of q, k, v and τ."""
        layout = self.layout()
        if path == "compiled":
            return partial(compiled_attention.attend, layout=layout, pattern=pattern)
        if path == "dense":
            masks = make_masks(
                layout.row_ids, layout.column_ids, jnp.asarray(self.adjacency), layout.is_cell
            )
            mask = getattr(masks, pattern)
            return lambda q, k, v, tau: attend(q, k, v, mask, tau, block=1)
        slots, columns = row_attention.make_structure(*layout, 5)
        if pattern == "column":
            return partial(row_attention.column, columns=columns, block=block)
        return partial(getattr(row_attention, pattern), slots=slots, block=block)


def draws(context: Context, D: int, H: int) -> tuple[tuple[Array, ...], Array]:
    shape = (*context.is_cell.shape, D)
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
def test_every_cell_gets_what_dense_attention_gives_it(seed: int, pattern: str) -> None:
    context = Context(seed, C=(2, 6, 30)[seed % 3])
    arguments, weights = draws(context, (8, 24, 40)[seed % 3], 2)
    expected, expected_gradients = value_and_gradients(
        context.attention("dense", pattern), arguments, weights
    )
    for path in PATHS[1:]:
        attention = context.attention(path, pattern, block=(3, 1)[seed % 2])
        found, gradients = value_and_gradients(attention, arguments, weights)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=path)
        names = ("query", "key", "value", "tau")
        for name, *pair in zip(names, gradients, expected_gradients, strict=True):
            assert_close(*pair, 1e-4, f"{path} {name}")


@on_a_processor
def test_compiled_attention_is_the_same_bits_on_any_number_of_threads() -> None:
    program = (
        "import hashlib; from test_row_attention import *\n"
        "context = Context(0, S=150, R=40, C=9, B=16); found = hashlib.sha256()\n"
        "for pattern in PATTERNS:\n"
        "    arguments, weights = draws(context, 32, 4)\n"
        "    attention = context.attention('compiled', pattern)\n"
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
    context = Context(0)
    context.row_ids[1, 0], context.is_cell[1, 0] = 9, True
    attention = context.attention("compiled", "outbound")
    with pytest.raises(Exception, match="sequence 1 has a cell of row 9 or later"):
        jax.block_until_ready(attention(*draws(context, 8, 2)[0]))


def test_columns_that_span_many_blocks_meet_around_the_end() -> None:
    # 5 blocks of 32: one column of 140 cells, so that a block must meet all others, each once.
    context = Context(0, S=150, R=80, C=1)
    context.row_ids[:] = np.minimum(np.arange(150) // 2, 79)
    context.is_cell[:] = np.arange(150) < 140
    columns = row_attention.make_structure(
        *(jnp.asarray(x) for x in (context.row_ids, context.column_ids)),
        jnp.full((3, 80, 1), 80), jnp.asarray(context.is_cell), 2,
    ).columns  # fmt: skip
    assert columns.band.tolist() == [4, 4, 4]
    arguments, _ = draws(context, 8, 2)
    found, expected = (context.attention(p, "column")(*arguments) for p in ("rows", "dense"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_row_wider_than_declared_is_not_cut_in_silence() -> None:
    context = Context(1)
    slots = row_attention.make_structure(
        jnp.asarray(context.row_ids), jnp.asarray(context.column_ids),
        jnp.full((3, 9, 1), 9), jnp.asarray(context.is_cell), 1,
    ).slots  # fmt: skip
    assert np.isnan(slots.outbound_count).all()


def test_more_parents_than_declared_are_not_dropped_in_silence() -> None:
    adjacency = jnp.zeros((2, 3, 3), jnp.uint8).at[1, 0].set(1)
    parents, fits = row_attention.parents_of(adjacency, 2)
    assert parents.shape == (2, 3, 2) and fits.tolist() == [True, False]
    cells = jnp.zeros((2, 4), jnp.int32)
    slots, _ = row_attention.make_structure(cells, cells, parents, cells == 0, 4, fits)
    assert np.isnan(slots.inbound_count).all(axis=1).tolist() == [False, True]


def outputs_and_gradient(
    params: Any, arrays: Any, tables: Any, cfg: Config, limit: int, shape: RowShape,
    hidden: Any = None,
) -> tuple[Any, Output]:  # fmt: skip
    """Gradient of a sum over every head, and the outputs."""

    def total(params: Any) -> tuple[Array, Output]:
        output = forward(
            params, as_dense(arrays), tables, cfg,
            category_limit=limit, row_shape=shape, hidden=hidden,
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
    ("stype", "is_hidden"), [(TARGET_STYPES[0], False), (TARGET_STYPES[3], True)]
)
def test_the_model_is_the_same_on_synthetic_batches(
    cfg: Config, stype: Any, is_hidden: bool
) -> None:
    arrays = inputs(smoke.synthetic_batch(cfg, stype, sequences=3))
    edges = np.array(arrays["fk_adj"])
    edges[:, 2, 2] = edges[:, 3, 0] = edges[:, 0, 3] = edges[:, 3, 2] = 1  # itself, and a circle
    arrays["fk_adj"] = jnp.asarray(edges)
    hidden = None
    if is_hidden:
        hidden = jax.random.bernoulli(jax.random.key(3), 0.4, arrays["is_padding"].shape)
    assert_paths_agree(
        random_params(cfg), arrays, smoke.synthetic_tables(), cfg=cfg, limit=LIMIT,
        shape=RowShape(width=4, parents=3), hidden=hidden,
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
            assert np.asarray(as_dense(arrays)["fk_adj"]).sum(axis=2).max() <= shape.parents
            limit = max(1, int(batch["cat_emb_count"][0]))
            tables = device_tables(sampler, limit)
            params = init(jax.random.key(0), cfg, int(metadata["text"]["dim"]))
            key = jax.random.key(5)
            params = {n: v + 0.1 * jax.random.normal(key, v.shape) for n, v in params.items()}
            assert_paths_agree(
                params, arrays, tables, cfg=cfg, limit=limit, shape=shape, paths=paths
            )


@pytest.mark.parametrize(("task", "identifiers"), [("churn", "none"), ("device", "all")])
def test_the_model_is_the_same_on_the_shop(
    cfg: Config, shop_store: Path, task: str, identifiers: str
) -> None:
    cfg = cfg.replace(sequence_length=80, max_rows=24, max_hops=4, identifier_cells=identifiers)
    assert_store_agrees(shop_store, task, cfg)


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

    def all_cells(
        params: Any, x: Array, cells: Any, patterns: Any, cfg: Config, *, everywhere: bool
    ) -> Array:
        assert not everywhere
        for layer in range(cfg.layers):
            for pattern in range(3):
                mix = patterns[pattern]
                x = x + model.attention_sublayer(params, layer, pattern, x, x, mix)
            x = x + model.feed_forward_sublayer(params, layer, x)
        return model.at_target(x, cells)

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
    paths = {s: attention_path(cfg.replace(attention="auto", sequence_length=s))
             for s in (64, 128, 256, 512, 1024)}  # fmt: skip
    assert paths == {64: "dense", 128: "dense", 256: "dense", 512: "dense", 1024: "rows"}
    for path in ("dense", "rows"):
        assert attention_path(cfg.replace(attention=path)) == path
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
