"""SQL that turns a value of the source into a canonical one, by the type it arrives with.

Each function takes the SQL of a value and the name of DuckDB's type of it; `to_numerical`,
`to_boolean` and `to_timestamp` give the SQL of the result and its type. What does not fit becomes
NULL; who uses them counts it. Also the names of DuckDB's types and the patterns of texts that these
rules, the inference and the tasks share.
"""

from __future__ import annotations

from datetime import date
from typing import Protocol

from headwater.metadata.parts import PARTIAL, Column, Table
from headwater.metadata.schema import Schema
from headwater.sources.source import SourceColumn, literal

INTEGER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
SMALL_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
WIDE_TYPES = ("UBIGINT", "HUGEINT", "UHUGEINT")
REAL_TYPES = ("FLOAT", "DOUBLE")
NAIVE_TYPES = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
ZONED_TYPE = "TIMESTAMP WITH TIME ZONE"
JULIAN_1970 = 2_440_587.5  # the Julian day on which 1970 began
UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "100ns": 100, "ns": 1}
DAY_MS = 86_400_000
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
COUNT_TEXT = "'[+-]?[0-9]{1,30}'"
FIRST_STAMP = "TIMESTAMP '0001-01-01'"
LAST_STAMP = "TIMESTAMP '9999-12-31 23:59:59.999999'"
INTEGER_TEXT = "'0|-?[1-9][0-9]{0,17}'"
FLOAT_INTEGER_TEXT = "'(0|-?[1-9][0-9]{0,17})[.]0'"  # integers by way of a float column
COMMA_NUMBER_TEXT = "'[+-]?([0-9]+|[0-9]{1,3}([.][0-9]{3})+)(,[0-9]+)?'"  # 1.234,5
ZONED_TEXT = r"'.*[0-9]:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)? *(Z|z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)'"
SPAN_TEXT = r"'\s*[0-9]{1,4}:[0-5][0-9]:[0-5][0-9]\s*'"  # the hours may be more than 24
YEAR_TEXT = r"'^\s*[0-9]{4}'"  # a time that needs no format begins so
# Dates without a day, or without a month: 1912-05, 1912-05-00, 1912, 1912-00-00, 1912-??-??.
UNKNOWN_PART = r"(00?|[?]{1,2}|[xX]{2}|[uU]{2})"
MONTH_TEXT = rf"'^([12][0-9]{{3}})[-/](0?[1-9]|1[0-2])([-/]{UNKNOWN_PART})?$'"
YEAR_ALONE_TEXT = rf"'([12][0-9]{{3}})([-/]{UNKNOWN_PART}([-/]({UNKNOWN_PART}|[0-9]{{2}}))?)?'"
DATE_TEXT = r"'[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}'"
EXACT_DIGITS = 15  # decimal digits that a double has
EXACT_LIMIT = "9007199254740991"


class Clock(Protocol):
    """How a column writes times, by its metadata: parts.Column."""

    @property
    def unit(self) -> str | None: ...
    @property
    def epoch(self) -> str | None: ...
    @property
    def format(self) -> str | None: ...


def canonical_text(value: str, type_name: str) -> str:
    """SQL: a value as text, so that 42, 42.0 and '42' are one key and a midnight is a date."""
    if type_name == "VARCHAR":
        return value
    if type_name.startswith("DECIMAL"):
        return (
            f"CASE WHEN {value} = trunc({value}) "
            f"THEN CAST(CAST(trunc({value}) AS DECIMAL(38, 0)) AS VARCHAR) "
            f"ELSE CAST(CAST({value} AS DOUBLE) AS VARCHAR) END"
        )
    if type_name in REAL_TYPES:
        return (
            f"CASE WHEN {value} = trunc({value}) AND {is_exact(value)} "
            f"THEN CAST(CAST({value} AS BIGINT) AS VARCHAR) "
            f"WHEN isfinite(CAST({value} AS DOUBLE)) "
            f"THEN CAST(CAST({value} AS DOUBLE) AS VARCHAR) END"
        )
    if type_name == ZONED_TYPE:
        return canonical_text(f"make_timestamp(epoch_us({value}))", "TIMESTAMP")
    if type_name in NAIVE_TYPES:
        stamp = f"CAST({value} AS TIMESTAMP)"
        return (
            f"CASE WHEN date_trunc('day', {stamp}) = {stamp} "
            f"THEN CAST(CAST({stamp} AS DATE) AS VARCHAR) ELSE CAST({stamp} AS VARCHAR) END"
        )
    if type_name == "BLOB":
        return f"lower(hex({value}))"
    return f"CAST({value} AS VARCHAR)"


def category_text(value: str, type_name: str) -> str:
    """SQL: a value as a category. Names end at a zero character in C, so it is replaced."""
    text = canonical_text(value, type_name)
    return f"replace({text}, chr(0), chr(65533))" if type_name == "VARCHAR" else text


def is_exact(value: str) -> str:
    """SQL: whether a whole number of this size is exact in a double."""
    return f"CAST({value} AS DOUBLE) BETWEEN -{EXACT_LIMIT} AND {EXACT_LIMIT}"


