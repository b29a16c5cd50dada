"""A database as plain Python values, for the reference sampler and the tests.

Rows stand in the order of the store: by time, then key. Times are int64 microseconds; nothing here
knows how the store or the library keep things. Semantic types are numbered as in batch.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

IDENTIFIER, NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL, TEXT, IGNORED = range(7)
STYPES = ("identifier", "numerical", "timestamp", "boolean", "categorical", "text", "ignored")
TRAIN, VAL, TEST, AD_HOC = range(4)
ALWAYS = -(2**63)  # the time of a row without time that is visible from the start
NEVER = 2**63 - 1  # of one that is hidden; as an obs_time: everything is visible
DAY = 86_400_000_000


@dataclass(frozen=True)
class Known:
    """When a column is known; kind is creation, never, column (plus offset) or offset."""

    kind: str = "creation"
    column: str = ""
    offset: int = 0


@dataclass(frozen=True)
class Column:
    name: str
    stype: int
    known: Known = Known()
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Key:
    """A foreign key: per row of its table the row of `parent_table` it points at, or None."""

    columns: tuple[str, ...]
    parent_table: str
    parents: tuple[int | None, ...]
    dangling_count: int = 0


@dataclass(frozen=True)
class Table:
    """`values[column]` has per row None, a bool (True for identifiers), float, int time or str."""

    name: str
    columns: tuple[Column, ...]
    values: dict[str, list[Any]]
    primary_key: tuple[tuple[str, ...], ...] = ()  # canonical text of each part, per row
    keys: tuple[Key, ...] = ()
    temporal: str | None = None
    days: bool = False
    null_time_visible: bool = False
    row_count: int = 0

    @cached_property
    def times(self) -> list[int] | None:
        """When each row becomes visible; None for a table without times."""
        if self.temporal is None:
            return None
        without = ALWAYS if self.null_time_visible else NEVER
        return [
            without if value is None else (value // DAY + 1) * DAY if self.days else value
            for value in self.values[self.temporal]
        ]

    def column_index(self, name: str) -> int:
        return [column.name for column in self.columns].index(name)

    def ordered_keys(self) -> list[Key]:
        """Single-column keys by column, then the composite ones as listed."""
        single = [key for key in self.keys if len(key.columns) == 1]
        single.sort(key=lambda key: self.column_index(key.columns[0]))
        return single + [key for key in self.keys if len(key.columns) > 1]


@dataclass(frozen=True)
class Seed:
    anchor: int  # row within the anchor table
    obs_time: int
    target: Any = None
    labelled: bool = True
    split: int | None = None  # None: by hash
    known: int | None = None  # when the label is known, where the task says; None: never


@dataclass(frozen=True)
class Task:
    """A cell task if `target` names a column of the anchor table and `derived` is not set."""

    name: str
    anchor_table: str
    target: str
    target_stype: int
    seeds: tuple[Seed, ...]
    derived: bool = True
    categories: tuple[str, ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    exclusive: bool = False
    context_labels: str | None = None
    label_times: bool = False


@dataclass(frozen=True)
class Options:
    sequence_length: int = 64
    max_rows: int = 32
    batch_size: int = 4
    child_width: int = 16
    max_hops: int | None = None
    per_row: bool = False
    recent: bool = False
    identifier_cells: str = "all"
    context_labels: str | None = None
    visible_until: tuple[int, int, int] = (NEVER, NEVER, NEVER)
    staleness: tuple[float, float] | None = None
    child_counts: bool = False
    label_rows: int = 0
    peer_labels: int = 0
    masked_objective: bool = False
    mask_ratio: float = 0.0
    max_targets: int = 0  # masked cells of one type in a sequence
    cell_dropout: float = 0.0
    seed_tables: tuple[str, ...] | None = None
    seed: int = 42
    split_seed: int = 123
    split_ratios: tuple[float, float, float] = (0.8, 0.1, 0.1)
    rank: int = 0
    world_size: int = 1
    dealt: bool = False  # shards
    task_weights: dict[str, float] | None = None
    round_robin: bool = False

    def with_(self, **changes: Any) -> Options:
        return replace(self, **changes)


@dataclass(frozen=True)
class Database:
    name: str
    tables: tuple[Table, ...]
    tasks: tuple[Task, ...] = ()
    row_starts: dict[str, int] = field(init=False)
    column_starts: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        rows, columns, row_starts, column_starts = 0, 0, {}, {}
        for table in self.tables:
            row_starts[table.name], column_starts[table.name] = rows, columns
            rows, columns = rows + table.row_count, columns + len(table.columns)
        object.__setattr__(self, "row_starts", row_starts)
        object.__setattr__(self, "column_starts", column_starts)

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def table_of_row(self, row: int) -> Table:
        return next(
            table
            for table in reversed(self.tables)
            if table.row_count and self.row_starts[table.name] <= row
        )

    def asks_for_key(self, task: Task) -> bool:
        """Whether the target of a cell task is a column of a foreign key."""
        keys = self.table(task.anchor_table).keys
        return not task.derived and any(task.target in key.columns for key in keys)

    @cached_property
    def table_column_count(self) -> int:
        return sum(len(table.columns) for table in self.tables)

    @cached_property
    def column_count(self) -> int:
        return self.table_column_count + 2 * sum(task.derived for task in self.tasks)

    def task_columns(self, number: int) -> tuple[int, int]:
        """Global columns of a derived task's obs_time and target."""
        before = sum(task.derived for task in self.tasks[:number])
        return self.table_column_count + 2 * before, self.table_column_count + 2 * before + 1

    @cached_property
    def keys(self) -> list[tuple[Table, Key]]:
        """Every foreign key with its table, in order of its global number."""
        return [(table, key) for table in self.tables for key in table.ordered_keys()]

    @cached_property
    def categories(self) -> dict[int, tuple[str, ...]]:
        """By global column, ascending: the categories of its block."""
        blocks: dict[int, tuple[str, ...]] = {}
        for table in self.tables:
            for i, column in enumerate(table.columns):
                if column.stype == CATEGORICAL:
                    blocks[self.column_starts[table.name] + i] = column.categories
        for number, task in enumerate(self.tasks):
            if task.derived and task.target_stype == CATEGORICAL:
                blocks[self.task_columns(number)[1]] = task.categories
        return blocks

    def category_start(self, column: int) -> int:
        return sum(len(names) for other, names in self.categories.items() if other < column)
