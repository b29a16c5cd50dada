"""The folders of ../shared/data/field: whether a draft, and a build by it, are right by themselves.

`field_by_hand.json` has the truth of each folder, by its README and its files and not by a draft,
and how it fares now:

    decided  the draft and its store are right: all of "decided" holds
    named    they are not, but a line or a refusal says what the README wants: one of "named" holds
    wrong    neither

A folder that is better than its entry fails as one that is worse, so that the entry is changed.

What must hold, all of it by exact values:

    links    rows that are linked, rows whose key names none, and NULL (null: any number), of every
             foreign key of the store ("child.column", or "child.column -> parent.column"); in
             "may" patterns of others that may be there
    rows     of tables ("*": the only one), or one of several numbers
    keys     primary keys
    times    how the first and the last time of a table's rows begin; null: it has none
    known    when a column is known, or one of several; "types": its stype
    nulls    of a column in the store; "values": all its values
    hidden   of the drafted task of a column; "no_targets": no drafted task has them
    lines    each a list of patterns that one line of the draft's or the build's checks has, subject
             and all; "said": one line of the draft's whole text; "refused": the error
    open     answers of the question that have no label, as their windows end after the data
    seconds  of the processor, at most, for the draft

In every folder also: nothing is written beside the source.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from databases import shared_data
from headwater.builder.build import build
from headwater.builder.build_report import BuildReport
from headwater.errors import HeadwaterError
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source
from headwater.metadata.schema import parse_schema
from headwater.store.store import Store

ROOT = Path(__file__).parents[4]
BY_HAND = json.loads((Path(__file__).parent / "field_by_hand.json").read_text())
SLOW = ("wide-table",)


@dataclass(frozen=True)
class Found:
    """What became of a source."""

    draft: Draft | None = None
    report: BuildReport | None = None
    store: Store | None = None
    error: str = ""  # instead of these
    seconds: float = 0.0  # of the processor, for the draft

    def entry(self, table: str) -> dict[str, Any]:
        """A table of the store's metadata."""
        assert self.report is not None
        tables: list[dict[str, Any]] = self.report.metadata["tables"]
        if table == "*" and len(tables) == 1:
            return tables[0]
        return next((one for one in tables if one["name"] == table), {"name": None})

    def lines(self) -> list[str]:
        """All that a person is asked or told, each with what it is about."""
        if self.draft is None or self.report is None:
            return []
        return [*self.draft.every_check(), *self.report.losses(), *self.report.notes()]


def of_folder(folder: Path, entry: dict[str, Any], out: Path) -> Iterator[Found]:
    """Each source of a folder, drafted, and built as it is drafted."""
    names = entry.get("source", "data.db")
    for number, name in enumerate([names] if isinstance(names, str) else names):
        try:
            source = source_of(folder, name)
            start = time.process_time()
            draft = draft_source(source)
            seconds = time.process_time() - start
            document = draft.schema().to_dict()
            if "question" in entry:
                query = (folder / "question.sql").read_text()
                document["tasks"] = {"question": {**entry["question"], "query": query}}
            report = build(source, out / str(number), parse_schema(document))
        except HeadwaterError as error:
            yield Found(error=str(error))
            continue
        with Store(out / str(number)) as store:
            yield Found(draft, report, store, seconds=seconds)


def source_of(folder: Path, name: str) -> Any:
    """An SQLite file, a folder of files, or what a script makes: data frames, or the folder csv."""
    if not name.endswith(".py"):
        return f"sqlite:///{folder / name}" if name.endswith(".db") else folder / name
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        made = runpy.run_path(name)
    return {key: made[key] for key in ("users", "events")} if "users" in made else folder / "csv"


