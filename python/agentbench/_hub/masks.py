"""Texts as they leave at level ``text-redacted``: with masks for whatever tells who and where.

A mask is a keyed hash of what it stands for, so the same text has the same mask in every row of the data set. JSON
stays JSON: masks are set in its strings, as they read, and in JSON that stands in a string again. What is found is
told by `detectors`; names that the run itself holds (of tools, of sessions) are replaced by their pseudonyms.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .detectors import MASK, SHORT, merged, secrets_in
from .strings import pair, pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .detectors import Detectors
    from .salt import Salt

MASK_DIGITS = 10
PASSES = 4
"""A mask may leave beside it what has a shape only now; more than a second pass is rare."""
WITHIN = ("run", "session", "engine", "model", "agent", "tool", "mcp")
"""Kinds of names that are looked for within texts."""
IDENTIFIER = re.compile(r"(?=.*(?:[_-]|[a-z][A-Z]|\d))[\w.-]{6,}")
"""Names that cannot be words of a sentence, so that they are replaced wherever they stand."""


class TextMasks:
    """Masks of one data set.

    Parameters
    ----------
    salt
        The user's, from which masks follow.
    detectors
        What is looked for.
    names
        Names that the run holds, with their pseudonyms.
    """

    def __init__(self, salt: Salt, detectors: Detectors, names: Mapping[str, str]) -> None:
        self._salt = salt
        self._detectors = detectors
        self._names = dict(names)
        longest_first = sorted(self._names, key=len, reverse=True)
        # Ids of requests and calls stand alone, and there are too many of them to look for each within each text.
        kinds = tuple(f"{kind}-" for kind in WITHIN)
        self._within = [
            name
            for name in longest_first
            if MASK.fullmatch(self._names[name]) or (IDENTIFIER.fullmatch(name) and self._names[name].startswith(kinds))
        ]
        self.string = lru_cache(maxsize=20_000)(self._string)

    def lines(self, text: str) -> str:
        """Mask a text, which may be JSON, or have lines that are, as prompts and replies are written down."""
        return "\n".join(
            self.string(piece) if value is None else _dumped(self._value(value)) for value, piece in pieces(text)
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {self.string(key): self._field(key, item) for key, item in value.items()}
        return value

    def _field(self, name: str, value: Any) -> Any:
        """Mask a field's value; a short one whose name says that it is a secret as a whole."""
        if isinstance(value, str) and value not in self._names:
            found = next(iter(secrets_in(pair(name, value))), None) if len(value) <= SHORT else None
            if found is not None:
                return self._masked(value, [(found[0], 0, len(value))])
        return self._value(value)

    def _string(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        if any(value is not None for value, _ in pieces(text)):
            return self.lines(text)
        for name in [name for name in self._within if name in text]:
            is_secret = MASK.fullmatch(self._names[name]) is not None
            pattern = re.escape(name) if is_secret else rf"(?<!\w){re.escape(name)}(?!\w)"
            text = re.sub(pattern, self._names[name], text)
        for _ in range(PASSES):
            places = merged(self._detectors.find(text))
            if not places:
                break
            text = self._masked(text, places)
        return text

    def _masked(self, text: str, places: list[tuple[str, int, int]]) -> str:
        parts: list[str] = []
        position = 0
        for name, start, end in places:
            parts += [text[position:start], mask(self._salt, name, text[start:end])]
            position = end
        return "".join(parts) + text[position:]


def mask(salt: Salt, name: str, text: str) -> str:
    """Return what stands in place of a text that the rule of that name found."""
    return f"redacted-{name}-{salt.digest('mask', text).hex()[:MASK_DIGITS]}"


def _dumped(value: Any) -> str:
    """Return JSON as the agents write it; half of a surrogate pair, which no file can hold, as a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode("utf-8")
