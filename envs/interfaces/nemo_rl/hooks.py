"""Puts the driver's wrappers into NeMo-RL, after looking at what this version can do.

Reaches what runs in the driver's process: ``grpo_train`` with synchronous or asynchronous rollouts, and validation.
Trainers that roll out in processes of their own get a class that is made there: ``collector``, ``single_controller``.
Others are refused. Names are those of NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from gavel.envs.interfaces.nemo_rl.baseline import SettledBaseline, list_unknown_parameters, settle_baseline
from gavel.envs.interfaces.nemo_rl.bounds import wrap_bounded_advantage
from gavel.envs.interfaces.nemo_rl.components import wrap_component_advantage
from gavel.envs.interfaces.nemo_rl.contract import BASELINE, COMPONENTS, LOGGING, NEEDED, TESTED
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.gathering import StepGatherer
from gavel.envs.interfaces.nemo_rl.masking import (
    list_environments,
    separate_prompts,
    wrap_estimator_baseline,
    wrap_masked_advantage,
    wrap_separate_groups,
    wrap_whole_groups,
)
from gavel.envs.interfaces.nemo_rl.prompts import wrap_setup
from gavel.envs.interfaces.nemo_rl.returned import FIELDS, list_unknown_fields
from gavel.models.errors import ConfigError


def list_missing_names() -> list[str]:
    """Return what this NeMo-RL lacks of what the hooks take hold of; imports it."""
    if found := list_missing(NEEDED):
        return found
    returned = import_module("nemo_rl.environments.interfaces").EnvironmentReturn
    if unknown := list_unknown_fields(returned):
        return [f"EnvironmentReturn({', '.join(FIELDS)}); it has {', '.join(unknown)}"]
    baseline = getattr(import_module("nemo_rl.algorithms.utils"), BASELINE)
    if "valid_mask" not in inspect.signature(baseline).parameters:
        return [f"nemo_rl.algorithms.utils.{BASELINE}(valid_mask)"]
    return [
        f"an exact nemo_rl.algorithms.utils.{BASELINE}, or one without {name}"
        for name in list_unknown_parameters(baseline)
    ]


def list_missing(needed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return which of the names, by module, this NeMo-RL lacks; imports it."""
    found = []
    for module, names in needed.items():
        try:
            held = import_module(module)
        except ModuleNotFoundError as failed:
            found.append(f"{module} (no module {failed.name})")
        else:
            found += [f"{module}.{name}" for name in names if not hasattr(held, name)]
    return found


def install_hooks(driver: Driver) -> None:
    """Put a driver's wrappers in place, once for a process, before the trainer's script is imported.

    Raises:
        ConfigError: this NeMo-RL lacks what they need; nothing was changed.
    """
    require_names()
    modules: list[Any] = [import_module(name) for name in NEEDED]
    rollouts, manager, estimators, data, grpo = modules
    data.setup_response_data = wrap_setup(data.setup_response_data, apart=True)
    rollouts.calculate_rewards = driver.endings.wrap_rewards(StepGatherer(rollouts.calculate_rewards))
    manager.calculate_rewards = driver.endings.wrap_rewards(manager.calculate_rewards)
    for name in ("run_multi_turn_rollout", "run_async_multi_turn_rollout"):
        setattr(grpo, name, driver.wrap_rollout(getattr(grpo, name)))
    grpo.validate = driver.wrap_validate(grpo.validate)
    setattr(grpo, LOGGING, driver.wrap_logging(getattr(grpo, LOGGING)))
    grpo.grpo_train = driver.wrap_training(grpo.grpo_train)
    whole = wrap_whole_groups(settle_baseline(getattr(grpo, BASELINE)), driver.find_graded)
    setattr(grpo, BASELINE, wrap_separate_groups(whole, driver.find_environments))
    setattr(estimators, BASELINE, wrap_estimator_baseline(settle_baseline(getattr(estimators, BASELINE))))
    for estimator in _find_estimators(estimators):
        if estimator.__name__ == COMPONENTS:
            masked = wrap_component_advantage(estimator.compute_advantage, several=driver.several)
        else:
            masked = wrap_masked_advantage(estimator.compute_advantage, driver.explain_unmarked)
        bounded = wrap_bounded_advantage(masked, lambda: driver.step_under_way, driver.record_bound)
        estimator.compute_advantage = _wrap_noted(driver, bounded)


def require_names() -> None:
    """Refuse a NeMo-RL that lacks what the hooks take hold of.

    Raises:
        ConfigError: names what is missing.
    """
    refuse_missing(list_missing_names())


def refuse_missing(missing: Sequence[str]) -> None:
    """Refuse a NeMo-RL of which something is missing.

    Raises:
        ConfigError: names it.
    """
    if missing:
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


def _find_estimators(module: Any) -> list[Any]:
    return [
        value
        for name, value in vars(module).items()
        if name.endswith("AdvantageEstimator") and hasattr(value, "compute_advantage")
    ]


def _wrap_noted(driver: Driver, compute: Any) -> Any:
    def compute_advantage(self: Any, prompt_ids: Any, rewards: Any, mask: Any, *args: Any, **options: Any) -> Any:
        batch = options.get("repeated_batch")
        driver.record_batch(batch, mask)
        if batch is not None and "task_name" in batch:
            prompt_ids = separate_prompts(prompt_ids, list_environments(batch))
        advantages = compute(self, prompt_ids, rewards, mask, *args, **options)
        driver.finish_step(self)
        return advantages

    return compute_advantage
