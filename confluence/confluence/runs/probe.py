"""A linear probe: what a frozen model's representations tell of a task.

    train seeds ──► contexts ──► the model up to its heads ──► h at the target [n,D] ──► regression
    a split     ──► the same                                                  [m,D] ──► its answers

No weight of the model moves, and its heads are not used: a regression (`linear.py`) reads the
vector that they would get. So a run that never saw the task, one of masked cells above all, can be
asked what it has learned. The answers are scored like those of a run that was trained on the task
(`evaluate.py`), with the same baselines and one more, `untrained`: the same probe of the model's
first weights, which tells what its architecture shows of itself.

The contexts are those of evaluation: nothing is masked or stale, epoch 0. Same run, store and
settings: same result. Cost: a forward pass over the seeds, twice with the control.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from headwater import SemanticType
from headwater.shared import say
from numpy.typing import NDArray

from confluence.answers.read_out import clamped
from confluence.config import Config
from confluence.data.progress import Progress
from confluence.data.stores import TaskPlace
from confluence.data.tasks import (
    Floats,
    Labels,
    Task,
    TaskError,
    context_count,
    device_tables,
    open_sampler,
    read_row_shape,
    read_target,
    to_device,
)
from confluence.data.verification import open_store, verified_stores
from confluence.model.expand import Inputs
from confluence.model.outputs import softmax
from confluence.model.row_attention import RowShape
from confluence.model.transformer import Params, Tables, init, read_context
from confluence.report.evaluation_files import PROBE
from confluence.report.page import keep_result
from confluence.runs.regime import VisibleUntil, regime_config
from confluence.runs.saved_run import SavedRun, check_split
from confluence.scores import linear
from confluence.scores.linear import Ridge, Softmax
from confluence.scores.scoring import Predictions, Terms, evaluate
from confluence.scores.verdict import OF_PROBE
from confluence.training.step import batch_shape, compiled_by_shape
from confluence.trees.tree_baselines import tree_baselines, visible_history

TRAIN_SEEDS = 100_000  # most that are read, drawn at random
UNTRAINED = "untrained"
KINDS = {
    SemanticType.NUMERICAL: "ridge regression",
    SemanticType.TIMESTAMP: "ridge regression",
    SemanticType.BOOLEAN: "logistic regression",
    SemanticType.CATEGORICAL: "softmax regression",
}


def probe(
    run: SavedRun, split: str = "val", *, task: str | None = None, regime: str | None = None,
    visible_until: VisibleUntil = None, resamples: int | None = None, trees: bool = True,
    verify: str = "once",
) -> dict[str, Any]:  # fmt: skip
    """Fit a probe on the train split of a task and score it on another; also as a file.

    Args:
        run: trained on this task, on others, or on masked cells.
        task: of the run, or any task of its stores ("store/task" where several stores have it).
        split, regime, visible_until, resamples, trees, verify: as in `Run.evaluate`. Train seeds
            see what the regime shows them.

    Returns:
        What `Run.evaluate` does, and "probe": {"regression", "width", "train_seeds", "strength"}.
    """
    check_split(split)
    place = find_task_place(run, task)
    opened = verified_stores([place.store], verify)
    store = opened[place.store]
    cfg = question_config(run.config)
    cfg = regime_config(cfg, store, place.name, split, regime, visible_until)
    with open_sampler(store, cfg, place.name) as sampler:
        target, labels = read_target(sampler, place.name)
        reader = Reader(cfg, device_tables(sampler, 1), sampler.database_metadata())
        models = [run.params, reader.first_weights(run.config)]
        stages = Stages(place.title)
        passes = [sampler.epoch(each, task=place.name) for each in ("train", split)]
        count = min(sampler.num_seeds("train", place.name), TRAIN_SEEDS)
        train = reader.read(
            models, passes[0], limit=TRAIN_SEEDS, each=stages.contexts("train", count)
        )
        count = sampler.num_seeds(split, place.name)
        wanted = reader.read(models, passes[1], each=stages.contexts(split, count))
    probes = [
        fit_probe(h, train.seeds, labels, target, each=stages.regressions(KINDS[target.stype], who))
        for h, who in zip(train.vectors, ("the run's", "first"), strict=True)
    ]
    stages.line(f"scoring {count:,} answers and baselines")
    answers = [
        read_scores(fitted.linear.scores(h), target)
        for fitted, h in zip(probes, wanted.vectors, strict=True)
    ]
    terms = Terms(split, cfg.metric, cfg.visible_until, resamples)
    baselines = tree_baselines(store, cfg, target, labels, split) if trees else {}
    untrained = _by_first_weights(answers[1][0], wanted.seeds, labels)
    result = evaluate(
        _predictions(wanted, answers[0]), labels, target, terms,
        more={UNTRAINED: untrained, **baselines},
        has_history=visible_history(store, cfg, target, labels, split), answer=OF_PROBE,
    )  # fmt: skip
    result |= {
        "task": place.title,
        "step": run.step,
        "probe": {
            "regression": KINDS[target.stype],
            "width": cfg.width,
            "train_seeds": int(np.sum(labels.is_known[train.seeds])),
            "strength": probes[0].strength,
        },
    }
    kind = f"{PROBE}-{place.title.replace('/', '--')}"
    keep_result(run.out, run.out, kind, result, opened)
    return result


class Stages:
    """Prints the stages of a probe as lines on stderr."""

    def __init__(self, title: str) -> None:
        self._title = title

    def line(self, doing: str) -> None:
        """Print the stage that begins."""
        say(f"probe of {self._title}: {doing}")

    def contexts(self, split: str, count: int) -> Callable[[int], None]:
        """Begin to read `count` contexts of a split; call the result with the number read."""
        progress = self._progress(f"reading {split}", f", {count:,} contexts")
        return lambda done: progress(done, count)

    def regressions(self, kind: str, whose: str) -> Progress:
        """Begin to fit regressions to the vectors of some weights."""
        return self._progress(f"{kind} on the vectors of {whose} weights")

    def _progress(self, doing: str, more: str = "") -> Progress:
        self.line(doing + more)
        return Progress(f"probe of {self._title}: {doing}", "{:,}".format)


def find_task_place(run: SavedRun, task: str | None) -> TaskPlace:
    """Where a task is: one of the run's, or another one of its stores."""
    if run.places and (task is None or task in run.titles):
        return run.place(task)
    found: list[tuple[str, str, str]] = []  # path of a store; a task's full name, and its name
    for path in run.stores:
        with open_store(path) as store:
            for entry in store.metadata["tasks"]:
                name = str(entry["name"])
                found.append((path, f"{store.metadata['name']}/{name}", name))
    names = [name for _, _, name in found]
    meant = [one for one in found if task is None or task in one[1:]]
    if len(meant) == 1:
        path, full, name = meant[0]
        return TaskPlace(store=path, name=name, title=full if names.count(name) > 1 else name)
    if task is not None and len(meant) > 1 and len({full for _, full, _ in meant}) == 1:
        store_name = meant[0][1].partition("/")[0]
        raise TaskError(f"two of the run's stores are '{store_name}': rename one")
    fault = "which task?" if task is None else f"which '{task}'?" if meant else f"no task '{task}':"
    titles = [full if names.count(name) > 1 else name for _, full, name in found]
    raise TaskError(f"{fault} the run's stores have {', '.join(titles) or 'none'}")


