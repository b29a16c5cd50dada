"""The audit of contexts: silent where the rules are kept, and each check can fire.

Where a sampler keeps the rules is shown on random worlds. Where it does not is made in two ways: a
store is damaged on disk so that the sampler is shown another past than the rows have, or the
sampler is asked for more than the audit is told (a sampler that lies).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LATE, READMITTED, clinic
from headwater import binding
from headwater.audit.contexts import ContextCheck
from headwater.audit.declared import check_times
from headwater.audit.findings import Findings
from headwater.audit.rules import Asked
from headwater.audit.stored import SECTIONS, Stored, StoredFile
from headwater.sampling.batch import Batch
from headwater.sampling.expand import expand
from plain_database import (
    BOOLEAN,
    IDENTIFIER,
    NEVER,
    Column,
    Database,
    Key,
    Known,
    Options,
    Seed,
    Task,
)
from reference_order import Order
from world_store import open_sampler, read_pass, write_store
from worlds import at, random_database, random_options, table, two_tables

INFO = ("obs_time", "seed_index", "anchor_rows", "row_ids")
CLINIC = Options(sequence_length=80, max_rows=12, batch_size=2)


def audited(
    path: Path,
    database: Database,
    options: Options,
    *,
    told: Options | None = None,
    sampled: Path | None = None,
    change: Callable[[Batch], None] = lambda batch: None,
) -> Findings:
    """All contexts of all tasks and splits; `told` is what the audit believes was asked, `sampled`
    the store that the contexts come from."""
    stored, findings, believed = Stored(path), Findings(), told or options
    asked = Asked(
        believed.visible_until,
        believed.context_labels,
        believed.max_hops,
        believed.label_rows,
        believed.peer_labels,
    )
    with open_sampler(sampled or path, database, options, text_budget=0, layout=1) as sampler:
        for task in stored.tasks:
            splits = np.asarray(sampler.splits(task.number, len(task.anchors)))
            check = ContextCheck(stored, task, splits, asked, findings)
            for split in range(3):
                if not sampler.seed_count(split, task.number):
                    continue
                for arrays in read_pass(binding.Pass(sampler, split, task.number, 0)):
                    batch = writable(arrays)
                    change(batch)
                    check.check(batch, split)
    return findings


def writable(arrays: dict[str, Any]) -> Batch:
    """A batch that a test may change, as the front would give it."""
    copies = {name: array.copy() for name, array in arrays.items()}
    info = {name: copies.pop(name) for name in INFO}
    return expand(Batch.of(copies, info))


def fired(findings: Findings) -> set[str]:
    return {finding.check for finding in findings.leaks}


# ---- no false alarm --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5000, 5060))
def test_contexts_of_random_worlds_have_no_leak(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database)
    path = write_store(database, tmp_path)
    findings = audited(path, database, options)
    assert findings.leaks == ()
    check_times(Stored(path), findings)
    assert findings.leaks == ()
    if options.world_size == 1 and any(Order(database, options).seeds(s, 0) for s in range(3)):
        assert findings.examined["rows"] > 0 and findings.examined["known"] > 0


# ---- each check can fire ---------------------------------------------------------------------


def test_the_clinic_has_no_leak(tmp_path: Path) -> None:
    """What the tests below start from."""
    assert audited(write_store(clinic(), tmp_path), clinic(), CLINIC).leaks == ()


@pytest.mark.parametrize(
    ("asked", "told", "check"),
    [
        ({}, {"visible_until": (at(3), NEVER, NEVER)}, "rows"),
        ({"context_labels": "all"}, {}, "labels"),
        ({}, {"context_labels": "none"}, "labels"),
        (
            {"child_counts": True},
            {"child_counts": True, "visible_until": (at(3), at(3), at(3))},
            "counts",
        ),
    ],
)
def test_a_sampler_that_was_asked_for_more_is_found_out(
    asked: dict[str, Any], told: dict[str, Any], check: str, tmp_path: Path
) -> None:
    path = write_store(clinic(), tmp_path)
    findings = audited(path, clinic(), CLINIC.with_(**asked), told=CLINIC.with_(**told))
    assert check in fired(findings)
    assert all(finding.count > 0 for finding in findings.leaks)


def permissive(database: Database, task: int, **task_changes: Any) -> Database:
    """The same rows, with nothing declared to be known late, and another task."""
    tables = tuple(
        replace(made, columns=tuple(replace(column, known=Known()) for column in made.columns))
        for made in database.tables
    )
    tasks = list(database.tasks)
    tasks[task] = replace(tasks[task], **task_changes)
    return Database(database.name, tables, tuple(tasks))


@pytest.mark.parametrize(
    ("task", "changes", "check", "text"),
    [
        (LATE, {}, "known", "cells of visits.never before they are known (known_at 'never')"),
        (LATE, {}, "known", "cells of visits.result before they are known (known_at 'result_at')"),
        (LATE, {"hidden": ()}, "hidden", "cells of the hidden column patients.blood on the anchor"),
        (READMITTED, {"hidden": ()}, "hidden", "hidden column visits.secret on the anchor"),
    ],
)
def test_a_sampler_with_other_rules_is_found_out(
    task: int, changes: dict[str, Any], check: str, text: str, tmp_path: Path
) -> None:
    """The contexts come from a store that declares less than the one that is audited."""
    path = write_store(clinic(), tmp_path / "strict")
    lax = permissive(clinic(), task, **changes)
    sampled = write_store(lax, tmp_path / "lax")
    findings = audited(path, lax, CLINIC, sampled=sampled)
    assert any(leak.check == check and text in leak.text for leak in findings.leaks)


def test_a_hidden_column_of_another_table_is_found(tmp_path: Path) -> None:
    """Patients have no time, so nothing of a column that is hidden there may be shown."""
    shows = clinic()
    hides = replace(shows.tasks[READMITTED], hidden=(("patients", "blood"),))
    strict = Database(shows.name, shows.tables, (shows.tasks[LATE], hides))
    path = write_store(strict, tmp_path / "strict")
    assert audited(path, strict, CLINIC).leaks == ()
    sampled = write_store(shows, tmp_path / "lax")
    findings = audited(path, shows, CLINIC, sampled=sampled)
    assert any(
        "hidden column patients.blood on the anchor, or on rows not before it" in leak.text
        for leak in findings.leaks
        if leak.check == "hidden"
    )


def test_rows_of_the_same_moment_are_found_where_the_cutoff_is_exclusive(tmp_path: Path) -> None:
    """Two visits of one patient on day 3, and a cell task: one may not show the other."""
    database = clinic()
    visits = database.table("visits")
    times = [at(day) for day in (1, 2, 3, 3, 8, 9)]
    same = replace(visits, values={**visits.values, "at": times},
                   keys=(Key(("patient_id",), "patients", (0,) * 6),))  # fmt: skip
    seeds = tuple(replace(seed, obs_time=times[seed.anchor]) for seed in database.tasks[1].seeds)
    strict = replace(database.tasks[1], seeds=seeds)
    tables = (database.tables[0], same)
    path = write_store(Database("strict", tables, (strict,)), tmp_path / "strict")
    lax = Database("lax", tables, (replace(strict, exclusive=False),))
    sampled = write_store(lax, tmp_path / "lax")
    findings = audited(path, lax, CLINIC, sampled=sampled)
    assert "rows of visits later than the cutoff" in {leak.text for leak in findings.leaks}


def late_links(known: Known) -> Database:
    """Posts, and a thread that names one as its answer on day 6; asked about on day 5."""
    posts = table("posts", "post_id identifier", [(True,), (True,)])
    threads = table(
        "threads",
        [
            "thread_id identifier",
            Column("answer_id", IDENTIFIER, known),
            "at timestamp, answered_at timestamp answered_at",
        ],
        [(True, True, at(1), at(6)), (True, True, at(2), at(3))],
        (Key(("answer_id",), "posts", (0, 1)),),
        "at",
    )
    seeds = (Seed(0, at(5), True, split=0), Seed(1, at(5), True, split=0))
    tasks = (Task("t", "threads", "t", BOOLEAN, seeds), Task("p", "posts", "p", BOOLEAN, seeds))
    return Database("links", (posts, threads), tasks)


def test_a_link_that_is_not_yet_known_is_found(tmp_path: Path) -> None:
    strict, lax = late_links(Known("column", "answered_at")), late_links(Known())
    path = write_store(strict, tmp_path / "strict")
    assert audited(path, strict, CLINIC).leaks == ()
    findings = audited(path, lax, CLINIC, sampled=write_store(lax, tmp_path / "lax"))
    texts = {leak.text for leak in findings.leaks if leak.check == "edges"}
    assert len(texts) == 3
    assert "rows that no visible link leads to" in texts


def test_labels_as_rows_are_held_against_what_is_known_and_allowed(tmp_path: Path) -> None:
    """Three questions about one patient, answered a day later; the second is a val seed."""
    patients = table("patients", "patient_id identifier", [(True,)])
    seeds = tuple(
        Seed(0, at(day), True, split=split, known=at(day + 1))
        for day, split in ((1, 0), (3, 1), (5, 0))
    )
    task = Task("ill", "patients", "ill", BOOLEAN, seeds, label_times=True)
    database = Database("labels", (patients,), (task,))
    path = write_store(database, tmp_path)
    options = CLINIC.with_(label_rows=5)
    assert audited(path, database, options).leaks == ()
    findings = audited(path, database, options.with_(context_labels="all"), told=options)
    assert [leak.count for leak in findings.leaks] == [1]
    assert "seed 2, 2 days before" in findings.leaks[0].examples
    few = audited(path, database, options, told=options.with_(label_rows=0))
    assert few.leaks[0].text == "contexts with more label rows of the anchor than were asked for"
    # Known a day later than the audit's store says: at day 5 the first two are not known.
    later = tuple(replace(seed, known=at(9)) for seed in seeds)
    unknown = Database("labels", (patients,), (replace(task, seeds=later),))
    strict = write_store(unknown, tmp_path / "strict")
    assert fired(audited(strict, database, options, sampled=path)) == {"labels"}


# Ann (0) and bob (1) are asked. Bob's label of day 1 is known on day 2, that of day 3, of val, on
# day 4, that of day 4 on day 8. On day 6 ann's context shows bob's first label.
ASKED_OF_TWO = (
    Seed(0, at(2), True, split=0, known=at(3)),
    Seed(0, at(6), True, split=0, known=at(9)),
    Seed(1, at(1), False, split=0, known=at(2)),
    Seed(1, at(3), True, split=1, known=at(4)),
    Seed(1, at(4), True, split=0, known=at(8)),
)
PEERS = Options(sequence_length=80, max_rows=12, batch_size=8, peer_labels=5)
OTHERS = "label rows that are no earlier, known and allowed label of another anchor"


def two_patients(**changes: Any) -> Database:
    return two_tables(seeds=ASKED_OF_TWO, label_times=True, **changes)


def last_of_ann(batch: Batch) -> int | None:
    """The sequence of the last seed of ann: its rows are the seed, ann, the label, bob, orders."""
    found = np.flatnonzero(batch.info["seed_index"][: batch["num_sequences"][0]] == 1)
    return int(found[0]) if len(found) else None


def test_peer_labels_have_no_leak(tmp_path: Path) -> None:
    """What the tests below start from; the anchor of a peer is beyond max_hops."""
    path = write_store(two_patients(), tmp_path)
    shown: list[list[int]] = []

    def look(batch: Batch) -> None:
        if (b := last_of_ann(batch)) is not None:
            shown.append(batch.info["row_ids"][b, :4].tolist())

    for more in ({}, {"max_hops": 1}, {"label_rows": 3}, {"child_counts": True}):
        options = PEERS.with_(**more)
        assert audited(path, two_patients(), options, change=look).leaks == ()
    task, ann, bob = 2**32 - 1, 0, 1
    assert shown[:2] == [[task, ann, task, bob]] * 2


def test_peer_labels_that_are_forbidden_or_too_many_are_found(tmp_path: Path) -> None:
    path = write_store(two_patients(), tmp_path)
    for told in ("train", None):
        findings = audited(
            path,
            two_patients(),
            PEERS.with_(context_labels="all"),
            told=PEERS.with_(context_labels=told),
        )
        assert [(leak.text, leak.count) for leak in findings.leaks] == [(OTHERS, 1)]
        assert findings.leaks[0].examples == ("seed 1, 3 days before",)
    none = audited(path, two_patients(), PEERS, told=PEERS.with_(context_labels="none"))
    assert {leak.text for leak in none.leaks} == {OTHERS}
    few = audited(path, two_patients(), PEERS, told=PEERS.with_(peer_labels=0))
    assert "contexts with more label rows of another anchor than were asked for" in {
        leak.text for leak in few.leaks
    }


def test_peer_labels_that_are_not_yet_known_are_found(tmp_path: Path) -> None:
    path = write_store(two_patients(), tmp_path / "lax")
    late = list(ASKED_OF_TWO)
    late[2] = replace(late[2], known=at(7))
    strict = two_tables(seeds=tuple(late), label_times=True)
    audited_path = write_store(strict, tmp_path / "strict")
    findings = audited(audited_path, strict, PEERS, sampled=path)
    assert {leak.text for leak in findings.leaks} == {OTHERS}
    frozen = PEERS.with_(visible_until=(at(1), at(1), at(1)))
    assert OTHERS in {leak.text for leak in audited(path, strict, PEERS, told=frozen).leaks}
    # Known at the moment of the question, which an exclusive cutoff does not let through.
    late[2] = replace(late[2], known=at(6))
    same = two_tables(seeds=tuple(late), label_times=True)
    sampled = write_store(same, tmp_path / "same")
    exclusive = two_tables(seeds=tuple(late), label_times=True, exclusive=True)
    of_exclusive = write_store(exclusive, tmp_path / "exclusive")
    findings = audited(of_exclusive, exclusive, PEERS, sampled=sampled)
    assert any("seed 1, 5 days before" in leak.examples for leak in findings.leaks)


def becomes(age: float, parent: int) -> Callable[[Batch], None]:
    """The label row in the context of ann's last seed: of another age, of another anchor."""

    def change(batch: Batch) -> None:
        if (b := last_of_ann(batch)) is not None:
            batch["row_ages"][b, 2] = age
            batch["parents"][b, 2, 0] = parent
            batch["fk_adj"][b, 2] = 0
            if parent != 65535:
                batch["fk_adj"][b, 2, parent] = 1

    return change


