"""The same data from another source gives the same store, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from databases import (
    EXAMPLES,
    TinyDatabase,
    arrow_tables,
    bookstore,
    bookstore_metadata,
    generated,
    generated_metadata,
    pandas_tables,
    polars_tables,
    shared_data,
    write_csv,
    write_duckdb,
    write_parquet,
    write_postgres,
    write_sqlite,
)
from headwater.builder.build import build
from headwater.inference.infer import infer
from headwater.metadata.schema import Schema
from headwater.store.store import Store
from postgres_server import PostgresServer

KINDS = ("sqlite", "postgres", "duckdb", "parquet", "csv", "pandas", "polars", "lazy", "arrow",
         "streams")  # fmt: skip


def written(kind: str, tmp_path: Path, database: TinyDatabase, postgres: Any) -> Any:
    """A database as a source of a kind."""
    if kind == "postgres":
        return write_postgres(postgres, database)
    if kind == "lazy":
        return {name: table.lazy() for name, table in polars_tables(database).items()}
    if kind == "streams":
        tables = arrow_tables(database)
        return {name: table.to_reader for name, table in tables.items()}
    writers: dict[str, Any] = {
        "sqlite": lambda: write_sqlite(tmp_path / "d.sqlite", database),
        "duckdb": lambda: write_duckdb(tmp_path / "d.duckdb", database),
        "parquet": lambda: write_parquet(tmp_path / "parquet", database),
        "csv": lambda: write_csv(tmp_path / "csv", database),
        "pandas": lambda: pandas_tables(database),
        "polars": lambda: polars_tables(database),
        "arrow": lambda: arrow_tables(database),
    }
    return writers[kind]()


def files(store: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(store)): file.read_bytes()
        for file in sorted(store.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


@pytest.mark.parametrize("kinds", [[k for k in KINDS if k != "postgres"], ["sqlite", "postgres"]])
@pytest.mark.parametrize("name", ["generated", "bookstore"])
def test_every_kind_of_source_gives_the_same_bytes(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, kinds: list[str]
) -> None:
    postgres = request.getfixturevalue("postgres") if "postgres" in kinds else None
    made = {
        "generated": (generated(7, 400), generated_metadata()),
        "bookstore": (bookstore(), bookstore_metadata()),
    }
    database, metadata = made[name]
    stores = {}
    for kind in kinds:
        source = written(kind, tmp_path, database, postgres)
        report = build(source, tmp_path / f"{kind}.hw", metadata)
        assert report.conversions == (), kind
        stores[kind] = files(tmp_path / f"{kind}.hw")
    assert Store(tmp_path / "sqlite.hw").verify() == []
    differing = {
        kind: [
            file
            for file in stores["sqlite"] | found
            if stores["sqlite"].get(file) != found.get(file)
        ]
        for kind, found in stores.items()
    }
    assert differing == {kind: [] for kind in kinds}


# ---- Chinook, from two dumps that spell their names differently --------------------------------


# Where a document refers to tables and columns by name.
REFERENCES = ("primary_key", "temporal_column", "foreign_key", "taken_from", "known_at", "columns",
              "table")  # fmt: skip


def respelled(name: str) -> str:
    """`SupportRepId` as Chinook's script for PostgreSQL spells it: `support_rep_id`."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


def respelled_document(document: dict[str, Any]) -> dict[str, Any]:
    """A metadata.json with every table and column respelled."""

    def walk(entry: Any, place: str) -> Any:
        if isinstance(entry, dict):
            has_names = place in ("tables", "columns")
            return {
                respelled(key) if has_names else key: walk(value, "" if has_names else key)
                for key, value in entry.items()
            }
        if isinstance(entry, list):
            return [walk(item, place) for item in entry]
        return respelled(entry) if place in REFERENCES else entry

    return {name: walk(entry, name) for name, entry in document.items()}


def plain_document(schema: Schema) -> dict[str, Any]:
    """A schema's tables, without what people are told of them."""
    tables = schema.to_dict()["tables"]
    for table in tables.values():
        for entry in (table, *table["columns"].values()):
            entry.pop("note", None)
    return {"name": "chinook", "tables": tables}


