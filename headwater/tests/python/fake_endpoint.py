"""An embeddings endpoint on loopback that does what a test tells it: fail, stall or lie.

Vectors follow from the text alone, so a test can say what must come out: `vector_of(text)`.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEFAULT_WIDTH = 8

# What to do with a request: its number from 0, its body, and the handler, for those that answer by
# themselves. None: answer honestly; a dict: this answer; a tuple: status, headers, body.
Behaviour = Callable[[int, dict[str, Any], "Handler"], Any]


def vector_of(text: str, width: int = DEFAULT_WIDTH) -> NDArray[np.float64]:
    """Numbers in [-1, 1) that follow from the text."""
    digest = hashlib.shake_128(text.encode()).digest(4 * width)
    return np.frombuffer(digest, "<u4") / 2.0**31 - 1.0


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return vector / np.linalg.norm(vector)


def honest(body: dict[str, Any]) -> dict[str, Any]:
    width = body.get("dimensions", DEFAULT_WIDTH)
    data = [
        {"object": "embedding", "index": i, "embedding": vector_of(text, width).tolist()}
        for i, text in enumerate(body["input"])
    ]
    tokens = sum(len(text) for text in body["input"])
    return {"object": "list", "data": data, "usage": {"total_tokens": tokens}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeEndpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = self.server.note(self, body)
        answer = self.server.behaviour(number, body, self)
        if answer == "done":
            return
        status, headers, content = 200, {}, answer if answer is not None else honest(body)
        if isinstance(answer, tuple):
            status, headers, content = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def reset(self) -> str:
        """Closes the connection with RST."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True
        return "done"

    def log_message(self, *arguments: Any) -> None:
        pass


class FakeEndpoint(ThreadingHTTPServer):
    """Use as a context manager; `url` is what the embedder is given."""

    daemon_threads = True

    def __init__(self, behaviour: Behaviour = lambda number, body, handler: None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def note(self, handler: Handler, body: dict[str, Any]) -> int:
        with self.lock:
            self.bodies.append(body)
            self.headers.append({key.lower(): value for key, value in handler.headers.items()})
            self.times.append(time.monotonic())
            return len(self.bodies) - 1

    def texts(self) -> list[str]:
        """Every text that was asked for, in order of arrival."""
        return [text for body in self.bodies for text in body["input"]]

    def __enter__(self) -> FakeEndpoint:
        self.thread.start()
        return self

    def __exit__(self, *arguments: Any) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of these tests hang up on purpose."""
