"""Stores are verified once for each thing that a user asks for: when a training, an evaluation or a
prediction begins, before anything is read of them. The open stores are then handed on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import headwater

from confluence.ranks.group import current


def verified_stores(paths: Iterable[str], verify: str) -> dict[str, headwater.Store]:
    """Open each of some stores once, by path; headwater.StoreError, with file and byte, if one is
    damaged. The maps go with the last that uses a store.

    Args:
        verify: "once", "header" or "full", as of `headwater.Store`. Of ranks on one machine one
            reads, and the others wait.
    """
    stores = {}
    for path in dict.fromkeys(paths):
        if not Path(path).exists():
            raise headwater.StoreError(
                f"the store '{path}' is not there; a pack that was made from it has what training"
                " takes (--prebatched), and nothing else: say where the store is"
            )
        stores[path] = open_store(path)
        stores[path].check_files(verify, current().still)
    return stores


def open_store(path: str | Path) -> headwater.Store:
    """Open a store that need not be verified again, or that is only described."""
    return headwater.Store(path, verify="header")
