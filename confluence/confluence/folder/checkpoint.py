"""Checkpoints of a run, with orbax: `<run>/checkpoints/<step>/`.

    params/     what is evaluated
    training/   optimizer state, step, and the loss of every step so far
    record      configuration, stores, tasks, embedder, where the samplers stand, score, whether the
                training is done, a checksum of every array above and one of the record itself

A run that goes on from a checkpoint gives the losses that it would have given without the stop, bit
for bit on one machine. Random keys need no place here: they are made from the seed and the step.

A checkpoint appears under its name by one rename, when all of it is written; it goes by another
rename, before anything of it is removed. So a kill at any time leaves only whole checkpoints, and
the last good one stays: older ones are removed after a newer one is there. Kept are the last
`KEEP_LAST` and the best one by the score on val, where there is one.

Checksums are compared whenever something is read: files are compressed without one, so a flipped
bit would come back as other weights. A run resumes from the newest checkpoint that is whole;
damaged ones after it are renamed to `<step>.damaged`, and damaged ones before it are ignored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from confluence.config import Config, kept_config
from confluence.data.stores import Seeds, TaskPlace
from confluence.folder.files import build_at
from confluence.model.transformer import Params, init

FORMAT = 8
KEEP_LAST = 2  # newest checkpoints that stay; the best on val stays, too
FOLDER = "checkpoints"
PARTS = ("params", "training")
LONGEST_REASON = 200  # characters of another library's error
READ_BYTES = 1 << 20
REMOVED, UNFINISHED = ".removed", ".orbax-checkpoint-tmp"  # in names of what is no checkpoint
DAMAGED = ".damaged"  # in names of those that a run did not resume from
LEFT = re.compile(r"[0-9]+(\.removed|\.orbax-checkpoint-tmp.*)")  # what a kill leaves
OWN_ENTRIES = frozenset((*PARTS, "record", "_CHECKPOINT_METADATA", "commit_success.txt"))
FREE_SETTINGS = frozenset(
    {
        "num_prefetch", "num_threads", "log_every", "log_to", "save_every", "collective_timeout_s",
        "prebatch", "prebatch_epochs",
    }
)  # fmt: skip
"""Settings that a run may change when it goes on: they do not change what is learned."""


class CheckpointError(ValueError):
    """There is no checkpoint, or it does not fit the store or the run."""


class UnreadableCheckpointError(CheckpointError):
    """A checkpoint cannot be read; it may be whole."""


class DamagedCheckpointError(UnreadableCheckpointError):
    """A checkpoint is not as it was written."""


class Score(NamedTuple):
    """How good the weights of a checkpoint are on val; larger is better."""

    metric: str
    value: float  # as reported, e.g. an error
    goodness: float  # the value, or less it where smaller is better


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """One checkpoint in a run's folder, not yet read."""

    step: int
    score: Score | None


