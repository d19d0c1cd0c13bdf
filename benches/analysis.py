"""How long the questions take on as many rounds as TraceLab published, and how long pandas does for five figures.

    python benches/analysis.py [--data DIR] [--share 1.0] [--repeats 1]

Makes the rows (`agentbench.synthesize_rounds`), imports them, asks every question, and draws every figure. Then, by
turns in one run: five headline figures from the gzipped rows, by agentbench (import, then the four questions that hold
them) and by pandas as one would write it in a notebook. Each is a process of its own, measured from its start to its
end; the five figures must be the same. A debug build measures nothing: `./install.sh` first.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROUNDS = 357_161
"""TraceLab's own figure."""
SEED = 7
FIVE = (
    "prefix hits", "median append", "model steps per user request",
    "share of tool time in calls over 1 min", "hits if KV is kept 5 min",
)  # fmt: skip
OURS = ("tokens", "loop", "tools", "cache")
"""The questions that hold the five figures."""
NAMES = {"share of tool time in calls over 1 min": "their share of tool time"}
SAME = 1e-6
WORDS = {
    "import": "import",
    "all": "all questions, with every figure drawn",
    "five": "four questions of the run (five figures)",
    "file": "import and four questions, rows to figures",
    "pandas": "pandas, rows to the five figures",
}


def by_pandas(rows: Path) -> dict[str, float]:
    """Return the five figures as a researcher would compute them, straight from the rows."""
    import pandas as pd  # noqa: PLC0415  its import is part of what is measured

    rounds = pd.read_json(rows, lines=True).sort_values(["session_id", "round_index"], ignore_index=True)
    total = rounds["input_tokens_total"]

    events = rounds["timing_events"].explode()
    events = pd.DataFrame(events.tolist(), index=events.index)
    events["timestamp"] = pd.to_datetime(events["timestamp"], format="ISO8601")
    is_input = events["event_type"].isin(["user_message", "tool_result"])
    asked = events[is_input].groupby(level=0)["timestamp"].max()
    ended = events[~is_input].groupby(level=0)["timestamp"].max()
    by_user = events["event_type"].groupby(level=0).first() == "user_message"

    tools = rounds["tools"].explode().dropna()
    latency_ms = pd.DataFrame(tools.tolist())["tool_wall_latency_ms"]

    before = rounds.groupby("session_id")[["input_tokens_total", "output_tokens"]].shift()
    gap_s = (asked - ended.groupby(rounds["session_id"]).shift()).dt.total_seconds()
    growth = (total - before["input_tokens_total"]).clip(lower=0) - before["output_tokens"]
    fresh = growth.clip(lower=0).clip(upper=rounds["newly_append_tokens"])
    covered = gap_s >= 0
    return {
        "prefix hits": 100 * rounds["prefix_tokens"].sum() / total.sum(),
        "median append": rounds["newly_append_tokens"].median(),
        "model steps per user request": len(rounds) / by_user.sum(),
        "share of tool time in calls over 1 min": 100 * latency_ms[latency_ms > 60_000].sum() / latency_ms.sum(),  # noqa: PLR2004
        "hits if KV is kept 5 min": 100
        * (total - fresh)[covered & (gap_s <= 300)].sum()  # noqa: PLR2004
        / total[covered].sum(),
    }


def imported(rows: Path, out: Path) -> dict[str, float]:
    """Import the rows."""
    import agentbench  # noqa: PLC0415  its import is part of what is measured

    begun = time.perf_counter()
    run = agentbench.import_traces([rows], out=out)
    return {"seconds": time.perf_counter() - begun, "turns": len(run.turns())}


def by_questions(run: Path, questions: tuple[str, ...]) -> dict[str, float | None]:
    """Return headline figures by name."""
    from agentbench.analysis import analyze  # noqa: PLC0415  its import is part of what is measured

    analysis = analyze(run, questions=questions)
    return {line.name: line.value for answer in analysis.values() for line in answer.headline}


def from_file(rows: Path, out: Path) -> dict[str, float | None]:
    """Return headline figures from the rows: import, then ask."""
    imported(rows, out)
    return by_questions(out, OURS)