@pytest.mark.parametrize(
    ("age", "parent", "whose"),
    [
        (0.0, 1, "the anchor"),  # the seed's own label
        (4.0, 1, "the anchor"),  # ann's first, which is known: but label_rows is 0
        (0.0, 3, "another anchor"),
        (3.0, 3, "another anchor"),  # bob's of val
        (2.0, 3, "another anchor"),  # bob's last, not known yet
        (4.0, 3, "another anchor"),  # ann's, as if it were bob's
        (4.0, 65535, "another anchor"),  # ann's, without saying whose
        (2.0, 65535, "another anchor"),
        (0.0, 65535, "another anchor"),
    ],
)
def test_a_planted_label_row_is_found(age: float, parent: int, whose: str, tmp_path: Path) -> None:
    path = write_store(two_patients(), tmp_path)
    findings = audited(path, two_patients(), PEERS, change=becomes(age, parent))
    texts = [leak.text for leak in findings.leaks if leak.check == "labels"]
    if (age, parent) == (4.0, 1):
        assert texts == ["contexts with more label rows of the anchor than were asked for"]
    else:
        assert f"label rows that are no earlier, known and allowed label of {whose}" in texts


def test_the_anchor_of_a_peer_leads_no_further(tmp_path: Path) -> None:
    """The first order of ann becomes bob's: nothing of it is wrong but the way to it."""
    path = write_store(two_patients(), tmp_path)

    def change(batch: Batch) -> None:
        if (b := last_of_ann(batch)) is not None:
            assert batch.info["row_ids"][b, 4] in (2, 4)
            batch.info["row_ids"][b, 4] = 3
            batch["parents"][b, 4] = 3
            batch["fk_adj"][b, 4] = 0
            batch["fk_adj"][b, 4, 3] = 1

    findings = audited(path, two_patients(), PEERS, change=change)
    assert [leak.text for leak in findings.leaks] == ["rows that no visible link leads to"]


