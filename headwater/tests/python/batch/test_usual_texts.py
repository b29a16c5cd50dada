"""A batch shows as many rows of texts as batches usually need, or all that there may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import pytest
from plain_database import BOOLEAN, Database, Options, Seed, Task
from world_store import (
    TEXT_DIM,
    differing,
    epoch_of,
    front_options,
    open_sampler,
    pairs_of,
    write_store,
)
from worlds import at, star, table

OPTIONS = Options(sequence_length=16, max_rows=4, batch_size=2)
LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "compact": {"layout": 1},
    "packed": {"packing": True, "contexts_per_batch": 2},
    "compact, packed": {"layout": 1, "packing": True, "contexts_per_batch": 2},
}
TRAIN, VAL = 0, 1
ALIKE, OTHERS = 10, 5


def notes() -> Database:
    """Rows of four texts each: the same four in all rows of train, others in each row of val.

    A context is the seed's row and its anchor. A context of the sample, which is of train, has 4
    texts, so the most of a batch of two are 1 + 2 * 4 = 9 rows; any batch of train has 4 texts,
    with a sixteenth of that still 4, so usual are 1 + 4 = 5.
    """
    rows: list[tuple[Any, ...]] = [(True, "a", "b", "c", "d")] * ALIKE
    rows += [(True, *(f"{word}{i}" for word in "abcd")) for i in range(OTHERS)]
    seeds = [Seed(row, at(1), row % 2 == 0, split=int(row >= ALIKE)) for row in range(len(rows))]
    return Database(
        "notes",
        (table("notes", "note_id identifier, a text, b text, c text, d text", rows),),
        (Task("kept", "notes", "kept", BOOLEAN, tuple(seeds)),),
    )


def rows_of(batch: Any) -> tuple[int, int]:
    return batch["text_batch_embeddings"].shape[0], int(batch["num_texts"][0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_that_needs_more_than_usual_shows_all(layout: str, tmp_path: Path) -> None:
    path = write_store(notes(), tmp_path)
    with open_sampler(path, notes(), OPTIONS, **LAYOUTS[layout]) as sampler:
        shape = sampler.shape()
        assert (shape["usual_texts"], shape["text_budget"]) == (5, 9)
        train, val = (epoch_of(sampler, split, 0) for split in (TRAIN, VAL))
        stats = sampler.stats()
    assert [rows_of(batch) for batch in train] == [(5, 5)] * (ALIKE // 2)
    # The last of the five notes of val is alone.
    assert [rows_of(batch) for batch in val] == [(9, 9), (9, 9), (5, 5)]
    assert stats["texts_over_budget"] == 0
    for batch in (*train, *val):
        vectors = batch["text_batch_embeddings"]
        assert vectors.shape[1] == TEXT_DIM
        assert not vectors[0].any()
        assert vectors[1 : rows_of(batch)[1]].any(axis=1).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_else_is_as_under_a_budget_that_is_given(layout: str, tmp_path: Path) -> None:
    path, more = write_store(notes(), tmp_path), LAYOUTS[layout]
    with (
        open_sampler(path, notes(), OPTIONS, **more) as chosen,
        open_sampler(path, notes(), OPTIONS, text_budget=9, **more) as given,
    ):
        assert given.shape()["usual_texts"] == 9
        for left, right in pairs_of(chosen, given, notes().tasks):
            assert differing(left, right) <= {"text_batch_embeddings"}
            shown = len(left["text_batch_embeddings"])
            vectors = right["text_batch_embeddings"]
            assert vectors[:shown].tobytes() == left["text_batch_embeddings"].tobytes()
            assert not vectors[shown:].any()


@pytest.mark.parametrize("texts", ["text_batch_embeddings", "text_numbers"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_threads_and_slabs_that_are_used_again_make_the_same_batches(
    layout: str, texts: str, tmp_path: Path
) -> None:
    path, made = write_store(notes(), tmp_path), []
    more = {**LAYOUTS[layout], "text_mode": 2 if texts == "text_numbers" else 0}
    for threads, prefetch in ((1, 0), (1, 2), (3, 4)):
        with open_sampler(
            path, notes(), OPTIONS, threads=threads, prefetch=prefetch, **more
        ) as sampler:
            batches = []
            for split in (VAL, TRAIN, VAL, TRAIN):  # long ones leave vectors to short ones
                for batch in epoch_of(sampler, split, 0):
                    batches.append({name: array.copy() for name, array in batch.items()})
            made.append(batches)
    for other in made[1:]:
        for left, right in zip(made[0], other, strict=True):
            assert left[texts].shape == right[texts].shape
            assert differing(left, right) == set()


def test_expanded_batches_keep_their_rows_of_texts(tmp_path: Path) -> None:
    options = {**front_options(OPTIONS), "num_prefetch": 0}
    path = write_store(notes(), tmp_path)
    with (
        headwater.Sampler(path, **options) as dense,
        headwater.Sampler(path, layout="compact", **options) as compact,
    ):
        assert dense.shape["usual_texts"] == 5
        for split, rows in (("train", {5}), ("val", {5, 9})):
            seen = set()
            for left, right in zip(dense.epoch(split), compact.epoch(split), strict=True):
                assert differing(left, headwater.expand(right)) == set()
                seen.add(len(left["text_batch_embeddings"]))
            assert seen == rows


def test_a_state_holds_the_quota_of_a_context_and_not_what_is_usual(tmp_path: Path) -> None:
    path, options = write_store(notes(), tmp_path), front_options(OPTIONS)
    with (
        headwater.Sampler(path, **options) as chosen,
        headwater.Sampler(path, text_budget=9, **options) as given,
        headwater.Sampler(path, text_budget=8, **options) as smaller,
    ):
        state = chosen.state_dict()
        assert state["options"]["texts_per_sequence"] == 4
        given.load_state_dict(state)
        with pytest.raises(ValueError, match="texts_per_sequence was 4 and is 3"):
            smaller.load_state_dict(state)


# ---- rows, in the same sample ------------------------------------------------------------------


@pytest.mark.parametrize("width", [1000, 4096])
def test_max_rows_is_chosen_up_to_the_sequence_length(width: int, tmp_path: Path) -> None:
    # The seed's row, the hub and its 1,000 spokes.
    options = Options(sequence_length=65_535, batch_size=1, child_width=width)
    path = write_store(star(1000), tmp_path)
    with open_sampler(path, star(1000), options, max_rows=0) as sampler:
        assert sampler.shape()["max_rows"] == 1024  # the smallest that holds 1,002
        (batch,) = epoch_of(sampler, TRAIN, 0)
        assert batch["num_rows"].tolist() == [1002]
        assert batch["fk_adj"].shape == (1, 1024, 1024)
        assert sampler.stats()["stopped_by_rows"] == 0


def test_a_walk_of_as_many_rows_as_cells_may_be_too_large_for_the_sample(tmp_path: Path) -> None:
    # As above with 4,096 children per row: so the sample is walked to fewer rows.
    options = Options(sequence_length=65_535, batch_size=1, child_width=4096)
    path = write_store(star(1000), tmp_path)
    with (
        pytest.raises(ValueError, match=r"of max_rows 65535, .* needs more than"),
        open_sampler(path, star(1000), options, max_rows=65_535, layout=1),
    ):
        pass


def test_a_chosen_max_rows_is_at_most_the_sequence_length(tmp_path: Path) -> None:
    options = Options(sequence_length=700, batch_size=1, child_width=1000)
    path = write_store(star(1000), tmp_path)
    with open_sampler(path, star(1000), options, max_rows=0) as sampler:
        # 2 cells of the seed, one of the hub, and two of each spoke: 1 + 1 + 349 rows
        assert sampler.shape()["max_rows"] == 512
        (batch,) = epoch_of(sampler, TRAIN, 0)
        assert batch["num_rows"].tolist() == [351]
    few = options.with_(identifier_cells="none")  # one cell of each spoke: 1 + 1 + 697 rows
    with open_sampler(path, star(1000), few, max_rows=0) as sampler:
        assert sampler.shape()["max_rows"] == 700
