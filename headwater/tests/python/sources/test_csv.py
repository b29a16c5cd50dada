"""CSV files as they come: described in metadata.json, drafted by init, refused with their line."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import duckdb
import pytest
from databases import typed
from headwater.builder.build import build
from headwater.errors import SchemaError, SourceError
from headwater.inference.infer import infer
from headwater.metadata.parts import CsvFormat
from headwater.metadata.schema import Schema
from headwater.store.store import Store

TEXT = "id,name,price\n1,Ada,1.5\n2,Zoë,2.25\n3,,3\n"
COLUMNS = typed("id identifier, name text, price numerical")


def folder(tmp_path: Path, name: str, data: bytes) -> Path:
    (tmp_path / "csv").mkdir(exist_ok=True)
    (tmp_path / "csv" / name).write_bytes(data)
    return tmp_path / "csv"


def metadata(form: dict[str, Any] | None = None) -> dict[str, Any]:
    table: dict[str, Any] = {"primary_key": "id", "columns": COLUMNS}
    if form is not None:
        table["csv"] = form
    return {"tables": {"t": table}}


def rows(tmp_path: Path, source: Path, document: dict[str, Any]) -> list[list[Any]]:
    build(source, tmp_path / "s", document)
    with Store(tmp_path / "s") as store:
        count = store.metadata["tables"][0]["row_range"][1]
        return [list(store.row(row)["cells"].values()) for row in range(count)]


EXPECTED = [[1, "Ada", 1.5], [2, "Zoë", 2.25], [3, None, 3.0]]
WAYS: dict[str, tuple[str, bytes, dict[str, Any] | None]] = {
    "plain": ("t.csv", TEXT.encode(), None),
    "with a byte order mark": ("t.csv", TEXT.encode("utf-8-sig"), None),
    "windows line ends": ("t.csv", TEXT.replace("\n", "\r\n").encode(), None),
    "gzip": ("t.csv.gz", gzip.compress(TEXT.encode()), None),
    "semicolons": ("t.dat", TEXT.replace(",", ";").encode(), {"delimiter": ";"}),
    "tabs": ("t.tsv", TEXT.replace(",", "\t").encode(), {"delimiter": "\t"}),
    "latin-1": ("t.csv", TEXT.encode("latin-1"), {"encoding": "latin-1"}),
    "utf-16": ("t.csv", TEXT.encode("utf-16"), {"encoding": "utf-16"}),
    "utf-16, packed": ("t.csv.gz", gzip.compress(TEXT.encode("utf-16")), {"encoding": "utf-16"}),
    "no header": ("t.csv", TEXT.partition("\n")[2].encode(), {"header": False}),
    "named otherwise": (
        "t.csv", b"a,b,c\n" + TEXT.partition("\n")[2].encode(), {"columns": list(COLUMNS)},
    ),
    "lines before": ("t.csv", ("Prices\nof today\n" + TEXT).encode(), {"skip": 2}),
    "decimal comma": (
        "t.csv", TEXT.replace(",", ";").replace(".", ",").encode(),
        {"delimiter": ";", "decimal": ","},
    ),
    "single quotes": (
        "t.csv", TEXT.replace("Ada", "'Ada'").encode(), {"quote": "'", "escape": "'"},
    ),
    "a bare word for NULL": (
        "t.csv", TEXT.replace("3,,3", "3,NA,3").encode(), {"null_values": ["NA"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_same_rows_whatever_way_the_file_is_written(tmp_path: Path, way: str) -> None:
    name, data, form = WAYS[way]
    assert rows(tmp_path, folder(tmp_path, name, data), metadata(form)) == EXPECTED


def test_zstandard_files_and_parts_in_a_folder_are_one_table(tmp_path: Path) -> None:
    parts = tmp_path / "csv" / "t"
    parts.mkdir(parents=True)
    query = "SELECT * FROM (VALUES {}) AS t(id, name, price)"
    for part, values in (("a", "(1, 'Ada', 1.5), (2, 'Zoë', 2.25)"), ("b", "(3, NULL, 3)")):
        target = parts / f"{part}.csv.zst"
        duckdb.sql(f"COPY ({query.format(values)}) TO '{target}' (HEADER, COMPRESSION zstd)")
    assert rows(tmp_path, tmp_path / "csv", metadata()) == EXPECTED


def test_a_quoted_word_is_no_null(tmp_path: Path) -> None:
    """R writes a missing value as NA and Namibia as "NA"."""
    source = folder(tmp_path, "t.csv", b'id,name,price\n1,"NA",1\n2,NA,NA\n')
    found = rows(tmp_path, source, metadata({"null_values": ["NA"]}))
    assert found == [[1, "NA", 1.0], [2, None, None]]
    form = infer(source).table("t").csv
    assert form is not None and form.null_values == ("NA",)


def test_a_decimal_comma_takes_no_decimal_point(tmp_path: Path) -> None:
    """1.5 is not 15, and 1.500 is 1500, where the comma is the decimal mark."""
    text = "id;name;price\n1;a;1,5\n2;a;1.5\n3;a;1.500\n4;a;-1.234.567,25\n"
    source = folder(tmp_path, "t.csv", text.encode())
    form = {"delimiter": ";", "decimal": ","}
    report = build(source, tmp_path / "s", metadata(form))
    assert [(c.count, c.example) for c in report.conversions] == [(1, "1.5")]
    found = [row[2] for row in rows(tmp_path, source, metadata(form))]
    assert found == [1.5, None, 1500.0, -1234567.0]  # float32


BAD: dict[str, tuple[bytes, dict[str, Any] | None, str]] = {
    "a short row": (
        b"id,name,price\n1,a,2\n3\n", None, "t.csv', line 3: 1 fields, table 't' has 3 columns",
    ),
    "a long row": (
        b"id,name,price\n1,a,2,9\n", None, "t.csv', line 2: 4 fields, table 't' has 3 columns",
    ),
    "an open quote": (b'id,name,price\n1,"a,2\n', None, "t.csv', line 2: a quote is not closed"),
    "a byte that is not UTF-8": (
        "id,name,price\n1,Zoë,2\n".encode("latin-1"), None,
        "t.csv' is not utf-8: byte 0xEB at offset 18 (line 2)",
    ),
    "a byte that is not ASCII": (
        "id,name,price\n1,Zoë,2\n".encode(), {"encoding": "ascii"},
        "t.csv' is not ascii: byte 0xC3 at offset 18 (line 2)",
    ),
    "half a code unit": (
        "id,name,price\n1,a,2\n".encode("utf-16") + b"x", {"encoding": "utf-16"},
        "t.csv' is not utf-16: byte 0x78 at offset 42 (line 3)",
    ),
    "another delimiter": (
        b"id;name;price\n1;a;2\n", None, "write 'delimiter' in the table's 'csv'",
    ),
    "fewer columns than named": (
        b"1,2\n", {"header": False}, "has 2 fields in its first row, the metadata name 3 columns",
    ),
    "no header at all": (b"", None, "has no header"),
    "a name twice": (b"id,name,ID\n1,2,3\n", None, "has two columns 'id' (names ignore case)"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_a_file_that_disagrees_is_refused_with_its_place(tmp_path: Path, fault: str) -> None:
    data, form, message = BAD[fault]
    with pytest.raises(SourceError) as caught:
        build(folder(tmp_path, "t.csv", data), tmp_path / "s", metadata(form))
    assert message in str(caught.value)
    assert list(tmp_path.glob("s")) == []


def test_a_broken_gzip_file_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(TEXT.encode())
    with pytest.raises(SourceError, match=r"t\.csv\.gz"):
        build(folder(tmp_path, "t.csv.gz", data[:-9]), tmp_path / "s", metadata())


def test_files_that_make_no_table_are_told(tmp_path: Path) -> None:
    """They were passed over without a word."""
    source = folder(tmp_path, "t.csv", TEXT.encode())
    for name in ("orders.csv.bz2", "old.xlsx", "README.md", "metadata.json"):
        (source / name).write_bytes(b"x")
    (note,) = build(source, tmp_path / "s", metadata()).source_notes
    assert note.startswith("not read, as the files of tables end in .parquet, .csv")
    assert note.endswith(": old.xlsx, orders.csv.bz2")


def test_columns_of_the_files_of_a_table_are_joined_by_name(tmp_path: Path) -> None:
    parts = tmp_path / "csv" / "t"
    parts.mkdir(parents=True)
    (parts / "a.csv").write_text(TEXT)
    (parts / "b.csv").write_text("id,price,name\n4,1,x\n")
    assert rows(tmp_path, tmp_path / "csv", metadata()) == [*EXPECTED, [4, "x", 1.0]]


def test_every_fault_of_a_description_is_reported_with_the_others() -> None:
    document = metadata({"delimiter": ";;", "encoding": "utf8x", "skip": -1, "decimal": "x"})
    document["tables"]["t"]["csv"]["heder"] = True
    document["tables"]["t"]["primary_key"] = "ident"
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict(document)
    for part in (
        "'delimiter' of 'csv' of table 't' is ';;', expected one ASCII character",
        "'encoding' of 'csv' of table 't' is 'utf8x', which is unknown, did you mean 'utf-8'?",
        "'skip' of 'csv' of table 't' must be a count of lines",
        "'decimal' of 'csv' of table 't' is 'x'",
        "unknown key 'heder', did you mean 'header'?",
        "'primary_key' of table 't' names column 'ident', which is not there",
    ):
        assert part in str(caught.value)


DRAFTS: dict[str, tuple[bytes, CsvFormat]] = {
    "plain": (TEXT.encode(), CsvFormat()),
    "semicolons and decimal commas": (
        b"name;price\nA, B;1,5\nC;2,25\nD;3\n", CsvFormat(delimiter=";", decimal=","),
    ),
    "tabs without header": (
        b"1\tAda\t2020-01-01\n2\tBen\t2020-01-02\n", CsvFormat(header=False, delimiter="\t"),
    ),
    "codes without header": (
        b'"Boeing 737","737","B737"\n"Airbus A320","320","A320"\n"Embraer 170","E70","E170"\n',
        CsvFormat(header=False),
    ),
    "all texts": (b"name,city\nAda,Paris\nBen,Rome\nCy,Oslo\n", CsvFormat()),
    "latin-1": ("name,x\nZo\xeb,1\nJos\xe9,2\n".encode("latin-1"), CsvFormat(encoding="cp1252")),
    "utf-16": (TEXT.encode("utf-16"), CsvFormat(encoding="utf-16")),
    "a backslash before a quote": (
        b'id,name\n1,"a \\"b\\" c"\n2,"d"\n', CsvFormat(escape="\\"),
    ),
    "single quotes": (b"id,name\n1,'a, b'\n2,'c'\n3,'d'\n", CsvFormat(quote="'")),
    "lines before": (
        b"Report of today\nmade by hand\nid,name\n1,a\n2,b\n3,c\n4,d\n5,e\n", CsvFormat(skip=2),
    ),
    "an index of pandas": (
        b",id,name\n0,7,a\n1,8,b\n2,9,c\n", CsvFormat(columns=("column0", "id", "name")),
    ),
    "a name twice": (
        b"id,name,Name,\n1,a,b,\n2,c,d,\n",
        CsvFormat(columns=("id", "name", "Name_2", "column3")),
    ),
    "an empty cell without header": (
        b",abc,1\n7,abd,2\n8,abe,3\n", CsvFormat(header=False),
    ),
    "one column": (b'word\none\n"two, too"\n', CsvFormat()),
}  # fmt: skip


@pytest.mark.parametrize("way", DRAFTS)
def test_init_drafts_the_description(tmp_path: Path, way: str) -> None:
    data, expected = DRAFTS[way]
    source = folder(tmp_path, "t.csv", data)
    schema = infer(source)
    assert (schema.table("t").csv or CsvFormat()) == expected
    schema.save(tmp_path / "metadata.json")
    assert Schema.load(tmp_path / "metadata.json") == schema
    build(source, tmp_path / "s", tmp_path / "metadata.json")
    with Store(tmp_path / "s") as store:
        assert store.verify() == []


def test_csv_files_are_read_where_memory_is_short(tmp_path: Path) -> None:
    """DuckDB by itself wanted 1 GiB for the buffer of any CSV file."""
    source = folder(tmp_path, "t.csv", TEXT.encode())
    build(source, tmp_path / "small", metadata(), memory_limit="200MB")
    small = Store(tmp_path / "small").fingerprint
    assert small == build(source, tmp_path / "s", metadata()).fingerprint


def test_a_cell_past_the_limit_of_pythons_reader_is_read(tmp_path: Path) -> None:
    """`init`, and a build without a description, ended at 131,072 characters."""
    long = "x" * 200_000
    source = folder(tmp_path, "t.csv", f"id,name,price\n1,{long},2\n2,b,3\n".encode())
    before = csv.field_size_limit()
    assert infer(source).table("t").column("name").stype == "text"
    assert rows(tmp_path, source, metadata())[0][1] == long
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("size", [4_000_000, 20_000_000])
def test_a_line_too_long_for_the_memory_is_told(tmp_path: Path, size: int) -> None:
    text = f"id,name,price\n1,{'x' * size},2\n2,b,3\n"
    source = folder(tmp_path, "t.csv", text.encode())
    with pytest.raises(SourceError, match=r"t\.csv'.*a line is longer than the 3,1[0-9,]* bytes"):
        build(source, tmp_path / "s", metadata(), memory_limit="200MB", cache=False)


def test_what_is_wrong_in_the_metadata_is_told_before_a_file_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    """Only the file's encoding was told, which the metadata should have named."""
    (tmp_path / "t.csv").write_bytes("id;naam\n1;Zo\u00eb\n".encode("latin-1"))
    wrong = {"tables": {"t": {"primary_kye": "id", "columns": {"id": {"stype": "identifer"}}}}}
    with pytest.raises(SchemaError) as caught:
        build(tmp_path, tmp_path / "s", wrong)
    assert "'primary_kye'" in str(caught.value) and "'identifer'" in str(caught.value)
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(SchemaError, match="must be an object, found a list"):
        build(tmp_path, tmp_path / "s", tmp_path / "list.json")
