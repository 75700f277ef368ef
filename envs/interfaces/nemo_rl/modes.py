"""Which trainers and options of NeMo-RL may be used with environments that can leave a sample ungraded, and why the
others not.

Read in ``algorithms/{grpo,single_controller,advantage_estimator}.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gavel.envs.interfaces.nemo_rl.config import PREFIX
from gavel.models.errors import ConfigError

ESTIMATORS = ("grpo", "reinforce_plus_plus", "gdpo")
"""Those that compare rewards through the baseline that the hooks take hold of."""
_GYM = "NeMo-RL applies it on its Gym path alone, and stops without"
_CHANGED = (
    "it changes rewards or advantages by a reply's text, of samples that were not graded, too; let the environment's "
    "reward say it"
)
_BY_TEXT = ("invalid_tool_call_advantage", "malformed_thinking_advantage")
_PENALTIES = ("duplicated_reasoning", "empty_final_answer", "unwanted_tokens", "malformed_think_tag")
_UNREAD = "SingleController reads nothing of it"
_ESTIMATORS = {
    "opd": "it takes no reward at all, so that nothing would be graded for",
    "raw_reward": "it is of PPO, which is not hooked, and has no baseline to leave ungraded samples out of",
    "gae": "it is of PPO, which is not hooked, and its values learn from every sample",
}


@dataclass(frozen=True, slots=True)
class RefusedMode:
    """An option that cannot be used: ``key`` is dotted, ``kinds`` are the trainers, ``asked`` tells a value that asks
    for it.
    """

    key: str
    why: str
    kinds: tuple[str, ...] = ("grpo", "grpo_async", "gym", "gym_async", "single_controller")
    asked: Callable[[Any], bool] = bool


def _is_set(value: Any) -> bool:
    return value is not None


def _is_off(value: Any) -> bool:
    return not value


_SINGLE, _ASYNC, _BY_GYM = ("single_controller",), ("grpo_async", "gym_async"), ("gym", "gym_async")
_NATIVE = ("grpo", "grpo_async", "single_controller")
_NOT_ASYNC = "run_grpo.py refuses it together with grpo.async_grpo"
REFUSED = (
    RefusedMode(
        "grpo.async_grpo.enabled", "false, and this trainer.kind trains with it; set it to true", _ASYNC, _is_off
    ),
    RefusedMode(
        "loss_fn.use_importance_sampling_correction",
        "false, and asynchronous training demands it: its samples are of earlier policies; set it to true", _ASYNC,
        _is_off,
    ),
    *(
        RefusedMode(key, _NOT_ASYNC, _ASYNC)
        for key in (
            "grpo.use_dynamic_sampling", "grpo.reward_scaling.enabled", "grpo.reward_shaping.enabled",
            "data.use_multiple_dataloader",
        )
    ),
    RefusedMode(
        "data_plane.enabled",
        "the synchronous trainer then rolls out in a process of another interpreter and reads no mask; set "
        "data_plane.enabled: false, "
        "or use SingleController", ("grpo", "grpo_async", "gym", "gym_async"),
    ),
    RefusedMode("on_policy_distillation.enabled", "it takes no reward at all, so that nothing would be graded for"),
    RefusedMode(
        "loss_fn.positive_example_nll_weight",
        "it is of PPO: GRPO hands its loss no reward, so that it would do nothing; set it to 0",
    ),
    RefusedMode(
        "env.should_use_nemo_gym",
        "NeMo Gym then rolls out, and our actors are never asked; choose trainer=nemo_rl_gym, or set it to false",
        _NATIVE,
    ),
    RefusedMode(
        "env.should_use_nemo_gym", "false, and this trainer.kind rolls out with NeMo Gym; set it to true", _BY_GYM,
        _is_off,
    ),
    RefusedMode(
        "env.should_mask_flagged_samples", "false would train on samples that were not graded; set it to true", _BY_GYM,
        lambda value: value is False,
    ),
    RefusedMode("env.nemo_gym.effort_levels", _CHANGED, _BY_GYM, _is_set),
    RefusedMode("env.nemo_gym.is_trajectory_collection", "nothing is then trained; set it to false", _BY_GYM),
    RefusedMode(
        "grpo.max_val_samples", "NeMo-RL's script for NeMo Gym takes the whole validation set; set it to null", _BY_GYM,
        _is_set,
    ),
    RefusedMode("policy.generation.top_k", "NeMo Gym cannot ask for it; set it to null", _BY_GYM),
    *(RefusedMode(f"grpo.{name}", _GYM, _NATIVE, _is_set) for name in _BY_TEXT),
    *(RefusedMode(f"grpo.{name}", _CHANGED, _BY_GYM, _is_set) for name in _BY_TEXT),
    *(RefusedMode(f"reward_penalties.penalize_{name}", _GYM, _NATIVE) for name in _PENALTIES),
    *(RefusedMode(f"reward_penalties.penalize_{name}", _CHANGED, _BY_GYM) for name in _PENALTIES),
    *(
        RefusedMode(key, _UNREAD, _SINGLE)
        for key in (
            "grpo.use_dynamic_sampling", "grpo.reward_scaling.enabled", "grpo.reward_shaping.enabled", "grpo.overlong_filtering",  # noqa: E501
        )
    ),
    RefusedMode("grpo.advantage_clip_low", _UNREAD, _SINGLE, _is_set),
    RefusedMode("grpo.advantage_clip_high", _UNREAD, _SINGLE, _is_set),
)  # fmt: skip


def refuse_mode(config: Mapping[str, Any], kind: str) -> list[ConfigError]:
    """Return why a trainer cannot be used, nothing if it can.

    Args:
        config: the trainer's, resolved.
        kind: of ``settle_kind``.
    """
    found = _list_engine_demands(config) if kind in _ASYNC else []
    found += [
        ConfigError(rule.why, field=rule.key)
        for rule in REFUSED
        if kind in rule.kinds and rule.asked(_read_value(config, rule.key))
    ]
    name = _read_value(config, "grpo.adv_estimator.name") or "grpo"
    if name not in ESTIMATORS:
        why = _ESTIMATORS.get(name, "it is not known that it can leave ungraded samples out")
        found.append(ConfigError(why, field="grpo.adv_estimator.name", found=name, allowed=", ".join(ESTIMATORS)))
    return found + (_list_component_problems(config, kind) if name == "gdpo" else [])


def _list_component_problems(config: Mapping[str, Any], kind: str) -> list[ConfigError]:
    """Return what does not go with GDPO."""
    key = "grpo.adv_estimator"
    if kind == "single_controller":
        return [ConfigError("gdpo: SingleController takes one reward a sample; use run_grpo.py", field=f"{key}.name")]
    found = [
        ConfigError(
            "it changes the whole reward, of which GDPO reads nothing: it compares its components",
            field=f"grpo.{name}.enabled",
        )
        for name in ("reward_scaling", "reward_shaping")
        if _read_value(config, f"grpo.{name}.enabled")
    ]
    ours = [name for name in config.get("env") or {} if str(name).startswith(PREFIX)]
    if _read_value(config, f"{key}.reward_weights") is not None and len(ours) > 1:
        found.append(
            ConfigError(
                "weights go by the place of a component in a step, and a step may lack an environment with its "
                "components; weigh within each environment's reward",
                field=f"{key}.reward_weights",
            )
        )
    return found


def settle_kind(config: Mapping[str, Any], kind: str) -> str:
    """Return which trainer runs: ``run_grpo.py`` has two, and the config says which."""
    asynchronous = {"grpo": "grpo_async", "gym": "gym_async"}.get(kind, kind)
    return asynchronous if _read_value(config, "grpo.async_grpo.enabled") else kind


def _list_engine_demands(config: Mapping[str, Any]) -> list[ConfigError]:
    """Return what asynchronous training misses in the engine that generates for it."""
    found: list[ConfigError] = []
    generation = "policy.generation"
    backend = _read_value(config, f"{generation}.backend") or "vllm"
    if backend == "vllm" and not _read_value(config, f"{generation}.vllm_cfg.async_engine"):
        found.append(
            ConfigError(
                "false, and asynchronous training demands it; set it to true",
                field=f"{generation}.vllm_cfg.async_engine",
            )
        )
    if backend != "megatron" and _read_value(config, f"{generation}.colocated.enabled") is not False:
        found.append(
            ConfigError(
                "true, and asynchronous training generates while it trains, on GPUs of its own; set it to false and "
                f"name {generation}.colocated.resources",
                field=f"{generation}.colocated.enabled",
            )
        )
    return found


def _read_value(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
