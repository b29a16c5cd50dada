"""A column's values as the source has them, and counts over all of them.

Each count is asked only if those before it leave it possible, for a query of a small table costs
more than its rows do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from headwater.facts.column_facts import ColumnFacts
from headwater.sources.database import Connection, one_row
from headwater.sources.source import SourceColumn, SourceTable, literal
from headwater.sources.value_sql import (
    INTEGER_TYPES,
    REAL_TYPES,
    SPAN_TEXT,
    ZONED_TEXT,
    canonical_text,
    is_number_type,
    is_span,
    to_boolean,
    to_numerical,
    to_timestamp,
)

# Never a value, whatever the column holds.
NEVER_VALUES = (
    "", "\\N", "NULL", "null", "(null)", "<null>", "[null]", "#N/A", "N/A", "n/a", "NaN", "nan",
    "0000-00-00", "0000-00-00 00:00:00",
)  # fmt: skip
# Without a letter or digit: no value among values that have them.
SIGNS = ("-", "--", "---", "?", ".", "*", "—")
# A word: NULL among numbers and times, else only if it is not a code like the others.
WORDS = ("NA", "na", "None", "none", "unknown", "Unknown", "UNKNOWN", "nil")
SENTINEL_DAYS = ("0001-01-01", "1753-01-01", "1899-12-30", "1900-01-01", "1970-01-01")
SENTINEL_YEAR = 9999
DECLARED_TIME = re.compile(r"DATE|TIME")
URL_TEXT = r"'https?://\S+'"
UUID_TEXT = "'[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-f]{32}|[0-9a-f]{40}'"
# A number as it is written for people: $1,001.50, 5 %, 1.001,50 €, (2.50), 1,000. Between brackets
# it is less than nothing; 12,50 without a sign may be two numbers.
BLANK = r"[\s\x{A0}\x{202F}]*"
POINT_NUMBER = r"(([0-9]{1,3}(,[0-9]{3})+|[0-9]+)(\.[0-9]+)?|\.[0-9]+)"
COMMA_NUMBER = r"([0-9]{1,3}(\.[0-9]{3})+|[0-9]+),[0-9]+"
MARKED_TEXT = "'{0}({1})[)]?{0}'".format(
    BLANK,
    "|".join(
        [
            rf"[-+(]?{BLANK}\p{{Sc}}{BLANK}[-+(]?({POINT_NUMBER}|{COMMA_NUMBER})",
            rf"[-+(]?({POINT_NUMBER}|{COMMA_NUMBER}){BLANK}(\p{{Sc}}|%)",
            r"[-+(]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?",
            r"\([0-9]*\.[0-9]+",
        ]
    ),
)
UUID_LENGTH_MIN = 32
KEY_BYTES_MAX = 32  # of a key; longer bytes are pictures and the like, which nobody counts
BLOB_MEASURES = {
    "value_count": "count(v)",
    "distinct_count": f"count(DISTINCT CASE WHEN octet_length(v) <= {KEY_BYTES_MAX} THEN v END)",
    "mean_length": "coalesce(avg(octet_length(v)), 0)",
}
MARKED_LENGTH_MAX = 40  # of the shortest text, if any may be a marked number
BOOLEAN_LENGTH_MAX = 5  # of a word
MANY_COLUMNS, CELLS_MAX = 32, 4_000_000  # of texts of a table, for them to be counted together
# Of texts `v`, asked first: cheap, and most of them rule out the dear ones.
TEXT_MEASURES = {
    "value_count": "count(v)",
    "distinct_count": "count(DISTINCT v)",
    "zero_one_count": "count(*) FILTER (WHERE v IN ('0', '1'))",
    "clock_count": "count(*) FILTER (WHERE contains(v, ':'))",
    "digit_count": "count(*) FILTER (WHERE regexp_matches(v, '[0-9]'))",
    "spaced_count": "count(*) FILTER (WHERE contains(trim(v), ' '))",
    "mean_length": "coalesce(avg(length(v)), 0)",
}
TEXT_SIGNS = {
    "leading_digit_count": "count(*) FILTER (WHERE substr(ltrim(v), 1, 1) BETWEEN '0' AND '9')",
    "link_count": "count(*) FILTER (WHERE contains(v, '://'))",
    "shortest": "coalesce(min(length(trim(v))), 0)",
    "longest": "coalesce(max(length(v)), 0)",
}


def raw_value(slot: int, nulls: Collection[str], alias: str = "") -> str:
    """SQL: a raw value without the spellings of NULL; alias: of its table, such as "a."."""
    raw = f"{alias}c{slot}"
    if not nulls:
        return raw
    listed = ", ".join(literal(text) for text in nulls)
    return f"CASE WHEN CAST({raw} AS VARCHAR) NOT IN ({listed}) THEN {raw} END"


def may_be_time(column: SourceColumn) -> bool:
    """Text may hold times; numbers do only if the source declares it."""
    return not is_number_type(column.type) or bool(DECLARED_TIME.search(column.declared))


class ColumnValues:
    """A column as it is in raw.t<i>. counted: what `count_texts` found of it."""

    def __init__(
        self,
        connection: Connection,
        source: SourceTable,
        slot: int,
        counted: Mapping[str, Any] | None = None,
    ) -> None:
        self.connection, self.source = connection, source
        self.slot, self.raw = slot, f"c{slot}"
        self.column, self.relation = source.columns[slot], f"raw.t{source.index}"
        self.counted = dict(counted or {})  # of texts, if none of them is a spelling of NULL

    def values(self, nulls: Collection[str]) -> str:
        """SQL: a relation of its values `v` without the spellings of NULL."""
        return f"(SELECT {raw_value(self.slot, nulls)} AS v FROM {self.relation})"

    def spellings(self, known: tuple[str, ...]) -> dict[str, int]:
        """Words for NULL that a column of texts holds, with their counts; others may be known."""
        # An empty text is a value of a key.
        asked = self.column.type == "VARCHAR" and self.column.name not in self.source.primary_key
        words = (*known, *NEVER_VALUES, *SIGNS, *WORDS) if asked else known
        if not words:
            return {}
        listed = ", ".join(literal(word) for word in dict.fromkeys(words))
        if self.column.type == "VARCHAR":
            if known or not self.counted:
                self.counted = self.ask(self.values(()), _sign_measures(words))
            if not self.counted["null"]:
                return {}
        rows = self.connection.execute(
            f"SELECT v, count(*) FROM (SELECT CAST({self.raw} AS VARCHAR) AS v "
            f"FROM {self.relation}) WHERE v IN ({listed}) GROUP BY v ORDER BY count(*) DESC, v"
        ).fetchall()
        return dict(rows)

    def is_null(self, text: str, facts: ColumnFacts, found: Collection[str]) -> bool:
        """Whether a sign or a word stands for NULL among the other values."""
        if facts.value_count == 0:
            return False
        typed = max(facts.number_count, facts.time_count, facts.word_count)
        if facts.mostly(typed):
            return True
        if text in SIGNS:
            pattern = "'.*[[:alnum:]].*'"
        elif text.casefold() == "na":
            pattern = f"'[A-Za-z]{{{len(text)}}}'"  # a code like the others is a value
        else:
            return False
        listed = ", ".join(literal(word) for word in found)
        row = one_row(
            self.connection,
            f"SELECT count(*), count(*) FILTER (WHERE regexp_full_match(v, {pattern}, 's')) "
            f"FROM (SELECT DISTINCT {self.raw} AS v FROM {self.relation} "
            f"WHERE {self.raw} NOT IN ({listed}))",
        )
        alike = row[1] / max(row[0], 1)
        return bool(alike >= 0.5 if text in SIGNS else alike < 0.5)

    def measure(self, nulls: Collection[str]) -> ColumnFacts:
        relation = self.values(nulls)
        if self.column.type == "VARCHAR":
            found = self.measure_texts(relation, {} if nulls else self.counted)
        else:
            found = self.ask(relation, _typed_measures(self.column))
        return ColumnFacts(self.source.row_count, **found)

    def measure_texts(self, relation: str, counted: Mapping[str, Any]) -> dict[str, Any]:
        """counted: of the relation, if it is known."""
        signs = counted or self.ask(relation, TEXT_MEASURES | TEXT_SIGNS)
        found = {name: signs[name] for name in TEXT_MEASURES}
        words = WORD_MEASURES if signs["shortest"] <= BOOLEAN_LENGTH_MAX else {}
        if signs["digit_count"]:
            numbers = f"(SELECT v, {_number(self.source)} AS x FROM {relation})"
            if "number_count" in counted:
                found |= {name: counted[name] for name in TEXT_NUMBERS}
            else:
                found |= self.ask(numbers, TEXT_NUMBERS)
            if found["number_count"] == found["value_count"]:
                return found  # no number is any of the others
            if signs["shortest"] <= MARKED_LENGTH_MAX:
                marked = (
                    f"count(*) FILTER (WHERE regexp_full_match(v, {MARKED_TEXT}) AND x IS NULL)"
                )
                found |= self.ask(numbers, {"marked_count": marked})
            words = {}
        return found | self.ask(relation, _other_measures(signs) | words)

    def ask(self, relation: str, measures: Mapping[str, str]) -> dict[str, Any]:
        """Aggregates of a relation by name."""
        if not measures:
            return {}
        row = one_row(self.connection, f"SELECT {', '.join(measures.values())} FROM {relation}")
        return dict(zip(measures, row, strict=True))

    def sentinels(self, nulls: Collection[str], facts: ColumnFacts) -> dict[str, int]:
        """Times that often stand for "never" or "not known", as the source spells them, with
        counts."""
        if not facts.mostly(facts.time_count) or is_number_type(self.column.type):
            return {}  # also where a format is needed: the day then seldom stands for none
        stamp, _ = to_timestamp("v", self.column.type)
        listed = ", ".join(f"DATE '{day}'" for day in SENTINEL_DAYS)
        rows = self.connection.execute(
            f"SELECT CAST(v AS VARCHAR), count(*) AS n FROM "
            f"(SELECT v, {stamp} AS t FROM {self.values(nulls)}) "
            f"WHERE year(t) = {SENTINEL_YEAR} OR t IN ({listed}) "
            f"GROUP BY 1, year(t) HAVING count(*) > 1 OR year(t) = {SENTINEL_YEAR} "
            "ORDER BY n DESC, 1 LIMIT 3"
        ).fetchall()
        return dict(rows)


def count_texts(connection: Connection, source: SourceTable) -> dict[int, dict[str, Any]]:
    """Counts of all texts of a table, by slot, in two queries: for a table of many columns and few
    rows, of which a query for each column costs more than its rows. Empty for any other table."""
    slots = [slot for slot, column in enumerate(source.columns) if column.type == "VARCHAR"]
    if len(slots) < MANY_COLUMNS or len(slots) * source.row_count > CELLS_MAX:
        return {}
    cells = (
        f"(UNPIVOT (SELECT {', '.join(f'c{slot}' for slot in slots)} FROM raw.t{source.index}) "
        "ON COLUMNS(*) INTO NAME n VALUE v)"
    )
    found: dict[int, dict[str, Any]] = {}
    for relation, measures in (
        (cells, _sign_measures((*NEVER_VALUES, *SIGNS, *WORDS))),
        (f"(SELECT n, v, {_number(source)} AS x FROM {cells})", TEXT_NUMBERS),
    ):
        query = f"SELECT n, {', '.join(measures.values())} FROM {relation} GROUP BY n"
        for name, *values in connection.execute(query).fetchall():
            found.setdefault(int(name[1:]), {}).update(zip(measures, values, strict=True))
    return found


def _sign_measures(words: Collection[str]) -> dict[str, str]:
    listed = ", ".join(literal(word) for word in dict.fromkeys(words))
    return {**TEXT_MEASURES, **TEXT_SIGNS, "null": f"count(*) FILTER (WHERE v IN ({listed}))"}


def _number(source: SourceTable) -> str:
    """SQL: the number in a text of a table."""
    decimal = source.csv.decimal if source.csv is not None else "."
    return to_numerical("v", "VARCHAR", decimal=decimal)[0]


def _other_measures(signs: Mapping[str, Any]) -> dict[str, str]:
    """Other counts of texts that are not all numbers, if their signs leave them possible."""
    measures: dict[str, str] = {}
    if signs["leading_digit_count"] or signs["clock_count"]:
        measures["time_count"] = f"count({to_timestamp('v', 'VARCHAR')[0]})"
    if signs["clock_count"]:
        measures["zoned_count"] = _matching(ZONED_TEXT)
        measures["span_count"] = _matching(SPAN_TEXT)
        hours = "TRY_CAST(regexp_extract(v, '[0-9]+') AS INTEGER)"
        measures["late_count"] = f"count(*) FILTER (WHERE {is_span('v')} AND {hours} >= 24)"
    if signs["link_count"]:
        measures["url_count"] = _matching(URL_TEXT)
    if signs["longest"] >= UUID_LENGTH_MIN:
        measures["uuid_count"] = _matching(UUID_TEXT)
    return measures


def _matching(pattern: str) -> str:
    return f"count(*) FILTER (WHERE regexp_full_match(v, {pattern}))"


def _number_measures(number: str) -> dict[str, str]:
    return {
        "number_count": f"count({number})",
        "integer_count": f"count(*) FILTER (WHERE {number} = trunc({number}))",
        "largest": f"coalesce(max(abs(CAST({number} AS DOUBLE))), 0)",
        "smallest": f"coalesce(min(CAST({number} AS DOUBLE)), 0)",
    }


def _typed_measures(column: SourceColumn) -> dict[str, str]:
    """Measures of values that are not texts."""
    if column.type == "BLOB":
        return BLOB_MEASURES
    text = canonical_text("v", column.type)
    zero_one = f"count(*) FILTER (WHERE {text} IN ('0', '1'))"
    measures = {
        "value_count": "count(v)",
        "distinct_count": f"count(DISTINCT {text})",
        **_number_measures(to_numerical("v", column.type)[0]),
        "zero_one_count": zero_one,
        "word_count": f"count({to_boolean('v', column.type)[0]})",
        "mean_length": f"coalesce(avg(length({text})), 0)",
    }
    if column.type in INTEGER_TYPES + REAL_TYPES:
        measures["word_count"] = zero_one  # no other number is a word
    if column.type in INTEGER_TYPES:
        measures |= dict.fromkeys(("number_count", "integer_count"), "count(v)")
        measures["distinct_count"] = "count(DISTINCT v)"
    if may_be_time(column):
        measures["time_count"] = f"count({to_timestamp('v', column.type)[0]})"
    return measures


WORD_MEASURES = {"word_count": f"count({to_boolean('v', 'VARCHAR')[0]})"}
# Counts of texts `v` with digits; `x` is the number in a text.
TEXT_NUMBERS = {
    **_number_measures("x"), "padded_count": _matching("'[+-]?0[0-9].*'"), **WORD_MEASURES,
}  # fmt: skip