def state_of(folder: Path, entry: dict[str, Any], out: Path) -> tuple[str, list[str]]:
    """Whether a folder is decided, named or wrong, and what it lacks of being decided."""
    copy = out / "copy"
    shutil.copytree(folder, copy)
    for path in [copy, *copy.rglob("*")]:  # some are read-only
        path.chmod(0o700 if path.is_dir() else 0o600)
    first = {path for path in copy.rglob("*") if path.suffix == ".db"}
    before = {*copy.rglob("*")}
    ways: list[list[str]] = [[] for _ in range(1 + len(entry.get("named", [])))]
    for found in of_folder(copy, entry, out):
        for faults, truth in zip(
            ways, [entry.get("decided"), *entry.get("named", [])], strict=True
        ):
            faults += ["only a line can be right"] if truth is None else faults_of(found, truth)
    made = {*copy.rglob("*")} - before if first else set()
    left = [f"'{path.name}' is left beside the source" for path in sorted(made)]
    if left or all(ways):
        return "wrong", ways[0] + left
    return ("named", ways[0]) if ways[0] else ("decided", [])


def faults_of(found: Found, truth: dict[str, Any]) -> list[str]:
    """What of a truth does not hold."""
    if ("refused" in truth) != bool(found.error):
        return [f"error: {found.error or None}"]
    faults = []
    for what, expected in truth.items():
        faults += [f"{what}: {fault}" for fault in CHECKS[what](found, expected)]
    return faults


# ---- what must hold ----------------------------------------------------------------------------

Check = Callable[[Found, Any], Iterator[str]]


def links(found: Found, expected: dict[str, list[Any]]) -> Iterator[str]:
    assert found.report is not None
    left = {name: counts for name, counts in expected.items() if name != "may"}
    for table in found.report.metadata["tables"]:
        for key in table["foreign_keys"]:
            child = f"{table['name']}.{','.join(key['columns'])}"
            references = key["references"]
            link = f"{child} -> {references['table']}.{','.join(references['columns'])}"
            counts = [key["edges"], key["dangling"], key["nulls"]]
            name = link if link in left else child
            if name in left:
                wanted = left.pop(name)
                if any(w is not None and w != c for w, c in zip(wanted, counts, strict=True)):
                    yield f"{link} has {counts}, not {wanted}"
            elif not any(re.fullmatch(pattern, link) for pattern in expected.get("may", [])):
                yield f"{link} is false"
    yield from (f"{name} is missed" for name in left)


def rows(found: Found, expected: dict[str, list[int]]) -> Iterator[str]:
    for name, counts in expected.items():
        low, high = found.entry(name).get("row_range", (0, 0))
        if high - low not in counts:
            yield f"{name} has {high - low}"


def keys(found: Found, expected: dict[str, list[str]]) -> Iterator[str]:
    for name, columns in expected.items():
        if (key := found.entry(name).get("primary_key")) != columns:
            yield f"{name} has {key}"


def times(found: Found, expected: dict[str, list[str] | None]) -> Iterator[str]:
    assert found.store is not None
    for name, ends in expected.items():
        if ends is None or found.entry(name).get("temporal_column") is None:
            column = found.entry(name).get("temporal_column")
            yield from [f"{name} has {column}"] if (column is None) != (ends is None) else []
            continue
        moments = found.store.row_times(name)
        for moment, start in zip((moments.min(), moments.max()), ends, strict=True):
            if not text_of(int(moment)).startswith(start):
                yield f"{name}: {text_of(int(moment))} does not begin with {start}"


def text_of(moment: int) -> str:
    days = timedelta(microseconds=moment)
    is_time = abs(days) < timedelta(days=365 * 2000)
    return str(datetime(1970, 1, 1, tzinfo=UTC) + days) if is_time else "no time"


def known(found: Found, expected: dict[str, list[str]]) -> Iterator[str]:
    for name, column in columns_of(found, expected):
        at = None if column is None else column.known_at.to_json()
        if at not in expected[name]:
            yield f"{name} is known at {at}"


def types(found: Found, expected: dict[str, str]) -> Iterator[str]:
    for name, column in columns_of(found, expected):
        stype = None if column is None else column.stype
        if stype != expected[name]:
            yield f"{name} is {stype}"


