"""`ColumnFacts`: the counts by which a column's type is judged; `measure.py` makes them."""

from __future__ import annotations

from dataclasses import dataclass, field

MOSTLY = 0.95


@dataclass(frozen=True)
class ColumnFacts:
    """Counts over all values of a column that are not NULL, in whatever spelling."""

    row_count: int
    value_count: int
    distinct_count: int
    number_count: int = 0
    marked_count: int = 0  # texts such as $1,000: a number as people write it
    integer_count: int = 0
    zero_one_count: int = 0
    word_count: int = 0  # values that are boolean words
    time_count: int = 0
    clock_count: int = 0  # times with a time of day
    zoned_count: int = 0
    span_count: int = 0  # hours, minutes and seconds
    late_count: int = 0  # of these, 24 hours or more
    padded_count: int = 0  # numbers written with leading zeros: codes
    url_count: int = 0
    uuid_count: int = 0
    digit_count: int = 0  # texts with a digit
    spaced_count: int = 0  # texts with a space
    largest: float = 0.0
    smallest: float = 0.0
    mean_length: float = 0.0
    nulls: dict[str, int] = field(default_factory=dict)  # spellings taken out
    doubtful: dict[str, int] = field(default_factory=dict)  # spellings that stay values
    foreign: dict[str, int] = field(default_factory=dict)  # among numbers or times, and kept
    sentinels: dict[str, int] = field(default_factory=dict)  # times that mean no time, perhaps
    format: str | None = None  # of times that are not ISO 8601
    partial: str = ""  # how many dates lack their day, or month and day, and how they are read
    has_two_formats: bool = False  # day first and month first fit alike
    unread_times: str = ""  # the check of values that only look like times

    @property
    def is_unique(self) -> bool:
        return 0 < self.value_count == self.distinct_count

    @property
    def is_full(self) -> bool:
        return self.value_count == self.row_count

    @property
    def are_spans(self) -> bool:
        """Whether the values are hours, minutes and seconds of more than a day: no time of day."""
        return self.late_count > 0 and self.mostly(self.span_count)

    def mostly(self, count: int) -> bool:
        """Whether so many values are nearly all."""
        return self.value_count > 0 and count >= MOSTLY * self.value_count
