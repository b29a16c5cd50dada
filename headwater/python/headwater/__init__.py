"""headwater: from a relational database to batches of contexts.

`infer` drafts a schema from a source, `build` writes a store, `Sampler` makes batches from it,
`Store` shows what is in it, and `audit` looks for leaks in what is sampled.
"""

from __future__ import annotations

from . import binding
from .audit import AuditReport, audit
from .batch import BATCH_FIELDS, Batch, BatchField
from .build import build, dry_run
from .epoch import Epoch
from .errors import (
    EmbedderError,
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
from .sampler import Sampler
from .schema import Schema
from .store import SemanticType, Store

__version__ = binding.VERSION

__all__ = [
    "BATCH_FIELDS",
    "AuditReport",
    "Batch",
    "BatchField",
    "BuildReport",
    "EmbedderError",
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
    "audit",
    "build",
    "calendar_tables",
    "dry_run",
    "expand",
    "infer",
]
