"""The memory arithmetic agrees with the figures of judging.md, and a service that cannot hold one request is
refused.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gavel.models.errors import ConfigError
from gavel.models.service import Service
from gavel.models.vllm import memory

QWEN = Service(mode="managed", model="Qwen/Qwen3-32B", max_context_length=8192)
SHAPE = memory.find_known_shape("Qwen/Qwen3-32B")
assert SHAPE is not None
SMOLLM2 = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,  # noqa: E501
    "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip


def test_qwen3_32b_is_65_6_gb_in_bf16_and_256_kib_of_kv_cache_per_token() -> None:
    assert SHAPE is not None
    assert SHAPE.count_weight_bytes() / 1e9 == pytest.approx(65.6, abs=0.15)
    assert SHAPE.count_kv_bytes() == 256 * 1024


@pytest.mark.parametrize(
    ("card_gb", "quantization", "tokens"), [(80, None, 25_000), (80, "fp8", 145_000), (141, None, 230_000)]
)
def test_the_tokens_left_on_a_card_are_those_of_the_specification(
    card_gb: int, quantization: str | None, tokens: int
) -> None:
    assert SHAPE is not None
    found = memory.estimate_memory(replace(QWEN, quantization=quantization), SHAPE, card_gb * 1e9)
    assert found.kv_tokens == pytest.approx(tokens, rel=0.03)


def test_the_line_before_the_start_names_weights_tokens_and_requests() -> None:
    assert SHAPE is not None
    line = memory.describe_memory("general", QWEN, memory.estimate_memory(QWEN, SHAPE, 80e9))
    assert "65.5 GB" in line
    assert "25 k tokens" in line
    assert "9 requests of 2500" in line or "10 requests of 2500" in line


def test_two_cards_hold_the_weights_once() -> None:
    assert SHAPE is not None
    # 2 x 80 GB x 0.9 - 65.5 GB = 78.5 GB, / 256 KiB
    assert memory.estimate_memory(replace(QWEN, gpus=2), SHAPE, 80e9).kv_tokens == pytest.approx(299_400, rel=0.01)


def test_a_card_that_cannot_hold_one_full_request_is_refused() -> None:
    assert SHAPE is not None
    long = replace(QWEN, max_context_length=32_768)
    found = memory.estimate_memory(long, SHAPE, 80e9)
    with pytest.raises(ConfigError) as caught:
        memory.check_memory("general", long, found)
    assert "general.max_context_length" in str(caught.value)
    assert str(found.kv_tokens) in str(caught.value)
    memory.check_memory("general", QWEN, found)  # 8,192 fit


def test_a_card_smaller_than_the_weights_holds_no_token() -> None:
    assert SHAPE is not None
    found = memory.estimate_memory(QWEN, SHAPE, 48e9)
    assert found.kv_tokens == 0
    with pytest.raises(ConfigError):
        memory.check_memory("general", QWEN, found)


def test_the_cpu_build_holds_what_its_kv_cache_is_given() -> None:
    shape = memory.read_shape(SMOLLM2)
    assert shape is not None
    service = Service(mode="managed", model="embedded:smollm2", cpu=True, kv_cache_gb=1.0, max_context_length=4096)
    found = memory.estimate_memory(service, shape, 0.0)
    assert (
        found.kv_tokens == 46_603
    )  # 2^30 / (2 x 30 layers x 3 heads x 64 x 2 bytes); vLLM itself says 46,592, in blocks of 32
    assert found.weight_bytes == pytest.approx(269e6, rel=0.01)


@pytest.mark.parametrize("extra", [{"num_experts": 128}, {"kv_lora_rank": 512}, {"num_hidden_layers": None}])
def test_a_model_of_another_build_is_not_guessed(extra: dict[str, object]) -> None:
    assert memory.read_shape({**SMOLLM2, **extra}) is None


def test_an_8_bit_kv_cache_holds_twice_as_many() -> None:
    assert SHAPE is not None
    whole = memory.estimate_memory(replace(QWEN, kv_cache_gb=4.0), SHAPE, 80e9).kv_tokens
    half = memory.estimate_memory(
        replace(QWEN, kv_cache_gb=4.0, engine_args={"kv_cache_dtype": "fp8"}), SHAPE, 80e9
    ).kv_tokens
    assert (whole, half) == (16_384, 32_768)
