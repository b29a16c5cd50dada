"""From headwater's batches to the model's inputs: fields, tables, and what a task's labels say.

Batches are read-only views of memory that headwater owns; they are put on the device and never
donated. Arrays for the host (which seed, which time) stay in `batch.info`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import headwater
import jax
import jax.numpy as jnp
import numpy as np
from headwater import SemanticType
from headwater.shared import NO_TIME_US, machine_bytes, nearest, open_windows_text
from numpy.typing import NDArray

from confluence.config import Config, ConfigError
from confluence.data.one_copy import put_whole
from confluence.data.whole_batch import WholeBatch
from confluence.model.loss import TARGET_STYPES, TaskScales
from confluence.model.row_attention import RowShape
from confluence.model.transformer import ForeignKeys, Tables, key_names, key_starts_of

TEXTS, TEXT_NUMBERS = "text_batch_embeddings", "text_numbers"
COMMON_FIELDS = (
    "row_ages", "row_tables", "parents", TEXTS, "target_stype", "task_idx", "cat_emb_start",
    "cat_emb_count", "is_labelled",
)  # fmt: skip
INPUT_FIELDS = (
    "semantic_types", "column_ids", "seq_row_ids", "numeric_values", "timestamp_values",
    "bool_values", "categorical_embed_ids", "text_embed_ids", "is_null", "is_target",
    "is_padding", "num_sequences", *COMMON_FIELDS,
)  # fmt: skip
"""The arrays of a dense batch that the model reads; the others stay on the host."""
CELL_FIELDS = ("cells", "cell_columns", "cell_values", "cell_times", "row_starts")
COMPACT_INPUT_FIELDS = (*CELL_FIELDS, "num_sequences", *COMMON_FIELDS)
"""The same of a compact batch, which say everything once; `expand.as_flat` reads both."""
FLAT_INPUT_FIELDS = (
    *CELL_FIELDS, "context_cells", "context_rows", "context_targets", *COMMON_FIELDS,
)  # fmt: skip
"""The same of a flat batch."""

US_PER_DAY = 86_400_000_000
NO_TIME = NO_TIME_US  # obs_time of a seed that has none
LEAST_SPREAD = 1e-12  # of the largest label: a smaller deviation is rounding
CATEGORY_LIMIT = 4_096  # most categories of a target
CELLS_PER_COUNT = 3  # of `child_counts`, for each foreign key that points at a row's table
HUBER_DELTA = {"mae": 0.2, "rmse": 1.0}  # by the metric of the task
RESIDENT_SHARE = 0.1  # of a device's memory, for the vectors of texts
TRAIN, VAL, TEST = 0, 1, 2
SPLITS = {"train": TRAIN, "val": VAL, "test": TEST}

BATCH_SETTINGS = (
    "seed", "split_seed", "split_ratios", "train_on_val", "batch_size", "accumulate",
    "sequence_length", "max_rows", "max_hops", "child_width", "child_order", "child_counts",
    "identifier_cells", "label_rows", "peer_labels", "context_labels", "staleness", "cell_dropout",
    "visible_until", "objective", "cell_budget",
)  # fmt: skip
MASK_SETTINGS = ("mask_ratio", "max_targets_per_type", "seed_tables")

NO_BATCHES: dict[str, Any] = {"num_prefetch": 0, "layout": "compact"}
"""Options of a sampler whose splits and metadata are read: it walks fewer contexts at first."""

Floats = NDArray[np.float64]


class TaskError(ValueError):
    """The store has no such task, or its target cannot be learned."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labels:
    """All seeds of a task, in stored order; position = `seed_index` of a batch."""

    anchor_rows: NDArray[np.uint32]  # [n] global row
    obs_times: NDArray[np.int64]  # [n] µs, NO_TIME where there is none
    targets: Floats  # [n] source units; 0/1; index of the category; µs
    is_known: NDArray[np.bool_]  # [n] labelled and not NULL
    is_labelled: NDArray[np.bool_]  # [n] has a target, maybe NULL
    splits: NDArray[np.uint8]  # [n] 0 train, 1 val, 2 test
    label_times: NDArray[np.int64] | None = None  # [n] µs, when each is known; None: not stated


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task: its target, and what the labels of its train split say about it."""

    name: str
    index: int  # in store order; `task_idx` of its batches
    stype: SemanticType  # of the target
    categories: tuple[str, ...]  # empty unless categorical
    column_mean: float  # source value = z by column × std + mean
    column_std: float
    mean: float  # of the train labels, source units
    std: float
    low: float  # the least and the largest of the train labels
    high: float
    positive_share: float  # of boolean train labels
    null_share: float  # of train labels
    label_window_us: int  # a label is known this long after its obs_time; 0 where not stated
    inclusive: bool = True  # a context shows what happened at obs_time itself

    @property
    def category_limit(self) -> int:
        """L of this task, at least 1."""
        return max(1, len(self.categories))

    def first_biases(self) -> dict[str, float]:
        """Where the heads start: base rates as logits, means as they are."""
        biases = {"heads.null": _logit(self.null_share)}
        if self.stype == SemanticType.BOOLEAN:
            biases["heads.boolean"] = _logit(self.positive_share)
        return biases  # a numerical head starts at 0: the mean, in z units of the train labels

    def scales(self, cfg: Config) -> TaskScales:
        """This task's scales, at its index."""
        n = self.index + 1
        scale = self.column_std / self.std
        shift = (self.column_mean - self.mean) / self.std
        values = (scale, shift, HUBER_DELTA[cfg.metric])
        return TaskScales(*(jnp.full(n, value, jnp.float32) for value in values))


