"""Writes a database of the tests into a real store, and samples it: the library's side of a test.

Rows go straight into the builder as Arrow streams, so that nothing of the build (types, keys, tasks
from SQL) stands between a test and what it says about the sampler.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from headwater import binding
from plain_database import (
    BOOLEAN,
    CATEGORICAL,
    IDENTIFIER,
    IGNORED,
    NEVER,
    NUMERICAL,
    TEXT,
    TIMESTAMP,
    Database,
    Options,
    Table,
    Task,
)

TEXT_DIM = 8
KNOWN = {"creation": 0, "never": 1, "column": 2, "offset": 3}
LABELS = {None: 0, "train": 1, "none": 2, "all": 3}
IDENTIFIER_CELLS = {"all": 0, "foreign_keys": 1, "none": 2}
TEXTS, COLUMNS, CATEGORIES = range(3)  # kinds of embeddings
ARROW_TYPES = {
    IDENTIFIER: pa.bool_(),
    NUMERICAL: pa.float64(),
    TIMESTAMP: pa.int64(),
    BOOLEAN: pa.bool_(),
    CATEGORICAL: pa.string(),
    TEXT: pa.string(),
    IGNORED: pa.int64(),
}
Arrays = dict[str, npt.NDArray[Any]]


def write_store(database: Database, folder: Path) -> Path:
    """Builds `folder`/world.hw; text i of the store (from 0) has the vector of `text_vector(i)`."""
    folder.mkdir(parents=True, exist_ok=True)
    builder = binding.Builder(folder / "building", name=database.name, stats_until_us=NEVER)
    try:
        declare(builder, database)
        for number, table in enumerate(database.tables):
            builder.write_rows(number, rows_of(table))
        for number, (_, key) in enumerate(database.keys):
            edges = [(c, p) for c, p in enumerate(key.parents) if p is not None]
            null_count = len(key.parents) - len(edges) - key.dangling_count
            columns = {
                name: pa.array([edge[part] for edge in edges], pa.int64())
                for part, name in enumerate(("child", "parent"))
            }
            builder.write_edges(number, stream(columns), null_count)
        for number, task in enumerate(database.tasks):
            builder.write_seeds(number, seeds_of(task))
        builder.set_embedder("numbered", TEXT_DIM)
        column_count = database.table_column_count + 2 * sum(t.derived for t in database.tasks)
        category_count = sum(len(names) for names in database.categories.values())
        for kind, count in (
            (TEXTS, builder.text_count()),
            (COLUMNS, column_count),
            (CATEGORIES, category_count),
        ):
            vectors = [text_vector(i) for i in range(count)]
            builder.write_vectors(kind, np.array(vectors, np.float16).reshape(count, TEXT_DIM).data)
        builder.finish(json.dumps(metadata_of(database)).encode())
        builder.publish(folder / "world.hw")
    finally:
        builder.close()
    return folder / "world.hw"


def metadata_of(database: Database) -> dict[str, Any]:
    """As much as the Python front needs to sample."""
    tables = []
    for table in database.tables:
        columns, rows = database.column_starts[table.name], database.row_starts[table.name]
        keys = [
            {"columns": key.columns, "references": {"table": key.parent_table, "columns": []}}
            for key in table.ordered_keys()
        ]
        tables.append(
            {
                "name": table.name,
                "column_range": [columns, columns + len(table.columns)],
                "row_range": [rows, rows + table.row_count],
                "foreign_keys": keys,
            }
        )
    columns = [
        {"name": column.name, "stype": headwater.SemanticType(column.stype).name.lower()}
        for table in database.tables
        for column in table.columns
    ]
    tasks = [{"name": task.name} for task in database.tasks]
    return {"name": database.name, "tables": tables, "columns": columns, "tasks": tasks}


def text_vector(index: int) -> npt.NDArray[np.float16]:
    return np.random.default_rng(index).normal(size=TEXT_DIM).astype(np.float16)


def text_vectors(database: Database) -> dict[str, npt.NDArray[np.float16]]:
    """The vector of every text; the store numbers texts by first appearance: table, row, column."""
    found: dict[str, npt.NDArray[np.float16]] = {}
    for table in database.tables:
        names = [column.name for column in table.columns if column.stype == TEXT]
        for row in range(table.row_count):
            for name in names:
                text = table.values[name][row]
                if text is not None and text not in found:
                    found[text] = text_vector(len(found))
    return found


def declare(builder: Any, database: Database) -> None:
    names = [table.name for table in database.tables]
    for table in database.tables:
        builder.add_table(
            table.name,
            key_part_count=len(table.primary_key[0]) if table.primary_key else 0,
            temporal=table.temporal is not None,
            null_time_visible=table.null_time_visible,
            days=table.days,
        )
    for number, table in enumerate(database.tables):
        for column in table.columns:
            start = database.column_starts[table.name]
            known = column.known
            index = builder.add_column(
                number,
                column.name,
                stype=column.stype,
                known=KNOWN[known.kind],
                known_column=start + table.column_index(known.column) if known.column else None,
                known_offset_us=known.offset,
                temporal=column.name == table.temporal,
                stored=column.stype == IGNORED,
            )
            if column.stype == CATEGORICAL:
                builder.set_categories(index, list(column.categories))
    for table, key in database.keys:
        columns = [
            database.column_starts[table.name] + table.column_index(name) for name in key.columns
        ]
        builder.add_key(names.index(table.name), names.index(key.parent_table), columns)
    for task in database.tasks:
        declare_task(builder, database, task)


def declare_task(builder: Any, database: Database, task: Task) -> None:
    def column(table: str, name: str) -> int:
        return database.column_starts[table] + database.table(table).column_index(name)

    spec = binding.TaskSpec(
        name=task.name,
        anchor_table=[t.name for t in database.tables].index(task.anchor_table),
        target_column=None if task.derived else column(task.anchor_table, task.target),
        target_name=task.target,
        target_stype=task.target_stype,
        categories=list(task.categories) if task.target_stype == CATEGORICAL else [],
        hidden=[column(*place) for place in task.hidden],
        exclusive=task.exclusive,
        given_split=task.seeds[0].split is not None,
        context_labels=LABELS[task.context_labels],
        label_times=task.label_times,
    )
    builder.add_task(spec)


def rows_of(table: Table) -> pa.RecordBatchReader:
    columns: dict[str, pa.Array] = {}
    if table.times is not None:
        columns["time"] = pa.array(
            [None if abs(time) >= NEVER else time for time in table.times], pa.int64()
        )
    for part in range(len(table.primary_key[0]) if table.primary_key else 0):
        columns[f"key {part}"] = pa.array([key[part] for key in table.primary_key], pa.string())
    for column in table.columns:
        columns[f"column {column.name}"] = pa.array(
            table.values[column.name], ARROW_TYPES[column.stype]
        )
    return stream(columns)


def seeds_of(task: Task) -> pa.RecordBatchReader:
    seeds = task.seeds
    known = pa.array([seed.known for seed in seeds], pa.int64())
    return stream(
        {
            "anchor": pa.array([seed.anchor for seed in seeds], pa.int64()),
            "obs_time": pa.array(
                [None if seed.obs_time == NEVER else seed.obs_time for seed in seeds], pa.int64()
            ),
            "target": pa.array([seed.target for seed in seeds], ARROW_TYPES[task.target_stype]),
            "labelled": pa.array([seed.labelled for seed in seeds], pa.bool_()),
            "split": pa.array([seed.split for seed in seeds], pa.int32()),
            "position": pa.array(range(len(seeds)), pa.int64()),
            **({"known_at": known} if task.label_times else {}),
        }
    )


def stream(columns: dict[str, pa.Array]) -> pa.RecordBatchReader:
    """In batches of three rows, so that chunks and offsets are part of every test."""
    batch = pa.record_batch(columns)
    pieces = [batch.slice(start, 3) for start in range(0, batch.num_rows, 3)]
    return pa.RecordBatchReader.from_batches(batch.schema, pieces)


# ---- sampling ----------------------------------------------------------------------------------


@contextmanager
def open_sampler(
    path: Path,
    database: Database,
    options: Options,
    *,
    threads: int = 1,
    prefetch: int = 0,
    text_budget: int = 0,
    max_rows: int | None = None,
    targets: int = 0,
    **more: Any,
) -> Iterator[Any]:
    """The library's own sampler (not the Python front) under the reference's options."""
    weights = options.task_weights
    store = binding.Store(path)
    sampler = binding.Sampler(
        store,
        rank=options.rank,
        world_size=options.world_size,
        shard=int(options.dealt),
        split_ratios=options.split_ratios,
        split_seed=options.split_seed,
        seed=options.seed,
        batch_size=options.batch_size,
        sequence_length=options.sequence_length,
        max_rows=options.max_rows if max_rows is None else max_rows,
        child_width=options.child_width,
        max_hops=0 if options.max_hops is None else options.max_hops + 1,
        width_scope=int(options.per_row),
        child_order=int(options.recent),
        identifier_cells=IDENTIFIER_CELLS[options.identifier_cells],
        context_labels=LABELS[options.context_labels],
        targets=targets,
        task_order=int(options.round_robin),
        tasks=None,
        task_weights=None if weights is None else [weights[t.name] for t in database.tasks],
        visible_until=options.visible_until,
        num_threads=threads,
        num_prefetch=prefetch,
        num_prefetch_val=1,
        text_budget=text_budget,
        with_rows=True,
        staleness_zero_share=(options.staleness or (0, 0))[0],
        staleness_max_days=(options.staleness or (0, 0))[1],
        child_counts=options.child_counts,
        label_rows=options.label_rows,
        peer_labels=options.peer_labels,
        objective=int(options.masked_objective),
        mask_ratio=options.mask_ratio,
        max_targets_per_type=options.max_targets,
        cell_dropout=options.cell_dropout,
        seed_tables=None
        if options.seed_tables is None
        else [i for i, t in enumerate(database.tables) if t.name in options.seed_tables],
        **more,
    )
    try:
        yield sampler
    finally:
        sampler.shutdown()


def front_options(options: Options) -> dict[str, Any]:
    """What `headwater.Sampler` takes for the reference's options."""
    return {
        "rank": options.rank,
        "world_size": options.world_size,
        "split_ratios": options.split_ratios,
        "split_seed": options.split_seed,
        "seed": options.seed,
        "default_batch_size": options.batch_size,
        "default_sequence_length": options.sequence_length,
        "max_rows": options.max_rows,
        "bfs_child_width": options.child_width,
        "max_hops": options.max_hops,
        "child_width_per": "row" if options.per_row else "foreign_key",
        "child_order": "recent" if options.recent else "uniform",
        "identifier_cells": options.identifier_cells,
        "context_labels": options.context_labels,
        "visible_until": dict(zip(binding.SPLITS, options.visible_until, strict=True)),
        "staleness": options.staleness,
        "child_counts": options.child_counts,
        "label_rows": options.label_rows,
        "peer_labels": options.peer_labels,
        "objective": "masked_cells" if options.masked_objective else "task",
        "mask_ratio": options.mask_ratio or None,
        "seed_tables": options.seed_tables,
        "cell_dropout": options.cell_dropout,
    }


