"""A loader that stays ahead of its trainer, over a sampler alone or over the trainer's own pool:
Option B of seed 000, and its GraphBatchLoader.

    seeds of the next batches, drawn ahead ──► passes of one batch each, open ──► the trainer
                                                num_prefetch of them

The sampler's threads make the batches of open passes. What was drawn ahead and not handed out is in
no state.
"""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from headwater.sampling.batch import Batch
from headwater.sampling.epoch import Epoch
from headwater.sampling.sampler import Sampler
from headwater.sampling.sampler_options import whole
from headwater.sampling.saved_state import check_saved
from headwater.sampling.seed_pool import SeedBatch, SeedPool

LOADER_STATE_VERSION = 1
Piece = tuple[int, int, int]  # first, step, count: entries first, first + step, ... of the seeds


class Items:
    """Seeds in one epoch after another, drawn as from a pool; each piece is shuffled by itself.

    A piece may count an entry behind the last seed: its batches are as many as those of others.
    """

    def __init__(self, sampler: Sampler, split: str, task: str, pieces: tuple[Piece, ...]) -> None:
        self.task, self.pieces, self.position = task, pieces, 0
        self._size = sampler.shape["contexts_per_batch"]
        self._cores = [sampler.seeds_of_piece(split, task, *piece) for piece in pieces]

    def __len__(self) -> int:
        return sum(count for _, _, count in self.pieces)

    def batches(self) -> list[int]:
        """Of each piece."""
        return [-(-count // self._size) for _, _, count in self.pieces]

    def next_batch(self, n: int) -> SeedBatch:
        """The next seeds, at most n; fewer, or none, at the end of a piece."""
        counts = self.batches()
        epoch, batch = divmod(self.position, sum(counts))
        piece = 0
        while batch >= counts[piece]:
            batch, piece = batch - counts[piece], piece + 1
        self.position += 1
        core = self._cores[piece]
        own = core.count()
        core.start_at(epoch * own + batch * n)
        return SeedBatch(self.task, **core.next(min(max(own - batch * n, 0), n))[1])

    def copy(self) -> Items:
        return copy.copy(self)

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = whole("batches", state["batches"])


class Loader:
    """Batches of one split of a sampler, as a data set of a training.

    Without a pool each iteration is an epoch: every seed of this rank's fixed shard once, in an
    order of its own; the last batch may be short. Items are the seeds in stored order. parts=n
    interleaves them: item j stands for seed p * n + i, where i, p = divmod(j, num_items() / n), so
    that n equal slices are the parts of n ranks. All parts have as many batches, with empty
    sequences where they lack a seed, so that collectives never wait.

    With a pool, which the caller owns, batches are what `pool.next_batch` gives, of the sampler's
    batch size; an iteration is len(loader) of them. The pool stands where the batches handed out
    end; if the caller moves it, the loader follows.

    The next iterator continues one that was left early. The sampler is shared, and its `shutdown`
    ends the loader. For one thread at a time.
    """

    def __init__(
        self, sampler: Sampler, split: str = "train", task: str | None = None, *, parts: int = 1,
        pool: SeedPool | None = None,
    ) -> None:  # fmt: skip
        self.sampler, self.device = sampler, None
        self._seeds: SeedPool | Items
        self._of: dict[str, Any]
        if pool is not None:
            if task is not None or parts != 1:
                raise ValueError("give task and parts without a pool, which has its own")
            self._of, self._seeds = {"pool": True}, pool
        else:
            if whole("parts", parts) < 1:
                raise ValueError(f"parts is {parts}, expected at least 1")
            task = sampler.only_task(task)
            count = sampler.seeds_of_piece(split, task, 0, 1, 2**32 - 1).count()
            size = -(-count // parts)
            self._of = {"split": split, "task": task}
            self._seeds = Items(sampler, split, task, tuple((i, parts, size) for i in range(parts)))
        self._begin()

    def _begin(self) -> None:
        self._given = 0  # batches of this iteration
        self._ahead: deque[Epoch] = deque()
        self._twin = self._seeds.copy()  # which draws ahead
        self._expected = self._seeds.state_dict()  # if nobody moves the pool

    # ---- items -----------------------------------------------------------------------------

    def num_items(self) -> int:
        """Seeds of an epoch on this rank; with parts rounded up to as many for each."""
        return len(self._seeds)

    def __len__(self) -> int:
        """Batches of an epoch on this rank, the short last one of each part included."""
        if isinstance(self._seeds, Items):
            return sum(self._seeds.batches())
        return -(-len(self._seeds) // self.sampler.shape["contexts_per_batch"])

    def slice(self, start: int, end: int) -> Loader:
        """A loader over the items from start to before end, from epoch 0. The parts that it touches
        are shuffled and batched one by one. ValueError with a pool: partition the pool."""
        if not isinstance(self._seeds, Items):
            raise ValueError("a loader over a pool has no slices: partition the pool")
        start, end, before = whole("start", start), whole("end", end), 0
        if not 0 <= start <= end <= self.num_items():
            raise ValueError(
                f"slice {start} to {end}, expected numbers from 0 to {self.num_items()}, ascending"
            )
        pieces = []
        for first, step, count in self._seeds.pieces:
            low, high = max(start - before, 0), min(end - before, count)
            before += count
            if low < high:
                pieces.append((first + low * step, step, high - low))
        made = copy.copy(self)
        made._seeds = Items(self.sampler, self._of["split"], self._of["task"], tuple(pieces))
        made._begin()
        return made

    def to_device(self, device: Any) -> Loader:
        """A loader of the same seeds, from where this one stands, whose batches `jax.device_put`
        puts on a device or sharding of JAX. A pool serves one of the two at a time."""
        made = copy.copy(self)
        made.device = device
        if isinstance(self._seeds, Items):
            made._seeds = self._seeds.copy()
        made._begin()
        made._given = self._given
        return made

    # ---- batches ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        while self._given < len(self):
            yield self._next()
        self._given = 0

    def _next(self) -> Batch:
        if self._seeds.state_dict() != self._expected:
            self._ahead.clear()
        if not self._ahead:
            self._twin = self._seeds.copy()
            self._open(1)
        run = self._ahead.popleft()
        self._seeds.next_batch(self.sampler.shape["contexts_per_batch"])
        self._expected = self._seeds.state_dict()
        self._given += 1
        self._open(self.sampler.num_prefetch)
        with run:
            batch = next(run)
        return batch if self.device is None else sys.modules["jax"].device_put(batch, self.device)

    def _open(self, count: int) -> None:
        """Opens passes until so many are ahead."""
        while len(self._ahead) < count:
            drawn = self._twin.next_batch(self.sampler.shape["contexts_per_batch"])
            run = self.sampler.batches_of(drawn.seeds, drawn.task, epoch=drawn.epochs)
            self._ahead.append(run)

    def stats(self) -> dict[str, Any]:
        """Those of the sampler; `pass_queue` counts the batches that are ready."""
        return self.sampler.stats()

    # ---- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the batches handed out end, JSON-able; it names rank and number of ranks."""
        sampler = self.sampler
        pieces = self._seeds.pieces if isinstance(self._seeds, Items) else None
        return {
            "version": LOADER_STATE_VERSION,
            "fingerprint": sampler.store.fingerprint,
            "options": {
                **sampler.state_dict()["options"], **self._of, "rank": sampler.rank,
                "world_size": sampler.world_size, "pieces": pieces and [*map(list, pieces)],
            },
            "given": self._given,
            "seeds": self._seeds.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken, the pool too; ValueError names what differs."""
        check_saved(state, self.state_dict(), "loader")
        self._seeds.load_state_dict(state["seeds"])
        self._begin()
        self._given = whole("given", state["given"])
