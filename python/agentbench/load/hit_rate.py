"""Requests that find a wanted share of their prompt in the engine's prefix cache.

Pure. Some prefixes are sent once each before anything is measured; then every request begins with one of them, in
turn, and goes on with tokens that nobody else has. What the engine really served from its cache stands beside what
was wanted: it has blocks of its own size, and room for so many.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentbench._core import ConfigError

from .plan import Blocks, Request, Session, block_size

if TYPE_CHECKING:
    from .distributions import Distribution

WHOLE_PCT = 100.0


@dataclass(frozen=True)
class HitRate:
    """What is asked for: `rate_pct` of each prompt's tokens lie in one of `prefixes` prefixes."""

    rate_pct: float
    requests: int
    prefixes: int
    input_tokens: Distribution
    output_tokens: Distribution
    seed: int = 0

    def sessions(self) -> tuple[list[Session], list[Session]]:
        """The plan: what fills the cache, and what is measured."""
        if not 0 <= self.rate_pct < WHOLE_PCT:
            raise ConfigError(
                f"a hit rate of {self.rate_pct:g} % cannot be: each prompt has a token of its own; ask for 0 to 99 %"
            )
        source = random.Random(self.seed)  # noqa: S311 - a load, no secret
        lengths = [max(1, round(self.input_tokens.draw(source))) for _ in range(self.requests)]
        blocks, size = Blocks(), block_size(max(lengths))
        shares = [round(length * self.rate_pct / WHOLE_PCT / size) for length in lengths]
        longest = max(shares)
        prefixes = [blocks.take(longest) for _ in range(self.prefixes if longest else 0)]
        measured = [
            Session(
                f"request-{index:06}",
                (self._request(prefixes, index, length, shares[index], blocks, size, source),),
            )
            for index, length in enumerate(lengths)
        ]
        # One token more: a prompt that is all in the cache would still be computed at its last block.
        filling = [
            Session(f"prefix-{index:04}", (Request(prefix, len(prefix) * size + 1, 1),))
            for index, prefix in enumerate(prefixes)
        ]
        return filling, measured

    def _request(
        self,
        prefixes: list[tuple[int, ...]],
        index: int,
        length: int,
        share: int,
        blocks: Blocks,
        size: int,
        source: random.Random,
    ) -> Request:
        shared = prefixes[index % len(prefixes)][: min(share, (length - 1) // size)] if prefixes else ()
        own = blocks.take(length // size - len(shared))
        return Request(shared + own, length, max(1, round(self.output_tokens.draw(source))))
