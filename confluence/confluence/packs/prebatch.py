"""`confluence prebatch`: the batches of a training, made once and written to a disk in their order.

    store ──► sampler of each rank ──► batches of E epochs, passes over val ──┐
      └─────► labels, vectors, metadata, scales ──────────────────────────────┴──► a pack

`packs/pack.py` has the bytes of a pack; docs/guides/packs.md explains its use.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from headwater.shared import say
from numpy.typing import NDArray

from confluence.config import Config
from confluence.config import preset as preset_config
from confluence.data.planned_batches import check_budget, with_batch_size
from confluence.data.planned_steps import with_steps
from confluence.data.progress import Progress
from confluence.data.stores import OpenStore, find_places, open_stores
from confluence.data.tasks import cells_in_parts, most_cells, parts_of
from confluence.data.verification import verified_stores
from confluence.data.whole_batch import Layout
from confluence.folder.files import check_outside
from confluence.packs.pack import (
    TABLES,
    BatchWriter,
    Pack,
    PackError,
    batches_file,
    in_units,
    index_file,
    write_arrays,
    write_manifest,
)
from confluence.packs.packed_store import label_arrays
from confluence.packs.replay import Order, positions_of
from confluence.packs.unfinished import check_free, publishing
from confluence.packs.walk import estimated_bytes, free_on_disk, order_of, walked
from confluence.ranks.group import current
from confluence.version import VERSION

Opener = Callable[[int], contextlib.AbstractContextManager[tuple[OpenStore, ...]]]
"""Opens the sampler of a rank."""


def prebatch(
    store: str | Path, *, task: str | Sequence[str], out: str | Path, epochs: int | None = None,
    ranks: int = 1, task_weights: Mapping[str, float] | None = None, preset: str = "small",
    overwrite: bool = False, verify: str = "once", **overrides: Any,
) -> dict[str, Any]:  # fmt: skip
    """Write the batches of a training on tasks of a store into a pack, from which `train` learns
    without the store. Returns the pack's place, numbers of batches, bytes and seconds.

    Args:
        out: folder of the pack. It appears when it is whole; a kill before leaves nothing that can
            be opened.
        epochs: how many passes over the train seeds; None: as many batches as `steps` of the
            settings take. A training that takes more repeats them in new orders.
        ranks: how many ranks will train from it; each has batches of its own.
        overwrite: replace the pack that `out` is.
        overrides: any field of `Config`; those that decide batches must be the same in training.

    The other arguments are those of `confluence.train`.
    """
    cfg, folder = preset_config(preset, **overrides).with_usual_contexts(), Path(out)
    _check(cfg, store, epochs=epochs, ranks=ranks)
    check_outside(folder, [str(store)])
    check_free(folder, overwrite=overwrite)
    known = verified_stores([str(store)], verify)
    names = [task] if isinstance(task, str) else list(task)
    places = find_places(known, names, task_weights)
    check_budget(cfg, len(places))
    cfg = with_batch_size(cfg, known, places, ranks=ranks)

    def opened(rank: int) -> contextlib.AbstractContextManager[tuple[OpenStore, ...]]:
        """The store with the sampler of a rank."""
        size = cfg.contexts // ranks
        share = {"rank": rank, "world_size": ranks, "default_batch_size": size}
        return open_stores(known, places, cfg, **share)

    started = time.perf_counter()
    with publishing(folder, overwrite=overwrite) as work:
        sizes = _write(work, folder, opened, cfg, epochs=epochs, ranks=ranks)
    return {"pack": str(folder), **sizes, "seconds": time.perf_counter() - started}


def _check(cfg: Config, store: Any, *, epochs: int | None, ranks: int) -> None:
    if not isinstance(store, str | Path):
        raise PackError(
            "a pack is of one store: make one of each, or train on several without a pack"
            " (--prebatch memory keeps their batches)"
        )
    if current().size > 1:
        raise ValueError(
            "prebatch works in one process: `ranks` is the number of ranks it writes for"
        )
    for name, number in (("epochs", epochs), ("ranks", ranks)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}, expected at least 1")
    if cfg.objective == "masked_cells":
        raise PackError(
            "a pack is of tasks, and the objective 'masked_cells' has none: `confluence pretrain"
            " --prebatch memory` keeps its batches"
        )
    if cfg.prebatch is not None:
        raise ValueError("prebatch 'memory' is for training: leave it out of a pack")
    cfg.check_ranks(ranks)


def _write(
    work: Path, out: Path, opened: Opener, cfg: Config, *, epochs: int | None, ranks: int
) -> dict[str, Any]:  # fmt: skip
    """Write all files of a pack; returns how much it is."""
    writer = PackWriter(work, out)
    with opened(0) as (store,):
        cfg = with_steps(cfg, [store], tell=True)
        order, tables = order_of(store.sampler, cfg, epochs), _tables(store)
        writer.total = _estimate(store, order, tables, ranks, out)
        about = {
            **_about(store, cfg), "ranks": ranks, "ends": order.ends,
            "budgets": _budgets(store, cfg, ranks),
        }  # fmt: skip
        writer.write_tables(tables)
        writer.write_rank(0, store, order)
    for rank in range(1, ranks):
        with opened(rank) as (store,):
            writer.write_rank(rank, store, order)
    write_manifest(work, about, writer.files, writer.layouts)
    return {
        "batches": order.count, "epochs": len(order.ends), "ranks": ranks, "bytes": writer.size
    }  # fmt: skip


class PackWriter:
    """Writes the files of a pack, and tells how far it is."""

    def __init__(self, work: Path, out: Path) -> None:
        """
        Args:
            work: the folder that is written.
            out: what it will be called.
        """
        self._work = work
        self._progress = Progress(f"writing '{out}'", in_units)
        self.total = 0  # bytes that all of it is about to have
        self.files: dict[str, Any] = {}  # what the manifest says of each
        self.layouts: list[Layout] = []

    @property
    def size(self) -> int:
        """Bytes written."""
        return sum(entry["bytes"] for entry in self.files.values())

    def write_tables(self, tables: Mapping[str, NDArray[Any]]) -> None:
        """Write what all ranks have."""
        self.files[TABLES] = write_arrays(self._work / TABLES, tables)

    def write_rank(self, rank: int, store: OpenStore, order: Order) -> None:
        """Write the batches of a rank, and where each is."""
        sampler, before = store.sampler, self.size
        batches, index = batches_file(rank), index_file(rank)
        with BatchWriter(self._work / batches, self.layouts) as writer:
            states = [sampler.state_dict()]
            for batch, state in walked(sampler, order.count):
                writer.append(batch)
                states.append(state)
                self._progress(before + writer.size, self.total)
            passes = [(len(writer), _write_pass(writer, sampler, name)) for name in sampler.tasks]
        self.files[batches] = {"bytes": writer.size}
        arrays = {"positions": positions_of(states), "passes": np.array(passes, np.uint64)}
        self.files[index] = write_arrays(self._work / index, {**writer.index(), **arrays})


def _write_pass(writer: BatchWriter, sampler: Any, name: str) -> int:
    """Write the pass over val of a task; returns how many batches there are before its end."""
    for batch in _pass(sampler, name):
        writer.append(batch)
    return len(writer)


def _pass(sampler: Any, name: str) -> Iterator[Any]:
    return iter(sampler.epoch("val", task=name) if sampler.num_seeds("val", name) else ())


def _tables(store: OpenStore) -> dict[str, NDArray[Any]]:
    """The arrays of a pack that all ranks have."""
    sampler = store.sampler
    tables = {
        "columns": np.asarray(sampler.column_embeddings()),
        "categories": np.asarray(sampler.categorical_embeddings()),
    }
    if sampler.text_mode == "numbers":
        tables["texts"] = sampler.text_vectors()
    for place, labels in zip(store.places, store.labels, strict=True):
        tables |= label_arrays(place.name, labels)
    return tables


def _about(store: OpenStore, cfg: Config) -> dict[str, Any]:
    """What a pack was made from and for."""
    sampler = store.sampler
    return {
        "made_by": f"confluence {VERSION}",
        "store": {
            "path": str(Path(store.path).absolute()), "name": store.metadata["name"],
            "fingerprint": str(store.metadata["fingerprint"]),
        },
        "settings": cfg.to_dict(),
        "tasks": [{"name": place.name, "weight": place.weight} for place in store.places],
        "metadata": store.metadata,
        "shapes": {name: sampler.flat_shape(name) for name in sampler.tasks},
        "sampler": {"shape": sampler.shape, "state": sampler.state_dict()},
    }  # fmt: skip


def _budgets(store: OpenStore, cfg: Config, ranks: int) -> tuple[int, int | None]:
    """The least `cell_budget` with which batches are made in as many parts, and the least with
    which they are made in fewer; None: in no case."""
    size, least = cfg.contexts // ranks, most_cells(store.sampler)
    parts = parts_of(store.sampler, size)
    if parts == 1:
        return least, None
    fewer = max(count for count in range(1, parts) if size % count == 0)
    task = store.places[0].name
    return least, cells_in_parts(store.sampler.store, cfg, task, fewer, ranks=ranks)


def _estimate(
    store: OpenStore, order: Order, tables: Mapping[str, NDArray[Any]], ranks: int, out: Path
) -> int:
    """Say how large a pack will be, and raise if the disk has less space; returns its bytes."""
    sampler = store.sampler
    train = ranks * estimated_bytes(sampler, order.count)
    val, passes = 0, 0
    for name in sampler.tasks:
        if sampler.num_seeds("val", name):
            with sampler.epoch("val", task=name) as batches:
                passes += len(batches)
                val += ranks * len(batches) * Layout.of(next(batches)).size
    size = train + val + sum(array.nbytes for array in tables.values())
    free = free_on_disk(out)
    say(
        f"'{out}' will have {order.count:,} train batches (of {len(order.ends)}"
        f" epoch{'s' * (len(order.ends) > 1)}) and {passes:,} of val"
        f"{f' for each of {ranks} ranks' if ranks > 1 else ''}: about {in_units(size)}"
        f" ({in_units(train)} of train, {in_units(val)} of val)"
    )
    if size > free:
        raise PackError(
            f"the pack '{out}' takes about {in_units(size)}, and {in_units(free)} are free there:"
            " take fewer --epochs, or another place"
        )
    return size


def describe(result: Mapping[str, Any]) -> list[str]:
    """What was made, for people."""
    pack = Pack.open(Path(result["pack"]))
    names = ", ".join(task["name"] for task in pack.about["tasks"])
    ranks = "" if result["ranks"] == 1 else f" for {result['ranks']} ranks"
    devices = "" if result["ranks"] == 1 else f" --devices {result['ranks']}"
    return [
        f"packed {result['batches']:,} train batches of {names}{ranks} in"
        f" {result['seconds']:.1f} s, {in_units(result['bytes'])}",
        f"train with: confluence train --prebatched {result['pack']}{devices} --out RUN",
    ]
