"""What a row shows before it can be known: outcomes of appointments and loans, and totals of the
day of the dump."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from databases import DAY, TinyDatabase, TinyTable, draft, sql_types
from headwater.inference.draft import Cost, TableDraft
from headwater.inference.infer import draft_source


def known(table: TableDraft) -> dict[str, str]:
    """When columns are known that are not known with their row, or why they are ignored."""
    found = {
        column.name: "ignored" if column.stype == "ignored" else column.known_at.to_json()
        for column in table.columns
    }
    return {name: at for name, at in found.items() if at != "creation"}


# ---- appointments, and how they went -----------------------------------------------------------


def stays(count: int = 200, **columns: tuple[str, Any]) -> TinyDatabase:
    """Stays that are booked some days before they begin, all but a few of which have begun; and
    further columns, each by its type and a function of a row's number."""
    kinds = sql_types("stay_id INTEGER, made_on TIMESTAMP, arrival TIMESTAMP, rooms INTEGER")
    kinds |= {name: kind for name, (kind, _) in columns.items()}
    rows = []
    for j in range(count):
        made = DAY + timedelta(hours=j)
        arrival = made + timedelta(days=1 + j % 9) if j < count - 4 else None
        rows.append((j, made, arrival, j % 3, *(value(j) for _, value in columns.values())))
    return {"stays": TinyTable(kinds, rows)}


@pytest.mark.parametrize(
    ("name", "kind", "value", "is_outcome"),
    [
        ("turned_up", "BOOLEAN", lambda j: j % 3 == 0, True),
        ("was_lost", "BOOLEAN", lambda j: j % 3 == 0, True),
        ("no_show", "BOOLEAN", lambda j: j % 3 == 0, True),
        ("guest_rating", "INTEGER", lambda j: j % 5, True),
        (
            "end_state",
            "TEXT",
            lambda j: ["no-show", "Completed", "CANCELLED", "moved"][j % 4],
            True,
        ),
        ("reserved_by_phone", "BOOLEAN", lambda j: j % 3 == 0, False),
        ("is_member", "BOOLEAN", lambda j: j % 3 == 0, False),
        ("state", "TEXT", lambda j: ["NY", "CA", "OR", "late"][j % 4], False),
        ("price", "DOUBLE", lambda j: j % 7 / 4, False),
    ],
)
def test_an_outcome_is_known_when_what_was_planned_is_over(
    name: str, kind: str, value: Any, is_outcome: bool
) -> None:
    """By its name or its values; of the others a person is asked, in one line."""
    table = draft(stays(**{name: (kind, value)})).table("stays")
    assert known(table) == {"arrival": "arrival", **({name: "arrival"} if is_outcome else {})}
    others = ["rooms"] if is_outcome else ["rooms", name]
    assert [check for check in table.checks if "shown before it" in check] == [
        "arrival is later than made_on in 196 of 196 rows, NULL in 4; shown before it: "
        f"{', '.join(others)}. If one of these is known only then, set its known_at to arrival"
    ]


def test_of_several_times_an_outcome_waits_for_the_last() -> None:
    late = ("TIMESTAMP", lambda j: DAY + timedelta(hours=j, days=30))
    table = draft(stays(left=late, turned_up=("BOOLEAN", lambda j: j % 3 == 0))).table("stays")
    assert known(table) == {"arrival": "arrival", "left": "left", "turned_up": "left"}


def test_a_time_that_seldom_comes_is_not_what_rows_are_written_for() -> None:
    rows = [
        (j, DAY + timedelta(hours=j), DAY + timedelta(hours=j + 1) if j % 4 == 0 else None, j % 5)
        for j in range(200)
    ]
    kinds = sql_types("post_id INTEGER, written TIMESTAMP, reopened TIMESTAMP, rating INTEGER")
    table = draft({"posts": TinyTable(kinds, rows)}).table("posts")
    assert known(table) == {"reopened": "reopened"} and table.checks == []


