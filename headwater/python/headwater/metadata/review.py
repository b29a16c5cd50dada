"""Checks: sentences about entries that a person should look at, and the cost if nobody does.

`init` prints them and writes each to the `note` of its table, column, task or document, after the
word for its cost: "future: proposal: known_at never (...)". A person answers a check by removing it
from the note, and by editing the entry if it is wrong: until then it is open.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater.metadata.parts import Document
from headwater.notebook import listed

CHECKS_MAX = 24  # printed one by one; if there are more, those that are alike share a line
ALIKE_MAX = 3  # names of those
NAMES_MAX = 12  # of columns that share a check
VARYING = re.compile(r"[0-9._'\"]")  # in a word that is of this check, not of its kind


class Cost(IntEnum):
    """The cost if nobody looks at a check and the draft is wrong, the highest first."""

    UNSEEN = 0  # no context shows the row that it asks about
    FUTURE = 1  # contexts show later facts, or hide known ones
    LINKS = 2  # rows are not found
    VALUES = 3  # cells are NULL or of the wrong type
    HINT = 4  # an answer may get better


IN_NOTE = re.compile(rf"(?:^|; )({'|'.join(cost.name.lower() for cost in Cost)}): ")


class Check(str):
    """A sentence about something that a person should look at, and the cost of not doing so."""

    cost: Cost

    def __new__(cls, text: str, cost: Cost = Cost.VALUES) -> Check:
        check = super().__new__(cls, text)
        check.cost = cost
        return check


class Named(NamedTuple):
    """A check with the table (or database, or task) and the columns that it is about."""

    owner: str
    columns: list[str]
    check: Check

    def subject(self, most: int | None = None) -> str:
        """Its owner and columns; most: how many of these are named."""
        return f"{self.owner}.{listed(self.columns, most)}" if self.columns else self.owner


def note_text(checks: Iterable[Check]) -> str:
    """Checks as a note has them."""
    in_order = sorted(checks, key=lambda check: check.cost)
    return "; ".join(f"{check.cost.name.lower()}: {check}" for check in in_order)


def checks_in(note: str) -> list[Check]:
    """The checks in a note; what else stands there is a person's."""
    _, *parts = IN_NOTE.split(note)
    costs, texts = parts[::2], parts[1::2]
    return [Check(text, Cost[cost.upper()]) for cost, text in zip(costs, texts, strict=True)]


def grouped(checks: Iterable[tuple[str, str, Check]]) -> list[Named]:
    """One entry for the columns of a table that share a check, the costly first. checks: each with
    its owner and column (or "")."""
    found: dict[tuple[str, bool, str], Named] = {}
    for owner, column, check in checks:
        entry = found.setdefault((owner, bool(column), check), Named(owner, [], check))
        if column:
            entry.columns.append(column)
    return sorted(found.values(), key=lambda entry: entry.check.cost)


def open_checks(document: Document, tables: Iterable[str] | None = None) -> list[Named]:
    """The checks that are open in a metadata.json; tables: of these alone, and of the document and
    its tasks."""
    wanted = set(document.table_names() if tables is None else tables)
    return grouped(_open(document, wanted))


def _open(document: Document, tables: set[str]) -> Iterator[tuple[str, str, Check]]:
    yield from ((document.name, "", check) for check in checks_in(document.note))
    for table in document.tables:
        if table.name in tables:
            yield from ((table.name, "", check) for check in checks_in(table.note))
            for column in table.columns:
                yield from ((table.name, column.name, check) for check in checks_in(column.note))
    for task in document.tasks:
        yield from ((f"task {task.name}", "", check) for check in checks_in(task.note))


def every_name(document: Document) -> set[str]:
    """The names of tables and columns."""
    columns = {name for table in document.tables for name in table.column_names()}
    return columns | set(document.table_names())


def in_reach(document: Document, table: str) -> set[str]:
    """The tables that a walk from a row of a table may come to, along foreign keys either way."""
    shown = {other.name: other for other in document.tables if other.graph}
    linked: dict[str, set[str]] = {name: set() for name in shown}
    for name, other in shown.items():
        for key in other.every_key():
            is_known = all(other.column(part).known_at.kind != "never" for part in key.columns)
            if key.table in shown and is_known:
                linked[name].add(key.table)
                linked[key.table].add(name)
    found, waiting = {table}, [table]
    while waiting:
        new = linked.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


# ---- for people ----------------------------------------------------------------------------------


def checks_text(
    checks: Sequence[Named], names: Iterable[str], *, full: bool = False, title: str = "to check"
) -> str:
    """The checks as lines, on one screen unless `full`. names: of tables and columns, by which
    checks differ that are alike."""
    if full or len(checks) <= CHECKS_MAX:
        most = None if full else NAMES_MAX
        lines = "".join(f"\n  {entry.subject(most)}: {entry.check}" for entry in checks)
        return f"{title} ({len(checks)}):{lines}"
    names = set(names)
    kinds: dict[str, list[Named]] = {}
    for entry in checks:
        kinds.setdefault(kind_of_text(entry.check, names), []).append(entry)
    blocks = "".join(_kind_text(found) for found in kinds.values())
    return (
        f"{title} ({len(checks):,}, of {len(kinds)} kinds; headwater init --check --full lists "
        f"them all, metadata.json has each as a 'note'):{blocks}"
    )


def kind_of_text(text: str, names: Collection[str]) -> str:
    """A text without the names and numbers in it."""
    words = text.split()
    varies = [word.strip("(),;:") in names or bool(VARYING.search(word)) for word in words]
    return " ".join("…" if varying else word for word, varying in zip(words, varies, strict=True))


def _kind_text(found: Sequence[Named]) -> str:
    first, *others = found
    line = f"\n  {first.subject(NAMES_MAX)}: {first.check}"
    if not others:
        return line
    subjects = listed([entry.subject(1) for entry in others], ALIKE_MAX)
    return f"{line}\n    and {len(others):,} more like this: {subjects}"
