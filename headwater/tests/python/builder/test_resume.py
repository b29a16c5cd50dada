"""Builds that are killed: what is left, what the next one uses, that it gives the same bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import (
    arrow_tables,
    asked,
    bookstore,
    bookstore_metadata,
    write_csv,
    write_duckdb,
    write_parquet,
    write_sqlite,
)
from fake_endpoint import FakeEndpoint
from headwater import Store, build
from headwater.builder.convert import CanonicalTable, Conversion
from headwater.builder.journal import restore
from headwater.errors import EmbedderError, SourceError
from headwater.metadata.parts import CsvFormat, Task
from headwater.metadata.schema import parse_schema
from headwater.sources.source import SourceColumn, SourceData, SourceTable

# Builds line[0] into line[1] for each line of stdin, in a process that has everything imported. The
# build kills itself when (stage, item) number line[3] is reported; without a number it builds to
# the end. Prints the id of the process, and how it ended.
KILLED_BUILDS = """
import json, os, signal, sys
import duckdb, numpy, pyarrow.csv, pyarrow.parquet
from headwater import build
import headwater.builder.build

def run(source, out, document, number=None):
    count = 0
    def tell(stage, item):
        nonlocal count
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
    build(source, out, document, seeds_dir=os.path.dirname(out), progress=tell, cache=False)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            run(*json.loads(line))
            os._exit(0)
        finally:
            os._exit(1)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def metadata() -> dict[str, Any]:
    """The bookstore with a task whose query and seeds are stages of their own."""
    query = """
        SELECT book_id, TIMESTAMP '2020-04-15' AS obs_time, count(*) > 1 AS sells
        FROM sales WHERE book_id < 90 GROUP BY book_id
    """
    return bookstore_metadata(sells=asked(query, "books", "sells boolean", "obs_time"))