def to_numerical(
    value: str,
    type_name: str,
    *,
    integral: bool = False,
    decimal: str = ".",
    spans: bool = False,
) -> tuple[str, str]:
    """SQL and type of a number; NULL where there is none. spans: texts are hours, minutes and
    seconds (25:10:00), of which a number is the seconds."""
    if type_name in INTEGER_TYPES or type_name == "BOOLEAN":
        return f"CAST({value} AS BIGINT)", "BIGINT"
    if type_name in WIDE_TYPES:
        return f"CAST({value} AS DOUBLE)", "DOUBLE"
    if type_name.startswith("DECIMAL"):
        # A cast of more digits than a double has is off by one in the last place; of text it is
        # not, so that the same number is the same from any source.
        is_narrow = int(type_name[8:-1].partition(",")[0]) <= EXACT_DIGITS
        exact = value if is_narrow else f"CAST({value} AS VARCHAR)"
        return f"CAST({exact} AS DOUBLE)", "DOUBLE"
    if type_name in REAL_TYPES:
        return f"CASE WHEN isfinite({value}) THEN CAST({value} AS DOUBLE) END", "DOUBLE"
    if type_name in ("INTERVAL", "TIME"):
        return f"CAST(epoch({value}) AS DOUBLE)", "DOUBLE"
    if integral:
        return f"TRY_CAST({value} AS BIGINT)", "BIGINT"
    if spans:
        return f"CASE WHEN {is_span(value)} THEN epoch(CAST({value} AS INTERVAL)) END", "DOUBLE"
    if decimal == ",":
        is_number = f"regexp_full_match({value}, {COMMA_NUMBER_TEXT})"
        plain = f"replace(replace({value}, '.', ''), ',', '.')"
        return f"CASE WHEN {is_number} THEN TRY_CAST({plain} AS DOUBLE) END", "DOUBLE"
    # The cast also takes '2019_20'.
    text = f"CAST({value} AS VARCHAR)"
    number = f"TRY_CAST(CASE WHEN NOT contains({text}, '_') THEN {text} END AS DOUBLE)"
    return f"CASE WHEN isfinite({number}) THEN {number} END", "DOUBLE"


def is_span(text: str) -> str:
    """SQL: whether a text is hours, minutes and seconds."""
    return f"contains({text}, ':') AND regexp_full_match({text}, {SPAN_TEXT})"


def to_boolean(value: str, type_name: str) -> tuple[str, str]:
    """SQL and type of a boolean: 0/1 (or 0.0/1.0), true/false, t/f, yes/no, y/n, on/off."""
    if type_name == "BOOLEAN":
        return value, "BOOLEAN"
    word = f"lower(trim({canonical_text(value, type_name)}))"
    return (
        f"CASE WHEN {word} IN ('true', 't', 'yes', 'y', 'on', '1', '1.0') THEN true "
        f"WHEN {word} IN ('false', 'f', 'no', 'n', 'off', '0', '0.0') THEN false END"
    ), "BOOLEAN"


def to_timestamp(
    value: str,
    type_name: str,
    clock: Clock | None = None,
    *,
    zone: str | None = None,
) -> tuple[str, str]:
    """SQL and type of a UTC timestamp of the years 1 to 9999; naive times are times in `zone`, and
    so are days that are counted. A format is of texts, and of the digits of numbers: 20240315. A
    unit or an epoch is of numbers, also in texts."""
    format = None if clock is None else clock.format
    if format == PARTIAL and type_name == "VARCHAR":
        stamp = from_local(f"CAST({_last_day(value)} AS TIMESTAMP)", zone)
    elif format is not None and (type_name == "VARCHAR" or is_number_type(type_name)):
        text = canonical_text(value, type_name)
        stamp = f"CAST(try_strptime({text}, {literal(format)}) AS TIMESTAMP)"
        if "%z" not in format:
            stamp = from_local(stamp, zone)
    elif type_name == "TIMESTAMP" and zone in (None, "UTC"):
        stamp = value  # an infinite one is outside of the years below
    elif type_name == "DATE" or type_name in NAIVE_TYPES:
        finite = f"CASE WHEN isfinite({value}) THEN TRY_CAST({value} AS TIMESTAMP) END"
        stamp = from_local(finite, zone)
    elif type_name == ZONED_TYPE:
        stamp = f"CASE WHEN isfinite({value}) THEN make_timestamp(epoch_us({value})) END"
    elif is_number_type(type_name):
        stamp = _counted(value, clock, zone, is_whole=type_name in INTEGER_TYPES)
    else:
        # The cast also takes words such as 'infinity', and 17/03/24 for a day of the year 17.
        text = f"CAST({value} AS VARCHAR)"
        text = f"CASE WHEN regexp_matches({text}, {YEAR_TEXT}) THEN {text} END"
        zoned = f"make_timestamp(epoch_us(TRY_CAST({_plain_zone(text)} AS TIMESTAMPTZ)))"
        naive = from_local(f"TRY_CAST({text} AS TIMESTAMP)", zone)
        stamp = f"CASE WHEN regexp_full_match({text}, {ZONED_TEXT}) THEN {zoned} ELSE {naive} END"
        if counts(clock):
            whole = f"CASE WHEN regexp_full_match({value}, {COUNT_TEXT}) THEN {value} END"
            whole, number = f"TRY_CAST({whole} AS HUGEINT)", to_numerical(value, "VARCHAR")[0]
            stamp = (
                f"CASE WHEN {whole} IS NOT NULL THEN {_counted(whole, clock, zone, is_whole=True)} "
                f"WHEN {number} IS NOT NULL THEN {_counted(number, clock, zone, is_whole=False)} "
                f"ELSE {stamp} END"
            )
    return f"CASE WHEN {stamp} BETWEEN {FIRST_STAMP} AND {LAST_STAMP} THEN {stamp} END", "TIMESTAMP"


