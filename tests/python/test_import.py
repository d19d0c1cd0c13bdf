"""Others' recordings become run directories whose every figure is the source's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentbench

SAMPLES = Path(os.environ.get("AGENTBENCH_SAMPLES", Path(__file__).parents[3] / "shared" / "samples")) / "tracelab"
needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason=f"the samples of TraceLab are not at {SAMPLES}; AGENTBENCH_SAMPLES names their folder"
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> agentbench.Run:
    out = tmp_path_factory.mktemp("imported") / "logs"
    return agentbench.import_traces([SAMPLES / "claude", SAMPLES / "codex"], out=out)


@pytest.fixture(scope="module")
def rounds() -> list[dict[str, Any]]:
    lines = (SAMPLES / "derived_round_trace.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def by_agent(run: agentbench.Run, agent: str) -> pd.DataFrame:
    turns = run.turns().to_pandas()
    return turns[turns["agent"] == agent].sort_values("turn", ignore_index=True)


@needs_samples
@pytest.mark.parametrize(("agent", "provider"), [("claude-code", "claude"), ("codex", "codex")])
def test_raw_logs_give_tracelabs_own_rows(
    logs: agentbench.Run, rounds: list[dict[str, Any]], agent: str, provider: str
) -> None:
    expected = [row for row in rounds if row["provider"] == provider]
    turns = by_agent(logs, agent)
    assert list(turns["request_id"]) == [row["round_id"] for row in expected]
    for column, field in {
        "model": "model",
        "isl": "input_tokens_total",
        "isl_cached": "prefix_tokens",
        "isl_new": "newly_append_tokens",
        "osl": "output_tokens",
        "isl_cache_write": "claude_cache_creation_input_tokens",
        "reasoning_tokens": "reasoning_output_tokens",
    }.items():
        ours = [None if pd.isna(value) else value for value in turns[column]]
        assert ours == [row[field] for row in expected], column
    for turn, row in zip(turns.to_dict("records"), expected, strict=True):
        inputs = [it["timestamp"] for it in row["timing_events"] if it["event_type"] in {"user_message", "tool_result"}]
        outputs = [it["timestamp"] for it in row["timing_events"] if it["timestamp"] not in inputs]
        assert turn["request_time"] == pytest.approx(max(map(unix, inputs)), abs=1e-3)
        # Codex: the report of tokens ends the response, and is an event there too.
        assert turn["response_end_time"] == pytest.approx(max(map(unix, outputs)), abs=1e-3)
        assert pd.isna(turn["ttft_ms"]), "a log does not tell when the first token came"


def unix(text: str) -> float:
    return pd.Timestamp(text).timestamp()


@needs_samples
@pytest.mark.parametrize(("agent", "provider"), [("claude-code", "claude"), ("codex", "codex")])
def test_tool_calls_of_raw_logs_are_tracelabs(
    logs: agentbench.Run, rounds: list[dict[str, Any]], agent: str, provider: str
) -> None:
    expected = [tool for row in rounds if row["provider"] == provider for tool in row["tools"]]
    calls = logs.tool_calls().to_pandas()
    calls = calls[calls["request_id"].isin(by_agent(logs, agent)["request_id"])]
    calls = calls.sort_values(["turn", "index"], ignore_index=True)
    assert list(calls["call_id"]) == [tool["tool_call_id"] for tool in expected]
    assert list(calls["name"]) == [tool["tool_name"] for tool in expected]
    for call, tool in zip(calls.to_dict("records"), expected, strict=True):
        assert round(call["wire_ms"]) == tool["tool_wall_latency_ms"]
        own_ms, told_ms = call["own_ms"], tool["tool_internal_latency_ms"]
        # TraceLab rounds to whole milliseconds.
        assert (None if pd.isna(own_ms) else round(own_ms)) == told_ms
        assert (None if pd.isna(call["is_error"]) else call["is_error"]) == tool["is_error"]
        # We count bytes, TraceLab characters.
        assert call["result_bytes"] >= tool["result_chars"]
        arguments = json.loads(call["arguments"])
        told = tool["input"]
        assert arguments == (json.loads(told) if isinstance(told, str) else told)


@needs_samples
def test_tracelabs_rows_give_the_same_turns_as_the_logs(logs: agentbench.Run, tmp_path: Path) -> None:
    rows = agentbench.import_traces([SAMPLES / "derived_round_trace.jsonl"], out=tmp_path / "rows")
    for agent in ("claude-code", "codex"):
        ours, theirs = by_agent(logs, agent), by_agent(rows, agent)
        same = ["turn", "model", "isl", "isl_cached", "isl_new", "osl", "reasoning_tokens"]
        pd.testing.assert_frame_equal(ours[same], theirs[same])
        for column in ("request_time", "response_end_time", "e2e_ms", "tool_exec_ms"):
            pd.testing.assert_series_equal(ours[column], theirs[column], atol=1e-3, rtol=0, check_exact=False)
    a, b = (run.tool_calls().to_pandas().sort_values("call_id", ignore_index=True) for run in (logs, rows))
    pd.testing.assert_frame_equal(a[["call_id", "name"]], b[["call_id", "name"]])
    lacks = rows.manifest["settings"]["lacks"]
    assert any(lack.startswith("no turn has text:") for lack in lacks)


def lines(path: Path, *records: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((it if isinstance(it, str) else json.dumps(it)) + "\n" for it in records))
    return path


def assistant(message_id: str, second: int, content: list[dict[str, Any]], output: int, **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": output,
    }
    message = {"id": message_id, "role": "assistant", "model": "m", "content": content, "usage": usage}
    return entry("assistant", second, message, **more)


def entry(kind: str, second: int, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    record = {"type": kind, "sessionId": "s", "timestamp": f"2026-01-01T00:00:{second:02}Z", "message": message}
    return {"uuid": f"{kind}-{second}"} | record | more


def asked(second: int, content: Any, **more: Any) -> dict[str, Any]:
    return entry("user", second, {"role": "user", "content": content}, **more)


def used(call_id: str, command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def test_the_rules_of_claude_codes_logs(tmp_path: Path) -> None:
    log = tmp_path / "projects" / "p" / "s.jsonl"
    lines(
        log,
        {"type": "mode", "sessionId": "s", "mode": "default"},
        asked(0, "do it"),
        # One reply in three records; the result of its first call stands between. The first usage is a placeholder.
        assistant("a", 2, [{"type": "text", "text": "well"}], 1),
        assistant("a", 3, [used("c1", "ls")], 40),
        asked(4, [result("c1", "x\u00e9")], toolUseResult={"durationMs": 700}),
        assistant("a", 5, [used("c2", "pwd")], 40, message_extra=1),
        asked(7, [result("c2", "/")], toolUseResult={"durationSeconds": 1.5}),
        # Not a model's: left out.
        entry("assistant", 8, {"id": "x", "role": "assistant", "model": "<synthetic>", "content": []}),
        assistant("b", 9, [{"type": "text", "text": "done"}], 7),
        # A compaction begins the prompt anew.
        asked(20, "what went before", isCompactSummary=True),
        asked(21, "go on"),
        assistant("c", 22, [{"type": "text", "text": "yes"}], 8),
        "{ no json",
    )
    sidechain = {"isSidechain": True, "agentId": "one"}
    lines(
        log.with_suffix("") / "subagents" / "agent-one.jsonl",
        asked(3, "look", **sidechain),
        assistant("d", 4, [{"type": "text", "text": "seen"}], 3, **sidechain),
    )
    lines(log.with_suffix("") / "subagents" / "agent-one.meta.json", {"toolUseId": "c1"})
    # A fork tells the history again under its own id.
    history = [json.loads(line) for line in log.read_text().splitlines()[1:6]]
    own = [asked(50, "else"), assistant("e", 51, [{"type": "text", "text": "no"}], 2)]
    lines(log.parent / "f.jsonl", *[record | {"sessionId": "f"} for record in (*history, *own)])

    run = agentbench.import_traces([tmp_path / "projects"], out=tmp_path / "run")
    turns = run.turns().to_pandas().set_index("request_id")
    assert set(turns.index) == {"a", "b", "c", "d", "e"}
    assert turns["osl"].to_dict() == {"a": 40, "b": 7, "c": 8, "d": 3, "e": 2}
    assert set(turns["isl"]) == {125}
    assert set(turns["isl_new"]) == {25}
    assert turns["kind"].to_dict() == {"a": "main", "b": "main", "c": "main", "d": "subagent", "e": "main"}
    assert list(turns.loc["d", ["thread_id", "parent_thread_id"]]) == ["s/agent-one", "s"]
    assert turns.loc["e", "session_id"] == "f"
    # The request is made once its last input is there; the reply ends with its last record.
    assert turns.loc["a", "e2e_ms"] == 5000
    assert list(turns.loc["b", ["e2e_ms", "tool_exec_ms"]]) == [2000, 2000]
    assert turns["n_messages"].to_dict() == {"a": 1, "b": 3, "c": 1, "d": 1, "e": 3}
    assert turns["n_shared_units"].to_dict() == {"a": 0, "b": 1, "c": 0, "d": 0, "e": 1}
    body = json.loads(run.request_body("b"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [{"type": "text", "text": "well"}, used("c1", "ls"), used("c2", "pwd")]
    assert body["messages"][2]["content"] == [result("c1", "x\u00e9"), result("c2", "/")]
    calls = run.tool_calls().to_pandas().set_index("call_id")
    assert calls["own_ms"].to_dict() == {"c1": 700, "c2": 1500}
    assert calls["wire_ms"].to_dict() == {"c1": 1000, "c2": 2000}
    assert calls["result_bytes"].to_dict() == {"c1": 3, "c2": 1}
    settings, counts = run.manifest["settings"], run.manifest["counts"]
    assert counts["turns_told_again"] == 1
    (problem,) = settings["problems"]
    assert (problem["file"], problem["line"]) == (str(log), 13)


def row(kind: str, second: float, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{second:06.3f}Z", "type": kind, "payload": payload}


def tokens(second: float, last: int, total: int) -> dict[str, Any]:
    usage = {"input_tokens": last, "cached_input_tokens": 10, "output_tokens": 4, "reasoning_output_tokens": 1}
    info = {"last_token_usage": usage, "total_token_usage": usage | {"input_tokens": total}}
    return row("event_msg", second, type="token_count", info=info)


def message(second: float, role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return row("response_item", second, type="message", role=role, content=[{"type": kind, "text": text}])


def test_the_rules_of_codexs_logs(tmp_path: Path) -> None:
    first = [
        row("turn_context", 1, turn_id="t1", model="m"),
        message(1, "user", "do it"),
        row("response_item", 2, type="function_call", name="exec", call_id="c1", arguments='{"cmd":"ls"}'),
        tokens(2.5, 100, 100),
        # The same report again is an echo.
        tokens(2.6, 100, 100),
        row(
            "event_msg",
            4,
            type="exec_command_end",
            call_id="c1",
            duration={"secs": 1, "nanos": 250_000_000},
            exit_code=1,
        ),
        row("response_item", 4.5, type="function_call_output", call_id="c1", output="Wall time: 9 seconds"),
        message(6, "assistant", "done"),
        tokens(6, 120, 220),
    ]
    folder = tmp_path / "sessions"
    meta = row("session_meta", 0, id="one", base_instructions={"text": "be good"})
    lines(folder / "a.jsonl", meta, *first)
    fork = row("session_meta", 30, id="two", forked_from_id="one", base_instructions={"text": "be good"})
    own = [
        row("turn_context", 31, turn_id="t2", model="m"),
        message(31, "user", "more"),
        message(33, "assistant", "ok"),
        tokens(33, 140, 360),
    ]
    lines(folder / "b.jsonl", fork, meta, *first, *own)
    child = row("session_meta", 40, id="three", source={"subagent": {"thread_spawn": {"parent_thread_id": "one"}}})
    sub = [
        row("turn_context", 41, turn_id="t3", model="m"),
        message(41, "user", "sub"),
        message(42, "assistant", "k"),
        tokens(42, 50, 50),
    ]
    lines(folder / "c.jsonl", child, *sub)

    run = agentbench.import_traces([folder], out=tmp_path / "run")
    turns = run.turns().to_pandas().set_index("request_id")
    assert turns["isl"].to_dict() == {"t1:0": 100, "t1:1": 120, "t2:0": 140, "t3:0": 50}
    assert turns["thread_id"].to_dict() == {"t1:0": "one", "t1:1": "one", "t2:0": "two", "t3:0": "three"}
    assert turns["session_id"].to_dict() == {"t1:0": "one", "t1:1": "one", "t2:0": "two", "t3:0": "one"}
    assert list(turns.loc["t3:0", ["kind", "parent_thread_id"]]) == ["subagent", "one"]
    assert turns["e2e_ms"].to_dict() == {"t1:0": 1500, "t1:1": 1500, "t2:0": 2000, "t3:0": 1000}
    assert turns.loc["t1:1", "tool_exec_ms"] == 2000
    assert turns.loc["t2:0", "n_messages"] == 5, "the fork's prompt holds the history"
    assert run.manifest["counts"]["turns_told_again"] == 2
    (call,) = run.tool_calls().to_pandas().to_dict("records")
    # What the agent measured is better than what its text says.
    assert (call["own_ms"], call["wire_ms"], call["is_error"]) == (1250, 2500, True)
    body = json.loads(run.request_body("t1:0"))
    assert body["instructions"] == "be good"
    assert body["input"][0]["content"][0]["text"] == "do it"


HASHED = {"timestamp": 1500, "input_length": 1030, "output_length": 7, "hash_ids": [1, 2, 3]}
WEKA = {
    "id": "w",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        {"t": 0.5, "type": "s", "model": "m", "in": 100, "out": 9, "hash_ids": [1, 2], "api_time": 2.0, "ttft": 0.25},
        {
            "type": "subagent",
            "agent_id": "a",
            "requests": [{"t": 3.0, "type": "n", "in": 64, "out": 1, "hash_ids": [9]}],
        },
        {"t": 4.0, "type": "s", "model": "m", "in": 130, "out": 3, "hash_ids": [1, 2, 5], "api_time": 1.0},
    ],
}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "do it"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "abc"},
    {"role": "assistant", "content": "done"},
]
CLAW = {
    "index": 3,
    "request_body": {"model": "m", "messages": CHAT[:2], "stream": True},
    "response_chunks": [
        'data: {"choices":[{"delta":{"content":"hi"}}]}',
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ],
    "ttft_ms": 12.5,
    "e2e_ms": 40.0,
    "input_tokens": 20,
    "output_tokens": 2,
    "status_code": 200,
    "error": None,
}
MLPERF = [
    {"conversation_id": "v", "turn": 0, "role": "user", "content": "do it", "system": "be good"},
    {"conversation_id": "v", "turn": 1, "role": "assistant", "content": "", "tool_calls": CHAT[2]["tool_calls"]},
    {
        "conversation_id": "v",
        "turn": 2,
        "role": "tool",
        "tool_results": [{"tool_call_id": "c", "content": "abc"}],
        "delay_seconds": 0.5,
    },
    {"conversation_id": "v", "turn": 3, "role": "assistant", "content": "done"},
]
AGENTPERF = {
    "conversation_id": "k",
    "task_id": "t",
    "turn_id": 0,
    "messages": CHAT[:2],
    "simulated_tool_delay_ms_after": 80.0,
    "recorded_prompt_tokens": 30,
    "recorded_completion_tokens": 5,
    "target_output_tokens": 6,
    "recorded_tool_calls_after": [{"name": "ls", "duration_ms": 70.0}],
}
BATCH = {
    "schema_version": 1,
    "trajectory_id": "b",
    "metadata": {},
    "requests": [
        {"prompt_tokens": 10, "output_tokens": 5, "delay_after_ms": 90},
        {"prompt_tokens": 40, "output_tokens": 6},
    ],
}
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,472,18,490,API log"
BAILIAN = [
    {
        "chat_id": 7,
        "parent_chat_id": -1,
        "timestamp": 2.0,
        "input_length": 40,
        "output_length": 3,
        "turn": 1,
        "hash_ids": [1, 2, 3],
    },
    {
        "chat_id": 9,
        "parent_chat_id": 7,
        "timestamp": 9.0,
        "input_length": 70,
        "output_length": 4,
        "turn": 2,
        "hash_ids": [1, 2, 3, 4, 5],
    },
]
AGENTIC = [
    {
        "request_id": "r0",
        "session_id": "s",
        "input_length": 600,
        "output_length": 3,
        "hash_ids": [1, 2],
        "timestamp": 0,
    },
    {
        "request_id": "r1",
        "session_id": "s",
        "input_length": 700,
        "output_length": 3,
        "hash_ids": [1, 5],
        "wait_for": ["r0"],
        "tool_wait_ms": 250,
        "tool_events": [{"tool": "ls", "start_ms": 0, "end_ms": 200}],
    },
]
NETPREME = {"request_time": 100.0, "tool_exec_ms": None, "isl_new_text": "hello", "isl_text": "hello", "osl_text": "hi"}

# Format, records, and of its turns: ISL, OSL, wait before, request time, TTFT.
FORMATS = [
    ("mooncake", [HASHED], [(1030, 7, None, 1.5, None)]),
    ("mooncake-agentic", AGENTIC, [(600, 3, None, 0.0, None), (700, 3, 250, 0.0, None)]),
    ("bailian", BAILIAN, [(40, 3, None, 2.0, None), (70, 4, None, 9.0, None)]),
    ("weka", [WEKA], [(100, 9, None, 0.5, 250), (64, 1, None, 3.0, None), (130, 3, 1500, 4.0, None)]),
    ("messages", [{"id": "g", "messages": CHAT}], [(None, None, None, 0.0, None)] * 2),
    ("clawperf", [CLAW], [(20, 2, None, 0.0, 12.5)]),
    ("mlperf", MLPERF, [(None, None, None, 0.0, None), (None, None, 500, 0.0, None)]),
    ("agentperf", [AGENTPERF], [(30, 5, None, 0.0, None)]),
    ("batchbench", [BATCH], [(10, 5, None, 0.0, None), (40, 6, 90, 0.0, None)]),
    ("burstgpt", [BURST], [(472, 18, None, 5.0, None)]),
    ("netpreme", [NETPREME], [(None, None, None, 100.0, None)]),
]


@pytest.mark.parametrize(("layout", "records", "expected"), FORMATS, ids=[it[0] for it in FORMATS])
def test_what_a_format_tells_is_read_and_what_it_lacks_is_null(
    tmp_path: Path, layout: str, records: list[Any], expected: list[tuple[float | None, ...]]
) -> None:
    source = lines(tmp_path / "source" / ("trace.csv" if layout == "burstgpt" else "trace.jsonl"), *records)
    run = agentbench.import_traces([source], out=tmp_path / "run")
    assert run.manifest["settings"]["formats"] == [layout]
    turns = run.turns().to_pandas()
    columns = ["isl", "osl", "tool_exec_ms", "request_time", "ttft_ms"]
    read = [
        tuple(None if pd.isna(value) else value for value in turn) for turn in turns[columns].itertuples(index=False)
    ]
    assert read == expected
    assert run.manifest["counts"]["records_left_out"] == 0


def test_conversations_become_prompts_that_can_be_sent(tmp_path: Path) -> None:
    source = tmp_path / "one.traj"
    source.write_text(json.dumps({"info": {}, "instance_id": "i", "history": CHAT}, indent=1))
    run = agentbench.import_traces([source], out=tmp_path / "run")
    turns = run.turns().to_pandas()
    assert list(turns["n_messages"]) == [2, 4]
    assert set(turns["session_id"]) == {"i"}
    assert json.loads(run.request_body(turns["request_id"][1]))["messages"] == CHAT[:4]
    (call,) = run.tool_calls().to_pandas().to_dict("records")
    assert (call["name"], call["arguments"], call["result_bytes"]) == ("ls", "{}", 3)


def test_block_hashes_keep_their_scope(tmp_path: Path) -> None:
    for name in ("x", "y"):
        lines(tmp_path / "source" / f"{name}.jsonl", HASHED)
    run = agentbench.import_traces([tmp_path / "source"], out=tmp_path / "run")
    turns = run.turns().to_pandas()
    assert [list(hashes) for hashes in turns["block_hashes"]] == [["x:1", "x:2", "x:3"], ["y:1", "y:2", "y:3"]]
    assert set(turns["block_size"]) == {512}


def test_a_bad_record_is_listed_and_the_others_are_read(tmp_path: Path) -> None:
    bad = ['{"timestamp":0,"input_length":-5,"output_length":1}', "[1,", '{"timestamp":0}']
    source = lines(tmp_path / "trace.jsonl", HASHED, *bad, HASHED)
    source.write_bytes(source.read_bytes() + b"\xff\xfe\n" + json.dumps(HASHED).encode()[:30])
    run = agentbench.import_traces([source], out=tmp_path / "run")
    assert len(run.turns().to_pandas()) == 2
    problems = run.manifest["settings"]["problems"]
    assert sorted(problem["line"] for problem in problems) == [2, 3, 4, 6, 7]
    assert run.manifest["counts"]["records_left_out"] == 5


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file"),
        ("", r"trace\.jsonl: it is empty"),
        ("\n \n", "it is empty"),
        ("hello\n", "no known format"),
    ],
)
def test_nothing_to_import_is_one_clear_line(tmp_path: Path, content: str | None, told: str) -> None:
    source = tmp_path / "trace.jsonl"
    if content is not None:
        source.write_text(content)
    with pytest.raises(agentbench.ConfigError, match=told):
        agentbench.import_traces([source], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
