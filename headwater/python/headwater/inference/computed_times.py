"""Times that no column has as such, of tables that have no other time.

The time of a row may stand in several columns (year and month), in one that names a period (202403,
2024-Q1, a season) or holds a range, count from 1970 in a column that is not named as a time, or be
a part of the primary key, as of ULIDs. Then a column is computed from it (`expression`), and the
key keeps its links. A row of a period is shown when that is over: its numbers are of all of it.

The values show which columns these are, for years and months together with the names. Other rows
must allow that such a time is the row's: rows that name the row may not be older, as those of a
calendar's year are, and the row may not be older than one that it names, as a model's year is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from headwater.facts.names import is_id_name, words_of
from headwater.inference.computed import add_computed, name_sql
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.parent_times import has_own_time, is_out_of_order, timed_keys
from headwater.inference.times import PARTLY, has_times, kind_of, stamps_of, take_time
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.expression import with_expression
from headwater.sources.source import literal
from headwater.sources.value_sql import canonical_text

YEAR_WORDS = {
    "year", "yr", "yyyy", "season", "fy", "jahr", "ano", "anio", "annee", "anno", "jaar", "rok",
}  # fmt: skip
# Years that may end in the calendar's year after that of their name, at midsummer the latest.
SHIFTED_WORDS = {"season", "fy", "fiscal", "school", "academic"}
MONTH_WORDS = {
    "month", "mon", "mo", "mm", "mth", "monat", "mes", "mois", "maand", "miesiac", "period",
}  # fmt: skip
QUARTER_WORDS = {"quarter", "qtr", "q", "quartal", "trimestre"}
WEEK_WORDS = {"week", "wk", "isoweek", "woche", "semana", "semaine"}
DAY_WORDS = {"day", "dd", "dom", "mday", "tag", "dia"}
PARTS = (("week", WEEK_WORDS, 53), ("month", MONTH_WORDS, 12))  # and the largest number
FILLERS = {"num", "no", "nr", "number", "of", "id", "the", "reporting", "report", "calendar"}
PERIOD_WORDS = MONTH_WORDS | QUARTER_WORDS | WEEK_WORDS | {"yyyymm", "ym", "date", "season"}
# Words of numbers that are called so, and of no periods.
CALLED_WORDS = {
    "zip", "pin", "postal", "postcode", "plz", "code", "no", "nr", "number", "id", "invoice",
    "case", "batch", "item", "lot", "model", "version", "law", "ref", "sku", "order", "docket",
}  # fmt: skip
PARTS_OF_YEAR = MONTH_WORDS | QUARTER_WORDS | WEEK_WORDS | DAY_WORDS
YEAR_FROM, YEAR_UNTIL = 1800, 2100
# The same for a column that is not named as a year.
PLAIN_YEAR_FROM, PLAIN_YEAR_UNTIL, PLAIN_YEARS_MIN, DENSE = 1900, 2040, 5, 0.5
PERIODS_MIN = 6  # distinct ones, of a column that is not named as a period
PERIOD_LENGTH_MAX = 20  # characters, on average
MONTH_NAME = (
    "(?i:jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|"
    "oct(ober)?|nov(ember)?|dec(ember)?)"
)
YEAR = "(19|20)[0-9]{2}"
THE_YEAR = f"CAST(regexp_extract({{v}}, '{YEAR}') AS INTEGER)"
MONTH_OF_NAME = "regexp_extract({v}, '[A-Za-z]{3}') || regexp_extract({v}, '[0-9]{4}')"
NAMED_MONTH = f"last_day(CAST(strptime({MONTH_OF_NAME}, '%b%Y') AS DATE))"
# The shape of a value, what it names, and the last day of that, {v} being the value.
PERIODS = (
    (
        f"{YEAR}(0[1-9]|1[0-2])", "month",
        "last_day(make_date(CAST({v} AS INTEGER) // 100, CAST({v} AS INTEGER) % 100, 1))",
    ),
    (
        f"(FY ?)?{YEAR} ?[-/–] ?[0-9]{{2}}([0-9]{{2}})?", "season",
        f"make_date({THE_YEAR} + 1, 12, 31)",
    ),
    (
        f"{YEAR}([-/_. ]|[-/_. ]?M)(0?[1-9]|1[0-2])", "month",
        f"last_day(make_date({THE_YEAR}, "
        "CAST(regexp_extract({v}, '[0-9]{1,2}$') AS INTEGER), 1))",
    ),
    (
        f"(0?[1-9]|1[0-2])[-/. ]{YEAR}", "month",
        "last_day(make_date(CAST(right({v}, 4) AS INTEGER), "
        "CAST(regexp_extract({v}, '^[0-9]+') AS INTEGER), 1))",
    ),
    (f"{MONTH_NAME}[-/., ]*{YEAR}", "month", NAMED_MONTH),
    (f"{YEAR}[-/., ]*{MONTH_NAME}", "month", NAMED_MONTH),
    (
        f"{YEAR}[-/: ]?[Qq][1-4]", "quarter",
        f"last_day(make_date({THE_YEAR}, 3 * CAST(right({{v}}, 1) AS INTEGER), 1))",
    ),
    (
        f"([Qq][1-4]|[1-4][Qq])[-/ ]?{YEAR}", "quarter",
        "last_day(make_date(CAST(right({v}, 4) AS INTEGER), "
        "3 * CAST(regexp_extract({v}, '[1-4]') AS INTEGER), 1))",
    ),
    (
        f"{YEAR}[- ]?W[0-9]{{1,2}}", "week",
        f"make_date({THE_YEAR}, 1, 1) + 7 * CAST(regexp_extract({{v}}, 'W(.*)', 1) AS INTEGER) + 2",
    ),
    (f"FY ?{YEAR}", "fiscal year", f"make_date({THE_YEAR} + 1, 6, 30)"),
)  # fmt: skip
PLAIN_PERIODS = 4  # the first of these, which codes have too
LONGEST = {"season": 730, "fiscal year": 730, "week": 12}  # days, by any way to count
TEXT_MAX = 80  # characters of a range, on average
# Seconds since 1970 of a column that is not named as a time, or of a key: 2000 to now.
EPOCH_FROM = 946_684_800
EPOCHS = {1: "", 1_000: " / 1000", 1_000_000: " / 1000000", 1_000_000_000: " / 1000000000"}
# Words of numbers that count or measure something else, or are codes.
QUANTITY_WORDS = {
    "population", "size", "bytes", "length", "amount", "revenue", "cost", "price", "budget",
    "balance", "value", "total", "count", "views", "gross", "sales", "volume", "quantity",
    "number", "phone", "fax", "mobile", "account", "isbn", "ean", "barcode", "code", "income",
    "gdp", "salary", "capacity", "distance", "area", "likes", "followers", "points", "score",
}  # fmt: skip
SECONDS_MAX = 10**11  # a larger count is not in seconds, which other numbers are as large as
STEP_MIN = 10  # on average between two counts: numbers one by one are not times
NEARLY_ALL = 0.98  # of the rows have a time, in a table that others refer to
SNOWFLAKE_MIN = 10**16
# Milliseconds of 1970 at which two services begin to count, the later first: it shows less.
SNOWFLAKES = {"Discord": 1_420_070_400_000, "Twitter": 1_288_834_974_657}
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
UUID7_TEXT = "'(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?7[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}'"
ULID_TEXT = "'(?i)[0-7][0-9a-hjkmnp-tv-z]{25}'"
OBJECT_TEXT = "'(?i)[0-9a-f]{24}'"
DAYS_MIN = 2  # on which rows of such keys are made: an import writes all of them at once
DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
MOMENT = rf'"?({DAY}(?:[ T][0-9:.]+(?:[+-][0-9:]+|Z)?)?)?"?'
RANGE_TEXT = rf"[\[(]? *{MOMENT} *[,/] *{MOMENT} *[\])]?"
ZONED_RANGE = ":[0-9.]+([+-]|Z)"
BOUNDS = ('^[^0-9,/]*([0-9][^",/]*)', '[,/][^0-9]*([0-9][^",/)\\]]*)')
NEWER_MAX = timedelta(days=366)  # than the newest other time of the database
NO_TIME = "no row gets its time from it"  # in checks of times that are not read
LOW_BITS, LOW_MAX, LOW_SHARE = 4095, 1024, 0.8  # the last bits of a snowflake mostly count from 0


@dataclass(frozen=True)
class Found:
    """A time that can be computed; `name` is that of the column."""

    name: str
    expression: str
    uses: tuple[ColumnDraft, ...]
    says: str  # what the columns of `uses` hold, a sentence
    shown: str  # when rows are shown
    is_year: bool = False  # which more things have than rows that come into being in it
    replaces: bool = False  # the column that it uses, which is shown no more
    end: tuple[str, str] | None = None  # name and expression of the end of a range


def draft_computed_times(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Give tables that have no time one that can be computed: the first that (nearly) every row
    has, else that which most rows have."""
    for table in lowest_first(tables):
        stamps = stamps_of(table)
        has_stamp = any(has_times(c.facts) and kind_of(table, c) == "beginning" for c in stamps)
        if table.temporal_column is not None or not table.source.row_count or has_stamp:
            continue
        best, most = None, 0
        for found in _candidates(connection, tables, table):
            count = _rows_with(connection, tables, table, found)
            if count > most:
                best, most = found, count
            if count >= NEARLY_ALL * table.source.row_count:
                break
        if best is not None:
            _take(connection, table, best)


