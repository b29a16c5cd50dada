"""Metrics against scikit-learn, baselines worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from headwater import SemanticType
from sklearn import metrics as oracle

from confluence.data import NO_TIME, Labels, Task
from confluence.evaluate import (
    METRICS,
    US_PER_DAY,
    Predictions,
    auroc,
    average_precision,
    boolean_metrics,
    categorical_metrics,
    entity_histories,
    evaluate,
    main_metric,
    numerical_metrics,
    time_text,
    time_us,
)

DAY = 86_400_000_000


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_boolean_metrics_equal_scikit_learn(seed: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    truth = (rng.random(200) < 0.3).astype(np.float64)
    score = rng.integers(0, levels, 200) / levels
    found = boolean_metrics(truth, score)
    assert found["auroc"] == pytest.approx(oracle.roc_auc_score(truth, score))
    assert found["average_precision"] == pytest.approx(oracle.average_precision_score(truth, score))
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(truth, score > 0.5))
    assert found["f1"] == pytest.approx(oracle.f1_score(truth, score > 0.5, zero_division=0))


def test_metrics_without_a_class_are_absent_not_wrong() -> None:
    nothing = np.zeros(3, bool)
    assert auroc(nothing, np.arange(3.0)) is None
    assert auroc(~nothing, np.arange(3.0)) is None
    assert average_precision(nothing, np.arange(3.0)) is None
    assert numerical_metrics(np.empty(0), np.empty(0))["mae"] is None


def test_numerical_metrics_equal_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.normal(size=50), rng.normal(size=50)
    found = numerical_metrics(truth, predicted)
    assert found["mae"] == pytest.approx(oracle.mean_absolute_error(truth, predicted))
    assert found["rmse"] == pytest.approx(oracle.root_mean_squared_error(truth, predicted))
    assert found["r2"] == pytest.approx(oracle.r2_score(truth, predicted))


def test_categorical_metrics_equal_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 4, 60), rng.integers(0, 6, 60)
    found = categorical_metrics(truth.astype(float), predicted.astype(float))
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(truth, predicted))
    expected = oracle.f1_score(truth, predicted, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(expected)


def labels_of(rows: list[tuple[int, int, float, int]], **changes: Any) -> Labels:
    """(anchor, day, target, split) for each seed; everything labelled."""
    anchors, days, targets, splits = (np.array(column) for column in zip(*rows, strict=True))
    known = np.ones(len(rows), bool)
    fields: dict[str, Any] = {
        "anchor_rows": anchors.astype(np.uint32),
        "obs_times": np.where(days < 0, NO_TIME, days * DAY).astype(np.int64),
        "targets": targets.astype(np.float64),
        "is_known": known,
        "is_labelled": known,
        "splits": splits.astype(np.uint8),
    }
    return Labels(**{**fields, **changes})


def task_of(stype: SemanticType, **changes: Any) -> Task:
    fields: dict[str, Any] = {
        "name": "t", "index": 0, "stype": stype, "categories": (), "column_mean": 0.0,
        "column_std": 1.0, "mean": 0.0, "std": 1.0, "low": 0.0, "high": 1.0,
        "positive_share": 0.5, "null_share": 0.0, "label_window_us": 0,
    }  # fmt: skip
    return Task(**{**fields, **changes})


ROWS = [
    (7, 1, 0.0, 0),
    (7, 3, 1.0, 0),
    (7, 5, 1.0, 2),
    (8, 2, 1.0, 0),
    (8, 2, 0.0, 2),
    (9, 6, 1.0, 2),
]


def histories(labels: Labels, rows: list[int], **options: int) -> list[list[float]]:
    settings = {"visible_until_us": NO_TIME, "label_window_us": 0, **options}
    return [h.tolist() for h in entity_histories(labels, np.array(rows), **settings)]


def test_histories_hold_only_labels_known_before_the_row() -> None:
    labels = labels_of(ROWS)
    # 7 at day 5 knows days 1 and 3; 8 at day 2 does not know its train label of day 2; 9 is new.
    assert histories(labels, [2, 4, 5]) == [[0.0, 1.0], [], []]
    # A label of day 3 with a window of 3 days is known on day 6 only.
    assert histories(labels, [2], label_window_us=3 * DAY) == [[0.0]]
    assert histories(labels, [2], label_window_us=2 * DAY) == [[0.0, 1.0]]
    # A database frozen on day 2 knows the label of day 1.
    assert histories(labels, [2], visible_until_us=2 * DAY) == [[0.0]]


def test_rows_without_time_know_all_train_labels_but_their_own() -> None:
    labels = labels_of([(7, -1, 0.0, 0), (7, -1, 1.0, 0), (7, -1, 1.0, 2)])
    assert histories(labels, [0, 2]) == [[1.0], [0.0, 1.0]]


def predictions_of(index: list[int], values: list[float]) -> Predictions:
    count = len(index)
    return Predictions(
        seed_index=np.array(index, np.uint32),
        anchor_rows=np.zeros(count, np.uint32),
        obs_times=np.zeros(count, np.int64),
        values=np.array(values),
        probabilities=np.array(values),
        null_probabilities=np.zeros(count),
    )


def test_evaluation_scores_every_labelled_seed_of_the_split_once() -> None:
    known = np.array([True] * 5 + [False])
    labels = labels_of(ROWS, is_known=known, is_labelled=known)
    task = task_of(SemanticType.BOOLEAN)
    predictions = predictions_of([5, 2, 4], [0.9, 0.8, 0.1])
    result = evaluate(predictions, labels, task, split="test", metric="mae")
    assert (result["seeds"], result["scored"], result["unlabelled"]) == (3, 2, 1)
    assert result["metrics"]["auroc"] == 1.0
    assert result["regime"] == "rolling"
    constant, entity = result["baselines"]["global_constant"], result["baselines"]["per_entity"]
    assert constant["value"] == pytest.approx(2 / 3)
    assert entity["fallback_share"] == 0.5  # anchor 8 knows nothing yet
    frozen = evaluate(
        predictions, labels, task, split="test", metric="mae", visible_until="1970-01-02"
    )
    assert (frozen["regime"], frozen["visible_until"]) == ("frozen", "1970-01-02")
    with pytest.raises(ValueError, match="predictions cover 2 seeds, split 'test' of task 't' has"):
        evaluate(predictions_of([5, 2], [1, 1]), labels, task, split="test", metric="mae")
    with pytest.raises(ValueError, match="came twice"):
        evaluate(predictions_of([5, 2, 2], [1] * 3), labels, task, split="test", metric="mae")


def test_numerical_baselines_use_the_median_for_mae_and_the_mean_for_rmse() -> None:
    rows = [(7, 1, 0.0, 0), (7, 2, 0.0, 0), (8, 3, 9.0, 0), (7, 5, 1.0, 1)]
    labels, task = labels_of(rows), task_of(SemanticType.NUMERICAL)
    one = predictions_of([3], [1.0])
    by_metric = {
        metric: evaluate(one, labels, task, split="val", metric=metric)["baselines"]
        for metric in ("mae", "rmse")
    }
    assert by_metric["mae"]["global_constant"]["value"] == 0.0
    assert by_metric["rmse"]["global_constant"]["value"] == 3.0
    assert by_metric["rmse"]["per_entity"]["metrics"]["mae"] == 1.0


def test_times_are_written_and_read_in_utc() -> None:
    assert time_us("2026-11-01") == time_us("2026-11-01T00:00:00Z") == 1_793_491_200_000_000
    assert time_text(1_793_491_200_000_000) == "2026-11-01T00:00:00"
    assert time_text(1_793_491_200_000_001) == "2026-11-01T00:00:00.000001"
    assert time_text(int(NO_TIME)) == ""


@pytest.mark.parametrize("metric", ["mae", "rmse"])
def test_models_are_compared_by_a_metric_that_exists(metric: str) -> None:
    truth, nearer, farther = (np.array(v) for v in ([0.0, 1.0], [0.2, 0.9], [0.9, 0.2]))
    for stype, measure in METRICS.items():
        scale = US_PER_DAY if stype == SemanticType.TIMESTAMP else 1
        rounded = stype == SemanticType.CATEGORICAL
        name, sign = main_metric(stype, metric)
        good, bad = (
            measure(truth * scale, (np.round(v) if rounded else v) * scale)[name]
            for v in (nearer, farther)
        )
        assert good is not None and bad is not None
        assert sign * good > sign * bad
