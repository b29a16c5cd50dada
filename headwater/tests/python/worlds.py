"""Databases for the tests: small ones made by hand, and any number of random ones.

A random world has everything that section 1 to 4 of docs/reference/sampling.md speaks of, on a grid
of times so coarse that ties, rows at the very moment of the question, and later ones are all
common.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from plain_database import (
    BOOLEAN,
    CATEGORICAL,
    DAY,
    IDENTIFIER,
    IGNORED,
    NEVER,
    NUMERICAL,
    STYPES,
    TEXT,
    TIMESTAMP,
    Column,
    Database,
    Key,
    Known,
    Options,
    Seed,
    Table,
    Task,
)

MOMENT_0 = 1_700_006_400_000_000  # 2023-11-15 00:00:00 UTC, a Wednesday
HALF_DAY = DAY // 2
WORDS = ("red", "green", "blue", "a longer text", "grün", "b")
CATEGORIES = ("high", "low", "mid")


def at(days: float) -> int:
    """A time, in days after the first moment of the tests."""
    return MOMENT_0 + round(days * DAY)


# ---- by hand -----------------------------------------------------------------------------------


def table(
    name: str,
    columns: str | Sequence[str | Column],
    rows: list[tuple[Any, ...]],
    keys: tuple[Key, ...] = (),
    temporal: str | None = None,
    **more: Any,
) -> Table:
    """A table whose first column is its primary key, written as text: t-1, t-2, ...

    A text of `columns` names some and their types, and what they are known with if it is a column
    or never: "id identifier, told timestamp told".
    """
    listed = [columns] if isinstance(columns, str) else columns
    made = [c for each in listed for c in (columns_of(each) if isinstance(each, str) else [each])]
    values = {column.name: [row[i] for row in rows] for i, column in enumerate(made)}
    primary_key = tuple((f"{name[0]}-{i}",) for i in range(1, len(rows) + 1))
    return Table(
        name, tuple(made), values, primary_key, keys, temporal, row_count=len(rows), **more
    )


def columns_of(text: str) -> list[Column]:
    found = []
    for words in (part.split() for part in text.split(",")):
        known = [Known("never") if w == "never" else Known("column", w) for w in words[2:]]
        found.append(Column(words[0], STYPES.index(words[1]), *known))
    return found


def two_tables(**task: Any) -> Database:
    """Two customers and four orders, one of them after the question is asked.

    Global rows: customers 0 ann, 1 bob; orders 2 (day 1, ann), 3 (day 2, bob), 4 (day 3, ann),
    5 (day 9, ann). Columns: customers 0 id, 1 name, 2 vip; orders 3 id, 4 customer, 5 placed,
    6 amount; task late: 7 obs_time, 8 target.
    """
    customers = table(
        "customers",
        "customer_id identifier, name text, vip boolean",
        [(True, "ann", True), (True, "bob", None)],
    )
    orders = table(
        "orders",
        "order_id identifier, customer_id identifier, placed timestamp, amount numerical",
        [(True, True, at(day), 10.0 * tens) for day, tens in ((1, 1), (2, 2), (3, 3), (9, 6))],
        (Key(("customer_id",), "customers", (0, 1, 0, 0)),),
        "placed",
    )
    seeds = (Seed(0, at(4), True, split=0), Seed(1, at(4), False, split=1))
    return Database(
        "two tables",
        (customers, orders),
        (Task("late", "customers", "late", BOOLEAN, **{"seeds": seeds, **task}),),
    )


def bookstore(**task: Any) -> Database:
    """Readers, books of authors, and loans; a cell task asks for a loan's rating.

    Global rows: authors 0; books 1, 2 (a sequel of 1); readers 3, 4; loans 5 (day 1, reader 3, book
    1), 6 (day 2, reader 4, book 1), 7 (day 2, reader 3, book 2), 8 (day 5, reader 4, book 2).
    Columns: authors 0 id, 1 name; books 2 id, 3 author, 4 sequel_of, 5 genre; readers 6 id, 7 age;
    loans 8 id, 9 reader, 10 book, 11 lent, 12 rating, 13 back (known at itself).
    """
    authors = table("authors", "author_id identifier, name text", [(True, "ada")])
    books = table(
        "books",
        [
            "book_id identifier, author_id identifier, sequel_of identifier",
            Column("genre", CATEGORICAL, categories=("crime", "poem")),
        ],
        [(True, True, None, "crime"), (True, True, True, "poem")],
        (Key(("author_id",), "authors", (0, 0)), Key(("sequel_of",), "books", (None, 0))),
    )
    readers = table("readers", "reader_id identifier, age numerical", [(True, 30.0), (True, None)])
    loans = table(
        "loans",
        "loan_id identifier, reader_id identifier, book_id identifier, lent timestamp, "
        "rating numerical, back timestamp back",
        [
            (True, True, True, at(1), 5.0, at(3)),
            (True, True, True, at(2), 3.0, at(2)),
            (True, True, True, at(2), 4.0, None),
            (True, True, True, at(5), 1.0, at(6)),
        ],
        (Key(("reader_id",), "readers", (0, 1, 0, 1)), Key(("book_id",), "books", (0, 0, 1, 1))),
        "lent",
    )
    seeds = (Seed(2, at(2), 4.0, split=0), Seed(3, at(5), 1.0, split=2))
    return Database(
        "bookstore",
        (authors, books, readers, loans),
        (
            Task(
                "rating",
                "loans",
                "rating",
                NUMERICAL,
                derived=False,
                exclusive=True,
                **{"seeds": seeds, **task},
            ),
        ),
    )


def star(count: int, seeds: int = 1) -> Database:
    """One hub, row 0, with `count` spokes, rows 1..count, none of which has a time."""
    hubs = table("hubs", "hub_id identifier", [(True,)])
    spokes = table(
        "spokes",
        "spoke_id identifier, hub_id identifier",
        [(True, True)] * count,
        (Key(("hub_id",), "hubs", (0,) * count),),
    )
    return Database(
        "star",
        (hubs, spokes),
        (
            Task(
                "shine",
                "hubs",
                "shine",
                BOOLEAN,
                tuple(Seed(0, at(i), bool(i % 2), split=0) for i in range(seeds)),
            ),
        ),
    )


# ---- at random ---------------------------------------------------------------------------------


class Maker:
    """Draws one world; every choice comes from `dice`."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.tables: list[Table] = []

    def chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def moment(self) -> int:
        return MOMENT_0 + self.dice.randrange(0, 17) * HALF_DAY

    def database(self) -> Database:
        names = ["alpha", "beta", "gamma", "delta"][: self.dice.randint(2, 4)]
        sizes = [self.dice.choice((0, 1, 4, 4, 9, 9, 16, 25)) for _ in names]
        sizes[0] = max(sizes[0], 4)
        for name, size in zip(names, sizes, strict=True):
            self.tables.append(self.table(name, size, list(zip(names, sizes, strict=True))))
        tasks = tuple(self.task(number) for number in range(self.dice.randint(1, 3)))
        tasks = with_label_times(tasks, random.Random(self.dice.getrandbits(64)))
        return Database("random", tuple(self.tables), tasks)

    def table(self, name: str, size: int, others: list[tuple[str, int]]) -> Table:
        columns = [
            Column(
                f"{name}_{i}",
                self.dice.choice(
                    (NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL, TEXT, IDENTIFIER, IGNORED)
                ),
                categories=CATEGORIES,
            )
            for i in range(self.dice.randint(0, 4))
        ]
        values = {
            column.name: [self.value(column.stype) for _ in range(size)] for column in columns
        }
        part_count = self.dice.choice((0, 1, 1, 2)) if name != "alpha" else self.dice.randint(1, 2)
        for part in range(part_count):
            columns.append(Column(f"{name}_pk{part}", IDENTIFIER))
            values[f"{name}_pk{part}"] = [True] * size
        temporal, days = None, False
        if self.chance(0.75):
            temporal, days = f"{name}_time", self.chance(0.3)
            columns.append(Column(temporal, TIMESTAMP))
            values[temporal] = [
                None
                if self.chance(0.1)
                else self.moment() // (DAY if days else 1) * (DAY if days else 1)
                for _ in range(size)
            ]
        key_count = self.dice.choice((0, 1, 2, 3) if name == "alpha" else (1, 2, 3))
        keys = [self.key(f"{name}_fk{i}", size, others, columns, values) for i in range(key_count)]
        self.dice.shuffle(columns)
        columns = [self.known_later(column, columns, temporal) for column in columns]
        made = Table(
            name,
            tuple(columns),
            values,
            tuple(
                tuple(f"{i}" if part == 0 else f"ü{i % 3}" for part in range(part_count))
                for i in range(size)
            )
            if part_count
            else (),
            tuple(keys),
            temporal,
            days,
            self.chance(0.3),
            size,
        )
        return in_store_order(made)

    def key(
        self,
        name: str,
        size: int,
        others: list[tuple[str, int]],
        columns: list[Column],
        values: dict[str, list[Any]],
    ) -> Key:
        parent, parent_size = self.dice.choice(others)
        names = [name] if self.chance(0.75) else [f"{name}a", f"{name}b"]
        parents: list[int | None] = []
        nulls, dangling = self.dice.choice((0.0, 0.2)), 0
        for part in names:
            stype = CATEGORICAL if self.chance(0.2) else IDENTIFIER
            columns.append(Column(part, stype, categories=CATEGORIES))
            values[part] = [
                None if self.chance(nulls) else self.value(stype) or True for _ in range(size)
            ]
            if stype == CATEGORICAL:
                values[part] = [CATEGORIES[0] if v is True else v for v in values[part]]
        for row in range(size):
            if any(values[part][row] is None for part in names):
                parents.append(None)
            elif parent_size == 0 or self.chance(0.1):
                parents.append(None)
                dangling += 1
            else:
                skewed = int(parent_size * self.dice.random() ** self.dice.choice((1, 3)))
                parents.append(skewed)
        return Key(tuple(names), parent, tuple(parents), dangling)

    def value(self, stype: int) -> Any:
        if self.chance(0.2):
            return None
        if stype == NUMERICAL:
            return float(self.dice.randint(-3, 9))
        if stype in (TIMESTAMP, IGNORED):
            return self.moment() + self.dice.choice((0, 0, 12_345_678_901))
        if stype == BOOLEAN:
            return self.chance(0.5)
        if stype == IDENTIFIER:
            return True
        return self.dice.choice(CATEGORIES if stype == CATEGORICAL else WORDS)

    def known_later(self, column: Column, columns: list[Column], temporal: str | None) -> Column:
        if column.stype == IGNORED or not self.chance(0.15):
            return column
        moments = [other.name for other in columns if other.stype in (TIMESTAMP, IGNORED)]
        kind = self.dice.choice(("never", "column", "column", "offset", "offset"))
        if kind == "column" and moments:
            known = Known("column", self.dice.choice(moments), self.dice.choice((0, DAY)))
        elif kind == "offset" and temporal is not None:
            known = Known("offset", offset=self.dice.choice((0, HALF_DAY, 3 * DAY)))
        else:
            known = Known("never" if self.chance(0.3) else "creation")
        return Column(column.name, column.stype, known, column.categories)

    def task(self, number: int) -> Task:
        anchors = [t for t in self.tables if t.row_count and t.primary_key]
        pointed_at = {key.parent_table for t in self.tables for key in t.keys}
        if self.chance(0.9):
            anchors = [t for t in anchors if t.name in pointed_at] or anchors
        anchor = self.dice.choice(anchors)
        hidden = tuple(
            (t.name, column.name)
            for t in self.tables
            for column in t.columns
            if column.stype != IGNORED and self.chance(0.08)
        )
        possible = [
            column
            for column in anchor.columns
            if column.stype in (NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL)
        ]
        derived = not possible or self.chance(0.5)
        if derived:
            stype = self.dice.choice((NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL))
            target = Column("answer", stype, categories=CATEGORIES)
        else:
            target = self.dice.choice(possible)
        is_key = not derived and any(target.name in key.columns for key in anchor.keys)
        return Task(
            f"task{number}",
            anchor.name,
            target.name,
            target.stype,
            self.seeds(anchor, target, derived),
            derived,
            target.categories if derived else (),
            hidden,
            self.chance(0.5),
            self.dice.choice(("none",) * 3 if is_key else ("train", "none", "all")),
        )

    def seeds(self, anchor: Table, target: Column, derived: bool) -> tuple[Seed, ...]:
        given, found = self.chance(0.5), dict[tuple[int, int], Seed]()
        for _ in range(self.dice.randint(1, 9)):
            row = self.dice.randrange(anchor.row_count)
            own = anchor.times[row] if anchor.times is not None else NEVER
            obs_time = (
                own if self.chance(0.4) and abs(own) < NEVER else max(self.moment(), self.moment())
            )
            if self.chance(0.08):
                obs_time = NEVER
            value = self.value(target.stype) if derived else anchor.values[target.name][row]
            found[row, obs_time] = Seed(
                row, obs_time, value, True, self.dice.randrange(3) if given else None
            )
            if self.chance(0.15):
                found[row, obs_time] = Seed(row, obs_time, None, False, found[row, obs_time].split)
        return tuple(found[place] for place in sorted(found))


