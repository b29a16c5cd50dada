"""Features of the anchor's own columns, those of its parents and of their parents: a baseline.

    sampler that walks only to parents  ──► which rows and cells are visible    [m,F] bool
    Store.column                        ──► their values               [m,F] float64, NaN otherwise
                                        ──► Features for trees

    rental.staff_id       staff      A way is a foreign key of the anchor's table, or one of these
    rental.inventory_id   inventory  and a key of the parent's table. Ways come in the order in
    ... > inventory.film_id   film   which a context visits the rows at their ends.

This file does not decide which cells are visible. Its sampler goes two hops and has no room for
children, so its contexts show exactly the cells of these rows that the model sees. `known_at`,
hidden columns, the target, the times of parents and a frozen database therefore mean the same to
the trees as to the model. Features are numbers, truth values, categories, times as their age in
days at obs_time, and the age of the anchor's row; never texts or keys. The rows at the ends of all
ways have at most MAX_PARENT_CELLS cells; the columns of further ways are left out and counted.
Cost: one small sequence per question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import headwater
import numpy as np
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.tasks import NO_TIME, US_PER_DAY, Floats, Task, open_sampler
from confluence.trees.boosted import Features
from confluence.trees.time_lists import Ints, Questions

FEATURE_STYPES = ("numerical", "boolean", "categorical", "timestamp")
SAMPLE_BATCH = 256  # most sequences per batch of the sampler
MOST_PLACES = 1 << 25  # rows times columns of a batch
MAX_PARENT_CELLS = 1_000  # of the rows at the ends of all ways
MAX_HOPS = 2
ROW_AGE = "row age"  # a feature of its own
NO_ROW = 65_535  # in `parents`: the context has no such row, or an earlier key has it
NULL_TARGET_PADDING = 8 | 16 | 32  # bits of `cells`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """From the anchor to a row that it points at, or that a parent of it points at."""

    name: str  # such as "rental.inventory_id > inventory.film_id"; empty for the anchor itself
    table: int  # of the row
    hops: int
    before: int = -1  # number of the way that this one continues
    slot: int = -1  # of its key among the keys of the table before, as in `parents` of a batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ways:
    """The anchor first, then the ways to its parents, then those to their parents."""

    kept: tuple[Way, ...]
    cells: int  # at most, in a context of all these rows
    left_out: int  # columns of rows at the ends of further ways that would be features


def find_ways(metadata: Mapping[str, Any], table: int, most: int = MAX_PARENT_CELLS) -> Ways:
    """The ways from an anchor's table; if their rows have too many cells, only the first ways."""
    found = [Way(name="", table=table, hops=0)]
    for number, way in enumerate(found):  # grows as it is read: first in, first out
        if way.hops == MAX_HOPS:
            break
        entry = metadata["tables"][way.table]
        names = [one["name"] for one in metadata["tables"]]
        joined = ["+".join(key["columns"]) for key in entry["foreign_keys"]]
        for slot, key in enumerate(entry["foreign_keys"]):
            name = f"{entry['name']}.{joined[slot]}"
            if joined.count(joined[slot]) > 1:  # one key of two tables
                name += f" in {key['references']['table']}"
            found.append(
                Way(
                    name=f"{way.name} > {name}" if way.name else name, before=number, slot=slot,
                    table=names.index(key["references"]["table"]), hops=way.hops + 1,
                )
            )  # fmt: skip
    cells = np.cumsum([len(_columns(metadata, way.table)) for way in found[1:]])
    count = int(np.searchsorted(cells, most, side="right"))
    return Ways(
        kept=tuple(found[: count + 1]),
        cells=len(_columns(metadata, table)) + (int(cells[count - 1]) if count else 0),
        left_out=sum(len(_features(metadata, way.table)) for way in found[count + 1 :]),
    )


def _columns(metadata: Mapping[str, Any], table: int) -> list[Mapping[str, Any]]:
    """The columns of a table."""
    return list(metadata["columns"][slice(*metadata["tables"][table]["column_range"])])


