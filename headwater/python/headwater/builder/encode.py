"""Canonical tables to the C builder: declarations, then rows, parents, seeds and embeddings.

Columns are numbered over the whole store: those of the graph's tables in schema order, ignored
ones included, then two per derived task (obs_time and target). `Layout` holds that numbering and
is the only place that computes it; the builder's answers are checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headwater.binding import CONTEXT_LABELS, KNOWN, SEMANTIC_TYPES, Builder, TaskSpec
from headwater.builder.convert import CanonicalTable
from headwater.builder.edges import Edges
from headwater.builder.journal import Journal
from headwater.builder.task_seeds import TaskSeeds, value_order
from headwater.embedding.text_vectors import category_phrase, column_phrase
from headwater.metadata.parts import MICROSECONDS, Column, ColumnRef
from headwater.sources.database import Connection

SEED_COLUMNS = "anchor, obs_time, target, labelled, split, position"


@dataclass(frozen=True)
class StoreColumn:
    """A column by its global number: of a table, or of a derived task."""

    owner: str  # the table, or the task
    name: str
    stype: str
    description: str = ""
    known_at: str = "creation"  # as in the metadata
    of_task: bool = False


@dataclass(frozen=True)
class Layout:
    """Tables, keys and tasks of the store, and the numbers of their columns."""

    tables: tuple[CanonicalTable, ...]  # those of the graph
    edges: tuple[Edges, ...]
    tasks: tuple[TaskSeeds, ...]
    columns: tuple[StoreColumn, ...]
    column_starts: tuple[int, ...]  # by table
    task_columns: tuple[tuple[int, int] | None, ...]  # obs_time and target, of a derived task

    @staticmethod
    def plan(
        tables: Sequence[CanonicalTable], edges: Sequence[Edges], tasks: Sequence[TaskSeeds]
    ) -> Layout:
        graph = tuple(table for table in tables if table.table.graph)
        columns: list[StoreColumn] = []
        starts: list[int] = []
        for table in graph:
            starts.append(len(columns))
            owner = table.table.name
            columns += [
                StoreColumn(owner, c.name, c.stype, c.description, c.known_at.to_json())
                for c in table.table.columns
            ]
        task_columns: list[tuple[int, int] | None] = []
        for seeds in tasks:
            if seeds.kind == "cell":
                task_columns.append(None)
                continue
            task, owner = seeds.task, seeds.task.name
            task_columns.append((len(columns), len(columns) + 1))
            columns.append(StoreColumn(owner, "obs_time", "timestamp", of_task=True))
            columns.append(StoreColumn(owner, task.target_column, task.target_stype, of_task=True))
        return Layout(
            graph, tuple(edges), tuple(tasks), tuple(columns), tuple(starts), tuple(task_columns)
        )

    def table_number(self, name: str) -> int:
        return [table.table.name for table in self.tables].index(name)

    def column_number(self, column: ColumnRef) -> int:
        number = self.table_number(column.table)
        return self.column_starts[number] + self.tables[number].slot(column.column)

    def target_column(self, seeds: TaskSeeds) -> int:
        """Global column of a task's target."""
        own = self.task_columns[seeds.index]
        if own is not None:
            return own[1]
        return self.column_number(ColumnRef(seeds.task.anchor_table, seeds.task.target_column))

    def categorical(self) -> Iterator[tuple[int, str, str]]:
        """Of every categorical column of a table its number, its name, and SQL of its values."""
        for table, start in zip(self.tables, self.column_starts, strict=True):
            for slot, column in enumerate(table.table.columns):
                if column.stype == "categorical":
                    yield start + slot, column.name, f"SELECT c{slot} AS v FROM {table.relation}"

    def column_phrases(self) -> list[str]:
        return [
            column_phrase(column.name, column.owner, column.description) for column in self.columns
        ]


