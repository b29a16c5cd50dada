"""Drafts of databases with many tables or columns: the same keys, few queries, little to read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from databases import TinyDatabase, TinyTable, arrow_tables, write_parquet
from headwater.cli.main import main
from headwater.inference import draft as drafting
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_schema, draft_source
from headwater.inference.links import overlaps, references
from headwater.inference.links.overlaps import ValueIndex, measure_overlap
from headwater.metadata import review
from headwater.sources.database import open_database
from headwater.sources.key_values import NOTHING
from headwater.sources.open import load_source

ROWS = 60


def many_tables(count: int) -> TinyDatabase:
    """Parts with an id that restarts at 1, a code of their own (but every third table has the codes
    of the one before it), and a code of the part they belong to."""
    rng = random.Random(3)
    names = [f"part_{chr(97 + i)}" for i in range(count)]
    tables = {}
    for i, name in enumerate(names):
        family, whole = names[i - i % 3 // 2], f"{names[max(i - 1, 0)]}_id"
        kinds = {"id": "INTEGER", "code": "TEXT", whole: "INTEGER", "state": "TEXT"}
        rows = [
            (j + 1, f"{family[-1]}{j}", rng.randrange(1, ROWS), rng.choice("xyz"))
            for j in range(ROWS)
        ]
        tables[name] = TinyTable(kinds, rows)
    return tables


class CountedConnection:
    """A connection of DuckDB that counts its statements."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.count = connection, 0

    def execute(self, *arguments: Any) -> Any:
        self.count += 1
        return self.connection.execute(*arguments)


def drafted(folder: Path, database: TinyDatabase) -> tuple[Draft, CountedConnection]:
    folder.mkdir()
    connection = open_database(folder)
    data = load_source(arrow_tables(database), connection)
    counted: Any = CountedConnection(connection)
    return draft_schema(counted, data), counted


def test_the_keys_are_those_that_measuring_every_pair_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every candidate was measured by a query of its own."""
    indexed = draft_source(arrow_tables(many_tables(9)))
    monkeypatch.setattr(references, "CANDIDATES_MIN", 1_000)
    measured = draft_source(arrow_tables(many_tables(9)))
    assert indexed.to_dict() == measured.to_dict()
    found = {str(key.table) for table in indexed.tables for key in table.every_key()}
    assert len(found) > 4
    code = indexed.table("part_c").column("code")
    assert str(code.foreign_key) == "part_b.code" and code.reason.startswith("by values: all 60")


def test_a_bound_is_the_overlap_where_no_sample_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlaps, "CHUNK_VALUES", 7)
    draft, counted = drafted(tmp_path / "a", many_tables(6))
    keys = [(table, name) for table in draft.tables for name in ("id", "code")]
    index = ValueIndex(counted.connection, keys, NOTHING)
    for table in draft.tables:
        for column in table.columns:
            shares = [
                measure_overlap(counted.connection, table, (column.name,), parent, (key,)).share
                for parent, key in keys
            ]
            assert index.shares(table, column.name).tolist() == shares


def test_keys_that_the_index_has_no_room_for_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = draft_source(arrow_tables(many_tables(6))).to_dict()
    monkeypatch.setattr(overlaps, "INDEX_VALUES", 3 * ROWS)
    assert draft_source(arrow_tables(many_tables(6))).to_dict() == expected
    draft, counted = drafted(tmp_path / "a", many_tables(6))
    keys = [(table, "code") for table in draft.tables]
    index = ValueIndex(counted.connection, keys, NOTHING)
    assert index.is_held.tolist() == [True, True, True, False, False, False]
    assert index.shares(draft.tables[5], "code").tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def test_statements_grow_with_the_columns_and_not_with_their_pairs(tmp_path: Path) -> None:
    """There was a query for each pair of texts: 18 tables took five times those of 6."""
    counts = [drafted(tmp_path / str(n), many_tables(n))[1].count for n in (6, 18)]
    assert counts[1] < 3.3 * counts[0]


def test_names_are_compared_once_for_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    score = references.reference_score
    monkeypatch.setattr(
        references, "reference_score", lambda *names: asked.append(names) or score(*names)
    )
    columns, keys = 12 * 4, 12 * 2
    draft_source(arrow_tables(many_tables(12)))
    assert len(asked) < columns * keys / 2


def test_numbers_too_large_to_square_are_drafted() -> None:
    """init stopped with: Out of Range Error: STDDEV_POP for X is out of range!"""
    rng = random.Random(5)
    numbers = [rng.choice([1e300, -1e300, 2.5, 1e-300]) for _ in range(200)]
    rows = [(j, value, value, rng.random()) for j, value in enumerate(numbers)]
    kinds = {"t_id": "INTEGER", "amount": "DOUBLE", "total": "DOUBLE", "size": "DOUBLE"}
    (task,) = draft_source(arrow_tables({"t": TinyTable(kinds, rows)})).tasks
    assert (task.target_column, [hidden.column for hidden in task.hidden_columns]) == (
        "amount",
        ["total"],
    )


# ---- what is printed ---------------------------------------------------------------------------


def test_many_tables_are_a_line_each_and_their_checks_are_told_by_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft = draft_source(arrow_tables(many_tables(16)))
    monkeypatch.setattr(review, "CHECKS_MAX", 100)
    assert str(draft) == draft.text(full=True)  # not many
    monkeypatch.setattr(drafting, "TABLES_MAX", 15)
    monkeypatch.setattr(review, "CHECKS_MAX", 15)
    text = str(draft)
    assert f"to check ({len(draft.every_check())}, of " in text
    assert len(text.splitlines()) < 16 + 40
    (line,) = [line for line in text.splitlines() if line.startswith("  part_h ")]
    assert line.split()[:4] == ["part_h", "60", "4", "id"]
    full = draft.text(full=True)
    assert all(f"\n  {check}\n" in full for check in draft.every_check())
    assert full.count("\n  column") == 16


def test_columns_of_a_wide_table_that_are_alike_are_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"m{j}" for j in range(150)]
    rows = [(j, *[j * 0.5 + k for k in range(149)], None) for j in range(40)]
    kinds = {"id": "INTEGER"} | dict.fromkeys(names, "DOUBLE")
    source = write_parquet(tmp_path / "wide", {"wide": TinyTable(kinds, rows)})
    assert main(["init", source, "-o", str(tmp_path / "m.json")]) == 0
    shown = capsys.readouterr().out
    assert "  m0, m1, m2 and 146 more  numerical" in shown
    assert "  m149                     ignored" in shown
    assert main(["init", source, "-o", str(tmp_path / "n.json"), "--full"]) == 0
    full = capsys.readouterr().out
    assert all(f"\n  {name} " in full for name in names)
    assert json.loads((tmp_path / "m.json").read_text()) == json.loads(
        (tmp_path / "n.json").read_text()
    )
