"""How the figures look: one style for all of them.

Colours are told apart by people who see few of them (Okabe and Ito), sizes can be read on a slide, grids are light.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from cycler import cycler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ._figure import ShownFigure

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#555555")
MUTED = "#666666"
SIZE_IN = (9.0, 5.0)
WRAP = 105
WRAP_TITLE = 78
TITLE_LINE_IN = 0.26
SECONDS_IN_WORDS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
SECONDS_TICKS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0, 864_000.0)
COARSE_SECONDS_TICKS = (1e-5, 1e-3, 0.1, 10.0, 600.0, 36_000.0, 864_000.0)
MANY_TICKS = 6
POINTS_DRAWN = 1_000
FEW_DECADES = 150.0
SETTINGS: Any = {
    "font.size": 10.5,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "legend.frameon": True,
    "legend.edgecolor": "none",
    "legend.facecolor": "white",
    "legend.framealpha": 0.85,
    "legend.fontsize": 9.5,
    "lines.linewidth": 2.0,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def styled_figure(
    title: str, subtitle: str, draw: Callable[[Figure], None] | None, missing: Sequence[str] = ()
) -> ShownFigure:
    """Return a figure with title and condition on top, drawn in the common style.

    Parameters
    ----------
    draw
        Adds axes to the figure; None draws what is `missing` as words.
    """
    import matplotlib as mpl  # noqa: PLC0415  takes its time, and only figures need it

    from ._figure import ShownFigure  # noqa: PLC0415  the same

    with mpl.rc_context(SETTINGS):
        figure = ShownFigure(figsize=SIZE_IN)
        title_lines, head = textwrap.wrap(title, WRAP_TITLE), textwrap.wrap(subtitle, WRAP)
        below_title_in = 0.14 + TITLE_LINE_IN * len(title_lines)
        head_in = below_title_in + 0.04 + 0.2 * len(head)
        height_in = SIZE_IN[1] + TITLE_LINE_IN * (len(title_lines) - 1)
        figure.set_size_inches(SIZE_IN[0], height_in)
        figure.set_layout_engine("constrained", rect=(0.005, 0.0, 0.99, 1.0 - head_in / height_in))
        top = 1.0 - 0.11 / height_in
        figure.text(0.012, top, "\n".join(title_lines), fontsize=14, fontweight="bold", va="top")
        figure.text(0.012, 1.0 - below_title_in / height_in, "\n".join(head), fontsize=9.5, color=MUTED, va="top")
        if draw is None:
            words = "\n".join(line for text in missing for line in textwrap.wrap(text, 80)) or "nothing to draw"
            figure.text(0.5, 0.45, words, ha="center", va="center", color=MUTED)
        else:
            draw(figure)
        return figure


def count_axis(axis: Any) -> None:
    """Write an axis of counts as 1k, 10k, 1M."""
    from matplotlib.ticker import EngFormatter  # noqa: PLC0415  the same

    axis.set_major_formatter(EngFormatter(sep="", places=None))


def seconds_axis(axis: Any) -> None:
    """Write an axis of seconds as ms, s, min, h."""
    from ._figure import SecondsFormatter  # noqa: PLC0415  the same

    axis.set_major_formatter(SecondsFormatter())


def in_words(seconds: float) -> str:
    """Return a time in the largest unit that it has one of."""
    for size, unit in SECONDS_IN_WORDS:
        if seconds >= size * 0.999:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds > 0 else "0"


def log_axis(axes: Axes, which: str) -> None:
    """Make an axis logarithmic, where anything drawn is above 0; few powers of ten have 2 and 5 between them.

    To be called once everything is drawn.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator  # noqa: PLC0415  the same

    least = axes.dataLim.minposx if which == "x" else axes.dataLim.minposy
    if not math.isfinite(least):
        return
    axes.set_xscale("log") if which == "x" else axes.set_yscale("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    subs = (1.0,) if high / low > FEW_DECADES else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(base=10.0, subs=subs, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def log_seconds_axis(axes: Axes, low: Any, high: Any) -> None:
    """Make the x axis one of times from `low` to `high`, logarithmic, with ticks at 1 ms, …, 1 min, 10 min, 1 h, …."""
    log_axis(axes, "x")
    low, high = float(low) / 1.3, float(high) * 1.3
    shown = [tick for tick in SECONDS_TICKS if low <= tick <= high]
    if len(shown) > MANY_TICKS:
        shown = [tick for tick in COARSE_SECONDS_TICKS if low <= tick <= high]
    axes.set_xticks(shown)
    seconds_axis(axes.xaxis)
    axes.set_xlim(low, high)


def ecdf(axes: Axes, values: Any, label: str, color: str, *, weights: Any = None) -> None:
    """Draw which share of the values is at most x, in percent, thinned to what a figure can show.

    With `weights` it is the share of their sum that these values hold.
    """
    import numpy as np  # noqa: PLC0415  comes with pandas

    order = np.argsort(values, kind="stable")
    x = np.asarray(values, dtype=float)[order]
    if x.size == 0:
        return
    mass = np.ones(x.size) if weights is None else np.asarray(weights, dtype=float)[order]
    y = np.cumsum(mass) / mass.sum() * 100.0
    even = np.linspace(0, x.size - 1, POINTS_DRAWN).astype(int)
    high = np.searchsorted(y, np.linspace(0.0, 100.0, POINTS_DRAWN)).clip(max=x.size - 1)
    keep = np.union1d(even, high)
    axes.step([x[0], *x[keep]], [0.0, *y[keep]], where="post", label=label, color=color)


def legend_above(axes: Axes, columns: int = 1) -> None:
    """Put the legend between an axis and its title, where no curve and no label is; to be called after the title."""
    handles, _ = axes.get_legend_handles_labels()
    if not handles:
        return
    rows = -(-len(handles) // columns)
    title = axes.get_title(loc="left")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        borderaxespad=0.0,
        columnspacing=1.2,
        handlelength=1.4,
        borderpad=0.3,
    )
    axes.set_title(title, loc="left", pad=8 + 16 * rows)


def few_bars_on_top(axes: Axes, n: int, room_for: int = 6) -> None:
    """Keep horizontal bars slender where there are few of them: at the top, with nothing below."""
    axes.set_ylim(min(n - room_for, 0) - 0.6, n - 0.4)
