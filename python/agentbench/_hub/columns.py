"""The allow-list: which column of which table leaves at which level, and by which rule.

A column that is not listed here does not leave, whatever the run directory holds: a new one stays at home until
somebody has thought about it. What each rule makes of a value is done in `rules`; docs/publishing.md is made of this
table.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("counts", "hashes", "text-redacted", "text")
TEXT_LEVELS = frozenset({"text-redacted", "text"})
DEFAULT_LEVEL = "counts"

ABOUT = {
    "counts": "token counts, times, tools by well-known names; no text, no names, no hashes",
    "hashes": "counts, and salted hashes of the prompt's blocks, chained over what stands before them",
    "text-redacted": "prompts, replies and arguments with masks in place of whatever tells who and where",
    "text": "everything as it was recorded, but for the ids of sessions, threads and requests",
}

MEANING = {
    "number": "as it is",
    "time": "as it is, or moved by `--shift-times`",
    "link": "as it is; null with `--shift-times`",
    "name": "a pseudonym",
    "tool": "well-known names as they are, others as pseudonyms",
    "model": "names of public models as they are, others as pseudonyms",
    "agent": "well-known agents as they are, others as pseudonyms",
    "word": "words of a fixed list, others null",
    "words": "words of a fixed list, others left out",
    "tally": "counts by words of a fixed list, the rest as `other`",
    "conditions": "values by condition of the service level",
    "parameters": "numbers and switches of a fixed list",
    "path": "the API's path alone",
    "chain": "salted hashes, each of a block and all before it",
    "unit": "a salted hash",
    "shape": "roles and kinds of blocks, no content",
    "attempts": "times and status, no words",
    "masked": "masked",
    "masked_attempts": "times and status, words masked",
    "text": "as it is",
}
"""What a rule makes of a value, in the words of the documentation."""


@dataclass(frozen=True)
class Column:
    """A column and the rule by which it leaves at each level; None: it does not leave."""

    name: str
    rules: tuple[str | None, str | None, str | None, str | None]

    def rule(self, level: str) -> str | None:
        """Return the rule at a level."""
        return self.rules[LEVELS.index(level)]


def _always(rule: str, *names: str) -> list[Column]:
    return [Column(name, (rule, rule, rule, rule)) for name in names]


def _text(name: str, *, counts: str | None = None, masked: str = "masked", raw: str = "text") -> Column:
    return Column(name, (counts, counts, masked, raw))


def _ids(*names: str) -> list[Column]:
    """Columns that hold ids: what a pseudonym is of stands in the rule, so that tables can be joined."""
    kinds = {"parent_thread_id": "thread", "source_request_id": "request", "call_id": "call"}
    return [column for name in names for column in _always(f"name:{kinds.get(name, name.removesuffix('_id'))}", name)]


TURNS = [
    *_ids("run_id", "session_id", "thread_id", "parent_thread_id"),
    *_always("number", "turn"),
    *_ids("request_id"),
    *_always("word:api", "api"),
    _text("agent", counts="agent", masked="agent"),
    *_always("name:engine", "engine"),
    *_always("word:kind", "kind"),
    _text("model", counts="model", masked="model"),
    *_always("number", "stream"),
    _text("path", counts="path", masked="path"),
    _text("params", counts="parameters"),
    *_always("number", "n_messages", "n_tools"),
    Column("unit_hashes", (None, "chain", "unit", "text")),
    Column("body_template", (None, None, None, "text")),
    Column("block_hashes", (None, "chain", "chain", "text")),
    *_always("number", "block_size", "n_shared_units"),
    *_always("word:server_history", "server_history"),
    *_always("words:change", "changes"),
    *_always("time", "request_time", "first_byte_time", "first_output_time", "last_output_time", "response_end_time"),
    *_always(
        "number",
        "output_offsets_us",
        "ttft_ms",
        "itl_ms_mean",
        "e2e_ms",
        "tool_exec_ms",
        "residual_wait_ms",
        "http_status",
    ),
    *_always("word:outcome", "outcome"),
    _text("error"),
    *_always("word:stop_reason", "stop_reason"),
    *_always("number", "isl", "isl_cached", "isl_cache_write", "isl_new", "osl", "reasoning_tokens"),
    _text("isl_new_text"),
    _text("osl_text"),
    _text("reply_blocks"),
    *_always("link", "engine_row"),
    *_always("word:engine_join", "engine_join"),
]

UNITS = [
    Column("hash", (None, "chain", "unit", "text")),
    Column("kind", (None, "word:unit_kind", "word:unit_kind", "word:unit_kind")),
    Column("role", (None, "word:role", "word:role", "word:role")),
    Column("text", (None, "shape", "masked", "text")),
    Column("n_bytes", (None, "number", "number", "number")),
]

TOOL_CALLS = [
    *_ids("run_id", "session_id", "thread_id"),
    *_always("number", "turn"),
    *_ids("request_id"),
    *_always("number", "index"),
    *_ids("call_id"),
    _text("name", counts="tool", masked="tool"),
    _text("arguments"),
    *_always("number", "argument_bytes"),
    *_always("time", "emitted_time", "result_time"),
    *_always("number", "wire_ms", "own_ms", "result_bytes", "is_error"),
]

ENGINE_METRICS = [
    *_always("time", "ts", "window_end"),
    *_always("name:engine", "engine"),
    *_always("number", "n", "isl", "osl", "isl_new", "prefill_ms", "decode_ms", "queue_ms", "itl_ms", "e2e_ms"),
    *_always("tally:stop_reason", "stop_reason"),
    *_always("number", "kv_cache_usage_pct_peak", "prefix_cache_hits", "external_prefix_cache_hits"),
    *_always("tally:token_source", "prompt_tokens_by_source"),
    *_always("number", "counter_reset", "scrapes_missed"),
]

ENGINE_SAMPLES = [
    *_always("time", "ts", "due"),
    *_always("number", "scrape_ms"),
    *_always("name:engine", "engine"),
    _text("error"),
    *_always(
        "number",
        "running",
        "waiting",
        "kv_cache_usage_pct",
        "requests_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "cached_tokens_total",
        "external_cached_tokens_total",
        "preemptions_total",
        "ttft_sum",
        "ttft_count",
        "queue_sum",
        "prefill_sum",
        "decode_sum",
        "e2e_sum",
        "request_count",
    ),
]

POWER = [
    *_always("time", "ts", "due", "device_ts"),
    *_always("word:power_source", "source"),
    *_always("name:device", "device"),
    *_always("number", "power_w", "power_avg_w", "energy_j", "utilization_pct", "memory_used_bytes", "sm_clock_mhz"),
]

REQUESTS = [
    *_ids("trajectory_id"),
    *_always("number", "agent_id", "worker", "invocation"),
    *_ids("session_id", "thread_id"),
    *_always("number", "turn"),
    *_ids("source_request_id"),
    *_always("word:api", "api"),
    *_always(
        "number",
        "due_at_ms",
        "sent_at_ms",
        "lag_ms",
        "tool_wait_ms",
        "ttft_ms",
        "last_token_ms",
        "e2e_ms",
        "tpot_ms",
        "chunk_gap_ms",
        "chunk_tokens",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "planned_prompt_tokens",
        "planned_cached_tokens",
        "target_output_tokens",
    ),
    *_always("word:output_length", "output_length"),
    *_always("number", "attempts"),
    _text("attempt_log", counts="attempts", masked="masked_attempts"),
    *_always("word:status", "status"),
    _text("error"),
    *_always("number", "http_status"),
    *_always("word:stop_reason", "stop_reason"),
    *_always("word:phase", "phase"),
    *_always(
        "number",
        "level",
        "live_answers",
        "recorded_answers",
        "live_results_as_text",
        "live_calls_unanswered",
        "live_results_of_other_tools",
        "live_arguments_malformed",
        "tool_time_ms",
        "ttft_reasoning_ms",
        "ttft_visible_ms",
    ),
    *_always("word:stop_reason", "finish_reason"),
]

TRAJECTORIES = [
    *_ids("trajectory_id"),
    *_always("number", "agent_id", "worker", "invocation"),
    *_ids("session_id"),
    *_always(
        "number",
        "due_at_ms",
        "admission_wait_ms",
        "start_ms",
        "end_ms",
        "n_planned",
        "n_sent",
        "n_failed",
        "completed",
        "prompt_tokens",
        "completion_tokens",
        "tool_wait_ms",
        "level",
    ),
    *_ids("task_id"),
    *_always("word:task_outcome", "outcome"),
    *_always("number", "claimed", "check_passed"),
    _text("check_note"),
    *_always("number", "steps", "tool_calls", "tool_errors", "malformed_calls"),
]

CAPACITY_LEVELS = [
    *_always(
        "number",
        "level",
        "agents",
        "start_ms",
        "end_ms",
        "n_requests",
        "n_failed",
        "n_trajectories",
        "n_steady_trajectories",
        "output_tokens_per_s",
        "mean_power_w",
        "energy_j",
    ),
    _text("power_reason"),
    *_always("number", "agents_within_pct", "worst_agent"),
    *_always("conditions", "worst_agent_values"),
    *_always("number", "cache_reset", "client_limited", "unseen_output_pct", "speed_overstated"),
    *_always("word:verdict", "verdict"),
    _text("reason"),
    *_always("conditions", "values"),
]

CLIENT_SAMPLES = [
    *_always("time", "ts", "due"),
    *_always(
        "number",
        "cpu_s",
        "cores",
        "timer_lag_ms",
        "open_sockets",
        "open_files",
        "open_files_limit",
        "level",
        "worker",
    ),
]

TABLES: dict[str, list[Column]] = {
    "turn_traces": TURNS,
    "messages": UNITS,
    "tool_calls": TOOL_CALLS,
    "engine_metrics": ENGINE_METRICS,
    "engine_samples": ENGINE_SAMPLES,
    "power": POWER,
    "requests": REQUESTS,
    "trajectories": TRAJECTORIES,
    "levels": CAPACITY_LEVELS,
    "client_samples": CLIENT_SAMPLES,
}
"""Every table that may leave, with its columns in the order of the run directory."""


def leaving(table: str, level: str) -> list[tuple[str, str]]:
    """Return the columns of a table that leave at a level, each with its rule."""
    rules = ((column.name, column.rule(level)) for column in TABLES[table])
    return [(name, rule) for name, rule in rules if rule is not None]


def staying(table: str, level: str) -> list[str]:
    """Return the listed columns of a table that stay at home at a level."""
    return [column.name for column in TABLES[table] if column.rule(level) is None]
