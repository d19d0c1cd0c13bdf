"""Exports that aiperf reads, tried on aiperf itself: its schemas, its analysis, a run on the embedded engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from real_parts import REPOSITORY, ROOT

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

PEERS = REPOSITORY / "benches/peers/run.py"
PLACE = ROOT / "peers/aiperf"
MODEL = "agentbench-sim"
TOKENIZER = "agentbench/bytes"
REQUESTS = 20
SLACK_SHARE = 0.005
TIME_LIMIT_S = 300

# Its own models refuse fields that a trace does not have, and its own loaders read folders.
VALIDATE = """
import json, sys
from pathlib import Path
from aiperf.dataset.loader.models import MooncakeTrace
from aiperf.dataset.loader.mooncake_trace import MooncakeTraceDatasetLoader
from aiperf.dataset.loader.weka_trace import WekaTraceLoader
from aiperf.dataset.loader.weka_trace_models import WekaSubagentEntry, WekaTrace
from aiperf.dataset.loader.tracelab_trace import TraceLabTraceDatasetLoader
from aiperf.dataset.loader._tracelab_convert import order_rounds

mooncake, weka, tracelab = map(Path, sys.argv[1:])
rows = [json.loads(line) for line in mooncake.read_text().splitlines()]
assert MooncakeTraceDatasetLoader.can_load(rows[0])
known = set(MooncakeTrace.model_fields)
for row in rows:
    assert set(row) <= known, set(row) - known
    MooncakeTrace.model_validate(row)
assert WekaTraceLoader.can_load(filename=weka)
traces = [WekaTrace.model_validate_json(path.read_bytes()) for path in sorted(weka.glob("*.json"))]
requests = [request for trace in traces for request in trace.requests]
inner = [one for entry in requests if isinstance(entry, WekaSubagentEntry) for one in entry.requests]
assert TraceLabTraceDatasetLoader.can_load(filename=tracelab)
rounds = [json.loads(line) for line in tracelab.read_text().splitlines()]
timed = order_rounds(rounds)
print(json.dumps({
    "mooncake": len(rows),
    "sessions": len(traces),
    "subagents": sum(isinstance(entry, WekaSubagentEntry) for entry in requests),
    "weka": sum(not isinstance(entry, WekaSubagentEntry) for entry in requests) + len(inner),
    "tokens": sum(getattr(entry, "input_length", 0) for entry in [*requests, *inner]),
    "rounds": len(timed),
    "api_seconds": sum(seconds or 0 for _, seconds, _ in timed),
}))
"""


@pytest.fixture(scope="module")
def aiperf() -> Path:
    """Its environment, made once; the folder is the one that the bench of peers fills."""
    done = subprocess.run(
        [sys.executable, PEERS, "setup", "aiperf", ROOT / "peers"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"aiperf cannot be installed here: {(done.stderr or done.stdout).strip()[-500:]}")
    return PLACE / "venv/bin/aiperf"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> agentbench.Run:
    """Short sessions with subagents."""
    out = tmp_path_factory.mktemp("made") / "run"
    made = agentbench.synthesize(out, sessions=4, profile="small", seed=3)
    assert (made.turns().to_pandas()["kind"] == "subagent").any()
    return made


@pytest.fixture(scope="module")
def exported(run: agentbench.Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exported")
    places = {"mooncake": folder / "trace.jsonl", "weka": folder / "weka", "tracelab": folder / "rounds.jsonl"}
    for layout, out in places.items():
        agentbench.export(run, format=layout, out=out)
    return places


@pytest.fixture(scope="module")
def offline(aiperf: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tokenizer as if it came from the hub: aiperf's workers find none by a path."""
    home = tmp_path_factory.mktemp("hub")
    model = home / "hub" / f"models--{TOKENIZER.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs/main").write_text("0" * 40)
    shutil.copytree(PLACE / "tokenizer", model / "snapshots" / ("0" * 40))
    assert aiperf.exists()
    return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def called(command: list[Any], cwd: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_its_own_schemas_take_every_row(
    aiperf: Path, run: agentbench.Run, exported: dict[str, Path], tmp_path: Path
) -> None:
    python = aiperf.with_name("python")
    read = json.loads(called([python, "-c", VALIDATE, *exported.values()], tmp_path).splitlines()[-1])
    turns = run.turns().to_pandas()
    assert read["mooncake"] == read["weka"] == read["rounds"] == len(turns)
    assert read["sessions"] == turns["session_id"].nunique()
    assert read["subagents"] == turns[turns["kind"] != "main"]["thread_id"].nunique()
    assert read["tokens"] == turns["isl"].sum()
    # It takes the time from the last input to the last output: our responses from arrival to end.
    assert read["api_seconds"] == pytest.approx(turns["e2e_ms"].sum() / 1e3, rel=1e-6)


def test_its_analysis_finds_the_hit_rate_that_our_blocks_give(
    aiperf: Path, exported: dict[str, Path], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    called([aiperf, "analyze-trace", exported["mooncake"], "--block-size", "512", "--output-file", report], tmp_path)
    rows = [json.loads(line) for line in exported["mooncake"].read_text().splitlines()]
    seen: set[int] = set()
    rates = []
    for row in rows:
        leading = 0
        for number in row["hash_ids"]:
            if number not in seen:
                break
            leading += 1
        rates.append(leading / len(row["hash_ids"]))
        seen.update(row["hash_ids"])
    told = json.loads(report.read_text())
    assert told["total_requests"] == len(rows)
    assert told["hit_rate_stats"]["mean"] == pytest.approx(sum(rates) / len(rates), abs=0.02)


@pytest.mark.parametrize("layout", ["mooncake", "weka"])
def test_it_replays_an_export_against_the_embedded_engine(
    layout: str,
    aiperf: Path,
    offline: dict[str, str],
    run: agentbench.Run,
    exported: dict[str, Path],
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    pace = "--no-fixed-schedule --concurrency 4" if layout == "mooncake" else "--trace-idle-gap-cap-seconds 0.2"
    with agentbench.SimulatedEngine() as engine:
        command = f"""profile --model {MODEL} --url {engine.url} --endpoint-type chat --streaming
            --tokenizer {TOKENIZER} --input-file {exported[layout]} --custom-dataset-type {layout}_trace
            {pace} --request-count {REQUESTS} --inter-turn-delay-cap-seconds 0.05 --no-server-metrics
            --no-gpu-telemetry --ui none --export-level records --output-artifact-dir {out}"""
        called([aiperf, *command.split()], tmp_path, offline)
    records = [json.loads(line) for line in (out / "profile_export.jsonl").read_text().splitlines()]
    assert len(records) == REQUESTS
    assert [record["error"] for record in records if record.get("error")] == []
    # Prompts are as long as the trace says, but for the template that a chat puts around each message.
    asked = [int(record["metrics"]["input_sequence_length"]["value"]) for record in records]
    known = [int(isl) for isl in run.turns().to_pandas()["isl"]]
    assert [n for n in asked if all(not 0 <= n - isl <= isl * SLACK_SHARE for isl in known)] == []
