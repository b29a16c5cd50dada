"""Seeds of a task that the caller chose, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.binding.conversions import UINT32_MAX

Numbers = Sequence[int] | NDArray[np.integer[Any]]
Chosen = tuple[NDArray[np.uint32], NDArray[np.uint32]]


def chosen_seeds(seeds: Numbers, epoch: int | Numbers) -> Chosen:
    """Seeds and the epoch of each, as C takes them."""
    numbers = _numbers("seeds", seeds)
    epochs = _numbers("epoch", [epoch] * len(numbers) if np.ndim(epoch) == 0 else epoch)
    if len(epochs) != len(numbers):
        raise ValueError(f"epoch has {len(epochs)} entries for {len(numbers)} seeds")
    return numbers, epochs


def _numbers(name: str, given: Any) -> NDArray[np.uint32]:
    numbers = np.asarray(given)
    if numbers.ndim != 1:
        raise ValueError(f"{name} has {numbers.ndim} dimensions, expected a list of integers")
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"{name} holds {numbers.dtype}, expected integers")
    wrong = np.flatnonzero((numbers < 0) | (numbers > UINT32_MAX))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {numbers[wrong[0]]}, expected 0 to 2^32 - 1")
    return numbers.astype(np.uint32)
