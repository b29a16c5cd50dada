"""Links that are more than a column: types with ids, tables that are one, lists of keys."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from databases import (
    DAY,
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
from headwater.inference.update import update_schema
from headwater.store.store import Store

# ---- types and ids ------------------------------------------------------------------------------


def notes(types: list[str], ids: list[int], prefix: str = "noteable") -> TinyTable:
    """120 notes of these types and ids in turn."""
    names = {"id": "INTEGER", f"{prefix}_type": "TEXT", f"{prefix}_id": "INTEGER", "body": "TEXT"}
    rows = [(j, types[j % len(types)], ids[j % len(ids)], f"note {j}") for j in range(120)]
    return TinyTable(names, rows)


def test_each_type_gets_its_column_and_foreign_key(tmp_path: Path) -> None:
    """Of three types in turn one names no table; both tables have ids from 1 on."""
    types = ["App\\Models\\Invoice", "App\\Models\\Shipment", "App\\Models\\Ghost"]
    database: TinyDatabase = {
        "invoices": keyed(40), "shipments": keyed(50), "notes": notes(types, list(range(1, 31))),
    }  # fmt: skip
    found = draft(database)
    assert drafted_links(found) == {
        "notes.noteable_id_invoice": "invoices.id",
        "notes.noteable_id_shipment": "shipments.id",
    }
    column = found.table("notes").column("noteable_id")
    assert (column.stype, column.reason) == (
        "ignored",
        "read as noteable_id_invoice and noteable_id_shipment",
    )
    (line,) = lines(found, "noteable_type names the table")
    assert "invoices for 'App\\\\Models\\\\Invoice' (40 rows)" in line
    assert "40 rows of other types have no link" in line
    assert not any("noteable" in task.target_column for task in found.tasks)
    source = arrow_tables(database)
    report = build(source, tmp_path / "s", draft_source(source).schema())
    keys = next(t for t in report.metadata["tables"] if t["name"] == "notes")["foreign_keys"]
    assert [(key["edges"], key["dangling"], key["nulls"]) for key in keys] == [(40, 0, 80)] * 2


def test_an_id_of_an_object_has_the_type_of_its_row() -> None:
    """Django's names: object_id with content_type."""
    rows = [(j, ["blog.post", "blog.photo"][j % 2], 1 + j % 30) for j in range(120)]
    likes = TinyTable({"id": "INTEGER", "content_type": "TEXT", "object_id": "INTEGER"}, rows)
    found = draft({"post": keyed(40), "photo": keyed(40), "likes": likes})
    assert drafted_links(found) == {
        "likes.object_id_post": "post.id",
        "likes.object_id_photo": "photo.id",
    }


@pytest.mark.parametrize(
    ("types", "ids"),
    [
        (["savings", "checking"], [1, 2, 3]),  # no tables
        (["invoice"], [1, 2, 3]),  # one type is no choice
        (["invoice", "shipment"], [1, 2, 900]),  # a third of the ids are not there
        (["invoice", "a", "b", "c"], [1, 2, 3]),  # most rows have a type that names no table
    ],
)
def test_other_words_beside_an_id_are_no_types_of_it(types: list[str], ids: list[int]) -> None:
    found = draft(
        {"invoices": keyed(40), "shipments": keyed(50), "notes": notes(types, ids, "invoice")}
    )
    assert not lines(found, "names the table of")
    assert "invoice_id_invoice" not in [c.name for c in found.table("notes").columns]


# ---- tables that are one -----------------------------------------------------------------------


def parts(*names: str, key: str = "id", step: int = 100) -> TinyDatabase:
    """Tables of a hundred rows each, whose keys stand one after the other."""
    return {name: keyed(100, first=1 + step * j, key=key) for j, name in enumerate(names)}


def sold(column: str, count: int) -> TinyTable:
    """Lines that name the keys from 1 on, each twice."""
    rows = [(j, 1 + j % count, j / 2) for j in range(2 * count)]
    return TinyTable({"line_no": "INTEGER", column: "INTEGER", "amount": "DOUBLE"}, rows)


def test_keys_of_tables_that_are_one_have_a_table_of_their_values(tmp_path: Path) -> None:
    database = {**parts("sales2021", "sales2022", "sales2023"), "line": sold("sale_id", 300)}
    found = draft(database)
    assert drafted_links(found) == {
        "sales2021.id": "id.id", "sales2022.id": "id.id", "sales2023.id": "id.id",
        "line.sale_id": "id.id",
    }  # fmt: skip
    assert found.table("id").source.row_count == 300
    (line,) = lines(found, "have the same columns")
    assert "sales2021, sales2022, sales2023 have the same columns, and no two of their rows" in line
    source = arrow_tables(database)
    report = build(source, tmp_path / "s", draft_source(source).schema())
    (key,) = next(t for t in report.metadata["tables"] if t["name"] == "line")["foreign_keys"]
    assert (key["edges"], key["dangling"], key["nulls"]) == (600, 0, 0)
    with Store(tmp_path / "s") as store:
        assert store.verify() == []


