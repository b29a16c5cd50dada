"""Is it faster to train from compact or from dense batches, end to end?

    python confluence/bench/layouts.py STORE --task T [--preset demo] [--set sequence_length=1024]

Both layouts train the same model on the same seeds of one store, in turns of a few steps, so that
what else the machine does falls on both. A turn takes batches from the sampler, puts them on the
device and steps, as `confluence.train.fit` does; it ends when the device has finished. One JSON
line per layout. Medians over turns, per step: `step_ms`; `over_dense`, its ratio to the dense turn
beside it; `cpu_ms` of all threads; `batch_ms` spent waiting for the next batch and putting it on
the device. Then the bytes moved per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from turns import Run, compare, median

LAYOUTS = ("dense", "compact")


def describe(run: Run, losses: NDArray[Any], dense: NDArray[Any]) -> dict[str, Any]:
    """What the layout moves, and that it changes nothing."""
    return {
        "batch_ms": round(median(run.batch_ms), 2),
        "bytes": run.bytes,
        "largest_loss_difference": float(np.abs(losses - dense).max()),
    }


if __name__ == "__main__":
    compare(__doc__, "layout", LAYOUTS, describe, turns=15, steps=4)
