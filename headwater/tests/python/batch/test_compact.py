"""The compact layout holds what the dense one holds, in fewer bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headwater
import numpy as np
import pytest
from comparison import check_epochs, difference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_database import Database, Options
from reference_compact import NULL, PADDING, TARGET, dense_of
from reference_order import Order
from tiny_store import write_tiny
from world_store import open_sampler, pairs_of, sampled, write_store
from worlds import random_database, random_options, two_tables

INLINE, SEPARATE = 0, 1
COMPACT = {"layout": 1}
LIMIT_BYTES = 20  # per cell, without text


# ---- by hand -----------------------------------------------------------------------------------


def test_ann_asked_on_day_4_is_eleven_bytes_per_cell(tmp_path: Path) -> None:
    # The context of test_batch_arrays.ANN: seed, ann, order 4 of day 3, order 2 of day 1.
    database = two_tables()
    options = Options(sequence_length=16, max_rows=6, batch_size=1, recent=True)
    (batch,) = sampled(database, tmp_path, options, **COMPACT)
    types = [2, 3 + TARGET, 0, 5, 3, 0, 0, 2, 1, 0, 0, 2, 1]
    assert batch["cells"][0].tolist() == types + [PADDING] * 3
    assert batch["cell_columns"][0].tolist() == [7, 8, 0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 0, 0, 0]
    values = batch["cell_values"][0]
    # true, the first text of the batch, vip; presence of a key has no value.
    assert values[[1, 3, 4]].tolist() == [1, 1, 1]
    assert not values[[2, 5, 6, 9, 10, 13, 14, 15]].any()
    # z-scores as in test_batch_arrays: the question and two orders' days, then two amounts.
    numbers = values.view(np.float32)[[0, 7, 11, 8, 12]]
    times, amounts = 9.6875**0.5, 350**0.5
    expected = [0.25 / times, -0.75 / times, -2.75 / times, 0, -20 / amounts]
    assert numbers == pytest.approx(expected, abs=1e-6)
    # 2023-11-19 is a Sunday and the 323rd day of a common year; day 3 the Saturday before it; day 1
    # Thursday the 16th, the 320th.
    words = np.zeros(16, np.uint32)
    words[[0, 7, 11]] = [6 << 17 | 322 << 20, 5 << 17 | 321 << 20, 3 << 17 | 319 << 20]
    assert np.array_equal(batch["cell_times"][0], words)
    assert batch["row_order"][0].tolist() == [3, 2, 1, 0, 65535, 65535]
    assert batch["parents"][0].tolist() == [[1], [65535], [1], [1], [65535], [65535]]
    assert batch["row_starts"][0].tolist() == [0, 2, 5, 9, 13, 13, 13]
    assert "fk_adj" not in batch
    assert "column_ids" not in batch


def test_a_place_without_a_seed_is_padding(tmp_path: Path) -> None:
    database = two_tables()
    options = Options(sequence_length=16, max_rows=6, batch_size=2)
    (batch,) = sampled(database, tmp_path, options, **COMPACT)
    assert batch["cells"][1].tolist() == [PADDING] * 16
    assert batch["row_order"][1].tolist() == [65535] * 6
    for name in ("cell_columns", "cell_values", "cell_times", "row_starts", "num_cells"):
        assert not batch[name][1].any(), name


# ---- against the dense layout and the reference ------------------------------------------------


def check_against_dense(path: Path, database: Database, options: Options, targets: int) -> None:
    with (
        open_sampler(path, database, options, targets=targets) as dense,
        open_sampler(path, database, options, targets=targets, **COMPACT) as compact,
    ):
        assert dense.shape() == compact.shape()
        for expected, got in pairs_of(dense, compact, database.tasks):
            assert difference(expected, dense_of(got), ["timestamp_values"]) is None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_a_compact_batch_decodes_to_the_dense_batch_of_the_same_seeds(seed: int) -> None:
    database = random_database(seed)
    with TemporaryDirectory() as folder:
        path = write_store(database, Path(folder))
        for targets in (INLINE, SEPARATE):
            check_against_dense(path, database, random_options(seed, database), targets)


@pytest.mark.parametrize("seed", range(12))
def test_a_compact_batch_decodes_to_the_reference(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database)
    order = Order(database, options)
    path = write_store(database, tmp_path)
    with open_sampler(path, database, options, **COMPACT) as sampler:
        check_epochs(sampler, order)


# ---- options and size --------------------------------------------------------------------------


def compact_bytes(length: int, rows: int, slots: int) -> float:
    """Per cell of a batch of 32, without text, by the format."""
    sizes = {"B": 32, "S": length, "R": rows, "R+1": rows + 1, "P": slots, "15": 15, "1": 1}
    total = 0
    for field in headwater.BATCH_FIELDS:
        is_there = field.when is None or (
            field.when.startswith("layout=") and "compact" in field.when
        )
        if is_there and not field.info:
            shape = [sizes[dim] for dim in field.dims]
            total += int(np.prod(shape)) * np.dtype(field.dtype).itemsize
    return total / (32 * length)


@pytest.mark.parametrize(
    ("length", "rows", "slots"),
    [(1024, 256, 1), (1024, 256, 12), (1024, 512, 3), (256, 64, 8), (192, 40, 5), (96, 40, 2)],
)
def test_a_cell_takes_at_most_twenty_bytes_in_usual_shapes(
    length: int, rows: int, slots: int
) -> None:
    size = compact_bytes(length, rows, slots)
    assert 11 < size <= LIMIT_BYTES
    assert size <= 11 + ((10 + 2 * slots) * rows + 40) / length  # what docs/reference/batch.md says


def test_a_cell_takes_more_where_the_page_says_so() -> None:
    assert compact_bytes(1024, 1024, 1) == pytest.approx(23, abs=0.1)
    assert compact_bytes(1024, 512, 4) > LIMIT_BYTES


@pytest.mark.parametrize(("length", "rows"), [(1024, 256), (256, 64), (96, 40)])
def test_a_batch_is_as_large_as_its_format(length: int, rows: int, tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    options: dict[str, Any] = {
        "default_sequence_length": length,
        "max_rows": rows,
        "num_prefetch": 0,
        "text_mode": "resident",
    }
    sizes = {}
    for layout in ("dense", "compact"):
        with headwater.Sampler(path, layout=layout, **options) as sampler:
            batch = sampler.batch("train", 0)
            sizes[layout] = sum(array.nbytes for array in batch.values()) / (32 * length)
            slots = sampler.shape["parent_slots"]
    assert sizes["compact"] == pytest.approx(compact_bytes(length, rows, slots), abs=0.01)
    assert sizes["compact"] < sizes["dense"] / 5


def test_a_word_that_is_no_layout_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with pytest.raises(ValueError, match="layout is 'sparse'"):
        headwater.Sampler(path, layout="sparse")


def test_a_state_moves_between_layouts(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    options: dict[str, Any] = {
        "default_batch_size": 4,
        "default_sequence_length": 32,
        "num_prefetch": 0,
    }
    with (
        headwater.Sampler(path, **options) as dense,
        headwater.Sampler(path, layout="compact", **options) as compact,
    ):
        dense.next_train_batch()
        compact.load_state_dict(dense.state_dict())
        before, after = dense.next_train_batch(), compact.next_train_batch()
        assert np.array_equal(before.info["seed_index"], after.info["seed_index"])
        cells = after["cells"]
        assert np.array_equal(before["is_null"], cells & NULL != 0)


PEAK_OF_OPENING = """
import resource, sys, headwater
def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak_bytes()
headwater.Sampler(sys.argv[1], layout="compact", max_rows=20000, num_threads=1).shutdown()
print(peak_bytes() - before)
"""


def test_opening_makes_no_adjacency_that_the_batches_do_not_have(tmp_path: Path) -> None:
    # Contexts are sampled for the text budget; [R, R] would be 400 MB.
    command = [sys.executable, "-c", PEAK_OF_OPENING, str(write_tiny(tmp_path))]
    taken = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert taken < 200_000_000
