"""The order of batches that were made before: epochs as they were made, then in new orders."""

from __future__ import annotations

from typing import Any

import headwater
import numpy as np
import pytest

from confluence.packs.pack import KeptBatches
from confluence.packs.replay import Order, Replay, epoch_ends, epochs_of

FIRST: dict[str, Any] = {
    "version": 3, "fingerprint": "f", "options": {"seed": 1},
    "streams": {"train": {"positions": {"a": 0, "b": 0}, "batches": 0}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("seeds", "contexts", "accumulate", "epochs", "ends"),
    [
        (8, 4, 1, 2, (2, 4)),
        (
            9,
            4,
            1,
            3,
            (3, 5, 7),
        ),  # the batch of the 9th seed begins in epoch 0, and has 3 of the 1st
        (9, 4, 2, 2, (4, 6)),  # steps of 8 contexts: 2 begin in epoch 0, 3 in both
        (3, 4, 1, 3, (1, 2, 3)),
        (1, 4, 1, 4, (1, 1, 1, 1)),
    ],
)
def test_epochs_end_behind_the_steps_that_begin_in_them(
    seeds: int, contexts: int, accumulate: int, epochs: int, ends: tuple[int, ...]
) -> None:
    assert epoch_ends(seeds, contexts, accumulate, epochs) == ends


def test_so_many_batches_have_seeds_of_so_many_epochs() -> None:
    assert [epochs_of(batches, 9, 4) for batches in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]


def test_each_cycle_has_every_batch_of_each_epoch_once_in_another_order() -> None:
    order = Order(ends=(40, 60), accumulate=2, seed=7)
    cycles = [[order[60 * cycle + k] for k in range(60)] for cycle in range(3)]
    assert cycles[0] == list(range(60))
    for cycle in cycles[1:]:
        assert sorted(cycle[:40]) == list(range(40)) and sorted(cycle[40:]) == list(range(40, 60))
        assert all(k % 2 == 0 and following == k + 1 for k, following in _pairs(cycle))
    assert len({tuple(cycle) for cycle in cycles}) == 3
    again = Order(ends=(40, 60), accumulate=2, seed=7)
    assert [again[k] for k in (150, 61, 100)] == [order[k] for k in (150, 61, 100)]
    other = Order(ends=(40, 60), accumulate=2, seed=8)
    assert [other[k] for k in range(60, 120)] != cycles[1]


def _pairs(numbers: list[int]) -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_the_order_of_an_epoch_is_the_same_in_every_version() -> None:
    order = Order(ends=(8,), accumulate=1, seed=42)
    assert [order[k] for k in range(8, 16)] == [3, 7, 5, 6, 1, 4, 0, 2]


def test_epochs_without_a_batch_of_their_own_are_passed_over() -> None:
    order = Order(ends=(1, 1, 2), accumulate=1, seed=0)
    assert [order[k] for k in range(6)] == [0, 1, 0, 1, 0, 1]


def replay(count: int = 4) -> Replay:
    batches = KeptBatches()
    for number in range(count):
        batches.append(headwater.Batch.of({"cells": np.array([number])}, {}))
    positions = np.array([[4 * k, 3 * k] for k in range(count + 1)], np.uint64)
    return Replay(batches, Order((count,), 1, 5), FIRST, positions, {})


def test_the_state_of_a_replay_is_that_of_the_sampler_which_made_it() -> None:
    stream = replay()
    assert stream.state_dict() == FIRST
    assert [stream.next_train_batch()["cells"][0] for _ in range(3)] == [0, 1, 2]
    state = stream.state_dict()
    assert state["streams"]["train"] == {"positions": {"a": 12, "b": 9}, "batches": 3}
    assert FIRST["streams"]["train"]["batches"] == 0
    following = [int(stream.next_train_batch()["cells"][0]) for _ in range(7)]
    assert following[0] == 3 and sorted(following[1:5]) == [0, 1, 2, 3]
    other = replay()
    other.load_state_dict(state)
    assert [int(other.next_train_batch()["cells"][0]) for _ in range(7)] == following
    late = replay()
    late.load_state_dict(other.state_dict())
    assert late.state_dict()["streams"]["train"]["batches"] == 10
    assert late.next_train_batch()["cells"][0] == other.next_train_batch()["cells"][0]


def test_a_state_of_another_stream_is_refused_and_changes_nothing() -> None:
    stream = replay()
    strange = {**FIRST, "options": {"seed": 2}}
    with pytest.raises(ValueError, match="seed was 2 and is 1"):
        stream.load_state_dict(strange)
    train = {"positions": {"a": 9, "b": 6}, "batches": 2}
    with pytest.raises(ValueError, match=r"after 2 train batches it stands at \{'a': 9, 'b': 6"):
        stream.load_state_dict({**FIRST, "streams": {"train": train}})
    assert stream.state_dict() == FIRST


def test_people_hear_from_which_step_on_epochs_repeat() -> None:
    stream = replay()
    assert stream.shortage(4, 1.0) is None
    assert stream.shortage(5, 1.0) == (
        "5 steps take 5 train batches, and 4 were made: from step 5 on their epoch repeats in a new"
        " order of batches"
    )
    assert "20 steps take 10 train batches, and 4 were made: from step 9 on" in str(
        stream.shortage(20, 0.5)
    )
