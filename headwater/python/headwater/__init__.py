"""headwater: from a relational database to batches of contexts.

`infer` drafts a schema from a source, `build` writes a store, `Sampler` makes batches from it, and
`Store` shows what is in it.
"""

from __future__ import annotations

from . import _core
from .batch import BATCH_FIELDS, Batch, BatchField
from .build import build
from .errors import (
    HeadwaterError,
    SamplerShutdown,
    SchemaError,
    SourceError,
    StoreError,
    TaskError,
)
from .expand import calendar_tables, expand
from .infer import infer
from .report import BuildReport
from .sampler import Epoch, Sampler
from .schema import Schema
from .store import SemanticType, Store

__version__ = _core.VERSION

__all__ = [
    "BATCH_FIELDS",
    "Batch",
    "BatchField",
    "BuildReport",
    "Epoch",
    "HeadwaterError",
    "Sampler",
    "SamplerShutdown",
    "Schema",
    "SchemaError",
    "SemanticType",
    "SourceError",
    "Store",
    "StoreError",
    "TaskError",
    "__version__",
    "build",
    "calendar_tables",
    "expand",
    "infer",
]
