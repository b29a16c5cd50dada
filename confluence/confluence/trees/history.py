"""The history of anchors before a time: rows that point at them, and their known labels.

    Store.edges, Store.column ──► paths: lists of rows by anchor, by when they may be seen
    known labels              ──► one more list
    paths × seeds             ──► counts, rates, ages, means, sums as of each seed's time    [m,F]

A path is a foreign key that points at the anchor's table ("orders.customer_id"); one that points at
a row of such a path ("orders.customer_id < order_items.order_id"), visible when both are; or one
that points at a parent of the anchor ("results.driverId > standings.driverId") or at a parent of
that. Values are those of the rows and of the rows that these point at, over one or two keys
("rentals.customer_id: rentals.inventory_id > inventory.film_id > length").

Rows are visible by the rules of docs/reference/sampling.md for rows that are not chain rows: row
times, null times, keys and columns known later, exclusive cutoffs and a frozen database hold here
as in a context. Keys with a hidden or target column have no paths. A hidden or target column has
values here only in earlier rows under an exclusive cutoff, and none in rows that others point at;
those of the target only in rows that `context_labels` lets a context show. If the rules would need
a row's own case, the row is left out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from typing import Any

import headwater
import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.data.tasks import NO_TIME, TRAIN, US_PER_DAY, Floats, Labels, Task
from confluence.trees.time_lists import (
    ALWAYS,
    NO_OWNER,
    Ints,
    Lists,
    Moments,
    Questions,
    Seen,
    count_features,
    make_lists,
    value_features,
)

WINDOWS = (7, 30, 90, 365)  # days before T in which rows are counted
SUMS = (30, 365)  # the same in which numbers are added up
RECENTS = (5, 16)  # the latest values of which means are taken
SHARES = 3  # of the most common categories, how often each came
MAX_COLUMNS = 200  # of the rows on all paths, whose values are features
MAX_FURTHER_COLUMNS = 100  # the same of the rows that these point at
MAX_PATHS = 64  # paths beyond those of the anchor itself
MAX_ENTRIES = 20_000_000  # rows of a path over two keys
VALUE_STYPES = ("numerical", "boolean", "categorical")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Path:
    """Rows that a seed's anchor is followed by, over one or two keys."""

    name: str
    table: str  # of the rows
    lists: Lists
    rows: Ints  # [n] within their table
    owners: Ints  # [m] whose list each seed sees
    follows: int  # over how many keys values are read of rows that the rows point at
    last_key: str = ""  # by which the rows point back at where the path comes from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A row for each row of a path: itself, or one that it points at."""

    prefix: str  # of the names of its columns
    table: str
    rows: Ints  # [n] within the table, NO_OWNER if there is none
    times: Ints  # [n] from when it is visible next to the path's row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """A foreign key of the store, by name."""

    name: str
    child: str
    parent: str
    columns: tuple[str, ...]  # of the child


