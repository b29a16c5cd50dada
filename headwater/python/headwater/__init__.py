"""headwater: from a relational database to batches of contexts.

`infer` drafts a schema from a source, `build` writes a store, `Sampler` makes batches from it,
`Store` shows what is in it, and `audit` looks for leaks in what is sampled.
"""

from __future__ import annotations

from headwater import binding
from headwater.audit import AuditReport, audit
from headwater.builder.build import build, dry_run
from headwater.builder.build_report import BuildReport
from headwater.errors import (
    EmbedderError,
    HeadwaterError,
    SamplerShutdown,
    SchemaError,
    SourceError,
    StoreError,
    TaskError,
)
from headwater.inference.infer import infer
from headwater.metadata.schema import Schema
from headwater.sampling.batch import BATCH_FIELDS, Batch, BatchField
from headwater.sampling.epoch import Epoch
from headwater.sampling.expand import calendar_tables, expand
from headwater.sampling.loader import Loader
from headwater.sampling.sampler import Sampler
from headwater.sampling.seed_pool import SeedBatch, SeedPool
from headwater.sampling.subgraph import Subgraph
from headwater.store.store import SemanticType, Store

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
    "Loader",
    "Sampler",
    "SamplerShutdown",
    "Schema",
    "SchemaError",
    "SeedBatch",
    "SeedPool",
    "SemanticType",
    "SourceError",
    "Store",
    "StoreError",
    "Subgraph",
    "TaskError",
    "__version__",
    "audit",
    "build",
    "calendar_tables",
    "dry_run",
    "expand",
    "infer",
]
