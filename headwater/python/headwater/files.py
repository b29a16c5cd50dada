"""Files that a user names: only regular ones are read, and none is replaced that a command did not
write.

A named pipe keeps its reader until somebody writes, and a device may have no end. So files are
opened with `regular`, and those that a library opens are checked with `check_regular` before. A
stream that the shell hands over (`/dev/stdin`, `/dev/fd/N`) is read up to a bound, if a command
reads its file once.

A path that is written is checked with `check_output`: an input is never replaced, and of other
files only what the command itself wrote.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

TEXT_BYTES_MAX = 64 << 20  # of a text that is read as a whole, and of what the shell hands over
PIECE_BYTES = 1 << 20
HANDED_OVER = re.compile(r"/dev/(stdin|stdout|stderr|fd/[0-9]+)|/proc/self/fd/[0-9]+")
KINDS = (
    (stat.S_ISFIFO, "named pipe"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISSOCK, "socket"),
)

AnyPath = str | os.PathLike[str]
Inputs = Iterable[tuple[str, Iterable[AnyPath]]]  # the option that names them, and files


# ---- reading ---------------------------------------------------------------------------------


def regular(path: str, flags: int) -> int:
    """An opener for `open`: the descriptor of a regular file, or of a link to one. It never waits;
    OSError with the kind of anything else."""
    check_regular(path)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    try:
        _refuse_kind(os.fstat(descriptor).st_mode, path)  # it may have changed since
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(path: AnyPath) -> None:
    """OSError if something else than a regular file is at a path. If nothing is there, the caller
    has the better words."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    _refuse_kind(mode, path)


def _refuse_kind(mode: int, path: AnyPath) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    kind = next((name for is_kind, name in KINDS if is_kind(mode)), "special file")
    raise OSError(errno.EINVAL, f"Is a {kind}, not a file", os.fspath(path))


def open_given(path: AnyPath) -> BinaryIO:
    """A file that a command reads once: a regular one, or a stream that the shell hands over, of
    which TEXT_BYTES_MAX bytes are read at most."""
    if HANDED_OVER.fullmatch(os.fspath(path)) is None:
        return open(path, "rb", opener=regular)
    raw = io.FileIO(os.fspath(path))
    if stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return io.BufferedReader(raw)
    return io.BufferedReader(_Bounded(raw, os.fspath(path)))


class _Bounded(io.RawIOBase):
    """A stream that may have no end; it fails after TEXT_BYTES_MAX bytes."""

    def __init__(self, raw: io.FileIO, path: str) -> None:
        self._raw, self._path, self._left = raw, path, TEXT_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int | None:  # type: ignore[override]
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise _too_long(self._path)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def read_bytes(path: AnyPath, *, is_given: bool = False) -> bytes:
    """A small file as a whole. is_given: the shell may hand it over (`open_given`)."""
    data = bytearray()
    with open_given(path) if is_given else open(path, "rb", opener=regular) as file:
        while piece := file.read(PIECE_BYTES):
            data += piece
            if len(data) > TEXT_BYTES_MAX:
                raise _too_long(os.fspath(path))
    return bytes(data)


def read_text(path: AnyPath, encoding: str = "utf-8", *, is_given: bool = False) -> str:
    """The text of a small file, its lines ended by a newline alone."""
    data = io.BytesIO(read_bytes(path, is_given=is_given))
    return io.TextIOWrapper(data, encoding=encoding).read()


def _too_long(path: str) -> OSError:
    return OSError(errno.EFBIG, f"Has more than the {TEXT_BYTES_MAX >> 20} MiB that are read", path)


# ---- writing ---------------------------------------------------------------------------------


def check_output(
    path: AnyPath,
    option: str,
    inputs: Inputs = (),
    *,
    is_own: Callable[[Path], bool] | None = None,
    what: str = "",
    advice: str = "name another file, or remove this one",
) -> None:
    """Raise unless a command may write a file.

    An input is refused (ValueError), by whatever name or link. So is what exists already
    (FileExistsError), unless it is a file that the command writes itself.

    option: the one that names the path. inputs: the files that the command reads, each with the
    option that names them. is_own: whether the command wrote a file; what: a file that it writes,
    such as "a metadata.json". advice: another way.
    """
    path = Path(path)
    check_no_input(path, option, inputs)
    if not os.path.lexists(path) or (is_own is not None and is_own(path)):
        return
    other = f" and is not {what}" if is_own is not None else ""
    raise FileExistsError(f"'{path}' exists already{other}; {advice}")


def check_no_input(path: AnyPath, option: str, inputs: Inputs) -> None:
    """ValueError if the path of an output leads to one of the inputs."""
    found = _identity(path)
    for name, files in inputs:
        if found is not None and any(_identity(file) == found for file in files):
            raise ValueError(
                f"'{path}' is an input ({name}) and the output ({option}): name another file with"
                f" {option}"
            )


def _identity(path: AnyPath) -> tuple[int, int] | None:
    """Which file a path leads to; None if there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):  # ValueError: of a zero in the path
        return None
    return info.st_dev, info.st_ino


def is_stream(path: AnyPath) -> bool:
    """Whether a path leads to a stream, such as /dev/stdout: writing to it replaces nothing."""
    if HANDED_OVER.fullmatch(os.fspath(path)):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return any(is_kind(mode) for is_kind, _ in KINDS)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file that nobody is to find half-written, also if several processes or
    threads write it at once: the last one's stays."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
