"""The rows of one context and the links between them, without their cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
