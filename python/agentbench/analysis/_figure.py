"""The figure of an answer, and how an axis writes times.

Apart from `style`, so that matplotlib is imported when a figure is drawn and not before.
"""

from __future__ import annotations

import io

from matplotlib.figure import Figure
from matplotlib.ticker import Formatter

from .style import in_words

PNG_DPI = 144
SHOWN_WIDTH_PX = 860


class ShownFigure(Figure):
    """A figure that Jupyter shows whether or not pyplot was set up there."""

    def png(self) -> bytes:
        """Return the figure as a PNG file."""
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=PNG_DPI)
        return image.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        # The width is that of the page, in points of the screen; the picture is sharper than these.
        return self.png(), {"width": SHOWN_WIDTH_PX}


class SecondsFormatter(Formatter):
    """Writes the seconds of an axis in the largest unit that they have one of."""

    def __call__(self, x: float, pos: int | None = None) -> str:  # noqa: ARG002 how matplotlib calls it
        """Return a time in words."""
        return in_words(x)
