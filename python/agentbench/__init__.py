"""Record any coding agent once, replay it on any inference engine, at any concurrency.

The Rust core does the work; this package is its face. Running things are handles: ``start()``, their numbers,
``stop()``, ``wait()``, each with a twin for asyncio whose name ends in ``_async``, and context managers for
``with`` and ``async with``. What they write is a run directory, opened with `Run`, whose tables any Arrow
library reads without a copy.

>>> import agentbench
>>> with agentbench.capture("http://127.0.0.1:8000", out="results/mine") as proxy:  # doctest: +SKIP
...     input(f"point the agent at {proxy.url}, then press Enter")
>>> run = agentbench.replay("results/mine", url="http://127.0.0.1:8000", agents=8)  # doctest: +SKIP
>>> run.requests().to_pandas()["ttft_ms"].describe()  # doctest: +SKIP
"""

import logging as _logging

from agentbench import agent, analysis, exceptions, harness, load
from agentbench._collect import CollectProgress, collect, collect_async
from agentbench._core import (
    APIS,
    IMPORT_FORMATS,
    PRESETS,
    PROFILES,
    SPEEDS,
    TIERS,
    AgentbenchError,
    Capacity,
    ConfigError,
    GpuError,
    Handle,
    ImportProgress,
    Poller,
    PowerSampler,
    Proxy,
    Replay,
    Run,
    SimulatedEngine,
    Table,
    TraceError,
    UpstreamError,
    __version__,
    engine_info,
    engine_info_async,
    export_jsonl,
    export_jsonl_async,
    import_traces,
    import_traces_async,
    metrics_page,
    metrics_page_async,
    probe_gpus,
    synthesize,
    synthesize_async,
)
from agentbench._export import EXPORT_FORMATS, Exported, export, export_async
from agentbench._hub.publish import Push, push, push_async
from agentbench._recording import (
    LISTEN,
    capacity,
    capacity_async,
    capture,
    default_out,
    replay,
    replay_async,
    sample_trace,
)
from agentbench._report import Comparison, History, Report, compare, history, report
from agentbench.agent import (
    Agent,
    AgentProgress,
    AgentResult,
    CommandCheck,
    FileCheck,
    Session,
    Task,
    Tool,
    ToolError,
    Workspace,
    run_agents,
    run_agents_async,
    tool,
)
from agentbench.analysis import Analysis, Answer, analyze

__all__ = [
    "APIS",
    "EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "LISTEN",
    "PRESETS",
    "PROFILES",
    "SPEEDS",
    "TIERS",
    "Agent",
    "AgentProgress",
    "AgentResult",
    "AgentbenchError",
    "Analysis",
    "Answer",
    "Capacity",
    "CollectProgress",
    "CommandCheck",
    "Comparison",
    "ConfigError",
    "Exported",
    "FileCheck",
    "GpuError",
    "Handle",
    "History",
    "ImportProgress",
    "Poller",
    "PowerSampler",
    "Proxy",
    "Push",
    "Replay",
    "Report",
    "Run",
    "Session",
    "SimulatedEngine",
    "Table",
    "Task",
    "Tool",
    "ToolError",
    "TraceError",
    "UpstreamError",
    "Workspace",
    "__version__",
    "agent",
    "analysis",
    "analyze",
    "capacity",
    "capacity_async",
    "capture",
    "collect",
    "collect_async",
    "compare",
    "default_out",
    "engine_info",
    "engine_info_async",
    "exceptions",
    "export",
    "export_async",
    "export_jsonl",
    "export_jsonl_async",
    "harness",
    "history",
    "import_traces",
    "import_traces_async",
    "load",
    "metrics_page",
    "metrics_page_async",
    "probe_gpus",
    "push",
    "push_async",
    "replay",
    "replay_async",
    "report",
    "run_agents",
    "run_agents_async",
    "sample_trace",
    "synthesize",
    "synthesize_async",
    "tool",
]

# The core logs lifecycle events under "agentbench"; a program that sets up no logging sees none.
_logging.getLogger("agentbench").addHandler(_logging.NullHandler())
