"""Boosted trees by themselves: that they learn, and what they do where there is little to learn."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from headwater import SemanticType

from confluence.trees.boosted import (
    FEW,
    LARGE,
    MANY,
    MAX_ROUNDS,
    MOST_FEATURES,
    SMALL,
    USUAL_ROUNDS,
    Boosted,
    Features,
    Lessons,
    choose,
    fit,
    fit_number,
    sample_size,
    with_rounds,
)
from confluence.trees.features import joined
from confluence.trees.own_columns import find_ways
from confluence.trees.task_trees import recoded


def synthetic(count: int, seed: int) -> tuple[Features, Any]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, 3))
    values[:, 1] = rng.integers(0, 4, count)
    values[rng.random((count, 3)) < 0.05] = np.nan
    columns = ("number", "category", "noise")
    features = Features(
        index=np.arange(count),
        values=values,
        names=columns,
        categories={"category": ("a", "b", "c", "d")},
    )
    return features, values


@pytest.mark.parametrize(
    "stype", [SemanticType.BOOLEAN, SemanticType.CATEGORICAL, SemanticType.NUMERICAL]
)
def test_trees_learn_what_stands_in_the_row(stype: SemanticType) -> None:
    (train, seen), (wanted, new) = synthetic(600, 0), synthetic(200, 1)

    def truth(values: Any) -> Any:
        number, category = np.nan_to_num(values[:, 0]), np.nan_to_num(values[:, 1])
        if stype == SemanticType.BOOLEAN:
            return (number > 0).astype(np.float64)
        if stype == SemanticType.CATEGORICAL:  # of classes 0 to 9 only these three occur
            return np.where(category == 2, 9.0, np.where(number > 0, 4.0, 1.0))
        return 1000.0 + 50.0 * category

    lessons = Lessons(
        features=train, targets=truth(seen), stype=stype, metric="mae", classes=12,
        held_out=np.arange(600) % 5 == 0,
    )  # fmt: skip
    trees = fit(lessons, choose(lessons))
    found, shares = trees.answers(wanted)
    assert trees.names == ("number", "category", "noise")
    if stype == SemanticType.CATEGORICAL:
        assert shares is not None and shares.shape == (200, 12)
        np.testing.assert_array_equal(shares.argmax(axis=1), found)
        np.testing.assert_allclose(shares[:, [1, 4, 9]].sum(axis=1), 1.0)  # none of the others
    else:
        assert shares is None
    expected = truth(new)
    if stype == SemanticType.NUMERICAL:
        assert np.median(np.abs(found - expected)) < 10.0
    else:
        assert np.mean((found > 0.5 if stype == SemanticType.BOOLEAN else found) == expected) > 0.9


def fitted(features: Features, targets: Any, stype: SemanticType) -> Boosted:
    lessons = Lessons(features=features, targets=targets, stype=stype, metric="")
    return fit(lessons, choose(lessons))


def test_one_class_alone_and_rows_without_values_are_no_error() -> None:
    train, _ = synthetic(50, 0)
    constant = fitted(train, np.full(50, 3.0), SemanticType.CATEGORICAL).answers(train)
    assert set(constant.values) == {3.0}
    np.testing.assert_array_equal(constant.shares, np.tile([0.0, 0.0, 0.0, 1.0], (50, 1)))
    empty = Features(
        index=np.arange(50), values=np.full((50, 1), np.nan), names=("row age",), categories={}
    )
    targets = np.repeat([0.0, 1.0], 25)
    found = fitted(empty, targets, SemanticType.BOOLEAN).answers(empty)
    np.testing.assert_allclose(found.values, 0.5, atol=1e-6)


def of_numbers(values: Any) -> Features:
    names = tuple(f"f{i}" for i in range(values.shape[1]))
    return Features(index=np.arange(len(values)), values=values, names=names, categories={})


def test_small_or_large_trees_are_chosen_by_the_seeds_held_out() -> None:
    """Many steps of many seeds need many leaves; a weak sum in few seeds punishes them."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4000, 12))
    steps = np.sin(3 * values[:, 0]) * np.sign(values[:, 1]) + np.sign(values[:, 2] * values[:, 3])
    weak = 0.2 * values.sum(axis=1) + rng.normal(size=4000)
    for targets, count, expected in ((steps, 4000, LARGE), (weak, 300, SMALL)):
        lessons = Lessons(
            features=of_numbers(values[:count]), targets=targets[:count], metric="rmse",
            stype=SemanticType.NUMERICAL, held_out=np.arange(count) % 5 == 0,
        )  # fmt: skip
        recipe = choose(lessons)
        assert recipe.settings["num_leaves"] == expected["num_leaves"]
        assert 1 < recipe.rounds <= MAX_ROUNDS
        assert recipe.features == lessons.features.names
        recipe = choose(dataclasses.replace(lessons, held_out=None))
        found = (recipe.settings["num_leaves"], recipe.rounds)
        assert found == (SMALL["num_leaves"], USUAL_ROUNDS)


