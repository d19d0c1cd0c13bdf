"""What leaves at each level: nothing that is planted anywhere, and of hashes and times what they must keep."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.python.planting import PROMPT, SECRETS, WORD, filled_row, planted, said, schema_of, turn, write_run

import agentbench
from agentbench._hub import columns, forms, words
from agentbench._hub.detectors import Detectors
from agentbench._hub.gate import Gate
from agentbench._hub.masks import TextMasks
from agentbench._hub.rules import Chains, Rules, tally
from agentbench._hub.salt import Salt

if TYPE_CHECKING:
    from pathlib import Path

SALT = Salt(b"a" * 32)
# The end of an address is a public word; of the rest nothing may be left.
PARTS = ("acme", "jane", "payroll", "ledger", "hunter2", "build7", "10.20.30.41", "sk-ant", "ghp_", "secret_plans")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> agentbench.Run:
    return planted(tmp_path_factory.mktemp("planted") / "run")


@pytest.fixture
def salt_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret" / "salt"
    path.parent.mkdir()
    path.write_text("0123456789abcdef" * 4)
    path.chmod(0o600)
    return path


def written(run: agentbench.Run, folder: Path, salt_file: Path, **settings: Any) -> agentbench.Push:
    return agentbench.push(run, repo="owner/name", license="odc-by", dry_run=folder, salt_file=salt_file, **settings)


@pytest.mark.parametrize("level", ["counts", "hashes"])
@pytest.mark.parametrize("shift_times", [False, True])
def test_nothing_planted_leaves_without_text(
    run: agentbench.Run, tmp_path: Path, salt_file: Path, level: str, *, shift_times: bool
) -> None:
    done = written(run, tmp_path / "out", salt_file, level=level, shift_times=shift_times)
    assert done.findings == []
    text = said(tmp_path / "out").lower()
    left = [secret for secret in (WORD, PROMPT, *SECRETS.values(), *PARTS) if secret.lower() in text]
    assert left == []
    assert set(done.rows) == set(columns.TABLES) - ({"messages"} if level == "counts" else set())
    assert done.rows["turn_traces"] == 2


def test_texts_leave_with_masks(run: agentbench.Run, tmp_path: Path, salt_file: Path) -> None:
    done = written(run, tmp_path / "out", salt_file, level="text-redacted", mask=[WORD, "acme", "janedoe"])
    assert done.findings == []
    text = said(tmp_path / "out")
    assert PROMPT in text
    left = [secret for secret in (WORD, *SECRETS.values(), *PARTS) if secret.lower() in text.lower()]
    assert left == []
    turns = pq.read_table(tmp_path / "out/data/turn_traces-00000-of-00001.parquet").to_pylist()
    units = pq.read_table(tmp_path / "out/data/messages-00000-of-00001.parquet").to_pylist()
    # The same unit has the same masks wherever it stands, and what was JSON still is.
    last = units[-1]["text"]
    assert turns[1]["isl_new_text"].endswith(last)
    assert json.loads(last)["content"][0]["text"].startswith(f"{PROMPT}\nredacted-email-")
    assert turns[1]["unit_hashes"] == [unit["hash"] for unit in units[1:]]


def test_whatever_is_marked_as_private_is_masked_without_being_named(
    run: agentbench.Run, tmp_path: Path, salt_file: Path
) -> None:
    done = written(run, tmp_path / "out", salt_file, level="text-redacted", mask=[WORD])
    assert done.findings == []
    text = said(tmp_path / "out")
    assert [name for name, secret in SECRETS.items() if secret in text] == []


def test_the_gate_stops_a_text_with_secrets(run: agentbench.Run, tmp_path: Path, salt_file: Path) -> None:
    done = written(run, tmp_path / "out", salt_file, level="text")
    rules = {finding.rule for finding in done.findings}
    assert {"email", "key", "home_path", "private_address", "secret_secret_keyword"} <= rules
    assert done.sent is None
    for finding in done.findings:
        assert all(secret not in finding.excerpt for secret in SECRETS.values())
    key = next(one for one in done.findings if one.rule == "key")
    assert key.file == "data/messages-00000-of-00001.parquet"
    assert key.column == "text"
    assert key.row == 1


def test_findings_are_allowed_by_id_and_by_rule(run: agentbench.Run, tmp_path: Path, salt_file: Path) -> None:
    first = written(run, tmp_path / "first", salt_file, level="text")
    emails = [one for one in first.findings if one.rule == "email"]
    second = written(run, tmp_path / "second", salt_file, level="text", allow=[emails[0].id])
    assert {one.id for one in second.allowed} == {emails[0].id}
    third = written(run, tmp_path / "third", salt_file, level="text", allow=[one.rule for one in first.findings])
    assert third.findings == []
    assert {one.id for one in third.allowed} == {one.id for one in first.findings}


def test_a_column_that_is_not_listed_does_not_leave(
    run: agentbench.Run, tmp_path: Path, salt_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [column for column in columns.TABLES["turn_traces"] if column.name != "http_status"]
    monkeypatch.setitem(columns.TABLES, "turn_traces", listed)
    for level in columns.LEVELS:
        written(run, tmp_path / level, salt_file, level=level)
        names = pq.read_schema(tmp_path / level / "data/turn_traces-00000-of-00001.parquet").names
        assert "http_status" not in names
        assert "isl" in names


def test_every_value_has_the_form_that_the_gate_asks_for(run: agentbench.Run) -> None:
    rules = Rules(SALT)
    for table in columns.TABLES:
        schema = schema_of(run, table)
        if table == "messages":
            # Its hashes are chained in the turns.
            schema = schema.remove(schema.get_field_index("hash"))
        batch = pa.RecordBatch.from_pylist([filled_row(schema, table)], schema)
        for level in ("counts", "hashes"):
            for name, rule in columns.leaving(table, level):
                if name not in schema.names:
                    continue
                holds = forms.of(rule, frozenset())
                for value in rules.apply(rule, name, batch).to_pylist():
                    if rule in forms.NUMBERS:
                        assert not isinstance(value, str), (table, name)
                    elif value is not None and holds is not None:
                        assert holds(value), (table, name, value)


def test_the_gate_refuses_what_a_rule_let_through(tmp_path: Path, salt_file: Path) -> None:
    run = write_run(tmp_path / "run", {"turn_traces": [turn(0, [])]})
    written(run, tmp_path / "out", salt_file)
    path = tmp_path / "out/data/turn_traces-00000-of-00001.parquet"
    table = pq.read_table(path)
    bad = table.set_column(table.schema.get_field_index("session_id"), "session_id", pa.array(["my-session"]))
    bad = bad.append_column("comment", pa.array(["hello"]))
    pq.write_table(bad, path)
    found = Gate(SALT, Detectors(), level="counts", known=("hf://datasets/owner/name",)).scan(tmp_path / "out")
    # pyarrow keeps a schema of its own in the file unless told not to.
    assert {(one.rule, one.column) for one in found} == {
        ("form", "session_id"),
        ("unknown_column", "comment"),
        ("unknown_metadata", None),
    }


@given(
    st.lists(st.text("abc", min_size=1), max_size=8),
    st.lists(st.text("abc"), max_size=4),
    st.lists(st.text("abc"), max_size=4),
)
def test_equal_beginnings_have_equal_hashes(common: list[str], one: list[str], other: list[str]) -> None:
    first, second = common + one, common + other
    shared = next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    chains = Chains(SALT)
    # Whether rows of a thread or of two, in one run or in two.
    left, right = chains.chain("units", "x", first), chains.chain("units", "x", second)
    assert Chains(SALT).chain("units", "y", second) == right
    assert left[:shared] == right[:shared]
    assert set(left[shared:]).isdisjoint(right[shared:])
    assert set(Chains(Salt(b"b" * 32)).chain("units", "x", first)).isdisjoint(left)
    assert set(left).isdisjoint([*first, *second])


def test_sharing_survives_in_the_tables(tmp_path: Path, salt_file: Path) -> None:
    system, ask, answer = ("11" * 16, "22" * 16, "33" * 16)
    texts = {system: "system", ask: "ask", answer: "answer"}
    rows = [
        turn(0, [system, ask]),
        turn(1, [system, ask, answer]),
        {**turn(0, [ask, system]), "session_id": "other", "thread_id": "other"},
        {**turn(1, [system, ask]), "session_id": "third", "thread_id": "third"},
    ]
    units = [
        {
            "hash": name,
            "kind": "message",
            "role": "user",
            "text": json.dumps({"role": "user", "content": text}),
            "n_bytes": 40,
        }
        for name, text in texts.items()
    ]
    run = write_run(tmp_path / "run", {"turn_traces": rows, "messages": units})
    written(run, tmp_path / "out", salt_file, level="hashes")
    opened = agentbench.Run.open(tmp_path / "out")
    hashes = pa.table(opened.turns()).column("unit_hashes").to_pylist()
    assert hashes[1][:2] == hashes[0] == hashes[3]
    assert set(hashes[2]).isdisjoint(hashes[0])
    messages = pa.table(opened.messages()).to_pylist()
    assert [row["hash"] for row in messages] == [*hashes[1], *hashes[2]]
    assert {row["text"] for row in messages} == {'{"role":"user","content":""}'}
    assert {row["n_bytes"] for row in messages} == {40}


def test_moved_times_keep_every_gap(tmp_path: Path, salt_file: Path) -> None:
    rows = [turn(at, []) | {"session_id": session} for session in ("a", "b") for at in range(3)]
    call = {"session_id": "a", "thread_id": "a", "turn": 1, "request_id": "x", "index": 0, "name": "Bash"}
    run = write_run(
        tmp_path / "run", {"turn_traces": rows, "tool_calls": [{**call, "emitted_time": rows[1]["response_end_time"]}]}
    )
    written(run, tmp_path / "out", salt_file, shift_times=True)
    opened = agentbench.Run.open(tmp_path / "out")
    turns = pa.table(opened.turns()).to_pandas()
    recorded = [row["request_time"] for row in rows[:3]]
    offsets = set()
    for session, group in turns.groupby("session_id"):
        moved = group["request_time"].tolist()
        assert [b - a for a, b in pairwise(moved)] == [1.0, 1.0]
        assert (group["response_end_time"] - group["request_time"]).tolist() == [0.5] * 3
        offsets.add(moved[0] - recorded[0])
        if session == pseudonym_of_a(salt_file):
            emitted = pa.table(opened.tool_calls()).column("emitted_time").to_pylist()
            assert emitted == [group["response_end_time"].tolist()[1]]
    assert len(offsets) == 2
    assert 0.0 not in offsets
    # The run's own clock moves too, by whole seconds.
    anchor = run.manifest["clock_anchor_ns"]
    assert opened.manifest["clock_anchor_ns"] != anchor
    assert (opened.manifest["clock_anchor_ns"] - anchor) % 10**9 == 0


def test_times_of_a_clock_that_begins_at_0_stay(tmp_path: Path, salt_file: Path) -> None:
    row = turn(0, [], request_time=0.1, response_end_time=None)
    run = write_run(tmp_path / "run", {"turn_traces": [row]})
    written(run, tmp_path / "out", salt_file, shift_times=True)
    left = pq.read_table(tmp_path / "out/data/turn_traces-00000-of-00001.parquet").to_pylist()[0]
    assert (left["request_time"], left["response_end_time"]) == (0.1, None)


def pseudonym_of_a(salt_file: Path) -> str:
    return Salt(salt_file.read_bytes().strip()).name("session", "a")


@pytest.mark.parametrize(
    ("name", "leaves"),
    [
        ("claude-opus-4-5-20251101", True),
        ("claude-3-5-sonnet-20241022", True),
        ("gpt-5.1-codex-max", True),
        ("gpt-4o-mini-2024-07-18", True),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", True),
        ("deepseek-ai/DeepSeek-V3.1", True),
        ("openai/gpt-oss-120b", True),
        ("meta-llama/Llama-3.1-8B-Instruct", True),
        ("ft:gpt-4o-2024-08-06:acme::x1", False),
        ("gpt-4o-acme", False),
        ("/models/janedoe/llama", False),
        ("acme/llama-3-8b", False),
        ("claude-janedoe", False),
    ],
)
def test_names_of_public_models_leave(name: str, *, leaves: bool) -> None:
    assert (Rules(SALT).model(name) == name) is leaves


def test_tools_of_a_server_share_a_part_of_their_pseudonyms() -> None:
    rules = Rules(SALT, public=["mcp__docs__search"])
    first, second, other = (rules.tool(f"mcp__{name}") for name in ("acme__read", "acme__write", "beta__read"))
    assert first.rpartition("-")[0] == second.rpartition("-")[0] != other.rpartition("-")[0]
    assert len({first, second, other}) == 3
    assert rules.tool("mcp__docs__search") == "mcp__docs__search"
    assert rules.tool("Bash") == "Bash"
    assert rules.tool("deploy").startswith("tool-")


def test_counts_by_words_keep_their_sum() -> None:
    assert json.loads(tally('{"stop": 2, "x": 1, "y": 3}', words.WORDS["stop_reason"]) or "") == {"stop": 2, "other": 4}
    assert tally("stop", words.WORDS["stop_reason"]) is None


def test_a_salt_is_drawn_once_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    run = write_run(tmp_path / "run", {"turn_traces": [turn(0, [])]})

    def push(folder: str, **settings: Any) -> agentbench.Push:
        return agentbench.push(run, repo="owner/name", license="odc-by", dry_run=tmp_path / folder, **settings)

    first, second = push("first"), push("second")
    assert (first.salt_is_new, second.salt_is_new) == (True, False)
    assert first.salt_file == tmp_path / "config/agentbench/salt"
    assert first.salt_file.stat().st_mode & 0o777 == 0o600
    assert first.sample == second.sample
    first.salt_file.chmod(0o644)
    with pytest.raises(agentbench.ConfigError, match="chmod 600"):
        push("third")
    with pytest.raises(agentbench.ConfigError, match="must not lie in"):
        push("third", salt_file=tmp_path / "run/salt")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"repo": "name"}, "OWNER/NAME"),
        ({"repo": "owner/a--b"}, "OWNER/NAME"),
        ({"dry_run": agentbench.sample_trace() / "out"}, "lies in the run"),
        ({"dry_run": agentbench.sample_trace().parent}, "not an empty folder"),
        ({"license": "mine"}, "cc-by-4.0"),
        ({"level": "all"}, "counts, hashes"),
        ({"shard_mb": 0}, "at least 1"),
    ],
)
def test_wrong_settings_say_what_is_right(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    wanted: dict[str, Any] = {"repo": "owner/name", "license": "odc-by", "dry_run": tmp_path / "out", **settings}
    with pytest.raises(agentbench.ConfigError, match=text):
        agentbench.push(agentbench.sample_trace(), **wanted)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see /home/jane/x.py now", "see redacted-path now"),
        ("C:\\Users\\jane\\x.py", "redacted-path"),
        ("in src/app/main.rs:12", "in redacted-path:12"),
        ("-rw-r--r-- 1 jane devs 12 Jun 1 a.py", "-rw-r--r-- 1 redacted-owner 12 Jun 1 a.py"),
        ("drwxr-xr-x 3 root root 12 Jun 1 a.py", "drwxr-xr-x 3 root root 12 Jun 1 a.py"),
        ("Author: Jane Q. Doe <jane@acme.com>", "Author: redacted-person <redacted-email>"),
        ("ssh jane@build7:/srv", "ssh redacted-repository"),
        (
            "at 192.168.7.9 and 8.8.8.8, not 127.0.0.1",
            "at redacted-private_address and redacted-address, not 127.0.0.1",
        ),
        ("version 1.2.3 of a/b testing and/or more", "version 1.2.3 of a/b testing and/or more"),
        ("call os.path.join, self.run and x = a / b / c", "call os.path.join, self.run and x = a / b / c"),
        ("fetch https://x.acme.io/a?b=c.", "fetch redacted-url"),
        ("api.acme.io answers", "redacted-host answers"),
        ("use mcp__acme__deploy", "use redacted-mcp"),
        ("sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "sha redacted-random"),
        (
            '{"a":"x\\n/home/jane/y","password":"tr0ub4dor&3"}',
            '{"a":"x\\nredacted-path","password":"redacted-secret_secret_keyword"}',
        ),
        (
            "key: 'sk-ant-api03-Zk9xQw3Lm7Rt2Vb8Np4Hs6Jd1Gf5Yc0A'  # pragma: allowlist secret",
            "key: 'redacted-key'  # pragma: allowlist secret",
        ),
    ],
)
def test_what_is_masked_and_what_is_not(text: str, left: str) -> None:
    masks = TextMasks(SALT, Detectors(), {})
    once = masks.lines(text)
    assert re.sub(r"(redacted-[a-z_]+)-[0-9a-f]{10}", r"\1", once) == left
    # The gate finds nothing in what was masked, and masking it again changes nothing.
    assert list(Detectors().find(once)) == []
    assert masks.lines(once) == once


@given(st.text())
def test_masked_json_is_json(text: str) -> None:
    masks = TextMasks(SALT, Detectors(), {})
    whole = json.dumps({"role": "user", "content": [{"type": "text", "text": text}]})
    assert json.loads(masks.lines(whole))["content"][0]["type"] == "text"
