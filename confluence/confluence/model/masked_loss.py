"""The loss of masked cells: what the heads say at each of them, against the lists of its type.

    lists of a batch ──► h at their positions ──► heads ──► loss per cell ──► mean per context

A cell is told like a target: null_bce + (1 - null)·type_loss, with the heads that targets have, and
one more for texts. The type of a list is known, so nothing is selected. A context counts once,
whatever number of its cells is masked: its cells have their mean, and the sums are over contexts,
so that batches add up (`train.GradientSums`).

Numerical: Huber (δ 1) in z units of the column. Timestamp: as of a target. Boolean: BCE.
Categorical: cross-entropy over the categories of the cell's column, in blocks of the table. Text:
1 - cos(prediction, the frozen embedding). A contrast with the other texts of the batch would depend
on which these are, and N devices would no longer equal one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from headwater import SemanticType
from jax import Array

from confluence.config import Config
from confluence.model.attention import unit
from confluence.model.cells import at_targets, read_contexts
from confluence.model.expand import Inputs, as_flat
from confluence.model.loss import (
    Z_LOSS,
    TaskScales,
    Truth,
    binary_cross_entropy,
    context_losses,
    huber,
    timestamp_loss,
)
from confluence.model.row_attention import RowShape
from confluence.model.transformer import (
    Params,
    Tables,
    apply_heads,
    compute_dtype,
    project,
    read_context,
)

MASKED_TYPES = (
    SemanticType.NUMERICAL,
    SemanticType.TIMESTAMP,
    SemanticType.BOOLEAN,
    SemanticType.CATEGORICAL,
    SemanticType.TEXT,
)
HUBER_DELTA = 1.0  # in z units of a column
CATEGORY_BLOCK = 4_096  # categories whose scores exist at once


class MaskedList(NamedTuple):
    """The masked cells of one type in a batch."""

    position: Array  # [n,M] int32, a cell of the batch, 0 where unused
    is_used: Array  # [n,M] bool
    is_null: Array  # [n,M] float32
    value: Array  # [n,M], of timestamps [n,M,15]


def read_list(batch: Inputs, stype: SemanticType) -> MaskedList:
    """The list of a type, safe to index with."""
    name = f"masked_{stype.name.lower()}"
    index = batch[f"{name}_indices"].astype(jnp.int32)
    return MaskedList(
        position=jnp.maximum(index, 0),
        is_used=index >= 0,
        is_null=(batch[f"{name}_is_null"] > 0).astype(jnp.float32),
        value=batch[f"{name}_values"],
    )


def masked_losses(
    params: Params, h: Array, batch: Inputs, tables: Tables, cfg: Config
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Losses of masked cells by type. h: [N,D] float32, of `read_context(everywhere=True)`.

    Returns:
        (sums, counts) by name of the type, [n] float32 each: of a context's masked cells.
    """
    batch = as_flat(batch)
    sums, counts = {}, {}
    for stype in MASKED_TYPES:
        cells = read_list(batch, stype)
        at = h[cells.position]  # [n,M,D]
        null_logit = _head(params, "null", at)[..., 0]
        null_loss = binary_cross_entropy(null_logit, cells.is_null)
        type_loss = _type_loss(params, at, cells, stype, batch, tables, cfg)  # [n,M]
        loss = null_loss + jnp.where(cells.is_null > 0, 0.0, type_loss)
        sums[stype.name.lower()] = jnp.sum(jnp.where(cells.is_used, loss, 0.0), axis=1)
        counts[stype.name.lower()] = jnp.sum(cells.is_used, axis=1).astype(jnp.float32)
    return sums, counts


def _head(params: Params, name: str, h: Array) -> Array:
    return h @ params[f"heads.{name}.weight"] + params[f"heads.{name}.bias"]


def _type_loss(
    params: Params, h: Array, cells: MaskedList, stype: SemanticType, batch: Inputs,
    tables: Tables, cfg: Config,
) -> Array:  # fmt: skip
    """What a cell that is not NULL costs beside the null head. [n,M,D] → [n,M]"""
    if stype == SemanticType.CATEGORICAL:
        return _categorical_loss(params, h, cells, batch, tables, cfg)
    said = _head(params, stype.name.lower(), h)  # [n,M,*]
    if stype == SemanticType.NUMERICAL:
        return huber(said[..., 0] - cells.value, HUBER_DELTA)
    if stype == SemanticType.BOOLEAN:
        return binary_cross_entropy(said[..., 0], cells.value.astype(jnp.float32))
    if stype == SemanticType.TIMESTAMP:
        return timestamp_loss(said, cells.value)
    return _text_loss(said, cells, batch["text_batch_embeddings"])


