"""Collection: an agent works through the tasks of a data set, each in a place of its own, through one proxy.

``instances`` and ``datasets`` say what is worked on, ``mirrors`` and ``worktree`` make the repository that the agent
sees, ``sandbox`` keeps it there, ``process`` and ``supervisor`` end it, ``work`` is one instance from its commit to its
patch, ``collector`` all of them, ``session``, ``traffic`` and ``predictions`` what came of them.
"""

from .api import collect, collect_async, collector
from .collector import Collector
from .progress import CollectProgress
from .session import Session, read

__all__ = ["CollectProgress", "Collector", "Session", "collect", "collect_async", "collector", "read"]
