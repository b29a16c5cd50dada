"""What `headwater inspect` shows: the store's own metadata.json and the sizes of its files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import nearest
from headwater.metadata.parts import SPLITS, format_duration
from headwater.store.extreme_values import FAR, extremes_text
from headwater.store.rendering import aligned, time_text
from headwater.store.store import Store, key_name, row_counts

NO_TIMES = (
    "it is asked at times, but no table that links lead to from {} has a temporal column: contexts "
    "show all rows, those of the future too"
)
SIZE_PARTS = {
    "graph, tables and tasks": ("graph.bin", "tables/", "tasks/"),
    "keys and texts": ("keys.bin", "texts.bin"),
    "embeddings": ("_embeddings.bin",),
    "schema": ("schema.bin", "metadata.json"),
}


def open_metadata(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """The metadata.json of the build a store names, and bytes by part."""
    with Store(path, verify="header") as store:
        return store.metadata, file_sizes(Path(store.core.directory()))


def find(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    """The table or task of that name, with its columns."""
    for entry in metadata["tables"]:
        if entry["name"] == name:
            low, high = entry["column_range"]
            return {**entry, "columns": metadata["columns"][low:high]}
    return find_task(metadata, name, metadata["tables"])


def find_task(
    metadata: dict[str, Any], name: str, others: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    for entry in metadata["tasks"]:
        if entry["name"] == name:
            return dict(entry)
    names = [entry["name"] for entry in metadata["tasks"] + (others or [])]
    what = "table or task" if others else "task"
    raise ValueError(f"the store has no {what} '{name}'{nearest(name, names)}")


def describe(metadata: dict[str, Any], sizes: dict[str, int], name: str | None) -> str:
    """The store, or one table or task of it, for people."""
    if name is None:
        return _describe_store(metadata, sizes)
    found = find(metadata, name)
    return _describe_table(found, metadata) if "columns" in found else _describe_task(found)


def _describe_store(metadata: dict[str, Any], sizes: dict[str, int]) -> str:
    text = metadata["text"]
    lines = [["table", "rows", "columns", "key", "time", "foreign keys"]]
    for table in metadata["tables"]:
        rows, columns = table["row_range"], table["column_range"]
        lines.append(
            [
                table["name"],
                f"{rows[1] - rows[0]:,}",
                str(columns[1] - columns[0]),
                ", ".join(table["primary_key"]),
                table["temporal_column"] or "",
                ", ".join(key["references"]["table"] for key in table["foreign_keys"]),
            ]
        )
    parts = [
        f"{metadata['name']}, build {metadata['fingerprint']}, format {metadata['format_version']}",
        f"texts: {text['count']:,} by {text['embedder']}, {text['dim']} wide; "
        f"moments until {metadata['stats_until'] or 'the end'}",
        "",
        aligned(lines),
    ]
    if metadata["tasks"]:
        lines = [["task", "kind", "anchor", "target", *SPLITS, "unlabelled"]]
        for task in metadata["tasks"]:
            counts = [f"{task['seeds'][split]:,}" for split in (*SPLITS, "unlabelled")]
            target = f"{task['target_column']} ({task['target_stype']})"
            lines.append([task["name"], task["kind"], task["anchor_table"], target, *counts])
        parts += ["", aligned(lines)]
    parts += _losses(metadata)
    return "\n".join([*parts, "", bytes_text(sizes, metadata["csv_bytes"])])


def bytes_text(sizes: dict[str, int], csv_bytes: int) -> str:
    """Bytes by part, and how the first part compares with those of the source as CSV."""
    listed = ", ".join(f"{part} {size:,}" for part, size in sizes.items())
    if not csv_bytes:
        return f"bytes: {listed}"
    return f"bytes: {listed}; {next(iter(sizes.values())) / csv_bytes:.2f}x of {csv_bytes:,} as CSV"


def _describe_table(table: dict[str, Any], metadata: dict[str, Any]) -> str:
    low, high = table["row_range"]
    rows = f", global rows {low:,} to {high - 1:,}" if high > low else ""
    head = f"{table['name']}: {high - low:,} rows{rows}"
    lines = [["column", "type", "nulls", "values"]]
    for column in table["columns"]:
        stats = column["stats"]
        lines.append(
            [column["name"], column["stype"], f"{stats.get('nulls', 0):,}", _values(column)]
        )
    parts = [head, "", aligned(lines)]
    keys = [["foreign key", "refers to", "edges", "dangling", "nulls", "per parent"]]
    sizes = row_counts(metadata)
    for child in metadata["tables"]:
        for key in child["foreign_keys"]:
            parent = key["references"]["table"]
            if table["name"] in (child["name"], parent):
                degree = key["edges"] / sizes[parent] if sizes[parent] else 0.0
                keys.append(
                    [
                        key_name(child["name"], key),
                        key_name(parent, key["references"]),
                        *(f"{key[what]:,}" for what in ("edges", "dangling", "nulls")),
                        f"{degree:.2f}",
                    ]
                )
    parts += ["", aligned(keys)] if len(keys) > 1 else []
    alone = {"tables": [table], "tasks": [], "undecodable": 0}
    return "\n".join([*parts, *_losses(alone)])


def _losses(metadata: dict[str, Any]) -> list[str]:
    """What the build did not take as it was, and what the metadata call NULL or hide."""
    taken, lines = [], []
    for table in metadata["tables"]:
        name = table["name"]
        if table["null_values"]:
            taken.append(f"{table['null_values']:,} values of {name} are spelled as NULL")
        if table["untimed"]:
            taken.append(f"{table['untimed']:,} rows of {name} have no time")
        for entry in table["conversions"]:
            value = f"{name}.{entry['column']}"
            lines.append(f"{entry['count']:,} values of {value} became NULL: {entry['reason']}")
    taken += timeless_of(metadata) + far_values_of(metadata)
    lines += losses_of(metadata)
    parts = ["", "as the metadata say:", *(f"  {line}" for line in taken)] if taken else []
    return parts + (["", "not taken as it was:", *(f"  {x}" for x in lines)] if lines else [])


def _values(column: dict[str, Any]) -> str:
    stats = column["stats"]
    if column["stype"] == "numerical":
        return f"{stats['mean']:.4g} ± {stats['std']:.4g}"
    if column["stype"] == "timestamp" and "min" in stats:
        return f"{stats['min'][:10]} to {stats['max'][:10]}"
    if column["stype"] == "boolean" and "true" in stats:
        return f"{stats['true']:,} true, {stats['false']:,} false"
    if column["stype"] == "categorical":
        return f"{len(stats['categories']):,}: " + ", ".join(stats["categories"][:5])
    return ""


def _describe_task(task: dict[str, Any]) -> str:
    shown = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in task.items()
        if value not in (None, "", [], {}) and name != "query"
    }
    width = max(map(len, shown))
    text = "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
    return text + (f"\n\n{task['query']}" if task["query"] else "")


def no_times_reached(metadata: dict[str, Any], anchor_table: str) -> bool:
    """Whether no table that links lead to from an anchor, up or down, has a temporal column."""
    links = [
        {table["name"], key["references"]["table"]}
        for table in metadata["tables"]
        for key in table["foreign_keys"]
        if key["edges"]
    ]
    reached, seen = {anchor_table}, 0
    while len(reached) > seen:
        seen = len(reached)
        reached = reached.union(*(link for link in links if link & reached))
    timed = {table["name"] for table in metadata["tables"] if table["temporal_column"] is not None}
    return not reached & timed


def timeless_of(metadata: dict[str, Any]) -> list[str]:
    """How many seeds of each task have no time, in a database with times."""
    if all(table["temporal_column"] is None for table in metadata["tables"]):
        return []
    lines = []
    for task in metadata["tasks"]:
        count = sum(task["seeds"][split] for split in SPLITS)
        if count and task["obs_time_range"] is None:
            lines.append(
                f"{count:,} seeds of task {task['name']} have no time: they see all rows, those of"
                " the future too" + ' ("sees_everything")' * task.get("sees_everything", False)
            )
    return lines


def losses_of(metadata: dict[str, Any]) -> list[str]:
    """What of a source is not in its store, or leads nowhere there; but for values that became
    NULL, of which a build knows examples."""
    lines = []
    if metadata["undecodable"]:
        lines.append(
            f"{metadata['undecodable']:,} texts are not UTF-8, or categories with a zero character"
        )
    for table in metadata["tables"]:
        if table["duplicates_dropped"]:
            count = table["duplicates_dropped"]
            lines.append(f"{count:,} rows of {table['name']} dropped: duplicate primary key")
        lines += _extremes_of(table, is_far=False)
        for key in table["foreign_keys"]:
            if key["dangling"]:
                name = key_name(table["name"], key)
                lines.append(f"{key['dangling']:,} keys of {name} name no row")
    for task in metadata["tasks"]:
        for reason, count in task["dropped"].items():
            lines.append(f"{count:,} rows of task {task['name']} dropped: {reason}")
        if text := open_windows_text(task, lost=True):
            lines.append(text)
        if task["bad_targets"]:
            lines.append(
                f"{task['bad_targets']:,} targets of task {task['name']} became NULL: not "
                f"{task['target_stype']}"
            )
        if task["kind"] == "derived" and (count := task.get("stats", {}).get("beyond_float32")):
            lines.append(
                f"{count:,} targets of task {task['name']} are beyond what float32 holds (3.4e38): "
                "let the query answer NULL for them, or answer in a larger unit"
            )
    return lines


def far_values_of(metadata: Mapping[str, Any]) -> list[str]:
    """Numbers that may stand for no value, as they are far from all others of their column."""
    return [line for table in metadata["tables"] for line in _extremes_of(table, is_far=True)]


def _extremes_of(table: Mapping[str, Any], *, is_far: bool) -> list[str]:
    return [
        f"{entry['count']:,} values of {table['name']}.{entry['column']} {extremes_text(entry)}"
        for entry in table.get("extremes", ())  # which older stores do not have
        if (entry["reason"] == FAR) == is_far
    ]


def open_windows_text(task: Mapping[str, Any], *, lost: bool = False) -> str | None:
    """The seeds of a task whose label window ends after the data, and whether they are labelled.
    None if there are none.

    task: its entry in a store's metadata.json. lost: None also if they are labelled all the same.
    """
    opened = task.get("open_windows")  # which older stores do not have
    if not opened or (lost and opened["labels_kept"]):
        return None
    since, until = (time_text(opened[name]) for name in ("asked_since_us", "data_until_us"))
    window = format_duration(task["label_window_us"])
    ends = f"ends after the last day of {', '.join(opened['tables'])} (data until {until})"
    first = f"{opened['seeds']:,} seeds of task {task['name']}, asked from {since} on, "
    if opened["labels_kept"]:
        return f"{first}are labelled, though their label window of {window} {ends}"
    edit = '"allow_open_window": true in the task keeps their labels'
    return f"{first}are not labelled, as their label window of {window} {ends}; {edit}"


def file_sizes(directory: Path) -> dict[str, int]:
    """Bytes of a build by part, the part that counts against the source's CSV bytes first."""
    sizes = dict.fromkeys(SIZE_PARTS, 0)
    for file in sorted(directory.rglob("*")):
        name = file.relative_to(directory).as_posix()
        for part, marks in SIZE_PARTS.items():
            if file.is_file() and name.startswith(marks) | name.endswith(marks):
                sizes[part] += file.stat().st_size
                break
    return sizes
