"""The user's secret salt, and the pseudonyms and hashes that follow from it.

A pseudonym is a keyed hash (HMAC-SHA256) of a kind and a name: the same name has the same pseudonym in every data set
of one salt, and who lacks the salt can neither guess a name nor check a guess. The salt is kept with the user's
settings, never in a run.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from agentbench._core import ConfigError

SALT_BYTES = 32
NAME_DIGITS = 16
HASH_DIGITS = 32
"""As in a run directory: 128 bits, in hex."""
OWN_SHIFT = "the run's own"
"""In place of a session: the offset of times that belong to none."""
YEAR_S = 366 * 24 * 3600


class Salt:
    """Pseudonyms of one salt."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def digest(self, purpose: str, value: str) -> bytes:
        """Return the keyed hash of a value for one purpose; hashes of two purposes say nothing of each other."""
        text = f"{purpose}\0{value}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, text, "sha256")

    def name(self, kind: str, value: str, digits: int = NAME_DIGITS) -> str:
        """Return the pseudonym of a name: its kind, a hyphen, hex digits."""
        return f"{kind}-{self.digest(f'name {kind}', value).hex()[:digits]}"

    def hash(self, value: str) -> str:
        """Return the hash that stands for a content's hash."""
        return self.digest("content", value).hex()[:HASH_DIGITS]

    def chained(self, previous: str, value: str) -> str:
        """Return the hash of a block after all the blocks before it."""
        return self.digest("block", f"{previous}\0{value}").hex()[:HASH_DIGITS]

    def mask_key(self) -> bytes:
        """Return the key of the masks in texts."""
        return self.digest("masks", "")[:16]

    def shift_s(self, session: str) -> int:
        """Return by how many whole seconds a session's times are moved: up to a year, back or forth.

        Whole seconds, because they leave the gaps between two times as they are, to the last bit.
        """
        number = int.from_bytes(self.digest("shift", session)[:8])
        return number % (2 * YEAR_S) - YEAR_S


def default_path() -> Path:
    """Return where the salt lies unless the user says otherwise."""
    settings = os.environ.get("XDG_CONFIG_HOME")
    return (Path(settings) if settings else Path.home() / ".config") / "agentbench" / "salt"


def load(path: Path | None, *, outside_of: list[Path]) -> tuple[Salt, Path, bool]:
    """Read the salt, or draw one where there is none yet; return it, its place and whether it is new.

    Raises
    ------
    ConfigError
        When the file can be read by others, is too short, or lies within a folder of ``outside_of``.
    """
    path = default_path() if path is None else path
    for folder in outside_of:
        if path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{path}: the salt must not lie in {folder}; keep it elsewhere with --salt-file")
    is_new = not path.exists()
    if is_new:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(SALT_BYTES) + "\n")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigError(f"{path}: other users can read this salt; run: chmod 600 {path}")
    text = path.read_bytes().strip()
    if len(text) < SALT_BYTES:
        raise ConfigError(f"{path}: a salt has at least {SALT_BYTES} characters; remove the file and one is drawn")
    return Salt(text), path, is_new
