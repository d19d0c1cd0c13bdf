"""Libraries of the ``hub`` extra, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

REMEDY = 'pip install "agentbench-serving[hub]"'


def needed(name: str) -> ModuleType:
    """Import a library of the extra, or say how to get it.

    Raises
    ------
    ModuleNotFoundError
        When it is missing; the text names the extra.
    """
    top = name.partition(".")[0]
    if find_spec(top) is None:
        raise ModuleNotFoundError(f"{top} is not installed; install it with: {REMEDY}", name=top)
    return import_module(name)
