"""Tables of numbers that C puts in order: the same stores as from DuckDB's order, byte for byte."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from headwater import Store, build
from headwater._core import OrderedRows, order_rows
from headwater.ordered import OrderedTables, RowOrder
from test_resume import Interrupted, clean, start

IDENTIFIER, NUMBER, TIME = ({"stype": s} for s in ("identifier", "numerical", "timestamp"))
IGNORED, FLAG = {"stype": "ignored"}, {"stype": "boolean"}


# ---- databases ---------------------------------------------------------------------------------


def world(seed: int, row_count: int = 150) -> dict[str, tuple[dict[str, str], list[Any]]]:
    """Tables of numbers as (types, rows): keys that are not dense, NULLs and dangling keys, ties of
    times, NULL times, days, and one table with a text, which DuckDB orders."""
    rng = random.Random(seed)
    step = rng.choice([1, 3, 10**6, 2**40])
    place_ids = [(i - 20) * step for i in range(row_count // 3)]

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    def moment() -> str:
        return (
            f"{rng.randint(1969, 2021)}-0{rng.randint(1, 3)}-01 0{rng.randint(0, 9)}:00:00.000123"
        )

    def place() -> int | None:
        return maybe(rng.choice([*place_ids, 7, -(2**62)]))

    places = [
        (i, place(), maybe(rng.randint(-99, 99)), maybe(rng.choice([1.5, -0.0, 1e300, "'nan'"])),
         maybe(rng.random() < 0.5), 2**62 + i)
        for i in place_ids
    ]  # fmt: skip
    visits = [
        (place() or 0, number, maybe(moment()), place(), maybe(rng.randint(-(2**53), 2**60)),
         maybe(moment()), maybe(moment()[:10]))
        for number in range(row_count)
    ]  # fmt: skip
    shifts = [
        (number * 11 % 997, rng.choice([visit[0] for visit in visits]), rng.randrange(row_count),
         maybe(moment()[:10]), maybe(number * 11 % 997 - 22))
        for number in range(row_count)
    ]  # fmt: skip
    ticks = [(f"2020-01-01 00:{i // 60:02}:{i % 60:02}", maybe(float(i))) for i in range(99)]
    notes = [(i, maybe(f"note {i}"), place()) for i in range(20)]
    database: dict[str, tuple[dict[str, str], list[Any]]] = {
        "places": (
            {"id": "BIGINT", "near": "BIGINT", "size": "SMALLINT", "score": "DOUBLE",
             "open": "BOOLEAN", "code": "BIGINT"},
            places,
        ),
        "visits": (
            {"place": "BIGINT", "number": "INTEGER", "came": "TIMESTAMP", "next": "BIGINT",
             "amount": "BIGINT", "told": "TIMESTAMP", "due": "DATE"},
            visits,
        ),
        "shifts": (
            {"id": "INTEGER", "place": "BIGINT", "number": "BIGINT", "day": "DATE",
             "before": "INTEGER"},
            shifts,
        ),
        "ticks": ({"came": "TIMESTAMP", "level": "DOUBLE"}, ticks),
        "notes": ({"id": "BIGINT", "text": "VARCHAR", "place": "BIGINT"}, notes),
        "nothing": ({"id": "BIGINT", "x": "INTEGER"}, []),
    }  # fmt: skip
    for _, rows in database.values():
        rng.shuffle(rows)
    return database


def world_metadata(seed: int) -> dict[str, Any]:
    null_time = ("visible", "hidden")[seed % 2]
    place = IDENTIFIER | {"foreign_key": "places.id"}
    tables = {
        "places": {
            "primary_key": "id",
            "columns": {"id": IDENTIFIER, "near": place, "size": NUMBER, "score": NUMBER,
                        "open": FLAG, "code": IGNORED if seed % 3 else IDENTIFIER},
        },
        "visits": {
            "primary_key": ["place", "number"],
            "temporal_column": "came",
            "null_time": null_time,
            "columns": {"place": place, "number": IDENTIFIER, "came": TIME, "next": place,
                        "amount": NUMBER | {"known_at": "told"}, "told": TIME, "due": TIME},
        },
        "shifts": {
            "primary_key": "id",
            "temporal_column": "day",
            "null_time": null_time,
            "columns": {"id": IDENTIFIER, "place": IDENTIFIER, "number": IDENTIFIER, "day": TIME,
                        "before": IDENTIFIER | {"foreign_key": "shifts.id"}},
            "foreign_keys": [{"columns": ["place", "number"],
                              "references": {"table": "visits", "columns": ["place", "number"]}}],
        },
        "ticks": {
            "primary_key": "came",
            "temporal_column": "came" if seed % 3 else None,
            "time_resolution": "day" if seed % 3 == 1 else None,
            "columns": {"came": TIME, "level": NUMBER},
        },
        "notes": {
            "primary_key": "id",
            "columns": {"id": IDENTIFIER, "text": {"stype": "text"}, "place": place},
        },
        "nothing": {"primary_key": "id", "columns": {"id": IDENTIFIER, "x": NUMBER}},
    }  # fmt: skip
    for table in tables.values():
        for name in [name for name, value in table.items() if value is None]:
            del table[name]
    observed = {"observation_time_column": "seen"}
    tasks = {
        "busy": {
            "query": "SELECT place AS id, TIMESTAMP '2020-02-02' AS seen, sum(amount) > 0 AS busy "
            'FROM "Visits" WHERE place IN (SELECT DISTINCT next FROM visits) GROUP BY place',
            "anchor_table": "places", "target_column": "busy", "target_stype": "boolean",
            **observed,
        },
        "amount": {
            "query": "SELECT place, number, amount FROM visits WHERE came IS NOT NULL",
            "anchor_table": "visits", "target_column": "amount", "target_stype": "numerical",
        },
        "good": {  # its anchors are no table of DuckDB
            "query": "SELECT range AS id, TIMESTAMP '2030-02-02' AS seen, range % 2 = 0 AS good "
            "FROM range(-20, 400)",
            "anchor_table": "shifts", "target_column": "good", "target_stype": "boolean",
            **observed,
        },
    }  # fmt: skip
    return {"name": "world", "timezone": "UTC", "tables": tables, "tasks": tasks}


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) and "'" not in value else str(value)


def write_world(path: Path, seed: int) -> str:
    with duckdb.connect(str(path)) as connection:
        for name, (types, rows) in world(seed).items():
            columns = ", ".join(f"{column} {kind}" for column, kind in types.items())
            connection.execute(f"CREATE TABLE {name} ({columns})")
            values = [f"({', '.join(map(literal, row))})" for row in rows]
            if values:
                connection.execute(f"INSERT INTO {name} VALUES {', '.join(values)}")
    return f"duckdb:///{path}"


def written(path: Path, *statements: str) -> str:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return f"duckdb:///{path}"


def numbers(name: str, row_count: int, columns: str = "hash(range) % 97 AS x") -> str:
    """SQL of a table whose keys come in no order."""
    rows = f"SELECT range * 7919 % 400009 AS id, {columns} FROM range({row_count})"
    return f"CREATE TABLE {name} AS {rows}"


def task(query: str, anchor: str) -> dict[str, Any]:
    return {
        "query": query,
        "anchor_table": anchor,
        "target_column": "y",
        "target_stype": "boolean",
        "observation_time_column": "seen",
    }


# ---- builds ------------------------------------------------------------------------------------


class Watch:
    """What the builds of a test ordered in C; `room` as if the machine had as much memory."""

    room: int | None = None
    last: OrderedTables

    def __call__(self, folder: Path, room: int | None = None) -> OrderedTables:
        self.last = OrderedTables(folder, room if self.room is None else self.room)
        return self.last


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(sys.modules["headwater.build"], "OrderedTables", watch)
    return watch


def files(store: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(store)): file.read_bytes()
        for file in sorted(store.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


def assert_same(
    watch: Watch, source: str, folder: Path, metadata: dict[str, Any], ordered: int, **options: Any
) -> Path:
    """Build with C's order, which `ordered` tables get, and with DuckDB's."""
    watch.room = None
    build(source, folder / "c", metadata, cache=False, **options)
    assert len(watch.last.files) == ordered
    watch.room = -1  # not even for a table without rows
    build(source, folder / "duckdb", metadata, cache=False, **options)
    assert not watch.last.files
    found, expected = files(folder / "c"), files(folder / "duckdb")
    assert [name for name in expected | found if found.get(name) != expected.get(name)] == []
    return folder / "c"


@pytest.mark.parametrize("seed", range(4))
def test_both_orders_give_the_same_bytes(tmp_path: Path, watch: Watch, seed: int) -> None:
    source, metadata = write_world(tmp_path / "w.duckdb", seed), world_metadata(seed)
    store = assert_same(watch, source, tmp_path, metadata, 5)  # all but the one with texts
    with Store(store) as opened:
        assert opened.verify() == []
        edges = [
            key["edges"] for table in opened.metadata["tables"] for key in table["foreign_keys"]
        ]
        assert len(edges) == 6 and min(edges) > 0
        assert [len(opened.task_seeds(name)["target"]) > 9 for name in metadata["tasks"]] == [
            True
        ] * 3


def test_keys_that_are_far_apart_are_joined_by_duckdb(tmp_path: Path, watch: Watch) -> None:
    source = written(
        tmp_path / "d.duckdb",
        "CREATE TABLE a AS SELECT (range * 7 % 100 - 50) * 144115188075855872 AS id "
        "FROM range(100)",
        "CREATE TABLE b AS SELECT range AS id, (range % 120 - 60) * 72057594037927936 AS a "
        "FROM range(300)",
    )
    key = IDENTIFIER | {"foreign_key": "a.id"}
    tables = {
        "a": {"primary_key": "id", "columns": {"id": IDENTIFIER}},
        "b": {"primary_key": "id", "columns": {"id": IDENTIFIER, "a": key}},
    }
    store = assert_same(watch, source, tmp_path, {"tables": tables}, 2)
    assert Store(store).metadata["tables"][1]["foreign_keys"][0]["edges"] == 150


def test_a_reference_to_another_column_is_matched(tmp_path: Path, watch: Watch) -> None:
    """Of which some values are NULL: no row is their parent."""
    source = written(
        tmp_path / "d.duckdb",
        "CREATE TABLE a AS SELECT range AS id, nullif(range * 3 % 101, 5) AS code FROM range(101)",
        "CREATE TABLE b AS SELECT range AS id, nullif(range % 110, 7) AS a FROM range(300)",
    )
    key = {"columns": ["a"], "references": {"table": "a", "columns": ["code"]}}
    columns = {"id": IDENTIFIER, "a": IDENTIFIER}
    tables = {
        "a": {"primary_key": "id", "columns": {"id": IDENTIFIER, "code": IDENTIFIER}},
        "b": {"primary_key": "id", "columns": columns, "foreign_keys": [key]},
    }
    store = assert_same(watch, source, tmp_path, {"tables": tables}, 2)
    counts = Store(store).metadata["tables"][1]["foreign_keys"][0]
    expected = [range_ % 110 for range_ in range(300) if range_ % 110 not in (5, 7)]
    assert counts["edges"] == sum(value < 101 for value in expected)


def test_many_rows_of_keys_that_are_printed_stay_in_order(tmp_path: Path, watch: Watch) -> None:
    """Timestamp keys go through DuckDB once more, in several threads; more rows than a piece."""
    stamp = "TIMESTAMP '2020-01-01' + to_seconds(range * 7919 % 400009)"
    rows = f"CREATE TABLE t AS SELECT {stamp} AS id, hash(range) % 97 AS x FROM range(200000)"
    source = written(tmp_path / "d.duckdb", rows)
    metadata = {"tables": {"t": {"primary_key": "id", "columns": {"id": TIME, "x": NUMBER}}}}
    assert_same(watch, source, tmp_path, metadata, 1)


# ---- queries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "relation", ['"T""x"', "'t\"x.parquet'", "query('FROM \"t\"' || '\"x\"')", "range(9) _(id)"]
)
def test_what_queries_read_is_a_table_of_duckdb(
    tmp_path: Path, watch: Watch, relation: str
) -> None:
    """However they name it; what they do not is only a view, which their connection cannot read."""
    source = written(tmp_path / "d.duckdb", numbers('"t""x"', 150_000), numbers("other", 100))
    columns = {"id": IDENTIFIER, "x": NUMBER}
    tables = {name: {"primary_key": "id", "columns": columns} for name in ('t"x', "other")}
    query = f"SELECT id, TIMESTAMP '2020-01-01' AS seen, id % 2 = 0 AS y FROM {relation} LIMIT 50"
    metadata = {"tables": tables, "tasks": {"k": task(query, 't"x')}}
    store = assert_same(watch, source, tmp_path, metadata, 2)
    assert len(Store(store).task_seeds("k")["target"]) in (4, 50)  # of 9, 4 are keys


def test_tables_may_be_called_as_the_views_of_files_are(tmp_path: Path, watch: Watch) -> None:
    names = ["ordered_t1", "ordered_t0", "t0", "number"]
    source = written(tmp_path / "d.duckdb", *(numbers(n, 90 + i) for i, n in enumerate(names)))
    columns = {"id": IDENTIFIER, "x": NUMBER}
    tables = {name: {"primary_key": "id", "columns": columns} for name in names}
    query = "SELECT id, TIMESTAMP '2020-01-01' AS seen, x > 9 AS y FROM ordered_t0"
    metadata = {"tables": tables, "tasks": {"k": task(query, "ordered_t1")}}
    assert_same(watch, source, tmp_path, metadata, 4)


def test_infinite_times_of_ignored_columns_reach_the_queries(tmp_path: Path, watch: Watch) -> None:
    """Were NULL: no row was valid for ever."""
    until = "CASE WHEN range % 3 = 0 THEN TIMESTAMP 'infinity' END AS until"
    source = written(tmp_path / "d.duckdb", numbers("t", 90, until))
    columns = {"id": IDENTIFIER, "until": IGNORED}
    query = "SELECT id, TIMESTAMP '2020-01-01' AS seen, until > seen AS y FROM t WHERE until > seen"
    tables = {"t": {"primary_key": "id", "columns": columns}}
    metadata = {"tables": tables, "tasks": {"k": task(query, "t")}}
    store = assert_same(watch, source, tmp_path, metadata, 0)
    assert len(Store(store).task_seeds("k")["target"]) == 30


# ---- builds that are killed --------------------------------------------------------------------


def test_a_build_killed_after_a_table_is_in_order_goes_on(tmp_path: Path) -> None:
    source, metadata = write_world(tmp_path / "w.duckdb", 1), world_metadata(1)
    told: list[str] = []
    build(source, tmp_path / "whole", metadata, progress=lambda stage, _: told.append(stage))
    expected = files(tmp_path / "whole")
    converts = [number for number, stage in enumerate(told) if stage == "convert"]
    encodes = [number for number, stage in enumerate(told) if stage == "encode"]
    assert len(converts) == 6
    for number in (converts[1], converts[4], encodes[4]):
        out = tmp_path / f"killed{number}"
        assert start(source, out, metadata, str(number)).wait() == -signal.SIGKILL
        report = build(source, out, metadata, cache=False)
        done = [f"table {table}" for table, begun in enumerate(converts) if begun < number]
        assert [name for name in report.resumed if name.startswith("table")] == done
        assert files(out) == expected and clean(out, report.fingerprint)


class Listed(Interrupted):
    """Tells what it was asked."""

    statements: list[str]

    def execute(self, query: str, *parameters: Any) -> Any:
        before = Interrupted.changes
        result = super().execute(query, *parameters)
        if Interrupted.changes > before:
            Listed.statements.append(query)
        return result


def test_a_build_goes_on_from_between_any_two_statements_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from between those that make a table of a view: the view was in the way."""
    module = sys.modules["headwater.build"]
    open_database = module.open_database  # type: ignore[attr-defined]
    monkeypatch.setattr(
        module, "open_database", lambda *args, **named: Listed(open_database(*args, **named))
    )
    monkeypatch.setattr(Listed, "statements", [], raising=False)
    source = written(tmp_path / "d.duckdb", numbers("t", 50))
    query = "SELECT id, TIMESTAMP '2020-01-01' AS seen, x > 50 AS y FROM t"
    metadata = {
        "tables": {"t": {"primary_key": "id", "columns": {"id": IDENTIFIER, "x": NUMBER}}},
        "tasks": {"k": task(query, "t")},
    }
    monkeypatch.setattr(Interrupted, "changes", 0)
    expected = build(source, tmp_path / "whole", metadata, cache=False).fingerprint
    stops = [
        number
        for number, statement in enumerate(Listed.statements)
        if "rows.t0" in statement or "rows.ordered0" in statement
    ]
    assert len(stops) > 4
    for last in stops:
        out = tmp_path / f"stopped{last}"
        monkeypatch.setattr(Interrupted, "changes", 0)
        monkeypatch.setattr(Interrupted, "last", last)
        with pytest.raises(KeyboardInterrupt):
            build(source, out, metadata, cache=False)
        monkeypatch.setattr(Interrupted, "last", None)
        assert build(source, out, metadata, cache=False).fingerprint == expected, last
        assert clean(out, expected)


