"""Several contexts per seed, and the average of what the model says of them.

    pass 1, pass 2, ... over the same seeds, each with other contexts
        ──► heads' outputs, put in the order of the first pass ──► their average

How contexts differ depends on the run. With `child_order="uniform"` each pass draws other children
(another `seed`). With "recent" the latest children are taken and there is nothing to draw, so the
passes show more or fewer of them (`child_width`), around the width the model was trained with.
Where a seed's rows all fit, every pass sees the same: `changed_share` says for how many seeds any
pass said something else, and 0 means that averaging changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confluence.average import Average
from confluence.config import Config
from confluence.model import Output, Params
from confluence.predict import Speaker

MOST_CONTEXTS = 64
WIDTH_STEP = 4  # child widths differ by a quarter of the run's
ROUNDING = 1e-4  # outputs that differ by less are the same

Overrides = dict[str, Any]  # settings of a pass's sampler


def context_settings(cfg: Config, count: int) -> list[Overrides]:
    """What the sampler of each of `count` passes has other than the run's; of the first nothing."""
    if not 1 <= count <= MOST_CONTEXTS:
        raise ValueError(f"contexts is {count}, expected 1 to {MOST_CONTEXTS}")
    if cfg.child_order == "uniform":
        return [{"seed": cfg.seed + k} if k else {} for k in range(count)]
    widths = child_widths(cfg.child_width, count)
    return [{"bfs_child_width": width} if k else {} for k, width in enumerate(widths)]


def child_widths(width: int, count: int) -> list[int]:
    """Distinct widths nearest to the run's, by steps of a quarter of it: w, w + s, w - s, ..."""
    step = max(1, width // WIDTH_STEP)
    steps = (sign * k * step for k in range(count + 1) for sign in ((1, -1) if k else (1,)))
    found = [width + more for more in steps if width + more >= 1]
    return found[:count]


def describe_contexts(cfg: Config, count: int) -> str:
    """By what the contexts of a seed differ."""
    if cfg.child_order == "uniform":
        return "draws of children"
    return "child_width " + ", ".join(map(str, child_widths(cfg.child_width, count)))


class SeveralContexts:
    """Stands where a `Predictor` does: the average of its outputs over several passes."""

    def __init__(self, predictor: Speaker, others: Iterable[Iterable[Any]]) -> None:
        """`others`: the batches of each further pass over the seeds of the first, taken in turn."""
        self._predictor = predictor
        self._others = others
        self.changed_share = 0.0  # of the seeds; after `outputs`

    def outputs(
        self, params: Params, batches: Iterator[Any]
    ) -> Iterator[tuple[Output, dict[str, Any]]]:
        """All seeds at once: averaged outputs, and the info of the first pass."""
        first, info = gathered(self._predictor.outputs(params, batches))
        if first is None:
            return
        average = Average()
        average.add(first)
        changed = np.zeros(first.null.shape[0], bool)
        for other in self._others:
            output = in_order_of(
                info, self._predictor.outputs(params, iter(other)),
                "the passes of several contexts are not over the same seeds",
            )  # fmt: skip
            changed |= _differs(first, output)
            average.add(output)
        self.changed_share = float(changed.mean()) if changed.size else 0.0
        yield average.output(), info


def gathered(parts: Iterator[tuple[Output, dict[str, Any]]]) -> tuple[Any, dict[str, Any]]:
    """A whole pass in one piece; None without batches."""
    found = list(parts)
    if not found:
        return None, {}
    outputs, infos = zip(*found, strict=True)
    names = [n for n in infos[0] if infos[0][n].ndim > 0]
    joined = as_output([np.concatenate(part) for part in zip(*outputs, strict=True)])
    return joined, {name: np.concatenate([info[name] for info in infos]) for name in names}


def in_order_of(
    info: dict[str, Any], parts: Iterator[tuple[Output, dict[str, Any]]], refusal: str
) -> Output:
    """The outputs of another pass, in the order of the one that `info` is of.

    Raises:
        ValueError: `refusal`, where the passes are not over the same seeds.
    """
    output, other = gathered(parts)
    names = ("seed_index", "anchor_rows", "obs_time")
    if output is None:
        raise ValueError(refusal)
    orders = [np.lexsort([found[name] for name in reversed(names)]) for found in (info, other)]
    for name in names:
        if not np.array_equal(info[name][orders[0]], other[name][orders[1]]):
            raise ValueError(refusal)
    place = np.empty(orders[0].size, np.int64)
    place[orders[0]] = orders[1]
    return as_output([np.asarray(part)[place] for part in output])


def _differs(first: Output, other: Output) -> NDArray[np.bool_]:
    found = np.zeros(first.null.shape[0], bool)
    for ours, theirs in zip(first, other, strict=True):
        same = np.isclose(ours, theirs, rtol=ROUNDING, atol=ROUNDING)
        found |= ~same.reshape(found.size, -1).all(axis=1)
    return found


def as_output(parts: Sequence[Any]) -> Output:
    """Heads' outputs on the host, where they are NumPy arrays."""
    return Output(*parts)