def arrays_of(batch: Any) -> Arrays:
    arrays, info = batch.arrays()
    return {**arrays, **info}


def epoch_of(sampler: Any, split: int, task: int, index: int = 0) -> list[Arrays]:
    return read_pass(binding.Pass(sampler, split, task, index))


def sampled(
    database: Database,
    folder: Path,
    options: Options,
    split: int = 0,
    task: int = 0,
    epoch: int = 0,
    **more: Any,
) -> list[Arrays]:
    """The batches of an epoch, of the store in `folder`, which is written if it is not there."""
    path = folder / "world.hw"
    if not path.exists():
        write_store(database, folder)
    with open_sampler(path, database, options, **more) as sampler:
        return epoch_of(sampler, split, task, epoch)


def differing(one: Mapping[str, Any], two: Mapping[str, Any]) -> set[str]:
    """Names of arrays that are not the same, bit for bit."""
    return {name for name in one if one[name].tobytes() != two[name].tobytes()}


def pairs_of(one: Any, two: Any, tasks: Collection[Any]) -> Iterator[tuple[Arrays, Arrays]]:
    """Batches of the same seeds of two samplers, of every task and split that has seeds."""
    for task, split in product(range(len(tasks)), range(3)):
        if one.seed_count(split, task):
            yield from zip(epoch_of(one, split, task), epoch_of(two, split, task), strict=True)


def ad_hoc(sampler: Any, task: int, anchors: list[int], obs_times: list[int]) -> list[Arrays]:
    return read_pass(binding.Pass(sampler, 0, task, 0, anchors, obs_times))


def read_pass(run: Any) -> list[Arrays]:
    batches = []
    while (batch := run.next(None)) is not None:
        batches.append(arrays_of(batch))
    run.close()
    return batches
