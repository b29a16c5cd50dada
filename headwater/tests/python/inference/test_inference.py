"""What init infers beyond types: keys, spellings of NULL, times, late columns, tasks, updates."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from databases import (
    DAY,
    TinyDatabase,
    TinyTable,
    arrow_tables,
    draft,
    run_script,
    sql_types,
    tickets,
    write_csv,
)
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.facts.names import reference_score, singular, words_of
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source, infer
from headwater.metadata.parts import ColumnRef, ForeignKey
from headwater.metadata.schema import Schema
from headwater.sources.source import quote
from headwater.store.store import Store


def one(values: Sequence[Any], kind: str = "TEXT", name: str = "x") -> TinyDatabase:
    """A table of one column, beside a key."""
    return {"t": TinyTable({"t_id": "INTEGER", name: kind}, list(enumerate(values)))}


def column_of(values: list[Any], kind: str = "TEXT") -> Draft:
    return draft(one(values, kind))


# ---- names and keys ----------------------------------------------------------------------------


def test_names_are_words() -> None:
    assert words_of("OwnerUserId") == ["owner", "user", "id"]
    assert words_of("HTTPStatus_code") == ["http", "status", "code"]
    assert words_of("HTTP2Status_10_x1Id") == ["http", "status", "x", "id"]
    assert words_of("HTTP2Status_10_x1Id", numbered=True) == ["http2", "status", "10", "x1", "id"]
    assert [singular(word) for word in ("users", "categories", "boxes", "glass")] == [
        "user", "category", "box", "glass",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("child", "column", "parent", "key", "score"),
    [
        ("orders", "customer_id", "customers", "id", 3),
        ("orders", "customer_id", "customers", "customer_id", 3),
        ("orders", "CustomerID", "Customer", "CustomerID", 3),
        ("orders", "customer", "customers", "id", 3),
        ("posts", "OwnerUserId", "Users", "Id", 2),
        ("posts", "ParentId", "posts", "Id", 2),
        ("employee", "reports_to", "employee", "employee_id", 2),
        ("orders", "id", "customers", "id", 0),
        ("orders", "total", "customers", "id", 0),
        ("orders", "part1_id", "part1", "part1_id", 3),
        ("orders", "part1_id", "part0", "part0_id", 0),
        ("orders", "part_id", "part0", "id", 0),
        ("orders", "part_2_id", "part_2", "id", 3),
        ("orders", "part_1_id", "part_2", "id", 0),
        ("match", "home_player_1_id", "Player", "id", 2),
        ("visits", "person_id", "people", "id", 3),
        ("pets", "pet_species_id", "pet_species", "id", 3),
        ("ratings", "movie_id", "movies", "id", 3),
        ("calls", "case_id", "cases", "id", 3),
        ("pedidos", "vendedor_id", "vendedores", "id", 3),
        ("natures", "increased_stat_id", "stats", "id", 2),
        ("flights", "plan_id", "planes", "id", 0),
        ("flights", "carrier", "airlines", "carrier", 1),
        ("genres", "film", "pixar_films", "film", 2),
        ("flights", "name", "airlines", "name", 0),
        ("flights", "row_idx", "airlines", "row_idx", 0),
        ("lines", "order_id", "old_orders", "order_id", 3),
    ],
)
def test_a_name_says_what_it_refers_to(
    child: str, column: str, parent: str, key: str, score: int
) -> None:
    assert reference_score(child, column, parent, key) == score


def test_a_key_by_name_needs_half_of_its_values_and_one_by_values_nearly_all() -> None:
    codes = [f"{chr(65 + j // 26)}{chr(65 + j % 26)}X" for j in range(100)]
    database = {
        "ports": TinyTable(
            {"port_id": "INTEGER", "code": "TEXT"}, [(j, code) for j, code in enumerate(codes)]
        ),
        "trips": TinyTable(
            {"trip_id": "INTEGER", "port_id": "INTEGER", "start": "TEXT", "other": "TEXT"},
            [
                (j, j if j < 60 else 1000 + j, codes[j], codes[j] if j < 90 else f"{j}YZ")
                for j in range(100)
            ],
        ),
    }
    trips = draft(database).table("trips")
    assert trips.column("port_id").foreign_key == ColumnRef("ports", "port_id")
    assert trips.column("port_id").reason == "by name: 60 of 100 values are in ports.port_id"
    assert trips.column("start").foreign_key == ColumnRef("ports", "code")
    assert trips.column("start").reason == "by values: all 100 values are in ports.code"
    assert trips.column("other").foreign_key is None


def test_numbers_that_lie_within_a_dense_key_refer_to_nothing() -> None:
    """Ages are not customers, though every age is the id of one."""
    database = {
        "customers": TinyTable({"id": "INTEGER"}, [(j,) for j in range(200)]),
        "people": TinyTable(
            {"name": "TEXT", "age": "INTEGER"}, [(f"p {j}", j % 90) for j in range(400)]
        ),
    }
    assert draft(database).table("people").column("age").foreign_key is None


@pytest.mark.parametrize("order", [("users", "profiles"), ("profiles", "users")])
def test_of_two_tables_with_one_key_only_one_refers_to_the_other(order: tuple[str, str]) -> None:
    """Both did, so that a user was the child of the own profile."""
    rows = [(j, f"name {j}") for j in range(100)]
    tables = {
        "users": TinyTable({"user_id": "INTEGER", "name": "TEXT"}, rows),
        "profiles": TinyTable({"user_id": "INTEGER", "bio": "TEXT"}, rows),
    }
    found = draft({name: tables[name] for name in order})
    assert found.table("profiles").column("user_id").foreign_key == ColumnRef("users", "user_id")
    assert found.table("users").column("user_id").foreign_key is None


def test_a_declared_key_is_not_inferred_the_other_way(tmp_path: Path) -> None:
    source = run_script(
        tmp_path / "shop.db",
        """
        CREATE TABLE tracks (track_id INTEGER PRIMARY KEY, name TEXT);
        CREATE TABLE reviews (review_id INTEGER PRIMARY KEY, track_id INTEGER REFERENCES tracks,
            written_at TEXT);
        WITH RECURSIVE n(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM n WHERE j < 59)
            INSERT INTO tracks SELECT j, 't ' || j FROM n;
        INSERT INTO reviews SELECT track_id, track_id, '2020-01-01' FROM tracks;
        """,
    )
    table = draft_source(source).table("tracks")
    assert table.every_key() == []
    assert table.temporal_column is None  # it was taken from the review


def test_composite_keys_tolerate_a_repetition_in_five_thousand_rows() -> None:
    rows = [(date(2020, 1, 1) + timedelta(days=j // 10), f"t{j % 10}", j) for j in range(200)]
    kinds = {"day": "DATE", "team": "TEXT", "goals": "INTEGER"}
    matches = TinyTable(kinds, [*rows, (rows[0][0], "t0", 99)])
    cards = TinyTable(
        {"day": "DATE", "team": "TEXT", "card": "TEXT"},
        [(day, team, "red") for day, team, _ in rows[:50]] * 2,
    )
    found = draft({"matches": matches, "cards": cards})
    table = found.table("matches")
    assert (table.primary_key, table.on_duplicate_key) == (("day", "team"), "first")
    assert any("1 rows repeat the key" in check for check in found.every_check())
    assert found.table("cards").foreign_keys == [
        ForeignKey(("day", "team"), "matches", ("day", "team"))
    ]
    assert table.column("team").stype == "categorical"  # it says something by itself


def customers(repeated: int, name: str = "customers", first: str = "customer_id") -> TinyDatabase:
    """100 customers, of which the first few come again with another name, and their orders."""
    rows = [(j, f"n {j}") for j in range(100)] + [(j, f"late {j}") for j in range(repeated)]
    orders = [(j, j % 100, j % 7) for j in range(300)]
    kinds = {"order_id": "INTEGER", first: "INTEGER", "size": "INTEGER"}
    return {
        name: TinyTable({first: "INTEGER", "name": "TEXT"}, rows),
        "orders": TinyTable(kinds, orders),
    }


@pytest.mark.parametrize("name", ["customers", "clients"])
def test_one_repeated_row_leaves_a_key_of_one_column_and_its_links(
    tmp_path: Path, name: str
) -> None:
    """(customer_id, name) was the key, to which no order had a link."""
    source = arrow_tables(customers(1, name))
    found = draft_source(source)
    table = found.table(name)
    assert (table.primary_key, table.on_duplicate_key) == (("customer_id",), "first")
    assert table.checks == [
        "primary key customer_id is inferred, though 1 rows repeat the key of another: of these "
        "the first is kept (on_duplicate_key)"
    ]
    reference = found.table("orders").column("customer_id").foreign_key
    assert reference == ColumnRef(name, "customer_id")
    report = build(source, tmp_path / "s", found.schema())
    assert report.metadata["tables"][1]["foreign_keys"][0]["edges"] == 300
    with Store(tmp_path / "s") as store:
        assert store.row(store.find(name, (0,)))["cells"]["name"] == "n 0"


def test_a_key_that_too_many_rows_repeat_is_said_where_others_point_at_it() -> None:
    """Two of 102 rows are more than one in 5,000, and 6 of 106 are more than one in 20."""
    found = draft(customers(2))
    table = found.table("customers")
    assert table.primary_key == ("customer_id", "name")
    assert table.checks[1:] == [
        "customer_id would be the key but for 2 rows that repeat it, and orders.customer_id points "
        "at it without a link: see primary_key, on_duplicate_key and foreign_key"
    ]
    assert found.table("orders").every_key() == []
    assert len(draft(customers(6)).table("customers").checks) == 1
    alone = {"customers": customers(2)["customers"]}
    assert len(draft(alone).table("customers").checks) == 1


def test_the_key_of_another_table_is_not_taken_though_hardly_a_row_repeats_it() -> None:
    """Of two lines of one order both are kept."""
    database = {
        "orders": TinyTable({"id": "INTEGER", "size": "INTEGER"}, [(j, j % 7) for j in range(100)]),
        "order_lines": TinyTable(
            {"order_id": "INTEGER", "line": "INTEGER"}, [*((j, 1) for j in range(100)), (7, 2)]
        ),
    }
    found = draft(database)
    table = found.table("order_lines")
    assert (table.primary_key, table.on_duplicate_key) == (("order_id", "line"), "error")
    assert table.column("order_id").foreign_key == ColumnRef("orders", "id")


# ---- spellings of NULL -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "nulls"),
    [
        (["\\N", "a b", "c d", "e f"], {"\\N": 1}),
        (["", "", "word", "other word"], {"": 2}),
        (["NA", "1", "2", "3"], {"NA": 1}),
        (["NA", "Ada Lovelace", "Grace Hopper", "Mary"], {"NA": 1}),
        (["-", "KL", "LH", "BA"], {"-": 1}),
        (["0000-00-00", "2020-01-01", "2020-01-02"], {"0000-00-00": 1}),
        (["None", "1.5", "2.5"], {"None": 1}),
    ],
)
def test_words_that_stand_for_null_are_proposed_with_their_counts(
    values: list[str], nulls: dict[str, int]
) -> None:
    column = column_of(values).table("t").column("x")
    assert column.facts.nulls == nulls
    assert column.null_values == tuple(nulls)


@pytest.mark.parametrize(
    "values", [["NA", "DE", "FR", "IT"], ["+", "-", "+", "-"], ["none", "basic", "full", "basic"]]
)
def test_words_that_may_be_values_stay_values(values: list[str]) -> None:
    """Namibia, a sign, an insurance without any cover."""
    column = column_of(values).table("t").column("x")
    assert column.null_values == ()
    assert column.facts.value_count == len(values)


def test_what_is_kept_although_it_may_mean_null_is_said() -> None:
    found = column_of(["NA", "DE", "FR", "IT"])
    assert found.every_check() == [
        "t.x: kept as a value: 'NA' (1); if it means NULL, add it to null_values"
    ]


# ---- types -------------------------------------------------------------------------------------


def test_text_that_nearly_always_parses_is_proposed_with_what_fails() -> None:
    column = column_of([*map(str, range(39)), "twelve"]).table("t").column("x")
    assert (column.stype, column.reason) == ("numerical", "39 of 40 are numbers")
    assert column.checks == [
        "1 of 40 values are not of type numerical and become NULL: 'twelve' (1)"
    ]
    assert column_of([*map(str, range(9)), "ten"]).table("t").column("x").stype == "text"


def test_codes_are_no_numbers() -> None:
    rows = [(j, j % 3, 100 + j, f"{j % 7:05d}", 10_000 + j % 5) for j in range(60)]
    kinds = dict.fromkeys(("t_id", "class", "account_id"), "INTEGER")
    kinds |= {"plz": "TEXT", "zip": "TEXT"}
    rows = [(*row[:4], str(row[4])) for row in rows]
    table = draft({"t": TinyTable(kinds, rows)}).table("t")
    assert {column.name: column.stype for column in table.columns} == {
        "t_id": "identifier",
        "class": "categorical",
        "account_id": "identifier",
        "plz": "categorical",
        "zip": "categorical",
    }


def test_times_that_may_mean_never_are_said_and_stay() -> None:
    stamps = [DAY, datetime(9999, 12, 31), datetime(1970, 1, 1), datetime(1970, 1, 1)]
    column = column_of(stamps, "TIMESTAMP").table("t").column("x")
    assert column.facts.sentinels == {"1970-01-01 00:00:00": 2, "9999-12-31 00:00:00": 1}
    assert column.null_values == () and column.facts.value_count == 4


@pytest.mark.parametrize(
    ("name", "start", "step", "unit"),
    [
        ("created_at", 1_500_000_000, 3600, "s"),
        ("openedAt", 1_500_000_000_000, 3_600_000, "ms"),
        ("event_ts", 1_500_000_000_000_000, 3_600_000_000, "us"),
        ("created_at", 20_000_000, 3600, None),  # too small
        ("population", 1_500_000_000, 3600, None),  # not named so
        ("date_id", 1_500_000_000, 3600, None),
    ],
)
def test_numbers_since_1970_are_times_where_the_name_says_so(
    name: str, start: int, step: int, unit: str | None
) -> None:
    """They were numbers, so that no row had a time and all was visible always."""
    rows = [(j, start + j * step) for j in range(100)]
    table = draft({"t": TinyTable({"id": "INTEGER", name: "INTEGER"}, rows)}).table("t")
    column = table.column(name)
    if unit is None:
        assert (column.stype == "timestamp", table.temporal_column) == (False, None)
        return
    assert (column.stype, column.unit, table.temporal_column) == ("timestamp", unit, name)
    assert column.checks == [f"taken for a time in {unit} since 1970: 2017-07-14 to 2017-07-18"]


@pytest.mark.parametrize(
    ("values", "format"),
    [
        (["31.12.2020", "01.02.2021", "3.4.2021"], "%d.%m.%Y"),
        (["12/31/2020 10:30", "01/02/2021 00:00"], "%m/%d/%Y %H:%M"),
        (["31/12/2020", "01/02/2021"], "%d/%m/%Y"),
        (["5 Jan 2020", "17 Feb 2021"], "%d %b %Y"),
        (["Jan 5, 2020", "Feb 17, 2021"], "%b %d, %Y"),
    ],
)
def test_times_in_other_words_get_their_format(
    tmp_path: Path, values: list[str], format: str
) -> None:
    source = arrow_tables(one(values))
    schema = infer(source)
    column = schema.table("t").column("x")
    assert (column.stype, column.format) == ("timestamp", format)
    report = build(source, tmp_path / "s", schema)
    assert report.losses() == []


def january(count: int) -> list[int]:
    """20240101, 20240102, ..."""
    return [20240101 + j for j in range(count)]


@pytest.mark.parametrize(
    ("name", "kind", "values", "format"),
    [
        ("x", "INTEGER", january(31), "%Y%m%d"),
        ("x", "TEXT", [str(day) for day in january(31)], "%Y%m%d"),
        ("x", "DOUBLE", [None, *map(float, january(31))], "%Y%m%d"),
        ("x", "INTEGER", [day * 1_000_000 + 103_000 for day in january(31)], "%Y%m%d%H%M%S"),
        ("order_date", "INTEGER", [20240229], "%Y%m%d"),
        ("x", "INTEGER", january(9), None),  # too few to be sure, and the name says nothing
        ("x", "INTEGER", [20240101 + j for j in range(32)], None),  # there is no 32nd of January
        ("x", "INTEGER", [20230229, *january(31)], None),  # no leap year
        ("x", "INTEGER", [99991231, *january(31)], None),
        ("date_key", "INTEGER", january(31), None),
        ("x", "TEXT", ["05-Mar-24", "17-DEC-99"], "%d-%b-%y"),
        ("x", "TEXT", ["05-Mar-2024", "17-DEC-1999"], "%d-%b-%Y"),
        ("x", "TEXT", ["5 Mar 24 10:30", "17 Dec 99 00:00"], "%d %b %y %H:%M"),
    ],
)
def test_dates_in_digits_are_times_if_every_value_is_one(
    tmp_path: Path, name: str, kind: str, values: list[Any], format: str | None
) -> None:
    """They were numbers and categories, no row had a time, and nobody was told."""
    source = arrow_tables(one(values, kind, name))
    found = draft_source(source)
    column = found.table("t").column(name)
    assert column.format == format
    assert (column.stype == "timestamp") == (format is not None)
    is_said = format != "%d-%b-%Y" and len(values) != 9
    assert len(column.checks) == is_said
    assert build(source, tmp_path / "s", found.schema()).losses() == []


def test_a_day_in_digits_is_known_when_it_is_over(tmp_path: Path) -> None:
    source = arrow_tables(one(january(31), "INTEGER", "sold_date"))
    found = draft_source(source).table("t")
    assert (found.temporal_column, found.time_resolution) == ("sold_date", "day")
    assert found.column("sold_date").checks == ["taken for times as %Y%m%d: 20240101 to 20240131"]
    build(source, tmp_path / "s")
    with Store(tmp_path / "s") as store:
        row = store.row(store.find("t", (4,)))
        assert row["time"].replace(tzinfo=None) == datetime(2024, 1, 6)
        assert row["cells"]["sold_date"].replace(tzinfo=None) == datetime(2024, 1, 5)


@pytest.mark.parametrize("other", [[], [0]])
def test_keys_that_are_dates_are_read_as_what_they_refer_to(
    tmp_path: Path, other: list[int]
) -> None:
    """A calendar with a day 0 is no column of dates, and sales must still find their day."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            "CREATE TABLE calendar (day INTEGER PRIMARY KEY, is_holiday INTEGER);"
            "CREATE TABLE sales (sale_id INTEGER PRIMARY KEY, day INTEGER REFERENCES calendar);"
        )
        days = january(31) + other
        database.executemany("INSERT INTO calendar VALUES (?, ?)", [(d, d % 7) for d in days])
        sales = [(j, january(31)[j % 31]) for j in range(62)]
        database.executemany("INSERT INTO sales VALUES (?, ?)", sales)
    found = draft_source(f"sqlite:///{path}")
    columns = [found.table(table).column("day") for table in ("calendar", "sales")]
    stype = "identifier" if other else "timestamp"
    assert [column.stype for column in columns] == [stype, stype]
    said = "looks like times, but is read as a key" if other else "taken for times as %Y%m%d"
    assert all(column.checks[-1].startswith(said) for column in columns)
    report = build(f"sqlite:///{path}", tmp_path / "s")
    assert report.metadata["tables"][1]["foreign_keys"][0]["edges"] == 62


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("x", ["2024-03-05 10:00:00 CET"] * 9, "looks like times, such as '2024-03-05 10:00:00 C"),
        ("x", ["2024-03", "2024-04"], "looks like times, such as '2024-03'; no row gets its time"),
        ("x", ["05/03/24", "17/03/24"], "looks like times, such as '05/03/24'; no row gets its"),
        ("x", ["5-3-24 10:00", "17-3-24 9:30"], "looks like times, such as '17-3-24 9:30'; no row"),
        ("x", ["Tue, 5 Mar 2024 10:00:00 GMT"], "looks like times, such as 'Tue, 5 Mar 2024"),
        (
            "x",
            ["2024-03-05"] * 9 + ["soon"],
            "9 of 10 values look like times, such as '2024-03-05', not 'soon'; no row gets",
        ),
        ("x", [*january(31), 0], "31 of 32 values look like dates (%Y%m%d), not '0'; no row"),
        ("date_key", january(31), "looks like dates (%Y%m%d); no row gets its time from it"),
        (
            "OrderDate",
            [45_000, 45_001],
            "looks like times in days since 1899-12-30 (2023-03-15 to 2023-03-16): no row",
        ),
        ("order_date", ["spring", "autumn"], "is named as a time, but holds texts: no row gets"),
    ],
)
def test_times_that_are_not_read_are_said(name: str, values: list[Any], said: str) -> None:
    kind = {str: "TEXT", int: "INTEGER", float: "DOUBLE"}[type(values[0])]
    found = draft(one(values, kind, name))
    (check,) = found.every_check()
    assert check.startswith(f"t.{name}: {said}")
    assert found.table("t").column(name).stype != "timestamp"


