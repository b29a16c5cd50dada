"""What `Sampler.batches_for` asks: keys as rows of the anchor table, and times for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np

from headwater.errors import TimeNeededError
from headwater.store.row_keys import NO_TIME_US, Time, time_us
from headwater.store.store import NO_ROW, Store


def anchor_rows(store: Store, task: int, keys: Sequence[Any]) -> list[int]:
    """Global rows of a task's anchor table by their keys."""
    if isinstance(keys, str | bytes):
        raise TypeError("keys is a str, expected a list of keys")
    if not isinstance(keys, Iterable):
        raise TypeError(f"keys is {keys!r}, expected a list of keys")
    name = store.metadata["tasks"][task]["anchor_table"]
    given = list(keys)
    found = store.find_all(name, given)
    unknown = [given[i] for i in np.flatnonzero(found == NO_ROW)]
    if unknown:
        raise KeyError(store.unknown_keys(name, unknown))
    anchors: list[int] = found.tolist()
    return anchors


def observation_times(
    store: Store, task: int, anchors: list[int], obs_time: Time | Sequence[Time] | None
) -> list[int]:
    """When each anchor is asked about, in microseconds; None: at its own time."""
    if obs_time is None:
        return _own_times(store, task, anchors)
    if isinstance(obs_time, int | str | date | datetime | np.datetime64 | np.integer):
        return [time_us(obs_time)] * len(anchors)
    if not isinstance(obs_time, Iterable):
        return [time_us(obs_time)] * len(anchors)  # says what it expected
    times = [time_us(time) for time in obs_time]
    if len(times) != len(anchors):
        raise ValueError(f"obs_time has {len(times)} entries for {len(anchors)} keys")
    return times


def _own_times(store: Store, task: int, anchors: list[int]) -> list[int]:
    metadata = store.metadata
    entry = metadata["tasks"][task]
    if all(table["temporal_column"] is None for table in metadata["tables"]):
        return [NO_TIME_US] * len(anchors)
    anchor_table = metadata["tables"][store.table_index(entry["anchor_table"])]
    if entry["kind"] != "cell" or anchor_table["temporal_column"] is None:
        raise TimeNeededError(
            f"task '{entry['name']}' needs the time of each question, without which its contexts "
            "would show everything that ever happened"
        )
    times = [store.core.row_time(row) for row in anchors]
    for row, time in zip(anchors, times, strict=True):
        if abs(time) >= NO_TIME_US:
            raise TimeNeededError(f"row {row} of '{anchor_table['name']}' has no time")
    return times
