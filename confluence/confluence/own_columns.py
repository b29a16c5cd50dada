"""Baseline: gradient-boosted trees on the anchor's own columns, all there is without relations.

    sampler that stops at the anchor ──► which cells may be seen    [n,F] bool
    Store.column                     ──► their values               [n,F] float64, NaN otherwise
    LightGBM on the train seeds      ──► a prediction per scored seed

What may be seen is not decided here: a sampler whose contexts end at the anchor's row shows just
the cells that the model is shown of that row, so `known_at`, hidden columns, the target and a
frozen database mean the same to the trees as to the model. Features are numbers, truth values,
categories, times as their age in days at obs_time, and the age of the row; never texts or keys.
Same store and settings, same trees. Cost: one small sequence per seed of the splits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import headwater
import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data import NO_TIME, SPLITS, US_PER_DAY, Floats, Task, open_sampler

FEATURE_STYPES = ("numerical", "boolean", "categorical", "timestamp")
SAMPLE_BATCH = 256  # sequences per batch of the sampler
TREES = 200  # boosting rounds
MAX_TREES = 4_000  # over all classes: a round grows one tree per class
MISSING = "LightGBM is not installed: pip install 'confluence[baselines]'"
SETTINGS: dict[str, Any] = {
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "num_threads": 1,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """What the anchor's own row says about some seeds of a task."""

    seed_index: NDArray[np.int64]  # [n] within the task
    values: Floats  # [n,F] NaN where NULL, not known yet, hidden, or the target
    names: tuple[str, ...]  # [F] columns of the anchor's table, then "row age"
    is_category: tuple[bool, ...]  # [F]


def own_columns(store_path: str, cfg: Config, task: Task, seeds: NDArray[np.int64]) -> Features:
    """Features of some seeds, each given once and in their order, as of the seed's time."""
    store = headwater.Store(store_path)
    entry = store.metadata["tasks"][task.index]
    table = store.metadata["tables"][store.table_index(entry["anchor_table"])]
    low, high = table["column_range"]
    anchor = 1 if entry["kind"] == "derived" else 0  # local row of the anchor, and its hops
    about = store.metadata["columns"][low:high]
    chosen = [c for c, column in enumerate(about) if column["stype"] in FEATURE_STYPES]
    sampler = open_sampler(
        store_path, cfg, task.name, max_hops=anchor, max_rows=2, identifier_cells="none",
        default_sequence_length=high - low + 3, default_batch_size=SAMPLE_BATCH,
        layout="dense", child_counts=False, label_rows=0, peer_labels=0, staleness=None,
        ignored_columns=(),
    )  # fmt: skip
    index, rows = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    times, ages = [np.empty(0, np.int64)], [np.empty(0, np.float64)]
    seen = [np.empty((0, len(chosen)), bool)]
    with sampler:
        for batch in passes(sampler, task, seeds):
            count = int(batch["num_sequences"][0])
            index.append(batch.info["seed_index"][:count].astype(np.int64))
            rows.append(batch.info["anchor_rows"][:count].copy())
            times.append(batch.info["obs_time"][:count].copy())
            seen.append(visible_columns(batch, anchor, low, high)[:count, chosen])
            ages.append(batch["row_ages"][:count, anchor].astype(np.float64))
    found = np.concatenate(index)
    order = np.argsort(found)
    place = order[np.searchsorted(found, seeds, sorter=order)]  # of each seed among those passed
    columns = [about[c] for c in chosen]
    local = np.concatenate(rows)[place].astype(np.int64) - table["row_range"][0]
    values = np.column_stack(
        [np.empty((seeds.size, 0))]
        + [store.column(table["name"], column["name"])["numbers"][local] for column in columns]
    )
    is_time = np.array([column["stype"] == "timestamp" for column in columns], bool)
    values = as_ages(values, np.concatenate(times)[place], is_time)
    values = np.where(np.concatenate(seen)[place], values, np.nan)
    age = np.concatenate(ages)[place]
    return Features(
        seed_index=seeds,
        values=np.column_stack([values, np.where(age >= 0, age, np.nan)]),
        names=(*(column["name"] for column in columns), "row age"),
        is_category=(*(column["stype"] == "categorical" for column in columns), False),
    )


def passes(sampler: Any, task: Task, seeds: NDArray[np.int64]) -> Iterator[Any]:
    """Batches over every split that some of the seeds are in."""
    used = np.unique(np.asarray(sampler.splits(task.name))[seeds])
    for name, split in SPLITS.items():
        if split in used:
            yield from sampler.epoch(name, task=task.name)


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


# ---------------------------------------------------------------------------------------- the trees


def fit_and_predict(
    train: Features, targets: Floats, wanted: Features, stype: SemanticType, *, metric: str
) -> Floats:
    """Trees on the train seeds, then a value per wanted seed, as `Predictions.values` has them."""
    import lightgbm

    classes, shift, scale = np.unique(targets), 0.0, 1.0
    if classes.size == 1:
        return np.full(wanted.values.shape[0], classes[0])
    settings, rounds, labels = dict(SETTINGS), TREES, targets
    if stype == SemanticType.BOOLEAN:
        settings["objective"] = "binary"
    elif stype == SemanticType.CATEGORICAL:
        labels = np.searchsorted(classes, targets).astype(np.float64)
        settings |= {"objective": "multiclass", "num_class": int(classes.size)}
        rounds = max(1, min(TREES, MAX_TREES // classes.size))
    else:
        settings["objective"] = "l1" if metric == "mae" else "l2"
        shift, scale = float(targets.mean()), float(targets.std())
        labels = (targets - shift) / scale
    categories = [f for f, is_category in enumerate(train.is_category) if is_category]
    data = lightgbm.Dataset(
        train.values, label=labels, categorical_feature=categories, params=settings,
        free_raw_data=False,
    )  # fmt: skip
    trees = lightgbm.train(settings, data, num_boost_round=rounds)
    answer = np.asarray(trees.predict(wanted.values), np.float64)
    if stype == SemanticType.CATEGORICAL:
        return np.asarray(classes[answer.argmax(axis=1)], np.float64)
    return answer * scale + shift
