"""Losses against their definitions, and the choice among them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from headwater import SemanticType

from confluence.config import Config
from confluence.model.loss import (
    SEED_WEIGHTS,
    TARGET_STYPES,
    Truth,
    batch_loss,
    context_losses,
    huber,
    read_truth,
)
from confluence.model.transformer import Output
from confluence.training import smoke


def test_target_types_stand_in_the_order_of_their_numbers() -> None:
    numbers = [int(s) for s in TARGET_STYPES]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.parametrize("delta", [0.2, 1.0])
def test_huber_is_quadratic_then_linear(delta: float) -> None:
    assert float(huber(jnp.float32(delta / 2), delta)) == pytest.approx(delta**2 / 8)
    assert float(huber(jnp.float32(-3.0), delta)) == pytest.approx(delta * (3 - delta / 2))
    assert float(jax.grad(huber)(jnp.float32(3.0), delta)) == pytest.approx(delta)
    assert float(jax.grad(huber)(jnp.float32(0.0), delta)) == 0.0


@pytest.mark.parametrize("stype", TARGET_STYPES)
def test_the_type_of_the_target_selects_the_loss(cfg: Config, stype: SemanticType) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 5)).astype(np.float32)
    output = Output(
        null=jnp.asarray([0.5, -0.5, 2.0, 0.0]),
        numerical=jnp.asarray([0.1, 1.0, -2.0, 0.0]),
        timestamp=jnp.asarray(rng.normal(size=(4, 15)), jnp.float32),
        boolean=jnp.asarray([1.0, -1.0, 3.0, 0.0]),
        categorical=jnp.asarray(logits),
    )
    truth = Truth(
        is_null=jnp.asarray([0.0, 0.0, 0.0, 1.0]),
        number=jnp.zeros(4),
        time=jnp.zeros((4, 15)),
        boolean=jnp.asarray([1.0, 0.0, 0.0, 0.0]),
        category=jnp.asarray([0, 1, 4, 2]),
        weight=jnp.ones(4),
    )
    batch = {"target_stype": jnp.asarray([int(stype)]), "task_idx": jnp.asarray([0])}
    losses = context_losses(output, truth, batch, smoke.synthetic_scales(cfg))

    def pinball(e: float, d: float) -> float:
        return e * e / 2 if abs(e) <= d else d * (abs(e) - d / 2)

    def expected(i: int) -> float:
        null = np.log1p(np.exp(float(output.null[i]))) - float(truth.is_null[i] * output.null[i])
        if truth.is_null[i]:
            return float(null)
        if stype == SemanticType.NUMERICAL:
            return float(null) + pinball(float(output.numerical[i]), 0.2)
        if stype == SemanticType.TIMESTAMP:
            parts = [pinball(float(v), 1.0) for v in output.timestamp[i]]
            return float(null) + float(np.mean(parts[:14])) + 2.0 * parts[14]
        if stype == SemanticType.BOOLEAN:
            p = 1 / (1 + np.exp(-float(output.boolean[i])))
            return float(null - np.log(p if truth.boolean[i] else 1 - p))
        total = np.log(np.exp(logits[i].astype(np.float64)).sum())
        return float(null + total - logits[i, int(truth.category[i])] + 1e-4 * total**2)

    np.testing.assert_allclose(losses, [expected(i) for i in range(4)], rtol=1e-5)


def test_seeds_weigh_in_the_loss_what_they_are_given(cfg: Config) -> None:
    batch = smoke.synthetic_batch(cfg, SemanticType.BOOLEAN)
    weights = np.array([0.5, 2.0, 0.0, 1.0], np.float32)
    scales = smoke.synthetic_scales(cfg)
    plain = read_truth(batch, scales)
    truth = read_truth({**batch, SEED_WEIGHTS: weights}, scales)
    np.testing.assert_array_equal(truth.weight, plain.weight * weights)
    output = Output(
        null=jnp.zeros(4), numerical=jnp.zeros(4), timestamp=jnp.zeros((4, 15)),
        boolean=jnp.array([1.0, -1.0, 2.0, 0.5]),
        categorical=jnp.zeros((4, smoke.CATEGORIES_PER_COLUMN)),
    )  # fmt: skip
    each = context_losses(output, truth, batch, scales)
    loss, weight = batch_loss(output, truth, batch, scales)
    assert float(weight) == pytest.approx(float(np.sum(truth.weight)))
    assert float(loss) == pytest.approx(float(np.sum(np.asarray(each) * np.asarray(truth.weight))))
