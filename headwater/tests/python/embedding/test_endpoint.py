"""The client of an embeddings endpoint against one that fails, stalls and lies."""

from __future__ import annotations

import email.utils
import time
from typing import Any

import numpy as np
import pytest
from fake_endpoint import FakeEndpoint, Handler, honest, vector_of
from headwater.embedding.endpoint import MAX_RETRY_AFTER_S, Endpoint, retry_after_seconds
from headwater.errors import EmbedderError

TEXTS = [f"text number {i}" for i in range(50)]


pytestmark = pytest.mark.usefixtures("no_surroundings")


def client(server: FakeEndpoint, **options: Any) -> tuple[Endpoint, list[float]]:
    """A client whose sleeps are noted and not slept, with jitter 1."""
    sleeps: list[float] = []
    given = {"batch_texts": 8, "sleep": sleeps.append, "jitter": lambda: 1.0} | options
    return Endpoint(server.url, "model", **given), sleeps


def embed(endpoint: Endpoint, texts: list[str]) -> dict[int, np.ndarray]:
    found = {}
    for places, vectors in endpoint.embed(texts):
        found |= dict(zip(places, vectors, strict=True))
    return found


def check(found: dict[int, np.ndarray], texts: list[str]) -> None:
    assert sorted(found) == list(range(len(texts)))
    for place, text in enumerate(texts):
        assert found[place] == pytest.approx(vector_of(text)), text


def test_batches_are_bounded_by_count_and_by_characters() -> None:
    endpoint = Endpoint("http://localhost/v1", "m", batch_texts=3, batch_characters=10)
    texts = ["12345", "12345", "1", "123456789012345", "1", "1", "1", "1"]
    assert list(endpoint.batches(texts)) == [[0, 1], [2], [3], [4, 5, 6], [7]]


def test_vectors_stand_under_their_texts_whatever_the_order_of_the_answers() -> None:
    def slow_first(number: int, body: dict[str, Any], handler: Handler) -> Any:
        time.sleep(0.05 if number % 2 == 0 else 0)
        answer = honest(body)
        answer["data"].reverse()
        return answer

    with FakeEndpoint(slow_first) as server:
        endpoint, _ = client(server, concurrency=4)
        check(embed(endpoint, TEXTS), TEXTS)
        assert endpoint.request_count == 7
        assert endpoint.token_count == sum(len(text) for text in TEXTS)
        assert sorted(server.texts()) == sorted(TEXTS)


def test_requests_run_at_once_but_no_more_than_asked() -> None:
    running, most = [0], [0]

    def count(number: int, body: dict[str, Any], handler: Handler) -> Any:
        with server.lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.05)
        with server.lock:
            running[0] -= 1
        return None

    with FakeEndpoint(count) as server:
        endpoint, _ = client(server, concurrency=3)
        check(embed(endpoint, TEXTS), TEXTS)
    assert most[0] == 3


def cut(number: int, body: dict[str, Any], handler: Handler) -> Any:
    """Ends the first answer early."""
    if number > 0:
        return None
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True
    return "done"


def first(count: int, answer: Any) -> Any:
    """Answers so many requests so, and the others honestly."""
    return lambda number, body, handler: answer if number < count else None


LATER = {"error": {"message": "later"}}


@pytest.mark.parametrize(
    ("behaviour", "options", "waits"),
    [
        *[(first(3, (status, {}, LATER)), {}, [0.5, 1.0, 2.0])
          for status in (408, 429, 500, 502, 503, 504)],
        (first(1, (500, {}, {})), {"jitter": lambda: 0.25}, [0.125]),
        (first(1, (429, {"Retry-After": "7"}, {})), {}, [7.0]),
        (lambda n, b, handler: handler.reset() if n == 0 else None, {}, [0.5]),
        (cut, {}, [0.5]),
    ],
    ids=["408", "429", "500", "502", "503", "504", "jitter", "retry-after", "reset", "cut"],
)  # fmt: skip
def test_what_may_pass_is_tried_again_with_growing_waits(
    behaviour: Any, options: dict[str, Any], waits: list[float]
) -> None:
    with FakeEndpoint(behaviour) as server:
        endpoint, sleeps = client(server, **options)
        check(embed(endpoint, TEXTS[:5]), TEXTS[:5])
        assert sleeps == waits
        assert (endpoint.request_count, endpoint.retry_count) == (1 + len(waits), len(waits))


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    assert retry_after_seconds("12") == 12.0
    assert retry_after_seconds(None) == retry_after_seconds("soon") == 0.0
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert 25 < retry_after_seconds(later) <= 30
    assert retry_after_seconds(email.utils.formatdate(time.time() - 30, usegmt=True)) == 0.0


