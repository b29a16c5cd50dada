"""An OpenAI-compatible embeddings endpoint: POST <url>/embeddings {"model", "input"}.

Texts go in batches, bounded by count and by characters, a few requests at a time; vectors come back
under the places of their texts whatever order the answers have. What may pass (429, 5xx, a broken
or silent connection) is tried again with exponential backoff and full jitter, not before
Retry-After; what does not (another status, an answer that is not what was asked for) ends the build
with what the server said. The key comes from the environment, goes into one header, and is written
nowhere: redirects are refused, and messages are searched for it.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from headwater.errors import EmbedderError

RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 60.0
MAX_RETRY_AFTER_S = 600.0
MAX_ANSWER_BYTES = 1 << 28
READ_BYTES = 1 << 16
MESSAGE_LENGTH = 300
SHOWN_TEXT = 60
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class _RetryLaterError(Exception):
    """What may pass; `wait_s` is how long the server asks to wait, if it does."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass
class Endpoint:
    """A client for one model; `embed` may be called again and again, by one thread."""

    url: str
    model: str
    key_variable: str = ""  # of the environment; "": OPENAI_API_KEY if it is set
    dimensions: int | None = None  # asked of the server, which must then give that many
    batch_texts: int = 128
    batch_characters: int = 100_000
    concurrency: int = 4
    timeout_s: float = 60.0
    attempts: int = 6
    sleep: Callable[[float], None] | None = None  # None: wait, but not after another's failure
    jitter: Callable[[], float] = random.random
    request_count: int = 0
    retry_count: int = 0
    token_count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of the three counts

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the endpoint '{self.url}' is not an http:// or https:// address")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                "the address of an endpoint must hold no password and no query: set the key in "
                f"the environment variable {self.key_variable or 'OPENAI_API_KEY'}"
            )
        self.address = self.url.rstrip("/") + "/embeddings"
        self.key = os.environ.get(self.key_variable or "OPENAI_API_KEY", "").strip()
        if self.key_variable and not self.key:
            raise EmbedderError(f"the environment variable {self.key_variable} holds no key")
        if self.key and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise EmbedderError(
                f"'{self.url}' is not encrypted, and the key would be sent there; use https, or "
                f"unset {self.key_variable or 'OPENAI_API_KEY'}"
            )
        self.opener = urllib.request.build_opener(_NoRedirects)

    # ---- batches -------------------------------------------------------------------------

    def batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Places of the texts of each request, in order."""
        batch: list[int] = []
        characters = 0
        for place, text in enumerate(texts):
            full = len(batch) >= self.batch_texts
            if batch and (full or characters + len(text) > self.batch_characters):
                yield batch
                batch, characters = [], 0
            batch.append(place)
            characters += len(text)
        if batch:
            yield batch

    def embed(self, texts: Sequence[str]) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        """Vectors with the places of their texts, request by request as answers come. After an
        error the answers that were on their way are still given, then the error is raised."""
        waiting = self.batches(texts)
        running: dict[Future[NDArray[np.float64]], list[int]] = {}
        failure: BaseException | None = None
        stop = threading.Event()
        with ThreadPoolExecutor(self.concurrency, "embed") as pool:
            try:
                while True:
                    while failure is None and len(running) < self.concurrency:
                        batch = next(waiting, None)
                        if batch is None:
                            break
                        asked = [texts[place] for place in batch]
                        running[pool.submit(self._ask, asked, stop)] = batch
                    if not running:
                        break
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        batch = running.pop(done)
                        error = done.exception()
                        if error is None:
                            yield batch, done.result()
                        elif failure is None:
                            failure = error
                            stop.set()  # the others need not try again
            finally:
                stop.set()
        if failure is not None:
            raise failure

    # ---- one request ---------------------------------------------------------------------

    def _ask(self, texts: list[str], stop: threading.Event) -> NDArray[np.float64]:
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        data = json.dumps(body).encode()
        for attempt in range(1, self.attempts + 1):
            try:
                return self._vectors(self._post(data, texts), texts)
            except _RetryLaterError as error:
                if attempt == self.attempts or stop.is_set():
                    raise EmbedderError(
                        f"'{self.address}' failed {attempt} times, the last time: {error}"
                    ) from error
                backoff = min(FIRST_BACKOFF_S * 2 ** (attempt - 1), MAX_BACKOFF_S)
                sleep = stop.wait if self.sleep is None else self.sleep
                sleep(max(error.wait_s, backoff * self.jitter()))
                with self._lock:
                    self.retry_count += 1
        raise AssertionError("attempts is at least 1")

    def _post(self, data: bytes, texts: list[str]) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.address, data, headers, method="POST")
        with self._lock:
            self.request_count += 1
        deadline = time.monotonic() + self.timeout_s
        try:
            with self.opener.open(request, timeout=self.timeout_s) as response:
                return self._read(response, deadline)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error, texts) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise _RetryLaterError(self._hide(f"{type(reason).__name__}: {reason}")) from error

    def _read(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        """The body; a server that drips it slower than the timeout has stalled."""
        pieces, size = [], 0
        while piece := response.read1(READ_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise EmbedderError(f"'{self.address}' answered more than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise _RetryLaterError(f"no whole answer within {self.timeout_s:g} s")
        announced = response.headers.get("Content-Length", "")
        if announced.isdigit() and size < int(announced):
            raise _RetryLaterError(f"the answer ended after {size} of {announced} bytes")
        return b"".join(pieces)

    def _refused(self, error: urllib.error.HTTPError, texts: list[str]) -> Exception:
        try:
            said = error.read(READ_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            said = ""
        said = self._hide(_server_message(said))
        if error.code in RETRY_STATUSES:
            wait_s = retry_after_seconds(error.headers.get("Retry-After"))
            if wait_s > MAX_RETRY_AFTER_S:
                return EmbedderError(
                    f"'{self.address}' asks to wait {wait_s:.0f} s ({error.code}: {said})"
                )
            return _RetryLaterError(f"{error.code} {error.reason}: {said}", wait_s)
        hint = ""
        if error.code in (401, 403):
            source = self.key_variable or "OPENAI_API_KEY"
            hint = f"; the key is that of {source}" if self.key else f"; {source} is not set"
        elif error.code in (400, 413, 422):
            longest = max(texts, key=len)
            hint = (
                f"; the longest of its {len(texts)} texts has {len(longest):,} characters "
                f"({longest[:SHOWN_TEXT]!r}): see max_characters, batch_texts, batch_characters"
            )
        return EmbedderError(f"'{self.address}' refuses: {error.code} {said}{hint}")

    def _hide(self, message: str) -> str:
        """A server may repeat the key in what it says."""
        return message.replace(self.key, "<the key>") if self.key else message

    # ---- what was answered ---------------------------------------------------------------

    def _vectors(self, data: bytes, texts: list[str]) -> NDArray[np.float64]:
        """[count, width] in the order of the texts."""
        try:
            answer = json.loads(data)
            items = answer["data"]
            indexes = [int(item["index"]) for item in items]
            rows = [item["embedding"] for item in items]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            shown = self._hide(data[:SHOWN_TEXT].decode("utf-8", "replace"))
            raise EmbedderError(
                f"'{self.address}' did not answer with a list of embeddings: {shown!r}"
            ) from error
        if sorted(indexes) != list(range(len(texts))):
            raise EmbedderError(
                f"'{self.address}' answered {len(rows)} embeddings with the indexes "
                f"{_brief(sorted(indexes))}, expected 0 to {len(texts) - 1}, each once"
            )
        widths = {len(row) if isinstance(row, list) else 0 for row in rows}
        expected = self.dimensions if self.dimensions is not None else max(widths)
        if widths != {expected} or not expected:
            raise EmbedderError(
                f"'{self.address}' answered embeddings of {_brief(sorted(widths))} numbers, "
                f"expected {expected}"
            )
        try:
            vectors = np.array(rows, np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise EmbedderError(
                f"'{self.address}' answered an embedding that holds no number: {error}"
            ) from error
        if vectors.ndim != 2:
            raise EmbedderError(
                f"'{self.address}' answered with embeddings that are not lists of numbers"
            )
        usage = answer.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
        with self._lock:
            self.token_count += tokens if isinstance(tokens, int) else 0
        return vectors[np.argsort(indexes)]


def retry_after_seconds(value: str | None) -> float:
    """Retry-After as seconds from now; 0 where it is absent or says nothing."""
    if not value:
        return 0.0
    if value.strip().isdigit():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return max(0.0, at.timestamp() - time.time())


def _server_message(said: str) -> str:
    """The message inside of an error's JSON, or the start of what else there is."""
    try:
        error = json.loads(said)["error"]
        said = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return " ".join(said.split())[:MESSAGE_LENGTH] or "no message"


def _brief(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    return shown + (", ..." if len(numbers) > 8 else "")
