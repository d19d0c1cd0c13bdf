"""Questions work on any run, whatever it lacks; answers show themselves on a terminal, in Jupyter and as files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tests.python.made_runs import make_run, step

import agentbench
from agentbench._cli import run as command_line
from agentbench.analysis import QUESTIONS, analyze, open_trace

if TYPE_CHECKING:
    from tests.python.conftest import Captured

SAMPLES = Path(os.environ.get("AGENTBENCH_SAMPLES", Path(__file__).parents[3] / "shared" / "samples")) / "tracelab"
needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason=f"the samples of TraceLab are not at {SAMPLES}; AGENTBENCH_SAMPLES names their folder"
)
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def sample() -> agentbench.Analysis:
    return agentbench.analyze(agentbench.sample_trace())


def check(analysis: agentbench.Analysis) -> None:
    """Nothing raises, and nothing unknown is written as a number."""
    assert list(analysis) == list(QUESTIONS)
    for name, answer in analysis.items():
        assert answer.name == name
        assert isinstance(answer.frame, pd.DataFrame)
        text = answer.to_text(100)
        assert answer.title in text
        assert all(line in " ".join(text.split()) for line in (" ".join(it.split()) for it in answer.missing))
        answer.figure().draw_without_rendering()
        for shown in (text, answer._tables_html()):
            words = shown.replace("<", " ").replace(">", " ").split()
            assert not {"nan", "NaN", "None", "NA", "inf", "<NA>"} & set(words), name
        for headline in answer.headline:
            assert headline.value is None or headline.value == headline.value, headline


def test_the_bundled_sample(sample: agentbench.Analysis) -> None:
    check(sample)
    figures = {line.name: line.value for answer in sample.values() for line in answer.headline}
    # What the sample was made to be, by its manifest.
    planned = agentbench.Run.open(agentbench.sample_trace()).manifest["settings"]["statistics"]
    for ours, theirs in {
        "model steps per user request": "steps_per_user_request",
        "tool calls per user request": "tool_calls_per_user_request",
        "tools within a request": "tool_time_pct_of_request",
        "sessions with compaction": "compacted_sessions_pct",
        "top three tools, synthetic": "top_three_tools_pct",
    }.items():
        assert figures[ours] == pytest.approx(planned[theirs]["planned"], abs=0.005), ours


def test_an_empty_run_says_so_everywhere(tmp_path: Path) -> None:
    analysis = analyze(make_run(tmp_path / "nothing"))
    check(analysis)
    for answer in analysis.values():
        assert answer.missing, answer.name
        values = {line.name: line.value for line in answer.headline}
        assert not any(values.values()), values


def test_turns_that_tell_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "bare", [{"turn": 0}, {"turn": 1}])
    analysis = analyze(run)
    check(analysis)
    known = {
        line.name: line.value for answer in analysis.values() for line in answer.headline if line.value is not None
    }
    # All that is known of them is that they were: two turns of one conversation.
    assert known == {"sessions": 1, "turns": 2, "threads of a session": 1.0}
    assert all(analysis[name].missing for name in QUESTIONS)


def test_a_capture_and_a_replay(captured: Captured, tmp_path: Path) -> None:
    check(analyze(captured.path))
    replay = agentbench.replay(out=tmp_path / "replayed", agents=2, speed="instant")
    analysis = analyze(replay)
    check(analysis)
    assert analysis["overview"].frame.loc[0, "turns"] == len(replay.requests())
    assert analysis["tokens"].frame.loc[0, "sum"] == replay.requests().to_polars()["prompt_tokens"].sum()


def test_several_runs_at_once(captured: Captured) -> None:
    sample = agentbench.sample_trace()
    analysis = analyze(sample, captured.path, sample)
    check(analysis)
    runs = analysis["overview"].frame
    assert list(runs["run"]) == ["sample", "run", "sample (2)"]
    assert list(runs["turns"]) == [110, 5, 110]
    # The same session of two runs is two sessions.
    assert analysis["overview"].headline[0].value == 8 + 2 + 8


@needs_samples
def test_an_import_of_tracelabs_rows(tmp_path: Path) -> None:
    run = agentbench.import_traces([SAMPLES / "sanitized_round_trace.jsonl"], out=tmp_path / "rows")
    analysis = analyze(run)
    check(analysis)
    figures = {line.name: line.value for line in analysis["loop"].headline}
    # 19 rounds, of which 5 have a user's message as their first input.
    assert figures["model steps per user request"] == pytest.approx(19 / 5)


@pytest.mark.parametrize("level", ["counts", "text"])
def test_published_data_have_the_answers_of_the_run(sample: agentbench.Analysis, tmp_path: Path, level: str) -> None:
    pytest.importorskip("detect_secrets", reason="publishing needs the extra hub")
    agentbench.push(
        agentbench.sample_trace(),
        repo="owner/name",
        license="cc0-1.0",
        level=level,
        dry_run=tmp_path / "published",
        shift_times=True,
        salt_file=tmp_path / "salt",
    )
    published = analyze(tmp_path / "published")
    # Which blocks a cache shares is told by texts and hashes; all else by counts, times and names of known tools.
    for name in set(QUESTIONS) - {"cache"}:
        ours = [(line.name, line.value) for line in sample[name].headline]
        theirs = [(line.name, line.value) for line in published[name].headline]
        assert theirs == [(it, None if it_is is None else pytest.approx(it_is)) for it, it_is in ours]


def test_an_analysis_is_a_mapping_that_shows_itself(sample: agentbench.Analysis) -> None:
    assert repr(sample) == f"Analysis({', '.join(QUESTIONS)})"
    assert str(sample) == "\n".join(map(str, sample.values()))
    assert "data:image/png;base64," in sample._repr_html_()
    headline = sample.headline
    assert list(headline.columns) == ["question", "name", "value", "unit", "condition", "published"]
    assert set(headline["question"]) == set(QUESTIONS)


def test_what_is_written(sample: agentbench.Analysis, tmp_path: Path) -> None:
    answer = sample["tokens"]
    files = answer.save(tmp_path / "out")
    assert [file.name for file in files] == [
        "tokens.csv",
        "tokens.agents.csv",
        "tokens.by_agent.csv",
        "tokens.growth.csv",
        "tokens.growth_by_agent.csv",
        "tokens.png",
        "tokens.html",
    ]
    again = pd.read_csv(files[0])
    assert list(again["p50"]) == pytest.approx([float(value) for value in answer.frame["p50"]])
    assert files[5].read_bytes().startswith(PNG)
    page = files[6].read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert re.findall(r'data-chart="([^"]+)"', page) == ["tokens-0", "tokens-1"]
    assert "<img" not in page


def test_no_such_question(tmp_path: Path) -> None:
    with pytest.raises(agentbench.ConfigError, match="no question 'weather'; there are overview, tokens"):
        analyze(agentbench.sample_trace(), questions=["weather"])
    with pytest.raises(agentbench.ConfigError, match="no run was given"):
        analyze()
    with pytest.raises(agentbench.TraceError, match="nowhere"):
        analyze(tmp_path / "nowhere")


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("agentbench.analysis.find_spec", lambda name: None if name == "polars" else object())
    with pytest.raises(ModuleNotFoundError, match=r"polars not installed.*agentbench-serving\[analysis\]"):
        open_trace(agentbench.sample_trace())
    assert command_line(["analyze", str(agentbench.sample_trace())]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith("error: polars not installed")


def test_a_page_needs_the_extra_that_draws_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reports = sys.modules["agentbench._report.report"]
    monkeypatch.setattr(reports, "find_spec", lambda name: None if name == "bokeh" else object())
    assert command_line(["analyze", str(agentbench.sample_trace()), "--html", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert "agentbench-serving[report]" in shown.err
    assert not (tmp_path / "out").exists()


def test_the_command_line_starts_without_the_extra() -> None:
    absent = ["polars", "pandas", "matplotlib", "pyarrow", "numpy"]
    code = f"""
