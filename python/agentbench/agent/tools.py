"""Tools: typed Python functions that a model may call, with a JSON schema made of their signature.

A parameter annotated with `Workspace` is filled by the agent and not shown to the model. What a function returns is
told to the model as text; a `ToolError` is told as an error, as is any other exception.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import types
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from agentbench._core import ConfigError

from .workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong. The text is its result."""

    __module__ = "agentbench"


class MalformedCallError(Exception):
    """A call that no tool can take: the name is unknown, or the arguments do not fit. The text says what."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call. Made by `agentbench.tool`; calling it calls the function.

    Attributes
    ----------
    name
        The name that the model calls it by.
    description
        What the model is told of it.
    schema
        The JSON schema of its arguments.
    function
        The function itself; one that is a coroutine function is awaited.
    """

    __module__ = "agentbench"

    name: str
    description: str
    schema: dict[str, Any]
    function: Callable[..., Any]
    workspace_parameter: str | None = field(default=None, repr=False)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **keywords)

    async def run(self, arguments: dict[str, Any], workspace: Workspace | None, executor: Executor | None) -> str:
        """Run it with checked arguments and return its result as text. Raises what the function raises."""
        keywords = dict(arguments)
        if self.workspace_parameter is not None:
            if workspace is None:
                raise ToolError(f"{self.name} needs a workspace, and there is none")
            keywords[self.workspace_parameter] = workspace
        if inspect.iscoroutinefunction(self.function):
            return as_text(await self.function(**keywords))
        # A thread of our own pool: as many tools run at once as were called.
        loop = asyncio.get_running_loop()
        return as_text(await loop.run_in_executor(executor, lambda: self.function(**keywords)))


@typing.overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@typing.overload
def tool(*, name: str | None = ..., description: str | None = ...) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function, as a decorator.

    Parameters
    ----------
    function
        Its parameters are annotated with ``str``, ``int``, ``float``, ``bool``, ``list[...]``, ``dict[str, ...]``,
        ``Literal[...]``, or one of these ``| None``. ``Annotated[..., "text"]``, or a numpydoc section of
        parameters, tells the model what a parameter is. One annotated with `Workspace` is filled in.
    name
        The name that the model calls it by; by default the function's.
    description
        What the model is told of it; by default the docstring up to its first section.

    Returns
    -------
    Tool
        To be given to `Agent` or `run_agents`.

    Raises
    ------
    ConfigError
        When a parameter has no type, or one that has no JSON schema.

    Examples
    --------
    >>> @agentbench.tool
    ... def weather(city: str, days: int = 1) -> str:
    ...     '''Tell the weather of a city.'''
    ...     return f"{city}: rain for {days} days"
    >>> weather.schema["required"]
    ['city']
    """
    if function is None:
        return lambda wrapped: _made(wrapped, name, description)
    return _made(function, name, description)


def _made(function: Callable[..., Any], name: str | None, description: str | None) -> Tool:
    name = name or function.__name__
    if not NAME.fullmatch(name):
        raise ConfigError(f"tool: {name!r} is no name; use up to 64 letters, digits, _ and -")
    text = inspect.getdoc(function) or ""
    told = description or _summary(text)
    if not told:
        raise ConfigError(f"tool {name}: give it a docstring, so that the model knows what it does")
    schema, workspace = _schema(function, name, _parameters_told(text))
    return Tool(name, told, schema, function, workspace)


def _summary(text: str) -> str:
    """Return a docstring up to its first section."""
    lines: list[str] = []
    for line in text.splitlines():
        if re.fullmatch(r"\s*-{3,}\s*", line):
            lines = lines[:-1]
            break
        lines.append(line)
    return "\n".join(lines).strip()


def _parameters_told(text: str) -> dict[str, str]:
    """Return what a numpydoc section of parameters says of each."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    told: dict[str, str] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else ():
        if line and not line[0].isspace():
            names = [name.strip() for name in line.split(":")[0].split(",")]
        elif line.strip():
            for name in names:
                told[name] = f"{told.get(name, '')} {line.strip()}".strip()
    return told


