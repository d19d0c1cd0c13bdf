"""What a prefix cache would give again: how long ago, and how much else since, each part of a prompt was used.

A cache holds chained blocks: a block is the same only where all before it is the same, so what a prompt finds
in the cache is a leading part of it. For each request this file tells, in order of time, the *segments* of that
part that were last used by one and the same earlier request: their length, their *age* (since that use ended),
and their *depth* (tokens of other blocks used since, the place in a stack ordered by last use). From these
follow the hits of every retention time and every capacity at once:

- kept for T after its last use: a segment hits if its age is at most T;
- least recently used goes first, C tokens fit: a block hits if its depth and itself are within C. Blocks of one
  request are used at once, the head of the prompt last, so that the tail goes first, as in engines.

Nothing here goes block by block: where only counts are known, a turn extends the context of the turn before
(one segment each); where hashes are known, runs of blocks with the same last use are one segment; depths come
from one pass over a wavelet matrix. What a turn uses is its prompt and, where that is known, its reply. Pure
functions of arrays; knows nothing of runs and tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

CHAIN_FACTOR = 0x9E3779B97F4A7C15
"""An odd factor whose powers tell the places of a chain apart."""
UNUSED = -1


@dataclass(frozen=True)
class Reuse:
    """Segments of prompts that an earlier request had used, requests in order of time.

    Attributes
    ----------
    block_tokens
        Tokens in a block; every length here is a multiple of it.
    prompt_tokens
        Of each request, the whole blocks of its prompt, in tokens.
    used_tokens
        Of each request, the same with its reply.
    request, source
        Of each segment, the request and the latest earlier one that used the same blocks.
    tokens
        Length of the segment.
    age_s
        From the end of the last use to this request; 0 while that use still lasts; nan where a time is unknown.
    in_prompt
        False for a segment of the reply: it is used, and nobody asked for it.
    """

    block_tokens: int
    prompt_tokens: Integers
    used_tokens: Integers
    request: Integers
    source: Integers
    tokens: Integers
    age_s: Floats
    in_prompt: Bools

    def hits(self, retention_s: float) -> Integers:
        """Tokens of each request's prompt that a cache still has which keeps a block for so long after its last use."""
        kept = self.in_prompt & (self.age_s <= retention_s)
        return self._per_request(np.where(kept, self.tokens, 0))

    def ideal_hits(self) -> Integers:
        """Tokens of each request's prompt that an endless cache has."""
        return self._per_request(np.where(self.in_prompt, self.tokens, 0))

    def lru_hits(self, capacity_tokens: int, depth: Integers | None = None) -> Integers:
        """Tokens of each request's prompt that a cache of so many tokens has, the least recently used leaving first."""
        return self._per_request(self._lru(capacity_tokens, self.depth() if depth is None else depth))

    def lru_hits_in_all(self, capacity_tokens: int, depth: Integers) -> int:
        """Tokens of all prompts that such a cache has: the sum of `lru_hits`, for less."""
        return int(self._lru(capacity_tokens, depth).sum())

    def _lru(self, capacity_tokens: int, depth: Integers) -> Integers:
        whole = np.maximum(capacity_tokens - depth, 0) // self.block_tokens * self.block_tokens
        hits: Integers = np.minimum(whole, self.tokens) * self.in_prompt
        return hits

    def depth(self) -> Integers:
        """Of each segment, tokens of distinct blocks that a stack ordered by last use holds above it."""
        total = np.concatenate([[0], np.cumsum(self.used_tokens)])
        since = total[self.request] - total[self.source + 1]
        earlier = np.searchsorted(self.request, self.request, side="left")
        again = sums_above(self.source, self.tokens, earlier, self.source)
        # Of the same last use, what stands before it in the prompt is above it too.
        before = np.cumsum(self.tokens) - self.tokens
        is_head = np.ones(len(self.request), dtype=np.bool_)
        is_head[1:] = (self.request[1:] != self.request[:-1]) | (self.source[1:] != self.source[:-1])
        head = np.maximum.accumulate(np.where(is_head, np.arange(len(is_head)), 0))
        depth: Integers = since - again + before - before[head]
        return depth

    def _per_request(self, tokens: Integers) -> Integers:
        summed = np.bincount(self.request, weights=tokens, minlength=len(self.prompt_tokens))
        return summed.astype(np.int64)


def sums_above(values: Integers, weights: Integers, upto: Integers, bound: Integers) -> Integers:
    """Sum, for each query, the weights of the first ``upto`` values that are above ``bound``; by a wavelet matrix."""
    answer = np.zeros(len(upto), dtype=np.int64)
    if not len(values):
        return answer
    # Places and values fit into 32 bits, which halves what has to be moved; sums of tokens do not.
    values, bound = values.astype(np.int32), bound.astype(np.int32)
    low, high = np.zeros(len(upto), dtype=np.int32), upto.astype(np.int32)
    for bit in range(int(max(values.max(), bound.max(initial=0))).bit_length() - 1, -1, -1):
        is_one = (values >> bit) & 1 == 1
        zeros_before = np.zeros(len(values) + 1, dtype=np.int32)
        np.cumsum(~is_one, out=zeros_before[1:])
        zeros, ones = np.flatnonzero(~is_one), np.flatnonzero(is_one)
        of_ones = np.zeros(len(ones) + 1, dtype=np.int64)
        np.cumsum(weights[ones], out=of_ones[1:])
        order = np.concatenate([zeros, ones])
        values, weights = values[order], weights[order]
        low_zero, high_zero = zeros_before[low], zeros_before[high]
        low_one, high_one = low - low_zero, high - high_zero
        goes_up = (bound >> bit) & 1 == 1
        answer += np.where(goes_up, 0, of_ones[high_one] - of_ones[low_one])
        low = np.where(goes_up, low_one + np.int32(len(zeros)), low_zero)
        high = np.where(goes_up, high_one + np.int32(len(zeros)), high_zero)
    return answer


