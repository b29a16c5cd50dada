"""CSV files of a folder: the SQL that reads them by a description, and what it says of bad files.

Every column arrives as text. NULL is an empty field without quotes (or a spelling the description
lists); a quoted empty field is an empty text. How the files of a table are written is its "csv" in
metadata.json (`CsvFormat`); without one they have a header, commas, double quotes and UTF-8. Files
may be compressed (.gz, .zst). Only UTF-8 is read as it lies on disk: another encoding is copied to
UTF-8 beside the database first, so that a byte that does not belong to it is found by position.

Nothing is guessed here; `csv_detection.py` drafts a description for `headwater init`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, cast

from headwater.errors import SourceError
from headwater.files import regular
from headwater.metadata.parts import CsvFormat
from headwater.sources.database import Connection, memory_bytes, one_row
from headwater.sources.folder.part_union import Keys, Parts, Union, union_of
from headwater.sources.source import SourceTable, copy_scan, literal, quote

CSV_SUFFIXES = (".csv", ".tsv", ".dat")
PACKED_SUFFIXES = ("", ".gz", ".zst")
CSV_LINE_BYTES = 1 << 26  # at most; less where memory is short
CSV_BUFFER_LINES = 2  # lines of that size that have room in a buffer
CSV_MEMORY_SHARE = 16  # a line takes at most this part of DuckDB's memory
CHUNK_BYTES = 1 << 20
SHOWN_CHARACTERS = 60
HEAD_LINES = 20  # of a .zst file, by which its kind is judged
SHORT_ROWS_SHOWN = 1_000  # whose texts are looked at


def is_csv(path: Path) -> bool:
    return path.name.lower().endswith(
        tuple(kind + packed for kind in CSV_SUFFIXES for packed in PACKED_SUFFIXES)
    )


def csv_name(path: Path) -> str:
    """The table a file is: its name without what follows the last dot, compression aside."""
    stem = path.name if path.suffix.lower() not in PACKED_SUFFIXES else path.stem
    return Path(stem).stem


def copy_csv(
    connection: Connection,
    name: str,
    index: int,
    files: list[Path],
    form: CsvFormat,
    keys: Sequence[Keys] = (),
) -> SourceTable:
    """Copy the files of a table to raw.t<index>; SourceError names file and line. keys: what the
    names of the folders of each file are."""
    import duckdb

    copies = _Copies(connection, form)
    try:
        union = _union(connection, name, files, form, keys, copies)
        try:
            table = copy_scan(connection, name, index, union.scan)
            return replace(table, csv=form, notes=union.notes)
        except SourceError as error:
            kinds = (duckdb.InvalidInputException, duckdb.NotImplementedException)
            if not isinstance(error.__cause__, kinds):
                raise
            raise _reading_error(error.__cause__, name, files, copies) from error
    finally:
        copies.remove()


def _union(
    connection: Connection,
    name: str,
    files: list[Path],
    form: CsvFormat,
    keys: Sequence[Keys],
    copies: _Copies,
) -> Union:
    """The files as one table, by the names of their columns."""
    named = dict(zip(files, _column_names(connection, files, form), strict=True))
    types = [dict.fromkeys(named[file], "VARCHAR") for file in files]

    def read(some: list[Path]) -> str:
        return _scan(connection, some, form, copies, named[some[0]], named[files[0]][:1])

    return union_of(connection, Parts(name, files, types, keys or [{}] * len(files), read))


def _runs(
    connection: Connection, files: Sequence[Path], form: CsvFormat
) -> list[tuple[list[Path], tuple[str, ...]]]:
    """Files of the same columns that follow each other, and these columns."""
    named = zip(files, _column_names(connection, files, form), strict=True)
    runs = groupby(named, key=lambda pair: pair[1])
    return [([file for file, _ in pairs], names) for names, pairs in runs]


def scan_of_csv(connection: Connection, path: Path, form: CsvFormat) -> str:
    """The table function that reads a CSV file, as SQL."""
    (names,) = _column_names(connection, [path], form)
    return _scan(connection, [path], form, _Copies(connection, form), names, names[:1])


def _scan(
    connection: Connection,
    files: list[Path],
    form: CsvFormat,
    copies: _Copies,
    names: Sequence[str],
    first: Sequence[str],
) -> str:
    """SQL of the rows of files of the same columns, without those to leave out; first: the first
    column of the table, by which they are known."""
    scan = _read_csv(connection, files, form, copies, names)
    if not form.leave_out or not {*first} & {*names}:
        return scan
    return f"(SELECT * FROM {scan} WHERE NOT ({_is_left_out(first[0], form)}))"


def _is_left_out(first: str, form: CsvFormat) -> str:
    """SQL: whether a row is one to leave out."""
    return f"coalesce({quote(first)}, '') IN ({', '.join(map(literal, form.leave_out))})"


def _read_csv(
    connection: Connection,
    files: Sequence[Path],
    form: CsvFormat,
    copies: _Copies,
    names: Sequence[str],
    options: str | None = None,
) -> str:
    """SQL that reads every row; options: of DuckDB, each with a comma behind it, in place of those
    for short rows."""
    if options is None:
        # The parallel reader takes no short rows if a quoted field has several lines.
        options = "null_padding = true, parallel = false, " if form.short_rows else ""
    listed = ", ".join(literal(str(copies.utf8(file))) for file in files)
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    nulls = ", ".join(literal(text) for text in ("", *form.null_values))
    return (
        f"read_csv([{listed}], auto_detect = false, header = {str(form.header).lower()}, "
        f"delim = {literal(form.delimiter)}, quote = {literal(form.quote)}, "
        f"escape = {literal(form.escape if form.quote else '')}, skip = {form.skip}, "
        f"nullstr = [{nulls}], allow_quoted_nulls = false, "
        f"hive_partitioning = false, {options}{_limits(connection)}, columns = {{{columns}}})"
    )


@dataclass(frozen=True)
class ShortRows:
    """Rows that lack their last fields."""

    files: list[Path]  # of the same columns
    count: int
    path: Path
    lines: tuple[int, ...]  # of the first ones
    texts: tuple[str, ...]
    has_others: bool  # rows with another fault


def short_note(files: Sequence[Path], found: Sequence[ShortRows]) -> str:
    """files: of the table."""
    count, first = sum(rows.count for rows in found), found[0]
    base = os.path.commonpath([file.parent for file in files])
    verb = "row lacks its" if count == 1 else "rows lack their"
    return (
        f"{count:,} {verb} last fields, which are NULL "
        f"(the first in line {first.lines[0]:,} of '{first.path.relative_to(base).as_posix()}')"
    )


def find_short_rows(
    connection: Connection, files: Sequence[Path], form: CsvFormat
) -> list[ShortRows]:
    """The rows that lack their last fields, by a pass over the files."""
    copies = _Copies(connection, form)
    try:
        parts = [
            _short_rows(connection, some, form, copies, names)
            for some, names in _runs(connection, files, form)
        ]
    finally:
        copies.remove()
    return [part for part in parts if part is not None]


def _short_rows(
    connection: Connection,
    files: list[Path],
    form: CsvFormat,
    copies: _Copies,
    names: Sequence[str],
) -> ShortRows | None:
    options = (
        "ignore_errors = true, store_rejects = true, rejects_table = 'hw_rows', "
        "rejects_scan = 'hw_scans', "
    )
    try:
        scan = _read_csv(connection, files, form, copies, names, options)
        connection.execute(f"SELECT count(*) FROM {scan}").fetchall()
        count, others = one_row(
            connection,
            "SELECT count(DISTINCT (file_id, line)), "
            "count(*) FILTER (WHERE error_type <> 'MISSING COLUMNS') FROM hw_rows",
        )
        rows = connection.execute(
            "SELECT DISTINCT file_id, line, file_path, csv_line FROM hw_rows "
            f"JOIN hw_scans USING (scan_id, file_id) ORDER BY 1, 2 LIMIT {SHORT_ROWS_SHOWN}"
        ).fetchall()
        if not rows:
            return None
        path = copies.originals.get(Path(rows[0][2]), Path(rows[0][2]))
        texts = tuple((row[3] or "").strip("\r\n") for row in rows)
        return ShortRows(files, count, path, tuple(row[1] for row in rows), texts, others > 0)
    finally:
        for made in ("hw_rows", "hw_scans"):
            connection.execute(f"DROP TABLE IF EXISTS {made}")


def _left_out(connection: Connection, files: Sequence[Path], form: CsvFormat) -> Counter[str]:
    """How many rows are left out, by their first field."""
    counts, copies = Counter[str](), _Copies(connection, form)
    try:
        runs = _runs(connection, files, form)
        first = runs[0][1][0]
        for some, names in runs:
            if first not in names:
                continue
            rows = connection.execute(
                f"SELECT coalesce({quote(first)}, ''), count(*) "
                f"FROM {_read_csv(connection, some, form, copies, names)} "
                f"WHERE {_is_left_out(first, form)} GROUP BY 1"
            ).fetchall()
            counts.update(dict(rows))
    finally:
        copies.remove()
    return counts


def rows_notes(
    connection: Connection, name: str, files: Sequence[Path], form: CsvFormat
) -> tuple[str, ...]:
    """Rows that the description fills or leaves out, with counts."""
    notes = []
    short = find_short_rows(connection, files, form) if form.short_rows else []
    if short:
        notes.append(f"table '{name}': {short_note(files, short)}")
    if form.leave_out:
        counts = _left_out(connection, files, form)
        shown = ", ".join(f"{text!r} ({count:,})" for text, count in sorted(counts.items()))
        if shown:
            notes.append(
                f"table '{name}': rows are left out by their first field ('leave_out' of "
                f"its 'csv'): {shown}"
            )
    return tuple(notes)


def _line_bytes(connection: Connection) -> int:
    """The longest line that is taken."""
    (limit,) = one_row(connection, "SELECT current_setting('memory_limit')")
    return min(CSV_LINE_BYTES, int(memory_bytes(limit)) // CSV_MEMORY_SHARE)


def _too_long(where: str, connection: Connection) -> str:
    return (
        f"{where}: a line is longer than the {_line_bytes(connection):,} bytes that are taken with "
        "this memory limit; close a quote that is left open, or give a larger one"
    )


def _limits(connection: Connection) -> str:
    """Options of the longest line, and of a buffer that is of use to it. By itself DuckDB takes
    room for 16 such lines, 1 GiB, and fails where there is less memory."""
    line_bytes = _line_bytes(connection)
    return f"max_line_size = {line_bytes}, buffer_size = {CSV_BUFFER_LINES * line_bytes}"


def read_rows(connection: Connection, path: Path, form: CsvFormat, count: int) -> list[list[str]]:
    """The first rows of a file as Python parses them, header included."""
    return [row for _, row in placed_rows(connection, path, form, count)]


def placed_rows(
    connection: Connection, path: Path, form: CsvFormat, count: int
) -> list[tuple[int, list[str]]]:
    """The same with the number of lines before each; a blank line is not a row."""
    lines = islice(text_lines(connection, path, form.encoding), form.skip, None)
    doubled = form.escape in (form.quote, "")
    reader = csv.reader(
        lines,
        delimiter=form.delimiter,
        quotechar=form.quote or '"',
        quoting=csv.QUOTE_MINIMAL if form.quote else csv.QUOTE_NONE,
        doublequote=doubled,
        escapechar=None if doubled else form.escape,
    )
    try:
        with long_cells(_line_bytes(connection)):
            placed = ((reader.line_num, row) for row in reader if row)
            return [
                (number - 1 - sum(cell.count("\n") for cell in row), row)
                for number, row in islice(placed, count)
            ]
    except csv.Error as error:
        if "field limit" in str(error):
            where = f"'{path}', line {form.skip + reader.line_num:,}"
            raise SourceError(_too_long(where, connection)) from error
        raise SourceError(f"cannot read '{path}': {error}") from error


@contextmanager
def long_cells(most: int = CSV_LINE_BYTES) -> Iterator[None]:
    """Python's reader takes cells of up to so many characters; by itself it stops after 131,072."""
    before = csv.field_size_limit(most)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def text_lines(connection: Connection, path: Path, encoding: str) -> Iterator[str]:
    """Lines of a file with their ends; SourceError for bytes that are not of the encoding."""
    if path.suffix.lower() == ".zst":
        yield from _zstandard_lines(connection, path)
        return
    try:
        with _open_bytes(path) as file:
            reader = codecs.getreader("utf-8-sig" if _is_utf8(encoding) else encoding)(file)
            yield from reader
    except (UnicodeError, EOFError, gzip.BadGzipFile) as error:
        raise SourceError(encoding_fault(path, encoding) or f"'{path}': {error}") from error


