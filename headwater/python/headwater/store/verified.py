"""A store is read to its last byte the first time that a machine opens it, and then believed.

The C library reads and remembers (src/store/remember.c). Here is where it does, what people hear
of a reading that takes long, and which stores this process has verified already.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from headwater import binding
from headwater.console import say
from headwater.user_cache import cache_folder

FOLDER = "verified"  # of the cache
FIRST_LINE_S = 2.0
NEXT_LINE_S = 10.0

_verified: set[str] = set()  # identities
_has_warned = False


def check_files(
    store: binding.Store,
    path: str | os.PathLike[str],
    verify: int,
    each: Callable[[], None] = lambda: None,
) -> None:
    """Raise StoreError, with file and byte, where an open store does not hold what was built.

    verify: of `binding.VERIFY`. each: called about every 100 ms while it is read.
    """
    global _has_warned
    if verify == binding.VERIFY["header"]:
        return
    identity = store.identity()
    if verify == binding.VERIFY["once"] and identity in _verified:
        return
    _verified.discard(identity)
    folder, reason = _folder()
    _, not_remembered = store.check_files(verify, folder, _Progress(os.fspath(path), each))
    _verified.add(identity)
    if verify == binding.VERIFY["once"] and not_remembered and not _has_warned:
        _has_warned = True
        where = f" in '{folder}'" if folder is not None else ""
        warnings.warn(
            f"the result of a verification cannot be remembered{where}"
            f" ({reason or not_remembered}), so that every process reads its stores again;"
            " --no-verify, or verify='header' in Python, skips that",
            stacklevel=3,
        )


def _folder() -> tuple[Path | None, str]:
    """Where it is remembered, or why nowhere."""
    try:
        return cache_folder() / FOLDER, ""
    except RuntimeError as error:
        return None, str(error)


class _Progress:
    """Lines on stderr, once a reading or the wait for another process takes long."""

    def __init__(self, path: str, each: Callable[[], None]) -> None:
        self._path, self._each = path, each
        self._start = time.monotonic()
        self._next = self._start + FIRST_LINE_S
        self._is_waiting = False

    def __call__(self, done: int, total: int) -> None:
        self._each()
        now = time.monotonic()
        if self._is_waiting and done > 0:
            self._start, self._is_waiting = now, False
        if now < self._next:
            return
        self._next = now + NEXT_LINE_S
        if done > 0:
            speed = done / max(now - self._start, 1e-9)
            say(
                f"headwater: verifying '{self._path}': {done / 1e9:.1f} of {total / 1e9:.1f} GB,"
                f" {speed / 1e9:.1f} GB/s"
            )
        elif not self._is_waiting:
            self._is_waiting = True
            say(f"headwater: waiting for another process that verifies '{self._path}'")
