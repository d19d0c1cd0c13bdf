"""Reports of a run, and runs side by side: neutral sections, and two renderers for them.

``flags`` says what a reader must know before any figure, ``conditions`` under which the figures hold;
``replayed``, ``agents``, ``levels`` and ``captured`` hold the figures of each kind of run; ``fairness`` says what
makes a comparison unfair; ``verdict`` judges, ``history`` lists a folder's runs. ``markdown`` and ``terminal`` draw
what these make. No figure is computed there: what charts show is computed from the tables by ``charts``, and drawn by
``html``.
"""

from agentbench._report.comparison import Comparison, compare
from agentbench._report.history import History, history
from agentbench._report.report import Report, report

__all__ = ["Comparison", "History", "Report", "compare", "history", "report"]