def encoding_fault(path: Path, encoding: str) -> str | None:
    """What is wrong with the first byte that does not belong to an encoding, and where it is."""
    if path.suffix.lower() == ".zst":
        return None
    decoder = codecs.getincrementaldecoder(encoding)()
    done = line = 0
    try:
        with _open_bytes(path) as file:
            while True:
                chunk = file.read(CHUNK_BYTES)
                kept = len(decoder.getstate()[0])
                text = decoder.decode(chunk, final=not chunk)
                done, line = done + len(chunk), line + text.count("\n")
                if not chunk:
                    return None
    except UnicodeError as error:
        if not isinstance(error, UnicodeDecodeError):
            return f"'{path}' is not {encoding}: {error}"
        wrong = error.object[error.start]
        line += error.object[: error.start].decode(encoding, "replace").count("\n")
        return (
            f"'{path}' is not {encoding}: byte 0x{wrong:02X} at offset "
            f"{done - kept + error.start:,} (line {line + 1:,}); write its encoding in the table's "
            '\'csv\', for example "encoding": "latin-1"'
        )
    except (EOFError, gzip.BadGzipFile) as error:
        return f"'{path}' is not a complete .gz file: {error}"


class _Copies:
    """UTF-8 copies of files in other encodings, in the folder where the database spills."""

    def __init__(self, connection: Connection, form: CsvFormat) -> None:
        row = one_row(connection, "SELECT current_setting('temp_directory')")
        self.connection, self.form = connection, form
        self.folder = Path(row[0]).parent
        self.originals: dict[Path, Path] = {}  # by copy

    def utf8(self, path: Path) -> Path:
        """The file itself if its bytes are UTF-8, else a copy that is."""
        if _is_utf8(self.form.encoding):
            return path
        for copy, original in self.originals.items():
            if original == path:
                return copy
        if path.suffix.lower() == ".zst":
            raise SourceError(f"'{path}' is compressed by Zstandard, and only as UTF-8 is it read")
        fault = encoding_fault(path, self.form.encoding)
        if fault is not None:
            raise SourceError(fault)
        copy = self.folder / f"utf8-{len(self.originals)}.csv"
        self.originals[copy] = path
        with _open_bytes(path) as file, copy.open("w", encoding="utf-8", newline="") as out:
            decoder = codecs.getincrementaldecoder(self.form.encoding)()
            while chunk := file.read(CHUNK_BYTES):
                out.write(decoder.decode(chunk))
        return copy

    def remove(self) -> None:
        for copy in self.originals:
            copy.unlink(missing_ok=True)


