"""The flat layout once more, in plain NumPy: contexts of a compact batch laid side by side.

What the sampler's own flat batches must be for the same contexts, and what tests of the model read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from headwater.sampling.expand import CELL_BITS, NO_ROW

Arrays = dict[str, np.ndarray[Any, Any]]

BY_CELL = ("cells", "cell_columns", "cell_values", "cell_times")
BY_BATCH = (
    "text_batch_embeddings", "target_stype", "task_idx", "cat_emb_start", "cat_emb_count",
)  # fmt: skip
IS_TARGET, IS_PADDING = CELL_BITS["is_target"], CELL_BITS["is_padding"]


class FlatBatch(dict[str, Any]):
    """Arrays by name, with the host-side ones in `info`, like `headwater.Batch`."""

    info: Arrays


def lay_out(
    batch: Mapping[str, Any], *, cells: int | None = None, rows: int | None = None,
    order: Iterable[int] | None = None,
) -> FlatBatch:  # fmt: skip
    """The flat batch of a compact one, [B,S] → [1,N].

    Args:
        cells, rows: N and Rn; None: a little more than the contexts have, N a multiple of 64.
        order: the sequences that become contexts, in their order; None: as they are.
    """
    chosen = list(range(len(batch["num_cells"]))) if order is None else list(order)
    cell_counts = batch["num_cells"][chosen].astype(int)
    row_counts = batch["num_rows"][chosen].astype(int)
    N = cells if cells is not None else -(-(cell_counts.sum() + 1) // 64) * 64
    Rn = rows if rows is not None else row_counts.sum() + 3
    assert cell_counts.sum() <= N and row_counts.sum() <= Rn, "no room"
    flat = FlatBatch(_empty(batch, N, Rn))
    flat["context_cells"] = np.append(0, np.cumsum(cell_counts)).astype(np.int32)[None]
    flat["context_rows"] = np.append(0, np.cumsum(row_counts)).astype(np.int32)[None]
    flat["row_starts"][:] = cell_counts.sum()
    flat["context_targets"] = np.full((1, len(chosen)), -1, np.int32)
    for t, b in enumerate(chosen):
        _put(flat, batch, t, b)
    first = flat["context_cells"][0, :-1]
    for name in batch:
        if name.startswith("masked_"):
            array = np.array(batch[name])[chosen]
            if name.endswith("_indices"):
                array = np.where(array >= 0, array + first[:, None], -1).astype(np.int32)
            flat[name] = array
    for name in ("is_labelled", "target_values", "target_is_null"):
        if name in batch:
            flat[name] = np.array(batch[name])[chosen]
    flat |= {name: np.array(batch[name]) for name in BY_BATCH}
    flat["num_contexts"] = np.array([(cell_counts > 0).sum()], np.uint32)
    flat.info = {name: np.array(x)[chosen] for name, x in getattr(batch, "info", {}).items()
                 if np.ndim(x) and len(x) == len(batch["num_cells"])}  # fmt: skip
    return flat


def _empty(batch: Mapping[str, Any], N: int, Rn: int) -> Arrays:
    arrays = {name: np.zeros((1, N), batch[name].dtype) for name in BY_CELL}
    arrays["cells"][:] = IS_PADDING
    arrays["parents"] = np.full((1, Rn, batch["parents"].shape[2]), NO_ROW, np.uint16)
    arrays["row_starts"] = np.zeros((1, Rn + 1), np.uint32)
    arrays["row_ages"] = np.full((1, Rn), -1, np.float32)
    arrays["row_tables"] = np.full((1, Rn), NO_ROW, np.uint16)
    return arrays


def _put(flat: FlatBatch, batch: Mapping[str, Any], t: int, b: int) -> None:
    """Sequence b of the batch as context t."""
    cells, rows = int(batch["num_cells"][b]), int(batch["num_rows"][b])
    cell, row = int(flat["context_cells"][0, t]), int(flat["context_rows"][0, t])
    for name in BY_CELL:
        flat[name][0, cell : cell + cells] = batch[name][b, :cells]
    for name in ("parents", "row_ages", "row_tables"):
        flat[name][0, row : row + rows] = batch[name][b, :rows]
    flat["row_starts"][0, row : row + rows] = batch["row_starts"][b, :rows].astype(np.int64) + cell
    if "target_indices" in batch:  # beside masked cells, which look like targets
        target = int(batch["target_indices"][b])
    else:
        found = np.flatnonzero(batch["cells"][b, :cells] & IS_TARGET)
        target = int(found[0]) if found.size else -1
    flat["context_targets"][0, t] = cell + target if target >= 0 else -1


def spread(flat: Mapping[str, Any], values: Any, width: int) -> Any:
    """What cells have, by context: [N,...] → [n,width,...], 0 behind a context's last cell."""
    starts = flat["context_cells"][0]
    out = np.zeros((len(starts) - 1, width, *values.shape[1:]), values.dtype)
    for t, (first, end) in enumerate(itertools.pairwise(starts)):
        out[t, : end - first] = values[first:end]
    return out
