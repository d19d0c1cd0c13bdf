"""A page opened in a real browser: what it drew, what it complained of, whom it asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

WIDE, NARROW = 1_400, 400
HEIGHT = 900
DRAWN = """() => document.documentElement.dataset.charts === "drawn"
  && Bokeh.documents.length && Bokeh.documents.every((document) => document.is_idle)"""
# Bokeh keeps canvases and tooltips in shadow roots.
WALK = """
  const found = (root, test) => {
    const hits = []
    for (const part of root.querySelectorAll("*")) {
      if (test(part)) hits.push(part)
      if (part.shadowRoot) hits.push(...found(part.shadowRoot, test))
    }
    return hits
  }
"""
# Of each chart that has a place for one: how many pixels of its canvases are not clear.
PAINTED = (
    "() => {"
    + WALK
    + """
  const painted = {}
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    if (figure.querySelector(".missing")) continue
    let pixels = 0
    for (const canvas of found(figure, (part) => part.tagName === "CANVAS")) {
      if (!canvas.width || !canvas.height) continue
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
      for (let at = 3; at < data.length; at += 4) pixels += data[at] > 0
    }
    painted[figure.dataset.chart] = pixels
  }
  return painted
}"""
)
# Axis labels are drawn into the canvas; headings, keys and notes are text, which must stay in its own box.
OUTSIDE = """() => [...document.querySelectorAll("figure, .card, .flags, dl, header")].filter((part) => {
  const box = part.getBoundingClientRect()
  return box.right > document.documentElement.clientWidth + 1 || part.scrollWidth > part.clientWidth + 1
}).map((part) => part.className || part.tagName)"""


class Opened:
    """A page in the browser with what it complained of and whom it asked."""

    def __init__(self, browser: Browser, file: Path, width: int, scheme: str) -> None:
        shown = cast("Any", scheme)
        self.context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=shown)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda said: self.errors.append(said.text) if said.type in {"error", "warning"} else None
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_function(DRAWN, timeout=60_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def check_whole(self, file: Path, width: int) -> None:
        """Every chart is drawn, nothing leaves its place, nothing was complained of, nobody else was asked."""
        painted: dict[str, int] = self.page.evaluate(PAINTED)
        assert len(painted) >= 3
        assert all(pixels > 500 for pixels in painted.values()), painted
        assert self.page.evaluate("document.documentElement.scrollWidth") <= width
        assert self.page.evaluate(OUTSIDE) == []
        assert self.errors == []
        assert self.asked == [file.as_uri()]
