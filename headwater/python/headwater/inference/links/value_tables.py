"""Tables of values that a draft adds (`values_of`), so that keys which no one table has are links.

Some keys name things that have no table of their own: of customers there is a row for each month.
Others name the rows of several tables that are one: orders_2022 and orders_2023, or the train and
the test file of a competition. Both get a table of the keys' values, to which each of these columns
refers: by it the walk goes from a payment to the months of its customer. Words such as archive or
2023 say that tables are one. Other words (orders_emea) may tell things apart, so there a column
must have keys of several of them.

The columns must be called alike, and hold the same values; whole numbers from 1 on are in any other
column of them, so there the name must be that of a table, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from headwater.facts.measure import column_facts
from headwater.facts.names import ID_WORDS, ROW_WORDS, names_table, stems_of, words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.inference.links.overlaps import ValueIndex, key_text, measure_overlap
from headwater.inference.links.references import DENSITY_MAX, density, joins
from headwater.metadata.parts import ColumnRef
from headwater.metadata.review import Cost
from headwater.notebook import listed
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.source import Alike, SourceColumn, SourceTable
from headwater.sources.value_sql import INTEGER_TYPES

VIEWS_FROM = 500_000  # the number of the first table of values
VALUES_MIN = 10  # distinct values
FOUND = 0.95  # of a column's values, in the keys of tables that are one
REPEATED = 1.5  # rows for each value of such a column, on average; else it is nearly a key
SHARED = 0.9  # of the values of one column, in another of that name
ALIKE = 0.75  # of the names of columns, in tables that are one
SHARED_KEYS_MAX = 0.01  # of the keys of one such table, in another
COLUMNS_MIN = 2  # in such a table, with its key not counted
# With numbers, the words that tell such tables apart.
PART_WORDS = {
    "train", "training", "test", "valid", "validation", "val", "holdout", "dev", "part", "chunk",
    "old", "new", "current", "archive", "archived", "history", "historical", "backup", "recent",
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "january",
    "february", "march", "april", "june", "july", "august", "september", "october", "november",
    "december", "q", "fy", "year", "h", "week", "w",
}  # fmt: skip

Member = tuple[TableDraft, ColumnDraft]


@dataclass(frozen=True)
class Family:
    """Tables that may be one: the same columns, and keys of which no two have the same."""

    words: tuple[str, ...]  # that their names share, in one form for singular and plural
    members: list[Member]  # each table with its key
    is_sure: bool  # by their names

    def name(self) -> str:
        """A name for the table that they are together."""
        stems = {
            stem: word for word in words_of(self.members[0][0].name) for stem in stems_of(word)
        }
        return "_".join(stems[word] for word in self.words)


def draft_value_tables(connection: Connection, tables: list[TableDraft]) -> None:
    """Append the tables of values, and let the columns that have these refer to them."""
    done: set[str] = set()
    for family in _families(connection, tables, done):
        names = [table.name for table, _ in family.members]
        children = _children(connection, tables, family)
        if family.is_sure or children:
            done.update(names)
            _say_family(family)
        if children:
            why = f"the keys of {' and '.join(names)} together"
            _add(connection, tables, [*family.members, *children], why)
    groups: dict[str, list[Member]] = {}
    for table in tables:
        for column in table.columns:
            if _is_open(table, column) and _may_be_shared(tables, column):
                groups.setdefault(column.name.casefold(), []).append((table, column))
    for members in groups.values():
        found = _with_same_values(connection, members)
        if len(found) > 1:
            _add(connection, tables, found, "and no table has a row for each of these values")


def drop_value_tables(connection: Connection, tables: Sequence[TableDraft]) -> None:
    """Drop the views of `draft_value_tables`, when the draft is done."""
    for table in tables:
        if table.values_of:
            connection.execute(f"DROP VIEW IF EXISTS raw.t{table.source.index}")


# ---- tables that are one -----------------------------------------------------------------------


def _families(
    connection: Connection, tables: Sequence[TableDraft], done: set[str]
) -> Iterator[Family]:
    """Tables that may be one: first those that are by their names, then those that share the more
    words of them.

    done: names of tables that are found to be one; they are of no other family."""
    sure: dict[tuple[tuple[str, ...], str], list[Member]] = {}
    others: dict[tuple[tuple[str, ...], str], list[Member]] = {}
    for table in tables:
        if len(table.primary_key) != 1 or len(table.columns) <= COLUMNS_MIN:
            continue
        key = table.column(table.primary_key[0])
        words, stems = _common_words(table.name), tuple(stems_of(table.name))
        if words:
            sure.setdefault((words, key.name.casefold()), []).append((table, key))
        for size in range(1, len(stems)):
            for shared in {stems[:size], stems[-size:]}:
                others.setdefault((shared, key.name.casefold()), []).append((table, key))
    for (words, _), members in sure.items():
        if all(words == _all_words(table.name) for table, _ in members) or not _are_alike(members):
            continue
        if _are_apart(connection, members):
            yield Family(words, members, is_sure=True)
        else:
            _say_states(members)
    for (words, _), members in sorted(others.items(), key=lambda group: -len(group[0][0])):
        is_new = not any(table.name in done for table, _ in members)
        if is_new and _are_alike(members) and _are_apart(connection, members):
            yield Family(words, members, is_sure=False)


def _all_words(name: str) -> tuple[str, ...]:
    return tuple(stems_of(name, numbered=True))


def _common_words(name: str) -> tuple[str, ...]:
    """The words of a table's name but for those that tell it from its like."""
    plain = [word for word in words_of(name) if word not in PART_WORDS]
    return tuple(stems_of("_".join(plain)))


