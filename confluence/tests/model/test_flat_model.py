"""The flat batch: the same contexts side by side give the same losses, gradients and answers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bakery
import headwater
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flat_layout import FlatBatch, lay_out
from headwater import SemanticType
from headwater.sampling.expand import CELL_BITS
from small import write_sqlite

from confluence.config import Config
from confluence.data.tasks import (
    NO_BATCHES,
    device_tables,
    open_sampler,
    read_row_shape,
    read_target,
    to_device,
)
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Output, Tables, forward
from confluence.training.masked_cell_score import HeldOut
from confluence.training.step import (
    Constants,
    Fed,
    Feed,
    Predictor,
    RecompilationError,
    StepRunner,
    TrainState,
    first_state,
    gradient_sums,
)

LOSS_TOLERANCE = 2e-7  # of the loss
GRADIENT_TOLERANCE = 1e-5  # of the largest element of a parameter; the paths differ by half of it
PATHS = ("dense", "rows", "compiled") if jax.default_backend() == "cpu" else ("dense", "rows")
CFG = Config(
    width=16, heads=2, layers=2, sequence_length=72, max_rows=20, batch_size=6, steps=4,
    compute_dtype="float32", num_prefetch=0, max_hops=None,
)  # fmt: skip
PEOPLE = {
    "name": "people",
    "tables": {"people": {
        "primary_key": "id",
        "columns": {
            "id": {"stype": "identifier"}, "size": {"stype": "numerical"},
            "boss": {"stype": "identifier", "foreign_key": "people.id"},
        },
    }},
    "tasks": {"size": {
        "query": "SELECT id, size FROM people", "anchor_table": "people",
        "target_column": "size", "target_stype": "numerical",
    }},
}  # fmt: skip
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "child counts and label rows": ("shop", "churn", {"child_counts": True, "label_rows": 4}),
    "masked cells beside a task": (
        "shop", "device", {"auxiliary_weight": 0.5, "mask_ratio": 0.3, "identifier_cells": "all"},
    ),
    "masked cells alone": ("shop", "rating", {"objective": "masked_cells", "mask_ratio": 0.3}),
    "composite keys": ("bakery", "next_sale", {}),
    "rows that point at themselves": ("people", "size", {"split_ratios": (0.8, 0.1, 0.1)}),
}  # fmt: skip


class Case(NamedTuple):
    """Contexts of a store, and a model away from its first weights."""

    cfg: Config
    batches: list[Any]  # compact, on the host; the last is short
    state: TrainState
    constants: tuple[Tables, Any]
    shape: RowShape
    limit: int

    def sums(self, batch: Any, path: str) -> Any:
        """Loss and gradients of a batch of any layout."""
        cfg = self.cfg.replace(attention=path)
        return _sums(cfg, self.limit, self.shape)(self.state, to_device(batch), *self.constants)

    def answers(self, batch: Any, path: str) -> Output:
        """What the heads say of each context."""
        run = _answers(self.cfg.replace(attention=path), self.limit, self.shape)
        return Output(*map(np.asarray, run(
            self.state.params, to_device(batch), self.constants[0]
        )))  # fmt: skip


@functools.cache
def _sums(cfg: Config, limit: int, shape: RowShape) -> Any:
    return jax.jit(functools.partial(gradient_sums, cfg=cfg, category_limit=limit, row_shape=shape))


@functools.cache
def _answers(cfg: Config, limit: int, shape: RowShape) -> Any:
    def run(params: Any, batch: Any, tables: Tables) -> Output:
        return forward(params, batch, tables, cfg, category_limit=limit, row_shape=shape)

    return jax.jit(run)


@pytest.fixture(scope="module")
def stores(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("flat")
    people = [(i, float(i % 7), i if i % 5 == 0 else (i * 3) % 40) for i in range(1, 60)]
    source = write_sqlite(
        folder / "people.sqlite", {"people": ("id INTEGER PRIMARY KEY, size REAL, boss INTEGER",
                                              people)},
    )  # fmt: skip
    headwater.build(source, folder / "people", metadata=PEOPLE)
    return {
        "shop": shop_store, "bakery": bakery.build(folder / "bakery"), "people": folder / "people",
    }  # fmt: skip


def make_case(stores: dict[str, Path], name: str) -> Case:
    store, task, settings = CASES[name]
    path, cfg = str(stores[store]), CFG.replace(**settings)
    with open_sampler(path, cfg, task, **NO_BATCHES) as sampler:
        seeds = sampler.num_seeds("train")
    cfg = cfg.replace(batch_size=next(size for size in (6, 5, 7) if seeds % size))
    with open_sampler(path, cfg, task, layout="compact", text_mode="batch") as sampler:
        metadata = sampler.database_metadata()
        target, _ = read_target(path, sampler, task)
        tables = device_tables(sampler, target.category_limit)
        batches = [_copy(sampler.batch("train", 0)), _copy([*sampler.epoch("train")][-1])]
    width = tables.columns.shape[1]
    state = first_state(cfg, width, target.first_biases())
    keys = jax.random.split(jax.random.key(3), len(state.params))
    params = {
        n: v + 0.1 * jax.random.normal(key, v.shape)
        for key, (n, v) in zip(keys, state.params.items(), strict=True)
    }
    return Case(
        cfg, batches, state._replace(params=params), (tables, target.scales(cfg)),
        read_row_shape(metadata, cfg), target.category_limit,
    )  # fmt: skip


def _copy(batch: Any) -> FlatBatch:
    copy = FlatBatch({name: np.array(array) for name, array in batch.items()})
    copy.info = {name: np.array(array) for name, array in batch.info.items()}
    return copy


@pytest.fixture(scope="module", params=list(CASES))
def case(stores: dict[str, Path], request: pytest.FixtureRequest) -> Case:
    return make_case(stores, request.param)


@pytest.fixture(scope="module")
def shop(stores: dict[str, Path]) -> Case:
    return make_case(stores, "child counts and label rows")


def assert_same_sums(found: Any, expected: Any, name: str) -> None:
    assert float(found.weight) == float(expected.weight) > 0
    np.testing.assert_allclose(found.loss, expected.loss, rtol=LOSS_TOLERANCE, err_msg=name)
    for parameter, gradient in expected.gradients.items():
        error = float(np.abs(found.gradients[parameter] - gradient).max())
        largest = max(float(np.abs(gradient).max()), 1e-3)
        assert error / largest <= GRADIENT_TOLERANCE, (name, parameter)


# ---- losses and gradients -----------------------------------------------------------------------


def test_losses_and_gradients_are_those_of_sequences_with_padding(case: Case) -> None:
    expected = case.sums(case.batches[0], "dense")
    for path in PATHS[1:]:
        assert_same_sums(case.sums(lay_out(case.batches[0]), path), expected, path)


def test_a_short_batch_has_the_gradients_of_its_contexts_and_no_nan(shop: Case) -> None:
    """Its empty slots are targets without any cell."""
    batch = shop.batches[1]
    assert 0 < int(batch["num_sequences"][0]) < shop.cfg.batch_size
    expected = shop.sums(batch, "dense")
    whole = lay_out(shop.batches[0])
    N, rows = whole["cells"].shape[1], whole["parents"].shape[1]
    for path in PATHS:
        found = shop.sums(lay_out(batch, cells=N, rows=rows), path)
        assert all(np.isfinite(gradient).all() for gradient in found.gradients.values()), path
        assert_same_sums(found, expected, path)


def test_contexts_may_stand_in_any_order_and_before_any_padding(shop: Case) -> None:
    batch = shop.batches[0]
    order = np.random.default_rng(2).permutation(shop.cfg.batch_size)
    flat = lay_out(batch, order=order)
    N, rows = flat["cells"].shape[1], flat["parents"].shape[1]
    wide = lay_out(batch, cells=N + 128, rows=rows + 9, order=order)
    rng = np.random.default_rng(0)
    behind = np.arange(N + 128) >= wide["context_cells"][0, -1]
    wide["cell_values"][0, behind] = rng.integers(0, 2**32, behind.sum(), np.uint32)
    wide["cell_columns"][0, behind] = 1
    expected = shop.sums(batch, PATHS[-1])
    for path in PATHS[1:]:
        assert_same_sums(shop.sums(flat, path), expected, path)
        assert_same_sums(shop.sums(wide, path), expected, path)


# ---- answers ------------------------------------------------------------------------------------


def without_cells(batch: Any, is_out: Any) -> Any:
    """The batch with padding in place of some cells, but for targets."""
    is_target = batch["cells"] & CELL_BITS["is_target"] != 0
    padding = batch["cells"] | CELL_BITS["is_padding"]
    return {**batch, "cells": np.where(is_out & ~is_target, padding, batch["cells"])}


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_every_context_has_the_answer_that_it_has_in_a_sequence(shop: Case, share: float) -> None:
    batch = shop.batches[0]
    flat = lay_out(batch)
    is_out = np.random.default_rng(1).random(batch["cells"].shape) < share
    alive = np.arange(is_out.shape[1]) < batch["num_cells"][:, None]
    is_out_of_flat = np.zeros(flat["cells"].shape, bool)
    is_out_of_flat[0, : alive.sum()] = is_out[alive]
    expected = shop.answers(without_cells(batch, is_out), "dense")
    for path in PATHS:
        found = shop.answers(without_cells(flat, is_out_of_flat), path)
        for name, *pair in zip(Output._fields, found, expected, strict=True):
            np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5, err_msg=f"{path} {name}")


def test_what_stands_in_a_context_changes_no_other_answer(shop: Case) -> None:
    batch = lay_out(shop.batches[0])
    spoiled = {name: array.copy() for name, array in batch.items()}
    first, end = batch["context_cells"][0, 2:4]
    is_number = batch["cells"][0, first:end] & 7 == SemanticType.NUMERICAL
    spoiled["cell_values"][0, first:end][is_number] ^= np.uint32(0x80700000)  # sign and fraction
    columns = spoiled["cell_columns"][0]
    columns[first:end] = columns[[0]]  # all of the first context's first column
    others = np.arange(shop.cfg.batch_size) != 2
    for path in PATHS:
        before, after = (shop.answers(one, path).boolean for one in (batch, spoiled))
        assert before[2] != after[2]
        if path == "compiled":
            np.testing.assert_array_equal(before[others], after[others])
        np.testing.assert_allclose(before[others], after[others], rtol=1e-5, atol=1e-6)


def test_a_target_that_sees_nothing_else_has_finite_gradients(shop: Case) -> None:
    """All other cells are padding, and one slot is empty."""
    batch = without_cells(lay_out(shop.batches[1]), True)
    for path in PATHS:
        run = _answers(shop.cfg.replace(attention=path), shop.limit, shop.shape)

        def total(params: Any, run: Any = run) -> Any:
            output = run(params, to_device(batch), shop.constants[0])
            return jnp.sum(output.boolean) + jnp.sum(jnp.sin(output.numerical))

        value, gradients = jax.value_and_grad(total)(shop.state.params)
        assert np.isfinite(value)
        for name, gradient in gradients.items():
            assert np.isfinite(gradient).all(), (path, name)


# ---- training, answers and held-out contexts -----------------------------------------------------


def test_a_run_compiles_once_for_each_number_of_cells(shop: Case) -> None:
    cfg, batch = shop.cfg.replace(attention=PATHS[-1]), shop.batches[0]
    N = lay_out(batch)["cells"].shape[1]
    runner = StepRunner(
        cfg, [Constants(*shop.constants)], text_width=shop.constants[0].columns.shape[1],
        category_limit=shop.limit, row_shape=shop.shape,
    )  # fmt: skip
    state = jax.tree.map(jnp.copy, shop.state)
    stream = iter([lay_out(batch, cells=N + more, rows=120) for more in (0, 64, 0)])
    feed = Feed(lambda: (next(stream), 0))
    losses = []
    for _ in range(3):
        state, metrics = runner.step(state, feed.next_on_device())
        losses.append(float(metrics["loss"]))
    runner.assert_one_compilation()
    assert feed.cells == 3 * int(batch["num_cells"].sum())
    assert len(set(losses)) == 3 and np.isfinite(losses).all()
    other = to_device(lay_out(batch, cells=N, rows=121))  # what is no task's shape
    runner.step(state, Fed(other))
    with pytest.raises(RecompilationError, match="compiled 3 times, expected 2"):
        runner.assert_one_compilation()


def test_answers_are_of_the_contexts_that_count_with_their_seeds(shop: Case) -> None:
    predictor = Predictor(
        shop.cfg, shop.constants[0], category_limit=shop.limit, row_shape=shop.shape
    )
    expected = [*predictor.outputs(shop.state.params, iter(shop.batches))]
    found = predictor.outputs(shop.state.params, map(lay_out, shop.batches))
    for (one, info), (other, other_info) in zip(found, expected, strict=True):
        assert len(one.boolean) == len(other.boolean) == len(info["seed_index"])
        np.testing.assert_allclose(one.boolean, other.boolean, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(info["seed_index"], other_info["seed_index"])


def test_held_out_cells_cost_the_same(stores: dict[str, Path]) -> None:
    case = make_case(stores, "masked cells alone")
    held_out = HeldOut(case.cfg, case.constants[0], row_shape=case.shape)

    class Sampler:
        """What `HeldOut` asks a sampler for."""

        def __init__(self, batches: list[Any]) -> None:
            self.batches = batches

        def num_seeds(self, split: str) -> int:
            return 1

        def epoch(self, split: str) -> Iterator[Any]:
            return iter(self.batches)

    expected = held_out.sums(case.state.params, Sampler(case.batches), "val")
    flat = Sampler([lay_out(batch) for batch in case.batches])
    found = held_out.sums(case.state.params, flat, "val")
    assert found.keys() == expected.keys() and expected["contexts"] > 6
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name
