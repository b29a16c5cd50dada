"""A semantic type for every column that is no key, by its values first and its name second."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headwater.facts.column_facts import ColumnFacts
from headwater.facts.column_values import NEVER_VALUES
from headwater.facts.extremes import Numbers, find_extremes
from headwater.facts.names import DATE_WORDS, is_id_name, words_of
from headwater.inference.draft import ColumnDraft, TableDraft
from headwater.metadata.parts import PARTIAL
from headwater.metadata.review import Cost
from headwater.notebook import listed
from headwater.sources.database import Connection
from headwater.sources.source import SourceColumn
from headwater.sources.value_sql import (
    INTEGER_TYPES,
    NAIVE_TYPES,
    ZONED_TYPE,
    is_nested,
    is_number_type,
    plain_text,
)
from headwater.store.extreme_values import extremes_text

CATEGORY_COUNT_MAX = 256  # distinct values of a categorical column
CATEGORY_REPEATS_MIN = 5  # rows per distinct value, on average
MANY_COUNT_MAX = 1024  # of one whose values repeat often
MANY_REPEATS_MIN = 50
CODE_COUNT_MAX = 64  # distinct numbers that may be codes
MILLISECONDS_FROM = 100_000_000_000  # a count since 1970 this large is not in seconds
TEXTS_SHOWN = 6  # of texts among numbers
DOUBTFUL_MIN = 5  # values such as 'none' that are worth a word
CODE_WORDS = {"type", "class", "kind", "category", "status", "level", "code", "group", "gender"}
# Written in digits, and yet nothing to calculate with.
LABEL_WORDS = {
    "zip", "zipcode", "postal", "postcode", "plz", "phone", "telephone", "fax", "ean", "isbn",
    "issn", "iban", "ssn", "barcode",
}  # fmt: skip
TEXT_TYPES = re.compile(r"VARCHAR|JSON|ENUM.*")


def draft_type(table: TableDraft, column: ColumnDraft) -> None:
    """Settle the type, the unit, the NULL spellings and what is to be checked of them."""
    facts = column.facts
    source = table.source.columns[table.slot(column.name)]
    column.null_values = tuple(facts.nulls)
    if column.counts:
        column.stype, column.reason = "timestamp", f"numbers that are {column.counts}"
    else:
        column.stype, column.reason = _type(source, column, facts)
    is_count = column.stype == "timestamp" and is_number_type(source.type)
    if is_count and column.counts is None and facts.format is None:
        column.unit = "ms" if facts.largest >= MILLISECONDS_FROM else "s"
    if column.stype == "timestamp":
        column.format = facts.format
    if facts.nulls:
        spellings = ", ".join(f"{count:,} x '{text}'" for text, count in facts.nulls.items())
        column.reason += f"; NULL is {spellings}"
    _check(column, facts, source)


def key_type(table: TableDraft, column: ColumnDraft, *, refers: bool) -> None:
    """The type of a column of a key: an identifier, unless it says something by itself.

    An identifier shows only that it is there. So a time, and the parts of a natural key that refer
    to nothing (a country's name, a year), keep the type of their values.
    """
    draft_type(table, column)
    facts = column.facts
    natural = not (refers or is_id_name(column.name)) and (
        facts.spaced_count > 0 or len(table.primary_key) > 1
    )
    if column.stype == "timestamp" or (natural and column.stype not in ("ignored", "boolean")):
        return
    nulls = column.reason.partition("; NULL is ")
    column.stype = "identifier"
    column.reason = "foreign key" if refers else "primary key"
    column.reason += nulls[1] + nulls[2]


def check_extremes(connection: Connection, table: TableDraft) -> None:
    """Name the numbers next to which the others of their column become nearly the same."""
    columns, quick = [], []
    for column in table.columns:
        if column.stype == "numerical":
            name, kind = column.name, table.kind(column.name)
            number, value = table.typed_value(name), table.value(name)
            text = plain_text(value, table.source.columns[table.slot(name)])
            columns.append(Numbers(name, number, text, is_whole=kind in INTEGER_TYPES))
            is_plain = kind == "VARCHAR" and not (column.facts.are_spans or _has_comma(table))
            quick.append(f"TRY_CAST({value} AS DOUBLE)" if is_plain else number)
    relation = f"raw.t{table.source.index}"
    for found in find_extremes(connection, relation, columns, (relation, quick)):
        column = table.column(found.column)
        column.check(f"{found.count:,} values {extremes_text(found.to_json())}")


def _has_comma(table: TableDraft) -> bool:
    """Whether its numbers have a decimal comma."""
    return table.source.csv is not None and table.source.csv.decimal == ","


def _type(source: SourceColumn, column: ColumnDraft, facts: ColumnFacts) -> tuple[str, str]:
    kind, name, count = source.type, column.name, facts.value_count
    if count == 0:
        return "ignored", "no values"
    if kind == "BLOB" or "BLOB" in source.declared:
        return "ignored", "binary data"
    if kind in ("DATE", ZONED_TYPE, *NAIVE_TYPES):
        return "timestamp", f"type {kind}"
    if kind == "BOOLEAN":
        return "boolean", "type BOOLEAN"
    if kind == "BIT":
        return "ignored", "type BIT: 1010 is not a number"
    if is_nested(kind):
        return "ignored", f"type {kind}: lists and structures have no place in a store"
    if facts.format is not None and is_number_type(kind):
        return "timestamp", f"numbers that are times as {facts.format}"
    if kind == "VARCHAR" and facts.mostly(facts.time_count):
        what = "times" if facts.format is None else f"times as {facts.format}"
        if facts.partial:
            what = "dates, some of a month or a year"
        return "timestamp", _share(what, facts.time_count, count)
    if facts.time_count == count and column.counts is None:
        return "timestamp", f"declared {source.declared}" if source.declared else "times"
    if is_number_type(kind) or kind in ("TIME", "INTERVAL"):
        return _number_type(source, name, facts)
    if kind == "UUID":
        return "identifier", "type UUID, and names no table that is here"
    if kind.startswith("ENUM") and facts.distinct_count <= MANY_COUNT_MAX:
        return "categorical", f"an enumeration, {facts.distinct_count:,} distinct of {count:,}"
    if not TEXT_TYPES.fullmatch(kind):
        return "ignored", f"type {kind} has no place in a store"
    return _text_type(name, facts)


def _number_type(source: SourceColumn, name: str, facts: ColumnFacts) -> tuple[str, str]:
    both = facts.zero_one_count == facts.value_count and facts.distinct_count == 2
    if both or "BOOL" in source.declared:
        return "boolean", "0 and 1 only" if both else f"declared {source.declared}"
    return _code_or_number(name, facts)


def _code_or_number(name: str, facts: ColumnFacts) -> tuple[str, str]:
    """Numbers, unless the name says that they are codes."""
    words, count = words_of(name), facts.value_count
    integral = facts.integer_count == count
    if integral and is_id_name(name):
        if facts.distinct_count <= CATEGORY_COUNT_MAX and _repeats(facts):
            return "categorical", f"named as an id, {facts.distinct_count:,} values: a code"
        return "identifier", "named as an id, and names no table that is here"
    codes = facts.distinct_count <= CODE_COUNT_MAX and _repeats(facts)
    if integral and codes and words and words[-1] in CODE_WORDS:
        return "categorical", f"'{words[-1]}' with {facts.distinct_count:,} values: a code"
    return "numerical", "numbers"


def _text_type(name: str, facts: ColumnFacts) -> tuple[str, str]:
    count = facts.value_count
    label = LABEL_WORDS & set(words_of(name))
    if facts.word_count == count and facts.zero_one_count < count and facts.distinct_count <= 4:
        return "boolean", "words such as yes and no"
    if facts.mostly(facts.number_count) and not facts.padded_count and not label:
        if facts.zero_one_count == count:
            return "boolean", "0 and 1 only"
        stype, reason = _code_or_number(name, facts)
        return stype, _share(reason, facts.number_count, count)
    if facts.are_spans:
        what = f"hours, minutes and seconds, {facts.late_count:,} of them 24:00:00 or later"
        return "numerical", f"{_share(what, facts.span_count, count)}: seconds"
    if facts.mostly(facts.word_count) and facts.zero_one_count < facts.word_count:
        return "boolean", _share("words such as yes and no", facts.word_count, count)
    if facts.mostly(facts.uuid_count) and facts.distinct_count > count // CATEGORY_REPEATS_MIN:
        return "identifier", "UUIDs or hashes, which name no table that is here"
    distinct = f"{facts.distinct_count:,} distinct of {count:,}"
    many = facts.distinct_count <= MANY_COUNT_MAX and _repeats(facts, MANY_REPEATS_MIN)
    if many or (facts.distinct_count <= CATEGORY_COUNT_MAX and _repeats(facts)):
        return "categorical", distinct
    return "text", distinct


def _check_times(column: ColumnDraft, facts: ColumnFacts) -> None:
    """What was read by a format that may be wrong, and times that were not read."""
    form = column.format or ""
    if column.stype == "timestamp":
        if form.startswith("%Y%m%d"):
            days = f"{facts.smallest:.0f} to {facts.largest:.0f}"
            column.check(f"taken for times as {form}: {days}")
        if facts.partial and form == PARTIAL:
            column.check(
                f"{facts.partial}: read as the last day that they may mean (format partial)",
                Cost.FUTURE,
            )
        if "%y" in form:
            column.check(f"times as {form}: of a year, 69 is 1969 and 68 is 2068")
    elif facts.has_two_formats:
        column.check(
            "looks like dates, but day first and month first fit alike; if they are, set stype "
            'timestamp and "format": "%d/%m/%Y" or "%m/%d/%Y", as the case may be',
            Cost.FUTURE,
        )
    elif facts.unread_times:
        column.check(facts.unread_times, Cost.FUTURE)
    elif (
        column.counts is None
        and DATE_WORDS & set(words_of(column.name)[-1:])
        and column.stype in ("numerical", "categorical", "text")
    ):
        column.check(_unread_name(facts), Cost.FUTURE)


def _unread_name(facts: ColumnFacts) -> str:
    """The check of a column that is named as a time and holds none that can be read."""
    what = "texts"
    if facts.mostly(facts.number_count):
        what = f"numbers, {facts.smallest:g} to {facts.largest:g}"
    return (
        f"is named as a time, but holds {what}: no row gets its time from it, so contexts may show "
        'what came later; to have times, add a column with an "expression" of them, or write them '
        "as ISO 8601"
    )


def _counted(texts: Mapping[str, int]) -> str:
    """Texts with their counts, the most frequent of many."""
    return listed([f"'{text}' ({count:,})" for text, count in texts.items()], TEXTS_SHOWN)


def _repeats(facts: ColumnFacts, times: int = CATEGORY_REPEATS_MIN) -> bool:
    return facts.distinct_count * times <= facts.value_count


def _share(what: str, count: int, total: int) -> str:
    return f"text that is {what}" if count == total else f"{count:,} of {total:,} are {what}"


def _check(column: ColumnDraft, facts: ColumnFacts, source: SourceColumn) -> None:
    failing = {
        "timestamp": facts.value_count - facts.time_count,
        "numerical": facts.value_count
        - (facts.span_count if facts.are_spans else facts.number_count),
        "boolean": facts.value_count - facts.word_count,
    }.get(column.stype, 0)
    if failing > 0 and not column.counts and source.type == "VARCHAR":
        others = f": {_counted(facts.foreign)}" if facts.foreign else ""
        column.check(
            f"{failing:,} of {facts.value_count:,} values are not of type"
            f" {column.stype} and become NULL{others}"
        )
    elif facts.foreign and not facts.unread_times and column.stype in ("text", "categorical"):
        count = facts.value_count - sum(facts.foreign.values())
        column.check(
            f"{count:,} of {facts.value_count:,} values are numbers or times, the others are "
            f"{_counted(facts.foreign)}; if these mean NULL, set null_values and stype"
        )
    _check_times(column, facts)
    is_text = column.stype in ("text", "categorical")
    is_label = bool(facts.padded_count or LABEL_WORDS & set(words_of(column.name)))
    is_marked = facts.marked_count and facts.mostly(facts.number_count + facts.marked_count)
    if is_text and not is_label and is_marked:
        column.check(
            f"looks like numbers, but {facts.marked_count:,} of {facts.value_count:,} have a"
            " currency, %, brackets or commas: to have numbers, write them as such (1001.5), by a"
            " view or another export"
        )
    words = [text for text in facts.nulls if text not in NEVER_VALUES]
    if words:
        column.check(f"taken for NULL: {_counted({text: facts.nulls[text] for text in words})}")
    doubtful = {
        text: count
        for text, count in facts.doubtful.items()
        if len(text) <= 2 or count >= max(DOUBTFUL_MIN, facts.value_count // 100)
    }
    if doubtful:
        kept = _counted(doubtful)
        column.check(f"kept as a value: {kept}; if it means NULL, add it to null_values")
    for text, count in facts.sentinels.items():
        column.check(
            f"{count:,} times are {text}; if that means never or not known, add it to null_values"
        )
