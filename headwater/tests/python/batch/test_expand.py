"""`headwater.expand`: a compact batch becomes the dense batch of the same seeds, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from math import cos, pi, sin
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from built_examples import Builder
from databases import asked, typed
from headwater import shop
from headwater.sampling.expand import FIELDS
from world_store import TEXT_DIM, open_sampler, pairs_of, write_store
from worlds import random_database, random_options

ROOT = Path(__file__).resolve().parents[4]
NONE = 65_535
COMPACT = {"layout": 1}
Arrays = dict[str, npt.NDArray[Any]]


def assert_same(dense: Any, expanded: Any) -> None:
    """Same names in the same order, dtypes, shapes and bits."""
    assert list(expanded) == list(dense)
    for name, array in dense.items():
        other = expanded[name]
        assert (other.dtype, other.shape) == (array.dtype, array.shape), name
        assert other.tobytes() == array.tobytes(), name


# ---- by hand -----------------------------------------------------------------------------------

# Two rows of three cells each, and two cells of padding; the second row points at the first. It
# comes first in the order of rows. 0x3fc00000 is 1.5 and 0xbf000000 is -0.5 as float32.
#
# position          0           1          2           3           4           5        6 7
# row               0           0          0           1           1           1        padding
# type              time        target     identifier  text        NULL bool   category
# column            9           4          0           6           5           4
TIME = 86_399 | 6 << 17 | (59 + 366) << 20  # 23:59:59 on a Sunday that is 29 February
BY_HAND = {
    "cells": [2, 1 | 16, 0, 5, 3 | 8, 4, 32, 32],
    "cell_columns": [9, 4, 0, 6, 5, 4, 0, 0],
    "cell_values": [0xBF000000, 0x3FC00000, 0, 7, 0, 11, 0, 0],
    "cell_times": [TIME, 0, 0, 0, 0, 0, 0, 0],
    "row_order": [1, 0, NONE],
    "parents": [[NONE, NONE], [NONE, 0], [NONE, NONE]],
    "row_starts": [0, 3, 6, 6],
}
EXPECTED = {
    "semantic_types": [2, 1, 0, 5, 3, 4, 0, 0],
    "column_ids": [9, 4, 0, 6, 5, 4, 0, 0],
    "seq_row_ids": [0, 0, 0, 1, 1, 1, 0, 0],
    "numeric_values": [0, 1.5, 0, 0, 0, 0, 0, 0],
    "bool_values": [0] * 8,
    "categorical_embed_ids": [0, 0, 0, 0, 0, 11, 0, 0],
    "text_embed_ids": [0, 0, 0, 7, 0, 0, 0, 0],
    "is_null": [0, 0, 0, 0, 1, 0, 0, 0],
    "is_target": [0, 1, 0, 0, 0, 0, 0, 0],
    "is_padding": [0, 0, 0, 0, 0, 0, 1, 1],
    "fk_adj": [[0, 0, 0], [1, 0, 0], [0, 0, 0]],
    "col_perm": [2, 1, 5, 4, 3, 0, 6, 7],  # columns 0, 4, 4, 5, 6, 9
    "out_perm": [3, 4, 5, 0, 1, 2, 6, 7],
    "in_perm": [3, 4, 5, 0, 1, 2, 6, 7],
}


def by_hand() -> Arrays:
    arrays = {name: np.array([values], FIELDS[name].dtype) for name, values in BY_HAND.items()}
    return {**arrays, "num_sequences": np.array([1], np.uint32)}


def test_a_batch_by_hand_expands_to_what_the_format_says() -> None:
    dense = headwater.expand(by_hand())
    for name, expected in EXPECTED.items():
        assert dense[name].tolist() == [expected], name
    parts = (59 / 60, 59 / 60, 23 / 24, 6 / 7, 28 / 31, 1 / 12, 59 / 366)
    cyclic = [wave(2 * pi * part) for part in parts for wave in (sin, cos)]
    assert dense["timestamp_values"][0, 0] == pytest.approx([*cyclic, -0.5], abs=1e-6)
    assert not dense["timestamp_values"][0, 1:].any()
    assert set(dense) == {*EXPECTED, "timestamp_values", "parents", "row_starts", "num_sequences"}


def test_a_target_cell_is_empty_where_the_truth_stands_beside_it() -> None:
    batch = {**by_hand(), "target_values": np.zeros((1, 15), np.float32)}
    batch["cells"][0, 0] = 2 | 16
    batch["cell_values"][0, 0] = batch["cell_times"][0, 0] = 0
    assert not headwater.expand(batch)["timestamp_values"].any()
    del batch["target_values"]  # inline, it is a midnight: cosines of 1
    assert headwater.expand(batch)["timestamp_values"][0, 0, 1] == 1


def test_moved_arrays_may_have_wider_integers() -> None:
    expected = headwater.expand(by_hand())
    wider = {name: array.astype(np.int64) for name, array in by_hand().items()}
    wider["num_sequences"] = by_hand()["num_sequences"]
    wider["row_starts"] = by_hand()["row_starts"]
    assert_same(expected, headwater.expand(wider))


# ---- the sampler's own batches -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_random_worlds_expand_to_their_dense_batches(seed: int, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database)
    path = write_store(database, tmp_path)
    for more in ({"targets": 0}, {"targets": 1}, {"packing": True}, {"attention_masks": True}):
        with (
            open_sampler(path, database, options, **more) as dense,
            open_sampler(path, database, options, **COMPACT, **more) as compact,
        ):
            for expected, batch in pairs_of(dense, compact, database.tasks):
                assert expected["text_batch_embeddings"].shape[1] == TEXT_DIM
                assert_same(expected, headwater.expand(batch))


def assert_layouts_agree(path: Path, task: str, batches: int, **options: Any) -> headwater.Batch:
    """The last dense batch."""
    with (
        headwater.Sampler(path, tasks=[task], **options) as dense,
        headwater.Sampler(path, tasks=[task], layout="compact", **options) as compact,
    ):
        for _ in range(batches):
            expected, given = dense.next_train_batch(), compact.next_train_batch()
            expanded = headwater.expand(given)
            assert_same(expected, expanded)
            assert_same(expected.info, expanded.info)
    return expected


@pytest.fixture(scope="module")
def shop_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    shop.generate(folder / "shop.sqlite", customers=120, products=40)
    metadata = json.loads((ROOT / "examples" / "shop" / "shop.json").read_text(encoding="utf-8"))
    headwater.build(f"sqlite:///{folder / 'shop.sqlite'}", folder / "store", metadata=metadata)
    return folder / "store"


@pytest.mark.parametrize("targets", ["inline", "separate"])
@pytest.mark.parametrize("identifier_cells", ["all", "none"])
def test_the_shop_expands_to_its_dense_batches(
    shop_store: Path, targets: str, identifier_cells: str
) -> None:
    batch = assert_layouts_agree(
        shop_store, "churn", 3, default_batch_size=8, default_sequence_length=256, max_rows=48,
        targets=targets, identifier_cells=identifier_cells, with_rows=True,
    )  # fmt: skip
    assert batch["text_embed_ids"].any() and batch["fk_adj"].any()


def test_rel_f1_expands_to_its_dense_batches(built_example: Builder) -> None:
    for task in ("driver-position", "driver-dnf", "results-position"):
        batch = assert_layouts_agree(built_example("rel-f1").path, task, 2, max_rows=300)
        assert batch["num_cells"].max() > 900


# ---- times -------------------------------------------------------------------------------------

MOMENTS = [
    datetime(1, 1, 1),
    datetime(1600, 2, 29, 12, 30, 30),
    datetime(1899, 12, 31, 23, 59, 59),
    datetime(1900, 2, 28),
    datetime(1900, 3, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1970, 1, 1),
    datetime(1972, 12, 31, 1, 2, 3, 4),
    datetime(2000, 2, 29, 6),
    datetime(2000, 12, 31),
    datetime(2023, 12, 31, 23),
    datetime(2024, 2, 29),
    datetime(2100, 3, 1),
    datetime(9999, 12, 31, 23, 59, 59),
    None,
]


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People with times of any century, or none; the task asks for the time itself."""
    people = pa.table(
        {
            "person_id": pa.array(range(len(MOMENTS)), pa.int64()),
            "born": pa.array(MOMENTS, pa.timestamp("us")),
            "seen": pa.array(MOMENTS[::-1], pa.timestamp("us")),
        }
    )
    path = tmp_path_factory.mktemp("moments") / "store"
    task = asked("SELECT person_id, seen FROM people", "people", "seen timestamp")
    columns = typed("person_id identifier, born timestamp, seen timestamp")
    table = {"primary_key": "person_id", "columns": columns}
    metadata = {"name": "moments", "tables": {"people": table}, "tasks": {"seen": task}}
    headwater.build({"people": people}, path, metadata=metadata)
    return path


