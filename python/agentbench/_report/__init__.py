"""Reports of a run, and runs side by side: neutral sections, and two renderers for them.

``flags`` says what a reader must know before any figure, ``conditions`` under which the figures hold;
``replayed``, ``levels`` and ``captured`` hold the figures of each kind of run; ``fairness`` says what makes a
comparison unfair. ``markdown`` and ``terminal`` draw what these make. No figure is computed here.
"""

from agentbench._report.comparison import Comparison, compare
from agentbench._report.report import Report, report

__all__ = ["Comparison", "Report", "compare", "report"]