def columns_of(found: Found, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The drafted columns of some names; None for one that is not there."""
    assert found.draft is not None
    drafted = {f"{t.name}.{c.name}": c for t in found.draft.tables for c in t.columns}
    yield from ((name, drafted.get(name)) for name in names)


def nulls(found: Found, expected: dict[str, int]) -> Iterator[str]:
    for name, count in expected.items():
        cells = cells_of(found, name)
        if cells.count(None) != count:
            yield f"{name} has {cells.count(None)} in {len(cells)}"


def values(found: Found, expected: dict[str, list[str]]) -> Iterator[str]:
    for name, wanted in expected.items():
        cells = {f"{v:g}" if isinstance(v, float) else str(v) for v in cells_of(found, name)}
        if cells != set(wanted):
            yield f"{name} has {sorted(cells)[:9]}"


def cells_of(found: Found, name: str) -> list[Any]:
    """A column of the store."""
    assert found.store is not None
    table, _, column = name.partition(".")
    low, high = found.entry(table).get("row_range", (0, 0))
    return [found.store.row(row)["cells"].get(column, "no cell") for row in range(low, high)]


def hidden(found: Found, expected: dict[str, list[str]]) -> Iterator[str]:
    for name, columns in expected.items():
        if (there := tasks_of(found).get(name)) is None or not set(columns) <= set(there):
            yield f"{name} hides {there}"


def no_targets(found: Found, expected: list[str]) -> Iterator[str]:
    yield from (name for name in expected if name in tasks_of(found))


def tasks_of(found: Found) -> dict[str, list[str]]:
    """What each drafted task hides, by its target."""
    assert found.draft is not None
    return {
        f"{task.anchor_table}.{task.target_column}": list(map(str, task.hidden_columns))
        for task in found.draft.tasks
    }


def lines(found: Found, expected: list[list[str]]) -> Iterator[str]:
    yield from unmatched(found.lines(), expected)


def said(found: Found, expected: list[list[str]]) -> Iterator[str]:
    assert found.draft is not None
    yield from unmatched(found.draft.text(full=True).splitlines(), expected)


def refused(found: Found, expected: list[str]) -> Iterator[str]:
    yield from unmatched([found.error], [expected])


def unmatched(texts: list[str], expected: list[list[str]]) -> Iterator[str]:
    for patterns in expected:
        if not any(all(re.search(p, text, re.IGNORECASE) for p in patterns) for text in texts):
            yield f"none has {patterns}"


def open_windows(found: Found, expected: int) -> Iterator[str]:
    assert found.report is not None
    (task,) = found.report.metadata["tasks"]
    counted = task["open_windows"]
    if counted is None or counted["seeds"] != expected:
        yield f"{counted}"


def seconds(found: Found, expected: float) -> Iterator[str]:
    if found.seconds > expected:
        yield f"{found.seconds:.1f}"


CHECKS: dict[str, Check] = {
    "links": links, "rows": rows, "keys": keys, "times": times, "known": known, "types": types,
    "nulls": nulls, "values": values, "hidden": hidden, "no_targets": no_targets, "lines": lines,
    "said": said, "refused": refused, "open": open_windows, "seconds": seconds,
}  # fmt: skip


# ---- the tests ---------------------------------------------------------------------------------


def test_every_folder_of_the_field_has_an_entry_and_a_test() -> None:
    for name, entry in BY_HAND.items():
        assert entry["now"] in ("decided", "named", "wrong"), name
        if "tested_in" in entry:
            assert name in (ROOT / entry["tested_in"]).read_text(), name
    folders = {path.name for path in shared_data("field").iterdir() if path.is_dir()}
    assert set(BY_HAND) == folders


def test_the_guide_has_the_counts() -> None:
    states = [entry["now"] for entry in BY_HAND.values()]
    row = " | ".join(
        str(count) for count in (*map(states.count, ("decided", "named")), len(states))
    )
    text = (ROOT / "docs" / "guides" / "real-data.md").read_text("utf-8")
    assert f"| inputs that went wrong elsewhere | {row} |" in text


DRAFTED = [name for name, entry in BY_HAND.items() if "tested_in" not in entry]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.release] if n in SLOW else []) for n in DRAFTED],
)
def test_a_folder_of_the_field_is_as_its_entry_says(name: str, tmp_path: Path) -> None:
    entry = BY_HAND[name]
    state, faults = state_of(shared_data("field") / name, entry, tmp_path)
    text = "\n".join(faults)
    print(f"{name} is {state}\n{text}")
    assert state == entry["now"], f"{name} was {entry['now']} and is {state} now:\n{text}"
