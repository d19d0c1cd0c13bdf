"""The page of a comparison: what makes it unfair on top, then differences, distributions and all figures."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from agentbench._report.charts.compared import compared_panels
from agentbench._report.html.parts import flags_html, page, panel_html, section_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._core import Run
    from agentbench._report.comparison import Comparison


def compared_page(made: Comparison, runs: Sequence[Run]) -> str:
    """Return the page."""
    parts = compared_panels(made, runs)
    tables = "".join(section_html(section) for section in made.sections)
    body = [
        _header(made, runs),
        flags_html(made.flags),
        *[panel_html(panel, ()) for panel in parts],
        f'<section id="figures"><h2>Figures</h2>{tables}</section>',
    ]
    contents = [(panel.name, panel.title) for panel in parts] + [("figures", "Figures")]
    return page(made.title, body, contents)


def _header(made: Comparison, runs: Sequence[Run]) -> str:
    named = zip(made.runs, runs, strict=True)
    simulated = [name for name, run in named if (run.manifest.get("engine") or {}).get("simulated")]
    ribbon = f'<p class="ribbon">SIMULATED: {escape(", ".join(simulated))}</p>' if simulated else ""
    settings = ", ".join(difference.setting for difference in made.unfair)
    told = f"These differ: {settings}." if settings else "No setting makes it unfair."
    first = f"Differences are to {made.runs[0]}."
    return (
        f'<header>{ribbon}<div class="top"><div><p class="kind">agentbench compare</p>'
        f'<h1>{escape(" · ".join(made.runs))}</h1><p class="headline">{escape(first)}</p></div>'
        f'<div class="verdict {"good" if made.fair else "poor"}"><p class="kind">the comparison is</p>'
        f'<p class="word">{"fair" if made.fair else "unfair"}</p><p>{escape(told)}</p></div></div></header>'
    )
