"""The zones of times that have none written: of the whole database, or named by a column.

One moment may stand twice in a row, with a zone and without one: the former is taken, and the lag
between the two names the zone of all times of the database that have none. Or another column of the
row names the zone of a local time, or its offset from UTC: the moment is computed from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headwater.facts.names import words_of
from headwater.inference.computed import add_computed, name_sql
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.metadata.review import Cost
from headwater.sources.database import Connection, one_row
from headwater.sources.source import literal
from headwater.sources.value_sql import NAIVE_TYPES, ZONED_TYPE

Moment = Callable[[str], str]
"""The SQL of a moment by that of a local time."""

LAGS_MAX = 4  # different ones between two spellings of one time, with summer time
LAG_STEP_S, LAG_MAX_S = 900, 14 * 3600
ZONE_ROWS = 200  # by which a zone is found
# Of zones that are alike, the one that is named.
KNOWN_ZONES = (
    "UTC", "America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles",
    "America/Sao_Paulo", "Europe/London", "Europe/Berlin", "Europe/Paris", "Europe/Madrid",
    "Europe/Helsinki", "Europe/Moscow", "Africa/Lagos", "Africa/Johannesburg", "Asia/Dubai",
    "Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney", "Pacific/Auckland",
)  # fmt: skip
ZONES_MAX = 600  # distinct names of zones in a column
UTC_NAMES = {"UTC", "GMT", "Etc/UTC"}
LOCAL_WORDS = {"local", "lokal", "locale", "wall"}
# Words of times that a machine writes, whose clock mostly has UTC.
MACHINE_WORDS = {
    "timestamp", "ts", "event", "login", "logged", "sent", "paid", "seen", "joined", "signup",
}  # fmt: skip
MACHINE_STARTS = (
    "creat", "insert", "regist", "record", "post", "submit", "receiv", "updat", "modif", "load",
)  # fmt: skip
UTC_WORDS = {"utc", "gmt", "zulu"}
OFFSET_TEXT = "'[+-](0[0-9]|1[0-4])(:[0-5][0-9])?'"
ZONE_WORDS = {"tz", "zone", "timezone", "utc", "gmt"}  # with "offset"
HOURS_MAX, MINUTES_MAX, QUARTER_HOUR = 14, 14 * 60, 15
LATEST = "INTERVAL 12 HOUR"  # behind UTC are no more


def find_zone(connection: Connection, tables: Sequence[TableDraft]) -> str | None:
    """Find times that stand in their row twice, with a zone and without one, and say so; the zone
    of the latter, if it is one for all of them."""
    zones: set[str] = set()
    for table in tables:
        stamps = [column for column in table.columns if column.stype == "timestamp"]
        zoned = [column for column in stamps if _has_zone(table, column)]
        for naive in (column for column in stamps if _is_naive(table, column)):
            for other in zoned:
                if not _is_same_time(connection, table, naive, other):
                    continue
                naive.same_time_as = other.name
                found = _zones_of(connection, table, naive, other)
                zones.add(found[0] if found else "")
                named = f", as in {found[0]}" if found else ""
                naive.check(
                    f"the time of {other.name} without its zone: always whole hours apart{named}; "
                    f"{other.name} is taken",
                    Cost.FUTURE,
                )
                break
    return zones.pop() if len(zones) == 1 and "" not in zones else None


def _has_zone(table: TableDraft, column: ColumnDraft) -> bool:
    facts = column.facts
    return table.kind(column.name) == ZONED_TYPE or (
        0 < facts.clock_count == facts.zoned_count and facts.mostly(facts.zoned_count)
    )


def _is_naive(table: TableDraft, column: ColumnDraft) -> bool:
    facts = column.facts
    return table.kind(column.name) in NAIVE_TYPES or (facts.clock_count > facts.zoned_count == 0)


def _is_same_time(
    connection: Connection, table: TableDraft, naive: ColumnDraft, zoned: ColumnDraft
) -> bool:
    """Whether the two are a few constant lags of quarters of an hour apart, at least one not 0."""
    lag = f"date_diff('second', {table.stamp(naive.name)}, {table.stamp(zoned.name)})"
    lags, count, least, largest, odd = one_row(
        connection,
        f"SELECT count(DISTINCT lag), count(lag), min(lag), max(lag), "
        f"count(*) FILTER (WHERE lag % {LAG_STEP_S} <> 0) FROM "
        f"(SELECT {lag} AS lag FROM raw.t{table.source.index})",
    )
    if not count or odd or lags > LAGS_MAX or least == largest == 0 or lags * 5 > count:
        return False
    return bool(least >= -LAG_MAX_S and largest <= LAG_MAX_S)


def _zones_of(
    connection: Connection, table: TableDraft, naive: ColumnDraft, zoned: ColumnDraft
) -> list[str]:
    """Zones in which a time without a zone is the one with it, in every row: names of places first,
    well-known ones before others."""
    names = [
        row[0]
        for row in connection.execute("SELECT name FROM pg_timezone_names() ORDER BY 1").fetchall()
    ]
    local, moment = table.stamp(naive.name), table.stamp(zoned.name)
    rows = connection.execute(
        f"SELECT DISTINCT CAST({local} AS TIMESTAMP) AS a, CAST({moment} AS TIMESTAMP) AS b "
        f"FROM raw.t{table.source.index} WHERE {local} IS NOT NULL AND {moment} IS NOT NULL "
        f"ORDER BY hash(a) LIMIT {ZONE_ROWS}"
    ).fetchall()
    values = ", ".join(f"(TIMESTAMP '{a}', TIMESTAMP '{b}')" for a, b in rows)
    listed = ", ".join(f"({literal(name)})" for name in names)
    found = connection.execute(
        f"SELECT z FROM (VALUES {listed}) AS zones(z), (VALUES {values}) AS times(a, b) GROUP BY z "
        "HAVING bool_and(timezone(z, a) = timezone('UTC', b)) ORDER BY z"
    ).fetchall()
    return sorted((row[0] for row in found), key=_how_known)


def _how_known(zone: str) -> tuple[int, str]:
    return (KNOWN_ZONES.index(zone) if zone in KNOWN_ZONES else len(KNOWN_ZONES), zone)


# ---- a column that names the zone ----------------------------------------------------------------


def read_local_times(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Compute the moment of each local time whose zone another column names."""
    local = {
        table.name: [c for c in table.columns if c.stype == "timestamp" and _is_local(table, c)]
        for table in tables
    }
    if not any(local.values()):
        return
    rows = connection.execute("SELECT name FROM pg_timezone_names()").fetchall()
    known = {row[0] for row in rows}
    for table in tables:
        zones, locals_ = {}, local[table.name]
        for column in table.columns:
            if column.stype in ("text", "categorical", "numerical") and column.facts.value_count:
                moment = _moment(connection, table, column, known)
                if moment is not None:
                    zones[column.name] = moment
                    column.is_of_time = True
        for column in locals_ if zones else ():
            _read_local(connection, table, column, zones)
        unread = [c.name for c in table.columns if _is_zone_name(c.name) and c.stype != "timestamp"]
        for column in locals_ if unread and not zones else ():
            column.check(
                f"is read as UTC, but {unread[0]} may name its zone: its values are not all names "
                'of zones such as "Europe/Berlin" nor offsets such as "+01:00"; a column with an '
                '"expression" could have the moment',
                Cost.FUTURE,
            )
        table.zone_columns = tuple(zones)
    for table in tables:
        _say_zone_of_parent(connection, table, tables)