def all_questions(run: Path, figures: Path) -> dict[str, float]:
    """Ask every question, in order, and draw its figure; return the seconds of each."""
    from agentbench.analysis import QUESTIONS, open_trace  # noqa: PLC0415  its import is part of what is measured

    begun = time.perf_counter()
    trace = open_trace(run)
    _ = trace.steps, trace.tool_calls
    spent = {"reading": time.perf_counter() - begun}
    answers = []
    for name, question in QUESTIONS.items():
        begun = time.perf_counter()
        answers.append(question(trace))
        spent[name] = time.perf_counter() - begun
    begun = time.perf_counter()
    for answer in answers:
        answer.save(figures, csv=False, html=False)
    return spent | {"drawing all": time.perf_counter() - begun}


CHILDREN: dict[str, Any] = {
    "pandas": lambda folder: by_pandas(folder / "round_trace.jsonl.gz"),
    "import": lambda folder: imported(folder / "round_trace.jsonl.gz", folder / "run"),
    "five": lambda folder: by_questions(folder / "run", OURS),
    "file": lambda folder: from_file(folder / "round_trace.jsonl.gz", folder / "run-again"),
    "all": lambda folder: all_questions(folder / "run", folder / "figures"),
}


class Part(NamedTuple):
    """What a process took and said: wall and CPU seconds, and its peak of memory."""

    seconds: float
    cpu_s: float
    peak_gb: float
    figures: dict[str, Any]


def child(name: str, folder: Path) -> Part:
    """Run one part as a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", name, "--data", str(folder)]
    begun = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - begun
    return Part(seconds, **json.loads(done.stdout))


def measure(folder: Path, repeats: int) -> None:
    """Measure the parts by turns, and print the best of each."""
    best: dict[str, Part] = {}
    for _ in range(repeats):
        for name in CHILDREN:
            if name in {"import", "file"}:
                shutil.rmtree(folder / ("run" if name == "import" else "run-again"), ignore_errors=True)
            part = child(name, folder)
            best[name] = min(best.get(name, part), part, key=lambda it: it.seconds)
    ours, theirs = best["file"].figures, best["pandas"].figures
    print(f"{'the same five figures':<42}{'agentbench':>14}{'pandas':>14}")
    for name in FIVE:
        value = ours[NAMES.get(name, name)]
        print(f"{name:<42}{value:>14.4f}{theirs[name]:>14.4f}")
        if abs(value - theirs[name]) > SAME * abs(theirs[name]):
            raise SystemExit(f"{name} is not the same: what is measured differs")
    print(f"\n{'a process, from start to end':<42}{'wall s':>10}{'CPU s':>10}{'peak GB':>10}")
    for name, words in WORDS.items():
        part = best[name]
        print(f"{words:<42}{part.seconds:>10.1f}{part.cpu_s:>10.1f}{part.peak_gb:>10.2f}")
    pandas = best["pandas"]
    for words, ours_took in (("rows to figures", best["file"]), ("imported run to figures", best["five"])):
        wall, cpu = pandas.seconds / ours_took.seconds, pandas.cpu_s / ours_took.cpu_s
        print(f"pandas / agentbench, {words}: {wall:.1f}x wall, {cpu:.1f}x CPU")
    print("seconds of each question:", ", ".join(f"{name} {spent:.2f}" for name, spent in best["all"].figures.items()))


def main() -> None:
    """Read the arguments, make the rows where they are not there, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="Where rows are made and kept.  [default: a temporary folder]")
    parser.add_argument("--share", type=float, default=1.0, help="Of the published number of rounds.  [default: 1.0]")
    parser.add_argument("--repeats", type=int, default=1, help="The best of so many counts.  [default: 1]")
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        figures = CHILDREN[given.child](given.data)
        used = resource.getrusage(resource.RUSAGE_SELF)
        said = {"cpu_s": used.ru_utime + used.ru_stime, "peak_gb": used.ru_maxrss / 1e6, "figures": figures}
        print(json.dumps(said, default=float))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.data or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        rows = folder / "round_trace.jsonl.gz"
        if not rows.is_file():
            from agentbench import synthesize_rounds  # noqa: PLC0415  pandas must not pay for it

            counts = synthesize_rounds(rows, rounds=max(int(ROUNDS * given.share), 1), seed=SEED)
            print(
                "made", ", ".join(f"{n:,} {name}" for name, n in counts.items()), f"{rows.stat().st_size / 1e6:.0f} MB"
            )
        measure(folder, given.repeats)


if __name__ == "__main__":
    main()
