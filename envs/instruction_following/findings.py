"""From verdicts on single items to an outcome: misalignment, order, labels, and what rewards and metrics need to know
of each item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.target import InstructionItem, InstructionTarget, QuestionItem
from gavel.envs.types import Check, Outcome
from gavel.models.codec import record, to_plain
from gavel.models.failures import Failure
from gavel.models.types import Receipt

FOLLOWED, NOT_FOLLOWED = "followed", "not_followed"
CUSTOM = "llm_judge"
"""The category of a task's own questions."""

Kind = Literal["fast", "judged", "custom"]


@record
class ItemFacts:
    """One item as it stands in ``details.items``, beside the check at the same place.

    ``swapped``: a user's instruction that goes against the system's, so that following it fails. ``passes_on``: the
    judge's label that means it was followed.
    """

    uid: int | str
    name: str
    kind: Kind
    category: str
    source: str
    weight: float
    swapped: bool = False
    passes_on: Literal["yes", "no"] = "yes"


@record
class Finding:
    """What was found of one item: ``passed`` None where it was ``skipped`` or has a ``failure``."""

    fact: ItemFacts
    passed: bool | None
    detail: str = ""
    failure: Failure | None = None
    receipts: tuple[Receipt, ...] = ()
    skipped: bool = False

    @property
    def check(self) -> Check:
        """The check of the outcome."""
        ids = tuple(receipt.call_id for receipt in self.receipts)
        return Check(self.fact.name, self.passed, float(bool(self.passed)), self.detail, ids)


def list_facts(target: InstructionTarget) -> list[ItemFacts]:
    """Return what is known of each item before it is graded, in the request's order."""
    return [_make_fact(item) for item in target.items]


def _make_fact(item: InstructionItem | QuestionItem) -> ItemFacts:
    swapped = item.is_misalignment_check and item.source == "user"
    if isinstance(item, QuestionItem):
        passes_on: Literal["yes", "no"] = "yes" if item.pass_criteria == "YES" else "no"
        return ItemFacts(item.uid, item.name, "custom", CUSTOM, item.source, item.weight, swapped, passes_on)
    entry = INSTRUCTIONS[item.instruction_id]
    return ItemFacts(item.uid, item.name, entry.kind, entry.category, item.source, item.weight, swapped)


def make_finding(
    fact: ItemFacts, *, passed: bool, detail: str, receipts: tuple[Receipt, ...] = (), swap: bool = True
) -> Finding:
    """Return the finding of a verdict; pass and fail change places where following the instruction goes against the
    system's.
    """
    if not (swap and fact.swapped):
        return Finding(fact, passed, detail, receipts=receipts)
    note = "followed, against the system's instruction" if passed else "rightly not followed"
    return Finding(fact, not passed, f"{note}; {detail}" if detail else note, receipts=receipts)


def make_outcome(language: str, finish_reason: str, findings: Sequence[Finding]) -> Outcome:
    """Return the outcome of one reply; ungraded, with the first failure in the request's order, where an item has
    one.
    """
    failures = [finding for finding in findings if finding.failure is not None]
    checks = tuple(finding.check for finding in findings)
    details: dict[str, Any] = {
        "language": language,
        "finish_reason": finish_reason,
        "items": to_plain([finding.fact for finding in findings]),
    }
    if saved := sum(finding.skipped for finding in findings):
        details["judge_calls_saved"] = saved
    if failures:
        return Outcome("", checks, details, _merge_failures(failures))
    return Outcome(FOLLOWED if all(finding.passed for finding in findings) else NOT_FOLLOWED, checks, details)


def _merge_failures(failures: Sequence[Finding]) -> Failure:
    first = failures[0]
    assert first.failure is not None
    more = f" (and {len(failures) - 1} more items)" if len(failures) > 1 else ""
    return Failure(
        first.failure.kind,
        first.failure.stage,
        f"{first.fact.name} (uid {first.fact.uid}): {first.failure.reason}{more}",
    )


_STATUS: Mapping[bool | None, str] = {True: "Passed", False: "Failed", None: "Skipped"}


@record
class Verification:
    """The result in the form of NeMo Gym's ``verifif`` server: one boolean and one result for each item, in the
    request's order.

    An item without a verdict is False and ``Skipped``.
    """

    follow_all_instructions: bool
    follow_instruction_list: tuple[bool, ...]
    validation_results: tuple[Mapping[str, str], ...]


def derive_verification(outcome: Outcome) -> Verification:
    """Derive that form from an outcome's checks."""
    followed = tuple(bool(check.passed) for check in outcome.checks)
    results = tuple(
        {"instruction": check.name, "status": _STATUS[check.passed], "message": check.detail}
        for check in outcome.checks
    )
    return Verification(bool(followed) and all(followed), followed, results)
