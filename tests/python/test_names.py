"""The public surface: what is exported, what is documented, which calls have an asyncio twin."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import agentbench
from agentbench import _core, exceptions

HANDLES = [
    agentbench.Capacity,
    agentbench.Proxy,
    agentbench.Poller,
    agentbench.PowerSampler,
    agentbench.Replay,
    agentbench.SimulatedEngine,
]
# These return at once or read what is there already, so a twin would say nothing new.
WITHOUT_TWIN = {
    "analyze",
    "capture",
    "compare",
    "default_out",
    "history",
    "probe_gpus",
    "report",
    "sample_trace",
    "tool",
}


def test_all_names_what_is_public() -> None:
    public = {name for name in vars(agentbench) if not name.startswith("_")} | {"__version__"}
    assert set(agentbench.__all__) == public
    assert agentbench.__all__ == sorted(agentbench.__all__, key=_as_ruff_sorts)


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    rank = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return rank, name


def test_compiled_classes_say_that_they_are_agentbenchs() -> None:
    for name in agentbench.__all__:
        value = getattr(agentbench, name)
        if inspect.isclass(value):
            assert value.__module__ == "agentbench", name
            assert value.__doc__, name


@pytest.mark.parametrize("handle", HANDLES)
def test_every_blocking_method_has_a_twin(handle: type[agentbench.Handle]) -> None:
    methods = {name for name in dir(handle) if not name.startswith("_")}
    for name in ("start", "stop", "wait"):
        assert {name, f"{name}_async"} <= methods
    for twin in (name for name in methods if name.endswith("_async")):
        assert twin.removesuffix("_async") in methods


def test_every_blocking_function_has_a_twin() -> None:
    functions = {name for name in agentbench.__all__ if inspect.isroutine(getattr(agentbench, name))}
    plain = {name for name in functions if not name.endswith("_async")}
    assert {f"{name}_async" for name in plain - WITHOUT_TWIN} == functions - plain


@pytest.mark.parametrize("name", exceptions.__all__)
def test_exceptions_share_a_base(name: str) -> None:
    exception = getattr(agentbench, name)
    assert exception is getattr(exceptions, name)
    assert issubclass(exception, agentbench.AgentbenchError)


def test_version_is_the_distributions() -> None:
    assert agentbench.__version__ == version("agentbench-serving")


def test_a_debug_build_warns_on_import() -> None:
    code = "import agentbench; print(agentbench._core.build_profile)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ("RuntimeWarning" in result.stderr) == (result.stdout.strip() == "debug")
    assert _core.build_profile in {"debug", "release"}


def test_a_forked_child_gets_an_error_and_no_hang() -> None:
    code = """
import os, warnings
warnings.simplefilter("ignore")
import agentbench
engine = agentbench.SimulatedEngine().start()
child = os.fork()
if child == 0:
    try:
        engine.stop()
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
engine.stop()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.stdout.strip() == "7", result.stderr
