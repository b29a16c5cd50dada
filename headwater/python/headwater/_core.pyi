"""The C library, thinly: what headwater.h says, with the GIL released around everything that works.

Numbers stand for the words of the API by the dicts below. Arrays leave as `Array`, a read-only
buffer that keeps the memory alive; `numpy.asarray` makes a view of it.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Final, Protocol, SupportsIndex, final

from _typeshed import ReadableBuffer

class _ArrowStream(Protocol):
    @property
    def __arrow_c_stream__(self) -> Callable[..., object]: ...

VERSION: Final[str]
FORMAT_VERSION: Final[int]
SEMANTIC_TYPES: Final[dict[str, int]]
SPLITS: Final[dict[str, int]]
KNOWN: Final[dict[str, int]]
CONTEXT_LABELS: Final[dict[str, int]]
CHILD_ORDERS: Final[dict[str, int]]
CHILD_WIDTH_PER: Final[dict[str, int]]
IDENTIFIER_CELLS: Final[dict[str, int]]
OBJECTIVES: Final[dict[str, int]]
TASK_ORDERS: Final[dict[str, int]]
LAYOUTS: Final[dict[str, int]]
TARGETS: Final[dict[str, int]]
TEXT_MODES: Final[dict[str, int]]
LOADS: Final[dict[str, int]]
VERIFY: Final[dict[str, int]]
VERIFIED: Final[dict[str, int]]
EMBEDDING_KINDS: Final[dict[str, int]]
CELL_BITS: Final[dict[str, int]]
TIME_SHIFTS: Final[dict[str, int]]

def pack_rows(
    rows: Iterable[tuple[Any, ...]], kinds: str, limit: SupportsIndex, /
) -> tuple[object, int, bytes]:
    """Up to `limit` rows of int, float, str, bytes and None as an Arrow C stream (a capsule), their
    number (fewer at the end, or where texts are long), and the kind of each column.

    kinds: one letter per column, what is known of it: '?' only NULL so far, 'l' int64, 'g' float64,
    'u' str, 'x' bytes, which become hexadecimal text. In the answer '!' marks a column whose values
    have no kind in common; then the stream is of no use. Integers up to 2^53 and floats have 'g' in
    common, as long as no earlier call said 'l'.
    """

def steady_stream(stream: _ArrowStream | object, /) -> object:
    """The rest of an Arrow C stream as a new one (a capsule) that stays failed once it failed: a
    reader with several threads asks again, and what a producer then says is not why it failed.
    The stream given is taken over and was read then."""

def hash64(data: ReadableBuffer, seed: SupportsIndex = 0, /) -> int:
    """XXH64 of the bytes."""

def hash_embed(texts: list[str], dim: SupportsIndex, /) -> Array:
    """Vectors of the `hash` embedder, float16 [len(texts), dim]."""

def batch_fields() -> list[tuple[str, str, tuple[str, ...], bool, str | None, str]]:
    """The batch format: (name, dtype, dims, info, when, meaning) per array."""

def calendar_tables() -> dict[str, Array]:
    """float32 (sin, cos) pairs of the cyclic parts of a timestamp: sixtieths [60, 2], hours
    [24, 2], weekdays [7, 2], and dates [732, 6] by day of year + 366 in a leap year."""

@final
class Array:
    """A read-only buffer with a shape and a format; use numpy.asarray on it."""

    if sys.version_info >= (3, 12):  # earlier, a buffer has no name for it
        def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Builder:
    """Rows to a store: declare, write, finish, publish. One thread at a time."""

    def __new__(
        cls,
        directory: str | PathLike[str],
        *,
        name: str,
        stats_until_us: SupportsIndex,
    ) -> Builder:
        """Creates `directory`, which must not exist, for the files of the build."""

    def add_table(
        self,
        name: str,
        *,
        key_part_count: SupportsIndex = 0,
        temporal: bool = False,
        null_time_visible: bool = False,
        days: bool = False,
    ) -> int:
        """Declares a table; its number."""

    def add_column(
        self,
        table: SupportsIndex,
        name: str,
        *,
        stype: SupportsIndex,
        known: SupportsIndex = 0,
        known_column: SupportsIndex | None = None,
        known_offset_us: SupportsIndex = 0,
        temporal: bool = False,
        stored: bool = False,
    ) -> int:
        """Declares a column; its global number."""

    def add_key(
        self, child_table: SupportsIndex, parent_table: SupportsIndex, columns: Sequence[int], /
    ) -> int:
        """Declares a foreign key over global columns of the child; its global number."""

    def add_task(
        self,
        name: str,
        *,
        anchor_table: SupportsIndex,
        target_column: SupportsIndex | None,
        target_name: str,
        target_stype: SupportsIndex,
        categories: list[str],
        hidden: Sequence[int],
        exclusive: bool,
        given_split: bool,
        context_labels: SupportsIndex,
        label_times: bool = False,
    ) -> int:
        """Declares a task; its number. target_column None: a derived task."""

    def set_categories(self, column: SupportsIndex, categories: list[str], /) -> None:
        """Categories of a categorical column, before its rows."""

    def write_rows(self, table: SupportsIndex, stream: _ArrowStream | object, /) -> None:
        """Rows of a table: an Arrow C stream capsule or anything with __arrow_c_stream__.

        Columns: [time int64 us] if temporal, one utf8 per key part, then per stored column bool
        (identifier: true where present), float64, int64 us, bool, utf8 category or utf8 text.
        """

    def write_edges(
        self, key: SupportsIndex, stream: _ArrowStream | object, null_count: SupportsIndex, /
    ) -> int:
        """Parents of a foreign key as pairs (child, parent) of rows within their tables, in any
        order; null_count rows have a NULL key, the other rows without a pair dangle. Their
        number."""

    def write_seeds(self, task: SupportsIndex, stream: _ArrowStream | object, /) -> None:
        """Seeds of a task, sorted: anchor, obs_time int64 us, target, labelled bool, split int32,
        position."""

    def seed_splits(self, task: SupportsIndex, /) -> tuple[int, int, int]:
        """Seeds of train, val and test; dealt by hash with the defaults."""

    def column_stats(self, column: SupportsIndex, /) -> dict[str, int | float]:
        """value_count, null_count, mean, std, min, max, min_us, max_us, true_count,
        category_start, category_count."""

    def text_count(self) -> int:
        """Distinct texts so far."""

    def texts(self, lo: SupportsIndex, hi: SupportsIndex, /) -> list[str]:
        """Texts lo to hi, hi excluded."""

    def set_embedder(self, name: str, dim: SupportsIndex, /) -> None:
        """The embedder's name and width, before any vector."""

    def write_vectors(self, kind: SupportsIndex, vectors: ReadableBuffer, /) -> None:
        """Appends float16 vectors [count, dim] of an embedding kind."""

    def hash_texts(self) -> None:
        """Embeds every text with the `hash` embedder, in C."""

    def finish(self, metadata: ReadableBuffer, /) -> str:
        """Writes what is left, with metadata.json; the fingerprint."""

    def publish(self, store_path: str | PathLike[str], /) -> None:
        """Moves the finished build into the store and points its manifest at it."""

    def close(self) -> None:
        """Closes; removes the directory unless it was finished or published."""

