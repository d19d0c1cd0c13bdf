"""What a question comes to: small tables, headline figures, what was missing, and a figure.

An `Answer` shows itself on a terminal, in Jupyter, as PNG and as HTML. It computes nothing: the questions do. How
values are written is `_text`'s, how figures look is `style`'s, how a page looks is the reports'.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    import pandas as pd
    from matplotlib.figure import Figure

    from agentbench._core import Run

    from ._figure import ShownFigure

TEXT_WIDTH = 110


@dataclass(frozen=True)
class Headline:
    """One figure of an answer.

    Parameters
    ----------
    name
        What it is, by the name under which it is published.
    value
        None where the runs do not tell.
    unit
        Its unit, such as ``tokens``, ``s`` or ``%``.
    condition
        Over what it was computed.
    published
        The figure of a publication with its source, to compare with.
    """

    name: str
    value: float | None
    unit: str
    condition: str
    published: str | None = None


@dataclass(frozen=True)
class Chart:
    """A bar chart for a terminal: which columns of which table."""

    table: str
    label: str
    value: str


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    Parameters
    ----------
    name
        The question's name.
    title
        What was asked, as a heading.
    tables
        Small frames by name, the main one first; units are in the columns' names. Unknown is ``NA``.
    headline
        The figures that matter most.
    missing
        What the runs lack, for which part of the answer.
    notes
        What has to be known to read the figures right.
    draw
        Draws the figure; None where there is nothing to draw.
    subtitle
        Over what everything was computed.
    chart
        What to show as bars on a terminal.
    finding
        The answer in a line, with its quantities: the figure's title.
    """

    __module__ = "agentbench"

    name: str
    title: str
    tables: Mapping[str, pd.DataFrame]
    headline: tuple[Headline, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    draw: Callable[[Figure], None] | None = field(default=None, repr=False, compare=False)
    subtitle: str = ""
    chart: Chart | None = None
    finding: str = ""

    @property
    def frame(self) -> pd.DataFrame:
        """The main table."""
        return next(iter(self.tables.values()))

    def figure(self) -> ShownFigure:
        """Return the figure; it says what is missing where there is nothing to draw."""
        from .style import styled_figure  # noqa: PLC0415  matplotlib takes its time

        return styled_figure(self.finding or self.title, self.subtitle, self.draw, self.missing)

    def to_text(self, width: int = TEXT_WIDTH) -> str:
        """Return the answer for a terminal of that many columns."""
        from . import _text  # noqa: PLC0415  rich takes its time

        return _text.answer(self, width)

    def __str__(self) -> str:
        return self.to_text()

    def save(
        self, directory: str | PathLike[str], *, csv: bool = True, png: bool = True, html: bool = True
    ) -> list[Path]:
        """Write the tables, the figure and a page; return the files.

        Parameters
        ----------
        directory
            Made where it is not there. Files bear the question's name; tables after the main one their own as well.

        Raises
        ------
        ModuleNotFoundError
            When a page is to be written, and a library of the extra ``report`` is missing.
        OSError
            When a file cannot be written.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        if csv:
            for index, (name, table) in enumerate(self.tables.items()):
                written.append(folder / (f"{self.name}.csv" if index == 0 else f"{self.name}.{name}.csv"))
                table.to_csv(written[-1], index=False)
        if png:
            written.append(folder / f"{self.name}.png")
            written[-1].write_bytes(self._repr_png_())
        if html:
            written.append(folder / f"{self.name}.html")
            written[-1].write_text(_page([self]), encoding="utf-8")
        return written

    def _repr_png_(self) -> bytes:
        return self.figure().png()

    def _repr_html_(self) -> str:
        from . import _text  # noqa: PLC0415  the same

        picture = base64.b64encode(self._repr_png_()).decode()
        return _text.answer_html(self, f'<img alt="{escape(self.title)}" src="data:image/png;base64,{picture}">')

    def _tables_html(self) -> str:
        from . import _text  # noqa: PLC0415  the same

        return _text.answer_html(self)

    def _ipython_display_(self) -> None:
        """Show tables and figure as two outputs: pages that keep a notebook's pictures drop those within HTML."""
        import IPython.display as shown  # noqa: PLC0415  Jupyter's own

        shown.display(shown.HTML(self._tables_html()))  # type: ignore[no-untyped-call]
        shown.display(self.figure())  # type: ignore[no-untyped-call]


def _page(answers: Sequence[Answer], runs: Mapping[str, Run] = MappingProxyType({})) -> str:
    """Return a page of its own with these answers, whose charts tell of themselves when they are hovered over."""
    from agentbench._report.report import needed  # noqa: PLC0415  reports ask questions too

    needed()
    from agentbench._report.html.answers import answers_page  # noqa: PLC0415  the libraries of an extra

    return answers_page(answers, {name: run.manifest for name, run in runs.items()})


class Analysis(Mapping[str, Answer]):
    """Answers by question, in the order asked. Shows itself on a terminal and in Jupyter.

    Examples
    --------
    >>> analysis = agentbench.analyze("results/mine")  # doctest: +SKIP
    >>> analysis["tokens"].frame  # doctest: +SKIP
    """

    __module__ = "agentbench"

    def __init__(self, answers: Mapping[str, Answer], runs: Mapping[str, Run] = MappingProxyType({})) -> None:
        self._answers = dict(answers)
        self._runs = runs

    def __getitem__(self, name: str) -> Answer:
        return self._answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def headline(self) -> pd.DataFrame:
        """Every headline figure: ``question``, ``name``, ``value``, ``unit``, ``condition``, ``published``."""
        from ._frames import to_pandas_rows  # noqa: PLC0415  pandas takes its time

        rows: list[dict[str, Any]] = [
            {"question": answer.name, **vars(headline)} for answer in self.values() for headline in answer.headline
        ]
        return to_pandas_rows(rows, ["question", "name", "value", "unit", "condition", "published"])

    def to_text(self, width: int = TEXT_WIDTH) -> str:
        """Return all answers for a terminal of that many columns."""
        return "\n".join(answer.to_text(width) for answer in self.values())

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"Analysis({', '.join(self)})"

    def save(
        self, directory: str | PathLike[str], *, csv: bool = True, png: bool = True, html: bool = True
    ) -> list[Path]:
        """Write what `Answer.save` does of every answer, of HTML one page, and the headline figures; return the files.

        The page is ``analysis.html``, the figures are ``headline.csv``.

        Raises
        ------
        ModuleNotFoundError
            When a page is to be written, and a library of the extra ``report`` is missing.
        OSError
            When a file cannot be written.
        """
        folder = Path(directory)
        written = [file for answer in self.values() for file in answer.save(folder, csv=csv, png=png, html=False)]
        folder.mkdir(parents=True, exist_ok=True)
        if csv:
            written.append(folder / "headline.csv")
            self.headline.to_csv(written[-1], index=False)
        if html:
            written.append(folder / "analysis.html")
            written[-1].write_text(_page(list(self.values()), self._runs), encoding="utf-8")
        return written

    def _repr_html_(self) -> str:
        return "\n<hr>\n".join(answer._repr_html_() for answer in self.values())

    def _ipython_display_(self) -> None:
        for answer in self.values():
            answer._ipython_display_()
