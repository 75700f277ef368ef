"""Asking a judge about a pair: both orders at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import cast

from gavel.judges.form_types import PairForm
from gavel.judges.pairs.rules import PairGrade, PairVerdict, combine_orders
from gavel.judges.types import Grade, Judge, JudgeFailure, JudgeQuery
from gavel.models.types import Receipt


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """What a judge says of two texts: the ``grade`` of both orders, and each order's own, as it was asked."""

    grade: PairGrade
    orders: tuple[Grade, Grade]

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """The receipts of both orders."""
        return tuple(receipt for one in self.orders for receipt in one.receipts)


async def ask_pair(judge: Judge, query: JudgeQuery, pair: PairForm) -> PairAnswer:
    """Ask which of two texts is better, in both orders.

    Args:
        judge: has the query's binding.
        query: with the texts in their places.
        pair: says which slots they stand in, and how the two verdicts become one.

    Raises:
        JudgeFailure: an order has no verdict; with the receipts of both.
    """
    swapped = replace(query, slots=pair.swap_slots(query.slots))
    shown, turned = await asyncio.gather(_ask_order(judge, query), _ask_order(judge, swapped))
    if isinstance(shown, JudgeFailure) or isinstance(turned, JudgeFailure):
        failed = shown if isinstance(shown, JudgeFailure) else turned
        assert isinstance(failed, JudgeFailure)
        raise JudgeFailure(failed.kind, failed.reason, (*shown.receipts, *turned.receipts), failed.raw) from failed
    return PairAnswer(combine_orders(_read_label(shown), _read_label(turned), pair.rule), (shown, turned))


async def _ask_order(judge: Judge, query: JudgeQuery) -> Grade | JudgeFailure:
    try:
        return await judge.grade(query)
    except JudgeFailure as failed:
        return failed


def _read_label(grade: Grade) -> PairVerdict:
    return cast("PairVerdict", grade.label)  # a rubric of pairs has no other labels
