"""SQLite as a source: the type of a column is that of its values, in whatever order they come."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from headwater import source_sqlite
from headwater._rows import pack_rows
from headwater.build import build
from headwater.database import open_database
from headwater.errors import SourceError
from headwater.infer import draft_source, infer
from headwater.sources import SourceData, load_source
from headwater.store import Store

WIDE = 2**53 + 1  # no double holds it

# The values of a column, and the type and values it has as a source.
COLUMNS: dict[str, tuple[list[Any], str, list[Any]]] = {
    "integers": ([1, -(2**63), 2**63 - 1, None, 5], "BIGINT", [1, -(2**63), 2**63 - 1, None, 5]),
    "reals": ([1.5, None, -0.0, float("inf"), 2.0], "DOUBLE", [1.5, None, -0.0, float("inf"), 2.0]),
    "nothing": ([None] * 5, "BIGINT", [None] * 5),
    "late integer": ([None, None, None, None, 7], "BIGINT", [None, None, None, None, 7]),
    "late real": ([None, None, None, None, 7.5], "DOUBLE", [None, None, None, None, 7.5]),
    "late text": ([None, None, None, None, "x"], "VARCHAR", [None, None, None, None, "x"]),
    "texts": (["", "ä\0b", "🙂", None, "1"], "VARCHAR", ["", "ä\0b", "🙂", None, "1"]),
    "blobs": ([b"\x00\xff", b"", None, b"a", b"b"], "VARCHAR", ["00ff", "", None, "61", "62"]),
    "soon real": ([1, 2.5, None, 3, 4], "DOUBLE", [1.0, 2.5, None, 3.0, 4.0]),
    "later real": ([1, 2, None, 3, 4.5], "DOUBLE", [1.0, 2.0, None, 3.0, 4.5]),
    "later integer": ([1.5, 2.5, None, 3.5, 4], "DOUBLE", [1.5, 2.5, None, 3.5, 4.0]),
    "wide, soon real": ([WIDE, 0.5, 1, 1, 1], "VARCHAR", [str(WIDE), "0.5", "1", "1", "1"]),
    "real, then wide": ([0.5, 1, 1, 1, WIDE], "VARCHAR", ["0.5", "1", "1", "1", str(WIDE)]),
    "integer, then text": ([1, 2, 3, 4, "x"], "VARCHAR", ["1", "2", "3", "4", "x"]),
    "text, then real": (["x", None, None, 1e300, 1], "VARCHAR", ["x", None, None, "1.0e+300", "1"]),
    "text and blob": (["x", b"\x01", "y", b"", None], "VARCHAR", ["x", "01", "y", "", None]),
    "blob, then integer": ([b"\x01", None, None, 3, 4], "VARCHAR", ["01", None, None, "3", "4"]),
}  # fmt: skip


def load(folder: Path, path: Path) -> tuple[SourceData, list[str], list[tuple[Any, ...]]]:
    """The source, the types of table 0 in DuckDB, and its rows."""
    (folder / "work").mkdir(exist_ok=True)
    connection = open_database(folder / "work")
    data = load_source(f"sqlite:///{path}", connection)
    types = [row[1] for row in connection.execute("DESCRIBE raw.t0").fetchall()]
    rows = connection.execute("SELECT * FROM raw.t0").fetchall()
    connection.close()
    return data, types, rows


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    database = sqlite3.connect(path)
    names = ", ".join(f'"{name}"' for name in columns)
    database.execute(f"CREATE TABLE t ({names})")
    marks = ", ".join("?" * len(columns))
    rows = zip(*columns.values(), strict=True)
    database.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize("chunk", [1, 2, 3, 245_760])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_type_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int
) -> None:
    monkeypatch.setattr(source_sqlite, "CHUNK_ROWS", chunk)
    values, kind, expected = COLUMNS[name]
    path = write(tmp_path / "t.db", {"n": [1, 2, 3, 4, 5], "v": values})
    data, types, rows = load(tmp_path, path)
    assert types == ["BIGINT", kind] == [column.type for column in data.tables[0].columns]
    assert data.tables[0].row_count == 5
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5]
    assert repr([row[1] for row in rows]) == repr(expected)  # also tells -0.0 from 0.0


def test_all_columns_of_a_table_together(tmp_path: Path) -> None:
    path = write(tmp_path / "t.db", {name: values for name, (values, _, _) in COLUMNS.items()})
    _, types, rows = load(tmp_path, path)
    assert types == [kind for _, kind, _ in COLUMNS.values()]
    assert repr([list(column) for column in zip(*rows, strict=True)]) == repr(
        [expected for _, _, expected in COLUMNS.values()]
    )


@pytest.mark.parametrize("chunk", [1, 245_760])
def test_texts_that_are_not_utf8_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(source_sqlite, "CHUNK_ROWS", chunk)
    path = write(tmp_path / "t.db", {"v": ["a", "b", "c"], "w": [1, 2, "x"]})
    database = sqlite3.connect(path)
    database.execute("UPDATE t SET v = CAST(x'ff41' AS TEXT) WHERE v = 'b'")
    database.commit()
    database.close()
    data, _, rows = load(tmp_path, path)
    assert rows == [("a", "1"), ("\ufffdA", "2"), ("c", "x")]
    assert data.undecodable_count == 1


def test_an_empty_table_has_integers(tmp_path: Path) -> None:
    data, types, rows = load(tmp_path, write(tmp_path / "t.db", {"a": [], "b": []}))
    assert (types, rows, data.tables[0].row_count) == (["BIGINT", "BIGINT"], [], 0)


def test_rows_are_packed_up_to_the_limit() -> None:
    rows = iter([(1, "a"), (2, None), (3, "c")])
    assert pack_rows(rows, "??", 2)[1:] == (2, b"lu")
    assert pack_rows(rows, "lu", 2)[1:] == (1, b"lu")
    assert pack_rows(rows, "lu", 2)[1:] == (0, b"lu")


def test_long_texts_end_a_chunk() -> None:
    rows = iter([("x" * (1 << 25),)] * 3)
    assert [pack_rows(rows, "u", 100)[1] for _ in range(3)] == [2, 1, 0]


@pytest.mark.parametrize(
    ("rows", "kinds", "error"),
    [
        ([(1,)], "?!", ValueError),
        ([(1,)], "??", TypeError),
        ([[1]], "?", TypeError),
        ([(2**63,)], "?", OverflowError),
        (3, "?", TypeError),
    ],
)
def test_what_are_no_rows_is_refused(rows: Any, kinds: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        pack_rows(rows, kinds, 10)


def test_a_value_of_another_kind_marks_its_column() -> None:
    assert pack_rows([(1, object())], "??", 10)[2] == b"l!"
    assert pack_rows([(1.5, 1)], "lu", 10)[2] == b"!!"


def script(path: Path, text: str) -> str:
    database = sqlite3.connect(path)
    database.executescript(text)
    database.commit()
    database.close()
    return f"sqlite:///{path}"


def test_views_are_read_where_they_are_named_and_listed_otherwise(tmp_path: Path) -> None:
    """They were left out without a word, and --table did not find them."""
    source = script(
        tmp_path / "d.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, gone INTEGER REFERENCES nowhere);"
        "INSERT INTO t VALUES (1, 2); CREATE VIEW v AS SELECT id * 2 AS twice FROM t;",
    )
    draft = draft_source(source)
    assert [table.name for table in draft.tables] == ["t"]
    assert draft.checks == [
        "not read unless named by --table: view v",
        "foreign key t.gone leads to nowhere, which is not read",
    ]
    schema = infer(source, tables=["v"])
    assert [table.column_names() for table in schema.tables] == [["twice"]]


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="needs SQLite 3.37")
def test_what_an_index_of_full_texts_keeps_is_no_table(tmp_path: Path) -> None:
    """Its five inner tables were read, and the draft did not build for a key among them."""
    source = script(
        tmp_path / "d.db",
        "CREATE VIRTUAL TABLE notes USING fts5(title, body);"
        "INSERT INTO notes VALUES ('a title', 'a body');",
    )
    report = build(source, tmp_path / "s", cache=False)
    assert [table["name"] for table in report.metadata["tables"]] == ["notes"]


def test_a_declared_key_may_hold_an_empty_text_but_no_null(tmp_path: Path) -> None:
    """The draft took the empty text for NULL, so that it could not be built."""
    source = script(
        tmp_path / "d.db",
        "CREATE TABLE labels (word TEXT, lang TEXT, PRIMARY KEY (word, lang));"
        "INSERT INTO labels VALUES ('a', ''), ('a', 'en'), ('b', '');"
        "CREATE TABLE loose (code TEXT PRIMARY KEY, x INTEGER);"
        "INSERT INTO loose VALUES ('a', 1), (NULL, 2), ('c', 3);",
    )
    schema = infer(source)
    assert schema.table("labels").primary_key == ("word", "lang")
    assert schema.table("loose").primary_key == ()
    build(source, tmp_path / "s", cache=False)
    with Store(tmp_path / "s") as store:
        assert store.verify() == []
        assert store.row(store.find("labels", ("a", "")))["cells"]["lang"] == ""


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    source = script(
        tmp_path / "d.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1);"
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_master VALUES"
        "('table', 'places', 'places', 0, 'CREATE VIRTUAL TABLE places USING nothere(x)');",
    )
    with pytest.raises(SourceError, match=r"cannot read table 'places'.*no such module: nothere"):
        infer(source)
    assert [table.name for table in infer(source, exclude_tables=["places"]).tables] == ["t"]
