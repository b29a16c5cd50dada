"""Keys of every kind: text against integer, composite, NULL parts, unique columns, duplicates."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from databases import TinyTable, arrow_tables
from headwater.build import build
from headwater.errors import SourceError
from headwater.store import Store

NO_ROW = 2**32 - 1
ID = {"stype": "identifier"}


def parents_of(
    tmp_path: Path,
    parent: TinyTable,
    child: TinyTable,
    *,
    references: list[str],
    parent_columns: dict[str, Any],
    child_columns: dict[str, Any],
    primary_key: Any = "id",
) -> tuple[list[list[int]], dict[str, int]]:
    """Build `parent` and `child`, joined by the child's columns; parents per child, counts."""
    keys = [name for name in child.types if name not in ("n",)]
    metadata = {
        "tables": {
            "parent": {"primary_key": primary_key, "columns": parent_columns},
            "child": {
                "primary_key": "n",
                "columns": {"n": ID, **child_columns},
                "foreign_keys": [
                    {"columns": keys, "references": {"table": "parent", "columns": references}}
                ],
            },
        }
    }
    build(arrow_tables({"parent": parent, "child": child}), tmp_path / "s", metadata)
    store = Store(tmp_path / "s")
    assert store.verify() == []
    low, high = store.metadata["tables"][1]["row_range"]
    key = store.metadata["tables"][1]["foreign_keys"][0]
    counts = {name: key[name] for name in ("edges", "dangling", "nulls")}
    return [store.parents(row).tolist() for row in range(low, high)], counts


def test_an_integer_finds_a_text_key(tmp_path: Path) -> None:
    parents, counts = parents_of(
        tmp_path,
        TinyTable({"id": "TEXT"}, [("42",), ("x",), ("007",)]),
        TinyTable({"n": "INTEGER", "to": "INTEGER"}, [(1, 42), (2, 7), (3, None)]),
        references=["id"],
        parent_columns={"id": ID},
        child_columns={"to": ID},
    )
    # Text order: '007', '42', 'x'.
    assert parents == [[1], [NO_ROW], [NO_ROW]]
    assert counts == {"edges": 1, "dangling": 1, "nulls": 1}


def test_a_float_column_of_whole_numbers_is_an_integer_key(tmp_path: Path) -> None:
    parents, _ = parents_of(
        tmp_path,
        TinyTable({"id": "INTEGER"}, [(1,), (2,)]),
        TinyTable({"n": "INTEGER", "to": "DOUBLE"}, [(1, 2.0), (2, None), (3, 1.0)]),
        references=["id"],
        parent_columns={"id": ID},
        child_columns={"to": ID},
    )
    assert parents == [[1], [NO_ROW], [0]]


def test_composite_keys_of_mixed_types_and_null_parts(tmp_path: Path) -> None:
    types = {"day": "DATE", "home": "TEXT", "score": "INTEGER"}
    parent = TinyTable(
        types, [(date(2020, 1, 1), "A", 1), (date(2020, 1, 1), "B", 2), (date(2020, 1, 2), "A", 3)]
    )
    child = TinyTable(
        {"n": "INTEGER", "day": "TEXT", "home": "TEXT"},
        [(1, "2020-01-02", "A"), (2, "2020-01-01", None), (3, "2020-01-03", "A"), (4, None, None)],
    )
    parents, counts = parents_of(
        tmp_path,
        parent,
        child,
        references=["day", "home"],
        primary_key=["day", "home"],
        parent_columns={
            "day": {"stype": "timestamp"},
            "home": {"stype": "categorical"},
            "score": {"stype": "numerical"},
        },
        child_columns={"day": {"stype": "timestamp"}, "home": {"stype": "categorical"}},
    )
    assert parents == [[2], [NO_ROW], [NO_ROW], [NO_ROW]]
    assert counts == {"edges": 1, "dangling": 1, "nulls": 2}
    assert Store(tmp_path / "s").find("parent", (date(2020, 1, 1), "B")) == 1


def test_a_key_may_refer_to_a_unique_column(tmp_path: Path) -> None:
    parents, counts = parents_of(
        tmp_path,
        TinyTable({"id": "INTEGER", "code": "TEXT"}, [(1, "b"), (2, "a"), (3, None), (4, None)]),
        TinyTable({"n": "INTEGER", "to": "TEXT"}, [(1, "a"), (2, "b"), (3, "c")]),
        references=["code"],
        parent_columns={"id": ID, "code": {"stype": "text"}},
        child_columns={"to": ID},
    )
    assert parents == [[1], [0], [NO_ROW]]
    assert counts == {"edges": 2, "dangling": 1, "nulls": 0}


