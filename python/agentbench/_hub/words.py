"""Values that may leave at every level: words that everybody uses, and shapes of public names.

Whatever is not listed here does not leave as it is: it becomes a pseudonym, or null. So a value that nobody thought
of stays at home. What becomes of which column is told in `columns`.
"""

from __future__ import annotations

import re

_WORDS = {
    "api": "messages chat completions responses",
    "kind": "main subagent utility",
    "outcome": "ok http_error upstream_error client_cancelled truncated",
    "engine_join": "exact shared none",
    "server_history": "followed unknown",
    "change": "rerole_system strip_billing_header cap_max_tokens model convert_chat answered_locally",
    "stop_reason": """
        end_turn tool_use max_tokens stop_sequence pause_turn refusal model_context_window_exceeded stop length
        tool_calls function_call content_filter completed incomplete failed cancelled max_output_tokens abort error
        compaction
    """,
    "unit_kind": "system tool message prompt raw",
    "role": "system developer user assistant tool function",
    "token_source": "local_compute local_cache_hit external_kv_transfer device host storage computed",
    "power_source": "nvml dcgm rapl constant",
    "output_length": "ok short long unverified",
    "status": "ok failed cancelled",
    "task_outcome": "done max_steps time_limit failed_request failed_tool cancelled",
    "phase": "ramp warmup steady tail",
    "verdict": "pass fail invalid",
    "agent": """
        claude-code codex opencode mini-swe-agent swe-agent openhands gemini-cli qwen-code aider cline goose
        synthetic
    """,
    "block": """
        text tool_use tool_result thinking redacted_thinking image document server_tool_use web_search_tool_result
        image_url input_text output_text input_image input_file refusal summary_text reasoning_text message reasoning
        function function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call
        local_shell_call_output web_search_call compaction custom
    """,
}
WORDS: dict[str, frozenset[str]] = {name: frozenset(listed.split()) for name, listed in _WORDS.items()}
"""Sets of words by the name that `columns` gives them."""
WORDS["role"] |= {""}

_TOOLS_OF = {
    "Claude Code": """
        Agent AskUserQuestion Bash BashOutput Edit EnterPlanMode EnterWorktree ExitPlanMode ExitWorktree Glob Grep
        KillBash KillShell LS LSP ListMcpResourcesTool MultiEdit NotebookEdit NotebookRead Read ReadMcpResourceTool
        SendMessage Skill SlashCommand StructuredOutput Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate
        TeamCreate TeamDelete TodoRead TodoWrite ToolSearch WebFetch WebSearch Write
    """,
    "Codex": """
        apply_patch close_agent exec_command grep_files list_dir list_mcp_resources local_shell read_file
        request_user_input send_input shell shell_command spawn_agent unified_exec update_plan view_image wait
        web_search write_stdin
    """,
    "OpenCode": """
        bash batch codesearch edit glob grep invalid list ls lsp multiedit patch plan_exit question read skill task
        todoread todowrite webfetch websearch write
    """,
    "mini-swe-agent, SWE-agent, OpenHands, Gemini CLI and their kin": """
        browser create execute_bash execute_ipython_cell find_file finish google_web_search insert list_directory
        python read_many_files replace run_shell_command save_memory scroll_down scroll_up search_dir search_file
        search_file_content str_replace str_replace_based_edit_tool str_replace_editor submit think undo_edit view
        web_fetch write_file
    """,
}
TOOLS = frozenset(name for listed in _TOOLS_OF.values() for name in listed.split())
"""Names of tools that come with a coding agent, and so say nothing of who used it."""

