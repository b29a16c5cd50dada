"""A pool of seeds in the hands of a trainer (seed 000): which rows are asked about, and in which
order."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.errors import named, nearest
from headwater.sampling.sampler_options import split_number, split_ratios_of, whole
from headwater.sampling.saved_state import check_saved, natural
from headwater.sampling.seed_choice import SeedSources
from headwater.store.store import Store, column_numbers

MOST = 2**32 - 1
MOST_DRAWN = 2**26  # of one next_batch: 2 GB
POOL_STATE_VERSION = 1
SPLIT_RATIOS = (0.8, 0.1, 0.1)
LABELS = ("numerical", "boolean", "categorical", "timestamp")


@dataclass(frozen=True)
class SeedBatch:
    """Seeds of one task, or of several that are drawn together, in the order drawn; arrays are
    read-only, [n]."""

    task: str | None  # or the seed table; None: drawn together
    seeds: NDArray[np.uint32]  # numbers within the task, of a seed table rows within the table
    epochs: NDArray[np.uint32]
    rows: NDArray[np.uint32]  # the anchor's global row
    obs_times: NDArray[np.int64]  # microseconds; 2^63 - 1: none
    labels: NDArray[np.float64]  # source units, 0 or 1, index of the category, or us; NaN: none
    names: tuple[str, ...] = ()  # drawn together: the tasks of the pool, or its seed tables
    tasks: NDArray[np.uint32] | None = None  # drawn together: for each seed the index in `names`

    def __len__(self) -> int:
        return len(self.seeds)

    def by_task(self) -> dict[str, SeedBatch]:
        """The seeds of each task or seed table that has some here, as `batch_of` takes them; each
        keeps the order drawn."""
        if self.tasks is None:
            return {} if self.task is None or not len(self) else {self.task: self}
        return {
            self.names[place]: self._chosen(self.names[place], self.tasks == place)
            for place in np.unique(self.tasks)
        }

    def _chosen(self, task: str, where: NDArray[np.bool_]) -> SeedBatch:
        arrays = {name: getattr(self, name)[where] for name in ARRAYS}
        for array in arrays.values():
            array.flags.writeable = False
        return SeedBatch(task, **arrays)


ARRAYS = ("seeds", "epochs", "rows", "obs_times", "labels")


class SeedPool:
    """The seeds of a split, shuffled anew in each epoch; it needs a store only.

    tasks: names; None: all tasks of the store. seed_tables: the rows of these tables instead, each
    at its own time. require_label: only seeds whose label is there and not NULL. With seed_tables
    it names the column whose cells are the labels, one name for all tables or {table: column};
    they have the precision of cells, float32. rng_seed, split_seed, split_ratios, task_weights: as
    `seed` and the others of `Sampler`; a sampler of the same values has the same seeds in the same
    order, if require_label leaves out none.

    together: the seeds of all tasks or seed tables are one list, which each epoch shuffles as one,
    so that a batch has seeds of several. By default tasks take turns. ValueError with task_weights.

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
        split_ratios: Sequence[float] = SPLIT_RATIOS,
        task_weights: Mapping[str, float] | Sequence[float] | None = None,
        together: bool = False,
    ) -> None:
        self.store = store if isinstance(store, Store) else Store(store)
        self._sources = SeedSources(self.store, tasks, seed_tables)
        with named("require_label", require_label):
            labels = self._label_columns(require_label)
        with named("split_ratios", split_ratios):
            ratios = split_ratios_of(split_ratios)
        if ratios != SPLIT_RATIOS:
            self._sources.check_dealt(ratios)
        if not isinstance(together, bool | np.bool_):
            raise TypeError(f"together is {together!r}, expected True or False")
        weights = self._sources.weights(task_weights)
        options = {
            "seed": _seed("rng_seed", rng_seed), "split_seed": _seed("split_seed", split_seed),
            "split_ratios": ratios, "task_weights": weights,
        }  # fmt: skip
        self._core = binding.SeedPool(
            self.store.core, split_number(split), require_label=bool(require_label),
            label_columns=labels, tasks=None if tasks is None else self._sources.numbers,
            seed_tables=self._sources.table_numbers(), together=bool(together), **options,
        )  # fmt: skip
        self._position = self._core.begin()
        self.rank, self.world_size = 0, 1
        self.fingerprint = self.store.fingerprint
        self.options: dict[str, Any] = {
            **options, "split": split, "split_ratios": list(ratios),
            "tasks": self._sources.names(), "seed_tables": self._sources.are_tables,
            "label_columns": labels or bool(require_label), "together": bool(together),
        }  # fmt: skip

    def _label_columns(self, given: bool | str | Mapping[str, str]) -> list[int] | None:
        """Global columns by seed table; None where tasks have the labels, or nobody."""
        names = self._sources.names()
        if not self._sources.are_tables:
            if not isinstance(given, bool | np.bool_):
                raise TypeError("expected True or False, as tasks have labels of their own")
            return None
        if isinstance(given, bool | np.bool_):
            if given:
                raise ValueError("expected the column of seed_tables that has the labels")
            given = {}
        chosen = dict.fromkeys(names, given) if isinstance(given, str) else given
        if not isinstance(chosen, Mapping):
            raise TypeError("expected a column, or {table: column}")
        strange = sorted(set(chosen) - set(names))
        if strange:
            raise ValueError(f"there is no seed table {strange}, expected some of {names}")
        return [self._column(name, chosen[name]) if name in chosen else MOST for name in names]

    def _column(self, table: str, column: str) -> int:
        metadata = self.store.metadata
        numbers = column_numbers(metadata, metadata["tables"][self.store.table_index(table)])
        if column not in numbers:
            hint = nearest(str(column), numbers)
            raise ValueError(f"table '{table}' has no column '{column}'{hint}")
        stype = metadata["columns"][numbers[column]]["stype"]
        if stype not in LABELS:
            raise ValueError(
                f"column '{table}.{column}' is of type {stype}, expected one of {LABELS}"
            )
        return numbers[column]

    def __repr__(self) -> str:
        options = self.options
        return (
            f"<SeedPool of '{self.store.path}': {', '.join(options['tasks'])}; {options['split']};"
            f" {len(self)} seeds, {self.rank} of {self.world_size}>"
        )

    @property
    def _piece(self) -> tuple[int, int, int]:
        return self.rank, self.world_size, MOST

    def __len__(self) -> int:
        """Seeds of this pool, of all its tasks: of this rank's part."""
        return self._core.count(self._piece)

    def most_of_a_rank(self) -> int:
        """Seeds of the largest part, rank 0's."""
        return self._core.count((0, self.world_size, MOST))

    def remaining(self) -> int:
        """Seeds to the end of the epoch; if tasks take turns, the sum over their epochs."""
        return self._core.remaining(self._piece, self._position)

    def next_batch(self, n: int) -> SeedBatch:
        """The next n seeds of one task, which takes its turn as in a sampler's stream; together the
        next n of all tasks, with the task of each.

        They run on into the next epoch, which has another order. A pool that has no seeds of the
        task, because other ranks have them, gives none.
        """
        if not 1 <= whole("n", n) <= MOST_DRAWN:
            raise ValueError(f"n is {n}, expected 1 to {MOST_DRAWN}")
        number, drawn, self._position = self._core.draw(self._piece, self._position, n)
        if not self.options["together"]:
            return SeedBatch(self._sources.name(number), **drawn)
        tasks = np.searchsorted(self._sources.numbers, drawn.pop("tasks")).astype(np.uint32)
        tasks.flags.writeable = False
        return SeedBatch(None, **drawn, names=tuple(self.options["tasks"]), tasks=tasks)

    def partition_for_rank(self, rank: int, world_size: int) -> None:
        """Keep the seeds i mod world_size = rank of the present ones, for all epochs; begin anew.

        That is of each task, or together of the list of all. Parts of a list differ by at most one
        seed, and each epoch shuffles a part by itself. A part without seeds is a warning.
        """
        rank, world_size = whole("rank", rank), whole("world_size", world_size)
        if not 0 <= rank < world_size or self.world_size * world_size > MOST:
            raise ValueError(f"rank is {rank} of {world_size}, expected 0 to world_size - 1")
        self.rank += rank * self.world_size
        self.world_size *= world_size
        self._position = self._core.begin()
        if len(self) == 0:
            warnings.warn(
                f"the pool has no seeds for rank {self.rank} of {self.world_size}: its batches are"
                " empty",
                stacklevel=2,
            )

    def copy(self) -> SeedPool:
        """Another pool of the same seeds that stands where this one does."""
        return copy.copy(self)

    def place(self) -> tuple[Any, ...]:
        """Changes whenever the pool is moved."""
        return self.rank, self.world_size, self._position

    # ---- state ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the pool stands, JSON-able; it names the rank and the number of ranks."""
        positions, batches = self._position
        own = {"rank": self.rank, "world_size": self.world_size}
        return {
            "version": POOL_STATE_VERSION,
            "fingerprint": self.fingerprint,
            "options": copy.deepcopy(self.options) | own,
            "positions": self._sources.by_name(positions),
            "batches": batches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken; ValueError names everything that differs."""
        check_saved(state, self.state_dict(), "pool")
        positions = self._sources.numbered(state["positions"], self._core.task_count)
        own = {positions[number] for number in self._sources.numbers}
        if self.options["together"] and len(own) > 1:
            raise ValueError(f"the state is not whole: positions are {sorted(own)}, expected one")
        self._position = positions, natural("batches", state["batches"])


def _seed(name: str, value: Any) -> int:
    if not 0 <= whole(name, value) < 2**64:
        raise ValueError(f"{name} is {value}, expected 0 to 2^64 - 1")
    return int(value)
