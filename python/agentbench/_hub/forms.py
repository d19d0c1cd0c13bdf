"""What a value may look like after its rule, told a second time: the gate trusts no rule to have done its work."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from . import words
from .rules import MODEL_LENGTH, tally

if TYPE_CHECKING:
    from collections.abc import Callable

HASH = re.compile(r"[0-9a-f]{32}")
TOOL = re.compile(r"tool-[0-9a-f]{10}|mcp-[0-9a-f]{10}-[0-9a-f]{10}")
FREE = frozenset({"masked", "masked_attempts", "text"})
"""Rules of texts: any string, which is searched instead."""
NUMBERS = frozenset({"number", "time", "link"})


def of(rule: str, public: frozenset[str]) -> Callable[[Any], bool] | None:
    """Return what holds of every value that a rule makes; None where it may be any text."""
    name, _, argument = rule.partition(":")
    if name in FREE:
        return None
    if name in NUMBERS:
        # Numbers are not asked: whatever is asked here is none.
        return lambda _: False
    forms: dict[str, Callable[[Any], bool]] = {
        "name": lambda value: re.fullmatch(rf"{argument}-[0-9a-f]{{16}}", value) is not None,
        "word": lambda value: value in words.WORDS[argument],
        "words": lambda value: all(word in words.WORDS[argument] for word in value),
        "tally": lambda value: (
            _numbers(value, lambda key: key == "other" or key in words.WORDS[argument])
            and tally(value, words.WORDS[argument] | {"other"}) == value
        ),
        "conditions": lambda value: _numbers(value, lambda key: words.CONDITION.fullmatch(key) is not None),
        "parameters": lambda value: words.kept(json.loads(value), words.PARAMETERS) == json.loads(value),
        "path": lambda value: words.API_PATH.fullmatch(value) is not None,
        "chain": lambda value: all(HASH.fullmatch(word) for word in ([value] if isinstance(value, str) else value)),
        "unit": lambda value: all(HASH.fullmatch(word) for word in ([value] if isinstance(value, str) else value)),
        "tool": lambda value: is_tool(value, public),
        "model": lambda value: (
            value in public
            or re.fullmatch(r"model-[0-9a-f]{16}", value) is not None
            or (len(value) <= MODEL_LENGTH and words.MODEL.fullmatch(value) is not None)
        ),
        "agent": lambda value: (
            value in public or value in words.WORDS["agent"] or re.fullmatch(r"agent-[0-9a-f]{16}", value) is not None
        ),
        "shape": lambda value: is_shape(value, public),
        "attempts": lambda value: all(attempt["error"] is None for attempt in value),
    }
    return forms[name]


def is_tool(name: str, public: frozenset[str]) -> bool:
    """Return whether a tool's name may leave."""
    return name in words.TOOLS or name in public or TOOL.fullmatch(name) is not None


def is_shape(text: str, public: frozenset[str]) -> bool:
    """Return whether a unit tells roles, kinds of blocks and the name of a tool, and nothing else."""
    if not text:
        return True
    unit = json.loads(text)
    content = unit.get("content", "")
    blocks = [*(content if isinstance(content, list) else []), *unit.get("tool_calls", [])]
    return (
        set(unit) <= {"role", "type", "name", "content", "tool_calls"}
        and unit.get("role", "") in words.WORDS["role"]
        and unit.get("type", "text") in words.WORDS["block"]
        and is_tool(unit.get("name", "Bash"), public)
        and (content == "" or isinstance(content, list))
        and all(set(block) == {"type"} and block["type"] in words.WORDS["block"] | {"other"} for block in blocks)
    )


def _numbers(text: str, is_key: Callable[[str], bool]) -> bool:
    """Return whether a text is a JSON object of numbers by keys that may be."""
    value = json.loads(text)
    return isinstance(value, dict) and all(
        is_key(key) and (figure is None or words.fits(figure, float)) for key, figure in value.items()
    )
