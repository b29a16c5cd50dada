"""Metrics by type of target, of many weightings of the same rows at once.

    truth, predicted [n]  ──► a measure, which sorts and groups them once
    weights [K,n]         ──► each metric [K], NaN where it is undefined

A row of weights says how often each seed counts: all ones give the metric itself, the draws of a
bootstrap its resamples (`bootstrap.py`). Ties count half in AUROC and together in average
precision. Plain NumPy; cost O(K n) after one sort.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.data.tasks import US_PER_DAY, Floats

Metrics = dict[str, float | None]
Measured = dict[str, Floats]  # [K] by metric, NaN where undefined
Measure = Callable[[Floats], Measured]  # of weights [K,n]
LEAST_SPREAD = 1e-12  # of the largest squared deviation: less is rounding, and R² undefined


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, NaN where below is not positive."""
    undefined = ~(below > 0)
    return np.where(undefined, np.nan, above / np.where(undefined, 1.0, below))


# ------------------------------------------------------------------------------------ by the score


def ranking_measure(is_true: NDArray[np.bool_], score: Floats) -> Measure:
    """Area under the ROC curve, and mean precision over the steps in recall."""
    order = np.argsort(score, kind="stable")
    is_true, score = is_true[order], score[order]
    starts = np.flatnonzero(np.append(True, np.diff(score) != 0)) if score.size else order

    def measure(weights: Floats) -> Measured:
        if not starts.size:
            nothing = np.full(len(weights), np.nan)
            return {"auroc": nothing, "average_precision": nothing}
        weights = weights[:, order]
        true = np.add.reduceat(weights * is_true, starts, axis=1)  # by distinct score, ascending
        false = np.add.reduceat(weights * ~is_true, starts, axis=1)
        all_true, all_false = true.sum(axis=1), false.sum(axis=1)
        below = np.cumsum(false, axis=1) - false
        area = np.sum(true * (below + false / 2.0), axis=1)
        hits = np.cumsum(true[:, ::-1], axis=1)
        named = hits + np.cumsum(false[:, ::-1], axis=1)
        precision = hits / np.where(named > 0, named, 1.0)
        return {
            "auroc": ratio(area, all_true * all_false),
            "average_precision": ratio(np.sum(precision * true[:, ::-1], axis=1), all_true),
        }

    return measure


def f1(both: Floats, truth: Floats, predicted: Floats) -> Floats:
    """2·TP / (positives + predicted positives), 0 where that is 0/0."""
    total = truth + predicted
    return np.where(total > 0, 2.0 * both / np.where(total > 0, total, 1.0), 0.0)


def boolean_measure(truth: Floats, score: Floats) -> Measure:
    """AUROC, average precision, and accuracy and F1 at one half."""
    is_true, predicted = truth > 0.5, score > 0.5
    ranked = ranking_measure(is_true, score)
    counted = [is_true == predicted, is_true & predicted, is_true, predicted]
    columns = np.column_stack(counted).astype(np.float64)

    def measure(weights: Floats) -> Measured:
        right, both, true, named = (weights @ columns).T
        total = weights.sum(axis=1)
        score = np.where(total > 0, f1(both, true, named), np.nan)
        return {**ranked(weights), "accuracy": ratio(right, total), "f1": score}

    return measure


# ------------------------------------------------------------------------------------ by the value


def numerical_measure(truth: Floats, predicted: Floats) -> Measure:
    """MAE, RMSE and R² in the units given."""
    error = predicted - truth
    deviation = truth - truth.mean() if truth.size else truth
    columns = np.column_stack([np.abs(error), error**2, deviation, deviation**2])
    least = LEAST_SPREAD * float(np.max(deviation**2, initial=0.0))

    def measure(weights: Floats) -> Measured:
        absolute, squared, first, second = (weights @ columns).T
        total = weights.sum(axis=1)
        spread = second - ratio(first**2, total)
        spread = np.where(spread > least * total, spread, np.nan)
        return {
            "mae": ratio(absolute, total),
            "rmse": np.sqrt(ratio(squared, total)),
            "r2": 1.0 - squared / spread,
        }

    return measure


def timestamp_measure(truth: Floats, predicted: Floats) -> Measure:
    """MAE and RMSE in days, and R²."""
    in_days = numerical_measure(truth / US_PER_DAY, predicted / US_PER_DAY)

    def measure(weights: Floats) -> Measured:
        days = in_days(weights)
        return {"mae_days": days["mae"], "rmse_days": days["rmse"], "r2": days["r2"]}

    return measure


def categorical_measure(truth: Floats, predicted: Floats) -> Measure:
    """Accuracy, and F1 averaged over the classes that occur in truth or prediction."""
    is_right = (truth == predicted).astype(np.float64)
    classes = [
        (np.flatnonzero((truth == c) | (predicted == c)), c) for c in np.union1d(truth, predicted)
    ]
    counted = [(rows, truth[rows] == c, predicted[rows] == c) for rows, c in classes]

    def measure(weights: Floats) -> Measured:
        score, occurring = np.zeros(len(weights)), np.zeros(len(weights))
        for rows, true, named in counted:
            columns = np.column_stack([true & named, true, named]).astype(np.float64)
            both, trues, nameds = (weights[:, rows] @ columns).T
            score += f1(both, trues, nameds)
            occurring += trues + nameds > 0
        return {
            "accuracy": ratio(weights @ is_right, weights.sum(axis=1)),
            "macro_f1": ratio(score, occurring),
        }

    return measure


MEASURES: dict[SemanticType, Callable[[Floats, Floats], Measure]] = {
    SemanticType.NUMERICAL: numerical_measure,
    SemanticType.TIMESTAMP: timestamp_measure,
    SemanticType.BOOLEAN: boolean_measure,
    SemanticType.CATEGORICAL: categorical_measure,
}


def metrics_of(measure: Measure, count: int) -> Metrics:
    """The metrics of `count` rows that count once each; None where undefined."""
    return {name: plain(value[0]) for name, value in measure(np.ones((1, count))).items()}


def plain(value: float | np.floating[Any]) -> float | None:
    """A number for JSON, None for NaN."""
    return None if np.isnan(value) else float(value)


def metric_text(value: float | None, sign: str = "") -> str:
    """Four significant digits at most, and no more than four behind the point."""
    if value is None:
        return "-"
    digits = 4 if abs(value) < 1 else 3 if abs(value) < 100 else 1
    return f"{value:{sign}.{digits}f}"


def main_metric(stype: SemanticType, metric: str) -> tuple[str, int]:
    """The metric by which models are compared, and its sign: 1 where larger is better, else -1."""
    if stype == SemanticType.BOOLEAN:
        return "auroc", 1
    if stype == SemanticType.CATEGORICAL:
        return "accuracy", 1
    return (f"{metric}_days" if stype == SemanticType.TIMESTAMP else metric), -1
