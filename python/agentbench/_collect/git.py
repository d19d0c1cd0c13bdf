"""git as a program: run with nothing of the user's or of an agent's configuration, its errors one line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from agentbench._core import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Only what finds programs, hosts and certificates: no GIT_* variable, no configuration but our own.
KEPT = ("PATH", "HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy")
KEPT_UPPER = tuple(name.upper() for name in ("http_proxy", "https_proxy", "no_proxy"))
ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
PLAIN = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}

_GUARD = threading.Lock()
_RUNNING: set[subprocess.Popen[bytes]] = set()


class GitError(Exception):
    """git refused; the text is its last line."""


def git(*arguments: str | Path, users_config: bool = False, variables: Mapping[str, str] | None = None) -> bytes:
    """Run git and return what it printed.

    Parameters
    ----------
    arguments
        Its arguments.
    users_config
        Whether the user's own configuration counts: for reaching a remote, never in a work tree.
    variables
        More of its environment.

    Raises
    ------
    GitError
        It ended with an error.
    ConfigError
        There is no git.
    """
    kept = {name: os.environ[name] for name in (*KEPT, *KEPT_UPPER) if name in os.environ}
    environment = kept | PLAIN | ({} if users_config else ALONE) | dict(variables or {})
    try:
        process = subprocess.Popen(  # noqa: S603 arguments are our own
            ["git", *map(str, arguments)],  # noqa: S607 the user's git
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C is for the collector, which ends its gits by `end_all`.
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ConfigError("git is not on PATH; install it") from error
    with _registered(process):
        out, err = process.communicate()
    if process.returncode != 0:
        lines = err.decode(errors="replace").strip().splitlines()
        raise GitError(lines[-1] if lines else f"git ended with {process.returncode}")
    return out


@contextlib.contextmanager
def _registered(process: subprocess.Popen[bytes]) -> Iterator[None]:
    with _GUARD:
        _RUNNING.add(process)
    try:
        yield
    finally:
        with _GUARD:
            _RUNNING.discard(process)


def end_all() -> None:
    """End every git that runs for this process: each call then fails. A clone may take long."""
    with _GUARD:
        for process in _RUNNING:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
