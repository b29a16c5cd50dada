"""The model and its loss for training loops other than confluence's.

    model = RelationalTransformer(config)
    params = model.init(rng, batch, column_table, category_table)
    output = model.apply(params, batch, column_table, category_table)
    loss = compute_loss(output, batch)

The layers, heads and losses are those that `confluence.train` uses. What a run reads from the store
and its labels is chosen here from shapes: the text width from the tables, the most categories of a
target from the number of rows of the category table, the windows of dense attention from the batch.
All functions are pure and may be called inside `jax.jit`; docs/guides/own-training-loop.md has a
loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from confluence.config import Config, ConfigError
from confluence.data.tasks import (
    CATEGORY_LIMIT,
    TEXT_NUMBERS,
    TEXTS,
    foreign_keys,
    is_flat,
    read_row_shape,
)
from confluence.model import transformer
from confluence.model.expand import Inputs, as_flat
from confluence.model.loss import TaskScales, batch_loss, read_truth
from confluence.model.masked_loss import HUBER_DELTA
from confluence.model.patterns import attention_path
from confluence.model.row_attention import RowShape
from confluence.model.transformer import (
    ForeignKeys,
    Output,
    Params,
    Tables,
    key_names,
    key_starts_of,
)


@dataclasses.dataclass(frozen=True)
class RelationalTransformer:
    """The relational transformer as an object without state: settings in, pure functions out.

    Two models with equal fields are equal and have the same hash, so that `jax.jit(model.apply)`
    compiles once for both.

    Args:
        config: width, heads, layers, attention and compute_dtype are read, the rest is not.
        category_limit: L, the most categories of a target, at least 1. None: the number of rows
            of the category table, at most 4,096. A batch whose target has more gets NaN logits.
        row_shape: the most cells of a row, for attention "rows". None: "auto" is
            "dense" where it would be "rows", that is on a GPU. `for_sampler` knows it.
        foreign_keys: the columns of each foreign key of each table of the store that batches and
            tables are of, whose names tell edges apart. None: they are not told apart.
            `for_sampler` knows them.
    """

    config: Config = dataclasses.field(default_factory=Config)
    _: dataclasses.KW_ONLY
    category_limit: int | None = None
    row_shape: RowShape | None = None
    foreign_keys: ForeignKeys | None = None

    def __post_init__(self) -> None:
        if self.category_limit is not None and self.category_limit < 1:
            raise ConfigError(f"category_limit is {self.category_limit}, expected at least 1")

    @classmethod
    def for_sampler(cls, sampler: Any, config: Config | None = None) -> Self:
        """The model with the bounds and foreign keys of a `headwater.Sampler`: as `train` has it,
        faster on a GPU, and with a categorical head no larger than the sampler's tasks need."""
        options, metadata = sampler.state_dict()["options"], sampler.database_metadata()
        config = (config or Config()).replace(
            sequence_length=sampler.shape["sequence_length"],
            max_rows=sampler.shape["max_rows"],
            identifier_cells=options["identifier_cells"],
            child_counts=options["child_counts"],
        )
        return cls(
            config,
            category_limit=_most_categories(metadata, sampler.tasks),
            row_shape=read_row_shape(metadata, config),
            foreign_keys=foreign_keys(sampler.store.metadata),
        )

    def init(
        self,
        rng: Array,
        batch: Mapping[str, Any],
        column_table: Any,
        category_table: Any,
        *,
        text_table: Any = None,
    ) -> Params:
        """First parameters: a flat dict of float32 arrays by name, a pytree of JAX.

        Args:
            rng: a key of `jax.random`.
            batch, column_table, category_table, text_table: as of `apply`. Only shapes are read:
                the parameters depend on the key, the settings and the text width alone.

        Raises: what `apply` raises for these arguments.
        """
        params = transformer.init(rng, self.config, column_table.shape[-1])
        inputs = (params, dict(batch), column_table, category_table, text_table)
        jax.eval_shape(lambda p, b, c, v, t: self.apply(p, b, c, v, text_table=t), *inputs)
        return params

    def apply(
        self,
        params: Params,
        batch: Mapping[str, Any],
        column_table: Any,
        category_table: Any,
        *,
        text_table: Any = None,
    ) -> Output:
        """What the heads say at the target of each context.

        Args:
            batch: of layout "dense", "compact" or "flat", on the host or the device. Inline
                targets stay hidden from the model.
            column_table: [C,T] float16, `sampler.column_embeddings()`.
            category_table: [V,T] float16, `sampler.categorical_embeddings()`.
            text_table: [V_t+1,T] float16, `sampler.text_embeddings()`, of a sampler with
                text_mode="numbers" or "resident". None: the batch has `text_batch_embeddings`.

        Returns:
            n contexts, float32: `null` [n] logit, `numerical` [n] in z units, `timestamp` [n,15],
            `boolean` [n] logit, `categorical` [n,L] logits, -1e9 beyond the target's categories.
            The batch's `target_stype` says which of them counts.

        Raises:
            ValueError: the batch is packed, texts are missing or given twice, the tables have
                different widths, or `foreign_keys` are of another store.
            KeyError: the batch lacks an array that the model reads.
            ConfigError: the settings ask for an attention that cannot run here.
        """
        arrays = {name: jnp.asarray(array) for name, array in batch.items()}
        arrays[TEXTS] = _texts(arrays, text_table)
        tables = _tables(arrays, column_table, category_table, self.foreign_keys or ())
        limit = self._most_categories_of(tables)
        cfg = self._settings(arrays)
        flat = as_flat(arrays)
        h = transformer.read_context(params, flat, tables, cfg, row_shape=self.row_shape)  # [n,D]
        tables = tables._replace(categories=jnp.pad(tables.categories, ((0, limit), (0, 0))))
        dtype = transformer.compute_dtype(cfg)
        output = transformer.apply_heads(params, h, flat, tables, limit, dtype)
        is_held = flat["cat_emb_count"][0] <= limit
        return output._replace(categorical=jnp.where(is_held, output.categorical, jnp.nan))

    def _most_categories_of(self, tables: Tables) -> int:
        if self.category_limit is not None:
            return self.category_limit
        return min(max(1, tables.categories.shape[0]), CATEGORY_LIMIT)

    def _settings(self, batch: Inputs) -> Config:
        """Those of the model, with windows that hold the sequences of a batch [B,S]."""
        cfg = self.config
        if cfg.attention == "auto" and self.row_shape is None and attention_path(cfg) == "rows":
            cfg = cfg.replace(attention="dense")
        if is_flat(batch):
            if attention_path(cfg) == "dense" and self.row_shape is None:
                raise ConfigError(
                    "attention 'dense' needs the most cells and rows of a context, which a flat"
                    " batch does not say: make the model by RelationalTransformer.for_sampler"
                )
            return cfg
        cells = batch["cells" if "cells" in batch else "is_padding"]
        return cfg.replace(sequence_length=cells.shape[1], max_rows=batch["row_ages"].shape[1])


