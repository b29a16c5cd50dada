"""Texts in a column of numbers or times that are neither: what a file writes for a missing value.

World Bank files write `..`, Eurostat `:`, a laboratory `x`: any text may stand for NULL, and one in
twenty rows makes the column a text. So if a column holds numbers or times but for one text, that
text is proposed as NULL; so are signs without a letter or digit. If a text may be a value (`K`
among school years 1 to 12, `90+` among ages), or if there are several, they are named and stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.column_values import ColumnValues
from headwater.facts.formats import TIME_LENGTH_MAX, find_format
from headwater.facts.names import is_id_name
from headwater.sources.value_sql import to_numerical, to_timestamp

TEXTS_MAX = 12  # different ones: more are what a column of texts has
TYPED_MIN = 0.05  # of the values are numbers or times, if the others are signs
TYPED_HALF = 0.5  # if they have letters or digits
REPEATS_MIN = 2  # of a word: one alone may be a slip
DISTINCT_MIN = 20  # whole numbers; fewer may be codes, and a word among them a code too


@dataclass(frozen=True)
class ForeignTexts:
    nulls: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)


def foreign_texts(asked: ColumnValues, facts: ColumnFacts, known: dict[str, int]) -> ForeignTexts:
    """The texts of a column that are foreign to it, with counts; known: spellings of NULL."""
    texts = _texts(asked, facts, known)
    if not texts:
        return ForeignTexts()
    nulls = {**known, **texts}
    rest = asked.measure(nulls)
    form = find_format(asked.connection, asked.column, asked.values(nulls), rest)
    is_time = rest.mostly(rest.time_count) or form.format is not None or form.has_two
    if not is_time and not rest.mostly(rest.number_count + rest.marked_count):
        return ForeignTexts()
    words = {text: count for text, count in texts.items() if any(map(str.isalnum, text))}
    is_half = rest.value_count >= TYPED_HALF * facts.value_count
    is_many = (
        is_time or rest.distinct_count >= DISTINCT_MIN or rest.integer_count < rest.number_count
    )
    is_null = not words or (
        is_many
        and is_half
        and len(words) == 1
        and all(count >= REPEATS_MIN for count in words.values())
        and not any(map(str.isnumeric, "".join(words)))
    )
    if rest.padded_count and not is_time:  # codes
        return ForeignTexts()
    if is_null:
        return ForeignTexts(nulls=texts)
    return ForeignTexts(kept=texts if is_many and is_half else {})


def _texts(asked: ColumnValues, facts: ColumnFacts, known: dict[str, int]) -> dict[str, int]:
    """Values that are of another kind than the numbers or times of a column, if they are few."""
    source, column = asked.source, asked.column
    is_key = column.name in source.primary_key or is_id_name(column.name)
    if column.type != "VARCHAR" or is_key or facts.mostly(facts.word_count):
        return {}
    count = facts.value_count
    if count in (facts.number_count, facts.time_count):
        return {}
    decimal = source.csv.decimal if source.csv is not None else "."
    if 0 < TYPED_MIN * count <= facts.number_count and not facts.marked_count:
        is_other = f"{to_numerical('v', 'VARCHAR', decimal=decimal)[0]} IS NULL"
    elif 0 < TYPED_MIN * count <= facts.time_count:
        is_other = f"{to_timestamp('v', 'VARCHAR')[0]} IS NULL"
    elif 0 < TYPED_HALF * count <= facts.digit_count and facts.mean_length <= TIME_LENGTH_MAX:
        is_other = "NOT regexp_matches(v, '[0-9]')"
    else:
        return {}
    rows = asked.connection.execute(
        f"SELECT v, count(*) AS n FROM {asked.values(known)} WHERE v IS NOT NULL AND {is_other} "
        f"GROUP BY v ORDER BY n DESC, v LIMIT {TEXTS_MAX + 1}"
    ).fetchall()
    return dict(rows) if len(rows) <= TEXTS_MAX else {}
