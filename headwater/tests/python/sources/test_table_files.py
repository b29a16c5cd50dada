"""Folders of files as they are: parts that differ, Hive's folders, tables of a log, .txt tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from databases import typed
from headwater.builder.build import build
from headwater.errors import SourceError
from headwater.inference.infer import draft_source
from headwater.metadata.selection import Selection
from headwater.sources.database import open_database
from headwater.sources.open import load_source
from headwater.sources.source import SourceData
from headwater.store.store import Store


def write(path: Path, query: str) -> Path:
    """A Parquet or CSV file of what a query gives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    form = "PARQUET" if path.suffix == ".parquet" else "CSV"
    duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT {form})")
    return path


def read(folder: Path, selection: Selection | None = None) -> tuple[SourceData, list[Any]]:
    """A source as a draft reads it, and the rows of each table, in their order."""
    scratch = folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    (scratch / "work.duckdb").unlink(missing_ok=True)
    connection = open_database(scratch)
    try:
        data = load_source(folder, connection, selection=selection, detect_csv=True)
        rows = [connection.execute(f"FROM raw.t{t.index}").fetchall() for t in data.tables]
        return data, rows
    finally:
        connection.close()


def types_of(data: SourceData) -> dict[str, str]:
    (table,) = data.tables
    return {column.name: column.type for column in table.columns}


# ---- parts that differ -------------------------------------------------------------------------

# 400 visits of 2 years; a note from visit 100 on.
VISITS = (
    "SELECT i AS id, TIMESTAMP '2022-12-20' + to_hours(i) AS at, i * 0.5 AS fee, "
    "CASE WHEN i >= 100 THEN 'n' || i % 9 END AS note, "
    "CAST(year(TIMESTAMP '2022-12-20' + to_hours(i)) AS VARCHAR) AS y FROM range(400) r(i)"
)
DOCUMENT = {
    "name": "visits",
    "tables": {
        "visits": {
            "primary_key": "id",
            "temporal_column": "at",
            "columns": typed("id identifier, at timestamp, fee numerical, note text, y identifier"),
        }
    },
}


def in_parts(folder: Path, count: int, end: str, *, ordered: bool) -> None:
    """The visits in parts, named in order or not; a part without a note has no such column."""
    names = list(range(count))
    if not ordered:
        random.Random(5).shuffle(names)
    for number, name in enumerate(names):
        low, high = 400 * number // count, 400 * (number + 1) // count
        columns = "* EXCLUDE (note)" if high <= 100 and not ordered else "*"
        path = folder / "visits" / f"part-{name}.{end}"
        write(path, f"SELECT {columns} FROM ({VISITS}) WHERE id >= {low} AND id < {high}")


def in_hive(folder: Path, end: str) -> None:
    for year in (2022, 2023):
        for part in (0, 1):
            path = folder / "visits" / f"y={year}" / f"{part}.{end}"
            query = f"SELECT * EXCLUDE (y) FROM ({VISITS}) WHERE y = '{year}' AND id % 2 = {part}"
            write(path, query)


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_the_store_is_the_same_from_one_file_and_from_parts_in_any_order(
    tmp_path: Path, end: str
) -> None:
    ways = {
        "one": lambda folder: write(folder / f"visits.{end}", VISITS),
        "7": lambda folder: in_parts(folder, 7, end, ordered=True),
        "200": lambda folder: in_parts(folder, 200, end, ordered=False),
        "hive": lambda folder: in_hive(folder, end),
    }
    found = {}
    for name, way in ways.items():
        way(tmp_path / name)
        report = build(tmp_path / name, tmp_path / f"{name}.hw", DOCUMENT)
        found[name] = report.fingerprint
        lacking = [note for note in report.source_notes if "note (" in note]
        assert len(lacking) == (name == "200")
    assert len(set(found.values())) == 1, found