def _are_alike(members: list[Member]) -> bool:
    """Whether there are several tables, of the same columns."""
    names = [{column.name.casefold() for column in table.columns} for table, _ in members]
    return len(members) > 1 and all(
        len(one & other) >= ALIKE * len(one | other) for one, other in combinations(names, 2)
    )


def _are_apart(connection: Connection, members: list[Member]) -> bool:
    """Whether hardly any key is in two of some tables."""
    keys = [(table, key.name) for table, key in members]
    index = ValueIndex(connection, keys, frozenset(Alike))
    for place, (table, name) in enumerate(keys):
        for (other, reference), bound in zip(keys[:place], index.shares(table, name), strict=False):
            if bound > SHARED_KEYS_MAX:
                overlap = measure_overlap(connection, table, (name,), other, (reference,))
                if overlap.share > SHARED_KEYS_MAX:
                    return False
    return True


def _say_states(members: list[Member]) -> None:
    """Report tables that have rows of the same things, as balances_jan and balances_feb, and take
    out keys of one to another: by these a row would lead to one of a later month."""
    names = [table.name for table, _ in members]
    linked = [
        key for _, key in members if key.foreign_key is not None and key.foreign_key.table in names
    ]
    for key in linked:
        key.foreign_key, key.reason = None, ""
        key.checks = [check for check in key.checks if "foreign key to" not in check]
    if linked:
        members[0][0].check(
            f"{listed(names, None)} have rows of the same things, by their {members[0][1].name}, "
            "and are not linked: if each is of another time, make one table of them, with a column "
            "of this time, as its temporal_column",
            Cost.LINKS,
        )


def _say_family(family: Family) -> None:
    names = [table.name for table, _ in family.members]
    table, key = family.members[0]
    way = f"put their files into one folder '{family.name()}'"
    if table.source.csv is None:
        way = f"make one of them, by a view with UNION ALL or a folder '{family.name()}' of files"
    table.check(
        f"{listed(names, None)} have the same columns, and no two of their rows have one "
        f"{key.name}: if they are one table, {way}, and all rows learn from each other",
        Cost.HINT,
    )


def _children(connection: Connection, tables: Sequence[TableDraft], family: Family) -> list[Member]:
    """Columns whose values are in the keys of several of the tables, together, and those that have
    keys of one of them. The names of some tables only make it likely that they are one: none, then,
    if no column has keys of several."""
    several: list[Member] = []
    single: list[Member] = []
    own = {table.name for table, _ in family.members}
    key_name = family.members[0][1].name
    for table in tables:
        for column in table.columns if table.name not in own and not table.values_of else ():
            linked = column.foreign_key is not None and column.foreign_key.table not in own
            is_named = column.name.casefold() == key_name.casefold() and not _is_generic(key_name)
            is_named |= names_table(column.name, "_".join(family.words)) > 0
            if linked or not is_named or _is_declared(table, column) or not joins(table, column):
                continue
            overlaps = [
                measure_overlap(connection, table, (column.name,), parent, (key.name,))
                for parent, key in family.members
            ]
            most = max(overlap.share for overlap in overlaps)
            if most < FOUND <= sum(overlap.share for overlap in overlaps):
                several.append((table, column))
            elif most >= FOUND and column.foreign_key is None and not _is_generic(key_name):
                single.append((table, column))
    return several + single if several or family.is_sure else []


