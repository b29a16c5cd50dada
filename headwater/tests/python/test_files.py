"""Only regular files are read, and nothing is replaced that a command did not write."""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import headwater
import pytest
import tiny_store
from databases import bookstore, bookstore_metadata, write_sqlite
from headwater import files, shop
from headwater.audit.stored import Stored, StoredFile
from headwater.cli.arguments import parser
from headwater.cli.main import main
from headwater.embedding.vector_cache import VectorCache
from headwater.errors import EmbedderError, StoreError
from headwater.files import check_output, open_given, read_text
from headwater.metadata.schema import Schema

PIPE = "a named pipe, not a file"
DRY = ["build", "sqlite:///q.db", "--metadata", "m.json", "--dry-run", "--no-cache"]

pytestmark = pytest.mark.usefixtures("no_surroundings")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: q.db and its m.json."""
    monkeypatch.chdir(tmp_path)
    write_sqlite(tmp_path / "q.db", bookstore())
    Schema.from_dict(bookstore_metadata()).save("m.json")
    return tmp_path


# ---- reading ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store.write_tiny(tmp_path_factory.mktemp("tiny"))


def store_files(path: Path) -> list[Path]:
    return [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != ".lock"]


def test_a_pipe_in_place_of_any_file_of_a_store_is_named(store: Path, tmp_path: Path) -> None:
    """Each of them was waited for, without end."""
    copy = shutil.copytree(store, tmp_path / "s")
    kept = store_files(copy)
    assert len(kept) >= 12
    for file in kept:
        whole = file.rename(tmp_path / "whole")
        os.mkfifo(file)
        with pytest.raises((StoreError, OSError), match=f"(?i){PIPE}") as raised:
            assert headwater.Store(copy).metadata
        assert file.name in str(raised.value)
        file.unlink()
        whole.rename(file)
    assert headwater.Store(copy).metadata


def test_a_device_and_a_folder_in_place_of_a_file_are_named(store: Path, tmp_path: Path) -> None:
    """/dev/zero as metadata.json was read without end."""
    copy = shutil.copytree(store, tmp_path / "s")
    for name, kind in (
        ("graph.bin", "device"),
        ("metadata.json", "device"),
        ("keys.bin", "folder"),
    ):
        (file,) = (file for file in store_files(copy) if file.name == name)
        whole = file.rename(tmp_path / "whole")
        file.mkdir() if kind == "folder" else file.symlink_to("/dev/zero")
        with pytest.raises(StoreError, match=f"a {kind}, not a file"):
            headwater.Store(copy)
        file.rmdir() if kind == "folder" else file.unlink()
        whole.rename(file)


def test_a_check_of_an_open_store_waits_for_no_pipe(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "s")
    with headwater.Store(copy) as opened:
        for name in ("graph.bin", "manifest.json"):
            (file,) = (file for file in store_files(copy) if file.name == name)
            file.unlink()
            os.mkfifo(file)
            if name == "graph.bin":  # it is whole as long as it is mapped
                assert opened.core.verify() == []
            else:
                with pytest.raises(StoreError, match=PIPE):
                    opened.core.verify()


def test_the_audit_waits_for_no_pipe(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "s")
    stored = Stored(copy)
    for file in (copy / "manifest.json", stored.folder / "metadata.json"):
        file.unlink()
        os.mkfifo(file)
    with pytest.raises(StoreError, match=PIPE):
        Stored(copy)
    with pytest.raises(StoreError, match=PIPE):
        assert stored.metadata
    with pytest.raises(StoreError, match=PIPE):
        StoredFile(copy / "manifest.json")


def _csv_folder(pipe: Path) -> list[str]:
    (pipe.parent / "a.csv").write_text("id\n1\n")
    return ["init", str(pipe.parent), "-o", "new.json"]


READERS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "metadata": ("p.json", lambda pipe: ["build", "sqlite:///q.db", "s", "--metadata", str(pipe)]),
    "update": ("p.json", lambda pipe: ["init", "sqlite:///q.db", "--update", "-o", str(pipe)]),
    "sqlite": ("p.db", lambda pipe: ["init", f"sqlite:///{pipe}", "-o", "new.json"]),
    "duckdb": ("p.duckdb", lambda pipe: ["init", f"duckdb:///{pipe}", "-o", "new.json"]),
    "csv": ("b.csv", _csv_folder),
    "parquet": ("b.parquet", _csv_folder),
    "vectors": ("v.parquet", lambda pipe: [*DRY, "--embedder", f"precomputed:{pipe}"]),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_in_place_of_an_input_is_named(
    folder: Path, reader: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Metadata were waited for; of a table only a note remained."""
    name, command = READERS[reader]
    pipe = folder / "data" / name
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    assert main(command(pipe)) == 1
    error = capsys.readouterr().err
    assert PIPE in error and str(pipe) in error
    assert not (folder / "new.json").exists() and not (folder / "s").exists()