class History:
    """What is visible to some seeds of a task."""

    def __init__(
        self, store: headwater.Store, task: Task, labels: Labels, *, shown: str | None = None,
        train_until: int = int(NO_TIME), columns: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            shown: whose labels contexts show, as `Config.context_labels`; None: as the task says.
            train_until: nothing later is visible to train seeds, µs.
            columns: those of the rows on paths that are features, such as "orders.customer_id:
                state", each with its categories of which features say how often they came; None:
                they are chosen, and `columns` has them then.
        """
        self.store = store
        self.task = task
        self.labels = labels
        self.train_until = train_until
        self.columns = dict(columns or {})
        self._chooses = columns is None
        self._parents: dict[str, tuple[Ints, Ints]] = {}
        self._over_two_keys: dict[tuple[str, str], tuple[Lists, Ints] | None] = {}
        self._values: dict[str, tuple[Lists, Floats]] = {}  # of columns that were chosen before
        self._room = MAX_ENTRIES  # for more of these
        self._edges: dict[str, tuple[Lists, Ints]] = {}
        self._left = {True: MAX_COLUMNS, False: MAX_FURTHER_COLUMNS}  # whether of paths' own rows
        self.entry = store.metadata["tasks"][task.index]
        self.shown = shown or self.entry.get("context_labels") or "train"
        self.anchor_table = str(self.entry["anchor_table"])
        self.inclusive = self.entry["cutoff"] == "inclusive"
        self.is_cell = self.entry["kind"] == "cell"
        hidden = {str(name) for name in self.entry.get("hidden_columns") or ()}
        target = {f"{self.anchor_table}.{self.entry['target_column']}"} if self.is_cell else set()
        self.target, self.hidden = target, hidden
        self.withheld = hidden | target
        table = store.metadata["tables"][store.table_index(self.anchor_table)]
        in_keys = {f"{self.anchor_table}.{c}" for k in table["foreign_keys"] for c in k["columns"]}
        self.never_shown = target & in_keys  # a foreign key that is asked for, on any row

    def keep(self, features: Collection[str]) -> None:
        """Choose the columns of which some of these features are."""
        self._chooses = False
        self.columns = {
            name: common
            for name, common in self.columns.items()
            if any(feature.startswith(f"{name} ") for feature in features)
        }

    # ---- the store -----------------------------------------------------------------------

    @cached_property
    def keys(self) -> list[Key]:
        """Foreign keys without withheld columns, in the store's order; none of two that have the
        same columns, and so the same name."""
        found = [
            Key(
                name=f"{table['name']}.{'+'.join(key['columns'])}",
                child=str(table["name"]),
                parent=str(key["references"]["table"]),
                columns=tuple(key["columns"]),
            )
            for table in self.store.metadata["tables"]
            for key in table["foreign_keys"]
            if not {f"{table['name']}.{column}" for column in key["columns"]} & self.withheld
        ]
        names = Counter(key.name for key in found)
        return [key for key in found if names[key.name] == 1]

    def row_range(self, table: str) -> tuple[int, int]:
        """Global rows of a table."""
        low, high = self.store.metadata["tables"][self.store.table_index(table)]["row_range"]
        return int(low), int(high)

    def edges(self, key: Key) -> tuple[Lists, Ints]:
        """Lists of a key by row of its parent table, and the child rows within their table."""
        if key.name not in self._edges:
            found = self.store.edges(key.name)
            rows = found["rows"].astype(np.int64) - self.row_range(key.child)[0]
            lists = Lists(starts=found["starts"], times=found["times"])
            self._edges[key.name] = lists, rows
        return self._edges[key.name]

    def row_times(self, table: str, rows: Ints) -> Ints:
        """When rows of a table, counted within it, become visible; ALWAYS without times. [m]"""
        return np.asarray(self.store.row_times(table)[rows])

    def parent_rows(self, key: Key) -> tuple[Ints, Ints]:
        """The row that each row of the child table points at, NO_OWNER if there is none, and from
        when that is visible: the key is known and the parent's time has come. [rows + 1], with none
        at the end, for NO_OWNER."""
        if key.name not in self._parents:
            self._parents[key.name] = self._read_parent_rows(key)
        return self._parents[key.name]

    def _read_parent_rows(self, key: Key) -> tuple[Ints, Ints]:
        lists, rows = self.edges(key)
        low, high = self.row_range(key.child)
        parents = np.full(high - low, NO_OWNER)
        parents[rows] = np.repeat(np.arange(lists.starts.size - 1), np.diff(lists.starts))
        has_parent = parents != NO_OWNER
        times = np.full(parents.size, NO_TIME)
        times[has_parent] = self.row_times(key.parent, parents[has_parent])
        for column in key.columns:
            times = np.maximum(times, self.store.column(key.child, column)["times"])
        return np.append(parents, NO_OWNER), np.append(times, NO_TIME)

    # ---- paths ---------------------------------------------------------------------------

    def paths(self, anchors: Ints, moments: Moments) -> Iterator[Path]:
        """Paths of some seeds; `anchors` are rows within the anchor table. [m]"""
        direct = [key for key in self.keys if key.parent == self.anchor_table]
        for key in direct:
            yield self._path(key.name, key, anchors, follows=2)
        further = chain(self._grandchildren(anchors), self._through_parents(anchors, moments))
        yield from islice(further, MAX_PATHS)

    def _path(self, name: str, key: Key, owners: Ints, *, follows: int = 0) -> Path:
        lists, rows = self.edges(key)
        return Path(
            name=name, table=key.child, lists=lists, rows=rows, owners=owners, follows=follows,
            last_key=key.name,
        )  # fmt: skip

    def _through_parents(self, anchors: Ints, moments: Moments) -> Iterator[Path]:
        """Paths of rows that point at a parent of the anchor, then at a parent of that."""
        ways = [("", self.anchor_table, anchors)]
        for _ in range(2):
            ways = [
                (f"{name}{up.name} > ", up.parent, self._visible_parents(up, rows, moments))
                for name, table, rows in ways
                for up in self.keys
                if up.child == table
            ]
            for name, table, rows in ways:
                for key in (key for key in self.keys if key.parent == table):
                    yield self._path(f"{name}{key.name}", key, rows)

    def _visible_parents(self, up: Key, rows: Ints, moments: Moments) -> Ints:
        """Parent of each row, NO_OWNER if there is none or it is not visible yet. [m]"""
        parents, times = self.parent_rows(up)
        return np.where(times[rows] <= moments.cutoffs, parents[rows], NO_OWNER)

    def _grandchildren(self, anchors: Ints) -> Iterator[Path]:
        for first in (key for key in self.keys if key.parent == self.anchor_table):
            for second in (key for key in self.keys if key.parent == first.child):
                both = (first.name, second.name)
                if both not in self._over_two_keys:
                    self._over_two_keys[both] = self._joined(first, second)
                joined = self._over_two_keys[both]
                if joined is not None:
                    yield Path(
                        name=f"{first.name} < {second.name}", table=second.child, lists=joined[0],
                        rows=joined[1], owners=anchors, follows=1, last_key=second.name,
                    )  # fmt: skip

    def _joined(self, first: Key, second: Key) -> tuple[Lists, Ints] | None:
        """Rows two keys away by anchor, each visible when both of its edges are."""
        (upper, between), (lower, rows) = self.edges(first), self.edges(second)
        counts = np.diff(lower.starts)[between]
        if counts.sum() > MAX_ENTRIES:
            return None
        owners = np.repeat(np.arange(upper.starts.size - 1), np.diff(upper.starts))
        begins = np.repeat(lower.starts[between] - np.cumsum(counts) + counts, counts)
        places = begins + np.arange(begins.size)
        times = np.maximum(np.repeat(upper.times, counts), lower.times[places])
        lists, order = make_lists(np.repeat(owners, counts), times, upper.starts.size - 1)
        return lists, rows[places][order]

    def has_history(self, anchors: Ints, moments: Moments) -> NDArray[np.bool_]:
        """Whether a row that points at the anchor is visible; where no key points at its table, one
        that points at a parent of it. [m]"""
        found = np.zeros(anchors.size, bool)
        direct = [key for key in self.keys if key.parent == self.anchor_table]
        paths = (
            (self._path(key.name, key, anchors) for key in direct)
            if direct
            else self._through_parents(anchors, moments)
        )
        for path in paths:
            found |= path.lists.counts(path.owners, moments.limits) > 0
        return found

    # ---- values --------------------------------------------------------------------------

    def sources(self, path: Path) -> Iterator[Source]:
        """The rows of a path, and those that they point at over as many keys as it follows."""
        none = np.full(path.rows.size, ALWAYS)
        found = [Source(prefix=f"{path.name}: ", table=path.table, rows=path.rows, times=none)]
        yield found[0]
        for hop in range(path.follows):
            found = [
                self._source_of_parents(source, key)
                for source in found
                for key in self.keys
                if key.child == source.table and (hop > 0 or key.name != path.last_key)
            ]
            yield from found

    def _source_of_parents(self, source: Source, key: Key) -> Source:
        parents, times = self.parent_rows(key)
        return Source(
            prefix=f"{source.prefix}{key.name} > ", table=key.parent, rows=parents[source.rows],
            times=np.maximum(times[source.rows], source.times),
        )  # fmt: skip

    def column_features(
        self, path: Path, source: Source, column: dict[str, Any], seen: Seen
    ) -> tuple[dict[str, Floats], dict[str, tuple[str, ...]]]:
        """Features of a column along a path, and of one that is a category its texts.

        Args:
            seen: of the path's rows.
        """
        name = f"{source.prefix}{column['name']}"
        known = self._values.get(name)
        lists, values = known or self.values(path, source, column["name"])
        if known is None and not self._chooses and self._room >= values.size:
            self._values[name], self._room = (lists, values), self._room - values.size
        if lists is not seen.lists:
            seen = Seen(lists, path.owners, seen.moments)
        if column["stype"] != "categorical":
            windows = SUMS if column["stype"] == "numerical" else ()
            found = value_features(values, seen, RECENTS, windows)
            return {f"{name} {kind}": found[kind] for kind in found}, {}
        features = {f"{name} last": value_features(values, seen)["last"]}
        texts = tuple((column.get("stats") or {}).get("categories") or ())
        if self._chooses and not self.columns[name]:
            common = self._most_common(lists, values)
            self.columns[name] = tuple(texts[category] for category in common)
        for text in self.columns[name]:
            category = texts.index(text) if text in texts else -1
            is_it = (values == category).astype(np.float64)
            found = value_features(is_it, seen, RECENTS)
            features |= {f"{name} = {text} {kind}": found[kind] for kind in found if kind != "last"}
        return features, {f"{name} last": texts}

    def _most_common(self, lists: Lists, values: Floats) -> Ints:
        """The most common categories of those that the last train seed could see."""
        known = values[lists.times <= self._train_end]
        categories, counts = np.unique(known.astype(np.int64), return_counts=True)
        return np.asarray(categories[np.argsort(-counts, kind="stable")[:SHARES]], np.int64)

    @cached_property
    def _train_end(self) -> int:
        """Up to when the last train seed sees; NO_TIME where nothing is hidden from it. µs"""
        times = self.labels.obs_times[self.labels.splits == TRAIN]
        return min(int(times.max()) if times.size else int(NO_TIME), self.train_until)

    @property
    def knows_labels(self) -> bool:
        """Whether the store knows when labels are known, as it must to be asked for them: without
        that, contexts have no label rows either. A cell task's are cells of the row that is asked
        about, and so the answer to an earlier question about it."""
        return not self.is_cell and self.labels.label_times is not None

    def columns_of(
        self, path: Path, source: Source, unseen: NDArray[np.bool_]
    ) -> Iterator[dict[str, Any]]:
        """Columns of the rows of a source whose values are features; withheld ones only of the
        path's own rows and if all of these have a time, as they are never shown on a row without
        one, and some question may see them.

        Args:
            unseen: whether each question is one of `anchors_unseen`.
        """
        is_own = source.rows is path.rows
        entry = self.store.metadata["tables"][self.store.table_index(source.table)]
        timed = entry["temporal_column"] is not None and not entry["untimed"]
        never = self.never_shown | (set() if timed else self.hidden)
        never |= set() if is_own else self.withheld
        for column in self.store.metadata["columns"][slice(*entry["column_range"])]:
            name = f"{source.prefix}{column['name']}"
            if self._chooses:
                of_table = f"{source.table}.{column['name']}"
                may_be = column["stype"] in VALUE_STYPES and of_table not in never
                may_be &= column.get("known_at") != "never"  # not to a question without a time
                if not may_be or (of_table in self.withheld and not unseen.any()):
                    continue
                if name not in self.columns and self._left[is_own] <= 0:
                    continue
                self._left[is_own] -= name not in self.columns
                self.columns.setdefault(name, ())
            if name in self.columns:
                yield column

    def is_withheld(self, table: str, column: Mapping[str, Any]) -> bool:
        """Whether a question sees the values of a column only in rows before its anchor."""
        return f"{table}.{column['name']}" in self.withheld

    def anchors_unseen(self, anchors: Ints, moments: Moments) -> NDArray[np.bool_]:
        """Whether all rows on the paths of a seed are older than its anchor's time. [m]"""
        if self.inclusive:
            return np.zeros(anchors.size, bool)
        times = self.row_times(self.anchor_table, anchors)
        earlier = (moments.cutoffs != NO_TIME) & (moments.cutoffs <= times) & (times != NO_TIME)
        return np.asarray(earlier)

    def values(self, path: Path, source: Source, column: str) -> tuple[Lists, Floats]:
        """The values that are not NULL of a column along a path, as lists of their own."""
        found = self.store.column(source.table, column)
        rows = source.rows
        numbers = np.append(found["numbers"], np.nan)[rows]
        keep = ~np.isnan(numbers)
        if f"{source.table}.{column}" in self.target:
            keep &= ~np.append(self._is_closed, True)[rows]
        known = np.maximum(source.times, np.append(found["times"], NO_TIME)[rows])
        if keep.all() and (known <= path.lists.times).all():
            return path.lists, numbers
        owners = np.repeat(np.arange(path.lists.starts.size - 1), np.diff(path.lists.starts))[keep]
        times = np.maximum(path.lists.times, known)[keep]
        lists, order = make_lists(owners, times, path.lists.starts.size - 1)
        return lists, numbers[keep][order]

    @cached_property
    def _is_closed(self) -> NDArray[np.bool_]:
        """Rows of the anchor table whose target no context may show. [rows]"""
        low, high = self.row_range(self.anchor_table)
        closed = np.zeros(high - low, bool)
        if self.shown != "all":
            is_shown = (self.labels.splits == TRAIN) & (self.shown == "train")
            closed[self.labels.anchor_rows[~is_shown].astype(np.int64) - low] = True
        return closed


# --------------------------------------------------------------------------------------- the labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelLists:
    """The known train labels of each anchor, by when they are known."""

    lists: Lists
    seeds: Ints  # [n] seed of each label
    anchor_rows: Ints  # [owners] global row of each list's anchor, ascending
    owners: Ints  # [seeds] list of each seed's anchor

    def owners_of(self, anchor_rows: Ints) -> Ints:
        """The lists of some anchors, NO_OWNER of those that no seed is about. [m]"""
        if not self.anchor_rows.size:
            return np.full(anchor_rows.size, NO_OWNER)
        place = np.minimum(
            np.searchsorted(self.anchor_rows, anchor_rows), self.anchor_rows.size - 1
        )
        return np.where(self.anchor_rows[place] == anchor_rows, place, NO_OWNER)


def label_lists(labels: Labels, label_window_us: int) -> LabelLists:
    """Lists of train labels. A label is known when the store says so, else `label_window_us` after
    its obs_time; always later than it, so that no seed sees its own."""
    train = np.flatnonzero((labels.splits == TRAIN) & labels.is_known)
    anchors, owners = np.unique(labels.anchor_rows.astype(np.int64), return_inverse=True)
    owners = owners.reshape(-1).astype(np.int64)
    known = known_times(labels, label_window_us)[train]
    lists, order = make_lists(owners[train], known, anchors.size)
    return LabelLists(lists=lists, seeds=train[order], anchor_rows=anchors, owners=owners)


def known_times(labels: Labels, label_window_us: int) -> Ints:
    """When the label of each seed is known; NO_TIME for never. [seeds]"""
    obs = labels.obs_times
    if labels.label_times is not None:
        known = labels.label_times
    else:
        known = np.minimum(obs, NO_TIME - label_window_us) + label_window_us
    return np.asarray(np.maximum(known, np.minimum(obs, NO_TIME - 1) + 1))


def label_features(
    labels: Labels, lists: LabelLists, questions: Questions, stype: SemanticType
) -> dict[str, Floats]:
    """Count, means, last and age of the anchor's own known labels; times as days after obs_time.

    Questions without a time, which no label is earlier than, have none.
    """
    moments = questions.moments
    own = lists.owners_of(questions.anchor_rows)
    owners = np.where(moments.obs_times == NO_TIME, NO_OWNER, own)
    seen = Seen(lists.lists, owners, moments)
    found = count_features(seen, ())
    targets = labels.targets[lists.seeds]
    if stype == SemanticType.TIMESTAMP:
        targets = (targets - labels.obs_times[lists.seeds]) / US_PER_DAY
    found |= value_features(targets, seen, RECENTS)
    kept = ("count", "age of last", "last") if stype == SemanticType.CATEGORICAL else tuple(found)
    return {f"labels: {name}": found[name] for name in kept}
