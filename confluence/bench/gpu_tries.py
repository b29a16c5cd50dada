"""Changes that might make a step faster, timed alone for gpu.py before anything is built upon them.

`dispatch`: the same steps one by one and as one call of `AT_ONCE` steps, whose batches are on the
device. `newton_schulz`: Muon's update of all matrices of a model, momentum and products in float32,
as in training, and in bfloat16.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import training
from optax.contrib import scale_by_muon

from confluence.config import Config
from confluence.model.transformer import init, parameter_table
from confluence.training.optimizer import MATRIX, MUON_MOMENTUM, NEWTON_SCHULZ_STEPS

AT_ONCE, TURNS = 8, 7


def seconds_of(turn: Callable[[], Any]) -> float:
    """The time of one turn, until all that it began is done."""
    started = time.perf_counter()
    jax.block_until_ready(turn())
    return time.perf_counter() - started


def in_turns(ways: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Seconds of the first call of each way, which compiles, and medians of turns after it."""
    first = {f"{name}_first_seconds": seconds_of(turn) for name, turn in ways.items()}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, turn in ways.items():
            taken[name].append(seconds_of(turn))
    return {**first, **{f"{name}_ms": 1e3 * statistics.median(x) for name, x in taken.items()}}


def dispatch(store: str, task: str, cfg: Config) -> dict[str, Any]:
    """Milliseconds of `AT_ONCE` steps, by `AT_ONCE` calls and by one."""
    with training.ready_to_step(store, task, cfg) as (_, runner, feed, state):
        fed = [feed.next_on_device() for _ in range(4 * AT_ONCE)]
        shapes = [jax.tree.map(jnp.shape, batch.inputs) for batch in fed]
        usual = max(shapes, key=shapes.count)  # batches may have one of two numbers of texts
        alike = [b for b, s in zip(fed, shapes, strict=True) if s == usual][:AT_ONCE]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *(batch.inputs for batch in alike))
        step, constants = runner._step.__wrapped__, runner._stores[0]

        def all_of(state: Any, batches: Any, constants: Any) -> Any:
            return jax.lax.scan(lambda s, batch: step(s, batch, constants), state, batches)

        one_call = jax.jit(all_of, donate_argnums=0)
        states = {name: jax.tree.map(jnp.copy, state) for name in ("calls", "one_call")}

        def by_calls() -> Any:
            before = None
            for batch in alike:
                states["calls"], metrics = runner.step(states["calls"], batch)
                if before is not None:  # as training does, one step late
                    float(before["loss"])
                before = metrics
            return before

        def by_one() -> Any:
            states["one_call"], metrics = one_call(states["one_call"], stacked, constants)
            return metrics

        return {"steps": len(alike), **in_turns({"calls": by_calls, "one_call": by_one})}


def newton_schulz(text_width: int, cfg: Config) -> dict[str, Any]:
    """Milliseconds of an update, by type."""
    trainers = {n: p.trainer for n, p in parameter_table(cfg, text_width).items()}
    params = init(jax.random.key(0), cfg, text_width)
    matrices = {n: p + 0.1 for n, p in params.items() if trainers[n] == "muon"}

    def way(dtype: Any) -> Callable[[], Any]:
        muon = scale_by_muon(
            ns_steps=NEWTON_SCHULZ_STEPS, beta=MUON_MOMENTUM, mu_dtype=dtype,
            weight_dimension_numbers=dict.fromkeys(matrices, MATRIX),
        )  # fmt: skip
        gradients = {n: g.astype(dtype) for n, g in matrices.items()}
        state, update = muon.init(gradients), jax.jit(lambda g, s: muon.update(g, s)[0])
        return lambda: update(gradients, state)

    found = in_turns({"float32": way(jnp.float32), "bfloat16": way(jnp.bfloat16)})
    return {"matrices": sum(len(m.reshape(-1, *m.shape[-2:])) for m in matrices.values()), **found}
