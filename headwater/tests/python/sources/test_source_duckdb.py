"""DuckDB files as a source: types, schemas, keys, errors."""

from __future__ import annotations

import struct
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from headwater.builder.build import build
from headwater.errors import SourceError
from headwater.inference.infer import infer
from headwater.metadata.selection import Selection
from headwater.sources.database import open_database
from headwater.sources.open import load_source
from headwater.sources.source import SourceData
from headwater.store.store import Store


def write(path: Path, script: str) -> str:
    with duckdb.connect(path) as connection:
        connection.execute(script)
    return f"duckdb:///{path}"


def read(source: str, tmp_path: Path, **selection: tuple[str, ...]) -> SourceData:
    with closing(open_database(tmp_path)) as connection:
        connection.execute("DROP SCHEMA IF EXISTS raw CASCADE")
        return load_source(source, connection, selection=Selection(**selection))


SHOP = """
    CREATE TABLE shops (city VARCHAR, number INTEGER, PRIMARY KEY (number, city));
    CREATE TABLE sales (id BIGINT PRIMARY KEY, city VARCHAR, number INTEGER, before BIGINT,
        FOREIGN KEY (number, city) REFERENCES shops (number, city),
        FOREIGN KEY (before) REFERENCES sales (id));
    INSERT INTO shops VALUES ('Rome', 1), ('Rome', 2);
    INSERT INTO sales VALUES (10, 'Rome', 2, NULL);
    INSERT INTO sales VALUES (11, 'Rome', NULL, 10);
    CREATE VIEW big AS SELECT id FROM sales WHERE id > 10;
    CREATE SCHEMA "old Times"; CREATE TABLE "old Times"."Select" ("from" INTEGER);
"""


def test_declared_keys_are_read(tmp_path: Path) -> None:
    source = write(tmp_path / "d.duckdb", SHOP)
    data = read(source, tmp_path)
    assert data.name == "d"
    assert [(table.name, table.primary_key) for table in data.tables] == [
        ("sales", ("id",)),
        ("shops", ("number", "city")),
    ]
    assert data.tables[0].foreign_keys == (
        (("number", "city"), "shops", ("number", "city")),
        (("before",), "sales", ("id",)),
    )
    assert data.notes == ("not read unless named with --table: view main.big",)
    build(source, tmp_path / "s")
    store = Store(tmp_path / "s")
    assert store.verify() == []
    sale, shop = store.find("sales", 10), store.find("shops", (2, "Rome"))
    assert shop in store.parents(sale)
    assert sale in store.parents(store.find("sales", 11))


def test_schemas_views_and_filters(tmp_path: Path) -> None:
    source = write(tmp_path / "d.duckdb", SHOP)
    data = read(source, tmp_path, schemas=("main", "old*"), excluded=("main.s*",))
    assert [table.name for table in data.tables] == ["old Times.Select"]
    assert data.tables[0].column_names() == ["from"]
    data = read(source, tmp_path, tables=("big", "sales"))
    assert [(table.name, table.row_count) for table in data.tables] == [("big", 1), ("sales", 2)]
    assert data.notes == ("foreign key sales.number+city leads to main.shops, which is not read",)
    with pytest.raises(SourceError, match="no schema 'mian', did you mean 'main'"):
        read(source, tmp_path, schemas=("mian",))
    with pytest.raises(SourceError, match=r"--table 'sale' matches no table of .*d.duckdb"):
        read(source, tmp_path, tables=("sale",))


def test_its_own_types(tmp_path: Path) -> None:
    """Whatever has a place in a store is found to be what it is; the rest is ignored."""
    source = write(tmp_path / "d.duckdb", """
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE TABLE t AS SELECT * FROM (VALUES
            (1, '170141183460469231731687303715884105727'::HUGEINT, 1.25::DECIMAL(9, 4),
             'ok'::mood, [1, 2], {'a': 1}, MAP {'k': 1},
             'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID,
             INTERVAL 2 DAYS, TIMESTAMP_NS '2020-01-01 00:00:00.123456789',
             TIMESTAMP_S '2020-01-01 00:00:01', TIMESTAMP_MS '2020-01-01 00:00:00.5',
             TIMESTAMPTZ '2020-01-01 02:00:00+02', '1010'::BIT, 'x'::BLOB, TIME '12:00', 1.5::FLOAT)
            ) AS v(amount, huge, price, mood, list, struct, map, uuid, span, ns, s, ms, tz, bits,
                   blob, clock, real)""")  # fmt: skip
    schema = infer(source)
    table = schema.tables[0]
    found = {column.name: column.stype for column in table.columns}
    assert found.pop("uuid") in ("text", "identifier")
    assert found == {
        "amount": "numerical", "huge": "numerical", "price": "numerical", "mood": "categorical",
        "list": "ignored", "struct": "ignored", "map": "ignored",
        "span": "numerical", "ns": "timestamp", "s": "timestamp", "ms": "timestamp",
        "tz": "timestamp", "bits": "ignored", "blob": "ignored", "clock": "numerical",
        "real": "numerical",
    }  # fmt: skip
    document = schema.to_dict()
    for name in ("list", "struct", "bits", "blob"):
        document["tables"]["t"]["columns"][name] = {"stype": "text"}
    build(source, tmp_path / "s", document)
    store = Store(tmp_path / "s")
    cells = store.row(0)["cells"]
    assert cells["span"] == 2 * 86_400 and cells["clock"] == 43_200 and cells["price"] == 1.25
    assert cells["huge"] == pytest.approx(2.0**127, rel=1e-6)
    assert cells["ns"] == datetime(2020, 1, 1, 0, 0, 0, 123456, UTC)
    assert cells["tz"] == datetime(2020, 1, 1, tzinfo=UTC)
    assert (cells["list"], cells["struct"]) == ("[1, 2]", "{'a': 1}")
    assert (cells["bits"], cells["blob"]) == ("1010", "78")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no DuckDB file '.*none.duckdb'"):
        infer(f"duckdb:///{tmp_path}/none.duckdb")
    (tmp_path / "text.duckdb").write_text("x" * 20_000)
    with pytest.raises(SourceError, match=r"cannot read the DuckDB file '.*text.duckdb'"):
        infer(f"duckdb:///{tmp_path}/text.duckdb")
    empty = write(tmp_path / "empty.duckdb", "SELECT 1")
    with pytest.raises(
        SourceError, match=r"schema 'main' of '.*empty.duckdb' has no tables to read"
    ):
        infer(empty)
    with pytest.raises(SourceError, match="write 'duckdb:///"):
        infer(tmp_path / "empty.duckdb")


