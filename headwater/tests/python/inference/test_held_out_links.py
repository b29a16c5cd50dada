"""Links and clocks in spellings that the folders of field cases do not have, and look-alikes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from databases import (
    TinyDatabase,
    TinyTable,
    arrow_tables,
    draft,
    drafted_links,
    keyed,
    lines,
)
from headwater.builder.build import build
from headwater.inference.infer import draft_source


def typed(kind: str, key: str, types: list[Any]) -> TinyTable:
    """120 rows of these types in turn, with the ids from 1 to 30."""
    of_type = "INTEGER" if isinstance(types[0], int) else "TEXT"
    rows = [(j, types[j % len(types)], 1 + j % 30) for j in range(120)]
    return TinyTable({"no": "INTEGER", kind: of_type, key: "INTEGER"}, rows)


# ---- types and ids ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key", "types", "tables"),
    [
        ("res_model", "res_id", ["sale.order", "stock.order"], ("sale_order", "stock_order")),
        ("model", "foreign_key", ["Post", "Photo"], ("posts", "photos")),
        ("Objekttyp", "ObjektId", ["Rechnung", "Kunde"], ("Rechnungen", "Kunde")),
    ],
)
def test_types_and_ids_of_other_conventions(
    kind: str, key: str, types: list[str], tables: tuple[str, str]
) -> None:
    one, other = tables
    found = draft({one: keyed(40), other: keyed(40), "file": typed(kind, key, types)})
    assert set(drafted_links(found).values()) == {f"{one}.id", f"{other}.id"}
    (line,) = lines(found, "names the table of")
    assert f"{one} for {types[0]!r} (60 rows)" in line


def test_a_type_may_be_the_key_of_a_table_of_types(tmp_path: Path) -> None:
    """Django's content_type_id: 7 is a product, 9 a user; 4 is of a table that is not there."""
    rows = [(7, "shop", "product"), (9, "auth", "user"), (4, "admin", "entry")]
    types = TinyTable({"id": "INTEGER", "app_label": "TEXT", "model": "TEXT"}, rows)
    database: TinyDatabase = {
        "django_content_type": types, "shop_product": keyed(40), "auth_user": keyed(40),
        "remark": typed("content_type_id", "object_id", [7, 9, 4]),
    }  # fmt: skip
    source = arrow_tables(database)
    found = draft_source(source)
    assert drafted_links(found) == {
        "remark.object_id_shop_product": "shop_product.id",
        "remark.object_id_auth_user": "auth_user.id",
    }
    made = found.table("remark").column("object_id_auth_user")
    assert made.expression == "CASE WHEN content_type_id = 9 THEN object_id END"
    report = build(source, tmp_path / "s", found.schema())
    keys = next(t for t in report.metadata["tables"] if t["name"] == "remark")["foreign_keys"]
    assert [(key["edges"], key["dangling"], key["nulls"]) for key in keys] == [(40, 0, 80)] * 2


def test_an_id_that_names_its_table_refers_to_that_whatever_its_type() -> None:
    """A third of the accounts are there in the second database: so the types say whose they are."""
    booking = typed("account_type", "account_id", ["client", "vendor"])
    parties: TinyDatabase = {"client": keyed(40), "vendor": keyed(40), "booking": booking}
    found = draft({"account": keyed(30), **parties})
    assert drafted_links(found) == {"booking.account_id": "account.id"}
    (line,) = lines(found, "keys of client and vendor too, which account_type names")
    assert "CASE WHEN account_type = 'client' THEN account_id END" in line
    found = draft({"account": keyed(10), **parties})
    assert set(drafted_links(found).values()) == {"client.id", "vendor.id"}


def test_an_id_that_is_part_of_a_key_with_its_type_stays_in_it(tmp_path: Path) -> None:
    """The pair is the key of a table, to which the pair refers."""
    rows = [(kind, j, j / 4) for kind in ("post", "photo") for j in range(1, 31)]
    item = TinyTable({"item_type": "TEXT", "item_id": "INTEGER", "price": "DOUBLE"}, rows)
    # Types and ids in turn: 120 rows have all 60 pairs only if the types change after 60 rows.
    lines_of = [(j, "post" if j < 60 else "photo", 1 + j % 30) for j in range(120)]
    line = TinyTable({"no": "INTEGER", "item_type": "TEXT", "item_id": "INTEGER"}, lines_of)
    source = arrow_tables({"posts": keyed(40), "photos": keyed(40), "item": item, "line": line})
    found = draft_source(source)
    (key,) = found.table("line").foreign_keys
    assert (key.columns, key.table) == (("item_type", "item_id"), "item")
    report = build(source, tmp_path / "s", found.schema())
    keys = next(t for t in report.metadata["tables"] if t["name"] == "line")["foreign_keys"]
    assert [(key["edges"], key["dangling"]) for key in keys] == [(120, 0)]


# ---- tables that are one, and that are not -----------------------------------------------------


def lots(names: tuple[str, ...], key: str = "lot_id", step: int = 100) -> TinyDatabase:
    return {name: keyed(100, first=1 + step * j, key=key) for j, name in enumerate(names)}


def bids(count: int, column: str = "lot_id") -> TinyTable:
    rows = [(j, 1 + j % count, j / 2) for j in range(2 * count)]
    return TinyTable({"bid_no": "INTEGER", column: "INTEGER", "amount": "DOUBLE"}, rows)


