"""The dense arrays out of a compact batch, in plain Python: docs/reference/batch.md, "Compact"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from plain_database import BOOLEAN, CATEGORICAL, NUMERICAL, TEXT, TIMESTAMP
from reference_batch import NONE16, Arrays

NULL, TARGET, PADDING = 8, 16, 32
ONLY_COMPACT = ("cells", "cell_columns", "cell_values", "cell_times", "row_order")


def dense_of(compact: Arrays) -> Arrays:
    """Everything that a dense batch of the same seeds has, and `parents`."""
    cells, values = compact["cells"], compact["cell_values"]
    types, real = cells & 7, cells & PADDING == 0
    present = real & (cells & NULL == 0)

    def slot(stype: int, dtype: Any) -> npt.NDArray[Any]:
        return np.where(present & (types == stype), values, 0).astype(dtype)

    dense = {name: array for name, array in compact.items() if name not in ONLY_COMPACT}
    dense["semantic_types"] = types.astype(np.int8)
    dense["column_ids"] = compact["cell_columns"].astype(np.int32)
    dense["numeric_values"] = slot(NUMERICAL, np.uint32).view(np.float32)
    dense["bool_values"] = slot(BOOLEAN, np.uint8)
    dense["categorical_embed_ids"] = slot(CATEGORICAL, np.uint32)
    dense["text_embed_ids"] = slot(TEXT, np.uint32)
    for name, bit in (("is_null", NULL), ("is_target", TARGET), ("is_padding", PADDING)):
        dense[name] = (cells & bit != 0).astype(np.uint8)
    dense["timestamp_values"] = np.zeros((*cells.shape, 15), np.float32)
    hidden = (cells & TARGET != 0) & ("target_values" in compact)
    for name in [name for name in compact if name.startswith("masked_") and "indices" in name]:
        b, place = np.nonzero(compact[name] >= 0)
        hidden[b, compact[name][b, place]] = True
    for at in np.argwhere(present & (types == TIMESTAMP) & ~hidden):
        b, s = at
        dense["timestamp_values"][b, s, :14] = cyclic_parts(int(compact["cell_times"][b, s]))
        dense["timestamp_values"][b, s, 14] = values[b, s].view(np.float32)
    rows_and_edges(compact, dense)
    return dense


def cyclic_parts(word: int) -> list[float]:
    second, weekday, year_day = word & 0x1FFFF, word >> 17 & 7, word >> 20
    is_leap, year_day = year_day >= 366, year_day % 366
    lengths = (31, 29 if is_leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    month, day = 0, year_day
    while day >= lengths[month]:
        day -= lengths[month]
        month += 1
    parts = (
        second % 60 / 60,
        second // 60 % 60 / 60,
        second // 3600 / 24,
        weekday / 7,
        day / 31,
        month / 12,
        year_day / 366,
    )
    return [wave(2 * math.pi * part) for part in parts for wave in (math.sin, math.cos)]


def rows_and_edges(compact: Arrays, dense: Arrays) -> None:
    sequences, length = compact["cells"].shape
    rows = compact["parents"].shape[1]
    dense["seq_row_ids"] = np.zeros((sequences, length), np.uint16)
    dense["fk_adj"] = np.zeros((sequences, rows, rows), np.uint8)
    dense["col_perm"] = np.zeros((sequences, length), np.uint16)
    dense["out_perm"] = np.zeros((sequences, length), np.uint16)
    for b in range(sequences):
        count, starts = int(compact["num_cells"][b].sum()), compact["row_starts"][b].tolist()
        for row in range(int(compact["num_rows"][b].sum())):
            dense["seq_row_ids"][b, starts[row] : starts[row + 1]] = row
            for parent in compact["parents"][b, row]:
                if parent != NONE16:
                    dense["fk_adj"][b, row, parent] = 1
        columns = compact["cell_columns"][b, :count].tolist()
        if "segment_ids" in compact:
            segments = compact["segment_ids"][b].tolist()
            columns = [(segments[s], column) for s, column in enumerate(columns)]
        by_column = sorted(range(count), key=columns.__getitem__)
        by_row = [
            s
            for row in compact["row_order"][b].tolist()
            if row != NONE16
            for s in range(starts[row], starts[row + 1])
        ]
        padding = list(range(count, length))
        dense["col_perm"][b] = by_column + padding
        dense["out_perm"][b] = by_row + padding
    dense["in_perm"] = dense["out_perm"]