def test_label_tables_are_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = {
        "anchor_table": "books", "target_column": "x", "target_stype": "boolean",
        "seeds": {"train": "l.csv"},
    }  # fmt: skip
    Schema.from_dict(bookstore_metadata(x=task)).save("m.json")
    os.mkfifo("l.csv")
    assert main(["build", "sqlite:///q.db", "s", "--metadata", "m.json", "--no-cache"]) == 1
    assert f"{PIPE}: '{folder / 'l.csv'}'" in capsys.readouterr().err


def test_an_endless_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "TEXT_BYTES_MAX", 1 << 20)
    file = tmp_path / "m.json"
    file.write_bytes(b" " * (1 << 20))
    assert len(read_text(file)) == 1 << 20
    with file.open("ab") as more:
        more.write(b" ")
    with pytest.raises(OSError, match=r"Has more than the 1 MiB that are read: '.*m\.json'"):
        read_text(file)
    with pytest.raises(OSError, match="Is a device, not a file: '/dev/zero'"):
        read_text("/dev/zero")


def test_what_the_shell_hands_over_is_read_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (10, files.PIECE_BYTES + 5):
        reading, writing = os.pipe()
        with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=writing):
            os.close(writing)
            monkeypatch.setattr(files, "TEXT_BYTES_MAX", files.PIECE_BYTES)
            if size == 10:
                assert read_text(f"/dev/fd/{reading}", is_given=True) == "\0" * 10
            else:
                with (
                    pytest.raises(OSError, match="Has more than the 1 MiB"),
                    open_given(f"/dev/fd/{reading}") as stream,
                ):
                    stream.readlines()
            os.close(reading)
    (tmp_path / "given.sql").write_text("SELECT 1\r\n")
    with (tmp_path / "given.sql").open("rb") as given:
        assert read_text(f"/dev/fd/{given.fileno()}", is_given=True) == "SELECT 1\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=PIPE):
        read_text(tmp_path / "pipe", is_given=True)


def test_a_link_to_a_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "b") == "text"
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "c")


# ---- writing ---------------------------------------------------------------------------------

WRITTEN = {  # what every command writes, and how it says so
    "init": {"-o": lambda path: ["init", "sqlite:///q.db", "-o", path]},
    "build": {
        "OUT": lambda path: ["build", "sqlite:///q.db", path, "--no-cache"],
        "--texts": lambda path: [*DRY, "--texts", path],
        "--cache": None,  # a folder; see test_a_database_of_others_is_no_cache
    },
}
READ = {"--metadata", "--seeds-dir", "SOURCE", "STORE"}
COMMANDS = [
    pytest.param(command, id=f"{name} {option}")
    for name, options in WRITTEN.items()
    for option, command in options.items()
    if command is not None
]