def reuse_of_counts(
    before: Integers, prompt: Integers, reply: Integers, shared: Integers, age_s: Floats, block_tokens: int
) -> Reuse:
    """Tell the reuse within conversations of which only counts are known.

    Each turn continues one earlier request (``before``, -1 for none) and shares the first ``shared`` tokens with
    what that one left, prompt and reply. Requests are in order of time; blocks of a conversation are its own.
    """

    def whole(tokens: Integers) -> Integers:
        return tokens // block_tokens * block_tokens

    used = whole(prompt + reply)
    left = np.where(before >= 0, used[before], 0)
    tokens = np.minimum(np.minimum(whole(shared), whole(prompt)), left)
    request = np.flatnonzero((before >= 0) & (tokens > 0))
    return Reuse(
        block_tokens=block_tokens,
        prompt_tokens=whole(prompt),
        used_tokens=used,
        request=request,
        source=before[request],
        tokens=tokens[request],
        age_s=np.maximum(age_s[request], 0.0),
        in_prompt=np.ones(len(request), dtype=np.bool_),
    )


def reuse_of_chains(
    length: Integers,
    ids: NDArray[np.uint64],
    ends: Integers,
    prompt: Integers,
    times: tuple[Floats, Floats],
    block: int,
) -> Reuse:
    """Tell the reuse among chains of hashed pieces (blocks, or units of text), within and across conversations.

    Parameters
    ----------
    length
        Pieces of each request's chain, requests in order of time.
    ids, ends
        Of each piece, one chain after another: its hash, and the tokens of the chain up to its end.
    prompt
        Of each request, tokens of the prompt; what its chain has beyond is the reply.
    times
        Start and end of each request in seconds; nan where unknown.
    block
        Tokens in a block of the cache. A block is shared where the piece in which it ends is.
    """
    start_s, end_s = times
    request = np.repeat(np.arange(len(length)), length)
    first = np.concatenate([[0], np.cumsum(length)])
    source, used_until = _last_uses(_chained(ids, request, first), request, end_s)
    ends = ends // block * block
    begins = np.where(np.arange(len(ends)) == first[request], 0, np.roll(ends, 1))
    whole_prompt = prompt // block * block
    in_prompt = begins < whole_prompt[request]
    # A piece across the end of the prompt counts as far as the prompt goes.
    clipped = np.where(in_prompt, np.minimum(ends, whole_prompt[request]), ends)
    used = np.zeros(len(length), dtype=np.int64)
    has_chain = length > 0
    used[has_chain] = clipped[first[1:][has_chain] - 1]
    age_s = np.maximum(start_s[request] - used_until, 0.0)
    is_new = np.ones(len(ids), dtype=np.bool_)
    is_new[1:] = (
        (request[1:] != request[:-1])
        | (source[1:] != source[:-1])
        | (in_prompt[1:] != in_prompt[:-1])
        | ((age_s[1:] != age_s[:-1]) & ~(np.isnan(age_s[1:]) & np.isnan(age_s[:-1])))
    )
    heads = np.flatnonzero(is_new)
    lengths = np.add.reduceat(clipped - begins, heads) if len(heads) else np.zeros(0, dtype=np.int64)
    kept = (source[heads] >= 0) & (lengths > 0)
    heads, lengths = heads[kept], lengths[kept]
    return Reuse(
        block_tokens=block,
        prompt_tokens=whole_prompt,
        used_tokens=used,
        request=request[heads],
        source=source[heads],
        tokens=lengths,
        age_s=age_s[heads],
        in_prompt=in_prompt[heads],
    )


def _chained(ids: NDArray[np.uint64], request: Integers, first: Integers) -> NDArray[np.uint64]:
    """Hash each piece together with all before it in its chain: equal only where the whole beginning is equal."""
    place = np.arange(len(ids)) - first[request]
    powers = np.full(int(place.max(initial=0)) + 1, CHAIN_FACTOR, dtype=np.uint64)
    powers[0] = 1
    with np.errstate(over="ignore"):
        powers = np.cumprod(powers, dtype=np.uint64)
        summed = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(_mixed(ids) * powers[place], dtype=np.uint64)])
        chained: NDArray[np.uint64] = summed[1:] - summed[first[request]]
    return chained


def _mixed(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread ids over all 64 bits, so that sums of them do not meet by chance."""
    mixed = ids + np.uint64(CHAIN_FACTOR)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _last_uses(chained: NDArray[np.uint64], request: Integers, end_s: Floats) -> tuple[Integers, Floats]:
    """Tell of each piece the latest earlier request that used it, and until when any earlier one did."""
    source = np.full(len(chained), UNUSED, dtype=np.int64)
    until = np.full(len(chained), np.nan)
    if not len(chained):
        return source, until
    order = np.argsort(chained, kind="stable")
    of_order = chained[order]
    is_again = of_order[1:] == of_order[:-1]
    group = np.concatenate([[0], np.cumsum(~is_again)])
    latest = _grouped_maxima(end_s, request[order], group)
    again = order[1:][is_again]
    source[again] = request[order[:-1][is_again]]
    until[again] = latest[:-1][is_again]
    return source, until


def _grouped_maxima(values: Floats, at: Integers, group: Integers) -> Floats:
    """Take running maxima of ``values[at]`` within groups of neighbours; a nan makes those after it unknown."""
    distinct, rank = np.unique(values, return_inverse=True)  # nan sorts last, so it wins, and it stays
    running = group * len(distinct) + rank[at]
    np.maximum.accumulate(running, out=running)
    running -= group * len(distinct)
    maxima: Floats = distinct[running]
    return maxima
