"""A dry run: what a build would have to embed, and what that would cost.

Texts are the distinct values of the text columns, columns and categories the phrases that stand for
them. Each is looked for in the cache; for the rest the embedder says how many requests it would
send. Tokens are estimated as a quarter of the characters, which fits English prose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.builder.encode import Layout
from headwater.builder.task_seeds import value_order
from headwater.embedding.text_vectors import WINDOW_TEXTS, Embedding, category_phrase
from headwater.embedding.vector_cache import VectorCache
from headwater.files import Inputs, check_no_input, check_output, is_stream, whole
from headwater.metadata.parts import SPLITS
from headwater.sources.database import Connection
from headwater.sources.source import literal, quote
from headwater.store.dropped_seeds import empty_lines

CHARACTERS_PER_TOKEN = 4


@dataclass
class Rehearsal:
    """What a build would embed; `str()` is the summary for people."""

    embedder: str
    texts: int = 0  # distinct texts of cells
    phrases: int = 0  # of columns and categories
    characters: int = 0  # of both
    cached: int = 0  # of both, found in the cache
    to_embed: int = 0
    characters_to_embed: int = 0
    requests: int = 0
    tokens: int = 0  # estimated
    notes: list[str] = field(default_factory=list)  # of tasks that have no seeds, or hardly any
    texts_file: str | None = None  # of --texts

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.texts:,} distinct texts, {self.phrases:,} columns and categories: "
            f"{self.characters:,} characters",
            f"embedder {self.embedder}: {self.cached:,} are in the cache, {self.to_embed:,} to "
            f"embed ({self.characters_to_embed:,} characters)",
        ]
        if self.requests:
            lines.append(f"about {self.requests:,} requests and {self.tokens:,} tokens")
        lines += [f"to check ({len(self.notes)}):"] if self.notes else []
        lines += [f"  {note}" for note in self.notes]
        written = f"the texts are in '{self.texts_file}'"
        lines.append("nothing was written" if self.texts_file is None else written)
        return "\n".join(lines)


def rehearse(
    connection: Connection,
    layout: Layout,
    embedding: Embedding,
    tell: Callable[[str, str], None],
    file: Path | None = None,
) -> Rehearsal:
    """Count what the tables of a build would have embedded; write the texts to `file`."""
    tell("texts", "phrases")
    phrases = list(
        dict.fromkeys([*layout.column_phrases(), *_category_phrases(connection, layout)])
    )
    found = Rehearsal(embedding.name, phrases=len(phrases), notes=_notes(layout))
    with embedding.open_cache(read_only=True) or nullcontext() as cache:
        _count(found, embedding, cache, phrases)
        for texts in _distinct_texts(connection, layout):
            found.texts += len(texts)
            tell("texts", f"{found.texts:,}")
            _count(found, embedding, cache, texts)
    found.tokens = -(-found.characters_to_embed // CHARACTERS_PER_TOKEN)
    if file is not None:
        _write_texts(connection, layout, phrases, file)
        found.texts_file = str(file)
    return found


def check_texts(file: Path, inputs: Inputs) -> None:
    """Raise unless the texts may be written to a file: it is new, or a stream."""
    if is_stream(file):
        check_no_input(file, "--texts", inputs)
    else:
        check_output(file, "--texts", inputs)


def _notes(layout: Layout) -> list[str]:
    """Lines on tasks that a person should check first."""
    times = {table.table.name: table.table.temporal_column for table in layout.tables}
    lines = []
    for seeds in layout.tasks:
        name, anchor = seeds.task.name, seeds.task.anchor_table
        counts = dict(zip(SPLITS, seeds.split_counts, strict=True))
        entry = {"name": name, "anchor_table": anchor, "seeds": counts, **seeds.entry()}
        lines += empty_lines(entry, times[anchor])
    return lines


def _count(
    found: Rehearsal, embedding: Embedding, cache: VectorCache | None, texts: list[str]
) -> None:
    cached = set() if cache is None else set(cache.find(texts, None))
    missing = [text for place, text in enumerate(texts) if place not in cached]
    found.characters += sum(len(text) for text in texts)
    found.cached += len(cached)
    found.to_embed += len(missing)
    found.characters_to_embed += sum(len(text) for text in missing)
    if embedding.embedder is not None:
        found.requests += embedding.embedder.request_count(missing)


def _category_phrases(connection: Connection, layout: Layout) -> Iterator[str]:
    for _, name, query in layout.categorical():
        yield from (category_phrase(name, value) for value in value_order(connection, query))
    for seeds in layout.tasks:
        for value in seeds.categories if seeds.kind != "cell" else ():
            yield category_phrase(seeds.task.target_column, value)


def _texts_query(layout: Layout) -> str:
    """SQL: every distinct text of a cell, as `text`."""
    columns = [
        f"SELECT c{slot} AS text FROM {table.relation}"
        for table in layout.tables
        for slot, column in enumerate(table.table.columns)
        if column.stype == "text"
    ]
    every = " UNION ALL ".join(columns) or "SELECT NULL::VARCHAR AS text"
    return f"SELECT DISTINCT text FROM ({every}) WHERE text IS NOT NULL"


def _distinct_texts(connection: Connection, layout: Layout) -> Iterator[list[str]]:
    cursor = connection.cursor()
    try:
        rows = cursor.execute(_texts_query(layout))
        while chunk := rows.fetchmany(WINDOW_TEXTS):
            yield [row[0] for row in chunk]
    finally:
        cursor.close()


def _write_texts(connection: Connection, layout: Layout, phrases: list[str], file: Path) -> None:
    """Write every text that needs a vector, sorted, for an embedder elsewhere."""
    name = quote("rehearsal phrases")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} (text VARCHAR)")
    connection.executemany(f"INSERT INTO {name} VALUES (?)", [[phrase] for phrase in phrases])
    with nullcontext(file) if is_stream(file) else whole(file) as written:
        connection.execute(
            f"COPY (SELECT DISTINCT text FROM (SELECT text FROM {name} UNION ALL "
            f"{_texts_query(layout)}) ORDER BY text) TO {literal(str(written))} (FORMAT parquet)"
        )