def test_a_day_is_over_at_its_end() -> None:
    """A visit at nine is not newer than a note of its day, but than one of the day before."""
    for days, expected in ((0, {}), (-1, {"visit_id": "never"})):
        visits = TinyTable(
            sql_types("visit_id INTEGER, started TIMESTAMP"),
            [(j, DAY + timedelta(days=j, hours=9)) for j in range(100)],
        )
        notes = TinyTable(
            sql_types("note_id INTEGER, noted DATE, visit_id INTEGER"),
            [(j, (DAY + timedelta(days=j + days)).date(), j if j % 9 else None)
             for j in range(100)],
        )  # fmt: skip
        table = draft({"visits": visits, "notes": notes}).table("notes")
        assert table.temporal_column == "noted" and known(table) == expected


# ---- totals of the day of the dump -------------------------------------------------------------

BOUGHT = 12  # at most, by one member


def members(*, joined: bool = False, cancelled: bool = False) -> TinyDatabase:
    """Members and what they bought, with all that can be said of it.

    Args:
        joined: members have a time of their own, before all that they buy.
        cancelled: three in ten members have one purchase that is not counted.
    """
    dice = np.random.default_rng(7)
    purchases, rows = [], []
    for member in range(120):
        bought = []
        for _ in range(int(dice.integers(1, BOUGHT))):
            number = len(purchases)
            at = DAY + timedelta(days=int(dice.integers(0, 400)), minutes=number)
            kind = "abc"[int(dice.integers(3))]
            bought.append((number, member, at, float(dice.integers(1, 900)) / 4, kind))
            purchases.append(bought[-1])
        bought.sort(key=lambda row: row[2])
        counted = bought[1:] if cancelled and member % 10 < 3 else bought
        prices = [row[3] for row in counted]
        rows.append(
            (
                member, DAY - timedelta(days=member + 1), "pqr"[member % 3], len(counted),
                round(sum(prices), 2), round(sum(prices) / max(1, len(prices)), 2),
                bought[0][2], bought[-1][2], bought[-1][4], sum(row[4] == "a" for row in bought),
                member % 7,
            )
        )  # fmt: skip
    kinds = sql_types(
        "member_id INTEGER, joined TIMESTAMP, town TEXT, bought INTEGER, spent DOUBLE, "
        "basket DOUBLE, first TIMESTAMP, seen TIMESTAMP, favourite TEXT, kind_a INTEGER, "
        "height INTEGER"
    )
    if not joined:
        rows = [(row[0], *row[2:6], *row[7:]) for row in rows]
        del kinds["joined"], kinds["first"]
    return {
        "members": TinyTable(kinds, rows),
        "purchases": TinyTable(
            sql_types(
                "purchase_id INTEGER, member_id INTEGER, at TIMESTAMP, price DOUBLE, kind TEXT"
            ),
            purchases,
        ),
    }


PROVEN = {
    "bought": "never", "spent": "never", "basket": "never", "seen": "never",
    "favourite": "never", "kind_a": "never",
}  # fmt: skip


def test_totals_that_the_children_prove_are_hidden() -> None:
    """Without a word of their names: members are shown at any time, so their totals were too."""
    table = draft(members()).table("members")
    assert table.temporal_column is None and known(table) == PROVEN
    checks = {column.name: column.checks[-1] for column in table.columns if column.checks}
    said = {
        name: check.partition("(it is ")[2].partition(" in 1")[0] for name, check in checks.items()
    }
    where = "of its rows in purchases"
    assert said == {
        "bought": f"the number {where}", "spent": f"the sum of price {where}",
        "basket": f"the mean price {where}",
        "seen": f"the newest time {where}", "favourite": f"the last kind {where}",
        "kind_a": f"the number {where} with kind 'a'",
    }  # fmt: skip


