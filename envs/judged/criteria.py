"""A task's own criteria: what each is worth, how they are asked in batches, and what they come to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gavel.envs.panels import PanelVotes
from gavel.envs.slot_texts import fill_slots
from gavel.envs.types import Check, Task, TaskError, Transcript
from gavel.judges.form_types import CRITERION, RubricForm
from gavel.judges.rubrics.form_rubric import number_texts
from gavel.judges.types import Grade, Judge, JudgeFailure, JudgeQuery
from gavel.models.codec import decode, record
from gavel.models.errors import shorten_value
from gavel.models.failures import FailureKind
from gavel.models.types import Receipt

CRITERIA = "criteria"
"""The field of a target with the task's criteria."""
LEAST_POINTS, MOST_POINTS = 1e-6, 1e6
"""What points, and the factors and weights of a reward, may be besides 0."""


@record
class Criterion:
    """One thing that a reply does or does not do: ``points`` earned if it is met, below 0 for a fault; ``veto``: one
    that is met fails all, whatever else is earned."""

    id: str
    text: str
    points: float = 1.0
    tags: tuple[str, ...] = ()
    veto: bool = False


def read_criteria(raw: Any) -> tuple[Criterion, ...]:
    """Return the criteria of a target.

    Raises:
        TaskError: names the field.
    """
    if not isinstance(raw, list) or not raw:
        raise TaskError(
            "these are no criteria",
            field=f"target.{CRITERIA}",
            found=shorten_value(raw),
            allowed="a list of {id, text, points}",
        )
    found = tuple(
        decode(Criterion, one, prefix=f"target.{CRITERIA}.{place}", error=TaskError) for place, one in enumerate(raw)
    )
    seen: set[str] = set()
    for place, one in enumerate(found):
        where = f"target.{CRITERIA}.{place}"
        if not one.text.strip() or not one.id.strip():
            raise TaskError(
                "this text is blank", field=f"{where}.{'id' if one.text.strip() else 'text'}", allowed="a text"
            )
        if one.id != one.id.strip() or not one.id.isprintable():
            raise TaskError(
                "this is no id: it stands in the names of checks and of reward.points",
                field=f"{where}.id",
                found=repr(one.id),
                allowed="a text without blanks around it, line ends and unseen characters",
            )
        if one.points and not LEAST_POINTS <= abs(one.points) <= MOST_POINTS:
            raise TaskError(
                "no sum can be made of such points",
                field=f"{where}.points",
                found=f"{one.points:g}",
                allowed=f"0, or {LEAST_POINTS:g} to {MOST_POINTS:,g}, above or below 0",
            )
        if one.id in seen:
            raise TaskError("two criteria have one id", field=f"{where}.id", found=one.id, allowed="each id once")
        seen.add(one.id)
    if not any(one.points > 0 for one in found):
        raise TaskError(
            "no criterion earns anything, so no reply can be compared with the best",
            field=f"target.{CRITERIA}",
            found=", ".join(f"{one.points:g}" for one in found[:5]),
            allowed="points above 0 for at least one",
        )
    return found


def compute_earned_score(criteria: Sequence[tuple[float, bool, bool]]) -> float:
    """Return earned points over the sum of the positive ones, 0 where a veto is met; below 0 where faults weigh more.

    Args:
        criteria: points, whether it is a veto, and whether it is met, of each.
    """
    if any(veto and met for _, veto, met in criteria):
        return 0.0
    best = sum(points for points, _, _ in criteria if points > 0)
    return sum(points for points, _, met in criteria if met) / best


def count_batches(criteria: int, form: RubricForm) -> int:
    """Return how many questions so many criteria take."""
    return -(-criteria // (form.criteria.batch if form.criteria is not None else 1))


def make_plain_criterion(one: Criterion) -> dict[str, Any]:
    """Return what a reward needs of a criterion, as it stands in an outcome's details."""
    return {"points": one.points, "tags": list(one.tags), "veto": one.veto}


_UNANSWERED = (FailureKind.JUDGE_UNPARSEABLE, FailureKind.PANEL_SPLIT)
"""Kinds of failure that leave a criterion unchecked and say nothing of the others."""


class CriteriaAsker:
    """Asks one rubric about the criteria of one reply."""

    def __init__(self, judge: Judge, binding: str, form: RubricForm, task: Task, transcript: Transcript) -> None:
        self._judge, self._binding, self._form, self._task, self._transcript = judge, binding, form, task, transcript
        self.receipts: list[Receipt] = []
        self.raw: list[str] = []
        self.failed: JudgeFailure | None = None
        self.votes = PanelVotes()

    async def ask_criteria(self, criteria: Sequence[Criterion]) -> tuple[Check, ...]:
        """Return a check for each criterion, in their order.

        One that a batch's reply leaves out is asked alone. One without a readable verdict stays unchecked; ``failed``
        is any other failure of a call, with which nothing can be said of the reply.
        """
        size = self._form.criteria.batch if self._form.criteria is not None else 1
        batches = [criteria[start : start + size] for start in range(0, len(criteria), size)]
        answered = await asyncio.gather(*(self._ask_batch(batch) for batch in batches))
        checks = {check.name: check for found in answered for check in found}
        missing = [one for one in criteria if self._make_name(one) not in checks]
        if size > 1 and missing:
            again = await asyncio.gather(*(self._ask_batch([one]) for one in missing))
            checks |= {check.name: check for found in again for check in found}
        return tuple(checks.get(self._make_name(one)) or self._make_unchecked(one) for one in criteria)

    def _make_name(self, one: Criterion) -> str:
        return f"{self._binding}/{one.id}"

    def _make_unchecked(self, one: Criterion) -> Check:
        reason = self.failed.reason if self.failed is not None else "the judge gave no verdict on it"
        return Check(self._make_name(one), passed=None, score=0.0, detail=f"{one.text}: {reason}")

    async def _ask_batch(self, batch: Sequence[Criterion]) -> tuple[Check, ...]:
        texts = [one.text for one in batch]
        asked = number_texts(texts) if self._form.numbered else texts[0]
        slots = fill_slots(self._form, self._task, self._transcript, {CRITERION: asked})
        names = {str(number): one.id for number, one in enumerate(batch, 1)}
        try:
            grade = await self._judge.grade(JudgeQuery(self._binding, slots, prefix_key=self._task.digest))
        except JudgeFailure as failed:
            self.receipts += failed.receipts
            self.votes.add(self._binding, failed, names)
            if failed.kind not in _UNANSWERED:
                self.failed = failed
            return ()
        self.receipts += grade.receipts
        self.votes.add(self._binding, grade, names)
        self.raw.append(grade.raw)
        return tuple(self._read_grade(batch, grade))

    def _read_grade(self, batch: Sequence[Criterion], grade: Grade) -> Iterator[Check]:
        calls = tuple(receipt.call_id for receipt in grade.receipts)
        labels: Mapping[str, str] = grade.details["verdicts"] if self._form.numbered else {"1": grade.label}
        reasons: Mapping[str, str] = grade.details.get("reasons", {"1": grade.reasoning})
        for number, one in enumerate(batch, 1):
            if (label := labels.get(str(number))) is None:
                continue
            score = self._form.scores[label]
            said = f": {reasons[str(number)]}" if reasons.get(str(number)) else ""
            yield Check(
                self._make_name(one),
                passed=score >= 0.5,
                score=score,
                detail=f"{one.text} | judge: {label}{said}",
                receipts=calls,
            )