def test_a_key_that_refers_to_repeated_values_is_an_error(tmp_path: Path) -> None:
    message = r"'child.to' refers to 'parent.code', which is not unique: \(a\) is in 2 rows"
    with pytest.raises(SourceError, match=message):
        parents_of(
            tmp_path,
            TinyTable({"id": "INTEGER", "code": "TEXT"}, [(1, "a"), (2, "a")]),
            TinyTable({"n": "INTEGER", "to": "TEXT"}, [(1, "a")]),
            references=["code"],
            parent_columns={"id": ID, "code": {"stype": "text"}},
            child_columns={"to": ID},
        )


def test_two_keys_to_one_table_and_a_cycle(tmp_path: Path) -> None:
    database = {
        "a": TinyTable({"id": "INTEGER", "b": "INTEGER"}, [(1, 20), (2, 10)]),
        "b": TinyTable({"id": "INTEGER", "x": "INTEGER", "y": "INTEGER"}, [(10, 1, 2), (20, 2, 2)]),
    }
    to_a, to_b = ({"stype": "identifier", "foreign_key": f"{t}.id"} for t in "ab")
    metadata = {
        "tables": {
            "a": {"primary_key": "id", "columns": {"id": ID, "b": to_b}},
            "b": {"primary_key": "id", "columns": {"id": ID, "x": to_a, "y": to_a}},
        }
    }
    build(arrow_tables(database), tmp_path / "s", metadata)
    store = Store(tmp_path / "s")
    assert [store.parents(row).tolist() for row in range(4)] == [[3], [2], [0, 1], [1, 1]]
    assert {name: rows.tolist() for name, rows in store.children(1).items()} == {
        "b.x": [3],
        "b.y": [2, 3],
    }


def test_any_name_can_be_a_table_or_a_column(tmp_path: Path) -> None:
    """Names of our own schemas, of SQL words and with quotes."""
    import pyarrow

    names = ["rows", "raw", "labels", "seeds", "parents", "t0", "main", "order", "a b", 'q"x', "x'"]
    columns = {name: ID for name in ("id", "select", "rowid", "c0", 'a"b')}
    task = {
        "query": "SELECT id, count(*) AS n FROM rows JOIN labels USING (id) "
        "JOIN \"order\" USING (id) JOIN 'a b.parquet' USING (id) GROUP BY id",
        "anchor_table": "rows",
        "target_column": "n",
        "target_stype": "numerical",
    }
    metadata = {
        "tables": {name: {"primary_key": "id", "columns": columns} for name in names},
        "tasks": {"it's": task},
    }
    table = pyarrow.table({name: [1, 2] for name in columns})
    report = build(dict.fromkeys(names, table), tmp_path / "s", metadata)
    assert Store(tmp_path / "s").verify() == []
    seeds = report.metadata["tasks"][0]["seeds"]
    assert seeds["train"] + seeds["val"] + seeds["test"] == 2


def test_many_rows_keep_their_order_and_parents(tmp_path: Path) -> None:
    """Above DuckDB's row group and Arrow batch sizes, where a reordered scan would show."""
    import pyarrow

    count = 1_300_000
    ids = pyarrow.array([(i * 7_919) % count for i in range(count)])
    to = pyarrow.array([(i * 104_729) % count for i in range(count)])
    table = pyarrow.table({"id": ids, "to": to, "v": ids.cast("float64")})
    link = {"stype": "identifier", "foreign_key": "t.id"}
    columns = {"id": ID, "to": link, "v": {"stype": "numerical"}}
    metadata = {"tables": {"t": {"primary_key": "id", "columns": columns}}}
    build({"t": table}, tmp_path / "s", metadata)
    store = Store(tmp_path / "s")
    parent_of = dict(zip(ids.to_pylist(), to.to_pylist(), strict=True))
    for row in [0, 1, 122_880, 999_999, 1_000_000, count - 1, *range(7, count, 99_991)]:
        assert store.row(row)["key"]["id"] == row
        assert store.parents(row).tolist() == [parent_of[row]]
        assert store.row(row)["cells"]["v"] == pytest.approx(row, rel=1e-6)
