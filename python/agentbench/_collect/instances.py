"""What an agent is given: an instance of a data set, and which of them a run takes.

Where instances come from is for ``datasets``.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentbench._core import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

# An id names a folder and a session in a URL.
ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")


@dataclass(frozen=True)
class Instance:
    """One task on one commit of one repository.

    Attributes
    ----------
    id
        Unique in the data set; names the folder and the session.
    repository
        ``owner/name``, a URL, or the path of a local repository.
    commit
        The commit that the agent starts from.
    prompt
        What the agent is told.
    image, image_workdir
        The container image of the instance and where the repository lies in it; None where there is none.
    """

    id: str
    repository: str
    commit: str
    prompt: str
    image: str | None = None
    image_workdir: str | None = None


def select(
    instances: Sequence[Instance], *, ids: Sequence[str], num_samples: int | None, shuffle: bool, seed: int
) -> list[Instance]:
    """Return the instances that a run takes, in the order in which it takes them.

    Parameters
    ----------
    instances
        The whole data set.
    ids
        Only these; empty takes all.
    num_samples
        At most so many, after the shuffle; None takes all.
    shuffle, seed
        The order is drawn by the seed: the same seed, the same order.

    Raises
    ------
    ConfigError
        When the data set lacks an id, or nothing is left.
    """
    known = {instance.id for instance in instances}
    missing = [name for name in ids if name not in known]
    if missing:
        raise ConfigError(f"instances: the data set has no {missing[0]!r} ({len(missing)} of {len(ids)} are missing)")
    wanted = set(ids)
    chosen = [instance for instance in instances if not wanted or instance.id in wanted]
    if shuffle:
        random.Random(seed).shuffle(chosen)  # noqa: S311 a repeatable order is what is asked for
    chosen = chosen[:num_samples]
    if not chosen:
        raise ConfigError("the data set has no instance")
    return chosen


def check(instances: Sequence[Instance], source: str) -> None:
    """Refuse ids that cannot name a folder, and ids that come twice.

    Raises
    ------
    ConfigError
        The text names the instance.
    """
    seen: set[str] = set()
    for instance in instances:
        if not ID.fullmatch(instance.id):
            raise ConfigError(
                f"{source}: id {instance.id!r} cannot name a folder; use letters, digits, '_', '-', '+' and '.'"
            )
        if instance.id in seen:
            raise ConfigError(f"{source}: id {instance.id!r} comes twice")
        seen.add(instance.id)
