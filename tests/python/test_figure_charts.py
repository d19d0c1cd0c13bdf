"""Figures of questions as charts of a page: every artist with its values, and what is not known is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from tests.python.made_runs import call, make_run, step

import agentbench
from agentbench._report.charts.figures import UnknownArtistError, charts_of
from agentbench._report.html.draw import drawn
from agentbench.analysis import QUESTIONS, style
from agentbench.analysis._figure import SecondsFormatter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.axes import Axes
    from tests.python.conftest import Captured

    from agentbench._report.charts.model import Chart

BLUE, ORANGE = style.PALETTE[:2]
PRICES = "date: 2026-01-01\ncurrency: USD\nmodels:\n  m: {input: 1, output: 2, cached_read: 0.1, cache_write: 1.2}\n"


@pytest.fixture(scope="module")
def analyses(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> dict[str, agentbench.Analysis]:
    """Answers about runs that tell much, little and nothing."""
    root = tmp_path_factory.mktemp("runs")
    (root / "prices.yaml").write_text(PRICES)
    turns = [
        step(
            turn,
            10.0 * turn,
            10.0 * turn + 4,
            waited_s=turn,
            isl=100 + 90 * turn,
            isl_cached=90 * turn,
            osl=7,
            model="m",
        )
        for turn in range(6)
    ]
    calls = [call(turn, 10.0 * turn + 4, 10.0 * turn + 5 + turn) for turn in range(5)]
    bare = make_run(root / "bare", [{"turn": 0}, {"turn": 1}])
    replay = agentbench.replay(out=root / "replay", agents=2, speed="instant")
    few = make_run(root / "few", turns, calls)
    return {
        "sample": agentbench.analyze(agentbench.sample_trace()),
        "capture": agentbench.analyze(captured.path),
        "replay": agentbench.analyze(replay),
        "few": agentbench.analyze(few, prices=root / "prices.yaml"),
        "together": agentbench.analyze(agentbench.sample_trace(), few),
        "bare": agentbench.analyze(bare),
    }


def artists(axes: Axes) -> Iterator[tuple[str, int]]:
    """What was drawn, by the test's own reading: kind and number of values."""
    for line in axes.lines:
        yield from lines(line, across=line.get_transform() != axes.transData)
    for bars in axes.containers:
        assert isinstance(bars, BarContainer)
        kind = "spans" if bars.orientation == "horizontal" else "ranges"
        colors = [bar.get_facecolor() for bar in bars.patches]
        yield from ((kind, colors.count(color)) for color in dict.fromkeys(colors))
    for area in axes.collections:
        if type(area).__name__ == "PathCollection":
            yield "points", len(np.asarray(area.get_offsets()))
        else:
            yield from (("band", len({x for x, _ in np.asarray(path.vertices)})) for path in area.get_paths())
    yield from (("words", 1) for text in axes.texts if hasattr(text, "xycoords"))


def lines(line: Line2D, *, across: bool) -> Iterator[tuple[str, int]]:
    """A line with markers is two things; one across the chart has no values but its place."""
    if across:
        yield "rule", 1
        return
    values = len(np.asarray(line.get_xdata()))
    if line.get_linestyle() != "None":
        yield "step" if line.get_drawstyle() == "steps-post" else "line", values
    if line.get_marker() not in {"None", None, ""}:
        yield "points", values