def test_recent_seeds_weigh_more_if_they_are_what_is_held_out() -> None:
    """What a feature means turned over in the middle of the time, or never did."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(2000, 4))
    ages = np.linspace(1, 0, 2000)
    turned = np.where(ages > 0.4, values[:, 0], -values[:, 0]) + 0.1 * rng.normal(size=2000)
    for targets, is_recent in ((turned, True), (values[:, 0], False)):
        lessons = Lessons(
            features=of_numbers(values), targets=targets, stype=SemanticType.NUMERICAL,
            metric="rmse", ages=ages, held_out=ages < 0.2,
        )  # fmt: skip
        assert (choose(lessons).half_life is not None) == is_recent


def test_a_sample_keeps_the_features_that_gain_and_all_seeds_their_number() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(3000, 90))
    lessons = Lessons(
        features=of_numbers(values), targets=values[:, 7] + values[:, 70] ** 2, metric="rmse",
        stype=SemanticType.NUMERICAL, held_out=np.arange(3000) % 5 == 0,
    )  # fmt: skip
    sample = choose(lessons, is_sample=True)
    assert {"f7", "f70"} <= set(sample.features)
    assert len(sample.features) <= MOST_FEATURES
    recipe = with_rounds(lessons, dataclasses.replace(sample, features=("f7", "f70"), rounds=1))
    assert recipe.rounds > 1
    trees = fit(lessons, recipe)
    assert trees.names == ("f7", "f70")
    errors = trees.answers(lessons.features).values - lessons.targets
    assert np.abs(errors).mean() < 0.3
    assert sample_size(MANY, 2) == MANY == sample_size(10 * MANY, 2)
    assert sample_size(5_000, 15) == FEW
    assert sample_size(900, 15) == 900


def test_a_sample_of_one_class_chooses_nothing() -> None:
    """A class of one among thousands: no sample of the others can be held against it."""
    features, _ = synthetic(400, 1)
    lessons = Lessons(
        features=features, targets=np.zeros(400), stype=SemanticType.CATEGORICAL, metric="mae",
        classes=2, held_out=np.arange(400) >= 300,
    )  # fmt: skip
    chosen = choose(lessons, is_sample=True)
    targets = np.zeros(400)
    targets[7] = 1.0
    trees = fit(dataclasses.replace(lessons, targets=targets), chosen)
    shares = trees.answers(features).shares
    assert shares is not None and shares.shape == (400, 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def often_zero(count: int, metric: str) -> Lessons:
    """A number that is 0 unless one column wants it, and large or small by another, with noise."""
    features, values = synthetic(count, 3)
    rng = np.random.default_rng(4)
    known = np.nan_to_num(values)
    is_zero = rng.uniform(size=count) < 1 / (1 + np.exp(2 * known[:, 0]))
    amounts = np.exp(known[:, 1] + rng.normal(0, 0.7, count))
    return Lessons(
        features=features, targets=np.where(is_zero, 0.0, amounts), stype=SemanticType.NUMERICAL,
        metric=metric, held_out=np.arange(count) >= 0.8 * count,
    )  # fmt: skip


def test_a_number_that_is_often_zero_may_be_a_hurdle() -> None:
    lessons = often_zero(3_000, "rmse")
    recipe = choose(lessons)
    trees, direct = fit_number(lessons, recipe), fit(lessons, recipe)
    assert trees.chance is not None and direct.chance is None
    new = often_zero(3_000, "rmse").features
    product = trees._alone(new).values * trees.chance.answers(new).values
    assert np.array_equal(trees.answers(new).values, product)
    back = Boosted.from_dict(json.loads(json.dumps(dataclasses.asdict(trees))))
    assert back == trees
    assert np.array_equal(back.answers(new).values, product)


def test_a_hurdle_needs_zeros_and_means_and_to_be_better() -> None:
    median = often_zero(2_000, "mae")  # the median is 0 or not, and no mean of a product
    assert fit_number(median, choose(median)).chance is None
    means = often_zero(2_000, "rmse")
    none = dataclasses.replace(means, targets=means.targets + 1.0)
    assert fit_number(none, choose(none)).chance is None
    is_held_out = np.arange(2_000) >= 1_600
    by_lot = np.where(is_held_out, 5.0, means.targets)  # where it counts no number is 0
    wrong = dataclasses.replace(means, targets=by_lot)
    assert fit_number(wrong, choose(wrong)).chance is None


def test_two_features_of_one_name_are_told_apart() -> None:
    """Trees find their features by name when they are asked."""
    index = np.arange(2)
    own = Features(
        index=index, values=np.array([[1.0, 2.0], [3.0, 4.0]]), names=("x", "day of the year"),
        categories={"day of the year": ("a", "b")},
    )  # fmt: skip
    history = Features(
        index=index, values=np.array([[5.0], [6.0]]), names=("day of the year",), categories={}
    )
    found = joined(own, history)
    assert found.names == ("x", "day of the year (column)", "day of the year")
    assert found.categories == {"day of the year (column)": ("a", "b")}
    assert found.values.tolist() == [[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]]


def test_a_key_of_two_tables_is_two_ways() -> None:
    columns = [{"name": name, "stype": "numerical"} for name in ("k", "size", "size")]

    def table(name: str, place: int, *references: str) -> dict[str, Any]:
        keys = [{"columns": ["k"], "references": {"table": other}} for other in references]
        return {"name": name, "column_range": [place, place + 1], "foreign_keys": keys}

    metadata = {
        "columns": columns, "tables": [table("ev", 0, "a", "b"), table("a", 1), table("b", 2)]
    }  # fmt: skip
    ways = find_ways(metadata, 0).kept
    assert [way.name for way in ways] == ["", "ev.k in a", "ev.k in b"]


def test_a_column_of_another_type_than_before_is_missing() -> None:
    """A number was a category when trees were fitted, and a category a number."""
    features = Features(
        index=np.arange(1), values=np.array([[1.0, 0.0, 7.0]]), names=("a", "b", "c"),
        categories={"b": ("x", "y")},
    )  # fmt: skip
    found = recoded(features, {"a": ("x",)}, ("a", "b", "c")).values
    assert np.isnan(found).tolist() == [[True, True, False]]
