"""How much faster does a step train with attention by rows, in JAX or in C, than with dense?

    python confluence/bench/attention.py STORE --task T [--preset demo] [--set width=128]

All paths train the same model on the same seeds of one store, in turns of a few steps, so that
what else the machine does falls on both. One JSON line per path. Medians over turns: `step_ms`;
`over_dense`, its ratio to the dense turn beside it; `cpu_ms` of all threads. `temporary_bytes` is
what the compiler plans for a step beside parameters, optimizer state and batch. The losses differ
by rounding, which grows from step to step: `first_loss_difference` is that of the first.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from turns import Run, compare

PATHS = ("dense", "rows", "compiled")


def describe(run: Run, losses: NDArray[Any], dense: NDArray[Any]) -> dict[str, Any]:
    """What a step needs, and how far the paths are apart."""
    return {
        "temporary_bytes": run.temporary_bytes(),
        "first_loss_difference": float(abs(losses[0] - dense[0])),
    }


if __name__ == "__main__":
    compare(__doc__, "attention", PATHS, describe, turns=10, steps=2)
