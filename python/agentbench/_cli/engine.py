"""``agentbench engine``: the embedded simulated engine as a server of its own."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import click

from agentbench import SPEEDS, SimulatedEngine

from .console import print_note

REST_SECONDS = 0.2


@click.command("engine")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 picks a free one.")
@click.option("--speed", type=click.Choice(SPEEDS), default=SPEEDS[0], show_default=True, help="The cost model.")
@click.option("--model", default="simulated", show_default=True, help="The name of the model that it serves.")
@click.option("--script", type=click.Path(path_type=Path), help="Answers to give instead of filler: tool calls, text.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json to count tokens by.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same text.")
def command(
    host: str, port: int, speed: str, model: str, script: Path | None, tokenizer: Path | None, seed: int
) -> None:
    """Serve the embedded engine until Ctrl-C.

    It simulates a vLLM server by a cost model: its figures say nothing about any hardware.
    """
    engine = SimulatedEngine(
        host=host, port=port, speed=speed, model=model, script=script, tokenizer=tokenizer, seed=seed
    )
    with engine:
        print_note(f"SIMULATED engine ({speed}) serves {model} at {engine.url}; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(REST_SECONDS)