class Builds:
    """Builds in processes of their own, one after the other."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", KILLED_BUILDS],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def start(self, source: str, out: Path, document: dict[str, Any], *more: int) -> int:
        """→ the id of the process"""
        assert self.process.stdin is not None
        print(json.dumps([source, str(out), document, *more]), file=self.process.stdin, flush=True)
        return self._number()

    def wait(self) -> int:
        """How it ended: 0, or minus the number of a signal."""
        return self._number()

    def run(self, *what: Any) -> int:
        self.start(*what)
        return self.wait()

    def _number(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def builds() -> Iterator[Builds]:
    builds = Builds()
    yield builds
    builds.process.communicate()


def stages(source: str, out: Path, document: dict[str, Any]) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []
    build(source, out, document, progress=lambda stage, item: told.append((stage, item)))
    return told


def clean(out: Path, fingerprint: str) -> bool:
    return {entry.name for entry in out.iterdir()} == {".lock", fingerprint, "manifest.json"}


@pytest.mark.parametrize("kind", [write_sqlite, pytest.param(write_csv, marks=pytest.mark.release)])
def test_a_build_killed_at_any_stage_is_gone_on_with(
    builds: Builds, tmp_path: Path, kind: Any
) -> None:
    source = kind(tmp_path / "source", bookstore())
    document = metadata()
    told = stages(source, tmp_path / "whole", document)
    expected = Store(tmp_path / "whole").fingerprint
    names = [stage for stage, _ in told]
    assert [name for i, name in enumerate(names) if name not in names[:i]] == [
        "read", "convert", "tasks", "keys", "encode", "embed", "write",
    ]  # fmt: skip
    resumed: dict[int, tuple[str, ...]] = {}
    encode, embed = names.index("encode"), names.index("embed")
    later = (*range(encode, embed, 3), embed, len(told) - 1)
    for number in (0, 2, 4, 5, names.index("tasks") + 1, *later):
        out = tmp_path / f"killed{number}"
        assert builds.run(source, out, document, number) == -signal.SIGKILL
        left = list(out.glob(".building-*"))
        assert len(left) == 1 and not (out / "manifest.json").exists()
        report = build(source, out, document, cache=False)
        assert report.fingerprint == expected, number
        assert clean(out, expected)
        resumed[number] = report.resumed
    assert resumed[0] == resumed[2] == ()
    assert resumed[4] == ("source", "table 0")
    assert resumed[5] == ("source", "table 0", "table 1")
    tables = ("source", "table 0", "table 1", "table 2", "labels")
    assert resumed[names.index("tasks") + 1] == tables
    for number in later:
        assert resumed[number] == (*tables, "seeds", "categories")


def derived_metadata(kind: Any) -> dict[str, Any]:
    """With columns computed and taken from rows above, a table of values, and what else is said."""
    document = metadata()
    tables = document["tables"]
    tables["books"]["columns"]["writer"] = {"stype": "text", "taken_from": "authors.name"}
    tables["books"]["columns"]["initial"] = {"stype": "categorical", "expression": "genre[1]"}
    tables["books"]["columns"]["half"] = {
        "stype": "numerical",
        "expression": "CAST(price AS DOUBLE) / 2",
    }
    tables["sales"]["columns"] |= {
        "half": {"stype": "numerical", "taken_from": "books.half"},
        "initial": {"stype": "categorical", "taken_from": "books.initial"},
        "price": {"stype": "numerical", "taken_from": "books.price"},
        "writer": {"stype": "text", "taken_from": "books.writer"},
    }
    tables["sales"]["columns"]["shop"]["foreign_key"] = "shops.shop"
    tables["sales"]["on_duplicate_key"] = "first"  # needs the order of the source
    tables["shops"] = {
        "values_of": ["sales.shop"],
        "primary_key": "shop",
        "columns": {"shop": {"stype": "identifier"}},
    }
    if kind is write_csv:
        tables["books"]["csv"] = {"null_values": ["?"], "quote": '"', "skip": 0}
    return document


@pytest.mark.parametrize(
    "kind",
    [
        write_sqlite,
        write_csv,
        pytest.param(write_parquet, marks=pytest.mark.release),
        pytest.param(write_duckdb, marks=pytest.mark.release),
    ],
)
def test_a_killed_build_does_not_derive_twice(builds: Builds, tmp_path: Path, kind: Any) -> None:
    source = kind(tmp_path / "source", bookstore())
    document = derived_metadata(kind)
    told = stages(source, tmp_path / "whole", document)
    expected = Store(tmp_path / "whole").fingerprint
    converts = [number for number, (stage, _) in enumerate(told) if stage == "convert"]
    assert len(converts) == 4
    for number in (*converts, converts[-1] + 1):
        out = tmp_path / f"killed{number}"
        assert builds.run(source, out, document, number) == -signal.SIGKILL
        report = build(source, out, document, cache=False)
        done = [f"table {j}" for j in range(number - converts[0])]
        assert report.resumed[: len(done) + 1] == ("source", *done)
        assert report.fingerprint == expected, number
        assert clean(out, expected)


def test_kills_at_random_moments_leave_nothing_that_breaks(builds: Builds, tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "b.db", bookstore())
    document, out = metadata(), tmp_path / "s"
    begun = time.monotonic()
    assert builds.run(source, tmp_path / "whole", document) == 0
    seconds = time.monotonic() - begun
    expected = Store(tmp_path / "whole").fingerprint
    chance = random.Random(4)
    for _ in range(6):
        process = builds.start(source, out, document)
        time.sleep(chance.uniform(0.3, 1.0) * seconds)
        with contextlib.suppress(ProcessLookupError):  # it was done before
            os.kill(process, signal.SIGKILL)
        builds.wait()
    report = build(source, out, document, cache=False)
    assert report.fingerprint == expected and clean(out, expected)
    assert Store(out).verify() == []


class Interrupted:
    """A DuckDB connection whose user goes away before change number `last` of the database."""

    changes = 0
    last: int | None = None

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, query: str, *parameters: Any) -> Any:
        if query.startswith(("CREATE", "DROP", "ALTER", "INSERT", "DELETE")):
            if Interrupted.changes == Interrupted.last:
                raise KeyboardInterrupt
            Interrupted.changes += 1
        return self.connection.execute(query, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


@pytest.mark.parametrize("first", [1, pytest.param(5, marks=pytest.mark.release)])
def test_a_build_goes_on_from_between_any_two_statements(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB commits every statement, so stopping before one leaves what a kill there leaves."""
    module = sys.modules["headwater.builder.build"]
    open_database = module.open_database  # type: ignore[attr-defined]

    def interrupted(*arguments: Any, **options: Any) -> Interrupted:
        return Interrupted(open_database(*arguments, **options))

    monkeypatch.setattr(module, "open_database", interrupted)
    source, document = write_csv(tmp_path / "source", bookstore()), derived_metadata(write_csv)
    document["tasks"] = metadata()["tasks"]
    monkeypatch.setattr(Interrupted, "changes", 0)
    expected = build(source, tmp_path / "whole", document, cache=False).fingerprint
    total = Interrupted.changes
    for last in range(first, total, 8):
        out = tmp_path / f"stopped{last}"
        monkeypatch.setattr(Interrupted, "changes", 0)
        monkeypatch.setattr(Interrupted, "last", last)
        with pytest.raises(KeyboardInterrupt):
            build(source, out, document, cache=False)
        monkeypatch.setattr(Interrupted, "last", None)
        assert build(source, out, document, cache=False).fingerprint == expected, last
        assert clean(out, expected)


