"""Reuse of prefixes: by hand for small traces, and against a cache simulated block by block for random ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbench.analysis._reuse import Reuse, reuse_of_chains, reuse_of_counts, sums_above

RETENTIONS_S = (0.0, 1.0, 5.0, 30.0, math.inf)
CAPACITIES = (0, 4, 10, 16, 23, 40, 1_000)


def integers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@dataclass
class Request:
    """One request as a chain of pieces: what a piece is, and how many tokens."""

    start_s: float
    end_s: float
    prompt: list[tuple[int, int]]
    reply: list[tuple[int, int]]


def chains(requests: list[Request], block: int) -> Reuse:
    pieces = [request.prompt + request.reply for request in requests]
    return reuse_of_chains(
        np.array([len(it) for it in pieces], dtype=np.int64),
        np.array([piece for it in pieces for piece, _ in it], dtype=np.uint64),
        np.array([end for it in pieces for end in np.cumsum([tokens for _, tokens in it])], dtype=np.int64),
        np.array([sum(tokens for _, tokens in it.prompt) for it in requests], dtype=np.int64),
        (np.array([it.start_s for it in requests]), np.array([it.end_s for it in requests])),
        block,
    )


def blocks(pieces: list[tuple[int, int]], block: int) -> list[tuple[int, ...]]:
    """A block is what all tokens up to its end are."""
    tokens = [piece for piece, n in pieces for _ in range(n)]
    return [tuple(tokens[:end]) for end in range(block, len(tokens) + 1, block)]


def naive_kept(requests: list[Request], block: int, retention_s: float) -> list[int]:
    until: dict[tuple[int, ...], float] = {}
    hits = []
    for request in requests:
        hit = 0
        for key in blocks(request.prompt, block):
            if key not in until or request.start_s - until[key] > retention_s:
                break
            hit += block
        hits.append(hit)
        for key in blocks(request.prompt + request.reply, block):
            until[key] = max(until.get(key, -math.inf), request.end_s)
    return hits


def naive_lru(requests: list[Request], block: int, capacity: int) -> list[int]:
    stack: list[tuple[int, ...]] = []
    hits = []
    for request in requests:
        hit = 0
        for key in blocks(request.prompt, block):
            if key not in stack:
                break
            hit += block
        hits.append(hit)
        used = blocks(request.prompt + request.reply, block)
        stack = (used + [key for key in stack if key not in used])[: capacity // block]
    return hits


def check(requests: list[Request], reuse: Reuse, block: int) -> None:
    for retention_s in RETENTIONS_S:
        assert reuse.hits(retention_s).tolist() == naive_kept(requests, block, retention_s), retention_s
    for capacity in CAPACITIES:
        assert reuse.lru_hits(capacity).tolist() == naive_lru(requests, block, capacity), capacity
    assert reuse.ideal_hits().tolist() == naive_kept(requests, block, math.inf)


def test_a_conversation_that_grows_by_hand() -> None:
    # Prompts of 100, 150 and 200 tokens, replies of 20; waits of 10 s and of 400 s.
    reuse = reuse_of_counts(
        integers(-1, 0, 1), integers(100, 150, 200), integers(20, 20, 20), integers(0, 120, 170),
        np.array([math.nan, 10.0, 400.0]), 10,
    )  # fmt: skip
    assert reuse.hits(60).tolist() == [0, 120, 0]
    assert reuse.hits(300).tolist() == [0, 120, 0]
    assert reuse.hits(3_600).tolist() == [0, 120, 170]
    # The turn before is all that was used since: its tail goes first where not all of it fits.
    assert reuse.lru_hits(100).tolist() == [0, 100, 100]
    assert reuse.lru_hits(125).tolist() == [0, 120, 120]
    assert reuse.lru_hits(1_000).tolist() == [0, 120, 170]


def test_another_conversation_in_between_pushes_out() -> None:
    # a: 40 tokens; b: 30 tokens; a again: 60, of which 40 were there. 30 tokens of b lie above a's 40.
    reuse = reuse_of_counts(
        integers(-1, -1, 0), integers(40, 30, 60), integers(0, 0, 0), integers(0, 0, 40),
        np.array([math.nan, math.nan, 5.0]), 10,
    )  # fmt: skip
    assert reuse.depth().tolist() == [30]
    assert [reuse.lru_hits(capacity).sum() for capacity in (30, 39, 40, 60, 70)] == [0, 0, 10, 30, 40]


def test_sessions_share_their_system_prompt_by_hand() -> None:
    # Two sessions with the same 32 tokens before their own; the second comes 100 s after the first.
    requests = [
        Request(0.0, 1.0, [(1, 32), (2, 16)], []),
        Request(101.0, 102.0, [(1, 32), (3, 16)], []),
        Request(103.0, 104.0, [(1, 32), (2, 16), (4, 16)], []),
    ]
    reuse = chains(requests, 16)
    assert reuse.hits(60).tolist() == [0, 0, 32]
    assert reuse.hits(300).tolist() == [0, 32, 48]
    assert list(zip(reuse.request, reuse.source, reuse.tokens, reuse.age_s, strict=True)) == [
        (1, 0, 32, 100.0),
        (2, 1, 32, 1.0),
        (2, 0, 16, 102.0),
    ]


def test_the_same_text_after_another_beginning_is_another_block() -> None:
    requests = [Request(0.0, 1.0, [(1, 8), (2, 8)], []), Request(2.0, 3.0, [(3, 8), (2, 8)], [])]
    assert chains(requests, 8).ideal_hits().tolist() == [0, 0]


def test_a_time_that_is_not_known_is_no_hit_and_no_age() -> None:
    requests = [Request(0.0, math.nan, [(1, 8)], []), Request(2.0, 3.0, [(1, 8)], [])]
    reuse = chains(requests, 8)
    assert np.isnan(reuse.age_s).all()
    assert reuse.hits(1e9).tolist() == [0, 0]
    assert reuse.ideal_hits().tolist() == [0, 8]


def test_nothing_at_all() -> None:
    nothing = integers()
    empty = np.array([], dtype=float)
    counts = reuse_of_counts(nothing, nothing, nothing, nothing, empty, 16)
    chained = reuse_of_chains(nothing, np.array([], dtype=np.uint64), nothing, nothing, (empty, empty), 16)
    for reuse in (counts, chained):
        assert reuse.hits(1.0).tolist() == reuse.lru_hits(10).tolist() == []


@settings(max_examples=80, deadline=None)
@given(
    values=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=60),
    queries=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 45)), min_size=1, max_size=20),
)
def test_sums_above_a_bound(values: list[tuple[int, int]], queries: list[tuple[int, int]]) -> None:
    queries = [(min(upto, len(values)), bound) for upto, bound in queries]
    answer = sums_above(
        integers(*(value for value, _ in values)), integers(*(weight for _, weight in values)),
        integers(*(upto for upto, _ in queries)), integers(*(bound for _, bound in queries)),
    )  # fmt: skip
    expected = [sum(weight for value, weight in values[:upto] if value > bound) for upto, bound in queries]
    assert answer.tolist() == expected


@st.composite
def conversations(draw: st.DrawFn) -> list[Request]:
    """Conversations that grow, fork from each other, lose their end, and run beside each other."""
    known: list[list[tuple[int, int]]] = [[]]
    requests = []
    now = 0.0
    for piece in range(draw(st.integers(1, 14))):
        base = draw(st.sampled_from(known))
        kept = base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else base
        new = [(1_000 + piece * 10 + index, draw(st.integers(1, 9))) for index in range(draw(st.integers(0, 2)))]
        prompt = kept + new or [(1, 5)]
        reply = [(5_000 + piece, draw(st.integers(1, 6)))] if draw(st.booleans()) else []
        now += draw(st.sampled_from((0.0, 0.5, 2.0, 7.0, 40.0)))
        requests.append(Request(now, now + draw(st.sampled_from((0.25, 3.0, 20.0))), prompt, reply))
        known.append(prompt + reply)
    return requests


@settings(max_examples=150, deadline=None)
@given(requests=conversations(), block=st.sampled_from((1, 2, 4)))
def test_chains_are_what_a_cache_of_blocks_does(requests: list[Request], block: int) -> None:
    check(requests, chains(requests, block), block)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), block=st.sampled_from((1, 2, 4)))
def test_counts_are_what_a_cache_of_minted_blocks_does(data: st.DataObject, block: int) -> None:
    """Threads in turn, each turn going on from its thread's last one, from a shorter part of it after a cut."""
    n_threads = data.draw(st.integers(1, 4))
    context: dict[int, list[tuple[int, int]]] = {}
    last: dict[int, int] = {}
    before, prompt, reply, shared, age_s = [], [], [], [], []
    requests: list[Request] = []
    now = 0.0
    for index in range(data.draw(st.integers(1, 16))):
        thread = data.draw(st.integers(0, n_threads - 1))
        had = context.get(thread, [])
        keep = data.draw(st.integers(0, len(had))) if data.draw(st.integers(0, 4)) == 0 else len(had)
        kept = had[:keep]
        new = [(thread * 10_000 + index * 100 + place, 1) for place in range(data.draw(st.integers(1, 12)))]
        out = [(thread * 10_000 + index * 100 + 50 + place, 1) for place in range(data.draw(st.integers(0, 6)))]
        now += data.draw(st.sampled_from((0.5, 2.0, 7.0, 40.0)))
        requests.append(Request(now, now + 0.25, kept + new, out))
        before.append(last.get(thread, -1))
        age_s.append(now - requests[last[thread]].end_s if thread in last else math.nan)
        prompt.append(len(kept) + len(new))
        reply.append(len(out))
        shared.append(len(kept))
        context[thread] = kept + new + out
        last[thread] = index
    reuse = reuse_of_counts(
        integers(*before), integers(*prompt), integers(*reply), integers(*shared), np.array(age_s), block
    )
    check(requests, reuse, block)