def question_config(cfg: Config) -> Config:
    """A run's settings for contexts of a task's seeds: whole, nothing masked and nothing stale."""
    return cfg.for_answers().replace(objective="task", seed_tables=None)


# ---------------------------------------------------------------------------- the representations


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vectors:
    """What models make of some seeds, in the order of the batches."""

    vectors: tuple[NDArray[np.float32], ...]  # [n,D] of each model
    seeds: NDArray[np.int64]  # [n] within the task
    anchor_rows: NDArray[np.uint32]  # [n]
    obs_times: NDArray[np.int64]  # [n] µs


class Reader:
    """The compiled model without its heads."""

    def __init__(self, cfg: Config, tables: Tables, metadata: Mapping[str, Any]) -> None:
        self._cfg = cfg.replace(visible_until=None)  # the sampler's, and may have no hash
        self._context = _jitted_context(self._cfg, read_row_shape(metadata, cfg))
        self._tables = tables

    def first_weights(self, cfg: Config) -> Params:
        """Those that a run with these settings has drawn before any step."""
        return init(jax.random.key(cfg.seed), cfg, self._tables.columns.shape[1])

    def read(
        self, models: Sequence[Params], batches: Iterable[Any], *, limit: int | None = None,
        each: Callable[[int], None] = lambda count: None,
    ) -> Vectors:  # fmt: skip
        """The vectors at the targets of a pass, or of its first seeds. each: called with how many
        are read."""
        bodies = [_without_heads(params) for params in models]
        parts: list[list[NDArray[np.float32]]] = [[] for _ in models]
        info: dict[str, list[NDArray[Any]]] = {"seed_index": [], "anchor_rows": [], "obs_time": []}
        count = 0
        with compiled_by_shape(self._context, "contexts at targets") as seen:
            for batch in batches:
                seen.add(batch_shape(batch))
                inputs, contexts = to_device(batch, self._tables.texts), context_count(batch)
                contexts = contexts if limit is None else min(contexts, limit - count)
                found = [self._context(params, inputs, self._tables) for params in bodies]
                for own, h in zip(parts, found, strict=True):
                    own.append(np.asarray(jax.device_get(h))[:contexts])
                for name, values in info.items():
                    values.append(np.array(batch.info[name])[:contexts])
                count += contexts
                each(count)
                if count == limit:
                    break

        def joined(name: str, dtype: type) -> NDArray[Any]:
            return np.concatenate([np.empty(0, dtype), *info[name]]).astype(dtype)

        empty = np.empty((0, self._cfg.width), np.float32)
        return Vectors(
            vectors=tuple(np.concatenate([empty, *own]) for own in parts),
            seeds=joined("seed_index", np.int64),
            anchor_rows=joined("anchor_rows", np.uint32),
            obs_times=joined("obs_time", np.int64),
        )


