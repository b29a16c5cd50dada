"""The sampler: a store to batches, and what a training loop needs to know about its tasks.

The work is done by threads of the C library; this file and those it imports turn names, words and
times into numbers, and numbers back into names. Contexts depend on the store and on the options
listed in `Sampler.state_dict`, never on threads, prefetch or timing.
"""

from __future__ import annotations

import copy
import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import binding
from .batch import Batch
from .epoch import Epoch
from .key_columns import child_count_embeddings, referenced_columns
from .keys import Time
from .questions import anchor_rows, observation_times
from .sampler_options import (
    at_least,
    at_least_or_0,
    split_number,
    split_ratios_of,
    staleness_days,
    thread_count,
    time_split_us,
    visible_until_us,
)
from .seed_sources import SeedSources
from .statistics import prometheus_text, sampler_metadata, sampler_stats
from .store import Store, word

if TYPE_CHECKING:
    from types import TracebackType

ALL_TASKS = 2**32 - 1
STATE_VERSION = 1
MASK_RATIO = 0.15  # of the objective masked_cells, where none is given
STREAMS = ("train", "val")


class Sampler:
    """Batches of contexts from a store.

    db_path or store: a store directory, or an open `Store` that several samplers share.
    rank, world_size: this process's share; every seed is seen by exactly one rank per epoch.
    split_ratios, split_seed: which seeds are train, val and test, where the task does not say.
    seed: order of seeds and draws of children.
    num_prefetch, num_prefetch_val: batches made ahead; num_prefetch=0 makes each when asked.
    default_batch_size, default_sequence_length: B sequences of S cells.
    bfs_child_width: most children taken of a row, per foreign key or, with
        child_width_per="row", in all.
    tasks, task_weights, task_order: which tasks, how often (by name; None: equally often), and
        "weighted" or "round_robin".
    max_rows, text_budget: R rows per sequence, U texts per batch; None chooses them from a sample.
    text_mode: "batch" (each batch brings its texts), or "resident": cells name rows of
        `text_embeddings()`, which the caller holds; there is no budget then.
    max_hops: how far from the seed a context reaches; None: no limit.
    child_order: "uniform" or "recent". identifier_cells: "all", "foreign_keys" or "none".
    context_labels: "train", "none" or "all"; None: as each task says.
    visible_until: a time, or one per split in a dict: nothing later is ever shown.
    staleness: (p0, max_days): a train seed sees up to a gap before its obs_time, 0 with probability
        p0, else uniform up to max_days; a model learns to predict from old data. None: no gap.
    child_counts: each row gets three cells per foreign key that points at it: how many of its
        children are visible, and the ages of the last and the first, scaled as in
        docs/2-sampling.md, "Child counts". They have columns of their own.
    label_rows: in contexts of a derived task, at most so many rows with the known labels of the
        anchor's earlier seeds, where the task has label_window or label_known_at; context_labels
        decides by split.
    peer_labels: the same of other anchors: at most so many rows with labels that became known last,
        each with its anchor's row, drawn from the latest four times as many; at most 1024.
    database_age: the age of a task's seed row is that of the newest row of any table that the seed
        may see, so that it tells how old the news are. Otherwise 0.
    time_split: (at, until): deals the seeds of train anew, for a backtest: train are those whose
        label is known by `at`, val those asked from `at` on and before `until`, the others are in
        no split. Means and deviations of columns are of what is known by `at`, where the store's
        are of later. With visible_until=at the regime is frozen. docs/2-sampling.md, "Splits by
        time".
    train_on_val: the seeds of val are train's, for the last fit before test; val then has none.
    num_threads: None: usable cores / local_world_size, at most 16.
    layout: "dense", or "compact", at most a fifth as large; `headwater.expand` makes it dense.
    targets: "inline" or "separate".
    attention_masks: adds column_mask, feature_mask, neighbor_mask [B,S,S] and padding_mask.
    packing: puts several contexts into a sequence; a batch owns contexts_per_batch seeds (None: as
        many as a sample of contexts packs without cutting one). docs/3-batch.md, "Packing".
    objective: "task", or "masked_cells": contexts without a question, of which some cells are
        masked; their values are in the lists of docs/3-batch.md, "Masked cells". Seeds are those of
        `tasks`, or with seed_tables the rows of these tables, each at its own time.
    mask_ratio: probability that a cell is masked. None: 0.15 for masked cells, else 0. With the
        objective "task" more than 0 masks cells beside the target, in train contexts only.
    max_targets_per_type: M, masked cells of one type in a sequence; those beyond stay as they are.
        None: chosen from a sample. With seed_tables, functions that take a task take a table.
    with_rows: adds row_depths, and row_ids in info. load: "mmap" or "ram"; verify:
        "once", "header" or "full", as of `Store`: a damaged store is a StoreError. Both only with
        db_path.
    What bounds a run, and what to do about it: `stats` and docs/6-tuning.md.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        rank: int = 0,
        world_size: int = 1,
        split_ratios: Sequence[float] = (0.8, 0.1, 0.1),
        split_seed: int = 123,
        seed: int = 42,
        num_prefetch: int = 3,
        default_batch_size: int = 32,
        default_sequence_length: int = 1024,
        bfs_child_width: int = 16,
        task_weights: Mapping[str, float] | None = None,
        *,
        store: Store | None = None,
        tasks: Sequence[str] | None = None,
        task_order: str = "weighted",
        max_rows: int | None = None,
        max_hops: int | None = None,
        child_width_per: str = "foreign_key",
        child_order: str = "uniform",
        identifier_cells: str = "all",
        context_labels: str | None = None,
        visible_until: Time | Mapping[str, Time | None] | None = None,
        staleness: tuple[float, float] | None = None,
        child_counts: bool = False,
        label_rows: int = 0,
        peer_labels: int = 0,
        database_age: bool = False,
        time_split: tuple[Time, Time] | None = None,
        train_on_val: bool = False,
        num_threads: int | None = None,
        local_world_size: int = 1,
        num_prefetch_val: int = 1,
        layout: str = "dense",
        text_budget: int | None = None,
        text_mode: str = "batch",
        targets: str = "inline",
        attention_masks: bool = False,
        packing: bool = False,
        contexts_per_batch: int | None = None,
        objective: str = "task",
        mask_ratio: float | None = None,
        seed_tables: Sequence[str] | None = None,
        max_targets_per_type: int | None = None,
        with_rows: bool = False,
        load: str = "mmap",
        verify: str = "once",
    ) -> None:
        if (db_path is None) == (store is None):
            raise ValueError("give either db_path or store")
        self.store = (
            Store(db_path, load=load, verify=verify) if db_path is not None else _given(store)
        )
        self._owns_store = db_path is not None
        self._finalizer: weakref.finalize[..., Any] | None = None
        try:
            self._seeds = SeedSources(self.store, tasks, seed_tables)
            ratios = split_ratios_of(split_ratios)
            until = visible_until_us(visible_until)
            stale = staleness_days(staleness)
            dealt = time_split_us(time_split)
            words = {
                "width_scope": word("child_width_per", child_width_per, binding.CHILD_WIDTH_PER),
                "child_order": word("child_order", child_order, binding.CHILD_ORDERS),
                "identifier_cells": word(
                    "identifier_cells", identifier_cells, binding.IDENTIFIER_CELLS
                ),
                "context_labels": word(
                    "context_labels", context_labels or "default", binding.CONTEXT_LABELS
                ),
                "layout": word("layout", layout, binding.LAYOUTS),
                "text_mode": word("text_mode", text_mode, binding.TEXT_MODES),
                "targets": word("targets", targets, binding.TARGETS),
                "task_order": word("task_order", task_order, binding.TASK_ORDERS),
                "objective": word("objective", objective, binding.OBJECTIVES),
            }
            masks = objective != "task" or bool(mask_ratio)
            if objective != "task" and mask_ratio == 0:
                raise ValueError("mask_ratio is 0, objective 'masked_cells' needs more than 0")
            self._core = binding.Sampler(
                self.store.core,
                rank=rank,
                world_size=at_least("world_size", world_size, 1),
                split_ratios=ratios,
                split_seed=split_seed,
                seed=seed,
                batch_size=at_least("default_batch_size", default_batch_size, 1),
                sequence_length=at_least("default_sequence_length", default_sequence_length, 2),
                max_rows=at_least_or_0("max_rows", max_rows, 2),
                child_width=at_least("bfs_child_width", bfs_child_width, 1),
                max_hops=0 if max_hops is None else at_least("max_hops", max_hops, 0) + 1,
                tasks=None if tasks is None else self._seeds.numbers,
                task_weights=self._seeds.weights(task_weights),
                visible_until=until,
                num_threads=thread_count(num_threads, local_world_size),
                num_prefetch=at_least("num_prefetch", num_prefetch, 0),
                num_prefetch_val=at_least("num_prefetch_val", num_prefetch_val, 0),
                text_budget=at_least_or_0("text_budget", text_budget, 2),
                attention_masks=attention_masks,
                packing=packing,
                contexts_per_batch=at_least_or_0("contexts_per_batch", contexts_per_batch, 1),
                with_rows=with_rows,
                staleness=stale or (0, 0),
                child_counts=child_counts,
                label_rows=at_least("label_rows", label_rows, 0),
                peer_labels=at_least("peer_labels", peer_labels, 0),
                time_split=dealt,
                train_on_val=train_on_val,
                database_age=database_age,
                mask_ratio=mask_ratio or 0,
                seed_tables=self._seeds.table_numbers(),
                max_targets_per_type=at_least_or_0("max_targets_per_type", max_targets_per_type, 1),
                never_masked=referenced_columns(self.store.metadata) if masks else None,
                **words,
            )
        except BaseException:
            self._close_store()
            raise
        self._finalizer = weakref.finalize(self, self._core.shutdown)
        self.rank, self.world_size = rank, world_size
        self._told_left_out: set[str] = set()
        self.shape = self._core.shape()
        self._options = {
            "split_ratios": list(ratios),
            "split_seed": split_seed,
            "seed": seed,
            "default_sequence_length": default_sequence_length,
            "max_rows": self.shape["max_rows"],
            "texts_per_sequence": None
            if text_mode == "resident"
            else (self.shape["text_budget"] - 1) // self.shape["contexts_per_batch"],
            "bfs_child_width": bfs_child_width,
            "child_width_per": child_width_per,
            "max_hops": max_hops,
            "child_order": child_order,
            "identifier_cells": identifier_cells,
            "context_labels": context_labels,
            "visible_until": list(until),
            "tasks": self._seeds.names(),
            "task_weights": None if task_weights is None else dict(task_weights),
            "task_order": task_order,
        }
        # Options that are off leave no trace: states of before they existed can still be loaded.
        if stale is not None:
            self._options["staleness"] = list(stale)
        if child_counts:
            self._options["child_counts"] = True
        if label_rows:
            self._options["label_rows"] = label_rows
        if peer_labels:
            self._options["peer_labels"] = peer_labels
        if database_age:
            self._options["database_age"] = True
        if dealt:
            self._options["time_split"] = list(dealt)
            self._options["scales"] = "time_split"  # before, those of the store
        if train_on_val:
            self._options["train_on_val"] = True
        if masks:
            self._options |= {
                "objective": objective,
                "mask_ratio": MASK_RATIO if mask_ratio is None else float(mask_ratio),
                "max_targets_per_type": self.shape["max_targets_per_type"],
                "seed_tables": seed_tables is not None,
            }
        if packing:  # contexts may be cut
            self._options["packing"] = True

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
        if self._options.get("objective") == "masked_cells":
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
        if not self._options.get("child_counts"):
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


def _given(store: Store | None) -> Store:
    if not isinstance(store, Store):
        raise TypeError(f"store is {store!r}, expected a headwater.Store")
    return store
