"""Drafts the description of a table's CSV files, for `headwater init`.

The encoding is judged by every byte of the files, the rest by their first rows: the delimiter that
cuts most rows into the same number of fields, the quote and its escape, lines before the table, and
whether the first row is a header (it has no number or date where the rows below it have them, and
does not look like the values below it). What is unusual comes back as a note, to be checked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from headwater.errors import SourceError
from headwater.metadata.parts import CsvFormat
from headwater.sources.database import Connection
from headwater.sources.folder.csv_files import (
    encoding_fault,
    first_bytes,
    placed_rows,
    read_rows,
    text_lines,
)

ROWS = 500  # looked at
LINES = 2_000
HEAD_BYTES = 4096
SKIP_MAX = 20
DELIMITERS = (",", ";", "\t", "|")
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?")
DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([T ].*)?")
DECIMAL_COMMA = re.compile(r"[+-]?([0-9]+|[0-9]{1,3}([.][0-9]{3})+)(,[0-9]+)?")
NAME = re.compile(r"[^\W\d]\w*")
BACKSLASH_QUOTE = re.compile(r'(?<!\\)(\\\\)*\\"(?!\s*([,;|\t]|$))')
MOSTLY = 0.9
NULL_WORDS = ("NA", "NULL", "null", "\\N", "None")


def detect_csv(connection: Connection, files: Sequence[Path]) -> tuple[CsvFormat, list[str]]:
    """A description of the files, and what of it is to be checked."""
    notes: list[str] = []
    encoding = _encoding(files, notes)
    path = next((file for file in files if file.stat().st_size), files[0])
    lines = list(islice(text_lines(connection, path, encoding), LINES))
    form = replace(CsvFormat(), encoding=encoding, quote=_quote(lines))
    if form.quote == '"' and any(BACKSLASH_QUOTE.search(line) for line in lines):
        form = replace(form, escape="\\")
    form = _shape(connection, path, form)
    rows = read_rows(connection, path, form, ROWS)
    if not rows:
        return form, notes
    # In joined exports a header stands again.
    rows = rows[:1] + [row for row in rows[1:] if row != rows[0]]
    width = _width(rows)
    if any(len(row) > width for row in rows):
        notes.append(f"rows of '{path.name}' end with a delimiter, which makes no column")
    header = _has_header([_of_width(row, width) for row in rows])
    form = replace(form, header=header)
    if header and (len(_sound_names(rows[0])) < len(rows[0]) or width > len(rows[0])):
        names = _column_names(_of_width(rows[0], width))
        form = replace(form, columns=names, short_rows=width > len(rows[0]))
    body = rows[header:]
    if form.delimiter != "," and _has_decimal_comma(body):
        form = replace(form, decimal=",")
    form = replace(form, null_values=_bare_nulls(lines, form))
    notes += _notes(path, form, rows)
    return form, notes


def _encoding(files: Sequence[Path], notes: list[str]) -> str:
    for path in files:
        head = first_bytes(path, HEAD_BYTES)
        for mark, name in MARKS.items():
            if head.startswith(mark):
                return name
        if head[1::2].count(0) > len(head) // 4:
            return "utf-16-le"
        if head[::2].count(0) > len(head) // 4:
            return "utf-16-be"
        fault = encoding_fault(path, "utf-8")
        if fault is not None:
            # Windows-1252 has letters and quotes where Latin-1 has control characters.
            found = "latin-1" if encoding_fault(path, "cp1252") else "cp1252"
            others = (file for file in files if encoding_fault(file, "ascii"))
            other = next((file for file in others if not encoding_fault(file, "utf-8")), None)
            if other is not None:
                raise SourceError(
                    f"{fault.partition(';')[0]}, and '{other}' is: the files of a table have one "
                    "encoding, so write one of them anew, or move it to a folder of its own"
                )
            notes.append(
                f"{fault.partition(';')[0]}: taken for {found}, so check letters with accents"
            )
            return found
    return "utf-8"


def _quote(lines: Sequence[str]) -> str:
    text = "".join(lines)
    if '"' in text:
        return '"'
    quoted = re.findall(r"(?:^|[,;\t|])'[^'\n]*'(?=[,;\t|\n]|$)", text, re.MULTILINE)
    return "'" if len(quoted) > len(lines) // 2 else '"'


def _width(rows: list[list[str]]) -> int:
    """The fields of the widest row. DuckDB takes one empty field more in any row."""
    count = len(rows[0])
    widest = max(len(_without_empty_end(row)) for row in rows)
    return max(map(len, rows)) if widest <= count < max(map(len, rows)) - 1 else count


def _of_width(row: list[str], width: int) -> list[str]:
    return row[:width] + [""] * (width - len(row))


def _shape(connection: Connection, path: Path, form: CsvFormat) -> CsvFormat:
    """Delimiter and lines to skip: those by which most rows have one number of fields above 1."""
    best, best_score = form, (0.0, 0)
    for delimiter in DELIMITERS:
        tried = replace(form, delimiter=delimiter)
        placed = placed_rows(connection, path, tried, ROWS)
        rows = [row for _, row in placed]
        widths = [len(row) for row in rows]
        if not widths:
            return form
        width, count = Counter(widths).most_common(1)[0]
        if width == 1:
            continue
        share = count / len(widths)
        if (round(share, 2), width) > best_score:
            skip, _ = placed[_first_row(rows, width)]
            best, best_score = replace(tried, skip=skip), (round(share, 2), width)
    return best


def _first_row(rows: list[list[str]], width: int) -> int:
    """The row with which the table begins: the first as wide as most, or a header before that."""
    first = next(j for j, row in enumerate(rows) if len(row) == width)
    if first > SKIP_MAX or len(rows) <= 2 * first:
        return 0
    return next((j for j in range(first) if _is_ragged_header(rows[j:], rows[first:])), first)


def _is_ragged_header(rows: list[list[str]], rest: list[list[str]]) -> bool:
    """Whether the first row names the columns of the others, though it has fewer fields, as each of
    them ends with a delimiter, or more, as they lack their last fields.

    rest: from the first row on that is as wide as most; it begins with no header of its own."""
    header, body = rows[0], rows[1:]
    names = header[: len(_without_empty_end(header))]
    if len(names) < 2 or len(_sound_names(names)) < len(names) or _has_values(header):
        return False
    if any(_without_empty_end(row[len(header) :]) for row in body):
        return False
    columns = zip(*[row for row in rest[1:] if len(row) == len(rest[0])], strict=True)
    is_header = any(_header_score(*pair) >= 2 for pair in zip(rest[0], columns, strict=False))
    return _has_values(rest[0]) or not is_header


def _without_empty_end(row: list[str]) -> list[str]:
    """The fields of a row up to the last that is not empty."""
    count = len(row)
    while count and not row[count - 1].strip():
        count -= 1
    return row[:count]


def _has_values(row: list[str]) -> bool:
    return any(NUMBER.fullmatch(cell) or DATE.fullmatch(cell) for cell in row)


def _has_header(rows: list[list[str]]) -> bool:
    first, body = rows[0], rows[1:]
    if _has_values(first):
        return False
    columns = zip(*[row for row in body if len(row) == len(first)], strict=True)
    score = sum(map(_header_score, first, columns), 0.0)
    # Data have empty and equal cells more often than headers have.
    return score >= 0 if len(_sound_names(first)) == len(first) else score > 0


def _sound_names(header: Sequence[str]) -> set[str]:
    """What may name one column each, case aside."""
    return {cell.casefold() for cell in header if cell.strip()}


def _column_names(header: Sequence[str]) -> tuple[str, ...]:
    """A name for every column: column3 for one without, name_3 for one that is there already."""
    names: list[str] = []
    for number, cell in enumerate(header):
        name = cell if cell.strip() else f"column{number}"
        while name.casefold() in {other.casefold() for other in names}:
            name = f"{name}_{number}"
        names.append(name)
    return tuple(names)


def _header_score(cell: str, values: Sequence[str]) -> float:
    """How much a cell of the first row looks unlike the values below it, positive or negative."""
    kept = [value for value in values if value not in NULL_WORDS and re.search(r"\w", value)]
    if not kept or not cell.strip():
        return 0.0
    typed = sum(bool(NUMBER.fullmatch(value) or DATE.fullmatch(value)) for value in kept)
    if typed >= MOSTLY * len(kept):
        return 2.0
    shapes = Counter(_form(value) for value in kept)
    shape, count = shapes.most_common(1)[0]
    if count >= MOSTLY * len(kept):
        return -1.0 if _form(cell) == shape else 1.0
    if cell in kept:
        return -1.0
    return 0.5 if NAME.fullmatch(cell) else -0.5


def _form(text: str) -> tuple[int, str]:
    """Length and kinds of characters: codes of one kind have one form."""
    kinds = re.sub(r"[A-Z]", "A", re.sub(r"[a-z]", "a", re.sub(r"[0-9]", "0", text)))
    return len(text), "".join(sorted(set(kinds.replace("0", "A"))))


def _has_decimal_comma(rows: list[list[str]]) -> bool:
    columns = zip(*[row for row in rows if len(row) == len(rows[0])], strict=True)
    for values in columns:
        kept = [value for value in values if value]
        numbers = [value for value in kept if re.search("[0-9]", value)]  # others may mean NULL
        is_number = len(numbers) > len(kept) // 2 and all(map(DECIMAL_COMMA.fullmatch, numbers))
        if is_number and any("," in value for value in numbers):
            return True
    return False


def _bare_nulls(lines: Sequence[str], form: CsvFormat) -> tuple[str, ...]:
    """Words that stand both quoted and bare: whoever wrote the file meant NULL by the bare one."""
    if not form.quote:
        return ()
    text, part, quote = "".join(lines), re.escape(form.delimiter), re.escape(form.quote)
    found = []
    for word in NULL_WORDS:
        bare = re.search(rf"(^|{part}){re.escape(word)}({part}|$)", text, re.MULTILINE)
        if bare and re.search(rf"{quote}{re.escape(word)}{quote}", text):
            found.append(word)
    return tuple(found)


def _notes(path: Path, form: CsvFormat, rows: list[list[str]]) -> list[str]:
    notes = []
    if not form.header:
        notes.append(
            f"'{path.name}' has no header: its {len(rows[0])} columns are column0, column1, ...; "
            "name them in 'columns' of the table, in this order, and run init --update"
        )
    renamed = [name for name, cell in zip(form.columns, rows[0], strict=False) if name != cell]
    if form.header and renamed:
        notes.append(
            f"the header of '{path.name}' has columns without a name or with one name: here they "
            f"are {', '.join(renamed)}; 'columns' of the table's 'csv' names them"
        )
    if form.skip:
        notes.append(f"{form.skip} lines of '{path.name}' stand before its table and are skipped")
    if form.decimal == ",":
        notes.append(f"numbers of '{path.name}' have a decimal comma")
    if form.null_values:
        listed = ", ".join(repr(word) for word in form.null_values)
        notes.append(f"{listed} of '{path.name}' is NULL where it stands without quotes")
    return notes