_SIZE = r"(?:\d{1,4}(?:\.\d{1,2})?[bm](?:-a\d{1,3}b)?)"
_NUMBER = r"(?:v?\d{1,2}(?:\.\d{1,2}){0,2}|\d{8}|\d{4}|\d{4}-\d{2}-\d{2}|r1|k\d(?:\.\d)?|m\d(?:\.\d)?)"
_WORD = (
    "opus|sonnet|haiku|instant|codex|mini|nano|micro|pro|max|high|low|medium|turbo|preview|latest|exp|flash|lite|air|"
    "plus|small|large|instruct|chat|base|it|coder|next|thinking|reasoner|distill|moe|fp8|fp4|nvfp4|mxfp4|awq|gptq|int4|"
    "int8|bf16|scout|maverick|terminus|speciale|ultra|super|vl|omni|image|dev|sim|simulated"
)
_FAMILY = (
    "claude|gpt|gpt-oss|chatgpt|o1|o3|o4|codex|gemini|gemma|qwen|qwen2|qwen2\\.5|qwen3|qwen3\\.5|qwq|deepseek|llama|"
    "meta-llama|codellama|mistral|mixtral|ministral|magistral|devstral|codestral|glm|kimi|minimax|nemotron|phi|granite|"
    "smollm2|smollm3|starcoder2|olmo|step|seed-oss|ernie|hunyuan|grok|command-r|yi|internlm|agentbench|synthetic"
)
_OWNER = (
    "anthropic|openai|google|qwen|deepseek-ai|meta-llama|mistralai|zai-org|thudm|moonshotai|minimaxai|nvidia|microsoft|"
    "ibm-granite|huggingfacetb|bigcode|allenai|stepfun-ai|bytedance-seed|baidu|tencent|xai-org|cohereforai|01-ai"
)
MODEL = re.compile(
    rf"(?:(?:{_OWNER})/)?(?:{_FAMILY})(?:{_NUMBER}o?)?(?:[-_:](?:{_NUMBER}o?|{_SIZE}|{_WORD})){{0,12}}(?:\[1m\])?",
    re.IGNORECASE | re.ASCII,
)
"""Names of public models: a family that everybody knows, then nothing but versions, sizes and kinds. A fine-tune that
bears its owner's name, or a path, is none."""

ENGINES = frozenset(
    {
        "vllm",
        "sglang",
        "tensorrt-llm",
        "trtllm",
        "llama.cpp",
        "tgi",
        "dynamo",
        "triton",
        "lmdeploy",
        "agentbench-simulated",
    }
)
VERSION = re.compile(r"v?\d{1,4}(?:\.\d{1,4}){0,3}(?:\.?(?:rc|post|dev|a|b)\d{1,4})?", re.ASCII)
"""A version without a local part, in which names of branches and machines stand."""

API_PATH = re.compile(
    r"/(?:v1/)?(?:messages(?:/count_tokens)?|chat/completions|completions|responses(?:/compact)?)", re.ASCII
)
"""Paths of the APIs; what stands before them (a session, a proxy's prefix) and the query do not leave."""

CONDITION = re.compile(
    r"(?:ttft|tpot|itl|e2e|speed|chunk_gap|errors|output_speed)(?:\.(?:p\d{1,3}(?:\.\d{1,2})?|mean|max|min|median))?"
    r"\s?(?:<=|>=|<|>)\s?\d{1,9}(?:\.\d{1,6})?\s?(?:ms|s|%)?",
    re.ASCII,
)
"""A condition of a service level, as in ``ttft.p95<=10s``."""

PARAMETERS: dict[str, object] = {
    **dict.fromkeys(
        (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "n",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
        ),
        float,
    ),
    **dict.fromkeys(("stream", "store", "parallel_tool_calls"), bool),
    "reasoning_effort": frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
    "tool_choice": frozenset({"auto", "none", "required", "any"}),
    "truncation": frozenset({"auto", "disabled"}),
    "thinking": {"type": frozenset({"enabled", "disabled", "adaptive"}), "budget_tokens": float},
    "reasoning": {
        "effort": frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
        "summary": frozenset({"auto", "concise", "detailed"}),
    },
    "stream_options": {"include_usage": bool},
}
"""Fields of a request that may leave: numbers, switches, or words of a set; objects by their own fields."""

