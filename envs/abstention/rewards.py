"""Rewards over abstention outcomes: a table from label to number."""

from __future__ import annotations

from collections.abc import Mapping

from gavel.envs.types import Outcome, Reward, RewardError
from gavel.models.codec import record, to_plain
from gavel.models.errors import ConfigError

V1 = {"correct": 1.0, "abstain": 0.5, "incorrect": 0.0}
"""What the v1 objective pays; any other value is an ablation."""


@record
class TieredConfig:
    """What each verdict earns; ``correct >= abstain >= incorrect``."""

    correct: float = 1.0
    abstain: float = 0.5
    incorrect: float = 0.0


@record
class OmniscienceConfig:
    """The same keys with the only values they may have: the index is defined by them."""

    correct: float = 1.0
    abstain: float = 0.0
    incorrect: float = -1.0


class LabelRewards:
    """A reward for each label of the abstention environment.

    ``components`` always hold ``correct``, ``abstain``, ``incorrect`` and ``unanswered`` (truncated, or no final
    answer), so that their means over rows are the shares of the mean reward; they sum to the value.

    ``ablation`` says how tiers differ from the v1 objective, for the run to record; None if they do not.

    An unanswered reply earns 0, whatever the tiers, and never more than abstaining: being cut off is no way to abstain.
    """

    def __init__(self, name: str, *, correct: float, abstain: float, incorrect: float) -> None:
        self.name = name
        self.ablation = (
            _describe_ablation(correct=correct, abstain=abstain, incorrect=incorrect) if name == "tiered" else None
        )
        self.bounds = (min(0.0, incorrect), max(0.0, correct)) if correct > incorrect else None
        unanswered = min(0.0, abstain)
        self._rewards: Mapping[str, Reward] = {
            label: _make_reward(component, value)
            for label, component, value in (
                ("correct", "correct", correct),
                ("abstained", "abstain", abstain),
                ("incorrect", "incorrect", incorrect),
                ("truncated", "unanswered", unanswered),
                ("no_answer", "unanswered", unanswered),
            )
        }

    def reward(self, outcome: Outcome) -> Reward:
        """Return the reward of the outcome's label.

        Raises:
            RewardError: the outcome is ungraded, or its label is another environment's.
        """
        reward = self._rewards.get(outcome.label)
        if reward is None:
            raise RewardError(
                f"reward={self.name} cannot reward this outcome",
                field="outcome.label",
                found=outcome.label or "ungraded",
                allowed=", ".join(self._rewards),
                remedy="choose a reward policy of the outcome's environment",
            )
        return reward


def _describe_ablation(**tiers: float) -> str | None:
    changed = [f"{name}={value:g} instead of {V1[name]:g}" for name, value in tiers.items() if value != V1[name]]
    return f"ablation of the v1 objective: {', '.join(changed)}" if changed else None


def _make_reward(component: str, value: float) -> Reward:
    components = dict.fromkeys(("correct", "abstain", "incorrect", "unanswered"), 0.0)
    return Reward(float(value), {**components, component: float(value)})


def make_tiered(config: TieredConfig) -> LabelRewards:
    """Correct, abstained, incorrect: three tiers, by default the 1, 0.5, 0 of the v1 objective.

    Raises:
        ConfigError: the tiers are not in order.
    """
    for upper, lower in (("correct", "abstain"), ("abstain", "incorrect")):
        above, below = getattr(config, upper), getattr(config, lower)
        if above < below:
            raise ConfigError(
                f"{upper} may not earn less than {lower}",
                field=f"reward.{upper}",
                found=f"{upper}={above:g}, {lower}={below:g}",
                allowed="correct >= abstain >= incorrect",
            )
    return LabelRewards("tiered", correct=config.correct, abstain=config.abstain, incorrect=config.incorrect)


def make_omniscience(config: OmniscienceConfig) -> LabelRewards:
    """+1, 0, -1: the mean over graded rows is the omniscience index (Artificial Analysis, AA-Omniscience).

    Raises:
        ConfigError: another value was asked for.
    """
    for field, fixed in to_plain(OmniscienceConfig()).items():
        if (found := getattr(config, field)) != fixed:
            raise ConfigError(
                "the omniscience reward has fixed values",
                field=f"reward.{field}",
                found=f"{found:g}",
                allowed=f"{fixed:g}",
                remedy=f"remove it, or use reward=tiered reward.{field}={found:g}",
            )
    return LabelRewards("omniscience", correct=1.0, abstain=0.0, incorrect=-1.0)
