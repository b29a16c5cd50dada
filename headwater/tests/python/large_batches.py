"""A sampler whose batches take long."""

from __future__ import annotations

from pathlib import Path

import headwater


def large(path: Path) -> headwater.Sampler:
    """Whose batches take long enough to wait for."""
    return headwater.Sampler(
        db_path=path, default_batch_size=60_000, default_sequence_length=64, max_rows=32,
        text_budget=200_000, num_threads=1, num_prefetch=1, num_prefetch_val=1,
    )  # fmt: skip
