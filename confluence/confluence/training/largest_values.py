"""Which column has the largest values of some batches: it is to blame if a loss is not finite.

Numbers reach the model as z-scores in float32: some units for nearly all values. One of 1e20 has no
square there, and neither has its loss. Read on the host, from batches that are made again, and only
after a step has failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from headwater import SemanticType
from headwater.shared import CELL_BITS
from numpy.typing import NDArray

from confluence.config import Config
from confluence.data.stores import OpenStore

LARGE = 1e4  # a z-score that no usual value has

Found = tuple[float, str]  # a size, and the name of the column that has it


def describe_largest(
    batches: Iterable[tuple[Any, int]], stores: Sequence[OpenStore], cfg: Config
) -> str:
    """A sentence about the column with the largest value of some flat batches.

    Args:
        batches: each with the number of its store.
    """
    found = [
        each
        for batch, number in batches
        for each in (*_inputs(batch, stores[number]), *_targets(batch, stores[number], cfg))
    ]
    size, what = max(found, default=(0.0, ""), key=lambda each: each[0])
    if size > LARGE:
        return (
            f"the values of {what} are to blame, of which one is {size:.3g} deviations from the"
            ' mean. Add values that stand for none to its "null_values" in the metadata and build'
            " again, or give them in another unit"
        )
    most = f" (at most {size:.3g} deviations from the mean, in {what})" if what else ""
    return f"no value of the batch is large{most}. A smaller learning_rate may help"


def _inputs(batch: Mapping[str, Any], store: OpenStore) -> Iterator[Found]:
    """The largest z-score of each column in the contexts, masked cells among them."""
    cells, columns = np.asarray(batch["cells"]).ravel(), np.asarray(batch["cell_columns"]).ravel()
    kinds = cells & CELL_BITS["semantic_type"]
    is_shown = (
        cells & (CELL_BITS["is_null"] | CELL_BITS["is_target"] | CELL_BITS["is_padding"]) == 0
    )
    is_shown &= np.isin(kinds, (SemanticType.NUMERICAL, SemanticType.TIMESTAMP))
    values = _floats(batch["cell_values"]).ravel()
    yield from _largest(values[is_shown], columns[is_shown], store)
    for kind in ("numerical", "timestamp"):
        if f"masked_{kind}_values" in batch:
            places = np.asarray(batch[f"masked_{kind}_indices"])
            truth = np.asarray(batch[f"masked_{kind}_values"], np.float32)
            truth = truth.reshape(*places.shape, -1)[..., -1]
            yield from _largest(truth[places >= 0], columns[places[places >= 0]], store)


def _targets(batch: Mapping[str, Any], store: OpenStore, cfg: Config) -> Iterator[Found]:
    """The largest numerical answer, by the mean and deviation of the train labels."""
    places = np.asarray(batch["context_targets"])
    places = places[places >= 0]
    if int(np.asarray(batch["target_stype"]).flat[0]) != SemanticType.NUMERICAL or not places.size:
        return
    number, scales = int(np.asarray(batch["task_idx"]).flat[0]), store.scales(cfg)
    with np.errstate(all="ignore"):
        answers = _floats(batch["cell_values"]).ravel()[places] * float(scales.scale[number])
        size = max(_size(abs(value)) for value in answers + float(scales.shift[number]))
    column = _name(
        store.metadata["columns"], int(np.asarray(batch["cell_columns"]).flat[places[0]])
    )
    yield size, f"{column}, the target,"


def _floats(array: Any) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, np.uint32).view(np.float32)


def _largest(
    values: NDArray[np.float32], columns: NDArray[Any], store: OpenStore
) -> Iterator[Found]:
    for column in np.unique(columns):
        size = _size(np.abs(values[columns == column]).max())
        yield size, _name(store.metadata["columns"], int(column))


def _size(value: float) -> float:
    return float(value) if math.isfinite(value) else math.inf


def _name(columns: Sequence[Mapping[str, Any]], number: int) -> str:
    """table.column; behind the columns of a store come the counts of children."""
    if number >= len(columns):
        return "a count of children (child_counts)"
    column = columns[number]
    return f"{column['table'] or column.get('task')}.{column['name']}"