@final
class Store:
    """An open store. Arrays over it keep the map alive after close()."""

    def __new__(cls, path: str | PathLike[str], load: SupportsIndex = 0) -> Store: ...
    def counts(self) -> dict[str, int]:
        """table_count, column_count, key_count, task_count, row_count, category_count, text_count,
        text_dim."""

    def fingerprint(self) -> str:
        """32 hex digits over the contents."""

    def directory(self) -> str:
        """Directory of the build that is open."""

    def verify(self) -> list[str]:
        """Every fault in the contents; [] if sound."""

    def identity(self) -> str:
        """32 hex digits of this build in these very files."""

    def check_files(
        self,
        verify: SupportsIndex,
        folder: str | PathLike[str] | None,
        progress: Callable[[int, int], object],
        /,
    ) -> tuple[int, str]:
        """How it was verified (VERIFIED), and why that is not remembered, or ''."""

    def warm_up(self, threads: SupportsIndex, /) -> None:
        """Reads every page once."""

    def row_table(self, row: SupportsIndex, /) -> int:
        """Table of a global row."""

    def row_time(self, row: SupportsIndex, /) -> int:
        """Microseconds; INT64_MAX or INT64_MIN where the row has no time."""

    def cell(
        self, row: SupportsIndex, column: SupportsIndex, /
    ) -> tuple[int, bool, float, int, int]:
        """(stype, is_null, number, time_us, index) of a row in a global column of its table."""

    def parent(self, row: SupportsIndex, key: SupportsIndex, /) -> int | None:
        """Parent by foreign key."""

    def children(self, row: SupportsIndex, key: SupportsIndex, /) -> Array:
        """uint32 [n]: global rows that point at `row` by the key, oldest first."""

    def row_key(self, row: SupportsIndex, /) -> tuple[str, ...]:
        """Primary key of a row."""

    def find(self, table: SupportsIndex, parts: list[str], /) -> int | None:
        """Global row of a primary key, by its canonical texts."""

    def text(self, index: SupportsIndex, /) -> str:
        """Text of a text cell."""

    def vectors(self, kind: SupportsIndex, /) -> Array:
        """float16 [count, text_dim]: the embeddings of a kind."""

    def seeds(self, task: SupportsIndex, /) -> dict[str, Array]:
        """anchors uint32, obs_times int64, targets uint64 (float64 bits, us, 0/1 or index in the
        block), states uint8 (label state | split << 4), key_hashes uint64, positions uint32, and
        label_times int64 where the task says when labels are known; all [seeds]."""

    def edges(self, key: SupportsIndex, /) -> tuple[Array, Array, Array]:
        """starts uint64 [parent rows + 1], child rows uint32 [n], when visible int64 us [n]."""

    def column(self, column: SupportsIndex, /) -> tuple[Array, Array]:
        """Cells as numbers float64 [rows], when known int64 us [rows], of a table's column."""

    def close(self) -> None:
        """Drops the map; arrays over it keep it alive."""