def test_the_anchor_of_a_peer_must_be_visible(tmp_path: Path) -> None:
    """Bob registers on day 3, after his first label; the audit's store says on day 7."""

    def clients(day: int) -> Database:
        rows = [(True, at(1)), (True, at(day))]
        made = table("clients", "id identifier, since timestamp", rows, (), "since")
        task = Task("t", "clients", "t", BOOLEAN, ASKED_OF_TWO, label_times=True)
        return Database("clients", (made,), (task,))

    path = write_store(clients(3), tmp_path / "early")
    assert audited(path, clients(3), PEERS).leaks == ()
    late = write_store(clients(7), tmp_path / "late")
    assert audited(late, clients(7), PEERS).leaks == ()
    findings = audited(late, clients(7), PEERS, sampled=path)
    assert "rows of clients later than the cutoff" in {leak.text for leak in findings.leaks}


def change_target(batch: Batch) -> None:
    batch["is_target"][:] = 0


def change_seed(batch: Batch) -> None:
    batch.info["seed_index"][:] += 1


def change_link(batch: Batch) -> None:
    batch["fk_adj"][0, 0, 2] = 1


def change_parent(batch: Batch) -> None:
    batch["parents"][0, 2, 0] = 0


def change_age(batch: Batch) -> None:
    batch["row_ages"][0, 2] = -0.5


