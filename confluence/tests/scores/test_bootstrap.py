"""Metrics against scikit-learn, also weighted; resamples of anchors, and what they cover."""

from __future__ import annotations

import numpy as np
import pytest
from headwater import SemanticType
from sklearn import metrics as oracle

from confluence.data.tasks import US_PER_DAY
from confluence.scores import bootstrap
from confluence.scores.bootstrap import Part, Resamples, draw, interval, resample
from confluence.scores.metrics import MEASURES, Measure, main_metric, metrics_of

BOOLEAN, NUMERICAL = MEASURES[SemanticType.BOOLEAN], MEASURES[SemanticType.NUMERICAL]


def once(measure: Measure, count: int) -> dict[str, float]:
    """All metrics of seeds that count once, none undefined."""
    found = metrics_of(measure, count)
    assert all(value is not None for value in found.values())
    return {name: float(value) for name, value in found.items() if value is not None}


# ------------------------------------------------------------------------------------- the metrics


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_boolean_metrics_equal_scikit_learn(seed: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    truth = (rng.random(200) < 0.3).astype(np.float64)
    score = rng.integers(0, levels, 200) / levels
    found = once(BOOLEAN(truth, score), 200)
    assert found["auroc"] == pytest.approx(oracle.roc_auc_score(truth, score))
    assert found["average_precision"] == pytest.approx(oracle.average_precision_score(truth, score))
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(truth, score > 0.5))
    assert found["f1"] == pytest.approx(oracle.f1_score(truth, score > 0.5, zero_division=0))


def test_numerical_metrics_equal_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.normal(size=50), rng.normal(size=50)
    found = once(NUMERICAL(truth, predicted), 50)
    assert found["mae"] == pytest.approx(oracle.mean_absolute_error(truth, predicted))
    assert found["rmse"] == pytest.approx(oracle.root_mean_squared_error(truth, predicted))
    assert found["r2"] == pytest.approx(oracle.r2_score(truth, predicted))


def test_categorical_metrics_equal_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 4, 60), rng.integers(0, 6, 60)
    measure = MEASURES[SemanticType.CATEGORICAL](truth.astype(float), predicted.astype(float))
    found = once(measure, 60)
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(truth, predicted))
    expected = oracle.f1_score(truth, predicted, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(expected)


@pytest.mark.parametrize("stype", MEASURES)
def test_a_seed_that_counts_twice_is_two_seeds(stype: SemanticType) -> None:
    rng = np.random.default_rng(1)
    truth, said = rng.integers(0, 2, 40).astype(float), rng.integers(0, 5, 40) / 4.0
    if stype == SemanticType.TIMESTAMP:
        truth, said = truth * US_PER_DAY, said * US_PER_DAY
    times = rng.integers(0, 4, (3, 40))
    weighted = MEASURES[stype](truth, said)(times.astype(np.float64))
    for k, row in enumerate(times):
        rows = np.repeat(np.arange(40), row)
        repeated = once(MEASURES[stype](truth[rows], said[rows]), rows.size)
        for name, value in repeated.items():
            assert weighted[name][k] == pytest.approx(value), name


def test_metrics_without_a_class_are_absent_not_wrong() -> None:
    for truth in (np.zeros(3), np.ones(3)):
        found = metrics_of(BOOLEAN(truth, np.arange(3.0)), 3)
        assert found["auroc"] is None and found["accuracy"] is not None
    assert metrics_of(BOOLEAN(np.zeros(3), np.arange(3.0)), 3)["average_precision"] is None
    assert metrics_of(NUMERICAL(np.full(3, 0.1), np.arange(3.0)), 3)["r2"] is None
    for measure in MEASURES.values():
        assert set(metrics_of(measure(np.empty(0), np.empty(0)), 0).values()) == {None}
    weights = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])  # a draw may lack a class
    found = BOOLEAN(np.array([1.0, 0.0, 0.0]), np.array([0.9, 0.1, 0.2]))(weights)
    np.testing.assert_array_equal(found["auroc"], [1.0, np.nan])
    spread = NUMERICAL(np.array([0.1, 0.2, 0.3]), np.zeros(3))(weights)["r2"]
    assert np.isnan(spread[1]) and not np.isnan(spread[0])


@pytest.mark.parametrize("metric", ["mae", "rmse"])
def test_models_are_compared_by_a_metric_that_exists(metric: str) -> None:
    truth, nearer, farther = (np.array(v) for v in ([0.0, 1.0], [0.2, 0.9], [0.9, 0.2]))
    for stype, measure in MEASURES.items():
        scale = US_PER_DAY if stype == SemanticType.TIMESTAMP else 1
        rounded = stype == SemanticType.CATEGORICAL
        name, sign = main_metric(stype, metric)
        good, bad = (
            once(measure(truth * scale, (np.round(v) if rounded else v) * scale), 2)[name]
            for v in (nearer, farther)
        )
        assert sign * good > sign * bad


