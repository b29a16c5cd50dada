"""Flags for XLA, each tried in a process of its own: XLA ends a process at a flag that it does not
know, and versions of JAX that the package takes know different ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

# With these the compiler takes half the time.
FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
TRIAL = [sys.executable, "-c", "import jax; jax.devices()"]


def known_flags(flags: Sequence[str]) -> list[str]:
    """Those of `flags` with which JAX finds its devices, in their order."""
    trials = [
        subprocess.Popen(
            TRIAL,
            env={**os.environ, "XLA_FLAGS": flag},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for flag in flags
    ]
    return [flag for flag, trial in zip(flags, trials, strict=True) if trial.wait() == 0]
