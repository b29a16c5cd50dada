"""Local times whose zone another column names, each by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from databases import TinyTable, arrow_tables, draft
from headwater.builder.build import build
from headwater.errors import SchemaError
from headwater.inference.infer import draft_source, infer
from headwater.store.store import Store

NOON = datetime(2020, 7, 1, 12)  # in summer time


def sales(zones: list[Any], name: str, zone: str = "tz", kind: str = "TEXT") -> TinyTable:
    rows = [(j, NOON.replace(minute=j), zones[j % len(zones)], j % 7) for j in range(60)]
    return TinyTable({"id": "INTEGER", name: "TIMESTAMP", zone: kind, "n": "INTEGER"}, rows)


@pytest.mark.parametrize(
    ("zones", "zone", "kind", "hours"),
    [
        (["America/New_York", "Asia/Tokyo"], "tz", "TEXT", [16, 3]),
        (["Europe/Berlin", "UTC"], "place", "TEXT", [10, 12]),
        (["-04:00", "+09:00"], "offset", "TEXT", [16, 3]),
        ([-4, 9], "utc_offset", "INTEGER", [16, 3]),
        ([-3.5, 9.0], "tz_offset", "DOUBLE", [15, 3]),  # and a half
        ([-240, 540], "utc_offset_minutes", "INTEGER", [16, 3]),
        ([-240, 540], "timezone_offset", "INTEGER", [16, 21]),  # of a browser, or not: the later
        (["EST5EDT", "Japan"], "timezone", "TEXT", [16, 3]),
        # Without a zone it is nowhere later than 12 hours behind UTC.
        (["America/New_York", None], "tz", "TEXT", [16, 24]),
    ],
)
def test_a_column_beside_a_local_time_says_its_zone(
    tmp_path: Path, zones: list[Any], zone: str, kind: str, hours: list[int]
) -> None:
    database = {"sales": sales(zones, "sold", zone, kind)}
    table = draft(database).table("sales")
    assert table.temporal_column == "sold_utc"
    assert (table.column("sold").stype, table.column(zone).is_of_time) == ("ignored", True)
    source = arrow_tables(database)
    build(source, tmp_path / "s", infer(source))
    with Store(tmp_path / "s") as store:
        found = [store.row(store.find("sales", key))["time"] for key in (0, 1)]
    expected = [
        datetime(2020, 7, 1, tzinfo=UTC) + timedelta(hours=hour, minutes=minute)
        for minute, hour in enumerate(hours)
    ]
    if zones[0] == -3.5:
        expected[0] += timedelta(minutes=30)
    assert found == expected


def test_what_a_machine_may_write_is_read_as_the_later_of_two(tmp_path: Path) -> None:
    """The zone may be that of a person, and the time that of a server: Tokyo's 3 o'clock would be
    nine hours early."""
    source = arrow_tables({"users": sales(["America/New_York", "Asia/Tokyo"], "created_at")})
    build(source, tmp_path / "s", infer(source))
    with Store(tmp_path / "s") as store:
        found = [store.row(store.find("users", key))["time"].hour for key in (0, 1)]
    assert found == [16, 12]


@pytest.mark.parametrize(
    ("zones", "name", "zone"),
    [
        (["Japan", "Turkey", "Cuba"], "sold", "country"),  # names of zones too
        (["America/New_York", "America/Atlantis"], "sold", "tz"),
        (["America/New_York"], "sold_utc", "tz"),
        (["530", "-500"], "sold", "utc_offset"),
        (["a", "b"], "sold", "tz"),
    ],
)
def test_other_columns_say_no_zone(zones: list[str], name: str, zone: str) -> None:
    table = draft({"sales": sales(zones, name, zone)}).table("sales")
    assert table.temporal_column == name
    said = any("tz may name its zone" in check for check in table.column(name).checks)
    assert said == (zone == "tz" and name == "sold")


def test_a_database_without_zones_gets_no_line_on_them(tmp_path: Path) -> None:
    """But a build needs to know what its naive times are if init computes moments."""
    other = TinyTable({"id": "INTEGER", "at": "TIMESTAMP"}, [(j, NOON) for j in range(9)])
    source = arrow_tables({"sales": sales(["Asia/Tokyo"], "sold"), "other": other})
    found = draft_source(source)
    assert (found.timezone, found.checks) == ("UTC", [])
    build(source, tmp_path / "s", found.schema())


def test_a_zone_that_is_new_to_the_database_names_its_column(tmp_path: Path) -> None:
    schema = infer(arrow_tables({"sales": sales(["Asia/Tokyo"], "sold")}))
    later = arrow_tables({"sales": sales(["Asia/Tokyo", "Asia/Atlantis"], "sold")})
    with pytest.raises(SchemaError, match=r"column 'sales.sold_utc': .*Unknown TimeZone"):
        build(later, tmp_path / "s", schema)


def test_of_two_zones_the_one_that_shares_a_word_is_taken() -> None:
    rows = [(j, NOON, NOON, NOON, "Asia/Tokyo", "Europe/Paris") for j in range(60)]
    types = dict.fromkeys(("dep_at", "arr_at", "at"), "TIMESTAMP")
    types = {"id": "INTEGER", **types, "dep_tz": "TEXT", "arr_tz": "TEXT"}
    table = draft({"flights": TinyTable(types, rows)}).table("flights")
    found = {c.name: c.expression for c in table.columns if c.expression is not None}
    assert found == {
        "dep_at_utc": "timezone(dep_tz, CAST(dep_at AS TIMESTAMP))",
        "arr_at_utc": "timezone(arr_tz, CAST(arr_at AS TIMESTAMP))",
    }
    assert any("dep_tz or arr_tz names its zone" in check for check in table.column("at").checks)


def test_a_local_time_whose_parent_says_the_zone_is_only_said(tmp_path: Path) -> None:
    """With the edit, which holds."""
    shops = TinyTable(
        {"shop_id": "INTEGER", "tz": "TEXT"}, [(0, "America/New_York"), (1, "Asia/Tokyo")]
    )
    rows = [(j, j % 2, NOON.replace(minute=j)) for j in range(60)]
    types = {"sale_id": "INTEGER", "shop_id": "INTEGER", "local_time": "TIMESTAMP"}
    source = arrow_tables({"shops": shops, "sales": TinyTable(types, rows)})
    schema = infer(source)
    note = schema.table("sales").column("local_time").note
    assert '"taken_from": "shops.tz"' in note
    document = schema.to_dict()
    expression = "timezone(tz, CAST(local_time AS TIMESTAMP))"
    assert expression in note
    document["tables"]["sales"]["temporal_column"] = "local_time_utc"
    document["tables"]["sales"]["columns"] |= {
        "local_time": {"stype": "ignored"},
        "local_time_utc": {"stype": "timestamp", "expression": expression},
        "tz": {"stype": "categorical", "taken_from": "shops.tz"},
    }
    build(source, tmp_path / "s", document)
    with Store(tmp_path / "s") as store:
        assert [store.row(store.find("sales", key))["time"].hour for key in (0, 1)] == [16, 3]