def make_record(
    cfg: Config, places: Sequence[TaskPlace], metadata: Mapping[str, Mapping[str, Any]],
    pretraining: Mapping[str, Any] | None = None, out: Path | None = None,
    repeats: Sequence[Any] = (), pack: str | None = None, trees: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """What a checkpoint says about itself.

    Args:
        metadata: of each store, by its path, which is recorded so that it holds wherever the run
            is opened from.
        pretraining: "seeds" and "weights" of the stores of a run without tasks.
        out: the run's folder; a store in it goes with it where it is moved or copied.
        repeats: of each store how many batches were made before training and are repeated, in how
            many epochs; None: no batch comes twice.
        pack: where these batches are, if a pack has them.
        trees: whether boosted trees are fitted after the training.
    """
    text = next(iter(metadata.values()))["text"]
    return {
        "format": FORMAT,
        "config": cfg.to_dict(),
        "stores": [
            {
                "path": str(Path(path).absolute()),
                "fingerprint": str(about["fingerprint"]),
                **_from_folder(path, out),
            }
            for path, about in metadata.items()
        ],
        "embedder": {"name": text["embedder"], "dim": int(text["dim"])},
        "tasks": [
            {**dataclasses.asdict(place), "store": list(metadata).index(place.store)}
            for place in places
        ],
        "pretraining": pretraining,
        "repeats": list(repeats) if any(repeats) else None,
        "pack": pack,
        "trees": trees,
    }


def _from_folder(path: str, out: Path | None) -> dict[str, str | None]:
    """The way to a store from the run's folder, "inside" only if it is in there."""
    if out is None:
        return {"inside": None, "beside": None}
    beside = os.path.relpath(Path(path).resolve(), out.resolve())
    is_inside = Path(path).resolve().is_relative_to(out.resolve())
    return {"inside": beside if is_inside else None, "beside": beside}


def store_paths(out: Path, record: Mapping[str, Any]) -> list[str]:
    """Where a run's stores are: in its own folder, wherever that is now, where they were, or, where
    they moved with it, as far from it as they were; of several the first that is the build which
    the run learned from."""
    found = []
    for entry in record["stores"]:
        inside, beside = entry["inside"], entry["beside"]
        places = [Path(entry["path"])]
        places = places if inside is None else [out / inside, *places]
        places = places if beside is None else [*places, (out / beside).resolve()]
        there = [str(place) for place in places if place.exists()]
        if not there:
            pack = record.get("pack")
            has = f" (the pack '{pack}' can train and no more)" if pack else ""
            raise CheckpointError(
                f"the run in '{out}' learned from the store '{entry['path']}', which is not"
                f" there{has}: say where it is (--store)"
            )
        same = [place for place in there if build_at(Path(place)) == entry["fingerprint"]]
        found.append((same or there)[0])
    return found


def read_places(record: Mapping[str, Any], stores: Sequence[str] = ()) -> tuple[TaskPlace, ...]:
    """The tasks of a checkpoint. `stores`: other places of its stores, in their order."""
    known = [entry["path"] for entry in record["stores"]]
    if stores and len(stores) != len(known):
        raise CheckpointError(
            f"the run learned from {len(known)} stores ({', '.join(known)}), {len(stores)} given"
        )
    paths = list(stores) or known
    return tuple(
        TaskPlace(**{**entry, "store": paths[entry["store"]]}) for entry in record["tasks"]
    )


def read_seeds(record: Mapping[str, Any]) -> tuple[Seeds, ...]:
    """Whose contexts a run without tasks learned from, by store; None: of all tasks, or of the
    tables that its settings name."""
    seeds = (record.get("pretraining") or {}).get("seeds") or [None] * len(record["stores"])
    return tuple(None if own is None else tuple(own) for own in seeds)


# ------------------------------------------------------------------------------------- the folder


def saved_steps(out: Path) -> list[int]:
    """Steps of the whole checkpoints of a run, in order."""
    folder = out / FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdigit())


def find_step(out: Path, which: str | int | None = None) -> int:
    """The step of the "last" checkpoint of a run, of the "best" by its score, or the given one;
    None: of the best, or if none has a score of the last."""
    steps = saved_steps(out)
    if not steps:
        hint = "" if out.is_dir() else ": there is no such folder"
        raise CheckpointError(f"no checkpoint in '{out}'{hint}")
    if which == "last":
        return steps[-1]
    if which in ("best", None):
        best = _best(list(_read_scores(out, steps)))
        if best is None and which is None:
            return steps[-1]
        if best is None:
            raise CheckpointError(
                f"no checkpoint in '{out}' has a score: train with eval_every, or take the last one"
            )
        return best
    if which not in steps:
        raise CheckpointError(
            f"'{out}' has no checkpoint of step {which}, it has {', '.join(map(str, steps))}"
        )
    return int(which)


def newest_whole(out: Path) -> int | None:
    """The newest step whose checkpoint is whole, to its last array; warns of newer ones that are
    damaged. None if the run has no checkpoint, an error if it has none that is whole.
    """
    damaged: list[str] = []
    for step in reversed(saved_steps(out)):
        try:
            arrays = _read_record(out, step)["arrays"]
            _read_arrays(out, step, {part: _shapes(arrays[part]) for part in PARTS})
        except DamagedCheckpointError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(f"{'; '.join(damaged)}: resuming at step {step}", stacklevel=1)
        return step
    if damaged:
        raise DamagedCheckpointError(
            f"{'; '.join(damaged)}: no checkpoint of the run is whole, start again with --overwrite"
        )
    return None


