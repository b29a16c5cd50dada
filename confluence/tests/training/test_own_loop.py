"""The model for other loops is the model of training: same outputs, same loss, for any batch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from headwater import SemanticType

import confluence
from confluence.config import Config, ConfigError
from confluence.data.tasks import (
    device_tables,
    foreign_keys,
    open_sampler,
    read_row_shape,
    read_target,
    to_device,
)
from confluence.data.verification import open_store
from confluence.model import compiled_attention
from confluence.model.loss import (
    TARGET_STYPES,
    TaskScales,
    binary_cross_entropy,
    categorical_loss,
    huber,
    numerical_loss,
    read_truth,
    timestamp_loss,
)
from confluence.model.transformer import Output, forward
from confluence.model.transformer import init as init_params
from confluence.training import smoke
from confluence.training.own_loop import RelationalTransformer, compute_loss
from confluence.training.step import loss_sums

CFG = Config(
    width=16, heads=2, layers=1, sequence_length=32, max_rows=10, child_width=4, batch_size=4,
    compute_dtype="float32",
)  # fmt: skip
TASKS = ("subscribed", "next_order", "device", "rating")  # of each type of target
SELECTOR = """
type_losses = jnp.stack([num_loss, bool_loss, ts_loss, cat_loss])  # [4, B]
type_selector = jax.nn.one_hot(batch['target_stype'], 4)           # [4]
type_loss = type_selector @ type_losses                            # [B]
batch_loss = jnp.mean(null_loss + (1 - is_null_at_target) * type_loss)
"""  # of the seed, section 4g
PLACES = jnp.array([-1, 0, 2, 1, 3])  # in its stack, by our SemanticType
SEEDS = Path(__file__).resolve().parents[3].parent / "shared" / "seeds"


def case(store: Path, task: str, **options: Any) -> tuple[dict[str, Any], Any, Any]:
    """A train batch on the device, and the tables of columns and categories."""
    options = {"layout": "dense", "text_mode": "batch", "num_prefetch": 0, **options}
    with open_sampler(open_store(store), CFG, task, **options) as sampler:
        batch = jax.device_put(dict(sampler.batch("train", 0)))
        return batch, sampler.column_embeddings(), sampler.categorical_embeddings()


def model_of(store: Path, **bounds: Any) -> RelationalTransformer:
    """With the foreign keys of a store, as training has them."""
    return RelationalTransformer(
        CFG, foreign_keys=foreign_keys(open_store(store).metadata), **bounds
    )  # fmt: skip


def same(left: Output, right: Output) -> None:
    """Outputs of the same contexts; logits of as many categories as both have."""
    count = min(left.categorical.shape[1], right.categorical.shape[1])
    for name, one, other in zip(Output._fields, left, right, strict=True):
        if name == "categorical":
            one, other = one[:, :count], other[:, :count]
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("layout", ["dense", "compact", "flat"])
def test_outputs_are_those_of_training(shop_store: Path, layout: str) -> None:
    with open_sampler(
        open_store(shop_store), CFG, "device", layout=layout, text_mode="batch", num_prefetch=0
    ) as sampler:
        host, limit = sampler.batch("train", 0), 3
        columns, categories = sampler.column_embeddings(), sampler.categorical_embeddings()
        tables, shape = device_tables(sampler, limit), read_row_shape(sampler.store.metadata, CFG)
    model = model_of(shop_store)
    params = model.init(jax.random.key(1), host, columns, categories)
    jax.tree.map(
        np.testing.assert_array_equal, params, init_params(jax.random.key(1), CFG, columns.shape[1])
    )
    expected = jax.jit(partial(forward, cfg=CFG, category_limit=limit, row_shape=shape))(
        params, to_device(host), tables
    )
    found = jax.jit(model.apply)(params, jax.device_put(host), columns, categories)
    assert found.categorical.shape[1] == len(categories)
    same(found, expected)
    assert np.asarray(found.categorical)[:, int(host["cat_emb_count"][0]) :].max() == -1e9


def test_foreign_keys_of_another_store_are_refused(shop_store: Path) -> None:
    batch, *tables = case(shop_store, "device")
    known = model_of(shop_store).foreign_keys
    assert known is not None
    for keys in ((((0,),) * 9,), (*known[:-1], ((10_000,),))):
        model = RelationalTransformer(CFG, foreign_keys=keys)
        with pytest.raises(ValueError, match="foreign_keys are of another store"):
            model.init(jax.random.key(0), batch, *tables)


def compiled(model: RelationalTransformer) -> Any:
    """`model.apply`, as it is now: JAX takes two of one model for the same function."""
    return jax.jit(lambda *given: model.apply(*given))


def test_the_bounds_of_a_sampler_change_no_output(
    shop_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"identifier_cells": "all", "child_counts": True}
    batch, *tables = case(shop_store, "device", **options)
    plain = model_of(shop_store)
    params = plain.init(jax.random.key(0), batch, *tables)
    given = params, batch, *tables
    expected = compiled(plain)(*given)
    with open_sampler(open_store(shop_store), CFG, "device", num_prefetch=0, **options) as opened:
        bounded = RelationalTransformer.for_sampler(opened, CFG)
    assert bounded.category_limit == int(batch["cat_emb_count"][0])
    assert bounded.row_shape is not None and bounded.foreign_keys == plain.foreign_keys
    same(compiled(bounded)(*given), expected)
    monkeypatch.setattr(compiled_attention, "is_available", lambda: False)  # as on a GPU
    same(compiled(bounded)(*given), expected)  # by rows
    same(compiled(plain)(*given), expected)  # under masks


@pytest.mark.parametrize("mode", ["resident", "numbers"])
def test_texts_that_stay_on_the_device_are_given_beside(mode: str, shop_store: Path) -> None:
    batch, *tables = case(shop_store, "rating")
    with open_sampler(
        open_store(shop_store), CFG, "rating", layout="dense", text_mode=mode, num_prefetch=0
    ) as sampler:
        texts, without = sampler.text_embeddings(), dict(sampler.batch("train", 0))
    model = RelationalTransformer(CFG)
    params = model.init(jax.random.key(0), without, *tables, text_table=texts)
    same(
        model.apply(params, without, *tables, text_table=texts),
        model.apply(params, batch, *tables),
    )
    with pytest.raises(ValueError, match="neither text_batch_embeddings in the batch nor"):
        model.init(jax.random.key(0), without, *tables)
    with pytest.raises(ValueError, match="both text_batch_embeddings in the batch and"):
        model.apply(params, batch, *tables, text_table=texts)


@pytest.mark.parametrize("targets", ["inline", "separate"])
@pytest.mark.parametrize("task", TASKS)
def test_the_loss_is_that_of_training(shop_store: Path, task: str, targets: str) -> None:
    with open_sampler(
        open_store(shop_store), CFG, task, text_mode="batch", num_prefetch=0
    ) as sampler:
        known, _ = read_target(sampler, task)
        tables, scales = device_tables(sampler, known.category_limit), known.scales(CFG)
    dense, *two = case(shop_store, task, targets=targets)
    inline, *_ = case(shop_store, task)
    model = model_of(shop_store)
    params = model.init(jax.random.key(2), dense, *two)
    loss, weight, _ = loss_sums(
        params, inline, tables, scales, cfg=CFG, category_limit=known.category_limit, row_shape=None
    )
    assert float(weight) > 0
    found = jax.jit(compute_loss)(model.apply(params, dense, *two), dense, scales)
    assert float(found) == pytest.approx(float(loss / weight), rel=1e-5)


def test_numbers_are_in_units_of_the_column_by_default() -> None:
    batch = smoke.synthetic_batch(CFG, SemanticType.NUMERICAL)
    batch["task_idx"][0] = 3
    said = jnp.array([0.3, -2.0, 4.0, 0.0])
    output = zero_output()._replace(numerical=said)
    target = batch["is_target"] > 0
    truth, is_null = batch["numeric_values"][target], batch["is_null"][target]
    losses = np.log(2.0) + (1 - is_null) * np.asarray(huber(said - truth, 1.0))
    assert float(compute_loss(output, batch)) == pytest.approx(losses.mean(), rel=1e-6)
    units = TaskScales(*(jnp.array([0.0, 0.0, 0.0, v]) for v in (1.0, 0.0, 1.0)))
    assert float(compute_loss(output, batch, units)) == float(compute_loss(output, batch))


def test_only_labelled_contexts_count() -> None:
    batch = smoke.synthetic_batch(CFG, SemanticType.BOOLEAN, sequences=3)
    batch["is_labelled"][1] = 0
    output = zero_output()._replace(null=jnp.array([0.0, 9.0, 0.0, 9.0]))
    target = (batch["is_target"] > 0) & (batch["is_labelled"][:, None] > 0)
    expected = np.log(2.0) * (2 - batch["is_null"][target])
    assert float(compute_loss(output, batch)) == pytest.approx(expected.mean(), rel=1e-6)
    batch["is_labelled"][:] = 0
    assert float(compute_loss(output, batch)) == 0.0


def zero_output() -> Output:
    n = CFG.batch_size
    categories = jnp.zeros((n, smoke.CATEGORIES_PER_COLUMN))
    return Output(jnp.zeros(n), jnp.zeros(n), jnp.zeros((n, 15)), jnp.zeros(n), categories)


@pytest.mark.parametrize("stype", TARGET_STYPES)
def test_the_selector_of_the_seed_chooses_the_same(stype: SemanticType) -> None:
    batch = smoke.synthetic_batch(CFG, stype)
    keys = iter(jax.random.split(jax.random.key(int(stype)), 5))
    output = Output(*(jax.random.normal(next(keys), part.shape) for part in zero_output()))
    truth = read_truth(batch, smoke.synthetic_scales(CFG))
    names: dict[str, Any] = {
        "jax": jax,
        "jnp": jnp,
        "batch": {"target_stype": PLACES[batch["target_stype"]]},
        "num_loss": numerical_loss(output, truth, jnp.float32(1.0)),
        "bool_loss": binary_cross_entropy(output.boolean, truth.boolean),
        "ts_loss": timestamp_loss(output.timestamp, truth.time),
        "cat_loss": categorical_loss(output, truth),
        "null_loss": binary_cross_entropy(output.null, truth.is_null),
        "is_null_at_target": truth.is_null,
    }
    exec(SELECTOR, names)
    assert float(compute_loss(output, batch)) == pytest.approx(float(names["batch_loss"]), rel=1e-5)


def test_the_selector_is_that_of_the_seed() -> None:
    found = sorted(SEEDS.glob("001_*.txt"))
    if not found:
        pytest.skip(f"'{SEEDS}' is not here")
    assert f"```python{SELECTOR}```" in found[0].read_text(encoding="utf-8")


def test_the_guide_maps_the_types_alike() -> None:
    guide = Path(__file__).resolve().parents[3] / "docs" / "guides" / "own-training-loop.md"
    text = f'jnp.array({PLACES.tolist()})[batch["target_stype"]]'
    assert text in guide.read_text(encoding="utf-8")


def test_models_with_the_same_settings_are_the_same() -> None:
    model = confluence.RelationalTransformer(CFG)
    assert model == RelationalTransformer(CFG.replace())
    assert hash(model) == hash(RelationalTransformer(CFG.replace()))
    assert model != RelationalTransformer(CFG, category_limit=2)
    assert confluence.RelationalTransformer().config == Config()
    assert confluence.compute_loss is compute_loss


def test_what_cannot_be_read_is_an_error(shop_store: Path) -> None:
    batch, columns, categories = case(shop_store, "device")
    model, key = RelationalTransformer(CFG), jax.random.key(0)
    with pytest.raises(ConfigError, match="category_limit is 0, expected at least 1"):
        RelationalTransformer(CFG, category_limit=0)
    with pytest.raises(ValueError, match=r"have widths 256, 8, 256, expected the same"):
        model.init(key, batch, columns, categories[:, :8])
    with pytest.raises(ValueError, match="packing=True"):
        model.init(key, {**batch, "segment_ids": batch["column_ids"]}, columns, categories)
    with pytest.raises(KeyError, match="row_ages"):
        without = {name: array for name, array in batch.items() if name != "row_ages"}
        model.init(key, without, columns, categories)
    params = model.init(key, batch, columns, categories)
    small = RelationalTransformer(CFG, category_limit=1)
    assert np.isnan(small.apply(params, batch, columns, categories).categorical).all()
