"""Training: state, the compiled step on one device or on those of a group, and the loop.

The loop keeps the device busy: batch k+1 is fetched and put on the device while step k runs, and
the metrics of step k are read after step k+1 is dispatched, except where the state is asked for.
Everything compiles once for each store and each shape of its batches; one more compilation is an
error, not a slow run. Parameters and optimizer state are donated, batches never.

With `accumulate` = n a step takes n batches. Their losses and gradients are summed, not averaged,
and divided by the number of labelled contexts of all: the update of one batch n times as large.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh

from confluence.config import Config
from confluence.data.tasks import (
    TEXT_NUMBERS,
    TEXTS,
    cell_count,
    context_count,
    is_flat,
    position_count,
    to_device,
)
from confluence.model.expand import Inputs, as_flat
from confluence.model.loss import SEED_WEIGHTS, TaskScales, batch_loss, read_truth
from confluence.model.masked_loss import loss_with_masks
from confluence.model.outputs import Pass
from confluence.model.patterns import attention_path
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Output, Params, Tables, forward, init
from confluence.ranks.group import ALONE, Group, over_ranks
from confluence.training.optimizer import learning_rate_share, make_optimizer
from confluence.watch.log_events import StepReport
from confluence.watch.observer import UNOBSERVED, Observer


class NonFiniteLossError(FloatingPointError):
    """The loss is NaN or infinite; the message names the step and the batch, and in a run the
    column whose values are the largest. batches: of the train stream, those of the step."""

    def __init__(self, message: str, batches: range = range(0)) -> None:
        super().__init__(message)
        self.batches = batches


@contextlib.contextmanager
def memory_explained(cfg: Config) -> Iterator[None]:
    """A step that the device has no memory for is a MemoryError that says what needs less."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        message = str(error)
        if "RESOURCE_EXHAUSTED" not in message:
            raise
        is_dense = attention_path(cfg) == "dense"
        raise MemoryError(
            f"a step of {cfg.contexts} contexts of up to {cfg.sequence_length} cells does not fit"
            f" into the device's memory ({message.splitlines()[0]}). Less is needed with a smaller"
            " batch_size and an accumulate as many times as large, which learns the same,"
            f"{' with attention=rows,' if is_dense else ''} with a"
            " smaller sequence_length or width"
        ) from error


class RecompilationError(RuntimeError):
    """A function compiled more often than batches differ: shapes changed during a run."""


class TrainState(NamedTuple):
    """All that a step changes; the whole of it is donated."""

    params: Params
    optimizer: Any  # optax state
    step: Array  # [] int32, steps applied


def first_state(
    cfg: Config, text_width: int, first_biases: Mapping[str, float] | None = None
) -> TrainState:
    """Initial parameters and optimizer state, from `cfg.seed`."""
    params = init(jax.random.key(cfg.seed), cfg, text_width, first_biases)
    return TrainState(
        params=params,
        optimizer=make_optimizer(cfg, text_width).init(params),
        step=jnp.zeros((), jnp.int32),
    )


class Constants(NamedTuple):
    """What steps know of one store of the run."""

    tables: Tables
    scales: TaskScales


def without_texts(store: Constants) -> Constants:
    """What a step reads: texts are with its batch, whether they stay on the device or not."""
    return store._replace(tables=store.tables._replace(texts=None))


class Fed(NamedTuple):
    """A batch on the device, and the number of its store in the run."""

    inputs: Inputs
    store: int = 0


class GradientSums(NamedTuple):
    """Sums over the labelled contexts of one or more batches."""

    gradients: Params
    loss: Array  # [] float32
    weight: Array  # [] float32, their number
    masked: Array  # [] float32, of the masked cells beside a task, before `auxiliary_weight`


def no_gradients(params: Params) -> GradientSums:
    """The sums over no batch."""
    zero = jnp.zeros((), jnp.float32)
    return GradientSums(jax.tree.map(jnp.zeros_like, params), zero, zero, zero)


def gradient_sums(
    state: TrainState,
    batch: Inputs,
    tables: Tables,
    scales: TaskScales,
    *,
    cfg: Config,
    category_limit: int,
    row_shape: RowShape | None = None,
    mesh: Mesh | None = None,
) -> GradientSums:
    """Loss and gradients of one batch; with a mesh of all ranks."""
    sums = functools.partial(loss_sums, cfg=cfg, category_limit=category_limit, row_shape=row_shape)
    summed = over_ranks(sums, mesh)

    def loss_of(params: Params) -> tuple[Array, tuple[Array, Array]]:
        loss, weight, masked = summed(params, batch, tables, scales)
        return loss, (weight, masked)

    gradient_of = jax.value_and_grad(loss_of, has_aux=True)
    (loss, (weight, masked)), gradients = gradient_of(state.params)
    return GradientSums(gradients, loss, weight, masked)


