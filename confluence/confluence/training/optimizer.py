"""Muon for the matrices of attention, readout and feed-forward, AdamW for everything else.

Which is which is declared with each parameter (`model.parameter_table`), by name: a rule by shape
would hand Muon the encoders and heads. Matrices are stacked by layer and pattern in one array;
Muon orthogonalises each by itself, query, key and value apart.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import optax
from jax import Array
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from confluence.config import Config
from confluence.model.transformer import Params, parameter_table

MUON_MOMENTUM = 0.95
NEWTON_SCHULZ_STEPS = 5  # iterations that orthogonalise an update of Muon
EPSILON = 1e-8  # AdamW, added to the root of the second moment
TEMPERATURE_RATE = 10.0  # learning rate of τ, in units of `learning_rate`
MATRIX = MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)


def learning_rate_share(step: Array | int, cfg: Config) -> Array:
    """Share of the peak: linear warm-up, then a cosine down to `final_learning_rate`."""
    step = jnp.asarray(step, jnp.float32)
    warm = (step + 1.0) / max(1, cfg.warmup)
    progress = jnp.clip((step - cfg.warmup) / max(1, cfg.step_count - cfg.warmup), 0.0, 1.0)
    floor = cfg.final_learning_rate
    cosine = floor + (1.0 - floor) * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
    return jnp.where(step < cfg.warmup, jnp.minimum(warm, 1.0), cosine)


def trainers(cfg: Config, text_width: int) -> dict[str, str]:
    """Which optimizer trains each parameter, by name."""
    return {name: p.trainer for name, p in parameter_table(cfg, text_width).items()}


def make_optimizer(cfg: Config, text_width: int) -> Any:
    """Clip by global norm, then each parameter's own optimizer. An optax GradientTransformation."""

    def rate(peak: float) -> Any:
        return lambda step: peak * learning_rate_share(step, cfg)

    def adamw(peak: float, weight_decay: float) -> Any:
        return optax.adamw(
            rate(peak), b1=cfg.beta1, b2=cfg.beta2, eps=EPSILON, weight_decay=weight_decay
        )

    muon = optax.chain(
        scale_by_muon(
            ns_steps=NEWTON_SCHULZ_STEPS, beta=MUON_MOMENTUM, weight_dimension_numbers=_matrices
        ),
        _scale_by_shape(),
        optax.scale_by_learning_rate(rate(cfg.muon_learning_rate)),
    )
    by_trainer = {
        "muon": muon,
        "adamw": adamw(cfg.learning_rate, cfg.weight_decay),
        "adamw_without_decay": adamw(cfg.learning_rate, 0.0),
        "temperature": adamw(cfg.learning_rate * TEMPERATURE_RATE, 0.0),
    }
    return optax.chain(
        optax.clip_by_global_norm(cfg.clip_norm),
        optax.partition(by_trainer, trainers(cfg, text_width)),
    )


def _matrices(params: Params) -> dict[str, Any]:
    """Every array that reaches Muon is a stack of matrices; what was masked out stays as it is."""
    return {
        name: value if isinstance(value, optax.MaskedNode) else MATRIX
        for name, value in params.items()
    }


def _scale_by_shape() -> Any:
    """Muon's √max(1, out/in), so that tall and wide matrices move alike."""

    def scale(update: Array) -> Array:
        factor: float = max(1.0, update.shape[-1] / update.shape[-2]) ** 0.5
        return update * factor

    return optax.stateless_with_tree_map(lambda update, _: scale(update))
