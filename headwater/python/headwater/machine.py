"""What the machine, or the container on it, has."""

from __future__ import annotations

import os
import resource
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container: a number, or "max"


def machine_bytes() -> int:
    """Memory of the machine, or of the container or `ulimit -v` if that has less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    found = found if limit == resource.RLIM_INFINITY else min(found, limit)
    try:
        most = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return found
    return min(found, int(most)) if most.isdigit() else found


def check_address_space(needed: int, what: str) -> None:
    """MemoryError if `ulimit -v` leaves this process less than so many bytes. Libraries such as
    DuckDB's and XLA's crash if they get none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    left = max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 0)
    if left < needed:
        raise MemoryError(
            f"{what} needs {needed >> 20:,} MiB of address space, and `ulimit -v` leaves"
            f" {left >> 20:,} MiB: give it more, or no limit"
        )