def _column_names(
    connection: Connection, files: Sequence[Path], form: CsvFormat
) -> list[tuple[str, ...]]:
    """The columns of each file: as described, else of its header, which every file must have."""
    found: list[tuple[str, ...]] = []
    header: tuple[str, ...] = ()
    for path in files:
        rows = read_rows(connection, path, form, 1)
        first = tuple(rows[0]) if rows else ()
        if form.header:
            _check_header(path, first, form)
        if form.columns:
            header = header or first
            names = _described(path, first, header, form)
        elif form.header:
            names = first
        else:
            return [tuple(f"column{j}" for j in range(len(first)))] * len(files)
        found.append(names)
    return found


def _described(
    path: Path, first: tuple[str, ...], header: tuple[str, ...], form: CsvFormat
) -> tuple[str, ...]:
    """The columns of a file by the description, which names those of the first file's header: a
    column that another file has at another place is the one of its name."""
    cells = [cell.casefold() for cell in header]
    known = {cell: j for j, cell in enumerate(cells) if cell.strip() and cells.count(cell) == 1}
    if first == header or not form.header or not {c.casefold() for c in first} & {*known}:
        if first and not _fits(len(first), form):
            raise SourceError(
                f"'{path}' has {len(first)} fields in its first row, the metadata name "
                f"{len(form.columns)} columns; correct the table's 'columns' or its 'csv'"
            )
        return form.columns
    names = []
    for j, cell in enumerate(first):
        place = known.get(cell.casefold(), j)
        is_own = place == j < len(header) == len(first) and form.columns[j] != header[j]
        is_known = is_own or cell.casefold() in known or header[j : j + 1] == (cell,)
        names.append(form.columns[place] if is_known else cell)
    if not all(names) or len({name.casefold() for name in names}) < len(names):
        raise SourceError(
            f"'{path}' has the header {list(first)}, and the first file {list(header)}: a column "
            "without a name, or with the name of another, must be at the same place in both"
        )
    return (*names, *form.columns[len(header) :])


