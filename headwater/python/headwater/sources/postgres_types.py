"""How columns of PostgreSQL travel: an expression for the server, and one for DuckDB.

The driver is right about integers, reals, booleans, bytes, UUIDs and times of day. The rest is
settled here: it would wrap infinite times around to the year -290279, drop the point of `money`,
refuse long intervals, flatten arrays of arrays, and hand out raw bytes for what it does not know. A
type without a rule arrives as the text PostgreSQL writes.

Of some types the catalog does not tell enough (how wide is a `numeric`, has an array more than one
dimension?): `MEASURES` are counted over a table's values before it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from headwater.sources.source import Alike, literal

STRENGTH = re.compile(r"(?:ks-|colstrength=)(\w+)")  # in the name of a locale of ICU
PRIMARY, SECONDARY = ("level1", "primary"), ("level2", "secondary")
DOUBLE_DIGITS = 15  # decimal digits that survive a double
DECIMAL_DIGITS = 38  # of DuckDB's widest DECIMAL


@dataclass(frozen=True)
class PostgresColumn:
    name: str
    type: str  # of the catalog; domains are resolved; "" for a type that is not built in
    typmod: int
    element: str  # type of an array's elements
    labels: tuple[str, ...]  # of an enum
    is_array: bool
    alike: frozenset[Alike] = frozenset()  # by its type and its collation


@dataclass(frozen=True)
class Reading:
    """How a column travels: the server's expression, and DuckDB's of what arrives."""

    server: str = "{0}"
    duckdb: str = "{0}"


AS_TEXT = Reading("{0}::text")
# Of a database without an encoding: bytes that are not UTF-8 become replacement characters.
AS_BYTES = Reading(
    "convert_to({0}::text, 'SQL_ASCII')",
    "coalesce(TRY(decode({0})), "
    r"regexp_replace(CAST({0} AS VARCHAR), '\\x[0-9A-F]{{2}}', chr(65533), 'g'))",
)

# Infinite times, and those beyond DuckDB's, come as bounds and become infinite again: outside of
# the years 1 to 9999 in any case, where conversion makes them NULL and counts them.
_BOUNDED = Reading(
    "CASE WHEN {{0}} > '{2}-01-01{0}'::{1} THEN '{2}-01-01{0}'::{1} "
    "WHEN {{0}} < '4713-01-01{0} BC'::{1} THEN '4713-01-01{0} BC'::{1} ELSE {{0}} END",
    "CASE WHEN {{0}} >= {1} '{2}-01-01{0}' THEN {1} 'infinity' "
    "WHEN {{0}} <= {1} '4713-01-01 (BC){0}' THEN {1} '-infinity' ELSE {{0}} END",
)


def _bounded(clock: str, type_name: str, year: int) -> Reading:
    return Reading(
        _BOUNDED.server.format(clock, type_name, year),
        _BOUNDED.duckdb.format(clock, type_name, year),
    )


INTERVAL_TEXT = (
    "format('%s months %s days %s microseconds', "
    "extract(year FROM {0})::int8 * 12 + extract(month FROM {0})::int8, "
    "extract(day FROM {0})::int8, extract(hour FROM {0})::int8 * 3600000000 + "
    "extract(minute FROM {0})::int8 * 60000000 + extract(microseconds FROM {0})::int8)"
)

_RULES = {
    **dict.fromkeys(
        ("bool", "int2", "int4", "int8", "float4", "float8", "bytea", "uuid", "time"), Reading()
    ),
    "oid": Reading("{0}::int8"),
    "date": _bounded("", "date", 5_000_000),
    "timestamp": _bounded(" 00:00:00", "timestamp", 290_000),
    "timestamptz": _bounded(" 00:00:00+00", "timestamptz", 290_000),
    "interval": Reading(
        f"CASE WHEN {{0}} IS NOT NULL THEN {INTERVAL_TEXT} END", "CAST({0} AS INTERVAL)"
    ),
    "money": Reading("{0}::numeric", "CAST({0} AS DECIMAL(19, 2))"),
    # The cast to text appends /32, the type's own output does not.
    "inet": Reading("CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END"),
}
LIST_ELEMENTS = ("bool", "int2", "int4", "int8", "float4", "float8", "text")

# What is counted before a table is read: values no rule fits, and how wide numbers are.
MEASURES = {
    "numeric": ("count({0}) - count(scale({0}))", "max(scale({0}))",
                "max(abs({0})) FILTER (WHERE scale({0}) IS NOT NULL)"),
    "interval": ("count(*) FILTER (WHERE NOT isfinite({0}))", "NULL", "NULL"),
    "array": ("count(*) FILTER (WHERE array_ndims({0}) > 1)", "NULL", "NULL"),
}  # fmt: skip


def held_alike(type_name: str, is_deterministic: bool, locale: str) -> frozenset[Alike]:
    """The spellings that a type and a collation hold equal. A collation that is not deterministic
    has them in its locale: '@colStrength=secondary' in old servers, else 'und-u-ks-level2'."""
    found = {"citext": {Alike.CASE}, "bpchar": {Alike.BLANKS}}.get(type_name, set())
    if not is_deterministic:
        found.add(Alike.FORMS)
        strength = STRENGTH.search(locale.lower())
        level = strength[1] if strength else ""
        keeps_case = "kc-true" in locale.lower() or "colcaselevel=yes" in locale.lower()
        found |= {Alike.ACCENTS} if level in PRIMARY else set()
        found |= {Alike.CASE} if level in SECONDARY + PRIMARY and not keeps_case else set()
    return frozenset(found)


def measured_as(column: PostgresColumn) -> str:
    """Which of MEASURES a column needs, "" for none."""
    if column.is_array:
        return "array"
    return column.type if column.type in MEASURES else ""


def reading_of(
    column: PostgresColumn, odd_count: int, scale: int | None, largest: str | None
) -> Reading:
    """The reading of a column, given what its measures found (0, None, None without)."""
    if column.labels:
        listed = ", ".join(literal(label) for label in column.labels).replace("{", "{{")
        return Reading("{0}::text", f"CAST({{0}} AS ENUM({listed.replace('}', '}}')}))")
    if column.is_array and odd_count:
        return Reading("to_jsonb({0})::text")
    if column.is_array:
        return Reading("{0}" if column.element in LIST_ELEMENTS else "{0}::text[]")
    if column.type == "numeric":
        return _numeric(column, odd_count, scale, largest)
    return AS_TEXT if odd_count else _RULES.get(column.type, AS_TEXT)


def _numeric(
    column: PostgresColumn, odd_count: int, scale: int | None, largest: str | None
) -> Reading:
    """DECIMAL as declared, else as wide as the values are; where NaN or an infinity is among them
    DOUBLE if that is exact; text for the rest."""
    declared = _declared_decimal(column.typmod)
    if declared is not None and not odd_count:
        return Reading("{0}", f"CAST({{0}} AS DECIMAL{declared})")
    scale = scale or 0
    digits = scale + (0 if largest is None else len(str(abs(int(Decimal(largest))))))
    if odd_count and digits <= DOUBLE_DIGITS:
        return Reading("{0}", "CAST({0} AS DOUBLE)")
    if not odd_count and digits <= DECIMAL_DIGITS:
        return Reading("{0}", f"CAST({{0}} AS DECIMAL({max(digits, 1)}, {scale}))")
    return AS_TEXT


def _declared_decimal(typmod: int) -> tuple[int, int] | None:
    """Precision and scale of numeric(p, s) where DuckDB has that type."""
    if typmod < 4:
        return None
    precision, scale = (typmod - 4) >> 16 & 0xFFFF, ((typmod - 4 & 0x7FF) ^ 0x400) - 0x400
    fits = precision <= DECIMAL_DIGITS and 0 <= scale <= precision
    return (precision, scale) if fits else None
