"""From a judge's verdicts on a pair, one in each order, to who is better: named rules, since published ones differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from gavel.models.codec import record

PairVerdict = Literal["first", "second", "tie"]
"""Which of two replies is better."""
PairRule = Literal["agree", "sum"]
"""How the verdicts of the two orders become one.

``agree``: equal verdicts count, unequal ones are a tie. ``sum``: each order gives the reply it names a point, and the
points decide, so that a win and a tie are a win (JudgeBench's rule: arXiv:2410.12784, section 4).
"""
FIRST: PairVerdict = "first"
SECOND: PairVerdict = "second"
TIE: PairVerdict = "tie"
PAIR_SCORES: Mapping[PairVerdict, float] = MappingProxyType({FIRST: 1.0, TIE: 0.5, SECOND: 0.0})
"""What a verdict is worth to the first reply."""
POINTS: Mapping[PairVerdict, int] = MappingProxyType({FIRST: 1, TIE: 0, SECOND: -1})


@record
class PairGrade:
    """What both orders say of two replies.

    Attributes:
        winner: which reply is better, by the rule.
        orders: each order's verdict, both of the replies themselves, not of the places they stood in.
        position_flip: the orders name different replies, so that the place decided.
    """

    winner: PairVerdict
    orders: tuple[PairVerdict, PairVerdict]
    position_flip: bool


def turn_verdict(verdict: PairVerdict) -> PairVerdict:
    """Return the verdict on the same replies with their places changed."""
    return {FIRST: SECOND, SECOND: FIRST, TIE: TIE}[verdict]


def combine_orders(shown: PairVerdict, swapped: PairVerdict, rule: PairRule = "agree") -> PairGrade:
    """Return what two verdicts come to.

    Args:
        shown: the verdict with the replies in their places.
        swapped: the verdict with the places changed, as the judge gave it.
        rule: how unequal verdicts count.
    """
    orders = (shown, turn_verdict(swapped))
    return PairGrade(_RULES[rule](*orders), orders, {FIRST, SECOND} == set(orders))


def _keep_equal(one: PairVerdict, other: PairVerdict) -> PairVerdict:
    return one if one == other else TIE


def _sum_points(one: PairVerdict, other: PairVerdict) -> PairVerdict:
    points = POINTS[one] + POINTS[other]
    return FIRST if points > 0 else SECOND if points < 0 else TIE


_RULES: Mapping[PairRule, Callable[[PairVerdict, PairVerdict], PairVerdict]] = MappingProxyType(
    {"agree": _keep_equal, "sum": _sum_points}
)
