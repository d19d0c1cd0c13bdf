"""What can go wrong, as exceptions.

::

    Exception
    ├── AgentbenchError      base of the ones below; alone for a cancelled run or a defect of agentbench
    │   ├── ConfigError      a setting is wrong
    │   ├── UpstreamError    the engine cannot be used
    │   ├── TraceError       a run directory cannot be read
    │   └── GpuError         a GPU or power source cannot be read
    └── OSError              the file system or the network refused (``FileNotFoundError``, …)

Every text is one line that names the place and the remedy. A failed *request* is no exception: it is a row
of the run with its outcome.
"""

from agentbench._core import AgentbenchError, ConfigError, GpuError, TraceError, UpstreamError

__all__ = ["AgentbenchError", "ConfigError", "GpuError", "TraceError", "UpstreamError"]
