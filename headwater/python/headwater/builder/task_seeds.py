"""From tasks to seeds: which anchor row, at which time, with which target, in which split.

A task's rows come from its query, run in a DuckDB that may reach nothing but the tables,
or from label tables (label_tables.py). `make_seeds` matches them to anchor rows,
converts the target, settles observation time and split, drops rows that are not seeds by
docs/reference/sampling.md, counts each reason, and leaves `seeds.s<k>` in the order of the store:
(anchor, obs_time, target, labelled, split, position).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.builder.convert import CanonicalTable
from headwater.builder.label_tables import tables_read
from headwater.errors import HeadwaterError, TaskError, collected, nearest, raise_together
from headwater.metadata.from_json import shortened
from headwater.metadata.parts import MICROSECONDS, SPLITS, ColumnRef, ForeignKey, Task
from headwater.metadata.schema import Schema
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.key_values import KeyPart, alike_by_type, key_part, settle_equality
from headwater.sources.source import SourceColumn, literal, quote
from headwater.sources.value_sql import (
    INTEGER_TYPES,
    NAIVE_TYPES,
    ZONED_TYPE,
    canonical_text,
    category_text,
    to_boolean,
    to_numerical,
    to_timestamp,
)
from headwater.store.dropped_seeds import (
    NEWER,
    NO_LABEL,
    NOT_A_TIME,
    NULL_KEY,
    NULL_TIME,
    SAME_DAY,
    UNKNOWN_KEY,
    UNTIMED,
    dropped_text,
)
from headwater.store.extreme_values import FLOAT32_MAX

FOREVER_US = 9_223_372_036_854_775_807  # obs_time of a seed that sees everything
DAY_US = MICROSECONDS["day"]
SHOWN_COLUMNS = 20  # of a result, in a message
TIME_TYPES = ("DATE", ZONED_TYPE, "VARCHAR", *NAIVE_TYPES)


@dataclass(frozen=True)
class Dropped:
    """Rows that are not seeds, by reason (`store/dropped_seeds.py`)."""

    counts: dict[str, int]
    by_split: dict[str, dict[str, int]]  # if splits are given
    unknown_key: dict[str, str] | None  # the first that names no row, and its column

    def entry(self) -> dict[str, Any]:
        """As metadata.json of a store has it."""
        return {
            "dropped": self.counts,
            "dropped_by_split": self.by_split,
            "unknown_key": self.unknown_key,
        }


@dataclass(frozen=True)
class OpenWindows:
    """Seeds whose label window ends after the data: their labels could not be observed yet."""

    seeds: int
    since_us: int  # the first of their times
    tables: tuple[str, ...]  # that the query reads and that have times
    until_us: int  # the end of the newest day in these
    kept: bool  # whether they have their labels all the same

    def entry(self) -> dict[str, Any]:
        """As metadata.json of a store has it."""
        return {
            "seeds": self.seeds, "asked_since_us": self.since_us, "tables": list(self.tables),
            "data_until_us": self.until_us, "labels_kept": self.kept,
        }  # fmt: skip


@dataclass(frozen=True)
class TaskSeeds:
    """A task as the store takes it, and what became of its rows; its seeds are in `relation`."""

    task: Task
    index: int
    kind: str  # "cell" or "derived"
    context_labels: str
    exclusive: bool
    given_split: bool
    hidden: tuple[ColumnRef, ...]
    categories: tuple[str, ...]  # of a derived categorical target
    row_count: int  # of the query's result or the label tables
    dropped: Dropped
    bad_target_count: int  # values that did not fit the target's type and became NULL
    seed_count: int
    split_counts: tuple[int, ...]  # of a given split
    unlabelled_count: int
    repeated: tuple[int, int]  # (anchor, time)s of several seeds; of these with different targets
    null_target_count: int
    unlike_cells: int  # of a task that is one of cells by its names: other answers than these
    obs_range_us: tuple[int, int] | None  # None: every seed sees everything
    latest_train_us: int | None  # of a given, temporal split
    balance: dict[str, Any]  # classes or quantiles of the target
    open_windows: OpenWindows | None = None  # None: no seed has one

    @property
    def relation(self) -> str:
        return f"seeds.s{self.index}"

    @property
    def label_times(self) -> bool:
        """Whether the seeds say when their labels are known (`known_at` in the relation)."""
        return self.task.label_window_us is not None or self.task.label_known_at is not None

    def entry(self) -> dict[str, Any]:
        """The counts of rows, as metadata.json of a store has them."""
        return {
            "split": "given" if self.given_split else "hash",
            "rows": self.row_count,
            **self.dropped.entry(),
            "open_windows": None if self.open_windows is None else self.open_windows.entry(),
        }


@dataclass(frozen=True)
class _Piece:
    """Rows of a task that came together: a query's result, or the label table of one split."""

    relation: str
    split: str | None  # None: by the split column or by hash
    columns: dict[str, str]  # name to DuckDB type
    local: bool  # naive times are in the schema's zone; in a query's result they are UTC