@final
class Batch:
    """The memory of one batch."""

    def tensors(self) -> list[tuple[str, bool, Array]]:
        """(name, info, array) per array, in the order of batch_fields()."""

@final
class Sampler:
    """A store to batches. Any thread."""

    def __new__(
        cls,
        store: Store,
        *,
        rank: SupportsIndex,
        world_size: SupportsIndex,
        split_ratios: tuple[float, float, float],
        split_seed: SupportsIndex,
        seed: SupportsIndex,
        batch_size: SupportsIndex,
        sequence_length: SupportsIndex,
        max_rows: SupportsIndex,
        child_width: SupportsIndex,
        max_hops: SupportsIndex,
        width_scope: SupportsIndex,
        child_order: SupportsIndex,
        identifier_cells: SupportsIndex,
        context_labels: SupportsIndex,
        targets: SupportsIndex,
        task_order: SupportsIndex,
        tasks: Sequence[int] | None,
        task_weights: Sequence[float] | None,
        visible_until: tuple[SupportsIndex, SupportsIndex, SupportsIndex],
        num_threads: SupportsIndex,
        num_prefetch: SupportsIndex,
        num_prefetch_val: SupportsIndex,
        text_budget: SupportsIndex,
        with_rows: bool,
        layout: SupportsIndex = 0,
        text_mode: SupportsIndex = 0,
        attention_masks: bool = False,
        packing: bool = False,
        contexts_per_batch: SupportsIndex = 0,
        staleness: tuple[float, float] = (0, 0),
        child_counts: bool = False,
        label_rows: SupportsIndex = 0,
        time_split: tuple[SupportsIndex, SupportsIndex] | None = None,
        objective: SupportsIndex = 0,
        mask_ratio: float = 0,
        seed_tables: Sequence[int] | None = None,
        max_targets_per_type: SupportsIndex = 0,
        never_masked: Sequence[int] | None = None,
        train_on_val: bool = False,
        peer_labels: SupportsIndex = 0,
        database_age: bool = False,
    ) -> Sampler: ...
    def next(self, split: SupportsIndex, timeout: float | None, /) -> Batch:
        """Next batch of the stream of train or val."""

    def batch(self, split: SupportsIndex, k: SupportsIndex, /) -> Batch:
        """Batch k of a split's stream."""

    def shape(self) -> dict[str, int]:
        """batch_size, sequence_length, max_rows, text_budget, text_dim, parent_slots,
        contexts_per_batch, contexts_per_sequence, max_targets_per_type."""

    def seed_count(self, split: SupportsIndex, task: SupportsIndex, /) -> int:
        """Seeds of a (split, task) over all ranks."""

    def splits(self, task: SupportsIndex, seed_count: SupportsIndex, /) -> Array:
        """uint8 [seed_count]: the split of every seed of the task."""

    def column_scale(self, column: SupportsIndex, /) -> tuple[float, float]:
        """Mean and deviation by which a column of a table is shown; times in µs."""

    def target_stats(self, task: SupportsIndex, /) -> dict[str, int | float]:
        """train_count, null_count, mean, std, column_mean, column_std."""

    def get_position(self, split: SupportsIndex, /) -> tuple[list[int], int]:
        """Global positions consumed by task of the store, and batches."""

    def set_position(
        self, split: SupportsIndex, positions: list[int], batches: SupportsIndex, /
    ) -> None:
        """Continues a stream from there; drops what was prefetched."""

    def stats(self) -> dict[str, int]:
        """The counters of hw_sampler_stats."""

    def shutdown(self) -> None:
        """Ends production; idempotent, any thread."""

@final
class Pass:
    """A finite run over the seeds of a split, or over given anchors."""

    def __new__(
        cls,
        sampler: Sampler,
        split: SupportsIndex,
        task: SupportsIndex,
        index: SupportsIndex,
        anchors: Sequence[int] | None = None,
        obs_times: Sequence[int] | None = None,
    ) -> Pass: ...
    def next(self, timeout: float | None, /) -> Batch | None:
        """None at the end."""

    def batch_count(self) -> int:
        """Batches of the whole pass on this rank."""

    def close(self) -> None:
        """Drops what is queued; idempotent."""
