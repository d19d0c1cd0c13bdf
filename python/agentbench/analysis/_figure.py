"""The figure of an answer, apart from `style` so that matplotlib is imported when a figure is drawn and not before."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

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
