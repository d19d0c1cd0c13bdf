"""Parameter types that more than one verb takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from click import Context, Parameter

SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
CACHE_SHARINGS = ("system", "trajectory", "none", "recorded")
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


class Duration(click.ParamType[float]):
    """``100ms``, ``60s``, ``5m``, ``1h30m``; in seconds."""

    name = "duration"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> float:
        """Return seconds."""
        if isinstance(value, int | float):
            return float(value)
        parts = PART.findall(value)
        if "".join(number + unit for number, unit in parts) != value or not parts:
            self.fail(f"{value!r} is not a duration; write it like 100ms, 60s, 5m or 1h30m", param, ctx)
        seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
        if seconds <= 0:
            self.fail(f"{value!r} is no time at all; give a duration above zero", param, ctx)
        return seconds


class DurationOrNone(click.ParamType[float | None]):
    """A duration, or the word ``none``."""

    name = "duration|none"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> float | None:
        """Return seconds, or None."""
        return None if value == "none" else DURATION.convert(value, param, ctx)


class Url(click.ParamType[str]):
    """An http or https URL with a host."""

    name = "url"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> str:
        """Return the URL less its trailing slash."""
        text = str(value)
        try:
            parts = urlsplit(text)
            usable = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
        except ValueError:
            usable = False
        if not usable:
            self.fail(f"{text!r} is not a URL; write it like http://127.0.0.1:8000", param, ctx)
        return text.rstrip("/")


class UrlOrNone(Url):
    """A URL, or the word ``none``."""

    name = "url|none"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> str:
        """Return the URL or ``none``."""
        return "none" if value == "none" else super().convert(value, param, ctx)


DURATION = Duration()
DURATION_OR_NONE = DurationOrNone()
URL = Url()
URL_OR_NONE = UrlOrNone()
