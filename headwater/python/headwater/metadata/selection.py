"""Which tables of a source are read: `--schema`, `--table` and `--exclude-table`.

Patterns are those of a shell (`a*`, `log_20??`), case counts, and match a table's name or its name
with the schema (`sales.a*`). A pattern that matches nothing is an error: it is a spelling mistake
far more often than a wish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from headwater.errors import SourceError, nearest

WILDCARDS = "*?["
Item = TypeVar("Item")


@dataclass(frozen=True)
class Selection:
    """Filters as they were asked for; empty ones let everything pass."""

    schemas: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def choose_schemas(self, found: Sequence[str], *, default: str) -> list[str]:
        """Schemas to read, in the order of `found`."""
        wanted = self.schemas or (default,)
        for pattern in wanted:
            if not any(fnmatchcase(name, pattern) for name in found):
                raise SourceError(
                    f"the source has no schema '{pattern}'{nearest(pattern, found)}; "
                    f"it has {', '.join(found) or 'none'} (choose with --schema)"
                )
        return [name for name in found if any(fnmatchcase(name, p) for p in wanted)]

    def choose(
        self, found: Sequence[tuple[Sequence[str], Item, str]], *, where: str
    ) -> tuple[list[Item], list[str]]:
        """Those that are read, and a note on views: they are read only where --table names them
        without a wildcard. found: the names a table may be called by, the longest last, what
        stands for it, and what it is if it is not a table."""
        for option, patterns in (("--table", self.tables), ("--exclude-table", self.excluded)):
            for pattern in patterns:
                if not any(_matches(names, (pattern,)) for names, _, _ in found):
                    plain = [names[0] for names, _, _ in found]
                    raise SourceError(
                        f"{option} '{pattern}' matches no table of '{where}'"
                        f"{nearest(pattern, plain)}"
                    )
        named = {pattern for pattern in self.tables if not set(pattern) & set(WILDCARDS)}
        chosen, views = [], []
        for names, item, kind in found:
            if (self.tables and not _matches(names, self.tables)) or _matches(names, self.excluded):
                continue
            if kind and not named & set(names):
                views.append(f"{kind} {names[-1]}")
            else:
                chosen.append(item)
        notes = [f"not read unless named with --table: {', '.join(views)}"] if views else []
        return chosen, notes

    def refuse_schemas(self, kind: str) -> None:
        """SourceError where schemas are asked of a source that has none."""
        if self.schemas:
            raise SourceError(f"{kind} has no schemas; leave --schema out")


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
