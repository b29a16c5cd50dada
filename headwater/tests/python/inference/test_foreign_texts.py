"""One text among numbers or times is proposed as NULL; what may be a value is only named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from headwater.inference.draft import ColumnDraft
from headwater.inference.infer import draft_source


def column_of(tmp_path: Path, values: Sequence[str], name: str = "value") -> ColumnDraft:
    rows = [f'{j};"{value}"' for j, value in enumerate(values)]
    (tmp_path / "t.csv").write_text("\n".join([f"id;{name}", *rows]) + "\n")
    return draft_source(tmp_path).table("t").column(name)


def mixed(text: str, every: int, values: Sequence[object]) -> list[str]:
    """The values, with a text in each so many of them."""
    return [text if j % every == 0 else str(value) for j, value in enumerate(values)]


NUMBERS = [j * 37 % 101 for j in range(200)]
HALVES = [j % 7 / 2 for j in range(200)]
DAYS = [f"2024-{j % 12 + 1:02}-{j % 28 + 1:02}" for j in range(200)]
GERMAN = [f"{j % 28 + 1:02}.{j % 12 + 1:02}.2024" for j in range(200)]
AMOUNTS = [f"$1,{100 + j}.50" for j in range(200)]

NULLS: dict[str, tuple[list[str], str, str, int]] = {
    "dots": (mixed("..", 10, NUMBERS), "numerical", "..", 20),
    "a colon in two of three": (
        [":" if j % 3 else str(v) for j, v in enumerate(NUMBERS)], "numerical", ":", 133,
    ),
    "an ellipsis": (mixed("…", 8, NUMBERS), "numerical", "…", 25),
    "a letter": (mixed("x", 4, NUMBERS), "numerical", "x", 50),
    "words": (mixed("not asked", 10, NUMBERS), "numerical", "not asked", 20),
    "words with points": (mixed("n.a.", 5, HALVES), "numerical", "n.a.", 40),
    "a letter in one of a hundred": (mixed("x", 100, NUMBERS), "numerical", "x", 2),
    "a word among days": (mixed("tba", 10, DAYS), "timestamp", "tba", 20),
    "dots among days": (mixed("..", 4, DAYS), "timestamp", "..", 50),
    "a word among days of another form": (mixed("offen", 10, GERMAN), "timestamp", "offen", 20),
}  # fmt: skip


@pytest.mark.parametrize("way", NULLS)
def test_one_text_among_numbers_or_times_is_taken_for_null(tmp_path: Path, way: str) -> None:
    values, stype, text, count = NULLS[way]
    column = column_of(tmp_path, values)
    assert (column.stype, column.null_values) == (stype, (text,))
    assert f"taken for NULL: '{text}' ({count})" in column.checks
    assert column.reason.endswith(f"; NULL is {count} x '{text}'")


def test_signs_are_null_however_many_and_a_known_word_with_them(tmp_path: Path) -> None:
    values = mixed("..", 10, mixed("--", 7, mixed("NA", 9, NUMBERS)))
    column = column_of(tmp_path, values)
    assert column.stype == "numerical"
    assert sorted(column.null_values) == ["--", "..", "NA"]


def test_a_sign_is_taken_from_numbers_with_a_currency_as_well(tmp_path: Path) -> None:
    column = column_of(tmp_path, mixed("..", 10, AMOUNTS))
    assert column.null_values == ("..",)
    assert any("looks like numbers, but 180 of 180 have a currency" in c for c in column.checks)


def test_a_sign_hides_no_decimal_comma(tmp_path: Path) -> None:
    values = [":" if j % 5 == 0 else f"{j % 9},25" for j in range(200)]
    column = column_of(tmp_path, values)
    assert (column.stype, column.null_values) == ("numerical", (":",))


def test_several_texts_among_numbers_are_named(tmp_path: Path) -> None:
    values = mixed("low", 10, mixed("high", 9, NUMBERS))
    column = column_of(tmp_path, values)
    assert (column.stype, column.null_values) == ("text", ())
    (check,) = column.checks
    lows, highs = values.count("low"), values.count("high")
    assert (lows, highs) == (20, 20)
    assert f"160 of 200 values are numbers or times, the others are 'high' ({highs})" in check
    assert f"'low' ({lows}); if these mean NULL" in check


def test_few_texts_that_become_null_are_named(tmp_path: Path) -> None:
    values = mixed("low", 100, mixed("high", 99, NUMBERS))
    column = column_of(tmp_path, values)
    assert column.stype == "numerical"
    assert column.checks == [
        "4 of 200 values are not of type numerical and become NULL: 'high' (2), 'low' (2)"
    ]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("K", range(1, 13)), ("90+", range(18, 90)), ("12a", range(1, 100)), ("½", NUMBERS)],
)
def test_a_text_that_may_be_a_value_stays(
    tmp_path: Path, text: str, numbers: Sequence[int]
) -> None:
    """Kindergarten before the school years, an open end, a house, a half."""
    values = mixed(text, 10, [numbers[j % len(numbers)] for j in range(200)])
    column = column_of(tmp_path, values)
    assert column.null_values == ()
    assert any(f"'{text}' (20)" in check for check in column.checks) == (text != "K")


@pytest.mark.parametrize("name", ["customer_id", "plz"])
def test_a_key_and_a_label_keep_their_texts(tmp_path: Path, name: str) -> None:
    column = column_of(tmp_path, mixed("guest", 10, [f"{j:05}" for j in NUMBERS]), name)
    assert column.null_values == ()


def test_words_and_sentences_have_no_foreign_texts(tmp_path: Path) -> None:
    values = [f"{j % 40} Main Street" if j % 2 else "the old mill" for j in range(200)]
    assert column_of(tmp_path, values).checks == []
