"""PostgreSQL as a source, against a real server: types, snapshot, selection, keys, errors."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.errors import SourceError
from headwater.inference.infer import infer
from headwater.metadata.selection import Selection
from headwater.sources.database import open_database
from headwater.sources.open import load_source
from headwater.sources.postgres import check_address
from headwater.sources.source import SourceData, SourceTable
from headwater.store.store import Store
from postgres_server import PostgresServer

Read = Callable[..., SourceData]
SECRET = "hunter2-s3cret"


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Read]:
    """Reads a source into the `raw` tables of `read.connection`."""
    with closing(open_database(tmp_path)) as connection:

        def load(source: str, **selection: tuple[str, ...]) -> SourceData:
            connection.execute("DROP SCHEMA IF EXISTS raw CASCADE")
            return load_source(source, connection, selection=Selection(**selection))

        load.connection = connection  # type: ignore[attr-defined]
        yield load


def column(read: Any, data: SourceData, name: str) -> tuple[str, list[str | None]]:
    """Type and values (as text) of a column of the only table, in the table's order."""
    (table,) = data.tables
    j = table.column_names().index(name)
    query = f"SELECT CAST(c{j} AS VARCHAR) FROM raw.t{table.index}"
    return table.columns[j].type, [row[0] for row in read.connection.execute(query).fetchall()]


def keys_of(data: SourceData) -> dict[str, Any]:
    return {table.name: table.foreign_keys for table in data.tables if table.foreign_keys}


def named(data: SourceData, name: str) -> SourceTable:
    return next(table for table in data.tables if table.name == name)


# ---- types -----------------------------------------------------------------------------------

# Type, values, and what arrives: DuckDB's type and the values' texts. NULL follows every value.
TYPES: list[tuple[str, list[str], str, list[str]]] = [
    ("bool", ["true"], "BOOLEAN", ["true"]),
    ("int2", ["-32768"], "SMALLINT", ["-32768"]),
    ("int8", ["9223372036854775807"], "BIGINT", ["9223372036854775807"]),
    ("oid", ["4294967295"], "BIGINT", ["4294967295"]),
    ("float4", ["'0.1'", "'NaN'"], "FLOAT", ["0.1", "nan"]),
    ("float8", ["'0.1'", "'-Infinity'"], "DOUBLE", ["0.1", "-inf"]),
    ("numeric(10, 2)", ["12.5"], "DECIMAL(10,2)", ["12.50"]),
    # Not a number is no DECIMAL; few digits are exact in a double.
    ("numeric(10, 2)", ["12.5", "'NaN'"], "DOUBLE", ["12.5", "nan"]),
    ("numeric", ["0.001", "-120"], "DECIMAL(6,3)", ["0.001", "-120.000"]),
    ("numeric", ["'1e30'", "0.5"], "DECIMAL(32,1)", [f"1{'0' * 30}.0", "0.5"]),
    ("numeric", ["'1e60'"], "VARCHAR", ["1" + "0" * 60]),
    ("numeric", ["12345678901234567.5", "'NaN'"], "VARCHAR", ["12345678901234567.5", "NaN"]),
    ("numeric(3, -2)", ["12345"], "DECIMAL(5,0)", ["12300"]),
    ("numeric(50, 40)", ["1.5"], "VARCHAR", ["1.5" + "0" * 39]),
    ("money", ["12.34"], "DECIMAL(19,2)", ["12.34"]),
    ("text", ["''", "'ä😀'"], "VARCHAR", ["", "ä😀"]),
    ("varchar(5)", ["'ab '"], "VARCHAR", ["ab "]),
    ("char(5)", ["'ab'"], "VARCHAR", ["ab"]),  # PostgreSQL: the padding is not part of the value
    ("name", ["'n'"], "VARCHAR", ["n"]),
    ("uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"], "UUID",
     ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("json", ["'{\"a\":  1}'"], "VARCHAR", ['{"a":  1}']),
    ("jsonb", ["'{\"a\":  1}'"], "VARCHAR", ['{"a": 1}']),
    ("bytea", [r"'\x00ff'"], "BLOB", [r"\x00\xFF"]),
    ("inet", ["'10.0.0.1'", "'10.0.0.0/8'"], "VARCHAR", ["10.0.0.1", "10.0.0.0/8"]),
    ("cidr", ["'10.0.0.0/8'"], "VARCHAR", ["10.0.0.0/8"]),
    ("bit(3)", ["B'101'"], "VARCHAR", ["101"]),
    ("int4range", ["'[1,5)'"], "VARCHAR", ["[1,5)"]),
    ("point", ["'(1,2)'"], "VARCHAR", ["(1,2)"]),
    ("xml", ["'<a/>'"], "VARCHAR", ["<a/>"]),
    ("timetz", ["'10:00+02'"], "VARCHAR", ["10:00:00+02"]),
    ("time", ["'24:00'", "'10:11:12.000001'"], "TIME", ["24:00:00", "10:11:12.000001"]),
    ("date", ["'2020-02-29'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'5874897-12-31'"],
     "DATE", ["2020-02-29", "infinity", "-infinity", "0044-03-15 (BC)", "infinity"]),
    ("timestamp", ["'9999-12-31 23:59:59.999999'", "'infinity'", "'-infinity'",
                   "'294276-12-31 23:59:59'", "'4713-01-02 BC'"],
     "TIMESTAMP", ["9999-12-31 23:59:59.999999", "infinity", "-infinity", "infinity",
                   "4713-01-02 (BC) 00:00:00"]),
    ("timestamptz", ["'2020-07-01 12:00+02'", "'infinity'"], "TIMESTAMP WITH TIME ZONE",
     ["2020-07-01 10:00:00+00", "infinity"]),
    ("interval", ["'1 year 2 mons -3 days 04:05:06.789'", "'3000000 hours'", "'-1 microsecond'"],
     "INTERVAL", ["1 year 2 months -3 days 04:05:06.789", "3000000:00:00", "-00:00:00.000001"]),
    ("int4[]", ["'{1,NULL,3}'", "'{}'", "'[0:1]={5,6}'"], "INTEGER[]",
     ["[1, NULL, 3]", "[]", "[5, 6]"]),
    ("int4[]", ["'{1}'", "'{{1,2},{3,4}}'"], "VARCHAR", ["[1]", "[[1, 2], [3, 4]]"]),
    ("text[]", ["'{a,b}'"], "VARCHAR[]", ["[a, b]"]),
    ("numeric[]", ["'{1.50}'"], "VARCHAR[]", ["[1.50]"]),
    ("mood", ["'ok'", "'sad'"], "ENUM('sad', 'ok', 'it''s {0}')", ["ok", "sad"]),
    ("mood[]", ["'{ok,sad}'"], "VARCHAR[]", ["[ok, sad]"]),
    ("price", ["3.1"], "DECIMAL(8,3)", ["3.100"]),
    ("dear", ["3.1"], "DECIMAL(8,3)", ["3.100"]),
    ("pair", ["'(1,b)'"], "VARCHAR", ["(1,b)"]),
    ('odd."numeric"', ["'own'"], "ENUM('own')", ["own"]),
]  # fmt: skip