@pytest.mark.parametrize(
    "values",
    [
        ["2024-03-05", "soon", "later"],
        ["3.11.4", "3.12.0"],  # versions
        ["555-0134", "030 2024"],
        ["May 5", "March of the Penguins (2005)"],
        [10_240_101 + j for j in range(31)],
        [20_250_000 + j for j in range(31)],
    ],
)
def test_other_values_are_not_taken_for_times(values: list[Any]) -> None:
    assert (
        column_of(values, "INTEGER" if isinstance(values[0], int) else "TEXT").every_check() == []
    )


def test_what_is_said_of_unread_times_can_be_done(tmp_path: Path) -> None:
    """A zone of letters is part of a format, and values that do not fit become NULL."""
    rows = [(0, "2024-03-05 10:00:00 CET", 20240305), (1, "2024-03-06 10:00:00 CET", 0)]
    kinds = {"t_id": "INTEGER", "x": "TEXT", "y": "INTEGER"}
    source = arrow_tables({"t": TinyTable(kinds, rows)})
    document = infer(source).to_dict()
    columns = document["tables"]["t"]["columns"]
    columns["x"] = {"stype": "timestamp", "format": "%Y-%m-%d %H:%M:%S CET"}
    columns["y"] = {"stype": "timestamp", "format": "%Y%m%d"}
    report = build(source, tmp_path / "s", {**document, "tasks": {}})
    assert [(loss.column, loss.count, loss.example) for loss in report.conversions] == [
        ("y", 1, "0")
    ]


