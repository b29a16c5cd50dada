"""Columns that only number rows are ignored and named; what a table refers to is not."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source

ROWS = 60
DAYS = [f"2024-{j % 12 + 1:02}-{j % 28 + 1:02}" for j in range(ROWS)]


def drafted(tmp_path: Path, name: str, numbers: Sequence[Any], **others: str) -> Draft:
    """The table `visit`, whose first column has these numbers; other files by their names."""
    rows = [f"{number},{DAYS[j]},{j * 7 % 11}" for j, number in enumerate(numbers)]
    (tmp_path / "visit.csv").write_text("\n".join([f"{name},seen_on,pages", *rows]))
    for other, text in others.items():
        (tmp_path / f"{other}.csv").write_text(text)
    return draft_source(tmp_path)


def said(draft: Draft) -> list[str]:
    return [check for check in draft.every_check() if "only numbers the rows" in check]


SHUFFLED = random.Random(7).sample(range(3 * ROWS), ROWS)
NUMBERED: dict[str, tuple[str, Sequence[int], str]] = {
    "an index": ("", range(ROWS), "from 0 on"),
    "an index that was read again": ("Unnamed: 0", range(ROWS), "from 0 on"),
    "an index of twice": ("Unnamed: 0.1", range(1, ROWS + 1), "from 1 on"),
    "of a part of a shuffled frame": ("Unnamed: 0", SHUFFLED, "in another order"),
    "of joined frames": ("Unnamed: 0", [*range(40), *range(20)], "begin at 0 again"),
    "of R": ("X", range(1, ROWS + 1), "from 1 on"),
    "with a name": ("Index", range(1, ROWS + 1), "from 1 on"),
    "with a sign": ("#", range(1, ROWS + 1), "from 1 on"),
}


@pytest.mark.parametrize("way", NUMBERED)
def test_a_column_that_numbers_rows_is_ignored(tmp_path: Path, way: str) -> None:
    name, numbers, why = NUMBERED[way]
    draft = drafted(tmp_path, name, numbers)
    table, column = draft.table("visit"), name or "column0"
    assert table.column(column).stype == "ignored"
    assert table.primary_key != (column,)
    assert all(task.target_column != column for task in draft.tasks)
    (line,) = said(draft)
    assert line.startswith(f"visit.{column}: ") and why in line


KEPT: dict[str, tuple[str, Sequence[int]]] = {
    "a key": ("visit_id", range(ROWS)),
    "an index with other values": ("index", [j * j for j in range(ROWS)]),
    "a coordinate": ("x", range(ROWS)),
    "large numbers without a name": ("", [10_000 + 37 * j for j in range(ROWS)]),
}


@pytest.mark.parametrize("way", KEPT)
def test_other_numbers_are_not(tmp_path: Path, way: str) -> None:
    name, numbers = KEPT[way]
    draft = drafted(tmp_path, name, numbers)
    assert draft.table("visit").column(name or "column0").stype != "ignored"
    assert said(draft) == []


def test_a_number_that_another_table_refers_to_is_its_key(tmp_path: Path) -> None:
    clicks = "\n".join(["click_id,visit_id", *(f"{900 + j},{j * 3 % ROWS}" for j in range(ROWS))])
    draft = drafted(tmp_path, "", range(ROWS), click=clicks)
    assert draft.table("visit").primary_key == ("column0",)
    assert str(draft.table("click").column("visit_id").foreign_key) == "visit.column0"
    assert said(draft) == []


def test_nothing_refers_to_it_if_the_table_has_a_key_of_its_own(tmp_path: Path) -> None:
    """Each number of visit is also one of its rows, but the column is called as its key."""
    visits = "\n".join([",visit_id,pages", *(f"{j},{j + 1},{j * 7 % 11}" for j in range(ROWS))])
    (tmp_path / "visit.csv").write_text(visits)
    clicks = [f"{j},{900 + j},{j % 40 + 1}" for j in range(ROWS)]
    (tmp_path / "click.csv").write_text("\n".join(["Unnamed: 0,click_id,visit_id", *clicks]))
    draft = draft_source(tmp_path)
    assert len(said(draft)) == 2
    assert draft.table("visit").primary_key == ("visit_id",)
    assert draft.table("click").primary_key == ("click_id",)
    keys = [(t.name, k.columns, k.table, k.references) for t in draft.tables for k in t.every_key()]
    assert keys == [("click", ("visit_id",), "visit", ("visit_id",))]


def test_a_declared_key_stays(tmp_path: Path) -> None:
    """pandas' to_sql calls an index so, without a key."""
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute('CREATE TABLE part ("index" INTEGER PRIMARY KEY, size INTEGER)')
        db.execute('CREATE TABLE tool ("index" INTEGER, size INTEGER)')
        rows = [(j, j * 7 % 11) for j in range(ROWS)]
        db.executemany("INSERT INTO part VALUES (?, ?)", rows)
        db.executemany("INSERT INTO tool VALUES (?, ?)", rows)
    db.close()
    draft = draft_source(f"sqlite:///{tmp_path / 'a.db'}")
    assert draft.table("part").primary_key == ("index",)
    (line,) = said(draft)
    assert line.startswith("tool.index: ")
