"""Texts to vectors: what is embedded for columns and categories, and where each vector is found.

`hash` works in C, on the same phrases. With any other embedder (embedders.py) a vector comes from
the cache, or from the embedder, which is asked for each text once; what was asked for is in the
cache before anything else is. Vectors are scaled to unit length and stored as float16; NaN,
infinity and what float16 cannot hold are errors that name the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.binding import EMBEDDING_KINDS, Builder
from headwater.embedding.embedders import Embedder, EmbedderOptions, Precomputed
from headwater.embedding.vector_cache import VectorCache
from headwater.errors import EmbedderError

HASH_DIM = 256
WINDOW_TEXTS = 8192  # resolved at a time
SHOWN_TEXT = 60

Half = NDArray[np.float16]


@dataclass(frozen=True)
class Embedding:
    """Who embeds, and where vectors may be found before."""

    embedder: Embedder | None  # None: hash
    options: EmbedderOptions = field(default_factory=EmbedderOptions)
    text_dim: int | None = None  # None: the embedder's own width
    cache: Path | None = None  # a folder

    @property
    def name(self) -> str:
        return "hash" if self.embedder is None else self.embedder.name

    def identity(self) -> str | None:
        """What a stored vector depends on beside its text."""
        if self.embedder is None or self.embedder.identity is None:
            return None
        cut = self.text_dim if self.options.matryoshka else None
        return f"{self.embedder.identity}|{self.text_dim}|{cut}|unit float16"

    def open_cache(self, *, read_only: bool = False) -> VectorCache | None:
        identity = self.identity()
        if self.cache is None or identity is None:
            return None
        return VectorCache(self.cache, identity, read_only=read_only)


@dataclass
class EmbeddingCounts:
    """Where the vectors of a build came from."""

    texts: int = 0  # distinct, of the store; columns and categories are counted apart
    phrases: int = 0
    cached: int = 0
    embedded: int = 0
    damaged: int = 0  # vectors of the cache whose checksum was wrong


def column_phrase(column: str, owner: str, description: str = "") -> str:
    """What stands for a column: "<column> of <table>: <description>"."""
    return f"{column} of {owner}: {description}" if description else f"{column} of {owner}"


def category_phrase(column: str, value: str) -> str:
    """What stands for a category: "<column> is <value>"."""
    return f"{column} is {value}"


def write_embeddings(
    builder: Builder,
    embedding: Embedding,
    columns: Sequence[str],
    categories: Sequence[str],
    *,
    tell: Callable[[str], None] = lambda what: None,
) -> tuple[dict[str, Any], EmbeddingCounts]:
    """Write the three embedding tables; what metadata.json says of texts, and counts."""
    counts = EmbeddingCounts(builder.text_count(), len(columns) + len(categories))
    if embedding.embedder is None:
        width = embedding.text_dim or HASH_DIM
        builder.set_embedder("hash", width)  # which makes its vectors at the end
        return {"embedder": "hash", "dim": width, "count": counts.texts}, counts
    with embedding.open_cache() or nullcontext() as cache:
        resolver = _Resolver(embedding, cache, counts)
        if isinstance(embedding.embedder, Precomputed):
            _refuse_missing(embedding.embedder, builder, [*columns, *categories])
        width = _write_vectors(builder, resolver, columns, categories, tell)
        if cache is not None:
            counts.damaged = cache.damaged_count
    return {"embedder": embedding.name, "dim": width, "count": counts.texts}, counts


def _write_vectors(
    builder: Builder,
    resolver: _Resolver,
    columns: Sequence[str],
    categories: Sequence[str],
    tell: Callable[[str], None],
) -> int:
    first = resolver.vectors(columns)
    builder.set_embedder(resolver.embedding.name, first.shape[1])
    builder.write_vectors(EMBEDDING_KINDS["columns"], first)
    for low in range(0, len(categories), WINDOW_TEXTS):
        vectors = resolver.vectors(categories[low : low + WINDOW_TEXTS])
        builder.write_vectors(EMBEDDING_KINDS["categories"], vectors)
    count = builder.text_count()
    for low, texts in text_windows(builder):
        tell(f"{low:,} of {count:,} texts, {resolver.counts.embedded:,} new")
        builder.write_vectors(EMBEDDING_KINDS["texts"], resolver.vectors(texts))
    return int(first.shape[1])


def text_windows(builder: Builder) -> Iterator[tuple[int, list[str]]]:
    count = builder.text_count()
    for low in range(0, count, WINDOW_TEXTS):
        yield low, builder.texts(low, min(low + WINDOW_TEXTS, count))


def _refuse_missing(embedder: Precomputed, builder: Builder, phrases: Sequence[str]) -> None:
    """All that is missing at once: a file is made again by hand."""
    missing = embedder.missing(list(dict.fromkeys(phrases)))
    count, examples = len(missing), missing
    for _, texts in text_windows(builder):
        missing = embedder.missing(texts)
        count += len(missing)
        examples = (examples + missing)[:16]
    if count:
        embedder.refuse(count, examples)


class _Resolver:
    """Finds or makes vectors, window by window, all of one width."""

    def __init__(
        self, embedding: Embedding, cache: VectorCache | None, counts: EmbeddingCounts
    ) -> None:
        assert embedding.embedder is not None
        self.embedding, self.embedder = embedding, embedding.embedder
        self.cache, self.counts = cache, counts
        self.width: int | None = None

    def vectors(self, texts: Sequence[str]) -> Half:
        """float16 [count, width] in the order of the texts."""
        distinct = list(dict.fromkeys(texts))
        found = {} if self.cache is None else self.cache.find(distinct, self.width)
        self.counts.cached += len(found)
        missing = [place for place in range(len(distinct)) if place not in found]
        if missing:
            found |= self.ask(distinct, missing)
        rows = {text: found[place] for place, text in enumerate(distinct)}
        self.check_widths(rows)
        vectors = np.array([rows[text] for text in texts], np.float16)
        return vectors.reshape(len(texts), self.width or 0)

    def ask(self, texts: Sequence[str], missing: Sequence[int]) -> dict[int, Half]:
        asked = [texts[place] for place in missing]
        found: dict[int, Half] = {}
        for places, given in self.embedder.embed(asked):
            named = [asked[place] for place in places]
            vectors = to_float16(self.fit(given), named, self.embedding.name)
            if self.cache is not None and named:
                self.cache.add(named, vectors)
            self.counts.embedded += len(named)
            found |= {missing[place]: row for place, row in zip(places, vectors, strict=True)}
        return found

    def fit(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """The width asked for; a vector is cut only where its model was made for that."""
        asked, width = self.embedding.text_dim, vectors.shape[1]
        if asked is None or asked == width:
            return vectors
        if asked < width and self.embedding.options.matryoshka:
            return vectors[:, :asked]
        raise EmbedderError(
            f"embedder '{self.embedding.name}' gives vectors of {width} numbers, text_dim asks for "
            f"{asked}"
            + (
                "; only the vectors of a model that was trained for it may be cut: say the "
                "embedder option matryoshka=true if this one was"
                if asked < width
                else ""
            )
        )

    def check_widths(self, rows: dict[str, Half]) -> None:
        for text, vector in rows.items():
            self.width = self.width or len(vector)
            if len(vector) != self.width:
                raise EmbedderError(
                    f"embedder '{self.embedding.name}' has a vector of {len(vector)} numbers for "
                    f"{text[:SHOWN_TEXT]!r}, and of {self.width} for others; if the model changed "
                    "under the same name, build with another --cache"
                )


def to_float16(vectors: NDArray[np.float64], texts: Sequence[str], name: str) -> Half:
    """float16 [count, width] of unit length; EmbedderError names the text of a bad one."""
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        text = texts[int(np.argmax(bad))]
        raise EmbedderError(
            f"embedder '{name}' gave a vector with NaN or infinity for {text[:SHOWN_TEXT]!r} (and "
            f"{int(bad.sum()) - 1} more of {len(texts)})"
        )
    # Squares of large numbers overflow: scale by the largest first.
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    scaled = vectors / largest
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.ascontiguousarray((scaled / np.maximum(lengths, 1e-300)).astype(np.float16))