def test_a_time_that_tells_how_long_a_row_goes_on_is_ignored() -> None:
    """If it were known when it comes, that it is not known would tell that more comes."""
    table = draft(members(joined=True)).table("members")
    assert table.temporal_column == "joined"
    ignored = {"first": "first", "seen": "ignored", "favourite": "ignored"}
    assert known(table) == {**PROVEN, **ignored}
    (check,) = table.column("seen").checks
    assert "it gives the end away" in check


def test_totals_of_most_rows_are_totals() -> None:
    """Of some rows one is not counted."""
    table = draft(members(cancelled=True)).table("members")
    assert {"spent", "basket"} <= set(known(table))


def test_a_number_that_children_happen_to_have_is_none() -> None:
    """Each member bought once: what the purchase says of the member proves nothing."""
    dice = np.random.default_rng(1)
    rows = [(j, float(dice.integers(100)), "pq"[j % 2], 1) for j in range(100)]
    database = {
        "members": TinyTable(
            sql_types("member_id INTEGER, limit_of DOUBLE, tier TEXT, seats INTEGER"), rows
        ),
        "purchases": TinyTable(
            sql_types(
                "purchase_id INTEGER, member_id INTEGER, at TIMESTAMP, price DOUBLE, tier TEXT"
            ),
            [(j, j, DAY + timedelta(days=j), rows[j][1], rows[j][2]) for j in range(100)],
        ),
    }
    assert known(draft(database).table("members")) == {}


def test_what_comes_with_its_row_is_no_total_of_the_future() -> None:
    """A bill is the sum of its lines, which are there when it is."""
    bills, lines = [], []
    for bill in range(100):
        at = DAY + timedelta(days=bill)
        prices = [float(bill * 7 % 13 + j) for j in range(1 + bill % 4)]
        lines += [(len(lines) + j, bill, at, price) for j, price in enumerate(prices)]
        bills.append((bill, at, sum(prices)))
    database = {
        "bills": TinyTable(sql_types("bill_id INTEGER, at TIMESTAMP, amount DOUBLE"), bills),
        "lines": TinyTable(
            sql_types("line_id INTEGER, bill_id INTEGER, at TIMESTAMP, price DOUBLE"), lines
        ),
    }
    assert known(draft(database).table("bills")) == {}


@pytest.mark.parametrize("lines_named", ["basket_lines", "things"])
def test_totals_two_keys_away_are_found(lines_named: str) -> None:
    """Members have baskets, these have lines, which take the time of their basket or have none."""
    dice, baskets, lines, spent = np.random.default_rng(3), [], [], []
    for member in range(60):
        total = 0.0
        for _ in range(int(dice.integers(1, 5))):
            at = DAY + timedelta(days=len(baskets))
            for _ in range(int(dice.integers(1, 4))):
                count, price = int(dice.integers(1, 5)), float(dice.integers(1, 50)) / 2
                lines.append((len(lines), len(baskets), count, price))
                total += count * price
            baskets.append((len(baskets), member, at))
        spent.append((member, total))
    database = {
        "members": TinyTable(sql_types("member_id INTEGER, worth DOUBLE"), spent),
        "baskets": TinyTable(
            sql_types("basket_id INTEGER, member_id INTEGER, at TIMESTAMP"), baskets
        ),
        lines_named: TinyTable(
            sql_types("line_id INTEGER, basket_id INTEGER, pieces INTEGER, price DOUBLE"), lines
        ),
    }
    table = draft(database).table("members")
    assert known(table) == {"worth": "never"}
    assert (
        f"the sum of pieces x price of its rows in {lines_named}" in table.column("worth").checks[0]
    )


