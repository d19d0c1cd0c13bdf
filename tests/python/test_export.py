"""Runs in others' formats: what is exported and imported again is what was there; others' rules are kept."""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import math
import os
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pytest

import agentbench
from agentbench._cli import run as command

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = Path(os.environ.get("AGENTBENCH_SAMPLES", Path(__file__).parents[3] / "shared" / "samples")) / "tracelab"
needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason=f"the samples of TraceLab are not at {SAMPLES}; AGENTBENCH_SAMPLES names their folder"
)
ENDINGS = {
    "netpreme": "",
    "weka": "",
    "clawperf": "",
    "csv": "",
    "tracelab-csv": ".csv",
    "duckdb": ".duckdb",
    "timeline": ".json",
}
WITH_IMPORTER = [name for name in agentbench.EXPORT_FORMATS if name in agentbench.IMPORT_FORMATS]


@pytest.fixture(scope="module")
def sample() -> agentbench.Run:
    return agentbench.Run.open(agentbench.sample_trace())


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> agentbench.Run:
    """Sessions with subagents and a compaction."""
    out = tmp_path_factory.mktemp("made") / "run"
    run = agentbench.synthesize(out, sessions=4, profile="small", seed=3)
    turns = run.turns().to_pandas()
    assert (turns["kind"] == "subagent").any()
    assert turns[turns["kind"] == "main"].groupby("session_id")["thread_id"].nunique().max() > 1, "no compaction"
    return run


def exported(run: agentbench.Run, layout: str, folder: Path) -> tuple[Path, agentbench.Exported]:
    out = folder / f"out{ENDINGS.get(layout, '.jsonl')}"
    return out, agentbench.export(run, format=layout, out=out)


def around(run: agentbench.Run, layout: str, folder: Path) -> agentbench.Run:
    out, _ = exported(run, layout, folder)
    back = agentbench.import_traces([out], out=folder / "back")
    assert back.manifest["settings"]["problems"] == []
    assert back.manifest["settings"]["formats"] == [layout]
    return back


def sequences(run: agentbench.Run, *columns: str) -> list[list[tuple[Any, ...]]]:
    """Each thread's turns, threads in an order of their content."""
    turns = run.turns().to_pandas().sort_values(["thread_id", "turn"])
    threads = []
    for _, thread in turns.groupby("thread_id"):
        rows = thread[list(columns)].to_dict("records")
        threads.append([tuple(plain(row[column]) for column in columns) for row in rows])
    return sorted(threads, key=str)


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 1)
    return value