def test_every_option_that_names_a_path_is_known_to_be_read_or_written() -> None:
    (commands,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        paths = {
            option.option_strings[0] if option.option_strings else option.metavar
            for option in command._actions
            if option.metavar in ("F", "FILE", "DIR", "OUT", "SOURCE", "STORE")
        }
        assert paths - READ == set(WRITTEN.get(name, ())), name


@pytest.fixture(params=["q.db", "m.json", "a link", "a hard link", "another file", "a folder"])
def taken(folder: Path, request: pytest.FixtureRequest) -> Path:
    """A path that is taken by an input or by something else."""
    if request.param in ("q.db", "m.json"):
        return folder / request.param
    path = folder / "taken"
    if request.param == "a link":
        path.symlink_to("q.db")
    elif request.param == "a hard link":
        path.hardlink_to("q.db")
    elif request.param == "a folder":
        path.mkdir()
        (path / "letter.txt").write_text("mine")
    else:
        path.write_text("mine")
    return path


def contents(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        yield str(path.relative_to(folder)), path.lstat().st_mode, data


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_replaces_what_it_did_not_write(
    folder: Path, taken: Path, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """--texts replaced the source, status 0, "nothing was written"."""
    before = list(contents(folder))
    assert main(command(str(taken))) == 1
    assert str(taken) in capsys.readouterr().err
    assert list(contents(folder)) == before


@pytest.mark.parametrize(
    ("option", "command"), [("--texts", DRY), ("-o", ["init", "sqlite:///q.db"])]
)
def test_the_message_names_the_option_of_the_input(
    folder: Path, option: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link").symlink_to("q.db")
    for path in ("q.db", "link"):
        assert main([*command, option, path]) == 1
        said = f"'{path}' is an input (SOURCE) and the output ({option})"
        assert said in capsys.readouterr().err
    assert main([*DRY, "--texts", "m.json"]) == 1
    assert "'m.json' is an input (--metadata) and the output (--texts)" in capsys.readouterr().err


def test_texts_go_to_a_new_file_or_through_a_stream(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*DRY, "--texts", "t.parquet"]) == 0
    assert "the texts are in 't.parquet'" in capsys.readouterr().out
    texts = duckdb.execute("SELECT text FROM 't.parquet' ORDER BY text").fetchall()
    assert ("gift",) in texts and texts == sorted(texts)
    assert sorted(path.name for path in folder.iterdir()) == ["m.json", "q.db", "t.parquet"]
    assert main([*DRY, "--texts", "t.parquet"]) == 1
    assert "'t.parquet' exists already; name another file" in capsys.readouterr().err
    command = [sys.executable, "-m", "headwater", *DRY, "--texts", "/dev/stdout"]
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert piped.startswith((folder / "t.parquet").read_bytes())
    assert main([*DRY, "--texts", "/dev/null"]) == 0


def test_a_schema_replaces_only_a_metadata_json(folder: Path) -> None:
    schema = Schema.load("m.json")
    schema.save("m.json")  # again
    with pytest.raises(FileExistsError, match=r"'q.db' exists already and is not a metadata.json"):
        schema.save("q.db")
    Path("notes.json").write_text("[]")
    with pytest.raises(FileExistsError, match=r"is not a metadata\.json"):
        schema.save("notes.json")
    assert Path("notes.json").read_text() == "[]"


def test_a_database_of_others_is_no_cache(tmp_path: Path) -> None:
    """It was given tables, and the message advised to remove it."""
    database = sqlite3.connect(tmp_path / "vectors.sqlite")
    database.execute("CREATE TABLE orders (id)")
    database.close()
    before = (tmp_path / "vectors.sqlite").read_bytes()
    with pytest.raises(EmbedderError, match="is not a cache of vectors: name another folder"):
        VectorCache(tmp_path, "hash")
    assert (tmp_path / "vectors.sqlite").read_bytes() == before
    (tmp_path / "vectors.sqlite").unlink()
    for _ in range(2):
        VectorCache(tmp_path, "hash").close()
    (tmp_path / "vectors.sqlite").unlink()
    os.mkfifo(tmp_path / "vectors.sqlite")
    with pytest.raises(EmbedderError, match=PIPE):
        VectorCache(tmp_path, "hash", read_only=True)


def test_the_shop_is_written_to_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(FileExistsError, match=r"'.*link' exists already"):
        shop.generate(tmp_path / "link", customers=1, products=1)
    assert not (tmp_path / "elsewhere").exists()


def test_an_own_file_is_replaced_unless_it_is_an_input(tmp_path: Path) -> None:
    file = tmp_path / "own"
    check_output(file, "--out", [("--in", [file])])  # nothing is there
    file.write_text("own")
    (tmp_path / "link").symlink_to("own")
    check_output(file, "--out", [("--in", [tmp_path / "none"])], is_own=lambda path: True)
    for name in ("own", "link"):
        with pytest.raises(ValueError, match=r"is an input \(--in\) and the output \(--out\)"):
            check_output(tmp_path / name, "--out", [("--in", [file])], is_own=lambda path: True)
    (tmp_path / "nowhere").symlink_to("nothing")
    with pytest.raises(FileExistsError, match="exists already and is not ours; move it"):
        check_output(
            tmp_path / "nowhere", "--out", is_own=lambda path: False, what="ours",
            advice="move it",
        )  # fmt: skip
