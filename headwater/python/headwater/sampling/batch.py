"""A batch as NumPy sees it: read-only views of one slab of memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headwater import binding


class BatchField(NamedTuple):
    """One array of the batch format."""

    name: str
    dtype: str
    dims: tuple[str, ...]  # letters of docs/reference/batch.md, such as ("B", "S")
    info: bool  # host-side only
    when: str | None  # the option that adds it; None: always there
    meaning: str


BATCH_FIELDS = tuple(BatchField(*field) for field in binding.batch_fields())


class Batch(dict[str, NDArray[Any]]):
    """Arrays by name: C-contiguous, read-only, 64-byte aligned, none wider than 32 bits.

    Shapes and dtypes are `BATCH_FIELDS`; with `packing=True`, arrays [B] and [B, 15] (num_contexts
    excepted) are [B, T] and [B, T, 15]. `info` holds host-side arrays that must not go to a
    device: obs_time int64 [B], seed_index uint32 [B], anchor_rows uint32 [B], and row_ids uint32
    [B, R] with `with_rows=True`. `batch["obs_time"]`, `get` and `in` read them too; `keys()`,
    `items()` and `dict(batch)` leave them out. For JAX a batch is a pytree of its arrays, also
    without `info`: `jax.device_put(batch)` and `jit(f)(batch)` take it.

    The memory returns to the sampler when the last array, and whatever aliases one, is gone; it
    stays valid when the sampler is not.
    """

    info: dict[str, NDArray[Any]]

    def __repr__(self) -> str:
        shapes = (f"{name} {array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"<Batch: {', '.join(shapes)}; info: {', '.join(self.info)}>"

    def __init__(self, core: binding.Batch) -> None:
        arrays, self.info = core.arrays()
        super().__init__(arrays)

    def __missing__(self, name: str) -> NDArray[Any]:
        return self.info[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.info

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, self.info.get(name, default))

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], info: Mapping[str, NDArray[Any]]) -> Batch:
        """A batch of arrays that did not come from a sampler."""
        batch = cls.__new__(cls)
        batch.update(arrays)
        batch.info = dict(info)
        return batch


# ---- a pytree of JAX -------------------------------------------------------------------------


class _AfterJax(MetaPathFinder):
    """Registers `Batch` with JAX once somebody has imported it; headwater does not."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "jax":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _register(module)

            spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


def _register(jax: Any) -> None:
    def flatten(batch: Batch) -> tuple[list[Any], tuple[str, ...]]:
        return [(jax.tree_util.DictKey(name), batch[name]) for name in batch], tuple(batch)

    def unflatten(names: tuple[str, ...], arrays: Sequence[Any]) -> Batch:
        return Batch.of(dict(zip(names, arrays, strict=True)), {})

    jax.tree_util.register_pytree_with_keys(Batch, flatten, unflatten)


if hasattr(sys.modules.get("jax"), "tree_util"):
    _register(sys.modules["jax"])
else:
    sys.meta_path.insert(0, _AfterJax())
