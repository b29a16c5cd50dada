"""A damaged store does not open, and a sound one is read once on a machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import headwater
import pytest
from databases import arrow_tables, asked, bookstore, bookstore_metadata
from headwater import binding
from headwater.builder.build import build
from headwater.cli.main import main
from headwater.errors import StoreError
from headwater.store import verified
from headwater.user_cache import cache_folder

ONCE, FULL = binding.VERIFY["once"], binding.VERIFY["full"]
# Three tables, a task, vectors of texts, columns and categories; graph, keys, texts; schema.bin,
# metadata.json and manifest.json.
FILE_COUNT = 3 + 1 + 3 + 3 + 3
BEFORE, NOW = binding.VERIFIED["before"], binding.VERIFIED["now"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    query = "SELECT book_id, sold_at AS at, copies > 1 AS many, 'train' AS part FROM sales"
    task = asked(query, "books", "many boolean", "at", split_column="part")
    document = bookstore_metadata(reprint=task)
    path = tmp_path_factory.mktemp("bookstore") / "store"
    build(arrow_tables(bookstore()), path, document, cache=False)
    return path


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """A copy: the same bytes and times in files of its own."""
    return Path(shutil.copytree(built, tmp_path / "store"))


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is not there yet, and a process that has verified nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "_verified", set())
    monkeypatch.setattr(verified, "_has_warned", False)
    return tmp_path / "cache" / "headwater" / "verified"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes in all, once for each time that a store is read."""
    found: list[int] = []
    tell = verified._Progress.__call__

    def note(self: verified._Progress, done: int, total: int) -> None:
        if done > 0:  # of the tiny store it is told once
            found.append(total)
        tell(self, done, total)

    monkeypatch.setattr(verified._Progress, "__call__", note)
    return found


def files_of(store: Path) -> list[Path]:
    return sorted(p for p in store.rglob("*") if p.is_file() and p.name != ".lock")


def flip(file: Path, *, keep_times: bool = False) -> None:
    """Another byte in the middle, in the same file."""
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    if keep_times:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def core_check(
    store: Path, folder: Path | None, progress: Callable[[int, int], object] = lambda *_: None
) -> tuple[int, str]:
    return binding.Store(store).check_files(ONCE, folder, progress)


# ---- damage ----------------------------------------------------------------------------------


def test_a_flipped_byte_of_any_file_is_an_error_that_names_it(built: Path, tmp_path: Path) -> None:
    """It opened in all but one of them, and was trained on."""
    names = [file.relative_to(built) for file in files_of(built)]
    assert len(names) == FILE_COUNT
    opened = set()
    for number, name in enumerate(names):
        copy = Path(shutil.copytree(built, tmp_path / str(number)))
        headwater.Store(copy).close()  # is remembered, but not as it is damaged now
        flip(copy / name)
        said = rf"{re.escape(str(copy / name))}'.*, byte \d+\)"
        with pytest.raises(StoreError, match=said):
            headwater.Store(copy)
        with pytest.raises(StoreError, match=said):
            headwater.Store(copy, load="ram", verify="full")
        with pytest.raises(StoreError, match=said):
            headwater.Sampler(db_path=copy, num_threads=1)
        try:
            headwater.Store(copy, verify="header").close()
            opened.add(name.name)
        except StoreError:
            pass
    assert {name.name for name in names} - opened == {"schema.bin"}


