"""The sampler of docs/reference/sampling.md, written from that page alone, as plainly as it can be.

It shares no code and no data structure with the library, and nothing here is fast. `sample` turns
one seed into a `Context`; which seed comes when is in reference_order.py, and what the arrays of a
batch hold in reference_batch.py. Section numbers are those of the page.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import compress
from math import floor, log1p
from typing import Any

from plain_database import (
    AD_HOC,
    ALWAYS,
    DAY,
    IDENTIFIER,
    IGNORED,
    NEVER,
    NUMERICAL,
    TEST,
    TIMESTAMP,
    TRAIN,
    Column,
    Key,
    Known,
    Seed,
    Table,
    Task,
)
from reference_order import Order, Position, Stream, split_of

# ---- 1, 3 and 4: what is visible, the walk, the cells -------------------------------------------


@dataclass(frozen=True)
class Cell:
    column: int
    row: int  # local
    stype: int
    value: Any  # None where NULL
    is_target: bool = False


@dataclass
class Context:
    rows: list[int | None] = field(default_factory=list)  # global; None: of the task
    labels: dict[int, int] = field(default_factory=dict)  # seed of each label row, by local row
    depths: list[int] = field(default_factory=list)
    chain: list[bool] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    row_starts: list[int] = field(default_factory=list)
    parents: list[list[int | None]] = field(default_factory=list)  # local, by row and foreign key
    ages: list[float] = field(default_factory=list)

    def edges(self) -> set[tuple[int, int]]:
        return {(i, j) for i, row in enumerate(self.parents) for j in row if j is not None}


@dataclass(eq=False)
class Group:
    """Children one visited row may yet give: (child row, foreign key), in list order."""

    key: int  # global number; -1 for a pooled group
    children: list[tuple[int, int]]
    edge_times: list[int]
    quota: int
    drawn: list[int] = field(default_factory=list)  # positions, in order
    kept: list[int] = field(default_factory=list)  # the list that swaps, where v <= w


@dataclass
class Hop:
    """The draws at one hop: arrays of groups (under `recent` one per key), and whose turn it is."""

    arrays: dict[int, list[Group]]
    turns: deque[int]


class Walk:
    def __init__(
        self, order: Order, task_number: int, seed: Seed, split: int, epoch: int, index: int
    ) -> None:
        self.database, self.options = order.database, order.options
        self.task: Task = order.tasks[task_number]
        self.asks = not order.options.masked_objective  # the task's question
        self.task_number, self.seed = task_number, seed
        self.seed_splits = order.splits[task_number]
        self.stream = Stream(self.options.seed, index, epoch, task_number, split)
        self.until = min(seed.obs_time, self.options.visible_until[min(split, TEST)])
        if split == TRAIN and self.options.staleness is not None:
            gap = self.draw_gap(*self.options.staleness)
            self.until = NEVER if self.until == NEVER else max(self.until - gap, ALWAYS + 1)
        self.anchor = self.database.row_starts[self.task.anchor_table] + seed.anchor
        self.label_rule = self.rule_of(self.task)
        self.context = Context()
        self.labels: deque[int] | None = None  # those to visit; None: not found yet
        self.ends: set[int | None] = set()  # rows that the walk does not go on from
        self.place: dict[int, int] = {}  # global row -> local row
        self.groups: dict[int, list[Group]] = {}  # by hops
        self.hops: dict[int, Hop] = {}

    # -- 1. seeds and time

    def draw_gap(self, zero_share: float, max_days: float) -> int:
        """Microseconds."""
        if next(self.stream.words) < floor(zero_share * 2**32 + 0.5):
            return 0
        return self.stream.below(floor(max_days * 86400 + 0.5) + 1) * 1_000_000

    def passes(self, time: int, chain: bool) -> bool:
        if self.until == NEVER:
            return True
        return time < self.until if self.task.exclusive and not chain else time <= self.until

    def time(self, row: int) -> int | None:
        """None for a row of a table without times."""
        table = self.database.table_of_row(row)
        return None if table.times is None else table.times[self.local(table, row)]

    def local(self, table: Table, row: int) -> int:
        return row - self.database.row_starts[table.name]

    def row_visible(self, row: int, chain: bool) -> bool:
        time = self.time(row)
        return row == self.anchor or time is None or self.passes(time, chain)

    def known_time(self, table: Table, known: Known, row: int) -> int | None:
        """None for never; ALWAYS for creation."""
        if known.kind == "creation":
            return ALWAYS
        if known.kind == "never":
            return None
        if known.kind == "column":
            base = table.values[known.column][self.local(table, row)]
        else:
            base = self.time(row)
        return NEVER if base in (None, ALWAYS, NEVER) else base + known.offset

    def known(self, table: Table, column: Column, row: int, chain: bool) -> bool:
        if column.known.kind == "creation":
            return True
        time = self.known_time(table, column.known, row)
        return time is not None and self.passes(time, chain)

    def earlier_than_anchor(self, row: int) -> bool:
        own, anchor = self.time(row), self.time(self.anchor)
        return own is not None and anchor is not None and own < anchor

    def label_forbidden(self, row: int) -> bool:
        table = self.database.table_of_row(row)
        splits = [
            split
            for other, split in zip(self.task.seeds, self.seed_splits, strict=True)
            if other.anchor == self.local(table, row)
        ]
        if not splits or self.label_rule == "all":
            return False
        return self.label_rule == "none" or any(split != TRAIN for split in splits)

    def withheld(self, table: Table, column: Column, row: int, chain: bool) -> bool:
        if not self.asks and self.is_hidden_label(table, column.name, row):
            return True
        return self.withheld_by_task(table, column.name, row, chain)

    def withheld_by_task(self, table: Table, column: str, row: int, chain: bool) -> bool:
        if (table.name, column) in self.task.hidden and not self.strictly_older(row):
            return True
        is_target = self.asks and is_label(self.task, table, column)
        return is_target and self.target_withheld(row, chain)

    def target_withheld(self, row: int, chain: bool) -> bool:
        at_once = not self.task.exclusive or chain
        if row == self.anchor or self.database.asks_for_key(self.task):
            return True
        if at_once and not self.earlier_than_anchor(row):
            return True
        return self.label_forbidden(row)

    def strictly_older(self, row: int) -> bool:
        """Both the row and the anchor have a time, and the row's is earlier: it is another row."""
        own, anchor = self.time(row), self.time(self.anchor)
        if own in (None, ALWAYS, NEVER) or anchor in (None, ALWAYS, NEVER):
            return False
        return own < anchor

    def is_hidden_label(self, table: Table, column: str, row: int) -> bool:
        """Of any cell task of the database; where no task is asked."""
        return any(
            is_label(task, table, column)
            and seed.anchor == self.local(table, row)
            and self.hides(task, split_of(self.database, task, seed, self.options))
            for task in self.database.tasks
            for seed in task.seeds
        )

    def rule_of(self, task: Task) -> str:
        default = "none" if self.database.asks_for_key(task) else "train"
        return self.options.context_labels or task.context_labels or default

    def hides(self, task: Task, split: int) -> bool:
        rule = self.rule_of(task)
        return rule == "none" or (rule == "train" and split != TRAIN)

    def edge_withheld(self, table: Table, key: Key, row: int, chain: bool) -> bool:
        columns = [table.columns[table.column_index(name)] for name in key.columns]
        return any(
            self.withheld(table, column, row, chain) or not self.known(table, column, row, chain)
            for column in columns
        )

    # -- 3. the walk

    def run(self) -> Context:
        options, context = self.options, self.context
        waiting: deque[tuple[int | None, int, bool]] = deque()
        has_seed_row = self.task.derived and self.asks
        waiting.append((None if has_seed_row else self.anchor, 0, True))
        visited: set[int | None] = set()
        while len(context.cells) < options.sequence_length and len(context.rows) < options.max_rows:
            if waiting:
                row, hops, chain = waiting.popleft()
            elif self.labels is None:
                self.labels = self.find_labels()
                continue
            elif self.labels:
                waiting.extend(self.visit_label(self.labels.popleft()))
                continue
            else:
                hops, chain = self.fewest_hops(), False
                if hops < 0:
                    break
                row, key = self.draw(hops)
                if self.edge_withheld(*self.database.keys[key], row, False):
                    continue
            if row in visited:
                continue
            visited.add(row)
            self.visit(row, hops, chain)
            if row in self.ends:
                continue
            if options.max_hops is None or hops - has_seed_row < options.max_hops:
                waiting.extend((p, hops + 1, chain) for p in self.visible_parents(row, chain))
                if row is not None:
                    self.add_groups(row, hops + 1)
        self.finish()
        return context

    def find_labels(self) -> deque[int]:
        """Label rows come after the first rows that wait as parents, before any child."""
        options = self.options
        if not (self.task.derived and self.asks) or options.max_hops == 0:
            return deque()
        known = self.known_labels()
        own = [i for i in known if self.is_own(i) and self.is_earlier(i)]
        return deque(own[::-1][: options.label_rows] + self.draw_peers(known))

    def draw_peers(self, known: list[int]) -> list[int]:
        count, seeds = self.options.peer_labels, self.task.seeds
        if count == 0 or not known:
            return []
        known = sorted(known, key=lambda i: (seeds[i].known, i))
        oldest = seeds[known[max(0, len(known) - 4 * count)]].known
        pool = [i for i in known if seeds[i].known >= oldest]
        drawn = pool[::-1]
        if len(pool) > count:
            drawn = []
            while len(drawn) < count:
                other = pool[self.stream.below(len(pool))]
                if other not in drawn:
                    drawn.append(other)
        return [i for i in drawn if not self.is_own(i) and self.is_earlier(i)]

    def is_own(self, index: int) -> bool:
        return self.task.seeds[index].anchor == self.seed.anchor

    def is_earlier(self, index: int) -> bool:
        return self.task.seeds[index].obs_time < self.seed.obs_time

    def visit_label(self, index: int) -> list[tuple[int, int, bool]]:
        """The anchor of another's label waits behind it as a parent."""
        self.context.labels[len(self.context.rows)] = index
        self.visit(None, 2, False)
        anchor = self.label_anchor(index)
        if anchor == self.anchor or not self.row_visible(anchor, False):
            return []
        if anchor not in self.place:
            self.ends.add(anchor)
        return [(anchor, 3, False)]

    def label_anchor(self, index: int) -> int:
        return self.database.row_starts[self.task.anchor_table] + self.task.seeds[index].anchor

    def known_labels(self) -> list[int]:
        """Seeds of the task whose labels may be shown, as stored."""
        found = []
        for index, seed in enumerate(self.task.seeds):
            may_show = {
                "train": self.seed_splits[index] == TRAIN,
                "none": False,
                "all": True,
            }[self.label_rule]
            if (
                self.task.label_times
                and may_show
                and seed.labelled
                and seed.known is not None
                and self.passes(seed.known, False)
            ):
                found.append(index)
        return found

    def visible_parents(self, row: int | None, chain: bool) -> list[int]:
        if row is None:
            return [self.anchor]
        table = self.database.table_of_row(row)
        found = []
        for key in table.ordered_keys():
            parent = key.parents[self.local(table, row)]
            if parent is None or self.edge_withheld(table, key, row, chain):
                continue
            parent += self.database.row_starts[key.parent_table]
            if self.row_visible(parent, chain):
                found.append(parent)
        return found

    def visible_children(self, row: int, number: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Children by one key in list order, with the times of their edges."""
        table, key = self.database.keys[number]
        parent = self.local(self.database.table(key.parent_table), row)
        columns = [table.columns[table.column_index(name)] for name in key.columns]
        if any(column.known.kind == "never" for column in columns):
            return [], []
        found = []
        for local, target in enumerate(key.parents):
            if target != parent:
                continue
            child = self.database.row_starts[table.name] + local
            own = self.time(child)
            edge_time = ALWAYS if own is None else own
            for column in columns:
                moment = self.known_time(table, column.known, child)
                assert moment is not None
                edge_time = max(edge_time, moment)
            late = any(column.known.kind != "creation" for column in columns)
            if (own is None and not late) or self.passes(edge_time, False):
                found.append((edge_time, child))
        found.sort()
        return [(child, number) for _, child in found], [time for time, _ in found]

    def add_groups(self, row: int, hops: int) -> None:
        table = self.database.table_of_row(row)
        width = self.options.child_width
        found = []
        for number, (_, key) in enumerate(self.database.keys):
            if key.parent_table == table.name:
                children, times = self.visible_children(row, number)
                shown = [not self.child_withheld(child, number) for child, _ in children]
                children = list(compress(children, shown))
                times = list(compress(times, shown))
                if children:
                    found.append(Group(number, children, times, min(width, len(children))))
        if self.options.per_row and self.options.recent:
            deal_quotas(found, width)
        elif self.options.per_row and found:
            pooled = [child for group in found for child in group.children]
            times = [time for group in found for time in group.edge_times]
            found = [Group(-1, pooled, times, min(width, len(pooled)))]
        for group in found:
            group.kept = list(range(len(group.children)))
        self.groups.setdefault(hops, []).extend(found)

    def child_withheld(self, child: int, number: int) -> bool:
        table, key = self.database.keys[number]
        return any(self.withheld_by_task(table, name, child, False) for name in key.columns)

    def fewest_hops(self) -> int:
        """Of a group with quota left; -1 where there is none."""
        left = [
            hops
            for hops, groups in self.groups.items()
            if any(len(group.drawn) < group.quota for group in groups)
        ]
        return min(left, default=-1)

    def draw(self, hops: int) -> tuple[int, int]:
        """The next child at the fewest hops, and the foreign key it was reached over."""
        if hops not in self.hops:
            self.hops[hops] = self.begin_hop(self.groups[hops])
        hop = self.hops[hops]
        key = hop.turns.popleft()
        while not hop.arrays[key]:
            key = hop.turns.popleft()
        hop.turns.append(key)
        array = hop.arrays[key]
        if key >= 0 and self.database.keys[key][0].times is not None:
            return draw_recent(array)
        return self.draw_uniform(array)

    def begin_hop(self, groups: list[Group]) -> Hop:
        arrays: dict[int, list[Group]] = {}
        for group in groups:
            key = group.key if self.options.recent else -1
            arrays.setdefault(key, []).extend([group] * group.quota)
        return Hop(arrays, deque(sorted(arrays)))

    def draw_uniform(self, array: list[Group]) -> tuple[int, int]:
        place = self.stream.below(len(array))
        group = array[place]
        array[place] = array[-1]
        array.pop()
        v, k = len(group.children), len(group.drawn)
        if v <= self.options.child_width:
            j = k + self.stream.below(v - k)
            group.kept[k], group.kept[j] = group.kept[j], group.kept[k]
            position = group.kept[k]
        else:
            position = self.stream.below(v)
            while position in group.drawn:
                position = self.stream.below(v)
        group.drawn.append(position)
        return group.children[position]

    # -- 4. cells

    def visit(self, row: int | None, hops: int, chain: bool) -> None:
        context, size = self.context, self.options.sequence_length
        local = len(context.rows)
        context.rows.append(row)
        context.depths.append(hops)
        context.chain.append(chain)
        context.row_starts.append(len(context.cells))
        if row is not None:
            self.place[row] = local
        cells = self.seed_cells(local) if row is None else self.row_cells(row, local, chain)
        if row is not None and self.options.child_counts:
            cells += self.count_cells(row, local)
        room = size - len(context.cells)
        target = next((cell for cell in cells[room:] if cell.is_target), None)
        cells = cells[:room]
        if target is not None:
            cells[-1] = target
        context.cells.extend(cells)

    def seed_cells(self, local: int) -> list[Cell]:
        time_column, target_column = self.database.task_columns(self.task_number)
        if local in self.context.labels:
            other = self.task.seeds[self.context.labels[local]]
            return [
                Cell(time_column, local, TIMESTAMP, other.obs_time),
                Cell(target_column, local, self.task.target_stype, other.target),
            ]
        obs_time = None if self.seed.obs_time == NEVER else self.seed.obs_time
        return [
            Cell(time_column, 0, TIMESTAMP, obs_time),
            Cell(target_column, 0, self.task.target_stype, self.seed.target, True),
        ]

    def row_cells(self, row: int, local: int, chain: bool) -> list[Cell]:
        table = self.database.table_of_row(row)
        wanted: list[Cell] = []
        spare: list[Cell] = []
        for i, column in enumerate(table.columns):
            number = self.database.column_starts[table.name] + i
            is_asked = self.asks and not self.task.derived and row == self.anchor
            if is_asked and column.name == self.task.target:
                wanted.append(Cell(number, local, column.stype, self.seed.target, True))
                continue
            if (
                column.stype == IGNORED
                or self.withheld(table, column, row, chain)
                or not self.known(table, column, row, chain)
            ):
                continue
            cell = Cell(
                number, local, column.stype, table.values[column.name][self.local(table, row)]
            )
            is_wanted = column.stype != IDENTIFIER or self.identifier_wanted(table, column)
            (wanted if is_wanted else spare).append(cell)
        return wanted or spare[:1]

    def count_cells(self, row: int, local: int) -> list[Cell]:
        cells, table = [], self.database.table_of_row(row)
        for number, (child, key) in enumerate(self.database.keys):
            if key.parent_table != table.name:
                continue
            children, times = self.visible_children(row, number)
            if any(self.ever_withheld(child, name) for name in key.columns):
                children, times = [], []
            column = self.database.column_count + 3 * number
            values = (
                log1p(len(children)) / 4,
                self.scaled_age(times[-1] if times else NEVER),
                self.scaled_age(times[0] if times else NEVER),
            )
            cells += [Cell(column + i, local, NUMERICAL, values[i]) for i in range(3)]
        return cells

    def ever_withheld(self, table: Table, column: str) -> bool:
        if (table.name, column) in self.task.hidden:
            return True
        if self.asks:
            return is_label(self.task, table, column)
        return any(
            is_label(task, table, column) and self.rule_of(task) != "all"
            for task in self.database.tasks
        )

    def scaled_age(self, time: int) -> float | None:
        if self.seed.obs_time == NEVER or time in (ALWAYS, NEVER):
            return None
        return log1p((self.seed.obs_time - time) / DAY) / 8

    def identifier_wanted(self, table: Table, column: Column) -> bool:
        if self.options.identifier_cells == "foreign_keys":
            return any(column.name in key.columns for key in table.keys)
        return self.options.identifier_cells == "all"

    def finish(self) -> None:
        """Edges between the rows that were visited, and their ages."""
        context = self.context
        for local, (row, chain) in enumerate(zip(context.rows, context.chain, strict=True)):
            context.ages.append(self.age(row, local))
            if row is None:
                label = context.labels.get(local)
                anchor = self.anchor if label is None else self.label_anchor(label)
                context.parents.append([self.place.get(anchor)])
                continue
            table, parents = self.database.table_of_row(row), []
            for key in table.ordered_keys():
                parent = key.parents[self.local(table, row)]
                if parent is not None and not self.edge_withheld(table, key, row, chain):
                    parent += self.database.row_starts[key.parent_table]
                    parents.append(self.place.get(parent))
                else:
                    parents.append(None)
            context.parents.append(parents)

    def age(self, row: int | None, local: int) -> float:
        if self.seed.obs_time == NEVER:
            return -1.0
        if local in self.context.labels:
            label = self.task.seeds[self.context.labels[local]]
            return (self.seed.obs_time - label.obs_time) / DAY
        if row is None:
            return self.database_age()
        time = self.time(row)
        if time in (None, ALWAYS, NEVER):
            return -1.0
        assert time is not None
        return (self.seed.obs_time - time) / DAY

    def database_age(self) -> float:
        times = [time for table in self.database.tables for time in table.times or ()]
        seen = [time for time in times if self.passes(time, False) and time != ALWAYS]
        return (self.seed.obs_time - max(seen)) / DAY if seen else -1.0


def is_label(task: Task, table: Table, column: str) -> bool:
    """Whether the column is the target of a cell task."""
    return not task.derived and (table.name, column) == (task.anchor_table, task.target)


def draw_recent(array: list[Group]) -> tuple[int, int]:
    """The greatest (edge time, row) among the next children of a key's groups."""

    def following(group: Group) -> tuple[int, int]:
        place = -1 - len(group.drawn)
        return group.edge_times[place], group.children[place][0]

    group = max(array, key=following)
    child = group.children[-1 - len(group.drawn)]
    group.drawn.append(len(group.children) - 1 - len(group.drawn))
    array.remove(group)
    return child


def deal_quotas(groups: list[Group], width: int) -> None:
    """One at a time to the keys in order, round after round, until `width` are dealt."""
    for group in groups:
        group.quota = 0
    dealt = True
    while dealt:
        dealt = False
        for group in groups:
            if width > 0 and group.quota < len(group.children):
                group.quota, width, dealt = group.quota + 1, width - 1, True


def sample(order: Order, position: Position) -> Context:
    """The context of the seed at a place in the order; the place must hold one."""
    assert position.index is not None
    seed = order.tasks[position.task].seeds[position.index]
    return Walk(order, position.task, seed, position.split, position.epoch, position.index).run()


def sample_ad_hoc(order: Order, task: int, place: int, anchor: int, obs_time: int) -> Context:
    """The context of the seed that stands at `place` in a caller's list; it has no label."""
    seed = Seed(anchor, obs_time, labelled=False)
    return Walk(order, task, seed, AD_HOC, 0, place).run()
