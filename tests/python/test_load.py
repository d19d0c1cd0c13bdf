"""Load shapes: what they plan, by tables of settings and right prompts, and what comes of them on an engine."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import agentbench
from agentbench import load
from agentbench._cli import run as command_line
from agentbench.load.distributions import Empirical, Fixed, Lognormal, parse
from agentbench.load.plan import COARSE, FINE, Request

if TYPE_CHECKING:
    import pandas as pd


def shape(**changed: Any) -> load.Conversation:
    """Blocks of 16 tokens: a system prompt of two, a user's prefix of two more, and 20 tokens in and 12 out a turn."""
    fields: dict[str, Any] = {
        "users": 2,
        "conversations": 3,
        "system_tokens": 32,
        "user_tokens": 32,
        "limit_tokens": 1000,
        "input_tokens": Fixed(20),
        "output_tokens": Fixed(12),
        "turns": Fixed(3),
        "think_s": Fixed(1.5),
    }
    return load.Conversation(**(fields | changed))


def test_a_conversation_grows_by_what_was_said_and_answered() -> None:
    first, second, third = shape().sessions()
    # 64 tokens of prefixes, 20 asked; then 12 answered and 20 asked more.
    assert [(r.input_tokens, r.output_tokens, r.wait_s) for r in first.requests] == [
        (84, 12, 0.0),
        (116, 12, 1.5),
        (148, 12, 1.5),
    ]
    # The system prompt is everybody's, the first and third conversation are the first user's.
    assert first.requests[0].blocks[:2] == second.requests[0].blocks[:2] == (0, 1)
    assert first.requests[0].blocks[:4] == third.requests[0].blocks[:4]
    assert set(first.requests[-1].blocks[2:]).isdisjoint(second.requests[-1].blocks)
    assert set(first.requests[-1].blocks[4:]).isdisjoint(third.requests[-1].blocks)
    for session in (first, second, third):
        assert [len(request.blocks) for request in session.requests] == [5, 7, 9]
        assert all(b.blocks[: len(a.blocks)] == a.blocks for a, b in pairwise(session.requests))


def test_a_prompt_that_would_pass_the_limit_is_compacted() -> None:
    (session,) = shape(limit_tokens=160, turns=Fixed(5), conversations=1).sessions()
    # The third prompt and its answer just fit; of the fourth, prefixes, a quarter of the limit and the question stay.
    assert [request.input_tokens for request in session.requests] == [
        84,
        116,
        148,
        64 + 40 + 20,
        64 + 40 + 20 + 32 - 32,
    ]
    kept, compacted = session.requests[2].blocks, session.requests[3].blocks
    assert compacted[:4] == kept[:4]
    assert set(compacted[4:]).isdisjoint(kept)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"limit_tokens": 64}, "system prompt and user prefix have 64 tokens, the context limit 64"),
        ({"limit_tokens": 80, "output_tokens": Fixed(40)}, "an output of 40 tokens does not fit"),
    ],
)
def test_a_conversation_that_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(agentbench.ConfigError, match=message):
        shape(**changed).sessions()


@pytest.mark.parametrize(
    ("rate_pct", "length", "shared", "blocks"),
    [(0, 100, 0, 6), (50, 100, 3, 6), (90, 160, 9, 10), (99, 160, 9, 10), (60, 2000, 75, 125)],
)
def test_a_hit_rate_is_a_share_of_each_prompt(rate_pct: float, length: int, shared: int, blocks: int) -> None:
    filling, measured = load.HitRate(rate_pct, 6, 3, Fixed(length), Fixed(7)).sessions()
    assert len(filling) == (3 if shared else 0)
    prefixes = [session.requests[0] for session in filling]
    for index, session in enumerate(measured):
        (request,) = session.requests
        assert (request.input_tokens, request.output_tokens, len(request.blocks)) == (length, 7, blocks)
        if shared:
            assert request.blocks[:shared] == prefixes[index % 3].blocks[:shared]
        others = {block for other in measured if other is not session for block in other.requests[0].blocks[shared:]}
        assert others.isdisjoint(request.blocks)


def test_arrivals_share_a_system_prompt_alone() -> None:
    one, two = load.Arrivals(2, 32, Fixed(40), Fixed(5)).sessions()
    assert one.requests == (Request((0, 1, 2, 3), 72, 5),)
    assert two.requests == (Request((0, 1, 4, 5), 72, 5),)


def test_long_contexts_have_fewer_blocks() -> None:
    assert [load.plan.block_size(tokens) for tokens in (7_000, 65_536, 65_537, 392_000)] == [FINE, FINE, COARSE, COARSE]


@pytest.mark.parametrize("name", load.PROFILES)
def test_every_profile_reaches_its_limit_and_stays_within(name: str) -> None:
    (session,) = load.conversation(name, users=1, conversations=1, turns=Fixed(40)).sessions()
    limit = load.PROFILES[name].limit
    lengths = [request.input_tokens + request.output_tokens for request in session.requests]
    assert max(lengths) <= limit
    assert max(lengths) > 0.9 * limit
    assert any(b.input_tokens < a.input_tokens for a, b in pairwise(session.requests)), "compacted at least once"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200", Fixed(200)),
        ("0", Fixed(0)),
        ("lognormal:median=200,sigma=0.8", Lognormal(200, 0.8)),
        ("lognormal:median=200,sigma=0.8,max=900", Lognormal(200, 0.8, 900)),
    ],
)
def test_distributions_are_read(text: str, expected: object) -> None:
    assert parse(text, "osl") == expected