def test_a_killed_build_leaves_the_old_store_readable(builds: Builds, tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "b.db", bookstore())
    out = tmp_path / "s"
    old = build(source, out, bookstore_metadata()).fingerprint
    changed = bookstore_metadata()
    changed["tables"]["sales"]["columns"]["note"]["stype"] = "categorical"
    for number in (1, 8):
        assert builds.run(source, out, changed, number) == -signal.SIGKILL
        assert Store(out).fingerprint == old and Store(out).verify() == []
    new = build(source, out, changed)
    assert new.resumed and new.fingerprint != old and clean(out, new.fingerprint)


@pytest.mark.parametrize("change", ["source", "metadata", "label"])
def test_what_depends_on_something_that_changed_is_made_again(
    builds: Builds, tmp_path: Path, change: str
) -> None:
    source = write_csv(tmp_path / "csv", bookstore())
    document, out = metadata(), tmp_path / "s"
    labels = tmp_path / "labels.csv"
    labels.write_text("book_id,obs_time,good\n10,2020-05-01,true\n")
    document["tasks"]["good"] = {
        "seeds": {"train": "labels.csv"}, "anchor_table": "books", "target_column": "good",
        "target_stype": "boolean", "observation_time_column": "obs_time",
    }  # fmt: skip
    assert builds.run(source, out, document, 20) == -signal.SIGKILL
    if change == "source":
        with (tmp_path / "csv" / "authors.csv").open("a") as file:
            file.write("7,Gus,\n")
    elif change == "metadata":
        document["tables"]["books"]["columns"]["price"]["stype"] = "ignored"
    else:
        labels.write_text("book_id,obs_time,good\n10,2020-05-01,false\n")
    report = build(source, out, document, seeds_dir=tmp_path)
    assert report.resumed == ()
    fresh = build(source, tmp_path / "fresh", document, seeds_dir=tmp_path)
    assert report.fingerprint == fresh.fingerprint


def interrupt(stage: str, item: str) -> None:
    """As a user does who goes away while rows are encoded."""
    if stage == "encode":
        raise KeyboardInterrupt


def test_tables_in_memory_prove_nothing_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(arrow_tables(bookstore()), tmp_path / "s", metadata(), progress=interrupt)
    assert not (tmp_path / "s").exists()
    source = write_sqlite(tmp_path / "b.db", bookstore())
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "s", metadata(), progress=interrupt)
    assert len(list((tmp_path / "s").glob(".building-*"))) == 1
    assert build(source, tmp_path / "s", metadata()).resumed[0] == "source"


