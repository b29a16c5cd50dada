"""Evaluations worked out by hand: constants, parts, differences, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from headwater import SemanticType
from headwater.store.row_keys import time_us

from confluence.data.tasks import NO_TIME, Labels, Task
from confluence.scores.baselines import entity_histories
from confluence.scores.scoring import Predictions, Terms, evaluate, time_parts, time_text

DAY = 86_400_000_000


def labels_of(rows: list[tuple[int, int, float, int]], **changes: Any) -> Labels:
    """(anchor, day, target, split) for each seed; everything labelled."""
    anchors, days, targets, splits = (np.array(column) for column in zip(*rows, strict=True))
    known = np.ones(len(rows), bool)
    fields: dict[str, Any] = {
        "anchor_rows": anchors.astype(np.uint32), "targets": targets.astype(np.float64),
        "obs_times": np.where(days < 0, NO_TIME, days * DAY).astype(np.int64),
        "is_known": known, "is_labelled": known, "splits": splits.astype(np.uint8),
    }  # fmt: skip
    return Labels(**{**fields, **changes})


def task_of(stype: SemanticType, **changes: Any) -> Task:
    fields: dict[str, Any] = {
        "name": "t", "index": 0, "stype": stype, "categories": (), "column_mean": 0.0,
        "column_std": 1.0, "mean": 0.0, "std": 1.0, "low": 0.0, "high": 1.0,
        "positive_share": 0.5, "null_share": 0.0, "label_window_us": 0,
    }  # fmt: skip
    return Task(**{**fields, **changes})


ROWS = [
    (7, 1, 0.0, 0), (7, 3, 1.0, 0), (7, 5, 1.0, 2), (8, 2, 1.0, 0), (8, 2, 0.0, 2), (9, 6, 1.0, 2),
]  # fmt: skip


def histories(labels: Labels, rows: list[int], **options: Any) -> list[list[float]]:
    settings: dict[str, Any] = {"visible_until_us": NO_TIME, "label_window_us": 0, **options}
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


def test_an_exclusive_cutoff_knows_no_label_of_its_own_moment() -> None:
    labels = labels_of(ROWS)  # the label of day 3 is known on day 5, when 7 is asked about
    assert histories(labels, [2], label_window_us=2 * DAY, inclusive=False) == [[0.0]]
    assert histories(labels, [2], label_window_us=2 * DAY - 1, inclusive=False) == [[0.0, 1.0]]


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
    result = evaluate(predictions, labels, task, Terms(split="test", metric="mae"))
    assert (result["seeds"], result["scored"], result["unlabelled"]) == (3, 2, 1)
    assert result["metrics"]["auroc"] == 1.0
    assert result["regime"] == "rolling"
    constant, entity = result["baselines"]["global_constant"], result["baselines"]["per_entity"]
    assert constant["value"] == pytest.approx(2 / 3)
    assert entity["fallback_share"] == 0.5  # anchor 8 knows nothing yet
    frozen = evaluate(
        predictions, labels, task, Terms(split="test", metric="mae", visible_until="1970-01-02")
    )
    assert (frozen["regime"], frozen["visible_until"]) == ("frozen", "1970-01-02")
    with pytest.raises(ValueError, match="predictions cover 2 seeds, split 'test' of task 't' has"):
        evaluate(predictions_of([5, 2], [1, 1]), labels, task, Terms(split="test", metric="mae"))
    with pytest.raises(ValueError, match="came twice"):
        evaluate(
            predictions_of([5, 2, 2], [1] * 3), labels, task, Terms(split="test", metric="mae")
        )


def test_numerical_baselines_use_the_median_for_mae_and_the_mean_for_rmse() -> None:
    rows = [(7, 1, 0.0, 0), (7, 2, 0.0, 0), (8, 3, 9.0, 0), (7, 5, 1.0, 1)]
    labels, task = labels_of(rows), task_of(SemanticType.NUMERICAL)
    one = predictions_of([3], [1.0])
    by_metric = {
        metric: evaluate(one, labels, task, Terms(split="val", metric=metric))["baselines"]
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


# ------------------------------------------------------------------- intervals, differences, parts

SCORED = [(anchor, 10 + 10 * day, float((anchor + day) % 3), 2) for anchor in range(6)
          for day in range(4)]  # fmt: skip


def scored_in_full(resamples: int | None = 50, **more: Any) -> tuple[dict[str, Any], Labels]:
    """Six anchors at days 10 to 40; the model is off by 0.5, the median of train is 1."""
    labels = labels_of([*SCORED, (7, 1, 1.0, 0), (8, 1, 1.0, 0)])
    index = list(range(len(SCORED)))
    predictions = predictions_of(index, [labels.targets[i] + 0.5 for i in index])
    result = evaluate(
        predictions,
        labels,
        task_of(SemanticType.NUMERICAL),
        Terms(split="test", metric="mae", resamples=resamples),
        **more,
    )
    return result, labels


def test_differences_are_the_models_metric_less_the_baselines() -> None:
    result, _ = scored_in_full()
    assert result["anchors"] == 6
    assert result["metrics"]["mae"] == 0.5
    assert result["intervals"]["mae"] == [0.5, 0.5]  # the same error in every draw
    constant = result["baselines"]["global_constant"]
    # Each anchor has targets 0, 1, 2 in turn, four of them: |1 - target| is 1 for 2 or 3 of 4.
    expected = np.mean([abs(row[2] - 1) for row in SCORED])
    assert constant["metrics"]["mae"] == pytest.approx(expected) == pytest.approx(2 / 3)
    assert constant["differences"]["mae"] == pytest.approx(0.5 - expected)
    low, high = constant["intervals"]["mae"]
    assert 0.5 <= low < expected < high <= 0.75
    assert constant["difference_intervals"]["mae"] == pytest.approx([0.5 - high, 0.5 - low])
    assert result["resampling"] == {
        "resamples": 50, "level": 0.95, "clusters": "anchors", "seed": 0,
    }  # fmt: skip
    assert scored_in_full()[0] == result  # the same draws again


def test_without_resamples_there_are_metrics_alone() -> None:
    result, _ = scored_in_full(resamples=0)
    assert set(result) & {"intervals", "resampling", "history", "obs_time"} == set()
    assert set(result["baselines"]["per_entity"]) & {"intervals", "differences"} == set()


def test_seeds_with_and_without_history_are_told_apart() -> None:
    has_history = np.array([row[0] < 2 for row in SCORED] + [True, True])
    result, _ = scored_in_full(has_history=has_history)
    parts = result["history"]
    assert (parts["with"]["scored"], parts["with"]["anchors"]) == (8, 2)
    assert (parts["without"]["scored"], parts["without"]["anchors"]) == (16, 4)
    of = {name: part["baselines"]["global_constant"]["metrics"]["mae"] for name, part in
          parts.items()}  # fmt: skip
    whole = result["baselines"]["global_constant"]["metrics"]["mae"]
    assert (8 * of["with"] + 16 * of["without"]) / 24 == pytest.approx(whole)
    assert scored_in_full()[0]["history"] is None
    nobody, _ = scored_in_full(has_history=np.zeros(26, bool))
    assert nobody["history"]["with"]["scored"] == 0
    assert nobody["history"]["with"]["metrics"]["mae"] is None
    assert nobody["history"]["with"]["intervals"]["mae"] is None


def test_seeds_are_told_apart_by_their_times() -> None:
    result, _ = scored_in_full()
    found = [(part["from"], part["to"], part["scored"]) for part in result["obs_time"]]
    assert found == [
        (f"{day}T00:00:00",) * 2 + (6,)
        for day in ("1970-01-11", "1970-01-21", "1970-01-31", "1970-02-10")
    ]


def test_times_are_never_cut_apart_and_buckets_are_of_about_equal_size() -> None:
    times = np.array([1, 1, 1, 1, 1, 2, 3, 3, NO_TIME, 4])
    # Nine have a time; 1 begins at share 0, 2 at 5/9, 3 at 6/9, 4 at 8/9 of them.
    parts = time_parts(times)
    assert [part.tolist() for part in parts.values()] == [[0, 1, 2, 3, 4], [5, 6, 7], [9]]
    assert time_parts(np.array([5, 5, NO_TIME])) == {}
    assert time_parts(np.array([], np.int64)) == {}


def test_nothing_scored_is_no_error() -> None:
    labels = labels_of([(7, 1, 0.0, 0), (7, 5, 0.0, 2)])
    unknown = np.array([True, False])
    labels = labels_of([(7, 1, 0.0, 0), (7, 5, 0.0, 2)], is_known=unknown, is_labelled=unknown)
    result = evaluate(
        predictions_of([1], [0.5]),
        labels,
        task_of(SemanticType.BOOLEAN),
        Terms(split="test", metric="mae", resamples=None),
        has_history=np.array([True, True]),
    )
    assert (result["scored"], result["anchors"], result["obs_time"]) == (0, 0, [])
    assert set(result["metrics"].values()) == {None}


def test_a_label_is_known_when_the_store_says_so() -> None:
    # Asked on days 1 and 3, known on days 20 and 2 (before it was asked: then right after that).
    known = np.array([20, 2, 30, 9, 9, 9]) * DAY
    labels = labels_of(ROWS, label_times=known)
    assert histories(labels, [2]) == [[1.0]]
    assert histories(labels, [1]) == [[]]
    later = labels_of([*ROWS[:2], (7, 25, 1.0, 2)], label_times=known[:3])
    assert histories(later, [2]) == [[1.0, 0.0]]


def test_true_rows_and_those_called_true_are_counted() -> None:
    """Of test one seed is true and none has a probability above one half."""
    labels = labels_of([(7, 1, 1.0, 0), (7, 5, 1.0, 2), (8, 2, 0.0, 2), (9, 6, 0.0, 2)])
    result = evaluate(
        predictions_of([1, 2, 3], [0.5, 0.1, 0.2]),
        labels,
        task_of(SemanticType.BOOLEAN),
        Terms(split="test", metric="auroc"),
    )
    assert (result["scored"], result["true"], result["called_true"]) == (3, 1, 0)
    number = evaluate(
        predictions_of([1, 2, 3], [0.5, 0.1, 0.2]),
        labels,
        task_of(SemanticType.NUMERICAL),
        Terms(split="test", metric="mae"),
    )
    assert "true" not in number