# ---- memory, and what is not installed ---------------------------------------------------------


def test_a_table_larger_than_the_limit_is_left_to_duckdb(tmp_path: Path, watch: Watch) -> None:
    source = written(tmp_path / "d.duckdb", numbers("t", 400_000), numbers("small", 1000))
    columns = {"id": IDENTIFIER, "x": NUMBER}
    tables = {name: {"primary_key": "id", "columns": columns} for name in ("t", "small")}
    order = RowOrder((("c0", "BIGINT"), ("c1", "DOUBLE")), ((0, False),))
    watch.room = order.bytes(400_000)
    build(source, tmp_path / "exact", {"tables": tables}, cache=False)
    assert list(watch.last.files) == [0, 1]
    watch.room -= 1
    build(source, tmp_path / "less", {"tables": tables}, cache=False)
    assert list(watch.last.files) == [1]
    watch.room = None
    build(source, tmp_path / "given", {"tables": tables}, memory_limit="300MB", cache=False)
    assert watch.last.room == 300_000_000 and list(watch.last.files) == [0, 1]
    assert files(tmp_path / "exact") == files(tmp_path / "less") == files(tmp_path / "given")


WITHOUT_PYARROW = """
import json, sys
if sys.argv[4] == "blocked":
    sys.modules["pyarrow"] = None
from headwater import build
build(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), cache=False)
assert ("pyarrow.lib" in sys.modules) <= (sys.argv[4] != "blocked")
"""


