"""Losses at the target, one for each type of target, chosen without a branch.

    loss = null_bce + (1 - is_null)·type_loss        mean over labelled contexts that count

Every head is computed for every batch; the losses are stacked in the order of the types' numbers
and the batch's `target_stype` picks one, so one compiled step serves all tasks. The truth is read
from the target cell, which the model never sees (its value is masked in the encoder).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from headwater import SemanticType
from jax import Array

from confluence.model.cells import at_targets, read_contexts
from confluence.model.expand import Inputs, as_flat
from confluence.model.transformer import Output

TARGET_STYPES = (
    SemanticType.NUMERICAL,
    SemanticType.TIMESTAMP,
    SemanticType.BOOLEAN,
    SemanticType.CATEGORICAL,
)  # in the order of their numbers, and so of the stacked losses

EPOCH_WEIGHT = 2.0  # of the Huber of a timestamp's epoch, against the mean of its 14 cyclic parts
Z_LOSS = 1e-4  # of the squared logsumexp of the categorical head
SEED_WEIGHTS = "seed_weights"  # [n] float32 beside headwater's arrays: what each context weighs


class TaskScales(NamedTuple):
    """How numerical targets of each task are scaled; [n] float32 by task index of the store."""

    scale: Array  # z by column × scale + shift = z by train labels
    shift: Array
    delta: Array  # where the Huber loss turns linear, in z units of the train labels


class Truth(NamedTuple):
    """The answer of each context, read at its target cell."""

    is_null: Array  # [n] float32, 1 where the answer is NULL
    number: Array  # [n] float32, z units of the train labels
    time: Array  # [n,15] float32
    boolean: Array  # [n] float32, 0 or 1
    category: Array  # [n] int32, within the task's categories
    weight: Array  # [n] float32, above 0 where the context counts and is labelled


def read_truth(batch: Inputs, scales: TaskScales) -> Truth:
    """Take the truth out of a batch of any layout, from target cells or separate targets."""
    flat = as_flat(batch)
    task = flat["task_idx"][0].astype(jnp.int32)
    counts = flat["context_targets"] >= 0
    weight = (counts & (flat["is_labelled"] > 0)).astype(jnp.float32)
    answers = separate_answers(flat) if "target_values" in flat else inline_answers(flat)
    is_null, number, time, boolean, category = answers
    return Truth(
        is_null=(is_null > 0).astype(jnp.float32),
        number=number * scales.scale[task] + scales.shift[task],
        time=time,
        boolean=boolean.astype(jnp.float32),
        category=jnp.clip(category.astype(jnp.int32), 0, None),
        weight=weight * flat.get(SEED_WEIGHTS, 1.0),
    )


def inline_answers(flat: Inputs) -> tuple[Array, Array, Array, Array, Array]:
    """(is_null, number, time, boolean, place among the categories) in the target cells, [n,...]."""
    contexts = read_contexts(flat)
    names = ("is_null", "numeric_values", "timestamp_values", "bool_values")
    is_null, number, time, boolean = (at_targets(flat[name], contexts) for name in names)
    start = flat["cat_emb_start"][0].astype(jnp.int32)
    category = at_targets(flat["categorical_embed_ids"], contexts).astype(jnp.int32) - start
    return is_null, number, time, boolean, category


def separate_answers(flat: Inputs) -> tuple[Array, Array, Array, Array, Array]:
    """The same of a batch with targets="separate"; what is not of the target's type is not used."""
    values = flat["target_values"]  # [n,15]
    return flat["target_is_null"], values[:, 0], values, values[:, 0], values[:, 0]


def huber(error: Array, delta: Array | float) -> Array:
    """½e² up to |e| = δ, linear beyond, smooth in between."""
    size = jnp.abs(error)
    inside = jnp.minimum(size, delta)
    return inside * (size - 0.5 * inside)


def binary_cross_entropy(logit: Array, truth: Array) -> Array:
    """-log p(truth), stable for any logit."""
    return jax.nn.softplus(logit) - truth * logit


def numerical_loss(output: Output, truth: Truth, delta: Array) -> Array:
    """Huber in z units of the train labels. → [n]"""
    return huber(output.numerical - truth.number, delta)


def timestamp_loss(said: Array, truth: Array) -> Array:
    """Mean Huber of the cyclic parts plus a weighted Huber of the epoch. [...,15] → [...]"""
    parts = huber(said - truth, 1.0)
    return jnp.mean(parts[..., :-1], axis=-1) + EPOCH_WEIGHT * parts[..., -1]


def categorical_loss(output: Output, truth: Truth) -> Array:
    """Cross-entropy, and a small price on the size of the normaliser. → [n]"""
    total = jax.nn.logsumexp(output.categorical, axis=-1)  # [n]
    index = jnp.minimum(truth.category, output.categorical.shape[-1] - 1)[:, None]
    chosen = jnp.take_along_axis(output.categorical, index, axis=-1)[:, 0]
    return total - chosen + Z_LOSS * total**2


def context_losses(output: Output, truth: Truth, batch: Inputs, scales: TaskScales) -> Array:
    """The loss of each context, before weighting. → [n] float32"""
    delta = scales.delta[batch["task_idx"][0].astype(jnp.int32)]
    by_type = jnp.stack(
        [
            numerical_loss(output, truth, delta),
            timestamp_loss(output.timestamp, truth.time),
            binary_cross_entropy(output.boolean, truth.boolean),
            categorical_loss(output, truth),
        ]
    )  # [4,n], in the order of TARGET_STYPES
    stype = batch["target_stype"][0].astype(jnp.int32)
    type_loss = by_type[stype - int(TARGET_STYPES[0])]  # [n]
    null_loss = binary_cross_entropy(output.null, truth.is_null)
    return null_loss + jnp.where(truth.is_null > 0, 0.0, type_loss)


def batch_loss(
    output: Output, truth: Truth, batch: Inputs, scales: TaskScales
) -> tuple[Array, Array]:
    """Sum of weighted losses, and sum of weights; the loss is one by max(1, the other)."""
    losses = context_losses(output, truth, batch, scales)
    weighed = jnp.where(truth.weight > 0, truth.weight * losses, 0.0)
    return jnp.sum(weighed), jnp.sum(truth.weight)
