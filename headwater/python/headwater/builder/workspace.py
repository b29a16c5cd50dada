"""The folder a build works in: `<out>/.building-<key>`, under the lock of the target.

The key is a digest of all that the work in it depends on: the source's files (path, size, mtime,
ctime and inode), the metadata, the label tables, this package's code and DuckDB's version. A build
that is killed leaves its folder; the next build of the target removes every such folder but one of
its own key, from which it resumes (journal.py says where). They are dead for sure, as the lock is
held, and a build's for sure, as they have its mark (ownership.py). If a source cannot prove to be
unchanged (a database server, tables in memory), the key is random, so that nothing of it is used
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater import binding
from headwater.builder.ownership import (
    BUILD_PREFIX,
    check_target,
    claim_work,
    is_regular,
    remove_unfinished,
    remove_work,
)
from headwater.errors import StoreError
from headwater.sources.open import file_path
from headwater.sources.source import source_text

LOCK = ".lock"
KEY_BYTES = 16
FILE_SCHEMES = {"sqlite": ("-wal", "-journal"), "duckdb": (".wal",)}  # with the files beside


@dataclass
class Workspace:
    """A locked target and the folder to build in; `keep` leaves the folder for the next build."""

    target: Path
    folder: Path
    is_resumable: bool
    keep: bool = False


@contextmanager
def open_workspace(target: Path, key: str | None) -> Iterator[Workspace]:
    """A folder to build in, inside the target, under the target's lock. key None: a new one."""
    check_target(target)
    existed = target.is_dir()
    target.mkdir(parents=True, exist_ok=True)
    lock = _lock(target)
    name = BUILD_PREFIX + (secrets.token_hex(KEY_BYTES) if key is None else key)
    workspace = Workspace(target, target / name, is_resumable=key is not None)
    try:
        for stale in target.glob(f"{BUILD_PREFIX}*"):
            if stale.name != name:
                remove_work(stale)
        claim_work(workspace.folder)
        remove_unfinished(workspace.folder)
        try:
            yield workspace
        finally:
            if not (workspace.keep and workspace.is_resumable):
                remove_work(workspace.folder)
    finally:
        # Only whoever has the lock may remove the folder: in it another build may be at work.
        if not existed and [entry.name for entry in target.iterdir()] == [LOCK]:
            (target / LOCK).unlink()
            with contextlib.suppress(OSError):
                target.rmdir()
        os.close(lock)


def _lock(target: Path) -> int:
    """The open lock file of a target; StoreError while another build has it, or if a link or
    anything but a file stands there."""
    path = target / LOCK
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    strange = f"'{path}' is not a regular file: a build locks it; move it, or choose another folder"
    try:
        lock = os.open(path, flags, 0o644)
    except OSError as error:
        if is_regular(path) or not os.path.lexists(path):
            raise
        raise StoreError(strange) from error
    try:
        if not is_regular(path):
            raise StoreError(strange)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock), path.lstat()):
            raise FileNotFoundError  # a build that failed has just removed it
    except OSError as error:
        os.close(lock)
        raise StoreError(f"another build of '{target}' is running") from error
    except BaseException:
        os.close(lock)
        raise
    return lock


# ---- the key ---------------------------------------------------------------------------------


def source_files(source: Any, target: Path | None = None) -> list[Path] | None:
    """The files of a source that consists of files, without the store that may be among them; None
    of any other source."""
    if isinstance(source, Mapping):
        return None
    text = source_text(source)
    scheme, found, rest = text.partition("://")
    if not found:
        folder, store = Path(text), None if target is None else target.resolve()
        return [
            file
            for file in sorted(folder.rglob("*"))
            if store not in file.resolve().parents
            and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        ]
    if scheme not in FILE_SCHEMES:
        return None
    path = file_path(rest)
    return [path, *(path.with_name(path.name + ending) for ending in FILE_SCHEMES[scheme])]


def file_facts(files: Iterable[Path]) -> list[list[Any]]:
    """Path, size, mtime, ctime and inode of each file that is there: a change changes one of them.
    The ctime changes if a file is put back with its mtime."""
    facts: list[list[Any]] = []
    for file in files:
        try:
            info = file.stat()
        except (OSError, ValueError):  # ValueError: of a zero in the path
            continue
        if not file.is_dir():
            times = [info.st_mtime_ns, info.st_ctime_ns]
            facts.append([str(file.resolve()), info.st_size, *times, info.st_ino])
    return facts


def code_digest() -> str:
    """This package's code: a newer one may convert otherwise."""
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    folder = Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        name = str(file.relative_to(folder))
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    digest.update(binding.LIBRARY.read_bytes())
    return digest.hexdigest()


def work_key(source: Any, target: Path, depends_on: Mapping[str, Any]) -> str | None:
    """The key of the work on a source, given what else it depends on (as JSON)."""
    files = source_files(source, target)
    if files is None:
        return None
    facts = {**depends_on, "files": file_facts(files), "code": code_digest()}
    text = json.dumps(facts, default=str)  # in the order given: that of columns matters
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).hexdigest()
