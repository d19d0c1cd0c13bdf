"""Whether a server is good for coding agents, in one of four words; always with figure, statistic and thresholds.

Pure, and from the summary alone. A failed request counts as the worst possible value, so an engine that refuses work
gets no better word. What keeps a run's figures from being used as they are stays on its verdict too. Only runs that
put a load on an engine have one: in a recording, agents came and went as they liked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentbench._figures import UNKNOWN, number
from agentbench._report.replayed import headline_part
from agentbench._report.sections import Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentbench._report.sections import Flag

WORDS = ("good", "ok", "marginal", "poor")
"""Best first. What meets no threshold is poor."""
BOUNDS = WORDS[:-1]
FEWEST = 20
"""Requests below which a 95th percentile is hardly more than the largest value."""
FEW = "few requests"
PER_CENT = 100.0
MILLISECONDS_PER_SECOND = 1e3
FORM = re.compile(r"(?P<measure>\w+)\.(?P<word>\w+)=(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|tok/s|%|)")
IN_WORDS = "write it like ttft.good=2s, speed.ok=20 or completion.good=80%"


@dataclass(frozen=True)
class Measure:
    """One thing that is judged, with the value that each word needs, in `unit`."""

    name: str
    label: str
    statistic: str
    unit: str
    bounds: tuple[tuple[str, float], ...]
    at_most: bool = False

    def word(self, value: float) -> str:
        """Return the best word whose threshold a value meets."""
        met = (word for word, bound in self.bounds if (value <= bound if self.at_most else value >= bound))
        return next(met, WORDS[-1])

    def bound_in_words(self, word: str) -> str:
        """Return what a word needs."""
        bound = dict(self.bounds).get(word)
        return UNKNOWN if bound is None else f"{'<=' if self.at_most else '>='} {number(bound)} {self.unit}"


MEASURES = (
    Measure("ttft", "TTFT", "p95", "s", (("good", 3.0), ("ok", 10.0), ("marginal", 20.0)), at_most=True),
    Measure("speed", "output speed", "p25", "tok/s", (("good", 30.0), ("ok", 15.0), ("marginal", 5.0))),
    Measure("completion", "requests answered whole", "share", "%", (("good", 75.0), ("ok", 25.0))),
)
"""The thresholds that ClawPerf publishes, on the statistics that AA-AgentPerf gates on."""


@dataclass(frozen=True)
class Judgment:
    """A measure, its value in the measure's unit, and the word. No word: not known, for `reason`."""

    measure: Measure
    value: float | None
    word: str | None
    reason: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.measure.label)

    @property
    def figure(self) -> str:
        """The value in words."""
        return f"{number(self.value)} {self.measure.unit}" if self.value is not None else self.reason


@dataclass(frozen=True)
class Verdict:
    """The worst of the judgments of `n` requests, and what keeps the figures from being used as they are.

    ``word`` is None where there is none; ``reason`` then says why.
    """

    word: str | None
    judgments: tuple[Judgment, ...] = ()
    caveats: tuple[str, ...] = ()
    part: str = ""
    reason: str = ""
    n: int = 0

    def at_least_as_bad_as(self, word: str) -> bool:
        """Return whether the verdict is this word or a worse one, or there is none to tell."""
        return self.word is None or WORDS.index(self.word) >= WORDS.index(word)

    def in_words(self) -> str:
        """Return the verdict and its caveats in one line."""
        told = self.word if self.word is not None else f"none ({self.reason})"
        return told + (f" [{', '.join(self.caveats)}]" if self.caveats else "")

    def deciding(self) -> tuple[Judgment, ...]:
        """Return the judgments that made the word what it is."""
        return tuple(judgment for judgment in self.judgments if judgment.word == self.word)


def with_thresholds(texts: Iterable[str]) -> tuple[Measure, ...]:
    """Return the measures with some thresholds set, such as ``ttft.good=2s``.

    Raises
    ------
    ValueError
        When a text is no threshold, or a better word would need less than a worse one.
    """
    measures = {measure.name: measure for measure in MEASURES}
    for text in texts:
        name, word, value = _threshold(text, measures)
        known = measures[name]
        bounds = {
            bound: at for bound in BOUNDS for at in [dict(known.bounds).get(bound)] if at is not None or bound == word
        }
        bounds[word] = value
        kept = tuple((bound, at) for bound, at in bounds.items() if at is not None)
        measures[name] = Measure(known.name, known.label, known.statistic, known.unit, kept, known.at_most)
    for measure in measures.values():
        values = [at for _, at in measure.bounds]
        if values != sorted(values, reverse=not measure.at_most):
            told = ", ".join(f"{word} {measure.bound_in_words(word)}" for word, _ in measure.bounds)
            raise ValueError(f"thresholds of {measure.name} are not in order ({told}): a better word must need more")
    return tuple(measures.values())


