"""The stores of a run, open, each with the run's tasks that it has.

A run learns from one or more tasks of one or more stores. Which task a batch is of is decided by
weight: within a store by its sampler (docs/reference/sampling.md, "Order"), between stores by
`Mixture`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import headwater
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.label_values import check_label_values, describe_unseen_classes
from confluence.data.tasks import (
    NO_TIME,
    TRAIN,
    VAL,
    Labels,
    Task,
    TaskError,
    deals_seeds,
    find_task,
    open_sampler,
    read_labels,
    read_row_shape,
    read_task,
    text_modes,
    weights_by_age,
)
from confluence.model.loss import TaskScales
from confluence.model.row_attention import RowShape

Seeds = tuple[str, ...] | None
"""Whose contexts masked cells are learned in: tasks, or tables with `seed_tables`; None: all."""
MOMENTS = ("mean", "std", "low", "high", "column_mean", "column_std")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskPlace:
    """One task of a run and where it is."""

    store: str  # path
    name: str  # in its store
    title: str  # in the run: the name, or "store/name" where several stores have it
    weight: float = 1.0  # how often it is trained, beside the others
    moments: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """MOMENTS of the target at training, to undo its scaling; empty before training."""

    def with_moments(self, task: Task) -> TaskPlace:
        """The same place, with what this task says of its target."""
        found = {name: float(getattr(task, name)) for name in MOMENTS}
        return dataclasses.replace(self, moments=found)


def find_places(
    stores: Mapping[str, headwater.Store], names: Sequence[str],
    weights: Mapping[str, float] | None = None,
) -> tuple[TaskPlace, ...]:  # fmt: skip
    """Where each of some tasks is: in every given store that has one of that name.

    Args:
        stores: by path.
        weights: by title or name; 1 where not given.
    """
    if not stores or not names:
        raise TaskError("a run needs at least one store and one task")
    if len(set(names)) < len(names):
        raise TaskError("a task is given twice")
    titles: dict[str, str] = {}
    found: dict[str, list[str]] = {name: [] for name in names}
    for path, store in stores.items():
        titles[path] = str(store.metadata["name"])
        has = {entry["name"] for entry in store.metadata["tasks"]}
        for name in names:
            if name in has:
                found[name].append(path)
            elif len(stores) == 1:
                find_task(store.metadata, name)  # raises, with the nearest name
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        raise TaskError(f"no store has the task {', '.join(repr(name) for name in missing)}")
    unused = [path for path in stores if not any(path in paths for paths in found.values())]
    if unused:
        raise TaskError(f"store '{unused[0]}' has none of the tasks {', '.join(names)}")
    places = [
        TaskPlace(store=path, name=name, title=f"{titles[path]}/{name}" if len(paths) > 1 else name)
        for name, paths in found.items()
        for path in paths
    ]
    if len({place.title for place in places}) < len(places):
        raise TaskError("two stores have the same name and a task of the same name: rename one")
    return tuple(_weighted(places, weights or {}))


def _weighted(places: list[TaskPlace], weights: Mapping[str, float]) -> Iterator[TaskPlace]:
    known = {place.title for place in places} | {place.name for place in places}
    strange = sorted(set(weights) - known)
    if strange:
        raise TaskError(f"a weight for '{strange[0]}', which is none of {', '.join(sorted(known))}")
    for place in places:
        weight = float(weights.get(place.title, weights.get(place.name, 1.0)))
        if not is_weight(weight):
            raise TaskError(f"the weight of '{place.title}' is {weight:g}, expected more than 0")
        yield dataclasses.replace(place, weight=weight)


def is_weight(value: float) -> bool:
    """Whether something can be trained that often beside others."""
    return math.isfinite(value) and value > 0


class MadeBatches(Protocol):
    """Train batches that were made before, in place of those of a sampler (`packs/replay.py`)."""

    about: Mapping[str, Any]
    order: Any

    def next_train_batch(self) -> headwater.Batch: ...

    def batch(self, split: str, k: int) -> headwater.Batch: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def shortage(self, steps: int, share: float) -> str | None:
        """A warning if a training takes more batches than there are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenStore:
    """One store of a run, with a sampler of the run's tasks in it."""

    path: str
    sampler: Any  # headwater.Sampler
    metadata: Mapping[str, Any]  # of the sampler
    places: tuple[TaskPlace, ...] = ()  # none where masked cells alone are learned
    tasks: tuple[Task, ...] = ()  # of the places
    labels: tuple[Labels, ...] = ()
    share: float = 1.0  # its weight where no task is learned
    made: MadeBatches | None = None  # its train batches, if they were made before
    pack: str | None = None  # identity of the pack that stands for it

    @property
    def train_batches(self) -> Any:
        """What hands out its train batches."""
        return self.sampler if self.made is None else self.made

    @property
    def weight(self) -> float:
        """How often batches come from this store, beside the others."""
        return sum(place.weight for place in self.places) if self.places else self.share

    def scales(self, cfg: Config) -> TaskScales:
        """The scales of its tasks, by task index of the store."""
        if not self.tasks:  # masked cells are in z units of their columns
            return TaskScales(*(jnp.full(1, value, jnp.float32) for value in (1.0, 0.0, 1.0)))
        parts = [task.scales(cfg) for task in self.tasks]
        count = max(task.index for task in self.tasks) + 1
        rows = []
        for values in zip(*parts, strict=True):
            row = jnp.ones(count, jnp.float32)
            for task, value in zip(self.tasks, values, strict=True):
                row = row.at[task.index].set(value[task.index])
            rows.append(row)
        return TaskScales(*rows)


