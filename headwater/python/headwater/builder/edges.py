"""From foreign keys to edges: for each child row the number of its parent row.

Keys compare by value if both sides have the same type and by canonical text otherwise, so that the
integer 42 finds the text '42'. A key with a NULL part has no edge; one that names no row dangles,
which is counted and never an error. The columns a key refers to must be unique. The join itself
runs when the builder takes its pairs (encode.py): in what order they come does not matter to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.builder.convert import CanonicalTable
from headwater.errors import HeadwaterError, SourceError, collected, raise_together
from headwater.metadata.parts import ForeignKey
from headwater.sources.database import Connection, count_rows, one_row

DIRECT_TYPES = ("BIGINT", "VARCHAR", "TIMESTAMP", "BOOLEAN")


@dataclass(frozen=True)
class Edges:
    """A foreign key between two tables of the graph."""

    child: CanonicalTable
    parent: CanonicalTable
    key: ForeignKey
    index: int
    null_count: int  # child rows with a NULL in the key

    def pairs(self) -> str:
        """SQL of the pairs (child, parent) of rows, in any order."""
        equal = " AND ".join(
            _equal(self.child, column, self.parent, reference)
            for column, reference in zip(self.key.columns, self.key.references, strict=True)
        )
        return (
            "SELECT CAST(c.rowid AS UINTEGER) AS child, CAST(p.rowid AS UINTEGER) AS parent "
            f"FROM {self.child.relation} c JOIN {self.parent.relation} p ON {equal}"
        )


def find_parents(
    connection: Connection,
    tables: Sequence[CanonicalTable],
    *,
    tell: Callable[[str], None] = lambda key: None,
) -> list[Edges]:
    """Edges of every foreign key between tables of the graph, in the store's order."""
    graph = {table.table.name: table for table in tables if table.table.graph}
    edges: list[Edges] = []
    problems: list[HeadwaterError] = []
    for child in graph.values():
        for key in child.table.every_key():
            if key.table in graph:
                tell(f"{child.table.name}.{'+'.join(key.columns)}")
                with collected(problems):
                    parent = graph[key.table]
                    if set(key.references) != set(parent.table.primary_key):
                        _check_unique(connection, child, parent, key)
                    null = " OR ".join(f"c{child.slot(column)} IS NULL" for column in key.columns)
                    query = f"SELECT count(*) FROM {child.relation} WHERE {null}"
                    null_count = count_rows(connection, query)
                    edges.append(Edges(child, parent, key, len(edges), null_count))
    raise_together(problems)
    return edges


def _equal(child: CanonicalTable, column: str, parent: CanonicalTable, reference: str) -> str:
    """SQL of an equality whose sides are of one type."""
    left, right = child.slot(column), parent.slot(reference)
    if child.types[left] == parent.types[right] and child.types[left] in DIRECT_TYPES:
        return f"c.c{left} = p.c{right}"
    return f"{child.key_text(column, 'c')} = {parent.key_text(reference, 'p')}"


def _check_unique(
    connection: Connection, child: CanonicalTable, parent: CanonicalTable, key: ForeignKey
) -> None:
    slots = [f"c{parent.slot(name)}" for name in key.references]
    parts = ", ".join(slots)
    present = " AND ".join(f"{slot} IS NOT NULL" for slot in slots)
    repeated = (
        f"SELECT {parts}, count(*) AS n FROM {parent.relation} WHERE {present} "
        f"GROUP BY {parts} HAVING count(*) > 1"
    )
    if count_rows(connection, f"SELECT count(*) FROM ({repeated})"):
        example = one_row(connection, f"{repeated} ORDER BY {parts} LIMIT 1")
        value = ", ".join(str(part) for part in example[:-1])
        raise SourceError(
            f"foreign key '{child.table.name}.{'+'.join(key.columns)}' refers to "
            f"'{parent.table.name}.{'+'.join(key.references)}', which is not unique: "
            f"({value}) is in {example[-1]} rows"
        )