def _fits(width: int, form: CsvFormat) -> bool:
    """Whether a first row of so many fields is one of the described columns."""
    return width == len(form.columns) or (form.short_rows and width < len(form.columns))


def _check_header(path: Path, header: tuple[str, ...], form: CsvFormat) -> None:
    if not header or (not form.columns and not all(header)):
        raise SourceError(f"'{path}' has no header, or a column without a name")
    if len(header) == 1 and any(mark in header[0] for mark in ",;\t|" if mark != form.delimiter):
        raise SourceError(
            f"'{path}' has the one column {header[0]!r}: its fields are not parted by "
            f"{form.delimiter!r}; write 'delimiter' in the table's 'csv' (init detects it)"
        )
    folded = [name.casefold() for name in header]
    for name in header:
        if not form.columns and folded.count(name.casefold()) > 1:
            raise SourceError(f"'{path}' has two columns '{name}' (names ignore case)")


def _reading_error(error: Exception, name: str, files: list[Path], copies: _Copies) -> SourceError:
    """DuckDB's words about a bad line, with the user's file and what to do."""
    text = str(error)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    file = re.search(r"^  file = (.*)$", text, re.MULTILINE)
    path = copies.originals.get(Path(file[1]), Path(file[1])) if file else files[0]
    if "not utf-8" in text or "unicode" in text:
        fault = encoding_fault(path, "utf-8")
        return SourceError(fault or f"'{path}' is not UTF-8, line {line[1] if line else '?'}")
    where = f"'{path}', line {int(line[1]):,}" if line else f"'{path}'"
    if "Maximum line size" in text or "does not support a full read" in text:
        return SourceError(_too_long(where, copies.connection))
    found = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    original = re.search(r"Original Line: (.*)", text)
    shown = original[1][:SHOWN_CHARACTERS] if original else ""
    if found:
        is_short = int(found[2]) < int(found[1])
        advice = "; if rows may lack their last fields, write 'short_rows' in the table's 'csv'"
        return SourceError(
            f"{where}: {found[2]} fields, table '{name}' has {found[1]} columns: {shown!r}"
            + advice * is_short
        )
    if "unterminated quote" in text:
        return SourceError(
            f"{where}: a quote is not closed, or text follows its end: {shown!r}; correct the file "
            "or 'quote' and 'escape' in the table's 'csv'"
        )
    return SourceError(f"{where}: {text.partition('Possible')[0].strip()}")


