"""Packing in plain Python: an unpacked batch of the same seeds in, the packed batch out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from plain_database import NEVER
from reference_batch import NONE16, NONE32, Arrays

BY_CELL = (
    "semantic_types",
    "column_ids",
    "numeric_values",
    "timestamp_values",
    "bool_values",
    "categorical_embed_ids",
    "text_embed_ids",
    "is_null",
    "is_target",
)
BY_ROW = {"row_ages": -1, "row_tables": 0, "row_depths": 0, "row_ids": NONE32}
BY_CONTEXT = {
    "is_labelled": 0,
    "obs_time": NEVER,
    "seed_index": 0,
    "anchor_rows": 0,
    "target_is_null": 1,
}
BY_BATCH = ("target_stype", "task_idx", "cat_emb_start", "cat_emb_count")


@dataclass(frozen=True)
class Place:
    """Where context k went; sequence None: nowhere."""

    sequence: int | None
    segment: int = 0
    cell: int = 0
    cells: int = 0
    row: int = 0
    rows: int = 0


def kept(starts: list[int], cells: int, rows: int, cell_room: int, row_room: int) -> int:
    """Cells that fit, if all of them or a prefix: whole rows within row_room."""
    limit = min(cells, cell_room)
    return limit if row_room >= rows else min(limit, starts[row_room])


def first_fit(contexts: Arrays, sequences: int, length: int, rows: int, most: int) -> list[Place]:
    """In order: the first sequence with room, else the one that keeps most cells, else none."""
    used: list[list[Place]] = [[] for _ in range(sequences)]
    places = []
    for k in range(int(contexts["num_sequences"][0])):
        cell_count, row_count = int(contexts["num_cells"][k]), int(contexts["num_rows"][k])
        starts = contexts["row_starts"][k].tolist()
        least = int(contexts["is_target"][k].argmax()) + 1
        best, best_kept = None, 0
        for b, inside in enumerate(used):
            room = length - sum(place.cells for place in inside)
            row_room = rows - sum(place.rows for place in inside)
            if len(inside) == most:
                continue
            if room >= cell_count and row_room >= row_count:
                best, best_kept = b, cell_count
                break
            keeps = kept(starts, cell_count, row_count, room, row_room)
            if (
                keeps >= least
                and keeps > best_kept
                and not fits_later(used[b + 1 :], cell_count, row_count, length, rows, most)
            ):
                best, best_kept = b, keeps
        if best is None:
            places.append(Place(None))
            continue
        inside = used[best]
        kept_rows = row_count
        if best_kept < cell_count:
            kept_rows = sum(start < best_kept for start in starts[:row_count])
        place = Place(
            best,
            len(inside),
            sum(other.cells for other in inside),
            best_kept,
            sum(other.rows for other in inside),
            kept_rows,
        )
        inside.append(place)
        places.append(place)
    return places


def fits_later(
    used: list[list[Place]], cells: int, context_rows: int, length: int, rows: int, most: int
) -> bool:
    return any(
        len(inside) < most
        and length - sum(place.cells for place in inside) >= cells
        and rows - sum(place.rows for place in inside) >= context_rows
        for inside in used
    )


def packed(
    contexts: Arrays, sequences: int, length: int, rows: int, most: int
) -> tuple[Arrays, list[Place]]:
    """The dense batch, with `parents` too, of `sequences` with `length` cells and `rows` rows each
    and up to `most` contexts."""
    places = first_fit(contexts, sequences, length, rows, most)
    out = blank(contexts, sequences, length, rows, most)
    for k, place in enumerate(places):
        if place.sequence is not None:
            copy_values(contexts, k, place, out)
            copy_names(contexts, k, place, out)
    out["num_sequences"][0] = (out["num_contexts"] > 0).sum()
    totals = out["num_cells"].sum(axis=1)
    for b in range(sequences):
        out["row_starts"][b, int(out["num_rows"][b].sum()) :] = totals[b]
    return out, places


def blank(contexts: Arrays, sequences: int, length: int, rows: int, most: int) -> Arrays:
    out: Arrays = {name: contexts[name].copy() for name in BY_BATCH}
    for name in ("text_batch_embeddings", "num_texts"):
        if name in contexts:
            out[name] = contexts[name].copy()
    for name in BY_CELL:
        out[name] = np.zeros((sequences, length, *contexts[name].shape[2:]), contexts[name].dtype)
    for name, value in BY_ROW.items():
        out[name] = np.full((sequences, rows), value, contexts[name].dtype)
    for name, value in BY_CONTEXT.items():
        if name in contexts:
            out[name] = np.full((sequences, most), value, contexts[name].dtype)
    if "target_values" in contexts:
        out["target_values"] = np.zeros((sequences, most, 15), np.float32)
    out["is_padding"] = np.ones((sequences, length), np.uint8)
    out["seq_row_ids"] = np.zeros((sequences, length), np.uint16)
    out["segment_ids"] = np.zeros((sequences, length), np.uint16)
    for name in ("col_perm", "out_perm"):
        out[name] = np.tile(np.arange(length, dtype=np.uint16), (sequences, 1))
    out["parents"] = np.full((sequences, rows, contexts["parents"].shape[2]), NONE16, np.uint16)
    out["fk_adj"] = np.zeros((sequences, rows, rows), np.uint8)
    out["row_starts"] = np.zeros((sequences, rows + 1), np.uint16)
    for name in ("num_cells", "num_rows"):
        out[name] = np.zeros((sequences, most), np.uint32)
    out["num_contexts"] = np.zeros(sequences, np.uint32)
    out["num_sequences"] = np.zeros(1, np.uint32)
    return out


def copy_values(contexts: Arrays, k: int, place: Place, out: Arrays) -> None:
    b = place.sequence
    cells, rows = (
        slice(place.cell, place.cell + place.cells),
        slice(place.row, place.row + place.rows),
    )
    for name in BY_CELL:
        out[name][b, cells] = contexts[name][k, : place.cells]
    for name in BY_ROW:
        out[name][b, rows] = contexts[name][k, : place.rows]
    for name in (*BY_CONTEXT, "target_values"):
        if name in contexts:
            out[name][b, place.segment] = contexts[name][k]
    out["is_padding"][b, cells] = 0
    out["segment_ids"][b, cells] = place.segment + 1
    out["num_cells"][b, place.segment] = place.cells
    out["num_rows"][b, place.segment] = place.rows
    out["num_contexts"][b] += 1


def copy_names(contexts: Arrays, k: int, place: Place, out: Arrays) -> None:
    b, there = place.sequence, range(place.rows)
    cells = slice(place.cell, place.cell + place.cells)
    out["seq_row_ids"][b, cells] = contexts["seq_row_ids"][k, : place.cells] + place.row
    for name in ("col_perm", "out_perm"):
        order = [s for s in contexts[name][k].tolist() if s < place.cells]
        out[name][b, cells] = [place.cell + s for s in order]
    for i in there:
        out["row_starts"][b, place.row + i] = place.cell + contexts["row_starts"][k, i]
        for slot, parent in enumerate(contexts["parents"][k, i].tolist()):
            if parent in there:
                out["parents"][b, place.row + i, slot] = place.row + parent
        for j in there:
            out["fk_adj"][b, place.row + i, place.row + j] = contexts["fk_adj"][k, i, j]