def test_numbers_in_names_of_parts_are_in_order_of_their_values(tmp_path: Path) -> None:
    """part-10 stood before part-2: of rows with one key 'last' keeps the last."""
    for number in (1, 2, 10, 9, 100):
        write(tmp_path / "s" / "t" / f"part-{number}.csv", f"SELECT {number} AS n")
        write(tmp_path / "s" / "u" / f"m{number}" / "a.parquet", f"SELECT {number} AS n")
    _, (rows, others) = read(tmp_path / "s")
    assert [int(n) for (n,) in rows] == [n for (n,) in others] == [1, 2, 9, 10, 100]


def test_what_parts_lack_and_what_they_have_of_several_types_is_said(tmp_path: Path) -> None:
    """The first file had the say: what it lacked was gone, with 'nothing was dropped'."""
    folder = tmp_path / "s" / "trips"
    write(folder / "2021.parquet", "SELECT 1 AS id, 7.0::DOUBLE AS fare, 'x' AS who, 1 AS old")
    write(folder / "2022.parquet", "SELECT 2 AS id, '8' AS FARE, 'y' AS who, 5 AS tip")
    write(folder / "2023.parquet", "SELECT 6 AS tip, 3 AS id, '9.5' AS fare, 'z' AS who")
    data, (rows,) = read(tmp_path / "s")
    assert types_of(data) == {
        "id": "INTEGER", "fare": "VARCHAR", "who": "VARCHAR", "old": "INTEGER", "tip": "INTEGER",
    }  # fmt: skip
    assert rows == [
        (1, "7", "x", 1, None),
        (2, "8", "y", None, 5),
        (3, "9.5", "z", None, 6),
    ]
    assert data.tables[0].notes == (
        "some of the 3 files of table 'trips' lack columns, which are NULL there: "
        "old (2022.parquet and 1 more), tip (2021.parquet)",
        "columns of the 3 files of table 'trips' have several types: "
        "fare (DOUBLE in 1, VARCHAR in 2, read as VARCHAR)",
    )


def test_parts_with_the_same_columns_are_one_scan_and_nothing_is_said(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "s" / "t" / f"{number}.parquet", f"SELECT {number} AS a, 'x' AS b")
        columns = "'x' AS b, 1 AS a" if number == 1 else "2 AS a, 'x' AS b"
        write(tmp_path / "s" / "u" / f"{number}.csv", f"SELECT {columns}")
    data, (rows, others) = read(tmp_path / "s")
    assert rows == [(0, "x"), (1, "x"), (2, "x")]
    assert others == [("2", "x"), ("1", "x"), ("2", "x")]
    assert data.tables[0].is_view and data.notes == data.tables[1].notes == ()


@pytest.mark.parametrize(
    ("first", "second", "kind", "values"),
    [
        ("1::INTEGER", "2.5::DOUBLE", "DOUBLE", [1.0, 2.5]),
        ("16777217::BIGINT", "0.5::FLOAT", "DOUBLE", [16777217.0, 0.5]),
        ("9007199254740993", "1.0::DOUBLE", "VARCHAR", ["9007199254740993", "1"]),
        ("1::TINYINT", "300::BIGINT", "BIGINT", [1, 300]),
        ("DATE '2020-02-03'", "'soon'", "VARCHAR", ["2020-02-03", "soon"]),
        ("20::INTEGER", "DATE '2020-02-03'", "VARCHAR", ["20", "2020-02-03"]),
        ("[1]", "2", "VARCHAR", ["[1]", "2"]),
    ],
)
def test_a_column_of_several_types_holds_the_values_of_all(
    tmp_path: Path, first: str, second: str, kind: str, values: list[Any]
) -> None:
    write(tmp_path / "s" / "t" / "a.parquet", f"SELECT {first} AS v")
    write(tmp_path / "s" / "t" / "b.parquet", f"SELECT {second} AS v")
    data, (rows,) = read(tmp_path / "s")
    assert types_of(data) == {"v": kind}
    assert [row[0] for row in rows] == values


def test_a_part_without_a_value_has_no_say_in_the_type(tmp_path: Path) -> None:
    """pandas writes a column without a value as one of integers or floats."""
    write(tmp_path / "s" / "t" / "a.parquet", "SELECT 1 AS id, NULL::DOUBLE AS seen")
    write(tmp_path / "s" / "t" / "b.parquet", "SELECT 2 AS id, DATE '2020-02-03' AS seen")
    data, (rows,) = read(tmp_path / "s")
    assert types_of(data)["seen"] == "DATE" and data.tables[0].notes == ()
    assert [(key, str(seen)) for key, seen in rows] == [(1, "None"), (2, "2020-02-03")]


