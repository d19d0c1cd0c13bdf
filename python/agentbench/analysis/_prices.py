"""Price tables: read, checked, and asked for the price of a model. No table comes with the package.

A table is YAML or JSON::

    date: 2026-06-01            # when these prices were in force
    currency: USD
    source: price list of ...   # optional, printed beside the figures
    per_tokens: 1000000         # optional: for how many tokens a price is
    models:
      some-model:               # a model's name as requests have it; * stands for anything
        input: 3.00             # prompt tokens that were not cached
        cached_read: 0.30       # those that were; without it as input
        cache_write: 3.75       # those written to the cache; without it as input
        output: 15.00
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError
from agentbench._frames import REMEDY

if TYPE_CHECKING:
    from os import PathLike

PER_TOKENS = 1_000_000
FIELDS = {"date", "currency", "source", "per_tokens", "models"}
NEEDED = ("input", "output")
CLASSES = ("input", "cached_read", "cache_write", "output")


@dataclass(frozen=True)
class Price:
    """What a token of each class costs, in the table's currency."""

    input: float
    cached_read: float
    cache_write: float
    output: float


@dataclass(frozen=True)
class Prices:
    """A price table: when it was in force, its currency, and prices by model."""

    date: str
    currency: str
    source: str
    models: dict[str, Price]

    def of(self, model: str | None) -> Price | None:
        """Return a model's price: by its name, else by the longest pattern that it fits; None where there is none."""
        if model is None:
            return None
        if model in self.models:
            return self.models[model]
        fitting = [name for name in self.models if "*" in name and fnmatchcase(model, name)]
        return self.models[max(fitting, key=len)] if fitting else None


def read_prices(path: str | PathLike[str]) -> Prices:
    """Read a price table.

    Raises
    ------
    ConfigError
        When it cannot be read or is not a price table; the text says what is wrong, and where.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"price table {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"price table {file}: not UTF-8 at byte {error.start}") from error
    try:
        return _checked(_parsed(file, text))
    except ValueError as error:
        raise ConfigError(f"price table {file}: {error}") from error


def _parsed(file: Path, text: str) -> Any:
    if file.suffix == ".json":
        return json.loads(text)
    if find_spec("yaml") is None:
        raise ValueError(f"YAML needs pyyaml: {REMEDY}; or write the table as .json")
    yaml: Any = import_module("yaml")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from error


def _checked(table: Any) -> Prices:
    if not isinstance(table, dict):
        raise ValueError("expected a mapping with date, currency and models")  # noqa: TRY004  the table is bad, not a call
    if unknown := sorted(str(key) for key in set(table) - FIELDS):
        raise ValueError(f"unknown field {unknown[0]!r}; there are {', '.join(sorted(FIELDS))}")
    for field in ("date", "currency", "models"):
        if not table.get(field):
            raise ValueError(f"{field} is missing")
    date = table["date"]
    try:
        day = date if isinstance(date, dt.date) else dt.date.fromisoformat(str(date))
    except ValueError:
        raise ValueError(f"date is {date!r}; write it as 2026-06-01") from None
    per = _amount("per_tokens", table.get("per_tokens", PER_TOKENS))
    if per == 0:
        raise ValueError("per_tokens is 0")
    if not isinstance(table["models"], dict):
        raise ValueError("models: expected a mapping from names to prices")  # noqa: TRY004  the table is bad, not a call
    models = {str(name): _price(str(name), price, per) for name, price in table["models"].items()}
    return Prices(str(day)[:10], str(table["currency"]), str(table.get("source") or ""), models)


def _price(name: str, price: Any, per: float) -> Price:
    if not isinstance(price, dict):
        raise ValueError(f"models.{name}: expected a mapping with input and output")  # noqa: TRY004  the same
    if unknown := sorted(str(key) for key in set(price) - set(CLASSES)):
        raise ValueError(f"models.{name}: unknown price {unknown[0]!r}; there are {', '.join(CLASSES)}")
    for field in NEEDED:
        if price.get(field) is None:
            raise ValueError(f"models.{name}: {field} is missing")
    told = {
        field: _amount(f"models.{name}.{field}", value) / per for field, value in price.items() if value is not None
    }
    return Price(**{field: told.get(field, told["input"]) for field in CLASSES})


def _amount(place: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError(f"{place} is {value!r}; write a number of 0 or more")
    return float(value)
