"""Times that must be computed: of periods, ranges, counts from 1970 and keys, each by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from databases import (
    DAY,
    TinyDatabase,
    TinyTable,
    arrow_tables,
    draft,
    shared_data,
    write_csv,
    write_sqlite,
)
from headwater.builder.build import build
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source, infer
from headwater.store.store import Store

BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def facts(values: list[Any], name: str = "x", kind: str = "TEXT") -> TinyDatabase:
    """A table of 60 rows with a key that tells nothing, and one column of these values in turn."""
    rows = [(f"r{j}", values[j % len(values)], j % 7) for j in range(60)]
    return {"facts": TinyTable({"id": "TEXT", name: kind, "n": "INTEGER"}, rows)}


def times(database: TinyDatabase, folder: Path, table: str = "facts") -> list[datetime]:
    """When the rows of a table are shown, as a build of the draft has it, in order."""
    source = arrow_tables(database)
    build(source, folder / "s", infer(source))
    with Store(folder / "s") as store:
        return shown_in(store, table)


def shown_in(store: Store, table: str) -> list[datetime]:
    entry = next(entry for entry in store.metadata["tables"] if entry["name"] == table)
    found = {store.row(row)["time"] for row in range(*entry["row_range"])}
    return sorted(time for time in found if time is not None)


def days(*found: tuple[int, int, int]) -> list[datetime]:
    return [datetime(*day, tzinfo=UTC) for day in found]


PERIODS: list[tuple[list[str], str, list[tuple[int, int, int]]]] = [
    (["2020", "2021"], "yr", [(2021, 1, 1), (2022, 1, 1)]),
    (["2020", "2021"], "a\u00f1o", [(2021, 1, 1), (2022, 1, 1)]),
    (["2020", "2021"], "sales_year", [(2021, 1, 1), (2022, 1, 1)]),
    (["2020", "2021"], "FiscalYear", [(2021, 7, 1), (2022, 7, 1)]),  # as it may end so late
    (["2020", "2021"], "season", [(2021, 7, 1), (2022, 7, 1)]),
    (["2020M04", "2020M05"], "ym", [(2020, 5, 1), (2020, 6, 1)]),
    (["202011", "202012"], "period", [(2020, 12, 1), (2021, 1, 1)]),
    (["2020-11", "2020-12"], "ym", [(2020, 12, 1), (2021, 1, 1)]),
    (["Nov 2020", "Dec 2020"], "mon", [(2020, 12, 1), (2021, 1, 1)]),
    (["11/2020", "2/2021"], "month", [(2020, 12, 1), (2021, 3, 1)]),
    (["2020-Q4", "2021-Q1"], "quarter", [(2021, 1, 1), (2021, 4, 1)]),
    (["Q4 2020", "Q1 2021"], "qtr", [(2021, 1, 1), (2021, 4, 1)]),
    # The 1st of January, 7 days for each week, and 3 for the latest way to count them.
    (["2021-W01", "2021-W02"], "week", [(2021, 1, 11), (2021, 1, 18)]),
    (["2010-11", "2011-12"], "season", [(2012, 1, 1), (2013, 1, 1)]),
    (["2010/2011", "2011/2012"], "season", [(2012, 1, 1), (2013, 1, 1)]),
    (["2020q4", "2021q1"], "quarter", [(2021, 1, 1), (2021, 4, 1)]),
    (["4Q2020", "1Q2021"], "quarter", [(2021, 1, 1), (2021, 4, 1)]),
    (["2020 Apr", "2020 September"], "month", [(2020, 5, 1), (2020, 10, 1)]),
    (["04.2020", "05.2020"], "month", [(2020, 5, 1), (2020, 6, 1)]),
]
YEARS: list[tuple[dict[str, Any], list[tuple[int, int, int]]]] = [
    ({"yr": 2020, "mth": [11, 12]}, [(2020, 12, 1), (2021, 1, 1)]),
    ({"year": 2020, "quarter": [3, 4]}, [(2020, 10, 1), (2021, 1, 1)]),
    ({"year": 2020, "week": [1, 52]}, [(2020, 1, 11), (2021, 1, 2)]),
    ({"Year": 2020, "Month": 2, "Day": [28, 29]}, [(2020, 2, 29), (2020, 3, 1)]),
    ({"sale_year": 2020, "sale_month": [1, 2]}, [(2020, 2, 1), (2020, 3, 1)]),
    ({"anio": 2020, "mes": [1, 2]}, [(2020, 2, 1), (2020, 3, 1)]),
    ({"report_year": 2020, "month_num": [1, 2]}, [(2020, 2, 1), (2020, 3, 1)]),
    ({"year": 2020, "month": ["Jan", "Feb"]}, [(2020, 2, 1), (2020, 3, 1)]),
    ({"year": 2020, "quarter": ["Q1", "Q2"]}, [(2020, 4, 1), (2020, 7, 1)]),
    # Most days are missing: the month is there in every row.
    ({"year": 2020, "month": [1, 1], "day": [31, None]}, [(2020, 2, 1)]),
]


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Draft, dict[str, list[datetime]]]:
    """One database of a table for each of these, its draft, and the times of its store."""
    database = {}
    for number, (values, name, _) in enumerate(PERIODS):
        database[f"period{number}"] = facts(values, name)["facts"]
    for number, (parts, _) in enumerate(YEARS):
        columns = {name: v if isinstance(v, list) else [v] for name, v in parts.items()}
        rows = [(f"r{j}", *(c[j % len(c)] for c in columns.values()), j % 7) for j in range(60)]
        kinds = {
            name: "TEXT" if isinstance(v[0], str) else "INTEGER" for name, v in columns.items()
        }
        database[f"year{number}"] = TinyTable({"id": "TEXT", **kinds, "n": "INTEGER"}, rows)
    source, folder = arrow_tables(database), tmp_path_factory.mktemp("periods")
    found = draft_source(source)
    build(source, folder / "s", found.schema())
    with Store(folder / "s") as store:
        shown = {name: shown_in(store, name) for name in database}
    return found, shown


@pytest.mark.parametrize("number", range(len(PERIODS)), ids=lambda number: PERIODS[number][0][0])
def test_a_row_of_a_period_is_shown_when_it_is_over(
    drafted: tuple[Draft, dict[str, list[datetime]]], number: int
) -> None:
    _, name, over = PERIODS[number]
    table = drafted[0].table(f"period{number}")
    assert table.time_reason == f"computed from {name}"
    assert any(check.startswith("proposal: temporal column ") for check in table.checks)
    assert table.column(name).is_of_time
    assert drafted[1][f"period{number}"] == days(*over)


@pytest.mark.parametrize("number", range(len(YEARS)), ids=lambda number: "-".join(YEARS[number][0]))
def test_a_year_and_what_stands_beside_it(
    drafted: tuple[Draft, dict[str, list[datetime]]], number: int
) -> None:
    assert drafted[1][f"year{number}"] == days(*YEARS[number][1])


def test_a_number_that_gives_the_time_is_not_said_to_give_none() -> None:
    values = [201901 + 100 * (j // 12) + j % 12 for j in range(48)]
    table = draft(facts(values, "date", "INTEGER")).table("facts")
    assert (table.temporal_column, table.column("date").checks) == ("month_end", [])


def test_a_year_of_something_else_is_no_time() -> None:
    """Of birth, of which many are missing, or of what two columns with other words say."""
    for name in ("birth_year", "year_of_birth", "expiry_year", "card_exp_year"):
        assert draft(facts([1980, 1990], name, "INTEGER")).table("facts").temporal_column is None
    partly = draft(facts([1980, 1990, None], "year", "INTEGER")).table("facts")
    assert partly.temporal_column is None
    assert any("may be years" in check for check in partly.column("year").checks)
    rows = [(f"r{j}", 2000 + j % 9, j % 12 + 1) for j in range(60)]
    columns = {"id": "TEXT", "build_year": "INTEGER", "renewal_month": "INTEGER"}
    table = draft({"facts": TinyTable(columns, rows)}).table("facts")
    assert table.temporal_column == "year_end"


@pytest.mark.parametrize(
    ("values", "name", "kind"),
    [
        ([200101 + 100 * (j // 12) + j % 12 for j in range(60)], "zip", "INTEGER"),
        ([f"{j % 12 + 1}-{1990 + j // 12}" for j in range(60)], "docket", "TEXT"),
        ([f"Marathon {1990 + j}" for j in range(30)], "name", "TEXT"),
        ([f"Mayor {1990 + j}" for j in range(30)], "name", "TEXT"),
        ([200101 + j * 1_300 for j in range(60)], "weight", "INTEGER"),  # not every other month
    ],
)
def test_codes_and_names_are_no_periods(values: list[Any], name: str, kind: str) -> None:
    assert draft(facts(values, name, kind)).table("facts").temporal_column is None


def test_a_number_that_is_not_named_as_a_year_is_only_said() -> None:
    """Prices and rooms lie in the same range."""
    table = draft(facts(list(range(1990, 2020)), "edition", "INTEGER")).table("facts")
    assert table.temporal_column is None
    assert any("may be years (1990 to 2019)" in check for check in table.column("edition").checks)
    table = draft(facts(list(range(1990, 2020)), "price", "INTEGER")).table("facts")
    assert table.column("price").checks == []


def test_a_week_without_its_year_is_only_said() -> None:
    table = draft(facts(list(range(1, 53)), "week", "INTEGER")).table("facts")
    assert table.temporal_column is None
    assert any("a week without its year" in check for check in table.column("week").checks)


def yearly(parent: str, *, at: datetime) -> TinyDatabase:
    """9 rows of a year each, and ten events of each, a day apart from a day of that year on."""
    years = TinyTable({"id": "TEXT", "year": "INTEGER"}, [(f"y{j}", 2010 + j) for j in range(9)])
    events = TinyTable(
        {"event_id": "TEXT", f"{parent}_id": "TEXT", "at": "TIMESTAMP"},
        [(f"e{j}", f"y{j % 9}", at.replace(year=at.year + j % 9) + timedelta(days=j // 9))
         for j in range(90)],
    )  # fmt: skip
    return {parent: years, "events": events}


def test_rows_that_name_a_period_are_never_before_it(tmp_path: Path) -> None:
    """A season's games are played before it is over: it is shown from its first day on. A model of
    a year is sold in the year before: that is not its time."""
    seasons = draft(yearly("season", at=datetime(2010, 5, 1))).table("season")
    assert seasons.temporal_column == "year_start"
    assert any("as rows that name them are of the same year" in c for c in seasons.checks)
    source = yearly("season", at=datetime(2010, 5, 1))
    assert times(source, tmp_path, "season")[0] == datetime(2010, 1, 2, tzinfo=UTC)
    models = draft(yearly("model", at=datetime(2009, 5, 1))).table("model")
    assert models.temporal_column is None
    later = draft(yearly("model", at=datetime(2012, 5, 1))).table("model")
    assert later.temporal_column == "year_end"


def test_a_year_that_is_older_than_what_its_row_names_is_no_time() -> None:
    """Cars of 2015 that are registered by owners of 2020: the model's year."""
    owners = TinyTable(
        {"owner_id": "TEXT", "joined_at": "TIMESTAMP"},
        [(f"o{j}", datetime(2020, 1, 1) + timedelta(days=j)) for j in range(9)],
    )
    cars = TinyTable(
        {"car_id": "TEXT", "owner_id": "TEXT", "model_year": "INTEGER"},
        [(f"c{j}", f"o{j % 9}", 2012 + j % 7) for j in range(60)],
    )
    table = draft({"owners": owners, "cars": cars}).table("cars")
    assert "year" not in (table.temporal_column or "")


