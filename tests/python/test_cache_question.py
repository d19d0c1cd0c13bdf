"""The question of the prefix cache: right answers by hand, with counts, with units of text, with blocks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.python.made_runs import call, make_run, step

import agentbench
from agentbench.analysis import QUESTIONS, analyze

if TYPE_CHECKING:
    from pathlib import Path


def ask(*runs: agentbench.Run) -> agentbench.Answer:
    return analyze(*runs, questions=["cache"])["cache"]


def figures(answer: agentbench.Answer) -> dict[str, float | None]:
    return {line.name: line.value for line in answer.headline}


def column(answer: agentbench.Answer, table: str, label: str, value: str) -> dict[Any, Any]:
    frame = answer.tables[table]
    return dict(zip(frame[label], frame[value], strict=True))


def hashed(run: agentbench.Run, columns: dict[str, list[Any]], units: dict[str, tuple[str, int]] | None = None) -> None:
    """Add hashes to the turns of a run made by hand, and the table of its units."""
    file = f"{run.path}/turn_traces.parquet"
    rows = pl.read_parquet(file)
    rows.with_columns(pl.Series(name, values) for name, values in columns.items()).write_parquet(file)
    if units:
        table = {
            "hash": list(units),
            "role": [it[0] for it in units.values()],
            "n_bytes": [it[1] for it in units.values()],
        }
        pl.DataFrame(table).write_parquet(f"{run.path}/messages.parquet")


@pytest.fixture
def counted(tmp_path: Path) -> agentbench.Run:
    """A user's request with a tool call, then the user again after 400 s, and again after 4,000 s."""
    turns = [
        step(0, 0, 10, isl=1_000, isl_cached=0, osl=100),
        step(1, 20, 30, waited_s=10, isl=1_200, isl_cached=1_000, osl=50),
        step(2, 430, 440, waited_s=400, isl=1_300, isl_cached=0, osl=20),
        step(3, 4_440, 4_450, waited_s=4_000, isl=1_400, isl_cached=0, osl=20),
    ]
    return make_run(tmp_path / "counted", turns, [call(0, 10, 20)])


def test_hits_as_they_were(counted: agentbench.Run) -> None:
    answer = ask(counted)
    told = figures(answer)
    assert told["prefix hits"] == pytest.approx(100 * 1_000 / 4_900)
    assert told["prefix hits after a user message"] == 0.0
    assert told["prefix hits after a tool result"] == pytest.approx(100 * 1_000 / 1_200)
    assert column(answer, "cache", "trigger", "turns") == {"user message": 3, "tool result": 1, "all": 4}


def test_append_and_what_of_it_is_fresh(counted: agentbench.Run) -> None:
    # Growth less the output before: 1,200 - 1,000 - 100; 1,300 - 1,200 - 50; 1,400 - 1,300 - 20.
    answer = ask(counted)
    told = figures(answer)
    assert told["prefill amplification"] == pytest.approx((200 + 1_300 + 1_400) / (100 + 50 + 80))
    assert told["prefill that human pauses cost"] == pytest.approx(100 * (1_250 + 1_320) / 3_900)
    assert column(answer, "append_sizes", "append_tokens", "turns") == {
        "under 256": 1, "256 to 1K": 1, "1K to 4K": 2, "4K to 16K": 0, "16K to 64K": 0, "64K or more": 0,
    }  # fmt: skip
    assert column(answer, "pauses", "pause", "prefilled_again_tokens") | {"up to 1 min": None, "1 to 5 min": None} == {
        "up to 1 min": None, "1 to 5 min": None, "5 min to 1 h": 1_250, "over 1 h": 1_320, "all": 2_570,
    }  # fmt: skip


def test_keeping_blocks_for_a_while(counted: agentbench.Run) -> None:
    answer = ask(counted)
    told = figures(answer)
    # Of 3,900 tokens of turns with one before, 1,100 come within a minute, 1,250 within an hour, 1,320 later.
    assert told["hits if KV is kept 1 min"] == told["hits if KV is kept 5 min"] == pytest.approx(100 * 1_100 / 3_900)
    assert told["hits if KV is kept 1 h"] == pytest.approx(100 * 2_350 / 3_900)
    rule = column(answer, "retention", "kept", "idle_rule_hits_pct")
    assert rule["for ever"] == pytest.approx(100 * 3_670 / 3_900)
    assert column(answer, "retention", "kept", "amplification")["for ever"] == 1.0
    assert column(answer, "retention", "kept", "amplification")["1 h"] == pytest.approx((230 + 1_320) / 230)
    # Waits up to a minute: 10 + 60 + 60 s, over 40 s of responses.
    assert column(answer, "retention", "kept", "kv_idle_ratio")["1 min"] == pytest.approx(130 / 40)
    # Whole blocks of 16 of 1,100, 1,250 and 1,320 shared tokens, over all prompts.
    chained = column(answer, "retention", "kept", "chained_hits_pct")
    assert chained["1 min"] == pytest.approx(100 * 1_088 / 4_900)
    assert chained["1 h"] == pytest.approx(100 * (1_088 + 1_248) / 4_900)
    assert chained["for ever"] == pytest.approx(100 * (1_088 + 1_248 + 1_312) / 4_900)


