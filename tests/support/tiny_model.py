"""A policy of a few thousand weights that trains in milliseconds: random words, a chat template, an end token."""

from __future__ import annotations

from pathlib import Path

WORDS = (
    "yes",
    "no",
    "snow",
    "melts",
    "in",
    "spring",
    ",",
    ".",
    "because",
    "it",
    "is",
    "warm",
    "and",
    "the",
    "sun",
    "on",
    "a",
    "hill",
)
TEMPLATE = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"


def tiny_model(folder: Path) -> Path:
    """Write the model and its tokenizer in the form of Hugging Face; needs torch and transformers."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    names = ["<unk>", "<s>", "</s>", *WORDS]
    made = Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(names),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        max_position_embeddings=128,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
