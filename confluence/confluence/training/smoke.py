"""Synthetic batches, and a short training run on them that needs no store.

The batches follow docs/reference/batch.md to the letter: row 0 is the task's seed row with an
obs_time and the target, row 1 its anchor, the rest are rows of three tables that point at earlier
rows. One batch per type of target, with masked cells of every type as well; thirty steps over the
four must bring the loss down to 70 %, and both of its parts down, the tasks' and that of the masked
cells.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import HUBER_DELTA, to_device
from confluence.model.loss import TARGET_STYPES, TaskScales
from confluence.model.masked_loss import MASKED_TYPES
from confluence.model.row_attention import RowShape
from confluence.model.transformer import ForeignKeys, Tables, key_names, key_starts_of
from confluence.training.step import Constants, Fed, StepRunner, first_state

TEXT_WIDTH = 16  # T
CATEGORIES_PER_COLUMN = 5
TABLE_COLUMNS = (
    ("IDENTIFIER", "CATEGORICAL", "NUMERICAL", "TEXT"),
    ("NUMERICAL", "TIMESTAMP", "BOOLEAN", "CATEGORICAL"),
    ("TIMESTAMP", "NUMERICAL", "TEXT"),
)
COLUMN_STYPES = [SemanticType[name] for table in TABLE_COLUMNS for name in table]
OBS_TIME_COLUMN = len(COLUMN_STYPES)  # then one target column per type of target
CATEGORICAL_COLUMNS = [i for i, s in enumerate(COLUMN_STYPES) if s == SemanticType.CATEGORICAL]
TARGET_CATEGORY_START = len(CATEGORICAL_COLUMNS) * CATEGORIES_PER_COLUMN
CATEGORY_COLUMNS = {  # columns by their first category
    **{k * CATEGORIES_PER_COLUMN: column for k, column in enumerate(CATEGORICAL_COLUMNS)},
    TARGET_CATEGORY_START: OBS_TIME_COLUMN + 1 + TARGET_STYPES.index(SemanticType.CATEGORICAL),
}
COLUMN_COUNT = OBS_TIME_COLUMN + 1 + len(TARGET_STYPES)
FIRST_COLUMNS = [*itertools.accumulate(map(len, TABLE_COLUMNS[:-1]), initial=0)]
ROW_SHAPE = RowShape(width=max(len(table) for table in TABLE_COLUMNS))
NO_TABLE = 65_535  # table of a task's seed row
NO_ROW = 65_535
MEAN_STEPS = 5  # first and last steps whose mean loss is compared
RATIO_MAX = 0.7  # of the last mean to the first; smoke_config() with five seeds: 0.18 to 0.30


class SyntheticBatch(dict[str, NDArray[Any]]):
    """Arrays by name, with the host-side ones in `info`, like `headwater.Batch`."""

    info: dict[str, NDArray[Any]]


def smoke_config() -> Config:
    """`confluence smoke`: 2 layers, D = 128, 30 steps; a minute on one core, the losses fall."""
    return Config(
        width=128, heads=4, layers=2, sequence_length=48, max_rows=16, batch_size=8, steps=30,
        learning_rate=3e-3, auxiliary_weight=0.3,
    )  # fmt: skip


def synthetic_tables(seed: int = 0) -> Tables:
    """Column and category embeddings for synthetic batches, padded for a slice of categories."""
    rng = np.random.default_rng(seed)
    categories = TARGET_CATEGORY_START + 2 * CATEGORIES_PER_COLUMN
    draw = [rng.normal(0, TEXT_WIDTH**-0.5, (n, TEXT_WIDTH)) for n in (COLUMN_COUNT, categories)]
    owners = np.full(categories, -1, np.int32)
    for start, column in CATEGORY_COLUMNS.items():
        owners[start : start + CATEGORIES_PER_COLUMN] = column
    columns, vectors = (jax.device_put(table.astype(np.float16)) for table in draw)
    keys: ForeignKeys = tuple(((first,),) for first in FIRST_COLUMNS)
    return Tables(
        columns, key_names(keys, columns), key_starts_of(keys), vectors, jax.device_put(owners)
    )


def synthetic_scales(cfg: Config) -> TaskScales:
    """Scales of the four synthetic tasks: targets are z-scored already."""
    n = len(TARGET_STYPES)
    values = (1.0, 0.0, HUBER_DELTA[cfg.metric])
    return TaskScales(*(jax.device_put(np.full(n, v, np.float32)) for v in values))


def synthetic_batch(
    cfg: Config, stype: SemanticType, *, seed: int = 0, sequences: int | None = None
) -> SyntheticBatch:
    """One batch whose targets are of type `stype`; `sequences` ≤ B of them count.

    Cells are masked beside the target where `cfg` says so.
    """
    rng = np.random.default_rng([seed, int(stype)])
    B, S, R = cfg.contexts, cfg.sequence_length, cfg.max_rows
    U = 1 + 4 * B
    batch = _empty_batch(B, S, R, U)
    batch["text_batch_embeddings"][1:] = rng.normal(0, TEXT_WIDTH**-0.5, (U - 1, TEXT_WIDTH))
    count = B if sequences is None else sequences
    for b in range(count):
        _fill_sequence(batch, b, stype, rng, U)
    batch["num_sequences"][0] = count
    batch["num_texts"][0] = U
    batch["is_labelled"][:count] = 1
    batch["target_stype"][0] = stype
    batch["task_idx"][0] = TARGET_STYPES.index(stype)
    if stype == SemanticType.CATEGORICAL:
        batch["cat_emb_start"][0] = TARGET_CATEGORY_START
        batch["cat_emb_count"][0] = CATEGORIES_PER_COLUMN
    batch.info = {
        "obs_time": np.full(B, np.iinfo(np.int64).max, np.int64),
        "seed_index": np.arange(B, dtype=np.uint32),
        "anchor_rows": np.arange(B, dtype=np.uint32),
    }
    if cfg.masks_cells:
        _mask_cells(batch, cfg, rng)
    return batch


def _empty_batch(B: int, S: int, R: int, U: int) -> SyntheticBatch:
    cells = {
        "semantic_types": np.int8, "column_ids": np.int32, "seq_row_ids": np.uint16,
        "numeric_values": np.float32, "bool_values": np.uint8,
        "categorical_embed_ids": np.uint32, "text_embed_ids": np.uint32, "is_null": np.uint8,
        "is_target": np.uint8, "is_padding": np.uint8,
    }  # fmt: skip
    single = {
        "target_stype": np.uint8, "task_idx": np.uint32, "cat_emb_start": np.uint32,
        "cat_emb_count": np.uint32, "num_sequences": np.uint32, "num_texts": np.uint32,
    }  # fmt: skip
    batch = SyntheticBatch({name: np.zeros((B, S), dtype) for name, dtype in cells.items()})
    batch.update({name: np.zeros(1, dtype) for name, dtype in single.items()})
    batch["is_padding"][:] = 1
    batch["timestamp_values"] = np.zeros((B, S, 15), np.float32)
    batch["parents"] = np.full((B, R, 1), NO_ROW, np.uint16)
    batch["row_ages"] = np.full((B, R), -1, np.float32)
    batch["row_tables"] = np.full((B, R), NO_TABLE, np.uint16)
    batch["row_starts"] = np.zeros((B, R + 1), np.uint16)
    batch["text_batch_embeddings"] = np.zeros((U, TEXT_WIDTH), np.float16)
    for name in ("num_cells", "num_rows"):
        batch[name] = np.zeros(B, np.uint32)
    batch["is_labelled"] = np.zeros(B, np.uint8)
    return batch


def _fill_sequence(
    batch: SyntheticBatch, b: int, stype: SemanticType, rng: np.random.Generator, U: int
) -> None:
    """Rows until the sequence or the rows are nearly full: seed row, anchor, others."""
    S, R = batch["is_padding"].shape[1], batch["parents"].shape[1]
    target_column = OBS_TIME_COLUMN + 1 + TARGET_STYPES.index(stype)
    cell, row = 0, 0
    row_limit = int(rng.integers(max(3, R // 2), R + 1))
    while row < row_limit:
        table = 0 if row == 1 else int(rng.integers(len(TABLE_COLUMNS)))
        columns = [FIRST_COLUMNS[table] + i for i in range(len(TABLE_COLUMNS[table]))]
        if row == 0:
            columns = [OBS_TIME_COLUMN, target_column]
        if cell + len(columns) > S:
            break
        batch["row_starts"][b, row] = cell
        batch["row_tables"][b, row] = NO_TABLE if row == 0 else table
        for column in columns:
            _fill_cell(batch, (b, cell), row, column, stype, rng, U)
            cell += 1
        batch["row_ages"][b, row] = 0.0 if row == 0 else rng.choice([-1.0, rng.exponential(300)])
        if row == 1:
            batch["parents"][b, 0, 0] = 1
        if row > 1:
            batch["parents"][b, row, 0] = int(rng.integers(1, row))
        row += 1
    batch["row_starts"][b, row:] = cell
    batch["num_cells"][b], batch["num_rows"][b] = cell, row


def _fill_cell(
    batch: SyntheticBatch, at: tuple[int, int], row: int, column: int, target: SemanticType,
    rng: np.random.Generator, U: int,
) -> None:  # fmt: skip
    is_target = column > OBS_TIME_COLUMN
    stype = target if is_target else (*COLUMN_STYPES, SemanticType.TIMESTAMP)[column]
    batch["is_padding"][at] = 0
    batch["semantic_types"][at] = stype
    batch["column_ids"][at] = column
    batch["seq_row_ids"][at] = row
    batch["is_target"][at] = is_target
    if rng.random() < 0.1:
        batch["is_null"][at] = 1
    elif stype == SemanticType.NUMERICAL:
        batch["numeric_values"][at] = rng.normal()
    elif stype == SemanticType.TIMESTAMP:
        angle = rng.uniform(0, 2 * np.pi, 7)
        parts = np.stack([np.sin(angle), np.cos(angle)], axis=1).ravel()
        batch["timestamp_values"][at] = [*parts, rng.normal()]
    elif stype == SemanticType.BOOLEAN:
        batch["bool_values"][at] = rng.integers(2)
    elif stype == SemanticType.CATEGORICAL:
        block = TARGET_CATEGORY_START
        if not is_target:
            block = CATEGORICAL_COLUMNS.index(column) * CATEGORIES_PER_COLUMN
        batch["categorical_embed_ids"][at] = block + rng.integers(CATEGORIES_PER_COLUMN)
    elif stype == SemanticType.TEXT:
        batch["text_embed_ids"][at] = rng.integers(U)


VALUE_FIELDS = {  # where the value of a cell stands, by its type
    SemanticType.NUMERICAL: "numeric_values",
    SemanticType.TIMESTAMP: "timestamp_values",
    SemanticType.BOOLEAN: "bool_values",
    SemanticType.CATEGORICAL: "categorical_embed_ids",
    SemanticType.TEXT: "text_embed_ids",
}


def _mask_cells(batch: SyntheticBatch, cfg: Config, rng: np.random.Generator) -> None:
    """Move some cells into the lists of their types, and mark them like targets."""
    B, S = batch["is_target"].shape
    M = cfg.max_targets_per_type or S
    target = batch["is_target"] > 0
    batch["target_indices"] = np.where(target.any(1), target.argmax(1), -1).astype(np.int32)
    chosen = (rng.random((B, S)) < cfg.mask_ratio) & (batch["is_padding"] == 0) & ~target
    for stype in MASKED_TYPES:
        values, name = batch[VALUE_FIELDS[stype]], f"masked_{stype.name.lower()}"
        indices = np.full((B, M), -1, np.int32)
        truth, is_null = np.zeros((B, M, *values.shape[2:]), values.dtype), np.zeros((B, M), "u1")
        for b in range(B):
            cells = np.flatnonzero(chosen[b] & (batch["semantic_types"][b] == stype))[:M]
            place = slice(cells.size)
            indices[b, place], truth[b, place] = cells, values[b, cells]
            is_null[b, place] = batch["is_null"][b, cells]
            batch["is_target"][b, cells], batch["is_null"][b, cells] = 1, 0
            values[b, cells] = 0
        batch |= {f"{name}_indices": indices, f"{name}_values": truth, f"{name}_is_null": is_null}


def run_smoke(cfg: Config | None = None) -> dict[str, Any]:
    """Train on four fixed synthetic batches; the result has each loss's mean over the first and the
    last `MEAN_STEPS` steps, the `ratio` of the two, and whether the run `passed`: all losses are
    finite, the ratio is at most `RATIO_MAX`, and both parts of the loss fell.
    """
    cfg = cfg or smoke_config()
    tables = synthetic_tables(cfg.seed)
    batches = [to_device(synthetic_batch(cfg, s, seed=cfg.seed)) for s in TARGET_STYPES]
    runner = StepRunner(
        cfg, [Constants(tables, synthetic_scales(cfg))], text_width=TEXT_WIDTH,
        category_limit=CATEGORIES_PER_COLUMN, row_shape=ROW_SHAPE,
    )  # fmt: skip
    state = first_state(cfg, TEXT_WIDTH)
    steps: list[dict[str, float]] = []
    for step in range(cfg.step_count):
        state, metrics = runner.step(state, Fed(batches[step % len(batches)]))
        steps.append({name: float(value) for name, value in metrics.items()})
    runner.assert_one_compilation()
    result: dict[str, Any] = {"steps": cfg.steps}
    finite, falling, k = True, True, MEAN_STEPS
    for name in ("loss", "task_loss", "masked_loss"):
        if name not in steps[0]:
            continue
        values = [told[name] for told in steps]
        first, last = (float(np.mean(part)) for part in (values[:k], values[-k:]))
        result |= {f"first_{name}": first, f"last_{name}": last}
        finite, falling = finite and bool(np.all(np.isfinite(values))), falling and last < first
    ratio = result["last_loss"] / result["first_loss"]
    passed = finite and falling and ratio <= RATIO_MAX
    return {**result, "ratio": ratio, "finite": finite, "passed": passed}
