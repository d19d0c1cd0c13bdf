"""An engine behind TLS, whose authority this machine trusts or does not."""

from __future__ import annotations

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import agentbench

if TYPE_CHECKING:
    from collections.abc import Iterator

# Made with openssl for 127.0.0.1, good for a hundred years; the authority's key is gone.
TLS = Path(__file__).parents[1] / "data" / "tls"
CLIENT = """
import json, os, urllib.request
body = json.dumps({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}).encode()
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body)
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read().decode())
"""
SAID = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "over TLS"}],
    "usage": {"input_tokens": 3, "output_tokens": 2},
    "stop_reason": "end_turn",
}


@pytest.fixture
def secure_engine() -> Iterator[str]:
    """An engine of one answer that speaks TLS alone."""

    class Engine(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is http.server's
            self._answer({"object": "list", "data": [{"id": "m"}]})

        def do_POST(self) -> None:  # the name is http.server's
            self.rfile.read(int(self.headers["content-length"]))
            self._answer(SAID)

        def _answer(self, said: object) -> None:
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not trust the certificate hangs up."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    with Server(("127.0.0.1", 0), Engine) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def capture(url: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Captures one request of a small client."""
    program = [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "agentbench"]
    arguments = ["capture", "--upstream", url, "--listen", "127.0.0.1:0", "--metrics-url", "none", "--out", "out"]
    return subprocess.run(
        [*program, *arguments, "--", sys.executable, "-c", CLIENT],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        check=False,
        env=os.environ | {"NO_COLOR": "1"} | environment,
    )


def test_an_engine_behind_tls_is_recorded(secure_engine: str, empty: Path) -> None:
    result = capture(secure_engine, empty, {"SSL_CERT_FILE": str(TLS / "authority.pem")})
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout.splitlines()[0]) == SAID
    turns = agentbench.Run.open(empty / "out").turns().to_polars()
    assert (turns["osl_text"].to_list(), turns["isl"].to_list()) == (["over TLS"], [3])


def test_a_certificate_of_nobody_known_is_told(secure_engine: str, empty: Path) -> None:
    result = capture(secure_engine, empty, {})
    assert result.returncode == 2, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {secure_engine}: ")
    assert "certificate" in line
    assert not (empty / "out").exists()
