"""Which files of a folder make which table: a file or a folder each, with all that lies below.

    orders.parquet   orders/a.parquet   orders/2024/01/a.csv   orders/year=2024/store=007/a.parquet

The last is the way of Hive, Spark and `PARTITION_BY`: the names of folders are columns, with `%2F`
for `/` and a name for NULL. If the folders of the source itself are named so, they are one table
that is called as the source is. A `.txt` file is a table
if its first rows are those of one.

The files of a table are in the order of their paths, numbers by value: part-2 before part-10.

A table of Delta Lake or Iceberg is refused: it has a log of the files that are rows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headwater.errors import SourceError
from headwater.files import check_regular
from headwater.metadata.parts import SPLITS, CsvFormat
from headwater.sources.folder.csv_files import csv_name, first_bytes, is_csv
from headwater.sources.folder.part_union import Keys

DATA_ENDS = ".parquet, .csv, .tsv or .dat (the last three also with .gz or .zst)"
TABLE_ENDS = f"{DATA_ENDS}, or in .txt if they are a table with a header"
QUIET_SUFFIXES = ("", ".md", ".json", ".sql", ".py", ".html", ".pdf", ".log")  # seldom tables
PARTITION = re.compile(r"([^=]+)=(.*)", re.DOTALL)
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
DIGITS = re.compile(r"([0-9]+)")
TEXT_BYTES = 1 << 16  # of a .txt file, by which it is judged
TEXT_ROWS = 200
TEXT_DELIMITERS = ",\t;|"
TEXT_NAME = re.compile(
    r"[^\W\d][^\n]{0,63}"
)  # in a header; the next word of a text has a blank before it


@dataclass(frozen=True)
class TableFiles:
    """The files of a table, with what the names of the folders of each are."""

    files: list[Path]
    keys: Sequence[Keys] = ()
    is_deep: bool = False  # all of them lie below folders of the table's folder
    is_sure: bool = True  # that they are parts of one table; else they may be left out
    refusal: str = ""  # why none is read


@dataclass(frozen=True)
class _Lake:
    """A kind of table with a log of the files that are rows."""

    kind: str
    pattern: str  # of a file or folder in such a table
    package: str
    read: str  # in Python; {0} is the folder, {1} that file
    scan: str  # in DuckDB

    def refusal(self, folder: Path, found: Path) -> str:
        name, place = folder.resolve().name, str(folder)
        read = self.read.format(repr(place), repr(str(found)))
        return (
            f"'{folder}' is a table of {self.kind}: '{found.name}' has the log of which of its "
            f"files are rows, and headwater does not read that. In Python (pip install "
            f"{self.package}) give the rows as a source, {{{name!r}: {read}}}, or copy them with "
            "DuckDB: "
            f"COPY (FROM {self.scan}('{place}')) TO '{name}.parquet'"
        )


LAKES = (
    _Lake(
        "Delta Lake", "_delta_log", "deltalake pyarrow",
        "deltalake.DeltaTable({0}).to_pyarrow_table()", "delta_scan",
    ),
    _Lake(
        "Iceberg", "metadata/*.metadata.json", "'pyiceberg[pyarrow]'",
        "pyiceberg.table.StaticTable.from_metadata({1}).scan().to_arrow()", "iceberg_scan",
    ),
)  # fmt: skip


def refuse_lakes(folder: Path) -> None:
    """SourceError if a folder is a table with a log of its rows."""
    for lake in LAKES:
        found = sorted(folder.glob(lake.pattern), key=_natural)
        if found:
            raise SourceError(lake.refusal(folder, found[-1]))


def find_tables(
    folder: Path, texts: Mapping[str, CsvFormat] | None
) -> tuple[dict[str, TableFiles], list[str]]:
    """The tables of a folder by name, sorted, and what looks like data and makes no table.

    texts: the tables that .txt files may be, with their descriptions; None: all that look like
    one."""
    refuse_lakes(folder)
    tables: dict[str, TableFiles] = {}
    unread: list[str] = []
    partitions = []
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    for entry in sorted(entries, key=_is_text):  # the name of another file is not a .txt file's
        if entry.is_dir():
            if PARTITION.fullmatch(entry.name):
                partitions.append(entry)
                continue
            name, table = entry.name, _table_of(folder, entry, [entry], texts, unread)
        elif _is_text(entry):
            name = csv_name(entry)
            is_table = name not in tables and _is_table(name, entry, texts)
            table = TableFiles([entry], [{}]) if is_table else TableFiles([])
        else:
            table = _table_of_file(entry)
            name = entry.stem if entry.suffix == ".parquet" else csv_name(entry)
        if table.files or table.refusal:
            _add(tables, name, table, folder)
        elif not entry.is_dir() and entry.suffix.lower() not in QUIET_SUFFIXES:
            unread.append(entry.name)
    if partitions:
        name = folder.resolve().name
        _add(tables, name, _table_of(folder, folder, partitions, texts, unread), folder)
    return {name: tables[name] for name in sorted(tables)}, sorted(unread)


def _table_of_file(path: Path) -> TableFiles:
    if not is_data(path):
        return TableFiles([])
    check_regular(path)
    return TableFiles([path], [{}]) if path.is_file() else TableFiles([])  # a link may lead nowhere


def _add(tables: dict[str, TableFiles], name: str, table: TableFiles, folder: Path) -> None:
    if name in tables:
        first = table.files[0].name if table.files else ""
        raise SourceError(f"the folder '{folder}' holds table '{name}' twice: {first}")
    tables[name] = table


def _table_of(
    folder: Path,
    base: Path,
    entries: Sequence[Path],
    texts: Mapping[str, CsvFormat] | None,
    unread: list[str],
) -> TableFiles:
    """The table of all files below some folders, base being the one that is called as it is."""
    skipped: list[Path] = []
    try:
        below = [file for entry in entries for file in _files_below(entry, (), skipped)]
    except SourceError as error:
        return TableFiles([], refusal=str(error))
    below.sort(key=lambda file: _natural(file.relative_to(base)))
    files = [file for file in below if is_data(file)]
    is_text = not files
    if is_text:
        files = _text_parts(base.name, [file for file in below if _is_text(file)], texts)
    if not files:
        return TableFiles([])
    is_deep = all(file.parent not in entries for file in files)
    keys = [_keys_of(file.relative_to(base)) for file in files]
    if is_deep and not any(keys) and all(csv_name(file) in SPLITS for file in files):
        unread.append(f"{base.name}/ (label tables of a task, by their names)")
        return TableFiles([])
    unread += [
        file.relative_to(folder).as_posix() + "/" * file.is_dir()
        for file in {*below, *skipped} - {*files}
        if file.suffix.lower() not in QUIET_SUFFIXES or file.is_dir()
    ]
    if len({file.suffix == ".parquet" for file in files}) > 1:
        if not is_deep or any(keys):
            raise SourceError(f"the folder '{base}' holds Parquet and CSV files of one table")
        unread.append(f"{base.relative_to(folder)}/ (it holds Parquet and CSV files)")
        return TableFiles([])
    return TableFiles(files, keys, is_deep, is_sure=any(keys) or not (is_deep or is_text))


def _files_below(folder: Path, above: tuple[Path, ...], skipped: list[Path]) -> Iterator[Path]:
    """Regular files, in no order; what a program has not finished yet is skipped."""
    refuse_lakes(folder)
    above = (*above, folder.resolve())
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            if is_data(entry) or _is_text(entry):
                check_regular(entry)
            if entry.is_file():  # a link may lead nowhere
                yield entry
        elif entry.name.startswith("_"):
            skipped += [entry] if any(is_data(file) for file in entry.rglob("*")) else []
        elif entry.resolve() not in above:  # a link may lead back
            yield from _files_below(entry, above, skipped)


def _keys_of(path: Path) -> Keys:
    """The columns that the names of a file's folders are."""
    found = [PARTITION.fullmatch(part) for part in path.parts[:-1]]
    return {
        unquote(match[1]): None if match[2] == NULL_PARTITION else unquote(match[2])
        for match in found
        if match is not None
    }


