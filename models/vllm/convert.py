"""Turns a GGUF file of a Llama-shaped chat model into a directory that vLLM serves; run as a script where torch is
installed.

``python convert.py SOURCE.gguf TARGET``: the weights are de-quantised by transformers and stored as bfloat16; with them
go the tokenizer, its chat template and the token that ends a reply. Nothing of the package is imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_DROPPED = ("quantization_config", "_name_or_path", "dtype", "torch_dtype", "transformers_version")
"""Keys of the loaded config that describe the GGUF file, not the model."""


def _save_weights(source: Path, target: Path) -> Any:
    """Store the weights through a fresh model: the loaded one still says that it is quantised."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    loaded = LlamaForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    fields = {key: value for key, value in loaded.config.to_dict().items() if key not in _DROPPED}
    fresh = LlamaForCausalLM(LlamaConfig(**fields)).to(torch.bfloat16)
    fresh.load_state_dict(loaded.state_dict())
    fresh.tie_weights()
    config = fresh.config
    # No sampling defaults: what a config leaves unset is drawn from the model's own distribution.
    fresh.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    fresh.save_pretrained(target)
    return config


def _save_tokenizer(source: Path, target: Path, context: int) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    if tokenizer.eos_token != "<|im_end|>" or "<|im_end|>" not in (tokenizer.chat_template or ""):
        sys.exit(f"the tokenizer of {source.name} has no chat template that ends turns with <|im_end|>")
    # The file says `tokenizer.ggml.pre = smollm`, digits one by one; transformers reads it as plain GPT-2.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = context
    tokenizer.save_pretrained(target)
    path = target / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that transformers 4 and 5 both know
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def main(source: Path, target: Path) -> None:
    """Convert ``source`` into the directory ``target``."""
    config = _save_weights(source, target)
    _save_tokenizer(source, target, config.max_position_embeddings)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
