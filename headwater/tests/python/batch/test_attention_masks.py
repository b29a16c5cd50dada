"""The four masks, against what numpy makes of the other arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import numpy as np
import numpy.typing as npt
import pytest
from plain_database import Options
from reference_compact import dense_of
from tiny_store import write_tiny
from world_store import Arrays, open_sampler, pairs_of, sampled, write_store
from worlds import random_database, random_options, two_tables

Masks = dict[str, npt.NDArray[np.uint8]]
LAYOUTS: dict[str, dict[str, Any]] = {"dense": {}, "compact": {"layout": 1}}
NAMES = ("column_mask", "feature_mask", "neighbor_mask", "padding_mask")


def expected_masks(
    columns: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    adjacency: npt.NDArray[Any],
    padding: npt.NDArray[Any],
    segments: npt.NDArray[Any],
) -> Masks:
    """All [S] but adjacency [R, R]; masked is 1."""
    apart = segments[:, None] != segments[None, :]
    apart = apart | (padding[:, None] != 0) | (padding[None, :] != 0)
    joined = adjacency | adjacency.T
    masks = {
        "column_mask": apart | (columns[:, None] != columns[None, :]),
        "feature_mask": apart | (rows[:, None] != rows[None, :]),
        "neighbor_mask": apart | (joined[rows[:, None], rows[None, :]] == 0),
    }
    for mask in masks.values():
        np.fill_diagonal(mask, False)
    masks["padding_mask"] = padding != 0
    return {name: mask.astype(np.uint8) for name, mask in masks.items()}


def check(batch: Arrays, dense: Arrays) -> None:
    for b in range(len(dense["is_padding"])):
        expected = expected_masks(
            dense["column_ids"][b],
            dense["seq_row_ids"][b],
            dense["fk_adj"][b],
            dense["is_padding"][b],
            np.zeros_like(dense["is_padding"][b]),
        )
        for name, mask in expected.items():
            assert batch[name].dtype == np.uint8
            assert np.array_equal(batch[name][b], mask), name


def test_the_masks_of_ann_s_context(tmp_path: Path) -> None:
    # The seed row (cells 0, 1), ann (2, 3, 4), and an order (5 to 8): ann is the parent of both. No
    # two cells are of one column.
    database = two_tables()
    options = Options(sequence_length=9, max_rows=3, batch_size=1, recent=True)
    (batch,) = sampled(database, tmp_path, options, attention_masks=True)
    assert batch["num_cells"].tolist() == [9]
    rows = "001112222"
    for name, shown in (
        ("feature_mask", {"00", "11", "22"}),
        ("neighbor_mask", {"01", "10", "12", "21"}),
        ("column_mask", set()),
    ):
        for i, j in np.ndindex(9, 9):
            expected = int(i != j and rows[i] + rows[j] not in shown)
            assert batch[name][0, i, j] == expected, (name, i, j)
    assert not batch["padding_mask"].any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_masks_equal_an_oracle(seed: int, layout: str, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database)
    path = write_store(database, tmp_path)
    more = LAYOUTS[layout]
    with (
        open_sampler(path, database, options) as plain,
        open_sampler(path, database, options, attention_masks=True, **more) as masked,
    ):
        for dense, got in pairs_of(plain, masked, database.tasks):
            check(got, dense)
            assert layout != "compact" or set(dense) <= set(dense_of(got))


def test_masks_are_there_when_asked_for_and_absurd_ones_are_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path, num_prefetch=0, attention_masks=True) as sampler:
        batch = sampler.batch("train", 0)
        assert batch["column_mask"].shape == (32, 1024, 1024)
    with headwater.Sampler(path, num_prefetch=0) as sampler:
        assert not set(NAMES) & set(sampler.batch("train", 0))
    with pytest.raises(MemoryError, match="lower num_prefetch, default_batch_size"):
        headwater.Sampler(
            path, attention_masks=True, default_sequence_length=65535, default_batch_size=32
        )
