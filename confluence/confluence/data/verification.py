"""Stores are verified once for each thing that a user asks for: when a training, an evaluation or a
prediction begins, before anything is read of them. Inside they are opened without another look, so
that with `verify="header"` nothing is read, and without a place to remember it nothing twice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import headwater
from headwater import binding
from headwater.store import verified
from headwater.store.store import word

from confluence.ranks.group import current


def check_stores(paths: Iterable[str], verify: str) -> None:
    """Raise headwater.StoreError, with file and byte, where a store is damaged.

    Args:
        verify: "once", "header" or "full", as of `headwater.Store`. Of ranks on one machine one
            reads, and the others wait.
    """
    how = word("verify", verify, binding.VERIFY)
    for path in dict.fromkeys(paths):
        if not Path(path).exists():
            raise headwater.StoreError(
                f"the store '{path}' is not there; a pack that was made from it has what training"
                " takes (--prebatched), and nothing else: say where the store is"
            )
        with open_store(path) as store:
            verified.check_files(store.core, path, how, current().still)


def open_store(path: str) -> headwater.Store:
    """Open a store of a run that `check_stores` has seen, or that is only described."""
    return headwater.Store(path, verify="header")
