"""A split by time scales cells by what was known at its cutoff, as a store built until then does.

The reference is the builder: the same tables are built once more with stats_until at the cutoff,
and all arrays of all batches are compared. After the cutoff values are some ten times as large.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from databases import TinyTable, arrow_tables
from headwater import Sampler, build

AT, UNTIL = "2020-03-01", "2020-06-01"
EXACT_TO = (
    1e-5  # of the store's deviation a float32 knows 6e-8, and the other's is less than that / 100
)
SAMPLED: dict[str, Any] = {
    "default_sequence_length": 96, "max_rows": 24, "max_hops": 3, "time_split": (AT, UNTIL),
}  # fmt: skip


def tables() -> dict[str, TinyTable]:
    rng = np.random.default_rng(5)
    people = [(i, float(rng.normal(40, 9)) if i % 5 else None) for i in range(12)]
    visits = []
    for i in range(400):
        day = datetime(2020, 1, 1) + timedelta(hours=13 * i)
        growth = 1.0 if day <= datetime(2020, 3, 1) else 10.0
        numbers = [float(growth * (7 + rng.normal())) for _ in range(4)]
        numbers = [None if rng.random() < 0.1 else number for number in numbers]
        told = None if rng.random() < 0.1 else day + timedelta(days=float(rng.exponential(9)))
        same = 3.0 if growth == 1.0 else float(i)
        visits.append((i, i % 12, None if i > 395 else day, told, *numbers, same))
    visits.sort(key=lambda visit: (visit[2] is None, visit[2] or datetime.max))
    kinds = {"id": "INTEGER", "person": "INTEGER", "at": "TIMESTAMP", "told": "TIMESTAMP"}
    numbers = dict.fromkeys(("cost", "bill", "score", "verdict", "same"), "DOUBLE")
    return {
        "people": TinyTable({"id": "INTEGER", "height": "DOUBLE"}, people),
        "visits": TinyTable({**kinds, **numbers}, visits),
    }


def metadata() -> dict[str, Any]:
    identifier, number = {"stype": "identifier"}, {"stype": "numerical"}
    visits = {
        "id": identifier, "person": {**identifier, "foreign_key": "people.id"},
        "at": {"stype": "timestamp"}, "told": {"stype": "timestamp", "known_at": "told"},
        "cost": number, "bill": {**number, "known_at": "told"},
        "score": {**number, "known_at": "+10 days"}, "verdict": {**number, "known_at": "never"},
        "same": number,
    }  # fmt: skip
    asked = (
        "SELECT p.id, d.asked, {} AS y, 'train' AS split FROM people p, (SELECT unnest("
        "generate_series(TIMESTAMP '2020-01-20', TIMESTAMP '2020-07-20', INTERVAL 9 DAY)) AS asked"
        ") d"
    )
    derived = {"anchor_table": "people", "target_column": "y", "observation_time_column": "asked",
               "split_column": "split", "label_window": "5 days"}  # fmt: skip
    return {
        "tables": {
            "people": {
                "primary_key": "id", "columns": {"id": identifier, "height": number},
            },
            "visits": {"primary_key": "id", "temporal_column": "at", "columns": visits},
        },
        "tasks": {
            "amount": {**derived, "query": asked.format("p.id * 1.5"), "target_stype": "numerical"},
            "when": {**derived, "target_stype": "timestamp",
                     "query": asked.format("d.asked + INTERVAL 3 DAY")},
            "cost": {"query": "SELECT id, \"at\", cost, 'train' AS split FROM visits",
                     "anchor_table": "visits", "target_column": "cost", "split_column": "split",
                     "target_stype": "numerical", "observation_time_column": "at"},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Built with moments of all rows, and of what is known at the cutoff."""
    folder = tmp_path_factory.mktemp("scales")
    source = arrow_tables(tables())
    for name, until in (("late", "2021-01-01"), ("early", AT)):
        build(source, folder / name, metadata(), stats_until=until)
    return folder / "late", folder / "early"


