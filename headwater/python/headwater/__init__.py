"""headwater: from a relational database to batches of contexts.

    schema = headwater.infer("sqlite:///shop.db")
    headwater.build("sqlite:///shop.db", "shop.hw", metadata=schema)
    with headwater.Sampler(db_path="shop.hw") as sampler:
        batch = sampler.next_train_batch()
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
    "infer",
]
