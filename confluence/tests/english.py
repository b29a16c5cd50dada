"""Counts phrases that make the English of this project hard to read.

It reads what users and readers of the code see: comments and strings of Python and C, comments of
scripts and builds, and Markdown. Code, inline code, values within f-strings and strings of one or
two words are left out. Tests have their own English.

    python confluence/tests/english.py                 counts and rates of all folders
    python confluence/tests/english.py docs README.md  each phrase there, and how to say it instead
    python confluence/tests/english.py --lower         rewrite the budget after a phrase has gone

The budget, english_budget.json, is the most that each folder may have of each phrase. It only
falls: --lower refuses to raise a number. After a conflict in that file take the smaller number of
each pair and run --lower. If text moved to another folder, move its numbers by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET = Path(__file__).with_name("english_budget.json")
TREES = (
    "docs", "tools", "examples", "headwater/include", "headwater/src", "headwater/python",
    "headwater/bench", "headwater/fuzz", "confluence/confluence", "confluence/src",
    "confluence/bench",
)  # fmt: skip
LEVELS = (".", "headwater", "confluence")  # folders of which only the files are read
NAMES = ("Makefile", "meson.build", "meson.options")
BREAK = "\0"  # stands for everything that is not prose; no phrase extends over it

Budget = dict[str, dict[str, int]]

# ---- the phrases ---------------------------------------------------------------------------------

_VERB = (
    r"(?:is|are|was|were|has|have|had|does|did|can|cannot|could|may|might|must|will|would|should"
    r"|comes?|came|follows?|happens?|happened|remains?|stands?|stood|lies|needs|takes|took|fails"
    r"|failed|belongs?|changes|changed|counts|differs?|fits|serves|bounds|costs|decides|depends"
    r"|waits|holds|goes|merely)"
)
_QUESTION = (  # an indirect question may follow these
    r"(?i:about|ask(?:s|ed)?|check(?:s|ed)?|choose(?:s|n)?|decides?|describes?|determines?|explains?"
    r"|guess(?:es)?|know(?:s|n)?|learns?|lists?|means?|measures?|names?|or|and|prints?|reports?"
    r"|says?|sees?|shows?|tells?)"
)
_COMPARISON = r"(?:longer|less|more|fewer|worse|better|earlier|later|larger|smaller|faster|slower)"
_SPEAKER = (  # of whom "says" is English: people and documents
    r"(?:\.md|\.h|\bdoc(?:s|string)|\bpage|\bREADME|\bmessage|\bsection|\bperson|\bpeople"
    r"|\b(?:any|no|some)body|\bhaving)"
)
_PLACE = (  # "where" with these is a place
    r"(?:stands?|lies?|goes|go|went|comes?|came|begins?|starts?|ends?|turns?|lands?|kept|put|to)"
)


@dataclass(frozen=True)
class Phrase:
    name: str
    pattern: re.Pattern[str]
    instead: str
    unless_before: re.Pattern[str] | None = None  # which ends where the phrase begins: it is fine


PHRASES = (
    Phrase(
        "what is",
        re.compile(
            rf"(?<![-\w])(?:what\s+{_VERB}\b|What\s+(?:{_VERB}\b|(?:an?|the|its|their|one|each|no)\s))"
            r"(?![^.:;\0]*\?)"
        ),
        'name the thing: "the rows that ...", "inputs"',
        re.compile(rf"\b{_QUESTION}\s+$"),
    ),
    Phrase(
        "where",
        re.compile(
            rf"(?<![-.\w])(?:where\b(?!\()|(?<!\w\s)Where\b(?=[^.:;?\0]*,))"
            rf"(?!\s+(?:[^\s,.;:]+\s+){{0,6}}?{_PLACE}\b)"
            rf"(?!\s+(?:[^\s,.;:]+\s+){{1,4}}?(?:is|are|was|were|be)"
            rf"(?:\s*[.,;:()?\0]|\s+(?:kept|used|needed)\b))"
        ),
        '"if" or "when"',
        re.compile(
            r"\b(?:rows|cells|columns|positions|folder|file|page|place|point|line|know|see|shows?|from"
            r"|to|and|or|is|says|than|of|exactly|decides|[Ss]tands|lies)\s+$"
        ),
    ),
    Phrase("beside", re.compile(r"\b[Bb]eside\b"), '"next to", "with", "alongside" or "also"'),
    Phrase(
        "Of X,",
        re.compile(r"(?:\A|(?<=\0)|(?<=[.!?]))\s*\bOf\b(?!\s+course)|(?<=;)\s+of\b"),
        'put the subject first: "The worst of six runs ..."',
    ),
    Phrase(
        "is no",
        re.compile(
            rf"\b(?:is|are|was|were|be|been|being)\s+no\s+(?!(?:{_COMPARISON}|help|reason|use)\b)(?=\w)"
        ),
        '"is not a"',
        re.compile(r"\b[Tt]here\s+$"),
    ),
    Phrase(
        "goes on",
        re.compile(r"\b(?:go|goes|going|went|gone)\s+on\b"),
        '"resumes" or "continues"',
    ),
    Phrase(
        "says",
        re.compile(r"\b(?:said|told|says|tells)\b(?!\s+apart)"),
        '"reports", "prints", "states"; no one speaks here',
        re.compile(rf"{_SPEAKER}\s+$"),
    ),
    Phrase("by --option", re.compile(r"\bby\s+--\w"), '"with --option"'),
)

# ---- prose ---------------------------------------------------------------------------------------

_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<prefix>(?<!\w)[A-Za-z]{1,2})?"
    r'(?P<string>"""(?:[^"\\]+|\\.|"(?!""))*"""|\'\'\'(?:[^\'\\]+|\\.|\'(?!\'\'))*\'\'\''
    r'|"(?:[^"\\\n]+|\\.)*"|\'(?:[^\'\\\n]+|\\.)*\')',
    re.DOTALL,
)
_C = re.compile(
    r"(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<prefix>(?!))?(?P<string>\"(?:[^\"\\\n]+|\\.)*\")"
    r"|'(?:[^'\\\n]|\\.)+'",
    re.DOTALL,
)
_JSON = re.compile(r'(?P<comment>(?!))?(?P<prefix>(?!))?(?P<string>"(?:[^"\\\n]+|\\.)*")')
_SQL = re.compile(r"(?P<comment>--[^\n]*)|(?P<prefix>(?!))?(?P<string>'[^']*')")
_HASH = re.compile(r"(?m:(?:^|(?<=\s)))(?P<comment>#[^\n]*)(?P<prefix>(?!))?(?P<string>(?!))?")
_FIELD = re.compile(r"\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}")
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")


def _filled(text: str, fill: str) -> str:
    """As long as the text, with its ends of lines."""
    return "\n".join(fill * len(line) for line in text.split("\n"))


def _comment(text: str, joined: bool) -> str:
    mark = re.match(r"/\*+<?|//+<?|#+|--", text)
    width = mark.end() if mark else 0
    body = text[width:]
    if text.startswith("/*"):
        body = re.sub(r"(?m)^[ \t]*\*", lambda star: " " * len(star[0]), body[:-2]) + "  "
    return (" " if joined else BREAK) * width + body


def _string(prefix: str, text: str, joined: bool) -> str:
    width = 3 if text[:3] in ('"""', "'''") else 1
    body = text[width:-width]
    if "f" in prefix:
        body = _FIELD.sub(
            lambda field: field[0] if field[0] in ("{{", "}}") else _filled(field[0], "X"), body
        )
    if "r" not in prefix:
        body = re.sub(r"\\[^\n]", lambda it: BREAK + " " if it[0] == "\\n" else "  ", body)
    edge = " " if joined else BREAK
    return edge * (len(prefix) + width) + body + " " * width


def _tokens(text: str, pattern: re.Pattern[str]) -> str:
    """Comments that follow one another read on, as do strings; all else is a break."""
    parts: list[str] = []
    strings: list[str] = []  # of one literal

    def finish() -> None:
        literal = "".join(strings)
        parts.append(literal if literal.count(" ") > 2 else _filled(literal, BREAK))
        strings.clear()

    at, last = 0, ""
    for found in pattern.finditer(text):
        kind = found.lastgroup or ""
        if kind not in ("comment", "string"):
            continue
        gap = text[at : found.start()]
        joined = kind == last and not gap.strip()
        if not joined:
            finish()
        group = parts if kind == "comment" else strings
        group.append(gap if joined else _filled(gap, BREAK))
        if kind == "comment":
            group.append(_comment(found[0], joined))
        else:
            prefix = (found["prefix"] or "").lower()
            is_text = "b" not in prefix
            literal = found["string"] if is_text else _filled(found["string"], BREAK)
            group.append(_string(prefix, literal, joined))
        at, last = found.end(), kind
    finish()
    return "".join([*parts, _filled(text[at:], BREAK)])


def _markdown(text: str) -> str:
    for block in (r"(?ms)^[ \t]*(```|~~~).*?^[ \t]*\1[^\n]*", r"(?s)<!--.*?-->"):
        text = re.sub(block, lambda it: _filled(it[0], BREAK), text)
    lines = text.split("\n")
    in_list = in_code = False
    after_blank = True
    for number, line in enumerate(lines):
        if not line.strip():
            after_blank = True
            continue
        if re.match(r" {0,3}([-*+]|\d+\.)\s", line):
            in_list = True
        elif not line.startswith(" "):
            in_list = False
        in_code = line.startswith("    ") and not in_list and (after_blank or in_code)
        if in_code:
            lines[number] = BREAK * len(line)
        after_blank = False
    text = BREAK + "\n".join(lines)
    text = re.sub(r"\]\([^)\s]*\)", lambda it: " " * len(it[0]), text)
    text = re.sub(r"(?m)^[ \t]*(?:#+|[-*+]|\d+\.)(?=\s)|\|", lambda it: BREAK * len(it[0]), text)
    return re.sub(r"\[|\*\*|[*_](?=\w)|(?<=\w)[*_]", lambda it: " " * len(it[0]), text)[1:]


def _named(code: re.Match[str]) -> str:
    """Inline code is a noun; of an option the dashes stay."""
    dashes = "--" if code[2].startswith("--") else ""
    rest = _filled(code[2][len(dashes) :], "X")
    return " " * len(code[1]) + dashes + rest + " " * len(code[1])


def prose(name: str, text: str) -> str:
    """As long as the text of a file of that name: its prose in its places, all else BREAK."""
    suffix = Path(name).suffix
    if suffix == ".md":
        masked = _markdown(text)
    else:
        pattern = {".py": _PYTHON, ".c": _C, ".h": _C, ".json": _JSON, ".sql": _SQL}
        masked = _tokens(text, pattern.get(suffix, _HASH))
    masked = re.sub(r"(`+)([^`\0]{1,300}?)\1", _named, masked)
    return re.sub(r"\n(?=[ \t]*\n)", BREAK, masked)


# ---- counting ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    path: str
    line: int
    phrase: str
    text: str  # the words around it

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.phrase}] {self.text}"


