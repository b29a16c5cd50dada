"""The real databases of ../shared/data, each built once with its example for all tests of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from databases import EXAMPLES, shared_data
from headwater.builder.build import build
from headwater.builder.build_report import BuildReport
from headwater.store.store import Store

SOURCES = {
    "openflights": "openflights",
    "football": "international_results",
    "stack-exchange": "se_history_meta/se_history_meta.sqlite",
    "chinook": "chinook/Chinook_Sqlite.sqlite",
    "rel-f1": "rel-f1/rel-f1.sqlite",
}


def source_of(name: str) -> str:
    path = shared_data(SOURCES[name])
    return str(path) if path.is_dir() else f"sqlite:///{path}"


@dataclass(frozen=True)
class Built:
    report: BuildReport
    store: Store
    path: Path

    def table(self, name: str) -> dict[str, Any]:
        tables: list[dict[str, Any]] = self.store.metadata["tables"]
        return next(table for table in tables if table["name"] == name)

    def row_count(self, name: str) -> int:
        low, high = self.table(name)["row_range"]
        return int(high - low)

    def key(self, table: str, *columns: str) -> tuple[int, int, int]:
        """Edges, dangling and NULL of a foreign key."""
        keys = {tuple(key["columns"]): key for key in self.table(table)["foreign_keys"]}
        return tuple(keys[columns][what] for what in ("edges", "dangling", "nulls"))  # type: ignore[return-value]

    def nulls(self, table: str, column: str) -> int:
        entries = self.store.metadata["columns"]
        found = next(c for c in entries if (c["table"], c["name"]) == (table, column))
        return int(found["stats"]["nulls"])


Builder = Callable[[str], Built]


def example_builder(folder: Path) -> Builder:
    """Builds the store of an example when it is first asked for; nobody may write to it."""
    made: dict[str, Built] = {}

    def get(name: str) -> Built:
        if name not in made:
            source, path = source_of(name), folder / name
            seeds = shared_data("rel-f1/tasks") if name == "rel-f1" else None
            report = build(source, path, EXAMPLES / f"{name}.json", seeds_dir=seeds)
            made[name] = Built(report, Store(path), path)
        return made[name]

    return get
