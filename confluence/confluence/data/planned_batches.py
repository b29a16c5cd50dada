"""How many contexts a batch has if `batch_size` is "auto": as many as `cell_budget` holds.

    n contexts ──► sampler of such batches ──► N cells ──► the largest n with N within the budget

A step then computes each batch at once, with hardly a cell less than it may. Without a budget the
number of contexts is the caller's, and a batch that exceeds one is made in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import headwater
from headwater.shared import say

from confluence.config import AUTO, USUAL_BATCH, Config, ConfigError
from confluence.data.stores import TaskPlace
from confluence.data.tasks import NO_BATCHES, cells_in_parts, no_context_fits, open_sampler
from confluence.ranks.group import current


def check_budget(cfg: Config, tasks: int) -> None:
    """Raise if a run of so many tasks cannot have its `cell_budget`: the parts of a step would be
    of several."""
    if cfg.cell_budget is not None and tasks > 1:
        raise ConfigError(
            f"cell_budget is for a run of one task, and this one has {tasks}: give a smaller"
            " batch_size and an accumulate as many times as large"
        )


def with_batch_size(
    cfg: Config, opened: Mapping[str, headwater.Store], places: Sequence[TaskPlace], *, ranks: int
) -> Config:
    """The settings with a number of contexts, which is printed; those that have one as they are.

    Args:
        opened: stores by path.
        places: the run's tasks.
        ranks: that share a batch; the number is a multiple of theirs.

    Raises:
        ConfigError: the run has several tasks, or not one context stays within the budget.
    """
    if cfg.batch_size != AUTO:
        return cfg
    check_budget(cfg, len(places))
    (place,), budget = places, cfg.cell_budget
    assert budget is not None  # `Config` checks that
    store = opened[place.store]
    with open_sampler(store, cfg, place.name, **NO_BATCHES) as sampler:
        most = max(1, sampler.num_seeds("train") // ranks)
    seen = dict[int, int]()

    def cells(each: int) -> int:
        size = cfg.replace(batch_size=each * ranks)
        seen[each] = cells_in_parts(store, size, place.name, 1, ranks=ranks)
        return seen[each]

    each = most_within(cells, budget, most)
    if each == 0:
        raise no_context_fits(budget, seen[1])
    if current().is_first:
        why = f"the most contexts whose batches have at most {budget:,} cells"
        if each == most:
            why = f"as many contexts as train has seeds; a batch has {seen[each]:,} cells"
        on_each = f" on each of {ranks} ranks" if ranks > 1 else ""
        say(f"batch_size {each * ranks:,} (--batch-size auto): {why}{on_each}")
    return cfg.replace(batch_size=each * ranks)


def most_within(cells: Callable[[int], int], budget: int, most: int) -> int:
    """The largest number up to `most` whose cells stay within a budget; 0: not even 1 does.

    Cells are about proportional to the number, so each try follows from the one before until one
    has too many; then each halves the rest.
    """
    fits, fails, ahead, number = 0, most + 1, 1, min(USUAL_BATCH, most)
    while fails - fits > 1:
        found = cells(number)
        if found <= budget and fails > most:
            fits, ahead = number, 2 * ahead
            number = min(max(number * budget // found, fits + ahead), most)
        else:
            fits, fails = (number, fails) if found <= budget else (fits, number)
            number = (fits + fails) // 2
    return fits
