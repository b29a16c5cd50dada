"""Cell dropout of docs/reference/sampling.md, "Cell dropout": a whole context in, what is left of
it out.

Written from that page; shares no code with the library.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import floor

from plain_database import TRAIN
from reference_order import Order, Position, mix, order_key
from reference_sampler import Cell, Context

DOMAIN = 3


def kept_cells(
    order: Order, position: Position, context: Context, masked: Collection[int]
) -> list[int]:
    """Positions of the cells of a whole context that stay, ascending; all but in train contexts."""
    limit = floor(order.options.cell_dropout * 2**32 + 0.5)
    if position.split != TRAIN:
        limit = 0
    assert position.index is not None
    stream = position.task * 4 + position.split
    key = order_key(order.options.seed, DOMAIN, stream << 32 | position.epoch, position.index)

    def is_kept(s: int, cell: Cell) -> bool:
        if cell.is_target or s in masked or context.row_starts[cell.row] == s:
            return True
        return mix(key ^ (cell.row << 32 | cell.column)) >> 32 >= limit

    return [s for s, cell in enumerate(context.cells) if is_kept(s, cell)]


def without(context: Context, kept: list[int]) -> Context:
    """A context with some of its cells; all of its rows and edges."""
    starts = [sum(s < start for s in kept) for start in context.row_starts]
    return replace(context, cells=[context.cells[s] for s in kept], row_starts=starts)
