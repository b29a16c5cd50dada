"""Answers of a model for people: of whom, when, what, how sure. Row by row, or in a file.

    predictions (arrays) ──► Answers ──► rows as dicts · CSV · Parquet

Columns: key, obs_time, prediction, probability. A composite key has one column for each part in
files, `key_<column>`, and is a tuple in rows. Times are UTC. A prediction is a number, a time, true
or false (probability: of true), or a category (probability: of that category).

The arrays of all answers are in memory, about 44 bytes for each. Rows are made when they are asked
for and files are written piece by piece, so the keys and texts of long outputs never are.
"""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import headwater
import numpy as np
from headwater import SemanticType
from headwater.shared import check_output, hide_progress_bar, regular, whole
from numpy.typing import NDArray

from confluence.answers.csv_cells import written
from confluence.data.tasks import NO_TIME, Task, find_task
from confluence.scores.scoring import Predictions

Row = dict[str, Any]
PIECE = 8_192  # rows that are made at once
RESULT_COLUMNS = ("obs_time", "prediction", "probability")  # the last ones of a file
HEADER_BYTES_MAX = 1 << 20
PARQUET_TYPES = {
    SemanticType.BOOLEAN: "BOOLEAN",
    SemanticType.NUMERICAL: "DOUBLE",
    SemanticType.CATEGORICAL: "VARCHAR",
    SemanticType.TIMESTAMP: "TIMESTAMPTZ",
}


