"""The dense arrays of batch.md section 2 and 3 in plain Python, from contexts of the reference.

Values are computed in float64 and stored as float32, so they agree with the library's within 1e-6;
everything else is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from plain_database import BOOLEAN, CATEGORICAL, NEVER, NUMERICAL, TEXT, TIMESTAMP, TRAIN, Task
from reference_dropout import kept_cells, without
from reference_masked import blank_lists, chosen_cells, mask, within_limit
from reference_order import MASK32, Order, Position, Stream
from reference_sampler import Cell, Context, sample

Arrays = dict[str, npt.NDArray[Any]]
NONE16 = 65535
NONE32 = 2**32 - 1


def moments(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def z_score(value: float, mean: float, std: float) -> float:
    return (value - mean) / std if std > 0 else 0.0


@dataclass(frozen=True)
class Scales:
    """Mean and standard deviation by global column, and of all times together."""

    columns: dict[int, tuple[float, float]]
    times: tuple[float, float]


def measure(order: Order) -> Scales:
    database = order.database
    columns: dict[int, tuple[float, float]] = {}
    times: list[float] = []
    for table in database.tables:
        for i, column in enumerate(table.columns):
            values = [value for value in table.values[column.name] if value is not None]
            if column.stype == NUMERICAL:
                columns[database.column_starts[table.name] + i] = moments(values)
            elif column.stype == TIMESTAMP:
                times += values
    for number in range(3 * len(database.keys)):  # counts of children come scaled
        columns[database.column_count + number] = (0.0, 1.0)
    for number, task in order.tasks.items():
        if task.derived and task.target_stype == NUMERICAL:
            labels = [
                seed.target
                for seed, split in zip(task.seeds, order.splits[number], strict=True)
                if split == TRAIN and seed.labelled and seed.target is not None
            ]
            columns[database.task_columns(number)[1]] = moments(labels)
    return Scales(columns, moments(times))


def encode_time(time_us: int, times: tuple[float, float]) -> list[float]:
    moment = datetime(1970, 1, 1) + timedelta(microseconds=time_us)
    parts = (
        moment.second / 60,
        moment.minute / 60,
        moment.hour / 24,
        moment.weekday() / 7,
        (moment.day - 1) / 31,
        (moment.month - 1) / 12,
        (moment.timetuple().tm_yday - 1) / 366,
    )
    cyclic = [wave(2 * math.pi * part) for part in parts for wave in (math.sin, math.cos)]
    return [*cyclic, z_score(time_us, *times)]


def reverse_cuthill_mckee(row_count: int, edges: set[tuple[int, int]]) -> list[int]:
    """Rows of the symmetrised graph; a component starts at its row with the fewest neighbours."""
    neighbours: list[set[int]] = [set() for _ in range(row_count)]
    for i, j in edges:
        if i != j:
            neighbours[i].add(j)
            neighbours[j].add(i)
    rank = [(len(neighbours[row]), row) for row in range(row_count)]
    order: list[int] = []
    seen: set[int] = set()
    for lowest in range(row_count):
        if lowest in seen:
            continue
        component, frontier = {lowest}, [lowest]
        while frontier:
            fresh = neighbours[frontier.pop()] - component
            component |= fresh
            frontier += fresh
        queue = [min(component, key=lambda row: rank[row])]
        seen.add(queue[0])
        for row in queue:  # grows while it is read
            following = sorted(neighbours[row] - seen, key=lambda other: rank[other])
            seen.update(following)
            queue += following
        order += queue
    return order[::-1]


def row_order_of_cells(context: Context, length: int) -> list[int]:
    ends = [*context.row_starts[1:], len(context.cells)]
    order: list[int] = []
    for row in reverse_cuthill_mckee(len(context.rows), context.edges()):
        order += range(context.row_starts[row], ends[row])
    return order + list(range(len(context.cells), length))


class BatchMaker:
    """Makes the arrays of batches of one database under one set of options.

    `text_vectors` holds the embedding of every text of the database; U is `usual_texts` where they
    are enough, else `text_budget`.
    """

    def __init__(
        self,
        order: Order,
        text_vectors: dict[str, npt.NDArray[np.float16]],
        text_budget: int,
        usual_texts: int,
    ) -> None:
        self.order, self.database, self.options = order, order.database, order.options
        self.scales = measure(order)
        self.text_vectors = text_vectors
        self.text_budget, self.usual_texts = text_budget, usual_texts
        self.text_dim = len(next(iter(text_vectors.values()), np.zeros(0)))
        self.parent_slots = max(
            [len(t.keys) for t in self.database.tables]
            + [int(task.derived) for task in self.database.tasks]
        )

    def make(self, positions: Sequence[Position]) -> Arrays:
        task_number = positions[0].task
        arrays = self.blank(self.order.tasks[task_number], task_number)
        texts: dict[str, int] = {}
        for b, position in enumerate(positions):
            if position.index is not None:
                self.fill(arrays, b, position, sample(self.order, position), texts)
        if 1 + len(texts) <= self.usual_texts:
            arrays["text_batch_embeddings"] = arrays["text_batch_embeddings"][: self.usual_texts]
        for text, place in texts.items():
            arrays["text_batch_embeddings"][place] = self.text_vectors[text]
        arrays["num_texts"][0] = 1 + len(texts)
        arrays["num_sequences"][0] = sum(position.index is not None for position in positions)
        return arrays

    def blank(self, task: Task, number: int) -> Arrays:
        sequences, cells, rows = (
            self.options.batch_size,
            self.options.sequence_length,
            self.options.max_rows,
        )

        def zeros(*shape: int, dtype: Any = np.uint8) -> npt.NDArray[Any]:
            return np.zeros(shape, dtype)

        by_cell = {
            "semantic_types": np.int8,
            "column_ids": np.int32,
            "seq_row_ids": np.uint16,
            "numeric_values": np.float32,
            "bool_values": np.uint8,
            "categorical_embed_ids": np.uint32,
            "text_embed_ids": np.uint32,
            "is_null": np.uint8,
            "is_target": np.uint8,
        }
        arrays = {name: zeros(sequences, cells, dtype=dtype) for name, dtype in by_cell.items()}
        arrays["timestamp_values"] = zeros(sequences, cells, 15, dtype=np.float32)
        arrays["is_padding"] = np.ones((sequences, cells), np.uint8)
        for name in ("col_perm", "out_perm"):
            arrays[name] = np.tile(np.arange(cells, dtype=np.uint16), (sequences, 1))
        arrays["fk_adj"] = zeros(sequences, rows, rows)
        arrays["parents"] = np.full((sequences, rows, self.parent_slots), NONE16, np.uint16)
        arrays["row_ages"] = np.full((sequences, rows), -1, np.float32)
        arrays["row_starts"] = zeros(sequences, rows + 1, dtype=np.uint16)
        arrays["row_tables"] = zeros(sequences, rows, dtype=np.uint16)
        arrays["row_depths"] = zeros(sequences, rows)
        arrays["row_ids"] = np.full((sequences, rows), NONE32, np.uint32)
        for name in ("num_cells", "num_rows"):
            arrays[name] = zeros(sequences, dtype=np.uint32)
        arrays["is_labelled"] = zeros(sequences)
        for name in ("num_sequences", "num_texts", "task_idx", "cat_emb_start", "cat_emb_count"):
            arrays[name] = zeros(1, dtype=np.uint32)
        arrays["target_stype"] = np.full(1, task.target_stype, np.uint8)
        arrays["task_idx"][0] = number
        if self.options.masked_objective:
            arrays["target_stype"][0], arrays["task_idx"][0] = 255, NONE32
        elif task.target_stype == CATEGORICAL:
            column = self.target_column(task, number)
            arrays["cat_emb_start"][0] = self.database.category_start(column)
            arrays["cat_emb_count"][0] = len(self.database.categories[column])
        arrays["text_batch_embeddings"] = zeros(self.text_budget, self.text_dim, dtype=np.float16)
        arrays["obs_time"] = np.full(sequences, NEVER, np.int64)
        for name in ("seed_index", "anchor_rows"):
            arrays[name] = zeros(sequences, dtype=np.uint32)
        if self.options.mask_ratio > 0:
            arrays |= blank_lists(self.options)
        return arrays

    def target_column(self, task: Task, number: int) -> int:
        if task.derived:
            return self.database.task_columns(number)[1]
        table = self.database.table(task.anchor_table)
        return self.database.column_starts[table.name] + table.column_index(task.target)

    def fill(
        self, arrays: Arrays, b: int, position: Position, context: Context, texts: dict[str, int]
    ) -> None:
        masked = self.masked_cells(position, context)
        kept = kept_cells(self.order, position, context, masked)
        masked, context = [kept.index(s) for s in masked], without(context, kept)
        cells, rows = len(context.cells), len(context.rows)
        quota, own_texts = (self.text_budget - 1) // self.options.batch_size, set[str]()
        for s, cell in enumerate(context.cells):
            arrays["semantic_types"][b, s] = cell.stype
            arrays["column_ids"][b, s] = cell.column
            arrays["seq_row_ids"][b, s] = cell.row
            arrays["is_null"][b, s] = cell.value is None
            arrays["is_target"][b, s] = cell.is_target
            if cell.stype == TEXT and cell.value is not None:
                if cell.value in own_texts or len(own_texts) < quota:
                    own_texts.add(cell.value)
                    arrays["text_embed_ids"][b, s] = texts.setdefault(cell.value, 1 + len(texts))
            elif cell.value is not None:
                self.fill_value(arrays, (b, s), cell)
        arrays["is_padding"][b, :cells] = 0
        columns = [cell.column for cell in context.cells]
        arrays["col_perm"][b, :cells] = sorted(range(cells), key=lambda s: (columns[s], s))
        arrays["out_perm"][b] = row_order_of_cells(context, self.options.sequence_length)
        arrays["num_cells"][b], arrays["num_rows"][b] = cells, rows
        arrays["row_starts"][b, :rows] = context.row_starts
        arrays["row_starts"][b, rows:] = cells
        self.fill_rows(arrays, b, context)
        assert position.index is not None
        task = self.order.tasks[position.task]
        seed = task.seeds[position.index]
        arrays["is_labelled"][b] = seed.labelled and not self.options.masked_objective
        arrays["obs_time"][b], arrays["seed_index"][b] = seed.obs_time, position.index
        arrays["anchor_rows"][b] = self.database.row_starts[task.anchor_table] + seed.anchor
        if self.options.mask_ratio > 0:
            mask(arrays, b, context, masked, self.options)

    def masked_cells(self, position: Position, context: Context) -> list[int]:
        """Positions in the whole context."""
        if self.options.mask_ratio == 0:
            return []
        return within_limit(context, chosen_cells(self.order, position, context), self.options)

    def fill_value(self, arrays: Arrays, at: tuple[int, int], cell: Cell) -> None:
        if cell.stype == NUMERICAL:
            arrays["numeric_values"][at] = z_score(cell.value, *self.scales.columns[cell.column])
        elif cell.stype == TIMESTAMP:
            arrays["timestamp_values"][at] = encode_time(cell.value, self.scales.times)
        elif cell.stype == BOOLEAN:
            arrays["bool_values"][at] = cell.value
        elif cell.stype == CATEGORICAL:
            place = self.database.categories[cell.column].index(cell.value)
            arrays["categorical_embed_ids"][at] = self.database.category_start(cell.column) + place

    def fill_rows(self, arrays: Arrays, b: int, context: Context) -> None:
        names = [table.name for table in self.database.tables]
        for i, row in enumerate(context.rows):
            arrays["row_ages"][b, i] = context.ages[i]
            arrays["row_depths"][b, i] = min(255, context.depths[i])
            arrays["row_tables"][b, i] = NONE16
            if row is not None:
                arrays["row_tables"][b, i] = names.index(self.database.table_of_row(row).name)
                arrays["row_ids"][b, i] = row
            for k, parent in enumerate(context.parents[i]):
                if parent is not None:
                    arrays["fk_adj"][b, i, parent] = 1
                    arrays["parents"][b, i, k] = parent


def usual_texts(order: Order, shape: Mapping[str, int]) -> int:
    """Rows of texts that a batch usually needs (docs/reference/sampling.md, "Budgets")."""
    size, tasks = order.options.batch_size, order.tasks
    quota, usual = (shape["text_budget"] - 1) // size, 0
    for task in tasks:
        kept = sampled_texts(order, task, quota, (1 << 18) // len(tasks))
        if not kept:
            continue
        drawn = min(size, len(kept))
        texts = sum(map(len, kept)) * drawn // len(kept) + 1
        count = max(8, min(1024, (1 << 23) // len(tasks) // texts))
        stream, numbers = Stream(order.options.seed, 0, MASK32, task, 3), list(range(len(kept)))
        counts = []
        for _ in range(count):
            for i in range(drawn):
                j = i + stream.below(len(kept) - i)
                numbers[i], numbers[j] = numbers[j], numbers[i]
            counts.append(len(set[str]().union(*(kept[n] for n in numbers[:drawn]))))
        found = sorted(counts)[-(-count * 999 // 1000) - 1]
        usual = max(usual, found + found // 16)
    return min(1 + usual, shape["text_budget"])


def sampled_texts(order: Order, task: int, quota: int, cells: int) -> list[list[str]]:
    """The texts that each sampled context keeps; the sample ends behind so many cells."""
    split = next((s for s in range(3) if order.seeds(s, task)), None)
    kept: list[list[str]] = []
    for position in range(0 if split is None else min(4096, len(order.seeds(split, task)))):
        if position >= max(64, 2 * order.options.batch_size) and cells <= 0:
            break
        assert split is not None
        context = sample(order, order.at(split, task, position))
        texts = dict.fromkeys(c.value for c in context.cells if c.stype == TEXT)
        texts.pop(None, None)
        kept.append(list(texts)[:quota])
        cells -= len(context.cells)
    return kept


def most_texts(contexts: Sequence[Context]) -> int:
    """The most distinct texts of a context: what the default text budget is made from."""
    texts = ({c.value for c in context.cells if c.stype == TEXT} - {None} for context in contexts)
    return max(map(len, texts), default=0)