def _natural(path: Path) -> Any:
    """Numbers in names by value, and the rest as it is."""
    pieces = [DIGITS.split(part) for part in path.parts]
    by_value = [[int(p) if j % 2 else p for j, p in enumerate(names)] for names in pieces]
    return by_value, path.parts


def is_data(path: Path) -> bool:
    return path.suffix == ".parquet" or is_csv(path)


def _is_text(path: Path) -> bool:
    return path.name.lower().endswith((".txt", ".txt.gz"))


def _is_table(name: str, path: Path, texts: Mapping[str, CsvFormat] | None) -> bool:
    """Whether a .txt file is (a part of) a table."""
    check_regular(path)
    return path.is_file() and (looks_like_table(path) if texts is None else name in texts)


def _text_parts(
    name: str, files: Sequence[Path], texts: Mapping[str, CsvFormat] | None
) -> list[Path]:
    """The .txt files of a folder that are parts of a table, the same for a draft and for a build:
    those that look like a table, and those with the first line of one, as rows may be ragged."""
    if texts is not None and not (name in texts and texts[name].header):
        return [*files] if name in texts else []
    headers = {tuple(_text_lines(file)[:1]) for file in files if looks_like_table(file)}
    if texts is not None and not headers:
        return [*files]
    return [file for file in files if tuple(_text_lines(file)[:1]) in headers]


def _text_lines(path: Path) -> list[str]:
    """The first lines of a text; none if it is not one."""
    try:
        head = first_bytes(path, TEXT_BYTES)
    except SourceError:
        return []
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    text = head.decode(encoding, "replace")
    if "\0" in text:
        return []
    lines = text.splitlines()[: TEXT_ROWS + 1]
    return lines[:-1] if len(head) == TEXT_BYTES and len(lines) <= TEXT_ROWS else lines


def looks_like_table(path: Path) -> bool:
    """Whether the first rows of a text have one number of fields, two or more, and the first of
    them are names: so no prose, whose commas have a blank behind them and not the same number."""
    lines = _text_lines(path)
    for delimiter in TEXT_DELIMITERS:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue
        widths = {len(row) for row in rows}
        if len(rows) > 1 and len(widths) == 1 and min(widths) > 1:
            names = {name.casefold() for name in rows[0] if TEXT_NAME.fullmatch(name)}
            if len(names) == len(rows[0]):
                return True
    return False
