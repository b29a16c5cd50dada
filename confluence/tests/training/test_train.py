"""Training: a batch is learned, optimizers are chosen by name, everything compiles once."""

from __future__ import annotations

import copy
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from headwater import SemanticType

from confluence.config import Config
from confluence.data.tasks import to_device
from confluence.model.loss import TARGET_STYPES
from confluence.model.transformer import parameter_table
from confluence.training import smoke
from confluence.training.optimizer import learning_rate_share, make_optimizer, trainers
from confluence.training.step import (
    Constants,
    Fed,
    Feed,
    GradientSums,
    NonFiniteLossError,
    Predictor,
    RecompilationError,
    StepReport,
    StepRunner,
    TrainState,
    assert_compilations,
    first_state,
    fit,
    gradient_sums,
    memory_explained,
)

LIMIT = smoke.CATEGORIES_PER_COLUMN


@pytest.fixture
def cfg(cfg: Config) -> Config:
    """The same for all tests that take steps, so that these compile once."""
    return cfg.replace(width=32, learning_rate=3e-3, steps=100)


@functools.cache
def make_runner(cfg: Config) -> StepRunner:
    return StepRunner(
        cfg, [Constants(smoke.synthetic_tables(), smoke.synthetic_scales(cfg))],
        text_width=smoke.TEXT_WIDTH, category_limit=LIMIT,
    )  # fmt: skip


def new_state(cfg: Config) -> TrainState:
    """The first state in arrays of its own, which a step may take."""
    state: TrainState = jax.tree.map(jnp.array, _first_state(cfg))
    return state


@functools.cache
def _first_state(cfg: Config) -> Any:
    return jax.device_get(first_state(cfg, smoke.TEXT_WIDTH))


@pytest.mark.parametrize("stype", TARGET_STYPES)
def test_one_batch_overfits_in_100_steps(cfg: Config, stype: SemanticType) -> None:
    batch = smoke.synthetic_batch(cfg, stype)
    reports: list[StepReport] = []
    fit(
        new_state(cfg), make_runner(cfg), Feed(lambda: (batch, 0)),
        steps=cfg.steps, on_report=reports.append,
    )  # fmt: skip
    assert [r.step for r in reports] == list(range(1, 101))
    assert reports[-1].loss < 0.1 * reports[0].loss, (reports[0].loss, reports[-1].loss)


def test_muon_takes_the_matrices_of_attention_and_feed_forward_by_name(cfg: Config) -> None:
    by_trainer: dict[str, set[str]] = {}
    for name, trainer in trainers(cfg, smoke.TEXT_WIDTH).items():
        by_trainer.setdefault(trainer, set()).add(name)
    parts = ("query", "key", "value", "out", "gate")
    attention = {f"{kind}.{n}" for kind in ("attention", "readout") for n in parts}
    assert by_trainer["muon"] == attention | {f"feed_forward.{n}" for n in ("gate", "up", "down")}
    assert by_trainer["temperature"] == {"attention.temperature", "readout.temperature"}
    undecayed = by_trainer["adamw_without_decay"]
    assert all(n.endswith((".bias", ".norm")) for n in undecayed)
    assert not any(n.endswith((".bias", ".norm")) for n in by_trainer["adamw"])
    assert "encoder.column.weight" in by_trainer["adamw"]  # a matrix, but not Muon's


def test_updates_have_the_size_of_their_optimizer(cfg: Config) -> None:
    cfg = cfg.replace(steps=10, learning_rate=3e-4, weight_decay=0.0, clip_norm=1e9)
    params = new_state(cfg).params
    optimizer = make_optimizer(cfg, smoke.TEXT_WIDTH)
    draws = np.random.default_rng(0)
    gradients = {n: draws.normal(size=p.shape).astype(np.float32) for n, p in params.items()}
    updates, _ = jax.jit(optimizer.update)(gradients, optimizer.init(params), params)
    table = parameter_table(cfg, smoke.TEXT_WIDTH)
    for name, update in updates.items():
        size = np.abs(np.asarray(update))
        if table[name].trainer == "muon":  # each matrix by itself has singular values near 0.02
            stack = np.asarray(update).reshape(-1, *update.shape[-2:])
            values = np.linalg.svd(stack, compute_uv=False) / 0.02
            widening = max(1.0, update.shape[-1] / update.shape[-2]) ** 0.5
            # The quintic iteration of Muon ends between 0.5 and 1.5, not at 1.
            assert np.median(values) == pytest.approx(widening, rel=0.3), name
            assert values.max() < 1.6 * widening, name
        else:  # the first Adam update is the learning rate, whatever the gradient
            rate = 3e-3 if table[name].trainer == "temperature" else 3e-4
            np.testing.assert_allclose(size, rate, rtol=1e-3, err_msg=name)


