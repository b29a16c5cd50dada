"""Which runs can have batches in parts, within a `cell_budget`."""

from __future__ import annotations

from confluence.config import Config, ConfigError


def check_budget(cfg: Config, tasks: int) -> None:
    """Raise if a run of so many tasks cannot have its `cell_budget`: the parts of a step would be
    of several."""
    if cfg.cell_budget is not None and tasks > 1:
        raise ConfigError(
            f"cell_budget is for a run of one task, and this one has {tasks}: give a smaller"
            " batch_size and an accumulate as many times as large"
        )
