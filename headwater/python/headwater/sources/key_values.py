"""When two values of keys are one key: the rule that inference and build share.

Keys are compared as canonical texts (`value_sql.py`), so 42, 42.0 and '42' are one key. Two columns
also hold several spellings equal (`Alike`) if either of them does: by its source, which declares a
collation or char(n), or by its type and all of its values, as whole numbers on the other side of
'007', 16 bytes on the other side of a UUID, or texts padded to one width. If that makes one key of
two that the parent has, only the declared ones count; if those do too, none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.sources.database import Connection, count_rows, one_row
from headwater.sources.source import Alike, SourceColumn
from headwater.sources.value_sql import (
    FLOAT_INTEGER_TEXT,
    INTEGER_TEXT,
    INTEGER_TYPES,
    canonical_text,
    is_number_type,
)

UUID_KEY = "'[{]?[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}[}]?'"
HEX_KEY = r"'(0[xX]|\\x)?([0-9a-fA-F]{2})+'"
LOWER = "strlen(v) = {} AND v = lower(v)"
MATCHES = "regexp_full_match(v, {})"
# Kinds of texts: a pattern, SQL of whether a text `v` is of the kind (less than the pattern for
# UUIDs, which are long), the form of such texts, and the spellings that are equal to them.
FORMS = (
    (INTEGER_TEXT, MATCHES.format(INTEGER_TEXT), "integers", Alike.NUMBERS),
    (FLOAT_INTEGER_TEXT, MATCHES.format(FLOAT_INTEGER_TEXT), "", Alike.NUMBERS),
    ("'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'", LOWER.format(36), "hyphens", Alike.BYTES),
    ("'[0-9a-f]{32}'", LOWER.format(32), "digits", Alike.BYTES),
    (UUID_KEY, MATCHES.format(UUID_KEY), "", Alike.BYTES),
)
# '007', ' 7', '+7', '7.' and '7.00' are 7, '0.50' is 0.5; other texts stay.
NUMBER_KEY = r"'^\s*[+]?(-?)0*([0-9]+)([.][0-9]*[1-9])?[.]?0*\s*$', '\1\2\3'"
SPELLED = {  # SQL of a text @ as the others that it equals, in the order in which they apply
    Alike.BYTES: (
        f"CASE WHEN regexp_full_match(@, {UUID_KEY}) "
        "THEN lower(regexp_replace(@, '[-{}]', '', 'g')) "
        f"WHEN regexp_full_match(@, {HEX_KEY}) "
        r"THEN lower(regexp_replace(@, '^(0[xX]|\\x)', '')) ELSE @ END"
    ),
    Alike.BLANKS: "rtrim(@, ' ')",
    Alike.AROUND: "trim(@)",
    Alike.NUMBERS: f"regexp_replace(@, {NUMBER_KEY})",
    Alike.FORMS: "nfc_normalize(@)",
    Alike.ACCENTS: "strip_accents(@)",
    Alike.CASE: "lower(@)",
    Alike.ASCII_CASE: "translate(@, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')",
}
WORDS = {  # for the ways that are told apart, if they are
    Alike.BYTES: "the spelling of bytes",
    Alike.BLANKS: "blanks at the end",
    Alike.AROUND: "blanks around a value",
    Alike.NUMBERS: "leading zeros and the spelling of numbers",
    Alike.FORMS: "forms of Unicode",
    Alike.ACCENTS: "accents",
    Alike.CASE: "case",
    Alike.ASCII_CASE: "case",
}
NEARLY = (Alike.AROUND, Alike.NUMBERS, Alike.CASE)  # spellings that may be meant to be equal
BY_TYPE = frozenset({Alike.BYTES, Alike.NUMBERS})
NOTHING: frozenset[Alike] = frozenset()


@dataclass(frozen=True)
class KeyPart:
    """A column of a key in some relation."""

    relation: str
    value: Callable[[str], str]  # SQL of its value, by an alias of the relation such as "c."
    type: str  # DuckDB's name of the value's type
    alike: frozenset[Alike]  # spellings that it holds equal
    form: str = ""  # the one way in which all values are written, if that is a usual one
    declared: frozenset[Alike] = NOTHING  # those of them that its source declares

    def text(self, alias: str, alike: Iterable[Alike]) -> str:
        """SQL: a value as keys are compared that hold these equal."""
        return key_text(self.value(alias), self.type, alike)


@dataclass(frozen=True)
class Equality:
    """The spellings that the parts of a foreign key hold equal, and those left out, as `merged`
    keys of the parent would then be one with another."""

    alike: tuple[frozenset[Alike], ...]
    left_out: tuple[frozenset[Alike], ...] = ()
    merged: int = 0


def key_text(value: str, type_name: str, alike: Iterable[Alike]) -> str:
    """SQL: a value as a text that is the same for all that are held equal."""
    text = canonical_text(value, type_name)
    if is_text_type(type_name):
        for way, sql in SPELLED.items():
            text = sql.replace("@", f"({text})") if way in alike else text
    return text


def is_text_type(type_name: str) -> bool:
    """Whether keys of this type are texts that can be written in several ways."""
    return type_name in ("VARCHAR", "UUID", "BLOB") or type_name.startswith("ENUM")


def alike_by_type(column: SourceColumn) -> frozenset[Alike]:
    """The spellings that a column holds equal by its source and by its type."""
    if is_number_type(column.type):
        return column.alike | {Alike.NUMBERS}
    return column.alike | ({Alike.BYTES} if column.type == "BLOB" else NOTHING)


def key_part(
    connection: Connection,
    relation: str,
    value: Callable[[str], str],
    type_name: str,
    stated: frozenset[Alike],
) -> KeyPart:
    """A column as a part of a key; its values are looked at.

    stated: the spellings that it holds equal by its source and by the type that it had there."""
    if is_number_type(type_name):
        form = "integers" if type_name in INTEGER_TYPES else ""
        return KeyPart(relation, value, type_name, stated | {Alike.NUMBERS}, form, stated - BY_TYPE)
    found, form = stated, "hyphens" if type_name == "UUID" else ""
    if type_name == "VARCHAR" or type_name.startswith("ENUM"):
        shown, form = _by_values(connection, relation, value(""))
        found |= shown
    if Alike.BYTES in stated:
        form = "digits"
    return KeyPart(relation, value, type_name, found, form, stated - BY_TYPE)


def _by_values(connection: Connection, relation: str, value: str) -> tuple[frozenset[Alike], str]:
    """The spellings that a column of texts holds equal by all of its values, and their form. One
    value is matched first: the others are of its kind, or of none."""
    values = f"(SELECT CAST({value} AS VARCHAR) AS v FROM {relation})"
    some, is_padded = one_row(
        connection,
        "SELECT any_value(v), min(length(v)) = max(length(v)) AND bool_or(suffix(v, ' ')) "
        f"FROM {values}",
    )
    found = {Alike.BLANKS} if is_padded else set()
    for pattern, condition, form, way in FORMS:
        if some is None or not re.fullmatch(pattern[1:-1], some):
            continue
        if one_row(connection, f"SELECT bool_and({condition}) FROM {values}")[0]:
            return frozenset({*found, way}), form
    return frozenset(found), ""


def settle_equality(
    connection: Connection, child: Sequence[KeyPart], parent: Sequence[KeyPart]
) -> Equality:
    """The spellings that a foreign key from the parts of `child` to those of `parent`, of one
    relation each, holds equal."""
    pairs = list(zip(child, parent, strict=True))
    wanted = tuple(
        (own.alike | other.alike) - (BY_TYPE if own.form and own.form == other.form else NOTHING)
        for own, other in pairs
    )
    declared = tuple(own.declared | other.declared for own, other in pairs)
    nothing = (NOTHING,) * len(pairs)
    merged = 0
    for alike in dict.fromkeys((wanted, declared, nothing)):
        count = count_merged(connection, parent, alike)
        if count == 0:
            left_out = tuple(more - less for more, less in zip(wanted, alike, strict=True))
            return Equality(alike, left_out if merged else (), merged)
        merged = merged or count
    return Equality(nothing)


def left_out_note(
    connection: Connection,
    name: str,
    child: Sequence[KeyPart],
    table: str,
    parent: Sequence[KeyPart],
    equality: Equality,
) -> str:
    """A note on values of the foreign key `name` that name a row of `table` only by spellings that
    are left out; "" if there are none."""
    if not equality.merged:
        return ""
    wanted = [a | b for a, b in zip(equality.alike, equality.left_out, strict=True)]
    more, fewer = (
        count_found(connection, child, parent, ways) for ways in (wanted, equality.alike)
    )
    if more <= fewer:
        return ""
    kinds = {way for ways in equality.left_out for way in ways}
    listed = " and ".join(text for way, text in WORDS.items() if way in kinds)
    return (
        f"{more - fewer:,} values of {name} would name a row of {table} if {listed} did not count, "
        f"but {equality.merged:,} keys of {table} are then those of other rows too: keys stay as "
        "they are written"
    )


def count_found(
    connection: Connection,
    child: Sequence[KeyPart],
    parent: Sequence[KeyPart],
    alike: Sequence[frozenset[Alike]],
) -> int:
    """How many distinct values the parent has, as the child writes them."""
    plain = ", ".join(part.text("", NOTHING) for part in child)
    ours = ", ".join(part.text("", ways) for part, ways in zip(child, alike, strict=True))
    theirs = ", ".join(part.text("", ways) for part, ways in zip(parent, alike, strict=True))
    return count_rows(
        connection,
        f"SELECT count(DISTINCT ({plain})) FROM {child[0].relation} "
        f"WHERE ({ours}) IN (SELECT ({theirs}) FROM {parent[0].relation})",
    )


def count_merged(
    connection: Connection, parts: Sequence[KeyPart], alike: Sequence[frozenset[Alike]]
) -> int:
    """How many keys would be one with another that is written otherwise."""
    plain = [part.text("", NOTHING) for part in parts]
    spelled = [part.text("", ways) for part, ways in zip(parts, alike, strict=True)]
    if plain == spelled:
        return 0
    present = " AND ".join(f"{text} IS NOT NULL" for text in plain)
    return count_rows(
        connection,
        f"SELECT count(DISTINCT ({', '.join(plain)})) - count(DISTINCT ({', '.join(spelled)})) "
        f"FROM {parts[0].relation} WHERE {present}",
    )
