"""Headline figures and tables of pages of runs that sent requests, again from Parquet, by numpy and polars alone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from tests.python.page_parts import cards, check_rows, embedded, same, shown, table, tables, total
from tests.python.scripted import Server, answers, called, end, reasoning, said, text

import agentbench
from agentbench import CommandCheck, FileCheck, Task, load
from agentbench.load import Fixed

if TYPE_CHECKING:
    from pathlib import Path

    Values = np.ndarray[Any, Any]

WATTS = 250.0
NAMES = ["replay", "load", "capacity", "agent"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """A run of every kind with its page."""
    root = tmp_path_factory.mktemp("runs")
    power = f"constant:{WATTS:.0f}"
    minimum: dict[str, Any] = {"min_trajectories": 1, "min_trajectories_per_agent": 0, "min_requests_per_agent": 1}
    with agentbench.SimulatedEngine(speed="gpu-8b") as engine:
        agentbench.replay(
            agentbench.sample_trace(), url=engine.url, agents=3, duration_s=4.0, out=root / "replay", power=power
        )
        agentbench.capacity(
            agentbench.sample_trace(), url=engine.url, slo=["ttft.p95<=2s", "speed.p25>=20"], max_agents=3,
            gpu_count=2, out=root / "capacity", power=power, min_steady_s=0.5, **minimum,
        )  # fmt: skip
        shape = load.conversation("7k", users=2, turns=Fixed(3), output_tokens=Fixed(20))
        (step,) = load.run(
            load.of_conversations({"7k": shape}), shape="conversation", url=engine.url, out=root / "load"
        ).rows
    with Server(script, pause_s=0.005).running() as server:
        agentbench.run_agents(
            TASKS,
            url=server.url,
            out=root / "agent",
            sandbox="none",
            power="none",
            repeat=2,
            concurrency=3,
            max_steps=3,
        )
    paths = {name: root / name for name in ("replay", "capacity", "agent")}
    paths["load"] = step.run.path
    return {name: (path, agentbench.report(path).to_html()) for name, path in paths.items()}


TASKS = [
    Task("hello", "write", checks=(FileCheck("a.txt", equals="hello"),)),
    Task("lie", "lie", checks=(FileCheck("a.txt"),)),
    Task("stop", "stop", checks=(CommandCheck("true"),)),
    Task("fail", "fail", checks=(FileCheck("b.txt"),)),
    Task("unchecked", "write"),
]


def script(body: dict[str, Any]) -> Any:
    """Answers to what the tasks say."""
    prompt, turn = body["messages"][1]["content"], answers(body)
    if prompt == "lie":
        return said("Done.")
    if prompt == "stop":
        return called(("nothing", {}), ("read", {"path": "none"}))
    write = called(("write", {"path": "a.txt", "content": "hello"}))
    if prompt == "fail":
        return 503 if turn else write
    return [write, called(("list", {})), [reasoning("so"), text("Done"), text("."), end("stop")]][turn]


def of_headline(path: Path, requests: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """The requests that stand in the headline, answered or not, and the seconds that they are of."""
    manifest = json.loads((path / "manifest.json").read_text())
    if manifest["kind"] == "agent":
        end_ms = float((requests["sent_at_ms"] + requests["e2e_ms"]).max())  # type: ignore[arg-type]
        return requests, (end_ms - float(requests["sent_at_ms"].min())) / 1e3  # type: ignore[arg-type]
    if manifest["kind"] == "capacity":
        level = answer_of(path)
        part = requests.filter((pl.col("level") == level["level"]) & (pl.col("phase") == "steady"))
        return part, (level["end_ms"] - level["start_ms"]) / 1e3
    window = manifest["settings"]["replay"]["window"]
    return requests.filter(pl.col("phase") == "steady"), (window["steady_end_ms"] - window["steady_start_ms"]) / 1e3


def answer_of(path: Path) -> dict[str, Any]:
    """The last level that passed with the most agents."""
    passed = table(path, "levels").filter(pl.col("verdict") == "pass")
    return passed.sort("agents", "level").to_dicts()[-1]


def speeds(ok: pl.DataFrame) -> Values:
    """Output tokens after the first over the time that they took; of requests with two tokens and more."""
    known = ok.filter((pl.col("completion_tokens") >= 2) & (pl.col("last_token_ms") > pl.col("ttft_ms")))
    tokens = known["completion_tokens"].to_numpy() - 1.0
    return tokens / (known["last_token_ms"] - known["ttft_ms"]).to_numpy() * 1e3  # type: ignore[no-any-return]


def flat(lists: pl.Series) -> Values:
    return np.array([value for row in lists.drop_nulls().to_list() for value in row], dtype=float)


def token_gaps(ok: pl.DataFrame) -> Values:
    """The time before each token after the first chunk: a chunk's gap over its tokens, once for each of them.

    The gap of a chunk without a token of its own belongs to the next that has one.
    """
    found: list[float] = []
    for gaps, tokens in ok.select("chunk_gap_ms", "chunk_tokens").iter_rows():
        carried = 0.0
        for gap, n in zip(gaps, tokens[1:], strict=bool(tokens)):
            carried += gap
            if n:
                found += [carried / n] * n
                carried = 0.0
    return np.array(found)


def latencies(ok: pl.DataFrame) -> dict[str, Values]:
    """What the table of a replay's steady state is of."""
    columns = {"TTFT": "ttft_ms", "TPOT": "tpot_ms", "E2E": "e2e_ms", "ISL": "prompt_tokens"}
    columns |= {"ISL cached": "cached_tokens", "OSL": "completion_tokens", "send lag": "lag_ms"}
    lag = ok["lag_ms"].to_numpy()
    return {label: ok[column].cast(pl.Float64).to_numpy() for label, column in columns.items()} | {
        "TTFT from due": ok["ttft_ms"].to_numpy() + lag,
        "E2E from due": ok["e2e_ms"].to_numpy() + lag,
        "output speed": speeds(ok),
        "chunk gap": flat(ok["chunk_gap_ms"]),
        "ITL per token": token_gaps(ok),
        "tool wait": ok["tool_wait_ms"].drop_nulls().to_numpy(),
    }


