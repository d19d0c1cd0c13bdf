"""How each coding agent is found, pointed at a proxy, given a task and judged; no agent runs here."""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentbench import ConfigError, harness
from agentbench._cli import child
from agentbench.harness.base import judge_exit

if TYPE_CHECKING:
    from agentbench import SimulatedEngine

URL = "http://127.0.0.1:8001/s/one"
APIS = {"claude-code": "messages", "codex": "responses", "opencode": "chat", "mini-swe-agent": "chat"}


def program(path: Path, lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A HOME and a PATH with no agent, and an environment with a secret that no agent may see."""
    for agent in map(harness.get, harness.names()):
        monkeypatch.delenv(agent.variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "own"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    return tmp_path


def test_names_and_apis() -> None:
    assert {name: harness.get(name).api for name in harness.names()} == APIS
    assert {harness.get(name).name for name in harness.names()} == set(APIS)


def test_a_binary_is_named_or_on_path_or_where_it_is_installed(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = harness.get("opencode")
    assert agent.find() is None
    installed = program(bare / "own/.opencode/bin/opencode", "echo 1.2.3")
    assert agent.find() == installed
    on_path = program(bare / "bin/opencode", "echo 1.2.4-beta.1")
    monkeypatch.setenv("PATH", f"{bare}/bin:/usr/bin:/bin")
    assert agent.find() == on_path
    named = program(bare / "elsewhere/any", "echo 'opencode 2.0.0.'")
    monkeypatch.setenv("AGENTBENCH_OPENCODE", str(named))
    assert agent.find() == named
    assert [agent.version(path) for path in (installed, on_path, named)] == ["1.2.3", "1.2.4-beta.1", "2.0.0"]
    # A name that leads nowhere is no leave to take another one.
    monkeypatch.setenv("AGENTBENCH_OPENCODE", str(bare / "gone"))
    assert agent.find() is None


def test_a_version_is_asked_for_in_a_home_of_its_own(bare: Path) -> None:
    binary = program(bare / "claude", 'touch "$HOME/left"; echo "$HOME" >&2; exit 3')
    assert harness.get("claude-code").version(binary) is None
    assert harness.get("claude-code").version(bare / "none") is None
    assert not (bare / "own/left").exists()


@pytest.mark.parametrize("name", [*APIS, "run {task}"])
def test_an_environment_holds_nothing_of_ours(bare: Path, name: str) -> None:
    home = bare / "home"
    environment = harness.get(name).prepare(home, URL, "tiny")
    assert environment["HOME"] == str(home)
    assert environment["PATH"] == "/usr/bin:/bin"
    assert "HTTPS_PROXY" not in environment
    assert "sk-secret" not in environment.values()
    written = [path.read_text() for path in home.rglob("*") if path.is_file()]
    assert any(URL in text for text in [*environment.values(), *written])


def test_claude_code_gets_models_hints_and_limits(bare: Path) -> None:
    agent = harness.get("claude-code")
    environment = agent.prepare(bare, URL, "tiny", harness.Limits(40_960, 128))
    expected = {
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_MODEL": "tiny",
        "ANTHROPIC_SMALL_FAST_MODEL": "tiny",
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "128",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "40960",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    assert expected.items() <= environment.items()
    command = agent.command(Path("/b/claude"), "--fix it", bare, environment=environment, max_turns=3)
    assert command[:2] == ["/b/claude", "-p"]
    assert command[-4:] == ["--max-turns", "3", "--", "--fix it"]
    transcript = bare / ".claude/projects/-work/s/subagents/agent-1.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.touch()
    assert agent.logs(bare) == [transcript]


def test_codex_gets_a_provider_by_file_and_by_arguments(bare: Path) -> None:
    agent = harness.get("codex")
    environment = agent.prepare(bare, URL, 'a"b', harness.Limits(context_tokens=40_960))
    config = tomllib.loads((Path(environment["CODEX_HOME"]) / "config.toml").read_text())
    provider = config["model_providers"][config["model_provider"]]
    assert (provider["base_url"], provider["wire_api"]) == (f"{URL}/v1", "responses")
    assert environment[provider["env_key"]].startswith("sk-dummy")
    assert (config["model"], config["model_context_window"]) == ('a"b', 40_960)
    assert config["check_for_update_on_startup"] is False
    arguments = agent.pointing_arguments(URL, "tiny")
    assert arguments[::2] == ["-c"] * (len(arguments) // 2)
    told = tomllib.loads("\n".join(arguments[1::2]))
    assert told["model_providers"][told["model_provider"]] == provider
    with pytest.raises(ValueError, match="cannot cap its turns"):
        agent.command(Path("/b/codex"), "t", bare, environment=environment, max_turns=3)
    assert agent.caps_turns is False


def test_opencode_gets_a_provider(bare: Path) -> None:
    agent = harness.get("opencode")
    agent.prepare(bare, URL, "tiny", harness.Limits(40_960, 128))
    config = json.loads((bare / ".config/opencode/opencode.json").read_text())
    provider = config["provider"]["agentbench"]
    assert (config["model"], config["small_model"]) == ("agentbench/tiny", "agentbench/tiny")
    assert provider["options"]["baseURL"] == f"{URL}/v1"
    assert provider["models"]["tiny"]["limit"] == {"context": 40_960, "output": 128}
    assert (config["autoupdate"], config["share"]) == (False, "disabled")
    command = agent.command(Path("/b/opencode"), "t", bare, environment={}, max_turns=3)
    assert command[:2] == ["/usr/bin/env", 'OPENCODE_CONFIG_CONTENT={"agent": {"build": {"steps": 3}}}']
    assert command[2:4] == ["/b/opencode", "run"]


def test_mini_swe_agent_gets_model_and_step_limit(bare: Path) -> None:
    agent = harness.get("mini-swe-agent")
    environment = agent.prepare(bare, URL, "tiny")
    assert environment["OPENAI_API_BASE"] == f"{URL}/v1"
    assert environment["MSWEA_MODEL_NAME"] == "openai/tiny"
    command = agent.command(Path("/b/mini"), "t", bare, environment=environment, max_turns=3)
    assert command[-4:] == ["-c", "agent.step_limit=3", "--task", "t"]
    assert command[command.index("-c") + 1] == "mini.yaml"
    assert agent.logs(bare) == []
    trajectory = Path(environment["MSWEA_GLOBAL_CONFIG_DIR"]) / "last_mini_run.traj.json"
    trajectory.touch()
    assert agent.logs(bare) == [trajectory]


def test_a_command_line_is_filled_in(bare: Path) -> None:
    agent = harness.get("sh -c 'echo {base_url} {model}' {workdir} --task={task} '{\"a\": 1}'")
    environment = agent.prepare(bare, URL, "tiny")
    command = agent.command(Path("/bin/sh"), "a {model} b", bare, environment=environment, max_turns=None)
    assert command == ["/bin/sh", "-c", f"echo {URL} tiny", str(bare), "--task=a {model} b", '{"a": 1}']
    assert (agent.name, agent.version(Path("/bin/sh"))) == ("command", None)
    assert harness.get("none-such {task}").find() is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clod", "it has no {task}"),
        ("", "an empty command line"),
        ("run {tasks}", "it names {tasks}"),
        ("run '{task}", "No closing quotation"),
    ],
)
def test_what_is_no_agent_is_refused_with_the_remedy(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match="name one of claude-code, codex") as refused:
        harness.get(text)
    assert told in str(refused.value)


def lines(*events: object) -> bytes:
    return "\n".join(json.dumps(event) for event in events).encode()


@pytest.mark.parametrize(
    ("name", "stdout", "reason"),
    [
        ("claude-code", lines({"type": "result", "subtype": "success", "is_error": False, "result": "x"}), None),
        ("claude-code", lines({"type": "result", "subtype": "success", "is_error": True, "result": "no\nx"}), "no"),
        ("claude-code", lines({"type": "result", "subtype": "error_max_turns", "is_error": True}), "error_max_turns"),
        ("claude-code", b'{"type": "resu', None),
        ("codex", lines({"type": "turn.completed", "usage": {}}), None),
        ("codex", lines({"type": "turn.failed", "error": {"message": "429 too many"}}), "429 too many"),
        ("codex", lines({"type": "turn.failed"}, {"type": "turn.completed"}), None),
        ("opencode", lines({"type": "text"}), None),
        ("opencode", lines({"type": "error", "error": {"name": "APIError", "data": {"message": "no"}}}), "no"),
        ("opencode", lines({"type": "error", "error": {"name": "APIError"}}), "APIError"),
        ("mini-swe-agent", b"...\nExit:\n\nSaved trajectory to 'x'", None),
        ("mini-swe-agent", b"...\nExit:\nLimitsExceeded\nSaved trajectory to 'x'", "LimitsExceeded"),
        ("run {task}", b"anything", None),
    ],
)  # fmt: skip
def test_an_end_is_judged_by_what_was_printed(name: str, stdout: bytes, reason: str | None) -> None:
    assert harness.get(name).judge(0, stdout) == harness.Ending(reason is None, reason)


def test_an_end_is_judged_by_its_exit_code() -> None:
    told = {code: judge_exit(code).reason for code in (0, 2, None, -signal.SIGKILL, -999)}
    assert told == {
        0: None,
        2: "exit code 2",
        None: "ended from outside before it finished",
        -9: "killed by SIGKILL",
        -999: "killed by signal 999",
    }
    # Words of success do not outweigh a signal.
    done = lines({"type": "turn.completed"})
    assert harness.get("codex").judge(-9, done) == harness.Ending(ok=False, reason="killed by SIGKILL")


def test_capture_tells_a_known_agent_the_engines_model(
    engine: SimulatedEngine, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_MODEL", "mine")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://other.invalid")
    pointed = child.point(["/b/claude", "-p", "x"], URL, engine.url)
    assert pointed.command == ["/b/claude", "-p", "x"]
    assert pointed.environment["ANTHROPIC_BASE_URL"] == URL
    assert pointed.environment["ANTHROPIC_MODEL"] == "mine"
    assert pointed.environment["CLAUDE_CODE_GATEWAY_HINT_HEADERS"] == "1"
    assert pointed.environment["HOME"] == str(bare / "own")
    assert "CLAUDE_CODE_GATEWAY_HINT_HEADERS=1" in pointed.added
    assert not any(text.startswith("ANTHROPIC_") and "BASE_URL" in text for text in pointed.added)
    pointed = child.point(["codex", "exec", "x"], URL, engine.url)
    assert pointed.command[:2] == ["codex", "-c"]
    assert pointed.command[-2:] == ["exec", "x"]
    assert f'model_providers.agentbench.base_url="{URL}/v1"' in pointed.command
    own = ["codex", "-c", "model_provider=mine", "exec", "x"]
    assert child.point(own, URL, engine.url).command == own
    named = "model.model_kwargs.extra_headers.User-Agent=mini-swe-agent"
    pointed = child.point(["mini", "--task", "x"], URL, engine.url)
    assert pointed.command == ["mini", "-c", "mini.yaml", "-c", named, "--task", "x"]
    assert pointed.added[-4:] == pointed.command[1:5]
    for own in (["mini", "-c", "own.yaml"], ["mini", "--config=own.yaml"]):
        assert child.point(own, URL, engine.url).command == own
    monkeypatch.setenv("MSWEA_MINI_CONFIG_PATH", "own.yaml")
    assert child.point(["mini"], URL, engine.url).command == ["mini"]


def test_capture_leaves_other_commands_alone(engine: SimulatedEngine) -> None:
    pointed = child.point([sys.executable, "-c", ""], URL, engine.url)
    assert (pointed.command, pointed.added) == ([sys.executable, "-c", ""], [])
    changed = {name: value for name, value in pointed.environment.items() if os.environ.get(name) != value}
    assert set(changed) == {"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE"}
