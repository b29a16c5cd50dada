"""Options of `Sampler` as the C library takes them: words as numbers, times in microseconds.

Each function checks one option and raises ValueError, with the option's name first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from . import binding
from .keys import NO_TIME_US, Time, time_us
from .store import word

MAX_THREADS = 16


def split_ratios_of(given: Sequence[float]) -> tuple[float, float, float]:
    ratios = [float(ratio) for ratio in given]
    if len(ratios) != 3:
        raise ValueError(f"split_ratios has {len(ratios)} entries, expected 3")
    return ratios[0], ratios[1], ratios[2]


def split_number(split: str) -> int:
    return word("split", split, binding.SPLITS)


def at_least(option: str, value: int, low: int) -> int:
    if value < low:
        raise ValueError(f"{option} is {value}, expected at least {low}")
    return value


def at_least_or_0(option: str, value: int | None, low: int) -> int:
    """An option that may be None, which is 0 to the C library: it then chooses."""
    return 0 if value is None else at_least(option, value, low)


def thread_count(num_threads: int | None, local_world_size: int) -> int:
    if num_threads is not None:
        return at_least("num_threads", num_threads, 1)
    cores = len(os.sched_getaffinity(0)) // at_least("local_world_size", local_world_size, 1)
    return min(max(cores, 1), MAX_THREADS)


def staleness_days(given: tuple[float, float] | None) -> tuple[float, float] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError(f"staleness is {given!r}, expected (probability of no gap, longest days)")
    share, days = float(given[0]), float(given[1])
    if not days > 0:
        raise ValueError(f"staleness: the longest gap is {days:g} days, expected more than 0")
    return share, days


def time_split_us(given: tuple[Time, Time] | None) -> tuple[int, int] | None:
    if given is None:
        return None
    if isinstance(given, str) or len(given) != 2:
        raise ValueError(f"time_split is {given!r}, expected (at, until)")
    at, until = (time_us(time) for time in given)
    if at >= until:
        raise ValueError(f"time_split is {given!r}, expected a time and a later one")
    return at, until


def visible_until_us(given: Time | Mapping[str, Time | None] | None) -> tuple[int, int, int]:
    """visible_until by split, in microseconds."""
    by_split = given if isinstance(given, Mapping) else dict.fromkeys(binding.SPLITS, given)
    strange = set(by_split) - set(binding.SPLITS)
    if strange:
        raise ValueError(f"visible_until names {sorted(strange)}, expected {list(binding.SPLITS)}")
    times = [by_split.get(split) for split in binding.SPLITS]
    train, val, test = (NO_TIME_US if time is None else time_us(time) for time in times)
    return train, val, test