def described(chart: Chart) -> list[dict[str, Any]]:
    """Every glyph and rule that the page's script will draw."""

    def walk(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            if value.get("type") == "object":
                yield value
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    return list(walk(json.loads(drawn(chart))))


GLYPHS = {"line": "Line", "step": "Line", "points": "Scatter", "band": "VArea", "ranges": "VBar", "spans": "HBar"} | {
    "words": "Text",
    "rule": "Span",
}


@pytest.mark.parametrize("name", ["sample", "capture", "replay", "few", "together", "bare"])
def test_every_artist_of_every_question_is_on_the_page(analyses: dict[str, agentbench.Analysis], name: str) -> None:
    seen = 0
    for answer in analyses[name].values():
        if answer.draw is None:
            continue
        figure = answer.figure()
        charts = charts_of(figure, answer.name)
        assert [chart.name for chart in charts] == [f"{answer.name}-{index}" for index in range(len(figure.axes))]
        for axes, chart in zip(figure.axes, charts, strict=True):
            expected = sorted(artists(axes))
            if not any(values for kind, values in expected if kind != "rule"):
                assert (chart.marks, bool(chart.missing)) == ((), True), chart.name
                continue
            assert sorted((mark.kind, len(mark.data)) for mark in chart.marks) == expected, chart.name
            legend = axes.get_legend()
            shown = [text.get_text() for text in legend.get_texts()] if legend else []
            assert set(shown) <= {mark.label for mark in chart.marks}, chart.name
            objects = described(chart)
            # A line that tells of itself has a broad one above it, for the pointer.
            glyphs = sorted(GLYPHS[kind] for kind, _ in expected)
            glyphs += ["Line"] * sum(mark.kind in {"line", "step"} and bool(mark.tips) for mark in chart.marks)
            assert {it["name"] for it in objects if it["name"] in GLYPHS.values()} == set(glyphs), chart.name
            renderers = sum(it["name"] == "GlyphRenderer" for it in objects)
            spans = sum(it["name"] == "Span" for it in objects)
            assert renderers + spans == len(glyphs), chart.name
            seen += len(expected)
    assert seen or name == "bare"


def test_all_questions_with_a_figure_were_walked(analyses: dict[str, agentbench.Analysis]) -> None:
    drawn_somewhere = {name for analysis in analyses.values() for name, it in analysis.items() if it.draw is not None}
    assert drawn_somewhere == set(QUESTIONS)


def test_values_of_lines_and_bars_are_those_of_the_figure(analyses: dict[str, agentbench.Analysis]) -> None:
    for answer in analyses["sample"].values():
        figure = answer.figure()
        for axes, chart in zip(figure.axes, charts_of(figure, answer.name), strict=True):
            drawn_lines = [mark.data for mark in chart.marks if mark.kind in {"line", "step", "points"}]
            for line in (line for line in axes.lines if line.get_transform() == axes.transData):
                xs, ys = (np.asarray(values, dtype=float) for values in line.get_data())
                same = [np.array_equal(data["x"], xs) and np.array_equal(data["y"], ys) for data in drawn_lines]
                assert any(same), chart.name
            lengths = [
                bar.get_width() if bars.orientation == "horizontal" else bar.get_height()
                for bars in axes.containers
                if isinstance(bars, BarContainer)
                for bar in bars.patches
            ]
            told = [value for mark in chart.marks if mark.kind in {"spans", "ranges"} for value in mark.data["to"]]
            assert sorted(told) == pytest.approx(sorted(lengths)), chart.name


def test_what_hovering_tells_is_in_the_words_of_the_axes() -> None:
    axes = Figure().subplots()
    axes.step([0.25, 90.0], [10.0, 20.0], where="post", label="calls", color=BLUE)
    axes.set(xlabel="wall latency of a call", ylabel="share up to x, %")
    style.log_seconds_axis(axes, 0.2, 100.0)
    (chart,) = charts_of(axes.figure, "tools")  # type: ignore[arg-type]
    (mark,) = chart.marks
    assert mark.data["x_words"].to_list() == ["250 ms", "1.5 min"]
    assert [(tip.label, tip.column, tip.unit) for tip in mark.tips] == [
        ("", "$name", ""),
        ("wall latency of a call", "x_words", ""),
        ("share up to x", "y", "%"),
    ]
    assert chart.x.log
    assert [words for _, words in chart.x.ticks] == ["1 s", "10 s", "1 min"]
    assert (chart.y.title, chart.y.ticks) == ("share up to x (%)", ())


def test_bars_have_the_names_of_their_axis() -> None:
    axes = Figure().subplots()
    bars = axes.barh([1.2, 0.2], [30.0, 70.0], 0.4, label="of calls", color=ORANGE)
    axes.bar_label(bars, ["30 %", "70 %"])
    axes.set_yticks([0, 1], ["Read", "Bash"])
    axes.set(xlabel="share, %")
    axes.invert_yaxis()
    (chart,) = charts_of(axes.figure, "tools")  # type: ignore[arg-type]
    spans, *words = chart.marks
    expected = pl.DataFrame({"from": [0.0, 0.0], "to": [30.0, 70.0], "at": [1.2, 0.2], "name": ["Bash", "Read"]})
    assert spans.data.equals(expected)
    assert (spans.label, spans.role, spans.size) == ("of calls", "second", 0.4)
    assert [mark.data["text"].item() for mark in words] == ["30 %", "70 %"]
    assert chart.y.bounds == (1.6, -0.6)


def test_lines_across_the_chart_and_proxies_of_the_legend() -> None:
    axes = Figure().subplots()
    axes.plot([0, 1], [2, 3], color=BLUE, marker="o")
    axes.plot([], [], "v", color=ORANGE, label="compaction")
    axes.axhline(2.5, color=style.MUTED, linestyle=":", label="as it was")
    axes.axvline(0.5, color=style.MUTED, linestyle="-")
    (chart,) = charts_of(axes.figure, "context")  # type: ignore[arg-type]
    assert [(mark.kind, len(mark.data), mark.label, mark.shape, mark.dashed) for mark in chart.marks] == [
        ("line", 2, "", "circle", False),
        ("points", 2, "", "circle", False),
        ("points", 0, "compaction", "inverted_triangle", False),
        ("rule", 1, "as it was", "circle", True),
        ("rule", 1, "", "circle", False),
    ]


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda axes: axes.imshow([[1.0, 2.0]]), "AxesImage"),
        (lambda axes: axes.pcolormesh([[1.0, 2.0], [3.0, 4.0]]), "QuadMesh"),
        (lambda axes: axes.pie([1.0, 2.0]), "Wedge"),
        (lambda axes: axes.axvspan(0, 1, color=BLUE), "Rectangle"),
        (lambda axes: axes.plot([0, 1], [0, 1], color="#123456"), "not of the style: #123456"),
        (lambda axes: axes.plot([0, 1], [0, 1], marker="*", color=BLUE), r"marker '\*'"),
        (lambda axes: axes.step([0, 1], [0, 1], where="mid", color=BLUE), "steps-mid"),
        (lambda axes: axes.bar([0, 1], [1, 2], width=[0.2, 0.4], color=BLUE), "2 breadths of bars"),
        (lambda axes: axes.scatter([0, 1], [0, 1], c=[BLUE, ORANGE]), "2 colours of dots"),
        (lambda axes: (axes.plot([0, 1], [0, 1], color=BLUE), axes.text(0, 0, "here")), "words within a chart: 'here'"),
        (lambda axes: axes.figure.legend([Line2D([], [])], ["x"]), "Legend beside the axes"),
    ],
)
def test_what_is_not_known_is_refused(draw: Callable[[Axes], object], says: str) -> None:
    axes = Figure().subplots()
    draw(axes)
    with pytest.raises(UnknownArtistError, match=says):
        charts_of(axes.figure, "some")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "0"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (90.0, "1.5 min"), (7200.0, "2 h")]
)
def test_seconds_are_written_in_their_largest_unit(seconds: float, words: str) -> None:
    assert SecondsFormatter()(seconds) == words