def test_pyarrow_makes_no_difference(tmp_path: Path) -> None:
    source, metadata = write_world(tmp_path / "w.duckdb", 2), world_metadata(2)
    for kind in ("there", "blocked"):
        arguments = [source, str(tmp_path / kind), json.dumps(metadata), kind]
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_PYARROW, *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert files(tmp_path / "there") == files(tmp_path / "blocked")


# ---- the calls themselves ----------------------------------------------------------------------


def test_rows_are_ordered_and_read_through_python(tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table({"k": [2, None, 1, 2], "v": [1.5, 2.5, None, 3.5]})
    path = tmp_path / "rows"
    assert order_rows(path, table, 2, [0], b"\0") == 4
    rows = OrderedRows(path)
    path.unlink()
    found = pa.table(rows)
    assert found.to_pydict() == {
        "c0": [1, 2, 2, None],
        "c1": [None, 1.5, 3.5, 2.5],
        "c2": [0, 1, 2, 3],
    }
    streamed = pa.RecordBatchReader._import_from_c_capsule(rows.stream([2, 0]))
    del rows
    assert streamed.read_all().to_pydict() == {"c0": [0, 1, 2, 3], "c1": [1, 2, 2, None]}
    assert order_rows(path, table, 2, [0], b"\1") == 4
    assert pa.table(OrderedRows(path))["c0"].to_pylist() == [None, 1, 2, 2]


def test_what_cannot_be_ordered_or_read_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    table, path = pa.table({"k": [2, 1], "v": [1.5, 2.5]}), tmp_path / "rows"
    with pytest.raises(ValueError, match="ordered by column 1, expected one of 2 columns"):
        order_rows(path, table, 2, [1], b"\0")
    with pytest.raises(ValueError, match="one byte of nulls_first per column"):
        order_rows(path, table, 2, [0], b"")
    with pytest.raises(TypeError, match="expected an Arrow C stream"):
        order_rows(path, [1, 2], 2, [0], b"\0")
    with pytest.raises(OSError, match="cannot open"):
        OrderedRows(path)
    assert not list(tmp_path.iterdir())
    path.write_bytes(b"x" * 100)
    with pytest.raises(OSError, match="is not as it was written"):
        OrderedRows(path)
    order_rows(path, table, 2, [0], b"\0")
    with pytest.raises(ValueError, match="column 3 of rows in order, which have 3"):
        OrderedRows(path).stream([3])


def test_an_error_of_the_producer_comes_through(tmp_path: Path) -> None:
    import pyarrow as pa

    def batches() -> Any:
        yield pa.record_batch({"k": pa.array([1, 2])})
        raise RuntimeError("the wire was cut")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64())]), batches())
    with pytest.raises(Exception, match="the wire was cut"):
        order_rows(tmp_path / "rows", reader, 1, [0], b"\0")
    assert not list(tmp_path.iterdir())
