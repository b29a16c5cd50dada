"""Tiny databases in code, written as any kind of source, and the shared data where it is there."""

from __future__ import annotations

import csv
import random
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source
from postgres_server import PostgresServer

SHARED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

DAY = datetime(2020, 1, 1)


@dataclass(frozen=True)
class TinyTable:
    """A table as Python values; types are those of SQL."""

    types: dict[str, str]
    rows: list[tuple[Any, ...]]
    constraints: str = ""  # of the SQLite table


def sql_types(text: str) -> dict[str, str]:
    """Columns of a TinyTable: "id INTEGER, name TEXT"."""
    return dict(part.split() for part in text.split(", "))


TinyDatabase = Mapping[str, TinyTable]


def shared_data(name: str) -> Path:
    """A real database of ../shared/data; skips the test where it is absent."""
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"'{path}' is not here")
    return path


def write_sqlite(path: Path, database: TinyDatabase) -> str:
    """Write an SQLite file; its source string."""
    connection = sqlite3.connect(path)
    for name, table in database.items():
        columns = [f'"{column}" {kind}' for column, kind in table.types.items()]
        if table.constraints:
            columns.append(table.constraints)
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(table.types))
        rows = [tuple(_sqlite_value(value) for value in row) for row in table.rows]
        connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def run_script(path: Path, text: str) -> str:
    """Run a script in an SQLite file; its source string."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)
    return f"sqlite:///{path}"


def write_csv(folder: Path, database: TinyDatabase) -> str:
    """Write a folder of CSV files: NULL is an empty field, an empty text is quoted."""
    folder.mkdir()
    for name, table in database.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(table.types)
            for row in table.rows:
                file.write(",".join(_csv_field(value) for value in row) + "\n")
    return str(folder)


def write_parquet(folder: Path, database: TinyDatabase) -> str:
    """Write a folder of Parquet files with real types."""
    import pyarrow.parquet

    folder.mkdir()
    for name, table in arrow_tables(database).items():
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
    return str(folder)


def write_duckdb(path: Path, database: TinyDatabase) -> str:
    """Write a DuckDB file with real types; its source string."""
    import duckdb

    with duckdb.connect(path) as connection:
        for name, table in arrow_tables(database).items():
            connection.register("table_of_arrow", table)
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM table_of_arrow')
            connection.unregister("table_of_arrow")
    return f"duckdb:///{path}"


def write_postgres(server: PostgresServer, database: TinyDatabase) -> str:
    """Write a database of a PostgreSQL server with real types; its source string."""
    kinds = {"INTEGER": "bigint", "DOUBLE": "double precision"}
    script = []
    for name, table in database.items():
        columns = [f'"{column}" {kinds.get(kind, kind)}' for column, kind in table.types.items()]
        script.append(f'CREATE TABLE "{name}" ({", ".join(columns)});')
        script.append(f'COPY "{name}" FROM STDIN (FORMAT csv);')
        script += [",".join(_csv_field(value) for value in row) for row in table.rows]
        script.append("\\.")
    return server.address(server.database("\n".join(script) + "\n"))


def arrow_tables(database: TinyDatabase) -> dict[str, Any]:
    import pyarrow

    kinds = {
        "INTEGER": pyarrow.int64(),
        "DOUBLE": pyarrow.float64(),
        "TEXT": pyarrow.string(),
        "TIMESTAMP": pyarrow.timestamp("us"),
        "DATE": pyarrow.date32(),
        "BOOLEAN": pyarrow.bool_(),
        "DECIMAL(12, 2)": pyarrow.decimal128(12, 2),
        "TIMESTAMPTZ": pyarrow.timestamp("us", tz="UTC"),
    }
    tables = {}
    for name, table in database.items():
        values = zip(*table.rows, strict=True) if table.rows else [()] * len(table.types)
        arrays = [
            pyarrow.array(list(column), kinds[kind])
            for column, kind in zip(values, table.types.values(), strict=True)
        ]
        tables[name] = pyarrow.table(arrays, names=list(table.types))
    return tables


def polars_tables(database: TinyDatabase) -> dict[str, Any]:
    import polars

    return {name: polars.from_arrow(table) for name, table in arrow_tables(database).items()}


def pandas_tables(database: TinyDatabase) -> dict[str, Any]:
    return {name: table.to_pandas() for name, table in arrow_tables(database).items()}


def _sqlite_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else value


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    text = str(value) if isinstance(value, Decimal) else str(_sqlite_value(value))
    if text == "" or any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


# ---- databases -------------------------------------------------------------------------------


def generated(seed: int, row_count: int) -> TinyDatabase:
    """Hubs, visits and a log: composite, text and dangling keys, NULL everywhere it may be, times
    from year 1 to 9999, whole and fractional numbers, booleans, texts that want quoting."""
    rng = random.Random(seed)
    words = [
        "",
        "a,b",
        'say "ä"',
        "two\nlines",
        "NULL",
        r"\N",
        "2020-01-01",
        "7",
        "x" * 300,
        "日本",
    ]

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    def moment() -> datetime:
        day = date.fromordinal(rng.choice([1, 3_652_059, rng.randint(700_000, 740_000)]))
        clock = timedelta(microseconds=rng.choice([0, 1, 86_399_999_999, rng.randint(0, 10**10)]))
        return datetime(day.year, day.month, day.day) + clock

    hubs = [
        (
            f"hub {i}" if i % 3 else f"ü{i}",
            i - 5,
            maybe(rng.choice(words)),
            maybe(rng.random() < 0.5),
        )
        for i in range(max(3, row_count // 20))
    ]
    visits = [
        (
            i * 3 + 10**15,
            *(rng.choice(hubs)[:2] if rng.random() < 0.9 else (maybe("nowhere"), 1)),
            maybe(rng.choice([0.1, 1e-300, 1e300, 2.5, 3.0, rng.gauss(0, 1)])),
            maybe(rng.randint(-(10**6), 10**6)),
            moment(),
            maybe(moment().date()),
            maybe(rng.choice(["red", "green", "10", "9", "Ä"])),
            maybe(10**15 + 3 * rng.randrange(2 * row_count)),
            maybe(Decimal(rng.randint(-(10**11), 10**11)).scaleb(-2)),
            maybe(moment().replace(tzinfo=UTC)),
        )
        for i in range(row_count)
    ]
    rng.shuffle(visits)
    log = [(maybe(rng.choice(words)), maybe(moment())) for _ in range(row_count // 2)]
    return {
        "hubs": TinyTable(
            {"name": "TEXT", "number": "INTEGER", "about": "TEXT", "open": "BOOLEAN"}, hubs
        ),
        "visits": TinyTable(
            {"id": "INTEGER", "hub": "TEXT", "hub_number": "INTEGER", "price": "DOUBLE",
             "count": "INTEGER", "at": "TIMESTAMP", "due": "DATE", "color": "TEXT",
             "previous": "INTEGER", "fee": "DECIMAL(12, 2)", "seen": "TIMESTAMPTZ"},
            visits,
        ),
        "log": TinyTable({"line": "TEXT", "at": "TIMESTAMP"}, log),
        "nothing": TinyTable({"id": "INTEGER", "note": "TEXT"}, []),
    }  # fmt: skip


def typed(text: str) -> dict[str, Any]:
    """Columns of a metadata.json: "id identifier, shop_id identifier shops.id, price numerical"."""
    found: dict[str, Any] = {}
    for words in (part.split() for part in text.split(",")):
        found[words[0]] = {"stype": words[1]}
        if len(words) > 2:
            found[words[0]]["foreign_key"] = words[2]
    return found


def asked(query: str, anchor: str, target: str, time: str | None = None, **more: Any) -> Any:
    """A task of a metadata.json; `target` is its column and type: "sold numerical"."""
    column, stype = target.split()
    found = {"query": query, "anchor_table": anchor, "target_column": column, "target_stype": stype}
    return {**found, **({"observation_time_column": time} if time else {}), **more}


def generated_metadata() -> dict[str, Any]:
    """For generated(): every semantic type, and a task by a query."""
    columns = {
        "hubs": "name identifier, number identifier, about text, open boolean",
        "visits": "id identifier, hub identifier, hub_number identifier, price numerical, "
        "count numerical, at timestamp, due timestamp, color categorical, "
        "previous identifier visits.id, fee numerical, seen timestamp",
        "log": "line text, at timestamp",
        "nothing": "id identifier, note text",
    }
    tables: dict[str, Any] = {name: {"columns": typed(text)} for name, text in columns.items()}
    tables["hubs"]["primary_key"] = ["name", "number"]
    tables["nothing"]["primary_key"] = "id"
    tables["visits"] |= {
        "primary_key": "id",
        "temporal_column": "at",
        "foreign_keys": [
            {
                "columns": ["hub", "hub_number"],
                "references": {"table": "hubs", "columns": ["name", "number"]},
            }
        ],
    }
    query = """
        SELECT hub AS name, hub_number AS number, TIMESTAMP '2020-01-01' AS seen,
            sum(count) AS total
        FROM visits WHERE hub IS NOT NULL GROUP BY ALL ORDER BY ALL
    """
    task = asked(query, "hubs", "total numerical", "seen", anchor_key=["name", "number"])
    return {"name": "generated", "timezone": "UTC", "tables": tables, "tasks": {"total": task}}


def bookstore() -> TinyDatabase:
    """Authors with mentors, books, sales: self-reference, NULL and dangling keys, a DATE, texts.

    Store order: authors by id; books by the end of the day they appeared (book 11 first, then 10,
    12, and 13, which has no date, last); sales by time, then (shop, number).
    """
    return {
        "authors": TinyTable(
            {"author_id": "INTEGER", "name": "TEXT", "mentor": "INTEGER"},
            [(2, "Ben", 1), (1, "Ada", None), (3, "Cy", 3), (4, 'D, "dot"\nline', 9)],
        ),
        "books": TinyTable(
            sql_types(
                "book_id INTEGER, author_id INTEGER, genre TEXT, price DOUBLE, "
                "appeared DATE, in_print BOOLEAN"
            ),
            [
                (10, 1, "novel", 12.5, date(2020, 3, 1), True),
                (11, 1, "essay", None, date(2019, 5, 2), False),
                (12, 2, "novel", 20.0, date(2020, 3, 1), None),
                (13, None, None, 7.25, None, True),
            ],
        ),
        "sales": TinyTable(
            sql_types(
                "shop TEXT, number INTEGER, book_id INTEGER, sold_at TIMESTAMP, "
                "copies INTEGER, note TEXT"
            ),
            [
                ("b", 1, 10, datetime(2020, 4, 1, 9, 30), 2, "gift"),
                ("a", 2, 12, datetime(2020, 4, 1, 9, 30), 1, None),
                ("a", 1, 10, datetime(2020, 3, 15), 3, ""),
                ("b", 2, 99, datetime(2020, 5, 1, 0, 0, 0, 500000), 1, "gift"),
                ("b", 3, None, datetime(2020, 6, 1, 12), 4, "für später"),
            ],
        ),
    }


def bookstore_metadata(**tasks: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": "bookstore",
        "tables": {
            "authors": {
                "primary_key": "author_id",
                "columns": typed(
                    "author_id identifier, name text, mentor identifier authors.author_id"
                ),
            },
            "books": {
                "primary_key": "book_id",
                "temporal_column": "appeared",
                "time_resolution": "day",
                "columns": typed(
                    "book_id identifier, author_id identifier authors.author_id, "
                    "genre categorical, price numerical, appeared timestamp, in_print boolean"
                ),
            },
            "sales": {
                "primary_key": ["shop", "number"],
                "temporal_column": "sold_at",
                "columns": typed(
                    "shop identifier, number identifier, book_id identifier books.book_id, "
                    "sold_at timestamp, copies numerical, note text"
                ),
            },
        },
    }
    document["tables"]["authors"]["columns"]["name"]["description"] = "as on the cover"
    return {**document, "tasks": tasks} if tasks else document


def draft(database: TinyDatabase) -> Draft:
    """What init drafts of it."""
    return draft_source(arrow_tables(database))


def keyed(count: int, *, first: int = 1, key: str = "id") -> TinyTable:
    """Rows with a whole number as key, a time, and a price."""
    rows = [(first + j, DAY + timedelta(hours=j), j / 4) for j in range(count)]
    return TinyTable({key: "INTEGER", "made_at": "TIMESTAMP", "price": "DOUBLE"}, rows)


def drafted_links(found: Draft) -> dict[str, str]:
    """Foreign keys of single columns, by "table.column"."""
    return {
        f"{table.name}.{column.name}": str(column.foreign_key)
        for table in found.tables
        for column in table.columns
        if column.foreign_key is not None
    }


def lines(found: Draft, word: str) -> list[str]:
    """The checks of a draft that have a word."""
    return [check for check in found.every_check() if word in check]


def tickets(count: int = 100) -> TinyTable:
    """Tickets, of which every other is closed two days later by somebody."""
    kinds = sql_types(
        "ticket_id INTEGER, opened TIMESTAMP, closed TIMESTAMP, closer TEXT, "
        "is_solved BOOLEAN, touched TIMESTAMP, last_seen TIMESTAMP, born TIMESTAMP, "
        "views INTEGER, status TEXT, size INTEGER, duplicate_id INTEGER"
    )
    rows = []
    for j in range(count):
        opened, is_closed = DAY + timedelta(days=j), j % 2 == 0
        closed = opened + timedelta(days=2) if is_closed else None
        follow = j + 1 if j % 10 == 0 and j + 1 < count else None
        rows.append(
            (
                j, opened, closed, f"p{j % 5}" if is_closed else None, is_closed, opened,
                opened + timedelta(days=j % 3), opened - timedelta(days=9000), j % 7,
                ["new", "done"][j % 2], j * j % 11, follow,
            )
        )  # fmt: skip
    return TinyTable(kinds, rows)
