"""Dates that lack their day, or month and day, are read as the last day that they may mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from headwater.builder.build import build
from headwater.errors import SchemaError
from headwater.inference.draft import ColumnDraft, Draft
from headwater.inference.infer import draft_source
from headwater.metadata.schema import Schema
from headwater.store.store import Store


def drafted(tmp_path: Path, values: Sequence[str], name: str = "issued") -> Draft:
    folder = tmp_path / "csv"
    folder.mkdir(exist_ok=True)
    rows = [f"{j},{value}" for j, value in enumerate(values)]
    (folder / "coin.csv").write_text("\n".join([f"coin_id,{name}", *rows]) + "\n")
    return draft_source(folder)


def column_of(tmp_path: Path, values: Sequence[str], name: str = "issued") -> ColumnDraft:
    return drafted(tmp_path, values, name).table("coin").column(name)


# In order: the two forms of a year, of a month, two whole dates.
MEANT = ["1912-12-31", "1913-12-31", "1912-02-29", "1914-11-30", "1915-03-04", "1915-03-05"]
WRITTEN = {
    "bare": ["1912", "1913", "1912-02", "1914-11", "1915-03-04", "1915-03-05"],
    "with zeros": [
        "1912-00-00", "1913-0-0", "1912-02-00", "1914-11-0", "1915-03-04", "1915-03-05",
    ],
    "with marks": [
        "1912-??-??", "1913-XX-XX", "1912-02-uu", "1914-11-xx", "1915-03-04", "1915-03-05",
    ],
    "with strokes": ["1912/00/00", "1913", "1912/02", "1914/11/00", "1915/03/04", "1915/3/5"],
    "a day of no month": [
        "1912-00-17", "1913", "1912-02", "1914-11", "1915-03-04", "1915-03-05",
    ],
}  # fmt: skip


@pytest.mark.parametrize("way", WRITTEN)
def test_a_date_without_its_day_is_read_as_the_last_day(tmp_path: Path, way: str) -> None:
    draft = drafted(tmp_path, WRITTEN[way] * 5)
    table = draft.table("coin")
    column = table.column("issued")
    assert (column.stype, column.format, table.time_resolution) == ("timestamp", "partial", "day")
    said = "10 of 30 values are whole dates, 10 lack the day, and 10 the month and the day"
    assert f"coin.issued: {said}: read as the last day" in "\n".join(draft.every_check())
    draft.schema().save(tmp_path / "metadata.json")
    assert Schema.load(tmp_path / "metadata.json") == draft.schema()
    build(tmp_path / "csv", tmp_path / "s", tmp_path / "metadata.json")
    with Store(tmp_path / "s") as store:
        cells = [store.row(row)["cells"] for row in range(30)]
    found = {cell["coin_id"]: str(cell["issued"])[:10] for cell in cells}
    assert [found[j] for j in range(6)] == MEANT


def test_what_is_no_date_stays_null_and_is_counted(tmp_path: Path) -> None:
    """Not the last day of a month that there is not, nor a day of February that there is not."""
    values = [*(["1990-05-00", "1991-07-08"] * 20), "1990-13-00", "1990-02-30"]
    column = column_of(tmp_path, values)
    assert column.format == "partial"
    assert "2 of 42 values are not of type timestamp and become NULL" in column.checks


OTHERS: dict[str, tuple[str, list[str], str, str | None]] = {
    "years": ("made", ["1912", "1913", "1914", "1915"] * 5, "numerical", None),
    "whole dates": ("made", ["1912-01-02", "1913-02-03"] * 9, "timestamp", None),
    "numbers of four digits": ("size", [str(1000 + j) for j in range(50)], "numerical", None),
    "a number like a month": (
        "size", [*(str(1000 + j) for j in range(50)), "1912-05"], "numerical", None,
    ),
    "codes": ("part_no", ["1912-05-00", "1912-06", "1913-07-01"] * 9, "text", None),
}  # fmt: skip


@pytest.mark.parametrize("way", OTHERS)
def test_other_values_are_not(tmp_path: Path, way: str) -> None:
    name, values, stype, form = OTHERS[way]
    column = column_of(tmp_path, values, name)
    assert column.format == form
    assert (column.stype == stype) or stype == "text"
    assert not any("lack the day" in check for check in column.checks)


def test_midnights_of_no_day_are_named(tmp_path: Path) -> None:
    values = ["1980-00-00 00:00:00", "1981-05-00 00:00:00", "1982-03-04 00:00:00"] * 9
    column = column_of(tmp_path, values)
    assert column.stype != "timestamp"
    (check,) = column.checks
    assert check.startswith("9 of 27 values are whole dates, 9 lack the day, and 9 the month")


def test_only_one_word_is_such_a_format() -> None:
    column = {"stype": "timestamp", "format": "partly"}
    with pytest.raises(SchemaError, match=r"'format' of .* is 'partly', expected one with year"):
        Schema.from_dict({"tables": {"t": {"columns": {"made": column}}}})
