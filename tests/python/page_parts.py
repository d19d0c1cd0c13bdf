"""What a page shows, read from its HTML: cards, tables and the data of charts; and whether a cell is a figure."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Values = np.ndarray[Any, Any]

GZIP = b"\x1f\x8b"
STATISTICS: tuple[Callable[[Values], float], ...] = (
    np.mean,
    *(lambda values, share=share: float(np.quantile(values, share)) for share in (0.5, 0.9, 0.95, 0.99)),
)


def embedded(text: str) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Every data source of a page: its columns of numbers by name."""
    described = re.findall(r'<script type="application/json" data-drawn-by="bokeh">(.*?)</script>', text)
    return [dict(_columns(source)) for chart in described for source in _sources(json.loads(chart))]


def _sources(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("name") == "ColumnDataSource":
            yield value
        for inner in value.values():
            yield from _sources(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sources(inner)


def _columns(source: dict[str, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for name, column in source["attributes"]["data"]["entries"]:
        if isinstance(column, dict) and column.get("type") == "ndarray":
            data = base64.b64decode(column["array"]["data"])
            yield name, np.frombuffer(gzip.decompress(data) if data.startswith(GZIP) else data, column["dtype"])


def source_with(text: str, *columns: str) -> dict[str, np.ndarray[Any, Any]]:
    """The longest data source that has these columns."""
    found = [source for source in embedded(text) if set(columns) <= source.keys()]
    return max(found, key=lambda source: len(source[columns[0]]))


def card(text: str, label: str) -> tuple[str, str]:
    """A headline figure's value with its unit, and what it is of."""
    return cards(text)[label]


def cards(text: str) -> dict[str, tuple[str, str]]:
    """Every headline figure of a page."""
    found = re.findall(
        r'data-figure="([^"]*)".*?<p class="value[^"]*"><span>(.*?)</span>(?:<span class="tag[^<]*</span>)?</p>'
        r'<p class="of">(.*?)</p>',
        text,
    )
    return {html.unescape(label): (_text(value), _text(of)) for label, value, of in found}


def tables(text: str) -> dict[str, dict[str, list[str]]]:
    """Every table with a title: its rows by their first cell. Of those with one title, the last."""
    without_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    found = re.findall(
        r'(?:<h3>|<summary>)([^<]*)(?:</h3>|</summary>)<div class="scroll"><table>(.*?)</table>', without_scripts
    )
    return {html.unescape(title): dict(_rows(table)) for title, table in found}


def _rows(table: str) -> Iterator[tuple[str, list[str]]]:
    for row in re.findall(r"<tr>(.*?)</tr>", table):
        first, *others = (_text(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row))
        yield first, others


def _text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).strip()


def table(path: Path, name: str) -> pl.DataFrame:
    """A table of a run directory."""
    return pl.read_parquet(path / f"{name}.parquet")


def total(series: pl.Series) -> float:
    """The sum of what is known."""
    return float(series.sum())


def shown(cell: str) -> float:
    """The first number of a cell."""
    found = re.search(r"-?[\d,]*\.?\d+", cell)
    assert found, cell
    return float(found[0].replace(",", ""))


def same(cell: str, expected: float | None) -> None:
    """A cell has three digits that matter, or the whole number from 100 on; what is not known is a dash."""
    if expected is None:
        assert cell == "-", cell
    else:
        assert shown(cell) == pytest.approx(expected, rel=5.1e-3, abs=1e-9), cell


def rows_of(values: Values) -> list[float | None]:
    """Number, mean and percentiles of what is known."""
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    return [float(len(known)), *[float(it(known)) if len(known) else None for it in STATISTICS]]


def check_rows(found: dict[str, list[str]], expected: dict[str, Values]) -> None:
    """Rows of a table of statistics have those of these values."""
    for label, values in expected.items():
        cells = found[label][1:]
        for cell, value in zip(cells, rows_of(values), strict=True):
            same(cell, value)
