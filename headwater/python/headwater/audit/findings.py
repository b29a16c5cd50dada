"""What an audit says: leaks, which are certain, and what a person should check.

A leak is something a context shows although the rules of docs/reference/sampling.md or the metadata
forbid it, or a column that is the target under another name. Everything that a person has to judge
is `to check`: it comes with its evidence and never fails an audit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

EXAMPLES_MAX = 3

CHECKS = {
    "rows": "every row is visible at its cutoff",
    "known": "no cell is shown before it is known",
    "hidden": "hidden columns are on older rows alone, no target is on the anchor or its equals",
    "labels": "no label of a val or test seed is shown, beyond what context_labels allows",
    "edges": "every link is one of the database, known and not withheld; no row without one",
    "target": "each context has one masked target, and the seed that it names",
    "counts": "counts of children count visible ones only",
    "times": "the index of times agrees with the time columns",
    "declared": "the store keeps the rules that its metadata declare",
    "splits": "no question stands in two splits",
    "columns": "no column is the target under another name",
}  # in the order of the summary


@dataclass(frozen=True)
class Finding:
    """One kind of trouble in one place. `count` cases, of which some are examples."""

    check: str  # of CHECKS, or a heuristic
    task: str | None
    text: str
    count: int
    examples: tuple[str, ...] = ()
    is_leak: bool = True

    def __str__(self) -> str:
        where = "" if self.task is None else f"task {self.task}: "
        count = f"{self.count:,} " if self.is_leak else ""  # what is to be checked says it itself
        shown = "".join(f"\n      {example}" for example in self.examples)
        return f"{where}{count}{self.text}{shown}"


@dataclass
class Tally:
    """Cases of one finding while contexts go by."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


class Findings:
    """Collects leaks, warnings, and how much each check has looked at."""

    def __init__(self) -> None:
        self.examined = dict.fromkeys(CHECKS, 0)
        self._found: dict[tuple[str, str | None, str, bool], Tally] = {}

    def looked_at(self, check: str, count: int) -> None:
        self.examined[check] += int(count)

    def leak(self, check: str, task: str | None, text: str, count: int, example: str = "") -> None:
        """`text` says what is shown, in the plural; equal ones are counted together."""
        assert check in CHECKS
        self._add((check, task, text, True), count, example)

    def to_check(self, check: str, task: str | None, text: str, count: int) -> None:
        self._add((check, task, text, False), count)

    def _add(self, kind: tuple[str, str | None, str, bool], count: int, example: str = "") -> None:
        tally = self._found.setdefault(kind, Tally())
        tally.count += count
        if example and len(tally.examples) < EXAMPLES_MAX:
            tally.examples.append(example)

    @property
    def leaks(self) -> tuple[Finding, ...]:
        return self._of(is_leak=True)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self._of(is_leak=False)

    def _of(self, *, is_leak: bool) -> tuple[Finding, ...]:
        return tuple(
            Finding(*kind[:3], tally.count, tuple(tally.examples), is_leak)
            for kind, tally in self._found.items()
            if kind[3] == is_leak
        )


@dataclass(frozen=True)
class AuditReport:
    """What was looked at and what was found. `str()` is for people, `to_dict()` for programs."""

    path: str
    fingerprint: str
    options: dict[str, Any]  # of the sampler, those that were given
    contexts: dict[str, dict[str, tuple[int, int]]]  # task -> split -> (audited, seeds)
    examined: dict[str, int]  # by check
    leaks: tuple[Finding, ...]
    to_check: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """No leak; there may be things to check."""
        return not self.leaks

    def to_dict(self) -> dict[str, Any]:
        return {
            "store": self.path,
            "fingerprint": self.fingerprint,
            "clean": self.is_clean,
            "options": self.options,
            "contexts": {
                task: {split: {"audited": n, "seeds": of} for split, (n, of) in splits.items()}
                for task, splits in self.contexts.items()
            },
            "examined": self.examined,
            "leaks": [asdict(finding) for finding in self.leaks],
            "to_check": [asdict(finding) for finding in self.to_check],
        }

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.options.items())
        lines = [f"{self.path}, build {self.fingerprint[:12]}; sampler: {given or 'defaults'}"]
        for task, splits in self.contexts.items():
            counts = ", ".join(f"{split} {n:,} of {of:,}" for split, (n, of) in splits.items())
            said = f"contexts of {counts}" if counts else "no seeds, so no contexts were looked at"
            lines.append(f"  task {task}: {said}")
        if not self.contexts:
            lines.append("  no task, so no contexts: only the tables are looked at")
        lines += _section("leaks", self.leaks) + _section("to check", self.to_check)
        failed = {finding.check for finding in self.leaks}
        lines.append("examined:")
        for check, meaning in CHECKS.items():
            state = "LEAK" if check in failed else "ok" if self.examined[check] else "-"
            lines.append(f"  {state:<4}  {self.examined[check]:>11,}  {meaning}")
        return "\n".join(lines)


def _section(title: str, findings: tuple[Finding, ...]) -> list[str]:
    if not findings:
        return [f"{title}: none"]
    return [f"{title} ({len(findings)}):", *(f"  {finding}" for finding in findings)]