def change_column(batch: Batch) -> None:
    """The cells of visits become cells of patients."""
    batch["column_ids"][batch["column_ids"] >= 2] = 1


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (change_target, "target"),
        (change_seed, "target"),
        (change_link, "edges"),
        (change_parent, "edges"),
        (change_age, "rows"),
        (change_column, "known"),
    ],
)
def test_a_batch_that_was_changed_is_found_out(
    change: Callable[[Batch], None], check: str, tmp_path: Path
) -> None:
    path = write_store(clinic(), tmp_path)
    assert check in fired(audited(path, clinic(), CLINIC, change=change))


def test_a_store_whose_index_of_times_was_moved_is_found_out(tmp_path: Path) -> None:
    """The visit of day 8 is indexed at day 4: the sampler shows it on day 5, and the audit, which
    reads the row's own time, does not believe it."""
    path = write_store(clinic(), tmp_path)
    file = next(path.glob("*/tables/00001.bin"))
    place = int(StoredFile(file).sections[SECTIONS["times"][0]]["offset"])
    file.chmod(0o644)
    data = np.memmap(file, np.uint8, "r+")
    times = data[place : place + 6 * 8].view("<i8")
    assert times[4] == at(8)
    times[4] = at(4)
    data.flush()
    findings = audited(path, clinic(), CLINIC)
    assert "rows" in fired(findings)
    check_times(Stored(path), findings)
    (moved,) = [leak for leak in findings.leaks if leak.check == "times"]
    assert moved.count == 1
    assert "rows of visits that are indexed at another time than they have" in moved.text
