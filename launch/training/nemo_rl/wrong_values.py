"""Values of a trainer's config that are not of the kind its arithmetic reads: a list where a section is meant, a text
for a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gavel.models.errors import ConfigError, shorten_value

SECTIONS = (
    "gavel", "grpo", "data", "env", "logger", "data_plane", "cluster", "checkpointing", "async_rl", "async_rl.rollout_failure",  # noqa: E501
    "grpo.async_grpo", "loss_fn",
    "policy", "policy.generation", "policy.generation.colocated", "policy.generation.colocated.resources", "policy.megatron_cfg",  # noqa: E501
    "policy.dtensor_cfg", "policy.dynamic_batching", "policy.sequence_packing",
)  # fmt: skip
_PARALLEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "tensor_parallel_size",
    "context_parallel_size",
)
COUNTS: Mapping[str, int] = {
    "grpo.max_num_steps": 1,
    "grpo.max_num_epochs": 1,
    "grpo.num_prompts_per_step": 1,
    "grpo.num_generations_per_prompt": 1,
    "grpo.max_rollout_turns": 1,
    "grpo.async_grpo.max_trajectory_age_steps": 1,
    "cluster.num_nodes": 1,
    "cluster.gpus_per_node": 0,
    "policy.train_global_batch_size": 1,
    "policy.train_micro_batch_size": 1,
    "policy.generation.colocated.resources.gpus_per_node": 0,
    "policy.generation.colocated.resources.num_nodes": 0,
    **{f"policy.{section}.{name}": 1 for section in ("megatron_cfg", "dtensor_cfg") for name in _PARALLEL},
}
"""Whole numbers, by the least that each may be; null is NeMo-RL's own default."""
_NEVER_NULL = ("grpo.max_num_steps",)
_ABSENT = object()


def find_wrong_values(config: Mapping[str, Any]) -> list[ConfigError]:
    """Return the findings, each with its key, what stands there and what may; empty where the arithmetic can be
    done.
    """
    return [*_check_sections(config), *_check_counts(config)]


def _check_sections(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    for key in SECTIONS:
        if (value := _find_value(config, key)) is not _ABSENT and value is not None and not isinstance(value, Mapping):
            yield _make_value_error(key, value, "a mapping of keys to values")


def _check_counts(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    for key, least in COUNTS.items():
        value = _find_value(config, key)
        if value is _ABSENT or (value is None and key not in _NEVER_NULL):
            continue
        if not _is_whole(value) or int(value) < least:
            yield _make_value_error(key, value, f"a whole number of at least {least}")
    multiplier = _find_value(config, "grpo.batch_multiplier")
    if multiplier is not _ABSENT and multiplier is not None and not (_is_number(multiplier) and float(multiplier) > 0):
        yield _make_value_error("grpo.batch_multiplier", multiplier, "a number above 0")


def _find_value(config: Mapping[str, Any], key: str) -> Any:
    """Return the value under a dotted key; ``_ABSENT`` where there is none, or what holds it is no mapping."""
    value: Any = config
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _is_number(value: Any) -> bool:
    """Whether NeMo-RL reads a value as a number: it takes texts of digits, too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        return abs(float(value)) < float("inf")
    except ValueError:
        return False


def _is_whole(value: Any) -> bool:
    return value.isdecimal() if isinstance(value, str) else _is_number(value) and float(value).is_integer()


def _make_value_error(key: str, value: Any, allowed: str) -> ConfigError:
    return ConfigError(
        "this value of the trainer's config cannot be read",
        field=key,
        found=shorten_value(value),
        allowed=allowed,
        remedy=f"trainer.overrides.{key}=…, or the key in your recipe",
    )
