"""The train batches that were made before, again: in their order, then their epochs in new ones.

`Replay` stands where a sampler hands out train batches. Its batch k is the sampler's batch k, and
its state is the sampler's, so that a run can be resumed from either with the other. Batches after
the last one that was made are those of the epochs that there are, each time in another order:

    made        epoch 0           epoch 1           cycle 0: as they were made
    then        epoch 0 shuffled  epoch 1 shuffled  cycle 1, 2, ...

An order is a pure function of seed, cycle and epoch, the same on all ranks. What is shuffled are
steps: the batches of a step, which are all parts of `accumulate` batches, stay together, as their
contexts were levelled together.
"""

from __future__ import annotations

import bisect
import copy
import dataclasses
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import headwater
import numpy as np
from headwater.shared import check_saved
from numpy.typing import NDArray

from confluence.packs.pack import Batches

AHEAD = 4  # batches that are expected soon


def epoch_ends(seeds: int, contexts: int, accumulate: int, epochs: int) -> tuple[int, ...]:
    """Batches up to the end of each epoch; an epoch's steps are those that begin in it.

    Args:
        seeds: of train, of all tasks together.
        contexts: of a batch, or of a part of one, over all ranks.
        accumulate: of these in a step.
    """
    steps = (-(-(epoch + 1) * seeds // (contexts * accumulate)) for epoch in range(epochs))
    return tuple(accumulate * count for count in steps)


def epochs_of(batches: int, seeds: int, contexts: int) -> int:
    """Of how many epochs so many batches have seeds."""
    return max(1, math.ceil(batches * contexts / seeds))


@dataclasses.dataclass(frozen=True)
class Order:
    """Which of the batches that were made comes k-th."""

    ends: tuple[int, ...]  # of epochs, in batches
    accumulate: int  # batches of a step, all parts of them
    seed: int

    @property
    def count(self) -> int:
        """How many were made."""
        return self.ends[-1]

    def __getitem__(self, k: int) -> int:
        cycle, place = divmod(k, self.count)
        if cycle == 0:
            return place
        epoch = bisect.bisect_right(self.ends, place)
        start = self.ends[epoch - 1] if epoch else 0
        step, part = divmod(place - start, self.accumulate)
        steps = (self.ends[epoch] - start) // self.accumulate
        shuffled = _shuffled(self.seed, cycle, epoch, steps)
        return start + int(shuffled[step]) * self.accumulate + part


@functools.lru_cache(maxsize=8)
def _shuffled(seed: int, cycle: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The numbers below `count` in an order of this seed, cycle and epoch."""
    key = hashlib.blake2b(f"{seed}/{cycle}/{epoch}".encode(), digest_size=16).digest()
    # Its numbers are the same in every version of NumPy.
    return np.random.RandomState(np.frombuffer(key, "<u4")).permutation(count)


class Replay:
    """A stream of train batches that were made before."""

    def __init__(
        self, batches: Batches, order: Order, first: Mapping[str, Any],
        positions: NDArray[np.uint64], about: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """
        Args:
            first: the state of the sampler that made them, before it did.
            positions: [count + 1, tasks] where its stream stood before each and after the last.
            about: what a log says of them.
        """
        self._batches = batches
        self.order = order
        self._first = first
        self._positions = positions
        self._next = 0
        self.about = about

    def next_train_batch(self) -> headwater.Batch:
        """The next batch."""
        batch = self._batches[self.order[self._next]]
        self._next += 1
        self._batches.expect(self.order[self._next + AHEAD - 1])
        return batch

    def batch(self, split: str, k: int) -> headwater.Batch:
        """Batch k of the stream, as `Sampler.batch`; only train has one."""
        if split != "train":
            raise ValueError(f"split is {split!r}, and only batches of train were made")
        return self._batches[self.order[k]]

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, as `Sampler.state_dict` has it; JSON-able. Once epochs repeat
        its positions are those of the last batch that was made."""
        state = copy.deepcopy(dict(self._first))
        train = state["streams"]["train"]
        place = self._positions[min(self._next, self.order.count)]
        names = list(train["positions"])
        train["positions"] = dict(zip(names, map(int, place), strict=True))
        train["batches"] = self._next
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where a state of the stream, or of the sampler that made it, stands."""
        check_saved(state, self._first, "sampler")
        before, self._next = self._next, int(state["streams"]["train"]["batches"])
        found, own = state["streams"]["train"], self.state_dict()["streams"]["train"]
        if found != own:
            self._next = before
            raise ValueError(
                f"the state is of another stream: after {found['batches']} train batches it stands"
                f" at {found['positions']}, these batches at {own['positions']}"
            )

    def stats(self, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What bounds the stream, as `Sampler.stats` says it: nothing is made."""
        return {"bound_by": "prebatched"}

    def shortage(self, steps: int, share: float) -> str | None:
        """What people hear of a run that takes more batches than were made; None: it does not.

        Args:
            share: of its batches that are of this stream.
        """
        made, needed = self.order.count, round(steps * self.order.accumulate * share)
        if needed <= made:
            return None
        epochs = len(self.order.ends)
        what = "their epoch repeats" if epochs == 1 else f"their {epochs} epochs repeat"
        return (
            f"{steps:,} steps take {needed:,} train batches, and {made:,} were made: from step"
            f" {math.floor(made / share / self.order.accumulate) + 1:,} on {what} in a new order of"
            " batches"
        )


def positions_of(states: Sequence[Mapping[str, Any]]) -> NDArray[np.uint64]:
    """Where the train stream stands in each of some states. → [n, tasks]"""
    rows = [list(state["streams"]["train"]["positions"].values()) for state in states]
    return np.array(rows, np.uint64)
