"""What a collection was told, kept in the run directory so that ``--resume`` needs nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError

from .files import write_json, write_whole
from .instances import Instance

if TYPE_CHECKING:
    from pathlib import Path

FILE = "collect.json"
INSTANCES_FILE = "instances.jsonl"


@dataclass(frozen=True)
class Settings:
    """How instances are worked on.

    Attributes
    ----------
    dataset
        Name or file of the data set.
    agent
        Name of a harness, or a command line.
    upstream, model
        The engine and the model that agents ask for.
    concurrency
        Instances at once.
    time_limit_s
        Seconds that an agent may take for an instance.
    max_turns
        Turns that an agent may take; None sets no limit.
    max_output_tokens
        Most tokens that a request may ask for; None leaves it to the agent.
    fresh_cache
        Whether the engine's prefix cache is emptied before each instance.
    container
        Whether agents run in the instance's image.
    unsandboxed
        Whether agents may run with nothing around them.
    expose
        Paths that agents may read besides.
    repos
        Local repositories in place of clones.
    cache_dir
        Where mirrors are kept.
    shuffle, seed, num_samples
        How the instances were chosen; they are listed in ``instances.jsonl``.
    """

    dataset: str
    agent: str
    upstream: str
    model: str
    concurrency: int = 1
    time_limit_s: float = 1800.0
    max_turns: int | None = None
    max_output_tokens: int | None = None
    fresh_cache: bool = False
    container: bool = False
    unsandboxed: bool = False
    expose: tuple[str, ...] = ()
    repos: str | None = None
    cache_dir: str | None = None
    shuffle: bool = False
    seed: int = 0
    num_samples: int | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency: {self.concurrency} is below 1")
        if self.time_limit_s <= 0:
            raise ConfigError(f"time_limit_s: {self.time_limit_s} is no time above 0 s")
        if self.fresh_cache and self.concurrency > 1:
            raise ConfigError(
                f"fresh_cache needs concurrency 1: with {self.concurrency} instances at once, emptying the cache "
                "before one takes it from the others"
            )

        if self.container and (self.unsandboxed or self.repos):
            raise ConfigError("container excludes unsandboxed and repos: the image brings sandbox and repository")

    def write(self, run: Path, instances: list[Instance]) -> None:
        """Keep settings and instances in a run directory."""
        lines = [json.dumps(asdict(instance)) + "\n" for instance in instances]
        write_whole(run / INSTANCES_FILE, "".join(lines))
        write_json(run / FILE, asdict(self))


NAMES = [field.name for field in fields(Settings)]


def read(run: Path) -> tuple[Settings, list[Instance]]:
    """Return the settings and instances of a collection that was begun.

    Raises
    ------
    ConfigError
        When the directory holds none.
    """
    try:
        value: dict[str, Any] = json.loads((run / FILE).read_bytes())
        rows = [json.loads(line) for line in (run / INSTANCES_FILE).read_bytes().splitlines()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run}: no collection was begun here: {error}; --resume takes its run directory") from error
    value["expose"] = tuple(value.get("expose", ()))
    return Settings(**{name: value[name] for name in NAMES if name in value}), [Instance(**row) for row in rows]
