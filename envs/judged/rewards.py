"""Rewards over judged outcomes: the mean of the rubrics' scores, by their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gavel.envs.types import Outcome, Reward, RewardError
from gavel.models.codec import record
from gavel.models.errors import ConfigError


@record
class GradedConfig:
    """``weights`` of rubrics by name; one that is not named weighs 1."""

    weights: Mapping[str, float] = field(default_factory=dict)


class GradedReward:
    """The mean of the scores of an outcome's checks by their weights, from 0 to 1; ``components`` are the rubrics' parts of it."""

    bounds = (0.0, 1.0)

    def __init__(self, config: GradedConfig) -> None:
        self._weights = config.weights
        self.ablation = (
            f"weights: {', '.join(f'{name}={weight:g}' for name, weight in config.weights.items())}" if config.weights else None
        )

    def reward(self, outcome: Outcome) -> Reward:
        """Return the reward.

        Raises:
            RewardError: a rubric that weighs something gave no verdict, a weight names none, or all weigh nothing.
        """
        names = [check.name for check in outcome.checks]
        if unknown := [name for name in self._weights if name not in names]:
            raise RewardError(
                "reward=graded weighs a rubric that did not grade",
                field=f"reward.weights.{unknown[0]}",
                found=", ".join(names) or "no rubric",
                allowed="names of the run's rubrics",
            )
        weights = {name: self._weights.get(name, 1.0) for name in names}
        total = sum(weights.values())
        if total <= 0:
            raise RewardError(
                "all rubrics weigh nothing", field="reward.weights", found=", ".join(names) or "no rubric", allowed="a weight above 0"
            )
        if missing := [check.name for check in outcome.checks if check.passed is None and weights[check.name] > 0]:
            raise RewardError(
                "reward=graded needs a verdict that is missing",
                field=f"checks.{missing[0]}",
                remedy=f"regrade, or reward.weights.{missing[0]}=0",
            )
        parts = {check.name: weights[check.name] * check.score / total for check in outcome.checks}
        return Reward(sum(parts.values()), parts)


def graded(config: GradedConfig) -> GradedReward:
    """Make the policy.

    Raises:
        ConfigError: a weight below 0.
    """
    for name, weight in config.weights.items():
        if weight < 0:
            raise ConfigError("a weight may not be negative", field=f"reward.weights.{name}", found=f"{weight:g}", allowed="0 or more")
    return GradedReward(config)
