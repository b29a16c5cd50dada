"""Columns of one table that name the same things, of which no table lists them.

A match has a home and an away team, a flight two airports: where those are only names, a row leads
to no other row, and a context has no history. A table of their values (`values_of`) connects them;
`init` says so and leaves it to the reader, as values that look alike need not be things.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from headwater.inference.draft import ColumnDraft, Cost, TableDraft
from headwater.inference.overlaps import measure_overlap
from headwater.sources.database import Connection

VALUES_MIN = 20  # distinct
REPEATS_MIN = 5  # rows per value
SHARED = 0.7  # of the values of both


def suggest_value_tables(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Say of each table which of its columns could share a table of their values."""
    for table in tables:
        groups: list[list[str]] = []
        columns = [column.name for column in table.columns if _names_things(column)]
        for first, second in combinations(columns, 2):
            forth = measure_overlap(connection, table, (first,), table, (second,))
            back = measure_overlap(connection, table, (second,), table, (first,))
            if min(forth.share, back.share) >= SHARED:
                group = next((group for group in groups if first in group), None)
                if group is None:
                    groups.append([first, second])
                elif second not in group:
                    group.append(second)
        for group in groups:
            listed = ", ".join(f'"{table.name}.{name}"' for name in group)
            table.check(
                f"{', '.join(group)} name the same things, and no table lists them: a table with "
                f'"values_of": [{listed}] would connect the rows that share them',
                Cost.HINT,
            )


def _names_things(column: ColumnDraft) -> bool:
    facts = column.facts
    return (
        column.stype in ("categorical", "text")
        and column.foreign_key is None
        and facts.distinct_count >= VALUES_MIN
        and facts.distinct_count * REPEATS_MIN <= facts.value_count
    )
