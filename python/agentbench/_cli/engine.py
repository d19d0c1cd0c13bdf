"""``agentbench engine``: the embedded simulated engine as a server of its own."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import click

from agentbench import SPEEDS, SimulatedEngine

from .console import print_note

REST_SECONDS = 0.2


@click.command("engine")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 picks a free one.")
@click.option("--speed", type=click.Choice(SPEEDS), default=SPEEDS[0], show_default=True, help="The cost model.")
@click.option("--model", help="The name of the model that it serves.  [default: agentbench-sim]")
@click.option(
    "--script", type=click.Path(path_type=Path), help="Answers to give, tool calls and text.  [default: filler]"
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="A tokenizer.json to count tokens by.  [default: 4 bytes a token]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same text.")
@click.option("--kv-blocks", type=click.IntRange(min=1), help="KV blocks of 16 tokens.  [default: the profile's]")
@click.option(
    "--max-model-len",
    type=click.IntRange(min=1),
    help="Longest prompt plus output in tokens.  [default: the profile's]",
)
@click.option(
    "--max-num-seqs", type=click.IntRange(min=1), help="Most sequences in one step.  [default: the profile's]"
)
@click.option(
    "--max-num-batched-tokens",
    type=click.IntRange(min=1),
    help="Most tokens computed in one step.  [default: the profile's]",
)
def command(**settings: Any) -> None:
    """Serve the embedded engine until Ctrl-C.

    It simulates a vLLM server by a cost model: its figures say nothing about any hardware.
    """
    with SimulatedEngine(**settings) as engine:
        print_note(f"SIMULATED engine ({settings['speed']}) at {engine.url}; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(REST_SECONDS)
