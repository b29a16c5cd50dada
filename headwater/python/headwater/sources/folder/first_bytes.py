"""The kind of a file by its first bytes, whatever its name.

A clone without its large files, a failed download or a renamed export leaves a file of another kind
than its name promises. DuckDB would read its text as a table. `check_first_bytes` refuses such a
file, with its kind and the way out.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import SourceError
from headwater.files import regular

HEAD_BYTES = 4096
AGAIN = "it is what a failed download leaves: download the file again"
AGAIN_OR_ROWS = f"{AGAIN}, or write its rows as CSV"
LOAD = "load it into a database (SQLite, DuckDB, PostgreSQL) and read that"
SQLITE = "an SQLite database"
COMMENTS = rb"(\s|--[^\n]*(\n|$)|(?>/\*.*?\*/);?)*"
OBJECTS = rb"(table|database|schema|view|sequence|type|extension|index|function)"
STATEMENTS = (
    rb"(create|drop|alter) (temporary |unique |or replace )*" + OBJECTS + rb"\s",
    rb"insert (ignore )?into\s", rb"pragma \w+\s*=", rb"lock tables\s",
    rb"copy \S+ ?\([^\n]*from stdin", rb"set [\w.@]+ ?(=|to ) ?[^;\n]*;\s*\n",
    rb"(begin( transaction)?|start transaction|use \S+|set names \S+)\s*(;\s*\n|\sgo\b)",
)  # fmt: skip


@dataclass(frozen=True)
class _Form:
    what: str
    way_out: str
    pattern: re.Pattern[bytes]
    ends: tuple[str, ...] = ()  # of names of files that are rightly so


def _form(what: str, way_out: str, pattern: bytes, *ends: str) -> _Form:
    return _Form(what, way_out, re.compile(pattern, re.DOTALL | re.IGNORECASE), ends)


# The first that fits is taken. A header such as <DATE>,<OPEN> is not HTML, and `set,name` is not
# SQL.
FORMS = (
    _form(
        "a Git LFS pointer",
        "run 'git lfs pull' in its repository",
        rb"version https?://[^\n]*(git-lfs|git-media|hawser)",
    ),
    _form("a pointer of git-annex", "run 'git annex get' in its repository", rb"/annex/objects/"),
    _form(
        "an HTML page",
        AGAIN,
        rb"\s*((?><!--.*?-->)\s*)*"
        rb"<(!doctype html|html|head|body|script|title|meta|h[1-6]|pre|center)[\s>]",
    ),
    _form(
        "XML",
        AGAIN_OR_ROWS,
        rb"\s*(<(\?xml|!--|!doctype)|<(?P<tag>[a-z][\w:.-]*)(\s[^<>\n]*)?>"
        rb"(<|[^<\n]*</(?P=tag)>(?!\s*[,;\t|])|[ \r]*\n\s*<[^>\n]*>[^,;\t|]))",
    ),
    _form(
        "JSON",
        "write its rows as CSV or Parquet",
        rb'\s*(\{\s*"[^"\n]*"\s*:|\[\s*[{\[])[^\t\n]*(\n|$)',
    ),
    _form("an SQL dump", LOAD, COMMENTS + rb"(" + rb"|".join(STATEMENTS) + rb")"),
    _form("an SQL dump", LOAD, rb"PGDMP|\s*--[^\n]*\n?[^\n]*\bdump\b|/\*M?!"),
    _form(
        SQLITE,
        "write sqlite:///file.db for it",
        rb"SQLite format 3\0",
    ),
    _form("a Parquet file", "name it .parquet", rb"PAR1", ".parquet"),
    _form("compressed by gzip", "unpack it, or name it .gz", rb"\x1f\x8b", ".gz"),
    _form("compressed by Zstandard", "unpack it, or name it .zst", rb"\x28\xb5\x2f\xfd", ".zst"),
    _form("compressed by bzip2", "unpack it", rb"BZh[1-9]1AY&SY"),
    _form("compressed by xz", "unpack it", rb"\xfd7zXZ\0"),
    _form("a ZIP archive or an Excel file", "unpack it, or save it as CSV", rb"PK\x03\x04"),
    _form("an old Excel file", "save it as CSV", rb"\xd0\xcf\x11\xe0"),
    _form("a PDF", "save its table as CSV", rb"%PDF-"),
)


def check_first_bytes(path: Path, may_be: str = "", unpacked: bytes = b"") -> Path:
    """The path; SourceError if the file is of another kind than its name promises.

    may_be: a kind that any name may have; unpacked: the first bytes of what a .zst file holds."""
    if not path.is_file():
        return path  # whoever opens it raises the error
    with open(path, "rb", opener=regular) as file:
        heads = [file.read(HEAD_BYTES), unpacked]
    if heads[0].startswith(b"\x1f\x8b") and path.suffix.lower() == ".gz":
        try:
            with gzip.open(path, "rb") as file:
                heads.append(file.read(HEAD_BYTES))
        except (EOFError, OSError):
            pass  # whoever reads it names the fault
    for head in map(_plain, heads):
        for form in FORMS:
            is_right = form.what == may_be or path.name.lower().endswith(form.ends)
            if not is_right and form.pattern.match(head):
                raise SourceError(
                    f"'{path}' is {form.what}, by its first bytes, and not a table: {form.way_out}"
                )
    return path


def _plain(head: bytes) -> bytes:
    """Text in ASCII's bytes, without a byte order mark."""
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if head.startswith(mark):
            return head[2:].decode(encoding, "replace").encode()
    return head.removeprefix(b"\xef\xbb\xbf")
