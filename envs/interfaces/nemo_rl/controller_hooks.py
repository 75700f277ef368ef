"""Lets NeMo-RL's SingleController build its rollouts of this package's class."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.hooks import require_names
from gavel.envs.interfaces.nemo_rl.prompts import wrap_setup


def install_single_controller(policy: Mapping[str, Any], failure: FailurePolicy) -> None:
    """Let SingleController build its rollouts of our class, which takes its own hooks along into the controller's
    process.

    Raises:
        ConfigError: as ``install_hooks``.
    """
    from functools import partial

    require_names()

    from gavel.envs.interfaces.nemo_rl.single_controller import GavelRolloutImpl

    data: Any = import_module("nemo_rl.data.utils")
    data.setup_response_data = wrap_setup(data.setup_response_data, apart=False)
    manager: Any = import_module("nemo_rl.experience.rollout_manager")
    manager.AsyncRolloutImpl = partial(GavelRolloutImpl, gavel_policy=dict(policy), gavel_failure=failure)