class Answers(Sequence[Row]):
    """The predictions of one task, in the order of its rows or of the keys asked for."""

    def __init__(self, predictions: Predictions, task: Task, store: headwater.Store) -> None:
        """`store`: where the keys of the anchors are read, when they are needed."""
        self._predictions = predictions
        self._task = task
        self._store = store
        self.key_columns = key_columns(store, task.name)

    def __repr__(self) -> str:
        return f"<Answers of '{self._task.name}': {len(self)} rows>"

    def __len__(self) -> int:
        return int(self._predictions.values.size)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        places = np.arange(len(self))[place]  # IndexError as of a list
        if isinstance(place, slice):
            return [self[int(i)] for i in places]
        return self._rows(int(places), int(places) + 1)[0]

    def __iter__(self) -> Iterator[Row]:
        for start, stop in self._pieces():
            yield from self._rows(start, stop)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def columns(self, start: int = 0, stop: int | None = None) -> dict[str, list[Any]]:
        """Answers by column, as files have them; for instance for `pandas.DataFrame`."""
        part = slice(start, stop)
        values, probabilities = self._values(part), self._predictions.probabilities[part]
        if self._task.stype == SemanticType.TIMESTAMP:
            values = np.array(times_text(values), object)
        shown = probabilities.astype(object)
        shown[np.isnan(probabilities)] = None
        return {
            **self._keys(part),
            "obs_time": times_text(self._predictions.obs_times[part]),
            "prediction": values.tolist(),
            "probability": shown.tolist(),
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a CSV or Parquet file, by the suffix of its name. It appears when it is whole.
        FileExistsError if the file exists and does not hold predictions."""
        path = Path(path)
        check_predictions_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as unfinished:
            WRITERS[path.suffix.lower()](self, unfinished)

    # ---- inside

    def _pieces(self) -> Iterator[tuple[int, int]]:
        for start in range(0, len(self), PIECE):
            yield start, min(start + PIECE, len(self))

    def _rows(self, start: int, stop: int) -> list[Row]:
        """A piece as dicts; the parts of a composite key in one tuple."""
        columns = self.columns(start, stop)
        parts = [columns.pop(name) for name in self.key_columns]
        keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        columns = {"key": keys, **columns}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _keys(self, part: slice) -> dict[str, list[int | str]]:
        found = self._store.keys(self._predictions.anchor_rows[part])
        return dict(
            zip(self.key_columns, found.values() or [[]] * len(self.key_columns), strict=True)
        )

    def _values(self, part: slice) -> NDArray[Any]:
        """Predictions as truth values, numbers, category names or µs."""
        values = self._predictions.values[part]
        if self._task.stype == SemanticType.BOOLEAN:
            return values > 0.5
        if self._task.stype == SemanticType.CATEGORICAL:
            return np.array(self._task.categories, object)[values.astype(np.int64)]
        if self._task.stype == SemanticType.TIMESTAMP:
            return np.rint(values).astype(np.int64)
        return values

    def _write_csv(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(map(written, [*self.key_columns, *RESULT_COLUMNS]))
            for start, stop in self._pieces():
                columns = self.columns(start, stop).values()
                writer.writerows(map(written, row) for row in zip(*columns, strict=True))

    def _write_parquet(self, path: Path) -> None:
        """By way of a database file beside it, which DuckDB fills in pieces and copies."""
        key_types = ", ".join(f"{quoted(name)} VARCHAR" for name in self.key_columns)
        with (
            tempfile.TemporaryDirectory(prefix=".parquet-", dir=path.parent) as folder,
            import_duckdb().connect(str(Path(folder) / "rows.duckdb")) as database,
        ):
            database.execute("SET TimeZone = 'UTC'")
            hide_progress_bar(database)
            kind = PARQUET_TYPES[self._task.stype]
            database.execute(
                f"CREATE TABLE answers ({key_types}, obs_time TIMESTAMPTZ, prediction {kind},"
                " probability DOUBLE)"
            )
            for start, stop in self._pieces():
                database.register("piece", self._arrays(slice(start, stop)))
                shown = [quoted(name) for name in self.key_columns]
                shown += [f"CASE WHEN obs_time <> {NO_TIME} THEN make_timestamptz(obs_time) END"]
                time = self._task.stype == SemanticType.TIMESTAMP
                shown += ["make_timestamptz(prediction)" if time else "prediction", "probability"]
                database.execute(f"INSERT INTO answers SELECT {', '.join(shown)} FROM piece")
                database.unregister("piece")
            self._copy_parquet(database, path)

    def _copy_parquet(self, database: Any, path: Path) -> None:
        """A key column whose texts are all integers becomes one of integers."""
        shown = ""
        for name in map(quoted, self.key_columns):
            same = f"TRY_CAST({name} AS BIGINT)::VARCHAR IS NOT DISTINCT FROM {name}"
            (whole,) = database.execute(f"SELECT bool_and({same}) FROM answers").fetchone()
            shown += f"{name}::BIGINT AS {name}, " if whole else f"{name}, "
        shown += "obs_time, prediction, probability"
        target = str(path).replace("'", "''")
        database.execute(f"COPY (SELECT {shown} FROM answers) TO '{target}' (FORMAT PARQUET)")

    def _arrays(self, part: slice) -> dict[str, NDArray[Any]]:
        keys = {
            name: np.array([str(value) for value in values], object)
            for name, values in self._keys(part).items()
        }
        return {
            **keys,
            "obs_time": self._predictions.obs_times[part],
            "prediction": self._values(part),
            "probability": self._predictions.probabilities[part],
        }


WRITERS: dict[str, Callable[[Answers, Path], None]] = {
    ".csv": Answers._write_csv,
    ".parquet": Answers._write_parquet,
}


def check_predictions_file(path: Path, keys_file: Path | str | None = None) -> None:
    """Raise unless answers can be written to a path; before anything slow begins. If a
    file exists, it must hold predictions, and must not be the one that asks."""
    if path.suffix.lower() not in WRITERS:
        raise ValueError(f"'{path}' ends in neither {' nor '.join(WRITERS)}")
    if path.suffix.lower() == ".parquet":
        import_duckdb()
    inputs = [] if keys_file is None else [("--keys-file", [keys_file])]
    check_output(path, "--output", inputs, is_own=is_predictions, what="a file of predictions")


def is_predictions(path: Path) -> bool:
    """Whether a file has the columns of predictions, and is not a link."""
    if path.is_symlink() or not path.is_file():
        return False
    if path.suffix.lower() == ".parquet":
        duckdb = import_duckdb()
        with duckdb.connect() as database:
            try:
                query = "DESCRIBE SELECT * FROM read_parquet(?)"
                names = [name for name, *_ in database.execute(query, [str(path)]).fetchall()]
            except duckdb.Error:
                return False
        return len(names) > len(RESULT_COLUMNS) and (*names[-3:],) == RESULT_COLUMNS
    with open(path, "rb", opener=regular) as file:
        header = file.readline(HEADER_BYTES_MAX).rstrip()
    return header.endswith(f",{','.join(RESULT_COLUMNS)}".encode())


def import_duckdb() -> Any:
    """DuckDB, which reads and writes Parquet files."""
    try:
        import duckdb
    except ImportError as error:
        raise ImportError(
            "Parquet needs duckdb, which is not installed: pip install 'duckdb<2'"
        ) from error
    return duckdb


def key_columns(store: headwater.Store, task: str) -> tuple[str, ...]:
    """The columns that hold the key of a task's anchors: `key`, or one for each part."""
    parts = anchor_key(store, task)[1]
    return ("key",) if len(parts) == 1 else tuple(f"key_{part}" for part in parts)


def anchor_key(store: headwater.Store, task: str) -> tuple[str, list[str]]:
    """The anchor table of a task, and the columns of its primary key."""
    entry = store.metadata["tasks"][find_task(store.metadata, task)]
    table = store.metadata["tables"][store.table_index(entry["anchor_table"])]
    return table["name"], list(table["primary_key"])


def times_text(times: NDArray[np.int64]) -> list[str]:
    """ISO times in UTC, each to the second where that loses nothing; empty where there is none."""
    stamps = times.astype("datetime64[us]")
    seconds = np.datetime_as_string(stamps, unit="s")
    exact = np.where(times % 1_000_000 == 0, seconds, np.datetime_as_string(stamps, unit="us"))
    texts: list[str] = np.where(times == NO_TIME, "", exact).tolist()
    return texts


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