class SeedWeights:
    """What train seeds weigh by their age: half of the last one's each `half_life_days`.

    The weights of a task's labelled train seeds have the mean 1, so that tasks keep their shares
    and the step its size. A seed without a time weighs 1.
    """

    def __init__(self, stores: Sequence[OpenStore], half_life_days: float) -> None:
        self._rates: list[dict[int, tuple[float, float]]] = []  # by store and task: last, scale
        self._half_life_days = half_life_days
        for store in stores:
            rates = {}
            for task, labels in zip(store.tasks, store.labels, strict=True):
                counts = (labels.splits == TRAIN) & labels.is_labelled
                times = labels.obs_times[counts & (labels.obs_times != NO_TIME)]
                last = float(times.max()) if times.size else 0.0
                mean = float(np.mean(self._raw(times, last))) if times.size else 1.0
                rates[task.index] = (last, 1.0 / mean)
            self._rates.append(rates)

    def _raw(self, times: NDArray[np.int64], last: float) -> NDArray[np.float64]:
        return weights_by_age(times, last, self._half_life_days)

    def __call__(self, batch: Any, store: int) -> NDArray[np.float32]:
        """The weights of a batch's sequences. → [B]"""
        times = np.asarray(batch.info["obs_time"])
        last, scale = self._rates[store][int(batch["task_idx"][0])]
        weights = np.where(times == NO_TIME, 1.0, scale * self._raw(times, last))
        return weights.astype(np.float32)


@contextlib.contextmanager
def open_stores(
    opened: Mapping[str, headwater.Store], places: Sequence[TaskPlace], cfg: Config,
    **overrides: Any,
) -> Iterator[tuple[OpenStore, ...]]:  # fmt: skip
    """The stores of some tasks with their samplers, in the order of their first task; the samplers
    are shut down at the end.

    Args:
        opened: by path.
        overrides: options of `headwater.Sampler` that replace the run's.
    """
    with contextlib.ExitStack() as stack:
        stores = []
        paths = list(dict.fromkeys(place.store for place in places))
        modes = text_modes([opened[path] for path in paths])
        for path, texts in zip(paths, modes, strict=True):
            here = tuple(place for place in places if place.store == path)
            weights = {place.name: place.weight for place in here}
            sampler = stack.enter_context(
                open_sampler(
                    opened[path], cfg, *weights, task_weights=weights, text_mode=texts, **overrides
                )
            )
            metadata = sampler.database_metadata()
            labels = tuple(read_labels(sampler, place.name) for place in here)
            for own, place in zip(labels, here, strict=True):
                scored = scored_in_training(metadata, place.name, own, cfg)
                check_label_values(
                    place.name, metadata, own, cfg, store=opened[path], scored=scored
                )
            tasks = tuple(
                read_task(metadata, own, place.name)
                for own, place in zip(labels, here, strict=True)
            )
            stores.append(
                OpenStore(
                    path=path, sampler=sampler, metadata=metadata, places=here, tasks=tasks,
                    labels=labels,
                )
            )  # fmt: skip
        check_together(stores)
        check_dealt(stores, cfg)
        yield tuple(stores)


