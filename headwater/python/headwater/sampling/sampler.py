"""The sampler: a store to batches, and what a training loop needs to know about its tasks.

The work is done by threads of the C library; this file and those it imports turn names, words and
times into numbers, and numbers back into names. Contexts depend on the store and on the options
listed in `Sampler.state_dict`, never on threads, prefetch or timing.
"""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.sampling.ad_hoc_seeds import anchor_rows, observation_times
from headwater.sampling.batch import Batch
from headwater.sampling.epoch import Epoch
from headwater.sampling.key_columns import child_count_embeddings, referenced_columns
from headwater.sampling.sampler_options import (
    MASK_RATIO,
    bound,
    deciding,
    help_text,
    members,
    own_signature,
    split_number,
    thread_count,
)
from headwater.sampling.seed_choice import SeedSources
from headwater.sampling.statistics import prometheus_text, sampler_metadata, sampler_stats
from headwater.store.row_keys import Time
from headwater.store.store import Store

if TYPE_CHECKING:
    from types import TracebackType

ALL_TASKS = 2**32 - 1
STATE_VERSION = 3
STREAMS = ("train", "val")


class Sampler:
    # Its docstring, with all options, is put together below.

    def __init__(self, *positional: Any, **named: Any) -> None:
        given = bound(positional, named)
        self.store, self._owns_store = _opened(given)
        self._finalizer: weakref.finalize[..., Any] | None = None
        try:
            found = self._numbers(given)
            keys = referenced_columns(self.store.metadata) if self._masks else None
            self._core = binding.Sampler(self.store.core, **found, never_masked=keys)
            self._finalizer = weakref.finalize(self, self._core.shutdown)
            self.shape = self._core.shape()
            self._options = self._deciding(found)
        except BaseException:
            self.shutdown()
            self._close_store()
            raise
        self.rank, self.world_size = found["rank"], found["world_size"]
        self._told_left_out: set[str] = set()

    def _numbers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the library gets of the options."""
        self._seeds = SeedSources(self.store, given["tasks"], given["seed_tables"])
        self._masks = given["objective"] != "task" or bool(given["mask_ratio"])
        if given["objective"] != "task" and given["mask_ratio"] == 0:
            raise ValueError("mask_ratio is 0, objective 'masked_cells' needs more than 0")
        return members(
            {
                **given,
                "tasks": None if given["tasks"] is None else self._seeds.numbers,
                "task_weights": self._seeds.weights(given["task_weights"]),
                "seed_tables": self._seeds.table_numbers(),
                "num_threads": thread_count(given["num_threads"], given["local_world_size"]),
            }
        )

    def _deciding(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The options that decide contexts, as a saved state holds them."""
        options, shape = deciding(found), self.shape
        del options["text_budget"]  # of a batch, which may be of another size
        budget = (shape["text_budget"] - 1) // shape["contexts_per_batch"]
        weights = options["task_weights"]
        return options | {
            "max_rows": shape["max_rows"],
            "texts_per_sequence": budget if shape["text_budget"] else None,
            "tasks": self._seeds.names(),
            "task_weights": weights and dict(zip(self._seeds.names(), weights, strict=True)),
            "seed_tables": self._seeds.are_tables,
            "mask_ratio": (found["mask_ratio"] or MASK_RATIO) if self._masks else None,
            "max_targets_per_type": shape["max_targets_per_type"] if self._masks else None,
        }

    def __repr__(self) -> str:
        tasks = ", ".join(self._seeds.names())
        size = f"B={self.shape['batch_size']}, S={self.shape['sequence_length']}"
        return (
            f"<Sampler of '{self.store.path}': {tasks}; {size}; {self.rank} of {self.world_size}>"
        )

    def __enter__(self) -> Sampler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Stop the threads and drop queued batches; idempotent, from any thread.

        Whoever waits for a batch gets `SamplerShutdown`. Batches handed out stay valid.
        """
        if self._finalizer is not None:
            self._core.shutdown()

    # ---- batches -------------------------------------------------------------------------

    def next_train_batch(self, timeout: float | None = None) -> Batch:
        """Next batch of the train stream. TimeoutError after `timeout` seconds."""
        self._tell_left_out("train")
        return Batch(self._core.next(binding.SPLITS["train"], timeout))

    def next_val_batch(self, timeout: float | None = None) -> Batch:
        """Next batch of the val stream. TimeoutError after `timeout` seconds."""
        self._tell_left_out("val")
        return Batch(self._core.next(binding.SPLITS["val"], timeout))

    def batch(self, split: str, k: int) -> Batch:
        """Batch k of a split's stream: a pure function of store, options and k."""
        number = split_number(split)
        self._tell_left_out(split)
        return Batch(self._core.batch(number, k))

    def epoch(self, split: str, task: str | None = None, index: int = 0) -> Epoch:
        """One finite pass: every seed of the split once over all ranks.

        All ranks yield equally many batches; the last ones may be short or empty by
        `num_sequences`. The same index gives the same contexts. task None: all tasks in turn.
        """
        chosen = split_number(split)
        if task is None:
            self._tell_left_out(split)
        number = ALL_TASKS if task is None else self._seeds.number(task)
        return Epoch(binding.Pass(self._core, chosen, number, index))

    def batches_for(
        self,
        task: str,
        keys: Sequence[Any] | None = None,
        obs_time: Time | Sequence[Time] | None = None,
        *,
        rows: Sequence[int] | NDArray[np.integer] | None = None,
    ) -> Epoch:
        """Contexts of rows of the task's anchor table that need no label, in the order given
        (with packing, `info["seed_index"]` says which).

        keys: scalars, or tuples (or dicts by column) for a composite key; KeyError names those
        that the table does not have, and what may be meant. rows: global rows instead of keys, as
        `Store.find_all` gives them. obs_time: when the question is asked, one time or one per key:
        microseconds, ISO text or datetime (naive: UTC). None takes the anchor's own time where a
        cell task's rows have one, and shows everything in a database without times.
        """
        number = self._seeds.number(task)
        if self._options["objective"] == "masked_cells":
            raise ValueError("the objective is 'masked_cells', which asks no task about keys")
        if keys is not None and rows is None:
            anchors = anchor_rows(self.store, number, keys)
        elif rows is not None and keys is None:
            anchors = np.asarray(rows).tolist()
        else:
            raise ValueError("give either keys or rows")
        times = observation_times(self.store, number, anchors, obs_time)
        return Epoch(binding.Pass(self._core, 0, number, 0, anchors, times))

    # ---- what it knows -------------------------------------------------------------------

    def column_embeddings(self) -> NDArray[np.float16]:
        """Embeddings of all columns by `column_ids`, float16 [C, D_t]; a copy.

        With child_counts=True there are three more for each foreign key: C is then larger.
        """
        columns = np.array(self.store.core.vectors(binding.EMBEDDING_KINDS["columns"]))
        if not self._options["child_counts"]:
            return columns
        return np.concatenate([columns, child_count_embeddings(self.store.metadata, columns)])

    def categorical_embeddings(self) -> NDArray[np.float16]:
        """Embeddings of all categories by `categorical_embed_ids`, float16 [V_c, D_t]; a copy."""
        return np.array(self.store.core.vectors(binding.EMBEDDING_KINDS["categories"]))

    def text_embeddings(self) -> NDArray[np.float16]:
        """Embeddings of all texts under a zero row, float16 [V_t + 1, D_t]; a copy.

        With text_mode="resident" the cells of texts (`text_embed_ids`, or `cell_values` in the
        compact layout) are its rows; 0 is no text.
        """
        texts = self.store.core.vectors(binding.EMBEDDING_KINDS["texts"])
        table = np.zeros((texts.shape[0] + 1, texts.shape[1]), np.float16)
        table[1:] = texts
        return table

    def database_metadata(self) -> dict[str, Any]:
        """The store's metadata.json, with seed counts and target statistics of this sampler's
        splits; times have mean_us and std_us under "time" where a task predicts one."""
        tasks = [] if self._seeds.are_tables else self._seeds.numbers
        return sampler_metadata(self.store, self._core, tasks)

    def warm_up(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Read every page of the store once; see `Store.warm_up`."""
        self.store.warm_up(progress)

    def stats(self, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What was made, where the time went, and what bounds the run (docs/6-tuning.md).

        Counters since the start, or since an earlier result: batches, sequences, cells,
        padded_cells, rows, fill; seconds over all threads of walk, emit, text and of waiting for
        the consumer (producer_wait), each with its share; seconds and share of the time in which
        the consumer waited; bound_by: "consumer", "walk", "emit", "text" or "idle". Also contexts
        stopped by max_rows, texts over budget, threads, batches ready now, memory. With packing
        also contexts cut and dropped, cells lost by both, and fill_unpacked: the fill that the
        same contexts would have one to a sequence.
        """
        return sampler_stats(self._core.stats(), self.shape, since)

    def stats_prometheus(self) -> str:
        """`stats()` in the text format of Prometheus."""
        return prometheus_text(self.stats(), self.rank)

    def num_seeds(self, split: str, task: str | None = None) -> int:
        """Seeds of a split over all ranks, of one task or of all of this sampler."""
        tasks = self._seeds.chosen(task)
        return sum(self._core.seed_count(split_number(split), number) for number in tasks)

    def batches_per_epoch(self, split: str, task: str | None = None) -> int:
        """Batches that each rank gets from `epoch(split, task)`."""
        step = self.shape["contexts_per_batch"] * self.world_size
        tasks = self._seeds.chosen(task)
        counts = [self._core.seed_count(split_number(split), number) for number in tasks]
        return sum(-(-count // step) for count in counts)

    def remaining(self, split: str, task: str | None = None) -> int:
        """Seeds over all ranks that the stream of train or val has left in its current epochs."""
        positions, _ = self._core.get_position(self._stream(split))
        tasks = self._seeds.chosen(task)
        left = 0
        for number in tasks:
            count = self._core.seed_count(split_number(split), number)
            left += count - positions[number] % count if count else 0
        return left

    def splits(self, task: str) -> NDArray[np.uint8]:
        """The split of every seed of a task in stored order, uint8 [n].

        0 train, 1 val, 2 test, and 3 where time_split has it in no split, or where it is a row of a
        seed table that is no seed.
        """
        number = self._seeds.number(task)
        if number < len(self.store.metadata["tasks"]):
            count = len(self.store.task_seeds(task)["position"])
        else:
            first, end = self.store.metadata["tables"][self.store.table_index(task)]["row_range"]
            count = end - first
        return self._core.splits(number, count)

    # ---- state ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the streams stand: batches handed out count, prefetched ones do not. JSON-able.

        It may be loaded with another batch size, world size, rank or number of threads.
        """
        streams = {}
        for split in STREAMS:
            positions, batches = self._core.get_position(binding.SPLITS[split])
            named = {self._seeds.name(task): positions[task] for task in self._seeds.numbers}
            streams[split] = {"positions": named, "batches": batches}
        return {
            "version": STATE_VERSION,
            "fingerprint": self.store.fingerprint,
            "options": copy.deepcopy(self._options),
            "streams": streams,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken; drops what was prefetched.

        ValueError names everything that differs: the store, or options that decide contexts.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"the state is {state!r}, expected the dict of state_dict()")
        if state.get("version") != STATE_VERSION:
            raise ValueError(
                f"the state has version {state.get('version')!r}, expected {STATE_VERSION}"
            )
        try:
            self._load(state)
        except (KeyError, AttributeError) as error:
            raise ValueError(f"the state is not whole: it lacks {error}") from error

    def _load(self, state: Mapping[str, Any]) -> None:
        faults = []
        if state["fingerprint"] != self.store.fingerprint:
            faults.append(f"store {state['fingerprint']} is now {self.store.fingerprint}")
        saved = state["options"]
        for name in sorted({*saved, *self._options}):
            before, now = saved.get(name), self._options.get(name)
            if before != now:
                faults.append(f"{name} was {before!r} and is {now!r}")
        if faults:
            raise ValueError("the state is of another sampler: " + "; ".join(faults))
        places = []  # read in full before any stream moves
        for split in STREAMS:
            stream = state["streams"][split]
            positions = [0] * len(self._core.get_position(binding.SPLITS[split])[0])
            for task in self._seeds.numbers:
                positions[task] = stream["positions"][self._seeds.name(task)]
            places.append((binding.SPLITS[split], positions, stream["batches"]))
        for place in places:
            self._core.set_position(*place)

    # ---- inside --------------------------------------------------------------------------

    def _close_store(self) -> None:
        if self._owns_store:
            self.store.close()

    def _tell_left_out(self, split: str) -> None:
        """Warns once of each task that has no seeds in a split where others have."""
        if split in self._told_left_out:
            return
        self._told_left_out.add(split)
        number = binding.SPLITS[split]
        empty = [task for task in self._seeds.numbers if self._core.seed_count(number, task) == 0]
        if 0 < len(empty) < len(self._seeds.numbers):
            for task in empty:
                message = (
                    f"task '{self._seeds.name(task)}' has no seeds in split '{split}', left out"
                )
                warnings.warn(message, stacklevel=3)

    def _stream(self, split: str) -> int:
        if split not in STREAMS:
            raise ValueError(f"split is {split!r}, expected 'train' or 'val'; use epoch()")
        return binding.SPLITS[split]


Sampler.__init__.__signature__ = own_signature()  # type: ignore[attr-defined]
Sampler.__doc__ = f"""Batches of contexts from a store.

{help_text()}
    What bounds a run, and what to do about it: `stats` and docs/6-tuning.md.
    """


def _opened(given: Mapping[str, Any]) -> tuple[Store, bool]:
    """The store, and whether it was opened here."""
    path, store = given["db_path"], given["store"]
    if (path is None) == (store is None):
        raise ValueError("give either db_path or store")
    if path is not None:
        return Store(path, load=given["load"], verify=given["verify"]), True
    if not isinstance(store, Store):
        raise TypeError(f"store is {store!r}, expected a headwater.Store")
    return store, False
