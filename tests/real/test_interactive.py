"""Claude Code as a person uses it, in a terminal: title calls, `/context` and `/compact`, recorded before a real vLLM.

`agentbench capture -- claude` itself runs in the terminal. The right answers are vLLM's own counters, by path too, and
Claude Code's transcript.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from own_logs import conversations
from real_parts import (
    Counters,
    Engine,
    agent_environment,
    asked_by_api,
    binary,
    frame,
    free_port,
    get,
    settled,
    totals,
    with_own_path,
)
from terminal import terminal

import agentbench
from agentbench import harness
from agentbench.harness.base import DUMMY_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd
    from terminal import Terminal

# The first test waits for vLLM to come up, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(1200)

# A title is held to JSON, which this model cannot: its calls end at this many tokens, so few keep the test short.
OUTPUT_TOKENS = 32
COUNTING = "/v1/messages/count_tokens"
SLEEP_MS = 2000
# An agent may start a tool when the call has come, a moment before the response ends.
EARLY_MS = 100
# What Claude Code's tool does besides its command, on a busy machine.
OVERHEAD_MS = 60_000
# How much of a key Claude Code keeps to know it again.
KEY_TAIL = 20
PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
# What the tiny model says when it is done.
FAREWELL = "is finished."


@dataclass(frozen=True)
class Session:
    """What one interactive session was recorded as, and what vLLM and the agent tell of it."""

    run: agentbench.Run
    counted: Counters
    counts: int
    home: Path

    def turns(self) -> pd.DataFrame:
        return frame(self.run, "turns").sort_values("request_time")

    def bodies(self, turns: pd.DataFrame) -> list[dict[str, Any]]:
        return [json.loads(self.run.request_body(name)) for name in turns["request_id"]]


def prepare_home(home: Path, work: Path) -> dict[str, str]:
    """The environment of a user who has used Claude Code here before: no question is asked at the start."""
    home.mkdir()
    work.mkdir()
    (work / "app.py").write_text("def add(a, b):\n    return a - b\n")
    answered = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [DUMMY_KEY[-KEY_TAIL:]], "rejected": []},
        "projects": {str(work): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    (home / ".claude.json").write_text(json.dumps(answered))
    environment = agent_environment("claude-code", home, "http://told.by.capture.invalid")
    # Titles are not asked for where only the necessary is sent; all that is not for the proxy ends at a closed port.
    for name in ("ANTHROPIC_BASE_URL", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"):
        del environment[name]
    environment |= {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
    return environment | {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(OUTPUT_TOKENS)}


def wait_idle(engine: Engine) -> None:
    """Returns once the engine works on nothing, as its own page says: what runs beside the screen has ended too."""
    for _ in range(600):
        page = get(f"{engine.url}/metrics")
        open_now = re.findall(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", page, re.MULTILINE)
        assert len(open_now) > 1, "vLLM's page says how much it works on"
        if not any(map(float, open_now)):
            return
        time.sleep(0.2)
    pytest.fail("vLLM did not come to rest")


def recorded(engine: Engine, folder: Path, use: Callable[[Terminal], None], *options: str) -> Session:
    """A capture whose command is Claude Code in a terminal that is used as told, and then left."""
    home, work = folder / "home", folder / "work"
    environment = prepare_home(home, work)
    before, asked = settled(engine), asked_by_api(engine)
    command = [
        *[sys.executable, "-m", "agentbench", "capture", "--upstream", engine.url, *options],
        *["--listen", f"127.0.0.1:{free_port()}", "--out", str(folder / "run"), "--"],
        *[str(binary("claude-code")), "--permission-mode", "acceptEdits", "--allowedTools", "Bash"],
    ]
    with terminal(command, work, with_own_path(environment)) as running:
        running.wait("prompt", lambda shown: PROMPT in shown and "accept edits on" in shown)
        use(running)
        wait_idle(engine)
        running.enter("/exit")
        assert running.ended() == 0, running.shown()
    counts = asked_by_api(engine).get(COUNTING, 0) - asked.get(COUNTING, 0)
    return Session(agentbench.Run.open(folder / "run"), settled(engine) - before, counts, home)


def say(running: Terminal, text: str) -> None:
    """Says something to the agent and waits until it has answered."""
    running.enter(text)

    def is_answered(shown: str) -> bool:
        _, asked, answer = shown.rpartition(f"{PROMPT} {text}")
        return bool(asked) and FAREWELL in answer

    running.wait(f"answer to {text!r}", is_answered)


@pytest.fixture(scope="module")
def session(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A task, a look at the context, a compaction, and one question more."""

    def use(running: Terminal) -> None:
        say(running, "fix app.py [[sleep]]")
        wait_idle(vllm)
        running.enter("/context")
        running.wait("context", lambda shown: "Context usage" in shown)
        wait_idle(vllm)
        # The mark becomes part of what asks for the summary, which is to be text.
        running.enter("/compact [[say]]")
        running.wait("end of the compaction", lambda shown: "Compacted" in shown)
        say(running, "go on [[say]]")

    return recorded(vllm, tmp_path_factory.mktemp("interactive"), use)


def test_every_turn_is_one_that_vllm_counted(session: Session) -> None:
    turns = session.turns()
    assert set(turns["outcome"]) == {"ok"}
    assert set(turns["agent"]) == {"claude-code"}
    assert len(set(turns["session_id"])) == 1
    assert totals(turns) == session.counted


