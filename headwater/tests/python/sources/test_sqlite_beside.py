"""SQLite files in WAL mode and with collations of applications: all rows, and nothing left beside
them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from headwater.errors import SourceError
from headwater.metadata.selection import Selection
from headwater.sources import sqlite_copy, sqlite_file
from headwater.sources.database import open_database
from headwater.sources.open import load_source
from headwater.sources.source import SourceData

# 3 visits lie in the file, 2 in its -wal.
WRITER = """
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("PRAGMA journal_mode = WAL")
c.execute("CREATE TABLE visits(place TEXT)")
c.execute("INSERT INTO visits VALUES ('a'), ('b'), ('c')")
c.commit()
c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
c.execute("INSERT INTO visits VALUES ('d'), ('e')")
c.commit()
print(flush=True)
sys.stdin.readline()
os._exit(0)  # as in a crash: nobody closes the file
"""


@contextmanager
def writer(path: Path) -> Iterator[None]:
    """A program that has the file open, and then ends without closing it."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        yield
        program.communicate(b"\n")


def read(
    path: Path, scratch: Path, selection: Selection | None = None
) -> tuple[SourceData, list[list[Any]]]:
    """The source, and the rows of each table."""
    scratch.mkdir(exist_ok=True)
    connection = open_database(scratch)
    try:
        data = load_source(f"sqlite:///{path}", connection, selection=selection)
        rows = [
            connection.execute(f"SELECT * FROM raw.t{t.index} ORDER BY 1").fetchall()
            for t in data.tables
        ]
    finally:
        connection.close()
    assert [p.name for p in scratch.iterdir() if "sqlite" in p.name] == []
    return data, rows


def state(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


ROWS = [("a",), ("b",), ("c",), ("d",), ("e",)]


@pytest.mark.parametrize("beside", ["-wal and -shm", "-wal", "nothing", "-shm"])
def test_rows_of_a_wal_are_read_and_no_file_changes(tmp_path: Path, beside: str) -> None:
    """Reading made app.db-wal and app.db-shm, and wrote into a -shm that was there."""
    folder = tmp_path / "app"
    folder.mkdir()
    with writer(folder / "app.db"):
        pass
    for end in ("-wal", "-shm"):
        if end not in beside:
            (folder / f"app.db{end}").unlink()
    before = state(folder)
    _, (rows,) = read(folder / "app.db", tmp_path / "scratch")
    assert rows == (ROWS if "-wal" in beside else ROWS[:3])
    assert state(folder) == before


def test_a_file_is_read_while_a_program_has_it_open(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    with writer(folder / "app.db"):
        before = state(folder)
        assert set(before) == {"app.db", "app.db-wal", "app.db-shm"}
        _, (rows,) = read(folder / "app.db", tmp_path / "scratch")
        assert rows == ROWS
        assert state(folder) == before


@pytest.mark.parametrize("beside", ["-wal and -shm", "-wal", "nothing"])
def test_a_file_in_a_folder_that_cannot_be_written_is_read(beside: str) -> None:
    """'unable to open database file'."""
    with tempfile.TemporaryDirectory() as made:  # root is told no by no folder, so be another
        folder = Path(made) / "app"
        folder.mkdir()
        with writer(folder / "app.db"):
            pass
        for path in [Path(made), *folder.iterdir()]:
            path.chmod(0o777 if path.is_dir() else 0o444)
        for end in ("-wal", "-shm"):
            if end not in beside:
                (folder / f"app.db{end}").unlink()
        folder.chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        try:
            _, (rows,) = read(folder / "app.db", Path(made) / "scratch")
        finally:
            if is_root:
                os.seteuid(0)
            folder.chmod(0o755)
        assert rows == (ROWS if "-wal" in beside else ROWS[:3])


def test_a_file_that_changes_while_it_is_copied_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path / "app.db"):
        pass
    (tmp_path / "app.db-shm").unlink()
    copyfile = shutil.copyfile

    def copy_and_write(source: Path, target: Path) -> None:
        copyfile(source, target)
        if source.name == "app.db":
            source.write_bytes(source.read_bytes() + bytes(4096))

    monkeypatch.setattr(sqlite_copy.shutil, "copyfile", copy_and_write)
    with pytest.raises(SourceError, match=r"app\.db' changed while it was copied .* try again"):
        read(tmp_path / "app.db", tmp_path / "scratch")


def dictionary(path: Path, collation: str) -> Path:
    """3 words in the order of a collation of the application, and 4 uses of them."""
    with closing(sqlite3.connect(path)) as database:
        database.create_collation("localized", lambda a, b: (a > b) - (a < b))
        database.executescript(
            f"CREATE TABLE words(word TEXT PRIMARY KEY COLLATE {collation}) WITHOUT ROWID;"
            f"CREATE TABLE uses(id INTEGER PRIMARY KEY, word TEXT COLLATE {collation});"
            f"CREATE INDEX by_word ON uses(word COLLATE {collation});"
            "INSERT INTO words VALUES ('Zoo'), ('ant'), ('bee');"
            "INSERT INTO uses(word) VALUES ('ant'), ('ant'), ('bee'), ('Zoo');"
            "CREATE VIEW used AS SELECT word FROM words JOIN uses USING (word);"
        )
    return path


@pytest.mark.parametrize("collation", ["localized", '"LOCALIZED"', "[Localized]"])
def test_a_table_in_the_order_of_an_unknown_collation_is_read(
    tmp_path: Path, collation: str
) -> None:
    """'no query solution', and the whole database was refused."""
    path = dictionary(tmp_path / "w.db", collation)
    before = path.read_bytes()
    data, (words, uses) = read(path, tmp_path / "scratch")
    assert words == [("Zoo",), ("ant",), ("bee",)]
    assert uses == [(1, "ant"), (2, "ant"), (3, "bee"), (4, "Zoo")]
    assert data.notes[-1] == (
        "the collation 'localized' of words, uses is one of the program that wrote the file, which "
        "SQLite lacks here: it is taken for NOCASE, by which a to z are A to Z"
    )
    assert path.read_bytes() == before
    with pytest.raises(SourceError, match=r"view 'used' .* lacks the collation 'localized'"):
        read(path, tmp_path / "scratch", Selection(tables=("used",)))


def test_rows_of_a_wal_are_read_with_an_unknown_collation(tmp_path: Path) -> None:
    path = dictionary(tmp_path / "w.db", "localized")
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "c.create_collation('localized', lambda a, b: (a > b) - (a < b));"
        "c.execute('PRAGMA journal_mode = WAL'); c.execute('INSERT INTO uses VALUES (9, NULL)');"
        "c.commit(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    _, (_, uses) = read(path, tmp_path / "scratch")
    assert uses[-1] == (9, None)


@pytest.mark.parametrize("collation", ["nocase", '"NOCASE"', "RTRIM", "binary"])
def test_a_collation_of_sqlite_needs_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collation: str
) -> None:
    path = dictionary(tmp_path / "w.db", collation)
    monkeypatch.delattr(sqlite_file, "copied")
    data, (words, _) = read(path, tmp_path / "scratch")
    assert len(words) == 3
    assert data.notes == ("not read unless named with --table: view used",)
