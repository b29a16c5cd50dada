"""Who turns texts into vectors, by the name that `--embedder` gives.

    hash                           in C, no weights, the same bits anywhere (the default)
    sentence-transformers:MODEL    a model of that library, by name or by folder
    openai:MODEL@URL               any OpenAI-compatible endpoint, such as openai:m@http://host/v1
    precomputed:FILE.parquet       columns `text` and `vector`
    a Python callable              from a list of strings to an array [count, width]

Every kind but `hash` gives float vectors of its own width, text batch by text batch. `identity`
says what a vector depends on beside its text; where it is None nothing is kept for another build.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.embedding.endpoint import Endpoint
from headwater.embedding.vector_cache import text_key
from headwater.errors import EmbedderError
from headwater.files import check_regular
from headwater.sources.database import import_duckdb
from headwater.sources.source import brief, literal

EmbedFunction = Callable[[list[str]], Any]
Vectors = NDArray[np.float64]

KINDS = (
    "hash, sentence-transformers:NAME_OR_FOLDER, openai:MODEL@URL, precomputed:FILE.parquet or a "
    "callable"
)
BATCH_TEXTS = 1024  # of a callable and of the local kinds
SHOWN_MISSING = 5
SHOWN_TEXT = 60
READ_ROWS = 4096  # of a file of vectors at a time


@dataclass(frozen=True)
class EmbedderOptions:
    """What else an embedder is told: `--embedder-option NAME=VALUE`."""

    matryoshka: bool = False  # the model is trained so that its vectors may be cut to --text-dim
    prefix: str = ""  # put before every text, as some models ask ("passage: ")
    max_characters: int = 0  # longer texts are cut to this, and counted; 0: no limit
    batch_texts: int = 128  # texts of one request
    batch_characters: int = 100_000  # characters of one request; about 4 make a token
    concurrency: int = 4  # requests at a time
    timeout_s: float = 60.0  # of one request
    attempts: int = 6  # of one request
    key_variable: str = ""  # environment variable of the key (OPENAI_API_KEY)
    device: str = ""  # of sentence-transformers

    @staticmethod
    def parse(given: Mapping[str, Any]) -> EmbedderOptions:
        """Options by name, as text or as values; ValueError names a wrong one."""
        types = {field.name: type(field.default) for field in dataclasses.fields(EmbedderOptions)}
        found = {}
        for name, value in given.items():
            if name not in types:
                raise ValueError(f"unknown embedder option '{name}', expected one of {list(types)}")
            found[name] = _option(name, value, types[name])
        options = EmbedderOptions(**found)
        for name in ("batch_texts", "batch_characters", "concurrency", "timeout_s", "attempts"):
            if not getattr(options, name) > 0:
                raise ValueError(f"embedder option '{name}' must be more than 0")
        return options


def _option(name: str, value: Any, kind: type) -> Any:
    if kind is bool and isinstance(value, str):
        words = {"true": True, "1": True, "false": False, "0": False}
        if value.lower() not in words:
            raise ValueError(f"embedder option '{name}' is '{value}', expected true or false")
        return words[value.lower()]
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"embedder option '{name}' is {value!r}, expected {kind.__name__}"
        ) from error


class Embedder:
    """One that is not `hash`."""

    name: str  # recorded in the store
    identity: str | None

    def embed(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], Vectors]]:
        """Vectors with the places of their texts, batch by batch, in any order."""
        raise NotImplementedError

    def request_count(self, texts: Sequence[str]) -> int:
        """Requests that the texts would take; 0 of a kind that asks nobody."""
        return 0

    def usage(self) -> dict[str, int]:
        """Counts for the report."""
        return {}


def make_embedder(
    given: str | EmbedFunction, options: EmbedderOptions, text_dim: int | None
) -> Embedder | None:
    """The embedder of that name; None is `hash`. ValueError for an unknown one."""
    if callable(given):
        return CallableEmbedder(given)
    if not isinstance(given, str):
        raise TypeError(f"embedder is a {type(given).__name__}, expected {KINDS}")
    kind, _, rest = given.partition(":")
    if given == "hash":
        return None
    if kind == "sentence-transformers" and rest:
        return SentenceTransformer(rest, options)
    if kind == "openai" and rest:
        model, found, url = rest.rpartition("@")
        if not found or not model:
            raise ValueError(f"embedder '{given}' names no address, expected openai:MODEL@URL")
        return EndpointEmbedder(model, url, options, text_dim)
    if kind == "precomputed" and rest:
        return Precomputed(Path(rest))
    raise ValueError(f"unknown embedder '{given}', expected {KINDS}")


def in_batches(texts: Sequence[str], size: int) -> Iterator[range]:
    for low in range(0, len(texts), size):
        yield range(low, min(low + size, len(texts)))


# ---- a callable ------------------------------------------------------------------------------


class CallableEmbedder(Embedder):
    """A function of the caller's. If it has an attribute `identity`, a string that changes
    whenever its vectors do, they are kept for later builds."""

    def __init__(self, function: EmbedFunction) -> None:
        self.function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))
        identity = getattr(function, "identity", None)
        self.identity = f"callable:{identity}" if isinstance(identity, str) else None

    def embed(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], Vectors]]:
        for places in in_batches(texts, BATCH_TEXTS):
            asked = [texts[place] for place in places]
            vectors = np.asarray(self.function(list(asked)), np.float64)
            if vectors.ndim != 2 or len(vectors) != len(asked):
                raise EmbedderError(
                    f"the embedder '{self.name}' gave an array {vectors.shape}, expected "
                    f"({len(asked)}, width)"
                )
            yield places, vectors


# ---- sentence-transformers -------------------------------------------------------------------


class SentenceTransformer(Embedder):
    """A model of the library sentence-transformers, loaded at the first text."""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self.path, self.options = model, options
        folder = Path(model)
        is_folder = folder.is_dir()
        self.name = f"sentence-transformers:{folder.resolve().name if is_folder else model}"
        self.cut_count = 0
        content = folder_digest(folder) if is_folder else self._commit()
        self.identity = f"sentence-transformers:{content}|{options.prefix}|{options.max_characters}"

    @cached_property
    def model(self) -> Any:
        try:
            from sentence_transformers import SentenceTransformer as Model
        except ImportError as error:
            raise ImportError(
                "this embedder needs sentence-transformers: pip install sentence-transformers"
            ) from error
        try:
            return Model(self.path, device=self.options.device or None)
        except (OSError, ValueError, RuntimeError) as error:
            raise EmbedderError(f"cannot load the model '{self.path}': {error}") from error

    def _commit(self) -> str:
        """The model's name with its revision, as the library that loaded it knows it."""
        first = self.model[0] if len(self.model) else None
        config = getattr(getattr(first, "auto_model", None), "config", None)
        return f"{self.path}@{getattr(config, '_commit_hash', None)}"

    def embed(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], Vectors]]:
        for places in in_batches(texts, BATCH_TEXTS):
            asked = [prepared(texts[place], self.options) for place in places]
            vectors = self.model.encode(
                asked,
                batch_size=self.options.batch_texts,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
            self.cut_count += count_cut((texts[place] for place in places), self.options)
            yield places, np.asarray(vectors, np.float64)

    def usage(self) -> dict[str, int]:
        return {"cut": self.cut_count}


def folder_digest(folder: Path) -> str:
    """A digest of every file in a model's folder: the same model under another path is the same."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0")
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16))
        digest.update(content.digest())
    return digest.hexdigest()


def prepared(text: str, options: EmbedderOptions) -> str:
    """A text as it is sent."""
    limit = options.max_characters
    return options.prefix + (text[:limit] if limit else text)


def count_cut(texts: Iterator[str], options: EmbedderOptions) -> int:
    return sum(len(text) > options.max_characters > 0 for text in texts)


# ---- an endpoint -----------------------------------------------------------------------------


class EndpointEmbedder(Embedder):
    """An OpenAI-compatible endpoint. It is never asked for the empty text, which such servers
    refuse: its vector is zero, as that of `hash` is."""

    def __init__(
        self, model: str, url: str, options: EmbedderOptions, text_dim: int | None
    ) -> None:
        asked = None if options.matryoshka else text_dim
        self.options, self.cut_count = options, 0
        given = dataclasses.asdict(options)
        shared = {name: given[name] for name in given if name in Endpoint.__dataclass_fields__}
        self.endpoint = Endpoint(url, model, dimensions=asked, **shared)
        self.name = f"openai:{model}@{url}"
        self.identity = f"{self.name}|{asked}|{options.prefix}|{options.max_characters}"
        self.width: int | None = asked

    def embed(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], Vectors]]:
        full = [place for place, text in enumerate(texts) if text or self.options.prefix]
        asked = [prepared(texts[place], self.options) for place in full]
        self.cut_count += count_cut((texts[place] for place in full), self.options)
        for places, vectors in self.endpoint.embed(asked):
            self.width = self.width or vectors.shape[1]
            if vectors.shape[1] != self.width:
                raise EmbedderError(
                    f"'{self.endpoint.address}' answered embeddings of {vectors.shape[1]} numbers "
                    f"after {self.width}"
                )
            yield [full[place] for place in places], vectors
        empty = sorted(set(range(len(texts))) - set(full))
        if empty:
            if self.width is None:
                raise EmbedderError("the width of the endpoint's embeddings is not known")
            yield empty, np.zeros((len(empty), self.width))

    def request_count(self, texts: Sequence[str]) -> int:
        asked = [prepared(text, self.options) for text in texts if text or self.options.prefix]
        return sum(1 for _ in self.endpoint.batches(asked))

    def usage(self) -> dict[str, int]:
        return {
            "requests": self.endpoint.request_count,
            "retries": self.endpoint.retry_count,
            "tokens": self.endpoint.token_count,
            "cut": self.cut_count,
        }


# ---- a file of vectors -----------------------------------------------------------------------


class Precomputed(Embedder):
    """Vectors from Parquet. The file is read once into a temporary file of float32 rows; in memory
    are the digests of its texts."""

    identity = None  # looked up again each time

    def __init__(self, file: Path) -> None:
        self.file, self.name = file, f"precomputed:{file.name}"
        check_regular(file)
        if not file.is_file():
            raise EmbedderError(f"there is no file '{file}'")
        self.rows: dict[bytes, int] = {}
        self.vectors: NDArray[np.float32] | None = None

    def load(self) -> NDArray[np.float32]:
        if self.vectors is not None:
            return self.vectors
        duckdb = import_duckdb()
        scan = f"read_parquet({literal(str(self.file))})"
        with duckdb.connect() as connection, tempfile.TemporaryFile() as spill:
            try:
                width = self.check(connection, scan)
                query = f"SELECT text, CAST(vector AS FLOAT[{width}]) AS vector FROM {scan}"
                cursor = connection.execute(query)
                while chunk := cursor.fetchmany(READ_ROWS):
                    for text, _ in chunk:
                        self.add(text)
                    spill.write(np.array([vector for _, vector in chunk], np.float32).tobytes())
            except duckdb.Error as error:
                raise EmbedderError(f"cannot read '{self.file}': {brief(error)}") from error
            spill.flush()
            # The map keeps the file, which has no name, alive.
            shape = (len(self.rows), width)
            self.vectors = np.memmap(spill, np.float32, "r", shape=shape)
        return self.vectors

    def check(self, connection: Any, scan: str) -> int:
        """The width of its vectors; EmbedderError unless it holds texts and equal widths."""
        columns = {
            row[0]: row[1]
            for row in connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
        }
        numbers = columns.get("vector", "")
        if columns.get("text") != "VARCHAR" or not numbers.startswith(("FLOAT[", "DOUBLE[")):
            raise EmbedderError(
                f"'{self.file}' has the columns {columns}, expected 'text' (VARCHAR) and 'vector' "
                "(a list of floats)"
            )
        low, high, nulls, count = connection.execute(
            "SELECT min(len(vector)), max(len(vector)), "
            f"count(*) FILTER (WHERE text IS NULL OR vector IS NULL), count(*) FROM {scan}"
        ).fetchone()
        if not count or nulls or low != high or not low:
            raise EmbedderError(
                f"'{self.file}' has {count} vectors of {low} to {high} numbers and {nulls} NULLs, "
                "expected vectors of one width and no NULL"
            )
        return int(low)

    def add(self, text: str) -> None:
        key = text_key(text)
        if key in self.rows:
            raise EmbedderError(f"'{self.file}' has the text {text[:SHOWN_TEXT]!r} twice")
        self.rows[key] = len(self.rows)

    def embed(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], Vectors]]:
        vectors = self.load()
        for places in in_batches(texts, BATCH_TEXTS):
            found = [self.rows[text_key(texts[place])] for place in places]
            yield places, np.asarray(vectors[found], np.float64)

    def missing(self, texts: Sequence[str]) -> list[str]:
        """The texts that the file has no vector of."""
        self.load()
        return [text for text in texts if text_key(text) not in self.rows]

    def refuse(self, count: int, examples: Sequence[str]) -> None:
        shown = ", ".join(repr(text[:SHOWN_TEXT]) for text in examples[:SHOWN_MISSING])
        raise EmbedderError(
            f"'{self.file}' has no vector of {count:,} texts, for example {shown}; "
            "`headwater build --dry-run --texts FILE` writes all that are needed"
        )
