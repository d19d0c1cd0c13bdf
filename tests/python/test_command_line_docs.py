"""docs/command-line.md lists every option of every verb, made from what `--help` says.

`python tests/python/test_command_line_docs.py` writes the file anew; the tests say when it is out of date and when
an option does not say what happens without it.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click
import pytest

from agentbench._cli import leaves

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = REPOSITORY / "docs/command-line.md"
REMEDY = "run: PYTHONPATH=python python tests/python/test_command_line_docs.py"
DEFAULT = re.compile(r"\s*\[default: (.*?)\]")

INTRODUCTION = """# The command line

Every verb with its options, their defaults and what they do, as `agentbench VERB --help` says them. Tables go to
stdout; progress, warnings and errors to stderr. Exit codes: 0 fine; 1 the run finished but failed its own
conditions; 2 usage or configuration; 130 interrupted, with partial results written.

This file is made from the command line itself.
"""


def context(verb: str) -> click.Context:
    """What click makes help of."""
    return click.Context(leaves()[verb], info_name=f"agentbench {verb}", max_content_width=10_000)


def options(verb: str) -> list[click.Option]:
    return [option for option in leaves()[verb].params if isinstance(option, click.Option)]


def help_of(verb: str, option: click.Option) -> tuple[str, str]:
    """The option as `--help` writes it, and its help, in one line."""
    record: Any = option.get_help_record(context(verb))
    return record[0], " ".join(record[1].split("\n"))


def default_of(verb: str, option: click.Option) -> str:
    """What `--help` says of the time without the option."""
    if option.required:
        return "required"
    _, text = help_of(verb, option)
    found = re.search(r"\[(?:[^\[\]]*; )?default: ([^\[\];]*)", text)
    return found[1].strip() if found else ""


def meaning_of(option: click.Option) -> str:
    """The help without its default, with the variable that stands for the option."""
    text = DEFAULT.sub("", option.help or "").strip()
    variable = f" Or by the variable `{option.envvar}`." if option.envvar else ""
    return text + variable


def cell(text: str) -> str:
    """Text in a table's cell, as it is."""
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def code(text: str) -> str:
    """Text as code in a table's cell."""
    return f"`{text}`".replace("|", "\\|")


def section(verb: str) -> str:
    """One verb: usage, what it does, its options."""
    command = leaves()[verb]
    usage = " ".join(command.collect_usage_pieces(context(verb)))
    about, _, _ = inspect.cleandoc(command.help or "").partition("\n\b")
    lines = [f"\n## `agentbench {verb}`\n", f"```\nagentbench {verb} {usage}\n```\n", f"{cell(about.strip())}\n"]
    lines += ["| option | default | meaning |", "|---|---|---|"]
    for option in options(verb):
        lines.append(
            f"| {code(help_of(verb, option)[0])} | {cell(default_of(verb, option))} | {cell(meaning_of(option))} |"
        )
    return "\n".join(lines) + "\n"


def document() -> str:
    """The whole file."""
    return INTRODUCTION + "".join(section(verb) for verb in sorted(leaves()))


def test_document_is_up_to_date() -> None:
    assert TARGET.read_text() == document(), REMEDY


def test_the_readme_leads_to_it() -> None:
    assert "(docs/command-line.md)" in (REPOSITORY / "README.md").read_text()


ALL = [(verb, option) for verb in sorted(leaves()) for option in options(verb)]


@pytest.mark.parametrize(("verb", "option"), ALL, ids=[f"{verb} {option.opts[0]}" for verb, option in ALL])
def test_every_option_says_what_happens_without_it(verb: str, option: click.Option) -> None:
    assert default_of(verb, option), (
        f"agentbench {verb} {option.opts[0]}: give it show_default=True, or end its help with"
        f" '  [default: what happens without it]'; then {REMEDY}"
    )
    assert meaning_of(option), f"agentbench {verb} {option.opts[0]}: its help says nothing"
    assert "[required]" not in (option.help or ""), f"agentbench {verb} {option.opts[0]}: click says that already"


if __name__ == "__main__":
    TARGET.write_text(document())
