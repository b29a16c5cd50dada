"""SQLite as a source: the type of a column is that of its values, in whatever order they come."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databases import run_script
from headwater.builder.build import build
from headwater.errors import SourceError
from headwater.inference.infer import draft_source, infer
from headwater.interrupts import is_interrupt
from headwater.metadata.selection import Selection
from headwater.sources import sqlite_file as source_sqlite
from headwater.sources.adbc import Reader
from headwater.sources.database import open_database
from headwater.sources.open import load_source
from headwater.sources.source import SourceData
from headwater.store.store import Store

WIDE = 2**53 + 1  # no double holds it
THIRD = "0.33333333333333332"  # all digits that a double needs

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
    "text and third": (["x", None, 1 / 3, 2, 4.5], "VARCHAR", ["x", None, THIRD, "2", "4.5"]),
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


@pytest.mark.parametrize("chunk", [1, 2, 3, 8_192])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_type_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int
) -> None:
    monkeypatch.setattr(source_sqlite, "BATCH_ROWS", chunk)
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


@pytest.mark.parametrize("chunk", [1, 8_192])
def test_rows_of_only_null_stay_before_one_that_has_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Those of a whole chunk were lost where no column had a value in it."""
    monkeypatch.setattr(source_sqlite, "BATCH_ROWS", chunk)
    path = write(tmp_path / "t.db", {"a": [None, None, 1.5], "b": [None, None, "x"]})
    data, _, rows = load(tmp_path, path)
    assert rows == [(None, None), (None, None), (1.5, "x")]
    assert data.tables[0].row_count == 3


# Bytes of a text, and what is read of it.
TEXTS = {
    b"\xc3\xa4": "ä",  # after it, DuckDB no longer looks by itself
    b"\xff\x41": "\ufffdA",
    b"\xc3\xa4\xff\\xFF": "ä\ufffd\\xFF",
    b"\xe2\x80(": "\ufffd(",  # a character that breaks off
    b"\xed\xa0\x80": "\ufffd" * 3,  # half of a pair of UTF-16
    b"\xc0\x80": "\ufffd" * 2,  # longer than need be
    b"\xef\xbf\xbd": "\ufffd",  # itself a replacement character
}


@pytest.mark.parametrize("chunk", [1, 8_192])
def test_texts_that_are_not_utf8_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(source_sqlite, "BATCH_ROWS", chunk)
    path = write(tmp_path / "t.db", {"v": list(TEXTS), "w": [1, 2.5, *TEXTS][: len(TEXTS)]})
    database = sqlite3.connect(path)
    database.execute("UPDATE t SET v = CAST(v AS TEXT)")
    database.execute("UPDATE t SET w = CAST(w AS TEXT) WHERE typeof(w) = 'blob' AND w <> x'ff41'")
    database.commit()
    database.close()
    data, _, rows = load(tmp_path, path)
    expected = list(TEXTS.values())
    assert rows == list(zip(expected, ["1", "2.5", "ä", "ff41", *expected[2:5]], strict=True))
    assert data.undecodable_count == 5 + 3


def test_texts_that_are_not_utf8_are_counted_in_all_tables(tmp_path: Path) -> None:
    tables = "".join(
        f"CREATE TABLE t{i}(v TEXT); INSERT INTO t{i} VALUES (CAST(x'ff41' AS TEXT));"
        for i in range(3)
    )
    connection = open_database(tmp_path)
    data = load_source(run_script(tmp_path / "t.db", tables), connection)
    assert data.undecodable_count == 3
    assert connection.execute("FROM raw.t2").fetchall() == [("\ufffdA",)]
    connection.close()


def test_an_empty_table_has_integers(tmp_path: Path) -> None:
    data, types, rows = load(tmp_path, write(tmp_path / "t.db", {"a": [], "b": []}))
    assert (types, rows, data.tables[0].row_count) == (["BIGINT", "BIGINT"], [], 0)


