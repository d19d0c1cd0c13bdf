"""What is wrong with a source is counted and listed with its place; the rest of it is imported."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import agentbench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROW = {"timestamp": 1500, "input_length": 30, "output_length": 7, "hash_ids": [1]}


def line(record: Any, **more: Any) -> bytes:
    return json.dumps(record | more).encode() + b"\n"


def rows(n: int) -> bytes:
    return b"".join(line(ROW, timestamp=index * 7919) for index in range(n))


def truncated_gzip() -> bytes:
    return gzip.compress(rows(20_000))[:-4000]


def batch(version: int, name: str) -> bytes:
    blocks = [{"seed": "s", "tokens": 40, "role": "user"}]
    request = {"output_tokens": 5, "prompt_tokens": 40} if version == 1 else {"output_tokens": 5, "blocks": blocks}
    return line({"schema_version": version, "trajectory_id": name, "metadata": {}, "requests": [request]})


def logged(at: str, name: str, tokens: int = 3) -> bytes:
    base = {"sessionId": "s", "timestamp": f"2026-01-01T00:{at}Z"}
    usage = {"input_tokens": 5, "output_tokens": tokens}
    answer = {"id": name, "role": "assistant", "model": "m", "content": [], "usage": usage}
    return line(base | {"type": "user", "message": {"role": "user", "content": name}}) + line(
        base | {"type": "assistant", "message": answer}
    )


# Name; the file; turns, problems by kind, and their lines.
CASES: list[tuple[str, str, bytes, int | None, dict[str, int], list[int] | None]] = [
    ("truncated gzip", "t.jsonl.gz", truncated_gzip(), None, {"file breaks off": 1}, None),
    ("invalid UTF-8", "t.jsonl", rows(2) + b'{"a":"\xff"}\n' + rows(1), 3, {"not UTF-8": 1}, [3]),
    (
        "mixed versions, one of them unknown",
        "t.jsonl",
        batch(1, "a") + batch(2, "b") + batch(3, "c") + batch(1, "d"),
        3,
        {"not a record": 1},
        [3],
    ),
    (
        "mixed formats",
        "t.jsonl",
        rows(1) + line({"provider": "claude", "session_id": "s", "round_index": 0, "timing_events": []}) + rows(1),
        2,
        {"not a record": 1},
        [2],
    ),
    (
        "duplicate keys",
        "t.jsonl",
        rows(1) + b'{"input_length": 1, "input_length": 2, "output_length": 1}\n',
        1,
        {"not a record": 1},
        [2],
    ),
    ("negative counts", "t.jsonl", rows(1) + line(ROW, input_length=-5) + rows(1), 2, {"not a record": 1}, [2]),
    ("counts too large", "t.jsonl", rows(1) + line(ROW, output_length=1e30), 1, {"not a record": 1}, [2]),
    (
        "a log still being written",
        "t.jsonl",
        logged("00:01", "a") + logged("01:01", "b")[:-30],
        1,
        {"not a record": 1},
        [4],
    ),
    ("times that go back", "t.jsonl", logged("05:00", "a") + logged("01:00", "b"), 2, {}, []),
    ("a time that is none", "t.jsonl", logged("05:00", "a") + logged("xx:00", "b"), 1, {"record left out": 2}, [3, 4]),
    ("nested too deep", "t.jsonl", rows(1) + b"[" * 100_000 + b"\n" + rows(1), 2, {"not a record": 1}, [2]),
    ("null bytes", "t.jsonl", rows(1) + b"\0" * 5000 + b"\n" + rows(1), 2, {"not a record": 1}, [2]),
]


@pytest.mark.parametrize(
    ("name", "data", "turns", "counts", "places"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_a_source_is_imported_as_far_as_it_goes(
    tmp_path: Path, name: str, data: bytes, turns: int | None, counts: dict[str, int], places: list[int] | None
) -> None:
    source = tmp_path / name
    source.write_bytes(data)
    run = agentbench.import_traces([source], out=tmp_path / "run")
    settings = run.manifest["settings"]
    assert settings["problem_counts"] == counts
    assert run.manifest["counts"]["records_left_out"] == sum(counts.values())
    assert {problem["file"] for problem in settings["problems"]} <= {str(source)}
    if places is not None:
        assert [problem["line"] for problem in settings["problems"]] == places
    table = run.turns().to_pandas()
    if turns is None:
        # As many as the part that is left holds, and each as it was.
        (problem,) = settings["problems"]
        assert 10_000 < len(table) < 20_000
        assert problem["line"] == len(table) + 1
        assert table["request_time"].tolist() == pytest.approx([index * 7.919 for index in range(len(table))])
    else:
        assert len(table) == turns


def test_times_that_go_back_leave_no_wait_below_zero(tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    source.write_bytes(logged("05:00", "a") + logged("01:00", "b"))
    run = agentbench.import_traces([source], out=tmp_path / "run")
    assert run.turns().to_pandas()["tool_exec_ms"].isna().all()
    assert any("begin before the turn before them ended" in lack for lack in run.manifest["settings"]["lacks"])


def test_rows_that_have_the_key_of_another_are_rows_with_names_of_their_own(tmp_path: Path) -> None:
    row = {"provider": "claude", "session_id": "s", "round_index": 0, "round_id": "r", "timing_events": []}
    source = tmp_path / "t.jsonl"
    source.write_bytes(line(row, output_tokens=1) + line(row, output_tokens=2) + line(row, output_tokens=3))
    run = agentbench.import_traces([source], out=tmp_path / "run")
    turns = run.turns().to_pandas()
    assert dict(zip(turns["request_id"], turns["osl"], strict=True)) == {"r#0": 1, "r#0~2": 2, "r#0~3": 3}
    assert "2 turns have the id of another turn: theirs end in ~2, ~3 and so on" in run.manifest["settings"]["lacks"]


def no_rows(path: Path) -> None:
    pq.write_table(pa.table({"input_length": pa.array([], pa.int64())}), path)


EMPTY: dict[str, Callable[[Path], object]] = {
    "engine_metrics.jsonl": lambda path: path.write_bytes(b""),
    "blank.jsonl": lambda path: path.write_bytes(b"\n  \n\r\n"),
    "packed.jsonl.gz": lambda path: path.write_bytes(gzip.compress(b"")),
    "rows.csv": lambda path: path.write_bytes(b""),
    "document.json": lambda path: path.write_bytes(b""),
    "rows.parquet": no_rows,
}


@pytest.mark.parametrize("name", list(EMPTY))
def test_nothing_is_lost_of_an_empty_file(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jsonl").write_bytes(rows(2))
    EMPTY[name](source / name)
    run = agentbench.import_traces([source], out=tmp_path / "run")
    assert len(run.turns().to_pandas()) == 2
    assert run.manifest["settings"]["problems"] == []
    assert run.manifest["counts"]["records_left_out"] == 0
    with pytest.raises(agentbench.ConfigError, match=f"{name}: it is empty"):
        agentbench.import_traces([source / name], out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_folder_of_the_netpreme_layout_may_have_no_ticks(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "s1"
    folder.mkdir(parents=True)
    (tmp_path / "run_config.json").write_text("{}")
    (folder / "session.json").write_text("{}")
    turn = {"request_time": 100.0, "isl_new_text": "hello", "isl_text": "hello", "osl_text": "hi"}
    (folder / "turn_traces.jsonl").write_bytes(line(turn))
    (folder / "engine_metrics.jsonl").write_bytes(b"")
    run = agentbench.import_traces([tmp_path], out=tmp_path / "run")
    assert run.turns().to_pandas()["osl_text"].tolist() == ["hi"]
    assert run.manifest["settings"]["problem_counts"] == {}


def test_a_database_of_something_else_is_no_loss(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jsonl").write_bytes(rows(2))
    with closing(sqlite3.connect(source / "notes.db")) as database, database:
        database.execute("CREATE TABLE notes (id TEXT)")
    run = agentbench.import_traces([source], out=tmp_path / "run")
    assert len(run.turns().to_pandas()) == 2
    assert run.manifest["settings"]["problem_counts"] == {}
    with pytest.raises(agentbench.ConfigError, match=r"notes\.db: no known format"):
        agentbench.import_traces([source / "notes.db"], out=tmp_path / "none")


def test_what_cannot_be_read_of_opencodes_database_is_counted_and_listed(tmp_path: Path) -> None:
    source = tmp_path / "opencode.db"
    with closing(sqlite3.connect(source)) as database, database:
        database.executescript(
            """CREATE TABLE session (id TEXT, parent_id TEXT, time_created INTEGER);
            CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);
            CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);
            INSERT INTO session VALUES ('s', NULL, 1);
            INSERT INTO message VALUES ('m1', 's', 1, '{"role": "user"}'), ('m2', 's', 2, '{"role": "assistant"}'),
                ('m3', 's', 3, '{"role": "assis');
            INSERT INTO part VALUES ('p1', 'm1', 's', '{"type": "text", "text": "do it"}'), ('p2', 'm2', 's', '?');"""
        )
    run = agentbench.import_traces([source], out=tmp_path / "run")
    assert run.turns().to_pandas()["request_id"].tolist() == ["m2"]
    problems = run.manifest["settings"]["problems"]
    assert [problem["what"].split(":")[1] for problem in problems] == [" part p2", " message m3"]
    assert run.manifest["counts"]["records_left_out"] == 2


LONG_MB = 200
MOST_MB = 400
SCRIPT = """
import resource, sys
import agentbench
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
agentbench.import_traces([sys.argv[1]], out=sys.argv[2], threads=2)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("first", [False, True], ids=["amid others", "first of all"])
def test_a_line_of_200_mb_is_left_out_in_bounded_memory(tmp_path: Path, *, first: bool) -> None:
    source = tmp_path / "t.jsonl"
    long = b'{"messages": "' + b"x" * (LONG_MB << 20) + b'"}\n'
    source.write_bytes((b"" if first else rows(1)) + long + rows(2))
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert int(result.stdout) < MOST_MB, "megabytes more than before"
    run = agentbench.Run.open(tmp_path / "run")
    assert len(run.turns().to_pandas()) == (2 if first else 3)
    (problem,) = run.manifest["settings"]["problems"]
    assert (problem["line"], problem["what"]) == (1 if first else 2, "longer than 64 MB")


def test_files_that_cannot_be_read_do_not_stop_the_others(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jsonl").write_bytes(rows(2))
    (source / "b.parquet").write_bytes(b"PAR1 and no more")
    (source / "c.jsonl.gz").write_bytes(b"\x1f\x8b\x08\0")
    (source / "d.jsonl").symlink_to(tmp_path / "nowhere")
    (source / "e.json").write_text("{")
    run = agentbench.import_traces([source], out=tmp_path / "run")
    assert len(run.turns().to_pandas()) == 2
    problems = {problem["file"].rsplit("/", 1)[-1] for problem in run.manifest["settings"]["problems"]}
    assert problems == {"b.parquet", "c.jsonl.gz"}
