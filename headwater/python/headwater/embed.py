"""Texts to vectors: what is embedded for columns and categories, and by whom.

An embedder is `hash` (in C, no weights, the same bits anywhere) or a callable that maps a list of
strings to an array [count, width]; its vectors are scaled to unit length and stored as float16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

TEXT_BATCH_COUNT = 1024

EmbedFunction = Callable[[list[str]], Any]


class VectorSink(Protocol):
    """What embedding needs of the builder."""

    def text_count(self) -> int: ...
    def texts(self, lo: int, hi: int, /) -> list[str]: ...
    def set_embedder(self, name: str, dim: int, /) -> None: ...
    def write_vectors(self, kind: int, vectors: Any, /) -> None: ...
    def hash_texts(self) -> None: ...


def column_phrase(column: str, owner: str, description: str = "") -> str:
    """What stands for a column: "<column> of <table>: <description>"."""
    return f"{column} of {owner}: {description}" if description else f"{column} of {owner}"


def category_phrase(column: str, value: str) -> str:
    """What stands for a category: "<column> is <value>"."""
    return f"{column} is {value}"


def embedder_name(embedder: str | EmbedFunction) -> str:
    """The name recorded in the store; ValueError for an unknown one."""
    if callable(embedder):
        return str(getattr(embedder, "__name__", type(embedder).__name__))
    if embedder != "hash":
        raise ValueError(f"unknown embedder '{embedder}', expected 'hash' or a callable")
    return embedder


def write_embeddings(
    builder: VectorSink,
    embedder: str | EmbedFunction,
    columns: Sequence[str],
    categories: Sequence[str],
    *,
    text_dim: int,
    tell: Callable[[str], None] = lambda what: None,
) -> int:
    """Write the three embedding tables; returns their width."""
    from ._core import EMBEDDING_KINDS, hash_embed

    name = embedder_name(embedder)
    if not callable(embedder):
        builder.set_embedder(name, text_dim)
        builder.write_vectors(EMBEDDING_KINDS["columns"], hash_embed(list(columns), text_dim))
        phrases = hash_embed(list(categories), text_dim)
        builder.write_vectors(EMBEDDING_KINDS["categories"], phrases)
        builder.hash_texts()
        return text_dim
    first = _embed(embedder, columns, None)
    text_dim = int(first.shape[1])
    builder.set_embedder(name, text_dim)
    builder.write_vectors(EMBEDDING_KINDS["columns"], first)
    for batch in _batches(categories):
        vectors = _embed(embedder, batch, text_dim)
        builder.write_vectors(EMBEDDING_KINDS["categories"], vectors)
    count = builder.text_count()
    for lo in range(0, count, TEXT_BATCH_COUNT):
        tell(f"{lo} of {count} texts")
        texts = builder.texts(lo, min(lo + TEXT_BATCH_COUNT, count))
        builder.write_vectors(EMBEDDING_KINDS["texts"], _embed(embedder, texts, text_dim))
    return text_dim


def _batches(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[lo : lo + TEXT_BATCH_COUNT] for lo in range(0, len(texts), TEXT_BATCH_COUNT)]


def _embed(embedder: EmbedFunction, texts: Sequence[str], text_dim: int | None) -> Any:
    """float16 [count, width] of unit length; ValueError if the callable gives something else."""
    import numpy

    vectors = numpy.asarray(embedder(list(texts)), dtype=numpy.float32)
    width = vectors.shape[1] if vectors.ndim == 2 else 0
    if vectors.ndim != 2 or len(vectors) != len(texts) or (text_dim or width) != width:
        expected = (len(texts), text_dim if text_dim is not None else "width")
        raise ValueError(f"the embedder gave an array {vectors.shape}, expected {expected}")
    if not numpy.isfinite(vectors).all():
        raise ValueError("the embedder gave a vector with NaN or infinity")
    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return numpy.ascontiguousarray((vectors / numpy.maximum(lengths, 1e-12)).astype(numpy.float16))
