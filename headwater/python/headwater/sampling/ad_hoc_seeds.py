"""What `Sampler.batches_for` asks: keys as rows of the anchor table, and times for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np

from headwater.errors import TaskError, TimeNeededError, brief
from headwater.store.rendering import time_text
from headwater.store.row_keys import ALWAYS_US, NO_TIME_US, Time, time_us
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


def check_anchors_exist(
    store: Store, task: int, anchors: Sequence[int], times: Sequence[int]
) -> None:
    """Refuse questions about rows that had not come to be when they are asked, as a build drops
    such seeds, unless the task has `allow_future_anchor`."""
    entry = store.metadata["tasks"][task]
    table = store.metadata["tables"][store.table_index(entry["anchor_table"])]
    if table["temporal_column"] is None or entry["allow_future_anchor"] or not anchors:
        return
    low, high = table["row_range"]
    came = {row: store.core.row_time(row) for row in set(anchors) if low <= row < high}
    late = [i for i, row in enumerate(anchors) if came.get(row, ALWAYS_US) > times[i]]
    if not late:
        return
    first = late[0]
    since_us = came[anchors[first]]
    column = f"{entry['anchor_table']}.{table['temporal_column']}"
    if since_us == NO_TIME_US:
        since = f"{column} is NULL there, which comes to be never"
    elif table["time_resolution"] == "day":
        since = f"the day in {column} is over at {time_text(since_us)}"
    else:
        since = f"{column} is {time_text(since_us)}"
    are = "is" if len(late) == 1 else "are"
    parts = [part[0] for part in store.keys([anchors[first]]).values()]
    key = parts[0] if len(parts) == 1 else tuple(parts)
    advice = ', or build the store again with "allow_future_anchor": true in the task'
    advice = "" if entry["sees_everything"] else advice
    raise TaskError(
        f"task '{entry['name']}': {len(late):,} of {len(times):,} questions {are} asked before the "
        f"row of '{entry['anchor_table']}' came to be: {brief(key)} at "
        f"{time_text(times[first])}, but {since}; ask later{advice}"
    )
