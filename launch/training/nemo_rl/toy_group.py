"""A toy group with a lost sample through the hooked functions of a checkout of NeMo-RL, on the CPU; run by the
trainer's interpreter.

    python -m gavel.launch.training.nemo_rl.toy_group

NeMo-RL must be importable. Prints one line of JSON: by the name of what was checked, what is wrong with it, empty where
nothing is. The exit code is 0 where nothing is.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import orjson

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.collector_hooks import list_missing_async
from gavel.envs.interfaces.nemo_rl.contract import BASELINE, ESTIMATORS
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.gym_driver import list_missing_gym
from gavel.envs.interfaces.nemo_rl.hooks import install_hooks
from gavel.envs.interfaces.nemo_rl.masking import TOLD, take_out_ungraded
from gavel.launch.training.nemo_rl import toy_rollout
from gavel.launch.training.nemo_rl.toy_rollout import POLICY, Settings, ToyEnvironment
from gavel.models.errors import GavelError

REWARDS = (1.0, *[0.3] * 14, 0.0)
"""One right, fourteen equal ones whose square no binary fraction has, and a lost one with its placeholder."""
LOST = 15
EARLY = 3
_CLOSE = 1e-5


def main() -> int:
    """Run the group; returns 0 where every figure is right."""
    with contextlib.redirect_stdout(sys.stderr):  # NeMo-RL says much
        found = run_group()
    sys.stdout.write(orjson.dumps(found).decode() + "\n")
    return int(any(found.values()))


def run_group() -> dict[str, str]:
    """Install the hooks in this process and run the group through each; return what is wrong by name, empty where
    nothing is.
    """
    driver = Driver(
        POLICY, FailurePolicy(max_ungraded_fraction=1.0), report=lambda handle, uids: handle.tell_verdicts(uids)
    )
    found = {"hooks": _run_check(lambda: _install_hooks(driver))}
    if found["hooks"]:
        return found
    return {**found, **{name: _run_check(check) for name, check in _make_checks(driver).items()}}


def _install_hooks(driver: Driver) -> str:
    install_hooks(driver)
    return ""


def _run_check(check: Callable[[], str]) -> str:
    try:
        return check()
    except GavelError as failed:
        return str(failed)
    except Exception as failed:  # noqa: BLE001 - the boundary of another project's code: whatever it raises is the finding
        return f"{type(failed).__name__}: {failed}"


def _make_checks(driver: Driver) -> dict[str, Callable[[], str]]:
    import torch

    graded = torch.ones(len(REWARDS))
    graded[LOST] = 0.0
    batch: Any = {"total_reward": torch.tensor(REWARDS), "loss_multiplier": torch.ones(len(REWARDS))}
    take_out_ungraded(batch, graded)
    batch[TOLD] = [_tell_sample(place) for place in range(len(REWARDS))]
    prompts, mask = torch.zeros(len(REWARDS), 3), batch["loss_multiplier"].unsqueeze(-1).expand(-1, 2)
    rollouts = {"rollout": "run_multi_turn_rollout", "asynchronous rollout": "run_async_multi_turn_rollout"}
    return {
        **{
            f"estimator {name}": partial(_compare_estimator, one, prompts, batch, mask)
            for name, one in _make_estimators().items()
        },
        "baseline of dynamic sampling": partial(_check_whole_group, prompts, batch),
        **{
            name: partial(toy_rollout.check_rollout, function, ToyEnvironment(REWARDS, LOST))
            for name, function in rollouts.items()
        },
        "validation": partial(toy_rollout.check_validation, ToyEnvironment(REWARDS, LOST)),
        "logging": partial(toy_rollout.check_logging, driver.record_batch, graded),
        "mask filter": partial(toy_rollout.check_mask_filter, graded),
        "data setup": toy_rollout.check_data_setup,
        **({} if list_missing_async() else {"asynchronous training": _check_collector}),
        **(
            {}
            if list_missing_gym()
            else {"rollout by NeMo Gym": partial(toy_rollout.check_gym_rollout, ToyEnvironment(REWARDS, LOST))}
        ),
    }


def _check_collector() -> str:
    return asyncio.run(toy_rollout.check_collector(ToyEnvironment(REWARDS, LOST)))


def _make_estimators() -> dict[str, tuple[Any, list[float]]]:
    """Return the estimators that are used, and the advantages that each must give."""
    module: Any = import_module("nemo_rl.algorithms.advantage_estimator")
    kept = REWARDS[:LOST]
    settings = Settings(
        use_leave_one_out_baseline=True,
        normalize_rewards=True,
        minus_baseline=True,
        use_kl_in_reward=False,
        reference_policy_kl_penalty=0.0,
        reference_policy_kl_type="k3",
    )
    mean = sum(kept) / len(kept)
    spread = math.sqrt(sum((one - mean) ** 2 for one in kept) / len(kept))
    wanted = {
        "grpo": [_compute_left_out(kept, place) for place in range(len(kept))],
        "reinforce_plus_plus": [(one - mean) / spread for one in kept],
        "gdpo": _compute_component_advantages(kept),
    }
    return {
        name: (getattr(module, cls)(settings, settings), [*wanted[name], 0.0])
        for cls, (name, stands) in ESTIMATORS.items()
        if stands == "exact" and hasattr(module, cls)
    }


def _tell_sample(place: int) -> dict[str, Any]:
    """Return what is told of a sample: its reward is one component, and the first three have another."""
    if place == LOST:
        return {"uid": str(place), "verdict": None, "figures": None}
    components = {"whole": REWARDS[place], **({"early": float(place)} if place < EARLY else {})}
    return {"uid": str(place), "verdict": {"components": components}, "figures": None}


def _compute_component_advantages(kept: tuple[float, ...]) -> list[float]:
    """Return GDPO's advantages: the sum of both components', normalised over the batch."""
    early = tuple(float(place) for place in range(EARLY))
    both = [
        _compute_left_out(kept, place) + (_compute_left_out(early, place) if place < EARLY else 0.0)
        for place in range(len(kept))
    ]
    mean = sum(both) / len(both)
    spread = math.sqrt(sum((one - mean) ** 2 for one in both) / (len(both) - 1))
    return [(one - mean) / spread for one in both]


def _compute_left_out(kept: tuple[float, ...], place: int) -> float:
    """Return GRPO's advantage of one sample among the others: not normalised where those are equal."""
    others = [one for other, one in enumerate(kept) if other != place]
    mean = sum(others) / len(others)
    variance = sum((one - mean) ** 2 for one in others) / (len(others) - 1)
    return (kept[place] - mean) / (math.sqrt(variance) + 1e-6 if len(set(others)) > 1 else 1.0)


def _compare_estimator(made: tuple[Any, list[float]], prompts: Any, batch: Any, mask: Any) -> str:
    estimator, wanted = made
    found = estimator.compute_advantage(
        prompt_ids=prompts, rewards=batch["total_reward"], mask=mask, repeated_batch=batch
    )
    for place, (got, right) in enumerate(zip(found[:, 0].tolist(), wanted, strict=True)):
        if not abs(got - right) <= _CLOSE * max(1.0, abs(right)):
            return f"sample {place} of a toy group gets the advantage {got:g} instead of {right:g}"
    return ""


def _check_whole_group(prompts: Any, batch: Any) -> str:
    """Check the trainer's own baseline: its spread, by which dynamic sampling chooses, is one for the whole group."""
    import torch

    trainer: Any = import_module("nemo_rl.algorithms.grpo")
    rewards = batch["total_reward"]
    _, std = getattr(trainer, BASELINE)(prompts, rewards, torch.ones_like(rewards), leave_one_out_baseline=True)
    return (
        ""
        if len(set(std.tolist())) == 1 and float(std[0]) > 0
        else "the trainer's baseline tells the samples of one group apart"
    )


if __name__ == "__main__":
    sys.exit(main())
