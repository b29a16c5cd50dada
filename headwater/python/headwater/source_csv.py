"""CSV files of a folder: the SQL that reads them. Every column arrives as text, NULL is an empty
field, and a quoted empty field is an empty text.
"""

from __future__ import annotations

import csv
from pathlib import Path

from .errors import SourceError
from .sources import literal

CSV_LINE_BYTES = 1 << 26


def scan_of_csv(files: list[Path]) -> str:
    """The table function that reads CSV files of one header, as SQL."""
    names = ", ".join(literal(str(file)) for file in files)
    header = _csv_header(files[0])
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in header)
    return (
        f"read_csv([{names}], auto_detect = false, header = true, delim = ',', quote = '\"', "
        f"escape = '\"', nullstr = '', allow_quoted_nulls = false, "
        f"hive_partitioning = false, max_line_size = {CSV_LINE_BYTES}, columns = {{{columns}}})"
    )


def _csv_header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except UnicodeDecodeError as error:
        raise SourceError(
            f"'{path}' is not UTF-8; convert it, for example with iconv: {error}"
        ) from error
    except (OSError, csv.Error) as error:
        raise SourceError(f"cannot read the header of '{path}': {error}") from error
    if not header or not all(header):
        raise SourceError(f"'{path}' has no header, or a column without a name")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise SourceError(
            f"'{path}' has the one column {header[0]!r}: fields must be parted by commas"
        )
    folded = [name.casefold() for name in header]
    for name in header:
        if folded.count(name.casefold()) > 1:
            raise SourceError(f"'{path}' has two columns '{name}' (names ignore case)")
    return header