def test_weight_decay_spares_norms_biases_and_temperatures(cfg: Config) -> None:
    cfg = cfg.replace(steps=10, learning_rate=3e-4)
    params = {n: jnp.ones_like(p) for n, p in new_state(cfg).params.items()}
    optimizer = make_optimizer(cfg, smoke.TEXT_WIDTH)
    zeros = {n: jnp.zeros_like(p) for n, p in params.items()}
    updates, _ = jax.jit(optimizer.update)(zeros, optimizer.init(params), params)
    for name, update in updates.items():
        decayed = trainers(cfg, smoke.TEXT_WIDTH)[name] == "adamw"
        expected = -3e-4 * 0.1 if decayed else 0.0
        np.testing.assert_allclose(update, expected, rtol=1e-5, err_msg=name)


def test_schedule_warms_up_and_ends_at_a_tenth(cfg: Config) -> None:
    cfg = cfg.replace(steps=1000)
    assert cfg.warmup == 50
    shares = [float(learning_rate_share(s, cfg)) for s in (0, 49, 50, 525, 1000)]
    np.testing.assert_allclose(shares, [0.02, 1.0, 1.0, 0.55, 0.1], rtol=1e-4)
    assert cfg.replace(steps=100_000).warmup == 2000


def test_all_types_of_target_share_one_compilation(cfg: Config) -> None:
    runner, state = make_runner(cfg), new_state(cfg)
    for stype in TARGET_STYPES:
        state, _ = runner.step(state, Fed(to_device(smoke.synthetic_batch(cfg, stype))))
    runner.assert_one_compilation()


def test_a_second_compilation_is_an_error() -> None:
    double = jax.jit(lambda x: 2 * x)
    double(jnp.zeros(3))
    assert_compilations(double, "double")
    double(jnp.zeros(4))
    with pytest.raises(RecompilationError, match="'double' compiled 2 times"):
        assert_compilations(double, "double")


def test_batches_are_not_donated_and_not_changed(cfg: Config) -> None:
    runner, state = make_runner(cfg), new_state(cfg)
    batch = smoke.synthetic_batch(cfg, SemanticType.BOOLEAN)
    before = {name: value.copy() for name, value in batch.items()}
    on_device = to_device(batch)
    for _ in range(2):
        state, _ = runner.step(state, Fed(on_device))
    for name, value in on_device.items():
        assert np.array_equal(value, before[name]), name


def test_a_loss_that_is_not_finite_stops_with_step_and_batch(cfg: Config) -> None:
    good = smoke.synthetic_batch(cfg, SemanticType.NUMERICAL)
    bad = smoke.synthetic_batch(cfg, SemanticType.NUMERICAL)
    bad["is_null"][bad["is_target"] == 1] = 0
    bad["numeric_values"][bad["is_target"] == 1] = np.nan
    stream = iter([good, good, bad, good, good])
    with pytest.raises(NonFiniteLossError, match=r"loss is nan at step 3 \(train batch 2\)"):
        fit(
            new_state(cfg), make_runner(cfg), Feed(lambda: (next(stream), 0)),
            steps=5, on_report=lambda report: None,
        )  # fmt: skip


def test_a_gradient_that_is_not_finite_stops_before_anything_is_saved(cfg: Config) -> None:
    """The loss of its step still is, and the weights after it are not."""
    runner = copy.copy(make_runner(cfg))
    step = runner.step

    def spoiled(state: Any, *others: Any) -> Any:
        after, metrics = step(state, *others)
        return after, {**metrics, "gradient_norm": metrics["gradient_norm"] * jnp.nan}

    runner.step = spoiled  # type: ignore[method-assign]
    batch = smoke.synthetic_batch(cfg, SemanticType.NUMERICAL)
    saved: list[int] = []
    with pytest.raises(NonFiniteLossError, match=r"at step 1 \(train batch 0\), gradient norm nan"):
        fit(
            new_state(cfg), runner, Feed(lambda: (batch, 0)), steps=1,
            on_report=lambda report: None, on_state=lambda _, step, __: saved.append(step),
        )  # fmt: skip
    assert saved == []


