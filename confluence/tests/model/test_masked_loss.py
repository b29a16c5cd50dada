"""The loss of masked cells: against NumPy, on both paths and layouts, and what it reads."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import device_tables, open_sampler, read_row_shape, to_device
from confluence.data.verification import open_store
from confluence.model.expand import as_flat
from confluence.model.loss import (
    EPOCH_WEIGHT,
    Z_LOSS,
    TaskScales,
    batch_loss,
    read_truth,
)
from confluence.model.masked_loss import (
    MASKED_TYPES,
    context_means,
    loss_with_masks,
    masked_losses,
    read_list,
)
from confluence.model.transformer import Params, Tables, forward, init, read_context

LIMIT = 8  # L
WEIGHT = 0.5
CFG = Config(
    width=16, heads=2, layers=1, sequence_length=48, max_rows=12, batch_size=4, steps=10,
    auxiliary_weight=WEIGHT, mask_ratio=0.4, max_hops=None,
    attention="dense", num_prefetch=0,
)  # fmt: skip


class World:
    """Batches of the small shop with masked cells, and a model for them."""

    def __init__(self, store: Path, cfg: Config, *tasks: str) -> None:
        self.cfg = cfg
        with open_sampler(open_store(store), cfg, *tasks, layout="dense") as sampler:
            self.tables = device_tables(sampler, LIMIT)
            self.shape = read_row_shape(sampler.database_metadata(), cfg)
            self.host = sampler.batch("train", 0)
            self.batch = to_device(self.host)
        self.width = self.tables.columns.shape[1]
        self.params = init(jax.random.key(1), cfg, self.width)
        n = len(tasks) + 8
        self.scales = TaskScales(*(jnp.full(n, v, jnp.float32) for v in (1.0, 0.0, 1.0)))


@pytest.fixture(scope="module")
def world(shop_store: Path) -> World:
    return World(shop_store, CFG, "device")


@functools.partial(jax.jit, static_argnames=("cfg", "shape"))
def context(params: Params, batch: Any, tables: Tables, cfg: Config, shape: Any) -> Any:
    h = read_context(params, batch, tables, cfg, row_shape=shape, everywhere=True)
    return h, masked_losses(params, h, batch, tables, cfg)


@functools.partial(jax.jit, static_argnames=("cfg", "shape"))
def loss_of(
    params: Params, batch: Any, tables: Tables, scales: Any, cfg: Config, shape: Any
) -> Any:
    truth = read_truth(batch, scales)

    def mean(params: Params) -> Any:
        total, weight, masked = loss_with_masks(
            params, batch, truth, tables, scales, cfg, category_limit=LIMIT, row_shape=shape
        )
        return total / weight, masked / weight

    (loss, masked), gradients = jax.value_and_grad(mean, has_aux=True)(params)
    return loss, gradients, masked


# ---- against NumPy -------------------------------------------------------------------------------


def softplus(x: NDArray[Any]) -> NDArray[Any]:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def huber(error: NDArray[Any]) -> NDArray[Any]:
    size = np.abs(error)
    return np.where(size < 1, 0.5 * size**2, size - 0.5)


def plain_cell_loss(world: World, h: NDArray[Any], b: int, name: str, i: int) -> float:
    """The loss of entry i of a list, one cell at a time in float64."""
    host = world.host
    params = {k: np.asarray(v, np.float64) for k, v in world.params.items()}
    position = int(host[f"masked_{name}_indices"][b, i])
    value = host[f"masked_{name}_values"][b, i]

    def head(head_name: str) -> NDArray[Any]:
        weight, bias = params[f"heads.{head_name}.weight"], params[f"heads.{head_name}.bias"]
        return np.asarray(h[b, position].astype(np.float64) @ weight + bias)

    is_null = bool(host[f"masked_{name}_is_null"][b, i])
    loss = float(softplus(head("null"))[0] - is_null * head("null")[0])
    if is_null:
        return loss
    if name == "numerical":
        return loss + float(huber(head(name)[0] - value))
    if name == "boolean":
        return loss + float(softplus(head(name))[0] - value * head(name)[0])
    if name == "timestamp":
        parts = huber(head(name) - value)
        return loss + float(parts[:14].mean() + EPOCH_WEIGHT * parts[14])
    if name == "text":
        truth = np.asarray(host["text_batch_embeddings"], np.float64)[value]
        said = head(name)
        cosine = said @ truth / np.linalg.norm(said) / np.linalg.norm(truth)
        return loss + (1 - float(cosine) if value > 0 else 0.0)
    columns = np.asarray(world.tables.category_columns)
    column = int(host["column_ids"][b, position])
    block = np.flatnonzero(columns == column)
    vectors = np.asarray(world.tables.categories, np.float64)[block]
    vectors = vectors @ params["encoder.categorical.weight"] + params["encoder.categorical.bias"]
    scores = vectors @ head(name)
    assert value in block
    total = float(np.log(np.exp(scores - scores.max()).sum()) + scores.max())
    return loss + total - float(scores[list(block).index(value)]) + Z_LOSS * total**2


def test_losses_are_those_of_numpy_cell_by_cell(world: World) -> None:
    h, (sums, counts) = context(world.params, world.batch, world.tables, CFG, world.shape)
    h = np.asarray(h).reshape(CFG.batch_size, CFG.sequence_length, -1)
    seen = set()
    for stype in MASKED_TYPES:
        name = stype.name.lower()
        indices = world.host[f"masked_{name}_indices"]
        for b in range(CFG.batch_size):
            count = int((indices[b] >= 0).sum())
            plain = [plain_cell_loss(world, h, b, name, i) for i in range(count)]
            assert counts[name][b] == count
            assert float(sums[name][b]) == pytest.approx(sum(plain), rel=2e-4, abs=1e-5)
            seen |= {name} if count else set()
    assert seen >= {"numerical", "categorical", "text"}


def test_a_context_costs_the_mean_of_its_cells_and_counts_once(world: World) -> None:
    sums = {"numerical": jnp.array([6.0, 0.0]), "text": jnp.array([2.0, 0.0])}
    counts = {"numerical": jnp.array([3.0, 0.0]), "text": jnp.array([1.0, 0.0])}
    means, is_masked = context_means(sums, counts)
    assert means.tolist() == [2.0, 0.0]
    assert is_masked.tolist() == [1.0, 0.0]


# ---- beside a task -------------------------------------------------------------------------------


def test_the_loss_is_the_task_s_and_a_share_of_that_of_the_masked_cells(world: World) -> None:
    """The task's by `forward`, which computes the last layer at the target alone."""
    assert (np.asarray(world.batch["is_target"]).sum(axis=1) > 1).all()
    params, batch, tables, scales = world.params, world.batch, world.tables, world.scales

    @jax.jit
    def parts(params: Params, batch: Any) -> Any:
        output = forward(params, batch, tables, CFG, category_limit=LIMIT, row_shape=world.shape)
        task = batch_loss(output, read_truth(batch, scales), batch, scales)
        h = read_context(params, batch, tables, CFG, row_shape=world.shape, everywhere=True)
        return task, context_means(*masked_losses(params, h, batch, tables, CFG))

    (task, weight), (means, is_masked) = parts(params, batch)
    assert float(weight) == float(np.sum(np.asarray(is_masked))) == CFG.batch_size
    loss, _, masked = loss_of(params, batch, tables, scales, CFG, world.shape)
    expected = (task + WEIGHT * jnp.sum(means)) / weight
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert float(masked) == pytest.approx(float(jnp.sum(means) / weight), rel=1e-5)


