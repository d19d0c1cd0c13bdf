"""Where an option's value comes from: command line before environment before file before default, and said so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import agentbench
from agentbench._cli import leaves, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE = """
agents: 2
cache_sharing: trajectory
max-error-rate: 5
strict: true
replay:
  agents: 3
  tool-time: none
  idle-timeout: 90s
capacity:
  slo: ["ttft.p95<=10s", "errors<=0"]
"""


@pytest.fixture
def shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., dict[str, tuple[str, str]]]:
    """Runs a verb with ``--show-config``; value and origin of each option."""

    def show(*arguments: str, file: str = FILE) -> dict[str, tuple[str, str]]:
        path = tmp_path / "config.yaml"
        path.write_text(file)
        assert run([arguments[0], "--config", str(path), *arguments[1:], "--show-config"]) == 0
        lines = capfd.readouterr().out.replace(str(path), "FILE").splitlines()[1:]
        rows = [line.split(maxsplit=1) for line in lines]
        return {
            name: (value.strip(), origin)
            for name, rest in rows
            for value, origin in [tuple(rest.split("  ", 1)) if "  " in rest else tuple(rest.rsplit(" ", 1))]
            for origin in [origin.strip()]
        }

    return show


def test_each_place_comes_before_the_next(
    shown: Callable[..., dict[str, tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTBENCH_REPLAY_TOOL_TIME", "scale:2")
    monkeypatch.setenv("AGENTBENCH_REPLAY_AGENTS", "7")
    monkeypatch.setenv("AGENTBENCH_API_KEY", "sk-not-to-be-shown")
    values = shown("replay", "--agents", "9")
    assert values["--agents"] == ("9", "command line")
    assert values["--tool-time"] == ("scale:2", "environment (AGENTBENCH_REPLAY_TOOL_TIME)")
    assert values["--cache-sharing"] == ("trajectory", "file (FILE)")
    assert values["--max-error-rate"] == ("5.0", "file (FILE)")
    assert values["--strict"] == ("True", "file (FILE)")
    assert values["--idle-timeout"] == ("90.0", "file (FILE)")
    assert values["--max-retries"] == ("0", "default")
    assert values["--api-key"] == ("(set)", "environment (AGENTBENCH_API_KEY)")


def test_a_section_comes_before_the_top_of_the_file(shown: Callable[..., dict[str, tuple[str, str]]]) -> None:
    assert shown("replay")["--agents"] == ("3", "file (FILE)")


def test_an_option_that_may_be_repeated_takes_a_list(shown: Callable[..., dict[str, tuple[str, str]]]) -> None:
    capacity = shown("capacity", file="capacity:\n  slo: ['ttft.p95<=10s', 'errors<=0']\n")
    assert capacity["--slo"] == ("ttft.p95<=10s, errors<=0", "file (FILE)")


def test_a_replay_obeys_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"agents: 2\ntrajectories: 3\ntool-time: none\nout: {tmp_path / 'run'}\n")
    assert run(["replay", "--config", str(path)]) == 0
    summary = agentbench.Run.open(tmp_path / "run").summary()
    assert summary is not None
    settings = summary["settings"]
    assert (settings["agents"], settings["trajectories"], settings["tool_time"]) == (2, 3, "none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent: 2", "'agent' is no option of `agentbench replay`; agents is meant?"),
        ("zzz: 2", "'zzz' is no option of `agentbench replay`; see `agentbench replay --help`"),
        ("agents: [1, 2]", "agents: one value is wanted, and these are several"),
        ("agents:", "agents: a value is wanted"),
        ("agents: many", "Invalid value for '--agents': 'many' is not a valid integer"),
        ("strict: 1", "strict: this is on or off; write true or false"),
        ("- agents", "options by their names are wanted"),
        ("agents: [", "config.yaml:2: this is no YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text + "\n")
    assert run(["replay", "--config", str(path), "--out", str(tmp_path / "run")]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", sorted(leaves()))
def test_every_verb_takes_a_file(verb: str) -> None:
    names = {option.name for option in leaves()[verb].params}
    assert {"config", "show_config"} <= names
