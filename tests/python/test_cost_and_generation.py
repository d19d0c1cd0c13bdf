"""What tokens cost by a price table, and how fast replies are made: right answers by hand, and bad tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.python.made_runs import call, make_run, step

import agentbench
from agentbench.analysis import analyze
from agentbench.analysis.trace import ENGINE_COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """
date: 2026-06-01
currency: EUR
source: a list made up for this test
models:
  small: {input: 1.0, output: 4.0}
  big*: {input: 10.0, cached_read: 1.0, cache_write: 12.5, output: 50.0}
  big-new: {input: 20.0, cached_read: 2.0, cache_write: 25.0, output: 100.0}
"""


def ask(question: str, *runs: agentbench.Run, **options: Any) -> agentbench.Answer:
    return analyze(*runs, questions=[question], **options)[question]


def figures(answer: agentbench.Answer) -> dict[str, float | None]:
    return {line.name: line.value for line in answer.headline}


def column(answer: agentbench.Answer, table: str, label: str, value: str) -> dict[str, Any]:
    frame = answer.tables[table]
    return dict(zip(frame[label], frame[value], strict=True))


@pytest.fixture
def spent(tmp_path: Path) -> agentbench.Run:
    turns = [
        step(0, 0, 10, model="big-old", isl=1_000_000, isl_cached=0, isl_cache_write=400_000, osl=100_000),
        step(1, 20, 30, model="big-old", isl=1_200_000, isl_cached=1_000_000, isl_cache_write=None, osl=0, waited_s=10),
        step(2, 90, 99, model="big-old", isl=1_200_000, isl_cached=200_000, osl=0, waited_s=60),
        step(0, 0, 10, thread="u", session_id="z", model="small", isl=2_000_000, isl_cached=1_000_000, osl=500_000),
        step(0, 0, 10, thread="v", session_id="y", model="other", isl=10, isl_cached=0, osl=1),
        step(0, 0, 10, thread="w", session_id="x", model="small", isl=10, osl=1),
    ]
    return make_run(tmp_path / "spent", turns, [call(0, 10, 20)])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "prices.yaml"
    file.write_text(TABLE)
    return file


def test_cost_by_class_and_model(spent: agentbench.Run, table: Path) -> None:
    answer = ask("cost", spent, prices=table)
    # big-old, by the pattern: 0.6 + 0.2 + 1.0 M new, 1.2 M read, 0.4 M written, 0.1 M out. Small reads as it inputs.
    assert column(answer, "cost", "class", "cost_eur") == {
        "new input": pytest.approx(1.8 * 10 + 1.0 * 1),
        "cached input read": pytest.approx(1.2 * 1 + 1.0 * 1),
        "input written to cache": pytest.approx(0.4 * 12.5),
        "output": pytest.approx(0.1 * 50 + 0.5 * 4),
    }
    by_model = column(answer, "models", "model", "cost_eur")
    assert by_model["small"] == pytest.approx(4.0)
    assert by_model["big-old"] == pytest.approx(29.2)
    assert answer.tables["models"].set_index("model")["cost_eur"].isna()["other"]
    told = figures(answer)
    assert told["cost"] == pytest.approx(33.2)
    assert told["mean cost of a session"] == pytest.approx(33.2 / 2)
    assert told["mean cost of a turn"] == pytest.approx(33.2 / 4)
    # The third turn came after the user's pause: its 1.0 M that were there before would have been read.
    assert told["cost that a cache kept over human pauses would save"] == pytest.approx(100 * 1.0 * (10 - 1) / 33.2)
    assert any("other" in text for text in answer.missing)
    assert any("1 of 6 turns do not tell" in text for text in answer.missing)
    assert "2026-06-01" in answer.subtitle
    assert "EUR" in answer.subtitle


def test_requests_of_a_human_and_turns(spent: agentbench.Run, table: Path) -> None:
    spread = ask("cost", spent, prices=table).tables["spread"].set_index("cost_of")
    assert spread.loc["a request of a human", "n"] == 3
    assert spread.loc["a turn", "n"] == 4
    assert spread.loc["a session", "max"] == pytest.approx(29.2)


def test_without_a_table_tokens_and_no_cost(spent: agentbench.Run) -> None:
    answer = ask("cost", spent)
    assert column(answer, "cost", "class", "tokens") == {
        "new input": 2_800_010, "cached input read": 2_200_000, "input written to cache": 400_000, "output": 600_001,
    }  # fmt: skip
    assert "cost" not in answer.tables["cost"].columns
    assert any("no price table" in text for text in answer.missing)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a mapping"),
        ("currency: USD\nmodels: {a: {input: 1, output: 1}}", "date is missing"),
        ("date: soon\ncurrency: USD\nmodels: {a: {input: 1, output: 1}}", "date is 'soon'"),
        ("date: 2026-01-01\nmodels: {a: {input: 1, output: 1}}", "currency is missing"),
        ("date: 2026-01-01\ncurrency: USD", "models is missing"),
        ("date: 2026-01-01\ncurrency: USD\nmodels: {a: {input: 1}}", "models.a: output is missing"),
        ("date: 2026-01-01\ncurrency: USD\nmodels: {a: {input: -1, output: 1}}", "models.a.input is -1"),
        ("date: 2026-01-01\ncurrency: USD\nmodels: {a: {input: x, output: 1}}", "models.a.input is 'x'"),
        ("date: 2026-01-01\ncurrency: USD\nmodels: {a: {in: 1, output: 1}}", "unknown price 'in'"),
        ("date: 2026-01-01\ncurrency: USD\nmodel: {}\nmodels: {a: {}}", "unknown field 'model'"),
        ("date: 2026-01-01\ncurrency: USD\nmodels: [1]", "models: expected a mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_a_table_that_is_none(spent: agentbench.Run, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(agentbench.ConfigError, match=said) as error:
        ask("cost", spent, prices=file)
    assert "\n" not in str(error.value)
    assert str(file) in str(error.value)


def test_a_table_that_is_not_there(spent: agentbench.Run, tmp_path: Path) -> None:
    with pytest.raises(agentbench.ConfigError, match="No such file"):
        ask("cost", spent, prices=tmp_path / "none.yaml")


def test_json_and_another_base(spent: agentbench.Run, tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text(
        '{"date": "2026-06-01", "currency": "USD", "per_tokens": 1000, "models": {"small": {"input": 1, "output": 2}}}'
    )
    assert figures(ask("cost", spent, prices=file))["cost"] == pytest.approx(2_000 * 1 + 500 * 2)


def test_speeds_by_context_and_output(tmp_path: Path) -> None:
    """Outputs of 101 tokens over 2 s and over 4 s after a first token; one of a single token has no decode speed."""
    turns = [
        step(
            0,
            0,
            5,
            thread="a",
            isl=1_000,
            isl_new=100,
            osl=101,
            ttft_ms=1_000.0,
            first_output_time=1.0,
            last_output_time=3.0,
        ),
        step(
            1,
            10,
            20,
            thread="a",
            isl=20_000,
            isl_new=2_000,
            osl=101,
            ttft_ms=3_000.0,
            first_output_time=13.0,
            last_output_time=17.0,
        ),
        step(
            2,
            30,
            31,
            thread="a",
            isl=20_000,
            isl_new=2_000,
            osl=1,
            ttft_ms=500.0,
            first_output_time=30.5,
            last_output_time=30.5,
        ),
    ]
    answer = ask("generation", make_run(tmp_path / "timed", turns))
    told = figures(answer)
    assert told["median decode speed"] == pytest.approx((50 + 25) / 2)
    assert told["median normalized speed"] == pytest.approx(101 / 10)
    assert told["median TTFT"] == pytest.approx(1_000.0)
    assert told["rank correlation of TTFT with append"] is None
    assert column(answer, "generation", "context_tokens", "decode_p50_tok_s") == {"0 to 4K": 50.0, "16K to 32K": 25.0}
    assert column(answer, "output", "output_tokens", "steps") == {"64 to 128": 2}
    assert column(answer, "ttft", "append_tokens", "ttft_p50_ms") == {"0 to 256": 1_000.0, "1K to 4K": 1_750.0}


def test_rank_correlation_needs_ten_and_tells_the_direction(tmp_path: Path) -> None:
    turns = [
        step(turn, 10 * turn, 10 * turn + 2 + turn / 10, isl=1_000 * (turn + 1), isl_new=10 * (turn + 1), osl=100,
             ttft_ms=100.0 + turn)
        for turn in range(12)
    ]  # fmt: skip
    told = figures(ask("generation", make_run(tmp_path / "ranked", turns)))
    assert told["rank correlation of TTFT with append"] == pytest.approx(1.0)
    assert told["rank correlation of normalized speed with context"] == pytest.approx(-1.0)


def test_logs_without_first_outputs(tmp_path: Path) -> None:
    answer = ask("generation", make_run(tmp_path / "logs", [step(0, 0, 4, isl=1_000, osl=100, e2e_ms=4_000.0)]))
    assert figures(answer)["median decode speed"] is None
    assert figures(answer)["median normalized speed"] == 25.0
    assert "decode_p50_tok_s" not in answer.tables["generation"].columns
    assert any("no TTFT" in text for text in answer.missing)


def test_a_time_below_what_stamps_tell_makes_no_speed(tmp_path: Path) -> None:
    shortest = [step(0, turn, 4, isl=1_000, osl=100, e2e_ms=e2e_ms) for turn, e2e_ms in enumerate((5e-324, 4_000.0))]
    assert figures(ask("generation", make_run(tmp_path / "run", shortest)))["median normalized speed"] == 25


def test_the_engines_own_times_weigh_as_many_as_they_are_of(tmp_path: Path) -> None:
    run = make_run(tmp_path / "engine", [step(0, 0, 4, isl=1_000, osl=100)])
    rows = [
        {"n": 1, "isl_new": 100.0, "prefill_ms": 10.0, "queue_ms": 0.0},
        {"n": 3, "isl_new": 200.0, "prefill_ms": 30.0, "queue_ms": None},
        {"n": 2, "isl_new": 5_000.0, "prefill_ms": 500.0, "queue_ms": 4.0},
    ]
    pl.DataFrame(rows, schema=ENGINE_COLUMNS).write_parquet(f"{run.path}/engine_metrics.parquet")
    answer = ask("generation", run)
    assert column(answer, "engine", "append_tokens", "prefill_ms") == {"0 to 256": 25.0, "4K to 16K": 500.0}
    assert column(answer, "engine", "append_tokens", "queue_ms") == {"0 to 256": 0.0, "4K to 16K": 4.0}
    assert column(answer, "engine", "append_tokens", "requests") == {"0 to 256": 4, "4K to 16K": 2}


def test_nothing_to_tell(tmp_path: Path) -> None:
    for question in ("generation", "cost"):
        answer = ask(question, make_run(tmp_path / question))
        assert answer.missing
        assert all(line.value is None for line in answer.headline)