def test_a_day_that_may_be_a_month_is_left_to_the_reader() -> None:
    found = column_of(["01/02/2020", "03/04/2020"])
    assert found.table("t").column("x").stype == "text"
    assert "day first and month first fit alike" in found.every_check()[0]


# ---- tasks and tables of values ----------------------------------------------------------------


def test_a_draft_task_hides_what_gives_its_target_away(tmp_path: Path) -> None:
    kinds = sql_types(
        "sale_id INTEGER, sold_at TIMESTAMP, total DOUBLE, net DOUBLE, kind TEXT, "
        "kind_name TEXT, noise INTEGER"
    )
    rows = [
        (
            j, DAY + timedelta(hours=j), (j * 37) % 101 * 1.19, float((j * 37) % 101),
            "abc"[j * j % 3], ["apple", "pear", "plum"][j * j % 3], j * 7919 % 13,
        )
        for j in range(300)
    ]  # fmt: skip
    source = arrow_tables({"sales": TinyTable(kinds, rows)})
    schema = infer(source)
    tasks = {task.name: task for task in schema.tasks}
    assert list(tasks) == ["sales-kind", "sales-total"]
    assert tasks["sales-kind"].hidden_columns == (ColumnRef("sales", "kind_name"),)
    assert tasks["sales-total"].hidden_columns == (ColumnRef("sales", "net"),)
    assert (
        tasks["sales-total"].note == "hint: hidden, as they give it away: net (correlation 1.0000)"
    )
    report = build(source, tmp_path / "s", schema)
    assert [sum(task["seeds"].values()) for task in report.metadata["tasks"]] == [300, 300]