def make_seeds(
    connection: Connection, schema: Schema, tables: Sequence[CanonicalTable]
) -> list[TaskSeeds]:
    """Seeds of every task, from `labels.*` to `seeds.s<k>`."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS seeds")
    seeds = []
    problems: list[HeadwaterError] = []
    for index, task in enumerate(schema.tasks):
        connection.execute("DROP TABLE IF EXISTS labels.matched")  # of a task that failed
        with collected(problems):
            seeds.append(_SeedMaker(connection, schema, tables, task, index).make())
    raise_together(problems)
    return seeds


def stats_until_us(tasks: Sequence[TaskSeeds]) -> int:
    """Moments use rows up to the latest train obs_time of the tasks with temporal splits."""
    times = [seeds.latest_train_us for seeds in tasks if seeds.latest_train_us is not None]
    return min(times, default=FOREVER_US)


def value_order(connection: Connection, values: str) -> tuple[str, ...]:
    """Distinct texts of a query's column `v`: as numbers if all are numbers, else as text."""
    rows = connection.execute(
        f"SELECT v FROM (SELECT DISTINCT v, TRY_CAST(v AS DOUBLE) AS n FROM ({values}) "
        "WHERE v IS NOT NULL) ORDER BY CASE WHEN count(*) OVER () = count(n) OVER () THEN n END, v"
    ).fetchall()
    return tuple(row[0] for row in rows)


