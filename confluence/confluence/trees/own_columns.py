"""Features of the anchor's own columns, all there is without relations: a baseline of their own.

    sampler that stops at the anchor ──► which cells may be seen    [m,F] bool
    Store.column                     ──► their values               [m,F] float64, NaN otherwise
                                     ──► Features for trees

What may be seen is not decided here: a sampler whose contexts end at the anchor's row shows just
the cells that the model is shown of that row, so `known_at`, hidden columns, the target and a
frozen database mean the same to the trees as to the model. Features are numbers, truth values,
categories, times as their age in days at obs_time, and the age of the row; never texts or keys.
Cost: one small sequence per question.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import NO_TIME, US_PER_DAY, Floats, Task, open_sampler
from confluence.data.verification import open_store
from confluence.trees.boosted import Features
from confluence.trees.time_lists import Questions

FEATURE_STYPES = ("numerical", "boolean", "categorical", "timestamp")
SAMPLE_BATCH = 256  # sequences per batch of the sampler


def own_columns(store_path: str, cfg: Config, task: Task, questions: Questions) -> Features:
    """Features of some questions in their order, as of each one's time: their own cutoffs are for
    what happened to the anchor, what its row says does not age with them."""
    store = open_store(store_path)
    entry = store.metadata["tasks"][task.index]
    table = store.metadata["tables"][store.table_index(entry["anchor_table"])]
    low, high = table["column_range"]
    anchor = 1 if entry["kind"] == "derived" else 0  # local row of the anchor
    about = store.metadata["columns"][low:high]
    chosen = [c for c, column in enumerate(about) if column["stype"] in FEATURE_STYPES]
    sampler = open_sampler(
        store_path, cfg, task.name, max_hops=0, max_rows=2, identifier_cells="none",
        default_sequence_length=high - low + 3, default_batch_size=SAMPLE_BATCH,
        layout="dense", child_counts=False, label_rows=0, peer_labels=0, staleness=None,
    )  # fmt: skip
    times = questions.moments.obs_times
    ages, seen = [np.empty(0, np.float64)], [np.empty((0, len(chosen)), bool)]
    with sampler:
        rows = questions.anchor_rows
        for batch in sampler.batches_for(task.name, rows=rows, obs_time=times) if rows.size else ():
            count = int(batch["num_sequences"][0])
            seen.append(visible_columns(batch, anchor, low, high)[:count, chosen])
            ages.append(batch["row_ages"][:count, anchor].astype(np.float64))
    columns = [about[c] for c in chosen]
    local = questions.anchor_rows - table["row_range"][0]
    values = np.column_stack(
        [np.empty((local.size, 0))]
        + [store.column(table["name"], column["name"])["numbers"][local] for column in columns]
    )
    is_time = np.array([column["stype"] == "timestamp" for column in columns], bool)
    values = np.where(np.concatenate(seen), as_ages(values, times, is_time), np.nan)
    age = np.concatenate(ages)
    return Features(
        index=questions.index,
        values=np.column_stack([values, np.where(age >= 0, age, np.nan)]),
        names=(*(column["name"] for column in columns), "row age"),
        is_category=(*(column["stype"] == "categorical" for column in columns), False),
    )


def visible_columns(batch: Any, anchor: int, low: int, high: int) -> NDArray[np.bool_]:
    """Which columns of its table a batch shows of each anchor. → [B,high-low]"""
    shown = (batch["is_padding"] == 0) & (batch["is_target"] == 0)
    shown &= batch["seq_row_ids"] == anchor
    sequence, cell = np.nonzero(shown)
    visible = np.zeros((shown.shape[0], high - low), bool)
    visible[sequence, batch["column_ids"][sequence, cell] - low] = True
    return visible


def as_ages(values: Floats, obs_times: NDArray[np.int64], is_time: NDArray[np.bool_]) -> Floats:
    """Replace times by their age in days at obs_time; by days before 1970 where there is none."""
    now = np.where(obs_times == NO_TIME, 0, obs_times).astype(np.float64)[:, None]
    return np.where(is_time, (now - values) / US_PER_DAY, values)
