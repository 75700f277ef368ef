"""The Ray actor; its dotted name is what NeMo-RL is given.

The only module, with ``ray_checkers``, that needs Ray to be imported.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import ray

from gavel.envs.interfaces.nemo_rl.actor import GavelEnvironment

FQN = f"{__name__}.GavelActor"


# Restarted without end and its calls repeated: steps are safe to replay. Every method is async, so the limit is the
# calls in flight, of
# which the async rollout makes one for each sample.
@ray.remote(max_restarts=-1, max_task_retries=-1, max_concurrency=8192)
class GavelActor(GavelEnvironment):
    """See ``GavelEnvironment``; the process is its own, so its memory management is too."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        # Thousands of samples in flight are one live heap, which the default thresholds search over and over: a third
        # of a step's CPU.
        gc.collect()
        gc.freeze()
        gc.set_threshold(200_000, 20, 20)
