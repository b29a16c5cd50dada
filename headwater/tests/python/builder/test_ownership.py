"""A build removes, replaces and opens nothing but what a build made."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from databases import arrow_tables, bookstore, bookstore_metadata, write_sqlite
from headwater.builder.build import build
from headwater.builder.ownership import MARK, MARK_TEXT, is_build
from headwater.errors import StoreError
from headwater.store.store import Store

FOREIGN = "00112233445566778899aabbccddeeff"  # 32 hex digits, as an MD5 sum has them
OTHER = "ffeeddccbbaa99887766554433221100"
OURS = {"format_version": 2, "byte_order": "little", "fingerprint": FOREIGN}
ENTRY = {"path": "schema.bin", "bytes": 64, "checksum": "0" * 16}


def tree(folder: Path) -> dict[str, Any]:
    """What is in a folder: where links lead, what files hold."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else path.lstat().st_mode
        for path in sorted(folder.rglob("*"))
    }


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def changed_metadata() -> dict[str, Any]:
    changed = bookstore_metadata()
    changed["tables"]["sales"]["columns"]["note"]["stype"] = "categorical"
    return changed


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(arrow_tables(bookstore()), folder / "s", bookstore_metadata(), cache=False)
    return folder / "s"


@pytest.fixture
def target(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "s"))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("", "its manifest.json is not that of a store"),
        ("{}", "its manifest.json is not that of a store"),
        ('{"manifest_version": 3, "name": "of a browser"}', "is not that of a store"),
        (json.dumps({"fingerprint": FOREIGN}), "is not that of a store"),
        (json.dumps({**OURS, "files": []}), "is not that of a store"),
        (json.dumps({**OURS, "files": [ENTRY], "format_version": "2"}), "is not that of a store"),
        (json.dumps({**OURS, "files": [ENTRY], "fingerprint": "../x"}), "is not that of a store"),
        (json.dumps({**OURS, "files": [ENTRY]}), f"'{FOREIGN}', which its manifest.json names"),
        (json.dumps({**OURS, "files": [ENTRY], "format_version": 9}), "of format version 9"),
        ("[" * 100_000, "is not that of a store"),
    ],
)
def test_a_folder_that_has_a_manifest_of_another_kind_stays_as_it_is(
    tmp_path: Path, manifest: str, message: str
) -> None:
    """Folders named by 32 hex digits were removed, manifest.json was replaced, status 0."""
    files = {"manifest.json": manifest, f"{FOREIGN}/letter.txt": "mine", f"{OTHER}/a/b": "mine"}
    folder = make(tmp_path / "mine", files)
    before = tree(folder)
    with pytest.raises(StoreError, match=message):
        build(arrow_tables(bookstore()), folder, bookstore_metadata(), cache=False)
    assert tree(folder) == before


