"""Rewards over instruction-following outcomes: how the checks of one reply become one number.

Names follow ``resources_servers/verifif`` of NVIDIA NeMo Gym 0.7.0; ``weighted`` and ``hard_soft`` are ours. Where
judge calls were skipped (``env.short_circuit``), only a policy that the known checks already decide gives a reward; the
others refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gavel.envs.instruction_following.findings import FOLLOWED, NOT_FOLLOWED
from gavel.envs.types import Check, Outcome, Reward, RewardError
from gavel.models.codec import record
from gavel.models.errors import shorten_value


@record
class Scored:
    """One item as a reward policy sees it: ``score`` in [0, 1], or None where it was skipped."""

    score: float | None
    weight: float
    system: bool


@record
class AggregateConfig:
    """The aggregations have no options: each is a choice of its own, so that all choices have the same keys."""


Aggregate = Callable[[Sequence[Scored]], float | None]
"""From the items to the value; None where it would need an item that was skipped."""


class ChecksReward:
    """A reward made of an outcome's checks, in [0, 1]; its one component bears the policy's name.

    ``ablation``: None for ``all``, the environment's own objective.
    """

    bounds = (0.0, 1.0)

    def __init__(self, name: str, aggregate: Aggregate) -> None:
        self.name, self._aggregate = name, aggregate
        self.ablation = None if name == "all" else f"ablation of the default reward: {name} instead of all"

    def reward(self, outcome: Outcome) -> Reward:
        """Return the aggregate of the outcome's checks.

        Raises:
            RewardError: the outcome is ungraded or another environment's, or a check it needs was skipped.
        """
        items = _read_items(self.name, outcome)
        value = self._aggregate(items)
        if value is None:
            skipped = sum(item.score is None for item in items)
            raise RewardError(
                f"reward={self.name} needs checks that were skipped",
                field="outcome.checks",
                found=f"{skipped} of {len(items)} skipped",
                allowed="outcomes without skipped checks",
                remedy="set env.short_circuit=false, or use reward=all",
            )
        return Reward(value, {self.name: value})


def _read_items(name: str, outcome: Outcome) -> list[Scored]:
    facts: Sequence[Mapping[str, Any]] = (outcome.details or {}).get("items", ())
    if outcome.label not in (FOLLOWED, NOT_FOLLOWED) or len(facts) != len(outcome.checks) or not facts:
        raise RewardError(
            f"reward={name} cannot reward this outcome",
            field="outcome.label",
            found=shorten_value(outcome.label or "ungraded"),
            allowed=f"{FOLLOWED}, {NOT_FOLLOWED}",
            remedy="choose a reward policy of the outcome's environment",
        )
    return [_make_scored(check, fact) for check, fact in zip(outcome.checks, facts, strict=True)]


def _make_scored(check: Check, fact: Mapping[str, Any]) -> Scored:
    return Scored(None if check.passed is None else check.score, float(fact["weight"]), fact["source"] == "system")


def _list_known(items: Sequence[Scored]) -> list[float] | None:
    scores = [item.score for item in items if item.score is not None]
    return scores if len(scores) == len(items) else None


def _find_least(items: Sequence[Scored]) -> float | None:
    """A 0 among the known scores is the least whatever the others are."""
    scores = [item.score for item in items if item.score is not None]
    if scores and min(scores) == 0.0:
        return 0.0
    return min(scores) if len(scores) == len(items) else None


def _find_greatest(items: Sequence[Scored]) -> float | None:
    scores = [item.score for item in items if item.score is not None]
    if scores and max(scores) == 1.0:
        return 1.0
    return max(scores) if len(scores) == len(items) else None


def _require_all(items: Sequence[Scored]) -> float | None:
    least = _find_least(items)
    return None if least is None else float(least == 1.0)


def _require_any(items: Sequence[Scored]) -> float | None:
    greatest = _find_greatest(items)
    return None if greatest is None else float(greatest == 1.0)


def _compute_mean(items: Sequence[Scored]) -> float | None:
    scores = _list_known(items)
    return None if scores is None else sum(scores) / len(scores)


def _compute_weighted(items: Sequence[Scored]) -> float | None:
    scores = _list_known(items)
    if scores is None:
        return None
    total = sum(item.weight for item in items)  # above 0: a task whose weights are all 0 is refused
    return sum(score * item.weight for score, item in zip(scores, items, strict=True)) / total


def _compute_hard_soft(items: Sequence[Scored]) -> float | None:
    """0 unless every system item passed; then the mean of the user's items, 1 where there are none."""
    hard, soft = [item for item in items if item.system], [item for item in items if not item.system]
    passed = _require_all(hard) if hard else 1.0
    if not passed:
        return passed
    return _compute_mean(soft) if soft else 1.0


AGGREGATES: Mapping[str, Aggregate] = {
    "all": _require_all, "any": _require_any, "mean": _compute_mean, "min": _find_least, "max": _find_greatest, "weighted": _compute_weighted, "hard_soft": _compute_hard_soft,  # noqa: E501
}  # fmt: skip
"""``all``: 1 if every item passed, else 0 (the default). ``any``: 1 if one did. ``mean``: the share that passed.
``min``, ``max``: the least and the greatest score. ``weighted``: the share of weight that passed. ``hard_soft``: 0
unless every system item passed, then the share of the user's items that did."""


def _make_policy(name: str) -> Callable[[AggregateConfig], ChecksReward]:
    return lambda _: ChecksReward(name, AGGREGATES[name])


make_all = _make_policy("all")
make_any = _make_policy("any")
make_mean = _make_policy("mean")
make_min = _make_policy("min")
make_max = _make_policy("max")
make_weighted = _make_policy("weighted")
make_hard_soft = _make_policy("hard_soft")
