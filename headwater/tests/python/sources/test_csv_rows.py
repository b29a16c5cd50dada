"""Rows of CSV files that are not as the others: short ones, headers that stand again, totals.

Each file is drafted, and built by its draft: both must have the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from headwater.builder.build import build
from headwater.errors import SourceError
from headwater.inference.draft import Draft
from headwater.inference.infer import draft_source
from headwater.metadata.parts import CsvFormat
from headwater.store.store import Store


def drafted(tmp_path: Path, text: str) -> Draft:
    folder = tmp_path / "csv"
    folder.mkdir(exist_ok=True)
    (folder / "sale.csv").write_text(text)
    return draft_source(folder)


def form_of(draft: Draft) -> CsvFormat:
    return draft.schema().table("sale").csv or CsvFormat()


def built(tmp_path: Path, draft: Draft) -> tuple[list[list[Any]], Sequence[str]]:
    """Rows of a build by a draft, and its notes on the source."""
    report = build(tmp_path / "csv", tmp_path / "s", draft.schema())
    with Store(tmp_path / "s") as store:
        count = store.metadata["tables"][0]["row_range"][1]
        cells = [list(store.row(row)["cells"].values()) for row in range(count)]
    return cells, report.source_notes


def check_of(draft: Draft, word: str) -> str:
    return next(check for check in draft.every_check() if word in check)


def lines(count: int, end: str = "") -> list[str]:
    return [f"{j},{j % 3}.5,2024-01-{j:02}{end}" for j in range(1, count + 1)]


HEADER = "nr,price,day"
PLAIN = "\n".join([HEADER, *lines(9)])
# What each file lacks or has too much of, and its description.
RAGGED: dict[str, tuple[str, CsvFormat]] = {
    "a comma after each row": ("\n".join([HEADER, *lines(9, ",")]), CsvFormat()),
    "a comma after some rows": ("\n".join([HEADER, *lines(5), *lines(9, ",")[5:]]), CsvFormat()),
    "a comma after the header too": (
        "\n".join([HEADER + ",", *lines(9, ",")]),
        CsvFormat(columns=("nr", "price", "day", "column3")),
    ),
    "a comma after the header alone": (
        "\n".join([HEADER + ",", *lines(9)]),
        CsvFormat(columns=("nr", "price", "day", "column3"), short_rows=True),
    ),
    "two commas after each row": (
        "\n".join([HEADER, *lines(9, ",,")]),
        CsvFormat(columns=("nr", "price", "day", "column3", "column4"), short_rows=True),
    ),
    "lines before the header": ("\n".join(["sales of May", HEADER, *lines(9)]), CsvFormat(skip=1)),
    "blank lines before the header": (
        "\n".join(['"sales, all"', "", "of May", "", HEADER, *lines(9, ",")]),
        CsvFormat(skip=4),
    ),
    "a line with a comma before the header": (
        "\n".join(["sales,May", HEADER + ",", *lines(9, ",")]),
        CsvFormat(columns=("nr", "price", "day", "column3"), skip=1),
    ),
}


ALL_SHORT = "9 rows lack their last fields, which are NULL (the first in line 2 of 'sale.csv')"


@pytest.mark.parametrize("way", RAGGED)
def test_an_empty_field_at_the_end_of_rows_changes_nothing(tmp_path: Path, way: str) -> None:
    """The header was taken for a line before the table."""
    text, form = RAGGED[way]
    draft = drafted(tmp_path, text)
    assert form_of(draft) == form
    table = draft.table("sale")
    assert (table.primary_key, table.temporal_column) == (("nr",), "day")
    rows, notes = built(tmp_path, draft)
    assert list(notes) == (["table 'sale': " + ALL_SHORT] if "header alone" in way else [])
    assert [row[:2] for row in rows] == [[j, j % 3 + 0.5] for j in range(1, 10)]


def test_rows_that_lack_their_last_fields_are_filled_and_counted(tmp_path: Path) -> None:
    text = "nr,price,day,why\n1,1.5,2024-01-01\n2,2.5,2024-01-02\n3,0.5,2024-01-03,late\n4,1.5\n"
    draft = drafted(tmp_path, text + "\n5,3.5,2024-01-05\n")
    assert form_of(draft) == CsvFormat(short_rows=True)
    said = "4 rows lack their last fields, which are NULL (the first in line 2 of 'sale.csv')"
    assert check_of(draft, "lack") == f"sale: {said}"
    rows, notes = built(tmp_path, draft)
    assert sorted(row[:2] for row in rows) == [[1, 1.5], [2, 2.5], [3, 0.5], [4, 1.5], [5, 3.5]]
    assert list(notes) == [f"table 'sale': {said}"]


def test_a_short_row_past_the_first_ones_is_found(tmp_path: Path) -> None:
    text = "\n".join(["a,b", *(f"{j},{j}" for j in range(2000)), "2000", "2001,1"])
    draft = drafted(tmp_path, text)
    assert "1 row lacks its last fields" in check_of(draft, "lacks")
    assert "the first in line 2,002 of" in check_of(draft, "lacks")
    assert len(built(tmp_path, draft)[0]) == 2002


def test_a_row_cut_in_two_is_still_refused(tmp_path: Path) -> None:
    """Its second part has a text where the others have their number."""
    text = "\n".join(["nr,what,price", *(f"{j},x,{j}.5" for j in range(9)), "9,good", "bad,3.5"])
    with pytest.raises(SourceError, match=r"sale\.csv', line 11: 2 fields, .* has 3 columns"):
        drafted(tmp_path, text)
    texts = "\n".join(["who,what,where", *(f"n{j},x,y" for j in range(9)), "m,good", "bad,y"])
    with pytest.raises(SourceError, match=r"line 11: 2 fields.*write 'short_rows'"):
        drafted(tmp_path, texts)
    with pytest.raises(SourceError, match=r"line 3: 4 fields"):
        drafted(tmp_path, "nr,what,price\n1,a,2\n2,b,c,3\n3\n")


def test_a_header_that_stands_again_is_no_row(tmp_path: Path) -> None:
    text = "\n".join([HEADER, *lines(4), HEADER, *lines(9)[4:]])
    draft = drafted(tmp_path, text)
    assert form_of(draft) == CsvFormat(leave_out=("nr",))
    assert "1 row repeats the header" in check_of(draft, "header")
    assert draft.table("sale").primary_key == ("nr",)
    rows, notes = built(tmp_path, draft)
    assert [row[0] for row in rows] == list(range(1, 10))
    (note,) = notes
    assert note.endswith("left out by their first field ('leave_out' of its 'csv'): 'nr' (1)")


def test_the_header_of_a_file_with_a_byte_order_mark_is_no_row(tmp_path: Path) -> None:
    text = "\n".join(["\ufeff" + HEADER, *lines(4), "\ufeff" + HEADER, *lines(9)[4:]])
    draft = drafted(tmp_path, text)
    assert form_of(draft) == CsvFormat(leave_out=("\ufeffnr",))
    assert [row[0] for row in built(tmp_path, draft)[0]] == list(range(1, 10))


def test_a_header_that_begins_as_other_rows_do_is_only_named(tmp_path: Path) -> None:
    text = "word,count\nword,1\nname,2\nword,count\nnone,3\n"
    draft = drafted(tmp_path, text)
    assert form_of(draft) == CsvFormat()
    assert "take these out of the files" in check_of(draft, "repeats the header")
    assert len(built(tmp_path, draft)[0]) == 4


def test_a_word_that_is_the_header_of_its_one_column_is_a_row(tmp_path: Path) -> None:
    draft = drafted(tmp_path, "word\none\nword\ntwo\n")
    assert draft.table("sale").source.row_count == 3


# The prices of nine lines are 1.5 2.5 0.5 1.5 ...: three times 4.5.
TOTALS = {
    "a word": ("Total,13.50,", "Total"),
    "a word of another language": ('"Summe:",13.5,', "Summe:"),
    "nothing but the sum": (",13.5,", ""),
    "a word in the next column": (",13.5,Grand total", ""),
    "another word": ("all,13.5,", "all"),
}


@pytest.mark.parametrize("way", TOTALS)
def test_the_sums_of_a_file_are_no_row(tmp_path: Path, way: str) -> None:
    last, first = TOTALS[way]
    draft = drafted(tmp_path, f"{PLAIN}\n{last}\n")
    assert form_of(draft) == CsvFormat(leave_out=(first,))
    check = check_of(draft, "has the sum of the others (price 13.5)")
    assert f"the last row begins with {first!r}" in check
    rows, notes = built(tmp_path, draft)
    assert [row[0] for row in rows] == list(range(1, 10))
    assert f"{first!r} (1)" in notes[0]


def test_each_of_two_joined_exports_has_its_header_and_its_total(tmp_path: Path) -> None:
    """4.5 + 1.5 of the first four rows and 9 - 1.5 of the others: together 13.5, the sum."""
    text = "\n".join([HEADER, *lines(4), "Total,6,", HEADER, *lines(9)[4:], "Total,7.50,"])
    draft = drafted(tmp_path, text)
    assert form_of(draft) == CsvFormat(leave_out=("nr", "Total"))
    assert "2 rows begin with 'Total' and have the sums" in check_of(draft, "Total")
    assert [row[0] for row in built(tmp_path, draft)[0]] == list(range(1, 10))


KEPT = {
    "a sum that is not": ("Total,99,", "may be a total, though not the sum of the others"),
    "a row without its key": (",2.5,2024-01-10", ""),
    "the sum as the price of a key": ("10,13.5,2024-01-10", ""),
}


@pytest.mark.parametrize("way", KEPT)
def test_a_last_row_that_is_not_the_sum_stays(tmp_path: Path, way: str) -> None:
    last, said = KEPT[way]
    draft = drafted(tmp_path, f"{PLAIN}\n{last}\n")
    assert form_of(draft) == CsvFormat()
    assert draft.table("sale").source.row_count == 10
    assert any("total" in check for check in draft.every_check()) == bool(said)
    assert said in " ".join(draft.every_check())


def test_a_city_called_as_a_sum_stays(tmp_path: Path) -> None:
    """A word among words is a total only if it is called one."""
    draft = drafted(tmp_path, "city,people\nRome,3\nOslo,1\nBern,2\nAlle,6\n")
    assert form_of(draft) == CsvFormat() and draft.table("sale").source.row_count == 4
    draft = drafted(tmp_path, "city,people\nRome,3\nOslo,1\nBern,2\nParis,0\nYork,1\nTotal,7\n")
    assert form_of(draft) == CsvFormat(leave_out=("Total",))
