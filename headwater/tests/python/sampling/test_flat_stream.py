"""Flat streams as a training loop meets them: ranks, epochs, states, passes, refusals."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from tiny_store import write_tiny

Step = list[int]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("store"))


SMALL: dict[str, Any] = {
    "layout": "flat",
    "default_batch_size": 4,
    "default_sequence_length": 48,
    "max_rows": 16,
    "split_ratios": (0.6, 0.2, 0.2),
    "targets": "separate",
    "with_rows": True,
    "level_block": 2,
}


def flat(path: Path, rank: int = 0, world_size: int = 1, **options: Any) -> headwater.Sampler:
    return headwater.Sampler(path, rank, world_size, **{**SMALL, **options})


def bytes_of(batch: headwater.Batch) -> list[tuple[str, tuple[int, ...], bytes]]:
    named = {**batch, **batch.info}
    return [(name, array.shape, array.tobytes()) for name, array in named.items()]


def seeds_of(batch: headwater.Batch) -> list[int]:
    return [int(seed) for seed in batch.info["seed_index"][: int(batch["num_contexts"][0])]]


def contexts_of(batch: headwater.Batch) -> Counter[tuple[int, bytes]]:
    """Task, and all cells but for texts, of each context."""
    values = np.where(batch["cells"] & 7 == 5, 0, batch["cell_values"])[0]
    cells = batch["context_cells"][0]
    return Counter(
        (int(batch["task_idx"][0]),
         b"".join(array[cells[k] : cells[k + 1]].tobytes()
                  for array in (batch["cells"][0], batch["cell_columns"][0], values)))
        for k in range(int(batch["num_contexts"][0]))
    )  # fmt: skip


# ---- ranks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("tasks", [["churn"], ["quantity"], ["churn", "quantity"]])
def test_a_batch_has_the_same_contexts_for_any_count_of_ranks(
    tasks: list[str], parts: int, path: Path
) -> None:
    expected: list[Counter[tuple[int, bytes]]] = []
    for ranks in (1, 2, 3, 6):
        steps = [Counter[tuple[int, bytes]]() for _ in range(12)]
        for rank in range(ranks):
            options = {"default_batch_size": 6 // ranks, "shard": "dealt", "tasks": tasks}
            with flat(path, rank, ranks, level_parts=parts, **options) as sampler:
                for step in steps:
                    step.update(contexts_of(sampler.next_train_batch()))
                assert sampler.stats()["contexts_cut"] == 0
        expected = expected or steps
        assert steps == expected
        assert all(step.total() == 6 for step in steps)


def test_batches_of_a_step_are_levelled_as_one_larger_batch(path: Path) -> None:
    """What a trainer that sums the gradients of three batches steps with."""
    with flat(path, default_batch_size=6, tasks=["quantity"]) as sampler:
        expected = [contexts_of(sampler.next_train_batch()) for _ in range(8)]
    with flat(path, default_batch_size=2, level_parts=3, tasks=["quantity"]) as sampler:
        for step in expected:
            parts = [contexts_of(sampler.next_train_batch()) for _ in range(3)]
            assert sum(parts, Counter()) == step


@pytest.mark.parametrize("shard", ["fixed", "dealt"])
def test_every_batch_of_a_task_has_one_shape_on_every_rank(shard: str, path: Path) -> None:
    """A rank without seeds had batches of the shape of a pass: 128 cells where others had 192."""
    shapes = set()
    for rank in range(40):
        options = {"default_batch_size": 8, "shard": shard, "tasks": ["quantity"]}
        with flat(path, rank, 40, num_prefetch=0, **options) as sampler:
            with warnings.catch_warnings(action="ignore"):  # that it has no seeds
                batch = sampler.next_train_batch()
            sizes = sampler.flat_shape()
        assert batch["cells"].shape == (1, sizes["cells"])
        assert batch["parents"].shape[:2] == (1, sizes["rows"])
        shapes.add(tuple((name, array.shape) for name, array in batch.items()))
    assert len(shapes) == 1


# ---- the stream --------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_epoch_of_every_task_has_each_seed_once_over_all_ranks(ranks: int, path: Path) -> None:
    options = {"default_batch_size": 6 // ranks, "shard": "dealt", "level_block": 3}
    steps: list[Step] = [[] for _ in range(30)]
    for rank in range(ranks):
        with flat(path, rank, ranks, **options) as sampler:
            batches = [sampler.next_train_batch() for _ in steps]
            turns = [sampler.tasks[int(batch["task_idx"][0])] for batch in batches]
            counts = {task: sampler.num_seeds("train", task=task) for task in sampler.tasks}
        for step, batch in zip(steps, batches, strict=True):
            step += seeds_of(batch)
    assert counts == {"churn": 9, "quantity": 18}  # epochs end within batches, or with one
    # The batches of an epoch are those that begin in it: it has all seeds of its own, but those
    # that the last batch of the epoch before it took, and some of the next one's.
    for task, count in counts.items():
        own = [step for step, turn in zip(steps, turns, strict=True) if turn == task]
        for epoch in range(1, 5):
            end = -(-epoch * count // 6)
            taken = Counter(seed for step in own[:end] for seed in step)
            assert taken.total() == 6 * end
            assert len(taken) == count and {*taken.values()} <= {epoch, epoch + 1}


def test_blocks_of_one_batch_keep_the_order_of_the_stream(path: Path) -> None:
    compact = {"layout": "compact", "level_block": None}
    options = {name: value for name, value in {**SMALL, **compact}.items() if value is not None}
    with headwater.Sampler(path, **options) as expected, flat(path, level_block=1) as sampler:
        for _ in range(30):
            batch = expected.next_train_batch()
            got = sampler.next_train_batch()
            assert got["task_idx"] == batch["task_idx"]
            assert seeds_of(got) == batch.info["seed_index"].tolist()


@pytest.mark.parametrize("size", [1, 64])
def test_lists_of_fewer_seeds_than_a_batch_go_round(size: int, path: Path) -> None:
    ratios = (0.3, 0.1, 0.6)  # some seeds of train
    with flat(path, tasks=["churn"], split_ratios=ratios, default_batch_size=size) as sampler:
        count = sampler.num_seeds("train")
        assert 1 < count < 10
        taken = [seed for _ in range(3 * count) for seed in seeds_of(sampler.next_train_batch())]
        counts = Counter(taken)
        assert len(counts) == count
        assert max(counts.values()) - min(counts.values()) <= 1


def test_threads_and_prefetch_do_not_show(path: Path) -> None:
    with flat(path, num_prefetch=0) as sampler:
        expected = [bytes_of(sampler.next_train_batch()) for _ in range(20)]
        assert [bytes_of(sampler.batch("train", k)) for k in (7, 0, 19, 3)] == [
            expected[k] for k in (7, 0, 19, 3)
        ]
    for threads, prefetch in ((1, 1), (2, 9), (4, 3)):
        with flat(path, num_threads=threads, num_prefetch=prefetch) as sampler:
            assert [bytes_of(sampler.next_train_batch()) for _ in range(20)] == expected


# ---- states ------------------------------------------------------------------------------------


def test_a_state_of_any_step_continues_exactly(path: Path) -> None:
    states = []
    with flat(path) as sampler:
        expected = []
        for _ in range(16):  # several blocks and epochs of both tasks
            states.append(sampler.state_dict())
            expected.append(bytes_of(sampler.next_train_batch()))
    with flat(path, num_threads=1, num_prefetch=2) as sampler:
        for step in (0, 1, 2, 3, 4, 5, 8, 13, 1):
            sampler.load_state_dict(states[step])
            assert sampler.state_dict() == states[step]
            later = [bytes_of(sampler.next_train_batch()) for _ in range(3)]
            assert later[: 16 - step] == expected[step : step + 3]


def test_a_state_continues_with_other_ranks_of_the_same_batch(path: Path) -> None:
    options = {"shard": "dealt", "tasks": ["quantity"]}
    with flat(path, default_batch_size=6, **options) as sampler:
        for _ in range(5):
            sampler.next_train_batch()
        state = sampler.state_dict()
        expected = [contexts_of(sampler.next_train_batch()) for _ in range(8)]
    steps = [Counter[tuple[int, bytes]]() for _ in range(8)]
    for rank in range(3):
        with flat(path, rank, 3, default_batch_size=2, **options) as sampler:
            sampler.load_state_dict(state)
            for step in steps:
                step.update(contexts_of(sampler.next_train_batch()))
            assert sampler.state_dict()["streams"]["train"]["batches"] == 13
    assert steps == expected


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"default_batch_size": 5}, r"contexts_of_all_ranks was 4 and is 5"),
        ({"level_block": 3}, r"level_block was 2 and is 3"),
        ({"layout": "compact", "level_block": 32}, r"level_block was 2 and is None"),
    ],
)
def test_a_state_of_other_blocks_is_refused(
    other: dict[str, Any], message: str, path: Path
) -> None:
    with flat(path) as sampler:
        sampler.next_train_batch()
        state = sampler.state_dict()
    with flat(path, **other) as sampler, pytest.raises(ValueError, match=message):
        sampler.load_state_dict(state)


def test_a_state_within_a_batch_is_refused(path: Path) -> None:
    with flat(path, tasks=["churn"]) as sampler:
        state = sampler.state_dict()
        state["streams"]["train"]["positions"]["churn"] = 6
        with pytest.raises(ValueError, match="position 6 is within a batch of 4 contexts"):
            sampler.load_state_dict(state)
        assert len(seeds_of(sampler.next_train_batch())) == 4


# ---- passes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_a_pass_has_every_seed_once_over_all_ranks(world_size: int, path: Path) -> None:
    for split in ("train", "val", "test"):
        found = Counter[tuple[int, int]]()
        for rank in range(world_size):
            with flat(path, rank, world_size, num_prefetch=2 * (rank % 2)) as sampler:
                with warnings.catch_warnings(action="ignore"):  # of ranks without seeds
                    run = sampler.epoch(split)
                batches = list(run)
                assert len(run) == len(batches) > 0
                for batch in batches:
                    sizes = sampler.flat_shape(sampler_task(sampler, batch))
                    assert batch["cells"].shape[1] == sizes["pass_cells"][split]
                    assert batch["parents"].shape[1] == sizes["pass_rows"][split]
                    found.update((int(batch["task_idx"][0]), seed) for seed in seeds_of(batch))
                assert sampler.stats()["contexts_cut"] == 0
                count = sampler.num_seeds(split)
        assert len(found) == found.total() == count


def batches_needed(lengths: list[tuple[int, int]], each: int, cells: int, rows: int) -> int:
    """Of contexts of so many cells and rows in their order, with room for so many of each."""
    count, used = 0, (each, 0, 0)
    for own_cells, own_rows in lengths:
        used = (used[0] + 1, used[1] + own_cells, used[2] + own_rows)
        if used[0] > each or used[1] > cells or used[2] > rows:
            count, used = count + 1, (1, own_cells, own_rows)
    return count


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("each", [3, 8, 13, 40])
@pytest.mark.parametrize("task", ["churn", "quantity"])
def test_the_last_batch_of_a_small_pass_is_as_full_as_the_others(
    task: str, each: int, world_size: int, path: Path
) -> None:
    shard = "dealt" if world_size > 1 else "fixed"
    options = {"tasks": [task], "default_batch_size": each, "num_prefetch": 0, "shard": shard}
    lengths: dict[str, list[list[tuple[int, int]]]] = {}
    made: Counter[str] = Counter()
    for rank in range(world_size):
        with flat(path, rank, world_size, **options) as sampler:
            shape = sampler.flat_shape()
            for split in ("train", "val", "test"):
                own: list[tuple[int, int]] = []
                for batch in sampler.epoch(split):
                    sizes = [np.diff(batch[f"context_{of}"][0]) for of in ("cells", "rows")]
                    own += list(
                        zip(*(s[: len(seeds_of(batch))].tolist() for s in sizes), strict=True)
                    )
                    made[split] += 1
                lengths.setdefault(split, []).append(own)

    def needed(split: str, cells: int) -> int:
        rows = shape["pass_rows"][split]
        return sum(batches_needed(own, each, cells, rows) for own in lengths[split])

    step = 64 if world_size == 1 else 8
    largest = max(shape["pass_cells"], key=shape["pass_cells"].get)
    for split, cells in shape["pass_cells"].items():
        assert needed(split, cells) == made[split]
        assert cells % step == 0
        fewer = cells - step
        is_shared = cells > 0.98 * shape["pass_cells"][largest] and split != largest
        if not is_shared and fewer >= SMALL["default_sequence_length"]:
            assert needed(split, fewer) > made[split]


def sampler_task(sampler: headwater.Sampler, batch: headwater.Batch) -> str:
    return str(sampler.store.metadata["tasks"][int(batch["task_idx"][0])]["name"])


def test_chosen_seeds_and_keys_come_in_the_order_given(path: Path) -> None:
    with flat(path) as sampler:
        chosen = [3, 3, 0, 11, 7, 2, 9, 1, 17, 5, 4]
        batches = list(sampler.batches_of(chosen, "churn", epoch=2))
        assert [seed for batch in batches for seed in seeds_of(batch)] == chosen
        assert all(batch["is_labelled"][: len(seeds_of(batch))].all() for batch in batches)
        keys = [4, 1, 1, 6, 2, 5, 3]
        batches = list(sampler.batches_for("churn", keys, obs_time="1970-01-20"))
        anchors = [int(row) for batch in batches for row in anchors_of(batch)]
        assert anchors == [key - 1 for key in keys]
        assert not any(batch["is_labelled"].any() for batch in batches)
        assert all((batch["context_targets"][0, : len(seeds_of(batch))] >= 0).all()
                   for batch in batches)  # fmt: skip


def anchors_of(batch: headwater.Batch) -> list[int]:
    return list(batch.info["anchor_rows"][: int(batch["num_contexts"][0])].tolist())


def test_a_pass_without_seeds_has_as_many_batches_as_in_other_layouts(path: Path) -> None:
    """A flat pass over no keys had an empty batch, where a compact one has none."""
    counts = []
    for layout in ("compact", "flat"):
        options = {**SMALL, "layout": layout, "level_block": 32}
        with headwater.Sampler(path, **options) as sampler:
            over_keys = sampler.batches_for("churn", [], obs_time="1970-01-20")
            assert len(over_keys) == len(list(over_keys)) == 0
            (batch,) = sampler.batches_of([], "churn")
            counts.append(batch["is_labelled"].tolist())
    assert counts == [[0] * 4] * 2


def test_a_pass_left_half_way_leaves_the_stream_alone(path: Path) -> None:
    with flat(path) as sampler:
        expected = [bytes_of(sampler.batch("train", k)) for k in range(6)]
        for k in range(6):
            with sampler.epoch("train") as run:
                first = bytes_of(next(run))
            assert first == bytes_of(next(sampler.epoch("train")))
            assert bytes_of(sampler.next_train_batch()) == expected[k]


# ---- what it tells -----------------------------------------------------------------------------


def test_fill_is_the_share_of_cells_that_are_alive(path: Path) -> None:
    with flat(path, tasks=["churn"], num_prefetch=0) as sampler:
        batches = [sampler.next_train_batch() for _ in range(6)]
        stats = sampler.stats()
        alive = sum(int(batch["context_cells"][0, -1]) for batch in batches)
        room = sum(batch["cells"].size for batch in batches)
        assert (stats["packed_cells"], stats["padded_cells"]) == (alive, room)
        assert stats["fill"] == pytest.approx(alive / room)
        assert stats["cells"] == alive
        assert stats["slab_bytes"] / stats["slab_count"] >= sum(
            a.nbytes for a in batches[0].values()
        )


@pytest.mark.parametrize("size", [4, 8, 16, 24, 32, 40])
def test_tasks_of_nearly_one_size_share_the_larger(size: int, path: Path) -> None:
    def shapes(*tasks: str) -> dict[str, dict[str, Any]]:
        with flat(path, tasks=tasks, default_batch_size=size, num_prefetch=0) as sampler:
            found = {task: sampler.flat_shape(task) for task in tasks}
            most = max(max(one["cells"], *one["pass_cells"].values()) for one in found.values())
            assert sampler.shape["cells_per_batch"] == most
            return found

    alone = [shapes(task)[task]["cells"] for task in ("churn", "quantity")]
    together = [shape["cells"] for shape in shapes("churn", "quantity").values()]
    is_shared = min(alone) >= 0.9 * max(alone)
    assert together == ([max(alone)] * 2 if is_shared else alone)


def test_contexts_that_the_caps_end_are_counted(path: Path) -> None:
    with flat(path, tasks=["churn"], num_prefetch=0) as sampler:
        shape = sampler.flat_shape()
        assert (shape["sampled"], shape["capped"]) == (sampler.num_seeds("train"), 0)
    with flat(path, tasks=["churn"], max_rows=3, num_prefetch=0) as sampler:
        shape = sampler.flat_shape()
        rows = [int(n) for batch in sampler.epoch("train")
                for n in np.diff(batch["context_rows"][0])[: len(seeds_of(batch))]]  # fmt: skip
        assert max(rows) == 3
        assert shape["capped"] == rows.count(3) > 0
    whole = {"tasks": ["churn"], "default_sequence_length": 20, "num_prefetch": 0}
    with flat(path, **whole) as sampler, flat(path, **whole, cell_dropout=0.5) as dropping:
        assert dropping.flat_shape()["cells"] < sampler.flat_shape()["cells"]
        assert 0 < dropping.flat_shape()["capped"] == sampler.flat_shape()["capped"]


def test_slabs_are_as_large_as_flat_batches_and_not_as_sequences(path: Path) -> None:
    bytes_by_layout = {}
    for layout in ("compact", "flat"):
        options = {**SMALL, "layout": layout, "level_block": 32, "default_sequence_length": 1000,
                   "max_rows": 200, "default_batch_size": 64, "text_mode": "resident"}  # fmt: skip
        with headwater.Sampler(path, **options, num_prefetch=0) as sampler:
            sampler.next_train_batch()
            stats = sampler.stats()
            bytes_by_layout[layout] = stats["slab_bytes"] / stats["slab_count"]
    assert bytes_by_layout["flat"] < bytes_by_layout["compact"] / 4


def test_a_subgraph_is_that_of_the_context(path: Path) -> None:
    with flat(path) as sampler:
        for seed in (0, 5, 11):
            (batch,) = sampler.batches_of([seed], "churn")
            rows = batch.info["row_ids"][0, : int(batch["context_rows"][0, 1])]
            assert sampler.subgraph(seed, "churn").rows.tolist() == rows.tolist()


# ---- refusals ----------------------------------------------------------------------------------


def test_what_the_layout_does_not_have_is_refused(path: Path) -> None:
    for options, message in (
        ({"packing": True}, "packing does not go with layout 'flat'"),
        ({"attention_masks": True}, "attention_masks does not go with layout 'flat'"),
        ({"layout": "compact"}, "level_block is 2, which layout 'flat' alone has"),
        ({"level_block": 0}, "level_block is 0, expected 1 to 128"),
    ):
        with pytest.raises(ValueError, match=message):
            flat(path, **options)
    with flat(path) as sampler:
        for call, message in (
            (lambda: sampler.next_val_batch(), "has a stream of train alone, split 1 needs a pass"),
            (lambda: sampler.batch("val", 0), "has a stream of train alone, split 1 needs a pass"),
            (lambda: sampler.batch("test", 0), "has a stream of train alone, split 2"),
            (lambda: sampler.batch_of([1] * 5, "churn"), "5 entries, expected at most 4, what a"),
            (lambda: sampler.batches_per_epoch("train"), "batches_per_epoch does not go with"),
        ):
            with pytest.raises(ValueError, match=message):
                call()
        assert len(list(islice(sampler.epoch("val"), 1))) == 1
    compact = {**SMALL, "layout": "compact", "level_block": 32}
    with (
        headwater.Sampler(path, **compact) as sampler,
        pytest.raises(ValueError, match="the layout is not 'flat'"),
    ):
        sampler.flat_shape("churn")


def test_a_flat_batch_is_not_expanded(path: Path) -> None:
    with flat(path) as sampler, pytest.raises(ValueError, match="it is flat, expected a compact"):
        headwater.expand(sampler.next_train_batch())
