"""Make a tiny Llama with its tokenizer; run by the interpreter of the vLLM environment.

Nothing is fetched: the tokenizer is trained on a text made here and the weights are random. What
the model says is nonsense; that it is computed, cached and transferred by the real engine is what
the live run needs. Usage: ``python model.py FOLDER``.
"""

from __future__ import annotations

import importlib
import random
import sys

VOCABULARY = 1024
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
SYLLABLES = ("ka", "lo", "mi", "ren", "su", "tor", "vel", "an", "de", "ish", "po", "qua", "zen")
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def sample_text(seed: int, words: int) -> str:
    """Made-up words with a few that come often, so that merges are worth learning."""
    source = random.Random(seed)
    stock = ["".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(600)]
    weights = [1.0 / (rank + 1) for rank in range(len(stock))]
    return " ".join(source.choices(stock, weights, k=words))


def make_tokenizer(folder: str) -> None:
    """Train a byte-level BPE and save it with a chat template."""
    # By name: these packages exist in vLLM's environment only, and types are checked in ours.
    tokenizers = importlib.import_module("tokenizers")
    transformers = importlib.import_module("transformers")
    bpe = tokenizers.ByteLevelBPETokenizer()
    text = [sample_text(seed, 400) for seed in range(60)]
    bpe.train_from_iterator(text, vocab_size=VOCABULARY, special_tokens=list(SPECIAL.values()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **SPECIAL)
    fast.chat_template = CHAT
    fast.save_pretrained(folder)


def make_weights(folder: str) -> None:
    """Save a Llama of two layers with random weights in bfloat16."""
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        dtype="bfloat16",
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    make_tokenizer(sys.argv[1])
    make_weights(sys.argv[1])