def test_tables_of_their_own_in_one_folder_are_no_parts(tmp_path: Path) -> None:
    for end in ("parquet", "csv"):
        folder = tmp_path / end / "shop"
        write(folder / f"customers.{end}", "SELECT 1 AS customer_id, 'Ann' AS name")
        write(folder / f"orders.{end}", "SELECT 7 AS order_id, 1 AS customer_id, 5 AS amount")
        with pytest.raises(SourceError, match=r"is not a part of table 'shop'.*give '.*shop'"):
            read(tmp_path / end)
        data, _ = read(folder)
        assert [table.name for table in data.tables] == ["customers", "orders"]


def test_tables_that_lie_deep_are_left_out_with_a_line(tmp_path: Path) -> None:
    write(tmp_path / "s" / "t.csv", "SELECT 1 AS a, 2 AS b")
    write(tmp_path / "s" / "old" / "x" / "customers.csv", "SELECT 1 AS customer_id, 'Ann' AS name")
    write(tmp_path / "s" / "old" / "x" / "orders.csv", "SELECT 7 AS order_id, 5 AS amount")
    data, _ = read(tmp_path / "s")
    assert [table.name for table in data.tables] == ["t"]
    assert data.notes[0].endswith(": old/ (its files are of several tables: give it as the source)")


def test_label_tables_and_deep_folders_that_metadata_lack_stay_unread(tmp_path: Path) -> None:
    """Label tables may lie in the folder of the source, and are no rows of it."""
    write(tmp_path / "s" / "t.csv", "SELECT 1 AS a, 2 AS b")
    for split in ("train", "val", "test"):
        write(tmp_path / "s" / "tasks" / "churn" / f"{split}.csv", "SELECT 1 AS a, 5 AS label")
    write(tmp_path / "s" / "log" / "2024" / "x.csv", "SELECT 1 AS a, 2 AS b")
    data, _ = read(tmp_path / "s")
    assert [table.name for table in data.tables] == ["log", "t"]
    assert data.notes[0].endswith(": tasks/ (label tables of a task, by their names)")
    document = {"tables": {"t": {"columns": typed("a numerical, b numerical")}}}
    (note,) = build(tmp_path / "s", tmp_path / "out", document).source_notes
    assert "log/ (its files lie deep, and the metadata have no such table)" in note


# ---- folders of Hive ---------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_names_of_folders_are_columns(tmp_path: Path, end: str) -> None:
    folder = tmp_path / "s" / "sales"
    places = ("007", "a%2Fb%20c", "__HIVE_DEFAULT_PARTITION__", "12")
    for number, place in enumerate(places):
        path = folder / "%C3%A9t%C3%A9=1" / f"shop={place}" / f"part-0.{end}"
        write(path, f"SELECT {number} AS id, {number} AS paid")
    write(folder / f"last.{end}", "SELECT 9 AS id, 9 AS paid")
    data, (rows,) = read(tmp_path / "s")
    assert types_of(data)["shop"] == types_of(data)["été"] == "VARCHAR"
    assert sorted((int(a), int(b), *keys) for a, b, *keys in rows) == [
        (0, 0, "1", "007"),
        (1, 1, "1", "a/b c"),
        (2, 2, "1", None),
        (3, 3, "1", "12"),
        (9, 9, None, None),
    ]
    (note,) = data.tables[0].notes
    assert note.endswith(f"NULL there: été (last.{end}), shop (last.{end})")


@pytest.mark.parametrize("name", ["n", "file_index"])
def test_a_column_of_the_file_comes_before_the_name_of_its_folder(
    tmp_path: Path, name: str
) -> None:
    for number in (1, 2):
        path = tmp_path / "s" / "t" / f"k={number}" / "a.parquet"
        write(path, f"SELECT {number * 10} AS k, 5 AS {name}")
        write(tmp_path / "s" / "u" / f"k={number}" / "a.parquet", f"SELECT 5 AS {name}")
    _, (rows, others) = read(tmp_path / "s")
    assert rows == [(10, 5), (20, 5)]
    assert others == [(5, "1"), (5, "2")]


