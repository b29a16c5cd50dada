"""The flat batch: the same contexts side by side give the same losses, gradients and answers.

These tests spend their time in the compiler, so all cases have the arrays and bounds of one shape:
what one of them compiled serves the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bakery
import headwater
import jax
import numpy as np
import optax
import pytest
from flat_layout import FlatBatch, lay_out
from headwater import SemanticType
from headwater.sampling.expand import CELL_BITS, NO_ROW
from small import write_sqlite

from confluence.config import Config
from confluence.data.tasks import (
    device_tables,
    open_sampler,
    read_row_shape,
    read_target,
    to_device,
)
from confluence.data.verification import open_store
from confluence.model.loss import TaskScales
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Output, Tables, forward
from confluence.training import step
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

LOSS_TOLERANCE = 6e-7  # of the loss: five units of its last place
GRADIENT_TOLERANCE = 5e-5  # of the largest element of a parameter; a bias may nearly cancel
PATHS = ("dense", "rows", "compiled") if jax.default_backend() == "cpu" else ("dense", "rows")
CFG = Config(
    width=16, heads=2, layers=2, sequence_length=72, max_rows=20, batch_size=5, steps=4,
    compute_dtype="float32", num_prefetch=0, max_hops=None,
)  # fmt: skip
ROOM = {"cells": 448, "rows": 112}  # of flat batches: more than five contexts may have
COLUMNS, CATEGORIES, TASKS, TEXTS = 96, 40, 8, 64  # no fewer than the stores and batches have
KEYS, TABLES, PARENTS = 12, 12, 3
ROW_SHAPE, CATEGORY_LIMIT = RowShape(width=20), 3
OF_THE_MODEL = ("layers", "objective", "auxiliary_weight")  # the other settings are the sampler's
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
    "masked cells with a task": (
        "shop", "device", {"auxiliary_weight": 0.5, "mask_ratio": 0.3, "identifier_cells": "all"},
    ),
    "masked cells alone": (
        "shop", "rating", {"objective": "masked_cells", "mask_ratio": 0.3, "layers": 1},
    ),
    "composite keys": ("bakery", "next_sale", {}),
    "rows that point at themselves": ("people", "size", {"split_ratios": (0.8, 0.1, 0.1)}),
}  # fmt: skip
REPEATED = ("masked cells with a task", "rows")
WITH_A_TASK = [name for name, (*_, given) in CASES.items() if "objective" not in given]


class Case(NamedTuple):
    """Contexts of a store, and a model away from its first weights."""

    cfg: Config
    batches: list[Any]  # compact, on the host: the first and the last of an epoch
    state: TrainState
    constants: tuple[Tables, TaskScales]

    def sums(self, batch: Any, path: str) -> Any:
        """Loss and gradients of a batch of any layout."""
        run = _sums(self.cfg.replace(attention=path))
        return run(self.state, to_device(batch), *self.constants)

    def answers(self, batch: Any, path: str) -> Output:
        """What the heads say of each context, without what only masked cells need."""
        run = _answers(CFG.replace(attention=path))
        inputs = {n: x for n, x in batch.items() if not n.startswith("masked_")}
        params = {n: x for n, x in self.state.params.items() if not n.startswith("heads.text.")}
        found = run(params, to_device(inputs), self.constants[0])
        return Output(*map(np.asarray, found))


@functools.cache
def _sums(cfg: Config) -> Any:
    bounds = {"category_limit": CATEGORY_LIMIT, "row_shape": ROW_SHAPE}
    return jax.jit(functools.partial(gradient_sums, cfg=cfg, **bounds))


@functools.cache
def _answers(cfg: Config) -> Any:
    bounds = {"category_limit": CATEGORY_LIMIT, "row_shape": ROW_SHAPE}
    return jax.jit(functools.partial(forward, cfg=cfg, **bounds))


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
    options = {"layout": "compact", "text_mode": "batch", "text_budget": TEXTS}
    with open_sampler(open_store(path), cfg, task, **options) as sampler:
        target, _ = read_target(sampler, task)
        shape = read_row_shape(sampler.database_metadata(), cfg)
        assert shape.width <= ROW_SHAPE.width
        assert target.category_limit <= CATEGORY_LIMIT
        tables = padded_tables(device_tables(sampler, CATEGORY_LIMIT))
        chosen = sampler.batch("train", 0), [*sampler.epoch("train")][-1]
        batches = [padded_copy(batch) for batch in chosen]
    cfg = CFG.replace(**{n: value for n, value in settings.items() if n in OF_THE_MODEL})
    state = first_state(cfg, tables.columns.shape[1], target.first_biases())
    keys = jax.random.split(jax.random.key(3), len(state.params))
    params = {
        n: v + 0.1 * jax.random.normal(key, v.shape)
        for key, (n, v) in zip(keys, state.params.items(), strict=True)
    }
    scales = TaskScales(*(padded(scale, TASKS, 1.0) for scale in target.scales(CFG)))
    return Case(cfg, batches, state._replace(params=params), (tables, scales))


def padded(array: Any, length: int, value: float = 0) -> Any:
    """The array with this value behind its rows."""
    assert len(array) <= length
    more = np.full((length - len(array), *array.shape[1:]), value, array.dtype)
    return jax.device_put(np.concatenate([array, more]))


def padded_tables(tables: Tables) -> Tables:
    categories, owners = tables.categories, tables.category_columns
    return Tables(
        padded(tables.columns, COLUMNS), padded(tables.keys, KEYS),
        padded(tables.key_starts, TABLES, len(tables.keys)), padded(categories, CATEGORIES),
        padded(owners, CATEGORIES, -1),
    )  # fmt: skip


def padded_copy(batch: Any) -> FlatBatch:
    """A compact batch on the host, with as many parents of a row as in all other cases."""
    copy = FlatBatch({name: np.array(array) for name, array in batch.items()})
    copy.info = {name: np.array(array) for name, array in batch.info.items()}
    parents = copy["parents"]
    missing = PARENTS - parents.shape[2]
    copy["parents"] = np.pad(parents, ((0, 0), (0, 0), (0, missing)), constant_values=NO_ROW)
    return copy


def in_room(batch: Any, **options: Any) -> FlatBatch:
    """The flat batch of a compact one, in the shape that all have."""
    return lay_out(batch, **{**ROOM, **options})


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


@pytest.mark.parametrize(
    ("case", "path"),
    [
        # By rows, masked cells with a task find what they find alone.
        pytest.param(name, path, marks=[pytest.mark.release] * ((name, path) == REPEATED))
        for name in CASES
        for path in PATHS[1:]
    ],
    indirect=["case"],
)
def test_losses_and_gradients_are_those_of_sequences_with_padding(case: Case, path: str) -> None:
    expected = case.sums(case.batches[0], "dense")
    assert_same_sums(case.sums(in_room(case.batches[0]), path), expected, path)


def test_a_short_batch_has_the_gradients_of_its_contexts_and_no_nan(shop: Case) -> None:
    """Its empty slots are targets without any cell."""
    batch = shop.batches[1]
    assert 0 < int(batch["num_sequences"][0]) < shop.cfg.batch_size
    expected = shop.sums(batch, "dense")
    for path in PATHS:
        found = shop.sums(in_room(batch), path)
        assert all(np.isfinite(gradient).all() for gradient in found.gradients.values()), path
        assert_same_sums(found, expected, path)


def test_contexts_may_stand_in_any_order_and_before_any_padding(shop: Case) -> None:
    batch = shop.batches[0]
    order = np.random.default_rng(2).permutation(shop.cfg.batch_size)
    flat = in_room(batch, order=order)
    rng = np.random.default_rng(0)
    behind = np.arange(ROOM["cells"]) >= flat["context_cells"][0, -1]
    assert behind.sum() > 64
    flat["cell_values"][0, behind] = rng.integers(0, 2**32, behind.sum(), np.uint32)
    flat["cell_columns"][0, behind] = 1
    expected = shop.sums(batch, "dense")
    for path in PATHS[1:]:
        assert_same_sums(shop.sums(flat, path), expected, path)


# ---- answers ------------------------------------------------------------------------------------


def without_cells(batch: Any, is_out: Any) -> Any:
    """The batch with padding in place of some cells, but for targets."""
    is_target = batch["cells"] & CELL_BITS["is_target"] != 0
    padding = batch["cells"] | CELL_BITS["is_padding"]
    return {**batch, "cells": np.where(is_out & ~is_target, padding, batch["cells"])}


@pytest.mark.parametrize(
    ("case", "share"), [(WITH_A_TASK[0], 0.4), *((name, 0.0) for name in WITH_A_TASK)],
    indirect=["case"],
)  # fmt: skip
def test_every_context_has_the_answer_that_it_has_in_a_sequence(case: Case, share: float) -> None:
    """Also where some of its cells are padding."""
    batch = case.batches[0]
    flat = in_room(batch)
    is_out = np.random.default_rng(1).random(batch["cells"].shape) < share
    alive = np.arange(is_out.shape[1]) < batch["num_cells"][:, None]
    is_out_of_flat = np.zeros(flat["cells"].shape, bool)
    is_out_of_flat[0, : alive.sum()] = is_out[alive]
    expected = case.answers(without_cells(batch, is_out), "dense")
    for path in PATHS:
        found = case.answers(without_cells(flat, is_out_of_flat), path)
        for name, *pair in zip(Output._fields, found, expected, strict=True):
            np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5, err_msg=f"{path} {name}")


def test_what_stands_in_a_context_changes_no_other_answer(shop: Case) -> None:
    batch = in_room(shop.batches[0])
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


@pytest.mark.parametrize("name", ["child counts and label rows", "rows that point at themselves"])
def test_a_target_that_sees_nothing_else_has_finite_gradients(
    stores: dict[str, Path], name: str
) -> None:
    """A boolean one and a number; all other cells are padding, and one slot is empty."""
    case = make_case(stores, name)
    batch = without_cells(in_room(case.batches[1]), True)
    for path in PATHS:
        found = case.sums(batch, path)
        assert np.isfinite(found.loss) and found.weight > 0
        for parameter, gradient in found.gradients.items():
            assert np.isfinite(gradient).all(), (path, parameter)


# ---- training, answers and held-out contexts -----------------------------------------------------


def test_a_run_compiles_once_for_each_number_of_cells(
    shop: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An optimizer that hardly costs the compiler anything.
    monkeypatch.setattr(step, "make_optimizer", lambda cfg, text_width: optax.sgd(0.1))
    cfg, batch = shop.cfg.replace(attention=PATHS[-1], layers=1), shop.batches[0]
    width = shop.constants[0].columns.shape[1]
    runner = StepRunner(
        cfg, [Constants(*shop.constants)], text_width=width, category_limit=CATEGORY_LIMIT,
        row_shape=ROW_SHAPE,
    )  # fmt: skip
    state = first_state(cfg, width)
    stream = iter([in_room(batch, cells=N) for N in (448, 512, 448)])
    feed = Feed(lambda: (next(stream), 0))
    losses = []
    for _ in range(3):
        state, metrics = runner.step(state, feed.next_on_device())
        losses.append(float(metrics["loss"]))
    runner.assert_one_compilation()
    assert feed.cells == 3 * int(batch["num_cells"].sum())
    assert len(set(losses)) == 3 and np.isfinite(losses).all()
    other = to_device(in_room(batch, rows=121))  # a shape that no task has
    runner.step(state, Fed(other))
    with pytest.raises(RecompilationError, match="compiled 3 times, expected 2"):
        runner.assert_one_compilation()


def test_answers_are_of_the_contexts_that_count_with_their_seeds(shop: Case) -> None:
    predictor = Predictor(
        shop.cfg, shop.constants[0], category_limit=CATEGORY_LIMIT, row_shape=ROW_SHAPE
    )
    expected = [*predictor.outputs(shop.state.params, iter(shop.batches))]
    found = predictor.outputs(shop.state.params, map(in_room, shop.batches))
    for (one, info), (other, other_info) in zip(found, expected, strict=True):
        assert len(one.boolean) == len(other.boolean) == len(info["seed_index"])
        np.testing.assert_allclose(one.boolean, other.boolean, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(info["seed_index"], other_info["seed_index"])


class PassOf:
    """What `HeldOut` asks a sampler for."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def num_seeds(self, split: str) -> int:
        return 1

    def epoch(self, split: str) -> Iterator[Any]:
        return iter(self.batches)


def test_held_out_cells_cost_the_same_and_compile_once(stores: dict[str, Path]) -> None:
    case = make_case(stores, "masked cells alone")
    held_out = HeldOut(case.cfg, case.constants[0], row_shape=ROW_SHAPE)
    expected = held_out.sums(case.state.params, PassOf(case.batches), "val")
    flat = [in_room(batch) for batch in case.batches]
    other = in_room(case.batches[0], rows=121)  # a shape that no task has
    with pytest.raises(RecompilationError, match="compiled 2 times, expected 1"):
        held_out.sums(case.state.params, PassOf([*flat, other]), "val")
    found = held_out.sums(case.state.params, PassOf(flat), "val")
    assert found.keys() == expected.keys() and expected["contexts"] > 5
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name
