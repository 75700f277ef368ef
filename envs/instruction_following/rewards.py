"""Rewards over instruction-following outcomes: how the checks of one reply become one number.

Names follow ``resources_servers/verifif`` of NVIDIA NeMo Gym 0.7.0; ``weighted`` and ``hard_soft`` are ours. Where judge calls were
skipped (``env.short_circuit``), only a policy that the known checks already decide gives a reward; the others refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gavel.envs.instruction_following.findings import FOLLOWED, NOT_FOLLOWED
from gavel.envs.types import Check, Outcome, Reward, RewardError
from gavel.models.codec import record
from gavel.models.errors import shorten


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
        items = _items(self.name, outcome)
        value = self._aggregate(items)
        if value is None:
            skipped = sum(item.score is None for item in items)
            raise RewardError(
                f"reward={self.name} needs checks that were skipped", field="outcome.checks",
                found=f"{skipped} of {len(items)} skipped", allowed="outcomes without skipped checks",
                remedy="set env.short_circuit=false, or use reward=all",
            )  # fmt: skip
        return Reward(value, {self.name: value})


def _items(name: str, outcome: Outcome) -> list[Scored]:
    facts: Sequence[Mapping[str, Any]] = (outcome.details or {}).get("items", ())
    if outcome.label not in (FOLLOWED, NOT_FOLLOWED) or len(facts) != len(outcome.checks) or not facts:
        raise RewardError(
            f"reward={name} cannot reward this outcome", field="outcome.label", found=shorten(outcome.label or "ungraded"),
            allowed=f"{FOLLOWED}, {NOT_FOLLOWED}", remedy="choose a reward policy of the outcome's environment",
        )  # fmt: skip
    return [_scored(check, fact) for check, fact in zip(outcome.checks, facts, strict=True)]


def _scored(check: Check, fact: Mapping[str, Any]) -> Scored:
    return Scored(None if check.passed is None else check.score, float(fact["weight"]), fact["source"] == "system")


def _known(items: Sequence[Scored]) -> list[float] | None:
    scores = [item.score for item in items if item.score is not None]
    return scores if len(scores) == len(items) else None


def _least(items: Sequence[Scored]) -> float | None:
    """A 0 among the known scores is the least whatever the others are."""
    scores = [item.score for item in items if item.score is not None]
    if scores and min(scores) == 0.0:
        return 0.0
    return min(scores) if len(scores) == len(items) else None


def _greatest(items: Sequence[Scored]) -> float | None:
    scores = [item.score for item in items if item.score is not None]
    if scores and max(scores) == 1.0:
        return 1.0
    return max(scores) if len(scores) == len(items) else None


def _all(items: Sequence[Scored]) -> float | None:
    least = _least(items)
    return None if least is None else float(least == 1.0)


def _any(items: Sequence[Scored]) -> float | None:
    greatest = _greatest(items)
    return None if greatest is None else float(greatest == 1.0)


def _mean(items: Sequence[Scored]) -> float | None:
    scores = _known(items)
    return None if scores is None else sum(scores) / len(scores)


def _weighted(items: Sequence[Scored]) -> float | None:
    scores = _known(items)
    if scores is None:
        return None
    total = sum(item.weight for item in items)  # above 0: a task whose weights are all 0 is refused
    return sum(score * item.weight for score, item in zip(scores, items, strict=True)) / total


def _hard_soft(items: Sequence[Scored]) -> float | None:
    """0 unless every system item passed; then the mean of the user's items, 1 where there are none."""
    hard, soft = [item for item in items if item.system], [item for item in items if not item.system]
    passed = _all(hard) if hard else 1.0
    if not passed:
        return passed
    return _mean(soft) if soft else 1.0


AGGREGATES: Mapping[str, Aggregate] = {
    "all": _all, "any": _any, "mean": _mean, "min": _least, "max": _greatest, "weighted": _weighted, "hard_soft": _hard_soft,
}  # fmt: skip
"""``all``: 1 if every item passed, else 0 (the default). ``any``: 1 if one did. ``mean``: the share that passed. ``min``, ``max``: the
least and the greatest score. ``weighted``: the share of weight that passed. ``hard_soft``: 0 unless every system item passed, then the
share of the user's items that did."""


def _maker(name: str) -> Callable[[AggregateConfig], ChecksReward]:
    return lambda _: ChecksReward(name, AGGREGATES[name])


make_all = _maker("all")
make_any = _maker("any")
make_mean = _maker("mean")
make_min = _maker("min")
make_max = _maker("max")
make_weighted = _maker("weighted")
make_hard_soft = _maker("hard_soft")
