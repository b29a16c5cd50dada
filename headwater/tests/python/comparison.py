"""Batches of the library compared with those of the reference."""

from __future__ import annotations

import numpy as np
from reference_batch import Arrays, BatchMaker
from reference_order import Order
from world_store import TEXT_DIM, text_vectors


def difference(expected: Arrays, got: Arrays) -> str | None:
    """The first array that differs, where, how often, and which others; None if all are equal."""
    found: list[str] = []
    for name, array in expected.items():
        if name == "parents":
            continue  # of compact batches (test_compact.py)
        other = got[name]
        if array.dtype != other.dtype or array.shape != other.shape:
            return f"{name} is {other.dtype}{other.shape}, expected {array.dtype}{array.shape}"
        wrong = ~np.isclose(array.astype(float), other.astype(float), rtol=2e-6, atol=2e-6)
        if array.dtype != np.float32:
            wrong = array != other
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            where = f"{name}{list(place)} is {other[place]}, expected {array[place]}"
            found.append(name if found else f"{where}, and {wrong.sum() - 1} more")
    return "; also ".join(found) if found else None


def maker_of(order: Order, text_budget: int) -> BatchMaker:
    maker = BatchMaker(order, text_vectors(order.database), text_budget)
    maker.text_dim = TEXT_DIM
    return maker
