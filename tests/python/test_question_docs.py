"""docs/questions.md tells every question with its definitions, made from the questions' docstrings.

`python tests/python/test_question_docs.py` writes the file anew; the test says when it is out of date.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from agentbench.analysis import QUESTIONS

TARGET = Path(__file__).resolve().parents[2] / "docs/questions.md"
REMEDY = "run: PYTHONPATH=python python tests/python/test_question_docs.py"
INTRODUCTION = """# The questions and their definitions

`agentbench analyze RUN…` asks these questions of one run or several together; from Python it is `agentbench.analyze`.
Each answer is a few small tables, headline figures beside published ones of the same name, what the runs lack for
which part, and a figure. A null means unknown, never 0.

A *step* is a turn of the agent's work: no utility call (title, status line), none that the proxy answered by itself,
and not one that failed. Of a replay, a trajectory counts as a session.

This page is made from the questions' docstrings.
"""


def parts(name: str) -> tuple[str, dict[str, str], str]:
    """Summary, definitions by term, and the rest of a question's docstring."""
    text = inspect.getdoc(getattr(import_module(f"agentbench.analysis.{name}"), name)) or ""
    summary, _, rest = text.partition("\n\nDefinitions\n-----------\n")
    body, _, tables = rest.partition("\nReturns\n-------\n")
    body = body.partition("\nParameters\n----------\n")[0]
    # A term stands at the margin, what it means is indented below it.
    definitions = {
        term: " ".join(meaning.split())
        for term, meaning in re.findall(r"^(\S[^\n]*)\n((?:    [^\n]*\n?)+)", body, re.MULTILINE)
    }
    after = re.sub(r"^(\S[^\n]*)\n((?:    [^\n]*\n?)+)", "", body, flags=re.MULTILINE)
    answer = " ".join(tables.partition("\n\n")[0].removeprefix("Answer\n").split())
    return (
        " ".join(summary.split()),
        definitions,
        "\n\n".join(" ".join(it.split()) for it in [*after.strip().split("\n\n"), answer] if it.strip()),
    )


def document() -> str:
    """The page."""
    chapters = [INTRODUCTION]
    for name, question in QUESTIONS.items():
        _, definitions, rest = parts(name)
        lines = [
            f"- **{term.replace('``', '`')}**: {meaning.replace('``', '`')}" for term, meaning in definitions.items()
        ]
        chapters.append(
            "\n".join(
                [
                    f"## `{name}`",
                    "",
                    f"{question.asks[0].upper()}{question.asks[1:]}.",
                    "",
                    *lines,
                    "",
                    rest.replace("``", "`"),
                ]
            )
        )
    return "\n\n".join(chapter.strip() for chapter in chapters) + "\n"


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_tells_its_definitions(name: str) -> None:
    summary, definitions, rest = parts(name)
    assert summary.endswith(".")
    assert len(definitions) >= 3
    assert all(meaning.endswith((".", ")")) for meaning in definitions.values()), definitions
    assert "Tables ``" in rest


def test_the_page_is_up_to_date() -> None:
    assert TARGET.read_text() == document(), REMEDY


if __name__ == "__main__":
    TARGET.write_text(document())