def _logit(share: float) -> float:
    share = float(np.clip(share, 1e-3, 1.0 - 1e-3))
    return float(np.log(share / (1.0 - share)))


def batch_settings(cfg: Config) -> dict[str, Any]:
    """The settings that decide the contents of a batch, by name: all that `open_sampler` reads, but
    for where texts are, and how many threads make how many batches ahead."""
    found = {name: getattr(cfg, name) for name in BATCH_SETTINGS}
    found |= {"time_split": cfg.past, "auxiliary_weight > 0": cfg.auxiliary_weight > 0}
    if cfg.masks_cells:
        found |= {name: getattr(cfg, name) for name in MASK_SETTINGS}
    return found


def open_sampler(store: headwater.Store, cfg: Config, *tasks: str, **overrides: Any) -> Any:
    """A sampler of some tasks, or of all, with the run's options.

    Args:
        overrides: options of `headwater.Sampler`; NO_BATCHES where nothing but seeds is read.
    """
    options = {
        "store": store, "rank": 0, "world_size": 1, "shard": "dealt",
        "seed": cfg.seed, "split_seed": cfg.split_seed,
        "num_prefetch": cfg.num_prefetch, "default_batch_size": cfg.contexts,
        "default_sequence_length": cfg.sequence_length, "bfs_child_width": cfg.child_width,
        "max_rows": cfg.max_rows, "max_hops": cfg.hop_limit, "child_order": cfg.child_order,
        "identifier_cells": cfg.identifier_cells, "tasks": list(tasks) or None,
        "visible_until": cfg.visible_until, "num_threads": cfg.num_threads, "layout": "flat",
        "child_counts": cfg.child_counts, "label_rows": cfg.label_row_limit,
        "peer_labels": cfg.peer_labels,
        "context_labels": cfg.context_labels, "staleness": cfg.staleness,
        "cell_dropout": cfg.cell_dropout,
        "time_split": cfg.past, "train_on_val": cfg.train_on_val,
    }  # fmt: skip
    if cfg.seed_tables is not None or deals_seeds(store.metadata, tasks):
        options["split_ratios"] = cfg.split_ratios
    if cfg.masks_cells:
        options |= {
            "objective": cfg.objective, "mask_ratio": cfg.mask_ratio,
            "max_targets_per_type": cfg.max_targets_per_type,
        }  # fmt: skip
    if cfg.seed_tables is not None:
        options |= {"tasks": None, "seed_tables": cfg.seed_tables}
    options |= overrides
    if options["layout"] == "flat":
        options.setdefault("level_parts", cfg.accumulate)
        options.setdefault("text_mode", text_modes([store])[0])
        if cfg.cell_budget is not None:
            return _open_within(options, cfg.cell_budget)
    return _open_for_ranks(options)