def named(names: Sequence[str]) -> dict[str, Any]:
    """A table of each name, with a column of that name to predict."""
    rows = [(j, j % 2 == 0) for j in range(60)]
    tables = {name: TinyTable({"id": "INTEGER", name: "BOOLEAN"}, rows) for name in names}
    return arrow_tables(tables)


ODD_NAMES = [
    "order", "group", 'it\'s "so"', "dot.ted", "two words", " padded", "--", "/*", "new\nline",
    "$$", "semi;colon", "1st", "\u65e5\u672c", "current_date", "random", "x.csv", "labels", "rowid",
]  # fmt: skip


def test_the_query_of_a_draft_task_quotes_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """SELECT id, order FROM order WHERE order IS NOT NULL was a parser error, as 72 others."""
    with closing(duckdb.connect()) as connection:
        keywords = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
        names = [name for (name,) in connection.execute(keywords).fetchall()]
        assert len(names) > 70
        monkeypatch.setattr("headwater.inference.task_drafts.TASK_COUNT_MAX", len(names))
        schema = infer(named(names))
        assert [task.anchor_table for task in schema.tasks] == names
        for task in schema.tasks:
            name = quote(task.anchor_table)
            connection.execute(f"CREATE TABLE {name} AS SELECT 1 AS id, true AS {name}")
            assert task.query is not None
            assert connection.execute(task.query).fetchall() == [(1, True)]