def test_a_batch_of_long_values_has_fewer_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 8,192 photos does not fit into memory."""
    asked = []
    stream = Reader.stream

    def spy(*arguments: Any) -> Any:
        asked.extend(options["adbc.sqlite.query.batch_rows"] for options in arguments[4:])
        return stream(*arguments)

    monkeypatch.setattr(Reader, "stream", spy)
    monkeypatch.setattr(source_sqlite, "BATCH_BYTES", 130)
    columns = {"a": [b"x" * 20, b"", b"y"], "b": ["z" * 5, None, "z"], "c": [1, 2, "w" * 10]}
    _, _, rows = load(tmp_path, write(tmp_path / "t.db", columns))
    assert rows == [("78" * 20, "z" * 5, "1"), ("", None, "2"), ("79", "z", "w" * 10)]
    assert asked[-1] == "4"  # 130 // (20 + 5 + 2 * 1): a mixed value may be a blob


def test_a_table_may_have_as_many_columns_as_sqlite_takes(tmp_path: Path) -> None:
    columns = {f"c{j}": [j, f"x{j}"] if j % 3 else [None, j / 2] for j in range(2000)}
    data, types, rows = load(tmp_path, write(tmp_path / "t.db", columns))
    assert data.tables[0].column_names() == list(columns)
    assert types == ["VARCHAR" if j % 3 else "DOUBLE" for j in range(2000)]
    assert [row[:4] for row in rows] == [(None, "1", "2", None), (0.0, "x1", "x2", 1.5)]


@pytest.mark.parametrize("name", ["a ?mode=rwc#b%41&c.db", "ä; '\"=.db", "sqlite:x.db"])
def test_a_file_of_any_name_is_read_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "files").mkdir()
    path = write(tmp_path / "files" / name, {"a": [1]})
    before = path.read_bytes()
    assert load(tmp_path, path)[2] == [(1,)]
    assert [file.name for file in (tmp_path / "files").iterdir()] == [name]
    assert path.read_bytes() == before


def elsewhere(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process: locks of this one do not hold against itself."""
    command = [sys.executable, "-c", "import sqlite3, sys\n" + program, *arguments]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )


def test_a_file_that_is_locked_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_sqlite, "LOCK_WAIT_MS", 50)
    path = write(tmp_path / "t.db", {"a": [1]})
    program = "c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN EXCLUSIVE'); print(flush=True)"
    with elsewhere(program + "; input()", str(path)) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(SourceError, match=r"t\.db': database is locked"):
            load(tmp_path, path)
        other.communicate("\n")
    assert load(tmp_path, path)[2] == [(1,)]


@pytest.mark.skipif(not source_sqlite.LOCKS.exists(), reason="needs /proc/locks")
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_lock_of_this_process_is_not_ended(tmp_path: Path, mode: str) -> None:
    """Another process could write in the middle of a transaction."""
    path = write(tmp_path / "t.db", {"a": [1]})
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(SourceError, match=r"this process holds a lock .* close that connection"):
        load(tmp_path, path)
    program = "c = sqlite3.connect(sys.argv[1], timeout=0.1); c.execute('INSERT INTO t VALUES (3)')"
    with elsewhere(program, str(path)) as other:
        assert other.wait() != 0
    database.commit()
    database.close()
    assert load(tmp_path, path)[2] == [(1,), (2,)]


def test_all_tables_are_of_one_moment(tmp_path: Path) -> None:
    source = run_script(
        tmp_path / "t.db", "PRAGMA journal_mode = WAL; CREATE TABLE a(x); CREATE TABLE b(x);"
    )
    told = []

    def tell(name: str) -> None:
        told.append(name)
        program = "c = sqlite3.connect(sys.argv[1]); c.execute('INSERT INTO b VALUES (1)')"
        elsewhere(program + "; c.commit()", str(tmp_path / "t.db")).communicate()

    connection = open_database(tmp_path)
    data = load_source(source, connection, tell=tell)
    assert told == ["a", "b"]
    assert [table.row_count for table in data.tables] == [0, 0]
    connection.close()
    database = sqlite3.connect(tmp_path / "t.db")
    assert database.execute("SELECT count(*) FROM b").fetchall() == [(2,)]
    database.close()


