"""Known answers through a whole environment: what a policy says, the label and the reward it must get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from gavel.envs.registry import CONTROLS, make_environment, make_reward
from gavel.envs.types import Environment, Finish, RewardPolicy
from gavel.judges.probing.probe import CheckRow
from gavel.judges.types import Judge
from gavel.models.types import ChatModel


def load_environment_controls(env: Mapping[str, Any]) -> Sequence[Any]:
    """Return the environment's controls; empty where it has none."""
    if env["name"] not in CONTROLS:
        return ()
    module, function, _ = CONTROLS[env["name"]]
    return tuple(getattr(import_module(module), function)())


async def play_environment_controls(
    env: Mapping[str, Any], binding: str, judge: Judge, services: Mapping[str, ChatModel]
) -> tuple[CheckRow, ...]:
    """Play the environment's controls with the judge of ``binding``; empty where the environment has none."""
    controls = load_environment_controls(env)
    if not controls:
        return ()
    environment, policy = make_environment(env, judge, services), make_reward(CONTROLS[env["name"]][2])
    return tuple([await _play_control(environment, policy, control, binding) for control in controls])


async def _play_control(environment: Environment, policy: RewardPolicy, control: Any, binding: str) -> CheckRow:
    finish = await environment.step(control.make_task(binding), control.make_transcript())
    assert isinstance(finish, Finish), "a control is decided in one step"
    outcome, expected = finish.outcome, f"{control.label} {control.reward:g}"
    if outcome.failure is not None:
        return CheckRow("environment", control.name, (expected,), outcome.failure.kind, passed=False, graded=False)
    got = f"{outcome.label} {policy.reward(outcome).value:g}"
    return CheckRow("environment", control.name, (expected,), got, passed=got == expected)