def test_every_type_arrives_as_it_is(postgres: PostgresServer, read: Read) -> None:
    """The driver alone wraps infinity to the year -290279, gives money without its point, refuses
    long intervals, flattens arrays of arrays, and gives bytes for what it does not know."""
    script = [
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s {0}');",
        "CREATE DOMAIN price AS numeric(8, 3) CHECK (value > 0); CREATE DOMAIN dear AS price;",
        "CREATE TYPE pair AS (a int, b text);",
        "CREATE SCHEMA odd; CREATE TYPE odd.\"numeric\" AS ENUM ('own');",
        f"CREATE TABLE t ({', '.join(f'v{i} {kind}' for i, (kind, *_) in enumerate(TYPES))});",
    ]
    for place in range(max(len(values) for _, values, *_ in TYPES) + 1):
        listed = [values[place] if place < len(values) else "NULL" for _, values, *_ in TYPES]
        script.append(f"INSERT INTO t VALUES ({', '.join(listed)});")
    data = read(postgres.address(postgres.database("\n".join(script))))
    wrong = []
    for i, (kind, _, expected_type, expected) in enumerate(TYPES):
        found_type, found = column(read, data, f"v{i}")
        if found_type != expected_type or found != expected + [None] * (len(found) - len(expected)):
            wrong.append((kind, found_type, found))
    assert wrong == []


