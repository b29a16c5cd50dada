"""The folder of a pack while it is written, and how it takes its name.

A pack is written into `.unfinished-<name>` in the same folder, and takes its name by
one rename when all of it is on the disk. A kill before leaves that folder, which no reader opens;
the next prebatch of that name removes it and begins anew. Two at once do not meet: whoever writes
holds a lock on the folder's mark.

Nothing is removed that is not a pack's: a folder counts as one if it has the mark, or as much of it
as was written before a kill, and no file whose name is none of a pack's. A pack that is replaced
goes by a rename too, to `.replaced-<name>`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from confluence.packs.pack import MARK, MARK_TEXT, UNFINISHED

REPLACED = ".replaced-"
NAMES = re.compile(rf"{re.escape(MARK)}|manifest\.json|tables\.bin|(index|batches)-[0-9]+\.bin")


@contextlib.contextmanager
def publishing(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """An empty folder to write a pack into, which is `out` when the block ends without an error;
    with one it is removed.

    Args:
        overwrite: replace a pack that `out` is already.
    """
    check_free(out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    work = out.with_name(f"{UNFINISHED}{out.name}")
    with _claimed(work) as mark:
        try:
            _empty(work)
            os.write(mark, MARK_TEXT.encode())
            os.fsync(mark)
            yield work
            _sync(work)
        except BaseException:
            _remove(work)
            raise
        _publish(work, out, overwrite=overwrite)


def check_free(out: Path, *, overwrite: bool) -> None:
    """FileExistsError where a pack cannot be written to `out`."""
    if not os.path.lexists(out) or (_is_folder(out) and not any(out.iterdir())):
        return
    if not is_pack(out):
        raise FileExistsError(f"'{out}' is not a pack and is not empty: choose another place")
    if not overwrite:
        raise FileExistsError(
            f"'{out}' holds a pack: replace it with --overwrite, or choose another place"
        )


def is_pack(folder: Path) -> bool:
    """Whether a folder is a pack, whole or not, and holds nothing else."""
    if not _is_folder(folder):
        return False
    files = list(folder.iterdir())
    if not all(NAMES.fullmatch(file.name) and _is_file(file) for file in files):
        return False
    mark = folder / MARK
    return mark in files and _marks(mark.read_bytes(), is_alone=len(files) == 1)


def _marks(text: bytes, *, is_alone: bool) -> bool:
    """Whether a mark is a pack's; one that a kill cut short stands alone."""
    return text == MARK_TEXT.encode() or (is_alone and MARK_TEXT.encode().startswith(text))


@contextlib.contextmanager
def _claimed(work: Path) -> Iterator[int]:
    """The open mark of a folder to write in, which this process alone has."""
    mark = None
    try:
        while mark is None:
            with contextlib.suppress(FileExistsError):
                work.mkdir()
            if not _is_folder(work) or (any(work.iterdir()) and not is_pack(work)):
                raise FileExistsError(f"'{work}' is not a folder that a prebatch left: move it")
            mark = _locked(work / MARK)
        yield mark
    finally:
        if mark is not None:
            os.close(mark)


def _locked(file: Path) -> int | None:
    """A mark that is locked; None where another process has taken its folder away."""
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        mark = os.open(file, flags, 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(mark), file.stat()):
            return mark
    except BlockingIOError:
        os.close(mark)
        raise FileExistsError(
            f"another process writes a pack into '{file.parent}': wait for it, or choose another"
            " place"
        ) from None
    except FileNotFoundError:
        pass
    os.close(mark)
    return None


def _publish(work: Path, out: Path, *, overwrite: bool) -> None:
    """Give a pack its name; one that it replaces is removed."""
    check_free(out, overwrite=overwrite)
    replaced = out.with_name(f"{REPLACED}{out.name}")
    _remove(replaced)  # what a kill left, now that there is another
    if os.path.lexists(out):
        out.rename(replaced)
    work.rename(out)
    _sync(out.parent)
    _remove(replaced)


def _empty(work: Path) -> None:
    """Remove what a kill left in a folder, but for its mark, whose text is removed."""
    for file in work.iterdir():
        if file.name != MARK:
            file.unlink()
    os.truncate(work / MARK, 0)


def _remove(folder: Path) -> None:
    """Remove a folder that is a pack, the mark last."""
    if not is_pack(folder):
        return
    for file in sorted(folder.iterdir(), key=lambda file: file.name == MARK):
        file.unlink()
    folder.rmdir()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)
