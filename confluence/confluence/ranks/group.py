"""Data parallel training: the group of ranks, and the arrays that they share.

Each rank is a process with one device. A step's batch of B contexts is dealt to W ranks, B/W each,
as the sampler deals its seeds; global arrays are the ranks' own, one behind the other on axis 0:

    rank 0   cells [1, N]  text table [U, T]   ┐
    rank 1   cells [1, N]  text table [U, T]   ┴► global [W, N], [W·U, T]; ids of texts are local

The loss is computed inside `shard_map`, where a rank sees its own part, and reduced to sums over
all ranks. Its gradient is taken outside, so it is the joined batch's: one process with the same B
takes the same step, up to the order in which floats are added. Parameters are the same everywhere.

Only rank 0 reads and writes the run's folder; what it finds there it tells the others.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from headwater.shared import leave
from jax import Array
from jax.sharding import Mesh, NamedSharding

from confluence.config import Config, ConfigError
from confluence.ranks.launch import LAUNCHER
from confluence.ranks.rendezvous import About, Place, RendezvousError, about_this_process, meet
from confluence.ranks.stop import StopRequest, TrainingStopped
from confluence.ranks.watchdog import RankFailedError, Watchdog

AXIS = "rank"
_jax: Any = jax  # parts of it that have no types
SHARDED, SAME = _jax.P(AXIS), _jax.P()
JOIN_TIMEOUT_S = 300.0  # how long ranks wait for each other at the start
HEARTBEAT_MARGIN_S = 60  # JAX ends silent ranks too, without saying much: later than the watchdog
STOP_DELAY = 2  # steps from a signal to the step that all ranks stop at
OWN_SETTINGS = frozenset({"num_threads", "num_prefetch"})  # may differ between ranks

Tree = TypeVar("Tree")


# ------------------------------------------------------------------------------------- the group


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The ranks of one training, as one of them sees it. Methods that name all ranks must be called
    by all of them, in the same order."""

    rank: int = 0
    size: int = 1
    local_size: int = 1  # ranks that share this one's cores
    mesh: Mesh | None = None  # of all devices, by rank; None where there is one rank
    watchdog: Watchdog | None = None

    @property
    def is_first(self) -> bool:
        """Whether this rank reads and writes the run's folder."""
        return self.rank == 0

    def check_can_train(self) -> None:
        """Raise in a process that has left its ranks: JAX counts them still."""
        if self.size == 1 and _has_left:
            raise RendezvousError(
                "this process was one of several ranks and has left them: it can evaluate and"
                " predict; start another process to train"
            )

    def beat(self, doing: str) -> None:
        """This rank goes on; all ranks make the same beats."""
        if self.watchdog is not None:
            self.watchdog.beat(doing)

    def still(self) -> None:
        """This rank is still at what it began last."""
        if self.watchdog is not None:
            self.watchdog.still()

    def watched(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of an evaluation: one beat, as ranks may have different numbers of them."""
        self.beat("an evaluation")
        for batch in batches:
            self.still()
            yield batch

    def share(self) -> dict[str, int]:
        """For a sampler: this rank's share of the seeds."""
        return {"rank": self.rank, "world_size": self.size, "local_world_size": self.local_size}

    def sampler_options(self, cfg: Config) -> dict[str, int]:
        """For a sampler: this rank's share of the contexts of each batch."""
        cfg.check_ranks(self.size)
        each = max(1, cfg.contexts // self.size)  # 0 of `Config.contexts` that are not chosen yet
        return {**self.share(), "default_batch_size": each}

    # ---- arrays ----------------------------------------------------------------------------

    def shards(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Global arrays, of which those on this rank's device are its parts as they are."""
        if self.mesh is None:
            return arrays
        sharding = NamedSharding(self.mesh, SHARDED)
        return {name: self._of_shards(array, sharding) for name, array in arrays.items()}

    def _of_shards(self, array: Array, sharding: NamedSharding) -> Array:
        shape = (array.shape[0] * self.size, *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, [array])

    def placement(self) -> dict[str, Any]:
        """For `jax.jit`: its results are the same on all ranks."""
        return {} if self.mesh is None else {"out_shardings": NamedSharding(self.mesh, SAME)}

    def same(self, tree: Tree) -> Tree:
        """Global arrays of values that every rank has already."""
        if self.mesh is None:
            return tree
        sharding = NamedSharding(self.mesh, SAME)

        def of_own(value: Any) -> Array:
            own = jax.device_put(value)
            return jax.make_array_from_single_device_arrays(own.shape, sharding, [own])

        return _map(of_own, tree)

    def local(self, tree: Tree) -> Tree:
        """This rank's copy of global arrays that are the same everywhere; no rank waits."""
        if self.mesh is None:
            return tree
        return _map(lambda array: array.addressable_data(0), tree)

    def host(self, tree: Tree) -> Tree:
        """Local arrays on the host, so that one rank alone can save them."""
        return tree if self.mesh is None else _map(np.asarray, tree)

    def broadcast(self, tree: Tree) -> Tree:
        """Rank 0's values, bit for bit, as global arrays on all ranks; each of 4 bytes a number.

        The others need to know shapes and types only (`jax.eval_shape`).
        """
        if self.mesh is None:
            return tree
        self.beat("taking over the state of rank 0")
        sharded = NamedSharding(self.mesh, SHARDED)

        def bits(value: Any) -> Any:
            assert value.dtype.itemsize == 4, value.dtype
            words = np.zeros(value.shape, np.uint32)
            if self.is_first:
                words = np.asarray(value).view(np.uint32)
            return _jax.make_array_from_process_local_data(sharded, words[None])

        types = [value.dtype for value in jax.tree.leaves(tree)]
        restore = functools.partial(_sum_of_bits, types=types)
        leaves = jax.jit(restore, **self.placement())(jax.tree.leaves(_map(bits, tree)))
        whole: Tree = jax.tree.unflatten(jax.tree.structure(tree), leaves)
        return whole

    # ---- messages --------------------------------------------------------------------------

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank; JSON can hold them."""
        if self.mesh is None or self.watchdog is None:
            return [value]
        store, name = _store(), f"messages/{next(_message_numbers)}"
        limit = int(1000 * (self.watchdog.timeout_s + HEARTBEAT_MARGIN_S))  # the watchdog is first
        self.beat(name)
        store.key_value_set(f"{name}/{self.rank}", json.dumps(value))
        texts = [store.blocking_key_value_get(f"{name}/{r}", limit) for r in range(self.size)]
        return [json.loads(text) for text in texts]

    def tell(self, value: Any) -> Any:
        """Rank 0's value, on all ranks."""
        return self.gather(value if self.is_first else None)[0] if self.size > 1 else value

    def check_same(self, what: Mapping[str, Any]) -> None:
        """Raise where another rank works on something else: settings, task, store."""
        mine = json.loads(json.dumps(what))
        first = self.tell(mine)
        found = [
            f"{name} is {mine.get(name)!r} on rank {self.rank} and {first.get(name)!r} on rank 0"
            for name in {**first, **mine}
            if name not in OWN_SETTINGS and mine.get(name) != first.get(name)
        ]
        if found:
            raise ConfigError("the ranks do not work on the same: " + "; ".join(found))

    def joined(self, rows: Tree) -> Tree:
        """The rows of a finite pass over seeds from all ranks, in the order of one rank's pass.

        `rows` is a dataclass of arrays with one row per seed, as the sampler dealt them.
        """
        if self.mesh is None:
            return rows
        whole = self.joined_arrays(vars(rows))
        return dataclasses.replace(rows, **whole)  # type: ignore[type-var]

    def joined_arrays(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """The same of arrays by name."""
        if self.mesh is None:
            return dict(rows)
        columns = {name: np.ascontiguousarray(column) for name, column in rows.items()}
        lengths = self.gather(len(next(iter(columns.values()))))
        return {name: self._join(column, lengths) for name, column in columns.items()}

    def _join(self, column: np.ndarray[Any, Any], lengths: list[int]) -> np.ndarray[Any, Any]:
        """Deal back: row i of rank r is row i * W + r of the whole."""
        assert self.mesh is not None
        total, most = sum(lengths), max(1, *lengths)
        padded = np.zeros((most, *column.shape[1:]), column.dtype)
        padded[: len(column)] = column
        whole = self._all(padded.view(np.uint8).reshape(1, -1))  # bytes: JAX has no 64 bits here
        parts = whole.view(column.dtype).reshape(self.size, most, *column.shape[1:])
        return np.ascontiguousarray(parts.swapaxes(0, 1).reshape(-1, *column.shape[1:])[:total])

    def _all(self, own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The arrays [1,n] of all ranks, [W,n]."""
        assert self.mesh is not None
        self.beat("putting rows together")
        parts = _jax.make_array_from_process_local_data(NamedSharding(self.mesh, SHARDED), own)
        return np.asarray(self._everywhere(parts).addressable_data(0))

    @functools.cached_property
    def _everywhere(self) -> Any:
        """The identity, whose result is on all ranks; compiled once for each shape."""
        return jax.jit(lambda rows: rows, **self.placement())


def _map(function: Callable[[Any], Any], tree: Tree) -> Tree:
    mapped: Tree = jax.tree.map(function, tree)
    return mapped


def _sum_of_bits(words: list[Array], *, types: list[Any]) -> list[Array]:
    """Of arrays that are 0 but on one rank: that rank's. [W,...] uint32 → [...]"""
    sums = [jnp.sum(array, axis=0, dtype=jnp.uint32) for array in words]
    return [
        jax.lax.bitcast_convert_type(value, dtype) for value, dtype in zip(sums, types, strict=True)
    ]


ALONE = Group()
_current = ALONE
_has_left = False  # a group that it was of
_message_numbers = itertools.count(1)  # the same on all ranks


def current() -> Group:
    """The group that this process has joined; a group of one if none."""
    return _current


def _store() -> Any:
    """JAX's client of its coordination service, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client


# ------------------------------------------------------------------------------ coming and leaving


def join(place: Place | None, *, collective_timeout_s: float = 600.0) -> Group:
    """Meet the other processes and become one of their ranks; before anything uses a device.

    Args:
        place: from `meeting.find_place`; None: this process trains alone.
        collective_timeout_s: after how long a rank that waits for another one ends.

    Raises:
        RendezvousError: somebody did not come, or has no device or several of its own.
    """
    global _current
    if place is None:
        return ALONE
    if _has_left:
        raise RendezvousError(
            "this process was one of several ranks and has left them: JAX lets a process join once."
            " Do all the work within one `Joined`, or start another process"
        )
    abouts = meet(place, about_this_process(), timeout_s=JOIN_TIMEOUT_S)
    _jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from us
    limit = int(collective_timeout_s) + HEARTBEAT_MARGIN_S
    jax.distributed.initialize(
        coordinator_address=place.coordinator,
        coordinator_bind_address=place.listens_on,
        num_processes=place.processes, process_id=place.rank,
        local_device_ids=_own_device(abouts, place.rank, os.environ),
        cluster_detection_method="deactivate", initialization_timeout=int(JOIN_TIMEOUT_S) + 1,
        heartbeat_timeout_seconds=limit, shutdown_timeout_seconds=limit,
    )  # fmt: skip
    _be_found_at(str(abouts[place.rank]["address"]))
    watchdog = Watchdog(
        _store(), rank=place.rank, names=_names(abouts), timeout_s=collective_timeout_s,
        launcher=int(os.environ[LAUNCHER]) if LAUNCHER in os.environ else None,
    )  # fmt: skip
    _current = Group(
        rank=place.rank, size=place.processes, local_size=_neighbours(abouts, place.rank),
        mesh=_mesh(place), watchdog=watchdog,
    )  # fmt: skip
    return _current


def _be_found_at(address: str) -> None:
    """Have other CPUs connect to this address of ours, by which ranks have found each other.

    JAX would take what this machine calls itself, which on many is an address of loopback, or
    unknown. How its client of CPUs is made has no public name.
    """
    from jax._src import xla_bridge
    from jaxlib import _jax as xla

    def client() -> Any:
        links = xla.make_gloo_tcp_collectives(distributed_client=_store(), hostname=address)
        return xla_bridge.make_cpu_client(collectives=links)

    xla_bridge.register_backend_factory("cpu", client, priority=0, fail_quietly=False)


def _names(abouts: list[About]) -> list[str]:
    """What ranks are called where one is waited for: with their machine, if there are several."""
    several = len({about["host"] for about in abouts}) > 1
    return [
        f"rank {rank} on {about['host']}" if several else f"rank {rank}"
        for rank, about in enumerate(abouts)
    ]


def _mesh(place: Place) -> Mesh:
    """All devices by rank; makes sure that each rank has exactly one."""
    devices = sorted(jax.devices(), key=lambda device: device.process_index)
    if [device.process_index for device in devices] != list(range(place.processes)):
        raise RendezvousError(
            f"{place.processes} ranks have {len(devices)} devices, rank {place.rank} has"
            f" {jax.local_device_count()}: each must have exactly one"
        )
    return Mesh(np.array(devices), (AXIS,))


def _neighbours(abouts: list[About], rank: int) -> int:
    """How many ranks share this one's machine and cores, itself included."""
    own = abouts[rank]
    return sum(a["host"] == own["host"] and a["cores"] == own["cores"] for a in abouts)


def _own_device(abouts: list[About], rank: int, environment: Mapping[str, str]) -> list[int]:
    """Index of this rank's device among those that it can see: one for each rank of a machine,
    unless it was given one of its own. CPUs have no index, and nothing comes of it."""
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in environment and "," not in environment[name]:
            return [0]
    host = abouts[rank]["host"]
    return [sum(about["host"] == host for about in abouts[:rank])]


class Joined:
    """Context of a rank's work: `with Joined(place, ...) as group:`. A rank that fails ends the
    others with its reason, and its process ends with status 1 whatever becomes of the error. What
    libraries print to stdout meanwhile goes to stderr."""

    def __init__(self, place: Place | None, **limits: float) -> None:
        self._place, self._limits = place, limits
        self._stdout: int | None = None

    def __enter__(self) -> Group:
        if self._place is not None:
            sys.stdout.flush()
            self._stdout = os.dup(1)
            os.dup2(2, 1)
        try:
            return join(self._place, **self._limits)
        except BaseException:
            self._give_stdout_back()
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._end(error)
        finally:
            self._give_stdout_back()

    def _give_stdout_back(self) -> None:
        if self._stdout is not None:
            sys.stdout.flush()
            os.dup2(self._stdout, 1)
            os.close(self._stdout)
            self._stdout = None

    def _end(self, error: BaseException | None) -> None:
        global _current, _has_left
        watchdog = _current.watchdog
        if watchdog is None:
            return
        if error is None or isinstance(error, TrainingStopped):  # as on all ranks
            _current.beat("leaving")
            _jax.distributed.shutdown()
            watchdog.stop()
            watchdog.join()
            _current, _has_left = ALONE, True
            return
        atexit.register(leave_after_failure, 1)
        reason = watchdog.reason()  # then this error is only what came of it
        if reason is None and _is_of_a_link(error):
            reason = watchdog.gone()
        watchdog.tell_failure(reason or f"{type(error).__name__}: {error}".rstrip(": "))
        watchdog.stop()
        if reason is not None:
            raise RankFailedError(reason) from error


def _is_of_a_link(error: BaseException) -> bool:
    """Whether an error may be of a collective in which another rank is missing."""
    said = f"{type(error).__name__}: {error}".lower()
    return any(word in said for word in ("gloo", "nccl", "connection", "socket", "collective"))


def leave_after_failure(status: int) -> None:
    """End a rank that failed, now: at its regular end JAX would wait for the others."""
    if _current.size > 1 and status:
        leave(status)


# -------------------------------------------------------------------------------------- the step


def over_ranks(sums: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """Sums of one rank's part of a batch → of all parts.

    Args:
        sums: (params, batch, *others) → numbers to be added; others are the same on all ranks.

    Gradients of the result are those of the joined batch on every rank. JAX does not check here
    that parameters are the same everywhere (it could not see through the attention's own rules of
    differentiation); test_parallel.py does.
    """
    if mesh is None:
        return sums

    def of_all(params: Any, batch: Any, others: Any) -> Any:
        return _jax.lax.psum(sums(params, batch, *others), AXIS)

    sharded = jax.shard_map(
        of_all, mesh=mesh, in_specs=(SAME, SHARDED, SAME), out_specs=SAME, check_vma=False
    )
    return lambda params, batch, *others: sharded(params, batch, others)


# ------------------------------------------------------------------------------------- the stop


class AgreedStop:
    """A stop that one rank was asked for and all make after the same step.

    Every rank votes after each step; votes are read when their collective has long ended, so nobody
    waits for them, and all read the same.
    """

    def __init__(self, group: Group, request: StopRequest) -> None:
        self._group, self._request = group, request
        self._votes: deque[Array] = deque()
        self._agreed = 0  # number of a signal
        if group.mesh is not None:
            self._most: Any = jax.jit(jnp.max, **group.placement())

    def ask(self) -> bool:
        """Whether the step that was dispatched last is the last one; once per step on all ranks."""
        if self._group.mesh is None:
            return self._request.is_made()
        if len(self._votes) == STOP_DELAY:
            self._agreed = self._agreed or int(self._votes.popleft().addressable_data(0))
        own = np.array([self._request.signal_number or 0], np.int32)
        sharding = NamedSharding(self._group.mesh, SHARDED)
        self._group.beat("whether to stop")
        self._votes.append(self._most(_jax.make_array_from_process_local_data(sharding, own)))
        return self.is_made()

    def is_made(self) -> bool:
        """Whether the run stops, as far as all ranks know."""
        return self._request.is_made() if self._group.mesh is None else self._agreed > 0

    def adopt(self) -> None:
        """Say of the stop what all ranks say, also where the signal did not come."""
        if self._agreed:
            self._request.signal_number = self._agreed