def _schema(function: Callable[..., Any], name: str, told: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    try:
        # Linters like to import a name that only annotations use for type checkers alone.
        names = {"Workspace": Workspace} | function.__globals__
        hints = typing.get_type_hints(function, names, include_extras=True)
    except NameError as error:
        raise ConfigError(f"tool {name}: {error}; annotate with types that the module knows") from error
    properties: dict[str, Any] = {}
    required: list[str] = []
    workspace = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise ConfigError(f"tool {name}: {parameter.name} cannot be given by name")
        if parameter.name not in hints:
            raise ConfigError(f"tool {name}: parameter {parameter.name} has no type; annotate it")
        hint = hints[parameter.name]
        if hint is Workspace:
            workspace = parameter.name
            continue
        described = _of_type(hint, f"tool {name}: parameter {parameter.name}")
        if parameter.name in told and "description" not in described:
            described["description"] = told[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif parameter.default is not None:
            described["default"] = parameter.default
        properties[parameter.name] = described
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }, workspace


def _of_type(hint: Any, place: str) -> dict[str, Any]:
    """Return the schema of a type."""
    if hint is Any:
        return {}
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    made = None
    if origin is typing.Annotated:
        texts = [extra for extra in arguments[1:] if isinstance(extra, str)]
        made = _of_type(arguments[0], place) | ({"description": texts[0]} if texts else {})
    elif origin is Literal:
        kinds = {SCALARS.get(type(value)) for value in arguments}
        made = ({"type": kinds.pop()} if len(kinds) == 1 and None not in kinds else {}) | {"enum": list(arguments)}
    elif origin in {Union, types.UnionType}:
        made = {"anyOf": [{"type": "null"} if one is type(None) else _of_type(one, place) for one in arguments]}
    elif origin is list:
        made = {"type": "array"} | ({"items": _of_type(arguments[0], place)} if arguments else {})
    elif origin is dict and (not arguments or arguments[0] is str):
        values = _of_type(arguments[1], place) if arguments else {}
        made = {"type": "object"} | ({"additionalProperties": values} if values else {})
    if made is None:
        raise ConfigError(
            f"{place}: {hint!r} has no JSON schema; use str, int, float, bool, list, dict[str, ...], Literal, or one of"
            " these | None"
        )
    return made


def parsed(tools: Sequence[Tool], name: str, arguments: str) -> tuple[Tool, dict[str, Any]]:
    """Return the tool that a call means, and its arguments.

    Raises
    ------
    MalformedCallError
        When there is no such tool, or the arguments are none that it takes.
    """
    found = next((each for each in tools if each.name == name), None)
    if found is None:
        raise MalformedCallError(f"there is no tool {name!r}; there are {', '.join(each.name for each in tools)}")
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError) as error:
        raise MalformedCallError(f"the arguments of {name} are no JSON: {error}") from error
    problem = fits(value, found.schema, "the arguments")
    if problem:
        raise MalformedCallError(f"{name}: {problem}")
    return found, value


def fits(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    """Say how a value does not fit one of our own schemas; None when it does."""
    if "anyOf" in schema:
        problems = [fits(value, one, place) for one in schema["anyOf"]]
        return None if None in problems else problems[0]
    if "enum" in schema and not any(type(value) is type(one) and value == one for one in schema["enum"]):
        return f"{place} is {_shown(value)}, not one of {', '.join(map(_shown, schema['enum']))}"
    kind = schema.get("type")
    if kind is not None and not _is_a(value, kind):
        article = "an" if kind[0] in "aeio" else "a"
        return f"{place} must be {article} {kind}, not {_shown(value)}"
    if kind == "array":
        each = (fits(one, schema.get("items", {}), f"{place}[{index}]") for index, one in enumerate(value))
        return next((problem for problem in each if problem), None)
    return _object_fits(value, schema) if kind == "object" else None


def _object_fits(value: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{', '.join(missing)} is missing; it takes {', '.join(properties)}"
    others = schema.get("additionalProperties", True)
    unknown = [name for name in value if name not in properties]
    if others is False and unknown:
        return f"it takes no {', '.join(unknown)}; it takes {', '.join(properties) or 'nothing'}"
    rest = others if isinstance(others, dict) else {}
    each = (fits(one, properties.get(name, rest), name) for name, one in value.items())
    return next((problem for problem in each if problem), None)


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, PYTHON_TYPES[kind])


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 enough to find it


def as_text(result: Any) -> str:
    """Return a result as the model is told it."""
    if isinstance(result, str):
        return result
    if result is None:
        return ""
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)