class Encoder:
    """Feeds a builder from a DuckDB connection."""

    def __init__(
        self, builder: Builder, connection: Connection, layout: Layout, journal: Journal
    ) -> None:
        self.builder, self.connection, self.layout = builder, connection, layout
        self.journal = journal
        self.categories: dict[int, tuple[str, ...]] = {}  # by global column
        self.edge_counts: dict[int, int] = {}  # by foreign key

    def declare(self) -> None:
        for table in self.layout.tables:
            self.builder.add_table(
                table.table.name,
                key_part_count=len(table.table.primary_key),
                temporal=table.temporal,
                null_time_visible=table.table.null_time == "visible",
                days=table.days,
            )
        for number, table in enumerate(self.layout.tables):
            for column in table.table.columns:
                self.declare_column(number, table, column)
        for edges in self.layout.edges:
            child = edges.child.table.name
            self.builder.add_key(
                self.layout.table_number(child),
                self.layout.table_number(edges.parent.table.name),
                [self.layout.column_number(ColumnRef(child, c)) for c in edges.key.columns],
            )
        for seeds in self.layout.tasks:
            self.declare_task(seeds)

    def declare_column(self, number: int, table: CanonicalTable, column: Column) -> None:
        known = column.known_at
        known_column = None
        if known.column is not None:
            known_column = self.layout.column_number(ColumnRef(table.table.name, known.column))
        given = self.builder.add_column(
            number,
            column.name,
            stype=SEMANTIC_TYPES[column.stype],
            known=KNOWN[known.kind],
            known_column=known_column,
            known_offset_us=known_offset_us(table, column),
            temporal=column.name == table.table.temporal_column,
            stored=is_stored(table, column) and column.stype == "ignored",
            description=column.description.replace("\0", " "),  # C ends texts by it
        )
        expected = self.layout.column_number(ColumnRef(table.table.name, column.name))
        assert given == expected, (given, expected)

    def declare_task(self, seeds: TaskSeeds) -> None:
        task, cell = seeds.task, seeds.kind == "cell"
        spec = TaskSpec(
            name=task.name,
            anchor_table=self.layout.table_number(task.anchor_table),
            target_column=self.layout.target_column(seeds) if cell else None,
            target_name=task.target_column,
            target_stype=SEMANTIC_TYPES[task.target_stype],
            categories=list(seeds.categories),
            hidden=[self.layout.column_number(column) for column in seeds.hidden],
            exclusive=seeds.exclusive,
            given_split=seeds.given_split,
            context_labels=CONTEXT_LABELS[seeds.context_labels],
            label_times=seeds.label_times,
        )
        self.builder.add_task(spec)
        if not cell and task.target_stype == "categorical":
            self.categories[self.layout.target_column(seeds)] = seeds.categories

    def write(self, tell: Callable[[str], None]) -> None:
        """Categories, rows of every table, edges of every key, seeds of every task."""
        self.write_categories()
        for number, table in enumerate(self.layout.tables):
            tell(table.table.name)
            selected = ", ".join(stream_columns(table))
            with self.stream(f"SELECT {selected} FROM {table.relation}") as rows:
                self.builder.write_rows(number, rows)
        for edges in self.layout.edges:
            tell(f"{edges.child.table.name}.{'+'.join(edges.key.columns)}")
            with self.stream(edges.pairs()) as pairs:
                count = self.builder.write_edges(edges.index, pairs, edges.null_count)
            self.edge_counts[edges.index] = count
        for seeds in self.layout.tasks:
            tell(seeds.task.name)
            columns = SEED_COLUMNS + (", known_at" if seeds.label_times else "")
            with self.stream(f"SELECT {columns} FROM {seeds.relation}") as rows:
                self.builder.write_seeds(seeds.index, rows)

    @contextmanager
    def stream(self, query: str) -> Iterator[Any]:
        """What a query gives as an Arrow stream; one cursor for each."""
        cursor = self.connection.cursor()
        try:
            yield cursor.sql(query)
        finally:
            cursor.close()

    def write_categories(self) -> None:
        """The categories of all tables, in value order."""
        done = self.journal.find("categories")
        if done is None:
            done = {
                number: value_order(self.connection, query)
                for number, _, query in self.layout.categorical()
            }
            self.journal.record("categories", done)
        for number, values in done.items():
            self.categories[int(number)] = tuple(values)
            self.builder.set_categories(int(number), list(values))

    def category_phrases(self) -> list[str]:
        """Phrases of all categories in the order of the store's category numbers."""
        blocks = [
            (self.builder.column_stats(column)["category_start"], column, values)
            for column, values in self.categories.items()
            if values
        ]
        phrases: list[str] = []
        for start, column, values in sorted(blocks):
            assert start == len(phrases), (start, len(phrases))
            name = self.layout.columns[column].name
            phrases += [category_phrase(name, value) for value in values]
        return phrases


def known_offset_us(table: CanonicalTable, column: Column) -> int:
    """What is told on a day is known when the day is over."""
    known = column.known_at
    if known.column is None:
        return known.offset_us
    by_day = table.days and known.column == table.table.temporal_column
    return MICROSECONDS["day"] if by_day or known.column in table.day_columns else 0


def is_stored(table: CanonicalTable, column: Column) -> bool:
    """Whether a column has a place in the row records."""
    if column.stype != "ignored":
        return True
    timed_by = {other.known_at.column for other in table.table.columns}
    return column.name == table.table.temporal_column or column.name in timed_by


def stream_columns(table: CanonicalTable) -> list[str]:
    """SQL of what hw_builder_write_rows takes of a table: its time, key parts, then cells."""
    selected = [table.time()] if table.temporal else []
    for part in table.table.primary_key:  # an integer as it is: the builder prints it
        is_integer = table.types[table.slot(part)] == "BIGINT"
        text = table.key_text(part, table.relation.partition(".")[2])
        selected.append(f"c{table.slot(part)}" if is_integer else text)
    selected += [
        _cell(f"c{slot}", column.stype)
        for slot, column in enumerate(table.table.columns)
        if is_stored(table, column)
    ]
    return [f"{sql} AS s{place}" for place, sql in enumerate(selected)]


def _cell(value: str, stype: str) -> str:
    if stype == "identifier":
        return f"({value} IS NOT NULL OR NULL)"
    if stype == "numerical":
        return f"CAST({value} AS DOUBLE)"
    return f"epoch_us({value})" if stype in ("timestamp", "ignored") else value