def test_an_endpoint_that_fails_does_not_cost_the_tables(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "b.db", bookstore())
    answers = [(403, {}, {}), None]
    with FakeEndpoint(lambda n, body, handler: answers[min(n, 1)]) as server:
        embedder = f"openai:m@{server.url}"
        with pytest.raises(EmbedderError, match="the same command resumes from there"):
            build(source, tmp_path / "s", metadata(), embedder=embedder, cache=False)
        report = build(source, tmp_path / "s", metadata(), embedder=embedder, cache=False)
    assert "labels" in report.resumed
    assert (
        "taken from a build that was cut short: source, labels, seeds, categories, 3 converted "
        "tables" in str(report)
    )


def test_a_bad_source_leaves_nothing(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "csv", bookstore())
    document = bookstore_metadata()
    document["tables"]["sales"]["primary_key"] = "shop"
    with pytest.raises(SourceError, match="primary key"):
        build(source, tmp_path / "s", document)
    assert not (tmp_path / "s").exists()


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "csv", bookstore())

    def touch(stage: str, item: str) -> None:
        if (stage, item) == ("convert", "sales"):
            os.utime(tmp_path / "csv" / "books.csv", (1, 1))

    with pytest.raises(SourceError, match=r"books\.csv' changed while it was read; build again"):
        build(source, tmp_path / "s", bookstore_metadata(), progress=touch)


def test_a_store_inside_of_its_source_does_not_change_it(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "csv", bookstore())
    out = tmp_path / "csv" / "store.hw"
    build(source, out, bookstore_metadata())
    assert Store(out).verify() == []


def test_facts_of_a_table_come_back_as_they_were() -> None:
    lost = Conversion("sales", "copies", "not a finite number", 2, "x")
    for table in parse_schema(derived_metadata(write_csv)).tables:
        facts = CanonicalTable(
            table=table, index=2, types=("VARCHAR", "BIGINT"), days=False,
            day_columns=frozenset({"sold_at"}), row_count=5, csv_bytes=100, duplicate_count=0,
            null_value_count=1, untimed_count=0, conversions=(lost,),
        )  # fmt: skip
        text = json.dumps(dataclasses.asdict(facts), default=sorted)
        assert restore(CanonicalTable, json.loads(text)) == facts


def test_facts_of_a_source_come_back_as_they_were() -> None:
    """With a description of CSV files that was drafted, and tasks that come with the source."""
    form = CsvFormat(header=False, columns=("a", "b"), delimiter=";", null_values=("-",), skip=2)
    table = SourceTable(
        "t", 0, 3, (SourceColumn("a", "VARCHAR"), SourceColumn("b", "DATE", "DAY")), ("a",),
        ((("b",), "u", ("c",)),), "b", form, ("a note",), is_view=True,
    )  # fmt: skip
    task = Task("k", "t", "y", "boolean", seeds=(("train", "train.csv"),), anchor_key=("a",))
    facts = SourceData("d", (table,), 4, ("left out",), (task,), "/somewhere")
    text = json.dumps(dataclasses.asdict(facts), default=sorted)
    assert restore(SourceData, json.loads(text)) == facts


def test_the_order_of_columns_is_part_of_what_a_build_was_asked(
    builds: Builds, tmp_path: Path
) -> None:
    source = write_sqlite(tmp_path / "b.db", bookstore())
    document, out = bookstore_metadata(), tmp_path / "s"
    assert builds.run(source, out, document, 8) == -signal.SIGKILL
    columns = document["tables"]["books"]["columns"]
    document["tables"]["books"]["columns"] = dict(reversed(columns.items()))
    report = build(source, out, document)
    assert report.resumed == ()
    assert report.fingerprint == build(source, tmp_path / "fresh", document).fingerprint


def test_the_choice_of_tables_is_part_of_what_a_build_was_asked(tmp_path: Path) -> None:
    source = write_sqlite(tmp_path / "b.db", bookstore())
    out = tmp_path / "s"

    with pytest.raises(KeyboardInterrupt):
        build(source, out, progress=interrupt)
    report = build(source, out, exclude_tables=["sales"])
    assert report.resumed == ()
    assert [table["name"] for table in report.metadata["tables"]] == ["authors", "books"]