import sys, warnings
warnings.simplefilter("ignore")
sys.modules.update(dict.fromkeys({absent}))
from agentbench._cli import run
sys.exit(run(["analyze", "--list"]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout.split()[0]) == (0, "overview"), result.stderr


def test_figures_are_had_without_pandas_and_tables_are_its_frames() -> None:
    code = """
import sys, agentbench
answers = agentbench.analyze(agentbench.sample_trace())
steps = answers["loop"].headline[0].value
print(steps, "pandas" in sys.modules, "loop" in answers["loop"].tables, "pandas" in sys.modules)
print(type(answers["loop"].frame).__module__.split(".")[0], answers["loop"].frame is answers["loop"].tables["loop"])
print(*answers, *answers["loop"].tables)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    told, frame, names = result.stdout.splitlines()
    assert told.split() == ["5.5", "False", "True", "False"]
    assert frame.split() == ["pandas", "True"]
    assert names.split() == [*QUESTIONS, "loop", "agents", "run_lengths", "sessions"]


def test_names_of_a_run_are_text_on_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [step(0, 0.0, 1.0, isl=5, model="<b>&")])
    page = analyze(run, questions=["overview"])["overview"]._repr_html_()
    assert "<b>&" not in page
    assert "&lt;b&gt;&amp;" in page


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(agentbench.sample_trace())
    out = [word for kind in ("csv", "png", "html") for word in (f"--{kind}", str(tmp_path / kind))]
    assert command_line(["analyze", sample, "--question", "loop", *out]) == 0
    shown = capsys.readouterr().out
    assert "model steps per user request" in shown
    assert "What was recorded" not in shown
    assert (tmp_path / "png" / "loop.png").read_bytes().startswith(PNG)
    page = (tmp_path / "html" / "analysis.html").read_text()
    assert re.findall(r'data-chart="([^"]+)"', page) == ["loop-0", "loop-1"]
    assert "SYNTHETIC, made up after published statistics: sample" in page
    assert (tmp_path / "csv" / "loop.run_lengths.csv").is_file()
    headline = pd.read_csv(tmp_path / "csv" / "headline.csv")
    first = headline.to_dict("records")[0]
    assert [first[name] for name in ("question", "name", "value", "published")] == [
        "loop",
        "model steps per user request",
        5.5,
        "8.8 (TraceLab)",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--list"], 0, "what was recorded"),
        (["--question", "overview"], 0, "no RUN was named: these are figures of the bundled sample"),
        (["nowhere"], 2, "nowhere"),
        (["nowhere", "--question", "weather"], 2, "'weather' is not one of"),
    ],
)
def test_what_the_command_line_says(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str], empty: Path
) -> None:
    assert command_line(["analyze", *arguments]) == code
    shown: Any = capsys.readouterr()
    assert says in shown.out + shown.err
    assert not list(empty.iterdir())


def test_a_wide_value_keeps_its_place(tmp_path: Path) -> None:
    """A text of any width is made, also a narrow one."""
    run = make_run(
        tmp_path / "one", [step(0, 0.0, 1.0, isl=1_000_000, osl=1, model="a-model-with-a-very-long-name" * 4)]
    )
    for width in (20, 40, 200):
        assert analyze(run).to_text(width)


def test_jupyter_shows_tables_and_figure_apart(
    sample: agentbench.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that drops pictures within HTML still shows the figure."""
    shells = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = shells.instance(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        with capture_output() as shown:
            shell.user_ns["answer"] = sample["loop"]
            shell.run_cell("answer")
    finally:
        shells.clear_instance()
    tables, figure = (output.data for output in shown.outputs)
    assert "<table>" in tables["text/html"]
    assert "<img" not in tables["text/html"]
    assert "image/png" in figure
    alone, size = sample["loop"].figure()._repr_png_()
    assert alone.startswith(PNG)
    assert size == {"width": 860}