@pytest.mark.parametrize("name", NAMES)
def test_cards_of_what_was_sent(pages: dict[str, tuple[Path, str]], name: str) -> None:
    path, page = pages[name]
    requests, found = table(path, "requests"), cards(page)
    part, seconds = of_headline(path, requests)
    ok = part.filter(pl.col("status") == "ok")
    if name == "capacity":
        requests = requests.filter(pl.col("level") == answer_of(path)["level"])
    failed = int(total(requests["status"] == "failed"))
    # A failed request counts as the worst value.
    n_failed = int(total(part["status"] == "failed"))
    ttft_s = float(np.quantile([*ok["ttft_ms"], *[1e12] * n_failed], 0.95)) / 1e3
    same(found["TTFT p95"][0], ttft_s if ttft_s < 1e3 else None)
    same(found["output speed p25"][0], float(np.quantile([*speeds(ok), *[0.0] * n_failed], 0.25)))
    same(found["output of all agents"][0], total(ok["completion_tokens"]) / seconds)
    same(found["requests"][0], len(requests))
    assert found["requests"][1].startswith(f"{failed:,} failed, ")
    answered = requests.filter((pl.col("status") == "ok") & pl.col("cached_tokens").is_not_null())
    hits = total(answered["cached_tokens"]) / total(answered["prompt_tokens"]) * 100 if len(answered) else None
    same(found["prompt tokens from cache"][0], hits)
    if name != "agent":
        same(found["requests answered whole"][0], len(ok) / len(part) * 100)


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_what_was_sent(pages: dict[str, tuple[Path, str]], name: str) -> None:
    path, page = pages[name]
    requests, found = table(path, "requests"), tables(page)
    part, seconds = of_headline(path, requests)
    ok = part.filter(pl.col("status") == "ok")
    (title,) = [title for title in found if re.search(r"(steady state|whole run), [\d.]+ s$", title)]
    same(title.rpartition(", ")[2], seconds)
    # Times from when requests were due are told where these are others; live agents' tool time stands with their tasks.
    may_lack = {"TTFT from due", "E2E from due"} | ({"tool wait"} if name == "agent" else set())
    expected = {label: it for label, it in latencies(ok).items() if label in found[title] or label not in may_lack}
    check_rows(found[title], expected)
    rates = found["throughput"]
    new = ok["prompt_tokens"].cast(pl.Int64) - ok["cached_tokens"].cast(pl.Int64)
    for label, of_all in {
        "requests": len(ok),
        "input": total(ok["prompt_tokens"]),
        "output": total(ok["completion_tokens"]),
    }.items():
        same(rates[label][1], of_all / seconds)
    for label, tokens in {"cached input": ok["cached_tokens"], "new input": new}.items():
        same(rates[label][1], total(tokens) / seconds if tokens.count() else None)
    if name == "capacity":
        requests = requests.filter(pl.col("level") == answer_of(path)["level"])
    counts = requests["status"].value_counts()
    by_status = dict(counts.iter_rows())
    assert found["counts"]["requests"] == [
        f"{len(requests)} sent, " + ", ".join(f"{by_status.get(it, 0)} {it}" for it in ("ok", "failed", "cancelled"))
    ]
    phases = dict(requests["phase"].value_counts().iter_rows())
    assert sorted(found["counts"]["sent in"][0].split(", ")) == sorted(f"{phase} {n}" for phase, n in phases.items())


