"""One history of a conversation, and the request bodies that Chat, Messages and Responses want of it.

Pure. A body repeats all that went before in the same words, so that the engine's prefix cache finds it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .tools import Tool

NO_TEXT = "(no text)"


@dataclass(frozen=True)
class Call:
    """A tool call of the model.

    Attributes
    ----------
    id
        Its name on the wire, unique in the conversation.
    name
        The tool.
    arguments
        JSON, as the model wrote it.
    """

    __module__ = "agentbench.agent"

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """What the model said to one request.

    Attributes
    ----------
    text
        What it said.
    reasoning
        What it thought, where the API tells.
    calls
        The tools that it called.
    finish_reason
        ``stop``, ``length``, ``tool_calls``, or what else the API says.
    ttft_ms, e2e_ms
        Milliseconds to the first chunk with output, and to the end.
    prompt_tokens, completion_tokens
        By usage; None where it does not tell.
    """

    __module__ = "agentbench.agent"

    text: str
    reasoning: str
    calls: tuple[Call, ...]
    finish_reason: str | None
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    blocks: tuple[dict[str, Any], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Result:
    """What a call came to.

    Attributes
    ----------
    call
        The call.
    text
        What the model is told.
    is_error
        Whether the tool failed.
    malformed
        Whether no tool could take the call.
    seconds
        How long the tool took.
    """

    __module__ = "agentbench.agent"

    call: Call
    text: str
    is_error: bool = False
    malformed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Said:
    """Something that the user says."""

    text: str


Entry = Said | Reply | tuple[Result, ...]


@dataclass
class Conversation:
    """A conversation as it grows.

    Attributes
    ----------
    api
        ``chat``, ``messages`` or ``responses``.
    model
        The model asked for.
    system
        The system prompt.
    tools
        The tools offered.
    max_tokens
        Most output tokens of an answer.
    keep_reasoning
        Whether the model's reasoning is sent back with its answers.
    continuous_usage
        Whether Chat's chunks are to tell the tokens so far.
    """

    api: str
    model: str
    system: str
    tools: Sequence[Tool]
    max_tokens: int
    keep_reasoning: bool = False
    continuous_usage: bool = False
    entries: list[Entry] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set, repr=False)

    def say(self, text: str) -> None:
        """Add what the user says."""
        self.entries.append(Said(text))

    def heard(self, told: dict[str, Any]) -> Reply:
        """Add an answer as the core tells it, and return it."""
        answer = self._answer(told)
        self.entries.append(answer)
        return answer

    def results(self, results: Sequence[Result]) -> None:
        """Add what the calls of the last answer came to."""
        self.entries.append(tuple(results))

    def body(self) -> bytes:
        """Return the next request's body."""
        return json.dumps(BODIES[self.api](self), ensure_ascii=False).encode()

    def _answer(self, told: dict[str, Any]) -> Reply:
        blocks = []
        for block in told["blocks"]:
            if block["type"] == "tool_call":
                # A result is tied to its call by the id alone.
                name = block["id"]
                number = len(self._ids)
                while not name or name in self._ids:
                    name, number = f"call_{number}", number + 1
                self._ids.add(name)
                block = {**block, "id": name}  # noqa: PLW2901 the same with an id
            blocks.append(block)

        def text(kind: str) -> str:
            return "".join(block["text"] for block in blocks if block["type"] == kind)

        calls = [block for block in blocks if block["type"] == "tool_call"]
        return Reply(
            text=text("text"),
            reasoning=text("reasoning"),
            calls=tuple(Call(block["id"], block["name"], block["arguments"]) for block in calls),
            finish_reason=told["finish_reason"],
            ttft_ms=told["ttft_ms"],
            e2e_ms=told["e2e_ms"],
            prompt_tokens=told["prompt_tokens"],
            completion_tokens=told["completion_tokens"],
            blocks=tuple(blocks),
        )


def arguments_object(arguments: str) -> dict[str, Any]:
    """Return a call's arguments as the object that the APIs want; what is none is an object that holds its text."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _arguments_text(arguments: str) -> str:
    value = arguments_object(arguments)
    # As the model wrote them where they are what they should be: its own tokens are in the cache.
    return arguments if arguments.strip() and value != {"arguments": arguments} else json.dumps(value)


def chat_body(conversation: Conversation) -> dict[str, Any]:
    """Return a body for ``/v1/chat/completions``."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": conversation.system}]
    for entry in conversation.entries:
        if isinstance(entry, Said):
            messages.append({"role": "user", "content": entry.text})
        elif isinstance(entry, Reply):
            messages.append(_chat_answer(entry, keep_reasoning=conversation.keep_reasoning))
        else:
            messages += [{"role": "tool", "tool_call_id": each.call.id, "content": each.text} for each in entry]
    tools = [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.schema},
        }
        for each in conversation.tools
    ]
    usage = {"include_usage": True} | ({"continuous_usage_stats": True} if conversation.continuous_usage else {})
    return {
        "model": conversation.model,
        "messages": messages,
        **({"tools": tools} if tools else {}),
        "max_tokens": conversation.max_tokens,
        "stream": True,
        "stream_options": usage,
    }


