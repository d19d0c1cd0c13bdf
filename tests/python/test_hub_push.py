"""A push and what reads it back, against a stand-in of the hub and against the folder of a dry run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import yaml
from tests.python.hub_server import TOKEN, Hub, serving
from tests.python.planting import SECRETS, turn, write_run
from tests.python.readme_blocks import blocks, commands

import agentbench

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
TRACELAB = Path(os.environ.get("AGENTBENCH_SAMPLES", REPOSITORY.parent / "shared" / "samples")) / "tracelab"
REPO = "somebody/traces"
WITHOUT_XET = """
import importlib.metadata
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "hf_xet":
            raise ModuleNotFoundError("No module named 'hf_xet'", name=name)


sys.meta_path.insert(0, Hidden())
version = importlib.metadata.version


def known(name):
    if name in {"hf_xet", "hf-xet"}:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)


importlib.metadata.version = known
"""
TIMEOUT_S = 100


@dataclass
class Place:
    """A hub, and an environment of its own whose hub it is."""

    hub: Hub
    environment: dict[str, str]
    folder: Path

    def run(self, *command: str, token: str | None = TOKEN) -> subprocess.CompletedProcess[str]:
        """Run Python there; the hub's libraries read their settings when they are imported."""
        environment = dict(self.environment)
        if token is not None:
            environment["HF_TOKEN"] = token
        return subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            cwd=self.folder,
            env=environment,
        )

    def push(self, *arguments: str, token: str | None = TOKEN) -> subprocess.CompletedProcess[str]:
        """Push with the command line."""
        return self.run("-m", "agentbench", "push", *arguments, token=token)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serving() as hub:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))}
        own = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        yield Place(hub, kept | own, tmp_path)


SAMPLE = str(agentbench.sample_trace())
ARGUMENTS = ("--repo", REPO, "--license", "cc-by-4.0")


@pytest.mark.parametrize("xet", ["asked for", "disabled", "not installed"])
def test_a_push_is_one_private_commit_that_reads_back(place: Place, xet: str) -> None:
    if xet == "disabled":
        place.environment["HF_HUB_DISABLE_XET"] = "1"
    elif xet == "not installed":
        # Finders are asked in order; one that hides the package stands first.
        (place.folder / "sitecustomize.py").write_text(WITHOUT_XET)
        place.environment["PYTHONPATH"] = f"{place.folder}:{place.environment.get('PYTHONPATH', '')}"
    pushed = place.push(SAMPLE, *ARGUMENTS)
    assert pushed.returncode == 0, pushed.stderr
    asked_for_xet = [line for line in place.hub.asked if "xet-write-token" in line]
    assert bool(asked_for_xet) is (xet == "asked for")
    assert ("Xet did not take the files" in pushed.stderr) is (xet == "asked for")
    assert place.hub.uploads() == 2
    repo = place.hub.repos[REPO]
    assert repo.private
    assert len(repo.commits) == 2
    assert set(repo.commits[-1][1]) == {
        ".gitattributes",
        "README.md",
        "run.json",
        "data/turn_traces-00000-of-00001.parquet",
        "data/tool_calls-00000-of-00001.parquet",
    }
    assert TOKEN not in pushed.stdout + pushed.stderr
    code = f"""
import datasets, json
turns = datasets.load_dataset({REPO!r}, "turn_traces", split="train")
calls = datasets.load_dataset({REPO!r}, "tool_calls", split="train")
import agentbench
run = agentbench.Run.open("hf://datasets/{REPO}")
same = agentbench.Run.open("hf://datasets/{REPO}@{repo.commits[-1][0]}")
settings = run.manifest["settings"]
print(json.dumps([len(turns), len(calls), sum(turns["isl"]), run.totals()["isl"], len(same.turns()), settings]))
"""
    read = place.run("-c", code)
    assert read.returncode == 0, read.stderr
    source = agentbench.Run.open(SAMPLE)
    turns, calls, isl, totals, same, settings = json.loads(read.stdout.strip().splitlines()[-1])
    assert turns == same == len(source.turns())
    assert calls == len(source.tool_calls())
    assert isl == totals == source.totals()["isl"]
    assert settings["published_level"] == "counts"


