"""Who answers together: a run, maybe with others, maybe with boosted trees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from confluence.answers.calibration import Calibration
from confluence.answers.several_runs import mark, same_place
from confluence.answers.with_trees import check_share
from confluence.data.stores import TaskPlace
from confluence.runs.saved_run import SavedRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ensemble:
    """What answers along with a run. ValueError if trees cannot have their share.

    Attributes:
        others: runs whose answers are averaged with those of the run (`several_runs.py`).
        tree_share: what boosted trees have of each answer, from 0 to 1 (`with_trees.py`); None:
            what the run has chosen, 0 of one without trees.
    """

    others: Sequence[SavedRun] = ()
    tree_share: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", tuple(self.others))
        if self.tree_share is not None:
            check_share(self.tree_share)
            object.__setattr__(self, "tree_share", float(self.tree_share))

    def share_of_trees(self, run: SavedRun, place: TaskPlace) -> float:
        """The share of the run's trees in each answer to a task. ValueError if it has no trees."""
        kept = run.trees.get(place.title)
        share = self.tree_share
        if share is None:
            share = 0.0 if kept is None else kept.chosen.share
            check_share(share)
        if share > 0 and kept is None:
            raise ValueError(
                f"tree_share is {share:g}, and the run in '{run.out}' has no trees for task"
                f" '{place.title}': `confluence train` with --resume fits them"
            )
        return share

    def calibration(self, run: SavedRun, place: TaskPlace) -> Calibration | None:
        """The map of the answers to a task: that of the run, if the weights that it was made for
        answer alone, and the trees have the share that the run chose; None: they stay as they
        are."""
        kept = run.trees.get(place.title)
        if kept is None or self.others or kept.step != run.step:
            return None
        if self.share_of_trees(run, place) != kept.chosen.share:
            return None
        return kept.calibration if kept.calibration.kind is not None else None

    def places(self, run: SavedRun, place: TaskPlace) -> list[TaskPlace]:
        """Where each of the others has a task of the run; raises if they cannot answer together."""
        runs = (run, *self.others)
        if len({(each.out.resolve(), each.step) for each in runs}) < len(runs):
            raise ValueError("of the runs that are to answer together one is given twice")
        return [same_place(place, other.out, other.places) for other in self.others]

    def stores(self, run: SavedRun, place: TaskPlace) -> list[str]:
        """Paths of the stores that the task is asked in."""
        return [place.store, *(other.store for other in self.places(run, place))]

    def name_parts(self, run: SavedRun) -> list[str]:
        """What names of files have of it."""
        parts = []
        if self.others:
            parts.append(mark([(each.out, each.step) for each in (run, *self.others)]))
        if self.tree_share is not None:
            parts.append(f"trees-{self.tree_share}")
        return parts


ALONE = Ensemble()
