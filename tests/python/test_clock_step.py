"""The wall clock is stepped while a capture runs: no duration and no order changes.

libfaketime (Debian: ``apt-get install faketime``) steps the clock of one process, and leaves its monotonic clock alone.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.python.traffic import converse

import agentbench

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
WAIT_S = 0.3
PATIENCE_S = 60.0
STEP_S = 7000.0
# Waits by reading: Python's own sleep asks for a clock that libfaketime does not know.
PROXY = """
import json, sys, time, agentbench
with agentbench.Proxy(sys.argv[1], out=sys.argv[2]) as proxy:
    print(json.dumps(proxy.url), flush=True)
    for _ in sys.stdin:
        print(json.dumps(time.time()), flush=True)
"""


@pytest.mark.skipif(not LIBRARIES, reason="no libfaketime; on Debian, `apt-get install faketime`")
@pytest.mark.parametrize("step", ["-2h", "+2h"])
def test_a_step_of_the_wall_clock_moves_no_stamp(engine: agentbench.SimulatedEngine, tmp_path: Path, step: str) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0")
    faked = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    before, told = time.time(), []
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", PROXY, engine.url, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | faked,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())
        for index in range(4):
            offset.write_text("+0" if index < 2 else step)
            print(file=process.stdin, flush=True)
            told.append(json.loads(process.stdout.readline()) - time.time())
            converse(url, 1, session=f"s{index}")
            time.sleep(WAIT_S)
        process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0
    # The recording process did see another time of day.
    assert max(map(abs, told[:2])) < PATIENCE_S
    assert min(map(abs, told[2:])) > STEP_S
    run = agentbench.Run.open(tmp_path / "run")
    turns = run.turns().to_polars().sort("request_id")
    stamps = turns["request_time"].to_list()
    assert turns["session_id"].to_list() == ["s0", "s1", "s2", "s3"]
    assert all(WAIT_S <= later - earlier < PATIENCE_S for earlier, later in itertools.pairwise(stamps))
    assert all(before <= stamp <= time.time() for stamp in stamps)
    assert (turns["e2e_ms"] < PATIENCE_S * 1000).all()
    assert (turns["response_end_time"] >= turns["request_time"]).all()
    polls = run.engine_samples().to_polars()["ts"]
    assert len(polls) > 4
    assert (polls.diff().drop_nulls() > 0).all()
    assert polls.max() - polls.min() < PATIENCE_S  # type: ignore[operator] # numbers
