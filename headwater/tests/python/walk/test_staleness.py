"""Gaps between what a seed may see and when it is asked: docs/reference/sampling.md, "Staleness"
and "Age of the database"."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from plain_database import BOOLEAN, DAY, NEVER, Database, Key, Options, Seed
from plain_database import Task as PlainTask
from reference_order import Stream
from tiny_store import write_tiny
from world_store import Arrays, differing, epoch_of, open_sampler, sampled, write_store
from worlds import at, random_database, table

TRAIN, VAL = 0, 1
DAYS = 8


def diary(seeds: int) -> Database:
    """One writer, row 0, with an entry on each of days 0 to 8 (rows 1..9), asked on day 8.

    All seeds but the last are in the train split and differ in microseconds only.
    """
    writers = table("writers", "writer_id identifier", [(True,)])
    entries = table(
        "entries",
        "entry_id identifier, writer_id identifier, written timestamp",
        [(True, True, at(day)) for day in range(DAYS + 1)],
        (Key(("writer_id",), "writers", (0,) * (DAYS + 1)),),
        "written",
    )
    asked = tuple(
        Seed(0, at(DAYS) + i, True, split=TRAIN if i + 1 < seeds else VAL) for i in range(seeds)
    )
    return Database("diary", (writers, entries), (PlainTask("t", "writers", "t", BOOLEAN, asked),))


def epochs(
    database: Database, folder: Path, split: int, staleness: tuple[float, float] | None, **more: Any
) -> list[Arrays]:
    options = Options(batch_size=50, recent=True, staleness=staleness)
    return sampled(database, folder, options, split, **more)


def same(one: list[Arrays], two: list[Arrays]) -> bool:
    return not any(differing(a, b) for a, b in zip(one, two, strict=True))


def newest_days(batches: list[Arrays]) -> Counter[int]:
    """How often the newest entry of a context is of which day."""
    found: Counter[int] = Counter()
    for batch in batches:
        for b in range(int(batch["num_sequences"][0])):
            found[int(batch["row_ids"][b, : batch["num_rows"][b]][2:].max(initial=0)) - 1] += 1
    return found


def test_gaps_are_zero_with_their_probability_and_uniform_otherwise(tmp_path: Path) -> None:
    count = 4000
    found = newest_days(epochs(diary(count + 1), tmp_path, TRAIN, (0.25, float(DAYS))))
    # A gap of d to d + 1 days shows day 7 - d, none shows day 8 (the first whole day of a gap is
    # one second short: a gap of 0 is among the drawn ones too, once in 691,201).
    zero = found.pop(DAYS)
    assert abs(zero - count / 4) < 5 * (count * 0.25 * 0.75) ** 0.5
    expected = (count - zero) / DAYS
    assert sum(found.values()) == count - zero
    assert sum((found[day] - expected) ** 2 / expected for day in range(DAYS)) < 40  # 7 degrees


def test_a_gap_is_made_from_the_first_words_of_the_stream(tmp_path: Path) -> None:
    (batch,) = epochs(diary(41), tmp_path, TRAIN, (0.5, float(DAYS)))
    for b in range(40):
        stream = Stream(42, int(batch["seed_index"][b]), 0, 0, TRAIN)
        gap = 0
        if next(stream.words) >= 2**31:
            gap = stream.below(DAYS * 86400 + 1) * 1_000_000
        visible = [day for day in range(DAYS + 1) if at(day) <= batch["obs_time"][b] - gap]
        assert batch["num_rows"][b] == 2 + len(visible)


def test_ages_and_the_question_still_count_from_the_time_it_is_asked(tmp_path: Path) -> None:
    database = diary(41)
    (stale,) = epochs(database, tmp_path / "stale", TRAIN, (0.0, float(DAYS)))
    (fresh,) = epochs(database, tmp_path / "fresh", TRAIN, None)
    assert stale["num_rows"][:40].tolist() != fresh["num_rows"][:40].tolist()
    assert np.array_equal(stale["obs_time"], fresh["obs_time"])
    assert np.array_equal(stale["timestamp_values"][:, 0], fresh["timestamp_values"][:, 0])
    for b in range(40):
        rows = stale["row_ids"][b, 2 : stale["num_rows"][b]].astype(np.int64)
        ages = stale["row_ages"][b, 2 : stale["num_rows"][b]]
        expected = [(int(stale["obs_time"][b]) - at(row - 1)) / DAY for row in rows]
        assert ages == pytest.approx(expected, abs=1e-6)


def test_other_splits_have_no_gap(tmp_path: Path) -> None:
    database = diary(2)
    stale = epochs(database, tmp_path / "stale", VAL, (0.0, float(DAYS)))
    assert same(stale, epochs(database, tmp_path / "fresh", VAL, None))


def test_a_gap_of_none_shows_what_no_option_shows(tmp_path: Path) -> None:
    """Under "recent" a walk draws nothing here, so that the word for the gap moves nothing."""
    database = diary(41)
    stale = epochs(database, tmp_path / "stale", TRAIN, (1.0, float(DAYS)))
    assert same(stale, epochs(database, tmp_path / "fresh", TRAIN, None))


@pytest.mark.parametrize("seed", range(8))
def test_cutoffs_are_never_those_of_a_seed_with_another_gap(seed: int, tmp_path: Path) -> None:
    """A worker keeps cutoffs while the next seed sees as far: one by one or in turns, no matter."""
    database = random_database(seed)
    options = Options(batch_size=4, staleness=(0.3, 2.0))
    path = write_store(database, tmp_path)
    found = []
    for more in ({}, {"threads": 2, "prefetch": 2}, {"threads": 3, "prefetch": 5}):
        with open_sampler(path, database, options, text_budget=200, **more) as sampler:
            splits = [s for s in range(3) if sampler.seed_count(s, 0) > 0]
            found.append(
                [batch for s in splits for e in range(2) for batch in epoch_of(sampler, s, 0, e)]
            )
    assert same(found[0], found[1])
    assert same(found[0], found[2])


# ---- the age of the database -------------------------------------------------------------------


def seed_ages(database: Database, folder: Path, split: int, **options: Any) -> list[float]:
    """By seed."""
    (batch,) = sampled(database, folder, Options(batch_size=50, **options), split)
    count = int(batch["num_sequences"][0])
    return batch["row_ages"][np.argsort(batch["seed_index"][:count]), 0].tolist()


def asked_on(
    *days: float, written: list[int | None] | None = None, exclusive: bool = False, **of: bool
) -> Database:
    """The writer of `diary`, whose last entry is of day 8, asked on these days, in val."""
    writers, entries = diary(1).tables
    if written is not None:
        rows = len(written)
        keys = (Key(("writer_id",), "writers", (0,) * rows),)
        values: dict[str, list[Any]] = {"entry_id": [True] * rows, "writer_id": [True] * rows}
        names = tuple((f"e-{i + 1}",) for i in range(rows))
        values["written"] = written
        entries = replace(
            entries, values=values, keys=keys, primary_key=names, row_count=rows, **of
        )
    seeds = tuple(Seed(0, int(at(0) + day * DAY), True, split=VAL) for day in days)
    task = PlainTask("t", "writers", "t", BOOLEAN, seeds, exclusive=exclusive)
    return Database("diary", (writers, entries), (task,))


def test_a_fresh_seed_has_the_age_of_the_newest_row(tmp_path: Path) -> None:
    """Also where the database ends long before."""
    assert seed_ages(asked_on(1, 3.25, 8, 30), tmp_path, VAL) == [0, 0.25, 0, 22]
    strictly = asked_on(1, 3.25, 8, exclusive=True)
    assert seed_ages(strictly, tmp_path / "exclusive", VAL) == [1, 0.25, 1]


def test_a_frozen_seed_has_the_age_of_what_it_sees(tmp_path: Path) -> None:
    until = (NEVER, int(at(2) + DAY / 2), NEVER)
    assert seed_ages(asked_on(1, 2, 3.5), tmp_path, VAL, visible_until=until) == [0, 0, 1.5]


def test_a_stale_seed_has_the_age_of_what_it_sees(tmp_path: Path) -> None:
    (batch,) = epochs(diary(41), tmp_path / "drawn", TRAIN, (0.5, float(DAYS)))
    ages = seed_ages(diary(41), tmp_path / "told", TRAIN, recent=True, staleness=(0.5, float(DAYS)))
    for b, seed in enumerate(batch["seed_index"][:40].tolist()):
        newest = batch["row_ages"][b, 2 : batch["num_rows"][b]].min()  # all entries fit
        assert ages[seed] == newest


def test_rows_without_a_time_are_no_news(tmp_path: Path) -> None:
    """Hidden ones stand last with no time, visible ones first."""
    nothing: list[int | None] = [None] * 5
    hidden = asked_on(2, 5, written=[at(1), at(3), *nothing])
    assert seed_ages(hidden, tmp_path / "hidden", VAL) == [1, 2]
    visible = asked_on(0, 2, 5, written=[*nothing, at(1), at(3)], null_time_visible=True)
    assert seed_ages(visible, tmp_path / "visible", VAL) == [-1, 1, 2]


def test_where_nothing_has_a_time_there_is_no_age(tmp_path: Path) -> None:
    assert seed_ages(asked_on(-1, 0), tmp_path / "before", VAL) == [-1, 0]
    for is_visible in (False, True):
        never = asked_on(2, written=[None] * 5, null_time_visible=is_visible)
        assert seed_ages(never, tmp_path / str(is_visible), VAL) == [-1]
    writers, entries = diary(1).tables
    task = PlainTask("t", "writers", "t", BOOLEAN, (Seed(0, NEVER, True, split=VAL),))
    timeless = Database("diary", (writers, entries), (task,))
    assert seed_ages(timeless, tmp_path / "timeless", VAL) == [-1]


def test_what_comes_after_the_question_changes_nothing(tmp_path: Path) -> None:
    """Rows of later days, after the cutoff of some seeds or of all."""
    known = [at(day) for day in range(4)]
    later = [*known, at(5), at(40)]
    for until, days in ((NEVER, (2.5, 4.5)), (at(2), (2.5, 4.5, 50))):
        options = {"visible_until": (NEVER, until, NEVER)}
        ages = [
            seed_ages(
                asked_on(*days, written=list(written)), tmp_path / f"{until}-{n}", VAL, **options
            )
            for n, written in enumerate((known, later))
        ]
        assert ages[0] == ages[1]


# ---- the option --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("staleness", "message"),
    [
        ((0.5, 0.0), "the longest gap is 0 days, expected more than 0"),
        ((0.5, -1.0), "the longest gap is -1 days, expected more than 0"),
        ((1.5, 3.0), "the probability of no gap is 1.5, expected 0 to 1"),
        ((float("nan"), 3.0), "the probability of no gap is"),
        ((0.5, 50000.0), "the longest gap is 50000 days, expected more than 0, at most 49710"),
        ((0.5, 1e-6), "the longest gap is 1e-06 days, expected 1 second to 49710 days"),
        ((0.5,), r"staleness is \(0.5,\), expected \(probability of no gap, longest days\)"),
        ("ab", "staleness is 'ab', expected"),
    ],
)
def test_bad_gaps_are_named(staleness: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        headwater.Sampler(write_tiny(tmp_path), staleness=staleness)


def test_a_state_knows_the_gaps(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path) as plain, headwater.Sampler(path, staleness=(0.5, 3)) as stale:
        assert plain.state_dict()["options"]["staleness"] is None
        assert stale.state_dict()["options"]["staleness"] == [0.5, 3.0]
        with pytest.raises(ValueError, match=r"staleness was None and is \[0.5, 3.0\]"):
            stale.load_state_dict(plain.state_dict())