@pytest.mark.parametrize("source", ["the bundled sample", "an import of TraceLab's sessions"])
def test_the_readme_is_right(place: Place, source: str) -> None:
    """The section "Publish", word for word."""
    run = agentbench.Run.open(SAMPLE)
    if source != "the bundled sample":
        if not TRACELAB.is_dir():
            pytest.skip(f"the samples of TraceLab are not at {TRACELAB}; AGENTBENCH_SAMPLES names their folder")
        run = agentbench.import_traces([TRACELAB / "claude", TRACELAB / "codex"], out=place.folder / "results" / "mine")
    (written,) = commands("### Publish")
    (python,) = blocks("### Publish", "python")
    written = written.replace("results/mine", str(run.path)).replace("OWNER/NAME", REPO)
    # "without `--dry-run` it is sent"
    for command in (written, re.sub(r" --dry-run \S+", "", written)):
        done = place.run("-m", *shlex.split(command))
        assert done.returncode == 0, done.stderr
    assert list(place.hub.repos) == [REPO]
    read = place.run("-c", python + "print(len(run.turns()))")
    assert read.stdout.splitlines()[-1] == str(len(run.turns())), read.stderr


def test_levels_are_listed_without_a_run(place: Place) -> None:
    listed = place.push("--list-levels", token=None)
    assert listed.returncode == 0, listed.stderr
    counts = listed.stdout.split("hashes: ")[0]
    assert "  messages: nothing" in counts
    assert "    well-known names as they are, others as pseudonyms: name" in counts


def test_without_a_licence_nothing_is_written(place: Place) -> None:
    pushed = place.push(SAMPLE, "--repo", REPO, "--dry-run", "out")
    assert pushed.returncode == 2
    assert "--license cc-by-4.0" in pushed.stderr
    assert not (place.folder / "out").exists()


def test_a_push_goes_on_where_it_was_cut_off(place: Place) -> None:
    place.hub.refuse_commits = True
    first = place.push(SAMPLE, *ARGUMENTS, "--level", "hashes")
    assert first.returncode == 2
    assert "run the same command again" in first.stderr
    assert len(first.stderr.strip().splitlines()) < 8
    assert TOKEN not in first.stderr
    assert place.hub.uploads() == 3
    place.hub.refuse_commits = False
    second = place.push(SAMPLE, *ARGUMENTS, "--level", "hashes")
    assert second.returncode == 0, second.stderr
    assert place.hub.uploads() == 3
    # A push at another level takes the place of the first.
    third = place.push(SAMPLE, *ARGUMENTS)
    assert third.returncode == 0, third.stderr
    assert "data/messages-00000-of-00001.parquet" not in place.hub.repos[REPO].commits[-1][1]
    assert "1 files of an earlier push were taken away" in third.stdout


def test_a_public_data_set_needs_the_word(place: Place) -> None:
    pushed = place.push(SAMPLE, *ARGUMENTS, "--public")
    assert pushed.returncode == 0, pushed.stderr
    assert not place.hub.repos[REPO].private
    again = place.push(SAMPLE, *ARGUMENTS)
    assert again.returncode == 2
    assert "say --public" in again.stderr
    assert len(place.hub.repos[REPO].commits) == 2


def test_a_hub_that_cannot_be_reached_says_so(place: Place) -> None:
    place.environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    pushed = place.push(SAMPLE, *ARGUMENTS)
    assert pushed.returncode == 2
    assert "the hub did not take it" in pushed.stderr
    assert "Traceback" not in pushed.stderr
    read = place.run("-m", "agentbench", "analyze", f"hf://datasets/{REPO}")
    assert read.returncode == 2
    assert "the hub must be reachable" in read.stderr


def test_a_published_run_is_an_argument(place: Place) -> None:
    assert place.push(SAMPLE, *ARGUMENTS).returncode == 0
    asked = place.run("-m", "agentbench", "analyze", f"hf://datasets/{REPO}", "--question", "overview")
    assert asked.returncode == 0, asked.stderr
    assert "traces" in asked.stdout
    replayed = place.run(
        "-m",
        "agentbench",
        "replay",
        f"hf://datasets/{REPO}",
        "--content",
        "synthetic",
        "--trajectories",
        "1",
        "--out",
        "x",
    )
    assert replayed.returncode == 0, replayed.stderr


def test_without_a_token_nothing_is_asked(place: Place) -> None:
    pushed = place.push(SAMPLE, *ARGUMENTS, token=None)
    assert pushed.returncode == 2
    assert "hf auth login" in pushed.stderr
    assert place.hub.asked == []


