"""Claude Code: Messages, streamed JSON on stdout, a transcript per session below ``~/.claude/projects``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .base import DUMMY_KEY, NO_LIMITS, Ending, Harness, Limits, clean_environment, failure, folder_of, json_lines
from .own_logs import OwnLogs, SeenSession, first_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ClaudeCode(Harness):
    """Anthropic's agent."""

    name = "claude-code"
    program = "claude"
    variable = "AGENTBENCH_CLAUDE_CODE"
    install = "npm install -g @anthropic-ai/claude-code"
    api = "messages"
    places: ClassVar[tuple[str, ...]] = ("~/.claude/local",)

    def pointing(self, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return base URL, models and hint headers, which tell request classes and the tools' own times."""
        variables = {
            "ANTHROPIC_BASE_URL": base_url,
            "ANTHROPIC_MODEL": model,
            "ANTHROPIC_SMALL_FAST_MODEL": model,
            "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        }
        if limits.output_tokens is not None:
            variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(limits.output_tokens)
        if limits.context_tokens is not None:
            variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(limits.context_tokens)
        return variables

    def prepare(self, home: Path, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return the environment; it needs no file. It may run as root, which it refuses outside a sandbox."""
        return (
            clean_environment(home)
            | self.pointing(base_url, model, limits)
            | {
                "ANTHROPIC_API_KEY": DUMMY_KEY,
                "IS_SANDBOX": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "DISABLE_AUTOUPDATER": "1",
            }
        )

    def command(
        self, binary: Path, task: str, workdir: Path, *, environment: Mapping[str, str], max_turns: int | None
    ) -> list[str]:
        """Return print mode with every event as a line of JSON."""
        del workdir, environment
        options = ["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        if max_turns is not None:
            options += ["--max-turns", str(max_turns)]
        return [str(binary), "-p", *options, "--", task]

    def logs(self, home: Path) -> list[Path]:
        """Return the transcripts of the session and its subagents."""
        return sorted(path for path in (home / ".claude" / "projects").rglob("*") if path.is_file())

    def logs_of(self, session: SeenSession, environment: Mapping[str, str]) -> OwnLogs | None:
        """Return the transcripts of the session and its subagents.

        A session's transcript and the folder of its subagents bear its name; older versions put a subagent's transcript
        beside it, as ``agent-ID.jsonl``, whose lines name the session.
        """
        root = folder_of(environment, "CLAUDE_CONFIG_DIR", ".claude")
        own = session.session_id
        found = []
        # PROJECT/SESSION.jsonl and PROJECT/SESSION/…
        for path in sorted((root / "projects").glob("*/**/*")):
            is_named = own in (path.stem, *path.relative_to(root / "projects").parts[1:-1])
            is_agents = path.name.startswith("agent-") and path.suffix == ".jsonl"
            if path.is_file() and (is_named or (is_agents and first_object(path).get("sessionId") == own)):
                found.append(path)
        return OwnLogs(root, found)

    def _judge_output(self, stdout: bytes) -> Ending | None:
        results = [event for event in json_lines(stdout) if event.get("type") == "result"]
        if not results:
            return None
        last = results[-1]
        if not last.get("is_error") and last.get("subtype") == "success":
            return None
        told = last.get("result") if last.get("subtype") == "success" else last.get("subtype")
        return failure(str(told or ""))
