"""What names say: OwnerUserId and owner_user_id are the words owner, user, id."""

from __future__ import annotations

import re
from unicodedata import combining, normalize

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
NUMBERED_WORD = re.compile(rf"(?:{WORD.pattern})\d*|\d+")
ID_WORDS = {"id", "key", "uuid", "guid", "uid", "pk", "fk"}
# Also of a key, but of other things too.
CODE_KEY_WORDS = {"code", "no", "nr", "num", "number", "ref", "iso", "sku"}
# The words of columns that hold times.
TIME_WORDS = {
    "at", "time", "timestamp", "ts", "date", "datetime", "epoch", "created", "updated", "modified",
    "utc", "unix",
}  # fmt: skip
DATE_WORDS = {"date", "datetime", "timestamp"}  # the last word of one that holds nothing else
# Of columns that name another row of their own table.
SELF_WORDS = {
    "parent", "manager", "mentor", "supervisor", "boss", "reports", "root", "reply", "original",
    "previous", "prev", "next", "master", "accepted", "duplicate", "merged", "referrer",
    "recommended", "invited", "replaced", "successor", "predecessor", "leader", "superior",
}  # fmt: skip


def words_of(name: str, *, numbered: bool = False) -> list[str]:
    """The words of a name in lower case and without accents (año: ano), with their numbers if asked
    for: part1 or part."""
    if not name.isascii():
        name = "".join(c for c in normalize("NFKD", name) if not combining(c))
    pattern = NUMBERED_WORD if numbered else WORD
    return [word.lower() for word in pattern.findall(name)]


def singular(word: str) -> str:
    """The singular of an English plural; other words as they are."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ses", "xes", "ches", "shes")) and len(word) > 4:
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def is_plural(word: str) -> bool:
    """Whether an English word speaks of several things."""
    return singular(word) != word and not word.endswith(("us", "is", "series", "species"))


def table_words(name: str, *, numbered: bool = False) -> list[str]:
    return [singular(word) for word in words_of(name, numbered=numbered)]


def is_numbered(table: str) -> bool:
    """Whether numbers tell this table from others, as of part0 and part1: then the names of its
    keys have them too. Elsewhere a number counts columns, as in home_player_1."""
    return any(letter.isdigit() for letter in table)


def is_id_name(name: str) -> bool:
    words = words_of(name)
    return bool(words) and words[-1] in ID_WORDS


def is_code_name(name: str) -> bool:
    words = words_of(name)
    return bool(words) and words[-1] in CODE_KEY_WORDS


def own_key_score(table: str, column: str, position: int) -> int:
    """How clearly a column is the key of its table by its name: 3 surely, 0 not at all."""
    numbered = is_numbered(table)
    words, own = words_of(column, numbered=numbered), table_words(table, numbered=numbered)
    if not words:
        return 0
    if words[-1] in ID_WORDS and (words[:-1] == own or words[:-1] == own[-1:] or len(words) == 1):
        return 3
    if words[-1] in ID_WORDS | CODE_KEY_WORDS:
        return 2 if position == 0 else 1
    return 1 if position == 0 else 0


def reference_score(child: str, column: str, parent: str, key: str) -> int:
    """How clearly a column refers to a key by its name: 3 surely, 2 likely, 0 not at all."""
    numbered = is_numbered(parent)
    words, key_words = words_of(column, numbered=numbered), words_of(key, numbered=numbered)
    own = table_words(parent, numbered=numbered)
    if not words or not own:
        return 0
    generic = len(key_words) == 1
    stem = [singular(word) for word in words]
    tails = [[*own, *key_words], [*own, "id"], [*own[-1:], *key_words], [*own[-1:], "id"]]
    if child != parent:
        if (words == key_words and not generic) or words in tails or stem == own:
            return 3
        if any(len(words) > len(tail) and words[-len(tail) :] == tail for tail in tails):
            return 2
        if not generic and len(words) > len(key_words) and words[-len(key_words) :] == key_words:
            return 2
        return 0
    tail_matches = any(len(words) > len(tail) and words[-len(tail) :] == tail for tail in tails)
    return 2 if SELF_WORDS & set(words) or tail_matches else 0
