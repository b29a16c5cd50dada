"""The sampler: a store to batches, and what a training loop needs to know about its tasks.

The work is done by threads of the C library; this file and those it imports turn names, words and
times into numbers, and numbers back into names. Contexts depend on the store and on the options
listed in `Sampler.state_dict`, never on threads, prefetch or timing.
"""

from __future__ import annotations

import copy
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.binding.options import OPTIONS
from headwater.errors import SamplerShutdown, TaskError, named
from headwater.sampling.ad_hoc_seeds import (
    anchor_rows,
    check_anchors_exist,
    observation_times,
)
from headwater.sampling.batch import Batch
from headwater.sampling.chosen_seeds import Numbers, chosen_seeds
from headwater.sampling.epoch import Epoch
from headwater.sampling.sampler_options import (
    MASK_RATIO,
    bound,
    deciding,
    help_text,
    members,
    split_number,
    thread_count,
)
from headwater.sampling.sampler_signature import init
from headwater.sampling.saved_state import check_saved, natural
from headwater.sampling.seed_choice import SeedSources
from headwater.sampling.seed_pool import SeedPool
from headwater.sampling.statistics import prometheus_text, sampler_metadata, sampler_stats
from headwater.sampling.subgraph import Subgraph
from headwater.store.dropped_seeds import why_empty
from headwater.store.row_keys import NO_TIME_US, Time
from headwater.store.store import Store

ALL_TASKS = 2**32 - 1
STATE_VERSION = 3
STREAMS = ("train", "val")
CHILD_COUNTS = ("count of children", "age of last child", "age of first child")
# Sizes: a saved state holds what follows of them for a context, as a batch may be of another size.
BY_BATCH = (
    "text_budget", "default_sequence_length", "max_rows", "context_length", "max_context_rows",
)  # fmt: skip

Parameters = ParamSpec("Parameters")


def called_as(
    shown: Callable[Parameters, None],
) -> Callable[[Callable[..., None]], Callable[Parameters, None]]:
    """Has people, editors and type checkers see the parameters of another function."""
    return lambda function: functools.update_wrapper(function, shown, (), ())


