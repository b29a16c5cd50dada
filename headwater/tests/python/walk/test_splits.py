"""Splits by hash: vectors that any implementation of docs/reference/sampling.md section 5 must
give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_database import Database, Options, Seed
from reference_order import hash64, key_bytes
from world_store import epoch_of, open_sampler, write_store
from worlds import at, two_tables

# primary key, task, split_seed: h = hash64(key, 0), bucket
VECTORS: list[tuple[tuple[str, ...], str, int, int, int]] = [
    (("1",), "churn", 123, 0x488B8B04245A0AA2, 558),
    (("1",), "churn", 0, 0x488B8B04245A0AA2, 560),
    (("1",), "late", 123, 0x488B8B04245A0AA2, 585),
    (("42",), "churn", 123, 0xAE38EF92CB76FCE0, 975),
    (("C-007", "2024-02-29"), "churn", 123, 0xBF03309F86C78289, 982),
    (("2024-02-29", "C-007"), "churn", 123, 0x3B9E8BB89E980C7F, 396),
    (("ab", "c"), "t", 123, 0x1946F94533421FA1, 798),
    (("a", "bc"), "t", 123, 0x4F0334FE878FC9D0, 966),
    (("Zürich",), "größe", 18446744073709551615, 0xBE96C1489EE52853, 463),
    (("",), "t", 123, 0x3AEFA6FD5CF2DEB4, 986),
    (("a key of more than thirty-two bytes of text",), "a name", 7, 0x2EB3A07617B4B093, 10),
]


PLAIN = Options()


def bucket_of(key: tuple[str, ...], task: str, split_seed: int) -> int:
    numbers = (hash64(key_bytes(key), 0), hash64(task.encode(), 0), split_seed)
    return hash64(b"".join(number.to_bytes(8, "little") for number in numbers), 0) % 1000


def customers(keys: Sequence[tuple[str, ...]], task: str) -> Database:
    """two_tables with one seed per customer and as many customers as keys, orders left out."""
    old = two_tables().tables[0]
    columns = {name: [values[0]] * len(keys) for name, values in old.values.items()}
    table = replace(old, values=columns, primary_key=tuple(keys), row_count=len(keys))
    seeds = tuple(Seed(row, at(4), True) for row in range(len(keys)))
    return Database("splits", (table,), (replace(two_tables().tasks[0], name=task, seeds=seeds),))


def splits_of(
    database: Database, folder: Path, options: Options = PLAIN, task: int = 0, **more: Any
) -> list[int]:
    path = write_store(database, folder)
    with open_sampler(path, database, options, **more) as sampler:
        return [int(s) for s in np.asarray(sampler.splits(task, len(database.tasks[task].seeds)))]


@pytest.mark.parametrize(("key", "task", "split_seed", "h", "bucket"), VECTORS)
def test_the_reference_gives_the_vectors(
    key: tuple[str, ...], task: str, split_seed: int, h: int, bucket: int
) -> None:
    assert hash64(key_bytes(key), 0) == h
    assert bucket_of(key, task, split_seed) == bucket


@pytest.mark.parametrize(("key", "task", "split_seed", "h", "bucket"), VECTORS)
def test_the_library_gives_the_vectors(
    key: tuple[str, ...], task: str, split_seed: int, h: int, bucket: int, tmp_path: Path
) -> None:
    database = customers([key], task)
    below = bucket / 1000  # the bucket is not below this share, but below the next one
    for train, expected in ((below, False), (below + 0.001, True)):
        ratios = (train, 0.0, 1 - train)
        options = Options(split_ratios=ratios, split_seed=split_seed)
        found = splits_of(database, tmp_path / str(train), options)
        assert (found == [0]) is expected


def test_all_seeds_of_an_anchor_share_a_split(tmp_path: Path) -> None:
    database = customers([(str(i),) for i in range(60)], "late")
    task = database.tasks[0]
    seeds = tuple(Seed(row, at(day), True) for row in range(60) for day in (1, 2, 3))
    database = Database("splits", database.tables, (replace(task, seeds=seeds),))
    found = splits_of(database, tmp_path, Options(split_ratios=(0.5, 0.25, 0.25)))
    assert all(len(set(found[row * 3 : row * 3 + 3])) == 1 for row in range(60))
    assert set(found) == {0, 1, 2}


def test_adding_a_row_or_a_task_moves_no_seed(tmp_path: Path) -> None:
    few = customers([(str(i),) for i in range(40)], "late")
    # New customers before the old ones, and a task before the task.
    many = customers([(f"new {i}",) for i in range(9)] + [(str(i),) for i in range(40)], "late")
    other = replace(many.tasks[0], name="other")
    more = Database("splits", many.tables, (other, many.tasks[0]))
    options = Options(split_ratios=(0.4, 0.3, 0.3))
    before = splits_of(few, tmp_path / "few", options)
    elsewhere, after = (splits_of(more, tmp_path / str(t), options, t) for t in range(2))
    assert after[9:] == before
    assert elsewhere != after  # tasks do not share their splits


def test_a_time_split_deals_the_seeds_of_train_by_when_their_labels_are_known(
    tmp_path: Path,
) -> None:
    """At day 4 until day 6; days are obs_time and, where it matters, when the label is known."""
    seeds = (
        Seed(0, at(1), True, split=0, known=at(2)),  # train
        Seed(0, at(2), True, split=0, known=at(4)),  # known just then: train
        Seed(0, at(3), True, split=0, known=at(4.1)),  # asked before, told after: none
        Seed(0, at(3.5), True, split=0, known=None),  # never told: none
        Seed(0, at(4), True, split=0, known=at(5)),  # val
        Seed(0, at(5.9), True, split=0, known=at(9)),  # val
        Seed(0, at(6), True, split=0, known=at(7)),  # too late: none
        Seed(1, at(1), True, split=1, known=at(2)),  # val and test of the store: none
        Seed(1, at(5), True, split=2, known=at(6)),
    )
    database = two_tables(seeds=seeds, label_times=True)
    assert splits_of(database, tmp_path, time_split=(at(4), at(6))) == [0, 0, 3, 3, 1, 1, 3, 3, 3]


def test_batches_have_the_seeds_of_their_split_by_time(tmp_path: Path) -> None:
    database = two_tables(seeds=tuple(Seed(0, at(day), True, split=0) for day in range(1, 6)))
    options = Options(batch_size=2)
    with open_sampler(
        write_store(database, tmp_path), database, options, time_split=(at(3), at(5))
    ) as sampler:
        assert [sampler.seed_count(split, 0) for split in range(3)] == [2, 2, 0]
        (batch,) = epoch_of(sampler, 1, 0)
        assert sorted(batch["seed_index"].tolist()) == [2, 3]
        (batch,) = epoch_of(sampler, 0, 0)
        assert sorted(batch["seed_index"].tolist()) == [0, 1]


def test_without_label_times_a_time_split_takes_all_earlier_seeds(tmp_path: Path) -> None:
    database = two_tables(seeds=tuple(Seed(0, at(day), True, split=0) for day in (1, 2, 3)))
    assert splits_of(database, tmp_path, time_split=(at(2), at(3))) == [0, 1, 3]


def test_train_on_val_gives_the_seeds_of_val_to_train(tmp_path: Path) -> None:
    seeds = tuple(
        Seed(0, at(day), True, split=split) for day, split in ((1, 0), (2, 1), (3, 2), (4, 1))
    )
    database = two_tables(seeds=seeds)
    assert splits_of(database, tmp_path, train_on_val=True) == [0, 0, 2, 0]
    with open_sampler(tmp_path / "world.hw", database, Options(), train_on_val=True) as sampler:
        assert [sampler.seed_count(split, 0) for split in range(3)] == [3, 0, 1]


def test_a_time_split_deals_the_seeds_of_val_too_where_they_are_trained_on(tmp_path: Path) -> None:
    seeds = tuple(Seed(0, at(day), True, split=day // 2) for day in (1, 2, 3, 4))
    database = two_tables(seeds=seeds)
    assert splits_of(database, tmp_path, time_split=(at(3), at(4)), train_on_val=True) == [
        0,
        0,
        1,
        3,
    ]
