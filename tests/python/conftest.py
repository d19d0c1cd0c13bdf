"""Fixtures: one embedded engine without waits, and a small capture made with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.python.traffic import converse

import agentbench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def engine() -> Iterator[agentbench.SimulatedEngine]:
    """An embedded engine without waits worth speaking of."""
    with agentbench.SimulatedEngine(speed="instant") as engine:
        yield engine


@dataclass(frozen=True)
class Captured:
    """A finished capture and the bodies that were sent, in order."""

    path: Path
    bodies: list[bytes]


@pytest.fixture(scope="session")
def captured(engine: agentbench.SimulatedEngine, tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Two sessions, of three turns and of two."""
    out = tmp_path_factory.mktemp("captured") / "run"
    with agentbench.Proxy(engine.url, out=out) as proxy:
        bodies = converse(proxy.url, 3, session="one") + converse(proxy.url, 2, session="two")
    return Captured(out, bodies)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
