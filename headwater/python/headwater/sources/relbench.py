"""What a RelBench cache folder adds to Parquet files: keys, times and tasks, without relbench.

    rel-f1/db/drivers.parquet, results.parquet, ...
    rel-f1/tasks/driver-dnf/train.parquet, val.parquet, test.parquet

RelBench writes three entries, JSON each, into a Parquet file's key-value metadata: `pkey_col` (a
name or null), `fkey_col_to_pkey_table` (column to table) and `time_col`. A task's table has the
time of observation as `time_col`, the anchor as its one foreign key, and the target as the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.errors import SourceError
from headwater.files import check_regular
from headwater.metadata.parts import SPLITS, Task
from headwater.sources.database import Connection, one_row
from headwater.sources.source import SourceTable, brief, literal, quote

ENTRIES = ("pkey_col", "fkey_col_to_pkey_table", "time_col")
NUMBERS = ("INT", "FLOAT", "DOUBLE", "DECIMAL")  # in names of types


@dataclass(frozen=True)
class _Declared:
    """The three entries of a file."""

    primary_key: tuple[str, ...]
    foreign_keys: dict[str, str]
    time_column: str | None


def holds_relbench(folder: Path) -> bool:
    """Whether a folder is laid out as RelBench's cache of one dataset."""
    return any((folder / "db").glob("*.parquet")) and not any(folder.glob("*.parquet"))


def declare_keys(
    connection: Connection, tables: Sequence[SourceTable], files: Mapping[str, Path]
) -> list[SourceTable]:
    """The tables with the keys and times that their files declare, if any."""
    found = {
        table.name: _declared(connection, files[table.name], table.column_names())
        for table in tables
        if files[table.name].suffix == ".parquet"
    }
    settled = []
    for table in tables:
        declared = found.get(table.name)
        if declared is None:
            settled.append(table)
            continue
        keys = []
        for column, parent in declared.foreign_keys.items():
            above = found.get(parent)
            if above is not None and above.primary_key:
                keys.append(((column,), parent, above.primary_key))
        made = replace(table, primary_key=declared.primary_key, time_column=declared.time_column)
        settled.append(replace(made, foreign_keys=tuple(keys)))
    return settled


def _declared(connection: Connection, file: Path, columns: Sequence[str]) -> _Declared | None:
    """The entries of one file, checked; None if RelBench did not write it."""
    rows = connection.execute(
        f"SELECT decode(key), value FROM parquet_kv_metadata({literal(str(file))})"
    ).fetchall()
    entries = {key: value for key, value in rows if key in ENTRIES}
    if not entries:
        return None
    try:
        values = {key: json.loads(bytes(value)) for key, value in entries.items()}
    except ValueError as error:
        raise SourceError(f"the RelBench metadata of '{file}' are not JSON: {error}") from error
    primary, time = values.get("pkey_col"), values.get("time_col")
    foreign = values.get("fkey_col_to_pkey_table") or {}
    named = [name for name in (primary, time, *foreign) if name is not None]
    for name in named:
        if name not in columns:
            raise SourceError(
                f"the RelBench metadata of '{file}' name the column {name!r}, which it does not "
                "have"
            )
    return _Declared(() if primary is None else (primary,), dict(foreign), time)


def draft_tasks(
    connection: Connection, folder: Path, tables: Sequence[SourceTable]
) -> tuple[tuple[Task, ...], list[str]]:
    """A task for each folder of label tables; notes on those that headwater has no task for."""
    tasks, notes = [], []
    for entry in sorted((folder / "tasks").glob("*/")):
        files = {split: entry / f"{split}.parquet" for split in SPLITS}
        for file in files.values():
            check_regular(file)
        files = {split: file for split, file in files.items() if file.is_file()}
        if not files:
            continue
        task = _task(connection, folder, entry.name, files, tables)
        if isinstance(task, str):
            notes.append(f"task {entry.name} is left out: {task}")
        else:
            tasks.append(task)
    return tuple(tasks), notes


def _task(
    connection: Connection,
    folder: Path,
    name: str,
    files: Mapping[str, Path],
    tables: Sequence[SourceTable],
) -> Task | str:
    """The task of a set of label tables, or why there is none."""
    first = next(iter(files.values()))
    types = _types(connection, first)
    declared = _declared(connection, first, list(types))
    if declared is None:
        return f"'{first.name}' has no RelBench metadata"
    if len(declared.foreign_keys) != 1:
        return f"it has {len(declared.foreign_keys)} foreign keys, expected the anchor alone"
    ((key, anchor_name),) = declared.foreign_keys.items()
    anchor = next((table for table in tables if table.name == anchor_name), None)
    if anchor is None:
        return f"its table '{anchor_name}' is not read"
    targets = [column for column in types if column not in (key, declared.time_column)]
    if len(targets) != 1:
        return f"it has the columns {', '.join(targets) or 'none'}, expected one target"
    labelled = [file for file in files.values() if targets[0] in _types(connection, file)]
    stype = _target_stype(connection, labelled, targets[0], types[targets[0]])
    if stype is None:
        return f"its target '{targets[0]}' is of type {types[targets[0]]}"
    return Task(
        name=name,
        anchor_table=anchor_name,
        target_column=targets[0],
        target_stype=stype,
        seeds=tuple((split, str(file.relative_to(folder))) for split, file in files.items()),
        anchor_key=() if (key,) == anchor.primary_key else (key,),
        observation_time_column=declared.time_column,
    )


def _types(connection: Connection, file: Path) -> dict[str, str]:
    import duckdb

    try:
        rows = connection.execute(f"DESCRIBE FROM read_parquet({literal(str(file))})").fetchall()
    except duckdb.Error as error:
        raise SourceError(f"cannot read the label table '{file}': {brief(error)}") from error
    return {row[0]: row[1] for row in rows}


def _target_stype(
    connection: Connection, files: Sequence[Path], target: str, type_name: str
) -> str | None:
    """0 and 1 are a boolean, other numbers a number (RelBench does not write which are classes)."""
    if type_name.endswith("]") or type_name.startswith(("STRUCT", "MAP")):
        return None
    if type_name == "BOOLEAN":
        return "boolean"
    if any(word in type_name for word in NUMBERS):
        listed = ", ".join(literal(str(file)) for file in files)
        row = one_row(
            connection, f"SELECT bool_and({quote(target)} IN (0, 1)) FROM read_parquet([{listed}])"
        )
        return "boolean" if row[0] else "numerical"
    if type_name in ("DATE", "TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"):
        return "timestamp"
    return "categorical"