def shops(**columns: tuple[str, Any]) -> TableDraft:
    """Sixty shops without a time, and what each sold, ever more from shop to shop."""
    kinds = sql_types("shop_id INTEGER") | {name: kind for name, (kind, _) in columns.items()}
    rows = [(j, *(value(j) for _, value in columns.values())) for j in range(60)]
    sales = [(shop, n) for shop in range(60) for n in range(1 + shop // 6)]
    database = {
        "shops": TinyTable(kinds, rows),
        "sales": TinyTable(
            sql_types("sale_id INTEGER, shop_id INTEGER, at TIMESTAMP"),
            [(j, shop, DAY + timedelta(days=j)) for j, (shop, _) in enumerate(sales)],
        ),
    }
    return draft(database).table("shops")


@pytest.mark.parametrize(
    ("name", "kind", "value", "result"),
    [
        ("balance", "DOUBLE", lambda j: j * 37 % 11 / 2, "hidden"),
        ("lifetime_points", "INTEGER", lambda j: j * 37 % 11, "hidden"),
        ("last_check", "TIMESTAMP", lambda j: DAY - timedelta(days=j), "hidden"),
        ("sale_count", "INTEGER", lambda j: j * 37 % 11, "hidden"),  # it names the table
        ("total_taken", "DOUBLE", lambda j: j * 1.5 + j * 37 % 11, "hidden"),  # grows with it
        ("total_area", "DOUBLE", lambda j: j * 37 % 11 / 2, "said"),
        ("n_rooms", "INTEGER", lambda j: j * 37 % 5, "said"),
        ("is_closed", "BOOLEAN", lambda j: j % 2 == 0, "said"),
        ("status", "TEXT", lambda j: "ab"[j % 2], "said"),
        ("floors", "INTEGER", lambda j: j * 37 % 5, ""),
        ("opened_in", "INTEGER", lambda j: 1990 + j * 37 % 9, ""),
    ],
)
def test_what_is_called_a_total_is_hidden_or_said(
    name: str, kind: str, value: Any, result: str
) -> None:
    """In a table without a time that rows with times refer to, though nothing proves it."""
    table = shops(**{name: (kind, value)})
    assert known(table) == ({name: "never"} if result == "hidden" else {})
    said = [check for check in table.column(name).checks if "of the day of the dump" in check]
    assert len(said) == (1 if result else 0)


def test_without_rows_that_come_later_a_name_says_nothing() -> None:
    alone = TinyTable(sql_types("shop_id INTEGER, balance DOUBLE"), [(j, j / 2) for j in range(60)])
    assert known(draft({"shops": alone}).table("shops")) == {}


def test_a_limit_that_is_often_reached_is_no_total() -> None:
    """The list price of a product, from which a sale may take off something."""
    sales = [
        (j, j % 40, DAY + timedelta(days=j), 10.0 + j % 40 - (1.5 if j % 3 == 0 else 0))
        for j in range(800)
    ]
    database = {
        "products": TinyTable(
            sql_types("product_id INTEGER, price DOUBLE"), [(j, 10.0 + j) for j in range(40)]
        ),
        "sales": TinyTable(
            sql_types("sale_id INTEGER, product_id INTEGER, at TIMESTAMP, paid DOUBLE"), sales
        ),
    }
    assert known(draft(database).table("products")) == {}


def test_replies_are_counted_by_a_key_into_their_own_table() -> None:
    dice = np.random.default_rng(5)
    parents = [None if j < 40 else int(dice.integers(40)) for j in range(240)]
    counts = [parents.count(j) for j in range(240)]
    rows = [(j, parents[j], DAY + timedelta(days=j), counts[j]) for j in range(240)]
    kinds = sql_types("post_id INTEGER, parent_id INTEGER, posted TIMESTAMP, responses INTEGER")
    table = draft({"posts": TinyTable(kinds, rows)}).table("posts")
    assert known(table)["responses"] == "never"


def test_times_of_rows_without_their_own_are_known_when_they_come() -> None:
    """Lines take the time of their order, and some come back later, for a reason."""
    orders = TinyTable(
        sql_types("order_id INTEGER, placed TIMESTAMP"),
        [(j, DAY + timedelta(days=j)) for j in range(100)],
    )
    lines = TinyTable(
        sql_types("order_id INTEGER, line INTEGER, returned TIMESTAMP, why TEXT, qty INTEGER"),
        [
            (j, 0, DAY + timedelta(days=j + 9), f"because {j}", 1) if j % 3 == 0
            else (j, 0, None, None, 2)
            for j in range(100)
        ],
    )  # fmt: skip
    table = draft({"orders": orders, "order_lines": lines}).table("order_lines")
    assert table.temporal_column == "placed"
    assert known(table) == {"returned": "returned", "why": "returned", "placed": "ignored"}


def test_odd_values_are_no_fault(tmp_path: Path) -> None:
    """A zero character in a category, times without end, and a last day with several rows."""
    path = tmp_path / "odd.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(
            "CREATE TABLE p AS SELECT range AS id, 'x' || chr(0) || (range % 3) AS k, "
            "TIMESTAMP 'infinity' AS ends, TIMESTAMP 'infinity' AS starts FROM range(100)"
        )
        connection.execute(
            "CREATE TABLE e AS SELECT range AS id, range % 100 AS p_id, 'x' || chr(0) || "
            "(range % 3) AS k, DATE '2020-01-01' + CAST(range // 400 AS INTEGER) AS at, "
            "range * 7 % 13 AS v FROM range(4000)"
        )
    drafts = {draft_source(f"duckdb:///{path}").text() for _ in range(3)}
    assert len(drafts) == 1


def test_a_number_of_several_is_no_key() -> None:
    """author.books was taken for the key of a book; a key of that name, of texts, still is one."""
    things = TinyTable(
        sql_types("id INTEGER, maker_id INTEGER, made TIMESTAMP"),
        [(j, j % 40, DAY + timedelta(days=j)) for j in range(200)],
    )
    makers = TinyTable(sql_types("id INTEGER, things INTEGER"), [(j, j % 8 + 1) for j in range(40)])
    column = draft({"makers": makers, "things": things}).table("makers").column("things")
    assert column.foreign_key is None and column.stype == "numerical"


# ---- cells of drafted tasks --------------------------------------------------------------------


def test_a_column_that_is_set_where_the_target_is_true_is_hidden() -> None:
    kinds = sql_types("job_id INTEGER, at TIMESTAMP, bad BOOLEAN, why TEXT, size INTEGER")
    rows = [
        (j, DAY + timedelta(days=j), j % 3 == 0, f"because {j}" if j % 3 == 0 else None, j * j % 7)
        for j in range(200)
    ]
    (task, *_) = draft({"jobs": TinyTable(kinds, rows)}).tasks
    assert task.target_column == "bad"
    assert [str(column) for column in task.hidden_columns] == ["jobs.why"]
    assert "why (whether it has a value: one to one)" in task.note


def test_a_column_that_gives_a_seldom_target_away_is_hidden() -> None:
    """The sample is of rows that have a target."""
    rows = [
        (
            j,
            DAY + timedelta(minutes=j),
            *((j * 7 % 997, 3.0 * (j * 7 % 997)) if j % 300 == 0 else (None, None)),
        )
        for j in range(30_000)
    ]
    kinds = sql_types("visit_id INTEGER, at TIMESTAMP, score INTEGER, copied DOUBLE")
    tasks = draft({"visits": TinyTable(kinds, rows)}).tasks
    assert [(t.target_column, [str(c) for c in t.hidden_columns]) for t in tasks] == [
        ("score", ["visits.copied"])
    ]


def test_what_concerns_the_future_is_said_first() -> None:
    """Then links, then values, then what may get better: in the whole draft, and in each note."""
    database = members()
    kinds, rows = database["purchases"].types, database["purchases"].rows
    database["purchases"] = TinyTable(
        {**kinds, "shop": "TEXT"}, [(*row, ["-", "a1", "b2"][j % 3]) for j, row in enumerate(rows)]
    )
    found = draft(database)
    costs = [check.cost for _, _, check in found.named_checks()]
    assert costs == sorted(costs) and {Cost.FUTURE, Cost.LINKS, Cost.VALUES} <= set(costs)
    assert "known_at never" in found.every_check()[0]