def test_a_finding_stops_the_push(place: Place, tmp_path: Path) -> None:
    text = json.dumps({"role": "user", "content": f"mail {SECRETS['e-mail']}"})
    unit = {"hash": "aa" * 16, "kind": "message", "role": "user", "text": text, "n_bytes": len(text)}
    write_run(tmp_path / "run", {"turn_traces": [turn(0, ["aa" * 16])], "messages": [unit]})
    pushed = place.push(str(tmp_path / "run"), *ARGUMENTS, "--level", "text", "--dry-run", str(tmp_path / "seen"))
    assert pushed.returncode == 1
    assert "nothing was sent" in pushed.stderr
    assert "data/messages-00000-of-00001.parquet row 0 column text" in " ".join(pushed.stderr.split())
    pushed = place.push(str(tmp_path / "run"), *ARGUMENTS, "--level", "text")
    assert pushed.returncode == 1
    assert SECRETS["e-mail"] not in pushed.stderr
    assert place.hub.asked == []
    allowed = place.push(str(tmp_path / "run"), *ARGUMENTS, "--level", "text", "--allow", "email")
    assert allowed.returncode == 0, allowed.stderr
    assert "1 findings were allowed" in allowed.stderr


def test_a_run_of_the_hub_that_is_not_there_says_so(place: Place) -> None:
    for address, text in (
        ("hf://datasets/somebody/nothing", "no such data set"),
        ("hf://models/x", "hf://datasets/OWNER/NAME"),
        (f"{place.hub.url}/x.parquet", "cannot be fetched"),
        (f"{place.hub.url}/x.csv", "ends in .parquet"),
    ):
        code = (
            f"import agentbench\ntry:\n    agentbench.Run.open({address!r})\n"
            "except agentbench.TraceError as error:\n    print(error)"
        )
        read = place.run("-c", code)
        assert text in read.stdout, (address, read.stdout, read.stderr)


def test_what_was_fetched_opens_offline(place: Place) -> None:
    assert place.push(SAMPLE, *ARGUMENTS).returncode == 0
    code = f"import agentbench; print(len(agentbench.Run.open('hf://datasets/{REPO}').turns()))"
    assert place.run("-c", code).stdout.strip() == "110"
    place.environment["HF_HUB_OFFLINE"] = "1"
    offline = place.run("-c", code)
    assert offline.stdout.strip() == "110", offline.stderr
    other = place.run("-c", code.replace("traces", "others"))
    assert "HF_HUB_OFFLINE" in other.stderr


def test_a_parquet_url_opens_as_a_run(place: Place) -> None:
    assert place.push(SAMPLE, *ARGUMENTS, "--public").returncode == 0
    url = f"{place.hub.url}/datasets/{REPO}/resolve/main/data/turn_traces-00000-of-00001.parquet"
    code = f"import agentbench; run = agentbench.Run.open({url!r}); print(len(run.turns()), run.manifest['kind'])"
    assert place.run("-c", code).stdout.split() == ["110", "import"]
    # A handle takes the address as it takes a path.
    code = f"""
import agentbench
with agentbench.SimulatedEngine(speed="instant") as engine:
    handle = agentbench.Replay({url!r}, url=engine.url, out="y", agents=1, trajectories=1, content="synthetic")
    with handle:
        print(handle.wait().summary()["requests"]["failed"])
"""
    assert place.run("-c", code).stdout.split() == ["0"]


