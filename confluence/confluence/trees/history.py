"""The history of anchors before a time: rows that point at them, and their known labels.

    Store.edges, Store.column ──► paths: lists of rows by anchor, by when they may be seen
    known labels              ──► one more list
    paths × seeds             ──► counts, ages, means as of each seed's time      [m,F] float64

A path is a foreign key that points at the anchor's table ("orders.customer_id"); one that points
at a row of such a path ("orders.customer_id < order_items.order_id"), visible when both are; or one
that points at a parent of the anchor ("results.driverId > standings.driverId").

Rows are visible by the rules of docs/reference/sampling.md for rows that are not chain rows: row
times, null times, keys and columns known later, exclusive cutoffs and a frozen database hold here
as in a context. Keys with a hidden or target column have no paths. A hidden or target column has
values here only in earlier rows under an exclusive cutoff; those of the target only in rows that
`context_labels` lets a context show. If the rules would need a row's own case, the row is left
out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from typing import Any

import headwater
import numpy as np
from headwater import SemanticType
from numpy.typing import NDArray

from confluence.data.tasks import NO_TIME, TRAIN, US_PER_DAY, Floats, Labels, Task
from confluence.trees.time_lists import (
    NO_OWNER,
    Ints,
    Lists,
    Moments,
    Questions,
    count_features,
    make_lists,
    value_features,
)

WINDOWS = (30, 365)  # days before T in which rows are counted
RECENTS = (5, 16)  # the latest values of which means are taken
SHARES = 3  # of the most common categories, how often each came
MAX_COLUMNS = 250  # of the rows on all paths, whose values are features
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
    has_values: bool  # columns of the rows are features, not only their number


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
        found = self.store.edges(key.name)
        rows = found["rows"].astype(np.int64) - self.row_range(key.child)[0]
        return Lists(starts=found["starts"], times=found["times"]), rows

    def row_times(self, table: str, rows: Ints) -> Ints:
        """When rows of a table, counted within it, become visible; ALWAYS without times. [m]"""
        distinct, place = np.unique(rows, return_inverse=True)
        low = self.row_range(table)[0]
        times = (self.store.row_time(int(low + row)) for row in distinct)
        return np.fromiter(times, np.int64, distinct.size)[place.reshape(-1)]

    # ---- paths ---------------------------------------------------------------------------

    def paths(self, anchors: Ints, moments: Moments) -> Iterator[Path]:
        """Paths of some seeds; `anchors` are rows within the anchor table. [m]"""
        direct = [key for key in self.keys if key.parent == self.anchor_table]
        for key in direct:
            yield self._path(key.name, key, anchors)
        further = chain(self._through_parents(anchors, moments), self._grandchildren(anchors))
        yield from islice(further, MAX_PATHS)

    def _path(self, name: str, key: Key, owners: Ints) -> Path:
        lists, rows = self.edges(key)
        return Path(
            name=name, table=key.child, lists=lists, rows=rows, owners=owners, has_values=True
        )

    def _through_parents(self, anchors: Ints, moments: Moments) -> Iterator[Path]:
        for up in (key for key in self.keys if key.child == self.anchor_table):
            parents = self._visible_parents(up, anchors, moments)
            for key in (key for key in self.keys if key.parent == up.parent):
                yield self._path(f"{up.name} > {key.name}", key, parents)

    def _visible_parents(self, up: Key, anchors: Ints, moments: Moments) -> Ints:
        """Parent of each anchor, NO_OWNER where there is none or it is not visible yet. [m]"""
        lists, rows = self.edges(up)
        low, high = self.row_range(up.child)
        parent_of = np.full(high - low, NO_OWNER)
        parent_of[rows] = np.repeat(np.arange(lists.starts.size - 1), np.diff(lists.starts))
        parents = parent_of[anchors]
        has_parent = parents != NO_OWNER
        times = np.full(anchors.size, NO_TIME)
        times[has_parent] = self.row_times(up.parent, parents[has_parent])
        for column in up.columns:
            times = np.maximum(times, self.store.column(up.child, column)["times"][anchors])
        return np.where(times <= moments.cutoffs, parents, NO_OWNER)

    def _grandchildren(self, anchors: Ints) -> Iterator[Path]:
        for first in (key for key in self.keys if key.parent == self.anchor_table):
            for second in (key for key in self.keys if key.parent == first.child):
                joined = self._joined(first, second)
                if joined is not None:
                    yield Path(
                        name=f"{first.name} < {second.name}", table=second.child, lists=joined[0],
                        rows=joined[1], owners=anchors, has_values=False,
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

    def column_features(
        self, path: Path, column: dict[str, Any], limits: Ints
    ) -> tuple[dict[str, Floats], dict[str, tuple[str, ...]]]:
        """Features of a column along a path, and of one that is a category its texts."""
        lists, values = self.values(path, column["name"])
        seen = lists.counts(path.owners, limits)
        name = f"{path.name}: {column['name']}"
        if column["stype"] != "categorical":
            found = value_features(lists, values, path.owners, seen, RECENTS)
            return {f"{name} {kind}": found[kind] for kind in found}, {}
        last = value_features(lists, values, path.owners, seen, RECENTS)["last"]
        features = {f"{name} last": last}
        texts = tuple((column.get("stats") or {}).get("categories") or ())
        if self._chooses and not self.columns[name]:
            common = self._most_common(lists, values)
            self.columns[name] = tuple(texts[category] for category in common)
        for text in self.columns[name]:
            category = texts.index(text) if text in texts else -1
            is_it = (values == category).astype(np.float64)
            found = value_features(lists, is_it, path.owners, seen, RECENTS)
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
        that, contexts have no label rows either. A cell task's are cells."""
        return self.is_cell or self.labels.label_times is not None

    def columns_of(self, path: Path, unseen: NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
        """Columns of the rows of a path whose values are features; withheld ones only if all rows
        have a time, as they are never shown on a row without one, and some question may see them.

        Args:
            unseen: whether each question is one of `anchors_unseen`.
        """
        if not path.has_values:
            return
        entry = self.store.metadata["tables"][self.store.table_index(path.table)]
        timed = entry["temporal_column"] is not None and not entry["untimed"]
        never = self.never_shown | (set() if timed else self.hidden)
        for column in self.store.metadata["columns"][slice(*entry["column_range"])]:
            name = f"{path.name}: {column['name']}"
            if self._chooses:
                of_table = f"{path.table}.{column['name']}"
                may_be = column["stype"] in VALUE_STYPES and of_table not in never
                if not may_be or (of_table in self.withheld and not unseen.any()):
                    continue
                if name not in self.columns and len(self.columns) >= MAX_COLUMNS:
                    continue
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

    def values(self, path: Path, column: str) -> tuple[Lists, Floats]:
        """The values that are not NULL of a column along a path, as lists of their own."""
        found = self.store.column(path.table, column)
        numbers, known = found["numbers"][path.rows], found["times"][path.rows]
        keep = ~np.isnan(numbers)
        if f"{path.table}.{column}" in self.target:
            keep &= ~self._is_closed[path.rows]
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
    found = count_features(lists.lists, owners, moments, ())
    targets = labels.targets[lists.seeds]
    if stype == SemanticType.TIMESTAMP:
        targets = (targets - labels.obs_times[lists.seeds]) / US_PER_DAY
    seen = lists.lists.counts(owners, moments.limits)
    found |= value_features(lists.lists, targets, owners, seen, RECENTS)
    kept = ("count", "age of last", "last") if stype == SemanticType.CATEGORICAL else tuple(found)
    return {f"labels: {name}": found[name] for name in kept}