def halves(batch: smoke.SyntheticBatch) -> list[smoke.SyntheticBatch]:
    """A batch as two of half its size that share its texts."""
    size = len(batch["is_labelled"])
    parts = []
    for begin in (0, size // 2):
        rows = slice(begin, begin + size // 2)
        part = smoke.SyntheticBatch(
            {
                n: a[rows] if len(a) == size and n != "text_batch_embeddings" else a
                for n, a in batch.items()
            }
        )
        count = int(np.clip(int(batch["num_sequences"][0]) - begin, 0, size // 2))
        part["num_sequences"] = np.array([count], np.uint32)
        parts.append(part)
    return parts


def test_sums_over_halves_add_up_to_those_of_the_whole_where_means_do_not(cfg: Config) -> None:
    """The update is made from these sums; it is compared by what the next steps lose, above, since
    Muon makes unit vectors even of gradients that are rounding errors."""
    cfg = cfg.replace(batch_size=8, layers=1)
    batch = smoke.synthetic_batch(cfg, SemanticType.NUMERICAL)
    batch["is_labelled"][:3] = 0  # 1 labelled sequence in one half, 4 in the other
    state = new_state(cfg)
    sums_of = jax.jit(functools.partial(gradient_sums, cfg=cfg, category_limit=LIMIT))

    def sums(part: smoke.SyntheticBatch) -> GradientSums:
        tables, scales = smoke.synthetic_tables(), smoke.synthetic_scales(cfg)
        found: GradientSums = sums_of(state, to_device(part), tables, scales)
        return found

    whole = sums(batch)
    one, other = (sums(half) for half in halves(batch))
    assert (one.weight, other.weight, whole.weight) == (1, 4, 5)
    np.testing.assert_allclose(one.loss + other.loss, whole.loss, rtol=1e-5)
    norm = float(jnp.sqrt(sum(jnp.sum(g**2) for g in whole.gradients.values())))
    for name, gradient in whole.gradients.items():
        added = one.gradients[name] + other.gradients[name]
        np.testing.assert_allclose(added, gradient, rtol=1e-4, atol=1e-6 * norm, err_msg=name)
    mean = whole.loss / whole.weight
    assert abs((one.loss / one.weight + other.loss / other.weight) / 2 - mean) > 0.01 * mean


class Traced:
    """A runner whose steps take no time; what happens in which order is noted."""

    accumulate = 1

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.step_count = 0

    def step(self, state: Any, batch: Any, next_input: Any) -> Any:
        self.step_count += 1
        self.happened.append(f"dispatch {self.step_count}")
        loss = jnp.asarray(float(self.step_count))
        metrics = {"loss": loss, "gradient_norm": loss, "learning_rate": loss}
        return state._replace(step=state.step + 1), metrics

    def assert_one_compilation(self) -> None:
        self.happened.append("done")


def test_the_next_batch_is_fetched_and_the_next_step_dispatched_before_metrics_are_read(
    cfg: Config,
) -> None:
    traced, batch = Traced(), smoke.synthetic_batch(cfg, SemanticType.BOOLEAN)
    fetched = iter(range(1, 100))

    def next_batch() -> Any:
        traced.happened.append(f"fetch {next(fetched)}")
        return batch, 0

    runner: Any = traced
    fit(
        new_state(cfg), runner, Feed(next_batch), steps=4,
        on_report=lambda report: traced.happened.append(f"read {report.step}"),
        is_due=lambda step: step == 3,
        on_state=lambda state, step, position: traced.happened.append(f"state {step}"),
    )  # fmt: skip
    assert traced.happened == [
        "fetch 1", "dispatch 1", "fetch 2",
        "dispatch 2", "fetch 3", "read 1",
        "dispatch 3", "fetch 4", "read 2", "read 3", "state 3",
        "dispatch 4", "read 4", "state 4", "done",
    ]  # fmt: skip


def test_a_stop_ends_with_the_state_and_the_place_of_the_last_step(cfg: Config) -> None:
    traced, batch = Traced(), smoke.synthetic_batch(cfg, SemanticType.BOOLEAN)
    taken, states = [], []

    def next_batch() -> Any:
        taken.append(1)
        return batch, 0

    runner: Any = traced
    fit(
        new_state(cfg), runner, Feed(next_batch, lambda: len(taken)), steps=9,
        on_report=lambda report: None, should_stop=lambda: traced.step_count == 5,
        is_due=lambda step: step == 2,
        on_state=lambda state, step, position: states.append((int(state.step), step, position)),
    )  # fmt: skip
    assert states == [(2, 2, 2), (5, 5, 5)]  # the place after the batches of that very step
    assert len(taken) == 5  # nothing is taken for a step that does not come


class Running:
    """What the device works on, done or not."""

    def __init__(self, *, done: bool) -> None:
        self._done = done

    def is_ready(self) -> bool:
        return self._done


def test_a_fetch_counts_as_waiting_only_if_the_device_had_finished(cfg: Config) -> None:
    batch = smoke.synthetic_batch(cfg, SemanticType.BOOLEAN)

    def slow() -> Any:
        time.sleep(0.02)
        return batch, 0

    feed = Feed(slow)
    running: Any = Running(done=False)
    feed.next_on_device(running)
    assert feed.wait_seconds == 0 and feed.fetch_seconds >= 0.02
    running = Running(done=True)
    feed.next_on_device(running)
    assert feed.wait_seconds >= 0.02
    assert feed.cells == 2 * int(np.sum(batch["is_padding"] == 0))


def test_predictor_gives_only_sequences_that_count(cfg: Config) -> None:
    batches: list[Any] = [
        smoke.synthetic_batch(cfg, SemanticType.BOOLEAN, seed=s, sequences=n)
        for s, n in ((0, 4), (1, 2), (2, 0))
    ]
    predictor = Predictor(cfg, smoke.synthetic_tables(), category_limit=LIMIT)
    params = new_state(cfg).params
    parts = list(predictor.outputs(params, iter(batches)))
    assert [len(output.boolean) for output, _ in parts] == [4, 2, 0]
    assert [len(info["seed_index"]) for _, info in parts] == [4, 2, 0]


def test_smoke_run_passes(cfg: Config) -> None:
    cfg = cfg.replace(steps=24, learning_rate=3e-3, auxiliary_weight=0.3)
    result = smoke.run_smoke(cfg)
    assert result["passed"], result
    for when in ("first", "last"):
        parts = result[f"{when}_task_loss"] + 0.3 * result[f"{when}_masked_loss"]
        assert result[f"{when}_loss"] == pytest.approx(parts, rel=1e-5)
    assert result["last_masked_loss"] < result["first_masked_loss"]


def test_synthetic_masked_cells_of_every_type_are_in_lists_alone(cfg: Config) -> None:
    cfg = cfg.replace(auxiliary_weight=0.3, mask_ratio=0.4)
    whole = smoke.synthetic_batch(cfg.replace(auxiliary_weight=0.0), SemanticType.NUMERICAL)
    batch = smoke.synthetic_batch(cfg, SemanticType.NUMERICAL)
    owners = np.asarray(smoke.synthetic_tables().category_columns)
    rows, count = np.arange(cfg.batch_size), 0
    assert np.all(whole["is_target"][rows, batch["target_indices"]] == 1)
    for stype, field in smoke.VALUE_FIELDS.items():
        name = f"masked_{stype.name.lower()}"
        where = np.argwhere(batch[f"{name}_indices"] >= 0)
        assert len(where) > 0, name
        count += len(where)
        for b, i in where:
            cell = batch[f"{name}_indices"][b, i]
            assert whole["semantic_types"][b, cell] == stype
            assert np.array_equal(batch[f"{name}_values"][b, i], whole[field][b, cell])
            assert batch[f"{name}_is_null"][b, i] == whole["is_null"][b, cell]
            assert not np.any(batch[field][b, cell]) and batch["is_target"][b, cell] == 1
            if stype == SemanticType.CATEGORICAL and not batch[f"{name}_is_null"][b, i]:
                assert owners[batch[f"{name}_values"][b, i]] == whole["column_ids"][b, cell]
    assert batch["is_target"].sum() == cfg.batch_size + count


def test_a_step_without_room_says_what_needs_less(cfg: Config) -> None:
    """With the words that JAX 0.11 had for it on a GPU."""
    full = jax.errors.JaxRuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 43.57GiB with GPU_0\nx"
    )
    dense = cfg.replace(attention="dense", batch_size=32, sequence_length=1024)
    with pytest.raises(MemoryError) as raised, memory_explained(dense):
        raise full
    message = str(raised.value)
    assert message.startswith(
        "a step of 32 contexts of up to 1024 cells does not fit into the device's"
    )
    assert "allocate 43.57GiB" in message and "attention=rows" in message and "\n" not in message
    with pytest.raises(MemoryError) as raised, memory_explained(dense.replace(attention="rows")):
        raise full
    assert "attention=rows" not in str(raised.value)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), memory_explained(dense):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
