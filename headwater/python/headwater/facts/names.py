"""What names say: OwnerUserId and owner_user_id are the words owner, user, id."""

from __future__ import annotations

import re
from unicodedata import combining, normalize

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
NUMBERED_WORD = re.compile(rf"(?:{WORD.pattern})\d*|\d+")
ID_WORDS = {"id", "key", "uuid", "guid", "uid", "pk", "fk"}
# Also of a key, but of other things too.
CODE_KEY_WORDS = {"code", "no", "nr", "num", "number", "ref", "iso", "sku"}
# A key that has no other words may be the key of any table: row_id, record_no.
ROW_WORDS = {*ID_WORDS, *CODE_KEY_WORDS, "idx", "index", "row", "record", "seq", "sequence"}
# One of these alone is a property of many things.
GENERIC_WORDS = {
    *ROW_WORDS, "line", "rank", "order", "position", "name", "title", "label", "type", "kind",
    "status", "state", "value", "text", "description", "year", "quarter", "month", "week", "day",
    "hour", "date", "time", "timestamp",
}  # fmt: skip
# Plurals that are not an s, and words that are their own plural.
SINGULARS = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse",
    "geese": "goose", "feet": "foot", "teeth": "tooth", "oxen": "ox", "lives": "life",
    "knives": "knife", "wives": "wife", "leaves": "leaf", "shelves": "shelf", "halves": "half",
    "wolves": "wolf", "indices": "index", "matrices": "matrix", "vertices": "vertex",
    "appendices": "appendix", "media": "medium", "criteria": "criterion", "bacteria": "bacterium",
    "phenomena": "phenomenon", "curricula": "curriculum", "strata": "stratum", "alumni": "alumnus",
    "fungi": "fungus", "nuclei": "nucleus", "stimuli": "stimulus", "larvae": "larva",
    "formulae": "formula", "species": "species", "series": "series",
}  # fmt: skip
# The ends of other languages' plurals, without accents, and of their singulars.
ENDINGS = {
    "ungen": "ung", "ingen": "ing", "dades": "dad", "ciones": "cion", "siones": "sion",
    "dores": "dor", "coes": "cao", "eaux": "eau",
}  # fmt: skip
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


def stem(word: str) -> str:
    """One form for the singular and the plural of a word, which need not be a word: case and cases
    are cas, movie and movies movy, analysis and analyses analys."""
    if word in SINGULARS:
        return stem(SINGULARS[word]) if SINGULARS[word] != word else word
    for plural, ending in ENDINGS.items():
        if word.endswith(plural):
            return word.removesuffix(plural) + ending
    if word.endswith("sis"):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ie") and len(word) > 3:
        return word[:-2] + "y"
    return word[:-1] if word.endswith(("se", "xe", "ze", "che", "she")) else word


def stems_of(name: str, *, numbered: bool = False) -> list[str]:
    return [stem(word) for word in words_of(name, numbered=numbered)]


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
    words, own = stems_of(column, numbered=numbered), stems_of(table, numbered=numbered)
    if not words:
        return 0
    if words[-1] in ID_WORDS and (words[:-1] == own or words[:-1] == own[-1:] or len(words) == 1):
        return 3
    if words[-1] in ID_WORDS | CODE_KEY_WORDS:
        return 2 if position == 0 else 1
    return 1 if position == 0 else 0


def is_own_name(table: str, column: str) -> bool:
    """Whether a column is called as its table, with or without a word for a key: film_id or film of
    pixar_films."""
    words, own = stems_of(column), stems_of(table)
    words = words[:-1] if words[-1:] and words[-1] in ID_WORDS | CODE_KEY_WORDS else words
    return bool(words) and words in (own, own[-1:])


def names_table(column: str, parent: str) -> int:
    """How a column names a table by all of its words: 2 alone, as stat_id or stat of stats, 1 after
    others, as increased_stat_id, 0 not at all."""
    numbered = is_numbered(parent)
    words, own = stems_of(column, numbered=numbered), stems_of(parent, numbered=numbered)
    if words and words[-1] in ID_WORDS:
        words = words[:-1]
    if not own or words[-len(own) :] != own:
        return 0
    return 2 if len(words) == len(own) else 1


def reference_score(child: str, column: str, parent: str, key: str) -> int:
    """How clearly a column refers to a key by its name: 3 surely, 2 likely, 1 by a word of its own
    that the key is called by too, 0 not at all."""
    numbered = is_numbered(parent)
    words, key_words = stems_of(column, numbered=numbered), stems_of(key, numbered=numbered)
    own = stems_of(parent, numbered=numbered)
    if not words or not own:
        return 0
    is_one = len(key_words) == 1
    is_generic = set(key_words) <= (GENERIC_WORDS if is_one else ROW_WORDS)
    tails = [[*own, *key_words], [*own, "id"], [*own[-1:], *key_words], [*own[-1:], "id"]]
    tail_matches = any(len(words) > len(tail) and words[-len(tail) :] == tail for tail in tails)
    if child == parent:
        return 2 if SELF_WORDS & set(words_of(column)) or tail_matches else 0
    is_equal = words == key_words and not is_generic
    if (is_equal and not is_one) or words in tails or words == own:
        return 3
    if tail_matches or (is_equal and words == own[-1:]):
        return 2
    if not is_one and len(words) > len(key_words) and words[-len(key_words) :] == key_words:
        return 2
    return 1 if is_equal else 0
