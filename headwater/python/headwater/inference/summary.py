"""A draft as people read it: what to check first, then the tables, then the tasks.

A person should be through with it in a minute or a few. So where there is much of one kind it is
said once: checks that differ by names and numbers only, with a few of each; columns of a wide table
that are alike; and many tables as one line each. `full` is without this, and nothing is left out of
metadata.json.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.metadata.schema import Task

if TYPE_CHECKING:
    from headwater.inference.draft import ColumnDraft, Draft, TableDraft

CHECKS_MAX = 60  # listed one by one
CHECKS_OF_KIND = 3  # of each kind, where there are more
TABLES_MAX = 40  # shown with their columns
COLUMNS_MAX = 60  # of a table, one by one
NAMES_MAX = 12  # of columns of which the same is said
PARENTS_MAX = 4  # of a table that is shown as one line
COLUMNS_ALIKE = 3  # named of those that are alike
VARYING = re.compile(r"[0-9._'\"]")  # in a word that is of this check, not of its kind


def draft_text(draft: Draft, *, full: bool = False) -> str:
    parts = []
    checks = [
        (f"{table}.{_listed(columns, None if full else NAMES_MAX)}" if columns else table, check)
        for table, columns, check in draft.named_checks()
    ]
    if checks:
        parts.append(_checks_text(draft, checks, full=full))
    if full or len(draft.tables) <= TABLES_MAX:
        parts += [_table_text(table, full=full) for table in draft.tables]
    else:
        parts.append(_tables_text(draft.tables))
    if draft.tasks:
        lines = "".join(
            f"\n  {task.name}: {task.target_column} ({task.target_stype}) of a row of "
            f"{task.anchor_table}" + _hidden_text(task, full=full)
            for task in draft.tasks
        )
        parts.append(
            f"drafted tasks ({len(draft.tasks)}); hide what is known only with the target:" + lines
        )
    return "\n\n".join(parts)


def _listed(names: Sequence[str], limit: int | None) -> str:
    """Names with commas, the first few of very many."""
    shown = names if limit is None else names[:limit]
    more = f" and {len(names) - len(shown):,} more" if len(shown) < len(names) else ""
    return ", ".join(shown) + more


def _hidden_text(task: Task, *, full: bool) -> str:
    names = [column.column for column in task.hidden_columns]
    return f", without {_listed(names, None if full else NAMES_MAX)}" if names else ""


# ---- checks ----------------------------------------------------------------------------------


def _checks_text(draft: Draft, checks: Sequence[tuple[str, str]], *, full: bool) -> str:
    if full or len(checks) <= CHECKS_MAX:
        lines = "".join(f"\n  {subject}: {check}" for subject, check in checks)
        return f"to check ({len(checks)}):{lines}"
    names = {table.name for table in draft.tables}
    names |= {column.name for table in draft.tables for column in table.columns}
    kinds: dict[str, list[tuple[str, str]]] = {}
    for subject, check in checks:
        kinds.setdefault(_kind(check, names), []).append((subject, check))
    blocks = "".join(_kind_text(kind, found) for kind, found in kinds.items())
    return (
        f"to check ({len(checks):,}, of {len(kinds)} kinds; --full lists them all, and "
        f"metadata.json has each as a 'note'):{blocks}"
    )


def _kind(check: str, names: set[str]) -> str:
    """A check without the names and numbers in it."""
    words = check.split()
    varies = [word.strip("(),;:") in names or bool(VARYING.search(word)) for word in words]
    return " ".join("…" if varying else word for word, varying in zip(words, varies, strict=True))


def _kind_text(kind: str, found: Sequence[tuple[str, str]]) -> str:
    if len(found) == 1:
        return "\n  {}: {}".format(*found[0])
    shown, rest = found[:CHECKS_OF_KIND], len(found) - CHECKS_OF_KIND
    if len({check for _, check in found}) == 1:
        subjects = _listed([subject for subject, _ in found], CHECKS_OF_KIND)
        return f"\n  {subjects}: {found[0][1]}"
    lines = "".join(f"\n    {subject}: {check}" for subject, check in shown)
    more = f"\n    and {rest:,} more" if rest > 0 else ""
    return f"\n  {len(found):,} x {kind}{lines}{more}"


# ---- tables ----------------------------------------------------------------------------------


def _tables_text(tables: Sequence[TableDraft]) -> str:
    """One line for each table."""
    lines = [["  table", "rows", "columns", "key", "time", "refers to", "to check"]]
    for table in tables:
        parents = dict.fromkeys(key.table for key in table.every_key())
        checks = len(table.first_checks) + len(table.checks)
        checks += sum(len(column.checks) for column in table.columns)
        lines.append(
            [
                f"  {table.name}",
                f"{table.source.row_count:,}",
                str(len(table.columns)),
                ", ".join(table.primary_key),
                table.temporal_column or "",
                _listed(list(parents), PARENTS_MAX),
                str(checks or ""),
            ]
        )
    head = f"{len(tables)} tables (--full shows their columns, --table NAME those of a few):"
    return f"{head}\n{_columns_text(lines)}"


def _table_text(table: TableDraft, *, full: bool) -> str:
    key = ", ".join(table.primary_key) or "none"
    head = f"{table.name}: {table.source.row_count:,} rows"
    key_text = f"  key   {key}" + (f" ({table.key_reason})" if table.primary_key else "")
    time_text = f"  time  {table.temporal_column or 'none'} ({table.time_reason})"
    if table.temporal_column is None and table.time_reason == "none":
        time_text = "  time  none"
    lines = [["  column", "type", "nulls", "refers to", "known", "why"]]
    if full or len(table.columns) <= COLUMNS_MAX:
        lines += [_column_line(table, column) for column in table.columns]
    else:
        lines += _wide_lines(table)
    return "\n".join([head, key_text, time_text, _columns_text(lines)])


def _column_line(table: TableDraft, column: ColumnDraft) -> list[str]:
    refers = str(column.foreign_key or "")
    listed = [key for key in table.foreign_keys if column.name in key.columns]
    if listed and not refers:
        key_names = "+".join(listed[0].columns)
        refers = f"{listed[0].table} by {key_names}"
    known = "" if column.known_at.kind == "creation" else column.known_at.to_json()
    nulls = column.facts.row_count - column.facts.value_count
    return [
        f"  {column.name}{' *' if column.checks else ''}",
        column.stype,
        f"{nulls:,}" if nulls else "",
        refers,
        known,
        column.reason,
    ]


def _wide_lines(table: TableDraft) -> list[list[str]]:
    """One line for columns that are alike but for names and numbers, and have nothing to check."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for column in table.columns:
        line = _column_line(table, column)
        _, stype, nulls, refers, known, why = line
        own = column.name if column.checks or refers or column.name in table.primary_key else ""
        groups.setdefault((own, stype, str(bool(nulls)), known, _kind(why, set())), []).append(line)
    return [_alike(lines) for lines in groups.values()]


def _alike(lines: list[list[str]]) -> list[str]:
    first = lines[0]
    if len(lines) == 1:
        return first
    names = _listed([line[0].strip() for line in lines], COLUMNS_ALIKE)
    whys = {line[5] for line in lines}
    why = first[5] if len(whys) == 1 else f"such as {first[5]}"
    return [f"  {names}", first[1], "some" if first[2] else "", "", first[4], why]


def _columns_text(lines: list[list[str]]) -> str:
    """Aligned, the last column as long as it is; empty columns left out."""
    kept = [j for j in range(len(lines[0])) if any(line[j] for line in lines[1:])]
    widths = {j: max(len(line[j]) for line in lines) for j in kept[:-1]}
    return "\n".join(
        "  ".join(f"{line[j]:<{widths.get(j, 0)}}" for j in kept).rstrip() for line in lines
    )