@pytest.mark.parametrize("layout", [*agentbench.EXPORT_FORMATS])
def test_every_format_is_written_by_the_command_and_says_what_it_left_out(
    layout: str, sample: agentbench.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"out{ENDINGS.get(layout, '.jsonl')}"
    assert command(["export", str(sample.path), "--format", layout, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert out.exists()
    assert [path.name for path in tmp_path.iterdir()] == [out.name], "nothing else is left"
    turns = sample.manifest["rows"]["turn_traces"]
    counted = "turn traces" if layout in {"csv", "duckdb"} else "turns"
    assert f"{turns:,} {counted}" in said.out
    if layout != "timeline":
        assert ("left out: " in said.err) == (layout not in {"netpreme", "csv", "duckdb"})


@pytest.mark.parametrize("layout", WITH_IMPORTER)
@pytest.mark.parametrize("source", ["sample", "synthetic"])
def test_token_counts_and_threads_come_back(
    layout: str, source: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run: agentbench.Run = request.getfixturevalue(source)
    if layout == "tracelab-csv" and run.turns().to_pandas()["isl_cached"].isna().all():
        with pytest.raises(agentbench.ConfigError, match="cached or output tokens are not known"):
            exported(run, layout, tmp_path)
        return
    back = around(run, layout, tmp_path)
    if layout == "mlperf":
        # It has no counts; a history that was edited makes a further conversation.
        assert len(back.turns()) == len(run.turns())
    elif layout == "mooncake":
        columns = ["isl", "osl"]
        ours, theirs = (it.turns().to_pandas()[columns].value_counts().to_dict() for it in (run, back))
        assert ours == theirs
    elif layout == "weka":
        rows = [Counter(chain.from_iterable(sequences(it, "kind", "isl", "osl"))) for it in (run, back)]
        assert rows[0] == rows[1]
    else:
        assert sequences(back, "isl", "osl") == sequences(run, "isl", "osl")


def test_blocks_are_shared_as_the_prompts_units_are(synthetic: agentbench.Run, tmp_path: Path) -> None:
    """Sessions begin with the same system text and tools: their first blocks are the same, the others are not."""
    out, _ = exported(synthetic, "mooncake", tmp_path)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
    assert rows[0]["timestamp"] == 0
    for row in rows:
        assert len(row["hash_ids"]) == -(-row["input_length"] // 512)
        assert len(set(row["hash_ids"])) == len(row["hash_ids"])
    turns = synthetic.turns().to_pandas()
    turns = turns[turns["kind"] == "main"]
    firsts = turns[turns["turn"] == 0].sort_values("request_time").drop_duplicates("session_id")
    firsts = firsts[firsts["api"] == firsts["api"].mode()[0]]
    by_length = {(row["input_length"], row["output_length"]): row["hash_ids"] for row in rows}
    blocks = [by_length[turn.isl, turn.osl] for turn in firsts.itertuples()]
    head = sum(1 for a, b in zip(blocks[0], blocks[1], strict=False) if a == b)
    assert 0 < head < min(map(len, blocks[:2]))
    assert all(other[:head] == blocks[0][:head] for other in blocks)
    seen: set[int] = set()
    hits = 0
    for row in rows:
        hits += sum(number in seen for number in row["hash_ids"])
        seen.update(row["hash_ids"])
    assert hits / sum(len(row["hash_ids"]) for row in rows) > 0.5


def strict_batchbench(line: str) -> list[tuple[int, int, float]]:
    """A trajectory by batchbench's rules: no field that is not its own, sums that add up, resets where needed."""
    trajectory = json.loads(line)
    allowed = {"schema_version", "trajectory_id", "metadata", "start_after_ms", "requests"}
    assert set(trajectory) <= allowed, set(trajectory) - allowed
    assert trajectory["schema_version"] == 2
    assert isinstance(trajectory["trajectory_id"], str)
    assert trajectory["requests"]
    fields = {"prompt_tokens", "output_tokens", "delay_after_ms", "reset_before", "blocks", "overhead_tokens"}
    roles = {"tool_definition", "system", "user", "assistant", "tool", "tool_call"}
    expected = 0
    read = []
    for index, request in enumerate(trajectory["requests"]):
        assert set(request) <= fields | {"stream", "max_tokens"}, set(request)
        tokens, output = request["prompt_tokens"], request["output_tokens"]
        assert request["delay_after_ms"] >= 0
        for block in request.get("blocks", []):
            assert set(block) <= {"seed", "tokens", "role", "live"}
            assert block["tokens"] > 0
            assert block["role"] in roles
        if blocks := request.get("blocks"):
            assert sum(block["tokens"] for block in blocks) + request["overhead_tokens"] == tokens
        # A tool result's size is what the next prompt has beyond this one and its output.
        assert index == 0 or request["reset_before"] or tokens >= expected
        expected = tokens + output
        read.append((tokens, output, request["delay_after_ms"]))
    return read


@pytest.mark.parametrize("source", ["sample", "synthetic"])
def test_batchbenchs_rules_are_kept(source: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run: agentbench.Run = request.getfixturevalue(source)
    out, _ = exported(run, "batchbench", tmp_path)
    lines = out.read_text().splitlines()
    assert len({json.loads(line)["trajectory_id"] for line in lines}) == len(lines)
    read = [strict_batchbench(line) for line in lines]
    assert sum(map(len, read)) == len(run.turns())
    seeds: dict[str, set[int]] = {}
    for line in lines:
        for asked in json.loads(line)["requests"]:
            for block in asked["blocks"][:-1]:
                seeds.setdefault(block["seed"], set()).add(block["tokens"])
    assert {len(lengths) for lengths in seeds.values()} == {1}, "equal seeds are equally long"


@needs_samples
def test_tracelabs_own_rows_come_back_as_they_are(tmp_path: Path) -> None:
    """Their rows, imported and exported again, have the same figures; what no run keeps is not made up."""
    source = SAMPLES / "sanitized_round_trace.jsonl"
    run = agentbench.import_traces([source], out=tmp_path / "run")
    out = tmp_path / "rows.jsonl.gz"
    agentbench.export(run, format="tracelab", out=out)
    theirs = [json.loads(line) for line in source.read_text().splitlines()]
    with gzip.open(out, "rt") as lines:
        ours = [json.loads(line) for line in lines]
    assert len(ours) == len(theirs)
    same = [
        "provider",
        "session_id",
        "round_index",
        "round_id",
        "model",
        "input_tokens_total",
        "prefix_tokens",
        "newly_append_tokens",
        "claude_uncached_input_tokens",
        "claude_cache_creation_input_tokens",
        "claude_cache_read_input_tokens",
        "output_tokens",
        "reasoning_output_tokens",
        "first_input_event_type",
        "current_input_event_count",
        "current_user_message_count",
        "current_tool_result_count",
        "trace_key",
    ]
    for mine, yours in zip(ours, theirs, strict=True):
        assert {name: mine[name] for name in same} == {name: yours.get(name) for name in same}
        assert mine["project"] is None
        for tool, known in zip(mine["tools"], yours["tools"], strict=True):
            for name, value in tool.items():
                assert value == known.get(name), name
    again = agentbench.import_traces([out], out=tmp_path / "again")
    columns = ["turn", "isl", "isl_cached", "osl", "request_time", "response_end_time", "e2e_ms", "tool_exec_ms"]
    assert sequences(again, *columns) == sequences(run, *columns)


@needs_samples
def test_the_raw_logs_rows_agree_with_tracelabs(tmp_path: Path) -> None:
    run = agentbench.import_traces([SAMPLES / "claude", SAMPLES / "codex"], out=tmp_path / "run")
    out, _ = exported(run, "tracelab", tmp_path)
    ours = [json.loads(line) for line in out.read_text().splitlines()]
    theirs = [json.loads(line) for line in (SAMPLES / "derived_round_trace.jsonl").read_text().splitlines()]
    key: Callable[[dict[str, Any]], tuple[str, int]] = lambda row: (row["provider"], row["round_index"])  # noqa: E731
    for mine, yours in zip(sorted(ours, key=key), sorted(theirs, key=key), strict=True):
        for name in ("round_id", "input_tokens_total", "prefix_tokens", "output_tokens", "reasoning_output_tokens"):
            assert mine[name] == yours[name], name
        assert [tool["tool_name"] for tool in mine["tools"]] == [tool["tool_name"] for tool in yours["tools"]]
        assert [round(tool["tool_wall_latency_ms"]) for tool in mine["tools"]] == [
            tool["tool_wall_latency_ms"] for tool in yours["tools"]
        ]


@needs_samples
def test_a_run_that_lacks_what_a_format_needs_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = agentbench.import_traces([SAMPLES / "sanitized_round_trace.jsonl"], out=tmp_path / "run")
    for layout in ("agentperf", "mlperf", "clawperf"):
        assert command(["export", str(run.path), "--format", layout, "--out", str(tmp_path / layout)]) == 2
        assert not (tmp_path / layout).exists()
        said = capsys.readouterr()
        assert said.out == ""
        assert f"has nothing that {layout} can hold: " in said.err
        assert len(said.err.strip().splitlines()) == 1, said.err
    # Lengths and times are enough for Mooncake; no hashes are made up.
    out, told = exported(run, "mooncake", tmp_path)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all("hash_ids" not in row for row in rows)
    assert told.written["with_block_hashes"] == 0


def test_a_workload_keeps_its_rows(tmp_path: Path) -> None:
    source = tmp_path / "load.csv"
    source.write_text(
        "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n"
        "a,0,0,0,512,64,100\na,0,1,576,128,64,0\nb,117,0,0,2318,200,300\nb,117,1,2518,348,131,0\n"
    )
    run = agentbench.import_traces([source], out=tmp_path / "run")
    out, _ = exported(run, "tracelab-csv", tmp_path)
    read = [list(csv.DictReader(file.read_text().splitlines())) for file in (source, out)]
    assert read[0] == read[1]
    # Only a session's arrival is known, so only first rounds have a time in Mooncake's rows.
    out, _ = exported(run, "mooncake", tmp_path)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["timestamp"] for row in rows if "timestamp" in row) == [0, 117]


def test_recorded_block_hashes_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [46, 47, 48]},
        {"timestamp": 250.5, "input_length": 50, "output_length": 4, "hash_ids": [46, 47, 50, 51]},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = agentbench.import_traces([source], out=tmp_path / "run")
    out, told = exported(run, "mooncake", tmp_path)
    assert told.notes == ["blocks are of 16 tokens, as recorded"]
    read = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["hash_ids"] for row in read] == [[0, 1, 2], [0, 1, 3, 4]]
    assert [row["timestamp"] for row in read] == [0, 250.5]
    traces = [json.loads(path.read_text()) for path in exported(run, "weka", tmp_path)[0].glob("*.json")]
    assert {trace["block_size"] for trace in traces} == {16}
    full = {trace["requests"][0]["in"]: trace["requests"][0]["hash_ids"] for trace in traces}
    assert full == {40: [0, 1], 50: [0, 1, 3]}, "full blocks alone"


def test_a_timeline_holds_what_happened(synthetic: agentbench.Run, tmp_path: Path) -> None:
    out, told = exported(synthetic, "timeline", tmp_path)
    timeline = json.loads(out.read_text())
    events = timeline["traceEvents"]
    turns = synthetic.turns().to_pandas()
    slices = [event for event in events if event["ph"] == "X" and event["cat"] == "turn"]
    assert len(slices) == len(turns) == told.written["turns"]
    by_id = turns.set_index("request_id")
    first = by_id["request_time"].min()
    for event in slices:
        turn = by_id.loc[event["args"]["request_id"]]
        assert event["ts"] == pytest.approx((turn["request_time"] - first) * 1e6, abs=1)
        assert event["dur"] == pytest.approx(turn["e2e_ms"] * 1e3, abs=1)
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {name.split()[0] for name in names.values()} >= {"main", "subagent"}
    tools = [event for event in events if event.get("cat") == "tool"]
    timed = synthetic.tool_calls().to_pandas()["result_time"].notna().sum()
    assert len(tools) == told.written["tool_calls"] == timed
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in [*slices, *tools]:
        tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) <= set(names)
    for spans in tracks.values():
        spans.sort()
        assert all(a[1] <= b[0] + 2 for a, b in pairwise(spans)), "a track has no overlaps"


def test_a_replays_timeline_has_agents_engine_and_power(tmp_path: Path, sample: agentbench.Run) -> None:
    with agentbench.SimulatedEngine() as engine:
        run = agentbench.replay(
            sample.path, url=engine.url, agents=2, trajectories=2, out=tmp_path / "run", power="constant:300"
        )
    out, told = exported(run, "timeline", tmp_path)
    events = json.loads(out.read_text())["traceEvents"]
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {"agent 0", "agent 1", "engine and devices"} <= processes
    requests = run.requests().to_pandas()
    slices = [event for event in events if event.get("cat") == "request"]
    assert len(slices) == len(requests) == told.written["requests"]
    assert sorted(event["ts"] for event in slices) == pytest.approx(sorted(requests["sent_at_ms"] * 1e3), abs=1)
    counters = {event["name"].split(": ")[-1] for event in events if event["ph"] == "C"}
    assert {"requests running", "requests waiting", "KV cache in use, %", "power, W"} <= counters
    with pytest.raises(agentbench.ConfigError, match="has no turns: export a recording"):
        exported(run, "mooncake", tmp_path)


def test_tables_as_csv_and_duckdb_are_the_tables(sample: agentbench.Run, tmp_path: Path) -> None:
    folder, told = exported(sample, "csv", tmp_path)
    rows = {stem: n for stem, n in sample.manifest["rows"].items() if n}
    assert {path.stem for path in folder.iterdir()} == set(rows)
    assert {stem: told.written[stem] for stem in rows} == rows
    turns = sample.turns().to_pandas()
    read = pd.read_csv(folder / "turn_traces.csv")
    assert list(read.columns) == list(turns.columns)
    assert list(read["isl"]) == list(turns["isl"])
    assert [json.loads(text) for text in read["unit_hashes"]] == [list(hashes) for hashes in turns["unit_hashes"]]
    file, told = exported(sample, "duckdb", tmp_path)
    assert {stem: told.written[stem] for stem in rows} == rows
    with duckdb.connect(str(file), read_only=True) as database:
        isl, units = database.sql("SELECT sum(isl), sum(len(unit_hashes)) FROM turn_traces").fetchall()[0]
        known = dict(database.sql("SELECT name, value FROM manifest").fetchall())
    assert isl == turns["isl"].sum()
    assert units == turns["unit_hashes"].map(len).sum()
    assert known["run_id"] == sample.manifest["run_id"]


def test_nothing_is_overwritten_and_wrong_names_are_told(
    sample: agentbench.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for layout in ("mooncake", "weka", "csv", "duckdb", "timeline"):
        taken = tmp_path / layout
        taken.mkdir()
        (taken / "mine").write_text("mine")
        with pytest.raises(agentbench.ConfigError, match=r"is there already|is not empty"):
            agentbench.export(sample, format=layout, out=taken)
        assert [path.name for path in taken.iterdir()] == ["mine"]
    with pytest.raises(agentbench.ConfigError, match='no format to export is called "parquet"; there are netpreme, '):
        agentbench.export(sample, format="parquet", out=tmp_path / "x")
    assert command(["export", str(sample.path), "--format", "weka", "--out", str(tmp_path / "w"), "--no-prompts"]) == 2
    assert "--no-prompts is for netpreme alone" in capsys.readouterr().err


def test_the_twin_and_a_path_in_place_of_a_run(sample: agentbench.Run, tmp_path: Path) -> None:
    told = asyncio.run(agentbench.export_async(sample.path, format="batchbench", out=tmp_path / "m.jsonl"))
    assert told.written["turns"] == sample.manifest["rows"]["turn_traces"]
    assert told.path == tmp_path / "m.jsonl"
