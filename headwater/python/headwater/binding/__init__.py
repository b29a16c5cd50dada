"""The C library, thinly: the functions of headwater.h by ctypes, with a module for each handle.

ctypes and not cffi: NumPy imports it in any case, and header.py reads the header in 4 ms of CPU,
where cffi is one more package and takes 45 ms at every start. A C compiler checks what is read
(test_binding.py).

Numbers stand for the words of the API by the dicts of constants.py. Arrays are NumPy's, read-only
for good, and keep the memory that they lie in. Nothing here decides anything.
"""

from __future__ import annotations

from headwater.binding.arrow import steady_stream
from headwater.binding.batch import Batch, batch_fields, calendar_tables
from headwater.binding.builder import Builder, TaskSpec
from headwater.binding.constants import (
    CELL_BITS,
    CONTEXT_LABELS,
    EMBEDDING_KINDS,
    FORMAT_VERSION,
    KNOWN,
    LOADS,
    SEMANTIC_TYPES,
    SPLITS,
    TIME_SHIFTS,
    VERIFIED,
    VERIFY,
)
from headwater.binding.hashing import hash64, hash_embed
from headwater.binding.library import LIBRARY, VERSION
from headwater.binding.passes import Pass
from headwater.binding.sampler import Sampler
from headwater.binding.seed_pool import SeedPool
from headwater.binding.store import Store

__all__ = [
    "CELL_BITS",
    "CONTEXT_LABELS",
    "EMBEDDING_KINDS",
    "FORMAT_VERSION",
    "KNOWN",
    "LIBRARY",
    "LOADS",
    "SEMANTIC_TYPES",
    "SPLITS",
    "TIME_SHIFTS",
    "VERIFIED",
    "VERIFY",
    "VERSION",
    "Batch",
    "Builder",
    "Pass",
    "Sampler",
    "SeedPool",
    "Store",
    "TaskSpec",
    "batch_fields",
    "calendar_tables",
    "hash64",
    "hash_embed",
    "steady_stream",
]