def loss_sums(
    params: Params,
    batch: Inputs,
    tables: Tables,
    scales: TaskScales,
    *,
    cfg: Config,
    category_limit: int,
    row_shape: RowShape | None,
) -> tuple[Array, Array, Array]:
    """Sums of losses, of weights, and of masked cells' losses, of a rank's share of a batch."""
    batch = as_flat(batch)
    truth = read_truth(batch, scales)
    if cfg.masks_cells:
        return loss_with_masks(
            params, batch, truth, tables, scales, cfg,
            category_limit=category_limit, row_shape=row_shape,
        )  # fmt: skip
    output = forward(params, batch, tables, cfg, category_limit=category_limit, row_shape=row_shape)
    loss, weight = batch_loss(output, truth, batch, scales)
    return loss, weight, jnp.zeros((), jnp.float32)


def apply_sums(
    state: TrainState, sums: GradientSums, *, cfg: Config, text_width: int
) -> tuple[TrainState, dict[str, Array]]:
    """The update of a step from its sums: mean, clipping, optimizer."""
    weight = jnp.maximum(1.0, sums.weight)
    gradients = jax.tree.map(lambda gradient: gradient / weight, sums.gradients)
    optimizer = make_optimizer(cfg, text_width)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = {
        "loss": sums.loss / weight,
        "gradient_norm": optax.tree.norm(gradients),
        "learning_rate": cfg.learning_rate * learning_rate_share(state.step, cfg),
    }
    if cfg.auxiliary_weight > 0:
        metrics["masked_loss"] = sums.masked / weight
        metrics["task_loss"] = (sums.loss - cfg.auxiliary_weight * sums.masked) / weight
    return TrainState(params, optimizer_state, state.step + 1), metrics


class StepRunner:
    """The compiled step of one run, with what it knows of each of the run's stores.

    With one batch per step all is one function. Else one adds a batch's sums and one applies them.
    Stores differ in the sizes of their tables, and their batches in shape (`batch_shape`): what
    reads a batch compiles once for each.
    """

    def __init__(
        self, cfg: Config, stores: Sequence[Constants], *, text_width: int, category_limit: int,
        row_shape: RowShape | None = None, group: Group = ALONE, parts: int = 1,
    ) -> None:  # fmt: skip
        """`parts`: of a batch of `batch_size` contexts, each a batch of the stream."""
        sums_of = functools.partial(
            gradient_sums, cfg=cfg, category_limit=category_limit, row_shape=row_shape,
            mesh=group.mesh,
        )  # fmt: skip
        apply = functools.partial(apply_sums, cfg=cfg, text_width=text_width)

        def train_step(
            state: TrainState, batch: Inputs, store: Constants
        ) -> tuple[TrainState, dict[str, Array]]:
            return apply(state, sums_of(state, batch, *store))

        def add_batch(
            sums: GradientSums, state: TrainState, batch: Inputs, store: Constants
        ) -> GradientSums:
            more = sums_of(state, batch, *store)
            return GradientSums(
                *(jax.tree.map(jnp.add, *pair) for pair in zip(sums, more, strict=True))
            )

        self.accumulate = cfg.accumulate * parts  # batches of the stream in a step
        results = group.placement()
        self._step: Any = jax.jit(train_step, donate_argnums=0, **results)
        self._zeros: Any = jax.jit(no_gradients, **results)
        self._add: Any = jax.jit(add_batch, donate_argnums=0, **results)
        self._apply: Any = jax.jit(apply, donate_argnums=0, **results)
        self._stores = group.same(tuple(without_texts(store) for store in stores))
        self._seen: set[tuple[int, int, int]] = set()  # store and `batch_shape` of batches

    def step(
        self, state: TrainState, first: Fed, next_input: Callable[[Array], Fed] | None = None
    ) -> tuple[TrainState, dict[str, Array]]:
        """Dispatch one step; the state passed in must not be used again.

        Args:
            next_input: gives the step's further batches, if it takes any; it is told a result that
                is there as soon as the device has finished with the batch before.
        """
        if self.accumulate == 1:
            self._note(first)
            new_state, metrics = self._step(state, first.inputs, self._stores[first.store])
            return new_state, metrics
        assert next_input is not None, "a step of several batches needs a way to get them"
        sums, batch = self._zeros(state.params), first
        for part in range(self.accumulate):
            if part > 0:
                batch = next_input(sums.loss)
            self._note(batch)
            sums = self._add(sums, state, batch.inputs, self._stores[batch.store])
        new_state, metrics = self._apply(state, sums)
        return new_state, metrics

    def _note(self, batch: Fed) -> None:
        self._seen.add((batch.store, *batch_shape(batch.inputs)))

    def assert_one_compilation(self) -> None:
        """Raise if a part of the step compiled more than once, or once for each store and each
        shape of its batches."""
        assert_compilations(self._apply, "apply_step")
        for function in (self._step, self._add):
            assert_compilations(function, function.__name__, limit=max(1, len(self._seen)))


