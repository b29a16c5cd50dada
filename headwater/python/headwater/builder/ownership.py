"""Which files and folders are a store's own: nothing else is removed, replaced or written to.

A build checks this before it begins; C checks it again when it publishes, and when it removes older
builds (src/store/ownership.c). What counts is what files hold, not what they are called:

- A folder is a store if its `manifest.json` is a regular file with our format version, byte order,
  fingerprint and list of files, and the folder that it names is a build, empty, or not there.
- A folder is a build if a file in it begins with our magic and was stamped with the folder's name.
- A folder `.building-<key>` is ours if it has the mark that a build writes before anything else.
  A kill before the mark is whole leaves a folder with nothing else in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

from headwater.binding import FORMAT_VERSION
from headwater.errors import StoreError

MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 64 << 20  # of 130,000 files: more than a store may have
MAGIC = b"\x89HWSTOR\n"
BUILD_ID = slice(16, 32)  # of a file's header
HEADER_BYTES = 64
FINGERPRINT = re.compile(r"[0-9a-f]{32}")
BUILD_PREFIX = ".building-"
MARK = "headwater-build"
MARK_TEXT = "A build of headwater works here; what it leaves may be removed.\n"
WORK_FOLDERS = ("store", "spill")
WORK_FILES = re.compile(r"work\.duckdb(\..*)?|utf8-[0-9]+\.csv|store\.manifest\.json")


# ---- stores ----------------------------------------------------------------------------------


def check_target(target: Path) -> None:
    """StoreError unless a store may be built in `target`: it is a store, empty, or not there."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise StoreError(f"'{target}' is a file, expected a folder for the store")
    if os.path.lexists(target / MANIFEST):
        _check_manifest(target)
        return
    # A first build that was killed while it published leaves its folder without a manifest.
    strange = [
        entry.name
        for entry in target.iterdir()
        if not entry.name.startswith(".")
        and not (FINGERPRINT.fullmatch(entry.name) and is_build(entry))
    ]
    if strange:
        raise StoreError(
            f"'{target}' is not a store and is not empty (it holds '{min(strange)}'); choose "
            "another folder"
        )


def _check_manifest(target: Path) -> None:
    manifest = read_manifest(target / MANIFEST)
    if manifest is None:
        raise StoreError(
            f"'{target}' is not a store: its {MANIFEST} is not that of a store; choose another "
            "folder"
        )
    if manifest["format_version"] > FORMAT_VERSION:
        raise StoreError(
            f"'{target}' is a store of format version {manifest['format_version']}, this headwater "
            f"writes version {FORMAT_VERSION}; choose another folder"
        )
    folder = target / manifest["fingerprint"]
    is_empty = _is_folder(folder) and not any(folder.iterdir())
    if os.path.lexists(folder) and not is_build(folder) and not is_empty:
        raise StoreError(
            f"'{target}' is not a store: '{folder.name}', which its {MANIFEST} names, is not a "
            "build; choose another folder"
        )


def read_manifest(file: Path) -> dict[str, Any] | None:
    """A manifest.json that is a store's, of any version; None of any other. OSError if it may not
    be read."""
    if not is_regular(file) or file.stat().st_size > MANIFEST_BYTES_MAX:
        return None
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    version, fingerprint = found.get("format_version"), found.get("fingerprint")
    files = found.get("files")
    is_ours = (
        type(version) is int
        and version >= 1
        and found.get("byte_order") == "little"
        and isinstance(fingerprint, str)
        and FINGERPRINT.fullmatch(fingerprint) is not None
        and isinstance(files, list)
        and all(isinstance(f, dict) and {"path", "bytes", "checksum"} <= f.keys() for f in files)
        and any(f["path"] == "schema.bin" for f in files)
    )
    return found if is_ours else None


def is_build(folder: Path) -> bool:
    """Whether some file of a folder has our magic and the folder's name as build id."""
    if not _is_folder(folder):
        return False
    stamp = bytes.fromhex(folder.name)
    places = (folder, folder / "tables", folder / "tasks")
    files = (file for place in places if _is_folder(place) for file in sorted(place.glob("*.bin")))
    headers = (_header(file) for file in files if is_regular(file))
    return any(header.startswith(MAGIC) and header[BUILD_ID] == stamp for header in headers)


def left_builds(target: Path, fingerprint: str) -> list[str]:
    """Folders named like builds that publication left: they are none, or hold other files too."""
    names = (entry.name for entry in target.iterdir() if entry.is_dir())
    return sorted(name for name in names if FINGERPRINT.fullmatch(name) and name != fingerprint)


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder itself, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _header(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(HEADER_BYTES)
    except OSError:
        return b""


def is_regular(path: Path) -> bool:
    """Whether a path is a file itself: no link, folder, pipe or device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


# ---- folders of builds at work ---------------------------------------------------------------


def claim_work(folder: Path) -> None:
    """Make a folder to build in, or take up one that a build left; StoreError if it is not ours."""
    if not os.path.lexists(folder):
        folder.mkdir()
    if not is_work(folder):
        raise StoreError(f"'{folder}' is not a folder that a build left: move it")
    if _mark_of(folder) != MARK_TEXT:
        (folder / MARK).unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mark = os.open(folder / MARK, flags, 0o644)
        try:
            os.write(mark, MARK_TEXT.encode())
        finally:
            os.close(mark)


def is_work(folder: Path) -> bool:
    """Whether a build made this folder to work in."""
    if not _is_folder(folder) or not folder.name.startswith(BUILD_PREFIX):
        return False
    if _mark_of(folder) == MARK_TEXT:
        return True
    names = [entry.name for entry in folder.iterdir()]
    return not names or (names == [MARK] and _mark_of(folder) is not None)


def _mark_of(folder: Path) -> str | None:
    """As much of the mark as is there; None of a file with anything else in it."""
    file = folder / MARK
    if not is_regular(file):
        return None
    with file.open("rb") as stream:
        text = stream.read(len(MARK_TEXT) + 1).decode("ascii", "replace")
    return text if MARK_TEXT.startswith(text) else None


def remove_work(folder: Path) -> None:
    """Remove what a build made in its folder; the folder, and last its mark, unless it holds
    something else. What cannot be removed stays."""
    if not is_work(folder):
        return
    for name in WORK_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)  # of a link it does nothing
    for entry in folder.iterdir():
        if WORK_FILES.fullmatch(entry.name):
            _remove(entry)
    if all(entry.name == MARK for entry in folder.iterdir()):
        _remove(folder / MARK)
        _remove(folder)


def remove_unfinished(folder: Path) -> None:
    """Remove half-written files of a killed build and of its database from a folder to work in."""
    for name in WORK_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "store.manifest.json").unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """A file, or an empty folder."""
    with contextlib.suppress(OSError):
        path.rmdir() if _is_folder(path) else path.unlink(missing_ok=True)
