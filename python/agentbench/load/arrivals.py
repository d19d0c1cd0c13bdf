"""Requests that arrive at a rate, whatever the engine does, at one rate after another.

Pure. Each request is a session of its own; a system prompt may be common to all. When they arrive is the replay's
affair (`docs/pacing.md`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .plan import Blocks, Request, Session, block_size

if TYPE_CHECKING:
    from .distributions import Distribution


@dataclass(frozen=True)
class Arrivals:
    """What arrives; sizes in tokens."""

    requests: int
    system_tokens: int
    input_tokens: Distribution
    output_tokens: Distribution
    seed: int = 0

    def sessions(self) -> list[Session]:
        """The plan."""
        source = random.Random(self.seed)  # noqa: S311 - a load, no secret
        lengths = [self.system_tokens + max(1, round(self.input_tokens.draw(source))) for _ in range(self.requests)]
        blocks, size = Blocks(), block_size(max(lengths))
        system = blocks.of(self.system_tokens, size)
        return [
            Session(
                f"arrival-{index:06}",
                (
                    Request(
                        system + blocks.take(length // size - len(system)),
                        length,
                        max(1, round(self.output_tokens.draw(source))),
                    ),
                ),
            )
            for index, length in enumerate(lengths)
        ]