def test_the_message_says_what_to_do_and_verify_lists_it(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(store / "manifest.json")
    byte = (store / "manifest.json").stat().st_size // 2
    fault = (
        "manifest.json does not list the files of its build"
        f" (in '{store / 'manifest.json'}', byte {byte})"
    )
    with pytest.raises(StoreError) as error:
        headwater.Store(store)
    assert str(error.value) == (
        f"{fault}; build the store again, `headwater verify` lists all faults"
    )
    assert main(["verify", str(store)]) == 1
    assert capsys.readouterr().out == fault + "\n"


@pytest.mark.parametrize("command", ["sample", "audit"])
def test_a_command_refuses_a_damaged_store_unless_told(
    command: str, store: Path, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(next(store.rglob("text_embeddings.bin")))
    arguments = [command, str(store), "--task", "reprint"]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("headwater: a section has a wrong checksum (in ")
    shutil.rmtree(machine)
    assert main([*arguments, "--no-verify"]) == 0
    said = capsys.readouterr()
    assert "reprint" in said.out and said.err == "" and not machine.exists()


def test_inspect_shows_a_damaged_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(next(store.rglob("texts.bin")))
    assert main(["inspect", str(store)]) == 0
    assert "authors" in capsys.readouterr().out


def test_an_option_of_the_audit_is_not_taken_as_one_of_the_sampler(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(store), "--sampler-option", "verify=full"]) == 1
    assert capsys.readouterr().err == "headwater: an audit sets verify itself\n"


def test_verify_is_one_of_three_words(store: Path) -> None:
    with pytest.raises(ValueError, match="verify is 'twice', expected one of 'once', 'header', "):
        headwater.Store(store, verify="twice")
    with (
        headwater.Store(store) as opened,
        headwater.Sampler(store=opened, verify="full", num_threads=1) as sampler,
    ):
        assert "verify" not in sampler.state_dict()


# ---- what is remembered ----------------------------------------------------------------------


def test_a_store_is_read_once_by_a_process_and_once_on_a_machine(
    store: Path, machine: Path, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_of_files = sum(file.stat().st_size for file in files_of(store))
    bytes_of_files -= (store / "manifest.json").stat().st_size
    headwater.Store(store, verify="header").close()
    assert not readings and not machine.exists()
    headwater.Store(store).close()
    headwater.Store(store, load="ram").close()
    assert readings == [bytes_of_files]
    assert [path.name for path in machine.iterdir()] == [binding.Store(store).identity()]
    monkeypatch.setattr(verified, "_verified", set())  # another process
    headwater.Store(store).close()
    with headwater.Sampler(db_path=store, num_threads=1):
        pass
    assert len(readings) == 1
    headwater.Store(store, verify="full").close()
    assert len(readings) == 2
    assert cache_folder() / "verified" == machine


def test_a_copy_and_what_is_written_later_is_read_again(
    store: Path, tmp_path: Path, readings: list[int]
) -> None:
    headwater.Store(store).close()
    headwater.Store(shutil.copytree(store, tmp_path / "copy")).close()
    assert len(readings) == 2
    for file in files_of(store):
        file.write_bytes(file.read_bytes())
        headwater.Store(store).close()
    assert len(readings) == 2 + FILE_COUNT


def test_a_damaged_backup_that_is_put_back_with_its_times_is_read_again(
    store: Path, tmp_path: Path
) -> None:
    """As by `cp -a backup store`: of six, five were believed, because inode numbers come back."""
    backup = tmp_path / "backup"
    subprocess.run(["cp", "-a", store, backup], check=True)
    flip(next(backup.rglob("graph.bin")), keep_times=True)
    for _ in range(6):
        headwater.Store(store).close()
        shutil.rmtree(store)
        subprocess.run(["cp", "-a", backup, store], check=True)
        with pytest.raises(StoreError, match=r"graph\.bin"):
            headwater.Store(store)
        flip(next(store.rglob("graph.bin")), keep_times=True)  # sound again
    flip(next(store.rglob("graph.bin")), keep_times=True)  # in place
    with pytest.raises(StoreError, match=r"graph\.bin"):
        headwater.Store(store)


def test_rot_that_leaves_all_times_is_for_a_full_reading(
    store: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rot on the disk: a mark of the store as it is now stands for the reading before it rotted."""
    headwater.Store(store).close()
    flip(next(store.rglob("graph.bin")))
    mark = machine / binding.Store(store).identity()
    mark.write_text("sound\n", encoding="utf-8")
    headwater.Store(store).close()
    monkeypatch.setattr(verified, "_verified", set())
    headwater.Store(store).close()
    with pytest.raises(StoreError, match=r"graph\.bin"):
        headwater.Store(store, verify="full")
    assert not mark.exists()
    with pytest.raises(StoreError, match=r"graph\.bin"):
        headwater.Store(store)
    assert not mark.exists()


# ---- where nothing can be remembered ---------------------------------------------------------


@pytest.mark.parametrize("home", ["file", "refusing", "none"])
def test_without_a_cache_each_process_reads_and_says_so_once(
    home: str, store: Path, tmp_path: Path, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if home == "file":
        (tmp_path / "cache").write_text("")
        said = rf" in '{re.escape(str(tmp_path))}/cache/headwater/verified' \(Not a directory\)"
    elif home == "refusing":
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
        said = r" in '/proc/headwater/verified' \(No such file or directory\), so that every"
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")

        def no_home() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", no_home)
        said = r"remembered \(Could not determine home directory\.\), so that every process"
    with pytest.warns(UserWarning, match=said):
        headwater.Store(store)
    headwater.Store(store)
    assert len(readings) == 1
    headwater.Store(shutil.copytree(store, tmp_path / "copy"))  # a second warning would be an error
    assert len(readings) == 2


def test_a_mark_is_no_link(store: Path, machine: Path, tmp_path: Path) -> None:
    mark = machine / binding.Store(store).identity()
    machine.mkdir(parents=True)
    mark.symlink_to(tmp_path / "elsewhere")
    assert core_check(store, machine) == (NOW, os.strerror(40))  # ELOOP
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "elsewhere").write_text("sound\n")
    assert core_check(store, machine)[0] == NOW


def test_a_mark_is_believed_where_none_can_be_written(store: Path, machine: Path) -> None:
    """As in a home that is read-only by now."""
    assert core_check(store, machine) == (NOW, "")
    mark = machine / binding.Store(store).identity()
    mark.chmod(0o400)
    machine.chmod(0o500)
    assert core_check(store, machine) == (BEFORE, "")
    machine.chmod(0o700)


# ---- several processes -----------------------------------------------------------------------

# Says how it was verified. While it reads it waits until another one waits for it.
ONE_OF_TWO = """
import sys, time
from pathlib import Path
from headwater import binding

store, folder, scratch = map(Path, sys.argv[1:])

def progress(done, total):
    (scratch / ("reading" if done else "waiting")).touch()
    while done and not (scratch / "waiting").exists():
        time.sleep(0.01)

print(binding.Store(store).check_files(0, folder, progress)[0])
"""
# Dies while it reads.
KILLED = """
import os, signal, sys
from headwater import binding

def progress(done, total):
    assert done
    os.kill(os.getpid(), signal.SIGKILL)

binding.Store(sys.argv[1]).check_files(0, sys.argv[2], progress)
"""


def test_of_two_processes_one_reads(store: Path, machine: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ONE_OF_TWO, str(store), str(machine), str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = sorted(int(each.communicate(timeout=60)[0]) for each in both)
    assert found == [BEFORE, NOW]


def test_a_process_that_is_killed_while_it_reads_leaves_nothing_believed(
    store: Path, machine: Path
) -> None:
    command = [sys.executable, "-c", KILLED, str(store), str(machine)]
    assert subprocess.run(command, check=False).returncode == -9
    assert [mark.stat().st_size for mark in machine.iterdir()] == [0]
    assert core_check(store, machine) == (NOW, "")
    assert core_check(store, machine) == (BEFORE, "")


def test_an_interrupt_ends_a_reading(store: Path, machine: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        core_check(store, machine, interrupt)
    assert core_check(store, machine) == (NOW, "")


# ---- what people hear ------------------------------------------------------------------------


def test_progress_is_told_from_two_seconds_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([100.0, 101.9, 102.0, 111.9, 112.0])
    monkeypatch.setattr(verified.time, "monotonic", lambda: next(times))
    beats: list[int] = []
    progress = verified._Progress("a\x1b.hw", lambda: beats.append(1))
    for done in (2e9, 3e9, 4e9, 6e9):
        progress(int(done), 8_000_000_000)
    assert capsys.readouterr().err == (
        "headwater: verifying 'a\\x1b.hw': 3.0 of 8.0 GB, 1.5 GB/s\n"
        "headwater: verifying 'a\\x1b.hw': 6.0 of 8.0 GB, 0.5 GB/s\n"
    )
    assert len(beats) == 4


def test_a_wait_for_another_process_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 1.9, 2.0, 12.0, 22.0, 30.0, 34.0])
    monkeypatch.setattr(verified.time, "monotonic", lambda: next(times))
    progress = verified._Progress("s", lambda: None)
    for _ in range(4):
        progress(0, 8_000_000_000)
    assert capsys.readouterr().err == "headwater: waiting for another process that verifies 's'\n"
    for done in (1e9, 5e9):  # that one ended in vain, and this one reads
        progress(int(done), 8_000_000_000)
    assert capsys.readouterr().err == "headwater: verifying 's': 5.0 of 8.0 GB, 1.2 GB/s\n"