@pytest.mark.parametrize("step", ["measure", "copy"])
def test_an_interrupt_ends_the_reading_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Also where the driver is in the middle of a table, here of one without end."""
    source = run_script(
        tmp_path / "t.db",
        "CREATE VIEW endless AS WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) "
        "SELECT i, 'text ' || i AS t FROM r",
    )
    if step == "copy":
        readings = [source_sqlite._INTEGER, source_sqlite._TEXT]
        monkeypatch.setattr(source_sqlite._Table, "readings", lambda *_: (readings, 1))
    connection = open_database(tmp_path)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    start = time.monotonic()
    try:
        with pytest.raises((KeyboardInterrupt, RuntimeError)) as caught:
            load_source(source, connection, selection=Selection(tables=("endless",)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught.type is KeyboardInterrupt or is_interrupt(caught.value)
    assert 0.4 < time.monotonic() - start < 10
    connection.close()


def test_a_missing_driver_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    with pytest.raises(SourceError, match=r"pip install adbc-driver-sqlite$"):
        load(tmp_path, write(tmp_path / "t.db", {"a": [1]}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"no database " * 400, "the list of tables of.*file is not a database"),
        (lambda data: data[:8192], "the list of tables of.*database disk image is malformed"),
        (
            lambda data: data[:8192] + b"\xee" * 40960 + data[49152:],
            "table 't' of.*database disk image is malformed.*--exclude-table",
        ),
    ],
)
def test_a_damaged_file_says_what_cannot_be_read(
    tmp_path: Path, damage: Callable[[bytes], bytes], said: str
) -> None:
    path = write(tmp_path / "t.db", {"a": [f"text {i}" * 9 for i in range(3000)]})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=rf"cannot read {said}"):
        load(tmp_path, path)


def test_views_are_read_where_they_are_named_and_listed_otherwise(tmp_path: Path) -> None:
    """They were left out without a word, and --table did not find them."""
    source = run_script(
        tmp_path / "d.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, gone INTEGER REFERENCES nowhere);"
        "INSERT INTO t VALUES (1, 2); CREATE VIEW v AS SELECT id * 2 AS twice FROM t;",
    )
    draft = draft_source(source)
    assert [table.name for table in draft.tables] == ["t"]
    assert draft.checks == [
        "not read unless named with --table: view v",
        "foreign key t.gone leads to nowhere, which is not read",
    ]
    schema = infer(source, tables=["v"])
    assert [table.column_names() for table in schema.tables] == [["twice"]]


def test_what_an_index_of_full_texts_keeps_is_no_table(tmp_path: Path) -> None:
    """Its five inner tables were read, and the draft did not build for a key among them."""
    source = run_script(
        tmp_path / "d.db",
        "CREATE VIRTUAL TABLE notes USING fts5(title, body);"
        "INSERT INTO notes VALUES ('a title', 'a body');",
    )
    report = build(source, tmp_path / "s", cache=False)
    assert [table["name"] for table in report.metadata["tables"]] == ["notes"]


def test_a_declared_key_may_hold_an_empty_text_but_no_null(tmp_path: Path) -> None:
    """The draft took the empty text for NULL, so that it could not be built."""
    source = run_script(
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
    source = run_script(
        tmp_path / "d.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1);"
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_master VALUES"
        "('table', 'places', 'places', 0, 'CREATE VIRTUAL TABLE places USING nothere(x)');",
    )
    with pytest.raises(SourceError, match=r"cannot read table 'places'.*no such module: nothere"):
        infer(source)
    assert [table.name for table in infer(source, exclude_tables=["places"]).tables] == ["t"]
