"""Rewards over judged outcomes: the mean of the rubrics' scores, by their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from gavel.envs.judged.criteria import LEAST_POINTS, MOST_POINTS, compute_earned_score
from gavel.envs.types import Check, Outcome, Reward, RewardError
from gavel.models.codec import record
from gavel.models.errors import ConfigError


@record
class GradedConfig:
    """``weights`` of rubrics by name; one that is not named weighs 1. For rubrics that ask about criteria: ``points``
    by a criterion's id in place of its own, ``tags``: factors of the points of criteria with a tag, ``vetoes``: whether
    a met veto makes it 0."""

    weights: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, float] = field(default_factory=dict)
    vetoes: bool = True


class GradedReward:
    """The mean of the rubrics' scores by their weights, from 0 to 1; ``components`` are the rubrics' parts of it. A
    rubric that asks about criteria scores the points earned over the sum of the positive ones, clipped to 0 and 1."""

    bounds = (0.0, 1.0)

    def __init__(self, config: GradedConfig) -> None:
        self._config = config
        groups = (("", config.weights), ("points.", config.points), ("tags.", config.tags))
        changed = [f"{prefix}{name}={value:g}" for prefix, values in groups for name, value in values.items()]
        changed += [] if config.vetoes else ["vetoes=false"]
        self.ablation = f"weights: {', '.join(changed)}" if changed else None

    def reward(self, outcome: Outcome) -> Reward:
        """Return the reward.

        Raises:
            RewardError: a rubric that weighs something gave no verdict, a weight names none, or all weigh nothing.
        """
        checks: dict[str, list[Check]] = {}
        criteria = (outcome.details or {}).get("criteria", {})
        for check in outcome.checks:
            owner = next((rubric for rubric in criteria if check.name.startswith(f"{rubric}/")), check.name)
            checks.setdefault(owner, []).append(check)
        if unknown := [name for name in self._config.weights if name not in checks]:
            raise RewardError(
                "reward=graded weighs a rubric that did not grade",
                field=f"reward.weights.{unknown[0]}",
                found=", ".join(checks) or "no rubric",
                allowed="names of the run's rubrics",
            )
        weights = {name: self._config.weights.get(name, 1.0) for name in checks}
        total = sum(weights.values())
        if total <= 0:
            raise RewardError(
                "all rubrics weigh nothing",
                field="reward.weights",
                found=", ".join(checks) or "no rubric",
                allowed="a weight above 0",
            )
        parts = {
            name: weight * self._compute_score(name, checks[name], criteria.get(name, {})) / total if weight else 0.0
            for name, weight in weights.items()
        }
        return Reward(sum(parts.values()), parts)

    def _compute_score(self, name: str, checks: Sequence[Check], worth: Mapping[str, Any]) -> float:
        if not worth:
            _refuse_missing(checks[0], weighs=True, key=f"weights.{name}")
            return checks[0].score
        earned: list[tuple[float, bool, bool]] = []
        for check in checks:
            known = check.name.removeprefix(f"{name}/")
            veto = bool(worth[known]["veto"]) and self._config.vetoes
            points = self._config.points.get(known, float(worth[known]["points"]))
            points *= math.prod(self._config.tags.get(tag, 1.0) for tag in worth[known]["tags"])
            _refuse_missing(check, weighs=points != 0 or veto, key=f"points.{known}")
            earned.append((points, veto, bool(check.passed)))
        if not any(points > 0 for points, _, _ in earned):
            raise RewardError(
                "no criterion earns anything under these points",
                field="reward.points",
                found=name,
                allowed="one above 0",
            )
        return min(max(compute_earned_score(earned), 0.0), 1.0)


def _refuse_missing(check: Check, *, weighs: bool, key: str) -> None:
    if check.passed is None and weighs:
        raise RewardError(
            "reward=graded needs a verdict that is missing",
            field=f"checks.{check.name}",
            remedy=f"regrade, or reward.{key}=0",
        )


def graded(config: GradedConfig) -> GradedReward:
    """Make the policy.

    Raises:
        ConfigError: a weight or factor below 0, or one of which no sum can be made.
    """
    groups = (("weights", config.weights), ("tags", config.tags), ("points", config.points))
    for key, values in groups:
        for name, value in values.items():
            if value < 0 and key != "points":
                raise ConfigError(
                    "this may not be negative", field=f"reward.{key}.{name}", found=f"{value:g}", allowed="0 or more"
                )
            if value and not LEAST_POINTS <= abs(value) <= MOST_POINTS:
                raise ConfigError(
                    "no sum can be made of this",
                    field=f"reward.{key}.{name}",
                    found=f"{value:g}",
                    allowed=f"0, or {LEAST_POINTS:g} to {MOST_POINTS:,g}",
                )
    return GradedReward(config)
