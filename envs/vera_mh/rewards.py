"""The reward ``vera``: a conversation's own score.

It is diagnostic; the official number is the pooled score of a whole run.
"""

from __future__ import annotations

from gavel.envs.types import Outcome, Reward, RewardError
from gavel.envs.vera_mh.rating import RATINGS
from gavel.envs.vera_mh.scoring import NOTHING_RATED, compute_conversation_score
from gavel.models.codec import record
from gavel.models.errors import shorten_value


@record
class VeraConfig:
    """It has no options: the score is upstream's."""


class VeraReward:
    """The score of the conversation's rated dimensions, divided by 100; ``NOTHING_RATED`` where none was rated."""

    name = "vera"
    bounds = (0.0, 1.0)
    ablation = None

    def reward(self, outcome: Outcome) -> Reward:
        """Return the reward.

        Raises:
            RewardError: the outcome is ungraded, or another environment's.
        """
        ratings = (outcome.details or {}).get("ratings")
        if not outcome.graded or not isinstance(ratings, dict) or not set(ratings.values()) <= {*RATINGS, ""}:
            raise RewardError(
                "reward=vera cannot reward this outcome",
                field="outcome.details.ratings",
                found=shorten_value(ratings) if outcome.graded else "ungraded",
                allowed=", ".join(RATINGS),
                remedy="choose a reward policy of the outcome's environment",
            )
        score = compute_conversation_score(ratings.values())
        value = NOTHING_RATED if score is None else score / 100
        return Reward(value, {"vera": value})


def make_vera(config: VeraConfig) -> VeraReward:  # noqa: ARG001
    """Make the reward policy."""
    return VeraReward()
