"""An import that is updated comes to what a new import of the same sources comes to, and nothing twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import agentbench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def claude(session: str, *messages: tuple[str, int], cut: int = 0) -> bytes:
    """A log of Claude Code with a question and an answer for each message; `cut`: so many bytes lack at its end."""
    lines = []
    for name, tokens in messages:
        at = f"2026-01-01T00:{ord(name) - ord('a'):02}"
        base = {"sessionId": session}
        question = {"role": "user", "content": f"do {name}"}
        usage = {"input_tokens": 5, "cache_read_input_tokens": 0, "output_tokens": tokens}
        call = {"type": "tool_use", "id": f"call-{name}", "name": "Bash", "input": {"command": name}}
        answer = {"id": name, "role": "assistant", "model": "m", "content": [call], "usage": usage}
        lines.append(base | {"type": "user", "uuid": f"u{name}", "timestamp": f"{at}:00Z", "message": question})
        lines.append(base | {"type": "assistant", "uuid": f"a{name}", "timestamp": f"{at}:05Z", "message": answer})
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return text[: len(text) - cut]


def mooncake(*lengths: int) -> bytes:
    rows = [
        {"timestamp": index, "input_length": it, "output_length": 1, "hash_ids": [it]}
        for index, it in enumerate(lengths)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def mini(first: str, n: int) -> bytes:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "task"}]
    for index in range(n):
        usage = {"prompt_tokens": 10 + index, "completion_tokens": 2}
        message = {"role": "assistant", "content": "go"}
        response = {"id": f"{first}-{index}", "choices": [{"message": message}], "usage": usage}
        messages.append(message | {"extra": {"response": response, "timestamp": 10.0 + index}})
    record = {"info": {"calls": n}, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}
    return json.dumps(record, indent=1).encode()


A, B, C = ("a", 3), ("b", 4), ("c", 5)
LOG, OTHER, ROWS, MINI = "p/s.jsonl", "p/t.jsonl", "rows.jsonl", "run.traj.json"
Files = dict[str, bytes | None]

# Name; files at first; what they become (None: gone); output tokens by request after the update; problems left;
# what is refused; whether a new import of the same files comes to the same.
CASES: list[tuple[str, Files, Files, dict[str, int], int, str, bool]] = [
    ("a log grew", {LOG: claude("s", A)}, {LOG: claude("s", A, B)}, {"a": 3, "b": 4}, 0, "", True),
    ("a new log", {LOG: claude("s", A)}, {OTHER: claude("t", B)}, {"a": 3, "b": 4}, 0, "", True),
    (
        "a log that was being written is completed",
        {LOG: claude("s", A, B, cut=40)},
        {LOG: claude("s", A, B)},
        {"a": 3, "b": 4},
        0,
        "",
        True,
    ),
    (
        "a fork of what grows tells it again",
        {LOG: claude("s", A, B), OTHER: claude("t", A, C)},
        {LOG: claude("s", A, B, ("d", 6))},
        {"a": 3, "b": 4, "c": 5, "d": 6},
        0,
        "",
        True,
    ),
    (
        "a new subagent of a session",
        {LOG: claude("s", A)},
        {"p/s/subagents/agent-x.jsonl": claude("s", B).replace(b'"type"', b'"isSidechain": true, "type"', 2)},
        {"a": 3, "b": 4},
        0,
        "",
        True,
    ),
    ("a log is gone", {LOG: claude("s", A), OTHER: claude("t", B)}, {LOG: None}, {"a": 3, "b": 4}, 0, "", False),
    ("a log shrank", {LOG: claude("s", A, B)}, {LOG: claude("s", A)}, {"a": 3, "b": 4}, 0, "is shorter", False),
    (
        "a log was changed and others are new",
        {LOG: claude("s", A, B)},
        {LOG: claude("s", ("x", 3), B, C), OTHER: claude("t", ("d", 9))},
        {"a": 3, "b": 4, "d": 9},
        0,
        "was changed",
        False,
    ),
    ("rows grew", {ROWS: mooncake(7)}, {ROWS: mooncake(7, 8)}, {"rows:1-0000": 1, "rows:2-0000": 1}, 0, "", True),
    (
        "rows end in the middle, and on",
        {ROWS: mooncake(7) + b'{"time'},
        {ROWS: mooncake(7, 8)},
        {"rows:1-0000": 1, "rows:2-0000": 1},
        0,
        "",
        True,
    ),
    (
        "a trajectory is written anew after each step",
        {MINI: mini("r", 1)},
        {MINI: mini("r", 3)},
        {"r-0": 2, "r-1": 2, "r-2": 2},
        0,
        "",
        True,
    ),
    (
        "another trajectory takes its place",
        {MINI: mini("r", 2)},
        {MINI: mini("q", 1)},
        {"r-0": 2, "r-1": 2, "q-0": 2},
        0,
        "",
        False,
    ),
]


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)


def tokens(run: agentbench.Run) -> dict[str, int]:
    turns = run.turns().to_pandas()
    assert turns["request_id"].is_unique
    return dict(zip(turns["request_id"], turns["osl"].astype(int), strict=True))


def content(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


@pytest.mark.parametrize(
    ("before", "after", "expected", "problems", "refused", "same"),
    [pytest.param(*case[1:], id=case[0]) for case in CASES],
)
def test_an_update_takes_in_what_is_new(
    tmp_path: Path, before: Files, after: Files, expected: dict[str, int], problems: int, refused: str, *, same: bool
) -> None:
    source, out = tmp_path / "source", tmp_path / "run"
    write(source, before)
    agentbench.import_traces([source], out=out, update=True)
    write(source, after)
    progress = agentbench.ImportProgress()
    run = agentbench.import_traces([source], out=out, update=True, progress=progress)
    assert tokens(run) == expected
    assert run.manifest["counts"]["records_left_out"] == problems
    assert [refused in told for told in progress.refused] == ([True] if refused else [])
    if same:
        anew = agentbench.import_traces([source], out=tmp_path / "anew")
        columns = ["request_id", "session_id", "thread_id", "turn", "isl", "osl", "n_messages", "unit_hashes"]
        ours, theirs = (
            it.turns().to_pandas()[columns].sort_values("request_id", ignore_index=True) for it in (run, anew)
        )
        assert ours.to_json() == theirs.to_json()
        for counted in ("sessions", "threads", "turns_told_again"):
            assert run.manifest["counts"][counted] == anew.manifest["counts"][counted], counted
        assert run.manifest["settings"]["lacks"] == anew.manifest["settings"]["lacks"]
        assert sorted(run.tool_calls().to_pandas()["call_id"]) == sorted(anew.tool_calls().to_pandas()["call_id"])

    is_there = content(out)
    again = agentbench.ImportProgress()
    agentbench.import_traces([source], out=out, update=True, progress=again)
    assert again.nothing_new
    assert content(out) == is_there


def test_the_command_says_what_is_new(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "run"
    write(source, {LOG: claude("s", A)})

    def told() -> str:
        command = [sys.executable, "-m", "agentbench", "import", str(source), "--out", str(out), "--update"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return result.stdout + result.stderr.replace("\n", " ")

    assert "1 sessions" in told()
    assert "nothing new" in told()
    write(source, {LOG: claude("s", A, B)})
    assert "new of these: 2 turns" in told()
    write(source, {LOG: claude("s", A)})
    refused = told()
    assert "Import it into a new directory" in refused
    assert "nothing new" in refused


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda out: (out / "import_sources.json").unlink(), "import_sources.json"),
        (
            lambda out: (out / "manifest.json").write_text(
                (out / "manifest.json").read_text().replace('"complete": true', '"complete": false')
            ),
            "cut off",
        ),
        (
            lambda out: (out / "manifest.json").write_text(
                (out / "manifest.json").read_text().replace('"kind": "import"', '"kind": "capture"')
            ),
            "another kind of run",
        ),
    ],
    ids=["without its list", "cut off", "no import"],
)
def test_what_cannot_be_updated_is_told_with_the_remedy(
    tmp_path: Path, spoil: Callable[[Path], object], told: str
) -> None:
    write(tmp_path, {LOG: claude("s", A)})
    out = tmp_path / "run"
    agentbench.import_traces([tmp_path / "p"], out=out)
    spoil(out)
    with pytest.raises(agentbench.ConfigError, match=told):
        agentbench.import_traces([tmp_path / "p"], out=out, update=True)
