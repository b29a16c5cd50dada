"""What tests share: the smallest settings, how a command line has them, what a log says, a task
with its labels, and a database from its rows."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import headwater

from confluence.config import Config
from confluence.data.stores import OpenStore, find_places, open_stores
from confluence.data.tasks import Labels, Task, open_sampler, read_target
from confluence.data.verification import open_store

SMALL: dict[str, Any] = {
    "preset": "tiny", "width": 16, "layers": 1, "sequence_length": 32, "max_rows": 10,
}  # fmt: skip


def words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of a command and their values."""
    found = []
    for name, value in settings.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        found += [f"--{name.replace('_', '-')}", text.lower() if value is True else text]
    return found


def events(out: Path, *kinds: str) -> list[dict[str, Any]]:
    """The lines of a run's log, all or those of some kinds; what came again is there twice."""
    lines = (out / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if not kinds or line["event"] in kinds]


def labelled(store: Path, cfg: Config, name: str) -> tuple[Task, Labels]:
    """A task of a store, and its labels by the splits of these settings."""
    with open_sampler(open_store(store), cfg, name, num_prefetch=0) as sampler:
        return read_target(sampler, name)


def opened(*paths: Path | str) -> dict[str, headwater.Store]:
    """Stores by path, as functions take several."""
    return {str(path): open_store(path) for path in paths}


def opened_tasks(
    store: Path, names: Sequence[str], cfg: Config, **overrides: Any
) -> contextlib.AbstractContextManager[tuple[OpenStore, ...]]:
    """A store with a sampler of some of its tasks, as a training opens it."""
    known = opened(store)
    return open_stores(known, find_places(known, names), cfg, **overrides)


def write_sqlite(path: Path, tables: Mapping[str, tuple[str, Iterable[Any]]]) -> str:
    """A database of tables, each of which has its columns in SQL and its rows; its address."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for table, (columns, rows) in tables.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
            marks = ", ".join("?" for _ in columns.split(","))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    return f"sqlite:///{path}"