@pytest.mark.parametrize(
    "text", ["", "-1", "nan", "many", "lognormal:", "lognormal:median=1", "lognormal:median=0,sigma=1", "normal:1"]
)
def test_what_is_no_distribution_is_refused(text: str) -> None:
    with pytest.raises(agentbench.ConfigError, match=r"is no (lognormal )?distribution; write "):
        parse(text, "osl")


def test_draws_follow_their_distribution_and_seed() -> None:
    lognormal = Lognormal(200, 0.5, 900)
    draws = [lognormal.draw(source) for source in [random.Random(3)] for _ in range(4000)]
    assert sorted(draws)[2000] == pytest.approx(200, rel=0.05)
    assert max(draws) == 900
    one, two = (shape(input_tokens=lognormal, seed=seed).sessions() for seed in (5, 5))
    assert one == two
    assert one != shape(input_tokens=lognormal, seed=6).sessions()


def test_a_run_is_drawn_from_by_its_columns() -> None:
    sample = agentbench.Run.open(agentbench.sample_trace())
    turns: pd.DataFrame = sample.turns().to_pandas()
    osl = parse(f"run:{agentbench.sample_trace()}", "osl")
    assert isinstance(osl, Empirical)
    assert sorted(osl.values) == sorted(turns["osl"].dropna())
    lengths = parse(f"run:{agentbench.sample_trace()}", "turns")
    assert isinstance(lengths, Empirical)
    assert sorted(lengths.values) == sorted(turns.groupby(["session_id", "thread_id"]).size())


def test_the_wanted_hit_rate_is_reached(tmp_path: Path) -> None:
    shapes = [load.HitRate(rate, 24, 3, Fixed(1600), Fixed(4)) for rate in (0, 60)]
    steps = load.of_hit_rates(shapes, 2, load.token())
    with agentbench.SimulatedEngine() as engine:
        made = load.run(steps, shape="hit-rate", url=engine.url, out=tmp_path / "load")
    assert [row["hit_rate_pct"] for row in made.figures] == [0, 60]
    assert [row["prefix_hits_usage_pct"] for row in made.figures] == [0, 60]
    assert json.loads((tmp_path / "load/load.json").read_text()) == made.figures
    # Each figure again, from the requests themselves.
    for row in made.figures:
        requests = agentbench.Run.open(tmp_path / "load" / row["directory"]).requests().to_pandas()
        assert row["requests_sent"] == len(requests) == 24
        assert set(requests["prompt_tokens"]) == {1600}
        steady = requests[requests["phase"] == "steady"] if row["of"] == "steady state" else requests
        assert row["ttft_ms_p95"] == pytest.approx(steady["ttft_ms"].quantile(0.95))
        assert row["tpot_ms_p50"] == pytest.approx(steady["tpot_ms"].quantile(0.5))


def test_a_shape_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "load"
    arguments = ["load", "conversation", "--users", "2", "--turns", "2", "--output-tokens", "4", "--out", str(out)]
    assert command_line(arguments) == 0
    printed = capfd.readouterr().out
    assert "SIMULATED engine" in printed
    (figures,) = json.loads((out / "load.json").read_text())
    assert (figures["run"], figures["requests_sent"], figures["requests_failed"]) == ("conversation-7k", 8, 0)
    # The second turn finds the first's prompt; the second conversation of a user finds prefixes.
    requests = agentbench.Run.open(out / "conversation-7k").requests().to_pandas()
    assert set(requests.groupby("turn")["prompt_tokens"].unique().map(tuple)) == {(1800,), (2104,)}
    assert (requests[requests["turn"] == 1]["cached_tokens"] == 1792).all()
    assert command_line(arguments) == 2
    assert "is not empty; give a new folder" in capfd.readouterr().err


def test_a_search_over_users(tmp_path: Path) -> None:
    out = tmp_path / "load"
    arguments = ["load", "conversation", "--turns", "2", "--output-tokens", "4", "--out", str(out)]
    assert command_line([*arguments, "--slo", "ttft.p95<=100s", "--max-users", "2", "--min-requests", "1"]) == 2
    assert command_line([*arguments, "--slo", "ttft.p95<=100s", "--max-users", "2"]) == 0
    (figures,) = json.loads((out / "load.json").read_text())
    assert (figures["max_agents"], figures["saturated"]) == (2, False)


def test_the_profiles_documented_are_those_there_are() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/load.md").read_text()
    for name, sizes in load.PROFILES.items():
        numbers = (sizes.system, sizes.user, sizes.input, sizes.output, sizes.turns, sizes.limit)
        assert f"| `{name}` | {' | '.join(f'{number:,}' for number in numbers)} |" in text
