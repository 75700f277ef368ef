"""The driver's part where NeMo Gym rolls out: what came with each answer is read, in the place of asking an actor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.async_driver import AsyncDriver
from gavel.envs.interfaces.nemo_rl.collector_hooks import install_async_training, list_missing_async
from gavel.envs.interfaces.nemo_rl.contract import GYM_ROLLOUT, NEEDED_GYM
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.gym_groups import GROUP, wrap_group
from gavel.envs.interfaces.nemo_rl.hooks import install_hooks, list_missing, refuse_missing
from gavel.envs.interfaces.nemo_rl.hosting import compute_own_metrics
from gavel.envs.interfaces.nemo_rl.ledger import SampleVerdict, StepLedger
from gavel.envs.interfaces.nemo_rl.masking import GRADED, TOLD
from gavel.envs.interfaces.nemo_rl.metrics import Tallies, compute_reward_range
from gavel.envs.interfaces.nemo_rl.stamps import list_rows
from gavel.envs.types import Environment, Result
from gavel.models.codec import decode

Told = Sequence[Mapping[str, Any]]
Figures = list[tuple[str, int, Mapping[str, float]]]


def compute_figures(told: Told, environments: Mapping[str, Environment]) -> Figures:
    """Return each environment's own metrics of the graded samples of a step, and how many these are.

    Args:
        told: of ``gym_groups``, with results.
        environments: by the name in verdicts.
    """
    found: dict[str, list[Result]] = {}
    for one in told:
        if one["verdict"] is not None and one["verdict"]["failure"] is None and one["result"] is not None:
            found.setdefault(one["verdict"]["env"], []).append(decode(Result, one["result"]))
    return [
        (env, len(results), compute_own_metrics(environments[env], results))
        for env, results in found.items()
        if env in environments
    ]


def wrap_gym_rollout(driver: GymDriver, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return NeMo-RL's rollout of a whole batch by NeMo Gym, its rows stamped and its result settled."""
    signature = inspect.signature(original)

    def run_rollout(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        bound.arguments["input_batch"] = driver.stamp_rows(bound.arguments["input_batch"])
        rolled = original(*bound.args, **bound.kwargs)
        driver.settle_gym(rolled)
        return rolled

    return run_rollout


class GymDriver(Driver):
    """Wraps ``grpo_train`` with rollouts by NeMo Gym.

    Args:
        environments: those that are trained on, by the name that their verdicts bear.
        others: as ``Driver`` takes them.
    """

    def __init__(
        self,
        policy: Mapping[str, Any],
        failure: FailurePolicy,
        steps: StepLedger | None = None,
        *,
        environments: Mapping[str, Environment],
        **others: Any,
    ) -> None:
        super().__init__(policy, failure, steps, **others)
        self._by_name, self._told = environments, ()

    _told: Told

    def stamp_rows(self, batch: Any) -> Any:
        """Return a batch whose rows have ids of their own."""
        batch = batch.copy()
        batch["extra_env_info"] = self._samples.stamp_infos(batch["extra_env_info"], list_rows(batch))
        return batch

    def settle_gym(self, rolled: Any) -> None:
        """Take the verdicts of a rollout; its metrics get those of its graded samples.

        Raises:
            TrainingStopped: too many samples are ungraded.
        """
        final = rolled.final_batch
        self._told, self._metrics = final[TOLD], rolled.rollout_metrics
        self._metrics.update(self._settle_batch(final, final["extra_env_info"], {}))

    def _ask_verdicts(
        self,
        names: Sequence[str],  # noqa: ARG002 - the verdicts are there already
        infos: Sequence[Any],  # noqa: ARG002
        environments: Mapping[str, Any],  # noqa: ARG002
        tallies: Tallies,
    ) -> list[SampleVerdict | None]:
        tallies.environments += compute_figures(self._told, self._by_name)
        return decode(list[SampleVerdict | None], [one["verdict"] for one in self._told])


class GymAsyncDriver(GymDriver, AsyncDriver):
    """Wraps ``async_grpo_train`` with rollouts by NeMo Gym; its validation rolls out in the driver."""

    def record_batch(self, batch: Any, mask: Any) -> None:
        """Read what came with the batch of a step; NeMo-RL's own figures of rewards, which it averages over groups, are
        put right over its graded samples.
        """
        super().record_batch(batch, mask)
        counted = [value != 0 for value in batch[GRADED].tolist()]
        names = [f"{one['name']}/reward" for one in batch["agent_ref"]] if "agent_ref" in batch else []
        rewards = batch["total_reward"].tolist()
        for prefix in ("total_reward", *dict.fromkeys(names)):
            kept = [
                reward
                for place, (reward, graded) in enumerate(zip(rewards, counted, strict=True))
                if graded and (prefix == "total_reward" or names[place] == prefix)
            ]
            found = compute_reward_range(kept)
            self._metrics |= {f"{prefix}/{name.partition('_')[0]}": value for name, value in found.items()}

    def _list_figures(self, told: Told) -> Figures:
        return compute_figures(told, self._by_name)


def list_missing_gym(*, asynchronous: bool = False) -> list[str]:
    """Return what this NeMo-RL lacks of what rollouts by NeMo Gym are hooked by; imports it."""
    return list_missing(NEEDED_GYM) or (list_missing_async() if asynchronous else [])


def install_gym_training(driver: GymDriver) -> None:
    """Put a driver's wrappers in place, before the trainer's script is imported.

    Raises:
        ConfigError: this NeMo-RL lacks what they need; nothing was changed.
    """
    asynchronous = isinstance(driver, AsyncDriver)
    refuse_missing(list_missing_gym(asynchronous=asynchronous))
    if isinstance(driver, AsyncDriver):
        install_async_training(driver)
    else:
        install_hooks(driver)
    rollouts: Any = import_module("nemo_rl.experience.rollouts")
    grpo: Any = import_module("nemo_rl.algorithms.grpo")
    setattr(rollouts, GROUP, wrap_group(getattr(rollouts, GROUP), rollouts.calculate_single_metric))
    setattr(grpo, GYM_ROLLOUT, wrap_gym_rollout(driver, getattr(grpo, GYM_ROLLOUT)))
