"""A store of a run that is not there: a pack has its batches, labels, vectors and metadata."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headwater
import numpy as np
from numpy.typing import NDArray

from confluence.config import Config, ConfigError
from confluence.data.label_values import check_label_values
from confluence.data.progress import Progress
from confluence.data.stores import OpenStore, TaskPlace, scored_in_training
from confluence.data.tasks import Labels, batch_settings, parts_of, read_task
from confluence.packs.pack import Pack, PackedBatches, PackError, in_units
from confluence.packs.replay import Order, Replay
from confluence.ranks.group import current

LABELS = tuple(field.name for field in dataclasses.fields(Labels))


class PackedSampler:
    """Stands where a sampler stands in training: what a pack keeps of the one that made it."""

    def __init__(self, pack: Pack, batches: PackedBatches) -> None:
        about = pack.about
        self.store = SimpleNamespace(metadata=about["metadata"])
        self.tasks = tuple(about["shapes"])
        self.shape: dict[str, Any] = about["sampler"]["shape"]
        self._about, self._pack, self._batches = about, pack, batches

    def flat_shape(self, task: str) -> dict[str, Any]:
        """As `Sampler.flat_shape`."""
        shape: dict[str, Any] = self._about["shapes"][task]
        return shape

    def epoch(self, split: str, task: str) -> Iterator[headwater.Batch]:
        """The pass over val of a task, which is all that a pack has besides train."""
        if split != "val":
            raise PackError(f"'{self._pack.folder}' has no pass over '{split}', only over val")
        first, end = self._batches.index["passes"][self.tasks.index(task)]
        for number in range(int(first), int(end)):
            yield self._batches[number]

    def column_embeddings(self) -> NDArray[np.float16]:
        """As `Sampler.column_embeddings`."""
        return self._pack.tables["columns"]

    def categorical_embeddings(self) -> NDArray[np.float16]:
        """As `Sampler.categorical_embeddings`."""
        return self._pack.tables["categories"]

    @property
    def text_mode(self) -> str:
        """As `Sampler.text_mode`."""
        return "numbers" if "texts" in self._pack.tables else "batch"

    def text_vectors(self) -> NDArray[np.float16]:
        """As `Sampler.text_vectors`, if batches list the numbers of their texts."""
        return self._pack.tables["texts"]


def packed_store(
    folder: Path, cfg: Config, *, names: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None, verify: str = "once", store: str | None = None,
) -> OpenStore:  # fmt: skip
    """The store of a run, from a pack that fits the run; PackError names all that does not.

    Args:
        names, weights: tasks that the run asks for, and their weights; None: those of the pack.
        verify: "header": batches are checked when they are first read, not before.
        store: the path of the store that the run is of; None: as the pack has it.
    """
    pack, group = Pack.open(folder), current()
    places = _places(pack, store or pack.about["store"]["path"])
    _check_fits(pack, cfg, places, names, weights)
    batches = pack.batches(group.rank)
    if verify != "header":
        batches.verify(Progress(f"verifying '{folder}'", in_units, each=group.still))
    sampler, metadata = PackedSampler(pack, batches), pack.about["metadata"]
    made = _replay(pack, batches, sampler)
    by_name = {place.name: place for place in places}
    ordered = tuple(by_name[name] for name in names or by_name)
    labels = tuple(read_packed_labels(pack, place.name) for place in ordered)
    for own, place in zip(labels, ordered, strict=True):
        scored = scored_in_training(metadata, place.name, own, cfg)
        check_label_values(place.name, metadata, own, cfg, store=None, scored=scored)
    return OpenStore(
        path=ordered[0].store, sampler=sampler, metadata=metadata, places=ordered, labels=labels,
        tasks=tuple(
            read_task(metadata, own, place.name)
            for own, place in zip(labels, ordered, strict=True)
        ), made=made, pack=pack.identity,
    )  # fmt: skip


def _places(pack: Pack, path: str) -> tuple[TaskPlace, ...]:
    return tuple(
        TaskPlace(store=path, name=task["name"], title=task["name"], weight=task["weight"])
        for task in pack.about["tasks"]
    )


def _replay(pack: Pack, batches: PackedBatches, sampler: PackedSampler) -> Replay:
    about = pack.about
    settings = about["settings"]
    parts = parts_of(sampler, settings["batch_size"] // about["ranks"])
    order = Order(
        ends=tuple(about["ends"]), accumulate=settings["accumulate"] * parts, seed=settings["seed"]
    )
    summary = {
        "from": "pack", "path": str(pack.folder.absolute()), "identity": pack.identity,
        "batches": order.count, "epochs": len(order.ends), "bytes": pack.size,
    }  # fmt: skip
    return Replay(batches, order, about["sampler"]["state"], batches.index["positions"], summary)


# ----------------------------------------------------------------------- what a pack has of tasks


def label_arrays(name: str, labels: Labels) -> dict[str, NDArray[Any]]:
    """The labels of a task as arrays of a pack."""
    fields = {field: getattr(labels, field) for field in LABELS}
    return {f"{name}/{field}": array for field, array in fields.items() if array is not None}


def read_packed_labels(pack: Pack, name: str) -> Labels:
    """The labels of a task of a pack."""
    arrays = {field: pack.tables.get(f"{name}/{field}") for field in LABELS}
    return Labels(**arrays)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------- whether it fits


def packed_settings(pack: Pack) -> Config:
    """The settings with which a pack was made."""
    try:
        return Config.from_dict(pack.about["settings"])
    except ConfigError as error:
        raise PackError(
            f"the pack '{pack.folder}' was made by {pack.about['made_by']} with settings that this"
            f" version does not know ({error}): make it again"
        ) from error


def packed_tasks(folder: Path) -> list[str]:
    """The tasks that a pack was made for."""
    return [task["name"] for task in Pack.open(folder).about["tasks"]]


def _check_fits(
    pack: Pack, cfg: Config, places: Sequence[TaskPlace], names: Sequence[str] | None,
    weights: Mapping[str, float] | None,
) -> None:  # fmt: skip
    found = {place.name: place.weight for place in places}
    wanted = found
    if names is not None:
        wanted = {name: float((weights or {}).get(name, 1.0)) for name in names}
    pairs = {
        "ranks": (current().size, pack.about["ranks"]),
        "tasks": (sorted(wanted), sorted(found)),
        "task weights": (wanted, found) if wanted.keys() == found.keys() else ((), ()),
    }
    before = batch_settings(packed_settings(pack))
    pairs |= {name: (now, before.get(name)) for name, now in batch_settings(cfg).items()}
    if _makes_these_parts(pack, cfg.cell_budget):
        del pairs["cell_budget"]
    faults = [
        f"{name}: the run has {_shown(now)}, the pack {_shown(packed)}"
        for name, (now, packed) in pairs.items()
        if _plain(now) != _plain(packed)
    ]
    if faults:
        raise PackError(
            f"the pack '{pack.folder}' does not fit the run: {'; '.join(faults)}. Change that, or"
            " make another pack"
        )


def _makes_these_parts(pack: Pack, budget: int | None) -> bool:
    """Whether a `cell_budget` leads to batches in as many parts as those of a pack."""
    least, fewer = pack.about["budgets"]
    if budget is None:
        return fewer is None
    return bool(least <= budget and (fewer is None or budget < fewer))


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(value))


def _shown(value: Any) -> str:
    """For people."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {weight:g}" for name, weight in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
