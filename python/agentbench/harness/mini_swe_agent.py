"""mini-swe-agent: Chat without streaming, its trajectory in a file of the scratch HOME."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import DUMMY_KEY, NO_LIMITS, Ending, Harness, Limits, clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TRAJECTORY = "last_mini_run.traj.json"
# It exits with 0 at these too, and prints their name as its last message.
FAILURES = {"LimitsExceeded", "TimeExceeded", "RepeatedFormatError"}


class MiniSweAgent(Harness):
    """The small agent of the SWE-agent group."""

    name = "mini-swe-agent"
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
        # Its client library would call itself by its own name. Any of these takes the place of the default file.
        settings = ["mini.yaml", f"model.model_kwargs.extra_headers.User-Agent={self.name}"]
        if max_turns is not None:
            settings.append(f"agent.step_limit={max_turns}")
        options = ["--yolo", "--exit-immediately", "--cost-limit", "0"]
        return [str(binary), *options, *(part for it in settings for part in ("-c", it)), "--task", task]

    def logs(self, home: Path) -> list[Path]:
        """Return the trajectory."""
        path = home / ".config" / "mini-swe-agent" / TRAJECTORY
        return [path] if path.exists() else []

    def _judge_output(self, stdout: bytes) -> Ending | None:
        _, found, last = stdout.decode(errors="replace").rpartition("\nExit:")
        words = last.split(maxsplit=1)
        if found and words and words[0] in FAILURES:
            return Ending(ok=False, reason=words[0])
        return None
