"""The README's blocks by section, for the tests that follow them."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
ENGINE = "http://127.0.0.1:8000"


def blocks(section: str, language: str) -> list[str]:
    """The blocks of a language under a heading, to the next heading of its rank."""
    rank = section.split(maxsplit=1)[0]
    found = re.search(rf"^{re.escape(section)}\n(.*?)(?=^#{{1,{len(rank)}}} |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, section
    return re.findall(rf"^```{language}\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)


def commands(section: str) -> list[str]:
    return [line for block in blocks(section, "bash") for line in block.splitlines()]