QUOTA = (429, {"Retry-After": f"{MAX_RETRY_AFTER_S + 1:.0f}"}, {"error": {"message": "quota"}})
TOO_LONG = (400, {}, {"error": {"message": "maximum context length is 8192 tokens"}})


@pytest.mark.parametrize(
    ("answer", "texts", "waits", "message"),
    [
        (QUOTA, ["short"], [], r"asks to wait 601 s \(429: quota\)"),
        ((503, {}, b"<html>down</html>"), ["short"], [0.5, 1.0],
         "failed 3 times, the last time: 503 .*<html>down"),
        (TOO_LONG, ["short", "long" * 225], [], "maximum context.*longest of its 2 texts has 900"),
    ],
)  # fmt: skip
def test_what_is_given_up_says_why(
    answer: Any, texts: list[str], waits: list[float], message: str
) -> None:
    """A server that asks for an hour is not waited for, attempts end, and a refusal is final."""
    with FakeEndpoint(lambda n, b, h: answer) as server:
        endpoint, sleeps = client(server, attempts=3)
        with pytest.raises(EmbedderError, match=message):
            embed(endpoint, texts)
    assert sleeps == waits


def test_a_silent_server_is_given_up_after_the_timeout() -> None:
    def stall(number: int, body: dict[str, Any], handler: Handler) -> Any:
        time.sleep(0.6)
        return None

    with FakeEndpoint(stall) as server:
        endpoint, _ = client(server, timeout_s=0.1, attempts=2)
        start = time.monotonic()
        with pytest.raises(EmbedderError, match=r"failed 2 times, the last time: .*timed out"):
            embed(endpoint, TEXTS[:1])
        assert time.monotonic() - start < 0.5


def test_a_server_that_drips_its_answer_is_given_up_too() -> None:
    def drip(number: int, body: dict[str, Any], handler: Handler) -> Any:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(20):
            handler.wfile.write(b" ")
            time.sleep(0.05)
        return "done"

    with FakeEndpoint(drip) as server:
        endpoint, _ = client(server, timeout_s=0.2, attempts=1)
        start = time.monotonic()
        with pytest.raises(EmbedderError, match=r"no whole answer within 0\.2 s"):
            embed(endpoint, TEXTS[:1])
        assert time.monotonic() - start < 0.7


def lie(change: Any) -> FakeEndpoint:
    def behaviour(number: int, body: dict[str, Any], handler: Handler) -> Any:
        answer = honest(body)
        return change(answer) or answer

    return FakeEndpoint(behaviour)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a["data"].pop(),
            r"answered 2 embeddings with the indexes 0, 1, expected 0 to 2",
        ),
        (lambda a: a["data"].append(a["data"][0]), "4 embeddings with the indexes 0, 0, 1, 2"),
        (lambda a: a["data"][0].update(index=7), "indexes 1, 2, 7"),
        (lambda a: a["data"][1]["embedding"].pop(), "embeddings of 7, 8 numbers, expected 8"),
        (lambda a: a["data"][1].update(embedding=["a"] * 8), "holds no number"),
        (lambda a: a["data"][1].update(embedding="AAAA"), "embeddings of 0, 8 numbers"),
        (lambda a: [i.update(embedding=[[1.0]] * 8) for i in a["data"]], "not lists of numbers"),
        (lambda a: {"data": "none"}, "did not answer with a list of embeddings"),
        (lambda a: {"error": "but status 200"}, "did not answer with a list of embeddings"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_refused(change: Any, message: str) -> None:
    def changed(answer: dict[str, Any]) -> Any:
        result = change(answer)
        return result if isinstance(result, dict) and "embedding" not in result else None

    with lie(changed) as server:
        endpoint, sleeps = client(server)
        with pytest.raises(EmbedderError, match=message):
            embed(endpoint, TEXTS[:3])
    assert sleeps == []


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b"{}", b"<html>", b'{"data": [1]}'])
def test_an_answer_that_is_no_answer_is_refused(body: bytes) -> None:
    with FakeEndpoint(lambda n, b, h: (200, {}, body)) as server:
        endpoint, _ = client(server)
        with pytest.raises(EmbedderError, match="did not answer with a list of embeddings"):
            embed(endpoint, TEXTS[:3])