class _SeedMaker:
    """One task on its way from the rows of its query or label tables to sorted seeds."""

    def __init__(
        self,
        connection: Connection,
        schema: Schema,
        tables: Sequence[CanonicalTable],
        task: Task,
        index: int,
    ) -> None:
        self.connection, self.schema, self.tables = connection, schema, tables
        self.anchor = next(t for t in tables if t.table.name == task.anchor_table)
        # Names in a query ignore case, so a target "Churned" is the column "churned": taken for
        # another one, that column would show the answer.
        folded = {name.casefold(): name for name in self.anchor.table.column_names()}
        target = folded.get(task.target_column.casefold(), task.target_column)
        self.task, self.index = replace(task, target_column=target), index
        self.where = f"task '{task.name}'"
        self.anchor_columns = task.anchor_columns(self.anchor.table)
        self.kind = self.settle_kind()
        self.context_labels = self.settle_labels()
        self.check_times()
        self.read, self.data_until_us = self.find_end()

    def settle_kind(self) -> str:
        """A cell task if the anchor table has the target column, with the target's type."""
        same = [c for c in self.anchor.table.columns if c.name == self.task.target_column]
        if self.task.kind is not None:
            return self.task.kind
        return "cell" if same and same[0].stype == self.task.target_stype else "derived"

    def settle_labels(self) -> str:
        """Whose labels contexts show. With a foreign key as target none: how many rows still point
        at each row would tell the answer."""
        given = self.task.context_labels
        keys = [key for key in self.asked_keys() if self.schema.table(key.table).graph]
        if not keys:
            return given or "train"
        if given not in (None, "none"):
            column = f"{self.task.anchor_table}.{self.task.target_column}"
            raise TaskError(
                f"{self.where} predicts '{column}', a foreign key to '{keys[0].table}', and has "
                f"'context_labels': '{given}': how many rows still point at each row of "
                f"'{keys[0].table}' would tell the answer; leave 'context_labels' out, or write "
                "'none'"
            )
        return "none"

    def asked_keys(self) -> list[ForeignKey]:
        """Foreign keys of the anchor table that have the target of a cell task."""
        target = self.task.target_column
        keys = self.anchor.table.every_key() if self.kind == "cell" else []
        return [key for key in keys if target in key.columns]

    def taken_over_target(self) -> list[ColumnRef]:
        """Columns of the anchor table that are taken from the row which a key names that is asked
        for: they name the answer as the key does."""
        asked = {key.table for key in self.asked_keys()}
        return [
            ColumnRef(self.anchor.table.name, column.name)
            for column in self.anchor.table.columns
            if column.taken_from is not None and column.taken_from.table in asked
        ]

    def hidden(self) -> tuple[ColumnRef, ...]:
        """Withheld columns: those named, and a column that has a derived target's name."""
        hidden = list(self.task.hidden_columns)
        same = ColumnRef(self.task.anchor_table, self.task.target_column)
        hidden += self.taken_over_target()
        if self.kind == "derived" and same.column in self.anchor.table.column_names():
            hidden.append(same)
        return tuple(
            column
            for column in dict.fromkeys(hidden)
            if self.schema.table(column.table).column(column.column).stype != "ignored"
        )

    def check_times(self) -> None:
        """A derived task without a time of its own would see its own label window."""
        observed, target = self.task.observation_time_column, self.task.target_column
        temporal = [t.table.name for t in self.tables if t.temporal and t.table.graph]
        consents = self.task.sees_everything
        if self.kind == "derived" and observed is None and temporal and not consents:
            raise TaskError(
                f"{self.where} needs an 'observation_time_column': the database has times "
                f"(table '{temporal[0]}'), and without one a context would show the label window; "
                'if contexts may show everything, state "sees_everything": true'
            )
        is_time = self.kind == "cell" and target == self.anchor.table.temporal_column
        if is_time and observed in (None, target) and not consents:
            raise TaskError(
                f"{self.where} predicts the time of its own rows ('{target}'); name another "
                "'observation_time_column'"
            )

    def find_end(self) -> tuple[tuple[str, ...], int]:
        """The tables with times that the query reads, and the end of the newest day in them: a
        window that ends later has not been observed to its end. FOREVER_US if no window is stated,
        or no time."""
        task, nothing = self.task, ((), FOREVER_US)
        if task.query is None or task.label_window_us is None or task.label_known_at is not None:
            return nothing
        names = tables_read(self.connection, task, [table.table.name for table in self.tables])
        found = [t for t in self.tables if t.table.name in names and t.temporal and t.row_count]
        ends = []
        for table in found:
            newest = self.newest(table)
            if newest is not None:
                # A day that counts when it is over has ended already.
                ends.append(newest if table.days else (newest // DAY_US + 1) * DAY_US)
        return (tuple(t.table.name for t in found), max(ends)) if ends else nothing

    def newest(self, table: CanonicalTable) -> int | None:
        """The newest time of a table without those that are far from all others, such as a year
        2200 by mistake: further after the last hundredth than this is after half of the rows."""
        times = f"(SELECT {table.time()} AS t FROM {table.relation})"
        row = one_row(
            self.connection,
            f"SELECT max(t) FILTER (WHERE t <= late + (late - half)) FROM {times}, (SELECT "
            f"quantile_disc(t, 0.99) AS late, quantile_disc(t, 0.5) AS half FROM {times})",
        )
        return None if row[0] is None else int(row[0])

    def check_anchor(self) -> None:
        """Refuse columns that say of several rows that they are the anchor."""
        primary_key = self.anchor.table.primary_key
        if set(self.anchor_columns) == set(primary_key):
            return
        parts = [self.anchor.key_text(name, "p") for name in self.anchor_columns]
        has_key = " AND ".join(f"{part} IS NOT NULL" for part in parts)
        repeated = self.connection.execute(
            f"SELECT count(*), {', '.join(parts)} FROM {self.anchor.relation} p WHERE {has_key} "
            "GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL DESC LIMIT 1"
        ).fetchone()
        if repeated is None:
            return
        name, named = self.anchor.table.name, " and ".join(f"'{c}'" for c in self.anchor_columns)
        value = ", ".join(shortened(part) for part in repeated[1:])
        referred = [
            f"; to ask about '{key.table}', to which it refers, name that as the anchor table"
            for key in self.anchor.table.every_key()
            if key.columns == self.anchor_columns
        ]
        raise TaskError(
            f"the anchor of {self.where} must be a primary key or a unique column: {repeated[0]:,} "
            f"rows of '{name}' have {named} {value}; its primary key is {', '.join(primary_key)}"
            f"{''.join(referred[:1])}"
        )

    def make(self) -> TaskSeeds:
        self.check_anchor()
        pieces = self.pieces()
        selects, offset = [], 0
        for piece in pieces:
            selects.append(self.canonical(piece, offset))
            offset += count_rows(self.connection, f"SELECT count(*) FROM {piece.relation}")
        self.match(" UNION ALL ".join(selects))
        self.check_splits()
        dropped = self.dropped()
        bad_target_count = self.count("target_given AND target IS NULL")
        open_windows = self.open_windows()
        self.connection.execute(
            f"CREATE TABLE seeds.s{self.index} AS SELECT anchor, obs_time, target, labelled, "
            f"CAST(split AS INTEGER) AS split, position, {self.known_at()} AS known_at "
            "FROM labels.matched WHERE reason IS NULL "
            "ORDER BY anchor, obs_time, target NULLS LAST, split NULLS LAST, position"
        )
        self.connection.execute("DROP TABLE labels.matched")
        described = self.describe(offset, dropped, bad_target_count)
        return replace(described, open_windows=open_windows)

    def open_windows(self) -> OpenWindows | None:
        query = (
            "SELECT count(*), min(obs_time) FROM labels.matched WHERE is_open AND reason IS NULL"
        )
        count, since = one_row(self.connection, query)
        if not count:
            return None
        kept = self.task.allow_open_window
        return OpenWindows(count, since, self.read, self.data_until_us, kept)

    def pieces(self) -> list[_Piece]:
        if self.task.query is not None:
            return [self.piece(f"labels.q{self.index}", None)]
        pieces = [
            self.piece(f"labels.q{self.index}_{split}", split) for split, _ in self.task.seeds
        ]
        if all(self.find(piece, self.task.target_column) is None for piece in pieces):
            raise TaskError(
                f"no label table of {self.where} has the target column '{self.task.target_column}'"
            )
        return pieces

    def piece(self, relation: str, split: str | None) -> _Piece:
        described = self.connection.execute(f"DESCRIBE {relation}").fetchall()
        columns = {row[0]: row[1] for row in described}
        return _Piece(relation, split, columns, local=split is not None)

    def find(self, piece: _Piece, name: str) -> str | None:
        """The result's spelling of a column: names ignore case, as in DuckDB."""
        folded = {column.casefold(): column for column in piece.columns}
        return folded.get(name.casefold())

    def column(self, piece: _Piece, name: str, role: str) -> tuple[str, str]:
        """SQL and type of a column of the result that must be there."""
        found = self.find(piece, name)
        if found is None:
            what = "query" if piece.split is None else f"{piece.split} label table"
            shown = list(piece.columns)
            if len(shown) > SHOWN_COLUMNS:
                shown[SHOWN_COLUMNS:] = ["..."]
            raise TaskError(
                f"the {what} of {self.where} has no column '{name}' ({role})"
                f"{nearest(name, piece.columns)}; it has {', '.join(shown)}"
            )
        return quote(found), piece.columns[found]

    def canonical(self, piece: _Piece, offset: int) -> str:
        """SQL: the piece with canonical key, time, target and split."""
        selected = [f"{sql} AS k{i}" for i, sql in enumerate(self.keys(piece))]
        selected += self.times(piece) + self.targets(piece) + [self.label_time(piece)]
        if piece.split is not None:
            selected.append(f"{SPLITS.index(piece.split)} AS split, NULL AS split_word")
        elif self.task.split_column is not None:
            sql, type_name = self.column(piece, self.task.split_column, "split_column")
            word = canonical_text(sql, type_name)
            cases = " ".join(f"WHEN '{split}' THEN {i}" for i, split in enumerate(SPLITS))
            selected.append(f"CASE {word} {cases} END AS split, {word} AS split_word")
        else:
            selected.append("NULL::INTEGER AS split, NULL AS split_word")
        # A column of that name hides the number of a row.
        row = "rowid" if self.find(piece, "rowid") is None else "row_number() OVER () - 1"
        return f"SELECT {', '.join(selected)}, {row} + {offset} AS position FROM {piece.relation}"

    def keys(self, piece: _Piece) -> list[str]:
        """SQL of the anchor's key parts, of a type that compares with the anchor table's."""
        parts = self.anchor_columns
        found = []
        for name, part in zip(self.task.anchor_key or parts, parts, strict=True):
            sql, type_name = self.column(piece, name, "anchor_key")
            direct = type_name in INTEGER_TYPES and self.integer_key(part)
            found.append(f"CAST({sql} AS BIGINT)" if direct else canonical_text(sql, type_name))
        return found

    def integer_key(self, part: str) -> bool:
        """Whether a part compares as an integer: if every piece has integers there."""
        if self.anchor.types[self.anchor.slot(part)] != "BIGINT":
            return False
        position = self.anchor_columns.index(part)
        name = (self.task.anchor_key or self.anchor_columns)[position]
        types = [piece.columns[self.find(piece, name) or name] for piece in self.pieces()]
        return all(type_name in INTEGER_TYPES for type_name in types)

    def times(self, piece: _Piece) -> list[str]:
        if self.task.observation_time_column is None:
            return ["NULL::BIGINT AS obs", "false AS obs_given"]
        name = self.task.observation_time_column
        sql, _, stamp = self.stamp(piece, name, "observation_time_column")
        return [f"epoch_us({stamp}) AS obs", f"{sql} IS NOT NULL AS obs_given"]

    def stamp(self, piece: _Piece, name: str, role: str) -> tuple[str, str, str]:
        """SQL and type of a column of times, and SQL of its times in UTC."""
        sql, type_name = self.column(piece, name, role)
        if type_name not in TIME_TYPES:
            raise TaskError(f"column '{name}' of {self.where} is {type_name}, expected times")
        zone = self.schema.timezone if piece.local else None
        return sql, type_name, to_timestamp(sql, type_name, zone=zone)[0]

    def targets(self, piece: _Piece) -> list[str]:
        name, stype = self.task.target_column, self.task.target_stype
        none = {"numerical": "DOUBLE", "timestamp": "BIGINT", "boolean": "BOOLEAN"}
        if piece.split is not None and self.find(piece, name) is None:
            null = f"NULL::{none.get(stype, 'VARCHAR')} AS target"
            return [null, "false AS target_given", "false AS labelled"]
        sql, type_name = self.column(piece, name, "target_column")
        if stype == "numerical":
            target = f"CAST({to_numerical(sql, type_name)[0]} AS DOUBLE)"
        elif stype == "boolean":
            target = to_boolean(sql, type_name)[0]
        elif stype == "timestamp":
            zone = self.schema.timezone if piece.local else None
            target = f"epoch_us({to_timestamp(sql, type_name, zone=zone)[0]})"
        else:
            target = category_text(sql, type_name)
        return [f"{target} AS target", f"{sql} IS NOT NULL AS target_given", "true AS labelled"]

    def label_time(self, piece: _Piece) -> str:
        """SQL of when the label is known by `label_known_at`; a day counts when it is over."""
        name = self.task.label_known_at
        unlabelled = piece.split is not None and self.find(piece, self.task.target_column) is None
        if name is None or (unlabelled and self.find(piece, name) is None):
            return "NULL::BIGINT AS told"
        sql, type_name, stamp = self.stamp(piece, name, "label_known_at")
        by_day = "true" if type_name == "DATE" else "false"
        if type_name == "VARCHAR":
            by_day = f"NOT contains({sql}, ':')"
        return f"epoch_us({stamp}) + CASE WHEN {by_day} THEN {DAY_US} ELSE 0 END AS told"

    def known_at(self) -> str:
        """SQL of when the label of a matched row is known; NULL: never."""
        window = self.task.label_window_us
        if self.task.label_known_at is not None:
            return "told"
        if window is None:
            return "NULL::BIGINT"
        return f"CASE WHEN obs_time < {FOREVER_US - window} THEN obs_time + {window} END"

    def equal(self, pieces: str) -> str:
        """SQL: whether a row `s` of the pieces names an anchor `p`, as a foreign key would."""
        parts = self.anchor_columns
        if all(map(self.integer_key, parts)):
            return " AND ".join(f"s.k{i} = p.c{self.anchor.slot(c)}" for i, c in enumerate(parts))
        own = [self.key_part(pieces, i) for i in range(len(parts))]
        other = [self.anchor.key_part(self.connection, part) for part in parts]
        found = zip(own, other, settle_equality(self.connection, own, other).alike, strict=True)
        return " AND ".join(f"{s.text('s.', way)} = {p.text('p.', way)}" for s, p, way in found)

    def key_part(self, pieces: str, place: int) -> KeyPart:
        """A part of the key by which the pieces name anchors."""
        name = (self.task.anchor_key or self.anchor_columns)[place]
        types = [self.column(piece, name, "anchor_key")[1] for piece in self.pieces()]
        stated = frozenset.union(*(alike_by_type(SourceColumn(name, kind)) for kind in types))
        kind = "BIGINT" if self.integer_key(self.anchor_columns[place]) else "VARCHAR"
        value = f"k{place}"
        return key_part(self.connection, f"({pieces})", lambda a: a + value, kind, stated)

    def match(self, pieces: str) -> None:
        """Find anchor rows and settle why a row is no seed, in `labels.matched`."""
        parts, equal = self.anchor_columns, self.equal(pieces)
        at = self.anchor.time("p.") if self.anchor.temporal else "NULL::BIGINT"
        if self.task.observation_time_column is not None:
            obs = "s.obs"
        elif self.anchor.temporal and not self.task.sees_everything:
            obs = at
        else:
            obs = f"{FOREVER_US}::BIGINT"
        null_key = " OR ".join(f"k{i} IS NULL" for i in range(len(parts)))
        newer = untimed = "false"
        if self.anchor.temporal and not self.task.allow_future_anchor:
            newer = "visible_at > obs_time"
            if self.anchor.table.null_time != "visible":
                untimed = f"visible_at IS NULL AND obs_time < {FOREVER_US}"
        same_day = f"visible_at - {DAY_US} <= obs_time" if self.anchor.days else "false"
        unlabelled = "labelled AND target IS NULL" if self.task.require_label else "false"
        is_open = "false"
        if self.data_until_us < FOREVER_US:
            window = self.task.label_window_us or 0
            # A sum that would overflow is of a seed without a time.
            is_open = (
                f"(labelled AND obs_time < {FOREVER_US - window} "
                f"AND obs_time + {window} > {self.data_until_us})"
            )
        is_lost = "false" if self.task.allow_open_window else "is_open"
        self.connection.execute(
            "CREATE TABLE labels.matched AS SELECT * REPLACE ("
            f"CASE WHEN NOT {is_lost} THEN target END AS target, "
            f"labelled AND NOT {is_lost} AS labelled, "
            f"target_given AND NOT {is_lost} AS target_given) FROM (SELECT *, CASE "
            f"WHEN {null_key} THEN {literal(NULL_KEY)} "
            f"WHEN anchor IS NULL THEN {literal(UNKNOWN_KEY)} "
            f"WHEN obs_time IS NULL AND obs_given THEN {literal(NOT_A_TIME)} "
            f"WHEN obs_time IS NULL THEN {literal(NULL_TIME)} "
            f"WHEN {newer} AND {same_day} THEN {literal(SAME_DAY)} "
            f"WHEN {newer} THEN {literal(NEWER)} "
            f"WHEN {untimed} THEN {literal(UNTIMED)} "
            f"WHEN {unlabelled} THEN {literal(NO_LABEL)} END AS reason, "
            f"coalesce({is_open}, false) AS is_open "
            f"FROM (SELECT s.*, p.rowid AS anchor, {at} AS visible_at, {obs} AS obs_time "
            f"FROM ({pieces}) s LEFT JOIN {self.anchor.relation} p ON {equal}))"
        )

    def check_splits(self) -> None:
        if self.task.split_column is None:
            return
        query = "SELECT count(*), min(split_word) FROM labels.matched WHERE split IS NULL"
        count, word = one_row(self.connection, query)
        if count:
            found = "NULL" if word is None else f"'{word}'"
            raise TaskError(
                f"'{self.task.split_column}' of {self.where} is {found} in {count} rows, "
                "expected train, val or test"
            )

    def dropped(self) -> Dropped:
        rows = self.connection.execute(
            "SELECT reason, split, count(*) FROM labels.matched WHERE reason IS NOT NULL "
            "GROUP BY reason, split ORDER BY reason, split"
        ).fetchall()
        counts: dict[str, int] = {}
        by_split: dict[str, dict[str, int]] = {}
        for reason, split, count in rows:
            counts[reason] = counts.get(reason, 0) + count
            if split is not None:
                by_split.setdefault(SPLITS[split], {})[reason] = count
        return Dropped(counts, by_split, self.unknown_key() if UNKNOWN_KEY in counts else None)

    def unknown_key(self) -> dict[str, str]:
        """The first key that names no row, and the columns in which it was looked for."""
        parts = self.anchor_columns
        selected = ", ".join(f"CAST(k{i} AS VARCHAR)" for i in range(len(parts)))
        key = one_row(
            self.connection,
            f"SELECT {selected} FROM labels.matched WHERE reason = {literal(UNKNOWN_KEY)} "
            "ORDER BY position LIMIT 1",
        )
        return {
            "column": f"{self.anchor.table.name}.{'+'.join(parts)}",
            "key": ", ".join(shortened(part) for part in key),
        }

    def count(self, condition: str) -> int:
        return count_rows(self.connection, f"SELECT count(*) FROM labels.matched WHERE {condition}")

    def describe(self, row_count: int, dropped: Dropped, bad_targets: int) -> TaskSeeds:
        relation = f"seeds.s{self.index}"
        row = one_row(
            self.connection,
            f"SELECT count(*), count(*) FILTER (WHERE NOT labelled), "
            f"count(*) FILTER (WHERE labelled AND target IS NULL), "
            f"min(obs_time), max(obs_time), "
            f"max(obs_time) FILTER (WHERE split = 0), min(obs_time) FILTER (WHERE split > 0), "
            f"{', '.join(f'count(*) FILTER (WHERE split = {i})' for i in range(len(SPLITS)))} "
            f"FROM {relation}",
        )
        repeated = one_row(
            self.connection,
            "SELECT count(*), count(*) FILTER (WHERE answers > 1) FROM (SELECT count(DISTINCT "
            f"target) AS answers FROM {relation} GROUP BY anchor, obs_time HAVING count(*) > 1)",
        )
        categories = self.categories(relation)
        if self.kind == "derived" and self.task.target_stype == "categorical" and not categories:
            raise TaskError(self.without_category(row_count, dropped, row[0]))
        given = bool(self.task.seeds) or self.task.split_column is not None
        timed = row[3] is not None and row[3] != FOREVER_US
        train_end, later_start = row[5], row[6]
        temporal = given and timed and train_end is not None
        if later_start is not None and train_end is not None and later_start < train_end:
            temporal = False  # a given split that is not one in time
        cutoff = self.task.cutoff or ("exclusive" if self.kind == "cell" else "inclusive")
        return TaskSeeds(
            task=self.task,
            index=self.index,
            kind=self.kind,
            context_labels=self.context_labels,
            exclusive=cutoff == "exclusive",
            given_split=given,
            hidden=self.hidden(),
            categories=categories,
            row_count=row_count,
            dropped=dropped,
            bad_target_count=bad_targets,
            seed_count=row[0],
            split_counts=tuple(row[7:]),
            unlabelled_count=row[1],
            repeated=(repeated[0], repeated[1]),
            null_target_count=row[2],
            unlike_cells=self.unlike_cells(relation),
            obs_range_us=(row[3], row[4]) if timed else None,
            latest_train_us=train_end if temporal else None,
            balance=self.balance(relation),
        )

    def categories(self, relation: str) -> tuple[str, ...]:
        """Labels of a derived target; those of a cell target must be values of the column."""
        if self.task.target_stype != "categorical":
            return ()
        if self.kind == "derived":
            return value_order(self.connection, f"SELECT target AS v FROM {relation}")
        column = f"SELECT c{self.anchor.slot(self.task.target_column)} FROM {self.anchor.relation}"
        unknown = one_row(
            self.connection,
            f"SELECT min(target) FROM {relation} WHERE target NOT IN "
            f"(SELECT v FROM ({column}) AS x(v) WHERE v IS NOT NULL)",
        )
        if unknown[0] is not None:
            raise TaskError(
                f"{self.where} has the target {literal(unknown[0])}, which is no value of column "
                f"'{self.task.anchor_table}.{self.task.target_column}'"
            )
        return ()

    def unlike_cells(self, relation: str) -> int:
        """Answers that are not the cell they are taken for, where nobody said that they are."""
        if self.kind != "cell" or self.task.kind is not None:
            return 0
        slot = self.anchor.slot(self.task.target_column)
        cell = f"c{slot}"
        if self.task.target_stype == "timestamp" and self.anchor.types[slot] != "BIGINT":
            cell = f"epoch_us({cell})"
        return count_rows(
            self.connection,
            f"SELECT count(*) FROM {relation} s JOIN (SELECT rowid AS row, {cell} AS cell "
            f"FROM {self.anchor.relation}) ON anchor = row WHERE target <> cell",
        )

    def without_category(self, row_count: int, dropped: Dropped, seed_count: int) -> str:
        """Why a derived target has no category, of which a store needs one."""
        if seed_count:
            return (
                f"{self.where} has no category to predict: '{self.task.target_column}' is NULL in "
                f"all of its {seed_count:,} seeds; correct its query or label tables"
            )
        entry = {"anchor_table": self.task.anchor_table, "rows": row_count, **dropped.entry()}
        why = dropped_text(entry, self.anchor.table.temporal_column)
        return f"{self.where} has no seeds: {why}"

    def balance(self, relation: str) -> dict[str, Any]:
        """Classes with their counts, or five quantiles, over all labelled seeds."""
        if self.task.target_stype in ("boolean", "categorical"):
            rows = self.connection.execute(
                f"SELECT CAST(target AS VARCHAR), count(*) FROM {relation} "
                "WHERE target IS NOT NULL GROUP BY target ORDER BY count(*) DESC, target LIMIT 20"
            ).fetchall()
            return {"classes": dict(rows)}
        measures = "quantile_disc(target, [0.0, 0.25, 0.5, 0.75, 1.0])"
        if self.task.target_stype == "numerical":
            measures += f", count(*) FILTER (abs(target) > {FLOAT32_MAX!r})"
        found, *beyond = one_row(self.connection, f"SELECT {measures} FROM {relation}")
        balance = {"quantiles": list(found or ())}
        return balance | ({"beyond_float32": beyond[0]} if any(beyond) else {})