# ---- ranges --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "start", "end"),
    [
        (["[2020-01-01,2020-01-03)", "[2020-01-02,)"], days((2020, 1, 2), (2020, 1, 3)),
         [(2020, 1, 3), None]),
        (['["2020-01-01 10:00:00","2020-01-01 12:30:00")'],
         [datetime(2020, 1, 1, 10, tzinfo=UTC)], [(2020, 1, 1, 12, 30)]),
        (['["2020-01-01 10:00:00+02","2020-01-01 12:30:00+02")'],
         [datetime(2020, 1, 1, 8, tzinfo=UTC)], [(2020, 1, 1, 10, 30)]),
        (["2020-01-01T10:00:00Z/2020-01-01T12:30:00Z"],
         [datetime(2020, 1, 1, 10, tzinfo=UTC)], [(2020, 1, 1, 12, 30)]),
        # From ever on: the end shows less. A day among times of day is over at its end.
        (["[2020-01-01,2020-01-03)", "(,2020-01-02)"], days((2020, 1, 2), (2020, 1, 3)),
         [(2020, 1, 3), (2020, 1, 2)]),
        (["2020-01-01/2020-01-05", "2020-01-02T10:00:00/2020-01-05T10:00:00"],
         days((2020, 1, 2), (2020, 1, 3)), [(2020, 1, 5), (2020, 1, 5)]),
    ],
)  # fmt: skip
def test_a_range_is_two_times(
    tmp_path: Path, values: list[str], start: list[datetime], end: list[Any]
) -> None:
    database = facts(values, "valid")
    table = draft(database).table("facts")
    assert table.temporal_column == "valid_lower"
    assert table.column("valid").stype == "ignored"
    assert table.column("valid_upper").known_at.to_json() == "valid_upper"
    assert times(database, tmp_path) == start
    with Store(tmp_path / "s") as store:
        cells = [store.row(store.find("facts", f"r{j}"))["cells"] for j in range(len(end))]
    expected = [None if time is None else datetime(*time, tzinfo=UTC) for time in end]
    assert [row["valid_upper"] for row in cells] == expected