def batch_shape(batch: Mapping[str, Any]) -> tuple[int, int]:
    """What differs between the shapes of batches: N of a flat one, of which each task has its own,
    and U, of which a store has two; 0 where that is the same for all or not there."""
    cells = int(batch["cells"].shape[1]) if is_flat(batch) else 0
    texts = next((len(batch[name]) for name in (TEXTS, TEXT_NUMBERS) if name in batch), 0)
    return cells, texts


def assert_compilations(
    jitted: Any, name: str, *, compiled_before: int = 0, limit: int = 1
) -> None:
    """Raise if a jitted function has compiled more often than `limit` since then."""
    count = jitted._cache_size() - compiled_before
    if count > limit:
        raise RecompilationError(
            f"'{name}' compiled {count} times, expected {limit}: shapes changed"
        )


@contextlib.contextmanager
def compiled_by_shape(jitted: Any, name: str) -> Iterator[set[tuple[int, int]]]:
    """A pass over batches of one store, whose shapes (`batch_shape`) go into the set: raise at its
    end if a jitted function has compiled in it more often than once for each."""
    seen: set[tuple[int, int]] = set()
    compiled_before = jitted._cache_size()
    yield seen
    assert_compilations(jitted, name, compiled_before=compiled_before, limit=max(1, len(seen)))


class Feed:
    """The train batches on their way to the device: where their stream stands, and how long the
    device had to wait for them.

    The device waits while it has finished a step and the next batch is not there. A fetch that
    ended before the step did made nobody wait, however long it took; of another all of it counts,
    so what is said is never too little.
    """

    def __init__(
        self, next_batch: Callable[[], tuple[Mapping[str, Any], int]],
        read_position: Callable[[], Any] = lambda: None,
        weigh: Callable[[Any, int], Any] = lambda batch, store: None, *,
        texts: Sequence[Array | None] = (None,), group: Group = ALONE,
        observer: Observer = UNOBSERVED,
    ) -> None:  # fmt: skip
        """
        Args:
            weigh: what the contexts of a batch weigh in the loss, [n] float32; None: all 1.
            texts: of each store, as `Tables.texts` has them.
            observer: of fetching and putting, and of what the device works on.
        """
        self._next_batch = next_batch  # and the number of its store
        self._weigh, self._texts = weigh, texts
        self.group, self.observer = group, observer
        self.read_position = read_position  # after the batches handed out, e.g. a state_dict
        self.fetch_seconds = 0.0  # in which the host got batches and put them on their way
        self.wait_seconds = 0.0  # of these, in which the device waited
        self.cells = 0  # of the contexts handed out, without padding
        self.positions = 0  # of the batches handed out, with padding
        self._batches = 0  # handed out by this process

    def next_on_device(self, running: Array | None = None) -> Fed:
        """The next batch, on its way to the device. `running`: what the device works on now."""
        started = time.perf_counter()
        if running is not None:
            self.observer.dispatched(running)
        with self.observer.span("fetch", batch=self._batches):
            batch, store = self._next_batch()
        with self.observer.span("put", batch=self._batches):
            inputs, weights = to_device(batch, self._texts[store]), self._weigh(batch, store)
            if weights is not None:
                inputs[SEED_WEIGHTS] = jax.device_put(weights)
            on_device = Fed(self.group.shards(inputs), store)
        self.group.beat(f"train batch {self._batches}")
        self._batches += 1
        is_ready: Any = getattr(running, "is_ready", None)  # of the array; jax does not declare it
        waited = is_ready is None or is_ready()
        seconds = time.perf_counter() - started
        self.fetch_seconds += seconds
        self.wait_seconds += seconds if waited else 0.0
        self.cells += cell_count(batch)
        self.positions += position_count(batch)
        return on_device