def test_a_manifest_that_may_not_be_read_is_an_error_of_the_system(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "not that of a store"; root, as which tests may run, may read every file."""
    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == "manifest.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(PermissionError, match=r"manifest\.json"):
        build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_manifest_that_is_not_a_file_is_not_a_store_s(
    tmp_path: Path, built: Path, kind: str
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    if kind == "link":
        (folder / "manifest.json").symlink_to(built / "manifest.json")
    elif kind == "folder":
        (folder / "manifest.json").mkdir()
    else:
        os.mkfifo(folder / "manifest.json")
    before = [(path.name, path.lstat().st_mode) for path in folder.iterdir()]
    with pytest.raises(StoreError, match=r"is not that of a store"):
        build(arrow_tables(bookstore()), folder, bookstore_metadata(), cache=False)
    assert [(path.name, path.lstat().st_mode) for path in folder.iterdir()] == before


def test_a_folder_of_folders_named_by_hashes_stays_as_it_is(tmp_path: Path) -> None:
    """It passed for what a build leaves that is killed while it publishes, and was emptied."""
    folder = make(tmp_path / "cache", {f"{FOREIGN}/letter.txt": "mine", ".index": "mine"})
    before = tree(folder)
    with pytest.raises(StoreError, match=f"is not a store and is not empty .it holds '{FOREIGN}'"):
        build(arrow_tables(bookstore()), folder, bookstore_metadata(), cache=False)
    assert tree(folder) == before


def test_what_people_put_into_a_store_stays(target: Path, tmp_path: Path, built: Path) -> None:
    """All of these were removed or written to, but for the pipe, which was waited for."""
    old = Store(target).fingerprint
    victim = make(tmp_path / "victim", {"a.txt": "mine", "store/b.txt": "mine"})
    files = {
        f"{FOREIGN}/letter.txt": "mine",
        f"{OTHER}/schema.bin": "mine",  # called as ours, and not ours
        f"{OTHER}/tables/00000.bin": "mine",
        ".building-plans/house.txt": "mine",  # no mark
        f".building-{FOREIGN}/work.duckdb": "mine",
        f".building-{OTHER}/{MARK}": MARK_TEXT[:-2] + "!\n",  # no mark either
        f"{old}/notes.txt": "mine",  # in a true build, which is replaced
        "thesis.txt": "mine",
        "manifest.json.tmp": "mine",
    }
    make(target, files)
    (target / ("1" * 32)).symlink_to(built / old)  # a true build elsewhere
    (target / ".building-link").symlink_to(victim)
    seen = {name: (target / name).read_text() for name in files}
    away = tree(built), tree(victim)
    report = build(arrow_tables(bookstore()), target, changed_metadata(), cache=False)
    assert {name: (target / name).read_text() for name in files} == seen
    assert (tree(built), tree(victim)) == away and (target / ("1" * 32)).is_symlink()
    assert report.fingerprint != old and Store(target).verify() == []
    assert Store(target / old).verify() == []  # all of it stays, for the sake of the notes
    assert set(report.left) == {FOREIGN, OTHER, "1" * 32, old}
    assert f"hold other files too: {FOREIGN}" in str(report)


def test_an_older_build_and_leftovers_of_builds_go(target: Path) -> None:
    """A mark cut short by a kill is one, as long as nothing else is there."""
    old = Store(target).fingerprint
    make(target, {
        ".building-1/headwater-build": MARK_TEXT, ".building-1/work.duckdb": "x",
        ".building-1/spill/x": "x", ".building-1/store/tables/00000.bin": "x",
        ".building-2/headwater-build": MARK_TEXT[:7], ".building-3/headwater-build": "",
    })  # fmt: skip
    (target / ".building-4").mkdir()
    report = build(arrow_tables(bookstore()), target, changed_metadata(), cache=False)
    names = sorted(entry.name for entry in target.iterdir())
    assert names == sorted([".lock", report.fingerprint, "manifest.json"])
    assert report.fingerprint != old and report.left == ()


def test_a_file_that_people_put_into_a_folder_at_work_stays(target: Path) -> None:
    make(target / ".building-1", {MARK: MARK_TEXT, "work.duckdb": "x", "notes.txt": "mine"})
    build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False)
    assert tree(target / ".building-1") == {MARK: MARK_TEXT.encode(), "notes.txt": b"mine"}


def test_a_build_that_is_named_and_damaged_is_replaced_but_not_with_a_note_in_it(
    target: Path,
) -> None:
    fingerprint = Store(target).fingerprint
    for name in ("schema.bin", "keys.bin"):
        (target / fingerprint / name).write_bytes(b"")
    build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False)
    assert Store(target).verify() == []
    make(target / fingerprint, {"schema.bin": "", "tables/notes.txt": "mine"})
    with pytest.raises(StoreError, match="holds other files too, and is in the way of one: move"):
        build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False)
    assert (target / fingerprint / "tables" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "nowhere", "folder", "pipe"])
def test_a_lock_is_a_file_of_its_own(target: Path, tmp_path: Path, kind: str) -> None:
    """A link was followed: the file that it names was made, or locked."""
    victim = tmp_path / "victim.txt"
    (target / ".lock").unlink(missing_ok=True)
    if kind in ("link", "nowhere"):
        (target / ".lock").symlink_to(victim)
        if kind == "link":
            victim.write_text("mine")
    elif kind == "folder":
        (target / ".lock").mkdir()
    else:
        os.mkfifo(target / ".lock")
    with pytest.raises(StoreError, match=r"\.lock' is not a regular file"):
        build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False)
    assert victim.exists() == (kind == "link")
    assert Store(target).verify() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["link", "nowhere", "hard", "folder", "pipe"])
def test_the_manifest_is_written_through_nothing_that_lies_there(
    target: Path, tmp_path: Path, kind: str
) -> None:
    """What `manifest.json.tmp` led to was cut to nothing and overwritten; a pipe was waited for."""
    victim, beside = tmp_path / "victim.txt", target / "manifest.json.tmp"
    if kind != "nowhere":
        victim.write_text("mine")
    if kind in ("link", "nowhere"):
        beside.symlink_to(victim)
    elif kind == "hard":
        os.link(victim, beside)
    elif kind == "folder":
        beside.mkdir()
    else:
        os.mkfifo(beside)
    build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False)
    assert victim.exists() == (kind != "nowhere") and os.path.lexists(beside)
    assert kind == "nowhere" or victim.read_text() == "mine"
    assert Store(target).verify() == []


def test_a_first_build_that_fails_removes_only_its_own_folder(tmp_path: Path) -> None:
    """Whatever others had put there meanwhile was removed with it."""
    target = tmp_path / "s"

    def stop(stage: str, item: str) -> None:
        make(target, {"thesis.txt": "mine"})
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False, progress=stop)
    assert [entry.name for entry in target.iterdir() if entry.name != ".lock"] == ["thesis.txt"]


KILLED_WHILE_IT_STARTS = """
import os, signal, sys
from headwater.builder import ownership
sys.path[:0] = [sys.argv[1]]
from databases import bookstore_metadata
from headwater import build
kill = lambda *rest: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[4] == "mark":
    os.write = kill
else:
    ownership._remove = kill
build(sys.argv[2], sys.argv[3], bookstore_metadata(), cache=False)
"""


@pytest.mark.parametrize("moment", ["mark", "removal"])
def test_a_kill_before_the_mark_or_in_the_removal_is_cleaned_up(
    tmp_path: Path, moment: str
) -> None:
    source = write_sqlite(tmp_path / "b.db", bookstore())
    target, here = tmp_path / "s", str(Path(__file__).parents[1])
    command = [sys.executable, "-c", KILLED_WHILE_IT_STARTS, here, source, str(target), moment]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(list(target.glob(".building-*"))) == 1
    report = build(arrow_tables(bookstore()), target, bookstore_metadata(), cache=False)
    names = sorted(entry.name for entry in target.iterdir())
    assert names == sorted([".lock", report.fingerprint, "manifest.json"])


def test_a_build_is_known_by_any_file_with_its_stamp(built: Path, tmp_path: Path) -> None:
    """As a removal that was killed half-way, or damage, leaves one of them."""
    fingerprint = Store(built).fingerprint
    for name in ("schema.bin", "keys.bin", "tables/00001.bin"):
        left = tmp_path / name.replace("/", "-") / fingerprint
        (left / name).parent.mkdir(parents=True)
        shutil.copyfile(built / fingerprint / name, left / name)
        assert is_build(left), name
        left.rename(left.with_name(FOREIGN))  # of another build
        assert not is_build(left.with_name(FOREIGN)), name
    (tmp_path / fingerprint).mkdir()
    shutil.copyfile(built / fingerprint / "metadata.json", tmp_path / fingerprint / "schema.bin")
    assert not is_build(tmp_path / fingerprint)