def counts(clock: Clock | None) -> bool:
    """Whether a column has a setting of how numbers count times."""
    return clock is not None and not (clock.unit is None and clock.epoch is None)


def _counted(value: str, clock: Clock | None, zone: str | None, *, is_whole: bool) -> str:
    """SQL: the UTC time of a number; a day has no zone of its own, as those of a spreadsheet."""
    unit = (None if clock is None else clock.unit) or "s"
    start = 0
    if clock is not None and clock.epoch is not None:
        start = (date.fromisoformat(clock.epoch) - date(1970, 1, 1)).days * DAY_MS * 1000
    if unit in ("day", "julian"):  # to the millisecond, as a double has 40 us of a Julian day
        days = f"({value} - {JULIAN_1970})" if unit == "julian" else value
        count = f"round(CAST({days} AS DOUBLE) * {DAY_MS}) * 1000"
    elif is_whole:
        size = UNIT_NS[unit]
        scaled = f"* {size // 1000}" if size >= 1000 else f"// {1000 // size}"
        count = f"CAST({value} AS HUGEINT) {scaled}"
    else:
        count = f"round(CAST({value} AS DOUBLE) * {UNIT_NS[unit]} / 1000)"
    inside = f"{count} BETWEEN {FIRST_US - start} AND {LAST_US - start}"
    added = f" + {start}" if start else ""
    stamp = f"CASE WHEN {inside} THEN make_timestamp(CAST({count} AS BIGINT){added}) END"
    return from_local(stamp, zone) if unit == "day" else stamp


def _last_day(text: str) -> str:
    """SQL: the date in a text; a month or a year alone gives its last day, as any may be meant."""
    month = f"regexp_replace({text}, {MONTH_TEXT}, '\\1-\\2-01')"
    return (
        f"CASE WHEN regexp_full_match({text}, {YEAR_ALONE_TEXT}) "
        f"THEN TRY_CAST(substr({text}, 1, 4) || '-12-31' AS DATE) "
        f"WHEN regexp_full_match({text}, {MONTH_TEXT}) THEN last_day(TRY_CAST({month} AS DATE)) "
        f"WHEN regexp_full_match({text}, {DATE_TEXT}) THEN TRY_CAST({text} AS DATE) END"
    )


def _plain_zone(text: str) -> str:
    """SQL: a zoned time in the one form that DuckDB casts: seconds, then +hh:mm without a space."""
    for pattern, replacement in (
        (" *(Z|z|UTC)$", "+00"),
        (" +([+-][0-9:]+)$", r"\1"),
        ("([T ][0-9]{1,2}:[0-9]{2})([+-][0-9:]+)$", r"\1:00\2"),
    ):
        text = f"regexp_replace({text}, '{pattern}', '{replacement}')"
    return text


def from_local(stamp: str, zone: str | None) -> str:
    """SQL: a naive time of `zone` in UTC."""
    if zone in (None, "UTC"):
        return stamp
    return f"make_timestamp(epoch_us(timezone({literal(str(zone))}, {stamp})))"


def to_local(stamp: str, zone: str | None) -> str:
    """SQL: a UTC time as a naive time of `zone`."""
    if zone in (None, "UTC"):
        return stamp
    return f"timezone({literal(str(zone))}, timezone('UTC', {stamp}))"


def without_nulls(
    raw: str, source: SourceColumn, schema: Schema, table: Table, column: Column
) -> str:
    """SQL: a raw value, NULL where it is one of the spellings of NULL."""
    spellings = column.null_values + table.null_values + schema.null_values
    if not spellings or is_nested(source.type):
        return raw
    listed = ", ".join(literal(text) for text in spellings)
    return f"CASE WHEN {plain_text(raw, source)} NOT IN ({listed}) THEN {raw} END"


def is_nested(type_name: str) -> bool:
    return type_name.endswith("]") or type_name.startswith(("STRUCT", "MAP", "UNION"))


def plain_text(value: str, source: SourceColumn) -> str:
    """SQL: a raw value as the source would print it."""
    if source.type == "VARCHAR":
        return value
    return f"lower(hex({value}))" if source.type == "BLOB" else f"CAST({value} AS VARCHAR)"


def is_number_type(type_name: str) -> bool:
    return type_name in INTEGER_TYPES or is_fractional(type_name)


def is_fractional(type_name: str) -> bool:
    return type_name in REAL_TYPES + WIDE_TYPES or type_name.startswith("DECIMAL")