def fit(
    state: TrainState,
    runner: StepRunner,
    feed: Feed,
    *,
    steps: int,
    on_report: Callable[[StepReport], None],
    is_due: Callable[[int], bool] = lambda step: False,
    on_state: Callable[[TrainState, int, Any], bool] = lambda state, step, position: False,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainState:
    """Train up to a number of steps and return the last state.

    Args:
        state: where to begin; with k steps applied, the feed must give the batches after theirs.
        on_report: called once per step, one step late.
        is_due: whether the state after a step is wanted. That costs the overlap of one step.
        on_state: called with it, e.g. to evaluate or save, and where the feed stood after the
            step's batches; also after the last step. It must not keep the state, and returns
            whether the step was the last.
        should_stop: asked after each step; then that step is the last.
    """
    reader = _Reader(feed, on_report, accumulate=runner.accumulate)
    step = int(state.step)
    batch = feed.next_on_device() if step < steps else Fed({})
    is_last = step >= steps
    while not is_last:
        step += 1
        feed.group.beat(f"step {step}")
        with feed.observer.span("start", step=step):
            state, metrics = runner.step(state, batch, feed.next_on_device)
        feed.observer.dispatched(metrics["loss"])
        position, size = feed.read_position(), (feed.cells, feed.positions)
        is_last = step >= steps or should_stop()
        if not is_last:
            batch = feed.next_on_device(metrics["loss"])  # while the step runs
        reader.read()
        reader.pending = (step, metrics, size)
        if is_last or is_due(step):
            reader.read()
            with feed.observer.left_out():
                is_last = on_state(state, step, position) or is_last
            reader.restart()
    runner.assert_one_compilation()
    return state


class _Reader:
    """Reads the metrics of steps that have been dispatched, and takes the time between them."""

    def __init__(
        self, feed: Feed, on_report: Callable[[StepReport], None], *, accumulate: int
    ) -> None:
        # With the cells and positions of all batches up to the step's.
        self.pending: tuple[int, dict[str, Array], tuple[int, int]] | None = None
        self._accumulate = accumulate
        self._feed = feed
        self._on_report = on_report
        self._fetched, self._waited, self._size = 0.0, 0.0, (0, 0)
        self.restart()

    def restart(self) -> None:
        """What comes until now belongs to no step."""
        self._read_at = time.perf_counter()

    def read(self) -> None:
        """Wait for the step that is pending, if any, and report it."""
        if self.pending is None:
            return
        step, metrics, size = self.pending
        self.pending = None
        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        if not np.isfinite(values["loss"] + values["gradient_norm"]):
            batches = range((step - 1) * self._accumulate, step * self._accumulate)
            raise NonFiniteLossError(
                f"loss is {values['loss']} at step {step} ({_named(batches)}), gradient norm"
                f" {values['gradient_norm']:.3g}, learning rate {values['learning_rate']:.3g}",
                batches,
            )
        feed, started = self._feed, self._read_at
        self.restart()
        report = StepReport(
            step=step,
            seconds=self._read_at - started,
            fetch_seconds=feed.fetch_seconds - self._fetched,
            wait_seconds=feed.wait_seconds - self._waited,
            cells=size[0] - self._size[0],
            positions=size[1] - self._size[1],
            **values,
        )
        self._fetched, self._waited, self._size = feed.fetch_seconds, feed.wait_seconds, size
        self._on_report(report)


def _named(batches: range) -> str:
    """Train batches of a step: of the one store as `Sampler.batch` counts them, of several as they
    were mixed."""
    if len(batches) == 1:
        return f"train batch {batches[0]}"
    return f"train batches {batches[0]} to {batches[-1]}"


@functools.lru_cache(maxsize=8)
def _jitted_forward(cfg: Config, category_limit: int, row_shape: RowShape | None) -> Any:
    """One function for all passes of a configuration, so that only the first one compiles it."""

    def predict(params: Params, batch: Inputs, tables: Tables) -> Output:
        return forward(
            params, batch, tables, cfg, category_limit=category_limit, row_shape=row_shape
        )

    return jax.jit(predict)


class Predictor:
    """The compiled forward pass: outputs of the heads, on the host."""

    def __init__(
        self, cfg: Config, tables: Tables, *, category_limit: int, row_shape: RowShape | None = None
    ) -> None:
        # Which rows are visible is the sampler's business, and may be a dict, which has no hash;
        # trainings of other lengths, rates or hops share the compiled pass.
        usual = {
            "max_hops": None, "label_rows": 0, "steps": None, "learning_rate": Config.learning_rate,
        }  # fmt: skip
        cfg = cfg.replace(visible_until=None, **usual)
        self._predict = _jitted_forward(cfg, category_limit, row_shape)
        self._tables = tables

    def outputs(self, params: Params, batches: Iterator[Any]) -> Pass:
        """What the heads say of the batches."""
        pending: tuple[Output, dict[str, Any], int] | None = None
        with compiled_by_shape(self._predict, "predict") as seen:
            for batch in batches:
                seen.add(batch_shape(batch))
                inputs = to_device(batch, self._tables.texts)
                output = self._predict(params, inputs, self._tables)
                if pending is not None:
                    yield _first_contexts(*pending)
                info = {name: np.array(value) for name, value in batch.info.items()}
                pending = (output, info, context_count(batch))
            if pending is not None:
                yield _first_contexts(*pending)


def _first_contexts(
    output: Output, info: dict[str, Any], count: int
) -> tuple[Output, dict[str, Any]]:
    """Cut a batch's outputs to the contexts that count."""
    on_host = jax.device_get(output)
    host = Output(*(np.asarray(part)[:count] for part in on_host))  # type: ignore[arg-type]
    return host, {name: value[:count] for name, value in info.items()}