def with_label_times(tasks: tuple[Task, ...], dice: random.Random) -> tuple[Task, ...]:
    """Two of three tasks say when labels are known: at once, some days later, or never. Their
    anchors are asked about more often, so that there are earlier labels."""
    made = []
    for task in tasks:
        if not task.derived or dice.random() < 0.33:
            made.append(task)
            continue
        seeds = {(seed.anchor, seed.obs_time): seed for seed in task.seeds}
        for seed in task.seeds:
            for _ in range(dice.randint(0, 3)):
                obs_time = MOMENT_0 + dice.randrange(0, 17) * HALF_DAY
                later = replace(seed, obs_time=obs_time)
                seeds.setdefault((seed.anchor, obs_time), later)
        known = []
        for place in sorted(seeds):
            lag = dice.choice((None, 0, 0, HALF_DAY, 3 * DAY))
            at_once = lag is None or place[1] == NEVER
            known.append(replace(seeds[place], known=None if at_once else place[1] + lag))
        made.append(replace(task, seeds=tuple(known), label_times=True))
    return tuple(made)


def in_store_order(made: Table) -> Table:
    """The same table with its rows by (time, then the order they came in, which is by key)."""
    times = made.times
    if times is None:
        return made
    order = sorted(range(made.row_count), key=lambda row: (times[row], row))
    values = {name: [column[row] for row in order] for name, column in made.values.items()}
    keys = tuple(replace(k, parents=tuple(k.parents[row] for row in order)) for k in made.keys)
    primary_key = tuple(made.primary_key[row] for row in order) if made.primary_key else ()
    return replace(made, values=values, primary_key=primary_key, keys=keys)


