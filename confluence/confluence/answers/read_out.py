"""From the heads' outputs to predictions in source units; `prediction_files.py` shows them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.data.tasks import NO_TIME, US_PER_DAY, Floats, Labels, Task
from confluence.model.outputs import Pass, sigmoid, softmax
from confluence.model.transformer import Output, Params
from confluence.scores.scoring import Predictions, short_time, time_text

NEAR_US = 366 * US_PER_DAY  # of the seeds of a task, if these do not span more


class OutputSource(Protocol):
    """A compiled model, or several of whose outputs it gives the average."""

    def outputs(self, params: Params, batches: Iterator[Any]) -> Pass:
        """Outputs of the heads for the batches."""


def predict(
    source: OutputSource, params: Params, batches: Iterator[Any], task: Task
) -> Predictions:
    """Run the model over batches and read its answers."""
    parts: list[Predictions] = []
    for output, info in source.outputs(params, batches):
        values, probabilities = read_answers(output, task)
        parts.append(
            Predictions(
                seed_index=info["seed_index"],
                anchor_rows=info["anchor_rows"],
                obs_times=info["obs_time"],
                values=values,
                probabilities=probabilities,
                null_probabilities=sigmoid(np.asarray(output.null, np.float64)),
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


def clamped(values: Floats, task: Task) -> Floats:
    """Numbers within the range of the train labels."""
    return np.clip(values, task.low, task.high)


def read_answers(output: Output, task: Task) -> tuple[Floats, Floats]:
    """(values, probabilities) of a batch from the head that the task's type selects, float64."""
    count = len(np.asarray(output.null))
    nothing = np.full(count, np.nan)
    if task.stype == SemanticType.BOOLEAN:
        score = sigmoid(np.asarray(output.boolean, np.float64))
        return score, score
    if task.stype == SemanticType.CATEGORICAL:
        share = softmax(np.asarray(output.categorical, np.float64))
        return share.argmax(axis=1).astype(np.float64), share.max(axis=1)
    if task.stype == SemanticType.TIMESTAMP:
        epoch = np.asarray(output.timestamp, np.float64)[:, -1]
        return epoch * task.column_std + task.column_mean, nothing
    values = np.asarray(output.numerical, np.float64) * task.std + task.mean
    return clamped(values, task), nothing


def reordered(predictions: Predictions, order: NDArray[np.integer]) -> Predictions:
    """The predictions at these places, in this order."""
    return Predictions(**{name: values[order] for name, values in vars(predictions).items()})


def warn_of_far_times(asked: NDArray[np.int64], labels: Labels, task: str) -> None:
    """Tell of questions that are asked further from all seeds of the task than these span: a model
    answers them without having seen anything of the kind, and a time may be mistyped.

    Args:
        asked: [n] µs, NO_TIME where there is none.
    """
    known = labels.obs_times[labels.obs_times != NO_TIME]
    if known.size == 0:
        return
    first, last = int(known.min()), int(known.max())
    near = max(last - first, NEAR_US)
    far = asked[(asked != NO_TIME) & ((asked < first - near) | (asked > last + near))]
    if far.size == 0:
        return
    span = " to ".join(short_time(time_text(time)) for time in (first, last))
    warnings.warn(
        f"{far.size:,} of {asked.size:,} questions are asked far from the seeds of task '{task}'"
        f" ({span}), such as at {short_time(time_text(int(far[0])))}",
        stacklevel=3,
    )
