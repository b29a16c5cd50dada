"""Saving and loading a trained model, with orbax: `<run>/checkpoint/`.

A checkpoint holds the parameters, their late average, and a record: configuration, task, store and
text embedder. Embeddings of another embedder mean nothing to these weights, so a store with another
one is refused. Writing is atomic: a killed save leaves the previous checkpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from confluence.config import Config
from confluence.model import Params, parameter_table

FORMAT = 1
FOLDER = "checkpoint"


class CheckpointError(ValueError):
    """There is no checkpoint, or it does not fit the store."""


def make_record(
    cfg: Config, metadata: Mapping[str, Any], *, store: str, task: str, moments: dict[str, float]
) -> dict[str, Any]:
    """What a checkpoint says about itself. `moments` undo the scaling of numerical targets."""
    text = metadata["text"]
    return {
        "format": FORMAT,
        "config": cfg.to_dict(),
        "store": store,
        "fingerprint": str(metadata["fingerprint"]),
        "embedder": {"name": text["embedder"], "dim": int(text["dim"])},
        "task": task,
        "moments": moments,
    }


def save(out: Path, params: Params, average: Params, record: Mapping[str, Any]) -> None:
    """Write a checkpoint of a run; an older one is replaced."""
    import orbax.checkpoint as ocp

    arrays = {"params": dict(params), "average": dict(average)}
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(
            (out / FOLDER).absolute(),
            args=ocp.args.Composite(
                arrays=ocp.args.StandardSave(arrays), record=ocp.args.JsonSave(dict(record))
            ),
            force=True,
        )


def load_record(out: Path) -> dict[str, Any]:
    """The record of a run's checkpoint."""
    import orbax.checkpoint as ocp

    if not (out / FOLDER).is_dir():
        raise CheckpointError(f"no checkpoint in '{out}'")
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        restored = checkpointer.restore(
            (out / FOLDER).absolute(), args=ocp.args.Composite(record=ocp.args.JsonRestore())
        )
    record = dict(restored["record"])
    if record.get("format") != FORMAT:
        raise CheckpointError(f"'{out}' has format {record.get('format')}, expected {FORMAT}")
    return record


def load_arrays(out: Path, record: Mapping[str, Any]) -> tuple[Params, Params]:
    """Parameters and their late average, shaped as the record's configuration says."""
    import orbax.checkpoint as ocp

    table = parameter_table(Config.from_dict(record["config"]), record["embedder"]["dim"])
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    leaf: Any = jax.ShapeDtypeStruct
    shapes = {
        name: leaf(entry.shape, jnp.float32, sharding=sharding) for name, entry in table.items()
    }
    target = {"params": shapes, "average": dict(shapes)}
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        restored = checkpointer.restore(
            (out / FOLDER).absolute(),
            args=ocp.args.Composite(arrays=ocp.args.StandardRestore(target)),
        )
    return dict(restored["arrays"]["params"]), dict(restored["arrays"]["average"])


def check_store(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Refuse a store whose embeddings these weights cannot read; warn of one that was rebuilt."""
    text, embedder = metadata["text"], record["embedder"]
    found = (text["embedder"], int(text["dim"]))
    expected = (embedder["name"], embedder["dim"])
    if found != expected:
        raise CheckpointError(
            f"store '{metadata['name']}' has texts embedded by '{found[0]}' with width {found[1]},"
            f" the model was trained with '{expected[0]}' and width {expected[1]}"
        )
    if str(metadata["fingerprint"]) != record["fingerprint"]:
        warnings.warn(
            f"store '{metadata['name']}' was rebuilt since training: fingerprint"
            f" {metadata['fingerprint']}, trained on {record['fingerprint']}",
            stacklevel=2,
        )
