"""mini-swe-agent: Chat without streaming, its trajectory in a file of the scratch HOME."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from .base import DUMMY_KEY, NO_LIMITS, Ending, Harness, Limits, clean_environment, folder_of
from .own_logs import OwnLogs, SeenSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

NAME = "mini-swe-agent"
# Any setting takes the place of the default file, which is therefore named first.
NAMED = ("mini.yaml", f"model.model_kwargs.extra_headers.User-Agent={NAME}")
CONFIG_VARIABLE = "MSWEA_MINI_CONFIG_PATH"
TRAJECTORY = "last_mini_run.traj.json"
# It exits with 0 at these too, and prints their name as its last message.
FAILURES = {"LimitsExceeded", "TimeExceeded", "RepeatedFormatError"}


class MiniSweAgent(Harness):
    """The small agent of the SWE-agent group."""

    name = NAME
    program = "mini"
    variable = "AGENTBENCH_MINI_SWE_AGENT"
    install = "pip install mini-swe-agent"
    api = "chat"

    def version(self, binary: Path) -> str | None:
        """Return the version in its greeting: it has no option for it."""
        return self._version_told(binary, ["--help"], MSWEA_CONFIGURED="true", LITELLM_LOCAL_MODEL_COST_MAP="True")

    def pointing(self, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return base URL and model; its costs, which no table knows, are not asked for."""
        del limits
        return {
            "OPENAI_API_BASE": f"{base_url}/v1",
            "OPENAI_BASE_URL": f"{base_url}/v1",
            "MSWEA_MODEL_NAME": f"openai/{model}",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def pointing_arguments(self, base_url: str, model: str, given: Sequence[str] = ()) -> list[str]:
        """Return its own name for its client library, which would call itself by its own."""
        del base_url, model
        is_configured = any(word.split("=")[0] in {"-c", "--config"} for word in given) or CONFIG_VARIABLE in os.environ
        return [] if is_configured else _options(NAMED)

    def prepare(self, home: Path, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return the environment; its own folder, which holds the trajectory, lies below HOME."""
        folder = home / ".config" / "mini-swe-agent"
        folder.mkdir(parents=True, exist_ok=True)
        return (
            clean_environment(home)
            | self.pointing(base_url, model, limits)
            | {
                "OPENAI_API_KEY": DUMMY_KEY,
                "MSWEA_GLOBAL_CONFIG_DIR": str(folder),
                "MSWEA_CONFIGURED": "true",
                "MSWEA_SILENT_STARTUP": "1",
            }
        )

    def command(
        self, binary: Path, task: str, workdir: Path, *, environment: Mapping[str, str], max_turns: int | None
    ) -> list[str]:
        """Return a run without confirmation, of any cost, that ends once the agent submits."""
        del workdir, environment
        limit = () if max_turns is None else (f"agent.step_limit={max_turns}",)
        options = ["--yolo", "--exit-immediately", "--cost-limit", "0"]
        return [str(binary), *options, *_options((*NAMED, *limit)), "--task", task]

    def logs(self, home: Path) -> list[Path]:
        """Return the trajectory."""
        path = home / ".config" / "mini-swe-agent" / TRAJECTORY
        return [path] if path.exists() else []

    def logs_of(self, session: SeenSession, environment: Mapping[str, str]) -> OwnLogs | None:
        """Return the last trajectory where its responses have just the token counts of the session's turns.

        It names no session, and the file is that of whichever run ended last.
        """
        root = folder_of(environment, "MSWEA_GLOBAL_CONFIG_DIR", ".config/mini-swe-agent")
        path = root / TRAJECTORY
        counts = _counts(path)
        return OwnLogs(root, [path]) if counts and counts == session.tokens else None

    def _judge_output(self, stdout: bytes) -> Ending | None:
        _, found, last = stdout.decode(errors="replace").rpartition("\nExit:")
        words = last.split(maxsplit=1)
        if found and words and words[0] in FAILURES:
            return Ending(ok=False, reason=words[0])
        return None


def _options(settings: Iterable[str]) -> list[str]:
    return [part for setting in settings for part in ("-c", setting)]


def _counts(path: Path) -> list[tuple[int | None, int | None]]:
    """Return prompt and output tokens of each response in a trajectory."""
    try:
        messages = json.loads(path.read_bytes())["messages"]
        return [_usage(message) for message in messages if message["role"] == "assistant"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _usage(message: dict[str, Any]) -> tuple[int | None, int | None]:
    usage = message["extra"]["response"]["usage"]
    return usage.get("prompt_tokens"), usage.get("completion_tokens")