def random_database(seed: int) -> Database:
    return Maker(random.Random(seed)).database()


def asking_for_a_key(database: Database, seed: int) -> Database:
    """The same rows, with tasks that all ask for one foreign key, whose column is a category; some
    hide foreign keys, that one or others."""
    dice = random.Random(f"key {seed}")
    keys = [(t, key) for t in database.tables for key in t.keys if t.row_count and t.primary_key]
    if not keys:
        return database
    table, key = dice.choice(keys)
    target = dice.choice(key.columns)
    columns = tuple(
        replace(column, stype=CATEGORICAL, categories=CATEGORIES)
        if column.name == target
        else column
        for column in table.columns
    )
    values = [None if v is None else dice.choice(CATEGORIES) for v in table.values[target]]
    anchor = replace(table, columns=columns, values={**table.values, target: values})
    tables = tuple(anchor if other.name == table.name else other for other in database.tables)
    asked = next(column for column in columns if column.name == target)
    tasks = tuple(
        replace(
            task,
            anchor_table=anchor.name,
            target=target,
            target_stype=CATEGORICAL,
            seeds=Maker(dice).seeds(anchor, asked, derived=False),
            derived=False,
            context_labels=dice.choice((None, "none")),
            categories=(),
            hidden=tuple(
                (other.name, column)
                for other in tables
                for linked in other.keys
                for column in linked.columns
                if dice.random() < 0.2
            ),
            label_times=False,
        )
        for task in database.tasks
    )
    return Database(database.name, tables, tasks)


