"""One audit: tasks, splits, batches, checks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from headwater import binding
from headwater.audit.columns import TargetCheck
from headwater.audit.contexts import ContextCheck
from headwater.audit.declared import check_declared, check_times
from headwater.audit.findings import AuditReport, Findings
from headwater.audit.questions import check_questions
from headwater.audit.rules import Asked
from headwater.audit.stored import Stored, StoredTask
from headwater.audit.tables import ShownCheck, check_tables
from headwater.errors import nearest
from headwater.sampling.expand import expand
from headwater.sampling.sampler import Sampler
from headwater.sampling.sampler_options import visible_until_us
from headwater.store.store import Store

SEEDS_DEFAULT = 1000
BATCH_SIZE = 16
# What an audit chooses itself: how batches are laid out is no question of leakage.
OWN_OPTIONS = {
    "db_path", "store", "verify", "tasks", "rank", "world_size", "layout", "with_rows",
    "text_mode", "text_budget", "targets", "packing", "contexts_per_batch", "attention_masks",
    "level_block", "level_parts", "num_prefetch", "num_prefetch_val", "task_weights", "task_order",
    "default_batch_size",
}  # fmt: skip


def audit(
    path: str | os.PathLike[str],
    *,
    tasks: Sequence[str] | None = None,
    seeds: int = SEEDS_DEFAULT,
    verify: str = "once",
    **options: Any,
) -> AuditReport:
    """Audit the contexts of a store's tasks.

    tasks: by name; None: all. seeds: of each task and split, drawn by the sampler's own order of
    epoch 0, so the same ones every time; all where there are fewer. verify: of `Store`. options: of
    `Sampler`, such as visible_until, label_rows, peer_labels, bfs_child_width: those that a model
    will be trained with. Cost: about a second for 1,000 contexts of 1,024 cells.
    """
    check_options(options, "an audit", OWN_OPTIONS)
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, expected at least 1")
    contexts: dict[str, dict[str, tuple[int, int]]] = {}
    with Store(path, verify=verify) as store:
        findings, stored = Findings(), Stored(path)
        check_declared(stored, findings)
        check_times(stored, findings)
        check_tables(stored, findings)
        numbers = [store.task_index(name) for name in tasks or [t.name for t in stored.tasks]]
        for number in numbers:
            task = stored.tasks[number]
            contexts[task.name] = _audit_task(stored, store, task, seeds, options, findings)
    return AuditReport(
        path=os.fspath(path),
        fingerprint=stored.fingerprint,
        options=dict(options),
        contexts=contexts,
        examined=findings.examined,
        leaks=findings.leaks,
        to_check=findings.warnings,
    )


def check_options(options: dict[str, Any], who: str, own: set[str]) -> None:
    """Every option must be one of `Sampler`, and none of those that `who` sets itself."""
    known = set(inspect.signature(Sampler).parameters)
    for name in options:
        if name not in known:
            raise ValueError(f"a sampler has no option '{name}'{nearest(name, known - own)}")
        if name in own:
            raise ValueError(f"{who} sets {name} itself")


def _audit_task(
    stored: Stored,
    store: Store,
    task: StoredTask,
    seeds: int,
    options: dict[str, Any],
    findings: Findings,
) -> dict[str, tuple[int, int]]:
    """Contexts of every split; how many, of how many seeds."""
    counts: dict[str, tuple[int, int]] = {}
    with Sampler(
        store=store,
        tasks=[task.name],
        default_batch_size=BATCH_SIZE,
        layout="compact",
        text_mode="resident",
        with_rows=True,
        **options,
    ) as sampler:
        splits = sampler.splits(task.name)
        check_questions(
            stored, task, splits, findings, by_time=options.get("time_split") is not None,
            train_on_val=bool(options.get("train_on_val")),
        )  # fmt: skip
        contexts = ContextCheck(stored, task, splits, _asked(options), findings)
        target, shown = TargetCheck(stored, task, findings), ShownCheck(stored, task, findings)
        for name, split in binding.SPLITS.items():
            count = sampler.num_seeds(name)
            if count == 0:
                continue
            audited = 0
            with sampler.epoch(name, task=task.name) as batches:
                for batch in batches:
                    view = contexts.check(expand(batch), split)
                    shown.add(view)
                    if name == "train":
                        target.add(view)
                    audited += view.count
                    if audited >= seeds:
                        break
            counts[name] = (audited, count)
        target.conclude()
        shown.conclude()
    return counts


def _asked(options: dict[str, Any]) -> Asked:
    """What the options mean for what may be seen."""
    given = {field.name: options[field.name] for field in fields(Asked) if field.name in options}
    return Asked(**given | {"visible_until": visible_until_us(options.get("visible_until"))})
