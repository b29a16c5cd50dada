"""Boosted trees on the columns of the anchor and its parents: what they see of a shop, and where
LightGBM cannot be loaded. What they see of parents by hand: `test_parent_columns.py`."""

from __future__ import annotations

import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from small import labelled

from confluence.config import Config, preset
from confluence.data.tasks import SPLITS, Labels, Task, open_sampler, read_labels
from confluence.data.verification import open_store
from confluence.trees.boosted import Features
from confluence.trees.features import seeds_of
from confluence.trees.own_columns import OwnColumns
from confluence.trees.tree_baselines import tree_baselines

US_PER_DAY = 86_400_000_000


def own_columns(store: Path, cfg: Config, task: Task, seeds: Any) -> Features:
    with open_sampler(open_store(store), cfg, task.name) as sampler:
        labels = read_labels(sampler, task.name)
    questions = seeds_of(labels, seeds, 2**63 - 1, inclusive=task.inclusive)
    with OwnColumns(open_store(store), cfg, task) as reader:
        return reader.features(questions)


def seeds_in(labels: Labels, split: str) -> Any:
    return np.flatnonzero(labels.splits == SPLITS[split])


def customers(database: Path) -> dict[int, dict[str, Any]]:
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    rows = connection.execute("SELECT * FROM customers").fetchall()
    connection.close()
    return {row["customer_id"]: dict(row) for row in rows}


def days(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() / 86_400


@pytest.mark.parametrize("until", [None, "2025-01-01"])
def test_features_are_the_cells_known_at_the_time_of_the_seed(
    shop_store: Path, shop_database: Path, until: str | None
) -> None:
    cfg = preset("tiny", visible_until=until)
    task, labels = labelled(shop_store, cfg, "subscribed")
    found = own_columns(shop_store, cfg, task, seeds_in(labels, "train"))
    own = ("signed_up_on", "region", "birth_year", "newsletter", "closed_at")
    up = "customers.recommended_by"
    assert found.names == (
        *own, *(f"{up} > {name}" for name in own), *(f"{up} > {up} > {name}" for name in own),
        "row age",
    )  # fmt: skip
    regions = [name for name in found.names if name.endswith("region")]
    assert list(found.categories) == regions and len(regions) == 3
    store, source = headwater.Store(shop_store), customers(shop_database)
    regions = sorted({row["region"] for row in source.values()})
    kinds = set()
    for seed, values in zip(found.index, found.values, strict=True):
        anchor = row = source[store.row(int(labels.anchor_rows[seed]))["key"]["customer_id"]]
        now = labels.obs_times[seed] / US_PER_DAY
        seen_until = min(now, days(until)) if until else now
        expected: list[Any] = []
        for _ in range(3):  # the customer, who recommended it, and who recommended that one
            if not row or (row is not anchor and days(row["signed_up_on"]) + 1 > seen_until):
                expected += [np.nan] * len(own)
                row = {}
                continue
            closed = np.nan if row["closed_at"] is None else days(row["closed_at"])
            kinds.add("open" if np.isnan(closed) else "closed" if closed <= seen_until else "later")
            expected += [
                now - days(row["signed_up_on"]),
                regions.index(row["region"]),
                np.nan if row["birth_year"] is None else row["birth_year"],
                row["newsletter"],
                now - closed if closed <= seen_until else np.nan,  # not before it is known
            ]
            row = source.get(row["recommended_by"], {})
        kinds.add("recommended twice" if not np.isnan(expected[-5]) else "fewer")
        # A day is over at its end.
        expected.append(now - days(anchor["signed_up_on"]) - 1)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-3)
    assert kinds == {"open", "closed", "later", "recommended twice", "fewer"}


def test_the_target_hidden_columns_texts_and_keys_are_no_features(shop_store: Path) -> None:
    cfg = preset("tiny")
    task, labels = labelled(shop_store, cfg, "rating")
    found = own_columns(shop_store, cfg, task, seeds_in(labels, "val"))
    own = [name for name in found.names if ">" not in name]
    assert own == ["written_at", "rating", "row age"]
    assert "reviews.product_id > products.category_id > parent_category" not in found.names
    assert np.isnan(found.values[:, 1]).all()  # the target of a cell task
    np.testing.assert_allclose(found.values[:, 0], 0.0, atol=1e-3)  # written at obs_time


def test_seeds_of_several_splits_come_in_the_order_asked_for(shop_store: Path) -> None:
    cfg = preset("tiny")
    task, labels = labelled(shop_store, cfg, "subscribed")
    seeds = np.array([seeds_in(labels, split)[0] for split in ("test", "train", "val")])
    found = own_columns(shop_store, cfg, task, seeds)
    for row, seed in enumerate(seeds):
        alone = own_columns(shop_store, cfg, task, np.array([seed]))
        np.testing.assert_array_equal(found.values[row], alone.values[0])


@pytest.mark.parametrize("name", ["subscribed", "next_order", "device", "rating"])
def test_trees_are_the_same_again(name: str, shop_store: Path) -> None:
    cfg = preset("tiny")
    task, labels = labelled(shop_store, cfg, name)
    first, again = (
        tree_baselines(open_store(shop_store), cfg, task, labels, "val") for _ in range(2)
    )
    assert list(first) == ["own_columns", "history"]
    for which, baseline in first.items():
        np.testing.assert_array_equal(baseline["values"], again[which]["values"])
        assert np.array_equal(~np.isnan(baseline["values"]), labels.splits == SPLITS["val"])


def test_without_openmp_an_evaluation_has_the_reason_and_no_trees(
    shop_store: Path, no_openmp: str
) -> None:
    cfg = preset("tiny")
    task, labels = labelled(shop_store, cfg, "subscribed")
    result = tree_baselines(open_store(shop_store), cfg, task, labels, "val")
    assert result == {"own_columns": {"missing": no_openmp}, "history": {"missing": no_openmp}}


def test_without_lightgbm_an_evaluation_names_its_package(
    shop_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = preset("tiny")
    task, labels = labelled(shop_store, cfg, "subscribed")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    missing = {"missing": "LightGBM is not installed: pip install lightgbm"}
    result = tree_baselines(open_store(shop_store), cfg, task, labels, "val")
    assert result == {"own_columns": missing, "history": missing}