def test_times_of_any_century_and_leap_days_expand_bit_for_bit(moments: Path) -> None:
    batch = assert_layouts_agree(
        moments, "seen", 1, default_batch_size=len(MOMENTS), default_sequence_length=8,
        max_rows=2, split_ratios=(1.0, 0.0, 0.0),
    )  # fmt: skip
    is_time = (batch["semantic_types"] == 2) & (batch["is_null"] == 0)
    shown = is_time & (batch["is_target"] == 0)
    assert int(is_time.sum()) == 2 * (len(MOMENTS) - 1)
    assert len(np.unique(batch["timestamp_values"][shown], axis=0)) == len(MOMENTS) - 1


# ---- bad input ---------------------------------------------------------------------------------


def test_a_dense_batch_is_refused() -> None:
    dense = headwater.expand(by_hand())
    with pytest.raises(ValueError, match="it is dense, expected a compact batch"):
        headwater.expand(dense)


def test_missing_arrays_are_named() -> None:
    batch = by_hand()
    del batch["cell_times"], batch["row_starts"]
    with pytest.raises(ValueError, match="the batch lacks cell_times, row_starts, which compact"):
        headwater.expand(batch)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "cell_values",
            lambda array: array.astype(np.float32),
            r"array 'cell_values' is float32\[1, 8\], expected uint32\[B, S\]",
        ),
        (
            "parents",
            lambda array: array[0],
            r"array 'parents' is uint16\[3, 2\], expected uint16\[B, R, P\]",
        ),
        (
            "cell_columns",
            lambda array: array[:, :5],
            r"array 'cell_columns' has shape \[1, 5\], expected S = 8",
        ),
        (
            "row_starts",
            lambda array: array[:, :-1],
            r"array 'row_starts' has shape \[1, 3\], expected R = 3",
        ),
        (
            "row_starts",
            lambda array: array - (array == 6),
            "arrays 'cells' and 'row_starts' differ in the number of cells",
        ),
    ],
    ids=["floats", "one sequence", "short", "rows", "cells"],
)
def test_an_array_that_does_not_fit_is_named(
    name: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], message: str
) -> None:
    batch = by_hand()
    batch[name] = change(batch[name])
    with pytest.raises(ValueError, match=message):
        headwater.expand(batch)
