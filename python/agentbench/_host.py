"""Names of this machine and of its user, for recordings in which they must not stand."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import pwd
import socket
from pathlib import Path


def names() -> tuple[list[str], list[str]]:
    """Return the user's names (login, full name, home folder) and the machine's (whole and short)."""
    users: set[str] = set()
    hosts = {socket.gethostname(), platform.node()}
    # A container may run a user that no database knows, and that has no home.
    with contextlib.suppress(RuntimeError):
        users.add(Path.home().name)
    with contextlib.suppress(OSError, KeyError):
        users.add(getpass.getuser())
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(os.getuid())
        users |= {entry.pw_name, entry.pw_gecos.partition(",")[0].strip(), Path(entry.pw_dir).name}
    hosts |= {host.partition(".")[0] for host in hosts}
    return sorted(filter(None, users)), sorted(filter(None, hosts))
