"""Parts of a CSV table that are written otherwise than the first: draft and build read the same."""

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


def written(tmp_path: Path, parts: dict[str, str | bytes]) -> Path:
    for name, text in parts.items():
        path = tmp_path / "csv" / "sale" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path / "csv"


def drafted(tmp_path: Path, parts: dict[str, str | bytes]) -> Draft:
    return draft_source(written(tmp_path, parts))


def built(tmp_path: Path, draft: Draft) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """Rows of a build by a draft, and its notes on the source."""
    report = build(tmp_path / "csv", tmp_path / "s", draft.schema())
    with Store(tmp_path / "s") as store:
        first, end = store.metadata["tables"][0]["row_range"]
        return [store.row(row)["cells"] for row in range(first, end)], report.source_notes


def form_of(draft: Draft) -> CsvFormat:
    return draft.schema().table("sale").csv or CsvFormat()


def lines(header: str, form: str, first: int) -> str:
    """Nine rows with the keys from `first` on; the price is twice the key."""
    rows = [form.format(key=key, price=2 * key) for key in range(first, first + 9)]
    return "\n".join([header, *rows]) + "\n"


A = lines(",nr,shop,price", "0,{key},s{key},{price}", 1)
# A column without a name gives all of them names in the description; other parts than the first ...
UNNAMED = {
    "have another order": lines(",shop,price,nr", "0,s{key},{price},{key}", 10),
    "have a column more": lines(",nr,extra,shop,price", "0,{key},e,s{key},{price}", 10),
    "lack a column": lines("price,nr,shop", "{price},{key},s{key}", 10),
    "write a name in capitals": lines(",Nr,SHOP,price", "0,{key},s{key},{price}", 10),
}


@pytest.mark.parametrize("way", UNNAMED)
def test_parts_are_one_by_names_though_the_description_has_names(tmp_path: Path, way: str) -> None:
    draft = drafted(tmp_path, {"a.csv": A, "b.csv": UNNAMED[way]})
    assert form_of(draft).columns == ("column0", "nr", "shop", "price")
    rows, _ = built(tmp_path, draft)
    found = sorted((row["nr"], row["shop"], row["price"]) for row in rows)
    assert found == [(key, f"s{key}", 2 * key) for key in range(1, 19)]


def test_a_column_of_another_name_is_another_column(tmp_path: Path) -> None:
    draft = drafted(tmp_path, {"a.csv": A, "b.csv": A.replace("shop", "town")})
    assert draft.table("sale").source.column_names()[1:] == ["nr", "shop", "price", "town"]
    assert any("shop (b.csv), town (a.csv)" in check for check in draft.every_check())


def test_names_of_the_metadata_hold_for_headers_of_another_language(tmp_path: Path) -> None:
    source = written(tmp_path, {"a.csv": "Nr,Laden\n1,x\n2,y\n", "b.csv": "No,Shop\n3,z\n"})
    form = {"columns": ["nr", "shop"]}
    columns = {name: {"stype": "categorical"} for name in form["columns"]}
    build(source, tmp_path / "s", {"tables": {"sale": {"csv": form, "columns": columns}}})
    with Store(tmp_path / "s") as store:
        assert [store.row(row)["cells"]["shop"] for row in range(3)] == ["x", "y", "z"]


def test_a_second_column_without_a_name_at_another_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"b\.csv' has the header .*must be at the same place"):
        drafted(tmp_path, {"a.csv": A, "b.csv": lines("nr,,price", "{key},x,{price}", 10)})


SHORT = "nr,shop,price\n"


def test_rows_are_left_out_by_the_first_column_of_the_table(tmp_path: Path) -> None:
    """A shop is called nr in the part that begins with shops."""
    a = lines("nr,shop,price", "{key},s,{price}", 1) + SHORT + "10,s,20\n"
    b = lines("shop,nr,price", "nr,{key},{price}", 11)
    draft = drafted(tmp_path, {"2023/a.csv": a, "2024/a.csv": b})
    assert form_of(draft) == CsvFormat(leave_out=("nr",))
    assert any("1 row repeats the header" in check for check in draft.every_check())
    rows, notes = built(tmp_path, draft)
    assert sorted(row["nr"] for row in rows) == list(range(1, 20))
    assert notes[0].endswith("'nr' (1)")


def test_short_rows_of_parts_are_of_the_types_of_their_own_columns(tmp_path: Path) -> None:
    """The second part begins with a text, as the first column of the first part never does."""
    a = lines("nr,price,shop", "{key},{price},s", 1)
    b = lines("shop,price,nr", "s,{price},{key}", 10) + "s,38\n"
    draft = drafted(tmp_path, {"2023/p.csv": a, "2024/p.csv": b})
    said = "1 row lacks its last fields, which are NULL (the first in line 11 of '2024/p.csv')"
    assert f"sale: {said}" in draft.every_check()
    rows, notes = built(tmp_path, draft)
    assert [row["price"] for row in rows if row["nr"] is None] == [38]
    assert len(rows) == 19 and list(notes) == [f"table 'sale': {said}"]


