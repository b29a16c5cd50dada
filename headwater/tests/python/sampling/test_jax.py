"""Batches as pytrees of JAX, whoever is imported first."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import headwater
import jax
import numpy as np
import pytest
from tiny_store import write_tiny

OPTIONS = {"default_batch_size": 2, "default_sequence_length": 16, "num_threads": 1}
USE = """
import sys
def sampled():
    import headwater
    assert by_jax or "jax" not in sys.modules
    with headwater.Sampler({path!r}, default_batch_size=2, default_sequence_length=16) as sampler:
        return sampler.next_train_batch()
by_jax = {first!r} == "jax"
if by_jax:
    import jax
batch = sampled()
import importlib.util
assert importlib.util.find_spec("jax") is not None  # which imports nothing
import jax
placed = jax.device_put(batch)
assert type(placed) is type(batch) and placed.keys() == batch.keys()
assert jax.jit(lambda b: b["num_cells"].sum())(batch) == batch["num_cells"].sum()
assert not any(type(finder).__name__ == "_AfterJax" for finder in sys.meta_path)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("first", ["jax", "headwater"])
def test_a_batch_goes_to_a_device_whoever_is_imported_first(path: Path, first: str) -> None:
    code = USE.format(path=str(path), first=first)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_leaves_are_the_arrays_of_at_most_32_bits(path: Path) -> None:
    for layout in ("dense", "compact", "flat"):
        with headwater.Sampler(path, layout=layout, **OPTIONS) as sampler:
            batch = sampler.next_train_batch()
        leaves = jax.tree_util.tree_leaves_with_path(batch)
        assert [str(key[0].key) for key, _ in leaves] == [*batch]
        assert all(leaf.dtype.itemsize <= 4 for _, leaf in leaves)
        twice = jax.tree.map(lambda leaf: leaf, batch)
        assert type(twice) is headwater.Batch and twice.keys() == batch.keys()


def test_arrays_of_the_host_are_read_by_name_and_left_out_of_the_rest(path: Path) -> None:
    """An int64 would be cut to 32 bits on its way to a device, without a word."""
    with headwater.Sampler(path, **OPTIONS) as sampler:
        batch = sampler.next_train_batch()
    assert batch["obs_time"] is batch.info["obs_time"] and batch["obs_time"].dtype == np.int64
    assert not {"obs_time", "seed_index"} & {*batch, *batch.keys(), *dict(batch)}
    assert "obs_time" not in dict(batch.items())
    assert batch.get("obs_time") is batch["obs_time"] and "obs_time" in batch
    assert batch.get("cells") is None and batch.get("is_null") is batch["is_null"]
    assert batch.get("nothing", 3) == 3 and "nothing" not in batch and 3 not in batch
    assert "obs_time" not in jax.device_put(batch)
    with pytest.raises(KeyError, match="nothing"):
        batch["nothing"]
    with pytest.raises(KeyError, match="obs_time"):
        jax.device_put(batch)["obs_time"]


def test_the_loop_of_validation_reads_val_between_batches_of_train(path: Path) -> None:
    """As seed 001 has it: one sampler, whose val queue goes on by itself."""
    evaluate = jax.jit(lambda batch: batch["is_target"].sum())
    with headwater.Sampler(path, tasks=["quantity"], **OPTIONS) as sampler:
        assert sampler.stats()["val_queue"] == 0
        total = 0.0
        for _ in range(3):
            assert float(evaluate(jax.device_put(sampler.next_train_batch()))) > 0
            for _ in range(4):
                total += float(evaluate(jax.device_put(sampler.next_val_batch())))
        assert total >= 3 * 4


def test_a_loader_puts_its_batches_on_a_device(path: Path) -> None:
    with headwater.Sampler(path, tasks=["churn"], layout="compact", **OPTIONS) as sampler:
        loader = headwater.Loader(sampler)
        first = next(iter(loader))
        placed = loader.to_device(jax.devices()[0])
        batches, expected = list(placed), list(loader)  # both from the second batch on
    assert len(batches) == len(expected) == len(loader) - 1
    assert isinstance(first["cells"], np.ndarray)
    for batch, other in zip(batches, expected, strict=True):
        assert type(batch) is headwater.Batch
        assert all(isinstance(array, jax.Array) for array in batch.values())
        assert all(np.array_equal(batch[name], other[name]) for name in other)


