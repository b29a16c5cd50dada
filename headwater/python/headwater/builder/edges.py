"""From foreign keys to edges: for each child row the number of its parent row.

Keys compare by value if both sides have the same type and hold nothing else equal, and otherwise
by canonical text (sources/key_values.py), so that the integer 42 finds the text '42'. A key with a
NULL part has no edge; one that names no row dangles, which is counted and never an error. The
columns a key refers to must be unique. The join itself runs when the builder takes its pairs
(encode.py): in what order they come does not matter to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.builder.convert import CanonicalTable
from headwater.errors import HeadwaterError, SourceError, collected, raise_together
from headwater.metadata.parts import ForeignKey
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.key_values import NOTHING, KeyPart, left_out_note, settle_equality
from headwater.sources.source import Alike

DIRECT_TYPES = ("BIGINT", "VARCHAR", "TIMESTAMP", "BOOLEAN")


@dataclass(frozen=True)
class Edges:
    """A foreign key between two tables of the graph."""

    child: CanonicalTable
    parent: CanonicalTable
    key: ForeignKey
    index: int
    null_count: int  # child rows with a NULL in the key
    equal: str  # SQL: whether a child `c` names a parent `p`
    note: str = ""  # on keys that are not held equal, though others of their kind are

    def pairs(self) -> str:
        """SQL of the pairs (child, parent) of rows, in any order."""
        return (
            "SELECT CAST(c.rowid AS UINTEGER) AS child, CAST(p.rowid AS UINTEGER) AS parent "
            f"FROM {self.child.relation} c JOIN {self.parent.relation} p ON {self.equal}"
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
    parts: dict[tuple[int, str], KeyPart] = {}
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
                    equal, note = _equal(connection, key, child, parent, parts)
                    edges.append(Edges(child, parent, key, len(edges), null_count, equal, note))
    raise_together(problems)
    return edges


def _equal(
    connection: Connection,
    key: ForeignKey,
    child: CanonicalTable,
    parent: CanonicalTable,
    known: dict[tuple[int, str], KeyPart],
) -> tuple[str, str]:
    """SQL of whether a child names a parent, and a note on keys that might.

    known: the parts of keys by table and column, which are added to."""
    for table, names in ((child, key.columns), (parent, key.references)):
        for name in names:
            if (table.index, name) not in known:
                known[table.index, name] = table.key_part(connection, name)
    own = [known[child.index, name] for name in key.columns]
    other = [known[parent.index, name] for name in key.references]
    equality = settle_equality(connection, own, other)
    parts = zip(own, other, equality.alike, strict=True)
    equal = " AND ".join(_equal_part(c, p, alike) for c, p, alike in parts)
    name = f"{child.table.name}.{'+'.join(key.columns)}"
    return equal, left_out_note(connection, name, own, parent.table.name, other, equality)


def _equal_part(child: KeyPart, parent: KeyPart, alike: frozenset[Alike]) -> str:
    """SQL of an equality whose sides are of one type."""
    ours, theirs = child.text("c.", alike), parent.text("p.", alike)
    is_plain = ours == child.text("c.", NOTHING) and theirs == parent.text("p.", NOTHING)
    if is_plain and child.type == parent.type and child.type in DIRECT_TYPES:
        return f"{child.value('c.')} = {parent.value('p.')}"
    return f"{ours} = {theirs}"


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
