"""What headwater raises, and which status of the C library becomes which of it."""

from __future__ import annotations


class HeadwaterError(Exception):
    """Base of the errors that are headwater's own."""


class SamplerShutdown(HeadwaterError):  # noqa: N818, the API's name
    """The sampler was shut down; it gives no more batches."""


class StoreError(HeadwaterError):
    """A store is missing, truncated, damaged or of another version."""


class SchemaError(HeadwaterError):
    """metadata.json does not describe the source; the message lists every problem."""


class SourceError(HeadwaterError):
    """The source cannot be read, or holds what a store cannot."""


class EmbedderError(HeadwaterError):
    """Texts cannot be embedded: the model, the endpoint, its answers, or the cache of vectors."""


class TaskError(HeadwaterError):
    """A task cannot do what was asked, for example sample a split that has no seeds."""


# By hw_status: what the binding raises. Success, the end of a pass and an interrupted wait are
# handled before this table is asked.
STATUS_ERRORS: tuple[type[BaseException], ...] = (
    SystemError,  # HW_OK
    MemoryError,
    ValueError,
    SourceError,
    StoreError,
    TaskError,
    OSError,
    TimeoutError,
    SamplerShutdown,
    StopIteration,  # HW_END
    KeyboardInterrupt,  # HW_INTERRUPTED
    RuntimeError,  # HW_FORKED
)
