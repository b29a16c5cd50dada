"""The level of numerical answers, as the newest train seeds tell it.

    newest train seeds ──► what the model says of them ──► median of (label − answer) = level

What a column is like changes from year to year, and a model that learned from all years answers
for their mean. So its numbers are shifted by what they lack on the train seeds of the last
`level_days` days: recalibration in the large. Their order does not change, and answers that are no
numbers stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data import NO_TIME, TRAIN, US_PER_DAY, Labels, Task
from confluence.evaluate import Predictions
from confluence.model import Params
from confluence.predict import Speaker, predict

MOST_SEEDS = 2048  # that are asked about; of more, evenly many


def newest_train(labels: Labels, days: float) -> NDArray[np.int64]:
    """Train seeds with a label, asked in the last so many days before the last of them. → [n]"""
    counts = (labels.splits == TRAIN) & labels.is_known & (labels.obs_times != NO_TIME)
    seeds = np.flatnonzero(counts)
    if seeds.size == 0:
        return seeds
    times = labels.obs_times[seeds]
    seeds = seeds[times >= times.max() - int(days * US_PER_DAY)]
    chosen = np.linspace(0, seeds.size - 1, min(seeds.size, MOST_SEEDS)).astype(np.int64)
    return np.asarray(seeds[chosen], np.int64)


def levelled(
    task: Task, labels: Labels, sampler: Any, predictor: Speaker, params: Params, cfg: Config,
    *, joined: Callable[[Predictions], Predictions] = lambda own: own,
    watched: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Task:  # fmt: skip
    """The task with the level of this model's answers; as it is without `level_days`, or where the
    target is no number.

    Args:
        sampler: of the task, open. The seeds are asked as new ones: none sees its own label.
        joined: what all ranks say, from what this one does.
        watched: the batches as they are, told of one by one (`Group.watched`).
    """
    if cfg.level_days is None or task.stype != SemanticType.NUMERICAL:
        return task
    seeds = newest_train(labels, cfg.level_days)
    if seeds.size == 0:
        return task
    batches = sampler.batches_for(
        task.name, rows=labels.anchor_rows[seeds], obs_time=labels.obs_times[seeds]
    )
    said = joined(predict(predictor, params, iter(watched(batches)), task, clamp=False))
    lacking = labels.targets[seeds[said.seed_index]] - said.values
    level = np.median(lacking) if cfg.metric == "mae" else np.mean(lacking)
    return dataclasses.replace(task, level=float(level))