class Puts:
    """In the place of jax.device_put: what it was given, and what still lives of its results."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[list[int]] = []
        self.made: list[weakref.ref[Any]] = []
        self._put = jax.device_put
        monkeypatch.setattr(jax, "device_put", self)

    def __call__(self, batch: headwater.Batch, device: Any) -> Any:
        self.given.append(batch["seed_index"].tolist())
        placed = self._put(batch, device)
        self.made.append(weakref.ref(placed))
        return placed

    def alive(self) -> list[int]:
        return [k for k, made in enumerate(self.made) if made() is not None]


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Puts:
    return Puts(monkeypatch)


def seeds_of(sampler: headwater.Sampler, **more: Any) -> list[list[int]]:
    """Of each batch of two epochs of a loader that knows no device."""
    loader = headwater.Loader(sampler, **more)
    return [loader.next_batch()["seed_index"].tolist() for _ in range(2 * len(loader))]


@pytest.mark.parametrize("layout", ["dense", "flat"])
def test_the_copy_of_the_next_batch_has_begun(path: Path, puts: Puts, layout: str) -> None:
    with headwater.Sampler(path, tasks=["churn"], layout=layout, **OPTIONS) as sampler:
        expected = seeds_of(sampler)
        loader = headwater.Loader(sampler).to_device(jax.devices()[0])
        states = headwater.Loader(sampler)
        for k in range(len(expected) - 1):
            batch = loader.next_batch()
            states.next_batch()
            assert puts.given == expected[: k + 2]
            assert puts.alive() == [k, k + 1]  # in the trainer's hands, and ahead
            assert loader.state_dict() == states.state_dict()
            del batch


def test_the_copy_ahead_is_dropped_when_an_iterator_is_left(path: Path, puts: Puts) -> None:
    with headwater.Sampler(path, tasks=["churn"], **OPTIONS) as sampler:
        expected = seeds_of(sampler)
        loader = headwater.Loader(sampler).to_device(jax.devices()[0])
        run = iter(loader)
        next(run)
        assert puts.alive() == [1]
        del run
        assert puts.alive() == []
        next(iter(loader))
        assert puts.given == [*expected[:2], *expected[1:3]]


def test_the_copy_ahead_is_dropped_at_shutdown(path: Path, puts: Puts) -> None:
    sampler = headwater.Sampler(path, tasks=["churn"], **OPTIONS)
    loader = headwater.Loader(sampler).to_device(jax.devices()[0])
    run = iter(loader)
    next(run)
    assert puts.alive() == [1]
    before = loader.state_dict()
    sampler.shutdown()
    assert puts.alive() == []
    for call in (lambda: next(run), loader.next_batch):
        with pytest.raises(headwater.SamplerShutdown):
            call()
    assert loader.state_dict() == before and before["given"] == 1


def test_the_copy_ahead_is_dropped_when_the_pool_is_moved(path: Path, puts: Puts) -> None:
    pool, other = (headwater.SeedPool(path, tasks=["churn"]) for _ in range(2))
    with headwater.Sampler(path, tasks=["churn"], **OPTIONS) as sampler:
        loader = headwater.Loader(sampler, pool=pool).to_device(jax.devices()[0])
        assert loader.next_batch()["is_null"].shape[0] == 2
        assert puts.given[0] == other.next_batch(2).seeds.tolist()
        for one in (pool, other):
            one.next_batch(3)
        loader.next_batch()
        assert puts.alive() == [3]
        assert puts.given[2] == other.next_batch(2).seeds.tolist()
        assert pool.state_dict() == other.state_dict()


def test_an_error_ahead_loses_no_batch(path: Path, puts: Puts) -> None:
    with headwater.Sampler(path, tasks=["churn"], **OPTIONS) as sampler:
        expected = seeds_of(sampler)
        loader = headwater.Loader(sampler).to_device(jax.devices()[0])
        put, puts._put = puts._put, lambda batch, device: 1 / 0
        with pytest.raises(ZeroDivisionError):
            loader.next_batch()
        puts._put, puts.given = put, []
        loader.next_batch()
        assert puts.given == expected[:2]


def test_what_is_not_a_device_is_refused(path: Path) -> None:
    """None left batches on JAX's default device, as if the loader had been asked for that."""
    with headwater.Sampler(path, tasks=["churn"], **OPTIONS) as sampler:
        loader = headwater.Loader(sampler)
        for device in (None, "cpu", 0, jax.devices()):
            with pytest.raises(TypeError, match=r"device is .*, expected a device of JAX, such as"):
                loader.to_device(device)
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        assert next(iter(loader.to_device(sharding)))["is_null"].sharding == sharding
