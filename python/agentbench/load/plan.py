"""A load shape's requests before anybody sends them: lengths, and of what blocks prompts are made.

Pure. A prompt is a row of blocks of one size; equal block numbers are equal tokens, so what prompts share is what their
leading numbers share. The last, shorter part of a prompt is the request's own. `trace` writes a plan down.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FINE, COARSE = 16, 512
"""Tokens of a block. Engines share prefixes by blocks of 16 or more; long contexts get fewer, larger ones."""
LONG_CONTEXT_TOKENS = 65_536


@dataclass(frozen=True)
class Request:
    """One request of a session: its prompt's full blocks, its lengths, and the wait before it."""

    blocks: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    wait_s: float = 0.0


@dataclass(frozen=True)
class Session:
    """Requests that follow each other."""

    name: str
    requests: tuple[Request, ...]


def block_size(longest_tokens: int) -> int:
    """Tokens of a block, for prompts of at most so many tokens."""
    return FINE if longest_tokens <= LONG_CONTEXT_TOKENS else COARSE


class Blocks:
    """Numbers of blocks that no other prompt has."""

    def __init__(self) -> None:
        self._next: Iterator[int] = count()

    def take(self, blocks: int) -> tuple[int, ...]:
        """So many new ones."""
        return tuple(next(self._next) for _ in range(blocks))

    def of(self, tokens: int, size: int) -> tuple[int, ...]:
        """The full blocks of so many tokens."""
        return self.take(tokens // size)
