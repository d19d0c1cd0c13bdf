"""OpenCode: Chat, events as JSON lines on stdout, log and database below ``~/.local/share/opencode``."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar

from .base import DUMMY_KEY, NO_LIMITS, Ending, Harness, Limits, clean_environment, failure, folder_of, json_lines
from .own_logs import OwnLogs, SeenSession, lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROVIDER = "agentbench"
# Where nothing tells what the model can take: too little, and it compacts early; too much, and the engine refuses.
CONTEXT_TOKENS = 131_072
OUTPUT_TOKENS = 8_192


class OpenCode(Harness):
    """The agent of that name, with a provider that speaks OpenAI's chat API."""

    name = "opencode"
    program = "opencode"
    variable = "AGENTBENCH_OPENCODE"
    install = "npm install -g opencode-ai"
    api = "chat"
    places: ClassVar[tuple[str, ...]] = ("~/.opencode/bin",)

    def pointing(self, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return a configuration with a provider of our own, which goes before the user's files."""
        return {"OPENCODE_CONFIG_CONTENT": json.dumps(_config(base_url, model, limits))}

    def prepare(self, home: Path, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Write its configuration and return the environment."""
        folder = home / ".config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        config = _config(base_url, model, limits) | {"autoupdate": False, "share": "disabled", "permission": "allow"}
        (folder / "opencode.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        return clean_environment(home) | {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_SHARE": "1",
        }

    def command(
        self, binary: Path, task: str, workdir: Path, *, environment: Mapping[str, str], max_turns: int | None
    ) -> list[str]:
        """Return ``run`` with every event as a line of JSON; a limit of turns is a setting of its main agent."""
        del environment
        run = [str(binary), "run", "--format", "json", "--auto", "--dir", str(workdir), "--", task]
        if max_turns is None:
            return run
        settings = {"agent": {"build": {"steps": max_turns}}}
        return ["/usr/bin/env", f"OPENCODE_CONFIG_CONTENT={json.dumps(settings)}", *run]

    def logs(self, home: Path) -> list[Path]:
        """Return its log and the database that holds its sessions."""
        folder = home / ".local" / "share" / "opencode"
        return sorted([*folder.glob("log/*"), *folder.glob("*.db*")])

    def logs_of(self, session: SeenSession, environment: Mapping[str, str]) -> OwnLogs | None:
        """Return the rows of the session and its subagents, as JSON lines: its database holds all sessions."""
        root = folder_of(environment, "XDG_DATA_HOME", ".local/share") / "opencode"
        for database in sorted(root.glob("*.db")):
            rows = _rows_of(database, session.session_id)
            if rows:
                return OwnLogs(root, extracts={f"{database.stem}-rows.jsonl": lines(rows)})
        return None

    def _judge_output(self, stdout: bytes) -> Ending | None:
        errors = [event.get("error") for event in json_lines(stdout) if event.get("type") == "error"]
        if not errors:
            return None
        return failure(_told(errors[-1]))


def _rows_of(database: Path, session: str) -> list[dict[str, Any]]:
    """Return the rows of ``session``, ``message`` and ``part`` that belong to a session and those it started."""
    rows: list[dict[str, Any]] = []
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = lambda text: text.decode(errors="replace")
            for table, own in (("session", "id"), ("message", "session_id"), ("part", "session_id")):
                found = connection.execute(
                    f"SELECT * FROM {table} WHERE {own} IN (SELECT id FROM session WHERE id = ? OR parent_id = ?)",  # noqa: S608 names of ours
                    (session, session),
                )
                rows += [{"table": table, **{key: _plain(row[key]) for key in row.keys()}} for row in found]  # noqa: SIM118 a row is no dict
    except sqlite3.Error:
        return []
    return rows


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _told(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else error.get("message")
    return str(message or error.get("name") or "error")


def _config(base_url: str, model: str, limits: Limits) -> dict[str, Any]:
    limit = {"context": limits.context_tokens or CONTEXT_TOKENS, "output": limits.output_tokens or OUTPUT_TOKENS}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": {"baseURL": f"{base_url}/v1", "apiKey": DUMMY_KEY},
        "models": {model: {"name": model, "limit": limit, "tool_call": True}},
    }
    name = f"{PROVIDER}/{model}"
    return {"provider": {PROVIDER: provider}, "model": name, "small_model": name}
