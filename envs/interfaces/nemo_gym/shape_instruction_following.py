"""Instruction-following rows and replies with the field names of Gym 0.7's ``resources_servers/verifif``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.instruction_following.findings import derive_verification
from gavel.envs.instruction_following.target import InstructionItem, InstructionTarget, QuestionItem, parse_target
from gavel.envs.interfaces.nemo_gym.shapes import Shape
from gavel.envs.types import Outcome
from gavel.models.codec import to_plain
from gavel.models.failures import FailureKind

_REFUSED = {FailureKind.TASK_SCHEMA: "schema_validation", FailureKind.LANGUAGE_UNSUPPORTED: "language_compatibility"}
"""What Gym's server calls the failed check of a row that cannot be graded."""


def _make_fields(target: InstructionTarget, task_id: str) -> Mapping[str, Any]:
    made: dict[str, Any] = {"id": int(task_id)} if task_id.isascii() and task_id.isdigit() else {}
    made |= {
        "instructions": [_make_instruction(item) for item in target.instructions],
        "llm_judge": [_make_question(item) for item in target.llm_judge],
        "language": target.language,
    }
    return made if target.prompt is None else {**made, "prompt": target.prompt}


def _make_instruction(item: InstructionItem) -> dict[str, Any]:
    facts = {"instruction_id": item.instruction_id, **_list_common(item)}
    return {**facts, **to_plain(item.arguments)}


def _make_question(item: QuestionItem) -> dict[str, Any]:
    return {**_list_common(item), "content": item.content, "pass_criteria": item.pass_criteria}


def _list_common(item: InstructionItem | QuestionItem) -> dict[str, Any]:
    made: dict[str, Any] = {"uid": item.uid, "source": item.source, "is_misalignment_check": item.is_misalignment_check}
    return made if item.weight == 1.0 else {**made, "weight": item.weight}


def _read_target(row: Mapping[str, Any]) -> InstructionTarget:
    return parse_target(
        {name: row.get(name) for name in ("instructions", "llm_judge", "language", "prompt")}, prefix=""
    )


def _make_reply(outcome: Outcome, target: InstructionTarget | None) -> Mapping[str, Any]:  # noqa: ARG001
    if outcome.failure is not None and outcome.failure.kind in _REFUSED and not outcome.checks:
        name = _REFUSED[outcome.failure.kind]
        failed = {"instruction": name, "status": "Failed", "message": outcome.failure.reason}
        return {"follow_all_instructions": False, "follow_instruction_list": [False], "validation_results": [failed]}
    made = derive_verification(outcome)
    return {
        "follow_all_instructions": made.follow_all_instructions,
        "follow_instruction_list": list(made.follow_instruction_list),
        "validation_results": [dict(result) for result in made.validation_results],
    }


SHAPE = Shape(_make_fields, _read_target, _make_reply, parse_target, domain="instruction_following")
