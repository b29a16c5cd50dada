"""Where the package keeps what it can do without: vectors, and which stores were verified."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`headwater` in the user's cache folder, as the XDG rules name it. RuntimeError without a
    home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "headwater"
