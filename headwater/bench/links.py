"""Which foreign keys does a draft find in databases that declare none, and are they right?

    python headwater/bench/links.py ../shared/data [--only NAME ...]

Copies each SQLite database of the folder and of its corpus/, removes the foreign keys and nothing
else from the schema of the copy, drafts it, and compares the draft with the declared keys. A link
is right if its columns are those of a declared key, and its table is the declared one or one that
stands 1:1 with it: their keys have the same values. If several links have the same columns, the
best counts, and the others are false.

Prints one JSON line for each database, with the false and the missed links and how many of all are
drafted by values alone; then the totals: "all" without parlgov and plurel, and these two apart. The
names of plurel say nothing, so that no key there can be drafted but by chance.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from headwater.inference.infer import draft_source

APART = ("parlgov", "plurel")  # not in the total "all"
SUMS = ("declared", "drafted", "right", "by_values")
NAME = r"""(?:"[^"]+"|\[[^\]]+\]|`[^`]+`|\w+)"""
NAMES = rf"\(\s*{NAME}(?:\s*,\s*{NAME})*\s*\)"
TARGET = (
    rf"REFERENCES\s+{NAME}\s*(?:{NAMES})?"
    r"(?:\s*ON\s+(?:DELETE|UPDATE)\s+(?:NO\s+ACTION|RESTRICT|CASCADE|SET\s+NULL|SET\s+DEFAULT))*"
)
# A constraint of a table, with the comma before it; or one of a column.
FOREIGN_KEY = re.compile(
    rf"\s*,\s*(?:CONSTRAINT\s+{NAME}\s+)?FOREIGN\s+KEY\s*{NAMES}\s*{TARGET}|\s*{TARGET}",
    re.IGNORECASE,
)


class Link(NamedTuple):
    """A foreign key, declared or drafted."""

    table: str
    columns: tuple[str, ...]
    parent: str
    references: tuple[str, ...]

    def __str__(self) -> str:
        child, parent = (", ".join(names) for names in (self.columns, self.references))
        return f"{self.table} ({child}) -> {self.parent} ({parent})"


@dataclass(frozen=True)
class Score:
    """The counts of a database, or of several."""

    database: str
    declared: int
    drafted: int
    right: int
    by_values: int  # drafted without a word from the names
    false: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def precision(self) -> float:
        return self.right / self.drafted if self.drafted else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.declared if self.declared else 1.0

    def line(self) -> dict[str, Any]:
        """For a line of JSON; a total has no names."""
        shares = {"precision": round(self.precision, 4), "recall": round(self.recall, 4)}
        found = {**asdict(self), "seconds": round(self.seconds, 2), **shares}
        return {name: value for name, value in found.items() if value != ()}


# ---- declared keys -----------------------------------------------------------------------------


def declared_links(database: sqlite3.Connection) -> list[Link]:
    """Every declared foreign key, in the order of the tables."""
    found = []
    for table in _tables(database):
        keys: dict[int, list[tuple[Any, ...]]] = {}
        for row in database.execute(
            "SELECT * FROM pragma_foreign_key_list(?) ORDER BY id, seq", [table]
        ):
            keys.setdefault(row[0], []).append(row)
        for rows in keys.values():
            parent = next(name for name in _tables(database) if name.lower() == rows[0][2].lower())
            names = [row[4] for row in rows]
            references = _primary_key(database, parent) if None in names else names
            found.append(Link(table, tuple(row[3] for row in rows), parent, tuple(references)))
    return found


def without_foreign_keys(path: Path, copy: Path) -> None:
    """Copy a database, and remove the foreign keys from the schema of the copy. Its rows, types,
    primary keys and other constraints stay as they are."""
    shutil.copyfile(path, copy)
    copy.chmod(0o600)
    with closing(sqlite3.connect(copy)) as database:
        before = _schema(database)
        statements = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"
        ).fetchall()
        (version,) = database.execute("PRAGMA schema_version").fetchone()
        database.execute("PRAGMA writable_schema = ON")
        for name, sql in statements:
            database.execute(
                "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?",
                [FOREIGN_KEY.sub("", sql), name],
            )
        database.execute(f"PRAGMA schema_version = {version + 1}")
        database.commit()
    with closing(sqlite3.connect(copy)) as database:
        if declared_links(database) or _schema(database) != before:
            raise ValueError(f"the foreign keys of '{path}' were not removed alone")


