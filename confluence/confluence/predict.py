"""From the heads' outputs to answers in source units, and the CSV that holds them.

Columns: key, obs_time, prediction, probability. A prediction is a number, a time, true or false
(probability: of true), or a category (probability: of that category).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from headwater import SemanticType

from confluence.data import Floats, Task
from confluence.evaluate import Predictions, time_text
from confluence.model import Output, Params
from confluence.train import Predictor

COLUMNS = ("key", "obs_time", "prediction", "probability")
Row = dict[str, Any]


def predict(
    predictor: Predictor, params: Params, batches: Iterator[Any], task: Task, *, clamp: bool
) -> Predictions:
    """Run the model over batches and read its answers."""
    parts: list[Predictions] = []
    for output, info in predictor.outputs(params, batches):
        values, probabilities = read_answers(output, task, clamp=clamp)
        parts.append(
            Predictions(
                seed_index=info["seed_index"],
                anchor_rows=info["anchor_rows"],
                obs_times=info["obs_time"],
                values=values,
                probabilities=probabilities,
                null_probabilities=_sigmoid(np.asarray(output.null, np.float64)),
            )
        )

    def joined(name: str, dtype: type) -> Any:
        return np.concatenate([np.empty(0, dtype), *(getattr(p, name) for p in parts)])

    return Predictions(
        seed_index=joined("seed_index", np.uint32),
        anchor_rows=joined("anchor_rows", np.uint32),
        obs_times=joined("obs_times", np.int64),
        values=joined("values", np.float64),
        probabilities=joined("probabilities", np.float64),
        null_probabilities=joined("null_probabilities", np.float64),
    )


def read_answers(output: Output, task: Task, *, clamp: bool) -> tuple[Floats, Floats]:
    """(values, probabilities) of a batch from the head that the task's type selects, float64."""
    count = len(np.asarray(output.null))
    nothing = np.full(count, np.nan)
    if task.stype == SemanticType.BOOLEAN:
        score = _sigmoid(np.asarray(output.boolean, np.float64))
        return score, score
    if task.stype == SemanticType.CATEGORICAL:
        logits = np.asarray(output.categorical, np.float64)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        share = odds / odds.sum(axis=1, keepdims=True)
        return share.argmax(axis=1).astype(np.float64), share.max(axis=1)
    if task.stype == SemanticType.TIMESTAMP:
        epoch = np.asarray(output.timestamp, np.float64)[:, -1]
        return epoch * task.column_std + task.column_mean, nothing
    values = np.asarray(output.numerical, np.float64) * task.std + task.mean
    return np.clip(values, task.low, task.high) if clamp else values, nothing


def _sigmoid(logit: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0.0, -logit)), np.float64)


def to_rows(predictions: Predictions, task: Task, store: Any) -> list[Row]:
    """One dict per prediction, with the keys of its anchors. `store` is a `headwater.Store`."""
    rows = []
    for i in range(predictions.values.size):
        key = store.row(int(predictions.anchor_rows[i]))["key"]
        probability = float(predictions.probabilities[i])
        rows.append(
            {
                "key": _plain_key(key),
                "obs_time": time_text(int(predictions.obs_times[i])),
                "prediction": _answer(float(predictions.values[i]), task),
                "probability": None if np.isnan(probability) else probability,
            }
        )
    return rows


def _plain_key(key: Any) -> Any:
    """The value of a simple key, JSON for a composite one."""
    if not isinstance(key, dict):
        return key
    return next(iter(key.values())) if len(key) == 1 else json.dumps(key, default=str)


def _answer(value: float, task: Task) -> Any:
    if task.stype == SemanticType.BOOLEAN:
        return value > 0.5
    if task.stype == SemanticType.CATEGORICAL:
        return task.categories[int(value)]
    if task.stype == SemanticType.TIMESTAMP:
        return time_text(round(value))
    return value


def write_csv(rows: list[Row], path: Path) -> None:
    """Write predictions; absent probabilities are empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
