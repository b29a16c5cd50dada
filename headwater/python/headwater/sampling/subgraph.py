"""The rows of one context and the links between them, without their cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.binding.library import own
from headwater.sampling.batch import Batch
from headwater.sampling.expand import NO_ROW

TASK_TABLE = 65_535  # in `row_tables`


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The context of a seed as a graph; arrays are read-only, R rows in the order of the walk.

    The first row is a derived task's seed row, else the anchor. A row of the task (the seed row, a
    label row) is in no table: its number is 2^32 - 1, its table -1.
    """

    seed: int  # number within the task, as `seed_index` of a batch
    task: str
    rows: NDArray[np.uint32]  # [R] global rows
    row_tables: NDArray[np.int32]  # [R]
    row_depths: NDArray[np.uint8]  # [R] hops from the first row, at most 255
    local_edges: NDArray[np.uint16]  # [E, 2] places in `rows`, each pair once


def one_context(shape: Mapping[str, int]) -> dict[str, Any]:
    """Members of hw_sampler_options for the same contexts one at a time, with their rows."""
    return {
        "batch_size": 1,
        "sequence_length": shape["context_length"],
        "max_rows": shape["max_context_rows"],
        "max_targets_per_type": shape["max_targets_per_type"],
        "layout": binding.header.HW_LAYOUT_COMPACT,
        "with_rows": True,
        "text_mode": binding.header.HW_TEXTS_RESIDENT,
        "text_budget": 0,
        "packing": False,
        "contexts_per_batch": 0,
        "context_length": 0,
        "max_context_rows": 0,
        "level_block": 0,  # the defaults: nothing is levelled
        "level_parts": 0,
        "attention_masks": False,
        "num_threads": 1,
        "num_prefetch": 0,
    }


def subgraph_of(batch: Batch, seed: int, task: str, both: bool) -> Subgraph:
    """The one context of a compact batch with rows."""
    count = int(batch["num_rows"][0])
    tables = batch["row_tables"][0, :count].astype(np.int32)
    tables[tables == TASK_TABLE] = -1
    parents = batch["parents"][0, :count]
    child, key = np.nonzero(parents != NO_ROW)
    listed = np.stack([child.astype(np.uint16), parents[child, key]], axis=1)
    _, first = np.unique(listed, axis=0, return_index=True)  # several keys may join a pair
    edges = listed[np.sort(first)]
    if both:
        known = set(map(tuple, edges.tolist()))
        new = [edge for edge in edges[:, ::-1].tolist() if tuple(edge) not in known]
        edges = np.concatenate([edges, np.array(new, np.uint16).reshape(-1, 2)])
    rows, depths = batch.info["row_ids"][0, :count], batch["row_depths"][0, :count]
    return Subgraph(seed, task, own(rows.copy()), own(tables), own(depths.copy()), own(edges))