# ---- keys and counts -----------------------------------------------------------------------------


def ulid(ms: int, number: int) -> str:
    text = ""
    for _ in range(10):
        ms, digit = divmod(ms, 32)
        text = BASE32[digit] + text
    return text + f"{number:016d}"


def uuid7(ms: int, number: int) -> str:
    return str(UUID(int=ms << 80 | 7 << 76 | 2 << 62 | number))


MS = [1_600_000_000_000 + j * 5_000_000 for j in range(60)]  # 83 minutes apart
KEYS = {
    "epoch": MS,
    "ulid": [ulid(ms, j) for j, ms in enumerate(MS)],
    "lower ulid": [ulid(ms, j).lower() for j, ms in enumerate(MS)],
    "uuid7": [uuid7(ms, j) for j, ms in enumerate(MS)],
    "snowflake": [(ms - 1_420_070_400_000 << 22) + j for j, ms in enumerate(MS)],
    "object id": [f"{ms // 1000:08x}{j:016x}" for j, ms in enumerate(MS)],
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_that_holds_the_time_keeps_its_links(tmp_path: Path, kind: str) -> None:
    """60 orders, named by a line each."""
    keys = KEYS[kind]
    type_name = "INTEGER" if isinstance(keys[0], int) else "TEXT"
    orders = TinyTable(
        {"order_id": type_name, "n": "INTEGER"}, [(key, j % 7) for j, key in enumerate(keys)]
    )
    rows = TinyTable(
        {"name": "TEXT", "order_id": type_name}, [(f"l{j}", key) for j, key in enumerate(keys)]
    )
    database = {"orders": orders, "order_rows": rows}
    table = draft(database).table("orders")
    assert (table.temporal_column, table.primary_key) == ("order_id_time", ("order_id",))
    whole = 1000 if kind == "object id" else 1
    first = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=MS[0] // whole * whole)
    assert times(database, tmp_path, "orders")[0] == first
    with Store(tmp_path / "s") as store:
        tables = {entry["name"]: entry for entry in store.metadata["tables"]}
        (key,) = tables["order_rows"]["foreign_keys"]
        assert (key["edges"], key["dangling"]) == (60, 0)
        line = store.row(store.find("order_rows", "l7"))
        assert line["time"] == first + (MS[7] - MS[0]) * timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "keys",
    [
        [1_600_000_000_000 + j for j in range(60)],  # one by one
        [2_015_550_000 + 90_000_001 * j for j in range(60)],  # phone numbers reach farther
        [str(UUID(int=(j * 7_654_435 << 100) % (1 << 128) | 4 << 76 | 2 << 62)) for j in range(60)],
        [uuid7(1_600_000_000_000 + j, j) for j in range(60)],  # an import
        [f"{j * 2_654_435_761 % (1 << 32):08x}{j:016x}" for j in range(60)],  # a hash
        [4_000_000_000_000_000 + j * 16_180_339_887_499 for j in range(60)],  # cards
        [1_700_000_000 + j * 7_654_321 for j in range(60)],  # numbers reach beyond today
    ],
)  # fmt: skip
def test_other_keys_hold_no_time(keys: list[Any]) -> None:
    kind = "INTEGER" if isinstance(keys[0], int) else "TEXT"
    rows = [(key, j % 7) for j, key in enumerate(keys)]
    table = draft({"orders": TinyTable({"order_id": kind, "n": "INTEGER"}, rows)}).table("orders")
    assert table.temporal_column is None


