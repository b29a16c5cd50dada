"""The weights of one run as the start of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from confluence.checkpoint import CheckpointError, load_record, load_weights
from confluence.config import Config
from confluence.optimizer import first_optimizer_state
from confluence.train import TrainState


def start_from(
    state: TrainState, folder: Path, cfg: Config, embedder: Mapping[str, Any]
) -> TrainState:
    """A first state with the averaged weights of the last checkpoint in `folder`.

    Taken is what both runs have by name, but not the biases of heads: they start at the base rates
    of the new task. Another embedder or another shape of the model is an error that says so, and so
    is another number of members: those with the same start would stay the same.
    """
    record = load_record(folder)
    if record["embedder"] != embedder:
        raise CheckpointError(
            f"the run in '{folder}' read texts embedded by {record['embedder']}, this store has"
            f" {dict(embedder)}"
        )
    _, found = load_weights(folder, record)
    params = dict(state.params)
    for name, value in found.items():
        is_base_rate = name.startswith("heads.") and name.endswith(".bias")
        if name not in params or is_base_rate:
            continue
        if params[name].shape != value.shape:
            raise CheckpointError(
                f"the run in '{folder}' has another model: '{name}' has shape {value.shape},"
                f" expected {params[name].shape}"
            )
        params[name] = jnp.asarray(np.asarray(value))  # on no device in particular, as first ones
    return state._replace(
        params=params,
        average={name: value.copy() for name, value in params.items()},
        optimizer=first_optimizer_state(params, cfg, int(embedder["dim"])),
    )