def is_finished(record: Mapping[str, Any]) -> bool:
    """Whether the checkpoint of a record is the end of its training."""
    return bool(record.get("finished", record["step"] == record["config"]["steps"]))


def is_done(out: Path) -> bool:
    """Whether the last checkpoint of a run is the end of its training, by its record alone."""
    steps = saved_steps(out)
    try:
        return bool(steps) and is_finished(load_record(out, steps[-1]))
    except UnreadableCheckpointError:
        return False


def kept_choices(out: Path) -> dict[str, Any]:
    """The settings that the run in a folder chose; empty if no checkpoint there can be read."""
    for step in reversed(saved_steps(out)):
        with contextlib.suppress(UnreadableCheckpointError):
            record = load_record(out, step)
            config = record["config"]
            return {name: config[name] for name in record.get("left_open", ())}
    return {}


def set_aside(out: Path, step: int) -> None:
    """Rename the checkpoints after a step, from which a run did not resume."""
    for later in saved_steps(out):
        if later > step:
            _rename_damaged(out, later)


def _rename_damaged(out: Path, step: int) -> None:
    path = out / FOLDER / f"{step}{DAMAGED}"
    if is_own(path):  # of an earlier time
        shutil.rmtree(path)
    (out / FOLDER / str(step)).rename(path)


def answering_weights(out: Path) -> tuple[int, Params]:
    """The step and weights of the checkpoint that answers (`find_step`); damaged ones are renamed,
    with a warning, and another one answers."""
    while True:
        step = find_step(out)
        try:
            return step, load_weights(out, load_record(out, step))
        except DamagedCheckpointError as error:
            if len(saved_steps(out)) == 1:
                raise
            warnings.warn(f"{error}: another one answers", stacklevel=2)
            _rename_damaged(out, step)


def _read_scores(out: Path, steps: list[int]) -> Iterator[Saved]:
    for step in steps:
        try:
            score = load_record(out, step)["score"]
        except UnreadableCheckpointError:
            score = None
        yield Saved(step=step, score=None if score is None else Score(**score))


def _best(checkpoints: list[Saved]) -> int | None:
    """The step with the best score, the first of equals."""
    scored = [(c.score.goodness, -c.step) for c in checkpoints if c.score is not None]
    return -max(scored)[1] if scored else None


def is_own(path: Path) -> bool:
    """Whether a folder is a checkpoint, or a part of one, and holds nothing else."""
    if path.is_symlink() or not path.is_dir():
        return False
    names = (entry.name.partition(UNFINISHED)[0] for entry in path.iterdir())
    return all(name in OWN_ENTRIES for name in names)


def _remove(path: Path) -> None:
    """Take a checkpoint away under its name at once, then its files; one that holds something else
    stays."""
    gone = path.with_name(path.name + REMOVED)
    if is_own(path) and not gone.exists():
        path.rename(gone)
        shutil.rmtree(gone)


def remove_all(out: Path) -> None:
    """Remove the checkpoints of a run, and what a kill left of some; of a link the link. Whatever
    else is in their folder stays."""
    folder = out / FOLDER
    if folder.is_symlink():
        folder.unlink()
        return
    for path in folder.iterdir() if folder.is_dir() else ():
        name = path.name.removesuffix(DAMAGED)
        if (name.isdigit() or LEFT.fullmatch(name)) and is_own(path):
            shutil.rmtree(path)
    with contextlib.suppress(OSError):  # it is not there, or holds something else
        folder.rmdir()


