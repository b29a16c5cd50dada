"""Training on one device: state, the compiled step, and the loop.

The loop keeps the device busy: batch k+1 is fetched and put on the device while step k runs, and
the metrics of step k are read after step k+1 is dispatched. Everything compiles once; a second
compilation is an error, not a slow run. Parameters and optimizer state are donated, batches never.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from confluence.config import Config
from confluence.data import to_device
from confluence.expand import as_dense
from confluence.loss import TaskScales, batch_loss, read_truth
from confluence.model import Inputs, Output, Params, Tables, forward, init
from confluence.optimizer import learning_rate_share, make_optimizer, update_average


class NonFiniteLossError(FloatingPointError):
    """The loss is NaN or infinite; the message names the step and the batch."""


class RecompilationError(RuntimeError):
    """A function that must compile once compiled again: shapes changed during a run."""


class TrainState(NamedTuple):
    """All that a step changes; the whole of it is donated."""

    params: Params
    average: Params  # mean of late weights, which evaluation uses
    optimizer: Any  # optax state
    step: Array  # [] int32, steps applied


def first_state(
    cfg: Config, text_width: int, first_biases: Mapping[str, float] | None = None
) -> TrainState:
    """Initial parameters and optimizer state, from `cfg.seed`."""
    params = init(jax.random.key(cfg.seed), cfg, text_width, first_biases)
    return TrainState(
        params=params,
        average={name: value.copy() for name, value in params.items()},
        optimizer=make_optimizer(cfg, text_width).init(params),
        step=jnp.zeros((), jnp.int32),
    )


def train_step(
    state: TrainState,
    batch: Inputs,
    tables: Tables,
    scales: TaskScales,
    *,
    cfg: Config,
    text_width: int,
    category_limit: int,
) -> tuple[TrainState, dict[str, Array]]:
    """One step: loss, gradients, clipping, update, average. Pure; compiled by `StepRunner`."""
    batch = as_dense(batch)
    hidden = None
    if cfg.cell_dropout > 0:
        key = jax.random.fold_in(jax.random.key(cfg.seed + 1), state.step)
        hidden = jax.random.bernoulli(key, cfg.cell_dropout, batch["is_padding"].shape)
    truth = read_truth(batch, scales)

    def loss_of(params: Params) -> Array:
        output = forward(params, batch, tables, cfg, category_limit=category_limit, hidden=hidden)
        total, weight = batch_loss(output, truth, batch, scales, cfg)
        return total / jnp.maximum(1.0, weight)

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    optimizer = make_optimizer(cfg, text_width)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = {
        "loss": loss,
        "gradient_norm": optax.tree.norm(gradients),
        "learning_rate": cfg.learning_rate * learning_rate_share(state.step, cfg),
    }
    return TrainState(
        params=params,
        average=update_average(state.average, params, state.step, cfg),
        optimizer=optimizer_state,
        step=state.step + 1,
    ), metrics


class StepRunner:
    """The compiled step of one run, with the constants it closes over."""

    def __init__(
        self, cfg: Config, tables: Tables, scales: TaskScales, *, text_width: int,
        category_limit: int,
    ) -> None:  # fmt: skip
        def step(
            state: TrainState, batch: Inputs, tables: Tables, scales: TaskScales
        ) -> tuple[TrainState, dict[str, Array]]:
            return train_step(
                state, batch, tables, scales,
                cfg=cfg, text_width=text_width, category_limit=category_limit,
            )  # fmt: skip

        self._step: Any = jax.jit(step, donate_argnums=0)
        self._tables = tables
        self._scales = scales

    def step(self, state: TrainState, batch: Inputs) -> tuple[TrainState, dict[str, Array]]:
        """Dispatch one step; the state passed in must not be used again."""
        new_state, metrics = self._step(state, batch, self._tables, self._scales)
        return new_state, metrics

    def assert_one_compilation(self) -> None:
        """Raise if the step compiled more than once."""
        assert_one_compilation(self._step, "train_step")


def assert_one_compilation(jitted: Any, name: str, compiled_before: int = 0) -> None:
    """Raise unless a jitted function has compiled at most once more than before."""
    count = jitted._cache_size() - compiled_before
    if count > 1:
        raise RecompilationError(f"'{name}' compiled {count} times, expected 1: shapes changed")


class Waits:
    """Iterates over a stream of batches and measures how long it kept us waiting."""

    def __init__(self, next_batch: Callable[[], Mapping[str, Any]]) -> None:
        self._next_batch = next_batch
        self.seconds = 0.0

    def next_on_device(self) -> dict[str, Array]:
        """The next batch, on its way to the device."""
        started = time.perf_counter()
        batch = self._next_batch()
        self.seconds += time.perf_counter() - started
        return to_device(batch)


@dataclasses.dataclass(frozen=True)
class StepReport:
    """What is known of one finished step."""

    step: int  # counted from 1
    loss: float
    gradient_norm: float
    learning_rate: float
    wait_seconds: float  # spent waiting for batches since training began


def fit(
    state: TrainState,
    runner: StepRunner,
    next_batch: Callable[[], Mapping[str, Any]],
    *,
    steps: int,
    on_report: Callable[[StepReport], None],
    on_state: Callable[[TrainState, int], None] = lambda state, step: None,
) -> TrainState:
    """Train for a number of steps and return the last state.

    Args:
        next_batch: gives the next train batch; batch k feeds step k.
        on_report: called once per step, one step late.
        on_state: called after each dispatch, e.g. to evaluate or save. It must not keep the state.
    """
    waits = Waits(next_batch)
    batch = waits.next_on_device()
    pending: tuple[int, dict[str, Array]] | None = None
    for step in range(1, steps + 1):
        state, metrics = runner.step(state, batch)
        if step < steps:
            batch = waits.next_on_device()  # while the step runs
        if pending is not None:
            on_report(_read_report(*pending, waits.seconds))
        pending = (step, metrics)
        on_state(state, step)
    if pending is not None:
        on_report(_read_report(*pending, waits.seconds))
    runner.assert_one_compilation()
    return state


def _read_report(step: int, metrics: dict[str, Array], wait_seconds: float) -> StepReport:
    values = {name: float(value) for name, value in jax.device_get(metrics).items()}
    if not np.isfinite(values["loss"]):
        raise NonFiniteLossError(
            f"loss is {values['loss']} at step {step} (train batch {step - 1}), gradient norm"
            f" {values['gradient_norm']:.3g}, learning rate {values['learning_rate']:.3g}"
        )
    return StepReport(step=step, wait_seconds=wait_seconds, **values)


@functools.lru_cache(maxsize=8)
def _jitted_forward(cfg: Config, category_limit: int) -> Any:
    """One function for all passes of a configuration, so that only the first one compiles it."""

    def predict(params: Params, batch: Inputs, tables: Tables) -> Output:
        return forward(params, as_dense(batch), tables, cfg, category_limit=category_limit)

    return jax.jit(predict)


class Predictor:
    """The compiled forward pass: outputs of the heads, on the host, for batches of one shape."""

    def __init__(self, cfg: Config, tables: Tables, *, category_limit: int) -> None:
        # Which rows are visible is the sampler's business, and may be a dict, which has no hash.
        self._predict = _jitted_forward(cfg.replace(visible_until=None), category_limit)
        self._tables = tables

    def outputs(
        self, params: Params, batches: Iterator[Any]
    ) -> Iterator[tuple[Output, dict[str, Any]]]:
        """Pairs of (outputs of the sequences that count, their host-side info), batch by batch."""
        pending: tuple[Output, dict[str, Any], int] | None = None
        compiled_before = self._predict._cache_size()
        for batch in batches:
            output = self._predict(params, to_device(batch), self._tables)
            if pending is not None:
                yield _first_sequences(*pending)
            info = {name: np.array(value) for name, value in batch.info.items()}
            pending = (output, info, int(batch["num_sequences"][0]))
        if pending is not None:
            yield _first_sequences(*pending)
        assert_one_compilation(self._predict, "predict", compiled_before)


def _first_sequences(
    output: Output, info: dict[str, Any], count: int
) -> tuple[Output, dict[str, Any]]:
    """Cut a batch's outputs to the sequences that count."""
    host = Output(*(np.asarray(part)[:count] for part in jax.device_get(output)))  # type: ignore[arg-type]
    return host, {name: value[:count] for name, value in info.items()}