def _without_heads(params: Params) -> Params:
    """What `read_context` reads, so that runs with other heads are the same to the compiler."""
    return {n: v for n, v in params.items() if n == "heads.norm" or not n.startswith("heads.")}


@functools.lru_cache(maxsize=8)
def _jitted_context(cfg: Config, row_shape: RowShape) -> Any:
    """One function for all passes of a configuration, so that only the first one compiles it."""

    def at_target(params: Params, batch: Inputs, tables: Tables) -> jax.Array:
        """[n,D]"""
        return read_context(params, batch, tables, cfg, row_shape=row_shape)

    return jax.jit(at_target)


# --------------------------------------------------------------------------------- the regression


def fit_probe(
    vectors: NDArray[np.float32], seeds: NDArray[np.int64], labels: Labels, task: Task, *,
    each: linear.Each = lambda done, total: None,
) -> linear.Fitted:  # fmt: skip
    """A regression from the vectors of seeds to their labels; those without one are left out."""
    known = labels.is_known[seeds]
    if not known.any():
        raise TaskError(f"no train seed of task '{task.name}' that was read has a label")
    seeds, vectors = seeds[known], vectors[known]
    targets, anchors = labels.targets[seeds], labels.anchor_rows[seeds]
    if task.stype == SemanticType.CATEGORICAL:
        kind, targets = Softmax(task.category_limit), targets.astype(np.int64)
        return linear.fit(kind, vectors, targets, anchors, each=each)
    if task.stype == SemanticType.BOOLEAN:
        return linear.fit(Softmax(2), vectors, (targets > 0.5).astype(np.int64), anchors, each=each)
    return linear.fit(Ridge(), vectors, targets, anchors, each=each)


def read_scores(scores: Floats, task: Task) -> tuple[Floats, Floats]:
    """(values, probabilities) as `predict.read_answers` gives them. [n,K] → [n], [n]"""
    if task.stype in (SemanticType.BOOLEAN, SemanticType.CATEGORICAL):
        shares = softmax(scores)
        if task.stype == SemanticType.BOOLEAN:
            return shares[:, 1], shares[:, 1]
        return shares.argmax(axis=1).astype(np.float64), shares.max(axis=1)
    values, nothing = scores[:, 0], np.full(len(scores), np.nan)
    if task.stype == SemanticType.NUMERICAL:
        return clamped(values, task), nothing
    return values, nothing


def _predictions(wanted: Vectors, answers: tuple[Floats, Floats]) -> Predictions:
    values, probabilities = answers
    return Predictions(
        seed_index=wanted.seeds.astype(np.uint32), anchor_rows=wanted.anchor_rows,
        obs_times=wanted.obs_times, values=values, probabilities=probabilities,
        null_probabilities=np.full(values.size, np.nan),
    )  # fmt: skip


def _by_first_weights(values: Floats, seeds: NDArray[np.int64], labels: Labels) -> dict[str, Any]:
    """The answers by the first weights, as a baseline."""
    by_seed = np.full(labels.splits.size, np.nan)
    by_seed[seeds] = values
    return {"model": "the same probe of the model's first weights", "values": by_seed}
