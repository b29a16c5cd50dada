"""Keys of every kind: text against integer, composite, NULL parts, unique columns, duplicates."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from databases import TinyTable, arrow_tables, asked, run_script, typed
from headwater.builder.build import build
from headwater.errors import SourceError
from headwater.store.store import Store

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


@pytest.mark.parametrize(
    ("parent", "child", "expected", "counts"),
    [
        # An integer finds a text key, with zeros before it, too; text order is '007', '42', 'x'.
        (TinyTable({"id": "TEXT"}, [("42",), ("x",), ("007",)]),
         TinyTable({"n": "INTEGER", "to": "INTEGER"}, [(1, 42), (2, 7), (3, None)]),
         [[1], [0], [NO_ROW]], (2, 0, 1)),
        # A float column of whole numbers is an integer key.
        (TinyTable({"id": "INTEGER"}, [(1,), (2,)]),
         TinyTable({"n": "INTEGER", "to": "DOUBLE"}, [(1, 2.0), (2, None), (3, 1.0)]),
         [[1], [NO_ROW], [0]], (2, 0, 1)),
        # A key may refer to a unique column.
        (TinyTable({"id": "INTEGER", "code": "TEXT"}, [(1, "b"), (2, "a"), (3, None), (4, None)]),
         TinyTable({"n": "INTEGER", "to": "TEXT"}, [(1, "a"), (2, "b"), (3, "c")]),
         [[1], [0], [NO_ROW]], (2, 1, 0)),
    ],
    ids=["integer and text", "float", "unique column"],
)  # fmt: skip
def test_a_key_finds_the_row_that_its_value_names(
    parent: TinyTable,
    child: TinyTable,
    expected: list[list[int]],
    counts: tuple[int, int, int],
    tmp_path: Path,
) -> None:
    parents, found = parents_of(
        tmp_path,
        parent,
        child,
        references=[list(parent.types)[-1]],
        parent_columns={name: ID if name == "id" else {"stype": "text"} for name in parent.types},
        child_columns={"to": ID},
    )
    assert parents == expected
    assert tuple(found[name] for name in ("edges", "dangling", "nulls")) == counts


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
        parent_columns=typed("day timestamp, home categorical, score numerical"),
        child_columns=typed("day timestamp, home categorical"),
    )
    assert parents == [[2], [NO_ROW], [NO_ROW], [NO_ROW]]
    assert counts == {"edges": 1, "dangling": 1, "nulls": 2}
    assert Store(tmp_path / "s").find("parent", (date(2020, 1, 1), "B")) == 1


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
    query = """
        SELECT id, count(*) AS n FROM rows JOIN labels USING (id) JOIN "order" USING (id)
        JOIN 'a b.parquet' USING (id) GROUP BY id
    """
    task = asked(query, "rows", "n numerical")
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


def build_two(
    tmp_path: Path, source: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Rows of `p` (id) and `c` (p_id refers to it), and the foreign key's counts."""
    columns: dict[str, Any] = typed("id identifier, v numerical")
    child = typed("p_id identifier p.id, v numerical")
    tables = {"p": {"primary_key": "id", "columns": columns}, "c": {"columns": child}}
    build(source, tmp_path / "s", {"tables": tables})
    store = Store(tmp_path / "s")
    assert store.verify() == []
    entries = store.metadata["tables"]
    parents, children = ([store.row(row) for row in range(*e["row_range"])] for e in entries)
    return parents, children, entries[1]["foreign_keys"][0]


def test_integers_that_went_through_a_float_column_are_keys(tmp_path: Path) -> None:
    """pandas writes a key column with a missing value as 42.0: every key was dangling."""
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "p.csv").write_text("id,v\n1,5\n42,6\n")
    (folder / "c.csv").write_text("p_id,v\n42.0,1\n,2\n1.0,3\n")
    _, _, key = build_two(tmp_path, str(folder))
    assert (key["edges"], key["dangling"], key["nulls"]) == (2, 0, 1)
    (folder / "c.csv").write_text("p_id,v\n42.0,1\n1,2\n")  # of texts, but beside numbers
    _, _, key = build_two(tmp_path, str(folder))
    assert (key["edges"], key["dangling"]) == (2, 0)


def test_large_decimal_keys_are_exact(tmp_path: Path) -> None:
    """As doubles the two were one: a duplicate primary key."""
    import pyarrow

    kind = pyarrow.decimal128(38, 2)
    ids = [Decimal("12345678901234567890"), Decimal("12345678901234567891")]
    table = pyarrow.table({"id": pyarrow.array(ids, kind), "v": [1, 2]})
    source = {"p": table, "c": table.rename_columns(["p_id", "v"])}
    parents, _, key = build_two(tmp_path, source)
    assert key["edges"] == 2
    assert [row["key"]["id"] for row in parents] == [str(number) for number in ids]
    assert Store(tmp_path / "s").find("p", ids[1]) == 1


def test_integers_beside_reals_in_sqlite_keep_all_digits(tmp_path: Path) -> None:
    """As doubles 2^53 and 2^53 + 1 were one key."""
    source = run_script(
        tmp_path / "k.db",
        "CREATE TABLE p (id, v); INSERT INTO p VALUES (9007199254740993, 1), "
        "(9007199254740992, 2), (0.5, 3);"
        "CREATE TABLE c (p_id, v); INSERT INTO c VALUES (9007199254740993, 4);",
    )
    parents, children, key = build_two(tmp_path, source)
    assert key["edges"] == 1 and len(parents) == 3
    assert children[0]["cells"]["p_id"] == 9007199254740993