HEADERS = (0, 4096, 8192)  # each of 4,096 bytes, the first 8 of them its checksum
ADVICE = (
    "with the newer DuckDB, copy it to a file that is attached with (STORAGE_VERSION 'v1.5.0'), or "
    "run EXPORT DATABASE 'folder' (FORMAT parquet) and read the folder"
)


def sealed(file: bytearray) -> bytearray:
    """The file with the checksums that its headers should have, as DuckDB computes them."""
    for start in HEADERS:
        total = 5381
        for word in struct.unpack("<511Q", file[start + 8 : start + 4096]):
            total ^= word * 0xBF58476D1CE4E5B9 % 2**64
        struct.pack_into("<Q", file, start, total)
    return file


def as_written_by(
    path: Path, library: bytes, *, first: int, second: int | None = None
) -> bytearray:
    """A file of the installed DuckDB, with the versions that another one writes into its headers:
    its own name, the storage version of the first header and that of the two others."""
    write(path, "CREATE TABLE t (a INTEGER)")
    file = bytearray(path.read_bytes())
    assert sealed(bytearray(file)) == file
    struct.pack_into("<Q", file, 12, first)
    struct.pack_into("32s", file, 52, library)
    for start in HEADERS[1:] if second is not None else ():
        struct.pack_into("<Q", file, start + 56, second)
    return file


@pytest.mark.parametrize(
    ("library", "first", "second", "writer"),
    [
        (b"v2.0.1", 999, 69, "DuckDB v2.0.1"),  # what DuckDB 2.0.1 writes
        (b"v2.0.1", 65, 69, "DuckDB v2.0.1"),  # ... into a file that DuckDB 1.5 had made
        (b"v2.1.0-dev17", 70, None, "DuckDB v2.1.0-dev17"),
        (b"", 70, None, "a newer DuckDB (storage version 70)"),
        (b"v1.0.0", 70, None, "a newer DuckDB (storage version 70)"),
        (b"v2.0.1\x1b[2J", 70, None, "a newer DuckDB (storage version 70)"),
        (b"v2.0.1\nv3", 70, None, "a newer DuckDB (storage version 70)"),
        (b"\xff\xfe", 70, None, "a newer DuckDB (storage version 70)"),
    ],
)
def test_a_file_of_a_newer_duckdb_gets_one_line_with_both_versions_and_what_to_do(
    tmp_path: Path, library: bytes, first: int, second: int | None, writer: str
) -> None:
    path = tmp_path / "new.duckdb"
    path.write_bytes(sealed(as_written_by(path, library, first=first, second=second)))
    for read_it in (infer, lambda source: build(source, tmp_path / "s")):
        with pytest.raises(SourceError) as raised:
            read_it(f"duckdb:///{path}")
        assert str(raised.value) == (
            f"cannot read the DuckDB file '{path}': {writer} wrote it in a form that the installed "
            f"DuckDB v{duckdb.__version__} cannot read; {ADVICE}"
        )


def test_a_damaged_file_of_a_newer_duckdb_is_not_taken_for_one_that_is_only_newer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.duckdb"
    unsealed = as_written_by(path, b"v2.0.1", first=999, second=69)
    whole = sealed(bytearray(unsealed))
    older = as_written_by(tmp_path / "old.duckdb", b"", first=51)
    wounds = [
        (unsealed, "Corrupt database file"),
        (whole[:100], "Could not read enough bytes"),
        (b"DUCK" + whole[4:8] + b"DUCT" + whole[12:], "Corrupt database file|not a valid DuckDB"),
        (sealed(older), "with version number 51, but we can only read versions between"),
    ]
    for content, message in wounds:
        path.write_bytes(content)
        with pytest.raises(SourceError, match=message) as raised:
            infer(f"duckdb:///{path}")
        assert "newer DuckDB" not in str(raised.value)


def test_a_file_that_a_newer_duckdb_wrote_for_an_older_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new.duckdb"
    path.write_bytes(sealed(as_written_by(path, b"v2.0.1", first=68, second=7)))
    assert [table.name for table in infer(f"duckdb:///{path}").tables] == ["t"]


def test_the_file_stays_as_it_was(tmp_path: Path) -> None:
    source = write(tmp_path / "d.duckdb", SHOP)
    before = (tmp_path / "d.duckdb").read_bytes()
    build(source, tmp_path / "s")
    assert (tmp_path / "d.duckdb").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["d.duckdb", "s"]