def test_a_source_whose_own_folders_are_partitions_is_one_table(tmp_path: Path) -> None:
    """'year=2023' and 'year=2024' were two tables."""
    for month in ("01", "02", "11"):
        write(tmp_path / "rides" / f"month={month}" / "x.parquet", f"SELECT '{month}' AS m, 1 AS a")
    write(tmp_path / "rides" / "towns.parquet", "SELECT 1 AS id")
    data, (rows, _) = read(tmp_path / "rides")
    assert [table.name for table in data.tables] == ["rides", "towns"]
    assert rows == [("01", 1, "01"), ("02", 1, "02"), ("11", 1, "11")]


def test_a_number_in_a_path_refers_to_a_number(tmp_path: Path) -> None:
    for town in (3, 4, 11):
        path = tmp_path / "s" / "rides" / f"town_id={town}" / "x.parquet"
        write(path, f"SELECT {town} * 100 + i AS id, i % 7 AS stops FROM range(60) r(i)")
    write(
        tmp_path / "s" / "towns.parquet", "SELECT i AS id, 'town ' || i AS name FROM range(20) r(i)"
    )
    draft = draft_source(tmp_path / "s")
    build(tmp_path / "s", tmp_path / "out", draft.schema())
    with Store(tmp_path / "out") as store:
        (key,) = store.metadata["tables"][0]["foreign_keys"]
    assert (key["references"]["table"], key["edges"], key["dangling"]) == ("towns", 180, 0)


def test_folders_that_lead_back_and_those_not_finished_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "t"
    write(folder / "b" / "a.parquet", "SELECT 1 AS a")
    write(folder / "_temporary" / "0" / "a.parquet", "SELECT 2 AS a")
    (folder / "b" / "again").symlink_to(folder, target_is_directory=True)
    (folder / "_SUCCESS").touch()
    data, (rows,) = read(tmp_path / "s")
    assert rows == [(1,)]
    assert data.notes[0].endswith(": t/_temporary/")


# ---- tables of a log ---------------------------------------------------------------------------


def delta(folder: Path) -> None:
    write(folder / "day=1" / "a.parquet", "SELECT 1 AS a")
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / "00000000000000000000.json").write_text("{}")


def iceberg(folder: Path) -> None:
    write(folder / "data" / "a.parquet", "SELECT 1 AS a")
    (folder / "metadata").mkdir()
    for name in ("00009-ab.metadata.json", "00010-ab.metadata.json", "snap-1.avro"):
        (folder / "metadata" / name).write_text("{}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (delta, "Delta Lake.*deltalake.DeltaTable.*delta_scan"),
        (iceberg, "Iceberg.*00010-ab.metadata.json.*from_metadata.*00010-ab.*iceberg_scan"),
    ],
)
@pytest.mark.parametrize("place", ["", "events", "lake/events"])
def test_a_table_with_a_log_is_refused_by_name(
    tmp_path: Path, make: Any, words: str, place: str
) -> None:
    """Rows that were replaced or deleted were read beside those that are there."""
    make(tmp_path / "s" / place)
    write(tmp_path / "s" / "t.parquet", "SELECT 1 AS a")
    with pytest.raises(SourceError, match=words):
        read(tmp_path / "s")
    if place:
        left = Selection(excluded=(place.partition("/")[0],))
        assert [table.name for table in read(tmp_path / "s", left)[0].tables] == ["t"]


def test_other_folders_called_metadata_are_no_log(tmp_path: Path) -> None:
    write(tmp_path / "s" / "t.parquet", "SELECT 1 AS a")
    (tmp_path / "s" / "metadata").mkdir()
    (tmp_path / "s" / "metadata" / "metadata.json").write_text("{}")
    assert len(read(tmp_path / "s")[0].tables) == 1


# ---- .txt files --------------------------------------------------------------------------------

