"""`headwater audit`: whole stores made by build, each with one thing wrong, and the command."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built_examples import Builder, source_of
from databases import EXAMPLES, asked, shared_data, typed
from headwater.audit import AuditReport, audit
from headwater.audit.declared import check_declared
from headwater.audit.findings import CHECKS, Findings
from headwater.audit.stored import SECTIONS, Stored, StoredFile
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.errors import StoreError
from headwater.facts.association import compare
from headwater.shop import generate

DAYS = 200
SAMPLED = {"default_sequence_length": 64, "num_threads": 1}


def write_clinic(path: Path) -> str:
    """Patients, their visits day by day, and bills that belong to visits and have no time."""
    dice = np.random.default_rng(0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("""
            CREATE TABLE patients (id INTEGER PRIMARY KEY, blood TEXT, verdict TEXT, weight REAL);
            CREATE TABLE visits (id INTEGER PRIMARY KEY, patient INTEGER REFERENCES patients,
                at TIMESTAMP, left_at TIMESTAMP, outcome TEXT, view_count INTEGER,
                next_visit INTEGER REFERENCES visits);
            CREATE TABLE bills (id INTEGER PRIMARY KEY, visit INTEGER REFERENCES visits, cost REAL,
                patient INTEGER REFERENCES patients);
        """)
        for i in range(DAYS):
            ill = i % 3 == 0
            row = (i, dice.choice(["A", "B"]), "bad" if ill else "good", 60 + 30 * ill + i % 7)
            connection.execute("INSERT INTO patients VALUES (?, ?, ?, ?)", row)
        for i in range(2 * DAYS):
            day, out = f"2024-{1 + i // 40:02}-{1 + i % 28:02}", i % 4 == 0
            left, outcome = (f"{day} 17:00:00", "cured") if out else (None, None)
            following = i + 40 if i % 2 and i < 300 else None
            row = (i, i % DAYS, f"{day} 08:00:00", left, outcome, i % 5, following)
            connection.execute("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute(
                "INSERT INTO bills VALUES (?, ?, ?, ?)", (i, i, 10.0 + i % 9, i % DAYS)
            )
    return f"sqlite:///{path}"  # fmt: skip


def clinic_metadata(**task: Any) -> dict[str, Any]:
    """Everything is declared as a user does who does not think of time."""
    query = "SELECT id, DATE '2024-05-01' AS seen, id % 3 = 0 AS ill FROM patients"
    patients = typed("id identifier, blood categorical, verdict categorical, weight numerical")
    visits = typed(
        "id identifier, patient identifier patients.id, at timestamp, left_at timestamp, "
        "outcome categorical, view_count numerical, next_visit identifier visits.id"
    )
    bills = typed(
        "id identifier, cost numerical, visit identifier visits.id, patient identifier patients.id"
    )
    return {
        "name": "clinic",
        "tables": {
            "patients": {"primary_key": "id", "columns": patients},
            "visits": {"primary_key": "id", "temporal_column": "at", "columns": visits},
            "bills": {"primary_key": "id", "columns": bills},
        },
        "tasks": {"ill": {**asked(query, "patients", "ill boolean", "seen"), **task}},
    }


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_clinic(tmp_path_factory.mktemp("clinic") / "clinic.db")


@pytest.fixture
def built(clinic: str, tmp_path: Path) -> Path:
    build(clinic, tmp_path / "s", clinic_metadata())
    return tmp_path / "s"


def audited(source: str, path: Path, metadata: dict[str, Any]) -> AuditReport:
    """The audit of a store that is built from a clinic."""
    build(source, path, metadata)
    return audit(path, **SAMPLED)


def texts(report: AuditReport, check: str) -> str:
    return "\n".join(str(f) for f in report.leaks + report.to_check if f.check == check)


# ---- what a person should look at ------------------------------------------------------------


def test_a_question_of_a_time_among_rows_without_times_is_said(clinic: str, tmp_path: Path) -> None:
    """The visits were links away and had their time: without it all of the future is visible, and
    an audit had nothing to say of it."""
    said = (
        "it is asked at times, but no table that links lead to from patients has a temporal column"
    )
    metadata = clinic_metadata()
    report = build(clinic, tmp_path / "timed", metadata)
    assert said not in str(report)
    assert said not in str(audit(tmp_path / "timed", **SAMPLED))
    del metadata["tables"]["visits"]["temporal_column"]
    metadata["tables"]["visits"]["columns"]["at"] = {"stype": "numerical"}
    report = build(clinic, tmp_path / "untimed", metadata)
    assert f"task ill: {said}" in "\n".join(report.notes())
    found = audit(tmp_path / "untimed", **SAMPLED)
    assert said in texts(found, "no time")
    # A table that no link leads to is no help.
    metadata = clinic_metadata()
    for table, key in (("visits", "patient"), ("bills", "patient")):
        del metadata["tables"][table]["columns"][key]["foreign_key"]
    build(clinic, tmp_path / "apart", metadata)
    assert said in texts(audit(tmp_path / "apart", **SAMPLED), "no time")


def test_a_column_that_is_the_target_under_another_name_is_a_leak(built: Path) -> None:
    """verdict is bad where the patient is ill; weight tells it too, but is only to be checked."""
    report = audit(built, **SAMPLED)
    (leak,) = report.leaks
    assert (leak.check, leak.task) == ("columns", "ill")
    assert "patients.verdict on the anchor is the target under another name (one to one" in str(
        leak
    )
    assert "patients.weight on the anchor nearly determines the target: AUROC 1.000" in texts(
        report, "columns"
    )
    assert "blood" not in texts(report, "columns")


def test_what_is_hidden_is_no_leak(clinic: str, tmp_path: Path) -> None:
    metadata = clinic_metadata(hidden_columns=["patients.verdict", "patients.weight"])
    report = audited(clinic, tmp_path / "s", metadata)
    assert report.is_clean
    assert texts(report, "columns") == ""
    assert report.contexts["ill"]["train"][0] == report.contexts["ill"]["train"][1]


def test_tables_without_time_and_columns_written_later_are_to_be_checked(built: Path) -> None:
    report = audit(built, **SAMPLED)
    assert "bills has no time: its 400 rows are shown at any time" in texts(report, "untimed")
    assert "rows of bills in 200 contexts belong to a row of visits after the question" in texts(
        report, "untimed"
    )
    later = texts(report, "written later")
    assert "visits.left_at is later than its row in 100 of 100 rows" in later
    assert "visits.outcome is set in the rows that have left_at (100 of 100)" in later
    assert "visits.view_count changes after its row was written" in later
    newer = texts(report, "newer parents")
    assert "150 of 150 links by visits.next_visit lead to rows of visits that are newer" in newer


def test_what_is_declared_is_not_proposed_again(clinic: str, tmp_path: Path) -> None:
    metadata = clinic_metadata()
    columns = metadata["tables"]["visits"]["columns"]
    for name, known in (
        ("left_at", "left_at"), ("outcome", "left_at"), ("view_count", "never"),
        ("next_visit", "never"),
    ):  # fmt: skip
        columns[name] = {**columns[name], "known_at": known}
    metadata["tables"]["bills"]["columns"]["at"] = {"stype": "ignored", "taken_from": "visits.at"}
    metadata["tables"]["bills"]["temporal_column"] = "at"
    report = audited(clinic, tmp_path / "s", metadata)
    assert {finding.check for finding in report.to_check} == {"columns"}


def test_a_time_after_the_question_is_to_be_checked(clinic: str, tmp_path: Path) -> None:
    """Asked at noon, when patients have come in and not left."""
    query = (
        'SELECT patient AS id, "at" + INTERVAL 4 HOUR AS seen, patient % 3 = 0 AS ill FROM visits '
        "WHERE left_at IS NOT NULL"
    )
    report = audited(clinic, tmp_path / "s", clinic_metadata(query=query))
    assert "cells of visits.left_at in" in texts(report, "later times")


# ---- questions and splits --------------------------------------------------------------------


def split_query(split: str, extra: str = "") -> dict[str, str]:
    query = (
        f"SELECT id, TIMESTAMP '2024-05-01' AS seen, id % 3 = 0 AS ill, {split} AS split "
        f"FROM patients {extra}"
    )
    return {"query": query, "split_column": "split"}


def test_one_question_in_two_splits_is_a_leak(clinic: str, tmp_path: Path) -> None:
    extra = ", (SELECT unnest(['train', 'test']) AS part)"
    report = audited(clinic, tmp_path / "s", clinic_metadata(**split_query("part", extra)))
    assert "200 rows of patients asked about at the same time in more than one split" in texts(
        report, "splits"
    )


def test_train_seeds_that_are_asked_after_test_seeds_are_to_be_checked(
    clinic: str, tmp_path: Path
) -> None:
    query = (
        "SELECT id, seen, id % 3 = 0 AS ill, CASE month(seen) WHEN 5 THEN 'test' ELSE 'train' END "
        "AS split FROM patients, (SELECT unnest([TIMESTAMP '2024-05-01', TIMESTAMP '2024-07-01']) "
        "AS seen)"
    )
    task = {"query": query, "split_column": "split", "label_window": "90 days"}
    report = audited(clinic, tmp_path / "s", clinic_metadata(**task))
    assert "200 train seeds are asked at or after the first test seed" in texts(
        report, "splits in time"
    )
    task["query"] = query.replace("WHEN 5", "WHEN 7")
    report = audited(clinic, tmp_path / "t", clinic_metadata(**task))
    assert texts(report, "splits in time") == ""
    assert "the labels of 200 train seeds are known only after the first test seed" in texts(
        report, "label windows"
    )


def test_splits_by_time_of_a_backtest_are_no_leak(clinic: str, tmp_path: Path) -> None:
    """Train dealt anew: the same patients before and after, none of the others."""
    query = (
        "SELECT id, seen, id % 3 = 0 AS ill FROM patients, (SELECT unnest([TIMESTAMP '2024-03-01', "
        "TIMESTAMP '2024-05-01', TIMESTAMP '2024-07-01']) AS seen)"
    )
    hidden = ["patients.verdict", "patients.weight"]
    build(clinic, tmp_path / "s", clinic_metadata(query=query, hidden_columns=hidden))
    until = ("2024-05-01", "2024-06-01")
    report = audit(tmp_path / "s", time_split=until, visible_until="2024-05-01", **SAMPLED)
    assert report.is_clean
    assert set(report.contexts["ill"]) == {"train", "val"}
    report = audit(tmp_path / "s", train_on_val=True, **SAMPLED)
    assert report.is_clean
    assert set(report.contexts["ill"]) == {"train", "test"}


def test_seeds_without_a_time_are_to_be_checked(clinic: str, tmp_path: Path) -> None:
    task = {
        "query": "SELECT id, weight FROM patients", "target_column": "weight",
        "target_stype": "numerical", "observation_time_column": None,
    }  # fmt: skip
    metadata = clinic_metadata(**task)
    del metadata["tasks"]["ill"]["observation_time_column"]
    report = audited(clinic, tmp_path / "s", metadata)
    assert "200 of 200 seeds have no observation time: their contexts show all rows of visits" in (
        texts(report, "no time")
    )


# ---- a store that is not what it says --------------------------------------------------------


def change(path: Path, file: str, section: str, name: str, number: int, value: int) -> None:
    """Another value in a field of a structure on disk; opening a store proves no contents."""
    found = StoredFile(next(path.glob(f"*/{file}")))
    kind, dtype = SECTIONS[section]
    entry = found.sections[kind]
    found.path.chmod(0o644)
    data = np.memmap(found.path, np.uint8, "r+")
    start, size = int(entry["offset"]), int(entry["count"]) * int(entry["element_bytes"])
    data[start : start + size].view(dtype)[name][number] = value
    data.flush()


@pytest.mark.parametrize(
    ("section", "name", "number", "value", "text"),
    [
        ("tasks", "flags", 0, 2, "task ill keeps cutoff 'exclusive', the metadata say 'inclusive'"),
        ("tasks", "context_labels", 0, 3, "keeps context_labels 'all', the metadata say 'train'"),
        ("columns", "known_kind", 9, 0, "view_count keeps known_at 'creation', the metadata say"),
    ],
)
def test_a_store_that_does_not_keep_what_was_declared_is_a_leak(
    clinic: str, tmp_path: Path, section: str, name: str, number: int, value: int, text: str
) -> None:
    """As of a build that made a mistake: a store that was damaged later does not open."""
    metadata = clinic_metadata(hidden_columns=["patients.verdict"])
    metadata["tables"]["visits"]["columns"]["view_count"]["known_at"] = "never"
    build(clinic, tmp_path / "s", metadata)
    findings = Findings()
    check_declared(Stored(tmp_path / "s"), findings)
    assert findings.leaks == () and findings.examined["declared"] > 40
    change(tmp_path / "s", "schema.bin", section, name, number, value)
    check_declared(Stored(tmp_path / "s"), findings)
    (leak,) = findings.leaks
    assert (leak.check, leak.count) == ("declared", 1)
    assert text in leak.examples[0]
    with pytest.raises(StoreError, match="checksum"):
        audit(tmp_path / "s", **SAMPLED)


def test_a_store_without_tasks_or_without_metadata(clinic: str, tmp_path: Path) -> None:
    metadata = {**clinic_metadata(), "tasks": {}}
    build(clinic, tmp_path / "s", metadata)
    report = audit(tmp_path / "s")
    assert "no task, so no contexts" in str(report) and report.is_clean
    with pytest.raises(StoreError, match="does not describe the store's 2 tables"):
        audit(Path(__file__).parents[2] / "data" / "golden")


# ---- evidence --------------------------------------------------------------------------------


def test_a_name_of_its_own_for_each_anchor_is_no_evidence() -> None:
    """Each anchor is asked about five times: its name determines its label, and tells nothing."""
    anchors = np.repeat(np.arange(40), 5)
    target = (anchors % 2).astype(float)
    none = np.full(200, np.nan)
    assert compare(none, anchors, target, anchors, is_class=True).strength == 0
    assert compare(none, anchors % 4, target, anchors, is_class=True).strength == 1
    assert not compare(none, anchors % 4, target, anchors, is_class=True).is_target
    assert compare(none, anchors % 2 + 7, target, anchors, is_class=True).is_target


def test_the_same_number_in_another_unit_is_the_target() -> None:
    euros, anchors = np.arange(100.0) ** 1.5, np.arange(100)
    none = np.full(100, -1)
    assert compare(euros * 100 + 3, none, euros, anchors, is_class=False).is_target
    near = compare(np.arange(100.0), none, euros, anchors, is_class=False)
    assert near.strength == pytest.approx(1) and not near.is_target  # the same order
    dice = np.random.default_rng(0)
    assert compare(dice.normal(size=100), none, euros, anchors, is_class=False).strength < 0.5


def test_the_page_lists_every_check() -> None:
    page = (EXAMPLES.parent / "docs" / "guides" / "audit.md").read_text()
    table = page[page.index("## Leaks") : page.index("## To check")]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert rows[1:] == list(CHECKS)


# ---- the command -----------------------------------------------------------------------------


def test_the_command_exits_1_on_a_leak_and_0_without(
    built: Path, clinic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(built), "--seeds", "100"]) == 1
    output = capsys.readouterr()
    assert "leaks (1):" in output.out and "LEAK" in output.out
    assert output.err == f"headwater: 1 leaks in '{built}'\n"
    build(clinic, tmp_path / "t", clinic_metadata(hidden_columns=["patients.verdict"]))
    arguments = ["audit", str(tmp_path / "t"), "--task", "ill", "--json", "--seeds", "30"]
    options = ["visible_until=2024-03-01", "default_sequence_length=32", "child_order=recent"]
    for option in options:
        arguments += ["--sampler-option", option]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clean"] and found["leaks"] == []
    assert found["options"]["visible_until"] == "2024-03-01"
    assert 30 <= found["contexts"]["ill"]["train"]["audited"] < 60
    assert found["examined"]["rows"] > 0


def test_options_that_do_not_exist_or_are_the_audits_own_are_refused(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, message in (
        ("packing=true", "an audit sets packing itself"),
        ("max_hop=3", "no option 'max_hop', did you mean 'max_hops'?"),
        ("max_hops", "expected NAME=VALUE"),
    ):
        assert main(["audit", str(built), "--sampler-option", option]) == 1
        assert message in capsys.readouterr().err
    assert main(["audit", str(built), "--task", "il"]) == 1
    assert "did you mean 'ill'?" in capsys.readouterr().err
    assert main(["audit", str(built / "absent")]) == 1
    assert "cannot open store" in capsys.readouterr().err


# ---- real databases --------------------------------------------------------------------------


def test_the_shop_is_clean_and_leaks_without_its_known_at(tmp_path: Path) -> None:
    """closed_at, points_redeemed_at and returned know what happens next."""
    generate(tmp_path / "shop.db", customers=400, products=100)
    source = f"sqlite:///{tmp_path / 'shop.db'}"
    metadata = json.loads((EXAMPLES / "shop" / "shop.json").read_text())
    build(source, tmp_path / "s", metadata)
    options = {"seeds": 200, "default_sequence_length": 256, "num_threads": 1}
    report = audit(tmp_path / "s", child_counts=True, **options)
    assert report.leaks == () and report.to_check == ()
    assert all(count > 0 for count in report.examined.values())
    for table in metadata["tables"].values():
        for column in table["columns"].values():
            column.pop("known_at", None)
    build(source, tmp_path / "t", metadata)
    later = texts(audit(tmp_path / "t", **options), "written later")
    for name in ("customers.closed_at", "orders.points_redeemed_at", "order_items.returned"):
        assert name in later


@pytest.mark.parametrize("name", ["chinook", "stack-exchange"])
def test_the_examples_have_no_leak(name: str, built_example: Builder) -> None:
    report = audit(built_example(name).path, seeds=200, **SAMPLED)
    assert report.leaks == ()
    assert report.examined["rows"] > 1000


def test_results_position_leaks_without_its_hidden_columns(tmp_path: Path) -> None:
    """positionOrder is the position, as init finds too."""
    metadata = json.loads((EXAMPLES / "rel-f1.json").read_text())
    task = metadata["tasks"]["results-position"]
    metadata["tasks"] = {"results-position": {**task, "hidden_columns": []}}
    seeds = shared_data("rel-f1/tasks")
    build(source_of("rel-f1"), tmp_path / "s", metadata, seeds_dir=seeds)
    (leak,) = audit(tmp_path / "s", seeds=300, **SAMPLED).leaks
    assert "results.positionOrder on the anchor is the target under another name" in str(leak)


def test_a_task_without_seeds_is_not_taken_for_examined() -> None:
    report = AuditReport(
        path="shop.hw", fingerprint="abc", options={}, contexts={"churn": {}},
        examined=dict.fromkeys(CHECKS, 0), leaks=(), to_check=(),
    )  # fmt: skip
    assert "  task churn: no seeds, so no contexts were looked at" in str(report).splitlines()


def test_cells_shown_before_a_later_time_of_their_row_are_to_check(tmp_path: Path) -> None:
    """The outcome of an appointment that has not taken place, until somebody says when it is known:
    then also of the others somebody has thought."""
    path = tmp_path / "clinic.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("""
            CREATE TABLE patients (id INTEGER PRIMARY KEY);
            CREATE TABLE bookings (id INTEGER PRIMARY KEY, patient INTEGER REFERENCES patients,
                made TIMESTAMP, planned TIMESTAMP, came TEXT);
            WITH RECURSIVE n(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM n WHERE j < 9)
                INSERT INTO patients SELECT j FROM n;
            WITH RECURSIVE n(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM n WHERE j < 99)
                INSERT INTO bookings SELECT j, j % 10, datetime('2024-01-01', j || ' days'),
                    datetime('2024-01-11', j || ' days'), iif(j % 3, 'yes', 'no') FROM n;
        """)
    bookings = typed(
        "id identifier, patient identifier patients.id, made timestamp, planned timestamp, "
        "came categorical"
    )
    bookings["planned"]["known_at"] = "planned"
    query = "SELECT id, DATE '2024-02-20' AS asked, id % 2 = 0 AS odd FROM patients"
    document = {
        "name": "clinic",
        "tables": {
            "patients": {"primary_key": "id", "columns": typed("id identifier")},
            "bookings": {"primary_key": "id", "temporal_column": "made", "columns": bookings},
        },
        "tasks": {"odd": asked(query, "patients", "odd boolean", "asked")},
    }
    # Asked on day 50: of those made until then, the ten of days 41 to 50 are planned for later.
    said = (
        "10 cells in 10 contexts are shown before bookings.planned of their row (came): known "
        "before, or only then (known_at 'planned')?"
    )
    for name, expected in (("shown", [said]), ("known later", [])):
        if not expected:
            bookings["came"]["known_at"] = "planned"
        build(f"sqlite:///{path}", tmp_path / name, document)
        report = audit(tmp_path / name, **SAMPLED)
        assert [one.text for one in report.to_check if "shown before" in one.text] == expected
