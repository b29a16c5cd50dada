"""A loader that stays ahead of its trainer, over a sampler alone or over the trainer's own pool:
Option B of seed 000, and its GraphBatchLoader.

    seeds of the next batches, drawn ahead ──► passes of one batch each, open ──► the trainer
                                                num_prefetch of them

The sampler's threads make the batches of open passes. What was drawn ahead and not handed out is in
no state.
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from headwater.sampling.batch import Batch
from headwater.sampling.epoch import Epoch
from headwater.sampling.sampler import Sampler
from headwater.sampling.sampler_options import whole
from headwater.sampling.saved_state import check_saved, natural
from headwater.sampling.seed_pool import SeedBatch, SeedPool

LOADER_STATE_VERSION = 1
Piece = tuple[int, int, int]  # first, step, count: entries first, first + step, ... of the seeds


class Items:
    """Seeds in one epoch after another, drawn as from a pool; each piece is shuffled by itself.

    A piece may count an entry behind the last seed: its batches are as many as those of others.
    """

    def __init__(self, sampler: Sampler, split: str, task: str, pieces: tuple[Piece, ...]) -> None:
        self.sampler, self.split, self.task, self.pieces = sampler, split, task, pieces
        self.position = 0  # batches
        self._size = sampler.shape["contexts_per_batch"]

    def most_of_a_rank(self) -> int:
        return sum(count for _, _, count in self.pieces)

    def batches(self) -> list[int]:
        """Of each piece."""
        return [-(-count // self._size) for _, _, count in self.pieces]

    def next_batch(self, n: int) -> SeedBatch:
        """The next seeds, at most n; fewer, or none, at the end of a piece."""
        counts = self.batches()
        epoch, batch = divmod(self.position, sum(counts))
        place = 0
        while batch >= counts[place]:
            batch, place = batch - counts[place], place + 1
        core, piece = self.sampler.seeds_of(self.split, self.task), self.pieces[place]
        own = core.count(piece)
        start = ([epoch * own + min(batch * n, own)] * core.task_count, 0)
        drawn = core.draw(piece, start, min(max(own - batch * n, 0), n))[1]
        self.position += 1
        return SeedBatch(self.task, **drawn)

    def copy(self) -> Items:
        return copy.copy(self)

    def place(self) -> int:
        return self.position

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping) or "batches" not in state:
            raise ValueError(f"the state is not whole: 'seeds' is {state!r}")
        self.position = natural("batches", state["batches"])


class Placed:
    """The next batch of a loader, on its way to a device; closed when the sampler shuts down."""

    def __init__(self) -> None:
        self.batch: Any = None

    def close(self) -> None:
        self.batch = None


class Loader:
    """Batches of one split of a sampler, as a data set of a training.

    Without a pool each iteration is an epoch: every seed of this rank's fixed shard once, in an
    order of its own; the last batch may be short. split None is train; task None the sampler's only
    one. Items are the seeds in stored order. parts=n interleaves them: item j stands for seed
    p * n + i, where i, p = divmod(j, num_items() / n), so that n equal slices are the parts of n
    ranks. All ranks and all parts have as many batches, with empty sequences where they lack a
    seed, so that collectives never wait.

    With a pool, which the caller owns, batches are what `pool.next_batch` gives, of the sampler's
    batch size; an iteration is len(loader) of them. The pool stands where the batches handed out
    end; if the caller moves it, the loader follows.

    With layout="flat" each batch is that of `Sampler.batch_of`: levelled to the sizes of the task's
    train batches. Some contexts may then be cut, in val and test too; `Sampler.epoch` cuts none:
    evaluate with it.

    The next iterator continues one that was left early. The sampler is shared: its `shutdown` ends
    the loader, and its own train stream is filled once besides. num_prefetch=None keeps three
    batches ahead. For one thread at a time.
    """

    def __init__(
        self, sampler: Sampler, split: str | None = None, task: str | None = None, *,
        parts: int = 1, pool: SeedPool | None = None,
    ) -> None:  # fmt: skip
        for name, value, kind in (("sampler", sampler, Sampler), ("pool", pool, SeedPool)):
            if not (isinstance(value, kind) or (name == "pool" and value is None)):
                raise TypeError(f"{name} is {value!r}, expected a {kind.__name__}")
        self.sampler = sampler
        self._put: Callable[[Batch], Any] | None = None  # on a device
        self._seeds: SeedPool | Items
        self._of: dict[str, Any]
        if pool is not None:
            if split is not None or task is not None or parts != 1:
                raise ValueError("give split, task and parts without a pool, which has its own")
            sampler.check_pool(pool)
            self._of, self._seeds = {"pool": True}, pool
        else:
            self._of = {
                "split": "train" if split is None else split,
                "task": sampler.only_task(task),
            }
            sampler.seeds_of(**self._of)  # TaskError if there are none
            shard = -(-sampler.num_seeds(**self._of) // sampler.world_size)
            if not 1 <= whole("parts", parts) <= shard:
                raise ValueError(f"parts is {parts}, expected 1 to {shard}, the seeds of a rank")
            size = -(-shard // parts)
            self._seeds = self._items((i, parts, size) for i in range(parts))
        self._begin()

    def _items(self, pieces: Iterable[Piece]) -> Items:
        return Items(self.sampler, self._of["split"], self._of["task"], tuple(pieces))

    def _begin(self, given: int = 0) -> None:
        self._given = given  # batches of this iteration
        self._ahead: deque[Epoch] = deque()
        self._placed = Placed()
        self._twin: SeedPool | Items | None = None  # which draws ahead
        self._expected: Any = None  # where the seeds stand if nobody moves them

    # ---- items -----------------------------------------------------------------------------

    def num_items(self) -> int:
        """Seeds of an epoch on each rank, rounded up; with parts rounded up to as many for each."""
        return self._seeds.most_of_a_rank()

    def __len__(self) -> int:
        """Batches of an epoch on each rank, the short last one of each part included."""
        if isinstance(self._seeds, Items):
            return sum(self._seeds.batches())
        return -(-self.num_items() // self.sampler.shape["contexts_per_batch"])

    def batches_per_epoch(self) -> int:
        """`len` of the loader."""
        return len(self)

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
        made._seeds = self._items(pieces)
        made._begin()
        return made

    def to_device(self, device: Any) -> Loader:
        """A loader of the same seeds, from where this one stands, whose batches `jax.device_put`
        puts on a device or sharding of JAX. A pool serves one of the two at a time.

        It stays one batch ahead on the device: the copy of the next batch has been started when a
        batch is handed out, for which it waits until that one is made; behind the last one of an
        epoch that is the first of the next. It drops the copy when an iterator is left early or the
        sampler shuts down, and at the next call if the pool was moved.
        """
        jax: Any = importlib.import_module("jax")
        if not isinstance(device, jax.Device | jax.sharding.Sharding):
            raise TypeError(
                f"device is {device!r}, expected a device of JAX, such as jax.devices()[0], or a"
                " sharding"
            )
        made = copy.copy(self)
        made._put = functools.partial(jax.device_put, device=device)
        if isinstance(self._seeds, Items):
            made._seeds = self._seeds.copy()
        made._begin(self._given)
        return made

    # ---- batches ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        if self._given >= len(self):
            self._given = 0
        try:
            while self._given < len(self):
                yield self.next_batch()
        except GeneratorExit:
            if self._placed.batch is not None:
                self._begin(self._given)
            raise

    def next_batch(self) -> Batch:
        """The next batch, running on from one epoch to the next; an iterator shares the place.
        ValueError for a slice without items."""
        if len(self) == 0:
            raise ValueError("the loader has no items, so there is no next batch")
        if self._twin is None or self._seeds.place() != self._expected:
            self._begin(self._given)
            self._twin, self._expected = self._seeds.copy(), self._seeds.place()
        try:
            batch = self._made() if self._put is None else self._put_ahead(self._put)
        except BaseException:
            self._begin(self._given)
            raise
        self._seeds.next_batch(self.sampler.shape["contexts_per_batch"])
        self._expected = self._seeds.place()
        self._given = self._given % len(self) + 1
        return batch

    def _put_ahead(self, put: Callable[[Batch], Any]) -> Any:
        """The next batch on the device, while the copy of the one behind it has begun."""
        batch = self._placed.batch
        if batch is None:
            batch = put(self._made())
            self.sampler.close_at_shutdown(self._placed)
        self._placed.batch = put(self._made())
        return batch

    def _made(self) -> Batch:
        self._open(1)
        with self._ahead[0] as run:
            batch = next(run)
        self._ahead.popleft()
        self._open(self.sampler.num_prefetch)
        return batch

    def _open(self, count: int) -> None:
        """Opens passes until so many are ahead."""
        while len(self._ahead) < count:
            assert self._twin is not None
            drawn = self._twin.next_batch(self.sampler.shape["contexts_per_batch"])
            self._ahead.append(self.sampler.open_batch_of(drawn.seeds, drawn.task, drawn.epochs))

    def stats(self) -> dict[str, Any]:
        """Those of the sampler; `pass_queue` counts the batches that are ready."""
        return self.sampler.stats()

    # ---- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the batches handed out end, JSON-able; it names rank, number of ranks and size."""
        sampler = self.sampler
        pieces = self._seeds.pieces if isinstance(self._seeds, Items) else None
        saved = sampler.state_dict()
        return {
            "version": LOADER_STATE_VERSION,
            "fingerprint": saved["fingerprint"],
            "options": {
                **saved["options"], **self._of, "rank": sampler.rank,
                "world_size": sampler.world_size, "pieces": pieces and [*map(list, pieces)],
                "contexts_per_batch": sampler.shape["contexts_per_batch"],
            },
            "given": self._given,
            "seeds": self._seeds.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken, the pool too; ValueError names what differs."""
        check_saved(state, self.state_dict(), "loader")
        given = natural("given", state["given"], len(self))
        self._seeds.load_state_dict(state["seeds"])
        self._begin(given)