class Keeper:
    """Writes the checkpoints of one run and removes those that need not stay."""

    def __init__(self, out: Path) -> None:
        self._out = out
        folder = out / FOLDER
        for path in folder.iterdir() if folder.is_dir() else ():
            if LEFT.fullmatch(path.name) and is_own(path):  # what a kill left behind
                shutil.rmtree(path)
        self._saved = list(_read_scores(out, saved_steps(out)))

    def is_best(self, score: Score) -> bool:
        """Whether no checkpoint here has a score as good."""
        scores = [c.score.goodness for c in self._saved if c.score is not None]
        return not scores or score.goodness > max(scores)

    def best_step(self) -> int | None:
        """The step with the best score; None if none has one."""
        return _best(self._saved)

    def best_score(self) -> Score | None:
        """The best score; None if there is none."""
        best = self.best_step()
        return next((c.score for c in self._saved if c.step == best), None)

    def save(
        self, step: int, parts: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any],
        *, score: Score | None = None,
    ) -> None:  # fmt: skip
        """Write the checkpoint of a step; then remove older ones."""
        import orbax.checkpoint as ocp

        told = {
            **record, "step": step, "score": None if score is None else score._asdict(),
            "arrays": {
                part: {name: _about(array) for name, array in parts[part].items()}
                for part in PARTS
            },
        }  # fmt: skip
        items: dict[str, Any] = {name: ocp.args.StandardSave(dict(parts[name])) for name in PARTS}
        path = self._out / FOLDER / str(step)
        try:
            with _checkpointer() as checkpointer:
                checkpointer.save(
                    path.absolute(),
                    args=ocp.args.Composite(
                        record=ocp.args.JsonSave({**told, "checksum": _record_checksum(told)}),
                        **items,
                    ),
                )
        except (OSError, ValueError) as error:  # the second of a full disk
            raise CheckpointError(
                f"the checkpoint in '{path}' cannot be written ({_reason(error)}): with room for it"
                " --resume starts from the one before"
            ) from error
        self._saved.append(Saved(step=step, score=score))
        self._prune()

    def _prune(self) -> None:
        best = _best(self._saved)
        last = {c.step for c in self._saved[-KEEP_LAST:]}
        for checkpoint in list(self._saved):
            if checkpoint.step != best and checkpoint.step not in last:
                self._saved.remove(checkpoint)
                _remove(self._out / FOLDER / str(checkpoint.step))


class Scoreboard(Keeper):
    """Knows the scores of one training, and writes nothing."""

    def __init__(self) -> None:
        self._saved = []

    def save(
        self, step: int, parts: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any],
        *, score: Score | None = None,
    ) -> None:  # fmt: skip
        """Take note of the score."""
        self._saved.append(Saved(step=step, score=score))


def _checkpointer() -> Any:
    """Orbax for this process alone: where several train, the others do not take part."""
    import orbax.checkpoint as ocp

    rank = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=rank, active_processes={rank}, barrier_sync_key_prefix=f"rank{rank}"
    )
    if jax.process_count() == 1:
        alone = ocp.options.MultiprocessingOptions()
    handler = ocp.CompositeCheckpointHandler(
        composite_options=ocp.CompositeOptions(multiprocessing_options=alone)
    )
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


# -------------------------------------------------------------------------------------- reading


def _about(array: Any) -> dict[str, Any]:
    """Type, shape and checksum of an array, for the record."""
    values = np.asarray(array)
    checksum = hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
    return {"dtype": values.dtype.name, "shape": list(values.shape), "checksum": checksum}


def _shapes(arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Arrays that a record speaks of, as `load_parts` wants them; they take no memory."""
    return {
        name: np.broadcast_to(np.zeros((), jnp.dtype(about["dtype"])), about["shape"])
        for name, about in arrays.items()
    }


def _record_checksum(record: Mapping[str, Any]) -> str:
    text = json.dumps(json.loads(json.dumps(record)), sort_keys=True)  # keys as they are read
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_record(out: Path, step: int) -> dict[str, Any]:
    """A checkpoint's record, with the checksums of its arrays."""
    import orbax.checkpoint as ocp

    record = dict(_restore(out, step, {"record": ocp.args.JsonRestore()})["record"])
    if record.get("format", FORMAT) != FORMAT:
        raise CheckpointError(
            f"the checkpoint of step {step} in '{out}' has format {record['format']}, this version"
            f" reads format {FORMAT}: train again"
        )
    checksum = record.pop("checksum", None)
    if checksum != _record_checksum(record):
        raise DamagedCheckpointError(
            f"the checkpoint of step {step} in '{out}' is damaged: its record has another checksum"
        )
    return record


def load_record(out: Path, step: int | None = None) -> dict[str, Any]:
    """The record of a run's checkpoint; by default of the one that answers (`find_step`)."""
    record = _read_record(out, find_step(out) if step is None else step)
    del record["arrays"]
    return record


def load_parts(
    out: Path, step: int, shapes: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Array]]:
    """Parts of a checkpoint; `shapes` has the shape and dtype of every array of each.

    The arrays are bound to no device, as those that a run begins with: what is compiled for these
    runs with those.
    """
    restored = _read_arrays(out, step, shapes)
    return {part: {n: jnp.array(a) for n, a in restored[part].items()} for part in shapes}


