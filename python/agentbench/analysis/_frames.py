"""Between polars, which computes, and pandas, which people look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    import polars as pl


def to_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return a small frame in pandas, whose unknown values are NA in whole numbers too."""
    return pd.DataFrame(
        {name: pd.Series(frame[name].to_list(), dtype=_dtype(dtype)) for name, dtype in frame.schema.items()}
    )


def _dtype(dtype: pl.DataType) -> Any:
    if dtype.is_integer():
        return "Int64"
    if dtype.is_float():
        return "Float64"
    return "boolean" if str(dtype) == "Boolean" else "string" if str(dtype) in {"String", "Categorical"} else "object"


def to_pandas_rows(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    """Return rows as a frame with these columns, also where there are none."""
    return pd.DataFrame(rows, columns=columns).convert_dtypes()