def counted(path: Path, requests: pl.DataFrame) -> dict[str, float]:
    """How far the engine's counters went from the last poll before the first request to the last poll of all."""
    anchor_s = json.loads((path / "manifest.json").read_text())["settings"]["replay"]["clock_anchor_ns"] / 1e9
    polls = table(path, "engine_samples").filter(pl.col("error").is_null()).sort("ts")
    start_s = anchor_s + float(requests["sent_at_ms"].min()) / 1e3  # type: ignore[arg-type]
    before = polls.filter(pl.col("ts") + pl.col("scrape_ms") / 1e3 <= start_s)
    counters = [name for name in polls.columns if name.endswith(("_total", "_sum", "_count"))]
    first, last = before.row(-1, named=True), polls.row(-1, named=True)
    return {name: last[name] - first[name] for name in counters if last[name] is not None}


@pytest.mark.parametrize("name", ["replay", "load"])
def test_hits_by_three_accounts_and_the_engines_own_times(pages: dict[str, tuple[Path, str]], name: str) -> None:
    path, page = pages[name]
    requests, found = table(path, "requests"), tables(page)
    ok = requests.filter(pl.col("status") == "ok")
    engine = counted(path, requests)
    hits = found["prefix hit rate"]
    same(hits["planned"][0], total(ok["planned_cached_tokens"]) / total(ok["planned_prompt_tokens"]) * 100)
    same(hits["usage"][0], total(ok["cached_tokens"]) / total(ok["prompt_tokens"]) * 100)
    same(hits["engine"][0], engine["cached_tokens_total"] / engine["prompt_tokens_total"] * 100)
    (title,) = [title for title in found if re.search(r"(steady state|whole run), [\d.]+ s$", title)]
    assert engine["request_count"] == len(ok)
    for label, of in {"TTFT": "ttft", "queue": "queue", "prefill": "prefill", "decode": "decode", "E2E": "e2e"}.items():
        n = engine["ttft_count" if of == "ttft" else "request_count"]
        row = found[title][f"engine {label}"]
        assert shown(row[1]) == n, label
        same(row[2], engine[f"{of}_sum"] / n * 1e3)


@pytest.mark.parametrize("name", ["replay", "capacity"])
def test_power_and_energy(pages: dict[str, tuple[Path, str]], name: str) -> None:
    path, page = pages[name]
    part, seconds = of_headline(path, table(path, "requests"))
    tokens = total(part.filter(pl.col("status") == "ok")["completion_tokens"])
    if name == "replay":
        found = cards(page)
        same(found["mean power"][0], WATTS)
        same(found["energy per output token"][0], WATTS * seconds / tokens)
    else:
        capacity = tables(page)["capacity"]
        same(capacity["mean power, W"][0], WATTS)
        same(capacity["energy of the steady window, J"][0], WATTS * seconds)
        same(capacity["J per output token"][0], WATTS * seconds / tokens)


def test_the_capacity_and_its_levels(pages: dict[str, tuple[Path, str]]) -> None:
    path, page = pages["capacity"]
    requests, levels, answer = table(path, "requests"), table(path, "levels"), answer_of(path)
    found, of_tables = cards(page), tables(page)
    agents = answer["agents"]
    same(found["agents at the service level"][0], agents)
    same(found["agents per GPU"][0], agents / 2)
    same(found["agents per MW"][0], agents / WATTS * 1e6)
    assert len(of_tables["levels"]) == len(levels) + 1
    for level in levels.to_dicts():
        part = requests.filter((pl.col("level") == level["level"]) & (pl.col("phase") == "steady"))
        ok = part.filter(pl.col("status") == "ok")
        seconds = (level["end_ms"] - level["start_ms"]) / 1e3
        of_agents, verdict, ttft, speed, n, failed = of_tables["levels"][str(level["level"])]
        assert (of_agents, n, failed) == (str(part["agent_id"].n_unique()), str(len(part)), str(len(part) - len(ok)))
        ttft_ms, speed_p25 = np.quantile(ok["ttft_ms"].to_numpy(), 0.95), np.quantile(speeds(ok), 0.25)
        same(ttft, float(ttft_ms))
        same(speed, float(speed_p25))
        assert verdict == ("pass" if ttft_ms <= 2e3 and speed_p25 >= 20 else "fail")
        _, steady, rate, watts, joules, *_ = of_tables["work of the levels"][str(level["level"])]
        same(steady, seconds)
        same(rate, total(ok["completion_tokens"]) / seconds)
        same(watts, WATTS)
        same(joules, WATTS * seconds)


