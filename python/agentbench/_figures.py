"""Numbers as people read them; a value that is not known is a dash, never 0."""

from __future__ import annotations

UNKNOWN = "-"
MILLISECONDS_PER_SECOND = 1_000.0
SIGNIFICANT_FROM = 100


def count(value: float | None) -> str:
    """Return a whole number with thousands apart."""
    return UNKNOWN if value is None else f"{round(value):,}"


def number(value: float | None) -> str:
    """Return three digits that matter, or the whole number from 100 on."""
    if value is None:
        return UNKNOWN
    if abs(value) >= SIGNIFICANT_FROM:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent."""
    return UNKNOWN if share is None else f"{share * 100:.1f} %"


def seconds(milliseconds: float | None) -> str:
    """Return milliseconds as seconds, three digits that matter."""
    return UNKNOWN if milliseconds is None else f"{number(milliseconds / MILLISECONDS_PER_SECOND)} s"
