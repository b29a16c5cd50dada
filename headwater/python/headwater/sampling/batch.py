"""A batch as NumPy sees it: read-only views of one slab of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headwater import binding


class BatchField(NamedTuple):
    """One array of the batch format."""

    name: str
    dtype: str
    dims: tuple[str, ...]  # letters of docs/3-batch.md, such as ("B", "S")
    info: bool  # host-side only
    when: str | None  # the option that adds it; None: always there
    meaning: str


BATCH_FIELDS = tuple(BatchField(*field) for field in binding.batch_fields())


class Batch(dict[str, NDArray[Any]]):
    """Arrays by name: C-contiguous, read-only, 64-byte aligned, none wider than 32 bits.

    Shapes and dtypes are `BATCH_FIELDS`; with `packing=True`, arrays [B] and [B, 15] (num_contexts
    excepted) are [B, T] and [B, T, 15]. `info` holds host-side arrays that must not go to a
    device: obs_time int64 [B], seed_index uint32 [B], anchor_rows uint32 [B], and row_ids uint32
    [B, R] with `with_rows=True`. The memory returns to the sampler when the last array, and
    whatever aliases one, is gone; it stays valid when the sampler is not.
    """

    info: dict[str, NDArray[Any]]

    def __repr__(self) -> str:
        shapes = (f"{name} {array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"<Batch: {', '.join(shapes)}; info: {', '.join(self.info)}>"

    def __init__(self, core: binding.Batch) -> None:
        arrays, self.info = core.arrays()
        super().__init__(arrays)

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], info: Mapping[str, NDArray[Any]]) -> Batch:
        """A batch of arrays that did not come from a sampler."""
        batch = cls.__new__(cls)
        batch.update(arrays)
        batch.info = dict(info)
        return batch
