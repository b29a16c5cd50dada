"""Memory that a step frees stays with the process, for the next step.

A step's arrays are tens of megabytes, taken and given back at once. glibc hands that much back to
the kernel, which clears each page again when the next step touches it: a quarter of a step on a
processor, measured (docs/notebook/performance.md).
"""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h
MOST = 2**31 - 1  # bytes


def keep_memory() -> None:
    """Let malloc keep freed memory, from now on, in one heap. It is of the whole process and for
    good, so commands call it and functions of the package do not.

    Threads that have a heap of their own by now keep it, and that holds 64 MB at most: to be called
    before JAX is used. Other C libraries than glibc are left as they are, and so is a malloc that
    the environment sets.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(
        name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ
    ):
        return
    for name, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, MOST), (M_ARENA_MAX, 1)):
        mallopt(name, value)