def test_infinite_and_impossible_values_become_null_and_are_counted(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    script = """
        CREATE TABLE t (id int PRIMARY KEY, at timestamp, day date, n numeric(6, 2));
        INSERT INTO t VALUES (1, 'infinity', '-infinity', 'NaN'), (2, '2020-01-01', NULL, 2.5),
            (3, '290000-01-01', '9999-12-31', 7);"""
    source = postgres.address(postgres.database(script))
    report = build(source, tmp_path / "s")
    assert {(c.column, c.count, c.example) for c in report.conversions} == {
        ("at", 2, "infinity"), ("day", 1, "-infinity"), ("n", 1, "nan"),
    }  # fmt: skip
    store = Store(tmp_path / "s")
    cells = [store.row(store.find("t", key))["cells"] for key in (1, 2, 3)]
    assert cells[2]["day"] == datetime(9999, 12, 31, tzinfo=UTC)
    assert [cell["n"] for cell in cells] == [None, 2.5, 7.0]


def test_a_wide_numeric_key_is_exact(postgres: PostgresServer, tmp_path: Path) -> None:
    script = """
        CREATE TABLE p (id numeric PRIMARY KEY);
        INSERT INTO p VALUES (100000000000000000001), (100000000000000000002);
        CREATE TABLE c (id int PRIMARY KEY, p numeric REFERENCES p);
        INSERT INTO c VALUES (1, 100000000000000000002), (2, 100000000000000000001);"""
    build(postgres.address(postgres.database(script)), tmp_path / "s")
    store = Store(tmp_path / "s")
    for child, parent in ((1, "100000000000000000002"), (2, "100000000000000000001")):
        (row,) = store.parents(store.find("c", child))
        assert store.row(int(row))["key"]["id"] == parent


def test_an_enum_is_categorical_and_an_array_is_ignored(postgres: PostgresServer) -> None:
    """By values alone an enum of three rows would be text."""
    script = """
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE TABLE t (id int PRIMARY KEY, m mood, a int[]);
        INSERT INTO t VALUES (1, 'ok', '{1}'), (2, 'sad', '{}'), (3, 'ok', NULL);"""
    schema = infer(postgres.address(postgres.database(script)))
    stypes = {column.name: column.stype for column in schema.tables[0].columns}
    assert stypes == {"id": "identifier", "m": "categorical", "a": "ignored"}


# ---- tables and keys -------------------------------------------------------------------------

SCHEMAS = """
    CREATE SCHEMA crm; CREATE SCHEMA "Odd Name"; CREATE SCHEMA tenant_a; CREATE SCHEMA tenant_b;
    CREATE TABLE crm.customers (id int PRIMARY KEY, name text);
    CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES crm.customers, n int);
    CREATE TABLE "Odd Name"."Select" ("Group" int, "or""der" text, "a.b" date,
        PRIMARY KEY ("or""der", "Group"));
    CREATE TABLE "Odd Name".lines (id int PRIMARY KEY, g int, o text,
        FOREIGN KEY (o, g) REFERENCES "Odd Name"."Select");
    CREATE TABLE tenant_a.t (id int); CREATE TABLE tenant_b.t (id int);
    CREATE VIEW big_orders AS SELECT id, n FROM orders WHERE n > 5;
    CREATE MATERIALIZED VIEW sums AS SELECT sum(n) AS s FROM orders;
    INSERT INTO crm.customers VALUES (1, 'Ada');
    INSERT INTO orders VALUES (10, 1, 3), (11, NULL, 9);
    INSERT INTO "Odd Name"."Select" VALUES (1, 'x', '2020-01-01');
    INSERT INTO "Odd Name".lines VALUES (5, 1, 'x'), (6, 2, NULL);
"""


@pytest.fixture(scope="module")
def schemas(postgres: PostgresServer) -> str:
    return postgres.address(postgres.database(SCHEMAS))


def test_public_is_read_and_keys_that_lead_out_are_told(schemas: str, read: Read) -> None:
    data = read(schemas)
    assert [table.name for table in data.tables] == ["orders"]
    assert data.tables[0].primary_key == ("id",)
    assert data.notes == (
        "not read unless named with --table: view public.big_orders, materialized view public.sums",
        "foreign key orders.customer leads to crm.customers, which is not read",
    )


def test_foreign_keys_cross_schemas(schemas: str, read: Read) -> None:
    data = read(schemas, schemas=("public", "crm"))
    assert [table.name for table in data.tables] == ["crm.customers", "public.orders"]
    assert keys_of(data) == {"public.orders": ((("customer",), "crm.customers", ("id",)),)}


def test_quoted_names_and_composite_keys(schemas: str, read: Read, tmp_path: Path) -> None:
    data = read(schemas, schemas=("Odd Name",))
    assert [table.name for table in data.tables] == ["Select", "lines"]
    assert named(data, "Select").column_names() == ["Group", 'or"der', "a.b"]
    assert named(data, "Select").primary_key == ('or"der', "Group")
    assert keys_of(data) == {"lines": ((("o", "g"), "Select", ('or"der', "Group")),)}
    build(schemas, tmp_path / "s", schemas=["Odd Name"])
    store = Store(tmp_path / "s")
    assert store.verify() == []
    assert list(store.parents(store.find("lines", 5))) == [store.find("Select", ("x", 1))]


def test_schemas_and_tables_are_chosen_by_patterns(schemas: str, read: Read) -> None:
    data = read(schemas, schemas=("tenant_*",))
    assert [table.name for table in data.tables] == ["tenant_a.t", "tenant_b.t"]
    data = read(schemas, schemas=("tenant_*",), excluded=("*_a.t",))
    assert [table.name for table in data.tables] == ["tenant_b.t"]
    data = read(schemas, tables=("o*", "big_orders"))
    assert [table.name for table in data.tables] == ["big_orders", "orders"]
    assert data.tables[0].row_count == 1


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"schemas": ("publik",)}, "no schema 'publik', did you mean 'public'?"),
        ({"tables": ("order",)}, "--table 'order' matches no table .* did you mean 'orders'?"),
        ({"excluded": ("tmp_*",)}, "--exclude-table 'tmp_[*]' matches no table"),
        ({"tables": ("orders",), "excluded": ("orders",)}, "'public' .* has no tables to read"),
    ],
)
def test_a_filter_that_matches_nothing_is_an_error(
    schemas: str, read: Read, selection: dict[str, Any], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        read(schemas, **selection)


def test_a_partitioned_table_is_one_and_inheritance_is_not(
    postgres: PostgresServer, read: Read
) -> None:
    script = """
        CREATE TABLE kinds (id int PRIMARY KEY);
        INSERT INTO kinds VALUES (1);
        CREATE TABLE events (id int, at date, kind int REFERENCES kinds, PRIMARY KEY (id, at))
            PARTITION BY RANGE (at);
        CREATE TABLE events_2020 PARTITION OF events
            FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
        CREATE TABLE events_rest PARTITION OF events DEFAULT;
        INSERT INTO events VALUES (1, '2020-05-05', 1), (2, '2022-05-05', 1);
        CREATE TABLE notes (id int PRIMARY KEY, event int, at date,
            FOREIGN KEY (event, at) REFERENCES events);
        CREATE TABLE animals (id int PRIMARY KEY);
        CREATE TABLE cats (lives int) INHERITS (animals);
        INSERT INTO animals VALUES (1); INSERT INTO cats VALUES (2, 9), (3, 9);"""
    data = read(postgres.address(postgres.database(script)))
    assert {table.name: table.row_count for table in data.tables} == {
        "animals": 1, "cats": 2, "events": 2, "kinds": 1, "notes": 0,
    }  # fmt: skip
    assert named(data, "events").primary_key == ("id", "at")
    assert keys_of(data) == {
        "events": ((("kind",), "kinds", ("id",)),),
        "notes": ((("event", "at"), "events", ("id", "at")),),
    }


def test_generated_dropped_and_no_columns(postgres: PostgresServer, read: Read) -> None:
    script = """
        CREATE TABLE t (a int, gone int, b int GENERATED ALWAYS AS (a * 2) STORED);
        ALTER TABLE t DROP COLUMN gone;
        INSERT INTO t VALUES (3);
        CREATE TABLE bare ();"""
    data = read(postgres.address(postgres.database(script)))
    assert data.tables[0].column_names() == ["a", "b"]
    assert column(read, data, "b") == ("INTEGER", ["6"])
    assert data.notes == ("tables without columns are left out: public.bare",)


def test_tables_of_extensions_are_not_the_users(postgres: PostgresServer, read: Read) -> None:
    script = "CREATE TABLE mine (id int); CREATE TABLE theirs (id int);"
    script += "ALTER EXTENSION plpgsql ADD TABLE theirs;"
    data = read(postgres.address(postgres.database(script)))
    assert [table.name for table in data.tables] == ["mine"]


# ---- one snapshot ----------------------------------------------------------------------------


def test_all_tables_are_of_one_moment(postgres: PostgresServer, tmp_path: Path) -> None:
    """Rows that are added, and columns that are dropped, while the tables are read."""
    script = "".join(f"CREATE TABLE t{i} (id int); INSERT INTO t{i} VALUES (1);" for i in (1, 2))
    name = postgres.database(script)

    def meddle(table: str) -> None:
        if table == "t1":
            postgres.psql(name, "INSERT INTO t1 VALUES (2); INSERT INTO t2 VALUES (2)")

    with closing(open_database(tmp_path)) as connection:
        data = load_source(postgres.address(name), connection, tell=meddle)
    assert [table.row_count for table in data.tables] == [1, 1]


def test_the_connection_can_write_nothing(postgres: PostgresServer, read: Read) -> None:
    """A view may call a function that writes: the transaction refuses it."""
    script = """
        CREATE TABLE log (id int);
        CREATE FUNCTION sly() RETURNS int LANGUAGE sql
            AS 'INSERT INTO public.log VALUES (1) RETURNING 1';
        CREATE VIEW v AS SELECT sly() AS id;"""
    with pytest.raises(SourceError, match=r"table 'public.v' .* in a read-only transaction"):
        read(postgres.address(postgres.database(script)), tables=("v",))


def test_rows_that_a_policy_hides_are_an_error(postgres: PostgresServer, read: Read) -> None:
    name = postgres.database("""
        CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2);
        ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (id = 1);
        DROP ROLE IF EXISTS partial; CREATE ROLE partial LOGIN; GRANT SELECT ON t TO partial;""")
    with pytest.raises(SourceError, match=r"'public.t' .* row-level security"):
        read(postgres.address(name, "partial"))


# ---- credentials -----------------------------------------------------------------------------


@pytest.fixture
def protected(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database behind a password."""
    name = postgres.database(f"""
        CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x');
        CREATE ROLE guarded LOGIN PASSWORD '{SECRET}'; GRANT SELECT ON t TO guarded;""")
    yield postgres.loopback(name, "guarded")
    postgres.psql(name, "DROP OWNED BY guarded; DROP ROLE guarded")


def test_the_password_comes_from_the_environment_and_is_written_nowhere(
    protected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    assert main(["init", protected, "-o", "m.json"]) == 0
    assert main(["build", protected, "s", "--metadata", "m.json"]) == 0
    assert main(["build", protected, "s2", "--json"]) == 0
    output = capfd.readouterr()
    said = output.out + output.err + caplog.text
    assert "s2" in said and SECRET not in said
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 5
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


def test_the_password_comes_from_the_password_file(
    protected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    read: Read,
) -> None:  # fmt: skip
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:*:*:guarded:{SECRET}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    assert read(protected).tables[0].row_count == 1


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://guarded:{SECRET}@127.0.0.1/db",
        f"postgresql://guarded:{SECRET}/x@127.0.0.1/db",
        f"postgresql://guarded:{SECRET}?x@127.0.0.1/db",
        f"postgresql://guarded:{SECRET}@x@127.0.0.1/db",
        f"postgresql://guarded:{SECRET}#x@127.0.0.1/db",
        f"postgresql://127.0.0.1:{SECRET}/db",
        f"postgres://127.0.0.1/db?user=x&password={SECRET}",
        f"postgresql://127.0.0.1/db?pass%77ord={SECRET}",
        f"postgresql://127.0.0.1/db?sslpassword={SECRET}",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_repeated(
    address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", address, str(tmp_path / "s")]) == 1
    output = capfd.readouterr()
    assert "set PGPASSWORD" in output.err
    assert SECRET not in output.out + output.err


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://",
        "postgresql:///db",
        "postgresql://ada@localhost:5432/shop?sslmode=require&application_name=a",
        "postgresql://ada%40corp@[::1]:5432/shop",
        "postgresql://a@h1:1,h2:2/db?target_session_attrs=any&user=me@corp",
        "postgresql:///db?host=/var/run/postgresql",
    ],
)
def test_addresses_without_a_password_pass(address: str) -> None:
    check_address(address)


# ---- errors ----------------------------------------------------------------------------------


def refused(source: str, **selection: tuple[str, ...]) -> str:
    """The message of a source that cannot be read."""
    with pytest.raises(SourceError) as caught:
        infer(source, **selection)
    message = str(caught.value)
    assert "\n" not in message and SECRET not in message
    return message


def test_a_server_that_is_not_there(postgres: PostgresServer) -> None:
    message = refused("postgresql://ada@127.0.0.1:1/db?sslmode=disable")
    assert message.startswith("cannot connect to 'postgresql://ada@127.0.0.1:1/db': ")
    assert "Connection refused" in message and "Is the server running on that host" in message


def test_a_wrong_or_missing_password(protected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    assert "set PGPASSWORD or write a password file" in refused(protected)
    monkeypatch.setenv("PGPASSWORD", SECRET + "x")
    message = refused(protected)
    assert "password authentication failed" in message
    assert "check the user, and PGPASSWORD" in message


def test_an_unknown_database(postgres: PostgresServer) -> None:
    message = refused(postgres.address("nowhere"))
    assert 'database "nowhere" does not exist; check the name' in message


def test_a_table_that_may_not_be_read(postgres: PostgresServer) -> None:
    name = postgres.database("""
        CREATE TABLE open_t (id int); CREATE TABLE closed_t (id int);
        DROP ROLE IF EXISTS outsider; CREATE ROLE outsider LOGIN;
        GRANT SELECT ON open_t TO outsider;
    """)
    address = postgres.address(name, "outsider")
    message = refused(address)
    assert "no right to read table 'public.closed_t'" in message
    assert "GRANT SELECT ON public.closed_t" in message and "--exclude-table" in message
    assert infer(address, exclude_tables=["closed_t"]).tables[0].name == "open_t"


def test_an_error_in_the_middle_of_a_table_names_it(postgres: PostgresServer) -> None:
    script = "CREATE VIEW v AS SELECT 1 / (3 - i) AS x FROM generate_series(1, 5) AS g(i)"
    message = refused(postgres.address(postgres.database(script)), tables=("v",))
    assert "cannot read table 'public.v'" in message and "division by zero" in message


def test_a_missing_driver_says_which_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    assert main(["build", "postgresql://localhost/db", str(tmp_path / "s")]) == 1
    assert "pip install adbc-driver-postgresql" in capsys.readouterr().err


def test_text_of_another_encoding_arrives_as_unicode(postgres: PostgresServer, read: Read) -> None:
    name = postgres.database("", encoding="LATIN1")
    postgres.psql(name, "SET client_encoding = 'UTF8'; CREATE TABLE t (v text); "
                        "INSERT INTO t VALUES ('Zürich')")  # fmt: skip
    data = read(postgres.address(name))
    assert column(read, data, "v") == ("VARCHAR", ["Zürich"])


def test_bytes_of_a_database_without_an_encoding(postgres: PostgresServer, read: Read) -> None:
    """Texts are UTF-8 where they can be; what cannot be is replaced, and counted."""
    name = postgres.database("", encoding="SQL_ASCII")
    postgres.psql(
        name,
        r"""CREATE TABLE t (v text);
        INSERT INTO t VALUES (E'caf\xe9\n!'), ('Zürich\x'), (NULL);""",
    )
    data = read(postgres.address(name))
    assert column(read, data, "v") == ("VARCHAR", ["caf\ufffd\ufffd!", "Zürich\\x", None])
    assert data.undecodable_count == 1


def test_rows_arrive_in_the_table_s_order(postgres: PostgresServer, read: Read) -> None:
    """`on_duplicate_key` keeps the first or last of them."""
    script = "CREATE TABLE t (id int); INSERT INTO t SELECT i FROM generate_series(1, 50000) g(i)"
    data = read(postgres.address(postgres.database(script)))
    _, found = column(read, data, "id")
    assert found == [str(i) for i in range(1, 50_001)]


def test_pyarrow_is_not_needed(postgres: PostgresServer, tmp_path: Path) -> None:
    """Where it is installed DuckDB reads streams by way of it, so tests alone would not tell."""
    script = "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, n numeric, a text[]);"
    script += "INSERT INTO t VALUES (1, '2020-01-01', 1.5, '{a}')"
    address = postgres.address(postgres.database(script))
    program = "import sys; sys.modules['pyarrow'] = None; import headwater; "
    program += "headwater.build(sys.argv[1], sys.argv[2])"
    command = [sys.executable, "-c", program, address, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Store(tmp_path / "s").row(0)["cells"]["n"] == 1.5


def test_the_command_line_chooses_tables(
    schemas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    chosen = ["--schema", "public", "--schema", "crm", "--table", "public.*", "--table", "cust*"]
    assert main(["init", schemas, *chosen, "-o", "m.json"]) == 0
    tables = json.loads(Path("m.json").read_text())["tables"]
    assert list(tables) == ["crm.customers", "public.orders"]
    assert main(["build", schemas, "s", "--metadata", "m.json", *chosen]) == 0
    output = capsys.readouterr().out
    assert "view public.big_orders" in output
    store = Store("s")
    order, customer = store.find("public.orders", 10), store.find("crm.customers", 1)
    assert list(store.parents(order)) == [customer]
