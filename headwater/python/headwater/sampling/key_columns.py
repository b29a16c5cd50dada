"""Columns of foreign keys: what counts of children are called, and which cells are never masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater import binding
from headwater.store.store import column_numbers

CHILD_COUNT_PHRASES = ("count of children", "age of last child", "age of first child")


def child_count_embeddings(
    metadata: Mapping[str, Any], columns: NDArray[np.float16]
) -> NDArray[np.float16]:
    """Of each foreign key's counts: its first column's, and what is counted, in equal parts.

    columns: float16 [C, D_t]. Result: float16 [3 K, D_t] for K foreign keys."""
    keys = _first_columns_of_keys(metadata)
    phrases = binding.hash_embed(list(CHILD_COUNT_PHRASES), columns.shape[1])
    both = columns[keys].astype(np.float32)[:, None] + phrases.astype(np.float32)[None]
    half: NDArray[np.float16] = (both / np.float32(2) ** 0.5).astype(np.float16)
    return half.reshape(-1, columns.shape[1])


def _first_columns_of_keys(metadata: Mapping[str, Any]) -> list[int]:
    """The global column that begins each foreign key, in the order of the store's keys."""
    found = []
    for table in metadata["tables"]:
        numbers = column_numbers(metadata, table)
        found += [numbers[key["columns"][0]] for key in table["foreign_keys"]]
    return found


def referenced_columns(metadata: Mapping[str, Any]) -> list[int]:
    """Global columns that foreign keys refer to: their values stand in the referring rows too."""
    by_table = {table["name"]: column_numbers(metadata, table) for table in metadata["tables"]}
    found = set()
    for table in metadata["tables"]:
        for key in table["foreign_keys"]:
            numbers = by_table[key["references"]["table"]]
            found |= {numbers[name] for name in key["references"]["columns"] if name in numbers}
    return sorted(found)
