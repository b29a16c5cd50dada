"""Counts over all values of a column, in a query or two per column.

Words that often stand for NULL are counted first and left out of every other count; which of them
are proposed as NULL is decided here as well, because a type is judged by the rest. A word that
may mean something (NA among two-letter codes is Namibia) stays a value, with a check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.column_values import NEVER_VALUES, ColumnValues
from headwater.facts.foreign_texts import foreign_texts
from headwater.facts.formats import find_format
from headwater.sources.database import Connection
from headwater.sources.source import SourceTable


def column_facts(
    connection: Connection,
    source: SourceTable,
    slot: int,
    known_nulls: tuple[str, ...] = (),
    counted: Mapping[str, Any] | None = None,
) -> ColumnFacts:
    """Facts of a column; known_nulls are spellings that certainly are NULL.

    counted: what `count_texts` found of it."""
    asked = ColumnValues(connection, source, slot, counted)
    found = asked.spellings(known_nulls)
    facts = asked.measure(found)
    others = foreign_texts(asked, facts, found)
    if others.nulls:
        found |= others.nulls
        facts = asked.measure(found)
    never = {*known_nulls, *NEVER_VALUES, *others.nulls}
    nulls = {text: count for text, count in found.items() if text in never}
    doubtful: dict[str, int] = {}
    for text, count in found.items():
        if text not in never:
            (nulls if asked.is_null(text, facts, found) else doubtful)[text] = count
    if doubtful:
        facts = asked.measure(nulls)
    times = find_format(connection, asked.column, asked.values(nulls), facts)
    return replace(
        facts,
        time_count=facts.time_count if times.format is None else times.count,
        nulls=nulls,
        doubtful=doubtful,
        foreign=others.kept,
        sentinels=asked.sentinels(nulls, facts),
        format=times.format,
        partial=times.partial,
        has_two_formats=times.has_two,
        unread_times=times.unread,
    )