@pytest.mark.parametrize(
    "names", [("lots", "lots_archive"), ("lots_emea", "lots_apac"), ("north_lots", "south_lots")]
)
def test_tables_are_one_if_a_column_has_keys_of_several(names: tuple[str, str]) -> None:
    """Lots 1 to 100 and 101 to 200; bids on all, or on the first hundred only."""
    found = draft({**lots(names), "bid": bids(200)})
    ends = dict.fromkeys(
        [f"{names[0]}.lot_id", f"{names[1]}.lot_id", "bid.lot_id"], "lot_id.lot_id"
    )
    assert drafted_links(found) == ends
    assert len(lines(found, "have the same columns")) == 1
    if "archive" not in names[1]:  # no word says that they are one
        found = draft({**lots(names), "bid": bids(100)})
        assert drafted_links(found) == {"bid.lot_id": f"{names[0]}.lot_id"}
        assert not lines(found, "have the same columns")


def test_keys_of_several_families_each_have_a_table() -> None:
    database: TinyDatabase = {}
    for name in ("order", "claim", "visit"):
        database |= lots((f"{name}s_2020", f"{name}s_2021"), "id")
        database[f"{name}_part"] = bids(200, f"{name}_id")
    found = draft(database)
    tables = [
        drafted_links(found)[f"{name}_part.{name}_id"] for name in ("order", "claim", "visit")
    ]
    assert len(set(tables)) == 3 and all(name.startswith("id") for name in tables)


def test_many_tables_that_are_one_are_not_compared_two_by_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headwater.inference.links import value_tables

    calls = []
    measure = value_tables.measure_overlap
    monkeypatch.setattr(
        value_tables, "measure_overlap", lambda *args: calls.append(1) or measure(*args)
    )
    names = tuple(f"lots_{2000 + j}" for j in range(16))
    rows = {name: keyed(6, first=1 + 6 * j, key="lot_id") for j, name in enumerate(names)}
    found = draft({**rows, "bid": bids(96)})
    assert len(drafted_links(found)) == 17
    assert len(calls) <= 2 * 16  # each with the column of bids; 120 pairs


def test_states_of_the_same_things_are_not_linked_to_each_other() -> None:
    """Without times: by such links a context would show the balance of a later month."""
    names = ("balances_jan", "balances_feb", "balances_mar")
    found = draft({**lots(names, "account_no", step=0), "paid": bids(100, "account_no")})
    assert {link.split(".")[0] for link in drafted_links(found)} == {"paid"}
    (line,) = lines(found, "have rows of the same things")
    assert "balances_jan, balances_feb, balances_mar" in line


def test_dense_keys_of_two_kinds_of_things_are_not_one() -> None:
    """home_visits and office_visits both count from 1; part_visits has some of visits."""
    two = {"home_visits": keyed(50, key="visit_id"), "office_visits": keyed(90, key="visit_id")}
    assert drafted_links(draft(two)) == {}
    of_one = {"visits": keyed(220, key="visit_id"), "late_visits": keyed(120, first=101,
              key="visit_id")}  # fmt: skip
    assert drafted_links(draft(of_one)) == {"late_visits.visit_id": "visits.visit_id"}


def test_of_two_tables_that_a_name_may_mean_the_nearer_is_taken() -> None:
    """Both have all values, and crm_person comes first and has fewer rows."""
    rows = [(j, 1 + j % 30) for j in range(90)]
    post = TinyTable({"post_id": "INTEGER", "person_id": "INTEGER"}, rows)
    found = draft({"crm_person": keyed(30), "hr_person": keyed(40), "hr_post": post})
    assert drafted_links(found) == {"hr_post.person_id": "hr_person.id"}


# ---- several keys in a cell --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "is_list"),
    [
        (lambda a, b: f"{a} {b}", True),
        (lambda a, b: f"{a}; {b}" if a % 4 else f"{a}", True),
        (lambda a, b: f"[{a}]", True),
        (lambda a, b: f"[{a}, {b}]" if a % 2 else "[]", True),
        (lambda a, b: f"no {a}", False),
        (lambda a, b: f"{a}:{b}", False),
    ],
)
def test_ways_to_write_several_keys(cells: Any, is_list: bool) -> None:
    labels = TinyTable({"id": "INTEGER", "word": "TEXT"}, [(j, f"w{j}") for j in range(1, 25)])
    rows = [(j, cells(1 + j % 24, 1 + j * 5 % 24)) for j in range(96)]
    photos = TinyTable({"id": "INTEGER", "label_ids": "TEXT"}, rows)
    found = draft({"label": labels, "photo": photos})
    assert bool(lines(found, "several keys")) == is_list


# ---- clocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start", "step", "unit", "epoch"),
    [
        # The noon of 2021-06-05, as in test_clocks: less or more seconds since 2001 and 1900; days.
        ("made_at", 644_587_200_000, 86_400_000, "ms", "2001-01-01"),
        ("made_at", 1_622_894_400 + 2_208_988_800, 86_400, "s", "1900-01-01"),
        ("made_date", 18_783, 1, "day", None),
        ("made_date", 44_352, 1, "day", "1899-12-30"),
    ],
)
def test_more_clocks(name: str, start: int, step: int, unit: str, epoch: str | None) -> None:
    rows = [(j, start + j * step) for j in range(20)]
    others = [(j, date(2021, 4 + j, 1)) for j in range(5)]
    database = {
        "made": TinyTable({"id": "INTEGER", name: "INTEGER"}, rows),
        "person": TinyTable({"id": "INTEGER", "came_on": "DATE"}, others),
    }
    column = draft(database).table("made").column(name)
    assert (column.stype, column.unit, column.epoch) == ("timestamp", unit, epoch)
    if unit == "day":  # alone they may be of any year
        del database["person"]
        found = draft(database).table("made")
        assert found.column(name).stype != "timestamp" and found.temporal_column is None
