"""Flat batches hold the contexts of compact ones, side by side in one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from headwater import binding
from headwater.sampling.chosen_seeds import chosen_seeds
from plain_database import BOOLEAN, Database, Key, Options, Seed, Task
from reference_flat import (
    Bounds,
    blocks,
    contexts_in,
    filled,
    flat_difference,
    laid_out,
    levelled,
)
from world_store import Arrays, arrays_of, epoch_of, open_sampler, read_pass, sampled, write_store
from worlds import (
    at,
    bookstore,
    random_database,
    random_masked_options,
    random_options,
    table,
    two_tables,
)

COMPACT, FLAT = {"layout": 1}, {"layout": 2}
TRAIN = 0
WORLDS, EPOCHS = 40, 5


# ---- by hand -----------------------------------------------------------------------------------

# Ann asked on day 4 has 13 cells in 4 rows (test_batch_arrays.ANN). Bob has 9 in 3:
#
# local row     0      1          2
#               seed   bob        order 3 of day 2
# position      0 1    2 3 4      5 6 7 8
# column        7 8    0 1 2      3 4 5 6


def both(tmp_path: Path, **more: Any) -> Arrays:
    """A pass over ann and then bob, into batches of three places of at most 16 cells and 6 rows."""
    database = two_tables(seeds=(Seed(0, at(4), True, split=0), Seed(1, at(4), False, split=0)))
    options = Options(sequence_length=16, max_rows=6, batch_size=3, recent=True, seed=1)
    (batch,) = sampled(database, tmp_path, options, targets=1, **FLAT, **more)
    assert batch["seed_index"].tolist() == [0, 1, 0]
    return batch


def test_ann_and_bob_lie_side_by_side(tmp_path: Path) -> None:
    batch = both(tmp_path)
    ann = [2, 3 + 16, 0, 5, 3, 0, 0, 2, 1, 0, 0, 2, 1]
    bob = [2, 3 + 16, 0, 5, 3 + 8, 0, 0, 2, 1]
    padding = batch["cells"].shape[1] - 22
    assert batch["cells"][0].tolist() == ann + bob + [32] * padding
    columns = [7, 8, 0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6]
    assert batch["cell_columns"][0].tolist() == columns + [0] * padding
    assert batch["num_contexts"].tolist() == [2]
    assert batch["context_cells"].tolist() == [[0, 13, 22, 22]]
    assert batch["context_rows"].tolist() == [[0, 4, 7, 7]]
    assert batch["context_targets"].tolist() == [[1, 14, -1]]
    rows = batch["parents"].shape[1]
    assert batch["row_starts"][0, :8].tolist() == [0, 2, 5, 9, 13, 15, 18, 22]
    assert batch["row_starts"][0, 8:].tolist() == [22] * (rows - 7)
    # Seed rows and orders point at their customer, row 1 of each context.
    parents = [1, 65535, 1, 1, 1, 65535, 1] + [65535] * (rows - 7)
    assert batch["parents"][0, :, 0].tolist() == parents
    assert batch["row_tables"][0, :8].tolist() == [65535, 0, 1, 1, 65535, 0, 1, 0]
    assert batch["row_ages"][0, 6:9].tolist() == [2, -1, -1]
    assert batch["row_ids"][0, :8].tolist() == [2**32 - 1, 0, 4, 2, 2**32 - 1, 1, 3, 2**32 - 1]
    assert batch["target_values"][:, 0].tolist() == [1, 0, 0]
    assert batch["target_is_null"].tolist() == [0, 0, 1]
    assert batch["is_labelled"].tolist() == [1, 1, 0]
    assert batch["obs_time"].tolist() == [at(4), at(4), 2**63 - 1]
    assert batch["anchor_rows"].tolist() == [0, 1, 0]
    # The only texts are the two names, numbered in the order of contexts.
    assert batch["cell_values"][0, [3, 16]].tolist() == [1, 2]
    assert batch["num_texts"].tolist() == [3]


def test_no_array_is_by_sequence(tmp_path: Path) -> None:
    batch = both(tmp_path)
    gone = {"num_sequences", "num_cells", "num_rows", "row_order", "target_indices", "fk_adj"}
    assert not gone & set(batch)
    cells, rows = batch["cells"].shape[1], batch["parents"].shape[1]
    assert cells % 64 == 0 and rows % 16 == 0
    assert {name: array.shape for name, array in batch.items() if array.shape[0] == 1} == {
        **{name: (1, cells) for name in ("cells", "cell_columns", "cell_values", "cell_times")},
        **{name: (1, rows) for name in ("row_ages", "row_tables", "row_depths", "row_ids")},
        **{name: (1, 4) for name in ("context_cells", "context_rows")},
        **{name: (1,) for name in ("task_idx", "target_stype", "cat_emb_start", "cat_emb_count")},
        **{name: (1,) for name in ("num_contexts", "num_texts")},
        "parents": (1, rows, 1), "row_starts": (1, rows + 1), "context_targets": (1, 3),
    }  # fmt: skip


def test_a_key_of_a_table_to_itself_stays_within_its_context(tmp_path: Path) -> None:
    # Loan 7 is of book 2, a sequel of book 1; both loans have both books and their author.
    seeds = (Seed(2, at(2), 4.0, split=0), Seed(3, at(5), 1.0, split=0))
    options = Options(sequence_length=64, max_rows=16, batch_size=2)
    (batch,) = sampled(bookstore(seeds=seeds), tmp_path, options, **FLAT)
    first, second, end = batch["context_rows"][0].tolist()
    assert first == 0 < second < end
    for start, stop in ((first, second), (second, end)):
        parents = batch["parents"][0, start:stop]
        linked = parents[parents != 65535]
        assert linked.size > 0
        assert linked.max() < stop - start
        rows = batch["row_ids"][0, start:stop].tolist()
        assert parents[rows.index(2)].tolist()[:2] == [rows.index(0), rows.index(1)]


# ---- stores ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


def store_of(shelf: Path, seed: int, database: Database) -> Path:
    """A random world with all tasks or with one, built when it is first asked for."""
    folder = shelf / f"{seed} of {len(database.tasks)}"
    path = folder / "world.hw"
    return path if path.exists() else write_store(database, folder)


# ---- against compact batches -------------------------------------------------------------------


def of_one_task(database: Database, number: int) -> Database:
    return replace(database, tasks=database.tasks[number : number + 1])


def stream(sampler: Any) -> Iterator[Arrays]:
    k = 0
    while True:
        yield arrays_of(sampler.batch(TRAIN, k))
        k += 1


def blank_of(sampler: Any, task: int) -> Arrays:
    """A compact batch that is empty, but for its question."""
    (batch,) = read_pass(binding.Pass(sampler, 0, task, 0, chosen=chosen_seeds([], 0)))
    return batch


def budget(options: Options, more: dict[str, Any], contexts: int, texts: int) -> int:
    """So that a context may have so many texts, whoever it shares a batch with."""
    return 0 if more.get("text_mode") == 1 else 1 + contexts * texts


def check_stream(
    path: Path,
    database: Database,
    options: Options,
    more: dict[str, Any],
    level_block: int,
    task: int = 0,
    epochs: int = EPOCHS,
) -> Counter[str]:
    """Some epochs of a levelled stream, rank by rank, against Python's of the compact contexts."""
    ranks = options.world_size if options.dealt else 1
    each = options.batch_size
    texts = min(options.sequence_length, 3)
    whole = options if not options.dealt else options.with_(
        batch_size=each * ranks, world_size=1, rank=0
    )  # fmt: skip
    given = {**more, "level_block": level_block}
    counts = Counter[str]()
    with (
        open_sampler(path, database, whole, text_budget=budget(whole, more, each * ranks, texts),
                     **COMPACT, **more) as compact,
        open_sampler(path, database, whole, text_budget=budget(whole, more, each * ranks, texts),
                     **FLAT, **given) as together,
        open_sampler(path, database, options, text_budget=budget(options, more, each, texts),
                     **FLAT, **given) as flat,
    ):  # fmt: skip
        count = flat.seed_count(TRAIN, task)
        if not options.dealt:
            count = len(range(options.rank, count, options.world_size))
        if count == 0:
            return counts
        sizes, step = flat.flat_shape(task), together.flat_shape(task)
        bounds = Bounds((step["cells"], step["rows"]), (sizes["cells"], sizes["rows"]))
        blank, expected, got = blank_of(compact, task), stream(compact), stream(flat)
        for block in blocks(count, each * ranks, level_block, epochs):
            contexts = [c for batch in islice(expected, len(block)) for c in contexts_in(batch)]
            lengths = [(context.cells, context.rows) for context in contexts]
            for batch in levelled(lengths, len(block), ranks, bounds):
                members = batch[options.rank if options.dealt else 0]
                listed = [(contexts[m.place], m.cells, m.rows) for m in members]
                flat_batch = laid_out(listed, blank, each, sizes["cells"], sizes["rows"])
                assert flat_difference(flat_batch, next(got)) is None
                counts["contexts_cut"] += flat_batch.contexts_cut
                counts["cells_cut"] += flat_batch.cells_cut
                counts["contexts"] += len(listed)
                counts["batches"] += 1
        stats = flat.stats()
    for name in ("contexts_cut", "cells_cut", "batches"):
        assert stats[name] == counts[name], name
    assert stats["cells"] == stats["packed_cells"] + stats["cells_cut"]
    assert stats["padded_cells"] == counts["batches"] * sizes["cells"]
    return counts