def say_years(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Check columns of tables without a time that may be years, though they are not named so, or
    that are weeks and months without a year."""
    for table in tables:
        for column in table.columns if table.temporal_column is None else ():
            part = next((name for name, words, top in PARTS if _is_part(column, words, top)), None)
            if part is not None and not column.is_of_time:
                column.check(
                    f"holds numbers of a {part} without its year, and the table has no time: if "
                    'it is when rows come into being, add a column with "expression" that gives '
                    "the day on which it ends, and make it the temporal_column",
                    Cost.FUTURE,
                )
            if (_is_year(column) and not column.is_of_time) or _may_be_year(table, column):
                first, last = int(column.facts.smallest), int(column.facts.largest)
                name = name_sql(connection, column.name)
                column.check(
                    f"holds numbers that may be years ({first} to {last}): if these are when rows "
                    'come into being, add a column with "expression": '
                    f'"make_date(CAST({name} AS INTEGER), 12, 31)" and make it the temporal_column',
                    Cost.FUTURE,
                )


def lowest_first(tables: Sequence[TableDraft]) -> list[TableDraft]:
    """Tables behind those that refer to them, as far as there is such an order."""
    waiting, found = list(tables), []
    while waiting:
        named = {
            key.table for table in waiting for key in table.every_key() if key.table != table.name
        }
        free = [table for table in waiting if table.name not in named] or waiting[:1]
        found += free
        waiting = [table for table in waiting if table not in free]
    return found


def _take(connection: Connection, table: TableDraft, found: Found) -> None:
    column = add_computed(connection, table, found.name, found.expression)
    for used in found.uses:
        used.is_of_time = True
        used.checks = [check for check in used.checks if NO_TIME not in check]
    names = " and ".join(used.name for used in found.uses)
    column.reason = f"not of the source: computed from {names}"
    read = [column.name]
    if found.end is not None:
        end = add_computed(connection, table, *found.end)
        end.reason = f"not of the source: the end of {names}"
        read.append(end.name)
    if found.replaces:
        (used,) = found.uses
        used.stype, used.reason, used.checks = "ignored", f"read as {' and '.join(read)}", []
    table.time_reason = f"computed from {names}"
    take_time(table, column)
    table.check(
        f"proposal: temporal column {column.name}, computed, as {found.says}: rows are shown "
        f'{found.shown}; if they come into being otherwise, edit its "expression", or remove it '
        'and "temporal_column"',
        Cost.FUTURE,
    )


def _rows_with(
    connection: Connection, tables: Sequence[TableDraft], table: TableDraft, found: Found
) -> int:
    """How many rows have a time; 0 if they are too few, or if the rows that they name, or that name
    them, do not allow it."""
    rows, time = _computed(connection, table, found.expression)
    (count,) = one_row(connection, f"SELECT count({time}) FROM {rows}")
    referring = [
        (other, key) for other in tables for key in other.every_key() if key.table == table.name
    ]
    every = bool(referring) or found.is_year
    if count < table.source.row_count * (NEARLY_ALL if every else PARTLY):
        return 0
    by_name = {other.name: other for other in tables}
    pairs = []
    for key in table.every_key():
        parent = by_name[key.table]
        if parent is not table and has_own_time(parent):
            theirs = parent.stamp(parent.temporal_column or "")
            above = timed_keys(parent, key.references, theirs)
            pairs.append((timed_keys(table, key.columns, time, rows), above))
    for child, key in referring:
        if child is not table and has_own_time(child):
            theirs = child.over(child.temporal_column or "")
            below = timed_keys(child, key.columns, theirs)
            pairs.append((below, timed_keys(table, key.references, time, rows)))
    if any(is_out_of_order(connection, below, above) for below, above in pairs):
        return 0
    return int(count)


def _computed(connection: Connection, table: TableDraft, expression: str) -> tuple[str, str]:
    """SQL: the rows of a table with a column more, and the time in that when it is over."""
    relation, slot = f"raw.t{table.source.index}", len(table.source.columns)
    select = with_expression(connection, table.source, "time", expression, table.value, relation)
    row = one_row(connection, f"SELECT any_value(typeof(c{slot})) FROM ({select})")
    over = " + INTERVAL 1 DAY" if row[0] == "DATE" else ""
    return f"({select})", f"(CAST(c{slot} AS TIMESTAMP){over})"


def _candidates(
    connection: Connection, tables: Sequence[TableDraft], table: TableDraft
) -> Iterator[Found]:
    """Times that a table's rows could have, the likeliest first."""
    years = [column for column in table.columns if _is_year(column)]
    names = {column.name: name_sql(connection, column.name) for column in table.columns}
    for year in years:
        yield from _parts_of_year(connection, table, year, names)
    for column in table.columns:
        yield from _period(connection, table, column, names[column.name])
    for column in table.columns:
        yield from _range(connection, table, column, names[column.name])
    newest = _newest(connection, tables)
    if len(table.primary_key) == 1:
        key = table.column(table.primary_key[0])
        yield from _key(connection, table, key, names[key.name], newest)
    for column in table.columns:
        is_open = column.counts is None and not column.is_total
        if is_open and column.stype == "numerical" and column.facts.smallest >= SECONDS_MAX:
            yield from _epoch(table, column, names[column.name], newest)
    for year in years:
        if kind_of(table, year) == "beginning":
            y, is_shifted = _integer(names[year.name]), bool(SHIFTED_WORDS & _words(year))
            first, last = f"make_date({y}, 1, 1)", f"make_date({y}, 12, 31)"
            if is_shifted:
                first, last = f"make_date({y} - 1, 7, 1)", f"make_date({y} + 1, 6, 30)"
            yield from _span("year", first, last, year)


def _words(column: ColumnDraft) -> set[str]:
    """The words of a name, and what those that end in a year's word end in: fiscalyear."""
    words = set(words_of(column.name))
    return words | {"year" for word in words if word.endswith("year")}


def _is_year(column: ColumnDraft) -> bool:
    facts = column.facts
    if not 0 < facts.value_count == facts.integer_count or column.is_total:
        return False
    if not _words(column) & YEAR_WORDS:
        return False
    return facts.smallest >= YEAR_FROM and facts.largest <= YEAR_UNTIL


def _may_be_year(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether numbers lie as close together as years do."""
    facts, words = column.facts, set(words_of(column.name))
    span = facts.largest - facts.smallest + 1
    is_key = is_id_name(column.name) or column.foreign_key or column.name in table.primary_key
    return (
        column.stype == "numerical"
        and 0 < facts.value_count == facts.integer_count
        and not (is_key or words & (QUANTITY_WORDS | CALLED_WORDS) or column.is_of_time)
        and kind_of(table, column) == "beginning"
        and facts.smallest >= PLAIN_YEAR_FROM
        and facts.largest <= PLAIN_YEAR_UNTIL
        and facts.distinct_count >= max(PLAIN_YEARS_MIN, DENSE * span)
    )


def _integer(name: str) -> str:
    return f"CAST({name} AS INTEGER)"


def _parts_of_year(
    connection: Connection, table: TableDraft, year: ColumnDraft, names: dict[str, str]
) -> Iterator[Found]:
    """A year with a month, quarter or week of its row, and the day of the month."""
    if kind_of(table, year) != "beginning" or SHIFTED_WORDS & _words(year):
        return
    plain = YEAR_WORDS | FILLERS
    own = set(words_of(year.name)) - plain
    y = _integer(names[year.name])
    others = [
        column
        for column in table.columns
        if column is not year and own == set(words_of(column.name)) - PARTS_OF_YEAR - plain
    ]
    for month in others:
        m = _part(connection, table, month, MONTH_WORDS, names[month.name])
        if m is None:
            continue
        for day in (c for c in others if _is_part(c, DAY_WORDS, 31)):
            stamp = f"make_date({y}, {m}, {_integer(names[day.name])})"
            says = f"{year.name}, {month.name} and {day.name} give its day"
            yield Found("date", stamp, (year, month, day), says, "when the day is over")
        first = f"make_date({y}, {m}, 1)"
        yield from _span("month", first, f"last_day({first})", year, month)
    for quarter in others:
        q = _part(connection, table, quarter, QUARTER_WORDS, names[quarter.name])
        if q is not None:
            end = f"last_day(make_date({y}, 3 * {q}, 1))"
            yield from _span("quarter", f"make_date({y}, 3 * {q} - 2, 1)", end, year, quarter)
    for week in (c for c in others if _is_part(c, WEEK_WORDS, 53)):
        # The first and the last day that such a week has by any way to count weeks.
        about = f"make_date({y}, 1, 1) + 7 * {_integer(names[week.name])}"
        yield from _span("week", f"{about} - 10", f"{about} + 2", year, week)


def _part(
    connection: Connection, table: TableDraft, column: ColumnDraft, words: set[str], name: str
) -> str | None:
    """The expression of the number of a month or quarter; None if a column has none."""
    if _is_part(column, words, 12 if words is MONTH_WORDS else 4):
        return _integer(name)
    shape = MONTH_NAME if words is MONTH_WORDS else "[Qq][1-4]"
    if table.kind(column.name) != "VARCHAR" or not words & set(words_of(column.name)):
        return None
    (fits,) = one_row(
        connection,
        f"SELECT bool_and(regexp_full_match({table.value(column.name)}, {literal(shape)})) "
        f"FROM raw.t{table.source.index}",
    )
    if not fits:
        return None
    if words is MONTH_WORDS:
        return f"month(strptime(left({name}, 3), '%b'))"
    return f"CAST(right({name}, 1) AS INTEGER)"


def _is_part(column: ColumnDraft, words: set[str], largest: int) -> bool:
    facts = column.facts
    return (
        bool(words & set(words_of(column.name)))
        and 0 < facts.value_count == facts.integer_count
        and facts.smallest >= 1
        and facts.largest <= largest
    )


def _span(what: str, first: str, last: str, *uses: ColumnDraft, says: str = "") -> Iterator[Found]:
    """The last day of a period; else the first, if rows that name the row are of the period."""
    is_year = what == "year"
    ranges = [
        f"{c.name} ({c.facts.smallest:.0f} to {c.facts.largest:.0f})" if c.facts.integer_count
        else c.name
        for c in uses
    ]  # fmt: skip
    says = says or f"{' and '.join(ranges)} give{'s' * (len(uses) == 1)} its {what}"
    name = what.replace(" ", "_")
    yield Found(f"{name}_end", last, uses, says, f"when the {what} is over", is_year)
    shown = f"from the first day of the {what} on, as rows that name them are of the same {what}"
    yield Found(f"{name}_start", first, uses, says, shown, is_year)


def _period(
    connection: Connection, table: TableDraft, column: ColumnDraft, name: str
) -> Iterator[Found]:
    """A column that names months, quarters, weeks or seasons."""
    facts, words = column.facts, set(words_of(column.name))
    is_text = table.kind(column.name) == "VARCHAR"
    may_be = facts.value_count == (facts.digit_count if is_text else facts.integer_count) > 0
    if not may_be or facts.mean_length > PERIOD_LENGTH_MAX or column.stype == "timestamp":
        return
    is_named = bool(PERIOD_WORDS & words)
    few = facts.distinct_count < (1 if is_named else PERIODS_MIN)
    if few or kind_of(table, column) != "beginning":
        return
    value = canonical_text(table.value(column.name), table.kind(column.name))
    relation = f"raw.t{table.source.index}"
    shapes = ", ".join(
        f"bool_and(regexp_full_match({value}, {literal(shape)}))" for shape, *_ in PERIODS
    )
    # 2011-12 is a season if all of them end in the year after.
    year = f"try_cast(regexp_extract({value}, {literal(YEAR)}) AS INTEGER)"
    follows = f"try_cast(right({value}, 2) AS INTEGER) = ({year} + 1) % 100"
    row = one_row(
        connection,
        f"SELECT min({value}), max({value}), "
        f"bool_and(coalesce({follows}, false)), {shapes} FROM {relation}",
    )
    first, last, are_seasons, *fit = row
    for place, (_, what, expression) in enumerate(PERIODS):
        if fit[place] and (what != "season" or are_seasons):
            text = name if is_text else f"CAST({_integer(name)} AS VARCHAR)"
            end = expression.replace("{v}", name if place == 0 else text)
            is_plain = place < PLAIN_PERIODS and not is_named
            if is_plain and (CALLED_WORDS & words or not _are_dense(connection, table, what, end)):
                return
            start = f"{end} - {LONGEST[what]}" if what in LONGEST else (
                f"CAST(date_trunc('{what}', {end}) AS DATE)"
            )  # fmt: skip
            says = f"{column.name} ({first} to {last}) gives its {what}"
            yield from _span(what, start, end, column, says=says)
            return


def _are_dense(connection: Connection, table: TableDraft, what: str, expression: str) -> bool:
    """Whether there is a row for every other month, or season, from the first to the last."""
    rows, time = _computed(connection, table, expression)
    unit = "year" if what == "season" else "month"
    spans, found = one_row(
        connection,
        f"SELECT date_diff('{unit}', min({time}), max({time})) + 1, count(DISTINCT {time}) "
        f"FROM {rows}",
    )
    return bool(found >= DENSE * spans)


def _range(
    connection: Connection, table: TableDraft, column: ColumnDraft, name: str
) -> Iterator[Found]:
    """A column of ranges of times, as PostgreSQL and ISO 8601 write them."""
    facts = column.facts
    if table.kind(column.name) != "VARCHAR" or facts.mean_length > TEXT_MAX:
        return
    if not 0 < facts.value_count == facts.digit_count or column.name in table.primary_key:
        return
    value, shape = table.value(column.name), literal(RANGE_TEXT)
    first, last = (f"regexp_extract({value}, {shape}, {group})" for group in (1, 2))
    fit, clocks, days, zones, unbound, first, last = one_row(
        connection,
        f"SELECT bool_and(regexp_full_match({value}, {shape})), bool_or(contains({value}, ':')), "
        f"bool_or({first} <> '' AND NOT contains({first}, ':')), "
        f"bool_or(regexp_matches({value}, {literal(ZONED_RANGE)})), bool_or({first} = ''), "
        f"min(nullif({first}, '')), max({last}) FROM raw.t{table.source.index}",
    )
    if not fit or first is None:
        return
    kind = ("TIMESTAMPTZ" if zones else "TIMESTAMP") if clocks else "DATE"
    start, end = (
        f"CAST(nullif(regexp_extract({name}, {literal(part)}, 1), '') AS {kind})" for part in BOUNDS
    )
    if days and clocks:  # a day among times of day is over at its end
        start, end = (f"CAST({bound} AS DATE)" for bound in (start, end))
    if unbound:  # from ever on: the later bound shows less
        start = f"coalesce({start}, {end})"
    says = f"{column.name} holds ranges of times ({first} to {last or 'open'})"
    yield Found(
        f"{column.name}_lower", start, (column,), says, "from its beginning on",
        replaces=True, end=(f"{column.name}_upper", end),
    )  # fmt: skip


def _epoch(
    table: TableDraft,
    column: ColumnDraft,
    name: str,
    newest: datetime | None,
    until: float = inf,
) -> Iterator[Found]:
    """A number below `until` that counts from 1970, in any unit, by the size of it."""
    facts = column.facts
    if not 0 < facts.value_count == facts.number_count or facts.distinct_count < PERIODS_MIN:
        return
    if kind_of(table, column) != "beginning" or QUANTITY_WORDS & set(words_of(column.name)):
        return
    latest = _latest_allowed(newest).timestamp()
    for scale, divided in EPOCHS.items():
        step = (facts.largest - facts.smallest) / facts.distinct_count
        if facts.smallest >= EPOCH_FROM * scale and facts.largest < min(latest * scale, until):
            if step >= STEP_MIN:
                stamp = f"to_timestamp(CAST({name} AS DOUBLE){divided})"
                days = f"{_day(facts.smallest / scale)} to {_day(facts.largest / scale)}"
                says = f"{column.name} counts from 1970 ({days})"
                yield Found(f"{column.name}_time", stamp, (column,), says, "from then on")
            return


def _latest_allowed(newest: datetime | None) -> datetime:
    """No row is of tomorrow, nor much newer than the newest of the other tables."""
    now = datetime.now(UTC) + timedelta(days=1)
    return now if newest is None else min(now, newest.replace(tzinfo=UTC) + NEWER_MAX)


def _day(seconds: float) -> str:
    return (datetime(1970, 1, 1) + timedelta(seconds=seconds)).date().isoformat()


def _key(
    connection: Connection,
    table: TableDraft,
    key: ColumnDraft,
    name: str,
    newest: datetime | None,
) -> Iterator[Found]:
    """The time in a primary key: a count from 1970, or in the first bits of it."""
    yield from _epoch(table, key, name, newest, until=SNOWFLAKE_MIN)
    latest = _latest_allowed(newest)
    for what, stamp, is_guess in _key_forms(connection, table, key, name):
        rows, time = _computed(connection, table, stamp)
        first, last, days = one_row(
            connection,
            f"SELECT min({time}), max({time}), count(DISTINCT CAST({time} AS DATE)) FROM {rows}",
        )
        if first is None or first.timestamp() < EPOCH_FROM or days < DAYS_MIN:
            continue
        is_near = newest is None or not is_guess or last > newest - NEWER_MAX
        if is_near and last.replace(tzinfo=UTC) < latest:
            says = f"{key.name} is {what}, with a time ({first.date()} to {last.date()})"
            yield Found(f"{key.name}_time", stamp, (key,), says, "from then on")


def _newest(connection: Connection, tables: Sequence[TableDraft]) -> datetime | None:
    """The newest time of rows that is known so far."""
    found = [
        one_row(
            connection,
            f"SELECT max({table.stamp(table.temporal_column)}) FROM raw.t{table.source.index}",
        )[0]
        for table in tables
        if table.temporal_column is not None and has_own_time(table)
    ]
    return max((time for time in found if time is not None), default=None)


def _key_forms(
    connection: Connection, table: TableDraft, key: ColumnDraft, name: str
) -> list[tuple[str, str, bool]]:
    """Kinds of keys with a time of which a key may be one, the expressions of their times, and
    whether it is guessed from when they count."""
    facts, kind = key.facts, table.kind(key.name)
    if facts.value_count == facts.integer_count and facts.smallest >= SNOWFLAKE_MIN:
        bits = f"(TRY_CAST({table.value(key.name)} AS BIGINT) & {LOW_BITS})"
        low, rows = one_row(
            connection,
            f"SELECT count(*) FILTER (WHERE {bits} < {LOW_MAX}), count(*) "
            f"FROM raw.t{table.source.index}",
        )
        if low < LOW_SHARE * rows:
            return []
        count = f"(CAST({name} AS BIGINT) >> 22)"
        return [
            (f"a snowflake, as {service} counts", f"to_timestamp(({count} + {start}) / 1000)", True)
            for service, start in SNOWFLAKES.items()
        ]
    if kind not in ("VARCHAR", "UUID"):
        return []
    value = f"CAST({table.value(key.name)} AS VARCHAR)"
    shapes = ", ".join(
        f"bool_and(regexp_full_match({value}, {shape}))"
        for shape in (UUID7_TEXT, ULID_TEXT, OBJECT_TEXT)
    )
    is_uuid, is_ulid, is_object = one_row(
        connection, f"SELECT {shapes} FROM raw.t{table.source.index}"
    )
    text = name if kind == "VARCHAR" else f"CAST({name} AS VARCHAR)"
    if is_uuid:
        digits = f"'0x' || left(replace({text}, '-', ''), 12)"
        return [("a UUID of version 7", f"to_timestamp(CAST({digits} AS BIGINT) / 1000)", False)]
    if is_ulid:
        places = f"string_split(upper(left({text}, 10)), '')"
        places = f"list_transform({places}, lambda c: strpos('{BASE32}', c) - 1)"
        whole = f"list_reduce({places}, lambda a, c: a * 32 + c)"
        return [("a ULID", f"to_timestamp({whole} / 1000)", False)]
    if is_object:
        seconds = f"CAST('0x' || left({text}, 8) AS BIGINT)"
        return [("an ObjectId", f"to_timestamp({seconds})", False)]
    return []
