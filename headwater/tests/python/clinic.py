"""A clinic whose visits and results must not be seen too early, and a comparison of batches."""

from __future__ import annotations

from typing import Any

from plain_database import BOOLEAN, CATEGORICAL, Column, Database, Key, Seed, Task
from world_store import Arrays
from worlds import at, columns_of, table

TRUTH_ARRAYS = ("bool_values", "categorical_embed_ids", "is_null")


LATE, READMITTED = 0, 1


def clinic(**changes: Any) -> Database:
    """Patients and visits, two per patient before the question on day 5 and one after it.

    `changes` maps "column row" of visits, with a row from 0 in order of time, to another value.
    Visit rows 0..3 are of days 1..4, row 4 and 5 of days 8 and 9; patients take turns.
    """
    patients = table(
        "patients",
        ["patient_id identifier", Column("blood", CATEGORICAL, categories=("a", "b"))],
        [(True, "a"), (True, "b")],
    )
    days = (1, 2, 3, 4, 8, 9)
    rows = [
        [True, True, at(day), "a", False, False, at(day + 2), f"note {day}", True] for day in days
    ]
    columns = [
        *columns_of("visit_id identifier, patient_id identifier, at timestamp"),
        Column("ward", CATEGORICAL, categories=("a", "b")),
        *columns_of("readmitted boolean, secret boolean, result_at timestamp result_at"),
        *columns_of("result text result_at, never boolean never"),
    ]
    names = [column.name for column in columns]
    for place, value in changes.items():
        name, row = place.split("__")
        rows[int(row)][names.index(name)] = value
    visits = table(
        "visits",
        columns,
        [tuple(row) for row in rows],
        (Key(("patient_id",), "patients", (0, 1, 0, 1, 0, 1)),),
        "at",
    )
    late = Task(
        "late",
        "patients",
        "late",
        BOOLEAN,
        (Seed(0, at(5), True, split=0), Seed(1, at(5), False, split=1)),
        hidden=(("patients", "blood"),),
    )
    readmitted = Task(
        "readmitted",
        "visits",
        "readmitted",
        BOOLEAN,
        tuple(
            Seed(row, at(day), bool(rows[row][4]), split=(0, 0, 1, 2, 0, 0)[row])
            for row, day in enumerate(days)
        ),
        derived=False,
        hidden=(("visits", "secret"),),
        exclusive=True,
    )
    return Database("clinic", (patients, visits), (late, readmitted))


def differing(before: list[Arrays], after: list[Arrays]) -> set[str]:
    """Names of arrays that are not the same, outside of the target cell."""
    names = set()
    for one, two in zip(before, after, strict=True):
        for name in one:
            a, b = one[name].copy(), two[name].copy()
            if name in TRUTH_ARRAYS:
                a[one["is_target"] == 1] = b[two["is_target"] == 1] = 0
            if a.tobytes() != b.tobytes():
                names.add(name)
    return names