def scored_in_training(
    metadata: Mapping[str, Any], name: str, labels: Labels, cfg: Config
) -> str | None:
    """ "val" if somebody asked for its scores; an empty one only if it should have seeds, as it is
    left out if there are none."""
    if cfg.train_on_val or not cfg.eval_every or cfg.eval_every > (cfg.steps or math.inf):
        return None
    is_dealt = metadata["tasks"][find_task(metadata, name)]["split"] == "hash"
    is_due = is_dealt and cfg.past is None and cfg.split_ratios[VAL] > 0
    return "val" if is_due or (labels.splits == VAL).any() else None


def check_dealt(stores: Sequence[OpenStore], cfg: Config) -> None:
    """Raise where `split_ratios` was given, and no task of the run is dealt by it."""
    names = [place.name for store in stores for place in store.places]
    if cfg.split_ratios != Config.split_ratios and not any(
        deals_seeds(store.metadata, [place.name for place in store.places]) for store in stores
    ):
        raise TaskError(
            f"split_ratios is {cfg.split_ratios}, but the seeds of {', '.join(map(repr, names))}"
            " say themselves which split they are of: leave it out"
        )


def check_together(stores: Sequence[OpenStore]) -> None:
    """Raise unless one run can learn from all of these: they must speak of texts in one way."""
    texts = [store.metadata["text"] for store in stores]
    for store, text in zip(stores, texts, strict=True):
        if (text["embedder"], text["dim"]) != (texts[0]["embedder"], texts[0]["dim"]):
            raise TaskError(
                f"texts of '{stores[0].path}' are embedded by '{texts[0]['embedder']}' with width"
                f" {texts[0]['dim']}, those of '{store.path}' by '{text['embedder']}' with width"
                f" {text['dim']}: build both with one embedder"
            )


def category_limit(stores: Sequence[OpenStore]) -> int:
    """L, most categories of a target of the run."""
    return max((task.category_limit for store in stores for task in store.tasks), default=1)


def unseen_classes(stores: Sequence[OpenStore], cfg: Config) -> list[str]:
    """A line for each task of which val or test has classes that train lacks."""
    found = (
        describe_unseen_classes(place.name, store.metadata, labels, cfg)
        for store in stores
        for place, labels in zip(store.places, store.labels, strict=True)
    )
    return [line for line in found if line is not None]


def row_shape(stores: Sequence[OpenStore], cfg: Config) -> RowShape:
    """The most cells of a row in any of the stores."""
    shapes = [read_row_shape(store.metadata, cfg) for store in stores]
    return RowShape(*(max(values) for values in zip(*shapes, strict=True)))


def first_biases(stores: Sequence[OpenStore]) -> dict[str, float]:
    """Where heads start that tasks share: the mean of what each of them says."""
    said: dict[str, list[float]] = {}
    for store in stores:
        for task in store.tasks:
            for name, value in task.first_biases().items():
                said.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in said.items()}


class Mixture:
    """The train batches of several stores in one stream, by weight.

    Batch k is of the store that is furthest behind its share of k + 1 batches, the first of equals:
    no chance, no block, and at any point each store has had its share to about one batch.
    """

    def __init__(self, stores: Sequence[OpenStore]) -> None:
        total = sum(store.weight for store in stores)
        self._shares = [store.weight / total for store in stores]
        self._samplers = [store.train_batches for store in stores]
        self._counts = [0] * len(stores)

    def next_batch(self) -> tuple[Any, int]:
        """The next batch and the number of its store."""
        number = self._due(self._counts)
        batch = self._samplers[number].next_train_batch()
        self._counts[number] += 1
        return batch, number

    def _due(self, counts: Sequence[int]) -> int:
        """The store of the next batch, after so many of each."""
        due = sum(counts) + 1
        behind = [s * due - c for s, c in zip(self._shares, counts, strict=True)]
        return behind.index(max(behind))

    def again(self, batches: range) -> Iterator[tuple[Any, int]]:
        """Some batches of the whole stream, by number, wherever it stands; as `next_batch`."""
        counts = [0] * len(self._samplers)
        for k in range(batches.stop):
            number = self._due(counts)
            if k in batches:
                yield self._samplers[number].batch("train", counts[number]), number
            counts[number] += 1

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands; JSON-able."""
        states = [sampler.state_dict() for sampler in self._samplers]
        return {"counts": list(self._counts), "samplers": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where a state says."""
        if len(state["samplers"]) != len(self._samplers):
            raise ValueError(
                f"the state is of {len(state['samplers'])} stores, this run has"
                f" {len(self._samplers)}"
            )
        for sampler, own in zip(self._samplers, state["samplers"], strict=True):
            sampler.load_state_dict(own)
        self._counts = [int(count) for count in state["counts"]]
