"""What a text says: of JSON, the whole text or some of its lines, the strings as they read, with their fields. Pure.

`detectors` searches them, `masks` puts others in their places, `gate` reads them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def pair(name: str, value: str) -> str:
    """Return a field as a line of code, in which a detector sees its name."""
    return f'"{name}": "{value}"'


def parsed(text: str) -> Any:
    """Return the object or list that a text is the JSON of; None for any other text."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def pieces(text: str) -> Iterator[tuple[Any, str]]:
    """Yield a text of which lines may be JSON in pieces, as (value, text): value None where the text is no JSON."""
    value = parsed(text)
    if value is not None:
        yield value, text
        return
    plain: list[str] = []
    for line in text.split("\n"):
        value = parsed(line)
        if value is None:
            plain.append(line)
            continue
        if plain:
            yield None, "\n".join(plain)
            plain = []
        yield value, line
    if plain:
        yield None, "\n".join(plain)


def readable(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a text says, as (field, text): of JSON its strings and its fields' names as they read."""
    for value, piece in pieces(text):
        if value is None:
            yield "", piece
        else:
            yield from _strings("", value)


def _strings(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        inner = list(readable(value))
        yield from [(name, value)] if inner == [("", value)] else inner
    elif isinstance(value, list):
        for item in value:
            yield from _strings("", item)
    elif isinstance(value, dict):
        for field, item in value.items():
            yield "", field
            yield from _strings(field, item)