def test_counts_do_not_tell_what_sessions_share(counted: agentbench.Run) -> None:
    answer = ask(counted)
    assert figures(answer)["prompt tokens shared with other sessions"] is None
    assert answer.tables["sharing"]["other_sessions_pct"].isna().all()
    assert any("unknown, not 0" in text for text in answer.missing)


def test_after_a_cut_only_what_usage_says_is_kept(tmp_path: Path) -> None:
    turns = [
        step(0, 0, 1, isl=10_000, isl_cached=0, osl=0),
        step(1, 2, 3, waited_s=1, isl=4_000, isl_cached=1_600, osl=0),
    ]
    answer = ask(make_run(tmp_path / "cut", turns))
    assert column(answer, "retention", "kept", "chained_hits_pct")["for ever"] == pytest.approx(100 * 1_600 / 14_000)


def test_capacity_is_shared_by_all_conversations(tmp_path: Path) -> None:
    # Two conversations of 1,600 tokens take turns: each needs both to fit.
    turns = [
        step(turn, 10 * turn + 5 * index, 10 * turn + 5 * index + 1, thread=name, session_id=name, isl=1_600, osl=0,
             waited_s=9 if turn else None)
        for turn in range(3)
        for index, name in enumerate(("a", "b"))
    ]  # fmt: skip
    answer = ask(make_run(tmp_path / "two", turns))
    capacity = column(answer, "capacity", "capacity_tokens", "hits_pct")
    assert capacity[1_024] == 0.0
    assert capacity[2_048] == pytest.approx(100 * 4 * 448 / 9_600)
    assert capacity[4_096] == pytest.approx(100 * 4 * 1_600 / 9_600)
    enough = figures(answer)["cache that has 95 % of an endless one's hits"]
    assert enough == pytest.approx(3_120, rel=0.02)


def test_units_tell_what_sessions_share(tmp_path: Path) -> None:
    """A token is 4 bytes here: a system prompt of 800 tokens, messages of 100, a reply of 50."""
    turns = [
        step(0, 0, 1, thread="a", session_id="a", isl=900, isl_cached=0, osl=50),
        step(1, 2, 3, thread="a", session_id="a", isl=1_050, isl_cached=900, osl=50, waited_s=1),
        step(0, 103, 104, thread="b", session_id="b", isl=900, isl_cached=0, osl=50),
        step(0, 110, 111, thread="c", session_id="c", isl=5_000, isl_cached=0, osl=50),
    ]
    run = make_run(tmp_path / "units", turns)
    units = {
        "system": ("", 3_200), "u1": ("user", 400), "reply": ("assistant", 200), "result": ("user", 400),
        "u2": ("user", 400),
    }  # fmt: skip
    chains = [["system", "u1"], ["system", "u1", "reply", "result"], ["system", "u2"], []]
    hashed(run, {"unit_hashes": chains}, units)
    answer = ask(run)
    # The reply was made by the turn before, so 950 of the second prompt's tokens are there: 59 blocks of 16.
    row = answer.tables["sharing"].to_dict("records")[0]
    assert row["hashes"] == "units"
    assert row["same_thread_pct"] == pytest.approx(100 * 944 / 2_850)
    assert row["other_sessions_pct"] == figures(answer)["prompt tokens shared with other sessions"]
    assert row["other_sessions_pct"] == pytest.approx(100 * 800 / 2_850)
    kept = column(answer, "retention", "kept", "chained_hits_pct")
    assert any("1 turns hold no hashes" in text for text in answer.missing)
    assert kept["1 min"] == pytest.approx(100 * 944 / 2_850)
    assert kept["5 min"] == pytest.approx(100 * 1_744 / 2_850)


def test_blocks_of_a_recording_without_text(tmp_path: Path) -> None:
    turns = [
        step(0, at, at + 1, thread=f"t{at}", session_id=f"s{at}", isl=isl) for at, isl in ((0, 1_300), (400, 1_536))
    ]
    run = make_run(tmp_path / "blocks", turns)
    hashed(run, {"block_hashes": [["1", "2", "3"], ["1", "2", "4"]], "block_size": [512, 512]})
    answer = ask(run)
    # The third block of the first prompt is cut by its end: no cache keeps it.
    kept = column(answer, "retention", "kept", "chained_hits_pct")
    assert kept["5 min"] == 0.0
    assert kept["1 h"] == pytest.approx(100 * 1_024 / 2_836)
    assert answer.tables["sharing"]["other_sessions_pct"].tolist() == [pytest.approx(100 * 1_024 / 2_836)]
    assert any("no cached tokens" in text or "cached tokens" in text for text in answer.missing)
    assert figures(answer)["prefix hits"] is None