_REPLAY_NUMBERS = """
    agents time_scale max_active not_admitted duration_s trajectories ramp_s max_error_rate_pct max_retries
    retry_backoff_s retry_backoff_max_s connect_timeout_s first_byte_timeout_s idle_timeout_s request_timeout_s
    trajectories_per_pass sessions requests_per_pass
"""
_RULE = re.compile(
    r"recorded|none|natural|burst|\d{1,9}|(?:fixed|scale|cap|poisson|constant)[:=]?\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h)?",
    re.ASCII,
)
"""A rule of a replay, as in ``cap:2s``."""
_APIS = WORDS["api"] | {"auto", "recorded"}
_WAITS: dict[str, object] = dict.fromkeys(("n", "recorded_s", "replayed_s"), float)

SETTINGS: dict[str, object] = {
    **dict.fromkeys(
        (
            "poll_interval_ms",
            "sessions",
            "keep_cache_ms",
            "prefill_tokens_per_s",
            "token_ms",
            "first_ms",
            "compact_at_tokens",
        ),
        float,
    ),
    "profile": frozenset({"sample", "small", "tracelab"}),
    "replay": {
        **dict.fromkeys(("simulated", "synthetic_trace", "include_utility", "strict", "engine_in_process"), bool),
        **dict.fromkeys(_REPLAY_NUMBERS.split(), float),
        **dict.fromkeys(("arrivals", "tool_time", "human_time", "output_length"), _RULE),
        "on_error": frozenset({"stop_trajectory", "continue", "abort"}),
        "content": frozenset({"recorded", "synthetic", "live"}),
        "cache_sharing": frozenset({"trajectory", "system", "none", "recorded"}),
        "api": _APIS,
        "ended_by": frozenset({"trajectories", "duration", "enough", "shutdown", "failed_request", "error_rate"}),
        "tool_waits": _WAITS,
        "human_waits": _WAITS,
        "window": dict.fromkeys(("ramp_end_ms", "steady_start_ms", "steady_end_ms"), float),
        "routes": [
            {
                "recorded": _APIS,
                "sent": _APIS,
                "output_length": frozenset({"honoured", "ignored", "refused", "unknown"}),
            }
        ],
    },
    "capacity": {
        **dict.fromkeys(("max_agents", "resolution", "level_time_s", "gpu_count"), float),
        "slo": [CONDITION],
        "interrupted": bool,
        "minimum": dict.fromkeys(("trajectories", "trajectories_per_agent", "requests_per_agent", "steady_s"), float),
    },
}
"""Settings in the manifest that may leave: those that figures are computed with, and what a reader compares by."""

PLATFORM = re.compile(r"(?:linux|macos|windows)-(?:x86_64|aarch64)", re.ASCII)
KINDS = frozenset({"capture", "collect", "replay", "capacity", "agent", "import", "synthetic"})
COUNTS = frozenset({"sessions", "threads", "turns", "masked_email", "masked_key", "masked_user", "masked_host"})


def fits(value: object, shape: object) -> bool:
    """Return whether a value of a request or a setting may leave."""
    if shape is bool:
        return isinstance(value, bool)
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    return isinstance(shape, frozenset) and isinstance(value, str) and value in shape


def kept(fields: object, shapes: dict[str, object]) -> dict[str, object]:
    """Return the fields that may leave, of objects and lists what of them may."""
    left: dict[str, object] = {}
    if not isinstance(fields, dict):
        return left
    for name, shape in shapes.items():
        value = fields.get(name)
        if isinstance(shape, dict):
            inner = kept(value, shape)
            if inner:
                left[name] = inner
        elif isinstance(shape, list):
            if isinstance(value, list):
                left[name] = [item for item in (_item(item, shape[0]) for item in value) if item]
        elif name in fields and fits(value, shape):
            left[name] = value
    return left


def _item(value: object, shape: object) -> object:
    if isinstance(shape, dict):
        return kept(value, shape)
    return value if fits(value, shape) else None
