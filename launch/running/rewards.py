"""Stored rewards against the policy that made them: a reward is a pure function of its outcome, so it can be computed again."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gavel.envs.types import Result, RewardPolicy
from gavel.launch.running.lease import RunFolderError
from gavel.models.errors import GavelError

_CLOSE = 1e-9


def compare_reward(result: Result, reward: RewardPolicy) -> Iterator[tuple[str, str, str]]:
    """Yield (field, found, right) for each number of a graded row that is not what the policy gives its outcome."""
    if result.reward is None:
        return
    try:
        right = reward.reward(result.outcome)
    except GavelError as failed:
        yield "reward", f"{result.reward.value:g}", f"none, the policy refuses: {str(failed).splitlines()[0]}"
        return
    stored = {"reward.value": result.reward.value, **{f"reward.components.{k}": v for k, v in result.reward.components.items()}}
    made = {"reward.value": right.value, **{f"reward.components.{k}": v for k, v in right.components.items()}}
    for name in {**stored, **made}:
        found, wanted = stored.get(name), made.get(name)
        if found is None or wanted is None or not math.isclose(found, wanted, rel_tol=_CLOSE, abs_tol=_CLOSE):
            yield name, "none" if found is None else f"{found:g}", "none" if wanted is None else f"{wanted:g}"


def check_reward_of(result: Result, reward: RewardPolicy, where: str) -> None:
    """Refuse a stored row whose reward its policy did not give.

    Raises:
        RunFolderError: names the row, the field, what is stored and what is right.
    """
    for name, found, right in compare_reward(result, reward):
        raise RunFolderError(
            f"this reward is not what the run's policy gives the outcome of {result.task_id} (rollout {result.rollout_index})",
            where=where, field=name, found=found, allowed=right,
            remedy="put the file back as it was; `gavel verify RUN` lists such rows, `gavel rescore RUN` makes a run with new rewards",
        )  # fmt: skip
