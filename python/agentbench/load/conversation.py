"""Conversations: users with a common system prompt and a prefix of their own, turn after turn, to a context limit.

Pure. A conversation's prompt is system prompt, the user's prefix, then what was said: each turn brings input tokens
and leaves output tokens, which the next prompt holds. A prompt that would pass the limit is compacted: system prompt
and prefix stay, what was said becomes a summary of a quarter of the limit. The replies in a prompt are text of our own,
so an engine finds a turn's last prompt in its cache and its last reply not; real chats find both.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentbench._core import ConfigError

from .plan import Blocks, Request, Session, block_size

if TYPE_CHECKING:
    from .distributions import Distribution


@dataclass(frozen=True)
class Profile:
    """Sizes of a conversation, in tokens; `limit` is the longest prompt with its output."""

    system: int
    user: int
    input: int
    output: int
    turns: int
    limit: int


# Round figures from a help desk to an agent that fills the longest windows; no measurement of any product.
PROFILES = {
    "7k": Profile(system=500, user=1_000, input=300, output=200, turns=10, limit=7_000),
    "16k": Profile(system=1_000, user=3_000, input=600, output=300, turns=12, limit=16_000),
    "32k": Profile(system=2_000, user=8_000, input=1_200, output=400, turns=12, limit=32_000),
    "64k": Profile(system=4_000, user=20_000, input=2_500, output=500, turns=14, limit=64_000),
    "128k": Profile(system=10_000, user=40_000, input=5_000, output=600, turns=14, limit=128_000),
    "392k": Profile(system=13_000, user=150_000, input=15_000, output=800, turns=16, limit=392_000),
}
SUITES = {"quick": ("7k",), "standard": ("7k", "32k", "128k"), "full": tuple(PROFILES)}
COMPACTED_SHARE = 0.25


@dataclass(frozen=True)
class Conversation:
    """What the conversations are like; sizes in tokens, `think_s` is the wait before each further turn."""

    users: int
    conversations: int
    system_tokens: int
    user_tokens: int
    limit_tokens: int
    input_tokens: Distribution
    output_tokens: Distribution
    turns: Distribution
    think_s: Distribution
    seed: int = 0

    def sessions(self) -> list[Session]:
        """The plan: conversations go round the users."""
        fixed = self.system_tokens + self.user_tokens
        if fixed >= self.limit_tokens:
            raise ConfigError(
                f"system prompt and user prefix have {fixed:,} tokens, the context limit {self.limit_tokens:,};"
                " give a higher limit or shorter prefixes"
            )
        blocks, source = Blocks(), random.Random(self.seed)  # noqa: S311 - a load, no secret
        size = block_size(self.limit_tokens)
        system = blocks.of(self.system_tokens, size)
        users = [system + blocks.take(fixed // size - len(system)) for _ in range(self.users)]
        return [
            self._session(index, users[index % self.users], blocks, source, size) for index in range(self.conversations)
        ]

    def _session(
        self, index: int, prefix: tuple[int, ...], blocks: Blocks, source: random.Random, size: int
    ) -> Session:
        fixed = self.system_tokens + self.user_tokens
        requests: list[Request] = []
        prompt, tokens, reply = prefix, fixed, 0
        for turn in range(max(1, round(self.turns.draw(source)))):
            asked = max(1, round(self.input_tokens.draw(source)))
            output = max(1, round(self.output_tokens.draw(source)))
            tokens += reply + asked
            if tokens + output > self.limit_tokens:
                prompt, tokens = prefix, self._compacted(asked, output)
            prompt += blocks.take(tokens // size - len(prompt))
            wait_s = self.think_s.draw(source) if turn else 0.0
            requests.append(Request(prompt, tokens, output, wait_s))
            reply = output
        return Session(f"conversation-{index:05}", tuple(requests))

    def _compacted(self, asked: int, output: int) -> int:
        """Tokens of a prompt whose history became a summary."""
        fixed = self.system_tokens + self.user_tokens
        room = self.limit_tokens - output
        if fixed + 1 > room:
            raise ConfigError(
                f"an output of {output:,} tokens does not fit beside {fixed:,} tokens of prefixes within the context"
                f" limit of {self.limit_tokens:,}; give a higher limit or shorter outputs"
            )
        return min(fixed + round(COMPACTED_SHARE * self.limit_tokens) + asked, room)
