"""Between polars, which computes, and pandas, which people look at and whose import takes as long as some questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Tables(Mapping[str, "pd.DataFrame"]):
    """Small frames by name, each in pandas once it is asked for: who wants figures alone does not wait for pandas."""

    def __init__(self, frames: Mapping[str, pl.DataFrame]) -> None:
        self._frames = dict(frames)
        self._shown: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._shown:
            self._shown[name] = to_pandas(self._frames[name])
        return self._shown[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, name: object) -> bool:
        return name in self._frames

    def __repr__(self) -> str:
        return f"Tables({', '.join(self)})"


def to_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return a small frame in pandas, whose unknown values are NA in whole numbers too."""
    import pandas as pd  # noqa: PLC0415  it takes its time

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
    import pandas as pd  # noqa: PLC0415  the same

    return pd.DataFrame(rows, columns=columns).convert_dtypes()
