"""Lists of what happened to whom, by the time from which it may be seen: counts, ages, means.

    starts [owners + 1], times [n]     owner p's entries are starts[p] .. starts[p + 1], ascending
    owners [m], limits [m]             ──► how many entries of its owner each seed sees: a prefix
    prefix + values [n]                ──► their mean, that of the last few, the last

As in headwater's stores, what a seed may see of a list is a prefix of it, found by binary search
for all seeds at once: O(m log n) without a loop over seeds.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from headwater.shared import ALWAYS_US
from numpy.typing import NDArray

from confluence.data.tasks import NO_TIME, US_PER_DAY, Floats

NO_OWNER = -1
ALWAYS = ALWAYS_US  # visible always, so of no known age

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moments:
    """When each seed is asked, and up to when it may look."""

    obs_times: Ints  # [m] µs, NO_TIME where there is none
    cutoffs: Ints  # [m] T: obs_time, or an earlier end of what is visible
    inclusive: bool  # what happens at T itself is visible

    @property
    def limits(self) -> Ints:
        """The last time that is visible. [m]"""
        less = 0 if self.inclusive else 1
        return np.where(self.cutoffs == NO_TIME, NO_TIME, self.cutoffs - less)

    def ages(self, times: Ints) -> Floats:
        """Days from times [m] to obs_time, NaN where either is none. [m]"""
        missing = (times == NO_TIME) | (times == ALWAYS) | (self.obs_times == NO_TIME)
        days = (self.obs_times.astype(np.float64) - times.astype(np.float64)) / US_PER_DAY
        return np.where(missing, np.nan, days)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
    """Who is asked about when, maybe several times, and up to when each may look."""

    index: Ints  # [m] of the seed within its task, or of the question; copies of one have the same
    anchor_rows: Ints  # [m] global
    moments: Moments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lists:
    """Entries of owners, ascending by the time from which they may be seen."""

    starts: Ints  # [owners + 1]
    times: Ints  # [n] NO_TIME: never, but by seeds without a time; ALWAYS: by all

    @functools.cached_property
    def places(self) -> Ints:
        """The place of each entry within its list. [n]"""
        return np.arange(self.times.size) - np.repeat(self.starts[:-1], np.diff(self.starts))

    @functools.cached_property
    def longest(self) -> int:
        """The last place of the longest list."""
        return int(np.max(self.places, initial=0))

    def counts(self, owners: Ints, limits: Ints) -> Ints:
        """Entries of its owner that each seed sees; none of NO_OWNER. → [m]"""
        low = self.starts[owners].copy()
        high = np.where(owners == NO_OWNER, low, self.starts[owners + 1])
        first = low.copy()
        while (is_open := low < high).any():
            middle = (low + high) // 2
            seen = self.times[np.where(is_open, middle, 0)] <= limits
            low = np.where(is_open & seen, middle + 1, low)
            high = np.where(is_open & ~seen, middle, high)
        return low - first

    def time_at(self, owners: Ints, places: Ints) -> Ints:
        """Time of the entry at a place of its owner's list, NO_TIME where places < 0. → [m]"""
        if not self.times.size:
            return np.full(owners.size, NO_TIME)
        at = np.where(places < 0, 0, self.starts[owners] + places)
        return np.where(places < 0, NO_TIME, self.times[at])


def make_lists(owners: Ints, times: Ints, owner_count: int) -> tuple[Lists, Ints]:
    """Lists from entries in any order, and the order in which they now stand."""
    order = np.lexsort((times, owners))
    starts = np.searchsorted(owners[order], np.arange(owner_count + 1))
    return Lists(starts=starts.astype(np.int64), times=times[order]), order


class Seen:
    """How much of its owner's list each question sees: all in all, and in the last days."""

    def __init__(self, lists: Lists, owners: Ints, moments: Moments) -> None:
        self.lists, self.owners, self.moments = lists, owners, moments
        self.counts = lists.counts(owners, moments.limits)
        self.ends = np.where(owners == NO_OWNER, 0, lists.starts[owners]) + self.counts
        self._before: dict[int, Ints] = {}

    def before(self, days: int) -> Ints:
        """How many of those that are visible are older than so many days before T. [m]"""
        if days not in self._before:
            has_time = self.moments.cutoffs != NO_TIME
            begin = np.where(has_time, self.moments.cutoffs - days * US_PER_DAY, 0)
            self._before[days] = np.minimum(self.counts, self.lists.counts(self.owners, begin))
        return self._before[days]


def count_features(seen: Seen, windows: tuple[int, ...]) -> dict[str, Floats]:
    """How many entries are visible, in all, in the last days before T, and in a day since the
    first; and how old they are."""
    moments, counts = seen.moments, seen.counts
    has_time = moments.cutoffs != NO_TIME
    found = {"count": counts.astype(np.float64)}
    for days in windows:
        inside = counts - seen.before(days)
        found[f"last {days} days"] = np.where(has_time, inside, np.nan)
    last = seen.lists.time_at(seen.owners, counts - 1)
    first = seen.lists.time_at(seen.owners, np.minimum(counts, 1) - 1)
    found["age of last"], found["age of first"] = moments.ages(last), moments.ages(first)
    found["per day"] = counts / np.maximum(found["age of first"], 1.0)
    return found


def value_features(
    values: Floats, seen: Seen, recents: tuple[int, ...] = (), windows: tuple[int, ...] = ()
) -> dict[str, Floats]:
    """Mean of the visible values [n] of an owner, of the latest few, and the last, NaN for none;
    and their sum in the last days before T.

    Args:
        recents: how many the latest few are, ascending.
        windows: days.
    """
    counts, end = seen.counts, seen.ends
    filled = np.append(values, 0.0)  # what places outside of lists read
    sums = np.append(_running_sums(values, seen.lists), 0.0)

    def mean(totals: Floats, counts: Ints) -> Floats:
        return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)

    found = {"mean": mean(sums[end - 1], counts)}
    latest = np.zeros(counts.size)
    for back in range(1, max(recents, default=0) + 1):
        latest += np.where(counts >= back, filled[np.maximum(end - back, 0)], 0.0)
        if back in recents:
            found[f"mean of last {back}"] = mean(latest, np.minimum(counts, back))
    found["last"] = np.where(counts > 0, filled[end - 1], np.nan)
    has_time = seen.moments.cutoffs != NO_TIME
    for days in windows:
        older = seen.before(days)
        whole = np.where(counts > 0, sums[end - 1], 0.0)
        early = np.where(older > 0, sums[end - counts + older - 1], 0.0)
        found[f"sum of {days} days"] = np.where(has_time, whole - early, np.nan)
    return found


def _running_sums(values: Floats, lists: Lists) -> Floats:
    """Each value and those before it in its list. [n]

    By doubling: differences of sums over all lists would lose what is small beside another list's.
    """
    sums, places, step = values.copy(), lists.places, 1
    while step <= lists.longest:
        sums[step:] += np.where(places[step:] >= step, sums[:-step], 0.0)
        step *= 2
    return sums