def arrays(store: Path, split: str, **options: Any) -> list[dict[str, Any]]:
    with Sampler(store, **{**SAMPLED, **options}) as sampler:
        batches = sampler.epoch(split)
        return [{name: np.array(batch[name]) for name in batch} for batch in batches]


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("layout", ["dense", "compact"])
@pytest.mark.parametrize(
    "options",
    [
        {"tasks": ["amount"], "label_rows": 3, "child_counts": True},
        {"tasks": ["when"], "label_rows": 3, "targets": "separate"},
        {"tasks": ["cost"]},
        {"tasks": ["amount"], "mask_ratio": 0.3, "identifier_cells": "none"},
        {"objective": "masked_cells", "mask_ratio": 0.3},
    ],
)
def test_cells_are_scaled_as_in_a_store_built_until_the_cutoff(
    options: dict[str, Any], layout: str, split: str, stores: tuple[Path, Path]
) -> None:
    shown, expected = (arrays(store, split, layout=layout, **options) for store in stores)
    assert len(shown) == len(expected) > 0
    for one, other in zip(shown, expected, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            if name == "cell_values":  # bits of numbers, and numbers of categories and texts
                numbers = is_number(one)
                assert np.array_equal(values[~numbers], other[name][~numbers])
                values, wanted = (part[numbers].view(np.float32) for part in (values, other[name]))
            else:
                wanted = other[name]
            if values.dtype == np.float32:
                np.testing.assert_allclose(
                    values, wanted, rtol=EXACT_TO, atol=EXACT_TO, err_msg=name
                )
            else:
                assert np.array_equal(values, wanted), name


def is_number(batch: dict[str, Any]) -> Any:
    """Cells whose values are numbers: numerical ones and the epochs of times."""
    stype = batch["cells"] & 7
    return np.isin(
        stype, [int(headwater.SemanticType.NUMERICAL), int(headwater.SemanticType.TIMESTAMP)]
    )


def test_the_metadata_tells_the_scales(stores: tuple[Path, Path]) -> None:
    with Sampler(stores[0], **SAMPLED) as sampler:
        shown = sampler.database_metadata()
    with Sampler(stores[1], **SAMPLED) as sampler:
        expected = sampler.database_metadata()
    late = headwater.Store(stores[0]).metadata
    moved = 0
    for column, wanted, stored in zip(
        shown["columns"], expected["columns"], late["columns"], strict=True
    ):
        if column["stype"] == "numerical":
            for name in ("mean", "std"):
                assert column["stats"][name] == pytest.approx(wanted["stats"][name], rel=1e-4)
                moved += column["stats"][name] != stored["stats"].get(name)
    assert moved >= 8
    assert shown["time"] == expected["time"]


def test_times_are_scaled_to_the_bit(stores: tuple[Path, Path]) -> None:
    shown, expected = (arrays(store, "val", tasks=["amount"]) for store in stores)
    other = arrays(stores[0], "val", tasks=["amount"], time_split=("2020-04-01", UNTIL))
    for one, wanted in zip(shown, expected, strict=True):
        assert np.array_equal(one["timestamp_values"], wanted["timestamp_values"])
    assert not np.array_equal(other[0]["timestamp_values"], shown[0]["timestamp_values"])


def test_a_cutoff_after_what_the_store_was_built_until_changes_nothing(
    stores: tuple[Path, Path],
) -> None:
    """No scale can then tell of later: the store's are of what was known sooner."""
    with Sampler(stores[1], **{**SAMPLED, "time_split": ("2020-04-01", UNTIL)}) as sampler:
        shown = {c["name"]: c["stats"] for c in sampler.database_metadata()["columns"]
                 if c["stype"] == "numerical" and c["name"] != "y"}  # fmt: skip
    stored = {c["name"]: c["stats"] for c in headwater.Store(stores[1]).metadata["columns"]}
    assert shown == {name: stored[name] for name in shown}


def test_a_cutoff_before_all_rows_shows_no_numbers(stores: tuple[Path, Path]) -> None:
    """As a store built until then: of nothing there is no scale."""
    (batch, *_) = arrays(stores[0], "val", tasks=["amount"], time_split=("2019-01-01", UNTIL))
    names = {c["name"]: i for i, c in enumerate(headwater.Store(stores[0]).metadata["columns"])}
    for name in ("cost", "bill", "score", "verdict", "same"):
        assert not batch["numeric_values"][batch["column_ids"] == names[name]].any()
    assert batch["numeric_values"][batch["column_ids"] == names["height"]].any()
