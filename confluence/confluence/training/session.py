"""One session of training: from the first step or a checkpoint to the last step, or to a stop.

    checkpoint ──► state, losses, place in the stream ──► fit ──► log, evaluations, checkpoints

Everything a run does beside stepping happens here, at steps that the configuration names: lines of
the log, evaluation on val, checkpoints. A state is saved after it was evaluated, so that a run that
resumes is scored at the same steps as one that was never stopped. The weights with the best score
answer; without scores the last ones do.

Where several ranks train, each has a session. They step and evaluate together; rank 0 alone reads
and writes the folder, and sends the others what they need of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from headwater.shared import say

from confluence.config import USUAL_HOPS, Config
from confluence.data.reach import describe_unreached
from confluence.data.stores import (
    Mixture,
    OpenStore,
    SeedWeights,
    category_limit,
    first_biases,
    row_shape,
    unseen_classes,
)
from confluence.data.tasks import device_tables, parts_of
from confluence.folder import checkpoint
from confluence.folder.checkpoint import Keeper, Score, Scoreboard
from confluence.model.patterns import attention_path
from confluence.model.transformer import Params, Tables
from confluence.ranks.group import ALONE, AgreedStop, Group
from confluence.ranks.stop import StopRequest, TrainingStopped
from confluence.report.page import write_page
from confluence.training.guard import evaluation_steps, is_over
from confluence.training.largest_values import describe_largest
from confluence.training.step import (
    Constants,
    Feed,
    NonFiniteLossError,
    StepRunner,
    TrainState,
    first_state,
    fit,
    memory_explained,
)
from confluence.training.step_counter import RankLog
from confluence.training.val_scores import ValScores
from confluence.training.warm_start import start_from
from confluence.watch.log import Log
from confluence.watch.trackers import open_trackers
from confluence.watch.usage import UsageSampler

TRIAL_SCORES = 3  # a trial has one score in so many of a training's: they take half of its time
MOSTLY = 0.5  # of the contexts are cut before a line names what lifts that


class Weights(NamedTuple):
    """What answers, and after how many steps it did so."""

    step: int
    params: Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """What one process needs to train a run, or to go on with it."""

    out: Path
    config: Config
    stores: tuple[OpenStore, ...]
    record: Mapping[str, Any]  # checkpoint.make_record
    group: Group = ALONE  # the ranks that train together

    @functools.cached_property
    def mixture(self) -> Mixture:
        """The train batches of all stores."""
        return Mixture(self.stores)

    def train(self, resume_step: int | None) -> Weights:
        """Train up to the last step, from a checkpoint's step if given, and save."""
        width = int(self.record["embedder"]["dim"])
        if self.group.is_first:
            self._say_plan(resume_step or 0)
        state, losses = self._first_state(width, resume_step)
        try:
            with self._log(losses, resume_step) as log, StopRequest() as stop:
                self._begin(log, resume_step)
                agreed = AgreedStop(self.group, stop)
                keeper = Keeper(self.out) if self.group.is_first else None
                try:
                    steps = evaluation_steps(self.config)
                    is_done = self._fit(state, width, log, agreed, keeper, steps)
                except KeyboardInterrupt:
                    raise KeyboardInterrupt(self._what_is_left(log)) from None
                agreed.adopt()
                done = len(log.losses)
                if not is_done:
                    log.event("stop", step=done, by=stop.name(), **log.summary())
        finally:
            if self.group.is_first:
                with contextlib.suppress(OSError):  # no log yet, or no room: a page can wait
                    write_page(self.out)
        if not is_done:
            raise TrainingStopped(
                f"stopped by {stop.name()} after step {done} of {self.config.steps} and saved in"
                f" '{self.out}': the same command resumes from there"
                " (`train` and `pretrain`: with --resume)",
                stop.signal_number or 0,
            )
        weights = self.open()
        if self.group.is_first:
            self._say_best(weights.step, done)
        lines = self._scores.describe_gaps(weights.params)
        for line in lines if self.group.is_first else ():
            say(line)
        return weights

    def trial(self) -> Score | None:
        """The best score on val of a training that leaves nothing behind; None if none is known,
        and on ranks that do not save."""
        width = int(self.record["embedder"]["dim"])
        state, _ = self._first_state(width, None)
        keeper = Scoreboard() if self.group.is_first else None
        with StopRequest("stopping after this step; nothing is saved yet") as stop:
            agreed = AgreedStop(self.group, stop)
            try:
                steps = evaluation_steps(self.config)[::-TRIAL_SCORES]
                self._fit(state, width, RankLog(steps_done=0), agreed, keeper, steps)
            except NonFiniteLossError:
                return None  # on all ranks
            finally:
                agreed.adopt()
            asked = max(self.group.gather(stop.signal_number or 0))  # one after the last vote, too
        if asked:
            stop.signal_number = asked
            raise TrainingStopped(
                f"stopped by {stop.name()} before the training: nothing is saved", asked
            )
        return None if keeper is None else keeper.best_score()

    def open(self) -> Weights:
        """The weights of a run that is done: the best, or if none have a score the last."""
        step, params = 0, dict[str, Any](checkpoint.weight_shapes(self.record))
        if self.group.is_first:
            step, params = checkpoint.answering_weights(self.out)
        step = self.group.tell(step)
        return Weights(step, self.group.local(self.group.broadcast(params)))

    def _log(self, losses: list[float], resume_step: int | None) -> Log | RankLog:
        if not self.group.is_first:
            return RankLog(steps_done=len(losses))
        cfg = self.config
        log = Log(
            self.out, steps=cfg.step_count, every=cfg.log_every, losses=losses,
            contexts_per_step=cfg.contexts * cfg.accumulate,
            read_stats=self.stores[0].train_batches.stats,
            trackers=open_trackers(cfg.log_to, self.out, resume_step=resume_step),
            usage=UsageSampler(),
        )  # fmt: skip
        if self.group.watchdog is not None:
            self.group.watchdog.on_end = lambda message: log.event("error", message=message)
        return log

    def _begin(self, log: Log | RankLog, resume_step: int | None) -> None:
        place = {
            "device": jax.devices()[0].device_kind,
            "config": self.config.to_dict(),
            "stores": [store.path for store in self.stores],
            "store_weights": [store.weight for store in self.stores],
            "tasks": {p.title: p.weight for store in self.stores for p in store.places},
            "ranks": self.group.size,
            "batches": dict(self._batch_sizes()),
            "parts": self._parts(),
            "resident_texts": [s.sampler.text_mode == "numbers" for s in self.stores],
            "prebatched": [store.made and store.made.about for store in self.stores],
            "unseen_classes": unseen_classes(self.stores, self.config),
        }
        if resume_step is not None:
            log.event("resume", step=resume_step, **place)
            return
        log.event("start", **place)
        if self.group.is_first:
            self._say_caps(place["batches"])
            self._say_unreached()
            self._say_repeats()

    def _parts(self) -> int:
        """In how many parts the batches of a step are computed, on each rank."""
        return parts_of(self.stores[0].sampler, self.config.contexts // self.group.size)

    def _say_plan(self, done: int) -> None:
        """Print the plan before compiling, which takes long and prints nothing else."""
        cfg = self.config
        last = f"{cfg.step_count:,}"
        steps = f"{last} steps" if done == 0 else f"steps {done + 1:,} to {last}"
        say(
            f"compiling for {jax.devices()[0].device_kind}, then training {steps} of"
            f" {cfg.contexts * cfg.accumulate:,} contexts in '{self.out}'"
        )

    def _say_caps(self, batches: Mapping[str, Mapping[str, Any]]) -> None:
        cfg = self.config
        for title, sizes in batches.items():
            share = percent(sizes["capped_share"])
            say(
                f"{title}: {share} of contexts reach the {cfg.sequence_length} cells of"
                f" --sequence-length or the {cfg.max_rows} rows of --max-rows; a batch has"
                f" {sizes['cells']:,} cells"
                + (f", and attention by rows {sizes['slots']:,} slots" if "slots" in sizes else "")
            )
            if sizes["capped_share"] > MOSTLY:
                say(
                    f"{title}: most contexts are cut: --sequence-length {2 * cfg.sequence_length}"
                    f" --max-rows {2 * cfg.max_rows} shows them more, and a step takes up to twice"
                    " as long"
                )
        if (parts := self._parts()) > 1:
            say(
                f"a batch of {cfg.contexts} contexts is computed in {parts} parts of at most"
                f" {cfg.cell_budget:,} cells (--cell-budget)"
            )

    def _say_unreached(self) -> None:
        """Which tables the contexts of each task cannot show; if the number of hops was chosen,
        those that the largest of them cannot."""
        is_chosen = "max_hops" in self.record.get("left_open", ())
        hops = USUAL_HOPS if is_chosen else self.config.hop_limit
        for store in self.stores:
            for place in store.places:
                for line in describe_unreached(store.metadata, place.name, hops):
                    say(f"{place.title}: {line}")

    def _say_repeats(self) -> None:
        for store in self.stores:
            if store.made is None:
                continue
            share = store.weight / sum(other.weight for other in self.stores)
            if shortage := store.made.shortage(self.config.step_count, share):
                say(shortage)

    def _batch_sizes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """By task, or table of seeds: cells and rows of a rank's batches, the share of contexts
        that S or R ended, of a sample, and the slots that attention by rows makes of them."""
        by_rows = attention_path(self.config) == "rows"
        width = row_shape(self.stores, self.config).width
        for store in self.stores:
            titles = {place.name: place.title for place in store.places}
            for name in store.sampler.tasks:
                shape = store.sampler.flat_shape(name)
                share = shape["capped"] / max(1, shape["sampled"])
                title = titles.get(name, f"{store.metadata['name']}/{name}")
                yield title, {
                    "cells": shape["cells"], "rows": shape["rows"], "capped_share": share,
                    **({"slots": shape["rows"] * width} if by_rows else {}),
                }  # fmt: skip

    def _first_state(self, width: int, step: int | None) -> tuple[TrainState, list[float]]:
        """Rank 0's state to begin with, and the losses up to it; samplers go to their place."""
        make = functools.partial(first_state, self.config, width, first_biases(self.stores))
        state = make() if self.group.is_first else jax.eval_shape(make)
        if self.config.init_from is not None and step is None and self.group.is_first:
            start = Path(self.config.init_from)
            state = start_from(state, start, self.config, width)
        losses: list[float] = [] if step is None else [0.0] * step
        position = None
        if step is not None and self.group.is_first:
            state, losses = self._restore(state, step)
            position = checkpoint.load_record(self.out, step)["samplers"]
        position = self.group.tell(position)
        if position is not None:
            self.mixture.load_state_dict(position)
        return self.group.broadcast(state), losses

    def _restore(self, like: TrainState, step: int) -> tuple[TrainState, list[float]]:
        """The state after a step, and the losses up to it."""
        rest = {"optimizer": like.optimizer, "step": like.step}
        params, rest, losses = checkpoint.from_parts(self.out, step, (like.params, rest))
        return TrainState(params, rest["optimizer"], rest["step"]), losses

    @functools.cached_property
    def _tables(self) -> list[Tables]:
        """The tables of each store, on the device."""
        limit = category_limit(self.stores)
        return [device_tables(store.sampler, limit) for store in self.stores]

    @functools.cached_property
    def _scores(self) -> ValScores:
        return ValScores(self.config, self.stores, self._tables, self.group)

    def _fit(
        self, state: TrainState, width: int, log: Log | RankLog, stop: AgreedStop,
        keeper: Keeper | None, scored: Sequence[int],
    ) -> bool:  # fmt: skip
        """Train; whether that is done, and was not stopped before.

        Args:
            keeper: of the checkpoints; None: another rank has it.
            scored: the steps after which val is scored.
        """
        cfg, group, scores = self.config, self.group, self._scores
        consts = zip(self._tables, self.stores, strict=True)
        runner = StepRunner(
            cfg, [Constants(tables, store.scales(cfg)) for tables, store in consts],
            text_width=width, category_limit=category_limit(self.stores),
            row_shape=row_shape(self.stores, cfg), group=group, parts=self._parts(),
        )  # fmt: skip
        is_done = False

        def on_state(state: TrainState, step: int, position: Any) -> bool:
            group.beat(f"the state after step {step}")
            nonlocal is_done
            state, score, is_done = group.local(state), None, step == cfg.step_count
            if step in scored:
                with log.observer.span("evaluate", step=step):
                    score = scores.score(state.params, step, log)
            is_best = keeper is not None and score is not None and keeper.is_best(score)
            if step in scored and not is_done:
                best = None if keeper is None else step if is_best else keeper.best_step()
                is_done = group.tell(is_over(cfg, step, best))
            if keeper is not None and (
                is_done or stop.is_made() or is_best or _every(cfg.save_every, step)
            ):
                with log.observer.span("save", step=step):
                    state = group.host(state)
                    rest = {"optimizer": state.optimizer, "step": state.step}
                    parts = checkpoint.to_parts(state.params, rest, log.losses)
                    record = {**self.record, "samplers": position, "finished": is_done}
                    keeper.save(step, parts, record, score=score)
                log.event("save", step=step, best=is_best)
            return is_done

        started, days = time.perf_counter(), cfg.half_life_days
        by_age = [] if days is None else [SeedWeights(self.stores, days)]
        feed = Feed(
            self.mixture.next_batch, self.mixture.state_dict, *by_age,
            texts=[own.texts for own in self._tables], group=group, observer=log.observer,
        )  # fmt: skip
        try:
            with memory_explained(cfg):
                state = fit(
                    state, runner, feed,
                    steps=cfg.step_count, on_report=log.report, on_state=on_state,
                    should_stop=stop.ask,
                    is_due=lambda step: step in scored or _every(cfg.save_every, step),
                )  # fmt: skip
        except NonFiniteLossError as error:
            cause = describe_largest(self.mixture.again(error.batches), self.stores, cfg)
            raise NonFiniteLossError(f"{error}: {cause}", error.batches) from None
        if is_done:
            log.event(
                "end", steps=len(log.losses), seconds=time.perf_counter() - started,
                parameters=int(sum(np.prod(value.shape) for value in state.params.values())),
                **log.summary(),
            )  # fmt: skip
        return is_done

    def _say_best(self, step: int, last: int) -> None:
        """Which weights answer, unless they are those of the last step that was planned."""
        steps = self.config.step_count
        if step == steps:
            return
        ended = f"the training ended after step {last:,} of {steps:,}: " if last < steps else ""
        say(f"{ended}the weights of step {step:,} answer, the best on val")

    def _what_is_left(self, log: Log | RankLog) -> str:
        """What to say of a run that was interrupted between checkpoints."""
        begin = f"interrupted after step {len(log.losses)} of {self.config.steps}: "
        steps = checkpoint.saved_steps(self.out)
        if not steps:
            return f"{begin}no model is saved, the log is {self.out / 'log.jsonl'}"
        return (
            f"{begin}saved is step {steps[-1]} in '{self.out}', the same command resumes from there"
            " (`train` and `pretrain`: with --resume)"
        )


def percent(share: float) -> str:
    """A share in words, in which a small one is not none, nor one of nearly all of them all."""
    if 0 < share < 0.01:
        return "under 1%"
    return "over 99%" if 0.99 < share < 1 else f"{share:.0%}"


def _every(interval: int, step: int) -> bool:
    """Whether something that happens every so many steps is due; 0: never."""
    return interval > 0 and step % interval == 0
