"""``predictions.jsonl``: the patches as the SWE-bench evaluation takes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .files import write_whole
from .session import PATCH, folder_of, read

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = "predictions.jsonl"


def write(run: Path, instance_ids: Iterable[str]) -> int:
    """Write a line for every instance that ended, by itself or by its time limit; return how many those are.

    An agent that changed nothing predicts an empty patch. Instances that broke have no line: they are to be done
    again, and the evaluation counts them as not done.
    """
    lines = []
    for instance_id in instance_ids:
        session = read(run, instance_id)
        if session is None or not session.ended:
            continue
        prediction = {
            "instance_id": instance_id,
            "model_name_or_path": f"{session.agent}+{session.model}",
            "model_patch": (folder_of(run, instance_id) / PATCH).read_bytes().decode(),
        }
        lines.append(json.dumps(prediction) + "\n")
    write_whole(run / FILE, "".join(lines))
    return len(lines)