def test_of_two_ways_to_read_a_snowflake_the_later_is_taken_that_the_data_allow() -> None:
    """Tweets of 2020 are never read as of 2024 if something is newest in 2021."""
    keys = [(ms - 1_288_834_974_657 << 22) + j for j, ms in enumerate(MS)]
    posts = TinyTable({"id": "INTEGER", "n": "INTEGER"}, [(k, j % 7) for j, k in enumerate(keys)])
    alone = draft({"posts": posts}).table("posts")
    assert "as Discord counts" in alone.checks[-1] and "2024-" in alone.checks[-1]
    visits = TinyTable(
        {"visit_id": "TEXT", "at": "TIMESTAMP"},
        [(f"v{j}", datetime(2021, 1, 1) + timedelta(days=j)) for j in range(60)],
    )
    both = draft({"posts": posts, "visits": visits}).table("posts")
    assert "as Twitter counts" in both.checks[-1] and "2020-" in both.checks[-1]


def test_a_key_is_no_time_that_is_far_from_all_others() -> None:
    """A service that counts from 2020 would be read as of 2015, years too early; a number that is
    newer than everything else by years is none."""
    visits = TinyTable(
        {"visit_id": "TEXT", "at": "TIMESTAMP"},
        [(f"v{j}", datetime(2020, 1, 1) + timedelta(days=j)) for j in range(60)],
    )
    own = [(ms - 1_577_836_800_000 << 22) + j for j, ms in enumerate(MS)]
    late = [1_650_000_000 + 86_400 * j for j in range(60)]
    for keys in (own, late):
        rows = [(key, j % 7) for j, key in enumerate(keys)]
        posts = TinyTable({"id": "INTEGER", "n": "INTEGER"}, rows)
        assert draft({"posts": posts, "visits": visits}).table("posts").temporal_column is None


