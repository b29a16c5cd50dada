"""A run's folder: its files appear when they are whole, and one training at a time writes them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwater.shared import regular, whole

LOCK = ".lock"
METADATA = "metadata.json"  # what a run that built its store built it by


def write_whole(path: Path, text: str) -> None:
    """Write a text file that is whole or not there."""
    with whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file; empty where that is not there or not whole."""
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def build_at(store: Path) -> str | None:
    """The fingerprint of the store in a folder, damaged or not; None where there is none."""
    return read_json(store / "manifest.json").get("fingerprint")


def check_outside(folder: Path, sources: Iterable[str], kind: str = "store") -> None:
    """Raise if a run, or a pack, would be written into its own source."""
    for source in sources:
        if folder.resolve().is_relative_to(Path(source).resolve()):
            raise ValueError(
                f"'{folder}' is the {kind} '{source}' or lies in it: choose another folder for the"
                " result (--out)"
            )


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Have a folder, which is made if need be, to oneself; FileExistsError if another process has.

    The lock ends with the process. Where a folder takes none, as on some network file systems or
    where nothing can be written, nobody is kept out.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = _lock(folder)
        try:
            yield
        finally:
            if lock is not None:
                if os.fstat(lock).st_size == 0:  # one that holds something is somebody else's
                    (folder / LOCK).unlink(missing_ok=True)
                os.close(lock)
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is no longer empty
                folder.rmdir()


def _lock(folder: Path) -> int | None:
    """The open lock file of a folder; None where there can be none."""
    path = folder / LOCK
    while True:
        try:
            flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(path, flags, 0o644)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("not a file")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        except BlockingIOError:
            os.close(file)
            raise FileExistsError(
                f"another process trains in '{folder}': wait for it, or choose another folder"
            ) from None
        except FileNotFoundError:  # who had it has just removed it
            pass
        except OSError:
            os.close(file)
            return None
        os.close(file)
