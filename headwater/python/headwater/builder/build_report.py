"""What a build did: the store's metadata.json and the summary printed at the end.

`store_metadata` gives the dict of docs/reference/store-format.md, metadata.json: facts of the store
only, no path and no clock, so that equal sources give equal bytes. `BuildReport` adds facts of this
build, such as its path and size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headwater import binding
from headwater.builder.convert import Conversion
from headwater.builder.encode import Encoder, Layout, StoreColumn
from headwater.builder.task_seeds import FOREVER_US, TaskSeeds
from headwater.embedding.previous_store import change_lines
from headwater.metadata.parts import SPLITS
from headwater.notebook import counted, html_line, html_list, html_table, short, short_lines
from headwater.sources.value_sql import LAST_US
from headwater.store.dropped_seeds import SAME_DAY, empty_lines, reason_text
from headwater.store.inspection import (
    NO_TIMES,
    bytes_text,
    far_values_of,
    losses_of,
    no_times_reached,
    timeless_of,
)
from headwater.store.store import column_numbers, row_counts

TABLES_SHOWN, TASKS_SHOWN = 13, 5  # with a line each, when a report is printed
TABLE_COUNTS = ("rows", "edges", "dangling", "null keys")


@dataclass(frozen=True, kw_only=True, repr=False)
class BuildReport:
    """Counts of a finished build; `str()` is the summary for people, `to_dict()` for programs."""

    path: Path
    fingerprint: str
    store_bytes: dict[str, int] = field(default_factory=dict)  # by part
    undecodable_count: int = 0
    inferred: bool = False  # the schema was inferred, not given
    assumed: tuple[str, ...] = ()  # by the inference, for a person to check
    source_notes: tuple[str, ...] = ()  # what the source has and the build did not take
    embedding: dict[str, int] = field(default_factory=dict)  # where vectors came from
    changes: dict[str, Any] | None = None  # since the store before; None of a first build
    resumed: tuple[str, ...] = ()  # stages that a killed build had done
    left: tuple[str, ...] = ()  # folders named like builds that were not removed
    conversions: tuple[Conversion, ...]
    metadata: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        facts = dataclasses.asdict(self) | {"path": str(self.path)}
        return {key: list(v) if isinstance(v, tuple) else v for key, v in facts.items()}

    def losses(self) -> list[str]:
        """One line for everything that was dropped, became NULL or leads nowhere."""
        lines = [
            f"{c.count:,} values of {c.table}.{c.column} became NULL: {c.reason} "
            f"(for example '{c.example}')"
            for c in self.conversions
        ]
        return lines + losses_of(self.metadata)

    def notes(self) -> list[str]:
        """Lines on facts that agree with the metadata and yet are often mistakes. First come tasks
        that have no seeds or hardly any, then rows that are never shown, and rows that are shown at
        any time and so may show the future."""
        timed = {t["name"]: t["temporal_column"] for t in self.metadata["tables"]}
        tasks = self.metadata["tasks"]
        first = {task["name"]: empty_lines(task, timed[task["anchor_table"]]) for task in tasks}
        lines = [line for found in first.values() for line in found] + list(self.source_notes)
        for table in self.metadata["tables"]:
            name, hidden = table["name"], table["null_time"] == "hidden"
            if hidden and table["untimed"]:
                lines.append(
                    f"{table['untimed']:,} rows of {name} have no time and are never shown "
                    "(see 'null_time')"
                )
            for key in table["keys_out_of_graph"]:
                lines.append(f"foreign key {name}.{key} has no edges, as that table is not walked")
            above = dict.fromkeys(key["references"]["table"] for key in table["foreign_keys"])
            parents = [parent for parent in above if timed[parent] is not None]
            if timed[name] is None and parents:
                lines.append(
                    f"{name} has no temporal column: its rows are shown at any time, though they "
                    f"point at {parents[0]}, which has one"
                )
        lines += timeless_of(self.metadata) + far_values_of(self.metadata)
        for task in tasks:
            for name, column in timed.items():
                if column is not None and f"{name}.{column}" in task["hidden_columns"]:
                    lines.append(
                        f"task {task['name']} hides {name}.{column}, but the age of each row and "
                        "the order of rows tell this time"
                    )
            if task["obs_time_range"] and no_times_reached(self.metadata, task["anchor_table"]):
                lines.append(f"task {task['name']}: {NO_TIMES.format(task['anchor_table'])}")
            if count := task["unlike_cells"]:
                cell = f"{task['anchor_table']}.{task['target_column']}"
                lines.append(
                    f"task {task['name']}: {count:,} answers are not what {cell} holds, whose "
                    "cells they are taken for by their name; if the query asks about something "
                    'else, name it otherwise, or state "kind": "derived"'
                )
            if count := task["repeated"]["questions"]:
                several = task["repeated"]["disagreeing"]
                lines.append(
                    f"{count:,} questions of task {task['name']} are asked more than once: rows of"
                    " one anchor and time" + (f", {several:,} with several answers" * bool(several))
                )
            if (count := task["dropped"].get(SAME_DAY)) and not first[task["name"]]:
                why = reason_text(task, timed[task["anchor_table"]], SAME_DAY, count)
                lines.append(f"task {task['name']}: {why}")
        return lines

    def change_lines(self) -> list[str]:
        if self.changes is None:
            return []
        lines = change_lines(self.changes)
        if not lines:
            return ["since the last build: no row, column, text or seed count changed"]
        return [f"since the last build ({len(lines)}):", *(f"  {line}" for line in lines)]

    def work_lines(self) -> list[str]:
        """What was not done again, and what embedding took."""
        lines = []
        if self.resumed:
            parts = [stage for stage in self.resumed if not stage.startswith("table ")]
            count = len(self.resumed) - len(parts)
            parts += [f"{count} converted tables"] if count else []
            lines.append(f"taken from a build that was cut short: {', '.join(parts)}")
        counts = self.embedding
        if counts.get("embedded", 0) + counts.get("cached", 0):
            lines.append(
                f"vectors: {counts['embedded']:,} embedded, {counts['cached']:,} from the cache"
            )
        if counts.get("requests"):
            lines.append(
                f"requests: {counts['requests']:,}, {counts['retries']:,} of them tried again, "
                f"{counts['tokens']:,} tokens"
            )
        if counts.get("cut"):
            lines.append(f"{counts['cut']:,} texts were cut to max_characters")
        if counts.get("damaged"):
            lines.append(f"{counts['damaged']:,} vectors of the cache were damaged, embedded again")
        return lines

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.metadata['name']}, build {self.fingerprint[:12]}"]
        lines += _table_lines(self.metadata)
        for task in self.metadata["tasks"]:
            lines += _task_lines(task) + _hidden_lines(task, self.metadata)
        spelled = {t["name"]: t["null_values"] for t in self.metadata["tables"] if t["null_values"]}
        if spelled:
            listed = ", ".join(f"{count:,} of {name}" for name, count in spelled.items())
            lines.append(f"spelled as NULL, as the metadata say: {listed}")
        if self.assumed:
            lines.append(f"assumed, as no metadata were given ({len(self.assumed)}):")
            lines += [f"  {line}" for line in self.assumed]
            lines.append("  to change any of it: headwater init, edit, build --metadata")
        losses = self.losses()
        lines.append(f"not taken as it was ({len(losses)}):" if losses else "nothing was dropped")
        lines += [f"  {line}" for line in losses]
        notes = self.notes()
        lines += [f"to check ({len(notes)}):"] if notes else []
        lines += [f"  {note}" for note in notes]
        lines += self.change_lines() + self.work_lines()
        if self.left:
            left = ", ".join(self.left)
            lines.append(f"not removed, as they are not builds or hold other files too: {left}")
        lines.append(bytes_text(self.store_bytes, self.metadata["csv_bytes"]))
        return "\n".join(lines)

    def __repr__(self) -> str:
        tables = (
            f"{name}: {counted(rows, 'row')}, {counted(edges, 'edge')}"
            for name, rows, edges, *_ in _table_counts(self.metadata)
        )
        tasks = (
            f"task {task['name']}: "
            + ", ".join(f"{split} {task['seeds'][split]:,}" for split in SPLITS)
            for task in self.metadata["tasks"]
        )
        lines = [short(f"<BuildReport of '{short(self.path, 40)}': {self._headline()}>")]
        lines += short_lines(tables, TABLES_SHOWN, "table")
        lines += short_lines(tasks, TASKS_SHOWN, "task")
        found = (len(self.assumed), len(self.losses()), len(self.notes()))
        lines.append("  {:,} assumed, {:,} not taken as it was, {:,} to check".format(*found))
        return "\n".join([*lines, "  print(report) shows all of it"])

    def _repr_html_(self) -> str:
        tables = [[name, *(f"{n:,}" for n in of)] for name, *of in _table_counts(self.metadata)]
        tasks = [
            [task["name"], f"{task['kind']}, {task['target_stype']}",
             *(f"{task['seeds'][part]:,}" for part in (*SPLITS, "unlabelled"))]
            for task in self.metadata["tasks"]
        ]  # fmt: skip
        losses, notes = self.losses(), self.notes()
        return (
            html_line(f"{self.path}: {self._headline()}")
            + html_table(["table", *TABLE_COUNTS], tables, "table")
            + html_table(["task", "kind", *SPLITS, "unlabelled"], tasks, "task")
            + html_list(
                f"assumed, as no metadata were given ({len(self.assumed)}):", self.assumed, "line"
            )
            + html_list(f"not taken as it was ({len(losses)}):", losses, "line")
            + html_list(f"to check ({len(notes)}):", notes, "line")
        )

    def _headline(self) -> str:
        counts = f"{counted(len(self.metadata['tables']), 'table')}, "
        counts += counted(len(self.metadata["tasks"]), "task")
        return f"build {self.fingerprint[:12]}, {counts}"


def _table_lines(metadata: dict[str, Any]) -> list[str]:
    names = [table["name"] for table in metadata["tables"]]
    width = max([len(name) for name in names] + [5])
    columns = zip(TABLE_COUNTS, (12, 12, 9, 10), strict=True)
    lines = [f"  {'table':<{width}} {' '.join(f'{name:>{size}}' for name, size in columns)}"]
    for name, rows, edges, dangling, nulls in _table_counts(metadata):
        lines.append(f"  {name:<{width}} {rows:>12,} {edges:>12,} {dangling:>9,} {nulls:>10,}")
    return lines


def _table_counts(metadata: dict[str, Any]) -> Iterator[tuple[str, int, int, int, int]]:
    """The name of each table, and the numbers that TABLE_COUNTS names."""
    rows = row_counts(metadata)
    for table in metadata["tables"]:
        edges, dangling, nulls = (
            sum(key[what] for key in table["foreign_keys"])
            for what in ("edges", "dangling", "nulls")
        )
        yield table["name"], rows[table["name"]], edges, dangling, nulls


def _task_lines(task: dict[str, Any]) -> list[str]:
    seeds, span = task["seeds"], task["obs_time_range"]
    splits = ", ".join(f"{split} {seeds[split]:,}" for split in SPLITS)
    times = f"{span[0][:10]} to {span[1][:10]}" if span else "no observation times"
    balance = task["stats"]
    if "classes" in balance:
        shown = ", ".join(f"{name} {count:,}" for name, count in balance["classes"].items())
    else:
        is_time = task["target_stype"] == "timestamp"  # then they are microseconds
        values = (iso_time(v)[:10] if is_time else f"{v:g}" for v in balance["quantiles"])
        shown = f"quantiles {', '.join(values)}"
    return [
        f"  task {task['name']} ({task['kind']}, {task['target_stype']}): {splits}, "
        f"unlabelled {seeds['unlabelled']:,}; {task['split']} split",
        f"    {times}; {shown or 'no labels'}",
    ]


def _hidden_lines(task: dict[str, Any], metadata: dict[str, Any]) -> list[str]:
    """The hidden columns of a task by table, and on how many rows they are never shown as these
    have no time: docs/reference/sampling.md, "Withheld cells"."""
    hidden, lines, counts = set(task["hidden_columns"]), [], row_counts(metadata)
    is_timed = {
        t["name"]: t["temporal_column"] is not None and t["untimed"] < max(counts[t["name"]], 1)
        for t in metadata["tables"]
    }
    anchor = task["anchor_table"]
    for table in metadata["tables"]:
        columns = [f"{table['name']}.{name}" for name in column_numbers(metadata, table)]
        named = [column for column in columns if column in hidden]
        if named:
            count = counts[table["name"]]
            untimed = table["untimed"] if is_timed[table["name"]] else count
            never = 0 < untimed == count or not is_timed[anchor]
            why = f" (rows of {anchor}, its anchors, have no time)" * (not is_timed[anchor])
            lines.append(
                f"    hidden: {', '.join(named)}; {untimed:,} of {count:,} rows have no time"
                + f": never shown{why}" * never
            )
    return lines


def store_metadata(
    name: str,
    encoder: Encoder,
    *,
    text: dict[str, Any],
    stats_until_us: int,
    options: dict[str, Any],
    csv_bytes: int,
    undecodable_count: int,
) -> dict[str, Any]:
    """The dict written as metadata.json into the store, once the builder has everything."""
    layout, builder = encoder.layout, encoder.builder
    return {
        "name": name,
        "format_version": binding.FORMAT_VERSION,
        "text": text,
        "stats_until": None if stats_until_us == FOREVER_US else iso_time(stats_until_us),
        "options": options,
        "csv_bytes": csv_bytes,  # of the source: all tables, and label tables
        "undecodable": undecodable_count,  # not UTF-8, or a zero in a category
        "tables": _tables(layout, encoder.edge_counts),
        "columns": [
            _column(column, builder.column_stats(number), encoder.categories.get(number))
            for number, column in enumerate(layout.columns)
        ],
        "tasks": [
            _task(layout, seeds, dict(zip(SPLITS, builder.seed_splits(seeds.index), strict=True)))
            for seeds in layout.tasks
        ],
    }


def _tables(layout: Layout, edge_counts: dict[int, int]) -> list[dict[str, Any]]:
    entries, row = [], 0
    for table, start in zip(layout.tables, layout.column_starts, strict=True):
        keys = [edges for edges in layout.edges if edges.child.index == table.index]
        entries.append(
            {
                "name": table.table.name,
                "description": table.table.description,
                "row_range": [row, row + table.row_count],
                "column_range": [start, start + len(table.table.columns)],
                "primary_key": list(table.table.primary_key),
                "temporal_column": table.table.temporal_column,
                "time_resolution": "day" if table.days else "instant",
                "null_time": table.table.null_time,
                "foreign_keys": [
                    {
                        "columns": list(edges.key.columns),
                        "references": {
                            "table": edges.key.table,
                            "columns": list(edges.key.references),
                        },
                        "edges": edge_counts[edges.index],
                        "dangling": table.row_count - edge_counts[edges.index] - edges.null_count,
                        "nulls": edges.null_count,
                    }
                    for edges in keys
                ],
                "keys_out_of_graph": [  # foreign keys to tables with "graph": false: no edges
                    f"{'+'.join(key.columns)} to {key.table}"
                    for key in table.table.every_key()
                    if all(other.table.name != key.table for other in layout.tables)
                ],
                "duplicates_dropped": table.duplicate_count,
                "null_values": table.null_value_count,
                "untimed": table.untimed_count,
                "conversions": [
                    {"column": c.column, "reason": c.reason, "count": c.count}
                    for c in table.conversions
                ],
                "csv_bytes": table.csv_bytes,
                **({"extremes": [e.to_json() for e in table.extremes]} if table.extremes else {}),
            }
        )
        row += table.row_count
    return entries


def _column(
    column: StoreColumn, found: dict[str, Any], categories: tuple[str, ...] | None
) -> dict[str, Any]:
    stats: dict[str, Any] = {}
    if not column.of_task and column.stype != "ignored":
        stats = {"count": found["value_count"], "nulls": found["null_count"]}
    if column.stype == "numerical":
        stats |= {key: found[key] for key in ("mean", "std", "min", "max")}
    if column.stype == "timestamp" and stats.get("count"):
        stats |= {"min": iso_time(found["min_us"]), "max": iso_time(found["max_us"])}
    if column.stype == "boolean" and stats:
        stats |= {"true": found["true_count"], "false": stats["count"] - found["true_count"]}
    if column.stype == "categorical":
        stats |= {"categories": list(categories or ()), "cat_emb_start": found["category_start"]}
    return {
        "table": None if column.of_task else column.owner,
        **({"task": column.owner} if column.of_task else {}),
        "name": column.name,
        "stype": column.stype,
        **({"description": column.description} if column.description else {}),
        **({"known_at": column.known_at} if column.known_at != "creation" else {}),
        "stats": stats,
    }


def _task(layout: Layout, seeds: TaskSeeds, counts: dict[str, int]) -> dict[str, Any]:
    task, own = seeds.task, layout.task_columns[seeds.index]
    span, latest = seeds.obs_range_us, seeds.latest_train_us
    return {
        "name": task.name,
        "kind": seeds.kind,
        "anchor_table": task.anchor_table,
        "target_column": task.target_column,
        "target_stype": task.target_stype,
        "target_column_id": layout.target_column(seeds),
        "obs_time_column_id": None if own is None else own[0],
        "seeds": {**counts, "unlabelled": seeds.unlabelled_count},
        "null_targets": seeds.null_target_count,
        "unlike_cells": seeds.unlike_cells,
        "repeated": dict(zip(("questions", "disagreeing"), seeds.repeated, strict=True)),
        "stats": seeds.balance,
        "latest_train_time": None if latest is None else iso_time(latest),
        "obs_time_range": None if span is None else list(map(iso_time, span)),
        "sees_everything": task.sees_everything,
        "cutoff": "exclusive" if seeds.exclusive else "inclusive",
        "context_labels": seeds.context_labels,
        "label_window_us": task.label_window_us,
        "allow_future_anchor": task.allow_future_anchor,
        "hidden_columns": [str(column) for column in seeds.hidden],
        "query": task.query,
        **seeds.entry(),
        "bad_targets": seeds.bad_target_count,
    }


def iso_time(time_us: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC. The day 9999-12-31 ends beyond the calendar:
    such a time is written as its last moment."""
    stamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=min(time_us, LAST_US))
    return stamp.isoformat().replace("+00:00", "Z")
