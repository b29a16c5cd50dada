"""Drafts of real databases against what a person found in their READMEs and data.

`times_by_hand.json` has for each table the right time, or several that are: a column, null,
"parent:TABLE" (taken from a row that it names) or "computed:COLUMNS"; and when its columns are
known that are not known with their row ("ignored" if they may be left out). It was written without
a look at what `init` drafts. Of the columns neither keys nor the time of the row are counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from databases import shared_data
from headwater.inference.infer import draft_source
from headwater.metadata.parts import Table

BY_HAND = json.loads((Path(__file__).parent / "times_by_hand.json").read_text())
TIMES_MIN, KNOWN_MIN, FALSE_MAX = 0.95, 0.90, 3
# The others take a second or two each.
LARGE = ("completejourney", "euip", "eusa", "nycflights13", "parlgov", "survivoR", "rel-f1")


class Score(NamedTuple):
    times: int
    right_times: int
    columns: int
    right_columns: int
    false_lines: int  # proposals whose edit makes the metadata worse
    wrong: list[str]


def source_of(name: str) -> Any:
    """A database of the shared data: an SQLite file, or a folder of files."""
    outer = shared_data(name if name in OUTSIDE else f"corpus/{name}")
    (file,) = [path for path in outer.glob("*.sqlite")] or [None]
    return outer if file is None else f"sqlite:///{file}"


OUTSIDE = ("chinook", "international_results", "openflights", "rel-f1", "se_history_meta")


def answers(entries: list[dict[str, Any]]) -> Iterator[tuple[str, set[str]]]:
    for entry in entries:
        at = entry["at"]
        for column in entry["columns"]:
            yield column, {at} if isinstance(at, str) else set(at)


def drafted_time(table: Table) -> str | None:
    name = table.temporal_column
    if name is None:
        return None
    column = table.column(name)
    if column.taken_from is not None:
        return f"parent:{column.taken_from.table}"
    return "computed" if column.expression is not None else name


def score(name: str) -> Score:
    draft = draft_source(source_of(name))
    schema = draft.schema()
    wrong: list[str] = []
    times = right_times = columns = right = 0
    false_lines: set[str] = set()
    for table_name, truth in BY_HAND[name].items():
        table = schema.table(table_name)
        accepted = truth["time"] if isinstance(truth["time"], list) else [truth["time"]]
        time = drafted_time(table)
        is_right = time in accepted or (
            time == "computed" and any((one or "").startswith("computed:") for one in accepted)
        )
        times, right_times = times + 1, right_times + is_right
        if not is_right:
            wrong.append(f"{table_name}: {time} is not in {accepted}")
            false_lines |= {table_name} if time is not None else set()
        known = dict(answers(truth.get("known", [])))
        known |= dict(answers(truth.get("if_time", {}).get(time, [])))
        keys = {*table.primary_key, *(part for key in table.every_key() for part in key.columns)}
        for column in table.columns:
            if column.is_derived or column.name == table.temporal_column or column.name in keys:
                continue
            at = "ignored" if column.stype == "ignored" else column.known_at.to_json()
            allowed = known.get(column.name, {"creation"})
            if table.column_names().count(at) and table.column(at).is_derived:
                at = "never" if "never" in allowed else at  # the end of the row that it belongs to
            columns += 1
            if at in allowed or (at == "ignored" and "creation" in allowed):
                right += 1
                continue
            wrong.append(f"{table_name}.{column.name}: {at} is not in {sorted(allowed)}")
            if "creation" in allowed and column.note:
                false_lines.add(column.note)
    return Score(times, right_times, columns, right, len(false_lines), wrong)


def check(scores: dict[str, Score]) -> None:
    wrong = "\n".join(f"{name}: {line}" for name, one in scores.items() for line in one.wrong)
    total = [sum(values) for values in zip(*(one[:4] for one in scores.values()), strict=True)]
    print(f"times {total[1]} of {total[0]}, columns {total[3]} of {total[2]}\n{wrong}")
    assert total[1] >= TIMES_MIN * total[0]
    assert total[3] >= KNOWN_MIN * total[2]
    for name, one in scores.items():
        assert one.false_lines <= FALSE_MAX, (name, one.false_lines)


def test_drafts_of_small_databases_are_right() -> None:
    check({name: score(name) for name in BY_HAND if name not in LARGE})


@pytest.mark.release
def test_drafts_of_all_databases_are_right() -> None:
    check({name: score(name) for name in BY_HAND})