# ----------------------------------------------------------------------------------- the resamples


def test_seeds_of_an_anchor_are_drawn_together_as_many_anchors_as_there_are() -> None:
    anchors = np.array([7, 9, 7, 3, 9, 9])
    (weights,) = draw(anchors, 200).weights()
    assert weights.shape == (200, 6)
    np.testing.assert_array_equal(weights[:, 0], weights[:, 2])
    np.testing.assert_array_equal(weights[:, 1], weights[:, 5])
    np.testing.assert_array_equal(weights[:, [0, 1, 3]].sum(axis=1), 3)
    assert weights[:, [0, 1, 3]].mean() == pytest.approx(1.0, abs=0.15)
    assert len(np.unique(weights[:, [0, 1, 3]], axis=0)) == 10  # all ways to draw 3 of 3


def test_blocks_do_not_change_what_is_drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(np.arange(40) % 10, 100)
    first = np.concatenate(list(drawn.weights()))
    np.testing.assert_array_equal(first, np.concatenate(list(drawn.weights())))
    other = Resamples(clusters=drawn.clusters, count=100, seed=1)
    assert not np.array_equal(first, np.concatenate(list(other.weights())))
    monkeypatch.setattr(bootstrap, "BLOCK_WEIGHTS", 400)
    blocks = list(drawn.weights())
    assert [len(block) for block in blocks] == [10] * 10


def test_very_many_seeds_have_fewer_resamples() -> None:
    assert draw(np.arange(100), None).count == 1000
    assert draw(np.arange(100_000), None).count == 400
    assert draw(np.arange(1_000_000), None).count == 200


def test_one_anchor_or_undefined_metrics_have_no_interval() -> None:
    assert list(draw(np.zeros(5), 10).weights()) == []
    part = Part(rows=np.arange(5), measures={"m": NUMERICAL(np.zeros(5), np.ones(5))})
    assert resample({"whole": part}, draw(np.zeros(5), 10)) == {"whole": {"m": {}}}
    assert interval(np.array([np.nan, np.nan, 1.0])) is None
    assert interval(np.array([np.nan, 1.0, 1.0])) == [1.0, 1.0]
    assert interval(np.empty(0)) is None
    assert interval(np.arange(1001.0)) == pytest.approx([25.0, 975.0])
    assert bootstrap.intervals({}, ["mae"]) == {"mae": None}


def test_intervals_cover_the_truth_as_often_as_they_say_if_anchors_are_drawn_not_seeds() -> None:
    """MAE of errors that an anchor's seeds share: 40 anchors of 10 seeds, in 200 worlds."""
    rng = np.random.default_rng(5)
    anchors = np.repeat(np.arange(40), 10)
    covered = {"anchors": 0, "seeds": 0}
    shared = rng.normal(size=(200, 40)).repeat(10, axis=1)
    errors = 2.0 + shared + 0.3 * rng.normal(size=(200, 400))  # next to all are positive
    truth = float(np.mean(np.abs(2.0 + 1.044 * rng.normal(size=1_000_000))))
    for world in errors:
        part = Part(rows=np.arange(400), measures={"m": NUMERICAL(np.zeros(400), world)})
        for name, clusters in (("anchors", anchors), ("seeds", np.arange(400))):
            samples = resample({"whole": part}, draw(clusters, 200))["whole"]["m"]["mae"]
            found = interval(samples)
            assert found is not None
            covered[name] += found[0] <= truth <= found[1]
    assert 180 <= covered["anchors"] <= 199, covered  # 95 % of 200 is 190
    assert covered["seeds"] < 140, covered  # as if there were 400 independent errors


def test_a_paired_difference_is_narrower_than_either_interval() -> None:
    rng = np.random.default_rng(0)
    anchors = np.repeat(np.arange(30), 5)
    truth = rng.normal(size=30).repeat(5) * 5
    ours, theirs = rng.normal(size=150) * 0.1, rng.normal(size=150) * 0.1
    measures = {"a": NUMERICAL(truth, ours), "b": NUMERICAL(truth, theirs)}
    samples = resample({"p": Part(rows=np.arange(150), measures=measures)}, draw(anchors, 500))["p"]
    difference = interval(bootstrap.differences(samples["a"], samples["b"])["mae"])
    alone = interval(samples["a"]["mae"])
    assert difference is not None and alone is not None
    assert difference[1] - difference[0] < 0.1 * (alone[1] - alone[0])
