"""The setting `ignored_columns`: it reaches every sampler of a run, and no baseline."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from untrained import noted_samplers, untrained_run

from confluence.arguments import make_parser
from confluence.commands import overrides_of
from confluence.config import Config, ConfigError, preset
from confluence.data import (
    SPLITS,
    check_ignored_columns,
    ignored_columns,
    open_sampler,
    read_labels,
    read_row_shape,
    read_task,
)
from confluence.history_trees import seeds_of
from confluence.own_columns import own_columns
from confluence.pretrain import pretrain
from confluence.run import train

SMALL: dict[str, Any] = {
    "width": 16, "layers": 1, "sequence_length": 32, "max_rows": 10,
}  # fmt: skip
PURCHASES = tuple(
    f"order_items.{name}"
    for name in ("ordered_at", "quantity", "unit_price", "returned", "returned_at")
)
METADATA: list[dict[str, Any]] = [
    {"columns": [{"name": "id"}, {"name": name}], "tables": [{"name": t, "column_range": [0, 2]}]}
    for t, name in (("drivers", "surname"), ("riders", "code"))
]  # of two stores


def shown_columns(store: Path, cfg: Config, task: str) -> set[str]:
    """All columns of which the first train batches have a cell."""
    shown: set[int] = set()
    with open_sampler(str(store), cfg.replace(layout="dense"), task, num_prefetch=0) as sampler:
        columns = sampler.database_metadata()["columns"]
        for k in range(8):
            batch = sampler.batch("train", k)
            shown |= set(batch["column_ids"][batch["is_padding"] == 0].tolist())
    return {f"{columns[number]['table']}.{columns[number]['name']}" for number in shown}


# ------------------------------------------------------------------------------------ the sampler


def test_contexts_do_not_show_them(shop_store: Path) -> None:
    cfg = preset("tiny", sequence_length=128, max_rows=32)
    ignored = ("customers.region", "orders.ordered_at", "reviews.rating")
    before = shown_columns(shop_store, cfg, "churn")
    assert {"customers.region", "orders.ordered_at"} < before
    after = shown_columns(shop_store, cfg.replace(ignored_columns=ignored), "churn")
    assert after.isdisjoint(ignored)
    assert before - set(ignored) <= after


def test_training_evaluation_and_prediction_open_samplers_with_them(
    shop_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = noted_samplers(monkeypatch)
    monkeypatch.setattr("confluence.page.write_page", lambda out: None)  # which needs a log
    cfg = preset("tiny", ignored_columns=["customers.region"], **SMALL)
    run = untrained_run(shop_store, "churn", cfg, tmp_path)
    result = run.evaluate("val", trees=False, resamples=0)
    assert np.isfinite(result["metrics"]["auroc"])
    run.predict(keys=[1, 2], at="2025-01-01")
    assert [options["ignored_columns"] for options in noted] == [["customers.region"]] * 3


# --------------------------------------------------------------------------------------- the rows


@pytest.mark.parametrize(
    ("ignored", "more", "width"),
    [
        ((), {}, 5),  # customers, products and order_items
        (PURCHASES, {}, 5),
        ((*PURCHASES, "customers.region", "products.line"), {}, 4),
        (PURCHASES, {"identifier_cells": "all"}, 8),  # products
        ((*PURCHASES, "products.product_id"), {"identifier_cells": "all"}, 7),
        (PURCHASES, {"child_counts": True}, 20),  # customers: five keys point at them
    ],
)
def test_rows_are_as_wide_as_what_is_left(
    ignored: tuple[str, ...], more: dict[str, Any], width: int, shop_store: Path
) -> None:
    cfg = preset("tiny", sequence_length=256, max_rows=64, max_hops=4, **more)
    cfg = cfg.replace(ignored_columns=ignored)
    widest = 0
    with open_sampler(str(shop_store), cfg, "rating", num_prefetch=0) as sampler:
        shape = read_row_shape(sampler.database_metadata(), cfg)
        for k in range(8):
            starts = sampler.batch("train", k)["row_starts"].astype(int)
            widest = max(widest, int(np.diff(starts, axis=1).max()))
    assert widest <= shape.width == width


def names_without(metadata: dict[str, Any], kept: str) -> list[str]:
    """All columns that are no identifiers, but those of a table."""
    return [
        f"{table['name']}.{column['name']}"
        for table in metadata["tables"]
        for column in metadata["columns"][slice(*table["column_range"])]
        if column["stype"] != "identifier" and table["name"] != kept
    ]


def test_a_row_with_nothing_left_has_an_identifier_beside_its_counts(shop_store: Path) -> None:
    metadata = headwater.Store(shop_store).metadata
    cfg = preset("tiny", ignored_columns=names_without(metadata, ""), child_counts=True)
    assert read_row_shape(metadata, cfg).width == 1 + 3 * 5
    with open_sampler(str(shop_store), cfg, "churn", num_prefetch=0) as sampler:
        starts = sampler.batch("train", 0)["row_starts"].astype(int)
    assert np.diff(starts, axis=1).max() == 1 + 3 * 5


def test_an_ignored_target_of_a_cell_task_is_counted(shop_store: Path) -> None:
    metadata = headwater.Store(shop_store).metadata
    names = [column["name"] for column in metadata["columns"]]
    ignored = [*names_without(metadata, "orders"), "orders.shipping"]
    cfg = preset("tiny", ignored_columns=ignored)
    assert read_row_shape(metadata, cfg).width == 3
    task = {"target_column_id": names.index("shipping")}
    assert read_row_shape({**metadata, "tasks": [task]}, cfg).width == 4


# ------------------------------------------------------------------------------------- the others


def test_baselines_see_all_columns(shop_store: Path) -> None:
    cfg = preset("tiny")
    with open_sampler(str(shop_store), cfg, "subscribed") as sampler:
        labels = read_labels(str(shop_store), sampler, "subscribed")
        task = read_task(sampler.database_metadata(), labels, "subscribed")
    index = np.flatnonzero(labels.splits == SPLITS["val"])
    seeds = seeds_of(labels, index, 2**63 - 1, inclusive=task.inclusive)
    without = cfg.replace(ignored_columns=("customers.region", "customers.birth_year"))
    one, two = (own_columns(str(shop_store), c, task, seeds, until=None) for c in (cfg, without))
    assert not np.isnan(one.values[:, one.names.index("region")]).all()
    for field in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name))


# -------------------------------------------------------------------------------------- the names


def test_each_store_ignores_what_it_has_and_a_name_of_none_is_an_error() -> None:
    cfg = preset("tiny", ignored_columns=["riders.code", "drivers.surname"])
    check_ignored_columns(METADATA, cfg)
    assert [ignored_columns(metadata, cfg) for metadata in METADATA] == [
        ["drivers.surname"], ["riders.code"],
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"no store of the run has 'riders.code'"):
        check_ignored_columns(METADATA[:1], cfg)
    with pytest.raises(ConfigError, match=r"'code', expected 'table.column'"):
        check_ignored_columns(METADATA, cfg.replace(ignored_columns=("code",)))


def test_a_name_that_no_store_has_ends_a_run_before_it_begins(
    shop_store: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {**SMALL, "ignored_columns": ["customers.regio"]}
    expected = "ignored_columns: no store of the run has 'customers.regio', did you mean 'customers"
    with pytest.raises(ConfigError, match=expected):
        train(shop_store, task="churn", out=tmp_path / "run", preset="tiny", **settings)
    with pytest.raises(ConfigError, match=expected):
        pretrain(shop_store, out=tmp_path / "run", tasks=["churn"], preset="tiny", **settings)
    assert not (tmp_path / "run").exists()


def test_the_setting_is_a_tuple_of_distinct_names() -> None:
    cfg = preset("tiny", ignored_columns=["a.b"])
    assert cfg.ignored_columns == ("a.b",)
    assert Config.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg
    for value, expected in (("a.b", "a tuple of texts"), (("a.b", "c", "a.b"), "distinct names")):
        with pytest.raises(ConfigError, match=rf"ignored_columns is .*, expected {expected}"):
            Config(ignored_columns=value)  # type: ignore[arg-type]


def test_the_option_is_names_with_commas() -> None:
    for text, expected in (("a.b,c.d", ("a.b", "c.d")), ("none", ())):
        arguments = ["train", "x.hw", "--task", "t", "--ignored-columns", text]
        assert overrides_of(make_parser().parse_args(arguments)) == {"ignored_columns": expected}
