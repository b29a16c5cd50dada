"""rel-f1 of ../shared/data, built with its example metadata; skipped where it is absent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from built_examples import Builder
from headwater.builder.build_report import BuildReport
from headwater.store.store import Store


def table(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in metadata["tables"] if entry["name"] == name)


@pytest.fixture
def rel_f1(built_example: Builder) -> tuple[BuildReport, Store]:
    made = built_example("rel-f1")
    return made.report, made.store


def test_rel_f1_has_every_row_and_edge(rel_f1: tuple[BuildReport, Store]) -> None:
    report, store = rel_f1
    assert store.verify() == []
    assert report.losses() == []
    assert store.metadata["tables"][-1]["row_range"][1] == 74_063
    keys = [key for entry in store.metadata["tables"] for key in entry["foreign_keys"]]
    assert len(keys) == 13
    assert sum(key["dangling"] + key["nulls"] for key in keys) == 0
    assert table(store.metadata, "drivers")["null_values"] == 757


def test_rel_f1_has_the_seeds_of_its_label_tables(rel_f1: tuple[BuildReport, Store]) -> None:
    tasks = {task["name"]: task for task in rel_f1[1].metadata["tasks"]}
    seeds = {name: tuple(task["seeds"].values()) for name, task in tasks.items()}
    assert seeds == {
        "driver-position": (7_453, 499, 760, 760),
        "driver-dnf": (11_411, 566, 702, 702),
        "driver-top3": (1_353, 588, 726, 726),
        "results-position": (8_997, 1_400, 0, 0),
        "qualifying-position": (2_228, 1_854, 0, 0),
    }
    assert all(task["dropped"] == {} for task in tasks.values())
    assert tasks["driver-dnf"]["kind"] == "derived"
    assert tasks["results-position"]["kind"] == "cell"
    assert tasks["driver-dnf"]["stats"]["classes"] == {"true": 10_487, "false": 1_490}


def test_rel_f1_is_small_and_its_rows_read_back(rel_f1: tuple[BuildReport, Store]) -> None:
    report, store = rel_f1
    main = report.store_bytes["graph, tables and tasks"]
    assert main <= 2 * report.metadata["csv_bytes"]
    first = store.row(store.find("results", 0))
    assert first["time"] == datetime(1950, 5, 13, tzinfo=UTC)
    assert first["cells"]["raceId"] == 0
    assert first["cells"]["position"] == 1.0
    assert store.row(store.find("drivers", 0))["cells"]["dob"].year == 1985
