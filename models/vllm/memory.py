"""How many tokens of KV cache a server will have, before it is started: a refusal instead of a crash after minutes of
loading.

Pure arithmetic. Weights: parameters times bytes per parameter, the embeddings (and an untied output layer) staying in
16 bits when the rest is quantised. KV cache per token: 2 (key and value) x layers x KV heads x head size x bytes per
element. vLLM takes ``gpu_memory_utilization`` (0.9 by default) of a card; activations and graphs are not counted, so
figures are upper bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.models.codec import record
from gavel.models.errors import ConfigError
from gavel.models.service import Service
from gavel.models.vllm.arguments import GIB, count_tensor_parallel

UTILIZATION = 0.9
TYPICAL_REQUEST = 2500
"""Tokens of a judge call with a long candidate, for the message only."""

_BYTES_BY_DTYPE = {"float32": 4.0, "float": 4.0}  # all others are 16 bits
_BYTES_BY_QUANTIZATION = {
    "fp8": 1.0, "fbgemm_fp8": 1.0, "ptpc_fp8": 1.0, "experts_int8": 1.0, "awq": 0.5, "awq_marlin": 0.5, "gptq": 0.5,
    "gptq_marlin": 0.5, "bitsandbytes": 0.5, "modelopt_fp4": 0.5, "mxfp4": 0.5,
}  # fmt: skip
_BYTES_BY_KV_DTYPE = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "float32": 4.0}


@record
class ModelShape:
    """What the arithmetic needs of a dense decoder; ``embedding_parameters`` counts an untied output layer as well."""

    layers: int
    kv_heads: int
    head_size: int
    parameters: int
    embedding_parameters: int

    def count_weight_bytes(self, *, element: float = 2.0, quantized: float | None = None) -> float:
        """Return the bytes of all weights: ``element`` bytes each, ``quantized`` for those outside the embeddings."""
        inner = self.parameters - self.embedding_parameters
        return self.embedding_parameters * element + inner * (element if quantized is None else quantized)

    def count_kv_bytes(self, element: float = 2.0) -> float:
        """Return the bytes of KV cache that one token takes, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * element


_KNOWN_CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-0.6B": {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,  # noqa: E501
        "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "Qwen/Qwen3-8B": {
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,  # noqa: E501
        "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-32B": {
        "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,  # noqa: E501
        "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False,
    },
}  # fmt: skip
_DENSE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def find_known_shape(model: str) -> ModelShape | None:
    """Return the shape of a model of the table, by its repository name; None if it is not there."""
    config = _KNOWN_CONFIGS.get(model)
    return None if config is None else read_shape(config)


def read_shape(config: Mapping[str, Any]) -> ModelShape | None:
    """Read a Hugging Face ``config.json`` of a dense decoder with gated MLPs (Llama, Qwen, Mistral).

    Returns None for anything else (mixtures of experts, latent attention, missing sizes): an unknown need is not
    guessed.
    """
    special = {"num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank", "text_config"}
    if special & config.keys() or any(not isinstance(config.get(key), int) for key in _DENSE):
        return None
    hidden, inner, layers, heads, vocabulary = (config[key] for key in _DENSE)
    kv_heads = config.get("num_key_value_heads") or heads
    head_size = config.get("head_dim") or hidden // heads
    attention = 2 * hidden * heads * head_size + 2 * hidden * kv_heads * head_size
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return ModelShape(layers, kv_heads, head_size, layers * (attention + 3 * hidden * inner) + embeddings, embeddings)


@record
class Memory:
    """What one replica will have: bytes of weights, tokens of KV cache."""

    weight_bytes: float
    kv_tokens: int


def estimate_memory(service: Service, shape: ModelShape, card_bytes: float) -> Memory:
    """Work out one replica's memory.

    Args:
        service: a managed service.
        shape: of its model.
        card_bytes: total memory of one of its cards; not looked at where ``kv_cache_gb`` is set.
    """
    arguments = service.engine_args or {}
    element = _BYTES_BY_DTYPE.get(service.dtype or "", 2.0)
    kv_element = _BYTES_BY_KV_DTYPE.get(str(arguments.get("kv_cache_dtype", "")), element)
    quantized = None if service.quantization is None else _BYTES_BY_QUANTIZATION.get(service.quantization, element)
    weights = shape.count_weight_bytes(element=element, quantized=quantized)
    cards = 1 if service.cpu else count_tensor_parallel(service)
    if service.kv_cache_gb is not None:
        free = service.kv_cache_gb * GIB * cards
    else:
        free = card_bytes * float(arguments.get("gpu_memory_utilization", UTILIZATION)) * cards - weights
    return Memory(weights, max(0, int(free / shape.count_kv_bytes(kv_element))))


def describe_memory(name: str, service: Service, memory: Memory) -> str:
    """Say in one line what a service will have."""
    kind = service.quantization or service.dtype or "bfloat16"
    requests = memory.kv_tokens // TYPICAL_REQUEST
    return (
        f"{name}: {service.model} needs {memory.weight_bytes / 1e9:.1f} GB for weights ({kind}) and has about "
        f"{memory.kv_tokens / 1000:.0f} k tokens of KV cache, {requests} requests of {TYPICAL_REQUEST} tokens at once"
    )


def check_memory(name: str, service: Service, memory: Memory) -> None:
    """Refuse a service whose KV cache cannot hold one request of full length.

    Raises:
        ConfigError: names the key, the tokens there are and those asked for.
    """
    wanted = service.max_context_length
    if wanted is None or memory.kv_tokens >= wanted:
        return
    remedy = (
        f"raise {name}.kv_cache_gb"
        if service.kv_cache_gb is not None
        else f"set {name}.quantization=fp8, more {name}.gpus, or a model that fits"
    )
    raise ConfigError(
        f"the KV cache holds fewer tokens than max_context_length (weights take {memory.weight_bytes / 1e9:.1f} GB)",
        field=f"{name}.max_context_length",
        found=str(wanted),
        allowed=f"at most {memory.kv_tokens}",
        remedy=remedy,
    )
