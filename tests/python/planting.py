"""Runs with a secret in every place that can hold one, and all that a folder of published files says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import agentbench
from agentbench._export import TABLES
from agentbench._hub.tables import table_of

if TYPE_CHECKING:
    from pathlib import Path

WORD = "planted"
"""Part of every secret in the first row of each table."""

SECRETS = {
    "e-mail": "jane.doe@acme-corp.example",
    "user": "janedoe",
    "home": "/home/janedoe/payroll",
    "path": "/srv/acme/ledger/main.py",
    "relative path": "ledger/secret_plans/merger.md",
    "host": "build7.acme-corp.internal",
    "private address": "10.20.30.41",
    "url": "https://git.acme-corp.internal/payroll/ledger",
    "repository": "git@github.com:acme/ledger.git",
    "key": "sk-ant-api03-Zk9xQw3Lm7Rt2Vb8Np4Hs6Jd1Gf5Yc0A",
    "password": "hunter2-Correct-Horse",
    "mcp tool": "mcp__acme_ledger__close_books",
    "own tool": "acmeDeployTool",
    "session": "3f0c9a44-77aa-4c1e-9f10-acme00112233",
    "token": "ghp_R4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0m",
}
PROMPT = "please fix the failing parser test"
"""What is no secret: it must stand in texts that leave."""


def schema_of(run: agentbench.Run, table: str) -> pa.Schema:
    """The Arrow schema of a table."""
    return pa.RecordBatchReader.from_stream(table_of(run, table)).schema


def write_run(folder: Path, tables: dict[str, list[dict[str, Any]]], **manifest: Any) -> agentbench.Run:
    """Write a run directory of these rows; columns that a row does not name are null."""
    folder.mkdir(parents=True)
    whole = {
        "format_version": 1,
        "kind": "capture",
        "run_id": "run",
        "tool_version": "0",
        "clock_anchor_ns": 0,
        "complete": True,
        **manifest,
    }
    (folder / "manifest.json").write_text(json.dumps(whole))
    empty = agentbench.Run.open(folder)
    for table, rows in tables.items():
        schema = schema_of(empty, table)
        filled = [{name: row.get(name) for name in schema.names} for row in rows]
        pq.write_table(pa.Table.from_pylist(filled, schema), folder / f"{table}.parquet", compression="zstd")
    (folder / "manifest.json").write_text(
        json.dumps({**whole, "rows": {table: len(rows) for table, rows in tables.items()}})
    )
    return agentbench.Run.open(folder)


def filled_row(schema: pa.Schema, table: str) -> dict[str, Any]:
    """A row whose every column has a value, every text a secret of its own."""
    return {field.name: _value(field.type, f"{WORD}-{table}-{field.name}") for field in schema}


def _value(kind: pa.DataType, secret: str) -> Any:
    if pa.types.is_list(kind):
        return [_value(kind.value_type, secret)]
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, f"{secret}-{field.name}") for field in kind}
    if pa.types.is_string(kind):
        return secret
    return True if pa.types.is_boolean(kind) else 7


def turn(index: int, units: list[str], **fields: Any) -> dict[str, Any]:
    """A row of `turn_traces`."""
    return {
        "run_id": "run",
        "session_id": SECRETS["session"],
        "thread_id": f"{SECRETS['session']}-main",
        "turn": index,
        "request_id": f"req_{SECRETS['user']}_{index}",
        "api": "messages",
        "kind": "main",
        "outcome": "ok",
        "engine_join": "none",
        "stream": True,
        "unit_hashes": units,
        "request_time": 1_767_603_600.25 + index,
        "response_end_time": 1_767_603_600.75 + index,
        "isl": 100 + index,
        "osl": 10,
        **fields,
    }


def planted(folder: Path) -> agentbench.Run:
    """A run with secrets in every text column, in its manifest, and in places where real ones stand."""
    scratch = write_run(folder.parent / f"{folder.name}-empty", {})
    tables = {table: [filled_row(schema_of(scratch, table), table)] for table in TABLES}
    everything = " ".join(SECRETS.values())
    message = json.dumps(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": f"{PROMPT}\n{everything}"},
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": everything},
            ],
        }
    )
    tool = json.dumps({"name": SECRETS["mcp tool"], "description": everything, "input_schema": {"type": "object"}})
    arguments = json.dumps({"file_path": SECRETS["path"], "password": SECRETS["password"], SECRETS["own tool"]: 1})
    units = {"aa" * 16: ("tool", "", tool), "bb" * 16: ("message", "user", message)}
    tables["messages"] += [
        {"hash": name, "kind": kind, "role": role, "text": text, "n_bytes": len(text)}
        for name, (kind, role, text) in units.items()
    ]
    tables["turn_traces"].append(
        turn(
            0,
            list(units),
            agent="acme-agent",
            model=f"/models/{SECRETS['user']}/llama",
            engine=f"http://{SECRETS['host']}:8000",
            path=f"/s/{SECRETS['user']}/v1/messages?key={SECRETS['key']}",
            params=json.dumps({"max_tokens": 5, "metadata": {"user_id": SECRETS["user"]}, "user": SECRETS["e-mail"]}),
            error=f"no route to {SECRETS['host']}",
            stop_reason=SECRETS["own tool"],
            changes=["model", SECRETS["user"]],
            isl_new_text=f"{tool}\n{message}",
            osl_text=f"I will read {SECRETS['path']}\nand write to {SECRETS['e-mail']}",
            reply_blocks=json.dumps([{"type": "tool_use", "name": SECRETS["mcp tool"], "input": {"q": everything}}]),
            body_template=everything,
        )
    )
    tables["tool_calls"] += [
        {
            "session_id": SECRETS["session"],
            "thread_id": f"{SECRETS['session']}-main",
            "turn": 0,
            "request_id": "req",
            "index": at,
            "call_id": f"toolu_{at}",
            "name": name,
            "arguments": arguments,
            "emitted_time": 1_767_603_601.0,
        }
        for at, name in enumerate([SECRETS["mcp tool"], SECRETS["own tool"], "Bash"])
    ]
    tables["engine_metrics"][0]["stop_reason"] = json.dumps({"stop": 2, SECRETS["user"]: 1})
    tables["levels"][0]["values"] = json.dumps({"ttft.p95<=10s": 1.5, SECRETS["host"]: 1})
    return write_run(
        folder,
        tables,
        run_id=f"{SECRETS['user']}-run",
        argv=["agentbench", "capture", "--upstream", SECRETS["url"], SECRETS["key"]],
        host={"platform": SECRETS["host"], "cpus": 2},
        engine={
            "url": SECRETS["url"],
            "name": f"{WORD}-engine",
            "version": f"0.1+{SECRETS['user']}",
            "model": f"/models/{SECRETS['user']}/llama",
        },
        dataset=SECRETS["home"],
        settings={"agents": 3, "trace": SECRETS["path"], SECRETS["user"]: 1},
        counts={"sessions": 1, SECRETS["user"]: 1},
        dropped={SECRETS["user"]: 1},
        notes=[everything],
    )


def said(folder: Path) -> str:
    """All that the files of a folder say: their names, their bytes, and what is in their tables."""
    parts: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        parts += [path.relative_to(folder).as_posix(), path.read_bytes().decode("latin-1")]
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            parts += [str(table.schema), json.dumps(table.to_pylist(), ensure_ascii=False)]
    return "\n".join(parts)
