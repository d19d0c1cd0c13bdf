"""What the handles' numbers and the small reports look like, for type checkers and readers."""

from __future__ import annotations

from typing import Any, TypedDict


class LatestTurn(TypedDict):
    """One of the latest turns of a capture, in short.

    ``kind`` is ``main``, ``subagent`` or ``utility``; ``tool_exec_ms`` is the time since the response before it in
    its thread.
    """

    session_id: str
    thread_id: str
    kind: str
    turn: int
    agent: str | None
    isl: int | None
    isl_cached: int | None
    osl: int | None
    ttft_ms: float | None
    e2e_ms: float | None
    tool_exec_ms: float | None
    outcome: str


class PollerStats(TypedDict):
    """How polling goes, and what the last poll saw.

    ``ticks`` scrapes were made, ``missed`` had passed before their turn came, ``failed`` gave no values.
    ``completions`` counts requests that the engine finished. ``running`` and ``waiting`` count requests,
    ``kv_cache_usage_pct`` is 0 to 100; None where the page does not tell. ``lacks`` names what it never tells.
    ``lag_*`` is the time from due to sent. ``engine`` is the kind of engine whose names the page bears; of several
    polled together counts, ``running`` and ``waiting`` are sums, ``kv_cache_usage_pct`` and ``lag_*`` the highest.
    """

    engine: str | None
    ticks: int
    missed: int
    failed: int
    completions: int
    counter_resets: int
    rows_dropped: int
    lag_p99_ms: float | None
    lag_max_ms: float | None
    running: float | None
    waiting: float | None
    kv_cache_usage_pct: float | None
    lacks: list[str]
    cache_warning: str | None
    last_error: str | None


class EngineTraffic(TypedDict):
    """What went to one engine of a capture.

    ``engine`` is its name in the tables: its address. ``requests`` went to it, turns and others; of these ``errors``
    got no response or a broken one. ``polled`` is None when its page is not polled.
    """

    engine: str
    requests: int
    errors: int
    polled: PollerStats | None


class CaptureStats(TypedDict):
    """Figures of a capture at one moment.

    ``requests`` were received, ``active`` have not ended, ``turns`` became rows, ``side_requests`` passed without
    one. ``rows_dropped`` counts what the recording could not keep up with, whole turns included. ``isl`` and ``osl``
    are tokens over all turns whose usage tells them, ``isl_cached`` of ``isl_with_cached`` those from cache where it
    tells that; ``tool_exec_ms`` is the time between responses and the next requests of their threads. ``latest``
    holds the last turns, the newest last. ``engine`` is as last seen while it ran, several together, None when
    nothing is polled; ``engines`` are one by one. ``requests_moved`` went to another engine than their session's,
    because nothing could be sent to that one. ``changed`` counts the turns that each switch changed.
    """

    requests: int
    active: int
    turns: int
    side_requests: int
    sessions: int
    threads: int
    rows_dropped: int
    bytes_up: int
    bytes_down: int
    upstream_errors: int
    client_cancelled: int
    requests_moved: int
    isl: int
    isl_cached: int
    isl_with_cached: int
    tool_exec_ms: float
    osl: int
    latest: list[LatestTurn]
    engine: PollerStats | None
    engines: list[EngineTraffic]
    changed: dict[str, int]


class AgentsByState(TypedDict):
    """Agents by what they do now; each is in one of these.

    ``first_token``: a request is on its way and nothing of its answer has come, so it waits or is in prefill.
    ``decode``: output comes. ``tool`` and ``human``: the agent waits for tools or a human; of a live agent ``tool`` is
    also its workspace and its check. ``idle``: it is not to start yet, or waits for an arrival or the end of a pause.
    ``ended``: it has nothing left to do. An agent whose threads do several things counts by the one that is furthest
    on: ``decode``, then ``first_token``, ``tool``, ``human``.
    """

    first_token: int
    decode: int
    tool: int
    human: int
    idle: int
    ended: int


class ReplayProgress(TypedDict):
    """How far a replay is.

    ``phase`` is ``ramp``, ``warmup``, ``steady`` or ``tail``. ``trajectories_planned`` is None for a run that its
    time alone ends, ``duration_s`` for one that has no time limit. Tokens are sums over the requests answered
    whole, None while no usage tells them; ``prompt_tokens_with_cached`` is the base of a hit rate.
    ``failures`` counts those that failed by kind, as the summary's ``errors``.

    ``time_left_s`` is up to the time after which nothing more is started, or by the pace of the planned work, whichever
    comes first. It is None where neither says anything: before 5 % of the requests have ended, of live agents before as
    many tasks as there are agents have ended, when the next end is overdue by that pace, in a search, and while the
    last answers are awaited.

    ``recent_*`` are of the last ``recent_answers`` answers (up to 100): ``recent_ttft_ms`` and ``recent_itl_ms`` are
    means, ``recent_output_tokens_per_s_*`` the output speed of an answer.

    ``engine_*`` and ``power_w`` are as last polled and sampled: None where nothing is, or the last look failed; power
    is of all devices, times the power usage effectiveness where one was given.
    """

    elapsed_s: float
    time_left_s: float | None
    phase: str
    simulated: bool
    agents: AgentsByState
    requests_sent: int
    requests_ok: int
    requests_failed: int
    requests_cancelled: int
    requests_in_flight: int
    failures: dict[str, int]
    trajectories_done: int
    trajectories_planned: int | None
    duration_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    prompt_tokens_with_cached: int | None
    completion_tokens: int | None
    recent_answers: int
    recent_ttft_ms: float | None
    recent_ttft_p50_ms: float | None
    recent_ttft_p95_ms: float | None
    recent_itl_ms: float | None
    recent_output_tokens_per_s_p50: float | None
    recent_output_tokens_per_s_p25: float | None
    engine_running: float | None
    engine_waiting: float | None
    engine_kv_cache_usage_pct: float | None
    power_w: float | None
    done: bool


