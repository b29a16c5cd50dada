"""Drafts what becomes of rows of CSV files that are not as the others, for `headwater init`.

Exports lack last fields that are empty, are joined with the header of each, or end with the sums of
their columns. Each is taken as such by evidence only: the fields of a short row are of the types of
their columns, a repeated header is the header in every field, and a total is the sum of the other
rows, or of those above it. The description then has it (`short_rows`, `leave_out`), so that a
build does the same, and a note counts the rows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.errors import SourceError
from headwater.metadata.parts import CsvFormat
from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.folder.csv_detection import DATE, NUMBER, detect_csv
from headwater.sources.folder.csv_files import (
    ShortRows,
    copy_csv,
    find_short_rows,
    long_cells,
    read_rows,
    scan_of_csv,
    short_note,
)
from headwater.sources.folder.part_union import Keys, NotPartsError
from headwater.sources.source import SourceTable, literal
from headwater.sources.value_sql import to_numerical

ROWS = 500  # looked at
MOSTLY = 0.9
TOTALS_MAX = 50  # rows of sums
TOTALS_SHARE = 0.2  # of the rows, at most
TOTAL_LENGTH_MAX = 40
TOTAL_WORDS_MAX = 3  # such as "grand total 2024"
SUMMED_MIN = 3  # numbers but 0 in a sum without a word for it
SUM_ERROR = 1e-4  # of a sum of rounded numbers
KEY_TEXT, ANY_TEXT = "'[0-9]'", "'.'"  # of the rows whose first field is one
TOTAL_WORDS = {
    "total", "totals", "subtotal", "sum", "sums", "overall", "summe", "gesamt", "gesamtsumme",
    "insgesamt", "somme", "totale", "totaal", "totalt", "suma", "soma", "summa", "итого", "всего",
    "razem", "合计", "总计", "合計",
}  # fmt: skip


def load_detected(
    connection: Connection, name: str, index: int, files: list[Path], keys: Sequence[Keys] = ()
) -> SourceTable:
    """A table by the description that is drafted of its files, with what of it is to be checked.
    keys: as `copy_csv` takes them."""
    form, notes = detect_csv(connection, files)
    try:
        table = copy_csv(connection, name, index, files, form, keys)
    except NotPartsError:
        raise
    except SourceError:
        short = find_short_rows(connection, files, form)
        if not short or not all(_are_of_types(connection, form, rows) for rows in short):
            raise
        form = replace(form, short_rows=True)
        notes.append(short_note(files, short))
        table = copy_csv(connection, name, index, files, form, keys)
    for find in (_repeated_header, _totals):
        texts, note = find(connection, table, files, form)
        if find is _totals and not texts:
            found = _totals_of_rows_above(connection, table, files, form)
            texts, note = found if found is not None else (texts, note)
        if texts:
            form = replace(form, leave_out=(*form.leave_out, *texts))
            connection.execute(f"DROP TABLE raw.t{index}")
            table = copy_csv(connection, name, index, files, form, keys)
        notes += [note] if note else []
    return replace(table, notes=(*notes, *table.notes))


def _are_of_types(connection: Connection, form: CsvFormat, short: ShortRows) -> bool:
    """Whether the fields that short rows have are of the types of their columns. A row that a line
    feed without quotes cuts in two gives short rows, too, and they are not."""
    if short.has_others:
        return False
    full = [row for row in read_rows(connection, short.files[0], form, ROWS)[form.header :] if row]
    width = max(map(len, full), default=0)
    columns = list(zip(*[row for row in full if len(row) == width], strict=True))
    typed = [j for j, values in enumerate(columns) if _typed(values) >= MOSTLY]
    with long_cells():
        rows = list(
            csv.reader(
                short.texts,
                delimiter=form.delimiter,
                quotechar=form.quote or '"',
                quoting=csv.QUOTE_MINIMAL if form.quote else csv.QUOTE_NONE,
            )
        )
    cells = [row[j] for row in rows for j in typed if j < len(row) and row[j]]
    return _typed(cells) >= MOSTLY if cells else not _are_halves(short, rows, width)


def _are_halves(short: ShortRows, rows: list[list[str]], width: int) -> bool:
    """Whether each row and that of the next line make one whole row."""
    placed = list(zip(short.lines, rows, strict=False))
    return len(placed) % 2 == 0 and all(
        second == first + 1 and len(start) + len(end) == width + 1
        for (first, start), (second, end) in zip(placed[::2], placed[1::2], strict=True)
    )


def _typed(cells: Sequence[str]) -> float:
    """The share of numbers and dates among cells that are not empty; 1 if there are none."""
    kept = [cell for cell in cells if cell]
    found = sum(bool(NUMBER.fullmatch(cell) or DATE.fullmatch(cell)) for cell in kept)
    return found / len(kept) if kept else 1.0


Found = tuple[tuple[str, ...], str]  # the first fields of rows to leave out, and a note


def _repeated_header(
    connection: Connection, table: SourceTable, files: Sequence[Path], form: CsvFormat
) -> Found:
    """Rows that are the header again."""
    header = read_rows(connection, files[0], form, 1)[0] if form.header else []
    if len(header) < 2:
        return (), ""
    cells = {f"c{j}": cell for j, cell in enumerate(header)}
    first = "replace(coalesce(c0, ''), chr(65279), '')"  # each file may have its byte order mark
    is_first = f"{first} = {literal(cells.pop('c0'))}"
    is_equal = " AND ".join(f"coalesce({n}, '') = {literal(cell)}" for n, cell in cells.items())
    count, alike, texts = one_row(
        connection,
        f"SELECT count(*) FILTER (WHERE {is_equal}), count(*), list(DISTINCT coalesce(c0, '')) "
        f"FROM raw.t{table.index} WHERE {is_first}",
    )
    if count == 0:
        return (), ""
    rows = "1 row repeats" if count == 1 else f"{count:,} rows repeat"
    said = f"{rows} the header, as joined exports have it"
    if alike > count:
        return (), f"{said}; other rows begin alike, so take these out of the files"
    return tuple(sorted(texts)), f"{said}: left out by 'leave_out' of the table's 'csv'"


def _totals(
    connection: Connection, table: SourceTable, files: Sequence[Path], form: CsvFormat
) -> Found:
    """The last row, and others that begin alike, if they are the sums of the rows above them: they
    begin with a word for it, or, if the others have keys, with none or a word. Without a word for
    it each of its numbers is a sum, of several."""
    relation, count = f"raw.t{table.index}", table.row_count
    if count < 3 or len(table.columns) < 2:
        return (), ""
    last = one_row(
        connection, f"SELECT * FROM {relation} WHERE rowid = (SELECT max(rowid) FROM {relation})"
    )
    first = last[0] or ""
    named = any(map(_is_total_word, [first] if first else [cell for cell in last if cell]))
    if re.search(r"\d", first) and not named:
        return (), ""
    is_alike = f"coalesce(c0, '') = {literal(first)}"
    alike, others = one_row(
        connection,
        f"SELECT count(*) FILTER (WHERE {is_alike}), count(*) FILTER (WHERE NOT ({is_alike}) AND "
        f"NOT regexp_matches(coalesce(c0, ''), {KEY_TEXT if first else ANY_TEXT})) FROM {relation}",
    )
    if (others and not named) or alike > min(TOTALS_MAX, TOTALS_SHARE * count):
        return (), ""
    sums = _sums(connection, table, form, is_alike, is_named=named)
    verb = "the last row begins" if alike == 1 else f"{alike} rows begin"
    rows = f"{verb} with {first!r}"
    if sums:
        shown = ", ".join(f"{name} {value:,.10g}" for name, value in sums.items())
        what = "has the sum of the others" if alike == 1 else "have the sums of the others"
        return (
            first,
        ), f"{rows} and {what} ({shown}): left out by 'leave_out' of the table's 'csv'"
    if named:
        return (), (
            f"{rows} and may be a total, though not the sum of the others; if it is, write "
            f"{first!r} in 'leave_out' of the table's 'csv'"
        )
    return (), ""


def _totals_of_rows_above(
    connection: Connection, table: SourceTable, files: Sequence[Path], form: CsvFormat
) -> Found | None:
    """Rows anywhere that begin with a word for a total, if each has the sum of the rows above it:
    from the one before it on, or from the first row of its file or of the table on."""
    relation = f"raw.t{table.index}"
    rows = connection.execute(
        f"SELECT rowid, * FROM {relation} WHERE length(c0) <= {TOTAL_LENGTH_MAX} "
        f"AND regexp_matches(c0, {literal('(?i)' + '|'.join(TOTAL_WORDS))}) "
        f"ORDER BY 1 LIMIT {TOTALS_MAX + 1}"
    ).fetchall()
    is_few = 0 < len(rows) <= min(TOTALS_MAX, table.row_count / 2)
    if not is_few or not all(_is_total_word(row[1]) for row in rows):
        return None
    starts = [0]
    for file in files[:-1]:
        scan = scan_of_csv(connection, file, form)
        starts.append(starts[-1] + count_rows(connection, f"SELECT count(*) FROM {scan}"))
    places = [row[0] for row in rows]
    for place, _, *cells in rows:
        begins = {0, max(start for start in starts if start <= place)}
        begins |= {max((other + 1 for other in places if other < place), default=0)}
        above = [f"rowid >= {begin} AND rowid < {place}" for begin in begins]
        if not any(_are_sums(connection, table, form, cells, places, rule) for rule in above):
            return None
    texts = tuple(sorted({row[1] for row in rows}))
    verb, has = ("row begins", "has the sum") if len(rows) == 1 else ("rows begin", "have the sums")
    return texts, (
        f"{len(rows)} {verb} with {' or '.join(map(repr, texts))} and {has} of rows above: left "
        "out by 'leave_out' of the table's 'csv'"
    )


def _are_sums(
    connection: Connection,
    table: SourceTable,
    form: CsvFormat,
    cells: Sequence[Any],
    places: Sequence[int],
    above: str,
) -> bool:
    """Whether a cell is the sum of its column in several rows, those at `places` aside. A row with
    another text is one of the others: a company called Total has a country."""
    if any(cell and _number(cell, form) is None and not _is_total_word(cell) for cell in cells):
        return False
    numbers = [_number(cell, form) if cell else None for cell in cells]
    slots = [slot for slot, number in enumerate(numbers, 1) if number]
    for slot in slots:
        value, _ = to_numerical(f"c{slot}", "VARCHAR", decimal=form.decimal)
        count, total = one_row(
            connection,
            f"SELECT count({value}), sum({value}) FROM raw.t{table.index} "
            f"WHERE {above} AND rowid NOT IN ({', '.join(map(str, places))})",
        )
        if count > 1 and abs(float(numbers[slot - 1] or 0) - total) <= SUM_ERROR * abs(total):
            return True
    return False


def _sums(
    connection: Connection, table: SourceTable, form: CsvFormat, is_total: str, *, is_named: bool
) -> dict[str, float]:
    """Numbers of total rows that are the sums of their columns in the other rows, by column."""
    relation = f"raw.t{table.index}"
    slots = range(1, len(table.columns))
    cells = connection.execute(f"SELECT * FROM {relation} WHERE {is_total}").fetchall()
    found: dict[str, float] = {}
    is_trivial = True  # one flag among zeros is their sum
    for slot in slots:
        numbers = [_number(row[slot], form) for row in cells if row[slot] is not None]
        if not numbers or None in numbers:
            continue
        value, _ = to_numerical(f"c{slot}", "VARCHAR", decimal=form.decimal)
        count, typed, total, summed = one_row(
            connection,
            f"SELECT count(c{slot}), count({value}), sum({value}), "
            f"count(*) FILTER (WHERE {value} <> 0) FROM {relation} WHERE NOT ({is_total})",
        )
        own = sum(number for number in numbers if number is not None)
        if count == typed and total and abs(own - total) <= SUM_ERROR * abs(total):
            found[table.columns[slot].name] = own
            is_trivial = is_trivial and summed < SUMMED_MIN
        elif not is_named:
            return {}
    return {} if is_trivial and not is_named else found


def _number(cell: Any, form: CsvFormat) -> float | None:
    """A number as people write it: 2,641.80 or, with a decimal comma, 2.641,80."""
    text = str(cell).strip().replace("." if form.decimal == "," else ",", "")
    text = text.replace(form.decimal, ".")
    return float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text) else None


def _is_total_word(cell: str) -> bool:
    words = re.findall(r"\w+", cell.casefold())
    return len(words) <= TOTAL_WORDS_MAX and bool(TOTAL_WORDS & {*words})