def test_paths_and_layouts_agree(world: World, shop_store: Path) -> None:
    """Attention by rows from a compact batch, against dense attention from a dense one."""
    cfg = CFG.replace(attention="rows")
    with open_sampler(open_store(shop_store), cfg, "device", layout="compact") as sampler:
        batch = to_device(sampler.batch("train", 0))
    loss, gradients, _ = loss_of(
        world.params, world.batch, world.tables, world.scales, CFG, world.shape
    )
    found, others, _ = loss_of(world.params, batch, world.tables, world.scales, cfg, world.shape)
    assert float(found) == pytest.approx(float(loss), rel=1e-5)
    for name, gradient in gradients.items():
        assert np.allclose(others[name], gradient, rtol=1e-4, atol=2e-5), name


def test_the_inputs_at_masked_cells_are_not_read(world: World) -> None:
    """Garbage where a value would stand changes nothing; a truth in a list does."""
    batch = dict(world.batch)
    hidden = np.asarray(batch["is_target"]) > 0
    hidden[np.arange(len(hidden)), np.asarray(batch["target_indices"])] = False
    rng = np.random.default_rng(3)
    for name, high in (("numeric_values", 9), ("bool_values", 2), ("is_null", 2)):
        array = np.array(batch[name])
        array[hidden] = rng.integers(0, high, hidden.sum())
        batch[name] = jnp.asarray(array)
    times = np.array(batch["timestamp_values"])
    times[hidden] = 7.0
    batch["timestamp_values"] = jnp.asarray(times)
    arguments = (world.tables, world.scales, CFG, world.shape)
    loss, *_ = loss_of(world.params, world.batch, *arguments)
    same, *_ = loss_of(world.params, batch, *arguments)
    assert float(same) == float(loss)
    batch["masked_numerical_values"] = batch["masked_numerical_values"] + 1.0
    other, *_ = loss_of(world.params, batch, *arguments)
    assert float(other) != float(loss)


def test_a_null_cell_trains_the_null_head_alone(world: World) -> None:
    """With every masked cell NULL and the task's loss away, other heads have no gradient."""
    batch = dict(world.batch)
    for stype in MASKED_TYPES:
        name = f"masked_{stype.name.lower()}_is_null"
        batch[name] = jnp.ones_like(batch[name])
    cfg = CFG.replace(auxiliary_weight=0.0, objective="masked_cells")
    _, gradients, _ = loss_of(world.params, batch, world.tables, world.scales, cfg, world.shape)
    for name, gradient in gradients.items():
        if name.startswith("heads.") and name not in ("heads.norm",):
            is_null_head = name.startswith("heads.null")
            assert bool(np.any(np.asarray(gradient))) == is_null_head, name


def test_lists_are_safe_to_index_with(world: World) -> None:
    for stype in MASKED_TYPES:
        cells = read_list(as_flat(world.batch), stype)
        assert int(cells.position.min()) >= 0
        assert int(cells.position.max()) < CFG.batch_size * CFG.sequence_length
        assert not np.asarray(cells.is_used).all()