def test_each_part_may_end_with_its_total(tmp_path: Path) -> None:
    """2 + 4 + ... + 18 = 90, and 20 + ... + 36 = 252."""
    a = lines("nr,shop,price", "{key},s,{price}", 1) + "Total,,90\n"
    b = lines("nr,shop,price", "{key},s,{price}", 10) + "Total,,252\n"
    draft = drafted(tmp_path, {"month=01/p.csv": a, "month=02/p.csv": b})
    assert form_of(draft) == CsvFormat(leave_out=("Total",))
    assert sorted(row["nr"] for row in built(tmp_path, draft)[0]) == list(range(1, 19))


ITEMS = {
    # 2 + 4 = 6 and 8 + 10 = 18, together 24.
    "subtotals and a total": (
        "N,a,2\nN,b,4\nSubtotal,,6\nS,c,8\nS,d,10\nSubtotal,,18\nGrand total,,24\n",
        ("Grand total", "Subtotal"),
    ),
    "a total before another row": ("N,a,2\nN,b,4\nS,c,8\nTotal,,14\nnone,e,0\n", ("Total",)),
    "a company of that name": ("N,a,2\nN,b,4\nTotal,c,6\nS,d,10\n", ()),
    "a total of other rows": ("N,a,2\nN,b,4\nTotal,,7\nS,d,10\n", ()),
    "a total of one row": ("N,a,2\nSubtotal,,2\nS,d,10\nS,e,1\n", ()),
}


@pytest.mark.parametrize("way", ITEMS)
def test_totals_anywhere_are_the_sums_of_rows_above(tmp_path: Path, way: str) -> None:
    text, texts = ITEMS[way]
    draft = drafted(tmp_path, {"a.csv": "region,shop,price\n" + text})
    assert form_of(draft).leave_out == texts
    left = sum(line.startswith(texts) for line in text.splitlines()) if texts else 0
    assert draft.table("sale").source.row_count == text.count("\n") - left


@pytest.mark.parametrize("part", ["a.csv", "b.csv"])
def test_a_total_of_one_part_is_the_sum_of_its_rows(tmp_path: Path, part: str) -> None:
    """2 + 4 + ... + 18 = 90, and 20 + ... + 36 = 252."""
    header, form = "nr,shop,price", "{key},s,{price}"
    parts = {"a.csv": lines(header, form, 1), "b.csv": lines(header, form, 10)}
    parts[part] += f"Total,,{90 if part == 'a.csv' else 252}\n"
    draft = drafted(tmp_path, {**parts})
    assert form_of(draft) == CsvFormat(leave_out=("Total",))
    assert any("1 row begins with 'Total' and has the sum" in c for c in draft.every_check())
    assert draft.table("sale").source.row_count == 18


def test_a_flag_among_zeros_is_no_total(tmp_path: Path) -> None:
    """Of ten wards one other has the flag, so the last has the sum."""
    rows = [f"W{key},{key},{int(key == 3)}" for key in range(1, 10)]
    for last in ("North,7,1", "North,,1"):
        text = "\n".join(["ward,beds,icu", *rows, last])
        draft = drafted(tmp_path, {"a.csv": text})
        assert draft.table("sale").source.row_count == 10


def test_a_row_of_sums_without_a_word_has_no_other_number(tmp_path: Path) -> None:
    """1 + ... + 9 = 45 beds, but 3 doctors are not the sum of nine times 2."""
    rows = [f"W{key},{key},2" for key in range(1, 10)]
    kept = drafted(tmp_path, {"a.csv": "\n".join(["ward,beds,doctors", *rows, "all,45,3"])})
    assert kept.table("sale").source.row_count == 10
    left = drafted(tmp_path, {"a.csv": "\n".join(["ward,beds,doctors", *rows, "all,45,18"])})
    assert left.table("sale").source.row_count == 9


def test_parts_have_one_encoding(tmp_path: Path) -> None:
    """Read as the second one, the first would be ZoÃ« without a word."""
    text = lines("nr,shop,price", "{key},Zoë,{price}", 1)
    with pytest.raises(SourceError, match=r"b\.csv' is not utf-8.*line 2\), and '.*a\.csv' is"):
        drafted(tmp_path, {"a.csv": text, "b.csv": text.encode("latin-1")})
    plain = drafted(tmp_path, {"a.csv": text.replace("ë", "e")})
    assert form_of(plain).encoding == "cp1252"


def test_a_part_of_no_bytes_has_no_rows(tmp_path: Path) -> None:
    text = lines("nr,shop,price", "{key},s,{price}", 1)
    draft = drafted(tmp_path, {"0.csv": "", "a.csv": text, "b.csv": ""})
    assert draft.table("sale").source.row_count == 9
    assert len(built(tmp_path, draft)[0]) == 9


def test_a_draft_and_a_build_have_the_same_txt_parts(tmp_path: Path) -> None:
    """One part has a short row, and a text beside them is none."""
    a, b = (lines("nr,shop,price", "{key},s,{price}", first) for first in (1, 10))
    parts = {"a.txt": a, "b.txt": b + "19,t\n", "readme.txt": "Sales, of the shops.\n"}
    draft = drafted(tmp_path, {**parts})
    assert draft.table("sale").source.row_count == 19
    rows, notes = built(tmp_path, draft)
    assert sorted(row["nr"] for row in rows) == list(range(1, 20))
    assert notes[0].endswith(": sale/readme.txt") and "1 row lacks" in notes[1]
