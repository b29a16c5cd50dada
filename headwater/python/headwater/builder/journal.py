"""What of a build is done, written into the build's own database.

A stage is a name and the facts that later stages need of it, as JSON. It is recorded after its
tables are there: a build killed between the two makes them again. DuckDB's log makes a recorded
stage and its tables survive a kill at any moment.

Stages: `source` (raw tables read), `schema` (one that was inferred), `table <i>` (rows.t<i> in
place), `labels` (label tables and results of queries), `seeds` (of all tasks), `categories` (of all
tables). The encoding into the store's files begins anew; vectors of models are in the cache.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any, TypeVar

from headwater.sources.database import Connection

Fact = TypeVar("Fact")


class Journal:
    """The stages of one build. `connection` is set again when the build opens another one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.resumed: list[str] = []  # stages that an earlier build had done
        connection.execute("CREATE SCHEMA IF NOT EXISTS build_journal")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS build_journal.done (stage VARCHAR, facts VARCHAR)"
        )

    def find(self, stage: str) -> Any:
        """The facts of a stage that is done; None if it is not."""
        row = self.connection.execute(
            "SELECT facts FROM build_journal.done WHERE stage = ?", [stage]
        ).fetchone()
        if row is None:
            return None
        self.resumed.append(stage)
        return json.loads(row[0])

    def record(self, stage: str, facts: Any) -> None:
        if dataclasses.is_dataclass(facts) and not isinstance(facts, type):
            facts = dataclasses.asdict(facts)
        text = json.dumps(facts, default=sorted)  # a frozenset becomes a list
        self.connection.execute("INSERT INTO build_journal.done VALUES (?, ?)", [stage, text])

    def forget(self) -> None:
        """Nothing of what is done may be used by another build."""
        self.connection.execute("DELETE FROM build_journal.done")


def restore(kind: type[Fact], value: Any) -> Fact:
    """A frozen dataclass from what `dataclasses.asdict` and JSON made of it."""
    return typing.cast(Fact, _restore(kind, value))


def _restore(kind: Any, value: Any) -> Any:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _restore(hints[name], item) for name, item in value.items()})
    if origin is tuple:
        kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_restore(part, item) for part, item in zip(kinds, value, strict=True))
    if origin in (frozenset, list):
        return origin(_restore(parts[0], item) for item in value)
    if origin in (typing.Union, types.UnionType):
        inner = [part for part in parts if part is not type(None)]
        return None if value is None else _restore(inner[0], value)
    return value
