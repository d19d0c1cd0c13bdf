"""What live agents send: one conversation in the words of each API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentbench.agent import Call, Result, tool
from agentbench.agent.conversation import Conversation, arguments_object


@tool
def look(path: str) -> str:
    """Look at a file."""
    return path


SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


def told(*blocks: dict[str, Any], finish_reason: str = "tool_calls") -> dict[str, Any]:
    """An answer as the core tells it."""
    return {
        "status": "ok",
        "finish_reason": finish_reason,
        "blocks": list(blocks),
        "ttft_ms": 1.0,
        "e2e_ms": 2.0,
        "prompt_tokens": 3,
        "completion_tokens": 4,
    }


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": name, "name": "look", "arguments": arguments}


def conversation(api: str, *, keep_reasoning: bool = False, continuous_usage: bool = False) -> Conversation:
    """A question, an answer with two calls, one of which is malformed, their results, and a last word."""
    talk = Conversation(api, "m", "Be good.", [look], 64, keep_reasoning, continuous_usage)
    talk.say("Look.")
    answer = talk.heard(
        told(
            {"type": "reasoning", "text": "hm", "signature": "sig"},
            {"type": "text", "text": "I look."},
            call("c1", '{"path":  "a"}'),
            call("c2", "{nonsense"),
        )
    )
    assert answer.calls == (Call("c1", "look", '{"path":  "a"}'), Call("c2", "look", "{nonsense"))
    talk.results([Result(answer.calls[0], "text of a"), Result(answer.calls[1], "Error: no JSON", is_error=True)])
    talk.heard(told({"type": "text", "text": "Done."}, finish_reason="stop"))
    talk.say("Thanks.")
    return talk


def body(talk: Conversation) -> dict[str, Any]:
    value = json.loads(talk.body())
    assert isinstance(value, dict)
    return value


def test_chat() -> None:
    assert body(conversation("chat")) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be good."},
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"path":  "a"}'}},
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"arguments": "{nonsense"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "text of a"},
            {"role": "tool", "tool_call_id": "c2", "content": "Error: no JSON"},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "Thanks."},
        ],
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "Look at a file.", "parameters": SCHEMA}}
        ],
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    kept = body(conversation("chat", keep_reasoning=True, continuous_usage=True))
    assert kept["messages"][2]["reasoning_content"] == "hm"
    assert kept["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_messages() -> None:
    value = body(conversation("messages"))
    assert value["system"] == "Be good."
    assert value["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2", "name": "look", "input": {"arguments": "{nonsense"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "text of a"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "Error: no JSON", "is_error": True},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]
    assert value["tools"] == [{"name": "look", "description": "Look at a file.", "input_schema": SCHEMA}]
    assert (value["max_tokens"], value["stream"]) == (64, True)
    kept = body(conversation("messages", keep_reasoning=True))["messages"][1]["content"][0]
    assert kept == {"type": "thinking", "thinking": "hm", "signature": "sig"}


def test_responses() -> None:
    value = body(conversation("responses"))
    assert value["instructions"] == "Be good."
    assert value["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"path":  "a"}'},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{"arguments": "{nonsense"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "text of a"},
        {"type": "function_call_output", "call_id": "c2", "output": "Error: no JSON"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks."}]},
    ]
    assert value["tools"] == [
        {"type": "function", "name": "look", "description": "Look at a file.", "parameters": SCHEMA}
    ]
    assert (value["max_output_tokens"], value["stream"], value["store"]) == (64, True, False)
    kept = body(conversation("responses", keep_reasoning=True))["input"][1]
    assert kept["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert kept["encrypted_content"] == "sig"


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_a_body_begins_as_the_one_before(api: str) -> None:
    talk = conversation(api)
    name = "input" if api == "responses" else "messages"
    before = body(talk)[name]
    talk.heard(told({"type": "text", "text": "Bye."}, finish_reason="stop"))
    assert body(talk)[name][: len(before)] == before


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_an_answer_that_says_nothing_is_no_empty_message(api: str) -> None:
    talk = Conversation(api, "m", "s", [], 8)
    talk.say("Hi.")
    talk.heard(told(finish_reason="length"))
    talk.say("Go on.")
    value = body(talk)
    assert "tools" not in value
    assert "(no text)" in json.dumps(value)


def test_two_user_messages_in_a_row_are_one_in_messages() -> None:
    talk = Conversation("messages", "m", "s", [], 8)
    talk.say("a")
    talk.say("b")
    assert body(talk)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]


def test_calls_without_an_id_of_their_own_get_one() -> None:
    talk = Conversation("chat", "m", "s", [look], 8)
    first = talk.heard(told(call("", "{}"), call("x", "{}"), call("x", "{}")))
    second = talk.heard(told(call("x", "{}")))
    ids = [each.id for each in (*first.calls, *second.calls)]
    assert ids[1] == "x"
    assert len(set(ids)) == 4
    assert all(ids)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ("[1]", {"arguments": "[1]"}),
        ("{", {"arguments": "{"}),
        ("null", {"arguments": "null"}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(text: str, value: dict[str, Any]) -> None:
    assert arguments_object(text) == value
