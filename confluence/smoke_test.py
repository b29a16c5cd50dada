"""The smoke test from a fresh clone: `uv run --project confluence python confluence/smoke_test.py`.

The model trains on synthetic batches, without a store. The exit status is 0 if, in at least 30
steps, all losses are finite and the mean of the last five is at most 0.7 of that of the first five.
"""

from __future__ import annotations

import sys

from confluence.training.smoke import MEAN_STEPS, RATIO_MAX, run_smoke

STEPS_MIN = 30


def main() -> int:
    result = run_smoke()
    means = "first {k} {first_loss:.4f}, last {k} {last_loss:.4f}, ratio {ratio:.3f}"
    print(f"loss in {result['steps']} steps: {means.format(k=MEAN_STEPS, **result)}")
    passed = result["passed"] and result["steps"] >= STEPS_MIN
    print("passed" if passed else f"failed: finite losses and a ratio of {RATIO_MAX} are needed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