def _threshold(text: str, measures: dict[str, Measure]) -> tuple[str, str, float]:
    match = FORM.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is no threshold; {IN_WORDS}")
    name, word, unit = match["measure"], match["word"], match["unit"]
    if name not in measures:
        raise ValueError(f"{text!r}: no measure {name!r} ({', '.join(measures)}); {IN_WORDS}")
    if word not in BOUNDS:
        raise ValueError(f"{text!r}: no word {word!r} ({', '.join(BOUNDS)}); {IN_WORDS}")
    expected = measures[name].unit
    if name == "ttft" and unit not in {"s", "ms"}:
        raise ValueError(f"{text!r}: a time needs a unit, ms or s; {IN_WORDS}")
    if name != "ttft" and unit not in {"", expected}:
        raise ValueError(f"{text!r}: unit {unit!r} does not fit, it is {expected}; {IN_WORDS}")
    return name, word, float(match["value"]) / (MILLISECONDS_PER_SECOND if unit == "ms" else 1.0)


def verdict(summary: dict[str, Any], found: Sequence[Flag], measures: Sequence[Measure] = MEASURES) -> Verdict:
    """Return the verdict of a run, with its grave flags as caveats."""
    caveats = tuple(dict.fromkeys(flag.name for flag in found if flag.grave))
    if "settings" not in summary:
        return Verdict(None, caveats=caveats, reason="a recording puts no load of its own on an engine")
    capacity = summary.get("capacity")
    if capacity and capacity["level"] is None:
        return Verdict(None, caveats=caveats, reason="no level stands for the result")
    name, part = headline_part(summary)
    where = name if not capacity else f"{name} of level {capacity['level']}"
    judgments = tuple(_judged(measure, part, summary.get("agent")) for measure in measures)
    ended = part["requests"]["ok"] + part["requests"]["failed"]
    caveats += (FEW,) if 0 < ended < FEWEST else ()
    words = [judgment.word for judgment in judgments if judgment.word]
    missing = [judgment for judgment in judgments if judgment.word is None]
    if missing:
        told = "; ".join(f"{judgment.label}: {judgment.reason}" for judgment in missing)
        # What is poor stays so, whatever the others would say.
        word = WORDS[-1] if WORDS[-1] in words else None
        return Verdict(word, judgments, caveats, where, told, ended)
    return Verdict(max(words, key=WORDS.index), judgments, caveats, where, n=ended)


def _judged(measure: Measure, part: dict[str, Any], agent: dict[str, Any] | None) -> Judgment:
    requests = part["requests"]
    ended = requests["ok"] + requests["failed"]
    if measure.name == "completion" and agent is not None:
        # Of live agents a task is complete by its check, not by its requests.
        return _of_value(measure, agent["completed_pct"], "no task has a check", "tasks completed, by their checks")
    if not ended:
        return _of_value(measure, None, "no request ended")
    if measure.name == "completion":
        return _of_value(measure, requests["ok"] / ended * PER_CENT)
    return _of_latency(measure, part.get("with_failures"), failed=requests["failed"])


def _of_latency(measure: Measure, held: dict[str, Any] | None, *, failed: int) -> Judgment:
    if held is None:
        return _of_value(measure, None, "the summary was made before there was this figure")
    ttft_ms = held["ttft_p95_ms"]
    if measure.name == "speed":
        return _of_value(measure, held["output_tokens_per_s_p25"], "no request tells it")
    if ttft_ms is None and failed:
        return Judgment(measure, None, WORDS[-1], "beyond every bound: failed requests")
    return _of_value(measure, None if ttft_ms is None else ttft_ms / MILLISECONDS_PER_SECOND, "no request tells it")


def _of_value(measure: Measure, value: float | None, reason: str = "", label: str = "") -> Judgment:
    """Judge a value; of one that is not known say why."""
    if value is None:
        return Judgment(measure, None, None, reason, label)
    return Judgment(measure, value, measure.word(value), label=label)


def verdict_section(found: Verdict) -> Section:
    """Return the verdict as a table: each word with its figure, statistic and thresholds."""
    if not found.judgments:
        return Section("verdict", (), notes=(f"No verdict: {found.reason}.",))
    rows = tuple(
        (
            judgment.label,
            judgment.word or UNKNOWN,
            judgment.figure,
            judgment.measure.statistic,
            *[judgment.measure.bound_in_words(word) for word in BOUNDS],
        )
        for judgment in found.judgments
    )
    title = f"verdict: {found.in_words()}"
    requests = f"{found.n:,} requests" if found.n != 1 else "1 request"
    notes = (f"Of {requests} of the {found.part}; the worst word is the verdict, a failed request the worst value.",)
    return Section(title, rows, ("", "word", "figure", "statistic", *BOUNDS), notes, left=2)
