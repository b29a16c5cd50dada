"""Memory that a step frees stays with the process, for the next step.

A step's arrays are tens of megabytes, taken and given back at once. glibc hands that much back to
the kernel, which clears each page again when the next step touches it: a quarter of a step of a
small model, measured.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
MOST = 2**31 - 1  # bytes


def keep_memory() -> None:
    """Let malloc keep freed memory, from now on, in one heap. Other C libraries than glibc are
    left as they are.

    Threads that have a heap of their own by now keep it, and that holds 64 MB at most: to be called
    before JAX is used.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for name, value in ((M_MMAP_THRESHOLD, MOST), (M_TRIM_THRESHOLD, MOST), (M_ARENA_MAX, 1)):
            mallopt(name, value)