LICENCE = (
    "Permission is hereby granted, free of charge, to any person\n"
    "obtaining a copy, to deal in it, without restriction\n"
)
NO_TABLES = {
    "licence": LICENCE,
    "prose of equal commas": "Dear Sir, hello\nand more, of this\n",
    "one column": "name\nAda\nBen\n",
    "no header": "1,Ada\n2,Ben\n",
    "a header alone": "id,name\n",
    "rows of several widths": "id,name\n1,Ada\n2,Ben,x\n",
    "two columns of one name": "id,id\n1,2\n",
    "nothing": "",
    "bytes": "a,b\n\0,\0\n",
    "settings": "host = a\nport = 5\n",
}


@pytest.mark.parametrize("kind", NO_TABLES)
def test_a_txt_file_that_is_no_table_stops_nothing_and_is_named(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "s" / "t.csv", "SELECT 1 AS a, 2 AS b")
    (tmp_path / "s" / "README.txt").write_text(NO_TABLES[kind])
    data, _ = read(tmp_path / "s")
    assert [table.name for table in data.tables] == ["t"]
    assert data.notes[0].endswith(": README.txt")


@pytest.mark.parametrize(
    "text",
    [
        '\ufeffrun_id,name\r\n1,"A, B"\r\n2,C\r\n',
        "Run ID\tName\n1\tA, B\n2\tC\n",
        "run;name\n1;A, B\n2;C\n",
    ],
)
def test_a_txt_file_that_is_a_table_is_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "runs.txt").write_bytes(text.encode())
    data, (rows,) = read(tmp_path / "s")
    assert [table.name for table in data.tables] == ["runs"] and data.notes == ()
    assert rows == [("1", "A, B"), ("2", "C")]


def test_a_txt_file_beside_a_file_of_its_name_and_one_without_metadata_are_no_tables(
    tmp_path: Path,
) -> None:
    """A build by metadata that lack the table would fail on a file that it never read."""
    write(tmp_path / "s" / "t.csv", "SELECT 1 AS a, 2 AS b")
    for name in ("t.txt", "u.txt"):
        (tmp_path / "s" / name).write_text("a,b\n1,2\n")
    data, _ = read(tmp_path / "s")
    assert [table.name for table in data.tables] == ["t", "u"]
    assert data.notes[0].endswith(": t.txt")
    document = {"tables": {"t": {"columns": typed("a numerical, b numerical")}}}
    (note,) = build(tmp_path / "s", tmp_path / "out", document).source_notes
    assert note.endswith(": t.txt, u.txt")


# ---- hours beyond a day ------------------------------------------------------------------------


def spans(tmp_path: Path, texts: list[str]) -> tuple[str, list[Any]]:
    """The drafted type of a column, and its cells."""
    (tmp_path / "s").mkdir()
    lines = [f"{number},{text}" for number, text in enumerate(texts)]
    (tmp_path / "s" / "t.csv").write_text("id,took\n" + "\n".join(lines) + "\n")
    schema = draft_source(tmp_path / "s").schema()
    build(tmp_path / "s", tmp_path / "out", schema)
    with Store(tmp_path / "out") as store:
        cells = [store.row(row)["cells"]["took"] for row in range(len(texts))]
    return schema.tables[0].column("took").stype, cells


def test_hours_of_more_than_a_day_are_seconds(tmp_path: Path) -> None:
    """7:05:09 = 25,509 s, 24:00:00 = 86,400 s, 130:00:01 = 468,001 s."""
    stype, cells = spans(tmp_path, ["7:05:09", "24:00:00", " 130:00:01", ""] * 10)
    assert stype == "numerical"
    assert cells == [25_509.0, 86_400.0, 468_001.0, None] * 10


def test_hours_of_a_day_are_no_numbers(tmp_path: Path) -> None:
    stype, _ = spans(tmp_path, ["07:05:09", "23:59:59", "00:00:00"] * 10)
    assert stype != "numerical"


def test_a_few_clocks_among_numbers_stay_null(tmp_path: Path) -> None:
    """They may be another unit than the numbers."""
    stype, cells = spans(tmp_path, ["1.5"] * 39 + ["25:00:00"])
    assert stype == "numerical" and cells.count(None) == 1