def _chat_answer(answer: Reply, *, keep_reasoning: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.calls else NO_TEXT)}
    if keep_reasoning and answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments_text(call.arguments)},
            }
            for call in answer.calls
        ]
    return message


def messages_body(conversation: Conversation) -> dict[str, Any]:
    """Return a body for ``/v1/messages``."""
    messages: list[dict[str, Any]] = []
    for entry in conversation.entries:
        if isinstance(entry, Reply):
            blocks = list(_messages_blocks(entry, keep_reasoning=conversation.keep_reasoning))
            messages.append({"role": "assistant", "content": blocks or [{"type": "text", "text": NO_TEXT}]})
            continue
        if isinstance(entry, Said):
            blocks = [{"type": "text", "text": entry.text}]
        else:
            blocks = [
                {
                    "type": "tool_result",
                    "tool_use_id": each.call.id,
                    "content": each.text,
                    **({"is_error": True} if each.is_error else {}),
                }
                for each in entry
            ]
        if messages and messages[-1]["role"] == "user":
            # Roles take turns.
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": "user", "content": blocks})
    tools = [
        {"name": each.name, "description": each.description, "input_schema": each.schema} for each in conversation.tools
    ]
    return {
        "model": conversation.model,
        "system": conversation.system,
        "messages": messages,
        **({"tools": tools} if tools else {}),
        "max_tokens": conversation.max_tokens,
        "stream": True,
    }


def _messages_blocks(answer: Reply, *, keep_reasoning: bool) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for block in answer.blocks:
        if block["type"] == "text" and block["text"]:
            blocks.append({"type": "text", "text": block["text"]})
        elif block["type"] == "tool_call":
            told = {"id": block["id"], "name": block["name"], "input": arguments_object(block["arguments"])}
            blocks.append({"type": "tool_use", **told})
        elif block["type"] == "reasoning" and keep_reasoning:
            signature = block.get("signature")
            if not block["text"] and signature:
                blocks.append({"type": "redacted_thinking", "data": signature})
            else:
                blocks.append({"type": "thinking", "thinking": block["text"], "signature": signature or ""})
    return blocks


def responses_body(conversation: Conversation) -> dict[str, Any]:
    """Return a body for ``/v1/responses``."""
    items: list[dict[str, Any]] = []
    for entry in conversation.entries:
        if isinstance(entry, Said):
            content = [{"type": "input_text", "text": entry.text}]
            items.append({"type": "message", "role": "user", "content": content})
        elif isinstance(entry, Reply):
            items += _responses_items(entry, len(items), keep_reasoning=conversation.keep_reasoning)
        else:
            items += [{"type": "function_call_output", "call_id": each.call.id, "output": each.text} for each in entry]
    tools = [
        {"type": "function", "name": each.name, "description": each.description, "parameters": each.schema}
        for each in conversation.tools
    ]
    return {
        "model": conversation.model,
        "instructions": conversation.system,
        "input": items,
        **({"tools": tools} if tools else {}),
        "max_output_tokens": conversation.max_tokens,
        "stream": True,
        "store": False,
    }


def _responses_items(answer: Reply, before: int, *, keep_reasoning: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in answer.blocks:
        if block["type"] == "text" and block["text"]:
            content = [{"type": "output_text", "text": block["text"]}]
            items.append({"type": "message", "role": "assistant", "content": content})
        elif block["type"] == "tool_call":
            arguments = _arguments_text(block["arguments"])
            told = {"call_id": block["id"], "name": block["name"], "arguments": arguments}
            items.append({"type": "function_call", **told})
        elif block["type"] == "reasoning" and keep_reasoning:
            # A reasoning item has to have a name; nobody looks it up.
            item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{before + len(items)}", "summary": []}
            item["content"] = [{"type": "reasoning_text", "text": block["text"]}]
            if block.get("signature"):
                item["encrypted_content"] = block["signature"]
            items.append(item)
    if not items:
        content = [{"type": "output_text", "text": NO_TEXT}]
        items.append({"type": "message", "role": "assistant", "content": content})
    return items


BODIES: dict[str, Callable[[Conversation], dict[str, Any]]] = {
    "chat": chat_body,
    "messages": messages_body,
    "responses": responses_body,
}
