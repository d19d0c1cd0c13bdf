"""Makes a tiny checkpoint with which a real vLLM drives real coding agents on a CPU.

Nothing is learned and nothing downloaded: the weights are written so that the next token depends on
the current one alone. What the model does is therefore chosen by the chat template, which ends the prompt with
an opening token for the tools that the request offers: Claude Code's `Bash`, Codex' `exec_command`, the `bash`
of OpenCode and of mini-swe-agent, the `shell` and `edit` of our own live agents. After it the model either calls
that tool with one of a few harmless commands or says that it is done. Marks in a user's text change the one answer
that follows: `[[spawn]]` starts two subagents where the agent has such a tool, `[[sleep]]` sleeps two seconds,
`[[say]]` talks. Without tools it talks.

Which command, and whether the end has come, is left to vLLM's sampling, so the lengths of the sessions differ
from run to run; what the tests assert holds for any length.

Run with the Python of the vLLM environment: make_tiny_model.py FOLDER
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN = 256
HEAD_DIM = 32
MLP = 128
CALL_PROBABILITY = 0.7
FAREWELL = ("The task", " has been", " looked at", " and is", " finished.")
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOOL_MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
SLEEP_SECONDS = 2
PLAIN = "<|say|>"


def call(tool: str, arguments: dict[str, str]) -> str:
    """A call as the template writes it, but for the mark that ends it."""
    return f"{call_start(tool)}{json.dumps(arguments)}}}"


def call_start(tool: str) -> str:
    """A call's beginning, up to its arguments."""
    return f'<tool_call>{{"name": "{tool}", "arguments": '


@dataclass(frozen=True)
class Behaviour:
    """What follows an opening: a call that begins with `start` and goes on with one of `calls`, or a farewell."""

    opening: str
    start: str
    calls: tuple[str, ...]
    call_probability: float = CALL_PROBABILITY


def commands(tool: str, name: str, *, described: bool) -> tuple[str, ...]:
    """The calls of a shell tool from their arguments on: one of two commands, or both at once."""
    listing = {name: "ls -la"} | ({"description": "List files"} if described else {})
    reading = {name: "cat app.py"} | ({"description": "Show the file"} if described else {})
    # The brace that closes a call belongs to its token.
    both = json.dumps(listing) + "}</tool_call>" + call(tool, reading)
    return (json.dumps(listing) + "}", json.dumps(reading) + "}", both)


def sleeping(tool: str, name: str, *, described: bool) -> Behaviour:
    arguments = {name: f"sleep {SLEEP_SECONDS}"} | ({"description": "Wait"} if described else {})
    return Behaviour(f"<|sleep:{tool}|>", call(tool, arguments), ("</tool_call>",), 1.0)


def spawning(tool: str, **arguments: str) -> Behaviour:
    """Two subagents in one answer, told to sleep."""
    first, second = (
        call(tool, {key: text.replace("%", which) for key, text in arguments.items()}) for which in ("one", "two")
    )
    return Behaviour(f"<|spawn:{tool}|>", f"{first}</tool_call>{second}", ("</tool_call>",), 1.0)


