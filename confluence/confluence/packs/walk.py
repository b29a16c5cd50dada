"""The train batches of a sampler, made once: how many, how large, one by one, or kept in memory."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import headwater
import psutil
from headwater.shared import say

from confluence.config import Config
from confluence.data.stores import OpenStore
from confluence.data.tasks import parts_of
from confluence.data.whole_batch import Layout
from confluence.packs.pack import KeptBatches, in_units
from confluence.packs.replay import Order, Replay, epoch_ends, epochs_of, positions_of

SAMPLED_PER_TASK = 4  # batches whose size is looked at
MEMORY_SHARE = 0.8  # of what is free, that batches may take
CGROUP = Path("/sys/fs/cgroup")


def order_of(sampler: Any, cfg: Config, epochs: int | None) -> Order:
    """The order of batches of so many epochs of train; None: of as many batches as the run takes,
    in the epochs that they begin."""
    parts = parts_of(sampler, cfg.contexts // sampler.world_size)
    each, contexts = cfg.accumulate * parts, cfg.contexts // parts  # batches of a step, and theirs
    seeds, needed = sampler.num_seeds("train"), cfg.step_count * each
    count = epochs_of(needed, seeds, contexts) if epochs is None else epochs
    ends = epoch_ends(seeds, contexts, each, count)
    if epochs is None:
        ends = (*(end for end in ends if end < needed), needed)
    return Order(ends=ends, accumulate=each, seed=cfg.seed)


def walked(sampler: Any, count: int) -> Iterator[tuple[headwater.Batch, dict[str, Any]]]:
    """The next train batches of a sampler, and the state after each."""
    for _ in range(count):
        batch = sampler.next_train_batch()
        yield batch, sampler.state_dict()


def estimated_bytes(sampler: Any, count: int) -> int:
    """About how many bytes so many train batches have, from a look at the first."""
    sampled = min(count, SAMPLED_PER_TASK * len(sampler.tasks))
    sizes = [Layout.of(sampler.batch("train", k)).size for k in range(sampled)]
    return round(sum(sizes) / sampled * count)


def kept_in_memory(
    stores: Sequence[OpenStore], cfg: Config, *, sharing: int, each: Callable[[], None]
) -> tuple[OpenStore, ...]:
    """The stores with their train batches made and kept, if the setting `prebatch` says so.

    Args:
        sharing: processes that share this machine's memory.
        each: called after each batch.
    """
    if cfg.prebatch is None:
        return tuple(stores)
    orders = [_order_in_memory(store.sampler, cfg) for store in stores]
    sizes = [
        estimated_bytes(store.sampler, order.count)
        for store, order in zip(stores, orders, strict=True)
    ]
    _check_memory(sum(sizes) * sharing, sum(order.count for order in orders), cfg)
    return tuple(
        dataclasses.replace(store, made=_kept(store.sampler, order, each))
        for store, order in zip(stores, orders, strict=True)
    )


def repeats_of(stores: Sequence[OpenStore], cfg: Config) -> list[dict[str, int] | None]:
    """Of each store how many batches are made before training and repeated, in how many epochs;
    None: the run takes no batch twice. It decides what a run learns."""
    total = sum(store.weight for store in stores)
    found: list[dict[str, int] | None] = []
    for store in stores:
        order = None if store.made is None else store.made.order
        if cfg.prebatch is not None:
            order = _order_in_memory(store.sampler, cfg)
        if order is None:
            found.append(None)
            continue
        needed = cfg.step_count * order.accumulate
        most = needed if len(stores) == 1 else math.floor(needed * store.weight / total) + 1
        repeats = {"batches": order.count, "epochs": len(order.ends)}
        found.append(None if most <= order.count else repeats)
    return found


def _order_in_memory(sampler: Any, cfg: Config) -> Order:
    """No more than the run takes."""
    order, needed = order_of(sampler, cfg, cfg.prebatch_epochs), order_of(sampler, cfg, None)
    return order if order.count < needed.count else needed


def _kept(sampler: Any, order: Order, each: Callable[[], None]) -> Replay:
    started, batches = time.perf_counter(), KeptBatches()
    states = [sampler.state_dict()]
    for batch, state in walked(sampler, order.count):
        batches.append(batch)
        states.append(state)
        each()
    seconds = time.perf_counter() - started
    say(
        f"{len(batches):,} train batches (of {len(order.ends)}"
        f" epoch{'s' * (len(order.ends) > 1)}) are in memory: {in_units(batches.size)}, made in"
        f" {seconds:.1f} s"
    )
    about = {
        "from": "memory", "batches": len(batches), "epochs": len(order.ends),
        "bytes": batches.size, "seconds": seconds,
    }  # fmt: skip
    return Replay(batches, order, states[0], positions_of(states), about)


def _check_memory(size: int, count: int, cfg: Config) -> None:
    free = available_memory()
    if size > MEMORY_SHARE * free:
        raise MemoryError(
            f"{count:,} train batches take about {in_units(size)}, and of the {in_units(free)} of"
            f" memory that are free at most {MEMORY_SHARE:.0%} may be taken: write them to a disk"
            " with `confluence prebatch` and train with --prebatched, or leave --prebatch out"
        )


def available_memory(root: Path = CGROUP) -> int:
    """Bytes that this process can still have, by the system and its control group."""
    free, of_group = int(psutil.virtual_memory().available), _free_of_group(root)
    return free if of_group is None else min(free, of_group)


def _free_of_group(root: Path) -> int | None:
    try:
        limit, used = (
            int((root / name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # there is none, or it has no limit ("max")
        return None
    return max(0, limit - used)


def free_on_disk(folder: Path) -> int:
    """Bytes that may be written where a folder is, or will be."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    stats = os.statvfs(place)
    return stats.f_bavail * stats.f_frsize
