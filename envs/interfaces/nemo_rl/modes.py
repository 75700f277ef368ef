"""Which trainers and options of NeMo-RL may be used with environments that can leave a sample ungraded, and why the
others not.

Read in ``algorithms/{grpo,single_controller,advantage_estimator}.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ESTIMATORS = ("grpo", "reinforce_plus_plus")
"""Those that compare rewards through the baseline that the hooks take hold of."""
_GYM = "NeMo-RL applies it on its Gym path alone, and stops without"
_UNREAD = "SingleController reads nothing of it"
_ESTIMATORS = {
    "gdpo": "it wants a reward in parts, and an environment of ours gives one weighted reward (its parts are logged "
    "as reward/…)",
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
    kinds: tuple[str, ...] = ("grpo", "single_controller")
    asked: Callable[[Any], bool] = bool


def _is_set(value: Any) -> bool:
    return value is not None


_SINGLE = ("single_controller",)
REFUSED = (
    RefusedMode(
        "grpo.async_grpo.enabled",
        "its rollouts run in a process of another interpreter, where ungraded samples cannot be taken out nor "
        "cut-off replies be told; "
        "use asynchronous rollouts (policy.generation.vllm_cfg.async_engine: true) or SingleController", ("grpo",),
    ),
    RefusedMode(
        "data_plane.enabled",
        "the synchronous trainer then rolls out in a process of another interpreter and reads no mask; set "
        "data_plane.enabled: false, "
        "or use SingleController", ("grpo",),
    ),
    RefusedMode("env.should_use_nemo_gym", "our actors are then never asked; set it to false"),
    RefusedMode("grpo.invalid_tool_call_advantage", _GYM, asked=_is_set),
    RefusedMode("grpo.malformed_thinking_advantage", _GYM, asked=_is_set),
    *(
        RefusedMode(f"reward_penalties.penalize_{name}", _GYM)
        for name in ("duplicated_reasoning", "empty_final_answer", "unwanted_tokens", "malformed_think_tag")
    ),
    *(
        RefusedMode(key, _UNREAD, _SINGLE)
        for key in (
            "grpo.use_dynamic_sampling", "grpo.reward_scaling.enabled", "grpo.reward_shaping.enabled", "grpo.overlong_filtering",  # noqa: E501
        )
    ),
    RefusedMode("grpo.advantage_clip_low", _UNREAD, _SINGLE, _is_set),
    RefusedMode("grpo.advantage_clip_high", _UNREAD, _SINGLE, _is_set),
)  # fmt: skip


def refuse_mode(config: Mapping[str, Any], kind: str) -> list[str]:
    """Return why a trainer cannot be used, nothing if it can.

    Args:
        config: the trainer's, resolved.
        kind: ``grpo`` or ``single_controller``: which of NeMo-RL's scripts runs.
    """
    found = [
        f"{rule.key}: {rule.why}"
        for rule in REFUSED
        if kind in rule.kinds and rule.asked(_read_value(config, rule.key))
    ]
    name = _read_value(config, "grpo.adv_estimator.name") or "grpo"
    if name not in ESTIMATORS:
        why = _ESTIMATORS.get(name, "it is not known that it can leave ungraded samples out")
        found.append(f"grpo.adv_estimator.name: {name}: {why}; allowed: {', '.join(ESTIMATORS)}")
    return found


def _read_value(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