@pytest.mark.parametrize("level", ["counts", "hashes", "text-redacted", "text"])
def test_the_folder_of_a_dry_run_is_the_data_set(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "out"
    done = agentbench.push(SAMPLE, repo=REPO, license="odc-by", level=level, dry_run=folder, allow=["random"])
    assert done.findings == []
    card = (folder / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["license"] == "odc-by"
    assert head["size_categories"] == ["n<1K"]
    assert ("format:agent-traces" in head["tags"]) is level.startswith("text")
    assert [config["config_name"] for config in head["configs"]] == list(done.rows)
    assert "| `isl` | uint64 | 0 | Prompt tokens, from the response's usage. |" in card
    import datasets

    turns = datasets.load_dataset(str(folder), "turn_traces", split="train")
    source = pa.table(agentbench.Run.open(SAMPLE).turns())
    assert turns["isl"][:] == source.column("isl").to_pylist()
    run = agentbench.Run.open(folder)
    assert run.totals()["osl"] == agentbench.Run.open(SAMPLE).totals()["osl"]
    request = pa.table(run.turns()).column("request_id").to_pylist()[0]
    if level == "text":
        assert run.isl_text(request)
    elif level in {"counts", "hashes"}:
        with pytest.raises(agentbench.TraceError, match=f"published at level {level}"):
            run.isl_text(request)


def test_shards_are_bounded_and_read_as_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [turn(at, [], isl_new_text=os.urandom(100_000).hex()) for at in range(60)]
    run = write_run(tmp_path / "run", {"turn_traces": rows})
    folder = tmp_path / "out"
    done = agentbench.push(
        run, repo=REPO, license="odc-by", level="text", dry_run=folder, shard_mb=1, allow=["random", "user"]
    )
    shards = sorted((folder / "data").iterdir())
    assert len(shards) > 3
    assert max(path.stat().st_size for path in shards) < 3 << 20
    assert shards[0].name == f"turn_traces-00000-of-{len(shards):05}.parquet"
    assert done.findings == []
    opened = agentbench.Run.open(folder)
    assert pa.table(opened.turns()).column("turn").to_pylist() == list(range(60))


def test_a_folder_of_parquet_files_opens_as_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    import pandas as pd
    import pyarrow.parquet as pq

    folder = tmp_path / "others"
    (folder / "tool_calls" / "train").mkdir(parents=True)
    # As other programs write: wider types, a column of their own, a folder in place of a name.
    frame = pd.DataFrame(
        {"session_id": ["a", "b"], "thread_id": ["a", "b"], "turn": [0, 0], "isl": [5, 6], "mine": [1, 2]}
    )
    frame.to_parquet(folder / "turn_traces.parquet")
    pq.write_table(
        pa.table({"name": pa.array(["Bash"], pa.large_string())}), folder / "tool_calls" / "train" / "0000.parquet"
    )
    run = agentbench.Run.open(folder)
    assert pa.table(run.turns()).column("isl").to_pylist() == [5, 6]
    assert pa.table(run.tool_calls()).column("name").to_pylist() == ["Bash"]
    assert "without a manifest" in run.manifest["notes"][0]
    one = agentbench.Run.open(folder / "turn_traces.parquet")
    assert len(one.turns()) == 2
    assert len(one.tool_calls()) == 0
    frame.assign(isl=["x", "y"]).to_parquet(folder / "turn_traces.parquet")
    with pytest.raises(agentbench.TraceError, match="column isl has type"):
        agentbench.Run.open(folder)
    (folder / "turn_traces.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(agentbench.TraceError, match="cut off or damaged"):
        agentbench.Run.open(folder)


def test_a_folder_of_other_tables_says_so(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "weather.parquet")
    with pytest.raises(agentbench.TraceError, match="holds no table of a run"):
        agentbench.Run.open(tmp_path)


async def test_published_runs_open_without_blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    await agentbench.push_async(SAMPLE, repo=REPO, license="odc-by", dry_run=tmp_path / "out")
    run = await agentbench.Run.open_async(tmp_path / "out")
    assert len(run.turns()) == 110


def test_a_published_run_is_replayed(
    tmp_path: Path, engine: agentbench.SimulatedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prompts = {}
    planned = {}
    for level in ("counts", "hashes"):
        agentbench.push(SAMPLE, repo=REPO, license="odc-by", level=level, dry_run=tmp_path / level)

        run = agentbench.replay(
            agentbench.Run.open(tmp_path / level),
            url=engine.url,
            out=tmp_path / f"{level}-replayed",
            content="synthetic",
            trajectories=8,
            agents=8,
        )
        requests = pa.table(run.requests()).to_pylist()
        prompts[level] = sorted(row["planned_prompt_tokens"] for row in requests)
        planned[level] = sum(row["planned_cached_tokens"] for row in requests)
    reference = agentbench.replay(
        SAMPLE, url=engine.url, out=tmp_path / "reference", content="synthetic", trajectories=8, agents=8
    )
    rows = pa.table(reference.requests()).to_pylist()
    assert prompts["counts"] == prompts["hashes"] == sorted(row["planned_prompt_tokens"] for row in rows)
    # What prompts share is exactly what it was.
    assert planned["hashes"] == sum(row["planned_cached_tokens"] for row in rows)
