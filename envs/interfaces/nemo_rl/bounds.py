"""The check of every advantage against the bound that follows from the rewards' range, at the hook around NeMo-RL's
estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from gavel.envs.interfaces.nemo_rl.baseline import BOUNDS, Exceeded, find_exceeded
from gavel.envs.interfaces.nemo_rl.driver import TrainingStopped
from gavel.envs.interfaces.nemo_rl.masking import find_graded
from gavel.envs.interfaces.nemo_rl.stamps import TASK, is_ours


class AdvantageOutOfBounds(TrainingStopped):
    """An advantage that the rewards of its group cannot give. ``step`` is None where it is not known."""

    def __init__(self, step: int | None, group: str, value: float, bound: float) -> None:
        self.step, self.group, self.value, self.bound = step, group, value, bound
        where = f"step {step}" if step is not None else "a step"
        super().__init__(
            f"{where}: a sample of {group} would be trained on with an advantage of {value:g}, and the rewards of "
            f"its group allow at "
            f"most {bound:g}: this NeMo-RL computes wrongly; nothing of this step was trained on, the last "
            f"checkpoint is whole"
        )


def wrap_bounded_advantage(
    original: Callable[..., Any], step: Callable[[], int | None], report: Callable[[float, float], None]
) -> Callable[..., Any]:
    """Return an estimator's ``compute_advantage``, computed in float64, whose advantages are compared with their
    bounds.

    In float32 a batch of equal rewards is normalised to rounding errors: their spread is taken to be at least 1e-4.

    Args:
        original: the estimator's method.
        step: gives the number of the step under way, from 1.
        report: is told the largest advantage by amount and the largest bound of each call.

    Raises:
        AdvantageOutOfBounds: when called, see there.
    """

    def compute_advantage(self: Any, prompt_ids: Any, rewards: Any, mask: Any, *args: Any, **options: Any) -> Any:
        bound_of = next((BOUNDS[one.__name__] for one in type(self).__mro__ if one.__name__ in BOUNDS), None)
        if bound_of is None or not len(rewards):
            return original(self, prompt_ids, rewards, mask, *args, **options)
        advantages = original(self, prompt_ids, rewards.double(), mask, *args, **options).to(rewards.dtype)
        largest, allowed, worst = find_exceeded(
            advantages, mask, bound_of(self, prompt_ids, rewards, _find_valid(rewards, options), mask)
        )
        report(largest, allowed)
        if worst is not None:
            raise AdvantageOutOfBounds(step(), _find_group(worst, options), worst.value, worst.bound)
        return advantages

    return compute_advantage


def _find_valid(rewards: Any, options: Mapping[str, Any]) -> Any:
    """Return which samples count, ``[B]``: the graded ones, of those that a newer NeMo-RL says are valid."""
    import torch

    valid = torch.ones_like(rewards)
    for column in (find_graded(options), options.get("valid_mask")):
        if column is not None:
            valid = valid * column.to(device=rewards.device, dtype=rewards.dtype)
    return valid


def _find_group(worst: Exceeded, options: Mapping[str, Any]) -> str:
    batch = options.get("repeated_batch")
    infos = batch["extra_env_info"] if batch is not None and "extra_env_info" in batch else None
    if infos is not None and is_ours(infos[worst.row]):
        return f"task {orjson.loads(infos[worst.row][TASK])['task_id']}"
    return f"the group of row {worst.row}"