def _read_arrays(
    out: Path, step: int, shapes: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    import orbax.checkpoint as ocp

    items: dict[str, Any] = {
        part: ocp.args.StandardRestore(
            {n: np.broadcast_to(np.zeros((), a.dtype), a.shape) for n, a in arrays.items()}
        )
        for part, arrays in shapes.items()
    }
    written = _read_record(out, step)["arrays"]
    restored: dict[str, dict[str, Any]] = _restore(out, step, items)
    for part, arrays in shapes.items():
        for name, like in arrays.items():
            found = restored[part][name]
            if found.shape != like.shape:
                raise CheckpointError(
                    f"the checkpoint of step {step} in '{out}' has '{name}' of shape"
                    f" {found.shape}, this version expects {like.shape}"
                )
            if _about(found) != written[part][name]:
                raise DamagedCheckpointError(
                    f"the checkpoint of step {step} in '{out}' is damaged: array '{name}' of"
                    f" '{part}' has another checksum"
                )
    return restored


def _restore(out: Path, step: int, items: Mapping[str, Any]) -> Any:
    """What a checkpoint holds of these items; whatever cannot be read of it is one error."""
    import orbax.checkpoint as ocp

    path = out / FOLDER / str(step)
    for file in path.rglob("*"):  # Orbax would wait for the writer of a named pipe
        if os.path.exists(file) and not (os.path.isfile(file) or os.path.isdir(file)):
            raise DamagedCheckpointError(
                f"the checkpoint of step {step} in '{out}' is damaged: '{file}' is not a file"
            )
    try:
        with _checkpointer() as checkpointer:
            return checkpointer.restore(path.absolute(), args=ocp.args.Composite(**items))
    except MemoryError:
        raise
    except Exception as error:  # of many kinds, and of more lines than a person reads
        refused = _refused_file(path)
        if refused is not None:  # it may be whole
            raise UnreadableCheckpointError(
                f"the checkpoint of step {step} in '{out}' cannot be read: {refused}"
            ) from error
        raise DamagedCheckpointError(
            f"the checkpoint of step {step} in '{out}' is damaged: some file of it is not as it was"
            f" written, or missing ({_reason(error)})"
        ) from error


def _refused_file(path: Path) -> OSError | None:
    """Why the system does not let a file of a checkpoint be read; None where it does of all that
    are there."""
    refused: list[OSError] = []
    for folder, _, names in os.walk(path, onerror=refused.append):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    while file.read(READ_BYTES):
                        pass
            except FileNotFoundError:
                pass
            except OSError as error:
                refused.append(error)
    return next((e for e in refused if not isinstance(e, FileNotFoundError)), None)


def _reason(error: Exception) -> str:
    """What an error of Orbax says, in brief."""
    said = str(error).strip().partition("\n")[0]
    if len(said) > LONGEST_REASON:  # the cause stands last
        said = f"... {said[-LONGEST_REASON:]}"
    return f"{type(error).__name__}: {said}"


def weight_shapes(record: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shape and type of every parameter, as the record's configuration says."""
    cfg, width = kept_config(record["config"]), int(record["embedder"]["dim"])
    shapes: Any = jax.eval_shape(lambda: init(jax.random.key(0), cfg, width))
    return dict(shapes)


def load_weights(out: Path, record: Mapping[str, Any]) -> Params:
    """Parameters of `weight_shapes`."""
    return load_parts(out, record["step"], {"params": weight_shapes(record)})["params"]


def named_leaves(tree: Any) -> dict[str, Any]:
    """The arrays of a nested state by their path, in the tree's order."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def to_parts(params: Params, rest: Any, losses: list[float]) -> dict[str, Any]:
    """A state as the parts of a checkpoint. `rest` is whatever else a step changes."""
    training = {**named_leaves(rest), "losses": np.array(losses, np.float32)}
    return {"params": params, "training": training}


def from_parts(out: Path, step: int, like: Any) -> tuple[Params, Any, list[float]]:
    """Read back what `to_parts` made; `like` is (params, rest) of the same shapes."""
    params, rest = like
    names = {**named_leaves(rest), "losses": np.empty(step, np.float32)}
    parts = load_parts(out, step, {"params": params, "training": names})
    training = parts["training"]
    found = [training[name] for name in named_leaves(rest)]
    return (
        parts["params"],
        jax.tree.unflatten(jax.tree.structure(rest), found),
        [float(loss) for loss in np.asarray(training["losses"])],
    )


# -------------------------------------------------------------------------------------- refusing


def differences(record: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Why a run with the record `wanted` cannot resume from a checkpoint; empty if it can."""
    found = []
    pairs = {
        "task": [_tasks_of(r) for r in (record, wanted)],
        "store's fingerprint": [
            ", ".join(entry["fingerprint"] for entry in r["stores"]) for r in (record, wanted)
        ],
        "embedder": [r["embedder"] for r in (record, wanted)],
    }
    for title, (was, now) in pairs.items():
        if was != now:
            found.append(f"the {title} was {was!r} and is {now!r}")
    for title, was in (record.get("pretraining") or {}).items():
        now = (wanted.get("pretraining") or {}).get(title)
        if was != now:
            found.append(f"the {title} of the stores were {was!r} and are {now!r}")
    was, now = record.get("repeats"), wanted.get("repeats")
    if was != now:
        found.append(f"the batches that repeat were {_repeated(was)} and are {_repeated(now)}")
    before = kept_config(record["config"]).to_dict()
    after = kept_config(wanted["config"]).to_dict()
    is_open = kept_config(wanted["config"]).left_open()
    kept = [name for name in is_open if name in record.get("left_open", ())]  # the run's own
    found += [
        f"{name} was {before[name]!r} and is {after[name]!r}"
        for name in before
        if name not in FREE_SETTINGS and before[name] != after[name]
        if name not in kept
    ]
    return found


def _repeated(repeats: Sequence[Mapping[str, int] | None] | None) -> str:
    texts = (
        "none" if own is None else f"{own['batches']:,} of {own['epochs']} epochs"
        for own in repeats or [None]
    )
    return ", ".join(texts)


def _tasks_of(record: Mapping[str, Any]) -> str:
    tasks = record["tasks"]
    if len(tasks) == 1:
        return str(tasks[0]["title"])
    return ", ".join(f"{task['title']} (weight {task['weight']:g})" for task in tasks)


def check_resume(out: Path, record: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with another task, store, embedder or model, and say what differs."""
    found = differences(record, wanted)
    if found:
        raise CheckpointError(
            f"the run in '{out}' cannot be resumed: {'; '.join(found)}. Change that back, choose"
            " another folder, or start again (`train` and `pretrain`: with --overwrite)"
        )


def check_store(record: Mapping[str, Any], metadata: Mapping[str, Any], number: int = 0) -> None:
    """Refuse a store whose embeddings these weights cannot read; warn of one that was rebuilt.

    Args:
        number: of the store in the run.
    """
    text, embedder = metadata["text"], record["embedder"]
    found = (text["embedder"], int(text["dim"]))
    expected = (embedder["name"], embedder["dim"])
    if found != expected:
        raise CheckpointError(
            f"store '{metadata['name']}' has texts embedded by '{found[0]}' with width {found[1]},"
            f" the model was trained with '{expected[0]}' and width {expected[1]}"
        )
    before = record["stores"][number]["fingerprint"]
    if str(metadata["fingerprint"]) != before:
        warnings.warn(
            f"store '{metadata['name']}' was rebuilt since training: fingerprint"
            f" {metadata['fingerprint']}, trained on {before}",
            stacklevel=2,
        )