def test_usage_that_makes_no_sense_is_not_counted() -> None:
    with lie(lambda a: a.update(usage=["x"])) as server:
        endpoint, _ = client(server)
        check(embed(endpoint, TEXTS[:3]), TEXTS[:3])
        assert endpoint.token_count == 0


def test_a_failure_ends_the_waiting_of_the_others() -> None:
    def fail(number: int, body: dict[str, Any], handler: Handler) -> Any:
        if body["input"][0] == TEXTS[0]:
            time.sleep(0.1)
            return (400, {}, {})
        return (503, {"Retry-After": "300"}, {})

    with FakeEndpoint(fail) as server:
        endpoint, _ = client(server, sleep=None)
        start = time.monotonic()
        with pytest.raises(EmbedderError, match="refuses: 400"):
            embed(endpoint, TEXTS)
        assert time.monotonic() - start < 10


def test_dimensions_are_asked_for_and_checked() -> None:
    with FakeEndpoint() as server:
        endpoint, _ = client(server, dimensions=5)
        found = embed(endpoint, TEXTS[:2])
        assert found[1] == pytest.approx(vector_of(TEXTS[1], 5))
        assert server.bodies[0]["dimensions"] == 5
    with lie(lambda a: [item["embedding"].append(0.0) for item in a["data"]] and None) as server:
        endpoint, _ = client(server, dimensions=5)
        with pytest.raises(EmbedderError, match="embeddings of 6 numbers, expected 5"):
            embed(endpoint, TEXTS[:2])


def test_answers_on_their_way_are_given_before_the_error() -> None:
    def fail_second(number: int, body: dict[str, Any], handler: Handler) -> Any:
        if body["input"][0] == TEXTS[0]:
            return (400, {}, {})
        time.sleep(0.1)
        return None

    with FakeEndpoint(fail_second) as server:
        endpoint, _ = client(server, concurrency=4)
        found: list[int] = []
        with pytest.raises(EmbedderError, match="refuses: 400"):
            for places, _ in endpoint.embed(TEXTS[:32]):
                found += places
    assert sorted(found) == list(range(8, 32))


# ---- the key ---------------------------------------------------------------------------------


def test_the_key_comes_from_the_environment_and_is_in_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    denied = (401, {}, {"error": {"message": "bad key sk-secret given"}})
    with FakeEndpoint(lambda n, b, h: denied if n else None) as server:
        endpoint, _ = client(server)
        embed(endpoint, TEXTS[:1])
        assert server.headers[0]["authorization"] == "Bearer sk-secret"
        with pytest.raises(EmbedderError) as caught:
            embed(endpoint, TEXTS[:1])
    assert "sk-secret" not in str(caught.value)
    assert "bad key <the key> given; the key is that of OPENAI_API_KEY" in str(caught.value)


def test_another_variable_may_hold_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    monkeypatch.setenv("MY_KEY", "sk-mine")
    with FakeEndpoint() as server:
        endpoint, _ = client(server, key_variable="MY_KEY")
        embed(endpoint, TEXTS[:1])
        assert server.headers[0]["authorization"] == "Bearer sk-mine"
        monkeypatch.delenv("MY_KEY")
        with pytest.raises(EmbedderError, match="MY_KEY holds no key"):
            client(server, key_variable="MY_KEY")


def test_without_a_key_no_header_is_sent() -> None:
    with FakeEndpoint() as server:
        embed(client(server)[0], TEXTS[:1])
        assert "authorization" not in server.headers[0]


def test_a_redirect_is_not_followed() -> None:
    with FakeEndpoint() as other:
        moved = (307, {"Location": other.url + "/embeddings"}, {})
        with (
            FakeEndpoint(lambda n, b, h: moved) as server,
            pytest.raises(EmbedderError, match="refuses: 307"),
        ):
            embed(client(server)[0], TEXTS[:1])
        assert other.bodies == []


def test_a_key_is_sent_neither_in_the_clear_nor_in_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in ("http://user:pass@localhost/v1", "http://localhost/v1?key=sk-secret"):
        with pytest.raises(ValueError, match="must hold no password and no query"):
            Endpoint(url, "m")
    with pytest.raises(ValueError, match="not an http:// or https:// address"):
        Endpoint("localhost:8000", "m")
    Endpoint("http://models.example/v1", "m")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.raises(EmbedderError, match="is not encrypted"):
        Endpoint("http://models.example/v1", "m")
