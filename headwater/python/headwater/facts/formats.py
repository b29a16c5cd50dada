"""Times that are not ISO 8601: which of them a format reads, and which can only be reported.

A column of dates that is taken for a number or a text gives no row its time, and a context then
shows what came later without anybody having said so. So what a format reads for certain is read:
days and months in the order that all values allow, names of months, and 20240315, if every value
is such a date. A date that lacks its day, or month and day, is read as the last day that it may
mean: a context then shows less. Values that only look like times, and times in four of five values,
are reported.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.names import TIME_WORDS, is_code_name, is_id_name, words_of
from headwater.metadata.parts import PARTIAL
from headwater.sources.database import Connection, one_row
from headwater.sources.source import SourceColumn, literal
from headwater.sources.value_sql import (
    DATE_TEXT,
    MONTH_TEXT,
    YEAR_ALONE_TEXT,
    canonical_text,
    is_number_type,
    to_timestamp,
)

DAY_FORMATS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d-%b-%Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%b %d %Y",
)  # fmt: skip
# A year of two digits may be any century: it is read if the month has a name, with a check.
SHORT_DAY_FORMATS = ("%d-%b-%y", "%d %b %y")
CLOCK_FORMATS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
TIME_SHAPE = "'[0-9A-Za-z]{1,9}[-/. ] ?[0-9A-Za-z]{1,9},?[-/. ] ?[0-9]{4}( .*)?'"
SHORT_SHAPE = "'[0-9]{1,2}[- ][A-Za-z]{3}[- ][0-9]{2}( .*)?'"
TIME_LENGTH_MAX = 40
# 20240315 and 20240315103000, of the years 1900 to 2099.
DIGIT_FORMATS = {"%Y%m%d": "'(19|20)[0-9]{6}'", "%Y%m%d%H%M%S": "'(19|20)[0-9]{12}'"}
DIGITS_MIN, DIGITS_MAX = 8, 14
DIGITS_FROM = 19_000_101
DATES_MIN = 10  # distinct, unless the name is that of a time
PARTIAL_MIN = 0.05  # of the values are more than a year, if some are but a year
MIDNIGHT = "[ T]00:00(:00([.]0+)?)?$"
PARTLY = 0.8  # of the values are times: too few to be read, enough for a check
DAY_PART = "(0?[1-9]|[12][0-9]|3[01])"
MONTH_NAME = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[A-Za-z]*"
LOOKS_TEXT = "'{}'".format(
    "|".join(
        [
            rf"(19|20)[0-9]{{2}}[-/.]{DAY_PART}([-/.]{DAY_PART}([T ].*)?)?",  # 2024-03-05 10:00 CET
            r"(19|20)[0-9]{2}[- ]?[QW][0-9]{1,2}",
            rf"{DAY_PART}[-/.]{DAY_PART}[-/.]((19|20)?[0-9]{{2}})([T ,].*)?",
            rf"([A-Za-z]+,? )?{DAY_PART}[-/. ]+{MONTH_NAME}[-/., ]+[0-9]{{2,4}}([T ,].*)?",
            rf"([A-Za-z]+,? )?{MONTH_NAME}[-/. ]+({DAY_PART},? .*)?(19|20)[0-9]{{2}}( .*)?",
        ]
    )
)


@dataclass(frozen=True)
class Written:
    """How the values of a column write times."""

    format: str | None = None
    count: int = 0  # of values that the format reads
    partial: str = ""  # how many lack a part, if some do
    has_two: bool = False  # day first and month first fit alike
    unread: str = ""  # what values look like that no format reads


def find_format(
    connection: Connection, column: SourceColumn, relation: str, facts: ColumnFacts
) -> Written:
    """The format of the values `v` of a relation, without the spellings of NULL."""
    if facts.value_count == 0:
        return Written()
    if column.type == "VARCHAR":
        if facts.number_count == facts.value_count:
            is_dotted = facts.integer_count < facts.value_count and facts.smallest >= 1900
            return _digits(connection, column, relation, facts) or (
                _words(connection, relation, facts) if is_dotted else Written()  # 2024.05
            )
        if (partial := _partial(connection, column, relation, facts)) is not None:
            return partial
        if facts.mostly(facts.time_count) or facts.mean_length > TIME_LENGTH_MAX:
            return Written()
        if facts.digit_count < PARTLY * facts.value_count:
            return Written()
        return _digits(connection, column, relation, facts) or _words(connection, relation, facts)
    if is_number_type(column.type):
        return _digits(connection, column, relation, facts) or Written()
    return Written()


def _partial(
    connection: Connection, column: SourceColumn, relation: str, facts: ColumnFacts
) -> Written | None:
    """Dates of which some lack their day, or month and day; None if they are not such dates."""
    count = facts.value_count
    if facts.time_count == count or not facts.mostly(facts.digit_count):
        return None
    if facts.mean_length > TIME_LENGTH_MAX or is_id_name(column.name) or is_code_name(column.name):
        return None
    days, months, years, bare_years, bare_months, clocks = one_row(
        connection,
        f"SELECT count(*) FILTER (WHERE t IS NOT NULL AND regexp_full_match(d, {DATE_TEXT})), "
        f"count(*) FILTER (WHERE regexp_full_match(d, {MONTH_TEXT})), "
        f"count(*) FILTER (WHERE regexp_full_match(d, {YEAR_ALONE_TEXT})), "
        "count(*) FILTER (WHERE regexp_full_match(d, '[0-9]{4}')), "
        "count(*) FILTER (WHERE regexp_full_match(d, '[0-9]{4}[-/][0-9]{1,2}')), "
        "count(*) FILTER (WHERE d <> v) FROM (SELECT v, "
        f"regexp_replace(v, '{MIDNIGHT}', '') AS d, {to_timestamp('v', 'VARCHAR')[0]} AS t "
        f"FROM {relation})",
    )
    found = days + months + years
    has_parts = months + years > bare_years + bare_months or (months + years > 0 and days > 0)
    is_mixed = has_parts or (bare_years > 0 and bare_months > 0)
    if not is_mixed or not facts.mostly(found) or found - bare_years < PARTIAL_MIN * count:
        return None
    text = (
        f"{days:,} of {count:,} values are whole dates, {months:,} lack the day, and {years:,} the "
        "month and the day"
    )
    if clocks:
        return Written(unread=f"{text}; {_advice(None)}")
    return Written(PARTIAL, found, partial=text)


def _digits(
    connection: Connection, column: SourceColumn, relation: str, facts: ColumnFacts
) -> Written | None:
    """Dates written as 20240315; None if they are not such dates."""
    may_be = PARTLY * DIGITS_MIN <= facts.mean_length <= DIGITS_MAX + 2  # 20240315.0
    if not may_be or facts.largest < DIGITS_FROM:
        return None
    if facts.integer_count < PARTLY * facts.value_count:
        return None
    is_named = bool(TIME_WORDS & set(words_of(column.name)))
    text = canonical_text("v", column.type)
    for form, shape in DIGIT_FORMATS.items():
        date = f"CASE WHEN regexp_full_match({text}, {shape}) THEN {text} END"
        is_date = f"try_strptime({date}, {literal(form)}) IS NOT NULL"
        count, distinct, other = one_row(
            connection,
            f"SELECT count(*) FILTER (WHERE {is_date}), count(DISTINCT v) FILTER (WHERE {is_date}),"
            f" min({text}) FILTER (WHERE v IS NOT NULL AND NOT ({is_date})) FROM {relation}",
        )
        if count < PARTLY * facts.value_count or (distinct < DATES_MIN and not is_named):
            continue
        looks = f"looks like dates ({form})"
        if other is not None:
            part = f"{count:,} of {facts.value_count:,} values"
            looks = f"{part} look like dates ({form}), not {other!r}"
        elif not (is_id_name(column.name) or is_code_name(column.name)):
            return Written(form, count)
        return Written(unread=f"{looks}; {_advice(form)}")
    return None


def _words(connection: Connection, relation: str, facts: ColumnFacts) -> Written:
    """Texts: the one format that nearly all have, else what they look like."""
    shapes = ", ".join(
        f"count(*) FILTER (WHERE regexp_full_match(v, {shape}))"
        for shape in (TIME_SHAPE, SHORT_SHAPE)
    )
    looks = f"regexp_full_match(trim(v), {LOOKS_TEXT})"
    shaped, short, count, example, other = one_row(
        connection,
        f"SELECT {shapes}, count(*) FILTER (WHERE {looks}), min(v) FILTER (WHERE {looks}), "
        f"min(v) FILTER (WHERE NOT {looks}) FROM {relation}",
    )
    found = Written()
    if facts.mostly(shaped) or facts.mostly(short):
        days = DAY_FORMATS if facts.mostly(shaped) else SHORT_DAY_FORMATS
        found = _one_format(connection, relation, facts, days)
    if found.format is not None or found.has_two or count < PARTLY * facts.value_count:
        return found
    looking = f"looks like times, such as {example!r}"
    if other is not None:
        part = f"{count:,} of {facts.value_count:,} values"
        looking = f"{part} look like times, such as {example!r}, not {other!r}"
    is_iso = facts.time_count >= PARTLY * facts.value_count
    return Written(unread=f"{looking}; {_advice('' if is_iso else None)}")


def _one_format(
    connection: Connection, relation: str, facts: ColumnFacts, days: tuple[str, ...]
) -> Written:
    formats = [f"{day}{clock}" for day in days for clock in CLOCK_FORMATS]
    counts = ", ".join(f"count(try_strptime(v, {literal(text)}))" for text in formats)
    found = one_row(connection, f"SELECT {counts} FROM {relation}")
    best = max(range(len(formats)), key=lambda j: (found[j], -j))
    if not facts.mostly(found[best]):
        return Written()
    day_first = formats[best].startswith("%d")
    other = formats[best].translate(str.maketrans("dm", "md")) if day_first else ""
    has_two = other in formats and found[formats.index(other)] == found[best]
    return Written(has_two=True) if has_two else Written(formats[best], found[best])


def _advice(form: str | None) -> str:
    """What to do about values that look like times; form: of most of them, empty for ISO 8601."""
    given = f' and "format": "{form}"' if form else ""
    if form is None:
        given = ' and a "format" as strptime takes it, or write them as ISO 8601'
    return (
        "no row gets its time from it, so contexts may show what came later; to have times, set "
        f"stype timestamp{given}; values that do not fit become NULL"
    )
