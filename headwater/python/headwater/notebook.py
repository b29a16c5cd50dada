"""How results print: as a few lines at a prompt, as tables of HTML in a notebook.

Names and values come from databases. Lines spell out control characters (`console.shown`), and HTML
is escaped as well. Both are short whatever a database holds: a long text is cut, and a long list
has its first entries and the number of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from headwater.console import shown

LINE_BYTES = 90  # at most, of a line at a prompt: 20 of them are under 2 kB
CELL_BYTES = 200  # at most, of a cell of a table
ROWS_SHOWN = 40  # of a table


def short(text: object, most: int = LINE_BYTES) -> str:
    """One line of at most `most` bytes in UTF-8."""
    line = shown(str(text)).replace("\n", "\\n").replace("\t", "\\t")
    whole = line.encode()
    if len(whole) <= most:
        return line
    return whole[: most - 3].decode(errors="ignore") + "..."


def counted(count: int, what: str) -> str:
    """ "1 table", "2 tables"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int | None) -> str:
    """Names with commas, the first few of very many; most None: all of them."""
    shown = names if most is None else names[:most]
    more = f" and {len(names) - len(shown):,} more" if len(shown) < len(names) else ""
    return ", ".join(shown) + more


def short_lines(lines: Iterable[str], most: int, what: str) -> list[str]:
    """At most `most` indented lines; if some are left out, the last line counts them."""
    found = list(lines)
    kept = found if len(found) <= most else found[: most - 1]
    more = len(found) - len(kept)
    rest = [f"... and {counted(more, f'more {what}')}"] if more else []
    return [f"  {short(line, LINE_BYTES - 2)}" for line in [*kept, *rest]]


def html_table(header: Sequence[str], rows: Sequence[Sequence[Any]], what: str) -> str:
    """A table of the first rows, and a line that counts the others; empty without rows."""
    if not rows:
        return ""
    head = "".join(f"<th>{_cell(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>"
        for row in rows[:ROWS_SHOWN]
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return table + _rest(len(rows), what)


def html_list(title: str, lines: Sequence[str], what: str) -> str:
    """A title, the first lines below it, and a count of the others; empty without lines."""
    if not lines:
        return ""
    items = "".join(f"<li>{_cell(line)}</li>" for line in lines[:ROWS_SHOWN])
    return f"<p>{_cell(title)}</p><ul>{items}</ul>{_rest(len(lines), what)}"


def html_line(text: object) -> str:
    return f"<p>{_cell(text)}</p>"


def _cell(value: object) -> str:
    return escape(short(value, CELL_BYTES))


def _rest(count: int, what: str) -> str:
    more = count - ROWS_SHOWN
    return f"<p>... and {counted(more, f'more {what}')}</p>" if more > 0 else ""
