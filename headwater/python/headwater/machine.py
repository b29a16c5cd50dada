"""What the machine, or the container on it, has."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container: a number, or "max"


def machine_bytes() -> int:
    """Memory of the machine, or of the container if that has less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return found
    return min(found, int(limit)) if limit.isdigit() else found
