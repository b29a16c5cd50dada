"""How `Sampler` is called, as its table of options says: test_sampler_signature.py writes it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from headwater.store.row_keys import Time
from headwater.store.store import Store


def init(
    self: object,
    db_path: str | os.PathLike[str] | None = None,
    rank: int = 0,
    world_size: int = 1,
    split_ratios: tuple[float, float, float] = (0.8, 0.1, 0.1),
    split_seed: int = 123,
    seed: int = 42,
    num_prefetch: int | None = None,
    default_batch_size: int = 32,
    default_sequence_length: int = 1024,
    bfs_child_width: int = 16,
    task_weights: Mapping[str, float] | Sequence[float] | None = None,
    *,
    store: Store | None = None,
    local_world_size: int = 1,
    load: Literal["mmap", "ram"] = "mmap",
    verify: Literal["once", "header", "full"] = "once",
    shard: Literal["fixed", "dealt"] = "fixed",
    max_rows: int | None = None,
    max_hops: int | None = None,
    child_width_per: Literal["foreign_key", "row"] = "foreign_key",
    child_order: Literal["uniform", "recent"] = "uniform",
    identifier_cells: Literal["all", "foreign_keys", "none"] = "all",
    context_labels: Literal["train", "none", "all"] | None = None,
    targets: Literal["inline", "separate"] = "inline",
    task_order: Literal["weighted", "round_robin"] = "weighted",
    tasks: Sequence[str] | None = None,
    visible_until: Time | Mapping[str, Time | None] | None = None,
    num_threads: int | None = None,
    num_prefetch_val: int = 1,
    text_budget: int | None = None,
    with_rows: bool = False,
    layout: Literal["dense", "compact", "flat"] = "dense",
    text_mode: Literal["batch", "resident", "numbers"] = "batch",
    attention_masks: bool = False,
    packing: bool = False,
    contexts_per_batch: int | None = None,
    level_block: int = 32,
    level_parts: int = 1,
    staleness: tuple[float, float] | None = None,
    child_counts: bool = False,
    label_rows: int = 0,
    time_split: tuple[Time, Time] | None = None,
    train_on_val: bool = False,
    objective: Literal["task", "masked_cells"] = "task",
    mask_ratio: float | None = None,
    seed_tables: Sequence[str] | None = None,
    max_targets_per_type: int | None = None,
    peer_labels: int = 0,
    cell_dropout: float = 0.0,
    context_length: int | None = None,
    max_context_rows: int | None = None,
) -> None: ...
