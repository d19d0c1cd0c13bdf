"""One run of an agent's command under its supervisor, waited for from a thread of the collector."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

SUPERVISOR = Path(__file__).with_name("supervisor.py")
GRACE_SECONDS = 5.0
LOOK_SECONDS = 0.1
OWN_EYES = 0o600


class ProcessError(Exception):
    """The command could not be run; the text says why."""


@dataclass(frozen=True)
class Exit:
    """How a command ended.

    Attributes
    ----------
    exit_code
        Its own, negative for a signal; 124 when its time was over; None when it did not end by itself.
    ended
        ``exited``, ``timed_out``, ``exceeded`` (its limits) or ``interrupted``.
    start, end
        Seconds since the Unix epoch.
    reason
        Which limit it exceeded.
    """

    exit_code: int | None
    ended: str
    start: float
    end: float
    reason: str | None = None


@dataclass(frozen=True)
class Limits:
    """What a command and all that it starts may take.

    Attributes
    ----------
    memory_bytes
        Memory of all processes together, and address space of each.
    file_bytes
        The longest file that it may write, its output among them.
    processes
        Processes at once.
    cpu_s
        CPU time of each process.
    """

    memory_bytes: int
    file_bytes: int
    processes: int
    cpu_s: float


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    workdir: Path,
    stdout: Path,
    stderr: Path,
    limit_s: float,
    stop: threading.Event,
    cleanup: Sequence[str] | None = None,
    limits: Limits | None = None,
) -> Exit:
    """Run a command to its end, its time limit, or until `stop` is set; its whole process tree ends with it.

    Parameters
    ----------
    command, environment, workdir
        What is run, with nothing inherited.
    stdout, stderr
        Files that take its output.
    limit_s
        Seconds that it may take.
    stop
        Ends it when set.
    cleanup
        A command to run when it is interrupted, be it because this process was killed.
    limits
        What it may take besides time.

    Raises
    ------
    ProcessError
        When it cannot be started.
    OSError
        When the files cannot be written.
    """
    with _private(stdout) as out, _private(stderr) as err:
        job = {
            "command": list(command),
            "workdir": str(workdir),
            "stdout": out.fileno(),
            "stderr": err.fileno(),
            "limit_s": limit_s,
            "grace_s": GRACE_SECONDS,
            "cleanup": list(cleanup) if cleanup else None,
            "limits": asdict(limits) if limits else None,
        }
        start = time.time()
        supervisor = subprocess.Popen(  # noqa: S603 our own script
            [sys.executable, "-I", "-S", SUPERVISOR],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(out.fileno(), err.fileno()),
            start_new_session=True,
        )
        return _awaited(supervisor, job, stop, start)


def _private(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWN_EYES), "wb")


def _awaited(supervisor: subprocess.Popen[bytes], job: dict[str, Any], stop: threading.Event, start: float) -> Exit:
    told = b""
    with supervisor, contextlib.suppress(BrokenPipeError):
        if supervisor.stdin is None or supervisor.stdout is None:
            raise AssertionError("both are pipes")
        supervisor.stdin.write(json.dumps(job).encode() + b"\n")
        supervisor.stdin.flush()
        # Its report, or its end, is seen at once: how long a command took is a figure.
        while not select.select([supervisor.stdout], [], [], LOOK_SECONDS)[0] and not stop.is_set():
            pass
        # Its input at an end asks the supervisor to end the agent.
        supervisor.stdin.close()
        told = supervisor.stdout.read()
    end = time.time()
    try:
        report = json.loads(told)
    except ValueError:
        # Somebody killed the supervisor: an agent that runs without a sandbox can.
        return Exit(None, "exited", start, end)
    if "error" in report:
        raise ProcessError(report["error"])
    return Exit(report["exit_code"], report["ended"], start, end, report.get("reason"))