def test_what_init_drafts_of_odd_names_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.inference.task_drafts.TASK_COUNT_MAX", 99)
    source = named(ODD_NAMES)
    report = build(source, tmp_path / "s", infer(source))
    # A task's name is that of files too.
    expected = {f"{n}-{n}".replace("/", "_").replace("\n", "_") for n in ODD_NAMES}
    assert {task["name"] for task in report.metadata["tasks"]} == expected
    with Store(tmp_path / "s") as store:
        # The row of the query's result, which a column `rowid` was taken for.
        assert sorted(store.task_seeds("rowid-rowid")["position"]) == list(range(60))


def test_columns_that_name_the_same_things_are_said() -> None:
    teams = [f"team {j}" for j in range(30)]
    rows = [(j, teams[j % 30], teams[(j * 7 + 1) % 30]) for j in range(300)]
    found = draft(
        {"matches": TinyTable({"match_id": "INTEGER", "home": "TEXT", "away": "TEXT"}, rows)}
    )
    assert any('"values_of": ["matches.home", "matches.away"]' in c for c in found.every_check())


def letters(number: int) -> str:
    """Another word for every number."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def test_texts_that_only_name_the_rows_that_others_refer_to_are_said() -> None:
    columns = ["surname", "team", "code", "life", "born", "pay", "site"]
    drivers = [
        (j, f"Van {letters(j)}", f"team {letters(j % 60)}", letters(j + 100) if j < 60 else None,
         f"{letters(j)} was born in a small town and learned to drive there", f"{j % 12 + 1}/7/{j}",
         f"${j},001", f"https://{letters(j)}.example")
        for j in range(100)
    ]  # fmt: skip
    starts = [(j, j % 100, f"a note {letters(j)}") for j in range(300)]
    # A column that a foreign key names is a key too.
    races = [(j, f"R{letters(j)}") for j in range(100)]
    laps = [(j, f"R{letters(j % 100)}") for j in range(300)]
    tables = {
        "drivers": TinyTable({"driver_id": "INTEGER", **dict.fromkeys(columns, "TEXT")}, drivers),
        "starts": TinyTable(
            {"start_id": "INTEGER", "driver_id": "INTEGER", "remark": "TEXT"}, starts
        ),
        "races": TinyTable({"race_id": "INTEGER", "race_code": "TEXT"}, races),
        "laps": TinyTable({"lap_id": "INTEGER", "race_code": "TEXT"}, laps),
    }
    found = draft(tables)
    assert ForeignKey(("race_code",), "races", ("race_code",)) in found.table("laps").every_key()
    said = [check for check in found.every_check() if "has its own" in check]
    assert len(said) == 1
    assert said[0].startswith("drivers.surname, code: almost every row has its own: ")
    tables["drivers"].rows[:] = drivers[:40]
    few = {"drivers": tables["drivers"], "starts": tables["starts"]}
    assert not [check for check in draft(few).every_check() if "has its own" in check]


@pytest.mark.parametrize(
    "values",
    [
        ["$1,001.50", "$20", "-$3.25", "$ 1,000,000", "$.50"],
        ["5%", "7.5 %", "100% ", "0"],
        ["€5", "12 €", "1,200€", "(30 €)"],
        ["1.001,50 €", "12,50\u00a0€", "3 €"],
        ["5,5 %", "12,25%", "7 %"],
        ["1,234", "17", "2,000,000.25", "9", "(2.50)"],
    ],
)
def test_numbers_written_for_people_are_said(values: list[str]) -> None:
    (check,) = column_of(values * 10).every_check()
    assert check.startswith("t.x: looks like numbers, but ")
    assert "write them as such" in check


@pytest.mark.parametrize(
    "values",
    [
        ["12,34", "1,2345", "1,23"],  # not in thousands
        ["$5", "five", "$6"],
        ["1-2", "3-4", "10%-20%"],
        ["00123", "04512", "99999"],  # codes
        ["00123", "04512", "99,999"],
        ["(030)", "(555)", "(1999)"],
        ["A1", "B2", "$"],
        ["1,234 and more than forty characters of a text", "17 and so on"],
    ],
)
def test_other_texts_with_digits_are_not_taken_for_numbers(values: list[str]) -> None:
    assert not [c for c in column_of(values * 10).every_check() if "looks like numbers" in c]


# ---- the command -------------------------------------------------------------------------------


def test_the_same_source_gives_the_same_draft(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "csv", {"tickets": tickets()})
    first, second = draft_source(source), draft_source(source)
    assert str(first) == str(second)
    assert first.schema() == second.schema()


def test_init_prints_what_to_check_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_csv(tmp_path / "csv", {"tickets": tickets()})
    output = tmp_path / "m.json"
    assert main(["init", source, "-o", str(output)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("to check (")
    assert "tickets: 100 rows\n  key   ticket_id (inferred: all 100 values differ)\n" in text
    assert main(["init", source, "-o", str(tmp_path / "n.json"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metadata"] == json.loads(output.read_text())
    assert told["tables"]["tickets"]["columns"]["closed"] == "text that is times"
    assert Schema.load(output) == infer(source)


def test_a_build_uses_what_init_proposes_unless_it_is_edited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = write_csv(tmp_path / "csv", {"tickets": tickets()}), tmp_path / "m.json"
    assert main(["init", source, "-o", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "tickets.views: proposal: known_at never" in printed
    assert f"{output} is written, and a build uses it as it is: every proposal is in it." in printed

    def known(store: str) -> str:
        document = json.loads(output.read_text())
        build(source, tmp_path / store, Schema.from_dict(document | {"tasks": {}}))
        with Store(tmp_path / store) as built:
            columns = {column["name"]: column for column in built.metadata["columns"]}
        return str(columns["views"]["known_at"])

    assert known("proposed") == "never"
    document = json.loads(output.read_text())
    document["tables"]["tickets"]["columns"]["views"]["known_at"] = "+3 days"
    output.write_text(json.dumps(document))
    assert known("edited") == "+3 days"


def test_update_keeps_every_edit_and_adds_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "csv", tmp_path / "m.json"
    write_csv(source, {"tickets": tickets()})
    schema = infer(str(source))
    document = schema.to_dict()
    columns = document["tables"]["tickets"]["columns"]
    columns["status"] = {"stype": "text", "description": "by hand"}
    columns["gone"] = {"stype": "numerical"}
    del columns["size"]
    document["tasks"] = {}
    output.write_text(json.dumps(document))
    write_csv(tmp_path / "more", {"notes": TinyTable({"note_id": "INTEGER"}, [(1,), (2,)])})
    (tmp_path / "more" / "notes.csv").rename(source / "notes.csv")

    assert main(["init", str(source), "-o", str(output), "--update"]) == 0
    text = capsys.readouterr().out
    assert "added, each with a note (2):\n  column tickets.size (numerical)\n  table notes" in text
    assert "column tickets.gone is no longer in the source" in text
    assert "tickets.status: stype is text, init would now choose categorical" in text
    updated = Schema.load(output)
    assert updated.table("tickets").column("status").description == "by hand"
    assert updated.table("tickets").column("gone").stype == "numerical"
    assert updated.table("tickets").column("size").note == "new: added by init --update"
    assert updated.table("notes").note.startswith("new: added by init --update")
    assert updated.tasks == ()
    before = output.read_bytes()
    assert main(["init", str(source), "-o", str(output), "--update"]) == 0
    assert "is as it was" in capsys.readouterr().out
    assert output.read_bytes() == before


def test_update_reads_files_as_the_edited_description_says(tmp_path: Path) -> None:
    """Named columns let init see what it could not when they were column0 and column1."""
    (tmp_path / "csv").mkdir()
    lines = "".join(f"{j},{j % 9},zz\n" for j in range(30))
    (tmp_path / "csv" / "sales.csv").write_text(lines)
    (tmp_path / "csv" / "shops.csv").write_text("".join(f"{j},shop {j}\n" for j in range(9)))
    first = infer(str(tmp_path / "csv"))
    assert first.table("sales").column_names() == ["column0", "column1", "column2"]
    document = json.dumps(first.to_dict())
    for table, names in (("sales", ("sale_id", "shop_id", "what")), ("shops", ("id", "name"))):
        part = json.loads(document)
        text = json.dumps(part["tables"][table])
        for j, name in enumerate(names):
            text = text.replace(f"column{j}", name)
        part["tables"][table] = json.loads(text)
        document = json.dumps(part)
    edited = Schema.from_dict({**json.loads(document), "tasks": {}})
    found = draft_source(str(tmp_path / "csv"), edited)
    assert found.table("sales").column("shop_id").foreign_key == ColumnRef("shops", "id")


def test_update_needs_a_file_and_a_first_init_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_csv(tmp_path / "csv", {"tickets": tickets()})
    assert main(["init", source, "-o", str(tmp_path / "m.json"), "--update"]) == 1
    assert "does not exist, so there is nothing to update" in capsys.readouterr().err
