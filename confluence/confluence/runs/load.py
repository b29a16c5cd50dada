"""Opens the run in a folder."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path

from confluence.answers.kept_trees import FILE as TREES
from confluence.config import kept_config
from confluence.data.verification import verified_stores
from confluence.folder import checkpoint
from confluence.runs.run import Run
from confluence.runs.train import listed
from confluence.runs.tree_share import kept_trees


def load(
    out: str | Path, *, store: str | Path | Sequence[str | Path] | None = None,
    which: str | int | None = None, verify: str = "once",
) -> Run:  # fmt: skip
    """Open a run.

    Args:
        store: another place of its store, or a rebuilt one; of its stores, in their order.
        which: the "last" checkpoint, the "best" on val, or that of a step; None: the best if val
            was scored, else the last. The best of several on a small val looks better there than it
            is.
        verify: whether stores are read to their last byte before, as in `train`.
    """
    folder = Path(out)
    step = checkpoint.find_step(folder, which)
    try:
        record = checkpoint.load_record(folder, step)
        params = checkpoint.load_weights(folder, record)
    except checkpoint.DamagedCheckpointError as error:
        others = [str(other) for other in checkpoint.saved_steps(folder) if other != step]
        hint = f"choose another one with --checkpoint ({', '.join(others)}), or " if others else ""
        raise checkpoint.DamagedCheckpointError(f"{error}: {hint}train again") from error
    paths = [] if store is None else [str(path) for path in listed(store)]
    paths = paths or checkpoint.store_paths(folder, record)
    places = checkpoint.read_places(record, paths)
    cfg = kept_config(record["config"])
    is_done = checkpoint.is_done(folder)
    if which in (None, "last") and not is_done:
        last = checkpoint.saved_steps(folder)[-1]
        warnings.warn(
            f"the run in '{folder}' is at step {last} of {cfg.steps}; --resume finishes it",
            stacklevel=2,
        )
    opened = verified_stores(paths, verify)
    for number, path in enumerate(paths):
        checkpoint.check_store(record, opened[path].metadata, number)
    run = Run(
        out=folder, places=places, config=cfg, step=step, params=params,
        stores=tuple(paths), seeds=checkpoint.read_seeds(record),
    )  # fmt: skip
    trees = kept_trees(run)
    missing = [title for title in run.titles if title not in trees]
    if is_done and record.get("trees") and missing:
        warnings.warn(
            f"the run in '{folder}' has no {TREES} for {', '.join(missing)}, so the model answers"
            " alone: `confluence train` with --resume fits the trees",
            stacklevel=2,
        )
    return dataclasses.replace(run, trees=trees)