VARIANTS: dict[str, dict[str, Any]] = {
    "targets inline": {},
    "targets beside": {"targets": 1},
    "resident texts": {"text_mode": 1, "targets": 1},
    "listed texts": {"text_mode": 2},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_levelled_stream_is_that_of_the_reference(variant: str, shelf: Path) -> None:
    counts = Counter[str]()
    for seed in range(WORLDS):
        database = random_database(seed)
        database = of_one_task(database, seed % len(database.tasks))
        options = random_options(seed, database)
        if seed % 4 == 0:
            options = options.with_(world_size=3, rank=seed // 4 % 3)
        path = store_of(shelf, seed, database)
        counts += check_stream(path, database, options, VARIANTS[variant], (1, 2, 3, 32)[seed % 4])
    assert counts["contexts"] > 300  # it was about something


def test_masked_cells_are_those_of_the_reference(shelf: Path) -> None:
    counts = Counter[str]()
    for seed in range(WORLDS):
        database = random_database(seed)
        database = of_one_task(database, seed % len(database.tasks))
        masked = random_masked_options(seed, database)
        options = random_options(seed, database).with_(
            mask_ratio=masked.mask_ratio, max_targets=masked.max_targets
        )
        more = {"targets": seed % 2, **({"text_mode": 1} if seed % 3 == 0 else {})}
        path = store_of(shelf, seed, database)
        counts += check_stream(path, database, options, more, 1 + seed % 4)
    assert counts["contexts"] > 300


def test_a_stream_of_the_rows_of_a_table_is_that_of_the_reference(shelf: Path) -> None:
    counts = Counter[str]()
    for seed in range(WORLDS):
        database = random_database(seed)
        masked = random_masked_options(seed, database)
        table = max(database.tables, key=lambda one: one.row_count)
        options = masked.with_(
            masked_objective=True, label_rows=0, peer_labels=0, seed_tables=(table.name,)
        )
        task = len(database.tasks) + database.tables.index(table)
        path = store_of(shelf, seed, database)
        counts += check_stream(path, database, options, {}, (32, 1, 2, 5)[seed % 4], task)
    assert counts["contexts"] > 500


def check_passes(
    path: Path, database: Database, options: Options, more: dict[str, Any]
) -> Counter[str]:
    """Passes over every task and split, of all of this rank's seeds, in order and whole."""
    texts = min(options.sequence_length, 3)
    counts = Counter[str]()
    is_sampled = options.seed % 2 == 0  # how many texts a context may have, and U
    most = 0 if is_sampled else budget(options, more, options.batch_size, texts)
    each = options.batch_size
    with (
        open_sampler(path, database, options, text_budget=most,
                     **COMPACT, **more) as compact,
        open_sampler(path, database, options, text_budget=most,
                     **FLAT, **more) as flat,
    ):  # fmt: skip
        tables = options.seed_tables
        numbers = [i for i, t in enumerate(database.tables) if tables and t.name in tables]
        tasks = [len(database.tasks) + i for i in numbers] if tables else range(len(database.tasks))
        for task in tasks:
            sizes = flat.flat_shape(task)
            for split in range(3):
                if not flat.seed_count(split, task):
                    continue
                found = epoch_of(compact, split, task, 1)
                contexts = [c for batch in found for c in contexts_in(batch)]
                blank = {name: array.copy() for name, array in found[-1].items()}
                blank_last(blank)
                cells, rows = sizes["pass_cells"][split], sizes["pass_rows"][split]
                expected = filled(contexts, each, cells, rows)
                for batch, got in zip(expected, epoch_of(flat, split, task, 1), strict=True):
                    listed = [(c, c.cells, c.rows) for c in batch]
                    flat_batch = laid_out(listed, blank, each, cells, rows)
                    assert flat_difference(flat_batch, got) is None
                    counts["contexts"] += len(batch)
                    counts["not full"] += len(batch) < each
                    counts["batches"] += 1
        stats = flat.stats()
    assert stats["contexts_cut"] == stats["cells_cut"] == 0
    assert stats["packed_cells"] == stats["cells"]
    return counts


def blank_last(batch: Arrays) -> None:
    """Makes the last sequence of a compact batch what an empty one is, by the format."""
    blanks = {"target_is_null": 1, "obs_time": 2**63 - 1}
    for name, array in batch.items():
        by_context = name in ("is_labelled", "target_values", "seed_index", "anchor_rows")
        if by_context or name in blanks or name.startswith("masked_"):
            array[-1] = -1 if name.endswith("_indices") else blanks.get(name, 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pass_keeps_every_context_whole_and_in_order(variant: str, shelf: Path) -> None:
    counts = Counter[str]()
    for seed in range(WORLDS):
        database = random_database(seed)
        options = random_options(seed, database)
        path = store_of(shelf, seed, database)
        counts += check_passes(path, database, options, VARIANTS[variant])
    assert counts["contexts"] > 200
    assert counts["not full"] > 20


def test_passes_over_the_rows_of_tables_are_those_of_the_reference(shelf: Path) -> None:
    counts = Counter[str]()
    for seed in range(2 * WORLDS):
        database = random_database(seed)
        options = random_masked_options(seed, database)
        if options.masked_objective:
            path = store_of(shelf, seed, database)
            counts += check_passes(path, database, options, {})
    assert counts["contexts"] > 200


# ---- cutting -----------------------------------------------------------------------------------

SAMPLED, HUBS = 4096, 4400  # the sample of a task is the first contexts of epoch 0


def hubs(spokes: dict[int, int]) -> Database:
    """Hubs, each of which is a seed of train; some have spokes, by hub so many."""
    parents = tuple(hub for hub, count in sorted(spokes.items()) for _ in range(count))
    spoke = table(
        "spokes",
        "spoke_id identifier, hub_id identifier, length numerical",
        [(True, True, float(i % 7)) for i in range(len(parents))],
        (Key(("hub_id",), "hubs", parents),),
    )
    hub = table("hubs", "hub_id identifier, name text", [(True, f"hub {i}") for i in range(HUBS)])
    seeds = tuple(Seed(i, at(1), i % 3 == 0, split=0) for i in range(HUBS))
    return Database("hubs", (hub, spoke), (Task("t", "hubs", "t", BOOLEAN, seeds),))


LONG = Options(sequence_length=64, max_rows=24, batch_size=32, recent=True)


@pytest.fixture(scope="module")
def surprise(shelf: Path) -> tuple[Path, Database]:
    """A store in which every second hub that the sample does not have has 30 spokes."""
    plain = hubs({0: 1})
    with open_sampler(write_store(plain, shelf / "plain"), plain, LONG) as sampler:
        order = [int(seed) for batch in epoch_of(sampler, TRAIN, 0) for seed in batch["seed_index"]]
    database = hubs({seed: 30 for seed in order[SAMPLED:HUBS:2]})
    return write_store(database, shelf / "surprise"), database


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_batch_without_room_takes_the_last_rows_of_its_longest_contexts(
    ranks: int, surprise: tuple[Path, Database]
) -> None:
    path, database = surprise
    options = LONG.with_(batch_size=32 // ranks, world_size=ranks, rank=ranks - 1, dealt=True)
    options = options.with_(mask_ratio=0.5, max_targets=8)
    counts = check_stream(path, database, options, {"targets": 1}, 4, epochs=1)
    assert counts["contexts_cut"] > 100 // ranks
    assert counts["cells_cut"] > 10 * counts["contexts_cut"]


def test_what_is_cut_is_cut_for_any_count_of_ranks_alike(
    surprise: tuple[Path, Database],
) -> None:
    path, database = surprise
    cut, kept = [], []
    for ranks in (1, 2, 4):
        batches: list[list[Arrays]] = []
        for rank in range(ranks):
            options = LONG.with_(batch_size=32 // ranks, world_size=ranks, rank=rank, dealt=True)
            with open_sampler(path, database, options, level_block=8, **FLAT) as sampler:
                batches.append(list(islice(stream(sampler), SAMPLED // 32, HUBS // 32)))
        steps = [sorted(int(s) for part in step for s in part["seed_index"])
                 for step in zip(*batches, strict=True)]  # fmt: skip
        kept.append(steps)
        cut.append([sum(int(part["context_cells"][0, -1]) for part in step)
                    for step in zip(*batches, strict=True)])  # fmt: skip
    assert kept[0] == kept[1] == kept[2]
    assert cut[0] == cut[1] == cut[2]
    assert max(cut[0]) < 32 * 4  # of the 16 long contexts of a batch alone there are 64 cells each


# ---- chosen seeds, levelled --------------------------------------------------------------------


def check_again(sampler: Any, options: Options, first: int, end: int) -> None:
    """The seeds of each batch of the stream, levelled by themselves, make that batch."""
    taken = Counter[int]()
    for k, batch in enumerate(islice(stream(sampler), end)):
        task = int(batch["task_idx"][0])
        count = len(range(options.rank, sampler.seed_count(TRAIN, task), options.world_size))
        epochs = [(taken[task] + i) // count for i in range(options.batch_size)]
        taken[task] += options.batch_size
        if k >= first:
            chosen = chosen_seeds(batch["seed_index"], epochs)
            (again,) = read_pass(binding.Pass(sampler, 0, task, 0, chosen=chosen, is_levelled=True))
            assert list(again) == list(batch)
            for name, array in batch.items():
                assert array.shape == again[name].shape, name
                assert array.tobytes() == again[name].tobytes(), name


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_seeds_of_a_batch_of_the_stream_make_it_again(variant: str, shelf: Path) -> None:
    compared = 0
    for seed in range(0, WORLDS, 4):
        database = random_database(seed)
        options = random_options(seed, database).with_(dealt=False)
        path = store_of(shelf, seed, database)
        more = {"text_budget": 0, "level_block": 1, **FLAT, **VARIANTS[variant]}
        with open_sampler(path, database, options, **more) as sampler:
            counts = [sampler.seed_count(TRAIN, task) for task in range(len(database.tasks))]
            if any(counts) and all(count == 0 or count > options.rank for count in counts):
                check_again(sampler, options, 0, 8)
                compared += 8
    assert compared > 40


def test_chosen_seeds_without_room_are_cut_as_in_the_stream(
    surprise: tuple[Path, Database],
) -> None:
    path, database = surprise
    options = LONG.with_(mask_ratio=0.5, max_targets=8)
    with open_sampler(path, database, options, level_block=1, targets=1, **FLAT) as sampler:
        check_again(sampler, options, SAMPLED // 32, HUBS // 32)
        assert sampler.stats()["contexts_cut"] > 100