def _text_loss(said: Array, cells: MaskedList, texts: Array) -> Array:
    """1 - cos of the angle to the text's vector; 0 where the text is over the budget (text 0)."""
    text = cells.value.astype(jnp.int32)
    truth = texts[text].astype(jnp.float32)  # [n,M,T]
    cosine = jnp.sum(unit(said) * unit(truth), axis=-1)
    return jnp.where(text > 0, 1.0 - cosine, 0.0)


def _categorical_loss(
    params: Params, h: Array, cells: MaskedList, batch: Inputs, tables: Tables, cfg: Config
) -> Array:
    """Cross-entropy over the categories of the cell's column, and a price on the normaliser."""
    assert tables.category_columns is not None, "masked cells need Tables.category_columns"
    dtype = compute_dtype(cfg)
    columns = batch["column_ids"].astype(jnp.int32)[cells.position]  # [n,M]
    query = _head(params, "categorical", h)  # [n,M,D]
    block = min(CATEGORY_BLOCK, tables.categories.shape[0])
    padding = -tables.categories.shape[0] % block
    vectors = jnp.pad(tables.categories, ((0, padding), (0, 0)))
    owners = jnp.pad(tables.category_columns, (0, padding), constant_values=-1)

    def add_block(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        vectors, owners = part
        projected = project(params, "encoder.categorical", vectors, dtype).astype(jnp.float32)
        scores = jnp.einsum("nmd,vd->nmv", query, projected)
        scores = jnp.where(owners == columns[..., None], scores, -1e9)
        return jnp.logaddexp(total, jax.nn.logsumexp(scores, axis=-1)), None

    parts = (vectors.reshape(-1, block, vectors.shape[1]), owners.reshape(-1, block))
    start = jnp.full(columns.shape, -1e9, jnp.float32)
    total, _ = jax.lax.scan(jax.checkpoint(add_block), start, parts)
    truth = tables.categories[cells.value.astype(jnp.int32)]  # [n,M,T]
    projected = project(params, "encoder.categorical", truth, dtype).astype(jnp.float32)
    chosen = jnp.sum(query * projected, axis=-1)
    return total - chosen + Z_LOSS * total**2


# ------------------------------------------------------------------------------------ the batch


def context_means(sums: dict[str, Array], counts: dict[str, Array]) -> tuple[Array, Array]:
    """The mean loss of each context's masked cells, and 1 where it has any. → [n], [n]"""
    count = sum(counts.values(), jnp.zeros(()))
    mean = sum(sums.values(), jnp.zeros(())) / jnp.maximum(count, 1.0)
    return mean, (count > 0).astype(jnp.float32)


def loss_with_masks(
    params: Params,
    batch: Inputs,
    truth: Truth,
    tables: Tables,
    scales: TaskScales,
    cfg: Config,
    *,
    category_limit: int,
    row_shape: RowShape | None = None,
) -> tuple[Array, Array, Array]:
    """Sum of weighted losses, sum of weights, and how much of the losses is of masked cells beside
    a task, before `auxiliary_weight`.

    Alone, a context weighs 1 and costs its masked cells' mean. Beside a task, to the loss of each
    context `auxiliary_weight` times that mean is added, and weighs what the task's does: nothing
    where the context is unlabelled.
    """
    flat = as_flat(batch)
    h = read_context(params, flat, tables, cfg, row_shape=row_shape, everywhere=True)  # [N,D]
    means, is_masked = context_means(*masked_losses(params, h, flat, tables, cfg))
    if cfg.objective == "masked_cells":
        return jnp.sum(means * is_masked), jnp.sum(is_masked), jnp.zeros((), jnp.float32)
    at_target = at_targets(h, read_contexts(flat))  # [n,D]
    output = apply_heads(params, at_target, flat, tables, category_limit, compute_dtype(cfg))
    losses = context_losses(output, truth, flat, scales)
    masked = means * is_masked
    counts = truth.weight > 0

    def total(losses: Array) -> Array:
        return jnp.sum(jnp.where(counts, truth.weight * losses, 0.0))

    return total(losses + cfg.auxiliary_weight * masked), jnp.sum(truth.weight), total(masked)