def _features(metadata: Mapping[str, Any], table: int) -> list[tuple[int, Mapping[str, Any]]]:
    """The columns of a table that may be features, and their places in it."""
    about = enumerate(_columns(metadata, table))
    return [(place, column) for place, column in about if column["stype"] in FEATURE_STYPES]


class OwnColumns:
    """Reads the features of questions to a task.

    Its sampler is opened when it is first needed, and shut down by `close` or at the end of a
    `with`.
    """

    def __init__(self, store: headwater.Store, cfg: Config, task: Task) -> None:
        self.store, self.cfg, self.task = store, cfg, task
        self._tables = store.metadata["tables"]
        self._entry = store.metadata["tasks"][task.index]
        ways = find_ways(store.metadata, store.table_index(self._entry["anchor_table"]))
        self._ways, self._most_cells, self.left_out = ways.kept, ways.cells, ways.left_out
        ranges = np.array([table["column_range"] for table in self._tables], np.int64)
        self._lows = ranges[:, 0]
        self._widest = max(int(np.diff(ranges[way.table])[0]) for way in self._ways)
        self._sampler: Any = None

    def __enter__(self) -> OwnColumns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the sampler down."""
        if self._sampler is not None:
            self._sampler.shutdown()

    def features(self, questions: Questions) -> Features:
        """Features of questions in their order, at the time of each. A question's own cutoff
        applies to rows that point at the anchor; values of the anchor and its parents do not age
        with it."""
        rows, visible, age = self._read_all(questions)
        times, parts = questions.moments.obs_times, [np.empty((rows.shape[0], 0))]
        names: list[str] = []
        categories: dict[str, tuple[str, ...]] = {}
        for number, way in enumerate(self._ways):
            columns = [column for _, column in _features(self.store.metadata, way.table)]
            values = self.values(way.table, rows[:, number])
            is_time = np.array([column["stype"] == "timestamp" for column in columns], bool)
            parts.append(np.where(visible[number], as_ages(values, times, is_time), np.nan))
            own = [f"{way.name} > {c['name']}" if way.name else c["name"] for c in columns]
            own = [f"{name} (column)" if name == ROW_AGE else name for name in own]
            names += own
            categories |= {
                name: tuple((column.get("stats") or {}).get("categories") or ())
                for name, column in zip(own, columns, strict=True)
                if column["stype"] == "categorical"
            }
        return Features(
            index=questions.index,
            values=np.column_stack([*parts, np.where(age >= 0, age, np.nan)]),
            names=(*names, ROW_AGE),
            categories=categories,
        )

    def _open(self) -> Any:
        if self._sampler is None:
            size = MOST_PLACES // (len(self._ways) * self._widest)
            self._sampler = open_sampler(
                self.store, self.cfg, self.task.name, max_hops=self._ways[-1].hops,
                bfs_child_width=1, max_rows=1 + len(self._ways),
                default_sequence_length=self._most_cells + 3,
                default_batch_size=max(1, min(SAMPLE_BATCH, size)),
                identifier_cells="foreign_keys", layout="compact", with_rows=True,
                child_counts=False, label_rows=0, peer_labels=0, staleness=None,
            )  # fmt: skip
        return self._sampler

    def _read_all(self, questions: Questions) -> tuple[Ints, list[NDArray[np.bool_]], Floats]:
        """The results of `read` for all questions [m], and the ages of the anchors' rows. [m]"""
        anchor = int(self._entry["kind"] == "derived")  # local row
        ages, rows = [np.empty(0)], [np.empty((0, len(self._ways)), np.int64)]
        seen = [[np.empty((0, len(self._feature_places(way))), bool)] for way in self._ways]
        asked, times = questions.anchor_rows, questions.moments.obs_times
        pass_over = (
            self._open().batches_for(self.task.name, rows=asked, obs_time=times)
            if asked.size
            else ()
        )
        for batch in pass_over:
            count = int(batch["num_sequences"][0])
            found, visible = self.read(batch, anchor)
            rows.append(found[:count])
            for of_way, columns in zip(seen, visible, strict=True):
                of_way.append(columns[:count])
            ages.append(batch["row_ages"][:count, anchor].astype(np.float64))
        return np.concatenate(rows), [np.concatenate(s) for s in seen], np.concatenate(ages)

    def read(self, batch: Any, anchor: int) -> tuple[Ints, list[NDArray[np.bool_]]]:
        """Rows at the ends of ways [B,ways], -1 if none is visible; and for each way which of the
        columns that may be features are visible [B,columns]."""
        shown, row_ids = self._shown(batch), batch.info["row_ids"].astype(np.int64)
        sequences = np.arange(len(row_ids))
        local = np.full((sequences.size, len(self._ways)), NO_ROW)
        local[:, 0] = anchor
        visible = []
        for number, way in enumerate(self._ways):
            if way.before >= 0:
                local[:, number] = self._parents(batch, local[:, way.before], way)
            is_there = local[:, number] != NO_ROW
            at = shown[sequences, np.where(is_there, local[:, number], 0)]
            visible.append(at[:, self._feature_places(way)] & is_there[:, None])
        is_there = local != NO_ROW
        rows = row_ids[sequences[:, None], np.where(is_there, local, 0)]
        return np.where(is_there, rows, -1), visible

    def _feature_places(self, way: Way) -> list[int]:
        return [place for place, _ in _features(self.store.metadata, way.table)]

    def _shown(self, batch: Any) -> NDArray[np.bool_]:
        """Which columns, by their places in its table, a batch shows for each local row. NULL and
        the target are not shown. [B,R,widest]"""
        counts = np.diff(batch["row_starts"].astype(np.int64), axis=1)
        found = np.zeros((*counts.shape, self._widest), bool)
        is_cell = batch["cells"] & 32 == 0
        sequence, _ = np.nonzero(is_cell)
        row = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
        tables = batch["row_tables"].astype(np.int64)[sequence, row]
        keep = (batch["cells"][is_cell] & NULL_TARGET_PADDING == 0) & (tables < len(self._tables))
        sequence, row, tables = sequence[keep], row[keep], tables[keep]
        place = batch["cell_columns"][is_cell][keep].astype(np.int64) - self._lows[tables]
        inside = place < self._widest  # children, which no way leads to, may be wider
        found[sequence[inside], row[inside], place[inside]] = True
        return found

    def values(self, table: int, rows: Ints) -> Floats:
        """The values of some rows of a table (global numbers) in the columns that may be features;
        NaN for NULL or if there is no row (-1). [m,columns]"""
        low, entry = int(self._tables[table]["row_range"][0]), self._tables[table]["name"]
        names = [column["name"] for _, column in _features(self.store.metadata, table)]
        found = np.full((rows.size, len(names)), np.nan)
        for place, name in enumerate(names):
            numbers = self.store.column(entry, name)["numbers"]
            found[rows >= 0, place] = numbers[rows[rows >= 0] - low]
        return found

    def _parents(self, batch: Any, before: Ints, way: Way) -> Ints:
        """The local row that each row `before` points at, NO_ROW if it is not visible. [B]"""
        sequences, is_there = np.arange(before.size), before != NO_ROW
        at = np.where(is_there, before, 0)
        parents = batch["parents"].astype(np.int64)[sequences, at]  # [B,P]
        return np.where(is_there, parents[:, way.slot], NO_ROW)


def as_ages(values: Floats, obs_times: NDArray[np.int64], is_time: NDArray[np.bool_]) -> Floats:
    """Replace times by their age in days at obs_time; by days before 1970 without an obs_time."""
    now = np.where(obs_times == NO_TIME, 0, obs_times).astype(np.float64)[:, None]
    return np.where(is_time, (now - values) / US_PER_DAY, values)
