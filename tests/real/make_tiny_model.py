"""Makes a tiny checkpoint with which a real vLLM drives a real coding agent on a CPU.

Nothing is learned and nothing downloaded: the weights are written so that the next token depends on
the current one alone. After the assistant's opening the model either calls the `Bash` tool with one of a
few harmless commands or says that it is done. Which of the two is left to vLLM's sampling, so the
lengths of the sessions differ from run to run; what the tests assert holds for any length.

Run with the Python of the vLLM environment: make_tiny_model.py FOLDER
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import sysconfig
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN = 256
HEAD_DIM = 32
MLP = 128
CALL_PROBABILITY = 0.8
TOOL = "Bash"
COMMANDS = (
    {"command": "ls -la", "description": "List files"},
    {"command": "cat app.py", "description": "Show the file"},
)
FAREWELL = ("The task", " has been", " looked at", " and is", " finished.")
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOOL_MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

# ChatML with the tools listed for the hermes parser. Every part is rendered the same way from turn to
# turn, so a conversation that grows extends its own prompt and the prefix cache has work to do.
CHAT_TEMPLATE = (
    "{% macro part(role, text) %}<|im_start|>{{ role }}\n{{ text }}<|im_end|>\n{% endmacro %}"
    "{% if tools %}<|im_start|>system\nTools:\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}"
    "{% set text = message.content if message.content is string else '' %}"
    "{% if message.role == 'tool' %}{{ part('user', '<tool_response>' ~ text ~ '</tool_response>') }}"
    "{% elif message.tool_calls %}<|im_start|>assistant\n{{ text }}"
    "{% for call in message.tool_calls %}<tool_call>"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "</tool_call>{% endfor %}<|im_end|>\n"
    "{% else %}{{ part(message.role, text) }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
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


def chain(tokenizer: Tokenizer, opening: str, calls: list[str]) -> list[tuple[int, int, float]]:
    """The transitions (from, to, probability) of the model's whole behaviour."""
    token = tokenizer.token_to_id
    start = tokenizer.encode("<|im_start|>assistant\n").ids[-1]
    edges = [
        (start, token("<tool_call>"), CALL_PROBABILITY),
        (start, token(FAREWELL[0]), 1 - CALL_PROBABILITY),
        (token("<tool_call>"), token(opening), 1.0),
        (token("</tool_call>"), token("<|im_end|>"), 1.0),
        (token(FAREWELL[-1]), token("<|im_end|>"), 1.0),
    ]
    for call in calls:
        edges += [(token(opening), token(call), 1 / len(calls)), (token(call), token("</tool_call>"), 1.0)]
    edges += [(token(a), token(b), 1.0) for a, b in itertools.pairwise(FAREWELL)]
    return edges


def make_weights(vocab: int, edges: list[tuple[int, int, float]]) -> dict[str, torch.Tensor]:
    """One Qwen3 layer whose outputs are zero, so that the logits see only the current embedding."""
    torch.manual_seed(1)
    embedding = torch.randn(vocab, HIDDEN)
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
    opening = f'{{"name": "{TOOL}", "arguments": '
    # The brace that closes the call belongs to each command's token.
    calls = [json.dumps(command) + "}" for command in COMMANDS]
    tokenizer = make_tokenizer([opening, *calls, *FAREWELL])
    vocab = (tokenizer.get_vocab_size() + 63) // 64 * 64
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, value in configs(vocab, tokenizer.token_to_id("<|im_end|>")).items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1))
    weights = make_weights(vocab, chain(tokenizer, opening, calls))
    # The weights come last: their presence tells that the folder is whole.
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main()
