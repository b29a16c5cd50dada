"""What stands in for a compiled model: batches that say what its outputs are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from confluence.model.transformer import Output


class Pass:
    """Stands for a Predictor: a batch says what its outputs are."""

    def outputs(self, params: Any, batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches


def batch(seeds: list[int], value: list[float]) -> Any:
    number = np.array(value)
    categories = np.log(np.stack([np.full(number.size, 0.25), np.full(number.size, 0.75)], axis=1))
    output = Output(
        null=number, numerical=number, timestamp=np.repeat(number[:, None], 15, axis=1),
        boolean=number, categorical=categories,
    )  # type: ignore[arg-type]  # fmt: skip
    index = np.array(seeds)
    return output, {"seed_index": index, "anchor_rows": index + 5, "obs_time": index * 30}
