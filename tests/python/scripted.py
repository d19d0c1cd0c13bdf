"""A server of Chat whose answers are written beforehand, for what no real engine does on demand."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = dict[str, Any]
BREAK: Body = {"break": True}
HANG: Body = {"hang": True}


def text(words: str) -> Body:
    """A chunk of text."""
    return {"delta": {"content": words}}


def reasoning(words: str) -> Body:
    """A chunk of reasoning."""
    return {"delta": {"reasoning_content": words}}


def call(index: int, name: str, arguments: str) -> Body:
    """A chunk with a whole call."""
    function = {"name": name, "arguments": arguments}
    return {
        "delta": {
            "tool_calls": [
                {"index": index, "id": f"call_{index}_{time.monotonic_ns()}", "type": "function", "function": function}
            ]
        }
    }


def end(reason: str) -> Body:
    """The last chunk."""
    return {"delta": {}, "finish_reason": reason}


def said(words: str) -> list[Body]:
    """An answer of text, which ends an agent's work."""
    return [text(words), end("stop")]


def called(*calls: tuple[str, Any]) -> list[Body]:
    """An answer of calls."""
    chunks = [
        call(index, name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for index, (name, arguments) in enumerate(calls)
    ]
    return [*chunks, end("tool_calls")]


def answers(body: Body) -> int:
    """How many answers of the model a request's history holds."""
    return sum(message["role"] == "assistant" for message in body["messages"])


class Server:
    """The server; `bodies` are those of the requests that offered tools."""

    def __init__(self, script: Any, pause_s: float = 0.0) -> None:
        self.script, self.pause_s = script, pause_s
        self.bodies: list[Body] = []
        self.released = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                known = self.path in {"/v1/models", "/health"}
                data = json.dumps({"data": [{"id": "scripted"}]}).encode() if self.path == "/v1/models" else b""
                self.send_response(200 if known else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    server.answer(self, body)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler, body: Body) -> None:
        chunks: Any = said("Hi")
        if "tools" in body:
            self.bodies.append(body)
            chunks = self.script(body)
        if isinstance(chunks, int):
            data = b'{"error": {"message": "scripted"}}'
            handler.send_response(chunks)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        usage = {"prompt_tokens": 10, "completion_tokens": len(chunks)}
        for chunk in chunks:
            if chunk is BREAK:
                return
            if chunk is HANG:
                self.released.wait(60)
                return
            self._send(handler, {"choices": [{"index": 0, **chunk}]})
            time.sleep(self.pause_s)
        self._send(handler, {"choices": [], "usage": usage})
        handler.wfile.write(b"data: [DONE]\n\n")

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, event: Body) -> None:
        handler.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        handler.wfile.flush()

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()