# ---- things without a table --------------------------------------------------------------------


def _may_be_shared(tables: Sequence[TableDraft], column: ColumnDraft) -> bool:
    """Whether the name and the values of a column may be a key that other tables have too."""
    facts = column.facts
    if facts.distinct_count < VALUES_MIN or not ID_WORDS & set(words_of(column.name)):
        return False
    if _is_generic(column.name):
        return False
    is_text = facts.number_count < facts.value_count
    is_named = any(names_table(column.name, table.name) for table in tables)
    return is_named or is_text or density(facts) <= DENSITY_MAX


def _with_same_values(connection: Connection, members: list[Member]) -> list[Member]:
    """The columns that share most of their values with the one that has most of them; none if it
    has hardly any of them in two rows."""
    members = sorted(members, key=lambda member: -member[1].facts.distinct_count)
    (table, column), others = members[0], members[1:]
    found = [
        (other, own)
        for other, own in others
        if other is not table
        and measure_overlap(connection, other, (own.name,), table, (column.name,)).share >= SHARED
    ]
    repeats = column.facts.distinct_count * REPEATED <= column.facts.value_count
    return [(table, column), *found] if repeats else []


# ---- what both share ---------------------------------------------------------------------------


def _is_open(table: TableDraft, column: ColumnDraft) -> bool:
    """Whether a column may refer to rows and refers to none."""
    is_key = table.primary_key == (column.name,)
    linked = any(column.name in key.columns for key in table.every_key())
    return not (is_key or linked or table.values_of) and joins(table, column)


def _is_declared(table: TableDraft, column: ColumnDraft) -> bool:
    return any(column.name in columns for columns, _, _ in table.source.foreign_keys)


def _is_generic(name: str) -> bool:
    """Whether a key is called as those of any table: id, row_id."""
    return set(words_of(name)) <= ROW_WORDS


def _add(
    connection: Connection, tables: list[TableDraft], members: Sequence[Member], why: str
) -> None:
    """Add the table of the values of some columns, which refer to it from then on."""
    first = members[0][1].name
    taken = {table.name.casefold() for table in tables}
    name = first if first.casefold() not in taken else f"{first}_values"
    while name.casefold() in taken:
        name += "_"
    texts = [
        f"SELECT {key_text(table, column.name)} AS v FROM raw.t{table.source.index}"
        for table, column in members
    ]
    index = VIEWS_FROM + sum(bool(table.values_of) for table in tables)
    is_whole = all(table.kind(column.name) in INTEGER_TYPES for table, column in members)
    value = "CAST(v AS BIGINT)" if is_whole else "v"
    connection.execute(
        f"CREATE OR REPLACE VIEW raw.t{index} AS SELECT {value} AS c0 FROM "
        f"({' UNION '.join(texts)}) WHERE v IS NOT NULL ORDER BY c0"
    )
    (kind,) = one_row(connection, f"SELECT any_value(typeof(c0)) FROM raw.t{index}")
    row_count = count_rows(connection, f"SELECT count(*) FROM raw.t{index}")
    source = SourceTable(name, index, row_count, (SourceColumn(first, kind),), is_view=True)
    made = TableDraft(source, [ColumnDraft(first, column_facts(connection, source, 0))])
    made.primary_key, made.key_reason = (first,), "the distinct values of other columns"
    made.values_of = tuple(ColumnRef(table.name, column.name) for table, column in members)
    places = listed([str(reference) for reference in made.values_of], None)
    made.check(
        f"proposal: a table of the values of {places}, {why}: the rows that share one are linked; "
        "if they are not the same things, remove it and the foreign keys to it",
        Cost.LINKS,
    )
    for _, column in members:
        column.foreign_key = ColumnRef(name, first)
        column.reason = f"a value of {name}"
        column.checks = [check for check in column.checks if "foreign key to" not in check]
    tables.append(made)
