"""Live agents: a model works on small tasks with real tools, measured like a replay and recorded like a capture.

``tasks`` and ``checks`` say what is to be done and whether it was, ``tools``, ``builtin``, ``workspace`` and ``paths``
what the model may do, ``sandbox`` where its commands run, ``conversation`` what is sent in each API, ``loop`` the work
on one task, ``run`` all of them at once, ``api`` the calls that users make.
"""

from .api import Agent, AgentResult, run_agents, run_agents_async
from .conversation import Call, Reply, Result
from .loop import RequestFailedError, Session, work
from .run import AgentProgress
from .tasks import CommandCheck, FileCheck, Task, built_in
from .tools import Tool, ToolError, tool
from .workspace import Workspace

__all__ = [
    "Agent",
    "AgentProgress",
    "AgentResult",
    "Call",
    "CommandCheck",
    "FileCheck",
    "Reply",
    "RequestFailedError",
    "Result",
    "Session",
    "Task",
    "Tool",
    "ToolError",
    "Workspace",
    "built_in",
    "run_agents",
    "run_agents_async",
    "tool",
    "work",
]
