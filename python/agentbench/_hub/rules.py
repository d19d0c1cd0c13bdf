"""What each rule of `columns` makes of a column, batch by batch, as Arrow arrays.

Every rule is a function of values alone (and of the salt), but for two that follow the rows: times move by their
session, and hashes are chained over the prompt. A rule gives null, or leaves out, what it does not know.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from . import words
from .salt import OWN_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .masks import TextMasks
    from .salt import Salt

EPOCH_FROM = 1e8
"""Times above are of the Unix epoch."""
MODEL_LENGTH = 80
TOOL_DIGITS = 10
MCP_PARTS = 3


class Rules:
    """The rules of one data set.

    Parameters
    ----------
    salt
        The user's.
    public
        Names of tools, models and agents that the user calls public.
    shift_times
        Whether times are moved.
    masks
        Masks of texts; None at the levels without.
    """

    def __init__(
        self, salt: Salt, *, public: Iterable[str] = (), shift_times: bool = False, masks: TextMasks | None = None
    ) -> None:
        self.salt = salt
        self.public = frozenset(public)
        self.shift_times = shift_times
        self.masks = masks
        self.chains = Chains(salt)
        self._of_column: dict[str, Callable[[str, pa.RecordBatch], pa.Array]] = {
            "number": self._number,
            "link": self._link,
            "time": self._time,
            "chain": self.chains.column,
            "attempts": self._attempts,
            "masked_attempts": self._masked_attempts,
        }
        self._of_value: dict[str, Callable[[str], str | None]] = {
            "tool": self.tool,
            "model": self.model,
            "agent": self.agent,
            "path": path,
            "parameters": parameters,
            "conditions": conditions,
            "shape": self.shape,
            "unit": salt.hash,
            "text": lambda text: text,
        }
        if masks is not None:
            self._of_value |= {"masked": masks.lines}

    def apply(self, rule: str, field: str, batch: pa.RecordBatch) -> pa.Array:
        """Return the column of that name as it leaves by a rule."""
        name, _, argument = rule.partition(":")
        if name in self._of_column:
            return self._of_column[name](field, batch)
        column = batch.column(field)
        if name == "text" and not _is_text(column.type):
            return column
        function = self._function(name, argument)
        return _each_list(column, function) if pa.types.is_list(column.type) else _each(column, function)

    def _function(self, name: str, argument: str) -> Callable[[str], str | None]:
        """Return what a rule makes of one value."""
        if name == "name":
            return lambda value: self.salt.name(argument, value)
        if name in {"word", "words"}:
            return lambda value: value if value in words.WORDS[argument] else None
        if name == "tally":
            return lambda value: tally(value, words.WORDS[argument])
        return self._of_value[name]

    def tool(self, name: str) -> str:
        """Return a tool's name as it leaves: an MCP tool keeps that it is one, and which share a server."""
        if name in words.TOOLS or name in self.public:
            return name
        parts = name.split("__", MCP_PARTS - 1)
        if parts[0] == "mcp" and len(parts) == MCP_PARTS:
            server = self.salt.name("mcp", parts[1], TOOL_DIGITS)
            return f"{server}-{self.salt.digest('tool', name).hex()[:TOOL_DIGITS]}"
        return self.salt.name("tool", name, TOOL_DIGITS)

    def model(self, name: str) -> str:
        """Return a model's name as it leaves."""
        is_public = len(name) <= MODEL_LENGTH and words.MODEL.fullmatch(name) is not None
        return name if is_public or name in self.public else self.salt.name("model", name)

    def agent(self, name: str) -> str:
        """Return an agent's name as it leaves."""
        return name if name in words.WORDS["agent"] or name in self.public else self.salt.name("agent", name)

    def shape(self, text: str) -> str:
        """Return a unit without its content: its role and the kinds of its blocks, or the tool that it describes."""
        try:
            unit = json.loads(text)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(unit, dict):
            return ""
        left = {name: unit[name] for name in ("role", "type") if _is_word(name, unit.get(name))}
        function = unit.get("function")
        named = unit if isinstance(unit.get("name"), str) else function if isinstance(function, dict) else {}
        if isinstance(named.get("name"), str) and "role" not in unit:
            left["name"] = self.tool(named["name"])
        content = unit.get("content")
        if isinstance(content, list):
            left["content"] = [_block(block) for block in content]
        elif isinstance(content, str):
            left["content"] = ""
        if isinstance(unit.get("tool_calls"), list):
            left["tool_calls"] = [{"type": "function"} for _ in unit["tool_calls"]]
        return json.dumps(left, separators=(",", ":"))

    def _number(self, field: str, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(field)
        # A column that came with another type than its own holds what nobody has thought about.
        return column if _is_number(column.type) else pa.nulls(len(column), column.type)

    def _link(self, field: str, batch: pa.RecordBatch) -> pa.Array:
        column = self._number(field, batch)
        return pa.nulls(len(column), column.type) if self.shift_times else column

    def _time(self, field: str, batch: pa.RecordBatch) -> pa.Array:
        column = self._number(field, batch)
        if not self.shift_times or not pa.types.is_floating(column.type):
            return column
        if "session_id" not in batch.schema.names:
            return _moved(column, pa.scalar(float(self.salt.shift_s(OWN_SHIFT))))
        sessions = batch.column("session_id").dictionary_encode(null_encoding="encode")
        offsets = [float(self.salt.shift_s(session or "")) for session in sessions.dictionary.to_pylist()]
        return _moved(column, pa.array(offsets, pa.float64()).take(sessions.indices))

    def _attempts(self, field: str, batch: pa.RecordBatch) -> pa.Array:
        return _attempts(batch.column(field), lambda _: None)

    def _masked_attempts(self, field: str, batch: pa.RecordBatch) -> pa.Array:
        masked = self._of_value["masked"]
        return _attempts(batch.column(field), lambda text: text and masked(text))


class Chains:
    """Salted hashes of a prompt's blocks (its units, or its blocks of tokens), each over all those before it.

    Equal beginnings of two prompts have equal hashes, in whatever session they stand; equal blocks after unequal ones
    do not. What each hash of a unit stands for is kept, for the table of units.
    """

    def __init__(self, salt: Salt) -> None:
        self._salt = salt
        self._last: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
        self.units: dict[str, str] = {}

    def column(self, field: str, batch: pa.RecordBatch) -> pa.Array:
        """Return a column of hashes, chained row by row."""
        threads = batch.column("thread_id").to_pylist()
        kind = "units" if field == "unit_hashes" else "blocks"
        rows = batch.column(field).to_pylist()
        chained = [row and self.chain(kind, thread, row) for thread, row in zip(threads, rows, strict=True)]
        return pa.array(chained, pa.list_(pa.string()))

    def chain(self, kind: str, thread: str, hashes: list[str]) -> list[str]:
        """Return the chained hashes of one prompt; a thread's prompt mostly goes on from the one before."""
        before, chained_before = self._last.get((kind, thread), ([], []))
        same = len(before) if hashes[: len(before)] == before else _common(before, hashes)
        chained = chained_before[:same]
        previous = chained[-1] if chained else kind
        for value in hashes[same:]:
            previous = self._salt.chained(previous, value)
            chained.append(previous)
            if kind == "units":
                self.units.setdefault(previous, value)
        self._last[kind, thread] = (hashes, chained)
        return chained


def path(text: str) -> str | None:
    """Return the path of the API that a request's path ends with."""
    plain = text.partition("?")[0].rstrip("/")
    match = next((match for match in words.API_PATH.finditer(plain) if match.end() == len(plain)), None)
    return match[0] if match else None


def parameters(text: str) -> str | None:
    """Return the request fields that leave, as a JSON object."""
    value = _object(text)
    return None if value is None else json.dumps(words.kept(value, words.PARAMETERS), separators=(",", ":"))


def tally(text: str, known: frozenset[str]) -> str | None:
    """Return counts by known words, all others as one."""
    value = _object(text)
    if value is None:
        return None
    left: dict[str, float] = {}
    for name, count in value.items():
        if words.fits(count, float):
            word = name if name in known else "other"
            left[word] = left.get(word, 0) + count
    return json.dumps(left, separators=(",", ":"))


def conditions(text: str) -> str | None:
    """Return the values by condition of a service level."""
    value = _object(text)
    if value is None:
        return None
    left = {
        name: figure
        for name, figure in value.items()
        if words.CONDITION.fullmatch(name) and (figure is None or words.fits(figure, float))
    }
    return json.dumps(left, separators=(",", ":"))


def _moved(column: pa.Array, offsets: pa.Array | pa.Scalar) -> pa.Array:
    """Return times moved; those of a source's own clock, which begins at 0, tell no date and stay."""
    return pc.if_else(pc.greater(column, EPOCH_FROM), pc.add(column, offsets), column)


def _attempts(column: pa.Array, left: Callable[[str | None], str | None]) -> pa.Array:
    """Return attempts with what is left of their errors."""
    rows = [row and [{**attempt, "error": left(attempt["error"])} for attempt in row] for row in column.to_pylist()]
    return pa.array(rows, column.type)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _block(block: object) -> dict[str, str]:
    kind = block.get("type") if isinstance(block, dict) else None
    return {"type": kind if isinstance(kind, str) and kind in words.WORDS["block"] else "other"}


def _is_word(name: str, value: object) -> bool:
    return isinstance(value, str) and value in words.WORDS["role" if name == "role" else "block"]


def _common(first: list[str], second: list[str]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_number(kind.value_type)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _each(column: pa.Array, function: Callable[[str], str | None]) -> pa.Array:
    """Apply a function to each distinct value of a column of texts."""
    if not _is_text(column.type):
        return pa.nulls(len(column), pa.string())
    encoded = column.dictionary_encode()
    made = pa.array([function(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return made.take(encoded.indices)


def _each_list(column: pa.Array, function: Callable[[str], str | None]) -> pa.Array:
    """Do the same within lists; what the function gives no value for is left out."""
    known: dict[str, str | None] = {}

    def made(value: str) -> str | None:
        if value not in known:
            known[value] = function(value)
        return known[value]

    rows = [
        None if row is None else [word for word in map(made, row) if word is not None] for row in column.to_pylist()
    ]
    return pa.array(rows, pa.list_(pa.string()))