def test_what_became_of_tasks(pages: dict[str, tuple[Path, str]]) -> None:
    path, page = pages["agent"]
    rows, requests, found = table(path, "trajectories"), table(path, "requests"), tables(page)
    checked = rows.filter(pl.col("check_passed").is_not_null())
    passed, claimed = rows["check_passed"].fill_null(value=False), rows["claimed"].fill_null(value=False)
    same(cards(page)["tasks completed, by their checks"][0], total(passed) / len(checked) * 100)
    same(cards(page)["tasks claimed done, by the model"][0], total(claimed) / len(rows) * 100)
    same(cards(page)["steps of a task"][0], float(np.median(rows["steps"].to_numpy())))
    counts = {
        "tasks": len(rows),
        "completed, by the check": total(passed),
        "claimed, by the model": total(claimed),
        "claimed, not completed": total(claimed & ~rows["check_passed"].fill_null(value=True)),
        "completed, not claimed": total(passed & ~claimed),
        "tool calls": total(rows["tool_calls"]),
        "malformed": total(rows["malformed_calls"]),
        "that failed": total(rows["tool_errors"]),
    }
    for label, count in counts.items():
        assert shown(found["tasks"][label][0]) == count, label
    ended = ", ".join(sorted(f"{name.replace('_', ' ')} {n}" for name, n in rows["outcome"].value_counts().iter_rows()))
    assert ", ".join(sorted(found["tasks"]["ended by"][0].split(", "))) == ended
    for (task,), of_task in rows.group_by("task_id"):
        cells = found["each task"][str(task)][1:]
        expected = [
            len(of_task),
            total(of_task["check_passed"]),
            total(of_task["claimed"]),
            *(total(of_task[it]) for it in ("steps", "tool_calls")),
        ]
        assert [int(shown(cell)) for cell in cells] == expected, task
    ok = requests.filter(pl.col("status") == "ok")
    model = requests.group_by("trajectory_id").agg(pl.col("e2e_ms").sum())["e2e_ms"].to_numpy()
    check_rows(
        found["of a task"],
        {
            "steps of a task": rows["steps"].to_numpy(),
            "time of a task": (rows["end_ms"] - rows["start_ms"]).to_numpy(),
            "of it the model's": model,
            "tool time before a request": requests["tool_time_ms"].drop_nulls().to_numpy(),
            "TTFT, reasoning": ok["ttft_reasoning_ms"].to_numpy(),
            "TTFT, visible": ok["ttft_visible_ms"].to_numpy(),
        },
    )


def test_the_chart_of_tasks(pages: dict[str, tuple[Path, str]]) -> None:
    path, page = pages["agent"]
    rows = table(path, "trajectories")
    ends = [
        rows.filter(pl.col("check_passed")),
        rows.filter(~pl.col("check_passed") & pl.col("claimed")),
        rows.filter(~pl.col("check_passed") & ~pl.col("claimed")),
        rows.filter(pl.col("check_passed").is_null()),
    ]
    drawn = [source for source in embedded(page) if source.keys() == {"runs", "y", "x", "x1", "n"}]
    assert [int(source["n"].sum()) for source in drawn] == [len(part) for part in ends if len(part)]
    assert all(np.array_equal(source["x1"] - source["x"], source["n"]) for source in drawn)


@pytest.mark.parametrize("name", NAMES)
def test_no_card_is_left_out(pages: dict[str, tuple[Path, str]], name: str) -> None:
    """A card that is new needs its recomputation above."""
    sent = {"TTFT p95", "output speed p25", "output of all agents", "prompt tokens from cache", "requests"}
    more = {
        "replay": sent | {"requests answered whole", "mean power", "energy per output token"},
        "load": sent | {"requests answered whole"},
        "capacity": sent
        | {"requests answered whole", "agents at the service level", "agents per GPU", "agents per MW"},
        "agent": sent | {"tasks completed, by their checks", "tasks claimed done, by the model", "steps of a task"},
    }
    assert set(cards(pages[name][1])) - more[name] == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_section_of_the_report_is_on_the_page(pages: dict[str, tuple[Path, str]], name: str) -> None:
    path, page = pages[name]
    verdict, conditions, *others = [section.title for section in agentbench.report(path).sections]
    # These two stand on top in a form of their own.
    assert (verdict.partition(":")[0], conditions) == ("verdict", "conditions")
    assert set(others) <= tables(page).keys() | set(re.findall(r"<h3>([^<]*)</h3>", page))
    assert "<h2>Conditions</h2>" in page