def _tables(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def _primary_key(database: sqlite3.Connection, table: str) -> list[str]:
    rows = database.execute(
        "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", [table]
    )
    return [name for (name,) in rows]


def _schema(database: sqlite3.Connection) -> list[list[tuple[Any, ...]]]:
    """All that is declared but foreign keys."""
    return [
        database.execute(f"SELECT * FROM pragma_{what}(?)", [table]).fetchall()
        for table in _tables(database)
        for what in ("table_xinfo", "index_list")
    ]


# ---- the score ---------------------------------------------------------------------------------


def drafted_links(source: str) -> dict[Link, bool]:
    """The links of a draft, in the order of its tables, and whether each is by values alone."""
    return {
        Link(table.name, tuple(key.columns), key.table, tuple(key.references)): any(
            table.column(name).reason.startswith("by values") for name in key.columns
        )
        for table in draft_source(source).tables
        for key in table.every_key()
    }


def compare(
    database: sqlite3.Connection, declared: Iterable[Link], drafted: Iterable[Link]
) -> tuple[list[Link], list[Link], list[Link]]:
    """The links that are right, those that are false, and the declared ones that are missed."""
    right, left, missed = [], list(drafted), list(declared)
    for is_right in (_is_same_table, partial(_is_one_to_one, database)):
        for link in list(left):
            for key in missed:
                if _columns(link) == _columns(key) and is_right(link, key):
                    right.append(link)
                    left.remove(link)
                    missed.remove(key)
                    break
    return right, left, missed


def _columns(link: Link) -> tuple[str, frozenset[str]]:
    return link.table, frozenset(link.columns)


def _is_same_table(link: Link, key: Link) -> bool:
    return link.parent == key.parent


def _is_one_to_one(database: sqlite3.Connection, link: Link, key: Link) -> bool:
    """Whether the keys that two links of the same columns refer to have the same values, each
    once."""
    sides = []
    for one in (link, key):
        pairs = sorted(zip(one.columns, one.references, strict=True))
        names = ", ".join(_quoted(reference) for _, reference in pairs)
        sides.append(f"SELECT {names} FROM {_quoted(one.parent)}")
    for side, other in (sides, sides[::-1]):
        count = f"SELECT count(*) FROM ({side})"
        distinct = f"SELECT count(*) FROM (SELECT DISTINCT * FROM ({side}))"
        outside = f"SELECT count(*) FROM ({side} EXCEPT {other})"
        rows, values, unknown = database.execute(
            f"SELECT ({count}), ({distinct}), ({outside})"
        ).fetchone()
        if rows != values or unknown:
            return False
    return True


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def measure(path: Path) -> Score:
    """Draft one database without its foreign keys."""
    started = time.process_time()
    with tempfile.TemporaryDirectory(prefix="headwater-links-") as folder:
        copy = Path(folder) / path.name
        without_foreign_keys(path, copy)
        drafted = drafted_links(f"sqlite:///{copy}")
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        declared = declared_links(database)
        right, false, missed = compare(database, declared, drafted)
    return Score(
        name_of(path),
        len(declared),
        len(drafted),
        len(right),
        sum(drafted.values()),
        tuple(map(str, false)),
        tuple(map(str, missed)),
        time.process_time() - started,
    )


def databases(folder: Path) -> list[Path]:
    """The SQLite files of a folder of databases and of its corpus, plurel's last."""
    found = [*folder.glob("*/*.sqlite"), *folder.glob("corpus/*/*.sqlite")]
    return sorted(found) + sorted(folder.glob("corpus/plurel/*/*.sqlite"))


def name_of(path: Path) -> str:
    """The folder of a database; those of plurel are numbers."""
    folder = path.parent
    return f"plurel/{folder.name}" if folder.parent.name == "plurel" else folder.name


def totals(scores: Sequence[Score]) -> Iterator[Score]:
    """The sums of all databases but those that are apart, and of each of these."""
    of_each = {"all": [score for score in scores if not score.database.startswith(APART)]}
    of_each |= {name: [s for s in scores if s.database.startswith(name)] for name in APART}
    for name, group in of_each.items():
        numbers = (sum(getattr(s, what) for s in group) for what in SUMS)
        if group:
            yield Score(f"total: {name}", *numbers, seconds=sum(score.seconds for score in group))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of these folders alone")
    arguments = parser.parse_args()
    scores = []
    for path in databases(arguments.folder):
        if not arguments.only or name_of(path).split("/")[0] in arguments.only:
            scores.append(measure(path))
            print(json.dumps(scores[-1].line()), flush=True)
    for total in totals(scores):
        print(json.dumps(total.line()))


if __name__ == "__main__":
    main()
