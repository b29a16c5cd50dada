"""Tasks and splits in which label rows bring nothing are told of before a training."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small import opened_tasks

from confluence.config import Config
from confluence.data.tasks import Labels
from confluence.trees.label_row_check import (
    _share_with_label,
    check_label_rows,
    has_label_rows,
)

ALONE = r"'next_order' has them in \d+% of the contexts of train and in none of val and test"


def test_a_label_that_is_known_at_the_time_of_the_next_question_is_shown() -> None:
    """As derived tasks see what happens at the very time they ask."""
    days = np.array([0, 30, 60, 90] * 2) * 86_400_000_000
    known = np.ones(8, bool)
    labels = Labels(
        anchor_rows=np.repeat([0, 1], 4).astype(np.uint32), obs_times=days, targets=np.ones(8),
        is_known=known, is_labelled=known, splits=np.array([0, 0, 1, 2] * 2, np.uint8),
        label_times=days + 30 * 86_400_000_000,
    )  # fmt: skip
    task: Any = SimpleNamespace(label_window_us=30 * 86_400_000_000)
    shown = _share_with_label(task, labels, inclusive=True)
    assert shown == {"train": 0.5, "val": 1.0, "test": 1.0}
    assert _share_with_label(task, labels, inclusive=False)["train"] == 0.0


def check(store: Path, cfg: Config, task: str) -> None:
    with opened_tasks(store, [task], cfg) as stores:
        check_label_rows(stores, cfg)


@pytest.mark.parametrize(
    ("task", "settings", "says"),
    [
        ("rating", {}, "'rating' asks for a cell"),
        ("subscribed", {}, "'subscribed' states neither label_window nor label_known_at"),
        ("churn", {"max_hops": 0}, "'churn' has them one hop from the anchor, but max_hops is 0"),
        ("next_order", {}, ALONE),  # its split is by the key of the customer
        ("churn", {"context_labels": "none"}, "'churn' shows no labels"),
    ],
)
def test_label_rows_that_bring_nothing(
    task: str, settings: dict[str, Any], says: str, cfg: Config, shop_store: Path
) -> None:
    with pytest.warns(UserWarning, match=f"label_rows is 2, and task {says}"):
        check(shop_store, cfg.replace(label_rows=2, **settings), task)
    with opened_tasks(shop_store, [task], cfg) as stores:  # they are not tried either
        assert not has_label_rows(stores, cfg.replace(**settings))


def test_one_task_without_label_rows_is_enough_not_to_try_them(
    cfg: Config, shop_store: Path
) -> None:
    with opened_tasks(shop_store, ["churn", "rating"], cfg) as stores:
        assert not has_label_rows(stores, cfg)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("churn", {}),  # split by time
        ("next_order", {"context_labels": "all"}),
        ("rating", {"label_rows": 0}),
    ],
)
def test_label_rows_that_all_splits_have(
    task: str, settings: dict[str, Any], cfg: Config, shop_store: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(shop_store, cfg.replace(**{"label_rows": 2, **settings}), task)
    with opened_tasks(shop_store, [task], cfg) as stores:
        assert has_label_rows(stores, cfg.replace(**settings)) == (task != "rating")
