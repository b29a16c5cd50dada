"""hw_builder: rows to a store. One thread at a time uses a builder; a second one is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer, string_at
from dataclasses import dataclass
from threading import Lock
from typing import Any, SupportsIndex

import numpy as np

from headwater.binding.arrow import ArrowStream, Stream
from headwater.binding.conversions import UINT32_MAX, path, text, u32, u64, words
from headwater.binding.library import Handle, as_dict, call, filled, lib


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task as `Builder.add_task` declares it: hw_task_spec."""

    name: str
    anchor_table: int
    target_column: int | None  # None: a derived task
    target_name: str
    target_stype: int
    categories: list[str]
    hidden: Sequence[int]
    exclusive: bool
    given_split: bool
    context_labels: int
    label_times: bool = False


class Builder:
    """Rows to a store: declare, write, finish, publish. One thread at a time."""

    def __init__(
        self, directory: str | os.PathLike[str], *, name: str, stats_until_us: SupportsIndex
    ) -> None:
        """Creates `directory`, which must not exist, for the files of the build."""
        handle = Handle(lib.hw_builder_close)
        options = filled("hw_builder_options", name=name, stats_until_us=stats_until_us)
        call(lib.hw_builder_open, path(directory), byref(options), byref(handle.out))
        self._handle: Handle | None = handle
        self._in_use = Lock()
        self._text_dim = 0

    def close(self) -> None:
        """Closes; removes the directory unless it was finished or published."""
        self._check_unused()
        with self._in_use:
            handle, self._handle = self._handle, None
            if handle is not None:
                handle.close()

    def _check_unused(self) -> None:
        # Threads that pass here at once take turns with the lock.
        if self._in_use.locked():
            raise RuntimeError("another thread is using the builder")

    def _open_handle(self) -> Handle:
        if self._handle is None:
            raise ValueError("the builder is closed")
        return self._handle

    def _call(self, function: Any, *arguments: Any) -> None:
        self._check_unused()
        with self._in_use:
            call(function, self._open_handle(), *arguments)

    def _add(self, function: Any, *arguments: Any) -> int:
        """Declare something; its number."""
        number = c_uint32()
        self._call(function, *arguments, byref(number))
        return number.value

    # ---- declarations ------------------------------------------------------------------------

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
        spec = filled(
            "hw_table_spec",
            name=name,
            key_part_count=key_part_count,
            temporal=temporal,
            null_time_visible=null_time_visible,
            days=days,
        )
        return self._add(lib.hw_builder_add_table, byref(spec))

    def add_column(
        self,
        table: SupportsIndex,
        name: str,
        *,
        stype: SupportsIndex,
        known_column: SupportsIndex | None = None,
        **more: Any,
    ) -> int:
        """Declares a column, with more members of hw_column_spec; its global number."""
        known = UINT32_MAX if known_column is None else known_column
        spec = filled("hw_column_spec", name=name, stype=stype, known_column=known, **more)
        return self._add(lib.hw_builder_add_column, u32(table), byref(spec))

    def add_key(
        self, child_table: SupportsIndex, parent_table: SupportsIndex, columns: Sequence[int], /
    ) -> int:
        """Declares a foreign key over global columns of the child; its global number."""
        spec = filled(
            "hw_key_spec",
            child_table=child_table,
            parent_table=parent_table,
            columns=columns,
            column_count=len(columns),
        )
        return self._add(lib.hw_builder_add_key, byref(spec))

    def add_task(self, task: TaskSpec, /) -> int:
        """Declares a task; its number."""
        given = vars(task) | {
            "target_column": UINT32_MAX if task.target_column is None else task.target_column,
            "category_count": len(task.categories),
            "hidden_count": len(task.hidden),
        }
        return self._add(lib.hw_builder_add_task, byref(filled("hw_task_spec", **given)))

    def set_categories(self, column: SupportsIndex, categories: list[str], /) -> None:
        """Categories of a categorical column, before its rows."""
        function = lib.hw_builder_set_categories
        self._call(function, u32(column), words(categories), len(categories))

    # ---- streams -----------------------------------------------------------------------------

    def _write(
        self, function: Any, number: SupportsIndex, given: ArrowStream | object, *more: Any
    ) -> None:
        """Write a stream, and release it: a producer may have only one open at a time."""
        index = u32(number)
        self._open_handle()
        self._check_unused()
        stream = Stream(given)
        self._check_unused()  # the exporter ran code of Python
        try:
            self._call(function, index, stream.address, *more)
        finally:
            stream.release()

    def write_rows(self, table: SupportsIndex, stream: ArrowStream | object, /) -> None:
        """Rows of a table: an Arrow C stream capsule or anything with __arrow_c_stream__.

        Columns: [time int64 us] if temporal, one utf8 per key part, then per stored column bool
        (identifier: true where present), float64, int64 us, bool, utf8 category or utf8 text.
        """
        self._write(lib.hw_builder_write_rows, table, stream)

    def write_edges(
        self, key: SupportsIndex, stream: ArrowStream | object, null_count: SupportsIndex, /
    ) -> int:
        """Parents of a foreign key as pairs (child, parent) of rows within their tables, in any
        order; null_count rows have a NULL key, the other rows without a pair dangle. Their
        number."""
        count = c_uint64()
        self._write(lib.hw_builder_write_edges, key, stream, u64(null_count), byref(count))
        return count.value

    def write_seeds(self, task: SupportsIndex, stream: ArrowStream | object, /) -> None:
        """Seeds of a task, sorted: anchor, obs_time int64 us, target, labelled bool, split int32,
        position."""
        self._write(lib.hw_builder_write_seeds, task, stream)

    # ---- statistics and texts ----------------------------------------------------------------

    def seed_splits(self, task: SupportsIndex, /) -> tuple[int, int, int]:
        """Seeds of train, val and test; dealt by hash with the defaults."""
        counts = (c_uint64 * 3)()
        self._call(lib.hw_builder_seed_splits, u32(task), counts)
        train, val, test = counts
        return train, val, test

    def column_stats(self, column: SupportsIndex, /) -> dict[str, int | float]:
        """value_count, null_count, mean, std, min, max, min_us, max_us, true_count,
        category_start, category_count."""
        stats = filled("hw_column_stats")
        self._call(lib.hw_builder_column_stats, u32(column), byref(stats))
        return as_dict(stats)

    def text_count(self) -> int:
        """Distinct texts so far."""
        self._check_unused()
        with self._in_use:
            return int(lib.hw_builder_text_count(self._open_handle()))

    def texts(self, lo: SupportsIndex, hi: SupportsIndex, /) -> list[str]:
        """Texts lo to hi, hi excluded."""
        found, start, size = [], c_void_p(), c_size_t()
        self._check_unused()
        with self._in_use:
            handle = self._open_handle()
            for number in range(u32(lo), u32(hi)):
                call(lib.hw_builder_text, handle, number, byref(start), byref(size))
                found.append(string_at(start.value or 0, size.value).decode("utf-8", "replace"))
        return found

    def set_embedder(self, name: str, dim: SupportsIndex, /) -> None:
        """The embedder's name and width, before any vector. `finish` makes the vectors of `hash`
        that are not written."""
        self._call(lib.hw_builder_set_embedder, text(name), u32(dim))
        self._text_dim = u32(dim)

    def write_vectors(self, kind: SupportsIndex, vectors: Any, /) -> None:
        """Appends float16 vectors [count, dim] of an embedding kind: an array or a buffer, which
        is not copied."""
        array = np.asarray(vectors)
        is_fit = array.dtype == np.float16 and array.ndim == 2 and array.flags.c_contiguous
        if not is_fit or array.shape[1] != self._text_dim:
            raise ValueError(f"expected float16 vectors [count, {self._text_dim}]")
        function = lib.hw_builder_write_vectors
        self._call(function, u32(kind), array.ctypes.data, array.shape[0])

    # ---- finish ------------------------------------------------------------------------------

    def finish(self, metadata: bytes | None = None, /) -> str:
        """Writes what is left, with metadata.json (None: the library's own); the fingerprint."""
        fingerprint = create_string_buffer(33)
        self._call(lib.hw_builder_finish, metadata, len(metadata or b""), fingerprint)
        return fingerprint.value.decode()

    def publish(self, store_path: str | os.PathLike[str], /) -> None:
        """Moves the finished build into the store and points its manifest at it."""
        self._call(lib.hw_builder_publish, path(store_path))
