"""Masked cells of docs/reference/sampling.md, "Masked cells", and the lists of
docs/reference/batch.md, in Python.

Which cells of a finished context are masked, and what that does to the arrays of a batch. Written
from these pages; shares no code with the library.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plain_database import IDENTIFIER, TRAIN, Database, Options
from reference_order import MASK32, Order, Position, Stream, split_of

if TYPE_CHECKING:
    from reference_sampler import Cell, Context

Arrays = dict[str, npt.NDArray[Any]]
TYPES = ("numerical", "timestamp", "boolean", "categorical", "text")  # from type 1 on
VALUE_DTYPES = (np.float32, np.float32, np.uint8, np.uint32, np.uint32)
SLOTS = (
    "numeric_values",
    "timestamp_values",
    "bool_values",
    "categorical_embed_ids",
    "text_embed_ids",
)
FIRST_BLOCK = 2**31


def chosen_cells(order: Order, position: Position, context: Context) -> list[int]:
    """Positions of the cells that the draws choose, ascending; M is not applied yet."""
    options = order.options
    if not options.masked_objective and position.split != TRAIN:
        return []
    kept = kept_columns(order.database)
    candidates = [
        s
        for s, cell in enumerate(context.cells)
        if cell.stype != IDENTIFIER
        and not cell.is_target
        and cell.column < order.database.table_column_count
        and cell.column not in kept
        and not is_held_out(order, context, cell)
    ]
    assert position.index is not None
    stream = Stream(options.seed, 0, 0, 0, 0)
    stream.words = Stream.blocks(
        (options.seed & MASK32, options.seed >> 32),
        position.index,
        position.epoch,
        position.task * 4 + position.split,
        FIRST_BLOCK,
    )
    limit = floor(options.mask_ratio * 2**32 + 0.5)
    chosen = [s for s in candidates if next(stream.words) < limit]
    if not chosen and candidates:
        chosen = [candidates[stream.below(len(candidates))]]
    return chosen


def within_limit(context: Context, chosen: list[int], options: Options) -> list[int]:
    """Of the chosen cells those that are masked: of each type the first M."""
    counts: dict[int, int] = {}
    found = []
    for s in chosen:
        stype = context.cells[s].stype
        counts[stype] = counts.get(stype, 0) + 1
        if counts[stype] <= options.max_targets:
            found.append(s)
    return found


def kept_columns(database: Database) -> set[int]:
    """Columns whose values a context states elsewhere too."""
    kept = set()
    for table in database.tables:
        names = [name for key in table.keys for name in key.columns]
        names += [
            table.columns[table.column_index(name)].known.column
            for name in names
            if table.columns[table.column_index(name)].known.kind == "column"
        ]
        if table.temporal is not None:
            names.append(table.temporal)
        kept |= {database.column_starts[table.name] + table.column_index(name) for name in names}
    return kept


def is_held_out(order: Order, context: Context, cell: Cell) -> bool:
    """Whether the cell is the label of a val or test seed of any cell task of the database."""
    database, row = order.database, context.rows[cell.row]
    if row is None:
        return True  # a row of a task, with columns of its own
    table = database.table_of_row(row)
    column = table.columns[cell.column - database.column_starts[table.name]].name
    return any(
        split_of(database, task, seed, order.options) != TRAIN
        for task in database.tasks
        if not task.derived and (task.anchor_table, task.target) == (table.name, column)
        for seed in task.seeds
        if database.row_starts[table.name] + seed.anchor == row
    )


def blank_lists(options: Options) -> Arrays:
    size = (options.batch_size, options.max_targets)
    arrays: Arrays = {}
    for name, dtype in zip(TYPES, VALUE_DTYPES, strict=True):
        shape = (*size, 15) if name == "timestamp" else size
        arrays[f"masked_{name}_indices"] = np.full(size, -1, np.int32)
        arrays[f"masked_{name}_values"] = np.zeros(shape, dtype)
        arrays[f"masked_{name}_is_null"] = np.zeros(size, np.uint8)
    if not options.masked_objective:
        arrays["target_indices"] = np.full(options.batch_size, -1, np.int32)
    return arrays


def mask(arrays: Arrays, b: int, context: Context, masked: list[int], options: Options) -> None:
    """Moves the values of masked cells of sequence b from the inputs into the lists."""
    if not options.masked_objective:
        arrays["target_indices"][b] = [cell.is_target for cell in context.cells].index(True)
    counts = dict.fromkeys(TYPES, 0)
    for s in masked:
        stype = context.cells[s].stype - 1
        name, slot = TYPES[stype], SLOTS[stype]
        place = counts[name]
        counts[name] += 1
        arrays[f"masked_{name}_indices"][b, place] = s
        arrays[f"masked_{name}_values"][b, place] = arrays[slot][b, s]
        arrays[f"masked_{name}_is_null"][b, place] = arrays["is_null"][b, s]
        arrays[slot][b, s] = 0
        arrays["is_null"][b, s] = 0
        arrays["is_target"][b, s] = 1
