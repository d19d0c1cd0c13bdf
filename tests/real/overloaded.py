"""A front before a real engine that answers one request with 529, as an engine does that has too much to do.

No real engine can be brought to say so at a given request; all others pass to it unchanged.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

STATUS = 529
REFUSAL = b'{"type":"error","error":{"type":"overloaded_error","message":"overloaded"}}'


@contextlib.contextmanager
def overloaded(url: str, refused: int) -> Iterator[str]:
    """The URL of a front before `url` that refuses the POST of that number, counted from 1."""
    numbers = itertools.count(1)

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward(b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if next(numbers) != refused:
                self.forward(body)
                return
            self.send_response(STATUS)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(REFUSAL)))
            self.end_headers()
            self.wfile.write(REFUSAL)

        def forward(self, body: bytes) -> None:
            with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc)) as engine:
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                engine.request(self.command, self.path, body, headers)
                response = engine.getresponse()
                self.send_response(response.status)
                # The end of the connection is the end of the body, so that a stream needs no length.
                self.send_header("Content-Type", response.headers["Content-Type"] or "text/plain")
                self.end_headers()
                while piece := response.read1():
                    self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
