"""The trees that a run keeps, with their share and a map of its answers: one file for each task.

TaskTrees, TreeShare, Calibration ──► trees.json.gz in the folder of the task's results
                                  ──► KeptTrees
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.shared import check_output, regular, whole

from confluence.answers.calibration import NO_MAP, Calibration
from confluence.trees.task_trees import TaskTrees

FILE = "trees.json.gz"
KIND = "boosted trees of a run"
FAULTS = (
    KeyError, TypeError, ValueError, AttributeError, EOFError, zlib.error, gzip.BadGzipFile
)  # fmt: skip
"""What reading a file raises that does not hold the trees of a run."""


class KeptTreesError(ValueError):
    """The file of a run's trees cannot be read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeShare:
    """The share of the trees in a run's answers, and why.

    Attributes:
        reason: why it was not chosen on val; None: it was.
        metric: by which it was chosen.
        by_share: that metric on val, by the share.
    """

    share: float
    reason: str | None = None
    metric: str | None = None
    by_share: Mapping[float, float] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All of it; JSON can hold it."""
        pairs = [[share, value] for share, value in self.by_share.items()]
        return {**vars(self), "by_share": pairs}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> TreeShare:
        """Read `to_dict` back."""
        pairs = {float(share): float(value) for share, value in found["by_share"]}
        return cls(
            share=float(found["share"]), reason=found["reason"], metric=found["metric"],
            by_share=pairs,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptTrees:
    """The trees of a task of a run, their share, and the map of the answers with that share."""

    trees: TaskTrees
    chosen: TreeShare
    step: int  # of the weights with which the share was chosen
    calibration: Calibration = NO_MAP

    def write(self, folder: Path) -> None:
        """Write the file, which is whole or not there; in a folder that is made if need be."""
        path = folder / FILE
        check_output(path, "the name of the trees", is_own=is_kept, what="the trees of a run")
        folder.mkdir(parents=True, exist_ok=True)
        with whole(path) as unfinished:
            unfinished.write_bytes(gzip.compress(self._text().encode(), mtime=0))

    def _text(self) -> str:
        found = {
            "kind": KIND, "step": self.step, "chosen": self.chosen.to_dict(),
            "calibration": self.calibration.to_dict(), "trees": self.trees.to_dict(),
        }  # fmt: skip
        return json.dumps({**found, "checksum": _checksum(found)})


def read_kept(folder: Path) -> KeptTrees | None:
    """The trees in a folder of results; None if it has none."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        found = _read(path)
        if found.pop("checksum") != _checksum(found):
            raise ValueError("its checksum does not fit")
        return KeptTrees(
            trees=TaskTrees.from_dict(found["trees"]),
            chosen=TreeShare.from_dict(found["chosen"]), step=int(found["step"]),
            calibration=Calibration.from_dict(found["calibration"]),
        )  # fmt: skip
    except FAULTS as error:
        raise KeptTreesError(
            f"'{path}' does not hold the trees of a run ({error}): remove it, and `confluence"
            " train` with --resume fits them again"
        ) from error


def _checksum(found: Mapping[str, Any]) -> str:
    """The content of a file in a few bytes: LightGBM ends the process on a text that is cut."""
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def is_kept(path: Path) -> bool:
    """Whether a run wrote a file that has the name of its trees."""
    if path.is_symlink():
        return False
    try:
        return bool(_read(path)["kind"] == KIND)
    except (OSError, *FAULTS):
        return False


def _read(path: Path) -> Any:
    with open(path, "rb", opener=regular) as file:
        return json.loads(gzip.decompress(file.read()))