@pytest.mark.parametrize(
    "names",
    [
        ("north", "south"),  # nothing in the names
        ("sales2021", "visits2022"),
    ],
)
def test_other_tables_of_the_same_columns_are_two(names: tuple[str, str]) -> None:
    found = draft({**parts(*names), "line": sold("sale_id", 200)})
    assert not lines(found, "have the same columns")
    assert {table.name for table in found.tables} == {"line", *names}


def test_tables_whose_keys_repeat_are_states_of_the_same_things() -> None:
    """Both hold the keys 1 to 100: the second table is not the rest of the first."""
    found = draft({**parts("users2021", "users2022", step=0), "line": sold("user_id", 100)})
    assert not lines(found, "have the same columns") and len(found.tables) == 3


# ---- things without a table --------------------------------------------------------------------


def seen(count: int, name: str, values: list[Any], kind: str = "TEXT") -> TinyTable:
    rows = [(j, DAY + timedelta(hours=j), values[j % len(values)], j / 2) for j in range(count)]
    return TinyTable({"no": "INTEGER", "at": "TIMESTAMP", name: kind, "size": "DOUBLE"}, rows)


def test_things_that_two_tables_name_get_a_table() -> None:
    """Thirty visitors, of whom twenty paid; the rows of one visitor are linked."""
    visitors = [f"v-{j * 7919:x}" for j in range(30)]
    database = {
        "clicks": seen(300, "visitor_uid", visitors),
        "payments": seen(100, "visitor_uid", visitors[:20]),
    }
    found = draft(database)
    assert drafted_links(found) == {
        "clicks.visitor_uid": "visitor_uid.visitor_uid",
        "payments.visitor_uid": "visitor_uid.visitor_uid",
    }
    assert found.table("visitor_uid").source.row_count == 30
    assert any(task.anchor_table == "visitor_uid" for task in found.tasks)
    (line,) = lines(found, "a table of the values of")
    assert line.startswith("visitor_uid: proposal: a table of the values of clicks.visitor_uid,")


@pytest.mark.parametrize(
    ("name", "first", "second", "kind"),
    [
        ("group_id", list(range(1, 41)), list(range(1, 21)), "INTEGER"),  # dense, names no table
        ("row_id", [f"r{j * 7919:x}" for j in range(30)], None, "TEXT"),  # of any table
        ("visitor_uid", [f"v{j:x}" for j in range(30)], [f"w{j:x}" for j in range(30)], "TEXT"),
        ("visitor_uid", ["a", "b", "c"], ["a", "b"], "TEXT"),  # few: a category
        ("color", [f"c{j * 7919:x}" for j in range(30)], None, "TEXT"),  # no key by its name
    ],
)
def test_columns_of_one_name_are_not_always_the_same_things(
    name: str, first: list[Any], second: list[Any] | None, kind: str
) -> None:
    others = first[:20] if second is None else second
    found = draft({"clicks": seen(300, name, first, kind), "pays": seen(100, name, others, kind)})
    assert drafted_links(found) == {} and len(found.tables) == 2


def test_a_table_of_values_is_told_and_not_added_to_a_file_that_is_edited() -> None:
    visitors = [f"v-{j * 7919:x}" for j in range(30)]
    clicks = {"clicks": seen(300, "visitor_uid", visitors)}
    old = draft(clicks).schema()
    new = draft({**clicks, "payments": seen(100, "visitor_uid", visitors[:20])})
    updated, told = update_schema(old, new)
    assert [table.name for table in updated.tables] == ["clicks", "payments"]
    assert any('init would now add the table "visitor_uid"' in line for line in told["otherwise"])


# ---- several keys in a cell --------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        lambda a, b: f"{a}|{b}",
        lambda a, b: f"[{a}, {b}]",
        lambda a, b: f'["{a}","{b}"]',
        lambda a, b: f"{{{a},{b}}}",
        lambda a, b: str(a),
    ],
)
def test_several_keys_in_a_cell_are_said_with_the_view_to_write(cell: Any) -> None:
    labels = TinyTable({"id": "INTEGER", "word": "TEXT"}, [(j, f"w{j}") for j in range(1, 25)])
    rows = [(j, cell(1 + j % 24, 1 + j * 5 % 24)) for j in range(96)]
    photos = TinyTable({"id": "INTEGER", "label_list": "TEXT"}, rows)
    found = draft({"labels": labels, "photos": photos})
    expected = [] if cell(1, 2) == "1" else [
        "photos.label_list: holds several keys of labels in one cell: 24 of 24 parts are in "
        "labels.id; to link them, add a table of pairs, by a view such as SELECT id, "
        r"unnest(regexp_extract_all(label_list, '[\w.-]+')) AS labels_id FROM photos"
    ]  # fmt: skip
    assert lines(found, "several keys") == expected
