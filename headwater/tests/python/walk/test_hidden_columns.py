"""Hidden columns: docs/reference/sampling.md, "Withheld cells", worked out by hand on cities and
censuses.

    cities (counted)               censuses (city, held)                  lands (no time)
    key  land  people  counted     key  city  people  held                key  people
    1    1     10      day 1       1    1     10      day 1               1    60
    2    1     20      day 5       2    1     12      day 5
    3    1     30      no time     3    2     20      day 4
                                   4    1     13      no time, visible
                                   5    2     21      day 6

All three `people` but the first are hidden from a task that asks for the people of a city.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from databases import asked, run_script, typed
from headwater.audit.run import audit
from headwater.builder.build import build
from headwater.sampling.sampler import Sampler
from headwater.store.store import Store

DAY = "2024-01-{:02}".format

CITIES = [(1, 1, 10, DAY(1)), (2, 1, 20, DAY(5)), (3, 1, 30, None)]
CENSUSES = [(1, 1, 10, DAY(1)), (2, 1, 12, DAY(5)), (3, 2, 20, DAY(4)), (4, 1, 13, None),
            (5, 2, 21, DAY(6))]  # fmt: skip
HIDDEN = ["censuses.people", "lands.people"]


def metadata(
    *, cutoff: str, cities_timed: bool = True, hidden: Sequence[str] = HIDDEN
) -> dict[str, Any]:
    time = {"time_resolution": "instant", "null_time": "visible"}
    cities = typed("id identifier, land identifier lands.id, people numerical, counted timestamp")
    censuses = typed("id identifier, city identifier cities.id, people numerical, held timestamp")
    timed = {"temporal_column": "counted", **time} if cities_timed else {}
    query = "SELECT id, people, TIMESTAMP '2024-01-10' AS at FROM cities"
    rules = {"cutoff": cutoff, "context_labels": "all", "allow_future_anchor": True}
    task = asked(query, "cities", "people numerical", "at", hidden_columns=list(hidden), **rules)
    return {
        "tables": {
            "lands": {"primary_key": "id", "columns": typed("id identifier, people numerical")},
            "cities": {"primary_key": "id", "columns": cities, **timed},
            "censuses": {
                "primary_key": "id", "columns": censuses, "temporal_column": "held", **time,
            },
        },
        "tasks": {"people": task},
    }  # fmt: skip


def build_cities(folder: Path, **options: Any) -> tuple[Path, str]:
    """The store, and the build's summary."""
    source = run_script(
        folder / "cities.sqlite",
        """
        CREATE TABLE lands (id INTEGER PRIMARY KEY, people INTEGER);
        CREATE TABLE cities (id INTEGER PRIMARY KEY, land INTEGER REFERENCES lands,
            people INTEGER, counted TIMESTAMP);
        CREATE TABLE censuses (id INTEGER PRIMARY KEY, city INTEGER REFERENCES cities,
            people INTEGER, held TIMESTAMP);
        INSERT INTO lands VALUES (1, 60);
        """,
    )
    with closing(sqlite3.connect(folder / "cities.sqlite")) as database, database:
        database.executemany("INSERT INTO cities VALUES (?, ?, ?, ?)", CITIES)
        database.executemany("INSERT INTO censuses VALUES (?, ?, ?, ?)", CENSUSES)
    report = build(source, folder / "store", metadata(**options))
    return folder / "store", str(report)


def shown_in(path: Path) -> tuple[dict[int, set[str]], int]:
    """Per city that is asked about: the rows of which `people` is shown, such as "censuses 1",
    without the target; and how many cells the sampler withheld."""
    found: dict[int, set[str]] = {}
    with Store(path) as store, Sampler(
        store=store, default_batch_size=1, default_sequence_length=64, max_rows=16,
        split_ratios=(1, 0, 0), num_prefetch=0, with_rows=True, tasks=["people"],
    ) as sampler:  # fmt: skip
        names = [column["name"] for column in store.metadata["columns"]]
        for batch in sampler.epoch("train", "people"):
            anchor = store.row(int(batch.info["anchor_rows"][0]))["key"]["id"]
            found[anchor] = set()
            for cell in range(64):
                number = int(batch["column_ids"][0, cell])
                if batch["is_padding"][0, cell] or batch["is_target"][0, cell]:
                    continue
                if names[number] == "people":
                    local = int(batch["seq_row_ids"][0, cell])
                    row = store.row(int(batch.info["row_ids"][0, local]))
                    found[anchor].add(f"{row['table']} {row['key']['id']}")
        return found, int(sampler.stats()["withheld_cells"])


@pytest.mark.parametrize("cutoff", ["exclusive", "inclusive"])
def test_a_hidden_column_is_shown_on_older_rows_alone(tmp_path: Path, cutoff: str) -> None:
    """All rows are in every context: they are asked on day 10. The land has no time. City 1 is of
    day 1, and nothing is older; of city 2 (day 5) the censuses of days 1 and 4 are; city 3 has no
    time. The target of other cities keeps its rule: under "inclusive" it is shown on what is older
    than the anchor, and a row without a time counts as first."""
    path, _ = build_cities(tmp_path, cutoff=cutoff)
    shown, withheld = shown_in(path)
    cities = {name: {f"cities {name}"} for name in (1, 2, 3)}
    if cutoff == "exclusive":
        others = {1: cities[2] | cities[3], 2: cities[1] | cities[3], 3: cities[1] | cities[2]}
    else:
        others = {1: cities[3], 2: cities[1] | cities[3], 3: set()}
    assert shown == {1: others[1], 2: others[2] | {"censuses 1", "censuses 3"}, 3: others[3]}
    # Of the land and five censuses 6, 4 and 6; of two other cities what is not shown.
    assert withheld == 6 + 4 + 6 + sum(2 - len(names) for names in others.values())
    assert not audit(path).leaks


def test_a_hidden_column_is_never_shown_where_anchors_have_no_time(tmp_path: Path) -> None:
    path, summary = build_cities(tmp_path, cutoff="exclusive", cities_timed=False)
    shown, _ = shown_in(path)
    assert not any(
        name.startswith(("censuses", "lands")) for names in shown.values() for name in names
    )
    assert (
        "    hidden: censuses.people; 1 of 5 rows have no time: never shown (rows of cities, its "
        "anchors, have no time)\n" in summary
    )


def test_the_summary_names_hidden_columns_and_their_rows_without_time(tmp_path: Path) -> None:
    _, summary = build_cities(tmp_path, cutoff="exclusive")
    assert "    hidden: censuses.people; 1 of 5 rows have no time\n" in summary
    assert "    hidden: lands.people; 1 of 1 rows have no time: never shown\n" in summary


def test_a_hidden_time_is_to_be_checked(tmp_path: Path) -> None:
    _, summary = build_cities(tmp_path, cutoff="exclusive", hidden=["censuses.held"])
    assert "task people hides censuses.held, but the age of each row and the order" in summary
