"""Texts that stay with the caller: cells, or a list of each batch, name rows of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from plain_database import Options
from tiny_store import write_tiny
from world_store import (
    TEXT_DIM,
    differing,
    epoch_of,
    open_sampler,
    pairs_of,
    text_vector,
    write_store,
)
from worlds import random_database, random_options, two_tables

RESIDENT = {"text_mode": 1}
COMPACT = {"layout": 1}
IDS = {"dense": "text_embed_ids", "compact": "cell_values"}


def test_bob_is_the_second_text_of_the_store(tmp_path: Path) -> None:
    # Ann and bob are texts 0 and 1. Bob is asked about in the val split, his name is cell 3.
    database, options = two_tables(), Options(sequence_length=16, max_rows=6, batch_size=1)
    path = write_store(database, tmp_path)
    with open_sampler(path, database, options, **RESIDENT) as sampler:
        (batch,) = epoch_of(sampler, 1, 0)
        assert sampler.shape()["text_budget"] == 0
    assert batch["text_embed_ids"][0].nonzero()[0].tolist() == [3]
    assert batch["text_embed_ids"][0, 3] == 2
    assert "text_batch_embeddings" not in batch
    assert "num_texts" not in batch


@pytest.mark.parametrize("layout", IDS)
@pytest.mark.parametrize("seed", [1, 10, 11, 16, 45, 46, 47])
def test_resident_texts_are_the_texts_of_the_batch(seed: int, layout: str, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database).with_(sequence_length=200, max_rows=64)
    path = write_store(database, tmp_path)
    more: dict[str, Any] = COMPACT if layout == "compact" else {}
    budget = 1 + options.batch_size * options.sequence_length
    table = np.array([np.zeros(TEXT_DIM), *(text_vector(i) for i in range(99))], np.float16)
    seen = 0
    with (
        open_sampler(path, database, options, text_budget=budget, **more) as own,
        open_sampler(path, database, options, **RESIDENT, **more) as resident,
    ):
        for left, right in pairs_of(own, resident, database.tasks):
            is_text = (left["cells"] & 7 if more else left["semantic_types"]) == 5
            expected = left["text_batch_embeddings"][left[IDS[layout]][is_text]]
            assert np.array_equal(expected, table[right[IDS[layout]][is_text]])
            other = left[IDS[layout]][~is_text]
            assert np.array_equal(other, right[IDS[layout]][~is_text])
            seen += int(is_text.sum())
    assert seen > 0


LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "compact": COMPACT,
    "packed": {"packing": True, "contexts_per_batch": 5},
    "flat": {"layout": 2},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", [1, 10, 11, 16, 45, 46, 47])
def test_listed_texts_are_the_texts_of_the_batch(seed: int, layout: str, tmp_path: Path) -> None:
    database = random_database(seed)
    options = random_options(seed, database).with_(sequence_length=200, max_rows=64)
    path, more = write_store(database, tmp_path), LAYOUTS[layout]
    table = np.array([np.zeros(TEXT_DIM), *(text_vector(i) for i in range(99))], np.float16)
    seen = 0
    with (
        open_sampler(path, database, options, **more) as own,
        open_sampler(path, database, options, text_mode=2, **more) as listed,
    ):
        assert own.shape() == listed.shape()
        for left, right in pairs_of(own, listed, database.tasks):
            assert left.keys() - right.keys() == {"text_batch_embeddings"}
            assert right.keys() - left.keys() == {"text_numbers"}
            assert differing({n: a for n, a in left.items() if n in right}, right) <= {
                "text_numbers"
            }
            numbers = right["text_numbers"]
            assert numbers.dtype == np.uint32
            assert np.array_equal(left["text_batch_embeddings"], table[numbers])
            used = int(right["num_texts"][0])
            assert numbers[0] == 0 and numbers[1:used].all() and not numbers[used:].any()
            seen += used - 1
    assert seen > 0


def test_bob_is_listed_as_the_second_text_of_the_store(tmp_path: Path) -> None:
    database, options = two_tables(), Options(sequence_length=16, max_rows=6, batch_size=1)
    path = write_store(database, tmp_path)
    with open_sampler(path, database, options, text_mode=2, text_budget=3) as sampler:
        (batch,) = epoch_of(sampler, 1, 0)
    assert batch["text_numbers"].tolist() == [0, 2, 0]
    assert batch["num_texts"].tolist() == [2]
    assert batch["text_embed_ids"].nonzero()[1].tolist() == [3]
    assert batch["text_embed_ids"][0, 3] == 1
    assert "text_batch_embeddings" not in batch


def test_text_embeddings_are_the_store_s_under_a_zero_row(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    with headwater.Sampler(path, text_mode="resident", num_prefetch=0) as sampler:
        table = sampler.text_embeddings()
        batch = sampler.batch("train", 0)
        assert table.dtype == np.float16
        assert table.shape == (sampler.store.core.counts()["text_count"] + 1, 8)
        assert not table[0].any()
        assert np.array_equal(table[1:], sampler.store.core.vectors(0))
        assert table.flags.writeable  # a copy
        ids = batch["text_embed_ids"]
        is_text = (batch["semantic_types"] == 5) & (batch["is_null"] + batch["is_padding"] == 0)
        assert (ids[is_text] > 0).all()
        assert not ids[~is_text].any()
        assert "text_batch_embeddings" not in batch
        assert sampler.state_dict()["options"]["texts_per_sequence"] is None


def test_a_budget_for_resident_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="text_budget is 99, text_mode 'resident' has no budget"):
        headwater.Sampler(write_tiny(tmp_path), text_mode="resident", text_budget=99)
