"""Codex: Responses, events as JSON lines on stdout, a rollout file per thread below ``~/.codex/sessions``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from .base import DUMMY_KEY, NO_LIMITS, Ending, Harness, Limits, clean_environment, failure, folder_of, json_lines
from .own_logs import OwnLogs, SeenSession, first_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PROVIDER = "agentbench"
KEY_VARIABLE = "OPENAI_API_KEY"


class Codex(Harness):
    """OpenAI's agent."""

    name = "codex"
    program = "codex"
    variable = "AGENTBENCH_CODEX"
    install = "npm install -g @openai/codex"
    api = "responses"
    caps_turns = False

    def pointing(self, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return a key to send, where the user has none: its provider comes by `pointing_arguments`."""
        del base_url, model, limits
        return {} if KEY_VARIABLE in os.environ else {KEY_VARIABLE: DUMMY_KEY}

    def pointing_arguments(self, base_url: str, model: str, given: Sequence[str] = ()) -> list[str]:
        """Return a provider of our own as overrides of its configuration: no variable gives one."""
        if any("model_provider" in word for word in given):
            return []
        settings = {"model": model, "model_provider": PROVIDER}
        settings |= {f"model_providers.{PROVIDER}.{key}": value for key, value in _provider(base_url).items()}
        return [part for key, value in settings.items() for part in ("-c", f"{key}={json.dumps(value)}")]

    def prepare(self, home: Path, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Write ``~/.codex/config.toml`` and return the environment."""
        folder = home / ".codex"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(_config(base_url, model, limits), encoding="utf-8")
        return clean_environment(home) | {"CODEX_HOME": str(folder), KEY_VARIABLE: DUMMY_KEY}

    def command(
        self, binary: Path, task: str, workdir: Path, *, environment: Mapping[str, str], max_turns: int | None
    ) -> list[str]:
        """Return ``exec`` with every event as a line of JSON. It knows no limit of turns."""
        del environment
        self._refuse_turns(max_turns)
        return [str(binary), "exec", "--skip-git-repo-check", "--json", "--cd", str(workdir), "--", task]

    def logs(self, home: Path) -> list[Path]:
        """Return the rollouts of its threads."""
        return sorted((home / ".codex" / "sessions").rglob("*.jsonl"))

    def logs_of(self, session: SeenSession, environment: Mapping[str, str]) -> OwnLogs | None:
        """Return the rollouts whose first line names the session; each thread has one."""
        root = folder_of(environment, "CODEX_HOME", ".codex")
        rollouts = sorted((root / "sessions").rglob("*.jsonl"))
        return OwnLogs(root, [path for path in rollouts if session.session_id in _names(first_object(path))])

    def _judge_output(self, stdout: bytes) -> Ending | None:
        ends = [event for event in json_lines(stdout) if event.get("type") in {"turn.completed", "turn.failed"}]
        if not ends or ends[-1]["type"] == "turn.completed":
            return None
        error = ends[-1].get("error")
        return failure(str(error.get("message", "")) if isinstance(error, dict) else "turn.failed")


def _names(head: Mapping[str, object]) -> set[object]:
    payload = head.get("payload")
    return {payload.get("session_id"), payload.get("id")} if isinstance(payload, dict) else set()


def _provider(base_url: str) -> dict[str, str]:
    return {"name": PROVIDER, "base_url": f"{base_url}/v1", "env_key": KEY_VARIABLE, "wire_api": "responses"}


def _config(base_url: str, model: str, limits: Limits) -> str:
    # A string of JSON is one of TOML too.
    top = {
        "model": model,
        "model_provider": PROVIDER,
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",
        "check_for_update_on_startup": False,
    }
    if limits.context_tokens is not None:
        top["model_context_window"] = limits.context_tokens
    tables: dict[str, Mapping[str, object]] = {
        f"model_providers.{PROVIDER}": _provider(base_url),
        "analytics": {"enabled": False},
        "feedback": {"enabled": False},
        "history": {"persistence": "none"},
    }
    lines = _lines(top)
    for name, settings in tables.items():
        lines += [f"[{name}]", *_lines(settings)]
    return "\n".join(lines) + "\n"


def _lines(settings: Mapping[str, object]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