class CapacityProgress(TypedDict):
    """How far a capacity search is.

    ``level`` and ``agents`` are of the level that runs, or ran last; ``levels`` holds the rows of those judged. After
    ``level_left_s`` the level starts nothing more, whatever it has; None while nothing is started.
    """

    level: int
    agents: int
    replay: ReplayProgress
    level_left_s: float | None
    levels: list[dict[str, Any]]
    done: bool


class SimulatorStats(TypedDict):
    """Figures of the embedded engine since its start.

    ``running`` and ``waiting`` are requests now; ``finished`` and ``aborted`` (the client went away) since the
    start. ``cached_tokens`` are those of ``prompt_tokens`` that the prefix cache served.
    """

    running: int
    waiting: int
    finished: int
    aborted: int
    prompt_tokens: int
    cached_tokens: int
    generation_tokens: int
    preemptions: int
    kv_cache_usage_pct: float


class TurnTotals(TypedDict):
    """Counts and sums over captured turns.

    Tokens are over the turns whose usage tells them, None when none does. ``isl_with_cached`` is the ISL of the
    turns whose usage tells what was cached: the base of a hit rate. ``answered_locally`` are requests that no engine
    was asked for; nothing else counts them.
    """

    turns: int
    answered_locally: int
    failed: int
    sessions: int
    threads: int
    isl: int | None
    isl_cached: int | None
    isl_with_cached: int | None
    osl: int | None
    tool_exec_ms: float | None
    span_ms: float | None


class EngineInfo(TypedDict):
    """What an engine tells about itself; None where it does not. ``max_model_len`` is in tokens."""

    url: str
    name: str | None
    version: str | None
    model: str | None
    max_model_len: int | None
    simulated: bool


class MetricsPage(TypedDict):
    """What a metrics page tells, in neutral names."""

    engine: str
    fields: list[str]
    missing: list[str]
    warning: str | None


class Gpu(TypedDict):
    """One GPU as NVML tells it; what it does not tell is None.

    ``power_w`` is what the plain query tells, ``power_reason`` why it tells nothing. ``has_energy_counter`` is whether
    energy comes from the GPU's own counter.
    """

    index: int
    name: str | None
    uuid: str | None
    driver: str | None
    memory_total_bytes: int | None
    power_w: float | None
    power_reason: str | None
    has_energy_counter: bool


class IdleBaseline(TypedDict):
    """Power before the run: ``start`` and ``end`` in seconds since the Unix epoch, watts of each device."""

    start: float
    end: float
    mean_power_w: dict[str, float | None]


class PowerSamplerStats(TypedDict):
    """How sampling goes, and of what.

    ``ticks`` samples of all devices were made, ``missed`` had passed before their turn came; ``failed`` readings of a
    device gave neither power nor energy, ``last_error`` says why the last of them. ``lag_*`` is the time from due to
    read. ``power_w`` is the last power of all devices, None where one does not tell. ``source`` is None where there is
    none, and ``reason`` says why; ``boundary`` is ``device``, ``host`` or ``facility``; ``rule`` says which rule chose
    the devices.
    """

    ticks: int
    missed: int
    failed: int
    rows_dropped: int
    lag_p99_ms: float | None
    lag_max_ms: float | None
    power_w: float | None
    last_error: str | None
    source: str | None
    reason: str | None
    boundary: str | None
    devices: list[str]
    rule: str | None
    interval_ms: float
    pue: float | None
    idle: IdleBaseline | None


class DeviceEnergy(TypedDict):
    """Energy of one device in a stretch of time, as measured: without power usage effectiveness."""

    device: str
    energy_j: float | None
    mean_power_w: float | None
    idle_power_w: float | None
    method: str | None
    valid: bool
    reason: str | None


class WindowEnergy(TypedDict):
    """Energy of all devices in a stretch of time, times the power usage effectiveness where one was given.

    ``method`` is ``counter``, ``trapezoid`` or, where devices differ, ``mixed``. Where ``valid`` is False the figures
    are None and ``reason`` says why.
    """

    valid: bool
    reason: str | None
    energy_j: float | None
    mean_power_w: float | None
    method: str | None
    devices: list[DeviceEnergy]