def _zstandard_lines(connection: Connection, path: Path) -> Iterator[str]:
    """Lines of a .zst file, which DuckDB unpacks."""
    import duckdb

    try:
        cursor = connection.execute(
            f"SELECT line FROM read_csv({literal(str(path))}, auto_detect = false, "
            f"header = false, delim = '', quote = '', escape = '', "
            f"{_limits(connection)}, columns = {{'line': 'VARCHAR'}}) LIMIT 10000"
        )
    except duckdb.Error as error:
        raise SourceError(f"cannot read '{path}': {str(error).partition('Possible')[0]}") from error
    for (line,) in cursor.fetchall():
        yield (line or "") + "\n"


def unpacked_head(connection: Connection, path: Path) -> bytes:
    """The beginning of what a .zst file holds; empty for another, or if it cannot be read."""
    if path.suffix.lower() != ".zst":
        return b""
    try:
        return "".join(islice(_zstandard_lines(connection, path), HEAD_LINES)).encode()
    except SourceError:
        return b""  # whoever reads it names the fault


def first_bytes(path: Path, count: int) -> bytes:
    """The beginning of a file, unpacked if it is .gz."""
    if path.suffix.lower() == ".zst":
        return b""
    try:
        with _open_bytes(path) as file:
            return file.read(count)
    except (EOFError, gzip.BadGzipFile) as error:
        raise SourceError(f"'{path}' is not a complete .gz file: {error}") from error


def _open_bytes(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return open(path, "rb", opener=regular)


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"
