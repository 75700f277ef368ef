"""Lets NeMo-RL's ``async_grpo_train`` collect its trajectories with this package's class."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gavel.envs.interfaces.nemo_rl.async_driver import AsyncDriver
from gavel.envs.interfaces.nemo_rl.contract import COLLECTOR, NEEDED_ASYNC
from gavel.envs.interfaces.nemo_rl.hooks import install_hooks, list_missing, refuse_missing


def list_missing_async() -> list[str]:
    """Return what this NeMo-RL lacks of what asynchronous training is hooked by; imports it."""
    if missing := list_missing(NEEDED_ASYNC):
        return missing
    module = import_module("nemo_rl.algorithms.async_utils.trajectory_collector")
    stock = module.AsyncTrajectoryCollector.__ray_metadata__.modified_class
    return [f"AsyncTrajectoryCollector.{name}" for name in COLLECTOR if not hasattr(stock, name)]


def install_async_training(driver: AsyncDriver) -> None:
    """Put a driver's wrappers in place, and our collector where the trainer imports NeMo-RL's.

    The trainer starts it in the interpreter that NeMo-RL has registered under its own collector's name.

    Raises:
        ConfigError: this NeMo-RL lacks what they need; nothing was changed.
    """
    import ray

    refuse_missing(list_missing_async())
    install_hooks(driver)

    from gavel.envs.interfaces.nemo_rl.collector import GavelCollector

    trainer: Any = import_module("nemo_rl.algorithms.grpo")
    trainer.async_grpo_train = driver.wrap_training(trainer.async_grpo_train)
    package: Any = import_module("nemo_rl.algorithms.async_utils")
    package.AsyncTrajectoryCollector = ray.remote(GavelCollector)