def _read_local(
    connection: Connection, table: TableDraft, column: ColumnDraft, zones: Mapping[str, Moment]
) -> None:
    """Add the moment of a local time, by the one of several zones that shares a word with it."""
    words = set(words_of(column.name))
    near = [name for name in zones if words & set(words_of(name))]
    named = near if len(near) == 1 else list(zones)
    if len(named) != 1:
        column.check(
            f"is read as UTC, but {' or '.join(named)} names its zone; to have the moment, add a "
            f'column with "expression": "{zones[named[0]](_local(connection, column))}"',
            Cost.FUTURE,
        )
        return
    (zone,) = named
    local = _local(connection, column)
    moment = zones[zone](local)
    if not table.column(zone).facts.is_full:
        moment = f"coalesce({moment}, timezone('UTC', {local} + {LATEST}))"
    is_doubtful = any(
        word in MACHINE_WORDS or word.startswith(MACHINE_STARTS) for word in words_of(column.name)
    )
    if is_doubtful:  # of a server's clock, perhaps, and the zone of a person
        moment = f"greatest({moment}, timezone('UTC', {local}))"
    made = add_computed(connection, table, f"{column.name}_utc", moment)
    column.stype, column.reason = "ignored", f"a local time: read as {made.name}, by {zone}"
    made.reason = f"not of the source: the moment of {column.name} in the zone of {zone}"
    if is_doubtful:
        text = (
            f"proposal: {column.name} may be a local time of the zone that {zone} names, or one of "
            'UTC: the later of both is taken; edit "expression" if you know which it is'
        )
    else:
        text = (
            f"proposal: {column.name} is a local time of the zone that {zone} names, and is read "
            "so; read as UTC, rows would be shown hours before or after they happen"
        )
    made.check(text, Cost.FUTURE)


