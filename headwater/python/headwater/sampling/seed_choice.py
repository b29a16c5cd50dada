"""Whose seeds a sampler gives: tasks of the store, or with seed_tables the rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater.errors import named
from headwater.sampling.saved_state import natural
from headwater.store.store import Store

MOST_WEIGHT = 1e12


class SeedSources:
    """The tasks or tables that were chosen. Numbers are those of C: tables stand behind tasks."""

    def __init__(
        self, store: Store, tasks: Sequence[str] | None, tables: Sequence[str] | None
    ) -> None:
        self.store = store
        self.task_count = len(store.metadata["tasks"])
        self.are_tables = tables is not None
        given = tables if self.are_tables else tasks
        with named("seed_tables" if self.are_tables else "tasks", given):
            self.numbers = self._chosen(tasks, tables)
        self._given = self.names() if given is None else list(given)

    def _chosen(self, tasks: Sequence[str] | None, tables: Sequence[str] | None) -> list[int]:
        if tables is not None:
            if tasks is not None:
                raise ValueError("give either tasks or seed_tables")
            numbers = _distinct("seed_tables", tables, self.store.table_index)
            return [self.task_count + number for number in numbers]
        if tasks is None:
            return list(range(self.task_count))
        return _distinct("tasks", tasks, self.store.task_index)

    def name(self, number: int) -> str:
        """Of a task, or of the table whose number stands behind those of the tasks."""
        is_task = number < self.task_count
        kind, place = ("tasks", number) if is_task else ("tables", number - self.task_count)
        name: str = self.store.metadata[kind][place]["name"]
        return name

    def names(self) -> list[str]:
        return [self.name(number) for number in self.numbers]

    def number(self, name: str) -> int:
        """Of a task or table by its name; ValueError for one that was not chosen."""
        if self.are_tables:
            number, kind = self.task_count + self.store.table_index(name), "table"
        else:
            number, kind = self.store.task_index(name), "task"
        if number not in self.numbers:
            raise ValueError(f"{kind} '{name}' is not among this sampler's {kind}s")
        return number

    def one(self, name: str | None) -> int:
        """Number of a task or table by its name; None: of the only one that was chosen."""
        if name is not None:
            return self.number(name)
        if len(self.numbers) != 1:
            raise ValueError(f"give task: the sampler has {', '.join(map(repr, self.names()))}")
        return self.numbers[0]

    def chosen(self, name: str | None) -> list[int]:
        """One by its name, or all."""
        return self.numbers if name is None else [self.number(name)]

    def by_name(self, positions: Sequence[int]) -> dict[str, int]:
        """Positions by number to those by name, as a saved state has them."""
        return {self.name(number): positions[number] for number in self.numbers}

    def numbered(self, given: Any, count: int) -> list[int]:
        """The way back, [count]; ValueError that names what is missing."""
        positions = [0] * count
        for number in self.numbers:
            name = self.name(number)
            if not isinstance(given, Mapping) or name not in given:
                raise ValueError(f"the state is not whole: it lacks the position of '{name}'")
            positions[number] = natural(name, given[name])
        return positions

    def table_numbers(self) -> list[int] | None:
        """Of the seed tables; None where seeds are those of tasks."""
        if not self.are_tables:
            return None
        return [number - self.task_count for number in self.numbers]

    def weights(self, given: Mapping[str, float] | Sequence[float] | None) -> list[float] | None:
        """task_weights in the order of the numbers; a list has that of the names as given."""
        if given is None:
            return None
        names = self.names()
        with named("task_weights", given):
            if not isinstance(given, Mapping):
                if len(given) != len(names):
                    raise ValueError(f"expected one for each of {self._given}, in this order")
                given = dict(zip(self._given, given, strict=True))
            if set(given) != set(names):
                raise ValueError(f"expected one for each of {names}, and no others")
            weights = [float(given[name]) for name in names]
            if not all(0 <= weight <= MOST_WEIGHT for weight in weights):
                raise ValueError(f"expected 0 to {MOST_WEIGHT:g}")
        return weights

    def check_dealt(self, ratios: object) -> None:
        """ValueError if split_ratios were given, and no seed is dealt by them."""
        tasks = [] if self.are_tables else [self.store.metadata["tasks"][n] for n in self.numbers]
        if tasks and all(task.get("split") == "given" for task in tasks):
            raise ValueError(
                f"split_ratios is {ratios}, but the seeds of {', '.join(map(repr, self.names()))}"
                " say themselves which split they are of: leave it out"
            )


def _distinct(option: str, names: Sequence[str], index_of: Callable[[str], int]) -> list[int]:
    """The numbers of names, ascending."""
    if isinstance(names, str):
        raise TypeError(f"{option} is a str, expected a list of names")
    numbers = sorted(index_of(name) for name in names)
    if len(set(numbers)) != len(numbers) or not numbers:
        raise ValueError(f"{option} is {list(names)}, expected at least one name, each once")
    return numbers