class Sampler:
    # Its docstring, with all options, is put together below.

    @called_as(init)
    def __init__(self, *positional: Any, **named: Any) -> None:
        given = bound(positional, named)
        self.store, self._owns_store = _opened(given)
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._is_shut_down = False
        try:
            self._members = self._numbers(given)
            self._core = binding.Sampler(self.store.core, **self._members)
            self._finalizer = weakref.finalize(self, self._core.shutdown)
            self.shape = self._core.shape()
            self._is_flat = given["layout"] == "flat"
            self.text_mode: str = given["text_mode"]
            self._options = self._deciding(self._members)
        except BaseException:
            self.shutdown()
            self._close_store()
            raise
        self.rank, self.world_size = self._members["rank"], self._members["world_size"]
        is_chosen = given["num_prefetch"] is None
        self.num_prefetch = 3 if is_chosen else self._members["num_prefetch"]
        self._is_fixed = given["shard"] == "fixed"
        if self._is_fixed:
            self._options["world_size"] = self.world_size
        self._told_left_out: set[tuple[str, int]] = set()
        self._pools: dict[tuple[str, str], binding.SeedPool] = {}

    def _numbers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the library gets of the options."""
        self._seeds = SeedSources(self.store, given["tasks"], given["seed_tables"])
        self._masks = given["objective"] != "task" or bool(given["mask_ratio"])
        if given["objective"] != "task" and given["mask_ratio"] == 0:
            raise ValueError("mask_ratio is 0, objective 'masked_cells' needs more than 0")
        found = members(
            {
                **given,
                "tasks": None if given["tasks"] is None else self._seeds.numbers,
                "task_weights": self._seeds.weights(given["task_weights"]),
                "seed_tables": self._seeds.table_numbers(),
                "num_threads": thread_count(given["num_threads"], given["local_world_size"]),
            }
        )
        if found["split_ratios"] != OPTIONS["split_ratios"].standard:
            self._seeds.check_dealt(found["split_ratios"])
        return found

    def _deciding(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The options that decide contexts, as a saved state holds them."""
        options, shape = deciding(found), self.shape
        for name in BY_BATCH:
            del options[name]
        budget = (shape["text_budget"] - 1) // shape["contexts_per_batch"]
        weights = options["task_weights"]
        return options | {
            **self._context_shape(found["packing"]),
            "texts_per_sequence": budget if shape["text_budget"] else None,
            "tasks": self._seeds.names(),
            "task_weights": weights and dict(zip(self._seeds.names(), weights, strict=True)),
            "seed_tables": self._seeds.are_tables,
            "mask_ratio": (found["mask_ratio"] or MASK_RATIO) if self._masks else None,
            "max_targets_per_type": shape["max_targets_per_type"] if self._masks else None,
            **(self._levelled(found) if self._is_flat else {}),
        }

    def _context_shape(self, is_packed: bool) -> dict[str, int]:
        """The most cells and rows of a context, by the options that say so. With packing, those of
        a sequence do not: they only limit which contexts fit."""
        length, rows = self.shape["context_length"], self.shape["max_context_rows"]
        if is_packed:
            return {"context_length": length, "max_context_rows": rows}
        return {"default_sequence_length": length, "max_rows": rows}

    def _levelled(self, found: Mapping[str, Any]) -> dict[str, int]:
        """What decides which contexts a flat batch has besides."""
        contexts = self.shape["batch_size"] * found["world_size"]
        levels = {name: found[name] for name in ("level_block", "level_parts")}
        return {**levels, "contexts_of_all_ranks": contexts}

    def __repr__(self) -> str:
        tasks = ", ".join(self._seeds.names())
        size = f"B={self.shape['batch_size']}, S={self.shape['sequence_length']}"
        return (
            f"<Sampler of '{self.store.path}': {tasks}; {size}; {self.rank} of {self.world_size}>"
        )

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Stop the threads, drop queued batches and, where it was opened by db_path, the store;
        idempotent, from any thread.

        Whoever waits for a batch gets `SamplerShutdown`, and so does whoever asks for one later, or
        for what only the library knows. Batches and arrays handed out stay valid, `state_dict` and
        `stats` tell of the end.
        """
        self._is_shut_down = True
        if self._finalizer is not None:
            self._core.shutdown()
            self._pools.clear()
            self._close_store()

    def close_at_shutdown(self, thing: Any) -> None:
        """Has `shutdown` call thing.close(), if there is still one."""
        self._core.passes[id(thing)] = thing

    # ---- batches -------------------------------------------------------------------------

    def next_train_batch(self, timeout: float | None = None) -> Batch:
        """Next batch of the train stream. TimeoutError after `timeout` seconds."""
        self._tell_left_out("train")
        with self._why_empty("train"):
            return Batch(self._core.next(binding.SPLITS["train"], timeout))

    def next_val_batch(self, timeout: float | None = None) -> Batch:
        """Next batch of the val stream. TimeoutError after `timeout` seconds."""
        self._tell_left_out("val")
        with self._why_empty("val"):
            return Batch(self._core.next(binding.SPLITS["val"], timeout))

    def batch(self, split: str, k: int) -> Batch:
        """Batch k of a split's stream: a pure function of store, options and k."""
        number = split_number(split)
        self._tell_left_out(split)
        with self._why_empty(split):
            return Batch(self._core.batch(number, k))

    def epoch(self, split: str, task: str | None = None, index: int = 0) -> Epoch:
        """One finite pass: every seed of the split once over all ranks.

        All ranks yield equally many batches; the last ones may be short or empty by
        `num_sequences`. With layout="flat" a batch takes the next seeds that have room in it, all
        of them whole, and ranks may have different numbers of batches. The same index gives the
        same contexts. task None: all tasks in turn.
        """
        chosen = split_number(split)
        self._tell_left_out(split, task)
        number = ALL_TASKS if task is None else self._seeds.number(task)
        with self._why_empty(split, task):
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
        cell task's rows have one, and shows everything in a database without times. TaskError if
        a row had not come to be at that time, unless the task has `allow_future_anchor`.
        """
        number = self._seeds.number(task)
        if self._options["objective"] == "masked_cells":
            raise ValueError("the objective is 'masked_cells', which asks no task about keys")
        if keys is not None and rows is None:
            anchors = anchor_rows(self.store, number, keys)
        elif rows is not None and keys is None:
            if np.ndim(rows) != 1:
                raise ValueError(f"rows has {np.ndim(rows)} dimensions, expected 1")
            anchors = np.asarray(rows).tolist()
        else:
            raise ValueError("give either keys or rows")
        times = observation_times(self.store, number, anchors, obs_time)
        check_anchors_exist(self.store, number, anchors, times)
        return Epoch(binding.Pass(self._core, 0, number, 0, anchors, times))

    def batches_of(
        self, seeds: Numbers, task: str | None = None, *, epoch: int | Numbers = 0
    ) -> Epoch:
        """Labelled batches of chosen seeds of a task, in the order given, some several times.

        seeds: numbers as `info["seed_index"]` has them, the places in `Store.task_seeds`; of a
        seed table its rows, from 0. epoch: one for all or one per seed: a seed's context is the
        one that `epoch(split, task, index=epoch)` makes of it, in whichever split it is. All of
        them are this rank's, whatever world_size is; no seeds give one empty batch. task None: the
        sampler's only one. With layout="flat" a batch takes the next seeds that have room in it,
        all of them whole.
        """
        number = self._seeds.one(task)
        return Epoch(binding.Pass(self._core, 0, number, 0, chosen=chosen_seeds(seeds, epoch)))

    def batch_of(
        self, seeds: Numbers, task: str | None = None, *, epoch: int | Numbers = 0
    ) -> Batch:
        """One batch of chosen seeds, at most as many as a batch has; see `batches_of`.

        With layout="flat" it has the sizes of the task's train batches, `flat_shape(task)`, and all
        of the seeds, levelled as those of a batch of train with level_block=1 and level_parts=1:
        if together they are too long, the longest contexts are cut.
        """
        with self.open_batch_of(seeds, task, epoch) as run:
            return next(run)

    def open_batch_of(self, seeds: Numbers, task: str | None, epoch: int | Numbers) -> Epoch:
        """`batch_of` as a run of one batch, which the threads make meanwhile."""
        number, most = self._seeds.one(task), self.shape["contexts_per_batch"]
        if np.size(seeds) > most:
            raise ValueError(
                f"seeds has {np.size(seeds)} entries, expected at most {most}, what a batch has; "
                "batches_of takes any number"
            )
        chosen = chosen_seeds(seeds, epoch)
        return Epoch(binding.Pass(self._core, 0, number, 0, chosen=chosen, is_levelled=True))

    def subgraph(
        self, seed: int, task: str | None = None, *, epoch: int = 0, both: bool = False
    ) -> Subgraph:
        """The rows that a seed's context visits, and the links between them.

        seed, task and epoch as in `batches_of`: the context is that of the sampler's batches,
        whatever their layout, before packing cuts it. `local_edges` are (child, parent): foreign
        keys that are not withheld, by child in the order of rows, then by foreign key; two keys
        to one parent are one edge, and a row that points at itself has the edge (i, i). both adds
        (parent, child) behind them, where that pair is not there yet.
        """
        if self._is_shut_down:
            raise SamplerShutdown("the sampler was shut down")
        number = self._seeds.one(task)
        (chosen,), (drawn,) = chosen_seeds([seed], epoch)
        arrays = self._core.subgraph(number, chosen, drawn, both)
        return Subgraph(int(seed), self._seeds.name(number), **arrays)

    # ---- what it knows -------------------------------------------------------------------

    def column_embeddings(self) -> NDArray[np.float16]:
        """Embeddings of all columns by `column_ids`, float16 [C, D_t]; a copy.

        With child_counts=True there are three more for each foreign key: C is then larger.
        """
        columns = np.array(self.store.core.vectors(binding.EMBEDDING_KINDS["columns"]))
        if not self._options["child_counts"]:
            return columns
        core, phrases = self.store.core, binding.hash_embed([*CHILD_COUNTS], columns.shape[1])
        first = [core.key_columns(key)[0] for key in range(core.counts()["key_count"])]
        both = columns[first].astype(np.float32)[:, None] + phrases.astype(np.float32)[None]
        counts = (both / np.float32(2) ** 0.5).astype(np.float16)
        return np.concatenate([columns, counts.reshape(-1, columns.shape[1])])

    def categorical_embeddings(self) -> NDArray[np.float16]:
        """Embeddings of all categories by `categorical_embed_ids`, float16 [V_c, D_t]; a copy."""
        return np.array(self.store.core.vectors(binding.EMBEDDING_KINDS["categories"]))

    def text_embeddings(self) -> NDArray[np.float16]:
        """Embeddings of all texts under a zero row, float16 [V_t + 1, D_t]; a copy.

        With text_mode="resident" the cells of texts (`text_embed_ids`, or `cell_values` in the
        compact and flat layouts) are its rows, with text_mode="numbers" the `text_numbers` of a
        batch are; 0 is no text.
        """
        texts = self.text_vectors()
        table = np.zeros((texts.shape[0] + 1, texts.shape[1]), np.float16)
        table[1:] = texts
        return table

    def text_vectors(self) -> NDArray[np.float16]:
        """The same without the zero row, float16 [V_t, D_t]: a view of the store's map, which it
        keeps open."""
        return self.store.core.vectors(binding.EMBEDDING_KINDS["texts"])

    def database_metadata(self) -> dict[str, Any]:
        """The store's `metadata`, with seed counts and statistics of this sampler's splits, and
        scales by what was known at time_split."""
        tasks = [] if self._seeds.are_tables else self._seeds.numbers
        return sampler_metadata(self.store, self._core, tasks)

    def warm_up(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Read every page of the store once; see `Store.warm_up`."""
        self.store.warm_up(progress)

    def stats(self, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Counters, times and the bottleneck of the run (docs/guides/tuning.md).

        Counters since the start, or since an earlier result: batches, sequences, cells,
        padded_cells, rows, fill; seconds over all threads of walk, emit, text and of waiting for
        the consumer (producer_wait), each with its share; seconds and share of the time in which
        the consumer waited; bound_by: "consumer", "walk", "emit", "text" or "idle". Also contexts
        stopped by max_rows, texts over budget, threads, batches ready now, memory. With packing
        also contexts cut and dropped, cells lost by both, and fill_unpacked: the fill that the
        same contexts would have one to a sequence, of context_length cells.
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
        """Batches that each rank gets from `epoch(split, task)`. Not with layout="flat", as it then
        depends on the seeds."""
        if self._is_flat:
            raise ValueError(
                "batches_per_epoch does not go with layout 'flat', as it depends on the seeds;"
                " use len(epoch(split, task))"
            )
        step = self.shape["contexts_per_batch"] * self.world_size
        tasks = self._seeds.chosen(task)
        counts = [self._core.seed_count(split_number(split), number) for number in tasks]
        return sum(-(-count // step) for count in counts)

    def remaining(self, split: str, task: str | None = None) -> int:
        """Seeds that the stream of train or val has left in its current epochs: of this rank with
        fixed shards, over all ranks with dealt ones."""
        positions, _ = self._core.get_position(self._stream(split))
        left = 0
        for number in self._seeds.chosen(task):
            count, position = self._core.seed_count(split_number(split), number), positions[number]
            if self._is_fixed:
                count, position = self._own(count), position // self.world_size
            left += count - position % count if count else 0
        return left

    def _own(self, count: int) -> int:
        """How many of so many seeds are this rank's for good."""
        return len(range(self.rank, count, self.world_size))

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

        It may be loaded with another batch size, rank or number of threads, and with
        shard="dealt" with another world size.
        """
        streams = {}
        for split in STREAMS:
            positions, batches = self._core.get_position(binding.SPLITS[split])
            streams[split] = {"positions": self._seeds.by_name(positions), "batches": batches}
        return {
            "version": STATE_VERSION,
            "fingerprint": self.store.metadata["fingerprint"],
            "options": copy.deepcopy(self._options),
            "streams": streams,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken; drops what was prefetched.

        ValueError names everything that differs: the store, or options that decide contexts.
        """
        check_saved(state, self.state_dict(), "sampler")
        try:
            places = [self._place(split, state["streams"][split]) for split in STREAMS]
        except (KeyError, TypeError) as error:
            raise ValueError(f"the state is not whole: it lacks {error}") from error
        for place in places:
            self._core.set_position(*place)

    # ---- inside --------------------------------------------------------------------------

    def _place(self, split: str, stream: Mapping[str, Any]) -> tuple[int, list[int], int]:
        """Where a saved stream stood, as the library takes it."""
        number = binding.SPLITS[split]
        count = len(self._core.get_position(number)[0])
        positions = self._seeds.numbered(stream["positions"], count)
        if self._is_fixed and any(position % self.world_size for position in positions):
            raise ValueError(
                f"the state is not whole: positions of '{split}' are {positions}, expected"
                f" multiples of world_size, {self.world_size}"
            )
        return number, positions, natural("batches", stream["batches"])

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of its tasks, or of its seed tables, in the order of the store."""
        return tuple(self._seeds.names())

    def flat_shape(self, task: str | None = None) -> dict[str, Any]:
        """Sizes of the batches of a task with layout="flat", from a sample of its contexts.

        cells, rows: N and R_n of train batches; pass_cells, pass_rows: by split those of `epoch`;
        sampled: contexts of train that were walked, and capped: those of them that S or R ended.
        task None: the sampler's only one.
        """
        shape: dict[str, Any] = self._core.flat_shape(self._seeds.one(task))
        for name in ("pass_cells", "pass_rows"):
            shape[name] = dict(zip(binding.SPLITS, shape[name], strict=True))
        return shape

    def seeds_of(self, split: str, task: str) -> binding.SeedPool:
        """For `Loader`: the seeds of this rank's fixed shard of a task; `shutdown` drops them."""
        if self._is_shut_down:
            raise SamplerShutdown("the sampler was shut down")
        if (split, task) not in self._pools:
            number = self._seeds.number(task)
            source = {"tasks": [number]}
            if self._seeds.are_tables:
                source = {"seed_tables": [number - self._seeds.task_count]}
            self._tell_left_out(split, task)
            with self._why_empty(split, task):
                self._pools[split, task] = binding.SeedPool(
                    self.store.core, split_number(split), require_label=False, label_columns=None,
                    **{**self._members, "task_weights": None, **source},
                )  # fmt: skip
        return self._pools[split, task]

    def check_pool(self, pool: SeedPool) -> None:
        """ValueError that names why batches of this sampler cannot be of a pool's seeds."""
        mine, faults = self._options, []
        if pool.fingerprint != self.store.metadata["fingerprint"]:
            faults.append("it is of another store")
        its = pool.options
        strange = sorted(set(its["tasks"]) - set(mine["tasks"]))
        if strange or its["seed_tables"] != mine["seed_tables"]:
            kinds = ["tasks", "seed tables"]
            faults.append(
                f"its {kinds[its['seed_tables']]} {its['tasks']} are not among the sampler's"
                f" {kinds[mine['seed_tables']]} {mine['tasks']}"
            )
        for name in ("split_seed", "split_ratios"):
            if its[name] != mine[name]:
                faults.append(f"{name} is {its[name]}, of the sampler {mine[name]}")
        until = mine["visible_until"] if mine["seed_tables"] else None
        for name, value in (("time_split", mine["time_split"]), ("visible_until", until)):
            if value is not None and set(value) != {NO_TIME_US}:
                faults.append(f"the sampler has {name}, which a pool does not know")
        if its["together"]:
            faults.append(
                "its seeds are drawn together, and a batch has those of one task or table: draw"
                " with pool.next_batch, and make a batch of each part of by_task() with"
                " sampler.batch_of"
            )
        if mine["train_on_val"]:
            faults.append("the sampler has train_on_val, which a pool does not know")
        if faults:
            raise ValueError("the pool does not go with the sampler: " + "; ".join(faults))

    def only_task(self, task: str | None) -> str:
        """Its name; None: that of the only one. ValueError if there are several."""
        return self._seeds.name(self._seeds.one(task))

    def _close_store(self) -> None:
        if self._owns_store:
            self.store.close()

    def _tell_left_out(self, split: str, task: str | None = None) -> None:
        """Warns once of each task that has no seeds in a split where others have, and of each of
        which this rank has none. task None: all."""
        number = split_number(split)
        chosen = [n for n in self._seeds.chosen(task) if (split, n) not in self._told_left_out]
        self._told_left_out.update((split, n) for n in chosen)
        counts = {n: self._core.seed_count(number, n) for n in chosen}
        for n, count in counts.items():
            told = f"task '{self._seeds.name(n)}' has"
            if count == 0 and any(counts.values()):
                why = self._reasons(split, [n])
                warnings.warn(f"{told} no seeds in split '{split}', left out{why}", stacklevel=3)
            elif self._is_fixed and count and not self._own(count):
                warnings.warn(
                    f"{told} {count} seeds in split '{split}', none for rank {self.rank} of"
                    f" {self.world_size}: its batches are empty",
                    stacklevel=3,
                )

    @contextmanager
    def _why_empty(self, split: str, task: str | None = None) -> Iterator[None]:
        """Add the reason to errors about a split without seeds, if the store has it."""
        try:
            yield
        except TaskError as error:
            chosen, number = self._seeds.chosen(task), split_number(split)
            if any(self._core.seed_count(number, n) for n in chosen):
                raise  # it is about something else
            raise TaskError(f"{error}{self._reasons(split, chosen)}") from error

    def _reasons(self, split: str, numbers: Iterable[int]) -> str:
        """Why tasks have no seeds in a split, behind a colon."""
        if self._seeds.are_tables:
            return ""
        given, names = self._options["time_split"], [self._seeds.name(n) for n in numbers]
        is_by_time = given is not None and set(given) != {NO_TIME_US}
        stored = None if is_by_time else split
        found = {name: why_empty(self.store.metadata, name, stored) for name in names}
        reasons = "; ".join(
            why if len(names) == 1 else f"task '{name}': {why}"
            for name, why in found.items()
            if why is not None
        )
        return f": {reasons}" if reasons else ""

    def _stream(self, split: str) -> int:
        if split not in STREAMS:
            raise ValueError(f"split is {split!r}, expected 'train' or 'val'; use epoch()")
        return binding.SPLITS[split]


Sampler.__doc__ = f"""Batches of contexts from a store.

{help_text()}
    Bottlenecks of a run, and their remedies: `stats` and docs/guides/tuning.md.
    """


def _opened(given: Mapping[str, Any]) -> tuple[Store, bool]:
    """The store, and whether it was opened here."""
    path, store = given["db_path"], given["store"]
    if (path is None) == (store is None):
        raise ValueError("give either db_path or store")
    if path is not None:
        with named("db_path", path):
            return Store(path, load=given["load"], verify=given["verify"]), True
    if not isinstance(store, Store):
        raise TypeError(f"store is {store!r}, expected a headwater.Store")
    return store, False