def test_a_title_is_a_utility_call_beside_the_first_turn(session: Session) -> None:
    turns = session.turns()
    titles, mains = turns[turns["kind"] == "utility"], turns[turns["kind"] == "main"]
    assert len(titles) + len(mains) == len(turns)
    assert len(titles) >= 1
    title, first = titles.iloc[0], mains.iloc[0]
    assert title["request_time"] < first["response_end_time"]
    assert first["request_time"] < title["response_end_time"]
    # No tools are offered, and a JSON object with a title is asked for.
    assert titles["n_tools"].tolist() == [0] * len(titles)
    formats = [body["output_config"]["format"] for body in session.bodies(titles)]
    assert [it["type"] for it in formats] == ["json_schema"] * len(titles)
    assert [list(it["schema"]["properties"]) for it in formats] == [["title"]] * len(titles)
    # It hangs on the conversation that it names, and is no turn of it and no child that it waits for.
    assert titles["turn"].tolist() == [0] * len(titles)
    assert set(titles["parent_thread_id"]) <= set(mains["thread_id"])
    assert not set(titles["thread_id"]) & set(mains["thread_id"])
    assert mains["residual_wait_ms"].isna().all()


def test_counting_tokens_is_passed_on_and_is_no_turn(session: Session) -> None:
    counts = session.run.manifest["counts"]
    assert session.counts > 1, "/context asks for many counts"
    assert counts["side_count_tokens"] == session.counts
    assert counts["turns"] == len(session.turns())
    assert counts["requests"] == counts["turns"] + counts["side_requests"]
    assert COUNTING not in set(session.turns()["path"].str.partition("?")[0])


def test_a_compaction_ends_one_thread_and_begins_another(session: Session) -> None:
    turns = session.turns()
    mains = turns[turns["kind"] == "main"]
    before, after = (thread for _, thread in mains.groupby("thread_id", sort=False))
    assert mains["parent_thread_id"].isna().all()
    assert [before["turn"].tolist(), after["turn"].tolist()] == [list(range(len(before))), [0]]
    # What asks for the summary: the prompt before, with a text put beside the results that end it.
    asks = ["[[say]]" in json.dumps(body["messages"][-1]) for body in session.bodies(before)]
    assert asks == [False] * (len(before) - 2) + [True] * 2
    asking = before.iloc[-2:]
    assert asking["n_messages"].tolist() == [before["n_messages"].iloc[-3]] * 2
    assert (asking["unit_hashes"].str.len() - asking["n_shared_units"]).tolist() == [1, 1]
    assert asking["stop_reason"].tolist() == ["end_turn", "end_turn"]
    # The conversation goes on from the summary, which is what the model answered.
    (first,) = session.bodies(after)
    assert FAREWELL in json.dumps(first["messages"][0])
    assert after["isl"].iloc[0] < asking["isl"].min()
    assert after["tool_exec_ms"].isna().all()


def test_results_that_are_sent_again_to_be_summarised_keep_their_times(session: Session) -> None:
    turns, calls = session.turns(), frame(session.run, "tool_calls")
    assert calls["call_id"].is_unique
    (slept,) = calls[calls["arguments"].str.contains("sleep 2")].to_dict("records")
    thread = turns[turns["thread_id"] == slept["thread_id"]]
    following = thread[thread["turn"] == slept["turn"] + 1].iloc[0]
    assert slept["result_time"] == pytest.approx(following["request_time"])
    assert following["tool_exec_ms"] == pytest.approx(slept["wire_ms"], abs=1.0)
    assert slept["own_ms"] > SLEEP_MS - EARLY_MS
    assert slept["own_ms"] - EARLY_MS < slept["wire_ms"] < slept["own_ms"] + OVERHEAD_MS
    assert slept["is_error"] is False


def test_the_transcript_is_kept_and_agrees(session: Session) -> None:
    turns = session.turns()
    (session_id,) = set(turns["session_id"])
    logs = session.run.path / "sessions" / session_id / "logs"
    transcripts = [path for path in logs.rglob("*.jsonl") if path.stem == session_id]
    (own,) = harness.get("claude-code").logs(session.home)
    assert [path.read_bytes() for path in transcripts] == [own.read_bytes()]
    # The transcript has what the agent goes by: no titles, and of a compaction no request.
    (told,) = conversations("claude-code", session.home)
    worked = turns[(turns["kind"] == "main") & (turns["turn"] < turns["turn"].max() - 1)]
    counts = list(zip(worked["isl"], worked["isl_cached"], worked["osl"], strict=True))
    assert told.turns == counts
    calls = frame(session.run, "tool_calls")
    assert told.calls == dict(zip(calls["call_id"], calls["name"], strict=True))


def test_titles_are_answered_by_the_proxy_where_asked(vllm: Engine, tmp_path: Path) -> None:
    session = recorded(vllm, tmp_path, lambda running: say(running, "fix app.py [[say]]"), "--answer-titles")
    turns = session.turns()
    assert turns["kind"].value_counts().to_dict() == {"main": 1, "utility": 1}
    (title,) = turns[turns["kind"] == "utility"].to_dict("records")
    main = turns[turns["kind"] == "main"]
    # vLLM saw the turn alone, and nothing is said of tokens and times that there were not.
    assert totals(main) == session.counted
    assert list(title["changes"]) == ["answered_locally"]
    assert turns[turns["kind"] == "utility"][["isl", "osl", "ttft_ms", "e2e_ms"]].isna().all().all()
    assert session.run.manifest["settings"]["switches"] == {"answer_titles": True}
    assert session.run.manifest["counts"]["changed_answered_locally"] == 1
    # Claude Code took it for the session's title.
    (log,) = harness.get("claude-code").logs(session.home)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    titles = {line["aiTitle"] for line in lines if line["type"] == "ai-title"}
    assert titles == {"Fix app.py [[say"}
