"""Flat batches in plain Python: which contexts of compact batches each has, and where they lie.

Contexts are taken from compact batches of the same seeds, so that everything about their contents
is the business of other tests. Written from docs/reference/batch.md, "Flat".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from plain_database import TEXT
from reference_batch import NONE16, Arrays
from reference_compact import PADDING, TARGET

MASKED = ("numerical", "timestamp", "boolean", "categorical", "text")
BY_CELL = ("cells", "cell_columns", "cell_values", "cell_times")
BY_ROW = ("row_ages", "row_tables", "row_depths", "row_ids")
BY_CONTEXT = ("is_labelled", "target_values", "target_is_null", "obs_time", "seed_index",
              "anchor_rows")  # fmt: skip
BLANK = {"cells": PADDING, "row_ages": -1, "row_ids": 2**32 - 1}
QUESTION = ("task_idx", "target_stype", "cat_emb_start", "cat_emb_count")


# ---- contexts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Context:
    """One sequence of a compact batch. Texts stand beside as vectors, by cell and masked cell."""

    arrays: Arrays
    target: int | None
    texts: dict[int, bytes]  # by position: of cells of type text
    masked: dict[str, tuple[Any, Any, Any]]  # by type: positions, values, whether they are NULL

    @property
    def cells(self) -> int:
        return len(self.arrays["cells"])

    @property
    def rows(self) -> int:
        return len(self.arrays["row_starts"]) - 1

    @property
    def seed(self) -> int:
        return int(self.arrays["seed_index"])

    def kept(self, cells: int, rows: int) -> tuple[int, int]:
        """Cells and rows of whole rows within a limit."""
        starts = self.arrays["row_starts"]
        rows = min(self.rows, rows)
        while rows and starts[rows] > cells:
            rows -= 1
        return int(starts[rows]), rows


def vectors_of(batch: Arrays, values: Any) -> list[bytes]:
    """What the text ids of a batch stand for; their numbers if the caller has the vectors."""
    if "text_numbers" in batch:
        values = [batch["text_numbers"][value] for value in values]
    if "text_batch_embeddings" not in batch:
        return [int(value).to_bytes(4, "little") for value in values]
    return [batch["text_batch_embeddings"][value].tobytes() for value in values]


def contexts_in(batch: Arrays) -> list[Context]:
    """Those of a compact batch that count."""
    return [context_at(batch, b) for b in range(int(batch["num_sequences"][0]))]


def context_at(batch: Arrays, b: int) -> Context:
    count, rows = int(batch["num_cells"][b]), int(batch["num_rows"][b])
    arrays = {name: batch[name][b, :count] for name in BY_CELL}
    arrays |= {name: batch[name][b, :rows] for name in (*BY_ROW, "parents") if name in batch}
    arrays |= {name: batch[name][b] for name in BY_CONTEXT if name in batch}
    arrays["row_starts"] = batch["row_starts"][b, : rows + 1]
    at = np.flatnonzero(arrays["cells"] & 7 == TEXT)
    texts = dict(zip(at.tolist(), vectors_of(batch, arrays["cell_values"][at]), strict=True))
    arrays["cell_values"] = np.where(arrays["cells"] & 7 == TEXT, 0, arrays["cell_values"])
    return Context(arrays, target_in(batch, b, arrays["cells"]), texts, masked_in(batch, b))


def target_in(batch: Arrays, b: int, cells: Any) -> int | None:
    """Where the task's target stands."""
    if batch["target_stype"][0] == 255:
        return None
    if "target_indices" in batch:
        return int(batch["target_indices"][b])
    (at,) = np.flatnonzero(cells & TARGET)
    return int(at)


def masked_in(batch: Arrays, b: int) -> dict[str, tuple[Any, Any, Any]]:
    found = {}
    for kind in MASKED if "masked_text_indices" in batch else ():
        indices, values, nulls = (
            batch[f"masked_{kind}_{part}"][b] for part in ("indices", "values", "is_null")
        )
        count = int((indices >= 0).sum())
        listed: Any = values[:count]
        if kind == "text":
            listed = vectors_of(batch, listed)
        found[kind] = indices[:count], listed, nulls[:count]
    return found


