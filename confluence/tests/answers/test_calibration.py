"""Maps of answers: what they make of them by hand, and when val keeps one."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from headwater import SemanticType

from confluence.answers.calibration import (
    ISOTONIC,
    LEAST_ISOTONIC,
    LEAST_LABELS,
    PLATT,
    TEMPERATURE,
    ZERO,
    Calibration,
    brier,
    choose,
    fit_isotonic,
    fit_platt,
    fit_temperature,
    fit_zero,
)
from confluence.answers.read_out import read_answers
from confluence.data.tasks import Floats, Task
from confluence.model.outputs import as_output, sigmoid, softmax
from confluence.model.transformer import Output

BOOLEAN, CATEGORICAL = SemanticType.BOOLEAN, SemanticType.CATEGORICAL


def task_of(stype: SemanticType) -> Task:
    return Task(
        name="t", index=0, stype=stype, categories=(), column_mean=0.0, column_std=1.0, mean=0.7,
        std=1.9, low=0.0, high=30.0, positive_share=0.5, null_share=0.0, label_window_us=0,
    )  # fmt: skip


TRUTH, NUMBER = task_of(BOOLEAN), task_of(SemanticType.NUMERICAL)


def of_logits(logits: Floats) -> Output:
    nothing = np.zeros(len(logits))
    return as_output(
        [nothing, nothing, np.zeros((len(logits), 15)), logits, np.zeros((len(logits), 1))]
    )


def of_shares(logits: Floats) -> Output:
    nothing = np.zeros(len(logits))
    return as_output([nothing, nothing, np.zeros((len(logits), 15)), nothing, logits])


def drawn(count: int, *, factor: float = 3.0) -> tuple[Output, Floats, np.ndarray]:
    """Answers whose logits are so many times too large, labels, and times."""
    rng = np.random.default_rng(1)
    truth = rng.normal(0.0, 1.0, count)
    labels = (rng.uniform(size=count) < sigmoid(truth)).astype(np.float64)
    return of_logits(factor * truth), labels, np.arange(count)


def test_brier_by_hand() -> None:
    of_true = brier(of_logits(np.array([0.0, 0.0])), np.array([1.0, 0.0]), BOOLEAN)
    assert of_true is not None and of_true.tolist() == [0.25, 0.25]
    of_class = brier(of_shares(np.log([[0.5, 0.25, 0.25]])), np.array([0.0]), CATEGORICAL)
    assert of_class == pytest.approx(0.25 + 0.0625 + 0.0625)
    assert brier(of_logits(np.zeros(2)), np.zeros(2), SemanticType.NUMERICAL) is None


def test_platt_finds_the_factor() -> None:
    output, labels, _ = drawn(20_000)
    found = fit_platt(output, labels)
    assert found is not None and found.kind == PLATT
    assert found.slope == pytest.approx(1 / 3, abs=0.02)
    assert found.offset == pytest.approx(0.0, abs=0.05)


def test_answers_in_the_wrong_order_have_no_map() -> None:
    output, labels, times = drawn(500, factor=-3.0)
    assert fit_platt(output, labels) is None
    assert choose(output, labels, TRUTH, times).kind is None


def test_isotonic_steps_by_hand() -> None:
    """Four answers of .2, of which one is true, then .4 and .6, which are in the wrong order."""
    answers = np.array([0.2, 0.2, 0.2, 0.2, 0.4, 0.6])
    labels = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    found = fit_isotonic(of_logits(np.log(answers / (1 - answers))), labels)
    assert found is not None and found.kind == ISOTONIC
    assert np.array(found.points) == pytest.approx(
        np.array([[0.2, (1 + 0.2) / 5], [0.5, (1 + 0.5) / 3]])
    )
    middle = found.shares(np.array([0.35]))
    assert middle == pytest.approx(0.999 * (0.24 + 0.5) / 2 + 0.001 * 0.35)


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_a_map_keeps_the_order(fit: object) -> None:
    output, labels, _ = drawn(2_000)
    found = fit(output, labels)  # type: ignore[operator]
    before, after = np.asarray(output.boolean), np.asarray(found.applied(output).boolean)
    assert np.all(np.diff(after[np.argsort(before)]) > 0)


def test_one_temperature_for_all_categories() -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(0.0, 1.5, (20_000, 3))
    chances = np.cumsum(softmax(logits), axis=1)
    labels = np.sum(rng.uniform(size=(20_000, 1)) > chances, axis=1).astype(np.float64)
    found = fit_temperature(of_shares(2.0 * logits), labels)
    assert found is not None and found.kind == TEMPERATURE
    assert found.slope == pytest.approx(0.5, abs=0.02)
    after = np.asarray(found.applied(of_shares(2.0 * logits)).categorical)
    assert np.array_equal(after.argmax(axis=1), logits.argmax(axis=1))


def test_val_keeps_a_map_that_helps_and_no_other() -> None:
    output, labels, times = drawn(5_000)
    found = choose(output, labels, TRUTH, times)
    assert found.kind in (PLATT, ISOTONIC)
    assert found.before is not None and found.after is not None
    assert found.before == pytest.approx(float(np.mean((sigmoid(output.boolean) - labels) ** 2)))
    assert found.after < found.before - 0.01
    honest = choose(*drawn(5_000, factor=1.0)[:2], TRUTH, times)
    assert honest.kind is None and honest.before == honest.after


def test_few_labels_have_no_isotonic_map_and_fewer_none() -> None:
    output, labels, times = drawn(LEAST_ISOTONIC - 1)
    assert choose(output, labels, TRUTH, times).kind == PLATT
    few = choose(*drawn(LEAST_LABELS - 1)[:2], TRUTH, times[: LEAST_LABELS - 1])
    assert few.kind is None and few.reason == "val has 199 labels, too few to calibrate by"
    same = choose(output, np.ones(labels.size), TRUTH, times)
    assert same.kind is None and same.reason == "all labels of val are equal"
    of_time = choose(output, labels, task_of(SemanticType.TIMESTAMP), times)
    assert of_time.reason == "the answers are times"
    seldom = choose(output, np.append(np.zeros(10), labels[10:] + 1), NUMBER, times)
    assert seldom.reason == "the numbers of val are 0 too seldom, or nearly all of them are"


def of_values(values: Floats) -> Output:
    nothing, z = np.zeros(values.size), (values - NUMBER.mean) / NUMBER.std
    return as_output([nothing, z, np.zeros((values.size, 15)), nothing, nothing[:, None]])


ANSWERS = np.array([3.0, 0.5, 0.25, 1.0, 0.5])


@pytest.mark.parametrize(
    ("labels", "measure", "limit"),
    [
        ([4, 0, 0, 0, 0], "absolute_error", 2.0),  # all but the first become 0
        ([4, 0, 0, 1, 0], "absolute_error", 0.75),
        ([4, 1, 0, 1, 1], "absolute_error", 0.375),  # of two equal answers neither
        ([4, 0, 0, 2, 2], "squared_error", 0.375),
        ([0, 0, 0, 0, 0], "absolute_error", 4.5),
    ],
)
def test_zeros_by_hand(labels: list[int], measure: str, limit: float) -> None:
    found = fit_zero(of_values(ANSWERS), np.array(labels, float), task=NUMBER, measure=measure)
    assert found is not None and found.kind == ZERO and found.limit == pytest.approx(limit)
    values = read(found.applied(of_values(ANSWERS)))
    assert values == pytest.approx(np.where(limit > ANSWERS, 0.0, ANSWERS))
    assert np.all(values[limit > ANSWERS] == 0.0)


def test_zeros_that_do_not_help_have_no_limit() -> None:
    labels = np.array([4.0, 1.0, 1.0, 1.0, 1.0])
    assert fit_zero(of_values(ANSWERS), labels, task=NUMBER, measure="absolute_error") is None


def read(output: Output) -> Floats:
    return read_answers(output, NUMBER)[0]


def test_a_limit_is_of_answers_as_they_are_before_they_are_cut() -> None:
    """Cut to 4, all answers but the last would be as near to 0."""
    task = dataclasses.replace(NUMBER, high=4.0)
    answers = np.array([40.0, 9.0, 0.5])
    found = fit_zero(of_values(answers), np.zeros(3), task=task, measure="absolute_error")
    assert found is not None and found.limit == pytest.approx(60.0)
    values, _ = read_answers(found.applied(of_values(answers)), task)
    assert values.tolist() == [0.0, 0.0, 0.0]
    far = dataclasses.replace(NUMBER, low=1.0)  # no answer is read as 0
    assert fit_zero(of_values(answers), np.zeros(3), task=far, measure="absolute_error") is None


def numbers(count: int) -> tuple[Output, Floats]:
    """Answers of .3 to what is 0 in nine cases of ten there, and 4 or more to the others."""
    rng = np.random.default_rng(3)
    is_small = rng.uniform(size=count) < 0.5
    answers = np.where(is_small, rng.normal(0.3, 0.05, count), rng.normal(6.0, 0.5, count))
    labels = np.where(is_small, 3.0 * (rng.uniform(size=count) < 0.1), answers)
    return of_values(answers), labels


def test_val_keeps_a_limit_that_helps_its_metric_and_no_other() -> None:
    (output, labels), times = numbers(2_000), np.arange(2_000)
    found = choose(output, labels, NUMBER, times)
    assert found.kind == ZERO and found.limit is not None and 0.4 < found.limit < 5
    assert found.measure == "absolute_error" and found.before is not None
    assert found.after is not None
    # .9 x .3 + .1 x 2.7 of the small half become .1 x 3
    assert found.before - found.after == pytest.approx(0.12, abs=0.01)
    assert found.before == pytest.approx(float(np.mean(np.abs(read(output) - labels))))
    squares = choose(output, labels, NUMBER, times, "rmse")  # .3 is the mean, and the best
    assert squares.kind is None and squares.measure == "squared_error"
    assert (
        choose(of_values(labels), labels, NUMBER, times).kind is None
    )  # they are right as they are
    back = Calibration.from_dict(json.loads(json.dumps(found.to_dict())))
    assert back == found and np.array_equal(back.applied(output)[1], found.applied(output)[1])


def test_it_is_the_same_from_json() -> None:
    for output, labels, times in (drawn(900), drawn(3_000)):
        found = choose(output, labels, TRUTH, times)
        back = Calibration.from_dict(json.loads(json.dumps(found.to_dict())))
        assert back == found
        assert np.array_equal(back.applied(output).boolean, found.applied(output).boolean)
