"""Tools of live agents: paths that stay inside, exact edits, schemas of functions, calls that do not fit."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest

import agentbench
from agentbench._collect.sandbox import Place
from agentbench.agent import Workspace, builtin
from agentbench.agent.paths import PathError, Root
from agentbench.agent.sandbox import Bare
from agentbench.agent.tools import MalformedCallError, ToolError, parsed, tool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    place = Place(tmp_path / "tree", tmp_path / "home", tmp_path / "tmp", tmp_path / "private")
    place.make()
    place.tree.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (place.tree / "app.py").write_text("a = 1\nb = 1\n")
    (place.tree / "deep" / "er").mkdir(parents=True)
    (place.tree / "deep" / "x.txt").write_text("x")
    with Bare().opened(place, tmp_path / "check") as shell:
        return Workspace(place.tree, shell, 5.0)


@pytest.fixture
def links(workspace: Workspace) -> Workspace:
    tree = workspace.path
    (tree / "in").symlink_to("deep")
    (tree / "in_absolute").symlink_to("/testbed/deep/x.txt")
    (tree / "out").symlink_to("..")
    (tree / "out_absolute").symlink_to(tree.parent)
    (tree / "out_file").symlink_to(tree.parent / "secret.txt")
    (tree / "out_new").symlink_to(tree.parent / "new.txt")
    (tree / "loop").symlink_to("loop")
    (tree / "deep" / "up").symlink_to("../../secret.txt")
    os.mkfifo(tree / "pipe")
    return workspace


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("app.py", "a = 1\nb = 1\n"),
        ("./deep/../app.py", "a = 1\nb = 1\n"),
        ("deep/er/../x.txt", "x"),
        ("/testbed/deep/x.txt", "x"),
        ("in/x.txt", "x"),
        ("in_absolute", "x"),
    ],
)
def test_paths_within_are_read(links: Workspace, name: str, content: str) -> None:
    assert links.files.read(name, 100) == content.encode()
    assert links.files.read(str(links.path / "app.py"), 100) == b"a = 1\nb = 1\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../secret.txt", "outside"),
        ("deep/../../secret.txt", "outside"),
        ("/etc/passwd", "outside"),
        ("/testbed/../secret.txt", "outside"),
        ("/testbedx/app.py", "outside"),
        ("out/secret.txt", "outside"),
        ("out_absolute/secret.txt", "outside"),
        ("out_file", "outside"),
        ("deep/up", "outside"),
        ("loop", "too many links"),
        ("none.txt", "no such file"),
        ("app.py/x", "no folder"),
        ("deep", "is a folder"),
        ("pipe", "no regular file"),
        ("", "at least one character"),
        ("a\0b", "NUL"),
    ],
)
def test_paths_that_cannot_be_used_say_why(links: Workspace, name: str, why: str) -> None:
    with pytest.raises(PathError, match=why):
        links.files.read(name, 100)
    if why != "no such file":
        with pytest.raises(PathError):
            links.files.write(name, b"no")
    assert (links.path.parent / "secret.txt").read_text() == "secret"


def test_a_link_to_a_file_that_is_not_there_makes_none_outside(links: Workspace) -> None:
    with pytest.raises(PathError, match="outside"):
        links.files.write("out_new", b"no")
    assert not (links.path.parent / "new.txt").exists()


def test_files_longer_than_what_is_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 11)
    with pytest.raises(PathError, match="11 bytes"):
        Root(tmp_path).read("long", 10)


EDITS = [
    ("a = 1\nb = 1\n", "a = 1", "a = 2", None),
    ("a = 1\nb = 1\n", "= 1", "= 2", "occurs 2 times in f, at lines 1, 2"),
    ("a = 1\n", "", "x", "old is empty"),
    ("a = 1\n", "a", "a", "the same"),
    ("a  =  1\n", "a = 1", "a = 2", "other spaces"),
    ("def f():\n    return 1\n", "def f():\nreturn 1", "x", "other spaces"),
    ("a = 1\n", "c = 3", "x", "is not in f; read the file"),
    ("aaa", "aa", "b", None),
]


@pytest.mark.parametrize(("text", "old", "new", "problem"), EDITS)
def test_an_edit_is_exact_or_says_why_not(text: str, old: str, new: str, problem: str | None) -> None:
    told = builtin.edit_problem(text, "f", old, new)
    assert told is None if problem is None else problem in str(told)


def test_built_in_tools_work_in_the_workspace(workspace: Workspace) -> None:
    assert builtin.list_files(workspace).split() == ["app.py", "deep/", "er/", "x.txt"]
    assert builtin.list_files(workspace, "deep/er") == "(the folder is empty)"
    assert builtin.edit(workspace, "app.py", "b = 1", "b = 2") == "edited app.py at line 2"
    assert (workspace.path / "app.py").read_text() == "a = 1\nb = 2\n"
    assert builtin.read(workspace, "app.py", 2) == "b = 2\n"
    assert builtin.read(workspace, "app.py", 1, 1) == "a = 1\n\n(... 1 more lines)"
    with pytest.raises(ToolError, match="has 2 lines"):
        builtin.read(workspace, "app.py", 3)
    assert builtin.write(workspace, "new/dir/f.txt", "x\ny\n") == "wrote new/dir/f.txt, 2 lines"
    assert (workspace.path / "new/dir/f.txt").read_text() == "x\ny\n"
    assert "app.py:2:b = 2" in builtin.search(workspace, "^b = [0-9]")
    assert builtin.search(workspace, "no such text") == "no match"
    with pytest.raises(ToolError, match="outside"):
        builtin.search(workspace, "secret", "..")
    with pytest.raises(ToolError, match="search failed"):
        builtin.search(workspace, "[")
    assert builtin.shell(workspace, "cat app.py; echo e >&2") == "a = 1\nb = 2\ne\n(exit code 0)"
    with pytest.raises(ToolError, match=r"(?s)oh\n\(exit code 3\)"):
        builtin.shell(workspace, "echo oh; exit 3")
    (workspace.path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ToolError, match="no text in UTF-8"):
        builtin.read(workspace, "binary")


def test_long_texts_lose_their_middle() -> None:
    text = builtin.clipped("a" * 60 + "b" * 60, 100)
    assert text == "a" * 50 + "\n(... 20 characters left out ...)\n" + "b" * 50


@agentbench.tool
def example(
    city: str,
    days: int = 1,
    unit: Literal["C", "F"] = "C",
    tags: list[str] | None = None,
    limits: dict[str, float] | None = None,
    exact: Annotated[bool, "Whether to be exact."] = False,  # noqa: FBT002 the model names it
    anything: Any = None,
) -> dict[str, Any]:
    """Tell the weather.

    As well as it can.

    Parameters
    ----------
    city
        The name
        of a city.
    days, unit
        Both at once.

    Returns
    -------
    dict
        Not for the model.
    """
    return {"city": city, "days": days, "unit": unit, "tags": tags, "limits": limits, "exact": exact, "any": anything}


def test_a_schema_is_made_of_the_signature() -> None:
    assert example.name == "example"
    assert example.description == "Tell the weather.\n\nAs well as it can."
    assert example.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The name of a city."},
            "days": {"type": "integer", "description": "Both at once.", "default": 1},
            "unit": {"type": "string", "enum": ["C", "F"], "description": "Both at once.", "default": "C"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "limits": {"anyOf": [{"type": "object", "additionalProperties": {"type": "number"}}, {"type": "null"}]},
            "exact": {"type": "boolean", "description": "Whether to be exact.", "default": False},
            "anything": {},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert example("Oslo", days=2)["days"] == 2


def test_the_workspace_is_no_parameter_for_the_model() -> None:
    assert list(builtin.read.schema["properties"]) == ["path", "start_line", "lines"]
    assert builtin.read.schema["properties"]["path"]["description"] == "The file, from the current directory."
    assert [each.name for each in builtin.BUILTIN] == ["list", "read", "write", "edit", "search", "shell"]


def without_type(city) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Tell."""
    return str(city)