def _most_categories(metadata: Mapping[str, Any], tasks: tuple[str, ...]) -> int:
    """L of some tasks, at least 1."""
    counts = [1]
    for task in metadata["tasks"]:
        if task["name"] in tasks and task["target_stype"] == "categorical":
            stats = metadata["columns"][task["target_column_id"]].get("stats") or {}
            counts.append(len(stats.get("categories") or ()))
    return max(counts)


def _texts(batch: Inputs, table: Any) -> Array:
    """What the texts of a batch are rows of. → [U,T] float16"""
    if (TEXTS in batch) == (table is not None):
        problem = "neither text_batch_embeddings in the batch nor a text_table"
        if table is not None:
            problem = "both text_batch_embeddings in the batch and a text_table"
        raise ValueError(
            f"found {problem}, expected one of them: text_table is for a sampler with"
            ' text_mode="numbers" or "resident"'
        )
    if table is None:
        return batch[TEXTS]
    rows = jnp.asarray(table)
    return rows[batch[TEXT_NUMBERS]] if TEXT_NUMBERS in batch else rows


def _tables(batch: Inputs, columns: Any, categories: Any, keys: ForeignKeys) -> Tables:
    """The frozen embeddings, after a check that they fit together."""
    columns, categories = jnp.asarray(columns), jnp.asarray(categories)
    widths = [table.shape[-1] for table in (columns, categories, batch[TEXTS])]
    if len(set(widths)) > 1:
        raise ValueError(
            "tables of columns, categories and texts have widths"
            f" {', '.join(map(str, widths))}, expected the same"
        )
    slots, most = batch["parents"].shape[-1], max([1, *map(len, keys)])
    last = max((column for table in keys for key in table for column in key), default=-1)
    if keys and (slots != most or last >= columns.shape[0]):
        raise ValueError(
            f"foreign_keys are of another store: its tables have up to {most} and columns up to"
            f" {last}, the batch has {slots} and the table of columns {columns.shape[0]} rows"
        )
    return Tables(columns, key_names(keys, columns), key_starts_of(keys), categories)


def compute_loss(
    output: Output, batch: Mapping[str, Any], scales: TaskScales | None = None
) -> Array:
    """The mean loss of the labelled contexts of a batch, as `confluence.train` has it. → [] float32

        loss of a context = BCE(null) + (1 - is_null) * loss of the target's type

    docs/reference/model.md, section 3, defines the losses of the types. Contexts without a label,
    and empty places of a batch, count nothing; a batch without a labelled context has the loss 0.
    Masked cells are left out: a loss of them needs `confluence.train` or `confluence.pretrain`.

    Args:
        output: of `RelationalTransformer.apply` for this batch.
        batch: of any layout, with targets="inline" or "separate".
        scales: how numerical targets are scaled, by task. None: `output.numerical` is in z units
            of the target's column, as the batch has it, and the Huber loss has δ = 1. A run of
            confluence has z units of the task's train labels, and δ = 0.2 with the metric "mae":
            `confluence.data.tasks.read_target(sampler, name)[0].scales(config)`.

    Raises:
        ValueError: the batch is packed.
        KeyError: the batch lacks an array that the loss reads.
    """
    arrays = {name: jnp.asarray(array) for name, array in batch.items()}
    if scales is None:  # the same for all tasks, so that which one it is does not matter
        scales = TaskScales(*(jnp.full(1, value, jnp.float32) for value in (1.0, 0.0, HUBER_DELTA)))
        arrays["task_idx"] = jnp.zeros_like(arrays["task_idx"])
    loss, weight = batch_loss(output, read_truth(arrays, scales), arrays, scales)
    return loss / jnp.maximum(1.0, weight)
