"""The weights of one run as the start of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluence.config import Config
from confluence.folder.checkpoint import CheckpointError, load_record, load_weights, weight_shapes
from confluence.training.optimizer import make_optimizer
from confluence.training.step import TrainState


def check_start(start: Path, record: Mapping[str, Any], out: Path) -> None:
    """Raise unless the run in `start` can be where a run with this record starts from, in `out`.

    Another embedder or another shape of the model is an error that says so.
    """
    if start.resolve() == out.resolve():
        raise CheckpointError(
            f"init_from is '{start}', the run that this one would replace: choose another folder"
        )
    theirs = load_record(start)
    if theirs["embedder"] != record["embedder"]:
        raise CheckpointError(
            f"the run in '{start}' read texts embedded by {theirs['embedder']}, this store has"
            f" {dict(record['embedder'])}"
        )
    known, wanted = weight_shapes(theirs), weight_shapes(record)
    for name in _taken(known, wanted):
        if known[name].shape != wanted[name].shape:
            raise CheckpointError(
                f"the run in '{start}' has another model: '{name}' has shape {known[name].shape},"
                f" expected {wanted[name].shape}"
            )
    load_weights(start, theirs)  # raises where they cannot be read, while nothing is removed yet


def start_from(state: TrainState, start: Path, cfg: Config, text_width: int) -> TrainState:
    """A first state with the weights of `start` that answer, which `check_start` let
    pass.

    Taken is what both runs have by name, but not the biases of heads: they start at the base rates
    of the new task.
    """
    found = load_weights(start, load_record(start))
    params = {**state.params, **{name: found[name] for name in _taken(found, state.params)}}
    return state._replace(params=params, optimizer=make_optimizer(cfg, text_width).init(params))


def _taken(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Names of the weights that go from one run to the other."""
    for name in found:
        is_base_rate = name.startswith("heads.") and name.endswith(".bias")
        if name in wanted and not is_base_rate:
            yield name
