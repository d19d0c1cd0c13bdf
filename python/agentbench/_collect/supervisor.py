"""A process between the collector and an agent that ends the agent's whole process tree.

Run as a script with nothing but the standard library, so that it starts at once: ``python -I -S supervisor.py``,
with the job as a line of JSON on standard input.
Descendants that leave the agent's session or process group, or whose parents end, become children of this process,
so none escapes. It ends them at the time limit, when the agent has ended, and when the collector is gone, however
that went: the collector holds the other end of standard input, and the system closes it even for one that was
killed. What came of it goes to standard output as a line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SUBREAPER = 36
TIMED_OUT = 124
KILL_ROUNDS = 500
KILL_SECONDS = 0.02
LOOK_SECONDS = 0.05
CLEANUP_SECONDS = 60
LIMITS_LOOK_SECONDS = 0.2
PAGE_BYTES = resource.getpagesize()


def main() -> None:
    """Run one agent and report how it ended."""
    job: dict[str, Any] = json.loads(_first_line())
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        report = _run(job, reader)
    finally:
        _kill_all()
    if report.get("ended") == "interrupted":
        # Nobody may be left to do it.
        _clean_up(job["cleanup"])
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(report).encode() + b"\n")


def _first_line() -> bytes:
    """Read the job and not a byte more: the rest of standard input is waited on."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(1)
        line += byte
    return line


def _run(job: dict[str, Any], wakeups: int) -> dict[str, Any]:
    started = time.monotonic()
    try:
        agent = _start(job)
    except OSError as error:
        return {"error": f"cannot run {job['command'][0]}: {error.strerror}"}
    status, why, reason = _watch(agent, started + job["limit_s"], wakeups, job.get("limits"))
    if why == "exceeded":
        # What grows that fast is not asked to end.
        return {"exit_code": None, "ended": why, "reason": reason}
    if status is None:
        _signal_all(signal.SIGTERM)
        status = _wait(agent, job["grace_s"])
    if why == "timed_out":
        return {"exit_code": TIMED_OUT, "ended": why}
    return {"exit_code": None if status is None else os.waitstatus_to_exitcode(status), "ended": why}


def _start(job: dict[str, Any]) -> int:
    """Start the agent and return its id; what it does to its parent's signals is undone by a new session."""
    process = subprocess.Popen(  # noqa: S603 the harness's command
        job["command"],
        cwd=job["workdir"],
        stdin=subprocess.DEVNULL,
        stdout=job["stdout"],
        stderr=job["stderr"],
        start_new_session=True,
        preexec_fn=lambda: _prepare(job.get("limits")),  # noqa: PLW1509 there is one thread
    )
    # Children are waited for here, all in one place.
    process.returncode = 0
    return process.pid


def _prepare(limits: dict[str, Any] | None) -> None:
    if limits:
        # The system keeps these for each process; what all of them take together is watched.
        for kind, value in (
            (resource.RLIMIT_AS, limits["memory_bytes"]),
            (resource.RLIMIT_FSIZE, limits["file_bytes"]),
            (resource.RLIMIT_CPU, int(limits["cpu_s"]) + 1),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (most, most))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _watch(
    agent: int, deadline: float, wakeups: int, limits: dict[str, Any] | None
) -> tuple[int | None, str, str | None]:
    """Wait for the agent, the deadline, a limit or the collector's end, whichever comes first."""
    while True:
        status = _reap(agent)
        if status is not None:
            return status, "exited", None
        left = deadline - time.monotonic()
        if left <= 0:
            return None, "timed_out", None
        ready, _, _ = select.select([0, wakeups], [], [], min(left, LIMITS_LOOK_SECONDS) if limits else left)
        if wakeups in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wakeups, 4096)
        if 0 in ready and not os.read(0, 4096):
            return _reap(agent), "interrupted", None
        exceeded = _exceeded(limits) if limits and not ready else None
        if exceeded:
            return None, "exceeded", exceeded


def _exceeded(limits: dict[str, Any]) -> str | None:
    """Say which limit the processes exceed together, if any."""
    processes = _descendants()
    if len(processes) > limits["processes"]:
        return f"it had more than {limits['processes']} processes"
    taken = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            taken += int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * PAGE_BYTES
    return f"it took more than {limits['memory_bytes'] >> 20} MiB of memory" if taken > limits["memory_bytes"] else None


def _wait(agent: int, grace: float) -> int | None:
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        status = _reap(agent)
        if status is not None:
            return status
        time.sleep(LOOK_SECONDS)
    return None


def _reap(agent: int) -> int | None:
    """Wait for every child that has ended; return the agent's status if it was among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                break
            if child == agent:
                found = status
    return found


def _descendants() -> list[int]:
    """Return all processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold anything; the parent stands behind the last bracket.
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _signal_all(number: int) -> bool:
    told = False
    for process in _descendants():
        with contextlib.suppress(OSError):
            os.kill(process, number)
            told = True
    return told


def _kill_all() -> None:
    """Kill what is left, again until nothing is: what forks meanwhile is found in the next round."""
    for _ in range(KILL_ROUNDS):
        if not _signal_all(signal.SIGKILL):
            return
        time.sleep(KILL_SECONDS)
        _reap(0)


def _clean_up(command: list[str] | None) -> None:
    if command:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=CLEANUP_SECONDS,
                check=False,
            )


if __name__ == "__main__":
    main()
