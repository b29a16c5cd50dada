"""Keys that a person or the database holds equal: numbers, categories, bytes, case and blanks."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from databases import TinyTable, arrow_tables, run_script, typed, write_csv, write_sqlite
from headwater.builder.build import build
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source
from headwater.metadata.parts import ColumnRef
from headwater.metadata.schema import parse_schema
from headwater.store.store import Store


def links_of(path: Path, source: Any) -> tuple[Draft, dict[str, tuple[int, int]]]:
    """The draft of a source, and the edges and dangling rows of each key of its store."""
    draft = draft_source(source)
    report = build(source, path, draft.schema())
    found = {
        f"{table['name']}.{'+'.join(key['columns'])} -> {key['references']['table']}": (
            key["edges"],
            key["dangling"],
        )
        for table in report.metadata["tables"]
        for key in table["foreign_keys"]
    }
    return draft, found


def two(parents: list[Any], children: list[Any], types: tuple[str, str]) -> dict[str, TinyTable]:
    """Depots with keys, and parcels that name them."""
    return {
        "depots": TinyTable({"depot_id": types[0], "m2": "DOUBLE"}, [(p, 2.5) for p in parents]),
        "parcels": TinyTable(
            {"parcel_id": "INTEGER", "depot_id": types[1]}, list(enumerate(children, 100))
        ),
    }


CODES = [f"{n:04}" for n in range(11, 31)]  # 0011 to 0030


@pytest.mark.parametrize(
    ("parents", "children", "types", "expected"),
    [
        (CODES, [11, 12, 30, 31], ("TEXT", "INTEGER"), (3, 1)),
        ([11, 12, 13], ["0011", "12.0", " 13", "14", None, "13"], ("INTEGER", "TEXT"), (4, 1)),
        # Neither side is only numbers: '011' is another code than '11'.
        (["11", "12", "X13"], ["011", "12", "11", "X13"], ("TEXT", "TEXT"), (3, 1)),
        # All of one width, which blanks fill.
        (["N1  ", "N22 ", "N333"], ["N1", "N22", "N333", "N4"], ("TEXT", "TEXT"), (3, 1)),
        # Blanks at the end of texts of any width mean what they say.
        (["N1 ", "N1", "N22", "N333"], ["N1", "N22", "N333", "N1 "], ("TEXT", "TEXT"), (4, 0)),
    ],
    ids=["leading zeros", "numbers as text", "codes", "fixed width", "blanks"],
)
def test_keys_are_equal_in_a_draft_and_in_its_store(
    parents: list[Any],
    children: list[Any],
    types: tuple[str, str],
    expected: tuple[int, int],
    tmp_path: Path,
) -> None:
    draft, links = links_of(tmp_path / "s", arrow_tables(two(parents, children, types)))
    assert links == {"parcels.depot_id -> depots": expected}
    edges, dangling = expected
    values = {str(child).strip().removesuffix(".0").lstrip("0") for child in children if child}
    count = len(values) if types != ("TEXT", "TEXT") else edges + dangling
    held = count - dangling
    reason = draft.table("parcels").column("depot_id").reason
    assert f"{held} of {count}" in reason or f"all {count} values" in reason


def test_two_keys_that_would_be_one_stay_as_they_are_written(tmp_path: Path) -> None:
    """8 is depot '8' and no other, and 9 none, though there is '09', as '7' is not '07'."""
    tables = arrow_tables(two(["7", "07", "8", "09"], [7, 8, 8, 9], ("TEXT", "INTEGER")))
    draft, links = links_of(tmp_path / "s", tables)
    assert links == {"parcels.depot_id -> depots": (3, 1)}
    line = (
        "1 values of parcels.depot_id would name a row of depots if leading zeros and the spelling "
        "of numbers did not count, but 1 keys of depots are then those of other rows too: keys "
        "stay as they are written"
    )
    assert f"parcels.depot_id: {line}" in draft.every_check()
    report = build(tables, tmp_path / "again", draft.schema())
    assert line in report.notes()


def test_floats_of_csv_files_name_integers(tmp_path: Path) -> None:
    tables = two(list(range(1, 9)), ["3.0", None, "8.0", "1.0"], ("INTEGER", "TEXT"))
    _, links = links_of(tmp_path / "s", write_csv(tmp_path / "csv", tables))
    assert links == {"parcels.depot_id -> depots": (3, 0)}


def test_categories_of_pandas_are_keys(tmp_path: Path) -> None:
    """As many as there are rows, and numbers among them; a category of events stays one."""
    pandas = pytest.importorskip("pandas")
    pens = pandas.DataFrame({"pen": [f"pen {j}" for j in range(30)], "kind": ["a", "b", "b"] * 10})
    lots = pandas.DataFrame({"lot_id": range(5, 25), "price": [2.5] * 20})
    sales = pandas.DataFrame(
        {
            "sale": range(90),
            "pen": [f"pen {j % 30}" for j in range(90)],
            "lot_id": [None if j == 0 else str(5 + j % 20) for j in range(90)],
        }
    )
    pens["pen"], pens["kind"] = pens["pen"].astype("category"), pens["kind"].astype("category")
    sales["pen"], sales["lot_id"] = (sales[name].astype("category") for name in ("pen", "lot_id"))
    source = {"pens": pens, "lots": lots, "sales": sales}
    draft, links = links_of(tmp_path / "s", source)
    assert draft.table("pens").primary_key == ("pen",)
    assert draft.table("pens").column("kind").stype == "categorical"
    assert links == {"sales.pen -> pens": (90, 0), "sales.lot_id -> lots": (89, 0)}
    with Store(tmp_path / "s") as store:
        assert store.row(store.find("pens", "pen 7"))["key"] == {"pen": "pen 7"}


UUIDS = [uuid.UUID(int=(1 << 120) * j + 77) for j in range(1, 13)]


@pytest.mark.parametrize("kind", ["bytes", "text", "short"])
def test_bytes_are_keys_by_their_digits(kind: str, tmp_path: Path) -> None:
    """16 bytes name rows by the same bytes, and by UUIDs as text; a picture is no key."""
    pyarrow = pytest.importorskip("pyarrow")
    keys = [one.bytes if kind != "short" else one.bytes[:6] + b"\xff" for one in UUIDS]
    named = [str(one).upper() for one in UUIDS] if kind == "text" else keys
    guests = pyarrow.table({"guest_id": keys, "photo": [bytes([j]) * 4000 for j in range(12)]})
    nights = pyarrow.table({"night": list(range(36)), "guest_id": named * 3})
    draft, links = links_of(tmp_path / "s", {"guests": guests, "nights": nights})
    assert draft.table("guests").primary_key == ("guest_id",)
    assert draft.table("guests").column("photo").stype == "ignored"
    assert links == {"nights.guest_id -> guests": (36, 0)}
    with Store(tmp_path / "s") as store:
        assert store.find_all("guests", [keys[3], keys[3].hex()]).tolist() == [3, 3]


SCRIPT = """
CREATE TABLE land (code TEXT PRIMARY KEY COLLATE NOCASE, name TEXT);
CREATE TABLE club (tag TEXT PRIMARY KEY COLLATE RTRIM, name TEXT);
CREATE TABLE badge (id BLOB PRIMARY KEY, name TEXT);
CREATE TABLE person (id INTEGER PRIMARY KEY, code TEXT REFERENCES land, tag TEXT REFERENCES club,
    badge TEXT, home TEXT COLLATE NOCASE, made REAL);