def test_waits_that_are_not_known_are_left_out(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [
        {"turn": 0, "isl": 1_600, "osl": 0},
        {"turn": 1, "isl": 3_200, "osl": 0},
        {"turn": 2, "isl": 3_200, "osl": 0, "tool_exec_ms": 30_000.0},
    ]
    answer = ask(make_run(tmp_path / "untimed", turns))
    # The second turn's wait is unknown; the third's is told though no clock is.
    assert column(answer, "retention", "kept", "chained_hits_pct")["1 min"] == pytest.approx(100 * 3_200 / 4_800)
    assert column(answer, "retention", "kept", "idle_rule_hits_pct")["1 min"] == pytest.approx(100.0)
    assert any("1 turns have no known wait" in text for text in answer.missing)
    assert any("without times" in text for text in answer.missing)


def test_no_tokens_at_all(tmp_path: Path) -> None:
    for answer in (ask(make_run(tmp_path / "none")), ask(make_run(tmp_path / "blind", [step(0, 0, 1)]))):
        assert answer.missing[0].startswith("no turn tells its prompt tokens")
        assert all(line.value is None for line in answer.headline)
        assert answer.draw is None


def test_each_run_is_a_cache_of_its_own(tmp_path: Path) -> None:
    def run(name: str) -> agentbench.Run:
        made = make_run(tmp_path / name, [step(0, 0, 1, isl=1_024)])
        hashed(made, {"block_hashes": [["1", "2"]], "block_size": [512]})
        return made

    assert column(ask(run("a"), run("b")), "retention", "kept", "chained_hits_pct")["for ever"] == 0.0


def imported(tmp_path: Path, rows: list[dict[str, Any]]) -> agentbench.Run:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return agentbench.import_traces([source], out=tmp_path / "imported")


def test_mooncakes_requests_share_across_sessions(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1_300, "output_length": 7, "hash_ids": [1, 2, 3]},
        {"timestamp": 90_000, "input_length": 1_536, "output_length": 7, "hash_ids": [1, 2, 4]},
        {"timestamp": 500_000, "input_length": 2_100, "output_length": 7, "hash_ids": [1, 2, 4, 5, 6]},
    ]
    run = imported(tmp_path, rows)
    answer = ask(run)
    kept = column(answer, "retention", "kept", "chained_hits_pct")
    assert kept["1 min"] == 0.0
    assert kept["5 min"] == pytest.approx(100 * 1_024 / 4_936)
    assert kept["1 h"] == pytest.approx(100 * (1_024 + 1_536) / 4_936)
    (sharing,) = answer.tables["sharing"].to_dict("records")
    assert (sharing["hashes"], sharing["same_thread_pct"]) == ("blocks", 0.0)
    assert sharing["other_sessions_pct"] == pytest.approx(100 * 2_560 / 4_936)
    # Nothing else was used in between but the second request's last block, which the third needs itself.
    capacity = column(answer, "capacity", "capacity_tokens", "hits_pct")
    assert capacity[1_024] == pytest.approx(100 * 2_048 / 4_936)
    assert capacity[2_048] == pytest.approx(100 * 2_560 / 4_936)
    analysis = analyze(run)
    assert list(analysis) == list(QUESTIONS)
    assert all(it._repr_png_() and it.title in it.to_text() for it in analysis.values())


def test_wekas_subagents_share_within_their_session(tmp_path: Path) -> None:
    child = {"t": 3.0, "type": "n", "in": 128, "out": 1, "hash_ids": [1, 9]}
    rows = [
        {
            "id": session,
            "block_size": 64,
            "hash_id_scope": "local",
            "requests": [
                {"t": at, "type": "s", "model": "m", "in": 128, "out": 9, "hash_ids": [1, 2], "api_time": 2.0},
                {"type": "subagent", "agent_id": "a", "requests": [child | {"t": at + 3.0}]},
                {"t": at + 5.0, "type": "s", "model": "m", "in": 200, "out": 3, "hash_ids": [1, 2, 5, 6]},
            ],
        }
        for session, at in (("v", 0.5), ("w", 50.5))
    ]
    answer = ask(imported(tmp_path, rows))
    (sharing,) = answer.tables["sharing"].to_dict("records")
    # A subagent has its parent's first block, and the parent that one again; the second is of the parent's turn before.
    assert sharing["same_session_pct"] == pytest.approx(100 * 2 * (64 + 64) / (2 * 456))
    assert sharing["same_thread_pct"] == pytest.approx(100 * 2 * 64 / (2 * 456))
    assert sharing["other_sessions_pct"] == 0.0
