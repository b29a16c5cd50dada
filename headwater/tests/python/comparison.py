"""Batches of the library compared with those of the reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from typing import Any

import numpy as np
from reference_batch import Arrays, BatchMaker
from reference_compact import dense_of
from reference_order import Order
from world_store import TEXT_DIM, epoch_of, text_vectors


def difference(expected: Arrays, got: Arrays, rounded: Collection[str] | None = None) -> str | None:
    """The first array that differs, where, how often, and which others; None if all are equal.

    Of arrays of float32 the last digits may differ: of all, or of those that `rounded` names.
    """
    found: list[str] = []
    for name, array in expected.items():
        other = got[name]
        if array.dtype != other.dtype or array.shape != other.shape:
            return f"{name} is {other.dtype}{other.shape}, expected {array.dtype}{array.shape}"
        wrong = array != other
        if array.dtype == np.float32 and (rounded is None or name in rounded):
            wrong = ~np.isclose(array.astype(float), other.astype(float), rtol=2e-6, atol=2e-6)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            where = f"{name}{list(place)} is {other[place]}, expected {array[place]}"
            found.append(name if found else f"{where}, and {wrong.sum() - 1} more")
    return "; also ".join(found) if found else None


def maker_of(order: Order, shape: Mapping[str, int]) -> BatchMaker:
    sizes = shape["text_budget"], shape["usual_texts"]
    maker = BatchMaker(order, text_vectors(order.database), *sizes)
    maker.text_dim = TEXT_DIM
    return maker


def check_epochs(sampler: Any, order: Order, index: int = 0) -> None:
    """Every batch of an epoch of each task and split against the reference, array for array."""
    maker = maker_of(order, sampler.shape())
    for task, split in product(order.tasks, range(3)):
        if not order.seeds(split, task):
            continue
        batches, plan = epoch_of(sampler, split, task, index), order.epoch(split, task, index)
        for got, positions in zip(batches, plan, strict=True):
            dense = dense_of(got) if "cells" in got else got
            assert difference(maker.make(positions), dense) is None
