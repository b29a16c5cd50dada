"""A pool of seeds in the hands of a trainer (seed 000): which rows are asked about, and in which
order."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.errors import nearest
from headwater.sampling.sampler_options import split_number, split_ratios_of, whole
from headwater.sampling.saved_state import check_saved
from headwater.sampling.seed_choice import SeedSources
from headwater.store.store import Store

MOST = 2**32 - 1
POOL_STATE_VERSION = 1


@dataclass(frozen=True)
class SeedBatch:
    """Seeds of one task, in the order drawn; arrays are read-only, [n]."""

    task: str  # or the seed table
    seeds: NDArray[np.uint32]  # numbers within the task, of a seed table rows within the table
    epochs: NDArray[np.uint32]
    rows: NDArray[np.uint32]  # the anchor's global row
    obs_times: NDArray[np.int64]  # microseconds; 2^63 - 1: none
    labels: NDArray[np.float64]  # source units, 0 or 1, index of the category, or us; NaN: none

    def __len__(self) -> int:
        return len(self.seeds)


class SeedPool:
    """The seeds of a split, shuffled anew in each epoch; it needs a store only.

    tasks: names; None: all tasks of the store. seed_tables: the rows of these tables instead, each
    at its own time. require_label: only seeds whose label is there and not NULL. With seed_tables
    it names the column whose cells are the labels, one name for all tables or {table: column}.
    rng_seed, split_seed, split_ratios, task_weights: as `seed` and the others of `Sampler`; a
    sampler of the same values has the same seeds in the same order.

    TaskError if no seed is left. One thread at a time.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        tasks: Sequence[str] | None = None,
        seed_tables: Sequence[str] | None = None,
        split: str = "train",
        require_label: bool | str | Mapping[str, str] = False,
        rng_seed: int = 42,
        split_seed: int = 123,
        split_ratios: Sequence[float] = (0.8, 0.1, 0.1),
        task_weights: Mapping[str, float] | None = None,
    ) -> None:
        self.store = store if isinstance(store, Store) else Store(store)
        self._sources = SeedSources(self.store, tasks, seed_tables)
        labels = self._label_columns(require_label)
        self._members: dict[str, Any] = {
            "split": split_number(split),
            "require_label": bool(require_label),
            "label_columns": labels,
            "tasks": None if tasks is None else self._sources.numbers,
            "seed_tables": self._sources.table_numbers(),
            "seed": whole("rng_seed", rng_seed),
            "split_seed": whole("split_seed", split_seed),
            "split_ratios": split_ratios_of(split_ratios),
            "task_weights": self._sources.weights(task_weights),
        }
        self._core = binding.SeedPool(self.store.core, **self._members)
        self._options: dict[str, Any] = {
            "tasks": self._sources.names(),
            "seed_tables": self._sources.are_tables,
            "split": split,
            "label_columns": labels if self._sources.are_tables else bool(require_label),
            "rng_seed": int(rng_seed),
            "split_seed": int(split_seed),
            "split_ratios": [float(ratio) for ratio in split_ratios],
            "task_weights": task_weights and {k: float(v) for k, v in task_weights.items()},
            "rank": 0,
            "world_size": 1,
        }

    def _label_columns(self, require_label: bool | str | Mapping[str, str]) -> list[int] | None:
        """Global columns by seed table; None where tasks have the labels, or nobody."""
        if not self._sources.are_tables:
            if not isinstance(require_label, bool):
                raise TypeError(f"require_label is {require_label!r}, of tasks it is True or False")
            return None
        names = self._sources.names()
        if require_label is True:
            raise ValueError("require_label is True, of seed_tables it names a column")
        if isinstance(require_label, str):
            require_label = dict.fromkeys(names, require_label)
        chosen = require_label or {}
        strange = sorted(set(chosen) - set(names))
        if strange:
            raise ValueError(f"require_label names {strange}, expected some of {names}")
        return [self._column(name, chosen[name]) if name in chosen else MOST for name in names]

    def _column(self, table: str, column: str) -> int:
        metadata = self.store.metadata
        first, end = metadata["tables"][self.store.table_index(table)]["column_range"]
        names = [entry["name"] for entry in metadata["columns"][first:end]]
        if column not in names:
            raise ValueError(
                f"require_label: table '{table}' has no column '{column}'{nearest(column, names)}"
            )
        return int(first) + names.index(column)

    def __repr__(self) -> str:
        options = self._options
        return (
            f"<SeedPool of '{self.store.path}': {', '.join(options['tasks'])}; {options['split']};"
            f" {len(self)} seeds, {options['rank']} of {options['world_size']}>"
        )

    def __len__(self) -> int:
        """Seeds of this pool, of all its tasks: of this rank's part."""
        return self._core.count()

    def remaining(self) -> int:
        """Seeds to the end of the epoch, summed over the epochs that the tasks are in."""
        return self._core.remaining()

    def next_batch(self, n: int) -> SeedBatch:
        """The next n seeds of one task; a task takes its turn as in a sampler's stream.

        They run on into the task's next epoch, which has another order. A pool that has no seeds
        of the task, because other ranks have them, gives none.
        """
        if not 1 <= whole("n", n) <= MOST:
            raise ValueError(f"n is {n}, expected 1 to {MOST}")
        number, drawn = self._core.next(n)
        return SeedBatch(self._sources.name(number), **drawn)

    def partition_for_rank(self, rank: int, world_size: int) -> None:
        """Keep the seeds i mod world_size = rank of the present ones, for all epochs; begin anew.

        Parts differ by at most one seed, and each epoch shuffles a part by itself.
        """
        rank, world_size = whole("rank", rank), whole("world_size", world_size)
        if not 0 <= rank < world_size <= MOST:
            raise ValueError(f"rank is {rank} of {world_size}, expected 0 to world_size - 1")
        self._core.keep(rank, world_size, MOST)
        self._options["rank"] += rank * self._options["world_size"]
        self._options["world_size"] *= world_size

    def copy(self) -> SeedPool:
        """Another pool of the same seeds that stands where this one does."""
        made = copy.copy(self)
        made._options = copy.copy(self._options)
        made._core = binding.SeedPool(self.store.core, **self._members)
        made._core.keep(self._options["rank"], self._options["world_size"], MOST)
        made._core.set_position(*self._core.get_position())
        return made

    # ---- state ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the pool stands, JSON-able; it names the rank and the number of ranks."""
        positions, batches = self._core.get_position()
        return {
            "version": POOL_STATE_VERSION,
            "fingerprint": self.store.fingerprint,
            "options": copy.deepcopy(self._options),
            "positions": self._sources.named(positions),
            "batches": batches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken; ValueError names everything that differs."""
        check_saved(state, self.state_dict(), "pool")
        count = len(self._core.get_position()[0])
        positions = self._sources.numbered(state["positions"], count)
        self._core.set_position(positions, whole("batches", state["batches"]))
