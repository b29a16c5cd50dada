"""A new draft beside a metadata.json that has been edited: what is in the file stays.

The rule is simple, so that it can be trusted: every entry of the file is kept as it is, also where
the draft would now say otherwise; what the source has and the file has not is added and marked; the
rest is told. What the source no longer has stays in the file too (a build names it), as removing it
would lose the edits with it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from headwater.inference.draft import Draft
from headwater.metadata.parts import Column, Table
from headwater.metadata.schema import Schema

MARK = "new: added by init --update"


def update_schema(old: Schema, draft: Draft) -> tuple[Schema, dict[str, list[str]]]:
    """The schema with what is new, and sentences by kind: added, gone, otherwise."""
    told: dict[str, list[str]] = {"added": [], "gone": [], "otherwise": []}
    found = {table.name: table for table in draft.schema().tables}
    tables = []
    for table in old.tables:
        if table.values_of:
            tables.append(table)
        elif table.name in found:
            tables.append(_update_table(table, found[table.name], told))
        else:
            tables.append(table)
            told["gone"].append(f"table {table.name} is no longer in the source")
    known = {table.name for table in old.tables}
    for name, new in found.items():
        if name not in known and new.values_of:
            listed = json.dumps([str(reference) for reference in new.values_of])
            told["otherwise"].append(
                f'init would now add the table "{name}", "values_of": {listed}'
            )
        elif name not in known:
            tables.append(replace(new, note=_marked(new.note)))
            told["added"].append(f"table {name}")
    if old.timezone != draft.timezone:
        told["otherwise"].append(_difference(old.name, "timezone", old.timezone, draft.timezone))
    return replace(old, tables=tuple(tables)), told


def _update_table(old: Table, new: Table, told: dict[str, list[str]]) -> Table:
    drafted = {column.name: column for column in new.columns}
    kept = {column.name for column in old.columns}
    columns = []
    for column in old.columns:
        columns.append(column)
        where = f"{old.name}.{column.name}"
        if column.name in drafted:
            told["otherwise"] += _differences(where, column, drafted[column.name])
        elif not column.is_derived:
            told["gone"].append(f"column {where} is no longer in the source")
    for column in new.columns:
        if column.name not in kept and column.is_derived:
            entry = f'"{column.name}": {json.dumps(replace(column, note="").to_dict())}'
            told["otherwise"].append(f"{old.name}: init would now add the column {entry}")
        elif column.name not in kept:
            columns.append(replace(column, note=_marked(column.note)))
            told["added"].append(f"column {old.name}.{column.name} ({column.stype})")
    told["otherwise"] += _table_differences(old, new)
    return replace(old, columns=tuple(columns))


def _differences(where: str, old: Column, new: Column) -> list[str]:
    """The entries that init would now choose for a column."""
    pairs: list[tuple[str, Any, Any]] = [
        ("stype", old.stype, new.stype),
        ("foreign_key", old.foreign_key, new.foreign_key),
        ("known_at", old.known_at.to_json(), new.known_at.to_json()),
        ("null_values", sorted(old.null_values), sorted(new.null_values)),
        ("unit", old.unit or "s", new.unit or "s"),
        ("epoch", old.epoch, new.epoch),
        ("format", old.format, new.format),
        ("taken_from", old.taken_from, new.taken_from),
        ("expression", old.expression, new.expression),
    ]
    return [_difference(where, *pair) for pair in pairs if pair[1] != pair[2]]


def _table_differences(old: Table, new: Table) -> list[str]:
    pairs: list[tuple[str, Any, Any]] = [
        ("primary_key", ", ".join(old.primary_key), ", ".join(new.primary_key)),
        ("temporal_column", old.temporal_column, new.temporal_column),
    ]
    told = [_difference(old.name, *pair) for pair in pairs if pair[1] != pair[2]]
    for key in new.foreign_keys:
        if key not in old.foreign_keys:
            told.append(f"{old.name}: init would add the foreign key {key.to_dict()}")
    return told


def _difference(where: str, what: str, old: Any, new: Any) -> str:
    return f"{where}: {what} is {_shown(old)}, init would now choose {_shown(new)}"


def _shown(value: Any) -> str:
    return "none" if value in (None, "", []) else str(value)


def _marked(note: str) -> str:
    return f"{MARK}; {note}" if note else MARK
