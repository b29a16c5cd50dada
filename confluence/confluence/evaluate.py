"""Metrics on exactly the seeds of a split, beside baselines, with the regime named.

Metrics are plain NumPy. Baselines say what a number is worth: the best constant of the train
labels; the best constant of each entity's own train labels that were known before the row's time,
which falls back to the global constant where an entity has none (the share is reported); and, where
the caller made them, boosted trees on the anchor's own columns (`own_columns.py`).
Seeds without a label are never scored, nor are NULL targets; both are counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.data import NO_TIME, SPLITS, TRAIN, Floats, Labels, Task

Metrics = dict[str, float | None]
US_PER_DAY = 86_400_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions:
    """One row per seed, in the order of the batches."""

    seed_index: NDArray[np.uint32]  # [n] within the task; meaningless for ad-hoc seeds
    anchor_rows: NDArray[np.uint32]  # [n] global row
    obs_times: NDArray[np.int64]  # [n] µs, NO_TIME where there is none
    values: Floats  # [n] source units; P(true); index of the likeliest category; µs
    probabilities: Floats  # [n] of true or of the likeliest category; NaN for numbers and times
    null_probabilities: Floats  # [n]


# ------------------------------------------------------------------------------------- the metrics


def auroc(truth: NDArray[np.bool_], score: Floats) -> float | None:
    """Area under the ROC curve, ties counted half; None where one class is missing."""
    positives = int(truth.sum())
    negatives = truth.size - positives
    if positives == 0 or negatives == 0:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2.0  # ranks from 1, ties share their mean
    rank_sum = float(mean_rank[inverse][truth].sum())
    return (rank_sum - positives * (positives + 1) / 2.0) / (positives * negatives)


def average_precision(truth: NDArray[np.bool_], score: Floats) -> float | None:
    """Mean precision over the steps in recall, ties taken together; None without positives."""
    if not truth.any():
        return None
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(truth[order])
    last = np.append(np.flatnonzero(np.diff(score[order])), truth.size - 1)  # end of each tie
    precision = hits[last] / (last + 1)
    recall_gain = np.diff(hits[last], prepend=0) / hits[-1]
    return float(np.sum(precision * recall_gain))


def f1(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    """2·TP / (2·TP + FP + FN), 0 where that is 0/0."""
    both = int(np.sum(truth & predicted))
    total = int(truth.sum()) + int(predicted.sum())
    return 2.0 * both / total if total else 0.0


def boolean_metrics(truth: Floats, score: Floats) -> Metrics:
    """AUROC, average precision, and accuracy and F1 at one half."""
    is_true, predicted = truth > 0.5, score > 0.5
    return {
        "auroc": auroc(is_true, score),
        "average_precision": average_precision(is_true, score),
        "accuracy": float(np.mean(is_true == predicted)) if truth.size else None,
        "f1": f1(is_true, predicted) if truth.size else None,
    }


def numerical_metrics(truth: Floats, predicted: Floats) -> Metrics:
    """MAE, RMSE and R² in the units given."""
    if not truth.size:
        return {"mae": None, "rmse": None, "r2": None}
    error = predicted - truth
    spread = float(np.sum((truth - truth.mean()) ** 2))
    return {
        "mae": float(np.mean(np.abs(error))),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "r2": 1.0 - float(np.sum(error**2)) / spread if spread > 0 else None,
    }


def categorical_metrics(truth: Floats, predicted: Floats) -> Metrics:
    """Accuracy, and F1 averaged over the classes that occur in truth or prediction."""
    if not truth.size:
        return {"accuracy": None, "macro_f1": None}
    classes = np.union1d(truth, predicted)
    scores = [f1(truth == c, predicted == c) for c in classes]
    return {"accuracy": float(np.mean(truth == predicted)), "macro_f1": float(np.mean(scores))}


def timestamp_metrics(truth: Floats, predicted: Floats) -> Metrics:
    """MAE and RMSE in days, and R²."""
    days = numerical_metrics(truth / US_PER_DAY, predicted / US_PER_DAY)
    return {"mae_days": days["mae"], "rmse_days": days["rmse"], "r2": days["r2"]}


METRICS: dict[SemanticType, Callable[[Floats, Floats], Metrics]] = {
    SemanticType.NUMERICAL: numerical_metrics,
    SemanticType.TIMESTAMP: timestamp_metrics,
    SemanticType.BOOLEAN: boolean_metrics,
    SemanticType.CATEGORICAL: categorical_metrics,
}


def main_metric(stype: SemanticType, metric: str) -> tuple[str, int]:
    """The metric by which models are compared, and its sign: 1 where larger is better, else -1."""
    if stype == SemanticType.BOOLEAN:
        return "auroc", 1
    if stype == SemanticType.CATEGORICAL:
        return "accuracy", 1
    return (f"{metric}_days" if stype == SemanticType.TIMESTAMP else metric), -1


# ----------------------------------------------------------------------------------- the baselines


def best_constant(stype: SemanticType, metric: str) -> tuple[str, Callable[[Floats], float]]:
    """The constant that suits a target, by name: base rate, majority, median or mean."""
    if stype == SemanticType.BOOLEAN:
        return "base rate", lambda labels: float(labels.mean())
    if stype == SemanticType.CATEGORICAL:
        return "majority", lambda labels: float(np.bincount(labels.astype(np.int64)).argmax())
    if metric == "mae":
        return "median", lambda labels: float(np.median(labels))
    return "mean", lambda labels: float(labels.mean())


def entity_histories(
    labels: Labels, rows: NDArray[np.int64], *, visible_until_us: int, label_window_us: int
) -> list[Floats]:
    """For each row, the train labels of its anchor that were known at its time.

    A label is known `label_window_us` after its obs_time, or strictly later than it where no window
    is stated. A row without time sees all labels of its anchor but its own.
    """
    train = np.flatnonzero((labels.splits == TRAIN) & labels.is_known)
    train = train[np.lexsort((labels.obs_times[train], labels.anchor_rows[train]))]
    anchors, targets = labels.anchor_rows[train], labels.targets[train]
    known_at = labels.obs_times[train]
    if label_window_us:
        known_at = np.minimum(known_at, NO_TIME - label_window_us) + label_window_us
    lows = np.searchsorted(anchors, labels.anchor_rows[rows], "left")
    highs = np.searchsorted(anchors, labels.anchor_rows[rows], "right")
    side = "right" if label_window_us else "left"
    histories = []
    for row, low, high in zip(rows, lows, highs, strict=True):
        now = min(int(labels.obs_times[row]), visible_until_us)
        if now == NO_TIME:
            histories.append(targets[low:high][train[low:high] != row])
            continue
        end = low + int(np.searchsorted(known_at[low:high], now, side))  # type: ignore[call-overload]
        histories.append(targets[low:end])
    return histories


def baselines(
    labels: Labels, rows: NDArray[np.int64], task: Task, *, metric: str, visible_until_us: int,
    trees: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """All baselines on the rows scored: what they predict with, and their metrics."""
    name, constant = best_constant(task.stype, metric)
    train = labels.targets[(labels.splits == TRAIN) & labels.is_known]
    overall = constant(train if train.size else np.zeros(1))
    histories = entity_histories(
        labels, rows, visible_until_us=visible_until_us, label_window_us=task.label_window_us
    )
    own = np.array([constant(h) if h.size else overall for h in histories], np.float64)
    without = sum(1 for h in histories if not h.size)
    truth, measure = labels.targets[rows], METRICS[task.stype]
    found: dict[str, Any] = {
        "global_constant": {
            "constant": f"{name} of the train labels",
            "value": overall,
            "metrics": measure(truth, np.full(rows.size, overall)),
        },
        "per_entity": {
            "constant": f"{name} of the entity's train labels known by then",
            "fallback": "global_constant",
            "fallback_share": without / rows.size if rows.size else 0.0,
            "metrics": measure(truth, own),
        },
    }
    if trees is not None:
        found["own_columns"] = _tree_result(trees, truth, rows, measure)
    return found


def _tree_result(
    trees: Mapping[str, Any], truth: Floats, rows: NDArray[np.int64],
    measure: Callable[[Floats, Floats], Metrics],
) -> dict[str, Any]:  # fmt: skip
    if "missing" in trees:
        return {"missing": trees["missing"], "metrics": dict.fromkeys(measure(truth, truth))}
    return {
        "model": "boosted trees on the anchor's own columns",
        "features": trees["features"],
        "metrics": measure(truth, trees["values"][rows]),
    }


# ---------------------------------------------------------------------------------- the evaluation


def evaluate(
    predictions: Predictions, labels: Labels, task: Task, *, split: str, metric: str,
    visible_until: str | None = None, trees: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Score one pass over a split. The result is plain and can be written as JSON.

    Args:
        trees: what `own_columns.tree_baseline` returned; None: that baseline is left out.
    """
    index = predictions.seed_index.astype(np.int64)
    expected = np.flatnonzero(labels.splits == SPLITS[split])
    if not np.array_equal(np.sort(index), expected):
        raise ValueError(
            f"predictions cover {index.size} seeds, split '{split}' of task '{task.name}' has"
            f" {expected.size}, or some came twice"
        )
    scored = labels.is_known[index]
    rows = index[scored]
    until_us = NO_TIME if visible_until is None else time_us(visible_until)
    return {
        "task": task.name,
        "split": split,
        "regime": "rolling" if visible_until is None else "frozen",
        "visible_until": visible_until,
        "seeds": int(index.size),
        "scored": int(scored.sum()),
        "null": int(np.sum(labels.is_labelled[index] & ~scored)),
        "unlabelled": int(np.sum(~labels.is_labelled[index])),
        "metrics": METRICS[task.stype](labels.targets[rows], predictions.values[scored]),
        "baselines": baselines(
            labels, rows, task, metric=metric, visible_until_us=until_us, trees=trees
        ),
    }  # fmt: skip


def time_us(value: str | int) -> int:
    """Microseconds since 1970 of an ISO time in UTC; an integer is returned as it is."""
    if isinstance(value, int):
        return value
    return int(np.datetime64(value.rstrip("Z"), "us").astype(np.int64))


def time_text(value_us: int) -> str:
    """ISO time in UTC, to the second where that loses nothing; empty for a seed without time."""
    if value_us == NO_TIME:
        return ""
    unit = "s" if value_us % 1_000_000 == 0 else "us"
    return str(np.datetime64(value_us, "us").astype(f"datetime64[{unit}]"))
