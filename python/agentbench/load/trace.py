"""A plan as a run directory: rows in the format of agentic Mooncake, imported.

So a load shape is replayed by the code that replays any recording, and its plan can be looked at like one.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agentbench._core import Run, import_traces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .plan import Session


def write(sessions: Iterable[Session], out: Path, name: str) -> Run:
    """Write a plan down as the run directory `out`; plans of one `name` have the same blocks."""
    with tempfile.TemporaryDirectory(prefix="agentbench-") as folder:
        file = Path(folder) / f"{name}.jsonl"
        with file.open("w") as rows:
            for at, session in enumerate(sessions):
                for turn, request in enumerate(session.requests):
                    row = {
                        "request_id": f"{session.name}-{turn}",
                        "session_id": session.name,
                        # The order of sessions; when they begin is up to the replay.
                        "timestamp": at,
                        "input_length": request.input_tokens,
                        "output_length": request.output_tokens,
                        "hash_ids": request.blocks,
                        "tool_wait_ms": request.wait_s * 1e3,
                    }
                    rows.write(json.dumps(row) + "\n")
        return import_traces([file], out=out, format="mooncake-agentic")
