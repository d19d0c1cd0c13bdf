"""Files of a run: replaced whole or not at all, and their owner's alone."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

OWN_EYES = 0o600


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file: readers see the old content or the new.

    Raises
    ------
    OSError
        When the disk refuses; the old content stays.
    """
    data = content.encode() if isinstance(content, str) else content
    half = path.with_name(f".{path.name}.tmp")
    try:
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWN_EYES), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a value as JSON."""
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
