"""Tables as data frames, by whatever library of the ``analysis`` extra is installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    import pandas as pd
    import polars as pl

    from agentbench._core import Table

REMEDY = 'pip install "agentbench-serving[analysis]"'


def _library(name: str) -> ModuleType:
    """Import a library of the extra, or say how to get it."""
    if find_spec(name) is None:
        raise ModuleNotFoundError(f"{name} is not installed; install it with: {REMEDY}", name=name)
    return import_module(name)


def to_pandas(table: Table) -> pd.DataFrame:
    """Read a table into pandas, by pyarrow where it is installed, else by polars."""
    pandas: Any = _library("pandas")
    if find_spec("pyarrow") is not None:
        pyarrow: Any = import_module("pyarrow")
        frame: pd.DataFrame = pyarrow.table(table).to_pandas()
        return frame
    if find_spec("polars") is not None:
        columns = to_polars(table).to_dict(as_series=False)
        by_polars: pd.DataFrame = pandas.DataFrame(columns)
        return by_polars
    raise ModuleNotFoundError(f"pandas reads tables through pyarrow, which is not installed: {REMEDY}", name="pyarrow")


def to_polars(table: Table) -> pl.DataFrame:
    """Read a table into polars."""
    polars: Any = _library("polars")
    frame: pl.DataFrame = polars.DataFrame(table)
    return frame
