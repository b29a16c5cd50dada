"""Boosted trees by themselves: that they learn, and what they do where there is little to learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from headwater import SemanticType

from confluence.trees.boosted import (
    LARGE,
    MAX_ROUNDS,
    SETTINGS,
    SMALL,
    USUAL_ROUNDS,
    Features,
    _chosen,
    fit,
)


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

    trees = fit(
        train, truth(seen), stype, metric="mae", classes=12, held_out=np.arange(600) % 5 == 0
    )
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


def test_one_class_alone_and_rows_without_values_are_no_error() -> None:
    train, _ = synthetic(50, 0)
    trees = fit(train, np.full(50, 3.0), SemanticType.CATEGORICAL, metric="")
    constant = trees.answers(train)
    assert set(constant.values) == {3.0}
    np.testing.assert_array_equal(constant.shares, np.tile([0.0, 0.0, 0.0, 1.0], (50, 1)))
    empty = Features(
        index=np.arange(50), values=np.full((50, 1), np.nan), names=("row age",),
        categories={},
    )  # fmt: skip
    targets = np.repeat([0.0, 1.0], 25)
    found = fit(empty, targets, SemanticType.BOOLEAN, metric="").answers(empty)
    np.testing.assert_allclose(found.values, 0.5, atol=1e-6)


def test_small_or_large_trees_are_chosen_by_what_they_say_of_the_seeds_held_out() -> None:
    """Many steps of many seeds need many leaves; a weak sum in few seeds punishes them."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4000, 12))
    steps = np.sin(3 * values[:, 0]) * np.sign(values[:, 1]) + np.sign(values[:, 2] * values[:, 3])
    weak = 0.2 * values.sum(axis=1) + rng.normal(size=4000)
    wanted: dict[str, Any] = {"objective": "l2", **SETTINGS}
    for targets, count, expected in ((steps, 4000, LARGE), (weak, 300, SMALL)):
        features = Features(
            index=np.arange(count), values=values[:count],
            names=tuple(f"f{i}" for i in range(12)), categories={},
        )  # fmt: skip
        given = (features, targets[:count], np.ones(count), {**wanted, "min_data_in_leaf": 12})
        settings, rounds = _chosen(*given, np.arange(count) % 5 == 0)
        assert settings["num_leaves"] == expected["num_leaves"]
        assert 1 < rounds <= MAX_ROUNDS
        settings, rounds = _chosen(*given, None)
        assert (settings["num_leaves"], rounds) == (SMALL["num_leaves"], USUAL_ROUNDS)