def faults_in(name: str, text: str) -> Iterator[Fault]:
    masked = prose(name, text)
    ends = [end.start() for end in re.finditer("\n", text)]
    for phrase in PHRASES:
        for found in phrase.pattern.finditer(masked):
            before = masked[max(0, found.start() - 30) : found.start()]
            if phrase.unless_before is not None and phrase.unless_before.search(before):
                continue
            start = found.start() + len(found[0]) - len(found[0].lstrip())
            around = text[max(0, start - 40) : start] + ">" + text[start : found.end() + 40]
            yield Fault(name, bisect_right(ends, start) + 1, phrase.name, " ".join(around.split()))


def _is_read(path: Path) -> bool:
    name, suffix = path.name, path.suffix
    if name == "c-api.md":  # the header again
        return False
    if suffix == ".json":  # which holds text for people
        return name.endswith(".schema.json")
    return name in NAMES or suffix in (".py", ".c", ".h", ".md", ".sh", ".sql", ".toml")


def files() -> list[Path]:
    found = [path for level in LEVELS for path in (ROOT / level).iterdir()]
    found += [path for tree in TREES for path in (ROOT / tree).rglob("*")]
    return sorted(path for path in found if _is_read(path) and path.is_file())


def faults(paths: Iterable[Path]) -> list[Fault]:
    return [
        fault
        for path in paths
        for fault in faults_in(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]


def folder_of(path: str) -> str:
    return str(Path(path).parent)


def counted(found: Iterable[Fault]) -> Budget:
    """By folder and phrase; without zeros."""
    counts: dict[str, Counter[str]] = {}
    for fault in found:
        counts.setdefault(folder_of(fault.path), Counter())[fault.phrase] += 1
    order = [phrase.name for phrase in PHRASES]
    return {
        folder: {name: counts[folder][name] for name in order if counts[folder][name]}
        for folder in sorted(counts)
    }


# ---- the budget ----------------------------------------------------------------------------------


def read_budget() -> Budget:
    budget: Budget = json.loads(BUDGET.read_text(encoding="utf-8"))
    return budget


def differences(budget: Budget, counts: Budget) -> list[tuple[str, str, int, int]]:
    """(folder, phrase, most, count) of those that are not equal."""
    return [
        (folder, phrase.name, most, count)
        for folder in sorted({*budget, *counts})
        for phrase in PHRASES
        if (most := budget.get(folder, {}).get(phrase.name, 0))
        != (count := counts.get(folder, {}).get(phrase.name, 0))
    ]


def complaint(budget: Budget, found: list[Fault]) -> str:
    """Of folders with more than the budget allows, every such phrase; empty: none has more."""
    lines = []
    for folder, name, most, count in differences(budget, counted(found)):
        if count > most:
            instead = next(phrase.instead for phrase in PHRASES if phrase.name == name)
            lines.append(f"{folder}: {count} of [{name}], at most {most}. Instead: {instead}")
            lines += [
                f"  {it}" for it in found if (folder_of(it.path), it.phrase) == (folder, name)
            ]
    return "\n".join(lines)


def as_text(budget: Budget) -> str:
    """JSON with a line for each folder."""
    rows = (f"  {json.dumps(folder)}: {json.dumps(row)}" for folder, row in budget.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def rates(paths: list[Path]) -> str:
    words: Counter[str] = Counter()
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        words[folder_of(name)] += len(_WORD.findall(prose(name, path.read_text(encoding="utf-8"))))
    counts = counted(faults(paths))
    lines = []
    for folder in sorted(words):
        row = counts.get(folder, {})
        rate = 1000 * sum(row.values()) / max(1, words[folder])
        each = ", ".join(f"{name} {count}" for name, count in row.items())
        lines.append(f"{folder:44}{words[folder]:7,} words{rate:6.1f} per 1,000  {each}")
    total = sum(sum(row.values()) for row in counts.values())
    lines.append(
        f"{total:,} in {words.total():,} words: {1000 * total / words.total():.1f} per 1,000"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts phrases that make English hard to read.")
    parser.add_argument("paths", nargs="*", help="list the phrases of these files and folders")
    parser.add_argument("--lower", action="store_true", help="lower the budget to today's counts")
    options = parser.parse_args()
    if options.lower:
        found = faults(files())
        if problem := complaint(read_budget(), found):
            sys.stderr.write(f"{problem}\nthe budget only falls: write these in plain English\n")
            return 1
        BUDGET.write_text(as_text(counted(found)), encoding="utf-8")
    elif options.paths:
        wanted = [Path(path).resolve() for path in options.paths]
        found = faults(
            path for path in files() if any(path.is_relative_to(parent) for parent in wanted)
        )
        instead = {phrase.name: phrase.instead for phrase in PHRASES}
        sys.stdout.writelines(f"{it}\n    {instead[it.phrase]}\n" for it in found)
    else:
        sys.stdout.write(rates(files()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
