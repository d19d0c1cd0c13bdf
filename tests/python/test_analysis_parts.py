"""The pure parts of the analysis: unions of intervals, statistics, values as text."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench.analysis._stats import covered, share, spreads
from agentbench.analysis._text import value
from agentbench.analysis.style import in_words


@pytest.mark.parametrize(
    ("intervals", "length"),
    [
        ([(0, 2), (5, 6)], 3),
        ([(0, 10), (2, 3)], 10),
        ([(0, 10), (2, 3), (4, 12)], 12),
        ([(2, 4), (0, 2)], 4),
        ([(1, 1)], 0),
        ([(5, 3), (0, 1)], 1),  # one that ends before it starts is none
        ([(None, 3), (0, None), (0, 1)], 1),
    ],
)
def test_a_union_of_intervals(intervals: list[tuple[float | None, float | None]], length: float) -> None:
    frame = pl.DataFrame(
        [(1, *interval) for interval in intervals],
        schema={"of": pl.Int64, "start": pl.Float64, "end": pl.Float64},
        orient="row",
    )
    assert covered(frame, "of").rows() == [(1, length)]


seconds = st.integers(0, 60)


@given(st.lists(st.tuples(st.integers(0, 2), seconds, seconds), max_size=30))
def test_a_union_is_that_of_its_seconds(spans: list[tuple[int, int, int]]) -> None:
    spans = [(group, min(a, b), max(a, b)) for group, a, b in spans]
    frame = pl.DataFrame(spans, schema={"of": pl.Int64, "start": pl.Float64, "end": pl.Float64}, orient="row")
    expected = {
        group: len({second for other, a, b in spans if other == group for second in range(a, b)})
        for group in {group for group, _, _ in spans}
    }
    assert dict(covered(frame, "of").rows()) == expected


def test_quantiles_are_numpys() -> None:
    frame = pl.DataFrame({"x": [4.0, None, 1.0, 3.0, 2.0], "empty": [None] * 5}, schema_overrides={"empty": pl.Float64})
    assert spreads(frame, {"x": "it", "empty": "nothing"}, "of", ("p25", "p50", "p90"), total=True).rows() == [
        ("it", 4, 2.5, 1.75, 2.5, pytest.approx(3.7), 4.0, 10.0)
    ]


@pytest.mark.parametrize(
    ("part", "whole", "expected"), [(1, 4, 25.0), (0, 4, 0.0), (0, 0, None), (None, 4, None), (1, None, None)]
)
def test_a_share_of_nothing_is_unknown(part: int | None, whole: int | None, expected: float | None) -> None:
    assert share(part, whole) == expected


@pytest.mark.parametrize(
    ("it", "text"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (float("inf"), "-"),
        (0, "0"),
        (0.0, "0"),
        (7, "7"),
        (1_234_567, "1,234,567"),
        (12_345.6, "12,346"),
        (3.14159, "3.142"),
        (0.0012345, "0.00123"),
        (True, "yes"),
        ("a word", "a word"),
    ],
)
def test_a_value_as_text(it: object, text: str) -> None:
    assert value(it) == text


@pytest.mark.parametrize(
    ("length_s", "text"),
    [(0.0, "0"), (2e-6, "2 µs"), (0.05, "50 ms"), (1.0, "1 s"), (90.0, "1.5 min"), (7_200.0, "2 h"), (86_400.0, "1 d")],
)
def test_a_time_in_words(length_s: float, text: str) -> None:
    assert in_words(length_s) == text