def _local(connection: Connection, column: ColumnDraft) -> str:
    """The expression of a local time."""
    local = name_sql(connection, column.name)
    if column.format is not None:
        local = f"strptime({local}, {literal(column.format)})"
    return f"CAST({local} AS TIMESTAMP)"


def _moment(
    connection: Connection, table: TableDraft, column: ColumnDraft, known: set[str]
) -> Moment | None:
    """How a local time becomes a moment by a column, if that names zones."""
    name, facts = name_sql(connection, column.name), column.facts
    if column.stype == "numerical":
        return _offset(connection, table, column, name)
    if facts.distinct_count > ZONES_MAX:
        return None
    value = table.value(column.name)
    relation = f"raw.t{table.source.index}"
    offsets = one_row(
        connection,
        f"SELECT bool_and(regexp_full_match(CAST({value} AS VARCHAR), {OFFSET_TEXT})) "
        f"FROM {relation}",
    )
    if offsets[0]:
        return lambda local: f"CAST(CAST({local} AS VARCHAR) || {name} AS TIMESTAMPTZ)"
    rows = connection.execute(
        f"SELECT DISTINCT CAST({value} AS VARCHAR) FROM {relation} WHERE {value} IS NOT NULL"
    ).fetchall()
    found = [row[0] for row in rows]
    # Japan and Turkey are zones too.
    are_places = sum("/" in zone or zone in UTC_NAMES for zone in found) * 2 > len(found)
    if not (are_places or _is_zone_name(column.name)) or not known.issuperset(found):
        return None
    return lambda local: f"timezone({name}, {local})"


def _is_zone_name(name: str) -> bool:
    words = words_of(name)
    return bool({"tz", "tzone", "timezone", "tzid"} & set(words)) or words[:2] == ["time", "zone"]


def _offset(
    connection: Connection, table: TableDraft, column: ColumnDraft, name: str
) -> Moment | None:
    """The same of a column of offsets in hours or minutes."""
    facts, words = column.facts, set(words_of(column.name))
    if "offset" not in words or not words & ZONE_WORDS or facts.number_count < facts.value_count:
        return None
    largest = max(abs(facts.smallest), facts.largest)
    if largest <= HOURS_MAX:
        return lambda local: f"timezone('UTC', {local} - to_seconds(3600 * CAST({name} AS DOUBLE)))"
    value = f"TRY_CAST({table.value(column.name)} AS DOUBLE)"
    (are_quarters,) = one_row(
        connection,
        f"SELECT bool_and({value} % {QUARTER_HOUR} = 0) FROM raw.t{table.source.index}",
    )
    if largest > MINUTES_MAX or not are_quarters:
        return None
    if words & UTC_WORDS:
        return lambda local: f"timezone('UTC', {local} - to_minutes(CAST({name} AS INTEGER)))"
    # Browsers count to the west, others to the east: the later of both.
    return lambda local: f"timezone('UTC', {local} + to_minutes(abs(CAST({name} AS INTEGER))))"


def _say_zone_of_parent(
    connection: Connection, table: TableDraft, tables: Sequence[TableDraft]
) -> None:
    """Check local times of rows whose parent names their zone."""
    parents = {key.table for key in table.every_key()} - {table.name}
    zoned = [other for other in tables if other.name in parents and len(other.zone_columns) == 1]
    if table.zone_columns or len(zoned) != 1:
        return
    (parent,), (zone,) = zoned, zoned[0].zone_columns
    for column in table.columns:
        is_local = LOCAL_WORDS & set(words_of(column.name)) and _is_local(table, column)
        if column.stype == "timestamp" and is_local:
            moment = f"timezone({name_sql(connection, zone)}, {_local(connection, column)})"
            taken = f'"{zone}": {{"stype": "categorical", "taken_from": "{parent.name}.{zone}"}}'
            made = f'"{column.name}_utc": {{"stype": "timestamp", "expression": "{moment}"}}'
            column.check(
                f"is read as UTC; if it is local time in the zone of {parent.name}.{zone}, set "
                f"stype ignored and add the columns {taken} and {made}",
                Cost.FUTURE,
            )


def _is_local(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column of times may hold those of a clock on the wall."""
    return (
        _is_naive(table, column)
        and not table.holds_days(column.name)
        and column.same_time_as is None
        and not UTC_WORDS & set(words_of(column.name))
    )
