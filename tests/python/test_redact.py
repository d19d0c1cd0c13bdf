"""What a recording keeps to itself: secrets always, and with `redact` addresses, names and keys in texts."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.python.traffic import agentbench as run_command
from tests.python.traffic import encoded, messages_body, send

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ghp_A1b2C3d4E5f6G7h8I9j0A1b2C3d4E5f6G7h8"


def texts_of(run: Path) -> dict[str, str]:
    """Everything that a run directory says, tables as the rows that they hold."""
    opened = agentbench.Run.open(run)
    tables = [opened.turns(), opened.messages(), opened.tool_calls(), opened.engine(), opened.engine_samples()]
    texts = {f"table {number}": str(table.to_polars().to_dicts()) for number, table in enumerate(tables)}
    return texts | {file.name: file.read_bytes().decode(errors="replace") for file in run.iterdir()}


def test_secrets_of_every_place_stay_out(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    host = engine.url.removeprefix("http://")
    talk = (
        "import os, urllib.request as u\n"
        'body = b\'{"model": "agentbench-sim", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]}\'\n'
        "names = ['Authorization', 'X-Api-Key', 'Cookie', 'Proxy-Authorization', 'Api-Key', 'X-Goog-Api-Key']\n"
        "headers = {name: 'Bearer s3cret-header' for name in names}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions?api_key=s3cret-query&sig=s3cret-query'\n"
        "u.urlopen(u.Request(url, data=body, headers=headers)).read()\n"
    )
    metrics = f"http://user:s3cret-password@{host}/metrics?token=s3cret-token"
    out = tmp_path / "run"
    script = tmp_path / "talk.py"
    script.write_text(talk)
    where: list[str | Path] = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", out]
    done = run_command(
        "capture", *where, "--metrics-url", metrics, "--", sys.executable, script, "https://h/?sig=s3cret"
    )
    assert done.returncode == 0, done.stderr
    assert len(agentbench.Run.open(out).turns()) == 1
    assert len(agentbench.Run.open(out).engine_samples()) > 0
    for place, text in texts_of(out).items():
        assert "s3cret" not in text, place
    modes = {stat.S_IMODE(file.stat().st_mode) for file in out.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(out.stat().st_mode) == 0o700


def test_a_redacted_run_says_so_and_holds_masks(
    engine: agentbench.SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "alice-m")
    told = f"alice-m@example.com of /home/alice-m/proj said {KEY}"
    out = tmp_path / "run"
    with agentbench.Proxy(engine.url, out=out, redact=True, argv=["x", "/home/alice-m/out"]) as proxy:
        for texts in ([told], [told, "yes", "on as alice-m"]):
            assert send(f"{proxy.url}/s/alice-m/v1/messages", encoded(messages_body(texts))).status == 200
    run = agentbench.Run.open(out)
    for where, text in texts_of(out).items():
        for secret in ("alice-m", KEY):
            assert secret not in text, where
    manifest = run.manifest
    assert manifest["redacted"]
    counts = {name: value for name, value in manifest["counts"].items() if name.startswith("redacted_")}
    assert counts == {
        "redacted_email": 1,
        "redacted_key": 1,
        "redacted_user": 1,
        "redacted_host": 0,
        "redacted_account": 0,
    }
    assert any(note.startswith("redacted: ") for note in manifest["notes"])
    name = manifest["argv"][1].split("/")[2]
    assert name.startswith("redacted-user-")
    turns = run.turns().to_polars().sort("request_time")
    assert turns["session_id"].to_list() == [name, name]
    first, second = turns["unit_hashes"].to_list()
    assert second[: len(first)] == first
    # Tokens are the engine's: of the text as it was sent, which the masks make longer.
    sent = send(f"{engine.url}/v1/messages", encoded(messages_body([told], stream=False)))
    usage = json.loads(sent.body)["usage"]
    assert turns["isl"][0] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    replayed = agentbench.replay(run, url=engine.url, agents=1, trajectories=1, out=tmp_path / "again", power="none")
    assert any("the recording is redacted" in note for note in replayed.manifest["notes"])


def test_without_it_texts_stay(captured_plain: agentbench.Run) -> None:
    assert not captured_plain.manifest["redacted"]
    assert KEY in captured_plain.turns().to_polars()["isl_new_text"][0]


@pytest.fixture
def captured_plain(engine: agentbench.SimulatedEngine, tmp_path: Path) -> agentbench.Run:
    with agentbench.Proxy(engine.url, out=tmp_path / "run") as proxy:
        send(f"{proxy.url}/v1/messages", encoded(messages_body([KEY])))
        return proxy.stop()


def test_names_of_this_machine_are_found() -> None:
    code = "from agentbench._host import names; print(names())"
    environment = os.environ | {"LOGNAME": "bob-x", "HOME": "/data/people/bob-home"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "'bob-x'" in done.stdout
    assert "'bob-home'" in done.stdout
    assert os.uname().nodename.partition(".")[0] in done.stdout
