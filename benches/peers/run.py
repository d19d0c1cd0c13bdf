"""Sets up other load generators from PyPI in environments of their own and runs them, for `cargo bench --bench peers`.

``run.py setup PEER SCRATCH`` makes the environment; ``run.py run PEER SCRATCH URL STREAMS REQUESTS CHUNKS`` sends
REQUESTS requests, STREAMS at once, and prints the TTFT p99 that the peer reports, in ms. Neither peer needs anything
but PyPI: both get a tokenizer that needs no download.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {"aiperf": "aiperf==0.13.*", "inference-perf": "inference-perf==0.7.*"}
# The Python that a peer needs at least.
PYTHONS = {"aiperf": (3, 11), "inference-perf": (3, 12)}
# Of one byte each, with the tokenizer below.
PROMPT_TOKENS = 1600
TIME_LIMIT_S = 300

TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

# ASCII alone, so that any draw of tokens is text of as many tokens.
printable = [symbol for symbol in pre_tokenizers.ByteLevel.alphabet() if symbol.isascii()]
symbols = sorted(printable) + [chr(0x120), chr(0x10A), "<end>"]
tokenizer = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(symbols)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(sys.argv[1])
"""


def main() -> None:
    """Do what the arguments say."""
    verb, peer, scratch = sys.argv[1:4]
    place = Path(scratch) / peer
    if verb == "setup":
        setup(peer, place)
    else:
        url, streams, requests, chunks = sys.argv[4], *map(int, sys.argv[5:8])
        out = place / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        peers = {"aiperf": aiperf, "inference-perf": inference_perf}
        print(peers[peer](place, out, url, streams, requests, chunks))


def setup(peer: str, place: Path) -> None:
    """Make the environment, once."""
    ready = place / "ready"
    if ready.exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    python = find_python(PYTHONS[peer])
    if python is None:
        sys.exit(f"{peer} needs Python {'.'.join(map(str, PYTHONS[peer]))} or later, and there is none")
    subprocess.run([python, "-m", "venv", place / "venv"], check=True)
    subprocess.run([place / "venv/bin/pip", "install", "--quiet", PACKAGES[peer]], check=True)
    subprocess.run([place / "venv/bin/python", "-c", TOKENIZER, place / "tokenizer"], check=True)
    ready.touch()


def find_python(least: tuple[int, int]) -> str | None:
    """An interpreter of at least that version: on the path, else one that pyenv keeps."""
    names = ("python3", *(f"python3.{minor}" for minor in range(11, 16)))
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python3")
    for name in (*names, *sorted(map(str, kept))):
        path = shutil.which(name)
        check = [path or name, "-c", f"import sys, venv, ensurepip; sys.exit(sys.version_info < {least})"]
        if path and subprocess.run(check, capture_output=True, check=False).returncode == 0:
            return path
    return None


def call(command: list[str | Path], out: Path) -> None:
    """Run a peer; what it says goes to a file, whose end is shown when it fails."""
    log = out / "log.txt"
    with log.open("w") as file:
        done = subprocess.run(
            command,
            cwd=out,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT_S,
            check=False,
        )
    if done.returncode:
        sys.exit(log.read_text()[-3000:])


def aiperf(place: Path, out: Path, url: str, streams: int, requests: int, chunks: int) -> float:
    """The p99 of ``time_to_first_token`` in its JSON export."""
    command = f"""profile --model scripted --url {url} --endpoint-type chat --streaming
        --tokenizer {place / "tokenizer"}
        --concurrency {streams} --request-count {requests} --num-prompts {streams}
        --isl {PROMPT_TOKENS} --osl {chunks}
        --use-server-token-count --no-server-metrics --no-gpu-telemetry --ui none
        --export-level summary --output-artifact-dir {out}"""
    call([place / "venv/bin/aiperf", *command.split()], out)
    report = json.loads((out / "profile_export_aiperf.json").read_text())
    return float(report["time_to_first_token"]["p99"])


def inference_perf(place: Path, out: Path, url: str, streams: int, requests: int, chunks: int) -> float:
    """The p99 of ``time_to_first_token`` in its summary report, which is in seconds."""
    config = {
        "api": {"type": "completion", "streaming": True},
        "data": {
            "type": "shared_prefix",
            "shared_prefix": {
                "num_groups": 1,
                "num_prompts_per_group": streams,
                "system_prompt_len": PROMPT_TOKENS // 2,
                "question_len": PROMPT_TOKENS // 2,
                "output_len": chunks,
            },
        },
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": requests, "concurrency_level": streams}],
            "worker_max_concurrency": streams,
        },
        "server": {"type": "vllm", "model_name": "scripted", "base_url": url},
        "tokenizer": {"pretrained_model_name_or_path": str(place / "tokenizer")},
        "storage": {"local_storage": {"path": str(out / "reports")}},
        "report": {"request_lifecycle": {"per_stage": False, "use_server_output_tokens": True}},
    }
    # JSON is YAML.
    (out / "config.yml").write_text(json.dumps(config))
    call([place / "venv/bin/inference-perf", "--config_file", out / "config.yml"], out)
    report = json.loads(next((out / "reports").rglob("summary_lifecycle_metrics.json")).read_text())
    return float(report["successes"]["latency"]["time_to_first_token"]["p99"]) * 1e3


if __name__ == "__main__":
    main()
