"""Columns that are known later by what other columns and rows are, each kind by hand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from databases import DAY, TinyDatabase, TinyTable, arrow_tables, draft
from headwater.builder.build import build
from headwater.inference.draft import TableDraft
from headwater.inference.infer import infer
from headwater.store.store import Store


def known(table: TableDraft) -> dict[str, str]:
    return {c.name: c.known_at.to_json() for c in table.columns if c.known_at.kind != "creation"}


def table_of(count: int = 120, **columns: tuple[str, Any]) -> TableDraft:
    """A row an hour; columns by their type and a function of a row's number."""
    kinds = {"id": "INTEGER", "at": "TIMESTAMP"} | {name: k for name, (k, _) in columns.items()}
    rows = [
        (j, DAY + timedelta(hours=j), *(value(j) for _, value in columns.values()))
        for j in range(count)
    ]
    return draft({"events": TinyTable(kinds, rows)}).table("events")


def closed(j: int) -> Any:
    """A later time that two in five rows have."""
    return DAY + timedelta(hours=j, days=2) if j % 5 < 2 else None


def test_what_only_rows_with_a_later_time_have_is_known_then() -> None:
    """Nine in ten would not do, nor if nearly all rows have that time."""
    table = table_of(
        400,
        closed_at=("TIMESTAMP", closed),
        granted=("BOOLEAN", lambda j: j % 5 == 0),
        remark=("TEXT", lambda j: f"r{j % 3}" if j % 5 == 1 else None),
        closed_by_clerk=("TEXT", lambda j: ["a", "b", "c"][j % 3]),
        urgent=("BOOLEAN", lambda j: j % 5 == 0 or j % 30 == 4),
    )
    at = dict.fromkeys(("closed_at", "granted", "remark", "closed_by_clerk"), "closed_at")
    assert known(table) == at
    mostly = table_of(
        900,
        closed_at=("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=2) if j % 9 else None),
        urgent=("BOOLEAN", lambda j: j % 9 == 1),
    )
    assert known(mostly) == {"closed_at": "closed_at"}


def test_what_came_of_a_plan_in_the_same_row_is_hidden() -> None:
    table = table_of(
        sched_dep_time=("INTEGER", lambda j: 600 + j),
        dep_time=("INTEGER", lambda j: 600 + j + j % 7),
        arr_delay=("INTEGER", lambda j: j % 11),
        distance=("INTEGER", lambda j: 100 + j),
    )
    assert known(table) == {"dep_time": "never", "arr_delay": "never"}
    alone = table_of(
        dep_time=("INTEGER", lambda j: 600 + j), arr_delay=("INTEGER", lambda j: j % 11)
    )
    assert known(alone) == {}


def test_ratings_with_the_number_of_their_votes_are_hidden() -> None:
    table = table_of(
        imdb_score=("DOUBLE", lambda j: j % 10 / 2), n_ratings=("INTEGER", lambda j: 50 + j)
    )
    assert known(table) == {"imdb_score": "never", "n_ratings": "never"}
    assert known(table_of(score_home=("INTEGER", lambda j: j % 5))) == {}


def test_a_status_with_endings_changes_after_its_row_was_written() -> None:
    table = table_of(order_status=("TEXT", lambda j: ["PAID", "CANCELLED", "NEW"][j % 3]))
    assert known(table) == {"order_status": "never"}
    table = table_of(order_status=("TEXT", lambda j: ["web", "phone", "shop"][j % 3]))
    assert known(table) == {}


def seasons() -> TinyDatabase:
    """30 seasons of 100 days, and five teams in each."""
    years = [(j, DAY + timedelta(days=200 * j)) for j in range(30)]
    return {
        "seasons": TinyTable(
            {"season_id": "INTEGER", "started": "TIMESTAMP", "ended": "TIMESTAMP"},
            [(j, at, at + timedelta(days=100 + j % 3)) for j, at in years],
        ),
        "season_teams": TinyTable(
            {"season_id": "INTEGER", "team": "INTEGER", "score_total": "INTEGER", "coach": "TEXT"},
            [(j // 5, j % 5, j * 7 % 31, f"c{j % 9}") for j in range(150)],
        ),
    }


def test_outcomes_of_what_a_row_above_plans_are_known_at_its_end(tmp_path: Path) -> None:
    source = arrow_tables(seasons())
    schema = infer(source)
    table = schema.table("season_teams")
    assert str(table.column("started").taken_from) == "seasons.started"
    assert str(table.column("ended").taken_from) == "seasons.ended"
    known_at = {column.name: column.known_at.to_json() for column in table.columns}
    assert (known_at["score_total"], known_at["coach"]) == ("ended", "creation")
    build(source, tmp_path / "s", schema)
    with Store(tmp_path / "s") as store:
        row = store.row(store.find("season_teams", (3, 2)))
        assert row["time"].replace(tzinfo=None) == DAY + timedelta(days=600)


def test_stages_that_the_rows_of_another_table_have_reached_are_hidden() -> None:
    """Counts by a key to a few stages, and whether there is one."""
    steps = [(j, j % 40, (j * 7 + j // 40) % 3, DAY + timedelta(hours=j)) for j in range(400)]
    steps = [step for step in steps if (step[1] * 5 + step[2]) % 4]
    count = {
        (case, stage): sum(step[1:3] == (case, stage) for step in steps)
        for case in range(40)
        for stage in range(3)
    }
    cases = [(j, count[j, 1], count[j, 2] > 0, j % 4) for j in range(40)]
    table = draft(
        {
            "stages": TinyTable({"stage_id": "INTEGER", "x": "TEXT"}, [(j, "a") for j in range(3)]),
            "cases": TinyTable(
                {"case_id": "INTEGER", "appeals": "INTEGER", "in_court": "BOOLEAN", "k": "INTEGER"},
                cases,
            ),
            "steps": TinyTable(
                {
                    "step_id": "INTEGER",
                    "case_id": "INTEGER",
                    "stage_id": "INTEGER",
                    "at": "TIMESTAMP",
                },
                steps,
            ),
        }
    ).table("cases")
    assert known(table) == {"appeals": "never", "in_court": "never"}


def test_what_is_called_current_is_of_the_day_of_the_dump() -> None:
    staff = [(j, f"d{j % 4}", j % 4, j % 9) for j in range(60)]
    visits = [(j, j % 60, DAY + timedelta(hours=j)) for j in range(300)]
    table = draft(
        {
            "staff": TinyTable(
                {
                    "staff_id": "INTEGER",
                    "current_post": "TEXT",
                    "home": "INTEGER",
                    "units_in_stock": "INTEGER",
                },
                staff,
            ),
            "visits": TinyTable(
                {"visit_id": "INTEGER", "staff_id": "INTEGER", "at": "TIMESTAMP"}, visits
            ),
        }
    ).table("staff")
    assert known(table) == {"current_post": "never", "units_in_stock": "never"}


def test_a_plan_is_the_last_time_that_came_not_the_last_that_was_set() -> None:
    """The newest loans are not back: the mean of their due dates was the later one, and half of
    the damages were shown before the book was back."""
    loans = table_of(
        600,
        due_date=("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=21)),
        return_date=("TIMESTAMP", lambda j: (
            None if j > 570 else DAY + timedelta(hours=j, days=10 + j % 30)
        )),
        was_damaged=("BOOLEAN", lambda j: j % 9 == 0),
    )  # fmt: skip
    assert known(loans)["was_damaged"] == "return_date"
    parcels = table_of(
        600,
        promised_date=("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=9)),
        delivered_on=("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=3 + j % 8)),
        was_delayed=("BOOLEAN", lambda j: j % 8 > 6),
    )
    assert known(parcels)["was_delayed"] == "delivered_on"


def test_the_latest_of_several_times_is_that_of_the_rows_that_have_all() -> None:
    rows = [
        (
            j,
            None if j % 9 == 0 else DAY + timedelta(hours=j),
            DAY + timedelta(hours=j + 5) if j < 360 else None,
        )
        for j in range(600)
    ]
    types = {"id": "INTEGER", "queued": "TIMESTAMP", "finished": "TIMESTAMP"}
    table = draft({"jobs": TinyTable(types, rows)}).table("jobs")
    assert table.temporal_column == "finished"


def test_a_key_that_is_called_as_the_end_is_known_then() -> None:
    """The station where a trip ends, not that where it begins."""
    stations = TinyTable({"station_id": "INTEGER", "docks": "INTEGER"}, [(j, j) for j in range(9)])
    trips = [
        (j, DAY + timedelta(hours=j), DAY + timedelta(hours=j + 2), j % 9, j * 5 % 9)
        for j in range(200)
    ]
    types = {
        "trip_id": "INTEGER", "started_at": "TIMESTAMP", "ended_at": "TIMESTAMP",
        "start_station_id": "INTEGER", "end_station_id": "INTEGER",
    }  # fmt: skip
    table = draft({"stations": stations, "trips": TinyTable(types, trips)}).table("trips")
    assert known(table) == {"ended_at": "ended_at", "end_station_id": "ended_at"}


def jobs(count: int = 300, done_share: float = 0.9, **columns: Any) -> TinyDatabase:
    """Jobs of a vehicle, an hour apart, most of which are done; and keys, each by a function of a
    row's number and of whether it is done."""
    rows = []
    for j in range(count):
        done = j * 37 % 100 < 100 * done_share
        at = DAY + timedelta(hours=j)
        values = [value(j, done) for value in columns.values()]
        rows.append((j, at, at + timedelta(hours=5 + j % 9) if done else None, j % 9, *values))
    kinds = {"job_id": "INTEGER", "requested": "TIMESTAMP", "completed": "TIMESTAMP"}
    kinds |= dict.fromkeys(("vehicle_id", *columns), "INTEGER")
    things = {"vehicle": "vehicles", "depot": "depots", "driver": "drivers"}
    parents = {
        table: TinyTable({f"{one}_id": "INTEGER", "size": "INTEGER"}, [(j, j) for j in range(9)])
        for one, table in things.items()
    }
    return {**parents, "jobs": TinyTable(kinds, rows)}


def shown_before(table: TableDraft) -> list[str]:
    return [
        check.partition("shown before it: ")[2].partition(". If")[0]
        for check in table.checks
        if "shown before it" in check
    ]


def test_a_key_of_the_end_is_known_then_whatever_the_end_is_called(tmp_path: Path) -> None:
    """It was shown from the start, unless its word was in the name of the later time too."""
    source = jobs(
        pickup_depot_id=lambda j, _: j * 5 % 9,
        drop_off_depot_id=lambda j, _: j * 7 % 9,
        planned_return_depot_id=lambda j, _: j * 2 % 9,
    )
    table = draft(source).table("jobs")
    assert known(table) == {"completed": "completed", "drop_off_depot_id": "completed"}
    assert shown_before(table) == []
    checks = [check for check in table.column("drop_off_depot_id").checks if "known_at" in check]
    assert checks == [
        "proposal: known_at completed ('dropoff' is of an end, and completed is later than the row "
        "in 270 of 270 rows, NULL in 30)"
    ]
    build(arrow_tables(source), tmp_path / "s", infer(arrow_tables(source)))
    with Store(tmp_path / "s") as store:
        start, end = (store.edges(f"jobs.{way}_depot_id") for way in ("pickup", "drop_off"))
        seen = dict(zip(start["rows"], start["times"], strict=True))
        hours = [
            (int(at) - int(seen[row])) / 3.6e9
            for row, at in zip(end["rows"], end["times"], strict=True)
            if at < 2**63 - 1
        ]
        assert len(hours) == 270 and min(hours) == 5.0 and max(hours) == 13.0


def test_a_key_that_only_rows_with_a_later_time_have_is_known_then() -> None:
    """Nine in ten rows have that time, and four in five of them the key: at random it would stand
    in 24 of the others."""
    table = draft(jobs(driver_id=lambda j, done: j % 9 if done and j % 5 else None)).table("jobs")
    assert known(table) == {"completed": "completed", "driver_id": "completed"}


def test_a_key_that_may_have_come_later_is_named() -> None:
    """If it is NULL in some rows, or if all rows are done; not if rows that are not done have it,
    unless they have it far less often."""
    some = jobs(driver_id=lambda j, done: j % 9 if j % 5 else None)
    assert shown_before(draft(some).table("jobs")) == ["driver_id"]
    full = jobs(driver_id=lambda j, done: j % 9)
    assert shown_before(draft(full).table("jobs")) == []
    done = jobs(done_share=1.0, driver_id=lambda j, done: j % 9)
    assert shown_before(draft(done).table("jobs")) == ["vehicle_id, driver_id"]
    seldom = jobs(done_share=0.3, driver_id=lambda j, done: j % 9 if done or j % 4 else None)
    assert shown_before(draft(seldom).table("jobs")) == []
    rarer = jobs(done_share=0.3, driver_id=lambda j, done: j % 9 if done or j % 4 == 0 else None)
    assert shown_before(draft(rarer).table("jobs")) == ["driver_id"]


def lent(j: int) -> timedelta:
    """How long a thing was away: up to a week, and seconds that are whole in no unit."""
    return timedelta(days=j % 7, seconds=j * 7919 % 86_400)


def nights(j: int) -> int:
    taken = DAY + timedelta(hours=j)
    return ((taken + lent(j)).date() - taken.date()).days


@pytest.mark.parametrize(
    ("kind", "value", "unit"),
    [
        ("INTEGER", lambda j: round(lent(j).total_seconds() / 60), "minutes"),
        ("INTEGER", lambda j: int(lent(j) / timedelta(hours=1)), "hours"),
        ("INTEGER", lambda j: int(lent(j).total_seconds()), "seconds"),
        ("INTEGER", lambda j: int(lent(j).total_seconds() * 1000), "milliseconds"),
        ("DOUBLE", lambda j: lent(j) / timedelta(days=1), "days"),
        ("DOUBLE", lambda j: round(lent(j) / timedelta(hours=1), 2), "hours"),
        ("DOUBLE", lambda j: -lent(j).total_seconds(), "seconds"),
        ("INTEGER", lambda j: nights(j), "days of the calendar"),
        ("INTEGER", lambda j: nights(j) + 1, "days with the first one"),
        ("INTEGER", lambda j: round(lent(j).total_seconds() / 60) + j % 5, None),
        ("INTEGER", lambda j: j * 31 % 7, None),
        ("INTEGER", lambda j: 0, None),
    ],
)  # fmt: skip
def test_a_number_that_is_one_time_minus_another_is_known_with_the_later(
    kind: str, value: Any, unit: str | None
) -> None:
    """It was shown when the thing was taken, and told when it would be back."""
    table = table_of(
        300,
        back=("TIMESTAMP", lambda j: DAY + timedelta(hours=j) + lent(j) if j % 8 else None),
        n=(kind, value),
    )
    assert known(table) == {"back": "back", **({"n": "back"} if unit else {})}
    (check,) = table.column("n").checks or [""]
    proof = "it is at - back" if kind == "DOUBLE" and value(1) < 0 else "it is back - at"
    expected = f"proposal: known_at back ({proof} in {unit}, in 262 of 262 rows)"
    assert check == (expected if unit else "")


def test_a_delay_is_known_with_what_came_not_with_what_was_promised() -> None:
    """Also if both are later than the row, and the promised one is the later."""
    table = table_of(
        promised=("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=9)),
        came=("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=3 + j % 11)),
        gap=("INTEGER", lambda j: j % 11 - 6),
    )
    assert known(table)["gap"] == "came"


@pytest.mark.parametrize(
    ("later", "name", "values", "at"),
    [
        ("dispatched", "stage", ["DISPATCHED", "In Transit", "Refunded", "lost"], "never"),
        ("dispatched", "stage", ["packed", "underway", "RETURNED", "on its way"], "never"),
        ("dispatched", "stage", ["delivered", "returned to sender", "done", "lost"], "never"),
        ("ship_date", "stage", ["shipped", "pending", "Delivered", "lost"], "never"),
        ("delivered_on", "stage", ["delivered", "Cancelled", "done", "lost"], "never"),
        ("appointed_for", "stage", ["attended", "Cancelled", "no show", "lost"], "appointed_for"),
        ("return_date", "stage", ["returned", "lost", "damaged", "overdue"], "return_date"),
        ("ended", "stage", ["returned", "lost", "damaged", "overdue"], "ended"),
        ("dispatched", "customer", ["new", "returned customer", "web", "x"], "creation"),
    ],
)
def test_a_state_that_goes_on_after_the_later_time_is_never_known(
    later: str, name: str, values: list[str], at: str
) -> None:
    """'refunded' was shown from the day on which the parcel left."""
    columns: dict[str, Any] = {
        later: ("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=2 + j % 3)),
        name: ("TEXT", lambda j: values[j % 4]),
        "was_refunded": ("BOOLEAN", lambda j: j % 4 == 3),
    }
    table = table_of(200, **columns)
    expected = {later: later, name: at, "was_refunded": "never"}
    assert known(table) == {key: value for key, value in expected.items() if value != "creation"}
    shown = [] if at != "creation" else [name]
    assert shown_before(table) == shown
    if at == "never":
        (check,) = table.column(name).checks
        assert f"in 50 rows that have {later}, may come after it)" in check


def members_of(time: str, **columns: tuple[str, Any]) -> TableDraft:
    """Rows with one time, called so, an hour apart; and columns as `table_of` takes them."""
    kinds = {"member": "INTEGER", time: "TIMESTAMP"} | {name: k for name, (k, _) in columns.items()}
    rows = [
        (j, DAY + timedelta(hours=j), *(value(j) for _, value in columns.values()))
        for j in range(200)
    ]
    return draft({"members": TinyTable(kinds, rows)}).table("members")


@pytest.mark.parametrize("time", ["enlisted", "joined_on", "intake_date", "start", "created_at"])
def test_outcomes_of_a_row_with_the_time_of_its_beginning_alone_are_named(time: str) -> None:
    """In one line, as nothing says when they are known; nothing is hidden."""
    table = members_of(
        time,
        height=("INTEGER", lambda j: j % 40),
        final_rank=("INTEGER", lambda j: j % 9),
        has_graduated=("BOOLEAN", lambda j: j % 3 == 0),
        end_post=("TEXT", lambda j: f"p{j % 5}"),
        progress=("TEXT", lambda j: ["completed", "withdrawn", "on leave"][j % 3]),
        target_grade=("INTEGER", lambda j: j % 6),
        town=("TEXT", lambda j: f"t{j % 5}"),
    )
    assert known(table) == {}
    assert [check for check in table.checks if "beginning" in check] == [
        f"{time} is of a beginning, and from then on outcomes are shown, by their names or values: "
        "final_rank, has_graduated, end_post, progress; for one that comes later set known_at "
        '(never, or such as "+90 days"), or stype ignored'
    ]


@pytest.mark.parametrize("time", ["played_on", "date", "day", "recorded_at", "updated_at"])
def test_what_a_row_of_an_event_says_of_it_is_not_named(time: str) -> None:
    table = members_of(
        time, winner=("TEXT", lambda j: "ab"[j % 2]), final_score=("INTEGER", lambda j: j % 9)
    )
    assert known(table) == {} and not [check for check in table.checks if "beginning" in check]


def test_outcomes_with_a_later_time_of_their_row_are_not_named() -> None:
    table = members_of(
        "enlisted",
        discharged=("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=90 + j % 9)),
        final_rank=("INTEGER", lambda j: j % 9),
    )
    assert known(table) == {"discharged": "discharged", "final_rank": "discharged"}
    assert not [check for check in table.checks if "beginning" in check]
