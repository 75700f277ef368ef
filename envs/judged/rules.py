"""Instructions that programs check, beside the rubrics: what a row may ask, and a check for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.instruction_following.checkers import Checkers, WorkerLost
from gavel.envs.instruction_following.fast import FastJob, FastVerdict
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.target import InstructionTarget
from gavel.envs.instruction_following.target import parse_target as parse_instructions
from gavel.envs.types import Check, TaskError
from gavel.models.errors import shorten_value

RULES = "instructions"
"""The field of a target with its instructions, and what their part of outcomes, rewards and figures is called."""
LANGUAGE = "language"
_FIXED = {"source": "user", "is_misalignment_check": False}
"""What an item of the instruction-following environment says besides; here every instruction is the user's."""


def read_rules(target: Mapping[str, Any]) -> InstructionTarget:
    """Return the instructions of a target, ``[{instruction_id, …}]``; a ``uid`` that is not given is its place, from
    ``i1``.

    Raises:
        TaskError: there is none, one does not fit, or only a judge can decide it; names the field.
    """
    given = target.get(RULES)
    if not isinstance(given, list) or not given or not all(isinstance(one, Mapping) for one in given):
        raise TaskError(
            "these are no instructions",
            field=f"target.{RULES}",
            found=shorten_value(given),
            allowed="a list of {instruction_id, …}",
            remedy="give them in the row, or set env.instructions=false",
        )
    for place, one in enumerate(given):
        if other := [name for name, value in _FIXED.items() if one.get(name, value) != value]:
            raise TaskError(
                "here every instruction is the user's own",
                field=f"target.{RULES}.{place}.{other[0]}",
                found=shorten_value(one[other[0]]),
                remedy="env=instruction_following grades the system's and those against them",
            )
        entry = INSTRUCTIONS.get(str(one.get("instruction_id")))
        if entry is not None and entry.kind != "fast":
            raise TaskError(
                "only a judge can decide this instruction",
                field=f"target.{RULES}.{place}.instruction_id",
                found=entry.id,
                allowed="an instruction that a program checks",
                remedy="write it as a criterion, or into a rubric",
            )
    items = [{"uid": f"i{place}", **one, **_FIXED} for place, one in enumerate(given, 1)]
    return parse_instructions({LANGUAGE: target.get(LANGUAGE), RULES: items})


class RuleChecks:
    """Checks replies in worker processes, which are started when the first one is checked."""

    def __init__(self) -> None:
        self._checkers = Checkers()

    async def check_reply(self, target: InstructionTarget, text: str) -> tuple[Check, ...]:
        """Return a check for each instruction; one that our own code failed over is unchecked."""
        chosen = [(item.instruction_id, dict(item.arguments)) for item in target.instructions]
        try:
            verdicts = await self._checkers.check(FastJob(text, target.language, chosen))
        except WorkerLost as lost:
            verdicts = (FastVerdict(None, str(lost)),) * len(chosen)
        return tuple(
            Check(
                f"{RULES}/{item.uid}",
                passed=verdict.passed,
                score=float(bool(verdict.passed)),
                detail=f"{item.instruction_id} | {verdict.detail}" if verdict.detail else item.instruction_id,
            )
            for item, verdict in zip(target.instructions, verdicts, strict=True)
        )


def describe_worth(target: InstructionTarget) -> dict[str, Any]:
    """Return what each instruction is worth, in the form of criteria: its weight as points, its category as a tag."""
    return {
        str(item.uid): {"points": item.weight, "tags": [INSTRUCTIONS[item.instruction_id].category], "veto": False}
        for item in target.instructions
    }
