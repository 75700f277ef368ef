"""Puts the driver's wrappers into NeMo-RL, after looking at what this version can do.

Reaches what runs in the driver's process: ``grpo_train`` with synchronous or asynchronous rollouts, and validation;
and, through a class that travels with it, SingleController. Trainers that roll out in processes of their own cannot be
reached and are refused. Names are those of NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from gavel.envs.interfaces.nemo_rl.baseline import SettledBaseline, list_unknown_parameters, settle_baseline
from gavel.envs.interfaces.nemo_rl.bounds import wrap_bounded_advantage
from gavel.envs.interfaces.nemo_rl.contract import BASELINE, LOGGING, NEEDED, TESTED
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.masking import wrap_estimator_baseline, wrap_masked_advantage, wrap_whole_groups
from gavel.envs.interfaces.nemo_rl.prompts import wrap_setup
from gavel.envs.interfaces.nemo_rl.returned import FIELDS, list_unknown_fields
from gavel.models.errors import ConfigError

ROLLOUT_THREADS = 512


def list_missing_names() -> list[str]:
    """Return what this NeMo-RL lacks of what the hooks take hold of; imports it."""
    found = [name for module, names in NEEDED.items() for name in _list_missing(module, names)]
    if found:
        return found
    returned = import_module("nemo_rl.environments.interfaces").EnvironmentReturn
    if unknown := list_unknown_fields(returned):
        found.append(f"EnvironmentReturn({', '.join(FIELDS)}); it has {', '.join(unknown)}")
    if found:
        return found
    baseline = getattr(import_module("nemo_rl.algorithms.utils"), BASELINE)
    if "valid_mask" not in inspect.signature(baseline).parameters:
        return [f"nemo_rl.algorithms.utils.{BASELINE}(valid_mask)"]
    return [
        f"an exact nemo_rl.algorithms.utils.{BASELINE}, or one without {name}"
        for name in list_unknown_parameters(baseline)
    ]


def _list_missing(module: str, names: tuple[str, ...]) -> list[str]:
    try:
        held = import_module(module)
    except ModuleNotFoundError as failed:
        return [f"{module} (no module {failed.name})"]
    return [f"{module}.{name}" for name in names if not hasattr(held, name)]


def install_hooks(driver: Driver) -> None:
    """Put a driver's wrappers in place, once for a process, before the trainer's script is imported.

    Raises:
        ConfigError: this NeMo-RL lacks what they need; nothing was changed.
    """
    require_names()
    modules: list[Any] = [import_module(name) for name in NEEDED]
    rollouts, manager, estimators, data, grpo = modules
    data.setup_response_data = wrap_setup(data.setup_response_data)
    for module in (rollouts, manager):
        module.calculate_rewards = driver.endings.wrap_rewards(module.calculate_rewards)
    for name in ("run_multi_turn_rollout", "run_async_multi_turn_rollout"):
        setattr(grpo, name, driver.wrap_rollout(getattr(grpo, name)))
    grpo.validate = driver.wrap_validate(grpo.validate)
    setattr(grpo, LOGGING, driver.wrap_logging(getattr(grpo, LOGGING)))
    grpo.grpo_train = driver.wrap_training(grpo.grpo_train)
    setattr(grpo, BASELINE, wrap_whole_groups(settle_baseline(getattr(grpo, BASELINE)), driver.find_graded))
    setattr(estimators, BASELINE, wrap_estimator_baseline(settle_baseline(getattr(estimators, BASELINE))))
    for estimator in _find_estimators(estimators):
        masked = wrap_masked_advantage(estimator.compute_advantage, driver.explain_unmarked)
        bounded = wrap_bounded_advantage(masked, lambda: driver.step_under_way, driver.record_bound)
        estimator.compute_advantage = _wrap_noted(driver, bounded)


def require_names() -> None:
    """Refuse a NeMo-RL that lacks what the hooks take hold of.

    Raises:
        ConfigError: names what is missing.
    """
    if missing := list_missing_names():
        raise ConfigError(
            "the hooks do not fit this NeMo-RL, and without them an ungraded sample would be trained on as a zero",
            field="trainer.nemo_rl_root",
            found=f"it lacks {'; '.join(missing)}",
            allowed=f"NVIDIA-NeMo/RL at {TESTED}, or one like it",
        )


def settle_estimators() -> None:
    """Let the estimators of this process compute exactly, for a trainer that is not hooked otherwise; doing it twice is
    allowed.
    """
    module: Any = import_module("nemo_rl.algorithms.advantage_estimator")
    if isinstance(getattr(module, BASELINE), SettledBaseline):
        return
    setattr(module, BASELINE, settle_baseline(getattr(module, BASELINE)))
    for estimator in _find_estimators(module):
        estimator.compute_advantage = wrap_bounded_advantage(estimator.compute_advantage, lambda: None, lambda *_: None)


def widen_executor(threads: int = ROLLOUT_THREADS) -> None:
    """Give every event loop made from now on so many threads: each asynchronous rollout waits for its step in one.

    The default is at most 32, which holds a slow judge to as many calls at once.
    """
    asyncio.set_event_loop_policy(_WidePolicy(threads))


class _WidePolicy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        loop.set_default_executor(ThreadPoolExecutor(self._threads, thread_name_prefix="gavel-rollout"))
        return loop


def _find_estimators(module: Any) -> list[Any]:
    return [
        value
        for name, value in vars(module).items()
        if name.endswith("AdvantageEstimator") and hasattr(value, "compute_advantage")
    ]


def _wrap_noted(driver: Driver, compute: Any) -> Any:
    def compute_advantage(self: Any, prompt_ids: Any, rewards: Any, mask: Any, *args: Any, **options: Any) -> Any:
        if (batch := options.get("repeated_batch")) is not None:
            driver.record_batch(batch, mask)
        return compute(self, prompt_ids, rewards, mask, *args, **options)

    return compute_advantage