def with_bytes(data: bytes) -> str:
    """Tell."""
    return str(data)


def with_rest(*names: str) -> str:
    """Tell."""
    return str(names)


def silent(name: str) -> str:
    return name


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (without_type, "parameter city has no type"),
        (with_bytes, "has no JSON schema"),
        (with_rest, "cannot be given by name"),
        (silent, "give it a docstring"),
    ],
)
def test_functions_that_make_no_tool_say_why(function: Any, why: str) -> None:
    with pytest.raises(agentbench.ConfigError, match=why):
        tool(function)


def test_a_tool_may_have_another_name_and_description() -> None:
    made = tool(name="other-name", description="Do it.")(silent)
    assert (made.name, made.description) == ("other-name", "Do it.")
    with pytest.raises(agentbench.ConfigError, match="is no name"):
        tool(name="no spaces", description="Do it.")(silent)


MALFORMED = [
    ("nothing", "{}", "there is no tool 'nothing'; there are example"),
    ("example", "{", "are no JSON"),
    ("example", '["Oslo"]', 'must be an object, not ["Oslo"]'),
    ("example", "", "city is missing"),
    ("example", '{"town": "Oslo"}', "city is missing"),
    ("example", '{"city": "Oslo", "town": 1}', "it takes no town"),
    ("example", '{"city": 1}', "city must be a string, not 1"),
    ("example", '{"city": "Oslo", "days": "2"}', 'days must be an integer, not "2"'),
    ("example", '{"city": "Oslo", "days": true}', "days must be an integer, not true"),
    ("example", '{"city": "Oslo", "days": 1.5}', "days must be an integer"),
    ("example", '{"city": "Oslo", "unit": "K"}', 'unit is "K", not one of "C", "F"'),
    ("example", '{"city": "Oslo", "tags": ["a", 1]}', r"tags[1] must be a string, not 1"),
    ("example", '{"city": "Oslo", "limits": {"a": "b"}}', 'a must be a number, not "b"'),
    ("example", "[" * 100_000, "are no JSON"),
]


@pytest.mark.parametrize(("name", "arguments", "why"), MALFORMED)
def test_malformed_calls_say_what_is_wrong(name: str, arguments: str, why: str) -> None:
    with pytest.raises(MalformedCallError) as raised:
        parsed([example], name, arguments)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "Oslo"},
        {"city": "Oslo", "days": 3, "unit": "F", "tags": None, "exact": True, "anything": [1]},
        {"city": "", "tags": [], "limits": {"a": 1, "b": 2.5}},
    ],
)
def test_arguments_that_fit_are_given_on(arguments: dict[str, Any]) -> None:
    assert parsed([example], "example", json.dumps(arguments)) == (example, arguments)