CREATE TABLE town (home TEXT PRIMARY KEY, area REAL);
INSERT INTO land VALUES ('se', 'S'), ('NO', 'N'), ('Åland', 'Å'), ('åland', 'å');
INSERT INTO club VALUES ('lions', 'L'), ('owls  ', 'O');
INSERT INTO badge VALUES (x'00112233445566778899aabbccddeeff', 'first');
INSERT INTO town VALUES ('Oslo', 1.5), ('Bergen', 2.5), ('Malmo', 2.5);
INSERT INTO person VALUES
    (1, 'SE', 'lions  ', '00112233-4455-6677-8899-AABBCCDDEEFF', 'OSLO', 1.0),
    (2, 'no', 'owls', NULL, 'bergen', 2.0), (3, 'No', 'owls ', NULL, 'malmo', 1.0),
    (4, 'Åland', 'lions', NULL, 'oslo', 2.5), (5, NULL, NULL, NULL, 'Oslo', 2.0);
"""


def test_collations_of_sqlite_hold_for_keys(tmp_path: Path) -> None:
    """NOCASE folds the letters of ASCII only, so Åland is not åland. home is no declared key."""
    source = run_script(tmp_path / "a.db", f"PRAGMA foreign_keys = on;\n{SCRIPT}")
    _, links = links_of(tmp_path / "s", source)
    assert links == {
        "person.code -> land": (4, 0),
        "person.tag -> club": (4, 0),
        "person.badge -> badge": (1, 0),
        "person.home -> town": (5, 0),
    }
    with Store(tmp_path / "s") as store:
        person = store.find("person", 4)
        assert store.row(person)["cells"]["code"] == "Åland"


def test_postgres_holds_what_its_server_does(postgres: Any, tmp_path: Path) -> None:
    """char(n) without the blanks at its end, and a collation that ignores case and accents."""
    name = postgres.database(
        """
        CREATE EXTENSION citext;
        CREATE DOMAIN mail AS citext;
        CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
        CREATE COLLATION caseless (provider = icu, locale = '@colStrength=secondary',
            deterministic = false);
        CREATE TABLE cafe (name text COLLATE loose PRIMARY KEY, seats int);
        CREATE TABLE street (name text COLLATE caseless PRIMARY KEY, number int);
        CREATE TABLE zone (code char(6) PRIMARY KEY, about text);
        CREATE TABLE guest (mail mail PRIMARY KEY, age int);
        CREATE TABLE visit (id int PRIMARY KEY, cafe text COLLATE loose REFERENCES cafe,
            street text COLLATE caseless REFERENCES street, zone text REFERENCES zone,
            guest mail REFERENCES guest);
        INSERT INTO cafe VALUES ('Café Rosé', 4), ('Blau', 5);
        INSERT INTO street VALUES ('Élan', 1), ('Elan', 2);
        INSERT INTO zone VALUES ('z1', 'one'), ('z22', 'two');
        INSERT INTO guest VALUES ('Ann@x.org', 30), ('Jö@x.org', 40);
        INSERT INTO visit VALUES (1, 'cafe rose', 'ÉLAN', 'z1', 'ann@X.org'),
            (2, 'BLAU', 'elan', 'z22  ', 'Ann@x.org'), (3, 'Café Rosé', 'élan', 'z1    ', NULL);
        """
    )
    _, links = links_of(tmp_path / "s", postgres.address(name))
    assert links == {
        "visit.cafe -> cafe": (3, 0),
        "visit.street -> street": (3, 0),
        "visit.zone -> zone": (3, 0),
        "visit.guest -> guest": (2, 0),
    }
    with Store(tmp_path / "s") as store:
        (visit,) = [table for table in store.metadata["tables"] if table["name"] == "visit"]
        low, high = visit["row_range"]
        place = [key["columns"] for key in visit["foreign_keys"]].index(["street"])
        streets = [int(store.parents(row)[place]) for row in range(low, high)]
        names = [store.row(street)["key"]["name"] for street in streets]
        assert names == ["Élan", "Elan", "Élan"]


# ---- near misses -------------------------------------------------------------------------------

NEAR = {
    "case": (["Red", "Green", "Blue", "Tan"], ["RED", "green", "blue", "Pink"], "lower"),
    "blanks": (["red", "green", "blue", "tan"], [" red", "green ", "blue ", "pink"], "trim"),
    "zeros": (["1", "12", "Z9", "13"], ["001", "0012", "0013", "X1"], "regexp_replace"),
}


@pytest.mark.parametrize("kind", NEAR)
def test_a_near_miss_names_the_edit_that_links(kind: str, tmp_path: Path) -> None:
    """Three of four values, by the edit of the line."""
    parents, children, function = NEAR[kind]
    tables = {
        "colors": TinyTable({"color": "TEXT", "hue": "DOUBLE"}, [(p, 0.5) for p in parents]),
        "cars": TinyTable({"car_id": "INTEGER", "color": "TEXT"}, list(enumerate(children * 9))),
    }
    source = write_sqlite(tmp_path / "a.db", tables)
    draft = draft_source(source)
    assert draft.table("cars").column("color").foreign_key is None
    (line,) = [line for line in draft.every_check() if "as written" in line]
    assert line.startswith("cars.color: ")
    assert re.search("3 if .* did not count: to link them", line)
    above, own = re.findall(r'("color_key": \{.*?\})(?: and to|$)', line)
    assert function in above and function in own
    document = draft.schema().to_dict()
    for table, text in (("colors", above), ("cars", own)):
        document["tables"][table]["columns"] |= json.loads(f"{{{text}}}")
    report = build(source, tmp_path / "s", parse_schema(document))
    (key,) = (key for table in report.metadata["tables"] for key in table["foreign_keys"])
    assert (key["edges"], key["dangling"]) == (27, 9)


def test_a_near_miss_of_less_than_half_is_not_worth_a_line() -> None:
    tables = {
        "colors": TinyTable({"color": "TEXT"}, [("Red",), ("Green",), ("Blue",)]),
        "cars": TinyTable(
            {"car_id": "INTEGER", "color": "TEXT"},
            list(enumerate(["RED", "white", "black", "grey"] * 9)),
        ),
    }
    draft = draft_source(arrow_tables(tables))
    assert not [line for line in draft.every_check() if "as written" in line]


def test_a_near_miss_that_makes_one_key_of_two_has_no_edit() -> None:
    tables = two(["a1", "A1", "b2", "c3"], ["A1", "B2", "C3", "B2"], ("TEXT", "TEXT"))
    draft = draft_source(arrow_tables(tables))
    (line,) = [line for line in draft.every_check() if "as written" in line]
    assert line == (
        "parcels.depot_id: 1 of 3 values are in depots.depot_id as written, and 3 if case did not "
        "count, but 1 keys of depots are then those of other rows too"
    )


# ---- tasks -------------------------------------------------------------------------------------


def test_label_tables_name_anchors_as_foreign_keys_do(tmp_path: Path) -> None:
    """0012 and 12.0 are depot 12; X is none."""
    tables = two([11, 12, 13], [11, 12], ("INTEGER", "INTEGER"))
    (tmp_path / "train.csv").write_text("depot_id,full\n0012,1\n12.0,0\n13,1\nX,1\n")
    metadata = {
        "tables": {
            "depots": {
                "primary_key": "depot_id",
                "columns": typed("depot_id identifier, m2 numerical"),
            },
            "parcels": {"columns": typed("parcel_id identifier, depot_id identifier")},
        },
        "tasks": {
            "full": {
                "seeds": {"train": "train.csv"},
                "anchor_table": "depots",
                "target_column": "full",
                "target_stype": "boolean",
                "sees_everything": True,
            }
        },
    }
    report = build(arrow_tables(tables), tmp_path / "s", metadata, seeds_dir=tmp_path)
    (task,) = report.metadata["tasks"]
    assert task["seeds"]["train"] == 3
    assert list(task["dropped"].values()) == [1]


def test_a_drafted_task_counts_the_rows_of_every_spelling(tmp_path: Path) -> None:
    """Each of 30 accounts is named on one day in four, in turn as K1 and as k1."""
    moments = [
        (day, day % 4 + 4 * j) for day in range(400) for j in range(8) if day % 4 + 4 * j < 30
    ]
    names = [f"{'kK'[day // 4 % 2]}{number}" for day, number in moments]
    rows = [
        (j, name, datetime(2021, 1, 1) + timedelta(days=day, hours=number % 24))
        for j, (name, (day, number)) in enumerate(zip(names, moments, strict=True))
    ]
    tables = {
        "account": TinyTable(
            {"code": "TEXT COLLATE NOCASE PRIMARY KEY"}, [(f"K{j}",) for j in range(30)]
        ),
        "login": TinyTable(
            {"id": "INTEGER PRIMARY KEY", "account_code": "TEXT", "at": "TIMESTAMP"}, rows
        ),
    }
    source = write_sqlite(tmp_path / "a.db", tables)
    draft = draft_source(source)
    (task,) = [task for task in draft.tasks if task.name == "account-next-login"]
    report = build(source, tmp_path / "s", draft.schema())
    (entry,) = [entry for entry in report.metadata["tasks"] if entry["name"] == task.name]
    assert entry["repeated"] == {"questions": 0, "disagreeing": 0}
    assert sum(entry["dropped"].values()) == 0


def test_a_column_that_a_key_takes_follows_the_same_rule(tmp_path: Path) -> None:
    """Depot '0012' is that of parcel 12.0."""
    tables = two(["0011", "0012"], [11, 12], ("TEXT", "INTEGER"))
    columns = typed("parcel_id identifier, depot_id identifier depots.depot_id, m2 numerical")
    columns["m2"]["taken_from"] = "depots.m2"
    metadata = {
        "tables": {
            "depots": {
                "primary_key": "depot_id",
                "columns": typed("depot_id identifier, m2 numerical"),
            },
            "parcels": {"primary_key": "parcel_id", "columns": columns},
        }
    }
    build(arrow_tables(tables), tmp_path / "s", metadata)
    with Store(tmp_path / "s") as store:
        assert store.row(store.find("parcels", 101))["cells"]["m2"] == 2.5


def test_a_declared_key_is_never_replaced(tmp_path: Path) -> None:
    """town_id is declared to refer to regions, though towns have all of its values."""
    source = run_script(
        tmp_path / "a.db",
        """
        CREATE TABLE regions (id TEXT PRIMARY KEY COLLATE NOCASE, name TEXT);
        CREATE TABLE towns (town_id TEXT PRIMARY KEY, name TEXT);
        CREATE TABLE trips (id INTEGER PRIMARY KEY, town_id TEXT REFERENCES regions);
        INSERT INTO regions VALUES ('a', 'A'), ('b', 'B');
        INSERT INTO towns VALUES ('A', 'A'), ('B', 'B'), ('C', 'C');
        INSERT INTO trips VALUES (1, 'A'), (2, 'B'), (3, 'C'), (4, 'A');
        """,
    )
    draft, links = links_of(tmp_path / "s", source)
    assert draft.table("trips").column("town_id").foreign_key == ColumnRef("regions", "id")
    assert links == {"trips.town_id -> regions": (3, 1)}