def test_a_count_from_1970_under_any_name_is_read_if_nothing_else_is_a_time(
    tmp_path: Path,
) -> None:
    """Not if it is named as an amount; a column of texts that is named as a time counts by unit."""
    values = [1_600_000_000_000 + 86_400_000 * j for j in range(60)]
    database = facts(values, "crt", "INTEGER")
    table = draft(database).table("facts")
    assert (table.temporal_column, table.column("crt").stype) == ("crt_time", "numerical")
    assert times(database, tmp_path)[0] == datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
    seconds = facts([value // 1000 for value in values], "ts", "INTEGER")
    source = write_csv(tmp_path / "csv", seconds)
    table = draft_source(source).table("facts")
    column = table.column("ts")
    assert (table.temporal_column, column.stype, column.unit) == ("ts", "timestamp", "s")
    assert column.checks == ["taken for a time in s since 1970: 2020-09-13 to 2020-11-11"]
    for other in (facts(values, "amount", "INTEGER"), facts(
        [value // 1000 for value in values], "filesize", "INTEGER"  # as large as many numbers are
    )):  # fmt: skip
        assert draft(other).table("facts").temporal_column is None
    timed = facts(values, "crt", "INTEGER")
    rows = [(*row, DAY) for row in timed["facts"].rows]
    timed = {"facts": TinyTable({**timed["facts"].types, "at": "TIMESTAMP"}, rows)}
    table = draft(timed).table("facts")
    assert (table.temporal_column, table.column("crt").stype) == ("at", "numerical")


# ---- the time of a parent ------------------------------------------------------------------------


def matches(
    *, optional: bool = False, declared: bool = True, goals_from: datetime = datetime(2020, 3, 1)
) -> TinyDatabase:
    """Who played in a match: of players since 2000, matches since 2020, and goals of who played."""
    players = [(j, datetime(2000, 1, 1) + timedelta(days=j)) for j in range(10)]
    games = [(j, datetime(2020, 1, 1) + timedelta(days=j)) for j in range(10)]
    rows = [(j, j % 10, None if optional and j == 3 else j // 10) for j in range(100)]
    goals = [(j, j, goals_from + timedelta(days=j)) for j in range(100)]
    keys = "FOREIGN KEY (player) REFERENCES players, FOREIGN KEY (game) REFERENCES games"
    parent = {"id": "INTEGER PRIMARY KEY", "at": "TIMESTAMP"}
    return {
        "players": TinyTable(parent, players),
        "games": TinyTable(parent, games),
        "fielded": TinyTable(
            {"id": "INTEGER PRIMARY KEY", "player": "INTEGER", "game": "INTEGER"},
            rows,
            keys if declared else "",
        ),
        "goals": TinyTable(
            {"id": "INTEGER PRIMARY KEY", "fielded_id": "INTEGER REFERENCES fielded",
             "scored_at": "TIMESTAMP"},
            goals,
        ),
    }  # fmt: skip


def test_an_untimed_row_takes_the_newest_of_the_parents_that_it_must_have(tmp_path: Path) -> None:
    """By declared keys, of players and games the latter; not if it may have none, nor if goals are
    older than the game."""

    def taken(number: int, **how: Any) -> str | None:
        source = write_sqlite(tmp_path / f"{number}.db", matches(**how))
        table = draft_source(source).table("fielded")
        if table.temporal_column is None:
            return None
        return str(table.column(table.temporal_column).taken_from)

    assert taken(0) == "games.at"
    assert taken(1, optional=True) == "players.at"
    assert taken(2, declared=False) is None
    assert taken(3, goals_from=datetime(2010, 1, 1)) is None


def test_a_name_of_sql_is_quoted() -> None:
    rows = [(f"r{j}", 2000 + j % 9, j % 12 + 1, j % 7) for j in range(60)]
    columns = {"id": "TEXT", "the year": "INTEGER", "the Month": "INTEGER", "n": "INTEGER"}
    table = draft({"facts": TinyTable(columns, rows)}).table("facts")
    assert table.column("month_end").expression == (
        'last_day(make_date(CAST("the year" AS INTEGER), CAST("the Month" AS INTEGER), 1))'
    )


def test_the_field_may_say_that_a_key_is_the_time(tmp_path: Path) -> None:
    folder = shared_data("field") / "key-that-is-the-time"
    document = json.loads((folder / "metadata.json").read_text())
    report = build(f"sqlite:///{folder / 'data.db'}", tmp_path / "s", document)
    (key,) = report.metadata["tables"][1]["foreign_keys"]
    assert (key["edges"], key["dangling"]) == (480, 0)
    with Store(tmp_path / "s") as store:
        assert {store.row(row)["time"].year for row in range(60)} == {2021}