@pytest.fixture(scope="module")
def chinook(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Schema, Store]]:
    """Schema as inferred and store of Chinook, by kind of source."""
    data, folder = shared_data("chinook"), tmp_path_factory.mktemp("chinook")
    script = (data / "Chinook_PostgreSql.sql").read_text()
    name = postgres.database(script.partition("\\c chinook;")[2])
    sources = {
        "sqlite": f"sqlite:///{data / 'Chinook_Sqlite.sqlite'}",
        "postgres": postgres.address(name),
    }
    schemas = {kind: infer(source) for kind, source in sources.items()}
    document = plain_document(schemas["sqlite"])
    documents = {"sqlite": document, "postgres": respelled_document(document)}
    made = {}
    for kind, source in sources.items():
        build(source, folder / kind, documents[kind])
        made[kind] = (schemas[kind], Store(folder / kind))
    return made


def test_chinook_has_the_same_types_and_keys_from_both(
    chinook: dict[str, tuple[Schema, Store]],
) -> None:
    """As inferred from each: PostgreSQL declares what SQLite's texts are found to be."""
    expected = respelled_document(plain_document(chinook["sqlite"][0]))["tables"]
    found = plain_document(chinook["postgres"][0])["tables"]
    for table in expected.values():
        table.pop("time_resolution", None)  # of texts; a timestamp column says it by its type
    assert {name: found[name] for name in expected} == expected
    assert len(found) == 11


def test_chinook_has_the_same_rows_edges_and_values_from_both(
    chinook: dict[str, tuple[Schema, Store]],
) -> None:
    """All but a blank: the script for PostgreSQL writes its texts as N'...', which is of the type
    char, and so loses the one at the end of 'Edinburgh ' before it is stored."""
    left, right = chinook["sqlite"][1], chinook["postgres"][1]
    assert left.verify() == right.verify() == []
    ends = [table["row_range"] for table in left.metadata["tables"]]
    assert ends == [table["row_range"] for table in right.metadata["tables"]]
    assert ends[-1][1] == 15_607
    trimmed = 0
    for row in range(ends[-1][1]):
        one, other = left.row(row), right.row(row)
        assert respelled(one["table"]) == other["table"]
        cells = {respelled(name): value for name, value in one["cells"].items()}
        for name in ("city", "billing_city"):
            if cells.get(name) == "Edinburgh ":
                cells[name], trimmed = "Edinburgh", trimmed + 1
        assert cells == other["cells"]
        assert one["time"] == other["time"]
        assert list(left.parents(row)) == list(right.parents(row))
    assert trimmed == 8
    edges = [key["edges"] for table in left.metadata["tables"] for key in table["foreign_keys"]]
    assert edges == [
        key["edges"] for table in right.metadata["tables"] for key in table["foreign_keys"]
    ]
    assert len(edges) == 11 and sum(edges) > 30_000
    one, other = (
        json.dumps([column["stats"] for column in store.metadata["columns"]])
        for store in (left, right)
    )
    assert one.replace("Edinburgh ", "Edinburgh") == other


def test_chinooks_example_for_postgresql_builds_on_a_server(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """As `examples/chinook.json` does from the SQLite file: rows, edges, types, seeds."""
    data = shared_data("chinook")
    script = (data / "Chinook_PostgreSql.sql").read_text()
    address = postgres.address(postgres.database(script.partition("\\c chinook;")[2]))
    build(address, tmp_path / "postgres", EXAMPLES / "chinook-postgresql.json")
    lite = f"sqlite:///{data / 'Chinook_Sqlite.sqlite'}"
    build(lite, tmp_path / "sqlite", EXAMPLES / "chinook.json")
    with Store(tmp_path / "postgres") as one, Store(tmp_path / "sqlite") as other:
        assert one.verify() == []
        for left, right in zip(one.metadata["tables"], other.metadata["tables"], strict=True):
            assert left["name"] == respelled(right["name"])
            for fact in ("row_range", "column_range", "time_resolution", "null_time"):
                assert left[fact] == right[fact]
            keys = [[key["edges"] for key in side["foreign_keys"]] for side in (left, right)]
            assert keys[0] == keys[1]
        stypes = [[c["stype"] for c in s.metadata["columns"]] for s in (one, other)]
        assert stypes[0] == stypes[1]
        tasks = [task["name"] for task in one.metadata["tasks"]]
        for left, right in zip(tasks, other.metadata["tasks"], strict=True):
            found, expected = one.task_seeds(left), other.task_seeds(right["name"])
            assert len(found["target"]) > 400
            for fact in ("anchor_row", "obs_time", "target"):
                assert found[fact].tolist() == expected[fact].tolist()
