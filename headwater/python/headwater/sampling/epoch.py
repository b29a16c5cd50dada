"""A finite pass over seeds, or over rows that are asked about."""

from __future__ import annotations

from collections.abc import Iterator

from headwater import binding
from headwater.sampling.batch import Batch


class Epoch:
    """A finite run of batches, made ahead by the sampler's threads. An iterator with a length."""

    def __init__(self, core: binding.Pass) -> None:
        self._core = core
        self._length = core.batch_count()

    def __len__(self) -> int:
        """Batches of the whole run on this rank."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def next(self, timeout: float | None = None) -> Batch:
        """Next batch; StopIteration at the end, TimeoutError after `timeout` seconds."""
        core = self._core.next(timeout)
        if core is None:
            self.close()
            raise StopIteration
        return Batch(core)

    def close(self) -> None:
        """Drop what is queued. Also done at the end, and when the object goes."""
        self._core.close()

    def __enter__(self) -> Epoch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