# ---- blocks ------------------------------------------------------------------------------------


def blocks(seed_count: int, step: int, level_block: int, epochs: int) -> Iterator[range]:
    """The batches of each block, as numbers of a task's batches. An epoch's are those that begin in
    it, in as many blocks as come nearest to level_block batches each."""
    for epoch in range(epochs):
        first = -(-epoch * seed_count // step)
        count = -(-(epoch + 1) * seed_count // step) - first
        parts = max(1, (count + level_block // 2) // level_block)
        for part in range(parts if count else 0):
            yield range(first + count * part // parts, first + count * (part + 1) // parts)


@dataclass
class Member:
    """A context of a block, and how much of it a batch keeps."""

    place: int
    cells: int
    rows: int


@dataclass(frozen=True)
class Bounds:
    """Cells and rows: of a batch over all ranks, and of a rank's part."""

    step: tuple[int, int]
    part: tuple[int, int]


def dealt(members: list[Member], groups: int, each: int) -> list[list[Member]]:
    """Longest first to the emptiest group with a place left; each in the order of places."""
    made: list[list[Member]] = [[] for _ in range(groups)]
    for member in sorted(members, key=lambda m: -m.cells):  # stable
        with_place = [group for group in made if len(group) < each]
        min(with_place, key=lambda group: sum(m.cells for m in group)).append(member)
    return [[m for m in members if m in group] for group in made]


def cut(members: list[Member], most: int, name: str) -> None:
    """The longest lose what there is no room for, the last of equal ones first, half at most."""
    while (excess := sum(getattr(m, name) for m in members) - most) > 0:
        longest = max(reversed(members), key=lambda m: int(getattr(m, name)))
        size = getattr(longest, name)
        setattr(longest, name, size - min(excess, (size + 1) // 2))


def levelled(
    lengths: Sequence[tuple[int, int]], batches: int, ranks: int, bounds: Bounds
) -> list[list[list[Member]]]:
    """By batch and rank, the contexts of a block."""
    each = len(lengths) // batches // ranks
    members = [Member(i, *length) for i, length in enumerate(lengths)]
    made = []
    for batch in dealt(members, batches, ranks * each):
        for number, name in enumerate(("cells", "rows")):
            cut(batch, bounds.step[number], name)
        parts = dealt(batch, ranks, each) if ranks > 1 else [batch]
        for part in parts:
            for number, name in enumerate(("cells", "rows")):
                cut(part, bounds.part[number], name)
        made.append(parts)
    return made


# ---- passes ------------------------------------------------------------------------------------


def filled(contexts: Sequence[Context], most: int, cells: int, rows: int) -> list[list[Context]]:
    """Batches of a pass: in order, as many as have room. At least one, which may be empty."""
    made: list[list[Context]] = [[]]
    for context in contexts:
        last = made[-1]
        if last and (
            len(last) == most
            or sum(c.cells for c in last) + context.cells > cells
            or sum(c.rows for c in last) + context.rows > rows
        ):
            made.append([])
        made[-1].append(context)
    return made


# ---- one batch ---------------------------------------------------------------------------------


@dataclass
class Flat:
    """A batch as it must be. Texts stand beside: by position, and by masked text of a context."""

    arrays: Arrays
    texts: dict[int, bytes] = field(default_factory=dict)
    masked_texts: dict[tuple[int, int], bytes] = field(default_factory=dict)
    contexts_cut: int = 0
    cells_cut: int = 0


def laid_out(
    contexts: Sequence[tuple[Context, int, int]], blank: Arrays, places: int, cells: int, rows: int
) -> Flat:
    """The flat batch of contexts, each with the cells and rows that it may have.

    blank: a compact batch with an empty sequence behind, for names, dtypes and M; its question
    is that of the batch.
    """
    sizes = {name: cells for name in BY_CELL} | {name: rows for name in BY_ROW}
    arrays = {
        name: np.full((1, size), BLANK.get(name, 0), blank[name].dtype)
        for name, size in sizes.items()
        if name in blank
    }
    slots = blank["parents"].shape[2]
    arrays["parents"] = np.full((1, rows, slots), NONE16, np.uint16)
    arrays["row_starts"] = np.zeros((1, rows + 1), np.uint32)
    for name in ("context_cells", "context_rows"):
        arrays[name] = np.zeros((1, places + 1), np.int32)
    arrays["context_targets"] = np.full((1, places), -1, np.int32)
    arrays["num_contexts"] = np.array([len(contexts)], np.uint32)
    for name in blank:
        if name in BY_CONTEXT or name.startswith("masked_"):
            arrays[name] = np.array([blank[name][-1]] * places, blank[name].dtype)
        elif name in QUESTION:
            arrays[name] = blank[name]
    flat = Flat(arrays)
    for k in range(places):
        if k < len(contexts):
            context, most_cells, most_rows = contexts[k]
            add(flat, k, context, *context.kept(most_cells, most_rows))
        for name in ("context_cells", "context_rows"):
            arrays[name][0, k + 1] = max(arrays[name][0, k + 1], arrays[name][0, k])
    arrays["row_starts"][0, arrays["context_rows"][0, -1] :] = arrays["context_cells"][0, -1]
    return flat


def add(flat: Flat, k: int, context: Context, cells: int, rows: int) -> None:
    arrays, own = flat.arrays, context.arrays
    cell, row = int(arrays["context_cells"][0, k]), int(arrays["context_rows"][0, k])
    for name in BY_CELL:
        arrays[name][0, cell : cell + cells] = own[name][:cells]
    for name in (n for n in BY_ROW if n in own):
        arrays[name][0, row : row + rows] = own[name][:rows]
    parents = own["parents"][:rows]
    arrays["parents"][0, row : row + rows] = np.where(parents < rows, parents, NONE16)
    arrays["row_starts"][0, row : row + rows] = own["row_starts"][:rows].astype(np.uint32) + cell
    arrays["context_cells"][0, k + 1], arrays["context_rows"][0, k + 1] = cell + cells, row + rows
    for name in (n for n in BY_CONTEXT if n in own):
        arrays[name][k] = own[name]
    if context.target is not None and context.target < cells:
        arrays["context_targets"][0, k] = cell + context.target
    else:
        arrays["is_labelled"][k] = 0
    flat.texts |= {cell + at: text for at, text in context.texts.items() if at < cells}
    flat.contexts_cut += cells < context.cells
    flat.cells_cut += context.cells - cells
    for kind, (indices, values, nulls) in context.masked.items():
        for i in range(int((indices < cells).sum())):
            arrays[f"masked_{kind}_indices"][k, i] = indices[i] + cell
            arrays[f"masked_{kind}_is_null"][k, i] = nulls[i]
            if kind == "text":
                flat.masked_texts[k, i] = values[i]
            else:
                arrays[f"masked_{kind}_values"][k, i] = values[i]


def flat_difference(expected: Flat, got: Arrays) -> str | None:
    """The first thing that is not bit for bit as expected; None: all is."""
    is_text = got["cells"] & 7 == TEXT
    texts = vectors_of(got, got["cell_values"][is_text])
    at = np.flatnonzero(is_text[0]).tolist()
    if dict(zip(at, texts, strict=True)) != expected.texts:
        return "texts of cells"
    if "masked_text_values" in got:
        places = [(int(k), int(i)) for k, i in np.argwhere(got["masked_text_indices"] >= 0)]
        values = vectors_of(got, [got["masked_text_values"][place] for place in places])
        if dict(zip(places, values, strict=True)) != expected.masked_texts:
            return "texts of masked cells"
    without = {"cell_values": np.where(is_text, 0, got["cell_values"])}
    beside = {"text_batch_embeddings", "text_numbers", "num_texts", "masked_text_values"}
    named = set(got) - beside, set(expected.arrays) - beside
    if named[0] != named[1]:
        return f"arrays {named[0] ^ named[1]} are in one of them"
    for name in sorted(named[0]):
        one, other = expected.arrays[name], without.get(name, got[name])
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{name} is {other.dtype}{other.shape}, expected {one.dtype}{one.shape}"
        if one.tobytes() != other.tobytes():
            return f"{name} is {other.tolist()}, expected {one.tolist()}"
    return None