def random_masked_options(seed: int, database: Database) -> Options:
    """Random options with masked cells: beside a task's target, or alone with or without tables."""
    dice = random.Random(f"masked {seed}")
    options = random_options(seed, database).with_(
        mask_ratio=dice.choice((1e-6, 0.15, 0.5, 1.0)), max_targets=dice.choice((1, 2, 5, 200))
    )
    options = options.with_(max_targets=min(options.max_targets, options.sequence_length))
    kind = dice.choice(("task", "tasks", "tables", "tables"))
    if kind == "task":
        return options
    names = [table.name for table in database.tables if dice.random() < 0.6]
    tables = tuple(names or [database.tables[0].name]) if kind == "tables" else None
    return options.with_(masked_objective=True, label_rows=0, peer_labels=0, seed_tables=tables)


LABEL_RULES = (None, None, "train", "none", "all")


def random_options(seed: int, database: Database) -> Options:
    dice = random.Random(f"options {seed}")
    asks_for_key = any(map(database.asks_for_key, database.tasks))
    until = [NEVER if dice.random() < 0.7 else at(dice.randrange(9)) for _ in range(3)]
    return Options(
        sequence_length=dice.choice((2, 7, 20, 64, 64, 200, 200, 200)),
        max_rows=dice.choice((2, 8, 20, 20, 40, 64, 64)),
        batch_size=dice.choice((1, 2, 5)),
        child_width=dice.choice((1, 2, 3, 16)),
        max_hops=dice.choice((None, None, None, None, 0, 1, 2, 3, 4, 5)),
        per_row=dice.random() < 0.5,
        recent=dice.random() < 0.5,
        identifier_cells=dice.choice(("all", "foreign_keys", "none")),
        context_labels=dice.choice((None, None, "none") if asks_for_key else LABEL_RULES),
        visible_until=(until[0], until[1], until[2]),
        seed=dice.getrandbits(64),
        split_seed=dice.getrandbits(64),
        split_ratios=dice.choice(((0.8, 0.1, 0.1), (0.34, 0.33, 0.33))),
        rank=dice.choice((0, 0, 1)),
        world_size=2,
        dealt=seed % 2 == 0,
        round_robin=dice.random() < 0.3,
        staleness=dice.choice((None, None, (0.5, 3.0), (0.0, 1.75), (1.0, 2.0))),
        child_counts=dice.random() < 0.4,
        label_rows=dice.choice((0, 1, 3)),
        peer_labels=dice.choice((0, 0, 1, 2, 6)),
        cell_dropout=dice.choice((0.0, 0.0, 0.0, 0.1, 0.6)),
    )