SUBTASK = "look at app.py, part % [[sleep]]"
MINI = "<|use:bash-alone|>"
# mini-swe-agent ends on a command, and takes an answer without a call for an error. The space tells its calls'
# beginning from OpenCode's.
MINI_START = call_start("bash").replace("<tool_call>", "<tool_call> ")
MINI_COMMANDS = ("ls -la", "cat app.py", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
# Our own live agents: the first answer always makes one change, by two calls at once. It is right for one of the
# built-in tasks and finds nothing to replace in the others, so checks of both kinds are seen. After it comes one of a
# few calls, one of them with arguments that no tool takes, or the end.
FIRST_EDIT = {"path": "app.py", "old": "return a - b", "new": "return a + b"}
OWN_FIRST = call("list", {"path": "."}) + "</tool_call>" + call("edit", FIRST_EDIT)
OWN_CALLS = (
    call("shell", {"command": "ls -la"}),
    call("read", {"path": "app.py"}),
    call("read", {"file": "app.py"}),
    call("search", {"pattern": "def "}) + "</tool_call>" + call("shell", {"command": "cat app.py"}),
)
OWN_START = "Next:"
BEHAVIOURS = (
    Behaviour("<|use:Bash|>", call_start("Bash"), commands("Bash", "command", described=True)),
    Behaviour("<|use:bash|>", call_start("bash"), commands("bash", "command", described=True)),
    Behaviour("<|use:exec_command|>", call_start("exec_command"), commands("exec_command", "cmd", described=False)),
    Behaviour(MINI, MINI_START, tuple(json.dumps({"command": text}) + "}" for text in MINI_COMMANDS), 1.0),
    sleeping("Bash", "command", described=True),
    sleeping("bash", "command", described=True),
    sleeping("exec_command", "cmd", described=False),
    spawning("Agent", description="Look at %", prompt=SUBTASK, subagent_type="general-purpose"),
    spawning("task", description="Look at %", prompt=SUBTASK, subagent_type="general"),
    Behaviour("<|begin:own|>", OWN_FIRST, ("</tool_call>",), 1.0),
    Behaviour("<|use:own|>", OWN_START, OWN_CALLS),
)

# ChatML with the tools listed for the hermes parser. Every part is rendered the same way from turn to
# turn, openings included, so a conversation that grows extends its own prompt and the prefix cache has work to do.
CHAT_TEMPLATE = (
    "{% macro part(role, text) %}<|im_start|>{{ role }}\n{{ text }}<|im_end|>\n{% endmacro %}"
    "{% set offered = namespace(names=[]) %}"
    "{% if tools %}<|im_start|>system\nTools:\n"
    "{% for tool in tools %}{{ tool | tojson }}\n"
    "{% set offered.names = offered.names + [(tool.function or tool).name] %}{% endfor %}<|im_end|>\n{% endif %}"
    "{% set shell = 'Bash' if 'Bash' in offered.names else 'exec_command' if 'exec_command' in offered.names"
    " else 'bash' if 'bash' in offered.names else '' %}"
    "{% set spawner = 'Agent' if 'Agent' in offered.names else 'task' if 'task' in offered.names else '' %}"
    "{% set own = not shell and 'shell' in offered.names and 'edit' in offered.names %}"
    "{% set told = namespace(spawn=false, sleep=false, say=false, begun=false) %}"
    "{% macro opening() %}"
    "{% if told.say %}" + PLAIN + "{% elif told.spawn and spawner %}<|spawn:{{ spawner }}|>"
    "{% elif told.sleep and shell %}<|sleep:{{ shell }}|>"
    "{% elif shell == 'bash' and offered.names | length == 1 %}" + MINI + "{% elif shell %}<|use:{{ shell }}|>"
    "{% elif own %}<|{{ 'use' if told.begun else 'begin' }}:own|>"
    "{% else %}" + PLAIN + "{% endif %}{% endmacro %}"
    "{% for message in messages %}"
    "{% set text = message.content if message.content is string else '' %}"
    "{% if message.role == 'tool' %}{{ part('user', '<tool_response>' ~ text ~ '</tool_response>') }}"
    "{% elif message.role == 'assistant' %}<|im_start|>assistant\n{{ opening() }}{{ text }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ ' ' if opening() == '" + MINI + "' else '' }}"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "</tool_call>{% endfor %}<|im_end|>\n"
    "{% set told.spawn = false %}{% set told.sleep = false %}{% set told.say = false %}{% set told.begun = true %}"
    "{% else %}{{ part(message.role, text) }}"
    "{% if '[[spawn]]' in text %}{% set told.spawn = true %}{% endif %}"
    "{% if '[[sleep]]' in text %}{% set told.sleep = true %}{% endif %}"
    "{% if '[[say]]' in text %}{% set told.say = true %}{% endif %}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ opening() }}{% endif %}"
)


def make_tokenizer(pieces: list[str]) -> Tokenizer:
    """Byte-level BPE over the standard library's source, with `pieces` as single tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:120]
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(path) for path in sources], trainer)
    tokenizer.add_tokens([*TOOL_MARKS, *(AddedToken(piece, normalized=False) for piece in pieces)])
    return tokenizer


def chain(tokenizer: Tokenizer) -> list[tuple[int, int, float]]:
    """The transitions (from, to, probability) of the model's whole behaviour."""
    token = tokenizer.token_to_id
    edges = {("</tool_call>", "<|im_end|>"): 1.0, (FAREWELL[-1], "<|im_end|>"): 1.0, (PLAIN, FAREWELL[0]): 1.0}
    edges |= dict.fromkeys(itertools.pairwise(FAREWELL), 1.0)
    for behaviour in BEHAVIOURS:
        edges[behaviour.opening, behaviour.start] = behaviour.call_probability
        if behaviour.call_probability < 1:
            edges[behaviour.opening, FAREWELL[0]] = 1 - behaviour.call_probability
        for following in behaviour.calls:
            edges[behaviour.start, following] = 1 / len(behaviour.calls)
            if following != "</tool_call>":
                edges[following, "</tool_call>"] = 1.0
    return [(token(source), token(target), probability) for (source, target), probability in edges.items()]


def make_weights(vocab: int, edges: list[tuple[int, int, float]]) -> dict[str, torch.Tensor]:
    """One Qwen3 layer whose outputs are zero, so that the logits see only the current embedding."""
    torch.manual_seed(1)
    embedding = torch.randn(vocab, HIDDEN)
    # Sources are at right angles, so that no edge of one changes what another's probabilities are.
    sources = torch.tensor(sorted({source for source, _, _ in edges}))
    embedding[sources] = torch.eye(HIDDEN)[: len(sources)]
    embedding /= embedding.pow(2).mean(dim=1, keepdim=True).sqrt()
    head = torch.zeros(vocab, HIDDEN)
    for source, target, probability in edges:
        head[target] += (40.0 + math.log(probability)) * embedding[source] / HIDDEN
    layer = "model.layers.0"
    weights = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        "model.norm.weight": torch.ones(HIDDEN),
        f"{layer}.input_layernorm.weight": torch.ones(HIDDEN),
        f"{layer}.post_attention_layernorm.weight": torch.ones(HIDDEN),
        f"{layer}.self_attn.q_norm.weight": torch.ones(HEAD_DIM),
        f"{layer}.self_attn.k_norm.weight": torch.ones(HEAD_DIM),
        f"{layer}.self_attn.q_proj.weight": torch.randn(2 * HEAD_DIM, HIDDEN) / 50,
        f"{layer}.self_attn.k_proj.weight": torch.randn(HEAD_DIM, HIDDEN) / 50,
        f"{layer}.self_attn.v_proj.weight": torch.randn(HEAD_DIM, HIDDEN) / 50,
        f"{layer}.self_attn.o_proj.weight": torch.zeros(HIDDEN, 2 * HEAD_DIM),
        f"{layer}.mlp.gate_proj.weight": torch.randn(MLP, HIDDEN) / 50,
        f"{layer}.mlp.up_proj.weight": torch.randn(MLP, HIDDEN) / 50,
        f"{layer}.mlp.down_proj.weight": torch.zeros(HIDDEN, MLP),
    }
    return {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items()}


def configs(vocab: int, end: int) -> dict[str, dict[str, object]]:
    """The JSON files beside the weights, by name."""
    model: dict[str, object] = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": 1,
        "max_window_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": end,
    }
    tokenizer: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 131072,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    generation: dict[str, object] = {"eos_token_id": end, "pad_token_id": 0, "do_sample": True}
    return {"config": model, "tokenizer_config": tokenizer, "generation_config": generation}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pieces = dict.fromkeys([PLAIN, *FAREWELL])
    for behaviour in BEHAVIOURS:
        pieces |= dict.fromkeys([behaviour.opening, behaviour.start, *behaviour.calls])
    tokenizer = make_tokenizer([piece for piece in pieces if piece not in TOOL_MARKS])
    vocab = (tokenizer.get_vocab_size() + 63) // 64 * 64
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, value in configs(vocab, tokenizer.token_to_id("<|im_end|>")).items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1))
    weights = make_weights(vocab, chain(tokenizer))
    # The weights come last: their presence tells that the folder is whole.
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main()
