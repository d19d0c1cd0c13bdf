"""What a capture shows while it runs: on a terminal, in a log, beside a command, and when told to be quiet."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests.python.traffic import agentbench as run_command
from tests.python.traffic import converse, free_port, send

import agentbench
from agentbench._cli.capture_view import drawn, line

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 40.0


def test_the_view_shows_what_there_is(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    with agentbench.Proxy(engine.url, out=tmp_path / "run") as proxy:
        converse(proxy.url, 3, session="mine")
        send(f"{proxy.url}/v1/models")
    stats = proxy.stats()
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(drawn(stats))
    rows = console.export_text().splitlines()
    assert rows[0] == "requests 4 (0 open), turns 3, sessions 1, threads 1"
    share = f"{100 * stats['isl_cached'] / stats['isl']:.1f} %"
    assert rows[1].startswith(f"tokens {stats['isl']:,} in ({share} cached), 48 out, tool waits ")
    assert rows[2] == "rows dropped 0"
    assert rows[4].split()[:2] == [engine.url, "4"]
    assert [row.split()[:5] for row in rows[6:9]] == [["mine", "1", "main", "python-urllib", str(k)] for k in range(3)]
    assert rows[6].rstrip().endswith("ok")
    assert line(stats).endswith("; rows dropped 0")
    assert "engine 0 running, 0 waiting, KV" in line(stats)
    assert stats["isl_with_cached"] == stats["isl"]
    assert stats["tool_exec_ms"] == pytest.approx(sum(turn["tool_exec_ms"] or 0 for turn in stats["latest"]), abs=0.01)


def on_a_terminal(arguments: list[str], *, until: str | None, url: str | None) -> str:
    """Runs a capture whose stderr is a terminal; a session passes at `url`; Ctrl-C once `until` was shown."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "agentbench", "capture", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "160", "NO_COLOR": "1"},
    )
    os.close(slave)
    shown, deadline = "", time.monotonic() + PATIENCE_S
    talked = interrupted = False
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    shown += os.read(master, 65536).decode(errors="replace")
                except OSError:
                    break
            if url and not talked and "Ctrl-C ends it" in shown:
                talked = True
                converse(url, 2, session="mine")
            if until and not interrupted and until in shown:
                interrupted = True
                process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        os.close(master)
    assert process.returncode == 0, shown
    return shown


def test_a_terminal_shows_the_view(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    port = free_port()
    common = ["--upstream", engine.url, "--listen", f"127.0.0.1:{port}", "--out", str(tmp_path / "run")]
    shown = on_a_terminal(common, until="turns 2,", url=f"http://127.0.0.1:{port}")
    assert "tool waits" in shown
    assert "python-urllib" in shown


@pytest.mark.parametrize(("flags", "seen"), [([], False), (["--view"], True), (["--quiet"], False)])
def test_a_command_has_the_terminal_unless_asked(
    engine: agentbench.SimulatedEngine, tmp_path: Path, flags: list[str], *, seen: bool
) -> None:
    talk = (
        "import os, time, urllib.request as u\n"
        'body = b\'{"model": "agentbench-sim", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]}\'\n'
        "u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', data=body)).read()\n"
        "time.sleep(1)\n"
    )
    common = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", str(tmp_path / "run"), *flags]
    shown = on_a_terminal([*common, "--", sys.executable, "-c", talk], until=None, url=None)
    assert ("turns 1," in shown) == seen, shown
    assert "recording http://" in shown


def test_view_and_quiet_exclude_each_other(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    done = run_command("capture", "--upstream", engine.url, "--view", "--quiet", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
    assert not (tmp_path / "run").exists()