def _open_within(options: Mapping[str, Any], budget: int) -> Any:
    """A sampler whose batches have at most so many cells: the fewest equal parts of the batches
    that were asked for. A step has the same contexts however many parts there are."""
    whole, cells = int(options["default_batch_size"]), 0
    for parts in (parts for parts in range(1, whole + 1) if whole % parts == 0):
        own = {"default_batch_size": whole // parts, "level_parts": parts * options["level_parts"]}
        sampler = _open_for_ranks({**options, **own})
        cells = most_cells(sampler)
        if cells <= budget:
            return sampler
        sampler.shutdown()
    raise no_context_fits(budget, cells)


def no_context_fits(budget: int, cells: int) -> ConfigError:
    """The error if not even a batch of one context, which has so many cells, is within a budget."""
    return ConfigError(
        f"cell_budget is {budget}, and a batch of one context has up to {cells} cells: give at"
        " least that, or a smaller sequence_length"
    )


def cells_in_parts(
    store: headwater.Store, cfg: Config, task: str, parts: int, *, ranks: int = 1
) -> int:
    """N of a rank's largest batch if batches of these settings are made in so many parts."""
    share = {
        "world_size": ranks, "default_batch_size": cfg.contexts // ranks // parts,
        "level_parts": cfg.accumulate * parts,
    }  # fmt: skip
    alone = cfg.replace(cell_budget=None, num_prefetch=0)
    with open_sampler(store, alone, task, **share) as sampler:
        return most_cells(sampler)


def most_cells(sampler: Any) -> int:
    """N of the largest flat batch of a sampler, of train or of a pass."""
    shapes = [sampler.flat_shape(task) for task in sampler.tasks]
    return int(max(max(shape["cells"], *shape["pass_cells"].values()) for shape in shapes))


def parts_of(sampler: Any, asked: int) -> int:
    """In how many parts a sampler makes batches of so many contexts (`cell_budget`)."""
    return asked // int(sampler.shape["batch_size"])


def _open_for_ranks(options: Mapping[str, Any]) -> Any:
    """A sampler; ranks step together, so that all batches of several have one shape, the larger."""
    sampler = headwater.Sampler(**options)
    usual, most = (sampler.shape[name] for name in ("usual_texts", "text_budget"))
    if options["world_size"] == 1 or usual == most:
        return sampler
    sampler.shutdown()
    return headwater.Sampler(**{**options, "text_budget": most})


def text_modes(stores: Sequence[headwater.Store]) -> list[Literal["numbers", "batch"]]:
    """By store, where the vectors of texts are: all of them stay on the device, and a batch lists
    their numbers, or each batch brings its own.

    They stay as long as those of the stores before leave room in RESIDENT_SHARE of the device's
    memory. Of a store without texts there is nothing to keep. Answers and losses are the same bits
    either way, so ranks may differ.
    """
    room = RESIDENT_SHARE * device_bytes()
    modes: list[Literal["numbers", "batch"]] = []
    for store in stores:
        size = store.text_bytes
        stays = 0 < size <= room
        room -= size if stays else 0
        modes.append("numbers" if stays else "batch")
    return modes


def device_bytes() -> int:
    """The memory of this process's device; of a processor the machine's. 0 where nobody says."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return int(machine_bytes())
    return int((device.memory_stats() or {}).get("bytes_limit", 0))


def deals_seeds(metadata: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether `split_ratios` deals the seeds of some of these tasks, or of all that there are."""
    entries = [entry for entry in metadata["tasks"] if not names or entry["name"] in names]
    return any(entry["split"] == "hash" for entry in entries)


def open_seeds(
    store: headwater.Store, cfg: Config, names: Sequence[str] | None, **overrides: Any
) -> Any:
    """A sampler of the contexts that masked cells are learned in: of the seeds of some tasks, or of
    all; where the run has `seed_tables`, of the rows of some of these, or of all."""
    if cfg.seed_tables is None:
        return open_sampler(store, cfg, *(names or ()), **overrides)
    tables = cfg.seed_tables if names is None else tuple(names)
    return open_sampler(store, cfg.replace(seed_tables=tables), **overrides)


def read_labels(sampler: Any, task: str) -> Labels:
    """The labels of all seeds of a task, with this sampler's splits."""
    seeds = sampler.store.task_seeds(task)
    labelled = np.asarray(seeds["labelled"], bool)
    return Labels(
        anchor_rows=np.asarray(seeds["anchor_row"], np.uint32),
        obs_times=np.asarray(seeds["obs_time"], np.int64),
        targets=np.asarray(seeds["target"], np.float64),
        is_known=labelled & ~np.asarray(seeds["is_null"], bool),
        is_labelled=labelled,
        splits=np.asarray(sampler.splits(task), np.uint8),
        label_times=None if "label_time" not in seeds else np.asarray(seeds["label_time"]),
    )


def weights_by_age(times: NDArray[np.int64], last: float, half_life_days: float) -> Floats:
    """1 for what is of the time `last` (µs) or later, half of it for each half-life before."""
    ages = np.maximum(0.0, last - times.astype(np.float64))
    return np.asarray(np.exp2(-ages / (half_life_days * US_PER_DAY)))


def find_task(metadata: Mapping[str, Any], name: str) -> int:
    """Index of a task by name; an unknown name is an error that suggests the nearest."""
    names = [task["name"] for task in metadata["tasks"]]
    if name not in names:
        has = f", the store has {', '.join(names) or 'none'}"
        raise TaskError(f"no task '{name}'{nearest(name, names) or has}")
    return names.index(name)


def read_task(metadata: Mapping[str, Any], labels: Labels, name: str) -> Task:
    """What is known of a task: its schema from the metadata, its moments from the train labels."""
    index = find_task(metadata, name)
    entry = metadata["tasks"][index]
    stype = SemanticType[entry["target_stype"].upper()]
    if stype not in TARGET_STYPES:
        raise TaskError(f"task '{name}' has a target of type {stype.name.lower()}")
    column_stats = metadata["columns"][entry["target_column_id"]].get("stats") or {}
    categories = tuple(str(c) for c in column_stats.get("categories") or ())
    if stype == SemanticType.CATEGORICAL and not 1 <= len(categories) <= CATEGORY_LIMIT:
        raise TaskError(
            f"task '{name}' has {len(categories)} categories, expected 1 to {CATEGORY_LIMIT}"
        )
    is_train = labels.splits == TRAIN
    known = labels.targets[is_train & labels.is_known]
    labelled_count = int(np.sum(is_train & labels.is_labelled))
    if labelled_count == 0:
        why = open_windows_text(entry, lost=True)
        raise TaskError(
            f"task '{name}' has no labelled seed in the train split{f': {why}' if why else ''}"
        )
    known = known if known.size else np.zeros(1)
    scaling = column_stats
    if stype == SemanticType.TIMESTAMP:
        scaling = metadata.get("time") or {}  # epochs are z-scored by the whole store
        if "std_us" not in scaling:
            raise TaskError(f"the store does not say how times are scaled, task '{name}' needs it")
    return Task(
        name=name,
        index=index,
        stype=stype,
        categories=categories if stype == SemanticType.CATEGORICAL else (),
        column_mean=_moment(scaling, "mean", 0.0),
        column_std=_moment(scaling, "std", 1.0) or 1.0,
        mean=float(known.mean()),
        std=spread(known),
        low=float(known.min()),
        high=float(known.max()),
        positive_share=float(np.mean(known > 0.5)),
        null_share=1.0 - float(np.sum(is_train & labels.is_known)) / labelled_count,
        label_window_us=int(entry.get("label_window_us") or 0),
        inclusive=entry.get("cutoff", "inclusive") == "inclusive",
    )


def read_target(sampler: Any, name: str) -> tuple[Task, Labels]:
    """A task and the labels of all its seeds, with this sampler's splits."""
    labels = read_labels(sampler, name)
    return read_task(sampler.database_metadata(), labels, name), labels


def spread(values: Floats) -> float:
    """The standard deviation of values; 1 where they differ by no more than rounding."""
    std = float(values.std())
    return std if std > LEAST_SPREAD * float(np.max(np.abs(values))) else 1.0


def _moment(stats: Mapping[str, Any], name: str, default: float) -> float:
    """A moment from statistics; those of times carry their unit in the name."""
    value = stats.get(name, stats.get(f"{name}_us"))
    return default if value is None else float(value)


def read_row_shape(metadata: Mapping[str, Any], cfg: Config) -> RowShape:
    """The most cells of a row of any table or task, in this run's contexts."""
    widths = [2]  # a task's row: obs_time and target
    keys_to = Counter(
        key["references"]["table"] for table in metadata["tables"] for key in table["foreign_keys"]
    )
    for table in metadata["tables"]:
        counts = CELLS_PER_COUNT * keys_to[table["name"]] if cfg.child_counts else 0
        widths.append(_most_cells(metadata, table, cfg) + counts)
    return RowShape(width=max(widths))


def _most_cells(metadata: Mapping[str, Any], table: Mapping[str, Any], cfg: Config) -> int:
    """Of a row of a table; a row without others may show one identifier."""
    hidden = {"ignored", "identifier"} if cfg.identifier_cells == "none" else {"ignored"}
    columns = metadata["columns"][slice(*table["column_range"])]
    return max(1, sum(column["stype"] not in hidden for column in columns))


def device_tables(sampler: Any, category_limit: int) -> Tables:
    """The frozen embeddings on the device; categories padded so that a slice never clamps.

    Texts are among them if the sampler's batches list their numbers. On a processor they are the
    store's own map, which they keep open.
    """
    columns = np.asarray(sampler.column_embeddings(), np.float16)
    categories = np.asarray(sampler.categorical_embeddings(), np.float16)
    padding = np.zeros((category_limit, columns.shape[1]), np.float16)
    categories = np.concatenate([categories.reshape(-1, columns.shape[1]), padding])
    owners = np.full(len(categories), -1, np.int32)
    for number, column in enumerate(sampler.store.metadata["columns"]):
        stats = column.get("stats") or {}
        if "cat_emb_start" in stats:
            start = int(stats["cat_emb_start"])
            owners[start : start + len(stats["categories"])] = number
    by_table = foreign_keys(sampler.store.metadata)
    keys, key_starts = key_names(by_table, jnp.asarray(columns)), key_starts_of(by_table)
    tables = [columns, keys, key_starts, categories, owners]
    if sampler.text_mode == "numbers":
        tables.append(sampler.text_vectors())
    return Tables(*(jax.device_put(table) for table in tables))


def foreign_keys(metadata: Mapping[str, Any]) -> ForeignKeys:
    """The columns of each foreign key, by table."""
    by_table = []
    for table in metadata["tables"]:
        first, end = table["column_range"]
        places = {entry["name"]: k for k, entry in enumerate(metadata["columns"][first:end], first)}
        keys = (key["columns"] for key in table["foreign_keys"])
        by_table.append(tuple(tuple(places[name] for name in key) for key in keys))
    return tuple(by_table)


def is_flat(batch: Mapping[str, Any]) -> bool:
    """Is the batch of the flat layout, with all contexts side by side?"""
    return "context_cells" in batch


def context_count(batch: Mapping[str, Any]) -> int:
    """How many contexts of a batch count; they are the first."""
    return int(batch["num_contexts" if is_flat(batch) else "num_sequences"][0])


def cell_count(batch: Mapping[str, Any]) -> int:
    """How many cells the contexts of a batch have, without padding."""
    cells = batch["context_cells"][:, -1] if is_flat(batch) else batch["num_cells"]
    return int(np.sum(cells))


def position_count(batch: Mapping[str, Any]) -> int:
    """How many cells a step computes for a batch, padding included."""
    return int(np.size(batch["cells" if "cells" in batch else "is_padding"]))


class Alive:
    """Counts the positions of batches on their way, and those of them that are cells."""

    def __init__(self) -> None:
        self.cells = self.positions = 0

    def counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches as they are."""
        for batch in batches:
            self.cells += cell_count(batch)
            self.positions += position_count(batch)
            yield batch

    def share(self) -> float | None:
        """None before the first batch."""
        return self.cells / self.positions if self.positions else None


def sent_fields(batch: Mapping[str, Any]) -> list[str]:
    """The arrays of a batch that go to the device; `segment_ids` too, by which `expand.as_flat`
    knows a packed batch and refuses it."""
    if is_flat(batch):
        names = [*FLAT_INPUT_FIELDS]
    else:
        names = [*(COMPACT_INPUT_FIELDS if "cells" in batch else INPUT_FIELDS)]
        names += [name for name in ("target_indices", "segment_ids") if name in batch]
    names += [name for name in batch if name.startswith("masked_")]
    if TEXTS not in batch:
        names[names.index(TEXTS)] = TEXT_NUMBERS
    return names


def to_device(batch: Mapping[str, Any], texts: jax.Array | None = None) -> dict[str, jax.Array]:
    """The arrays that the model reads, on the device. The batch itself is left as it is.

    Args:
        texts: `Tables.texts` of its store, if the batch lists the numbers of its texts.
    """
    names = sent_fields(batch)
    arrays: dict[str, jax.Array]
    if isinstance(batch, WholeBatch):
        arrays = put_whole(batch, names)
    else:  # put together: one call of JAX takes half the time of one for each
        arrays = jax.device_put({name: batch[name] for name in names})
    if TEXT_NUMBERS in arrays:
        arrays[TEXTS] = _take_texts(texts, arrays.pop(TEXT_NUMBERS))
    return arrays


@jax.jit
def _take_texts(texts: jax.Array, numbers: jax.Array) -> jax.Array:
    """Vectors by number, from 1; 0, which becomes one that is out of bounds, has zeros.
    [V_t,T] float16, [U] uint32 → [U,T]"""
    return jnp.take(texts, numbers - 1, axis=0, mode="fill", fill_value=0)
