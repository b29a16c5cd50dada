"""The memory traffic of a step, compiled for a GPU that is not there.

    python confluence/bench/gpu_compiled.py STORE --task T [--preset base] [--attention fused]

Needs JAX with CUDA (`pip install "jax[cuda13]"` in an environment of its own), no GPU and no
driver: XLA compiles the step of a training for an H100 with 80 GB, without autotuning, and nothing
runs. Prints one JSON line: seconds to compile, bytes of temporary memory, how many operations there
are by name, and the bytes that they read and write (`moved`), the largest by name and result.
Operands count in full, even if an operation reads a part of one, and loops without their bodies.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections import Counter
from typing import Any

os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}

import jax
import training
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from confluence.config import PRESETS, preset

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
BYTES = {"f32": 4, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "u16": 2, "u8": 1, "s8": 1, "pred": 1}
FREE = ("parameter", "get-tuple-element", "tuple", "bitcast", "constant", "after-all")
TOP = 20


def h100() -> Any:
    """A device to compile for."""
    import jax_plugins.xla_cuda13 as cuda

    cuda.initialize()
    return topologies.get_topology_desc(
        "h100", "cuda", target_config=H100, topology="1x1x1"
    ).devices[0]


def bytes_of(shapes: str) -> int:
    """All shapes in a text such as (f32[8,2]{1,0}, s32[])."""
    found = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    return sum(
        BYTES.get(kind, 4) * math.prod(int(n) for n in dims.split(",") if n) for kind, dims in found
    )


def moved(text: str) -> tuple[Counter[str], Counter[str]]:
    """Numbers of operations by name, and bytes by name and result, of the program's entry."""
    sizes: dict[str, int] = {}
    numbers, taken = Counter[str](), Counter[str]()
    for line in text[text.index("\nENTRY") :].splitlines():
        found = re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)", line)
        if found is None:
            continue
        name, result, operation, rest = found.groups()
        sizes[name] = bytes_of(result)
        if operation in FREE:
            continue
        operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
        numbers[operation] += 1
        kind = f"{re.sub(r'[.][.0-9]*$', '', name)} {result.split('{')[0]}"
        taken[kind] += sizes[name] + sum(sizes.get(operand, 0) for operand in operands)
    return numbers, taken


def main() -> None:
    """The whole command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="base", choices=tuple(PRESETS))
    parser.add_argument("--attention", default="fused", choices=("fused", "rows"))
    options = parser.parse_args()
    cfg = preset(options.preset, attention=options.attention, compute_dtype="bfloat16", steps=100)
    placed = SingleDeviceSharding(h100())
    with training.ready_to_step(options.store, options.task, cfg) as (_, runner, feed, state):
        given = (state, feed.next_on_device().inputs, runner._stores[0])
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed), given
        )
        jax.default_backend = lambda: "gpu"  # which the model asks for its paths
        step = jax.jit(runner._step.__wrapped__, donate_argnums=0)
        started = time.perf_counter()
        lowered = step.trace(*shapes).lower(lowering_platforms=("cuda",))
        compiled = lowered.compile(compiler_options={"xla_gpu_autotune_level": 0})
        seconds = time.perf_counter() - started
    numbers, taken = moved(compiled.as_text())
    line = {
        "preset": options.preset, "attention": options.attention, "jax": jax.__version__,
        "seconds": seconds, "temporary_bytes": compiled.memory_analysis().temp_size_in_bytes,
        "operations": dict(numbers.most_common()), "moved_bytes": sum(taken.values()),
        "moved": dict(taken.most_common(TOP)),
    }  # fmt: skip
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
