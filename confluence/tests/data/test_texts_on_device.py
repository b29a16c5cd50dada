"""Texts of small stores stay on the device; the model says the same as if batches brought them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from confluence.config import Config, preset
from confluence.data.tasks import (
    device_tables,
    has_resident_texts,
    open_sampler,
    text_mode,
    to_device,
)
from confluence.model.expand import as_flat
from confluence.model.loss import TaskScales, read_truth
from confluence.model.masked_loss import loss_with_masks
from confluence.model.transformer import init

LIMIT = 8
CFG = preset(
    "tiny", width=16, layers=1, sequence_length=48, max_rows=12, batch_size=4, num_prefetch=0,
    auxiliary_weight=0.5, mask_ratio=0.4, attention="dense",
)  # fmt: skip


def shape_of(store: Path, cfg: Config, **overrides: Any) -> dict[str, int]:
    with open_sampler(str(store), cfg, "churn", **overrides) as sampler:
        return dict(sampler.shape)


def test_texts_are_resident_where_they_are_few_beside_the_cells_of_a_step(shop_store: Path) -> None:
    with headwater.Store(shop_store) as store:
        counts = store.core.counts()
        rows, width = 1 + counts["text_count"], counts["text_dim"]
        # 4 x texts x T against cells x D x layers: as many cells as make both sides equal
        cfg = CFG.replace(width=4 * width, layers=1, batch_size=1, heads=1)
        assert text_mode(store, cfg.replace(sequence_length=rows)) == "resident"
        assert text_mode(store, cfg.replace(sequence_length=rows - 1)) == "batch"


def test_many_texts_come_with_their_batch(
    shop_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = CFG.replace(width=1024, batch_size=512)
    with headwater.Store(shop_store) as store:
        counts = store.core.counts()
        rows = 1 + counts["text_count"] + counts["category_count"] + 32
        for limit, expected in ((rows, "resident"), (rows - 1, "batch")):
            monkeypatch.setattr("confluence.data.tasks.ONE_HOT_LIMIT", limit)
            assert text_mode(store, large) == expected


def test_a_run_opens_its_samplers_by_that(shop_store: Path) -> None:
    large = CFG.replace(width=1024, batch_size=512)
    for cfg, is_resident in ((CFG, False), (large, True)):
        with open_sampler(str(shop_store), cfg, "churn") as sampler:
            assert has_resident_texts(sampler) == is_resident
            tables = device_tables(sampler, LIMIT)
        assert (tables.texts is not None) == is_resident


def test_batches_of_several_ranks_have_one_shape(shop_store: Path) -> None:
    alone = shape_of(shop_store, CFG)
    assert alone["usual_texts"] < alone["text_budget"]
    ranks = [shape_of(shop_store, CFG, rank=rank, world_size=2) for rank in range(2)]
    assert ranks[0] == ranks[1]
    assert ranks[0]["usual_texts"] == ranks[0]["text_budget"] == alone["text_budget"]


def loss_and_gradients(store: Path, mode: str) -> tuple[Any, Any, int]:
    """Of one batch with masked cells, and how many of these are texts."""
    with open_sampler(str(store), CFG, "device", text_mode=mode) as sampler:
        tables, host = device_tables(sampler, LIMIT), sampler.batch("train", 0)
        batch = as_flat(to_device(host))
        width = tables.columns.shape[1]
        masked = int((host["masked_text_values"] > 0).sum())
    scales = TaskScales(*(jnp.full(9, v, jnp.float32) for v in (1.0, 0.0, 1.0)))
    truth = read_truth(batch, scales)

    def loss(params: Any) -> Any:
        total, weight, _ = loss_with_masks(
            params, batch, truth, tables, scales, CFG, category_limit=LIMIT
        )
        return total / weight

    found, gradients = jax.value_and_grad(loss)(init(jax.random.key(1), CFG, width))
    return found, gradients, masked


def test_losses_and_gradients_are_those_of_texts_that_come_with_the_batch(
    shop_store: Path,
) -> None:
    own, own_gradients, own_masked = loss_and_gradients(shop_store, "batch")
    loss, gradients, masked = loss_and_gradients(shop_store, "resident")
    assert masked == own_masked > 0
    np.testing.assert_allclose(loss, own, rtol=1e-6)
    assert np.abs(own_gradients["encoder.text.weight"]).max() > 0
    for name, gradient in gradients.items():
        np.testing.assert_allclose(
            gradient, own_gradients[name], rtol=1e-4, atol=1e-6, err_msg=name
        )
